//! The keys in the Redis that gateways share: a change is made on what is there, or made again on what came between.

use std::time::Duration;

use redis::{Client, Commands, Connection, RedisError};
use shared::keys::{KeyFile, STORE_KEY};

const PATIENCE: Duration = Duration::from_secs(5);
/// Changes of others that may come between.
const TRIES_MAX: usize = 100;

/// The keys in one Redis.
pub struct Store {
    connection: Connection,
    key: String,
}

impl Store {
    /// Connects; the URL is not repeated in errors, since it may hold a password.
    ///
    /// # Errors
    ///
    /// When there is no Redis there. So for all below.
    pub fn open(url: &str, prefix: &str) -> Result<Self, String> {
        let client = Client::open(url).map_err(|_| "--store must be like redis://host:6379/0".to_owned())?;
        let connection = client.get_connection_with_timeout(PATIENCE).map_err(explain)?;
        connection.set_read_timeout(Some(PATIENCE)).map_err(explain)?;
        connection.set_write_timeout(Some(PATIENCE)).map_err(explain)?;
        Ok(Self { connection, key: format!("{prefix}:{STORE_KEY}") })
    }

    /// What is there; nothing where nobody has written yet.
    pub fn read(&mut self) -> Result<KeyFile, String> {
        let text: Option<String> = self.connection.get(&self.key).map_err(explain)?;
        let Some(text) = text else { return Ok(KeyFile::default()) };
        serde_json::from_str(&text).map_err(|error| format!("the keys in the store: {error}"))
    }

    /// Changes what is there.
    pub fn change<T>(
        &mut self,
        mut change: impl FnMut(&mut KeyFile) -> Result<T, String>,
    ) -> Result<T, String> {
        for _ in 0..TRIES_MAX {
            redis::cmd("WATCH").arg(&self.key).exec(&mut self.connection).map_err(explain)?;
            let mut keys = self.read()?;
            let told = change(&mut keys)?;
            let text = serde_json::to_string(&keys).map_err(|error| error.to_string())?;
            let mut pipe = redis::pipe();
            let written: Option<()> =
                pipe.atomic().set(&self.key, text).ignore().query(&mut self.connection).map_err(explain)?;
            if written.is_some() {
                return Ok(told);
            }
        }
        Err("others change the keys all the time; try again".to_owned())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn explain(error: RedisError) -> String {
    format!("the store: {error}")
}
