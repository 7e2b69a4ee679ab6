//! What each engine calls its numbers: replies to probes in, one [`Report`] out.
//!
//! Pure: bytes in, beliefs out. Nothing here connects, and nothing decides what a report means for routing.
//! A number an engine doesn't give is unknown, never zero.

mod exposition;
mod flotilla;
mod llamacpp;
mod models;
mod ollama;
mod openai;
mod sglang;
mod tgi;
mod trtllm;
mod vllm;

use gateway_core::fleet::{Readiness, Report};
use gateway_core::replica::{Engine, Identity};
use shared::time::Instant;

/// The answer to one probe request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reply {
    /// HTTP status; 0 when there was no answer.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn text(&self) -> &str {
        if self.is_ok() { std::str::from_utf8(&self.body).unwrap_or("") } else { "" }
    }
}

/// The replies make no report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreadable(pub &'static str);

/// Paths to ask in one round, in the order in which [`read`] wants the replies.
pub const fn paths(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::Flotilla => flotilla::PATHS,
        Engine::Vllm => vllm::PATHS,
        Engine::Sglang => sglang::PATHS,
        Engine::LlamaCpp => llamacpp::PATHS,
        Engine::TensorRt => trtllm::PATHS,
        Engine::Tgi => tgi::PATHS,
        Engine::Ollama => ollama::PATHS,
        Engine::Unknown => openai::PATHS,
    }
}

/// Makes a report of the replies to [`paths`], which were asked for at `at`.
///
/// # Errors
///
/// When there is no good answer to the one question that must have one: who are you.
pub fn read(engine: Engine, replies: &[Reply], at: Instant) -> Result<Report, Unreadable> {
    assert_eq!(replies.len(), paths(engine).len(), "one reply a path");
    match engine {
        Engine::Flotilla => flotilla::read(replies, at),
        Engine::Vllm => vllm::read(replies, at),
        Engine::Sglang => sglang::read(replies, at),
        Engine::LlamaCpp => llamacpp::read(replies, at),
        Engine::TensorRt => trtllm::read(replies, at),
        Engine::Tgi => tgi::read(replies, at),
        Engine::Ollama => ollama::read(replies, at),
        Engine::Unknown => openai::read(replies, at),
    }
}

/// The one path whose reply tells who answers, asked on a new connection before it carries a request.
pub const fn identity_path(engine: Engine) -> &'static str {
    match engine {
        Engine::Flotilla => "/fleet/report",
        _ => "/v1/models",
    }
}

/// Whether the reply to [`identity_path`] comes from the replica we know.
pub fn is_same(engine: Engine, known: &Identity, reply: &Reply) -> bool {
    if engine == Engine::Flotilla {
        return flotilla::read(std::slice::from_ref(reply), Instant::ZERO)
            .is_ok_and(|report| known.instance.is_empty() || report.identity.instance == known.instance);
    }
    let models = models::names(reply.text());
    known.models.is_empty() || models.iter().any(|model| known.models.contains(model))
}

/// Whether the reply to our own [`identity_path`] comes from a replica of ours: asked first, since it settles all.
pub fn is_ours(report: &Reply) -> bool {
    flotilla::read(std::slice::from_ref(report), Instant::ZERO).is_ok()
}

/// Paths whose replies tell the other engines apart.
pub const DETECTION_PATHS: &[&str] = &["/v1/models", "/metrics", "/api/version", "/info"];

/// Which engine gave these replies to [`DETECTION_PATHS`]; `None` when nobody who speaks the OpenAI API did.
pub fn detect(replies: &[Reply]) -> Option<Engine> {
    let [models, metrics, version, info] = replies else { return None };
    let by_owner = match models::owner(models.text()).as_deref() {
        Some("vllm") => Some(Engine::Vllm),
        Some("sglang") => Some(Engine::Sglang),
        Some("llamacpp") => Some(Engine::LlamaCpp),
        Some("tensorrt_llm") => Some(Engine::TensorRt),
        _ => None,
    };
    let prefixes = [
        ("vllm:", Engine::Vllm),
        ("sglang:", Engine::Sglang),
        ("llamacpp:", Engine::LlamaCpp),
        ("trtllm_", Engine::TensorRt),
        ("tgi_", Engine::Tgi),
    ];
    let by_metrics = prefixes.into_iter().find(|(prefix, _)| exposition::has_prefix(metrics.text(), prefix));
    by_owner
        .or(by_metrics.map(|(_, engine)| engine))
        .or_else(|| tgi::is_info(info.text()).then_some(Engine::Tgi))
        .or_else(|| ollama::is_version(version.text()).then_some(Engine::Ollama))
        .or_else(|| models.is_ok().then_some(Engine::Unknown))
}

