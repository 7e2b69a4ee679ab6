//! The fleet as a table of text. Pure.

use shared::wire::FleetEntry;

/// Column names.
pub const COLUMNS: [&str; 9] =
    ["REPLICA", "STATE", "MODEL", "ENGINE", "IN FLIGHT", "RUNNING", "WAITING", "KV", "WHY"];

/// One replica's cells.
pub fn cells(entry: &FleetEntry) -> [String; 9] {
    let count = |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |count| count.to_string());
    [
        entry.id.clone(),
        entry.state.clone(),
        entry.models.first().cloned().unwrap_or_else(|| "-".to_owned()),
        if entry.engine.is_empty() { "-".to_owned() } else { entry.engine.clone() },
        entry.in_flight.to_string(),
        count(entry.running),
        count(entry.waiting),
        entry.kv_usage.map_or_else(|| "-".to_owned(), |usage| format!("{:.0} %", usage * 100.0)),
        entry.why.clone(),
    ]
}

/// Aligned columns under their names.
pub fn render(entries: &[FleetEntry]) -> String {
    if entries.is_empty() {
        return "no replicas; add one with: flotilla fleet add URL".to_owned();
    }
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(entries.iter().map(cells));
    let widths = std::array::from_fn::<_, 9, _>(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let line = |row: &[String; 9]| {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_what_is_unknown_is_a_dash() {
        let known = FleetEntry {
            id: "127.0.0.1:8001".to_owned(),
            state: "ready".to_owned(),
            models: vec!["smol".to_owned()],
            engine: "flotilla".to_owned(),
            in_flight: 3,
            running: Some(3),
            waiting: Some(0),
            kv_usage: Some(0.256),
            ..FleetEntry::default()
        };
        let unknown = FleetEntry {
            id: "h:1".to_owned(),
            state: "down".to_owned(),
            why: "refused".to_owned(),
            ..FleetEntry::default()
        };
        let expected = "\
REPLICA         STATE  MODEL  ENGINE    IN FLIGHT  RUNNING  WAITING  KV    WHY
127.0.0.1:8001  ready  smol   flotilla  3          3        0        26 %
h:1             down   -      -         0          -        -        -     refused";
        assert_eq!(render(&[known, unknown]), expected);
    }
}
