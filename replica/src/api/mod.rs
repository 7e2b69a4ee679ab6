//! The OpenAI server: requests in, understood and handed to the engine; tokens out, as events or at once.
//!
//! On the way in: `server` → `route` → `body` → `chat` or `completion` → `plan`. On the way out: `choices` of
//! `answer`s → `voice` → `generate`. `app` is what all requests share, `served` the model.

pub mod answer;
pub mod app;
pub mod body;
pub mod chat;
pub mod choices;
pub mod completion;
pub mod fields;
pub mod generate;
pub mod json;
pub mod logprobs;
pub mod messages;
pub mod models;
pub mod options;
pub mod plan;
pub mod probe;
pub mod respond;
pub mod route;
pub mod served;
pub mod server;
pub mod socket;
pub mod stop;
pub mod template;
pub mod tokenizer;
pub mod tokens;
pub mod usage;
pub mod voice;
