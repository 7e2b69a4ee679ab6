//! The OpenAI server: requests in, understood and handed to the engine; tokens out, as events or at once.
//!
//! On the way in: `server` → `serve` → `body` → `chat` or `completion` → `plan`. On the way out: `choices` of
//! `answer`s → `voice` → `generate`. `app` is what all requests share, `served` the model.

pub mod answer;
pub mod app;
pub mod body;
pub mod chat;
pub mod choices;
pub mod completion;
pub mod content;
pub mod continuation;
pub mod dialect;
pub mod embeddings;
pub mod events;
pub mod fields;
pub mod generate;
pub mod json;
pub mod landing;
pub mod logprobs;
pub mod message;
pub mod messages;
pub mod models;
pub mod openapi;
pub mod options;
pub mod pieces;
pub mod plan;
pub mod probe;
pub mod record;
pub mod register;
pub mod respond;
pub mod responses;
pub mod route;
pub mod serve;
pub mod served;
pub mod server;
pub mod socket;
pub mod speech;
pub mod stop;
pub mod structure;
pub mod template;
pub mod tokenizer;
pub mod tokens;
pub mod tools;
pub mod usage;
pub mod voice;
