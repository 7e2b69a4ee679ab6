//! `flotilla compose`: writes a stack. One topology, several renderings: a Compose file, systemd units, Kubernetes.
//!
//! [`topology`], [`stack`], [`units`] and [`kubernetes`] are pure; this file asks the machine and writes files.

mod kubernetes;
mod stack;
pub mod topology;
mod units;
mod yaml;

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use figment::Figment;
use figment::providers::{Format as _, Toml, Yaml};
use serde_json::json;

use topology::{GatewayPart, GpuAccess, ReplicaPart, Topology};

use crate::key::random_word;
use crate::machine::Machine;
use crate::model::source::Source;
use crate::model::store::Store;
use crate::up::layout::{Wish, lay_out};

/// What the stack is and where it goes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A topology file (TOML or YAML); without it the stack is made for this machine.
    #[arg(long, conflicts_with_all = ["model", "replicas", "tensor_parallel_size"])]
    topology: Option<PathBuf>,
    /// The model: GGUF file, Hugging Face folder, known name or `fake`.
    #[arg(long)]
    model: Option<String>,
    /// How many replicas.
    #[arg(long)]
    replicas: Option<u32>,
    /// Cards of one replica.
    #[arg(long, default_value_t = 1)]
    tensor_parallel_size: u32,
    /// The gateway's port on the host.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// The gateway's admin port on the host's loopback.
    #[arg(long, default_value_t = 9000)]
    admin_port: u16,
    /// How containers get their cards.
    #[arg(long, value_enum, default_value = "cdi")]
    gpu_access: Access,
    /// What to write.
    #[arg(long, value_enum, default_value = "compose")]
    format: Rendering,
    /// Where to write it.
    #[arg(long, default_value = ".")]
    out: PathBuf,
    /// Replace files that are there.
    #[arg(long)]
    force: bool,
    /// Answer with JSON on standard output.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Access {
    Cdi,
    Nvidia,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Rendering {
    /// compose.yaml and the gateway's configuration.
    Compose,
    /// systemd units.
    Systemd,
    /// A Kustomize base with components and overlays.
    Kubernetes,
    /// The topology itself, to be changed and rendered.
    Topology,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let topology = match &args.topology {
        Some(path) => read(path)?,
        None => made(args)?,
    };
    topology.check()?;
    let files = rendered(args, &topology)?;
    create(&args.out, 0o755)?;
    for (name, text) in &files {
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        // Only the owner passes through the folder; containers get the files themselves, as another user.
        let mode = if folder.ends_with("secrets") { 0o700 } else { 0o755 };
        create(&args.out.join(folder.parent().unwrap_or(folder)), 0o755)?;
        create(&args.out.join(folder), mode)?;
        write(&args.out.join(name), text, args.force)?;
    }
    let names: Vec<_> = files.iter().map(|(name, _)| args.out.join(name).display().to_string()).collect();
    if args.json {
        println!("{:#}", json!({"files": names, "topology": topology}));
    } else {
        println!("{}", names.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn rendered(args: &Args, topology: &Topology) -> Result<Vec<(String, String)>, String> {
    Ok(match args.format {
        Rendering::Compose => {
            let key = admin_key(&args.out.join("secrets/admin.key"))?;
            let config = stack::gateway_config(topology, &key);
            let mut files = vec![
                ("compose.yaml".to_owned(), stack::render(topology)),
                ("secrets/gateway.toml".to_owned(), config),
                ("secrets/admin.key".to_owned(), key),
            ];
            if topology.monitoring {
                files.push(("prometheus.yml".to_owned(), stack::PROMETHEUS.to_owned()));
            }
            files
        }
        Rendering::Systemd => units::render(topology),
        Rendering::Kubernetes => {
            kubernetes::render(topology, &admin_key(&args.out.join("base/secrets/admin.key"))?)
        }
        Rendering::Topology => {
            let text = serde_json::to_string_pretty(topology).map_err(|error| error.to_string())?;
            vec![("topology.yaml".to_owned(), text)]
        }
    })
}

/// The key that the file holds; a new one where there is none. Secrets are made once: whoever has the key of a
/// running stack keeps it when the stack is written again.
fn admin_key(path: &Path) -> Result<String, String> {
    match fs::read_to_string(path) {
        Ok(key) if !key.trim().is_empty() => Ok(key.trim().to_owned()),
        Ok(_) => random_word(40),
        Err(error) if error.kind() == ErrorKind::NotFound => random_word(40),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

/// JSON is YAML, so what we write is read back.
fn read(path: &Path) -> Result<Topology, String> {
    if !path.is_file() {
        return Err(format!("--topology {}: there is no such file", path.display()));
    }
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    let figment = if is_toml { Figment::from(Toml::file(path)) } else { Figment::from(Yaml::file(path)) };
    figment.extract().map_err(|error| error.to_string())
}

/// The stack for this machine: the layout that `flotilla up` would start.
fn made(args: &Args) -> Result<Topology, String> {
    let store = Store::of_user()?;
    let model = Source::read(args.model.as_deref(), &store)?;
    if let Source::Absent(name) = model {
        return Err(format!("{name} is not here yet; fetch it with: flotilla model fetch {name}"));
    }
    let machine = Machine::look();
    let wish = Wish {
        replicas: args.replicas,
        tensor_parallel: args.tensor_parallel_size,
        cuda: !machine.cards.is_empty(),
        weight_bytes: model.weight_bytes(),
        kv_bytes: None,
        is_fake: model == Source::Fake,
    };
    let places = lay_out(&machine, &wish)?;
    let path = fs::canonicalize(model.argument()).unwrap_or_else(|_| model.argument());
    let replica = |(index, place): (usize, crate::up::layout::Place)| ReplicaPart {
        kv_bytes: place.kv_bytes,
        ..ReplicaPart::new(index, place.cards, place.threads)
    };
    Ok(Topology {
        name: "flotilla".to_owned(),
        model: path.display().to_string(),
        served_model_name: model.known_name().map(str::to_owned),
        weight_bytes: wish.weight_bytes,
        gateway: GatewayPart::new(args.port, args.admin_port),
        replicas: places.into_iter().enumerate().map(replica).collect(),
        gpu_access: match args.gpu_access {
            Access::Cdi => GpuAccess::Cdi,
            Access::Nvidia => GpuAccess::Nvidia,
        },
        monitoring: false,
        redis: false,
    })
}

fn create(folder: &Path, mode: u32) -> Result<(), String> {
    let created = fs::DirBuilder::new().recursive(true).mode(mode).create(folder);
    created.map_err(|error| format!("cannot create {}: {error}", folder.display()))
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), String> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let mut file = options.open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            format!("{} is there already; replace it with --force", path.display())
        }
        _ => format!("cannot write {}: {error}", path.display()),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
