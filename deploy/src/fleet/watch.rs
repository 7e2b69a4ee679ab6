//! `flotilla fleet watch`: looks, draws, until a key ends it. Without a terminal: one JSON line a look.

use std::io::IsTerminal;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};

use super::client::Admin;
use super::view::{Screen, draw};

/// How long a key may wait to be seen.
const KEY_EVERY: Duration = Duration::from_millis(50);

/// Watches until q, Escape or Ctrl-C.
///
/// # Errors
///
/// When there is no terminal to draw on, or the first look fails.
pub async fn run(admin: &Admin, every: Duration, as_json: bool) -> Result<(), String> {
    let mut screen = Screen { gateway: admin.authority().to_owned(), ..Screen::default() };
    screen.replicas = admin.list().await?.replicas;
    if as_json {
        return print(admin, every).await;
    }
    if !std::io::stdout().is_terminal() {
        return Err("watch draws on a terminal; use `fleet list`, or `fleet watch --json`".to_owned());
    }
    let mut terminal = ratatui::try_init().map_err(|error| format!("cannot draw: {error}"))?;
    let outcome = show(admin, every, &mut terminal, &mut screen).await;
    ratatui::restore();
    outcome.map_err(|error| format!("cannot draw: {error}"))
}

async fn show(
    admin: &Admin,
    every: Duration,
    terminal: &mut DefaultTerminal,
    screen: &mut Screen,
) -> std::io::Result<()> {
    let mut looks = tokio::time::interval(every);
    let mut keys = tokio::time::interval(KEY_EVERY);
    loop {
        tokio::select! {
            _ = looks.tick() => {
                match admin.list().await {
                    Ok(fleet) => (screen.replicas, screen.fault) = (fleet.replicas, None),
                    Err(fault) => screen.fault = Some(fault),
                }
                terminal.draw(|frame| draw(frame, screen))?;
            }
            _ = keys.tick() => {
                while event::poll(Duration::ZERO)? {
                    match event::read()? {
                        Event::Key(key) if is_end(key) => return Ok(()),
                        Event::Resize(..) => {
                            terminal.draw(|frame| draw(frame, screen))?;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

fn is_end(key: KeyEvent) -> bool {
    let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

/// One line a look, until the reader goes.
async fn print(admin: &Admin, every: Duration) -> Result<(), String> {
    use std::io::Write;
    let mut looks = tokio::time::interval(every);
    loop {
        looks.tick().await;
        let fleet = admin.list().await?;
        let line = serde_json::to_string(&fleet).map_err(|error| error.to_string())?;
        if writeln!(std::io::stdout(), "{line}").is_err() {
            return Ok(());
        }
    }
}
