//! Something that speaks the OpenAI API and says nothing of its load.

use super::{Reply, Report, Unreadable, models};
use gateway_core::fleet::Readiness;
use gateway_core::load::Sample;
use gateway_core::replica::{Engine, Identity};
use shared::time::Instant;

pub const PATHS: &[&str] = &["/v1/models"];

pub fn read(replies: &[Reply], at: Instant) -> Result<Report, Unreadable> {
    report(Engine::Unknown, &replies[0], Readiness::Ready, Sample::default(), at)
}

/// A report whose identity is the list of models: it is not ready without one.
pub fn report(
    engine: Engine,
    models_reply: &Reply,
    readiness: Readiness,
    mut sample: Sample,
    at: Instant,
) -> Result<Report, Unreadable> {
    if models_reply.status == 0 {
        return Err(Unreadable("no answer to /v1/models"));
    }
    let models = models::names(models_reply.text());
    let readiness = if models.is_empty() { Readiness::Loading } else { readiness };
    sample.context_tokens_max =
        sample.context_tokens_max.or_else(|| models::context_tokens_max(models_reply.text()));
    let identity = Identity { engine, models, ..Identity::default() };
    Ok(Report { identity, readiness, sample, at })
}
