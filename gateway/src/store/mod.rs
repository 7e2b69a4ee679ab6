//! What several gateways share: who spent what, which replicas registered where, what was computed where.
//!
//! Everything here may be late or lost: each gateway goes on with what it knows, and catches up.

mod keys;
mod memory;
mod redis;
mod share;
mod spending;

pub use keys::follow_keys;
pub use memory::Memory;
pub use redis::Redis;
pub use share::share;

use async_trait::async_trait;
use shared::prefix::PieceHash;
use std::fmt;
use std::time::Duration;

/// What a tenant used up. Settling takes back, so it may be negative.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    /// The tenant's name, the same in every gateway.
    pub tenant: String,
    /// Requests.
    pub requests: i64,
    /// Tokens.
    pub tokens: i64,
}

/// Pieces of prompt text whose KV a replica now holds, as one gateway believes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Computed {
    /// Where the replica listens.
    pub url: String,
    /// The process that holds them.
    pub instance: String,
    /// In the order of the prompt.
    pub pieces: Vec<PieceHash>,
}

/// A place in the stream of what was computed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cursor(pub String);

/// The store can't be reached now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outage(pub String);

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where it is kept.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// Adds what was spent here; for each, what all gateways together have spent since some time.
    async fn spend(&self, spent: &[Spent]) -> Result<Vec<Spent>, Outage>;

    /// The file of API keys, when it is kept here.
    async fn keys(&self) -> Result<Option<Vec<u8>>, Outage>;

    /// A replica is registered here for so long.
    async fn announce(&self, url: &str, lease: Duration) -> Result<(), Outage>;

    /// It is no longer.
    async fn withdraw(&self, url: &str) -> Result<(), Outage>;

    /// URLs of the replicas registered anywhere, in order.
    async fn members(&self) -> Result<Vec<String>, Outage>;

    /// Tells the others what was computed. The oldest is forgotten when there is too much.
    async fn publish(&self, news: &[Computed]) -> Result<(), Outage>;

    /// What was published after a cursor, and the cursor after that. An empty cursor asks for what comes from now on.
    async fn news(&self, after: &Cursor) -> Result<(Vec<Computed>, Cursor), Outage>;
}
