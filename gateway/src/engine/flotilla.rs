//! Our own replicas: everything is in `/fleet/report`.

use super::{Reply, Report, Unreadable};
use gateway_core::fleet::Readiness;
use gateway_core::load::Sample;
use gateway_core::replica::{Engine, Identity};
use shared::time::Instant;
use shared::wire::{ReplicaReport, ReplicaState};

pub const PATHS: &[&str] = &["/fleet/report"];

pub fn read(replies: &[Reply], at: Instant) -> Result<Report, Unreadable> {
    let report: ReplicaReport =
        serde_json::from_str(replies[0].text()).map_err(|_| Unreadable("no /fleet/report"))?;
    if report.engine != "flotilla" || report.instance.is_empty() {
        return Err(Unreadable("a /fleet/report of something else"));
    }
    let readiness = match report.state {
        ReplicaState::Loading => Readiness::Loading,
        ReplicaState::Ready => Readiness::Ready,
        ReplicaState::Draining => Readiness::Draining,
        ReplicaState::Stalled => Readiness::Stalled,
    };
    let has_pool = report.blocks_total > 0;
    let used = report.blocks_total.saturating_sub(report.blocks_free);
    let sample = Sample {
        running: Some(report.running),
        running_max: (report.running_max > 0).then_some(report.running_max),
        waiting: Some(report.waiting),
        waiting_max: (report.waiting_max > 0).then_some(report.waiting_max),
        waiting_tokens: Some(report.waiting_tokens),
        kv_usage: has_pool.then(|| f64::from(used) / f64::from(report.blocks_total)),
        kv_tokens_max: has_pool.then(|| u64::from(report.blocks_total) * u64::from(report.block_size)),
        context_tokens_max: (report.context_tokens_max > 0).then_some(report.context_tokens_max),
        prefill_tokens_per_s: report.prefill_tokens_per_s,
    };
    let identity = Identity {
        instance: report.instance,
        engine: Engine::Flotilla,
        models: report.models,
        revision: report.revision,
        dtype: report.dtype,
    };
    Ok(Report { identity, readiness, sample, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_the_next_version_is_read() {
        let body = r#"{"engine":"flotilla","instance":"i-1","models":["m","alias"],"state":"ready","block_size":32,
            "blocks_total":100,"blocks_free":25,"running":3,"running_max":16,"waiting":2,"waiting_tokens":900,
            "revision":"r","dtype":"f32","field_of_the_future":{"x":1}}"#;
        let report = read(&[Reply { status: 200, body: body.into() }], Instant::ZERO).unwrap();
        assert_eq!(report.readiness, Readiness::Ready);
        assert_eq!(report.sample.kv_usage, Some(0.75));
        assert_eq!(report.sample.kv_tokens_max, Some(3200));
        assert_eq!(report.sample.waiting_tokens, Some(900));
        assert_eq!(report.sample.waiting_max, None);
        assert_eq!(report.identity.models, ["m", "alias"]);
    }

    #[test]
    fn another_program_is_not_taken_for_ours() {
        for body in ["", "{}", r#"{"engine":"other","instance":"x"}"#] {
            assert!(read(&[Reply { status: 200, body: body.into() }], Instant::ZERO).is_err(), "{body}");
        }
    }
}
