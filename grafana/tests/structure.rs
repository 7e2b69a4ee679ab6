//! What every board and rule must be, whatever it shows: and that the files here are what the code writes.

use std::collections::BTreeSet;
use std::path::Path;

use grafana::board::Board;
use grafana::panel::{Panel, Unit};
use grafana::{boards, files, rules};
use shared::metric::{Kind, Metric, gateway, gpu, replica};

fn ours() -> impl Iterator<Item = &'static Metric> {
    gateway::ALL.iter().chain(replica::ALL).chain(gpu::ALL)
}

/// Every query of every board, with where it stands.
fn queries() -> Vec<(String, String)> {
    let of_panel = |board: &Board, panel: &Panel| {
        let at = format!("{}: {}", board.uid, panel.title);
        panel.queries.iter().map(move |query| (at.clone(), query.expr.clone())).collect::<Vec<_>>()
    };
    let boards = boards::all();
    boards.iter().flat_map(|board| board.panels().flat_map(|panel| of_panel(board, panel))).collect()
}

/// Every expression of rules, with its name.
fn expressions() -> Vec<(String, String)> {
    let records = rules::records().into_iter().flat_map(|(_, records)| records);
    let records = records.map(|record| (record.name, record.expr));
    records.chain(rules::alerts::all().into_iter().map(|alert| (alert.name, alert.expr))).collect()
}

/// Words that may be names of series.
fn words(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(|c| !is_part(c))
        .filter(|word| word.len() > 4 && !word.starts_with(|c: char| c.is_numeric()))
        .collect()
}

#[test]
fn the_files_are_what_the_code_writes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, text) in files::all() {
        let found = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        assert!(found == text, "{path} is not up to date: run `cargo run -p grafana -- write grafana`");
    }
    let written = files::all().len();
    let there = ["dashboards", "rules", "provisioning/datasources", "provisioning/dashboards"];
    let count: usize = there.iter().map(|folder| std::fs::read_dir(root.join(folder)).unwrap().count()).sum();
    assert_eq!(count, written, "a file that nobody writes");
}

#[test]
fn ids_are_unique_and_nothing_overlaps() {
    let mut uids = BTreeSet::new();
    for board in boards::all() {
        assert!(uids.insert(board.uid) && board.uid.starts_with("flotilla-"), "{}", board.uid);
        let json = board.json();
        assert!(json["schemaVersion"].as_u64().unwrap() >= 39);
        let panels = json["panels"].as_array().unwrap();
        let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len(), "{}", board.uid);
        let titles: BTreeSet<_> = board.panels().map(|panel| panel.title).collect();
        assert_eq!(titles.len(), board.panels().count(), "{}: a title twice", board.uid);
        let mut taken = BTreeSet::new();
        for panel in panels {
            let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
            assert!(at("x") + at("w") <= 24, "{}: {}", board.uid, panel["title"]);
            for cell in
                (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
            {
                assert!(taken.insert(cell), "{}: {} overlaps", board.uid, panel["title"]);
            }
        }
    }
}

#[test]
fn every_panel_has_a_description_a_unit_and_the_variable_source() {
    for board in boards::all() {
        assert!(!board.description.is_empty());
        for panel in board.panels() {
            assert!(panel.description.ends_with('.'), "{}: {}", board.uid, panel.title);
            assert!(!panel.queries.is_empty(), "{}: {} asks nothing", board.uid, panel.title);
            let json = panel.json(1, 0, 0);
            assert_eq!(json["datasource"]["uid"], "${datasource}");
            assert_ne!(json["fieldConfig"]["defaults"]["unit"], "");
            let is_share = panel.queries.iter().all(|query| query.expr.contains(":ratio"));
            assert!(
                !is_share || panel.unit == Unit::Ratio || panel.unit == Unit::Count,
                "{}: a ratio",
                panel.title
            );
        }
    }
}

#[test]
fn every_variable_that_a_query_uses_is_on_its_board() {
    for board in boards::all() {
        for query in board.panels().flat_map(|panel| &panel.queries) {
            for used in query.expr.split('$').skip(1) {
                let name: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let is_known =
                    name.starts_with("__") || board.variables.iter().any(|known| known.name == name);
                assert!(is_known, "{}: ${name} in {}", board.uid, query.expr);
            }
        }
    }
}

