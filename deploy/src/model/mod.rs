//! `flotilla model`: fetch, find and describe models.

pub mod catalog;
mod fetch;
mod progress;
pub mod source;
pub mod store;

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use catalog::{DEFAULT, KNOWN, Known};
use store::Store;

pub use fetch::{Fetched, fetch};

/// What to do about models.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
    /// Answer with JSON on standard output.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Fetch a model into the cache, unless it is there.
    Fetch {
        /// Its name.
        #[arg(default_value = DEFAULT.name)]
        name: String,
    },
    /// List the models that can be fetched by name, and which are here.
    List,
    /// Print where a model's file is.
    Path {
        /// Its name.
        #[arg(default_value = DEFAULT.name)]
        name: String,
    },
    /// Say what is known of a model, and check every byte of its file.
    Show {
        /// Its name.
        #[arg(default_value = DEFAULT.name)]
        name: String,
    },
}

/// The hub's address, unless the environment switches the hub off.
pub fn hub_endpoint() -> Option<String> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    match variable("HF_HUB_OFFLINE").as_deref() {
        None | Some("0") => {}
        Some(_) => return None,
    }
    Some(variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned()))
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let store = Store::of_user()?;
    let (text, value) = match &args.action {
        Action::Fetch { name } => fetched(&store, catalog::find(name)?)?,
        Action::List => list(&store),
        Action::Path { name } => located(&store, catalog::find(name)?)?,
        Action::Show { name } => shown(&store, catalog::find(name)?)?,
    };
    if args.json {
        println!("{value:#}");
    } else {
        println!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}

fn fetched(store: &Store, known: &Known) -> Result<(String, Value), String> {
    let Fetched { path, source } = fetch(store, known, hub_endpoint().as_deref())?;
    if source == "cache" {
        store.verify(known)?;
    }
    let path = path.display().to_string();
    Ok((path.clone(), json!({"name": known.name, "path": path, "source": source, "sha256": known.sha256})))
}

fn list(store: &Store) -> (String, Value) {
    let word = |known| if store.has(known) { "here" } else { "not fetched" };
    let lines: Vec<_> = KNOWN
        .iter()
        .map(|known| format!("{:<28} {:>5} MB  {}", known.name, known.bytes / 1_000_000, word(known)))
        .collect();
    let models: Vec<_> = KNOWN
        .iter()
        .map(|known| json!({"name": known.name, "bytes": known.bytes, "here": store.has(known)}))
        .collect();
    (lines.join("\n"), json!({"models": models}))
}

fn located(store: &Store, known: &Known) -> Result<(String, Value), String> {
    if !store.has(known) {
        return Err(format!(
            "{} is not here; fetch it with: flotilla model fetch {}",
            known.name, known.name
        ));
    }
    let path = store.path(known).display().to_string();
    Ok((path.clone(), json!({"name": known.name, "path": path})))
}

fn shown(store: &Store, known: &Known) -> Result<(String, Value), String> {
    let here = store.has(known);
    if here {
        store.verify(known)?;
    }
    let path = store.path(known).display().to_string();
    let state = if here { "here, SHA-256 verified" } else { "not fetched" };
    let [repository, commit, _] = known.hub;
    let text = format!(
        "name    {}\nfile    {path}\nstate   {state}\nbytes   {}\nsha256  {}\nhub     {repository}@{commit}\nwheel   {}=={}",
        known.name, known.bytes, known.sha256, known.wheel.package, known.wheel.version
    );
    let value = json!({
        "name": known.name, "path": path, "here": here, "bytes": known.bytes, "sha256": known.sha256,
        "hub": {"repository": repository, "commit": commit},
        "wheel": {"package": known.wheel.package, "version": known.wheel.version},
    });
    Ok((text, value))
}
