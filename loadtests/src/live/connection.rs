//! Where to ask and how: the flags that every command against real endpoints takes.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::Method;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use super::prompt::{Style, Words};
use super::target::Target;

/// Which of OpenAI's paths is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

/// Where to ask and how.
#[derive(Args, Clone, Debug)]
pub struct Connection {
    /// The server, `http://HOST:PORT`.
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    pub url: String,
    /// The model; without it the first that the server names.
    #[arg(long)]
    pub model: Option<String>,
    /// Which path.
    #[arg(long, value_enum, default_value = "chat")]
    pub endpoint: Endpoint,
    /// Sent as `Authorization: Bearer`.
    #[arg(long, env = "OPENAI_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// A tokenizer.json to count tokens with; without it the server's `/tokenize`.
    #[arg(long)]
    pub tokenizer: Option<PathBuf>,
    /// Let answers end where the model ends them; otherwise they have their full length.
    #[arg(long)]
    pub no_ignore_eos: bool,
    /// Further fields of each body, a JSON object.
    #[arg(long, value_parser = object)]
    pub extra_body: Option<Map<String, Value>>,
    /// Longest wait for a whole answer, in seconds.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// A replica's address, whose `/metrics` tells prefix hits and the KV watermark; repeatable.
    #[arg(long)]
    pub metrics: Vec<String>,
}

impl Connection {
    /// A connection, and the model that is asked.
    pub async fn open(&self) -> Result<(Target, String), String> {
        let path = match self.endpoint {
            Endpoint::Chat => "/v1/chat/completions",
            Endpoint::Completions => "/v1/completions",
        };
        let target = Target::new(&self.url, path, self.api_key.clone(), Duration::from_secs(self.timeout))?;
        if let Some(model) = &self.model {
            return Ok((target, model.clone()));
        }
        let models = target.call(Method::GET, "/v1/models", Bytes::new()).await?;
        let models: Value =
            serde_json::from_slice(&models).map_err(|error| format!("/v1/models: {error}"))?;
        let model = models["data"][0]["id"].as_str().ok_or("/v1/models names no model: give --model")?;
        Ok((target, model.to_owned()))
    }

    /// How bodies are written.
    pub fn style(&self, model: &str) -> Style {
        Style {
            model: model.to_owned(),
            is_chat: self.endpoint == Endpoint::Chat,
            ignore_eos: !self.no_ignore_eos,
            extra: self.extra_body.clone().unwrap_or_default(),
        }
    }

    /// Words whose tokens are counted as well as can be.
    pub async fn words(
        &self,
        target: &Target,
        model: &str,
        seed: u64,
        texts: FxHashMap<u64, String>,
    ) -> Result<Words, String> {
        let mut words = Words::new(seed, texts);
        match &self.tokenizer {
            Some(path) => words.count_by_file(path)?,
            None => words.count_by_server(target, model).await,
        }
        Ok(words)
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