/// Its name in configuration, `/fleet` and logs.
pub const fn word(engine: Engine) -> &'static str {
    match engine {
        Engine::Flotilla => "flotilla",
        Engine::Vllm => "vllm",
        Engine::Sglang => "sglang",
        Engine::LlamaCpp => "llama.cpp",
        Engine::TensorRt => "trtllm",
        Engine::Tgi => "tgi",
        Engine::Ollama => "ollama",
        Engine::Unknown => "openai",
    }
}

/// All of them, for configuration.
pub const ALL: [Engine; 8] = [
    Engine::Flotilla,
    Engine::Vllm,
    Engine::Sglang,
    Engine::LlamaCpp,
    Engine::TensorRt,
    Engine::Tgi,
    Engine::Ollama,
    Engine::Unknown,
];

/// The engine of that name.
pub fn parse(word_given: &str) -> Option<Engine> {
    ALL.into_iter().find(|&engine| word(engine) == word_given)
}

/// Whether the engine keeps tenants' prefixes apart when a request carries a `cache_salt`.
pub const fn knows_cache_salt(engine: Engine) -> bool {
    matches!(engine, Engine::Flotilla | Engine::Vllm)
}

fn ready_if(is_ready: bool) -> Readiness {
    if is_ready { Readiness::Ready } else { Readiness::Loading }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: &str) -> Reply {
        Reply { status: 200, body: body.as_bytes().to_vec() }
    }

    fn detected(models: &str, metrics: &str, version: &str) -> Option<Engine> {
        let none = Reply { status: 404, body: Vec::new() };
        let or_none = |body: &str| if body.is_empty() { none.clone() } else { reply(body) };
        detect(&[or_none(models), or_none(metrics), or_none(version), none.clone()])
    }

    #[test]
    fn every_engine_is_told_apart() {
        let models = r#"{"object":"list","data":[{"id":"m","owned_by":"me"}]}"#;
        assert!(is_ours(&reply(r#"{"engine":"flotilla","instance":"i","models":["m"]}"#)));
        assert!(!is_ours(&reply(models)));
        assert_eq!(detected(models, "vllm:num_requests_running 0\n", ""), Some(Engine::Vllm));
        assert_eq!(detected(models, "sglang:num_running_reqs 0\n", ""), Some(Engine::Sglang));
        assert_eq!(detected(&models.replace("\"me\"", "\"llamacpp\""), "", ""), Some(Engine::LlamaCpp));
        assert_eq!(detected(models, "", r#"{"version":"0.12.1"}"#), Some(Engine::Ollama));
        assert_eq!(detected(models, "", ""), Some(Engine::Unknown));
        assert_eq!(detected("", "", ""), None);
    }

    #[test]
    fn names_lead_back_to_engines() {
        for engine in ALL {
            assert_eq!(parse(word(engine)), Some(engine));
        }
        assert_eq!(parse("vlm"), None);
    }

    #[test]
    fn a_stranger_on_a_known_port_is_noticed() {
        // U103
        let known = Identity { instance: "a".into(), models: vec!["m".into()], ..Identity::default() };
        let ours = |instance: &str| reply(&format!(r#"{{"engine":"flotilla","instance":"{instance}"}}"#));
        assert!(is_same(Engine::Flotilla, &known, &ours("a")));
        assert!(!is_same(Engine::Flotilla, &known, &ours("b")));
        assert!(!is_same(Engine::Flotilla, &known, &reply("<html>")));
        assert!(is_same(Engine::Vllm, &known, &reply(r#"{"data":[{"id":"m"}]}"#)));
        assert!(!is_same(Engine::Vllm, &known, &reply(r#"{"data":[{"id":"other"}]}"#)));
    }
}
