//! The fleet as a screen: one line of sums, then a row a replica with its KV bar. Pure: draws what it is given.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};
use shared::wire::{FleetEntry, ScaleEntry};

/// Width of a KV bar, in cells.
const BAR: usize = 20;

/// What is on the screen.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    /// Whose fleet.
    pub gateway: String,
    /// What the gateway said last.
    pub replicas: Vec<FleetEntry>,
    /// How many replicas each model has and wants: what autoscalers read too.
    pub models: Vec<ScaleEntry>,
    /// Why the last look failed, when it did; the rest is older then.
    pub fault: Option<String>,
}

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(3), Constraint::Min(3), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(sums(screen)), head);
    draw_replicas(frame, body, &screen.replicas);
    let (text, colour) = match &screen.fault {
        Some(fault) => (fault.as_str(), Color::Red),
        None => ("q ends", Color::DarkGray),
    };
    frame.render_widget(Paragraph::new(text).style(Style::new().fg(colour)), foot);
}

fn sums(screen: &Screen) -> Vec<Line<'_>> {
    let ready = screen.replicas.iter().filter(|replica| replica.state == "ready").count();
    let sum = |what: fn(&FleetEntry) -> Option<u32>| screen.replicas.iter().filter_map(what).sum::<u32>();
    let rate = |what: fn(&FleetEntry) -> Option<f64>| screen.replicas.iter().filter_map(what).sum::<f64>();
    let head = format!("{}: {ready} of {} replicas ready", screen.gateway, screen.replicas.len());
    let load = format!(
        "in flight {}  running {}  waiting {}  can prefill {:.0} and decode {:.0} tokens/s",
        sum(|replica| Some(replica.in_flight)),
        sum(|replica| replica.running),
        sum(|replica| replica.waiting),
        rate(|replica| replica.prefill_tokens_per_s),
        rate(|replica| replica.decode_tokens_per_s),
    );
    vec![Line::styled(head, Modifier::BOLD), Line::raw(load), Line::raw(wanted(&screen.models))]
}

/// Replicas wanted, the number that autoscalers follow.
fn wanted(models: &[ScaleEntry]) -> String {
    let of = |model: &ScaleEntry| {
        format!("{} {} ({} ready)", model.model, model.replicas_wanted, model.replicas_ready)
    };
    if models.is_empty() {
        return "wanted: no model is known yet".to_owned();
    }
    let each: Vec<_> = models.iter().map(of).collect();
    format!("wanted: {}", each.join(", "))
}

fn draw_replicas(frame: &mut Frame<'_>, area: Rect, replicas: &[FleetEntry]) {
    let widths = [
        Constraint::Min(16),
        Constraint::Length(9),
        Constraint::Length(BAR as u16 + 6),
        Constraint::Length(9),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Min(10),
    ];
    let names = Row::new(["REPLICA", "STATE", "KV", "IN FLIGHT", "RUNNING", "WAITING", "WHY"]);
    let table = Table::new(replicas.iter().map(row), widths)
        .header(names.style(Modifier::BOLD))
        .block(Block::bordered());
    frame.render_widget(table, area);
}

fn row(replica: &FleetEntry) -> Row<'static> {
    let count =
        |value: Option<u32>| Cell::new(value.map_or_else(|| "-".to_owned(), |count| count.to_string()));
    Row::new([
        Cell::new(replica.id.clone()),
        Cell::new(replica.state.clone()).style(Style::new().fg(colour(&replica.state))),
        Cell::new(bar(replica.kv_usage)),
        count(Some(replica.in_flight)),
        count(replica.running),
        count(replica.waiting),
        Cell::new(replica.why.clone()),
    ])
}

fn colour(state: &str) -> Color {
    match state {
        "ready" => Color::Green,
        "joining" | "warming" | "draining" => Color::Yellow,
        _ => Color::Red,
    }
}

fn bar(usage: Option<f64>) -> String {
    let Some(usage) = usage.map(|usage| usage.clamp(0.0, 1.0)) else { return "-".to_owned() };
    let full = (usage * BAR as f64).round() as usize;
    format!("{}{} {:3.0} %", "█".repeat(full), "░".repeat(BAR - full), usage * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(screen: &Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(110, 9)).unwrap();
        terminal.draw(|frame| draw(frame, screen)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..buffer.area.height)
            .map(line)
            .map(|line| line.trim_end().to_owned())
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn replica(id: &str, state: &str, kv_usage: Option<f64>) -> FleetEntry {
        let (id, state) = (id.to_owned(), state.to_owned());
        FleetEntry { id, state, kv_usage, in_flight: 2, running: Some(2), ..FleetEntry::default() }
    }

    #[test]
    fn every_replica_has_a_row_and_the_head_has_sums() {
        let replicas = vec![replica("a:1", "ready", Some(0.5)), replica("b:2", "down", None)];
        let text = drawn(&Screen { gateway: "g:9".to_owned(), replicas, ..Screen::default() });
        assert!(text.contains("g:9: 1 of 2 replicas ready"), "{text}");
        assert!(text.contains("in flight 4  running 4  waiting 0"), "{text}");
        assert!(text.contains("██████████░░░░░░░░░░  50 %"), "{text}");
        assert!(text.contains("b:2") && text.contains("down"), "{text}");
    }

    #[test]
    fn a_gateway_that_is_gone_is_said_and_the_last_picture_stays() {
        let replicas = vec![replica("a:1", "ready", Some(0.5))];
        let screen = Screen { replicas, fault: Some("cannot connect".to_owned()), ..Screen::default() };
        let text = drawn(&screen);
        assert!(text.contains("cannot connect") && text.contains("a:1"), "{text}");
    }

    /// What to add or take away is said where the fleet is looked at.
    #[test]
    fn every_model_has_its_wanted_replicas() {
        let model = |model: &str, replicas_wanted, replicas_ready| ScaleEntry {
            model: model.to_owned(),
            replicas_wanted,
            replicas_ready,
            ..ScaleEntry::default()
        };
        let models = vec![model("smol", 3, 2), model("large", 0, 1)];
        let text = drawn(&Screen { models, ..Screen::default() });
        assert!(text.contains("wanted: smol 3 (2 ready), large 0 (1 ready)"), "{text}");
    }

    #[test]
    fn a_bar_stays_inside_its_width_whatever_the_replica_says() {
        for usage in [-1.0, 0.0, 0.49, 1.0, 7.0] {
            assert_eq!(bar(Some(usage)).chars().filter(|c| "█░".contains(*c)).count(), BAR, "{usage}");
        }
    }
}
