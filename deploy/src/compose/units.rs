//! A topology as systemd units, for machines without containers. Pure: names and texts out.

use std::fmt::Write;

use super::stack::{GATEWAY_DRAIN_SECONDS, start_seconds};
use super::topology::{ReplicaPart, Topology};

/// Port of the first replica; the others follow.
const FIRST_PORT: u16 = 8001;

const SANDBOX: &str = "\
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
LimitNOFILE=1048576
LimitMEMLOCK=infinity
";

/// File names and contents.
pub fn render(topology: &Topology) -> Vec<(String, String)> {
    let mut units = vec![(format!("{}.target", topology.name), target(topology)), gateway(topology)];
    for (index, replica) in topology.replicas.iter().enumerate() {
        units.push(self::replica(topology, replica, FIRST_PORT + index as u16));
    }
    units
}

/// One word of a command line, whatever it holds: systemd knows quotes, `%` and `$`.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut text = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '%' => text.push_str("%%"),
            '$' => text.push_str("$$"),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

fn unit(topology: &Topology, service: &str) -> String {
    format!("{}-{service}.service", topology.name)
}

fn target(topology: &Topology) -> String {
    let mut wants = vec![unit(topology, "gateway")];
    wants.extend(topology.replicas.iter().map(|replica| unit(topology, &replica.name)));
    format!(
        "[Unit]\nDescription=Flotilla fleet {}\nWants={}\n\n[Install]\nWantedBy=multi-user.target\n",
        topology.name,
        wants.join(" ")
    )
}

fn service(topology: &Topology, what: &str, start: &str, stop_seconds: u64, more: &str) -> String {
    format!(
        "[Unit]\nDescription=Flotilla {what}\nPartOf={}.target\nAfter=network-online.target\nWants=network-online.target\n\n\
         [Service]\nExecStart={start}\nKillSignal=SIGTERM\nTimeoutStopSec={stop_seconds}\nRestart=on-failure\nRestartSec=1\n\
         RestartPreventExitStatus=78\nDynamicUser=yes\n{SANDBOX}{more}",
        topology.name
    )
}

fn gateway(topology: &Topology) -> (String, String) {
    let mut start = format!(
        "/usr/local/bin/flotilla-gateway --port {} --admin-port {}",
        topology.gateway.port, topology.gateway.admin_port
    );
    for index in 0..topology.replicas.len() as u16 {
        let _ = write!(start, " --replica http://127.0.0.1:{}", FIRST_PORT + index);
    }
    (unit(topology, "gateway"), service(topology, "gateway", &start, GATEWAY_DRAIN_SECONDS + 10, ""))
}

fn replica(topology: &Topology, replica: &ReplicaPart, port: u16) -> (String, String) {
    let device = if replica.cards.is_empty() { "cpu" } else { "cuda" };
    let mut start = format!(
        "/usr/local/bin/flotilla-replica --model {} --port {port} --device {device} --threads {} --drain-timeout {}",
        quoted(&topology.model),
        replica.threads,
        replica.drain_seconds
    );
    if let Some(name) = &topology.served_model_name {
        let _ = write!(start, " --served-model-name {}", quoted(name));
    }
    if let Some(tokens) = replica.context_tokens {
        let _ = write!(start, " --max-model-len {tokens}");
    }
    if let Some(bytes) = replica.kv_bytes {
        let _ = write!(start, " --kv-cache-memory-bytes {bytes}");
    }
    if replica.cards.len() > 1 {
        let _ = write!(start, " --tensor-parallel-size {}", replica.cards.len());
    }
    let mut more = format!("TimeoutStartSec={}\n", start_seconds(topology.weight_bytes));
    if !replica.cards.is_empty() {
        let _ = write!(
            more,
            "Environment=CUDA_DEVICE_ORDER=PCI_BUS_ID\nEnvironment=CUDA_VISIBLE_DEVICES={}\n",
            replica.cards.join(",")
        );
    }
    let stop = u64::from(replica.drain_seconds) + 10;
    (unit(topology, &replica.name), service(topology, &replica.name, &start, stop, &more))
}

#[cfg(test)]
mod tests {
    use super::super::topology::tests::topology;
    use super::*;

    #[test]
    fn every_service_is_wanted_by_the_target() {
        let units = render(&topology(&[&[], &["GPU-a", "GPU-b"]]));
        let (_, target) = &units[0];
        for (name, _) in &units[1..] {
            assert!(target.contains(name.as_str()), "{name}");
        }
        assert_eq!(units.len(), 4);
    }

    #[test]
    fn a_unit_pins_its_cards_and_ends_with_grace() {
        let units = render(&topology(&[&["GPU-a", "GPU-b"]]));
        let (_, text) = &units[2];
        assert!(text.contains("Environment=CUDA_VISIBLE_DEVICES=GPU-a,GPU-b\n"), "{text}");
        assert!(text.contains("--tensor-parallel-size 2") && text.contains("TimeoutStopSec=70"), "{text}");
        assert!(text.contains("RestartPreventExitStatus=78"), "{text}");
    }

    #[test]
    fn a_unit_without_cards_says_nothing_of_cuda() {
        let units = render(&topology(&[&[]]));
        let (_, text) = &units[2];
        assert!(text.contains("--device cpu") && !text.contains("CUDA"), "{text}");
    }

    /// Paths stay one word, on one line.
    #[test]
    fn no_path_adds_a_line_or_a_word() {
        let model = "/models/my \"best\" 100%$HOME\nExecStartPre=/bin/false".to_owned();
        let units = render(&Topology { model, ..topology(&[&[]]) });
        let (_, text) = &units[2];
        assert!(!text.lines().any(|line| line.starts_with("ExecStartPre")), "{text}");
        let expected = r#"--model "/models/my \"best\" 100%%$$HOME\nExecStartPre=/bin/false" --port"#;
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn the_gateway_knows_every_replicas_port() {
        let units = render(&topology(&[&[], &[]]));
        assert!(units[1].1.contains("--replica http://127.0.0.1:8001 --replica http://127.0.0.1:8002"));
        assert!(units[2].1.contains("--port 8001") && units[3].1.contains("--port 8002"));
    }
}
