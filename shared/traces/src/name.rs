//! Names of attributes: OpenTelemetry's for generative AI and HTTP, and our own for what those have no name for.

/// `chat`, `text_completion`, `embeddings`.
pub const OPERATION: &str = "gen_ai.operation.name";
/// Who serves the model.
pub const PROVIDER: &str = "gen_ai.provider.name";
/// The model asked for.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// The model that answered.
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
/// The most tokens wanted back.
pub const REQUEST_TOKENS_MAX: &str = "gen_ai.request.max_tokens";
/// Tokens of the prompt.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Of those, the ones that were cached.
pub const CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
/// Tokens of the answer.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// What went wrong, as one of few words.
pub const ERROR_TYPE: &str = "error.type";
/// The request's method.
pub const METHOD: &str = "http.request.method";
/// The request's path.
pub const PATH: &str = "url.path";
/// The answer's status.
pub const STATUS: &str = "http.response.status_code";
/// Where a replica listens.
pub const REPLICA: &str = "server.address";
/// The id that log lines and `x-request-id` carry.
pub const REQUEST_ID: &str = "flotilla.request_id";
/// How the request ended, in the words of our metrics.
pub const OUTCOME: &str = "flotilla.outcome";
/// Whose request it was.
pub const TENANT: &str = "flotilla.tenant";
/// Why a replica was chosen.
pub const REASON: &str = "flotilla.route.reason";

/// The value of [`PROVIDER`].
pub const FLOTILLA: &str = "flotilla";
