//! U113: a real Prometheus scrapes a real fleet under load, and every panel of every board has something to show.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use grafana::board::{Board, plain};
use grafana::panel::Panel;
use grafana::prometheus::Prometheus;
use grafana::{boards, draw, files};

use serde_json::json;

use crate::client;
use crate::fleet::{Fleet, free_ports, until};

/// How far queries look back, and their step.
const SPAN: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_secs(2);

/// One Prometheus, killed when it goes out of scope.
struct Scraper {
    child: Child,
    api: Prometheus,
}

impl Scraper {
    /// Scrapes the fleet once a second; `None` where no Prometheus is installed.
    fn start(folder: &Path, fleet: &Fleet) -> Option<Self> {
        files::write(folder).unwrap();
        let targets = |ports: &[u16]| {
            let targets: Vec<_> = ports.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
            format!("[{{targets: [{}]}}]", targets.join(","))
        };
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: [rules/recording.yml, rules/alerts.yml]\n\
             scrape_configs:\n- job_name: gateway\n  static_configs: {}\n- job_name: replicas\n  static_configs: {}\n",
            targets(&[fleet.admin_port]),
            targets(&fleet.replica_ports),
        );
        fs::write(folder.join("prometheus.yml"), config).unwrap();
        let address = format!("127.0.0.1:{}", free_ports(1)[0]);
        let started = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=warn"])
            .arg(format!("--web.listen-address={address}"))
            .current_dir(folder)
            .stdin(Stdio::null())
            .spawn();
        match started {
            Ok(child) => Some(Self { child, api: Prometheus(address) }),
            Err(error) => {
                println!("SKIPPED boards over a real Prometheus: {error}");
                None
            }
        }
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends chats with a common beginning until it is told to stop.
fn load(port: u16, is_over: &Arc<AtomicBool>) {
    for worker in 0..4 {
        let is_over = is_over.clone();
        tokio::spawn(async move {
            for turn in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let prompt = format!("{} {worker} {turn}", "All of these begin alike. ".repeat(80));
                let counted = json!({"stream_options": {"include_usage": true}});
                let _ = client::chat_with(port, &prompt, 8, counted).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }
}

/// Queries without a finite value, by board and panel; a query that is refused is a failure at once.
fn empty(boards: &[Board], api: &Prometheus) -> BTreeSet<String> {
    let has_values = |expr: &str| {
        let found = api.range(&plain(expr, "10s"), SPAN, STEP).unwrap_or_else(|why| panic!("{expr}: {why}"));
        found.iter().any(|series| !series.points.is_empty())
    };
    let missing = |board: &Board, panel: &Panel| -> Vec<String> {
        let empty = panel.queries.iter().filter(|query| !has_values(&query.expr));
        empty
            .filter(|_| panel.may_be_empty.is_none())
            .map(|query| format!("{} / {}: {}", board.title, panel.title, query.expr))
            .collect()
    };
    boards.iter().flat_map(|board| board.panels().flat_map(|panel| missing(board, panel))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_panel_of_every_board_shows_something() {
    let fleet = Fleet::start(2, &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let Some(scraper) = Scraper::start(folder.path(), &fleet) else { return };
    let is_over = Arc::new(AtomicBool::new(false));
    load(fleet.port, &is_over);
    let boards = Arc::new(boards::all());
    let api = scraper.api.clone();
    let asking = api.clone();
    let up = async || {
        let api = asking.clone();
        tokio::task::spawn_blocking(move || api.get("/api/v1/status/buildinfo").is_ok()).await.unwrap()
    };
    until("Prometheus answers", up).await;
    let mut left = BTreeSet::new();
    let begun = std::time::Instant::now();
    while begun.elapsed() < crate::fleet::DEADLINE {
        let (boards, api) = (boards.clone(), api.clone());
        left = tokio::task::spawn_blocking(move || empty(&boards, &api)).await.unwrap();
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(
        left.is_empty(),
        "no data in {} queries:\n{}",
        left.len(),
        left.into_iter().collect::<Vec<_>>().join("\n")
    );
    // Kept where cargo keeps what tests make, to be looked at.
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("boards");
    let drawn = tokio::task::spawn_blocking(move || draw::write(&pictures, &boards, &api, SPAN));
    drawn.await.unwrap().unwrap();
    is_over.store(true, Ordering::Relaxed);
}
