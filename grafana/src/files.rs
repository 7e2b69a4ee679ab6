//! Everything that is written: boards, rules and their tests, and what tells Grafana and Prometheus where they are.

use std::fs;
use std::io;
use std::path::Path;

use crate::{boards, rules};

const DATASOURCE: &str = "\
# Written by `flotilla-boards write`.
apiVersion: 1
datasources:
  - name: Prometheus
    uid: prometheus
    type: prometheus
    access: proxy
    url: http://prometheus:9090
    isDefault: true
    jsonData:
      timeInterval: 15s
";

const PROVIDER: &str = "\
# Written by `flotilla-boards write`.
apiVersion: 1
providers:
  - name: flotilla
    folder: Flotilla
    type: file
    allowUiUpdates: true
    options:
      path: /etc/grafana/dashboards
";

/// Path below the folder, and text.
pub fn all() -> Vec<(String, String)> {
    let board = |board: crate::board::Board| {
        let name = board.uid.trim_start_matches("flotilla-");
        let text = serde_json::to_string_pretty(&board.json()).expect("a board is plain JSON");
        (format!("dashboards/{name}.json"), text + "\n")
    };
    let mut files: Vec<_> = boards::all().into_iter().map(board).collect();
    files.extend([
        ("rules/recording.yml".to_owned(), rules::recording_file()),
        ("rules/alerts.yml".to_owned(), rules::alert_file()),
        ("rules/tests.yml".to_owned(), rules::test_file()),
        ("provisioning/datasources/prometheus.yaml".to_owned(), DATASOURCE.to_owned()),
        ("provisioning/dashboards/flotilla.yaml".to_owned(), PROVIDER.to_owned()),
    ]);
    files
}

/// Writes all of them below a folder.
///
/// # Errors
///
/// When a folder or file can't be written.
pub fn write(folder: &Path) -> io::Result<()> {
    for (path, text) in all() {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text)?;
    }
    Ok(())
}