/// U114: nothing adds up shares, no quantile is averaged, and no mean goes back to the start of a process.
#[test]
fn sums_quantiles_and_rates_are_taken_rightly() {
    for (at, expr) in queries().into_iter().chain(expressions()) {
        for share in ["_perc", "_ratio", ":ratio"] {
            let sums = expr.match_indices("sum").any(|(start, _)| {
                let inner = expr[start..].split_once(") (").map_or(&expr[start..], |(_, inner)| inner);
                let first =
                    words(inner.split([')', '/']).next().unwrap_or("")).into_iter().next_back().unwrap_or("");
                first.ends_with(share)
            });
            assert!(!sums, "{at}: sum of a share in {expr}");
        }
        assert!(
            !expr.contains("avg(histogram_quantile") && !expr.contains("avg (histogram_quantile"),
            "{at}"
        );
        for part in expr.split("histogram_quantile(").skip(1) {
            assert!(part.contains("sum by (le"), "{at}: a quantile needs sum by (le): {expr}");
        }
        for end in ["_sum", "_count"] {
            for (start, _) in expr.match_indices(&format!("{end}{{")) {
                let before = &expr[..start];
                let call = before.rfind('(').map_or("", |open| &before[..open]);
                let is_rate = ["rate", "increase"].iter().any(|function| call.ends_with(function));
                assert!(is_rate, "{at}: {end} since the start in {expr}");
            }
        }
    }
}

/// U114: `rate` and `increase` go over what only grows.
#[test]
fn rates_are_of_counters() {
    for (at, expr) in queries().into_iter().chain(expressions()) {
        for function in ["rate(", "increase("] {
            for call in expr.split(function).skip(1) {
                let name = call.split(['{', '[']).next().unwrap();
                let metric = ours().find(|metric| name.starts_with(metric.name));
                let grows = match metric.map(|metric| metric.kind) {
                    Some(Kind::Counter | Kind::Histogram) => true,
                    Some(Kind::Gauge) => false,
                    None => !name.starts_with("flotilla_"),
                };
                assert!(grows, "{at}: {function}{name}");
            }
        }
    }
}

/// U113: every name is exported by us, recorded by a rule, or listed as another program's.
#[test]
fn every_name_exists() {
    let recorded: BTreeSet<_> =
        rules::records().into_iter().flat_map(|(_, records)| records).map(|record| record.name).collect();
    let theirs: BTreeSet<_> = rules::engines::sources().collect();
    let is_ours = |name: &str| {
        ours().any(|metric| match metric.kind {
            Kind::Histogram => {
                ["_bucket", "_sum", "_count"].iter().any(|end| name.strip_suffix(end) == Some(metric.name))
            }
            Kind::Counter | Kind::Gauge => name == metric.name,
        })
    };
    for (at, expr) in queries().into_iter().chain(expressions()) {
        for name in words(&expr) {
            let looks_like_series = name.contains(':') || name.starts_with("flotilla_");
            let is_known = is_ours(name) || recorded.contains(name) || theirs.contains(name);
            assert!(!looks_like_series || is_known, "{at}: {name}");
        }
    }
}

/// U113: every metric of ours can be seen somewhere.
#[test]
fn every_metric_of_ours_is_on_a_board() {
    let mut seen: String = queries().into_iter().map(|(_, expr)| expr + " ").collect();
    // Rules stand after those whose series they use.
    for (name, expr) in expressions().into_iter().rev() {
        if seen.contains(&name) {
            seen.push_str(&expr);
        }
    }
    for metric in ours() {
        assert!(seen.contains(metric.name), "{} is on no board", metric.name);
    }
}

#[test]
fn every_alert_says_what_is_wrong_and_what_to_do() {
    let mut names = BTreeSet::new();
    for alert in rules::alerts::all() {
        assert!(names.insert(alert.name.clone()), "{} is there twice", alert.name);
        assert!(alert.summary.ends_with('.') && alert.action.ends_with('.'), "{}", alert.name);
        assert!(alert.action.len() > 40, "{}: {}", alert.name, alert.action);
    }
}

/// An SLO between two buckets could not be counted.
#[test]
fn the_slo_lies_on_bucket_borders() {
    let slo = rules::burn::SLO;
    assert!(gateway::TTFT_BOUNDS.contains(&slo.ttft.as_secs_f64()));
    assert!(gateway::TOKEN_BOUNDS.contains(&slo.tpot.as_secs_f64()));
}
