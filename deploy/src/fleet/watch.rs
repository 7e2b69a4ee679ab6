//! `flotilla fleet watch`: looks, draws, until a key ends it. Without a terminal: one JSON line a look.

use std::io::IsTerminal;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

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
    look(admin, &mut screen).await?;
    if as_json {
        return print(admin, every, &mut screen).await;
    }
    if !std::io::stdout().is_terminal() {
        return Err("watch draws on a terminal; use `fleet list`, or `fleet watch --json`".to_owned());
    }
    let mut terminal = ratatui::try_init().map_err(|error| format!("cannot draw: {error}"))?;
    let outcome = show(admin, every, &mut terminal, &mut screen).await;
    ratatui::restore();
    outcome.map_err(|error| format!("cannot draw: {error}"))
}

/// Asks for all that is shown.
async fn look(admin: &Admin, screen: &mut Screen) -> Result<(), String> {
    let (replicas, models) = (admin.list().await?.replicas, admin.scale().await?.models);
    (screen.replicas, screen.models) = (replicas, models);
    Ok(())
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
                screen.fault = look(admin, screen).await.err();
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
async fn print(admin: &Admin, every: Duration, screen: &mut Screen) -> Result<(), String> {
    use std::io::Write;
    let mut looks = tokio::time::interval(every);
    loop {
        looks.tick().await;
        look(admin, screen).await?;
        let line = json!({"replicas": screen.replicas, "models": screen.models});
        if writeln!(std::io::stdout(), "{line}").is_err() {
            return Ok(());
        }
    }
}
