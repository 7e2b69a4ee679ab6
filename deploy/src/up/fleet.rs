//! The command lines of a fleet: one gateway, and a replica for each place of the layout. Pure.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use super::child::Spec;
use super::layout::Place;
use super::settings::Settings;
use crate::model::source::Source;

/// Where each process listens.
#[derive(Clone, Debug)]
pub struct Ports {
    /// The gateway's admin port.
    pub admin: u16,
    /// One a replica.
    pub replicas: Vec<u16>,
}

/// The gateway's process.
pub fn gateway(program: PathBuf, settings: &Settings, ports: &Ports) -> Spec {
    let mut arguments = Vec::new();
    flag(&mut arguments, "--host", settings.host.to_string());
    flag(&mut arguments, "--port", settings.port.to_string());
    flag(&mut arguments, "--admin-port", ports.admin.to_string());
    for port in &ports.replicas {
        flag(&mut arguments, "--replica", format!("http://127.0.0.1:{port}"));
    }
    Spec {
        who: "gateway".to_owned(),
        program,
        arguments,
        environment: Vec::new(),
        not_its: &["FLOTILLA__UP__", "FLOTILLA__REPLICA__"],
        authority: format!("{}:{}", reachable(settings.host), settings.port),
    }
}

/// The process of replica number `index`.
pub fn replica(
    program: PathBuf,
    model: &Source,
    settings: &Settings,
    place: &Place,
    index: usize,
    port: u16,
) -> Spec {
    let mut arguments: Vec<OsString> = vec!["--model".into(), model.argument().into()];
    flag(&mut arguments, "--host", "127.0.0.1".to_owned());
    flag(&mut arguments, "--port", port.to_string());
    // What the user passed himself is not said twice.
    let mut default = |name: &str, value: Option<String>| {
        if let (Some(value), None) = (value, settings.replica_flag(name)) {
            flag(&mut arguments, name, value);
        }
    };
    default("--served-model-name", model.known_name().map(str::to_owned));
    default("--device", Some(if place.cards.is_empty() { "cpu" } else { "cuda" }.to_owned()));
    default("--threads", Some(place.threads.to_string()));
    default("--kv-cache-memory-bytes", place.kv_bytes.map(|bytes| bytes.to_string()));
    let ranks = settings.tensor_parallel_size;
    default("--tensor-parallel-size", (ranks > 1).then(|| ranks.to_string()));
    arguments.extend(settings.replica_flags.iter().cloned());
    Spec {
        who: format!("replica-{index}"),
        program,
        arguments,
        environment: vec![
            ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
            ("CUDA_VISIBLE_DEVICES", place.cards.join(",")),
        ],
        not_its: &["FLOTILLA__UP__"],
        authority: format!("127.0.0.1:{port}"),
    }
}

/// An address that reaches a listener on `host` from this machine, ready for a URL.
pub fn reachable(host: IpAddr) -> String {
    match host {
        IpAddr::V6(host) if !host.is_unspecified() => format!("[{host}]"),
        IpAddr::V4(host) if !host.is_unspecified() => host.to_string(),
        _ => Ipv4Addr::LOCALHOST.to_string(),
    }
}

fn flag(arguments: &mut Vec<OsString>, name: &str, value: String) {
    arguments.extend([name.into(), value.into()]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::settings::Args;

    fn settings(replica_flags: &[&str]) -> Settings {
        let replica_flags = replica_flags.iter().map(OsString::from).collect();
        Settings { replica_flags, ..Settings::gather(Args::default()).unwrap() }
    }

    fn line(spec: &Spec) -> String {
        spec.arguments.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_replica_on_cards_is_pinned_by_uuid_in_pci_order() {
        let place = Place { cards: vec!["GPU-a".into(), "GPU-b".into()], threads: 4, kv_bytes: None };
        let settings = Settings { tensor_parallel_size: 2, ..settings(&[]) };
        let spec = replica("r".into(), &Source::Path("m.gguf".into()), &settings, &place, 1, 7001);
        assert_eq!(
            line(&spec),
            "--model m.gguf --host 127.0.0.1 --port 7001 --device cuda --threads 4 --tensor-parallel-size 2"
        );
        assert!(spec.environment.contains(&("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b".to_owned())));
        assert!(spec.environment.contains(&("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned())));
        assert_eq!(spec.who, "replica-1");
    }

    #[test]
    fn a_replica_on_cpu_sees_no_card_and_the_users_own_flags_win() {
        let place = Place { cards: Vec::new(), threads: 4, kv_bytes: Some(64) };
        let settings = settings(&["--threads", "1", "--seed=3"]);
        let spec = replica("r".into(), &Source::Fake, &settings, &place, 0, 7000);
        assert_eq!(
            line(&spec),
            "--model fake --host 127.0.0.1 --port 7000 --device cpu --kv-cache-memory-bytes 64 --threads 1 --seed=3"
        );
        assert!(spec.environment.contains(&("CUDA_VISIBLE_DEVICES", String::new())));
    }

    #[test]
    fn a_model_of_the_catalogue_goes_by_its_name() {
        let place = Place { cards: Vec::new(), threads: 1, kv_bytes: None };
        let model = Source::Path(PathBuf::from("cache").join(crate::model::catalog::DEFAULT.file));
        let spec = replica("r".into(), &model, &settings(&[]), &place, 0, 7000);
        assert!(line(&spec).contains("--served-model-name SmolLM2-135M-Instruct "), "{}", line(&spec));
    }

    #[test]
    fn the_gateway_knows_every_replica() {
        let spec = gateway("g".into(), &settings(&[]), &Ports { admin: 9000, replicas: vec![7000, 7001] });
        assert_eq!(
            line(&spec),
            "--host 127.0.0.1 --port 8000 --admin-port 9000 \
             --replica http://127.0.0.1:7000 --replica http://127.0.0.1:7001"
        );
    }

    #[test]
    fn a_listener_on_every_address_is_reached_on_loopback() {
        assert_eq!(reachable("0.0.0.0".parse().unwrap()), "127.0.0.1");
        assert_eq!(reachable("::".parse().unwrap()), "127.0.0.1");
        assert_eq!(reachable("::1".parse().unwrap()), "[::1]");
    }
}
