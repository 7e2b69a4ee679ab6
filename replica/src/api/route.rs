//! Which routes there are. Paths are exact, so that no spelling of a path passes for another.

/// A route, by the name it has in metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Alive.
    Health,
    /// Taking work.
    Ready,
    /// Prometheus.
    Metrics,
    /// Who and how loaded.
    Report,
    /// The models.
    Models,
    /// Messages in.
    Chat,
    /// Text in.
    Completions,
    /// Items in.
    Responses,
    /// Text to vectors.
    Embeddings,
    /// Pieces that came and went.
    Events,
    /// Text to tokens.
    Tokenize,
    /// And back.
    Detokenize,
    /// This API's description.
    OpenApi,
    /// None of these.
    Unknown,
}

impl Route {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Health,
        Self::Ready,
        Self::Metrics,
        Self::Report,
        Self::Models,
        Self::Chat,
        Self::Completions,
        Self::Responses,
        Self::Embeddings,
        Self::Events,
        Self::Tokenize,
        Self::Detokenize,
        Self::OpenApi,
        Self::Unknown,
    ];

    /// The route of a path; exact, so that no spelling of a path passes for another.
    pub fn of(path: &str) -> Self {
        match path {
            "/health" | "/ping" => Self::Health,
            "/ready" => Self::Ready,
            "/metrics" => Self::Metrics,
            "/fleet/report" => Self::Report,
            "/v1/models" => Self::Models,
            "/v1/chat/completions" => Self::Chat,
            "/v1/completions" => Self::Completions,
            "/v1/responses" => Self::Responses,
            "/v1/embeddings" => Self::Embeddings,
            "/fleet/events" => Self::Events,
            "/tokenize" => Self::Tokenize,
            "/detokenize" => Self::Detokenize,
            "/openapi.json" => Self::OpenApi,
            _ if path.strip_prefix("/v1/models/").is_some_and(|name| !name.is_empty()) => Self::Models,
            _ => Self::Unknown,
        }
    }

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Ready => "ready",
            Self::Metrics => "metrics",
            Self::Report => "report",
            Self::Models => "models",
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::Events => "events",
            Self::Tokenize => "tokenize",
            Self::Detokenize => "detokenize",
            Self::OpenApi => "openapi",
            Self::Unknown => "unknown",
        }
    }

    /// What is done there, in OpenTelemetry's words.
    pub fn operation(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses => "chat",
            Self::Completions => "text_completion",
            Self::Embeddings => "embeddings",
            _ => self.name(),
        }
    }

    /// Whether it needs no key: probes have none.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Health | Self::Ready)
    }

    /// Whether it takes a body, and by POST.
    pub fn takes_body(self) -> bool {
        use Route::{Chat, Completions, Detokenize, Embeddings, Responses, Tokenize};
        matches!(self, Chat | Completions | Responses | Embeddings | Tokenize | Detokenize)
    }
}
