//! `flotilla fleet`: looks at and changes a running fleet, through the gateway's admin port.
//!
//! [`client`] asks, [`drain`] decides when a replica is empty, [`table`] and [`view`] draw; none of them keeps
//! state of its own: the gateway is the only one who knows.

mod client;
mod drain;
mod table;
mod view;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Subcommand;
use serde_json::json;
use shared::wire::{PolicyChange, PolicyList, Registration};

use client::Admin;
use drain::Left;

/// Between two looks at a replica that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Whom to ask, and what.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The gateway's admin port.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:9000",
        env = "FLOTILLA_ADMIN_URL"
    )]
    gateway: String,
    /// File with the admin key.
    #[arg(long, global = true, value_name = "FILE", env = "FLOTILLA_ADMIN_KEY_FILE")]
    admin_key_file: Option<PathBuf>,
    /// Answer with JSON on standard output.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Show every replica.
    List,
    /// Add a replica that is running.
    Add {
        /// Where it listens, for example `http://10.0.0.5:8001`.
        url: String,
        /// Its engine, where asking it would not tell.
        #[arg(long)]
        engine: Option<String>,
        /// Wait this many seconds for it to be ready.
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        wait: u64,
    },
    /// Send a replica nothing new, and wait until it is empty.
    Drain {
        /// Its name in `list`.
        id: String,
        /// Give up waiting after this many seconds; it goes on draining.
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        wait: u64,
    },
    /// Take a drain back.
    Undrain {
        /// Its name in `list`.
        id: String,
    },
    /// Drain a replica, then forget it.
    Remove {
        /// Its name in `list`.
        id: String,
        /// Forget it at once: its streams break off, or go on elsewhere.
        #[arg(long)]
        now: bool,
        /// Give up waiting after this many seconds; it goes on draining.
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        wait: u64,
    },
    /// Show which policy each model follows, or change it from the next request on.
    Policy {
        /// `expected_ttft`, `round_robin`, `least_requests`, `least_kv` or `prefix_affinity`.
        policy: Option<String>,
        /// Of this model only; without a policy it follows the others again.
        #[arg(long)]
        model: Option<String>,
    },
    /// Watch the fleet in the terminal; q ends.
    Watch {
        /// Seconds between two looks.
        #[arg(long, default_value_t = 1.0)]
        every: f64,
    },
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let admin = Admin::new(&args.gateway, args.admin_key_file.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(act(args, &admin)).map(|()| ExitCode::SUCCESS)
}

async fn act(args: &Args, admin: &Admin) -> Result<(), String> {
    match &args.action {
        Action::List => {
            let fleet = admin.list().await?;
            say(args, || table::render(&fleet.replicas), || json!(fleet));
        }
        Action::Add { url, engine, wait } => {
            add(args, admin, url, engine.clone(), Duration::from_secs(*wait)).await?;
        }
        Action::Drain { id, wait } => {
            drained(args, admin, id, Duration::from_secs(*wait)).await?;
            say(args, || format!("{id} is empty"), || json!({"id": id, "state": "draining", "left": 0}));
        }
        Action::Undrain { id } => {
            admin.undrain(id).await?;
            say(args, || format!("{id} takes work again"), || json!({"id": id, "undrained": true}));
        }
        Action::Remove { id, now, wait } => {
            if !now {
                drained(args, admin, id, Duration::from_secs(*wait)).await?;
            }
            admin.remove(id).await?;
            say(args, || format!("{id} is removed"), || json!({"id": id, "removed": true}));
        }
        Action::Policy { policy, model } => {
            let change = PolicyChange { model: model.clone(), policy: policy.clone() };
            let is_question = change == PolicyChange::default();
            let now =
                if is_question { admin.policies().await? } else { admin.change_policy(&change).await? };
            say(args, || policies(&now), || json!(now));
        }
        Action::Watch { every } => watch::run(admin, period(*every)?, args.json).await?,
    }
    Ok(())
}

fn policies(list: &PolicyList) -> String {
    let own = list.models.iter().map(|(model, policy)| format!("{model}: {policy}"));
    own.chain([format!("all others: {}", list.policy)]).collect::<Vec<_>>().join("\n")
}

fn period(seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|period| (Duration::from_millis(100)..=Duration::from_hours(1)).contains(period))
        .ok_or_else(|| format!("--every {seconds}: give 0.1 to 3600 seconds"))
}

fn say(args: &Args, text: impl FnOnce() -> String, value: impl FnOnce() -> serde_json::Value) {
    if args.json {
        println!("{:#}", value());
    } else {
        println!("{}", text());
    }
}

async fn add(
    args: &Args,
    admin: &Admin,
    url: &str,
    engine: Option<String>,
    wait: Duration,
) -> Result<(), String> {
    let registration = Registration { url: url.to_owned(), engine, lease_s: None };
    let mut entry = admin.add(&registration).await?;
    let begun = Instant::now();
    while entry.state != "ready" && begun.elapsed() < wait {
        tokio::time::sleep(LOOK_EVERY).await;
        entry = admin.show(&entry.id).await?;
    }
    if !wait.is_zero() && entry.state != "ready" {
        return Err(format!("{} is {} after {} s: {}", entry.id, entry.state, wait.as_secs(), entry.why));
    }
    say(args, || format!("{} is added ({})", entry.id, entry.state), || json!(entry));
    Ok(())
}

/// Drains a replica and waits, saying what is left whenever that changes.
async fn drained(args: &Args, admin: &Admin, id: &str, wait: Duration) -> Result<(), String> {
    admin.drain(id).await?;
    let begun = Instant::now();
    let mut shown = None;
    loop {
        let left = Left::of(&admin.show(id).await?);
        if left.is_nothing() {
            return Ok(());
        }
        if begun.elapsed() >= wait {
            return Err(format!("{id} still has {left} after {} s; it goes on draining", wait.as_secs()));
        }
        if shown != Some(left) && !args.json {
            eprintln!("{id}: {left} left");
            shown = Some(left);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
