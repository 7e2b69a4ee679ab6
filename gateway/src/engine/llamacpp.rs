//! llama.cpp's server. `/metrics` needs its flag and `/slots` may be off: what is missing is unknown. It has no
//! gauge of KV usage any more; a slot is a place in its running set.

use super::{Reply, Report, Unreadable, exposition, openai, ready_if};
use gateway_core::load::Sample;
use gateway_core::replica::Engine;
use serde::Deserialize;
use shared::time::Instant;

pub const PATHS: &[&str] = &["/health", "/v1/models", "/metrics", "/slots", "/props"];

#[derive(Deserialize)]
struct Slot {
    #[serde(default)]
    is_processing: bool,
    n_ctx: Option<u32>,
}

#[derive(Deserialize)]
struct Props {
    total_slots: Option<u32>,
}

pub fn read(replies: &[Reply], at: Instant) -> Result<Report, Unreadable> {
    let [health, models, metrics, slots, props] = replies else { return Err(Unreadable("five replies")) };
    let slots: Option<Vec<Slot>> = serde_json::from_str(slots.text()).ok();
    let props: Option<Props> = serde_json::from_str(props.text()).ok();
    let busy = slots.as_ref().map(|slots| slots.iter().filter(|slot| slot.is_processing).count() as u32);
    let text = metrics.text();
    let sample = Sample {
        running: exposition::count(text, &["llamacpp:requests_processing"]).or(busy),
        waiting: exposition::count(text, &["llamacpp:requests_deferred"]),
        running_max: slots
            .as_ref()
            .map(|slots| slots.len() as u32)
            .or(props.and_then(|props| props.total_slots)),
        context_tokens_max: slots.and_then(|slots| slots.first()?.n_ctx),
        ..Sample::default()
    };
    openai::report(Engine::LlamaCpp, models, ready_if(health.is_ok()), sample, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_core::fleet::Readiness;

    const MODELS: &str =
        r#"{"object":"list","data":[{"id":"smol.gguf","object":"model","owned_by":"llamacpp"}]}"#;

    fn reply(status: u16, body: &str) -> Reply {
        Reply { status, body: body.into() }
    }

    #[test]
    fn slots_are_places() {
        let slots =
            r#"[{"id":0,"n_ctx":2048,"is_processing":true},{"id":1,"n_ctx":2048,"is_processing":false}]"#;
        let off = reply(501, r#"{"error":{"message":"no"}}"#);
        let report = read(
            &[reply(200, "{}"), reply(200, MODELS), off.clone(), reply(200, slots), off.clone()],
            Instant::ZERO,
        )
        .unwrap();
        assert_eq!(report.sample.running, Some(1));
        assert_eq!(report.sample.running_max, Some(2));
        assert_eq!(report.sample.waiting, None);
        assert_eq!(report.sample.context_tokens_max, Some(2048));
        assert_eq!(report.readiness, Readiness::Ready);
    }

    #[test]
    fn metrics_are_read_and_loading_is_seen() {
        let metrics = include_str!("../../tests/fixtures/llamacpp-metrics.txt");
        let props = reply(200, r#"{"total_slots":4}"#);
        let report = read(
            &[reply(503, "{}"), reply(200, MODELS), reply(200, metrics), reply(404, ""), props],
            Instant::ZERO,
        )
        .unwrap();
        assert_eq!((report.sample.running, report.sample.waiting), (Some(2), Some(5)));
        assert_eq!(report.sample.running_max, Some(4));
        assert_eq!(report.readiness, Readiness::Loading);
    }
}
