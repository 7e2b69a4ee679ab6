//! Takes in changed files while the gateway runs: configuration and certificate. A bad file keeps the old state.

use super::certificate::Certificate;
use crate::config::{self, Config, Flags, Retry};
use crate::discovery;
use crate::gateway::Gateway;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::signal::unix::{SignalKind, signal};

/// How often files are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// Watches for as long as the gateway lives; SIGHUP reads everything again at once.
pub async fn watch(gateway: Arc<Gateway>, flags: Flags, certificate: Option<Certificate>) {
    let mut hangup = signal(SignalKind::hangup()).ok();
    let files = |certificate: &Option<Certificate>| {
        let certificate = certificate.as_ref().map(|certificate| certificate.files().map(changed_at));
        (flags.config.as_deref().map(changed_at), certificate)
    };
    let mut seen = files(&certificate);
    loop {
        let asked = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let is_asked = tokio::time::timeout(INTERVAL, asked).await.is_ok();
        let now = files(&certificate);
        if is_asked || now.0 != seen.0 {
            read_again(&gateway, &flags);
        }
        if let Some(certificate) = certificate.as_ref().filter(|_| is_asked || now.1 != seen.1) {
            match certificate.renew() {
                Ok(()) => tracing::info!("certificate renewed"),
                Err(error) => tracing::error!(%error, "the certificate stays as it was"),
            }
        }
        seen = now;
    }
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn read_again(gateway: &Arc<Gateway>, flags: &Flags) {
    let outcome = match config::load(flags) {
        Ok(config) => {
            apply(gateway, config);
            "ok"
        }
        Err(error) => {
            tracing::error!(%error, "the configuration stays as it was");
            "failed"
        }
    };
    gateway.metrics.config_reloads.with_label_values(&[outcome]).inc();
}

fn apply(gateway: &Arc<Gateway>, config: Config) {
    let before = gateway.config.load_full();
    for section in fixed(&before, &config) {
        tracing::warn!(section, "a change here needs a restart");
    }
    let config = Arc::new(config);
    gateway.config.store(config.clone());
    gateway.change_policies(&before.routing, &config.routing);
    discovery::configured::apply(gateway, Some(&before), &config);
    tracing::info!(replicas = config.replicas.len(), "configuration read again");
}

/// Sections that differ and are read only once.
fn fixed(before: &Config, now: &Config) -> Vec<&'static str> {
    let is_bound_elsewhere =
        (&before.server.host, before.server.port, before.server.threads, &before.server.tls)
            != (&now.server.host, now.server.port, now.server.threads, &now.server.tls);
    let is_administered_elsewhere =
        (&before.admin.host, before.admin.port) != (&now.admin.host, now.admin.port);
    let differs = [
        ("server", is_bound_elsewhere),
        ("admin", is_administered_elsewhere),
        ("retry", Retry { attempts_max: 0, ..before.retry } != Retry { attempts_max: 0, ..now.retry }),
        ("health", before.health != now.health),
        (
            "queue",
            (before.queue.requests_max, before.queue.bytes_max)
                != (now.queue.requests_max, now.queue.bytes_max),
        ),
        ("log", before.log != now.log),
        ("store", before.store != now.store),
        ("dns", before.dns != now.dns),
        ("traces", before.traces != now.traces),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(section, _)| section).collect()
}
