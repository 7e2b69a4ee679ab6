//! One request in, one answer out, in the order of the data's way.

pub mod answer;
pub mod attempts;
pub mod body;
pub mod chunked;
pub mod continuing;
pub mod deliver;
pub mod door;
pub mod edit;
pub mod endpoint;
pub mod error;
pub mod exchange;
pub mod fetch;
pub mod front;
pub mod headers;
pub mod prompt;
pub mod record;
pub mod relay;
pub mod reply;
pub mod request;
pub mod route;
pub mod scan;
pub mod session;
pub mod stream;
pub mod transcript;
pub mod upstream;
pub mod who;
