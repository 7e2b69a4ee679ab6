//! `flotilla key`: who may use the gateway. Keys are told once and kept as digests; [`edit`] decides, [`mod@file`] and
//! [`store`] keep.

mod edit;
mod file;
mod store;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Subcommand, ValueEnum};
use rand::distr::Alphanumeric;
use rand::rngs::{OsRng, StdRng};
use rand::{Rng, SeedableRng, TryRngCore};
use serde_json::json;
use shared::keys::{KeyFile, Priority, TenantEntry};

use edit::Drawn;
use store::Store;

/// Letters and digits of a key: more than 256 bits of chance.
const KEY_LETTERS: usize = 48;

/// Which file, and what to do with it.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The file that the gateway's `tenants.keys_file` names.
    #[arg(long, global = true, value_name = "FILE", default_value = "keys.json", env = "FLOTILLA_KEYS_FILE")]
    file: PathBuf,
    /// The Redis that the gateway's `store.url` names, in place of the file (`tenants.keys_in_store`).
    #[arg(long, global = true, value_name = "URL", env = "FLOTILLA_KEYS_STORE", hide_env_values = true)]
    store: Option<String>,
    /// What the gateway's `store.prefix` says.
    #[arg(long, global = true, default_value = "flotilla", env = "FLOTILLA_KEYS_PREFIX")]
    prefix: String,
    /// Answer with JSON on standard output.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Make a tenant and its first key, or one more key for it. The key is shown once.
    Create {
        /// What logs and metrics call the tenant.
        name: String,
        /// A model it may ask for; without any it may ask for all.
        #[arg(long)]
        model: Vec<String>,
        /// Requests a minute.
        #[arg(long)]
        requests_per_min: Option<u32>,
        /// Tokens a minute, prompt and answer.
        #[arg(long)]
        tokens_per_min: Option<u32>,
        /// Requests at once.
        #[arg(long)]
        requests_max: Option<u32>,
        /// How urgent its requests are.
        #[arg(long, value_enum, default_value = "normal")]
        priority: Urgency,
        /// Tenants with one salt share cached prefixes.
        #[arg(long)]
        cache_salt: Option<String>,
        /// Days until the key is no longer good.
        #[arg(long)]
        expires_days: Option<u32>,
    },
    /// List tenants and the ids of their keys.
    List,
    /// Make a new key for a tenant; its old ones go on for a while.
    Rotate {
        /// The tenant.
        name: String,
        /// Hours that the old keys stay good.
        #[arg(long, default_value_t = 24)]
        grace_hours: u32,
    },
    /// Take a key or a whole tenant away.
    Revoke {
        /// A key's id, or a tenant's name.
        target: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Urgency {
    High,
    Normal,
    Low,
    Batch,
}

impl From<Urgency> for Priority {
    fn from(urgency: Urgency) -> Self {
        match urgency {
            Urgency::High => Self::High,
            Urgency::Normal => Self::Normal,
            Urgency::Low => Self::Low,
            Urgency::Batch => Self::Batch,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| "the clock is before 1970")?.as_secs();
    let mut store = args.store.as_ref().map(|url| Store::open(url, &args.prefix)).transpose()?;
    if let Action::List = args.action {
        let keys = store.as_mut().map_or_else(|| file::read(&args.file), Store::read)?;
        list(args, &keys);
        return Ok(ExitCode::SUCCESS);
    }
    let act = |keys: &mut KeyFile| change(&args.action, keys, now);
    let (text, value) = match &mut store {
        Some(store) => store.change(act)?,
        None => file::change(&args.file, act)?,
    };
    if args.json {
        println!("{value:#}");
    } else {
        println!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}

fn change(action: &Action, keys: &mut KeyFile, now: u64) -> Result<(String, serde_json::Value), String> {
    let told = |name: &str, drawn: &Drawn| {
        let text = format!("{}\nkey {} of {name}; it is shown this once", drawn.key, drawn.id);
        (text, json!({"tenant": name, "id": drawn.id, "key": drawn.key}))
    };
    match action {
        Action::List => Err("nothing to change".to_owned()),
        Action::Create { name, expires_days, .. } => {
            let drawn = draw()?;
            let expires_at = expires_days.map(|days| now + u64::from(days) * 86_400);
            edit::create(keys, wished(action), &drawn, now, expires_at)?;
            Ok(told(name, &drawn))
        }
        Action::Rotate { name, grace_hours } => {
            let drawn = draw()?;
            edit::rotate(keys, name, &drawn, now, Duration::from_hours(u64::from(*grace_hours)))?;
            Ok(told(name, &drawn))
        }
        Action::Revoke { target } => {
            let count = edit::revoke(keys, target)?;
            Ok((format!("{count} keys are revoked"), json!({"revoked": count})))
        }
    }
}

fn wished(action: &Action) -> TenantEntry {
    let Action::Create {
        name,
        model,
        requests_per_min,
        tokens_per_min,
        requests_max,
        priority,
        cache_salt,
        ..
    } = action
    else {
        return TenantEntry::default();
    };
    TenantEntry {
        name: name.clone(),
        keys: Vec::new(),
        models: model.clone(),
        requests_per_min: *requests_per_min,
        tokens_per_min: *tokens_per_min,
        requests_max: *requests_max,
        priority: (*priority).into(),
        cache_salt: cache_salt.clone(),
    }
}

fn list(args: &Args, keys: &KeyFile) {
    if args.json {
        println!("{:#}", json!(keys));
        return;
    }
    for tenant in &keys.tenants {
        let ids: Vec<_> = tenant.keys.iter().map(|key| key.id.as_str()).collect();
        let models =
            if tenant.models.is_empty() { "all models".to_owned() } else { tenant.models.join(", ") };
        println!("{:<20} {:?}  {models}  keys: {}", tenant.name, tenant.priority, ids.join(", "));
    }
}

fn draw() -> Result<Drawn, String> {
    let (id, key) = (random_word(8)?, random_word(KEY_LETTERS)?);
    Ok(Drawn { id: format!("k-{}", id.to_lowercase()), key: format!("sk-{key}") })
}

/// Letters and digits from the system's chance.
///
/// # Errors
///
/// When the system gives none.
pub fn random_word(letters: usize) -> Result<String, String> {
    let mut seed = [0; 32];
    OsRng.try_fill_bytes(&mut seed).map_err(|error| format!("the system gives no random bytes: {error}"))?;
    Ok(StdRng::from_seed(seed).sample_iter(Alphanumeric).take(letters).map(char::from).collect())
}
