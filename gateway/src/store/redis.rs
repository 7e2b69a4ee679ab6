//! The store in Redis. One connection, which comes back by itself; every wait is short.
//!
//! Keys: `PREFIX:spent:TENANT` (a hash that is forgotten after two idle minutes), `PREFIX:members`
//! (URLs by when their lease ends, by Redis' own clock), `PREFIX:news` (a capped stream), `PREFIX:keys` (the file of
//! API keys, which the operator's command writes).

use super::{Computed, Cursor, Outage, Spent, Store};
use async_trait::async_trait;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::streams::StreamReadReply;
use redis::{Client, RedisError, Script, Value};
use shared::keys::STORE_KEY as KEYS;
use shared::prefix::PieceHash;
use std::fmt;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Longest wait for a connection, and for one answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// What an idle tenant's totals are kept for, in seconds: longer than any bucket takes to fill.
const SPENT_KEPT_S: i64 = 120;
/// News kept, about.
const NEWS_MAX: usize = 10_000;
/// Most news taken in at once.
const NEWS_READ_MAX: usize = 1000;

const ANNOUNCE: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
";

const MEMBERS: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
    return redis.call('ZRANGE', KEYS[1], 0, -1)
";

/// The store in one Redis.
pub struct Redis {
    client: Client,
    prefix: String,
    connection: OnceCell<ConnectionManager>,
    announce: Script,
    members: Script,
}

/// The client holds the password of its URL.
impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl From<RedisError> for Outage {
    fn from(error: RedisError) -> Self {
        Self(error.to_string())
    }
}

impl Redis {
    /// For a URL such as `redis://host:6379/0`; all keys begin with `prefix`. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// When the URL is none; the URL itself is not repeated, since it may hold a password.
    pub fn new(url: &str, prefix: &str) -> Result<Self, String> {
        let client = Client::open(url).map_err(|_| "it must be like redis://host:6379/0".to_owned())?;
        Ok(Self {
            client,
            prefix: prefix.to_owned(),
            connection: OnceCell::new(),
            announce: Script::new(ANNOUNCE),
            members: Script::new(MEMBERS),
        })
    }

    async fn connection(&self) -> Result<ConnectionManager, Outage> {
        let connect = || async {
            let config = ConnectionManagerConfig::new()
                .set_connection_timeout(Some(PATIENCE))
                .set_response_timeout(Some(PATIENCE))
                .set_number_of_retries(1);
            ConnectionManager::new_with_config(self.client.clone(), config).await
        };
        Ok(self.connection.get_or_try_init(connect).await?.clone())
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }
}

#[async_trait]
impl Store for Redis {
    async fn spend(&self, spent: &[Spent]) -> Result<Vec<Spent>, Outage> {
        let mut pipe = redis::pipe();
        pipe.atomic();
        for one in spent {
            let key = self.key(&format!("spent:{}", one.tenant));
            pipe.cmd("HINCRBY").arg(&key).arg("requests").arg(one.requests);
            pipe.cmd("HINCRBY").arg(&key).arg("tokens").arg(one.tokens);
            pipe.cmd("EXPIRE").arg(&key).arg(SPENT_KEPT_S).ignore();
        }
        let totals: Vec<i64> = pipe.query_async(&mut self.connection().await?).await?;
        let total = |(one, total): (&Spent, &[i64])| Spent {
            tenant: one.tenant.clone(),
            requests: total[0],
            tokens: total[1],
        };
        Ok(spent.iter().zip(totals.chunks_exact(2)).map(total).collect())
    }

    async fn keys(&self) -> Result<Option<Vec<u8>>, Outage> {
        let mut command = redis::cmd("GET");
        Ok(command.arg(self.key(KEYS)).query_async(&mut self.connection().await?).await?)
    }

    async fn announce(&self, url: &str, lease: Duration) -> Result<(), Outage> {
        let mut call = self.announce.key(self.key("members"));
        call.arg(url).arg(lease.as_millis() as u64);
        Ok(call.invoke_async(&mut self.connection().await?).await?)
    }

    async fn withdraw(&self, url: &str) -> Result<(), Outage> {
        let mut command = redis::cmd("ZREM");
        Ok(command.arg(self.key("members")).arg(url).exec_async(&mut self.connection().await?).await?)
    }

    async fn members(&self) -> Result<Vec<String>, Outage> {
        let call = self.members.key(self.key("members"));
        let mut urls: Vec<String> = call.invoke_async(&mut self.connection().await?).await?;
        urls.sort();
        Ok(urls)
    }

    async fn publish(&self, news: &[Computed]) -> Result<(), Outage> {
        let mut pipe = redis::pipe();
        for one in news {
            pipe.cmd("XADD").arg(self.key("news")).arg("MAXLEN").arg("~").arg(NEWS_MAX).arg("*");
            pipe.arg("url").arg(&one.url).arg("instance").arg(&one.instance);
            pipe.arg("pieces").arg(encode(&one.pieces)).ignore();
        }
        Ok(pipe.query_async(&mut self.connection().await?).await?)
    }

    async fn news(&self, after: &Cursor) -> Result<(Vec<Computed>, Cursor), Outage> {
        let mut connection = self.connection().await?;
        if after.0.is_empty() {
            let last: Vec<(String, Value)> = redis::cmd("XREVRANGE")
                .arg(self.key("news"))
                .arg("+")
                .arg("-")
                .arg("COUNT")
                .arg(1)
                .query_async(&mut connection)
                .await?;
            let id = last.into_iter().next().map_or_else(|| "0".to_owned(), |(id, _)| id);
            return Ok((Vec::new(), Cursor(id)));
        }
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(NEWS_READ_MAX).arg("STREAMS").arg(self.key("news")).arg(&after.0);
        let reply: Option<StreamReadReply> = command.query_async(&mut connection).await?;
        let ids = reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids);
        let (mut news, mut cursor) = (Vec::new(), after.clone());
        for id in ids {
            let pieces: Vec<u8> = id.get("pieces").unwrap_or_default();
            news.push(Computed {
                url: id.get("url").unwrap_or_default(),
                instance: id.get("instance").unwrap_or_default(),
                pieces: decode(&pieces),
            });
            cursor.0 = id.id;
        }
        Ok((news, cursor))
    }
}

fn encode(pieces: &[PieceHash]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.to_le_bytes()).collect()
}

fn decode(bytes: &[u8]) -> Vec<PieceHash> {
    let (pieces, _) = bytes.as_chunks();
    pieces.iter().map(|piece| PieceHash::from_le_bytes(*piece)).collect()
}
