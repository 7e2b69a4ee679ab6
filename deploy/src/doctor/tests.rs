//! Verdicts on recordings of many machines.

use super::recording::{Containers, ModelPath, Port, Redis, Replica};
use super::*;

const SWITCH: &str = include_str!("fixtures/topo-nvswitch.txt");
const PAIRS: &str = include_str!("fixtures/topo-two-pairs.txt");
const WSL: &str = "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@build) (gcc 11.2.0) #1 SMP";
const H100: &str = "81559, 0, 550.54.15, 9.0, 16, 16, 0x0000000000000000, 0, Disabled, Default";

/// So many cards alike, `rest` being everything after the bus id.
fn cards(count: u32, rest: &str) -> String {
    let line = |index| format!("{index}, GPU-{index}, NVIDIA H100 80GB HBM3, 0000:0{index}:00.0, {rest}\n");
    (0..count).map(line).collect()
}

fn sound() -> Recording {
    Recording { gpus: Some(cards(4, H100)), topology: Some(SWITCH.to_owned()), ..Recording::default() }
}

/// What is found beyond `sound`: severity and code; and the exit code that follows.
fn check(recording: &Recording, ranks: u32, expected: &[(Severity, &str)]) -> Vec<Finding> {
    let findings = judge(recording, Wish { ranks, allow_slow_links: false });
    let bad: Vec<_> =
        findings.iter().filter(|finding| finding.severity != Severity::Sound).cloned().collect();
    let found: Vec<_> = bad.iter().map(|finding| (finding.severity, finding.code)).collect();
    assert_eq!(found, expected, "{findings:#?}");
    let worst = expected.iter().map(|(severity, _)| *severity as u8).max().unwrap_or(0);
    assert_eq!(exit_code(&findings), worst);
    assert!(bad.iter().all(|finding| !finding.remedy.is_empty()), "each finding has its remedy: {bad:#?}");
    bad
}

use Severity::{Broken, Warning};

#[test]
fn a_sound_machine_has_nothing_to_say() {
    check(&sound(), 1, &[]);
    check(&sound(), 4, &[]);
    check(&Recording::default(), 1, &[]);
}

/// U062.
#[test]
fn groups_are_judged_by_their_worst_link() {
    let pairs = Recording { topology: Some(PAIRS.to_owned()), ..sound() };
    let findings = judge(&pairs, Wish { ranks: 2, allow_slow_links: false });
    let texts: Vec<_> =
        findings.iter().filter(|finding| finding.code == "group").map(ToString::to_string).collect();
    assert!(texts[0].contains("cards 0, 1: NVLink, peer-to-peer advised"), "{texts:?}");
    assert!(texts[1].contains("cards 2, 3: PHB"), "{texts:?}");
    check(&pairs, 2, &[(Warning, "group")]);
    check(&pairs, 4, &[(Broken, "group")]);
    let allowed = judge(&pairs, Wish { ranks: 4, allow_slow_links: true });
    assert_eq!(exit_code(&allowed), 1);
    check(&Recording { topology: None, ..sound() }, 2, &[(Warning, "group")]);
}

#[test]
fn a_group_larger_than_the_machine_is_broken() {
    check(&sound(), 8, &[(Broken, "group")]);
    check(&Recording::default(), 2, &[(Broken, "gpus")]);
    let silent = Recording {
        gpus: Some("Failed to initialize NVML: Driver/library version mismatch".to_owned()),
        ..sound()
    };
    check(&silent, 1, &[(Broken, "gpus")]);
}

/// U064, U063.
#[test]
fn wsl_and_small_shared_memory_matter_for_groups_only() {
    let wsl = Recording { proc_version: WSL.to_owned(), shm_bytes: Some(64 << 20), ..sound() };
    check(&wsl, 1, &[]);
    let bad = check(&wsl, 2, &[(Warning, "wsl2"), (Warning, "shm")]);
    assert!(bad[0].remedy.contains("NCCL_P2P_DISABLE=1"));
}

#[test]
fn a_driver_is_held_against_the_build_and_its_ptx() {
    let with = |driver: &str, cuda: &str| Recording {
        gpus: Some(cards(1, &H100.replace("550.54.15", driver))),
        build_cuda: Some(cuda.to_owned()),
        ..Recording::default()
    };
    check(&with("550.54.15", "12.4"), 1, &[]);
    check(&with("550.54.15", "12.8"), 1, &[(Broken, "ptx")]);
    check(&with("515.65.01", "12.4"), 1, &[(Broken, "driver")]);
    check(&with("535.104.05", "13.0"), 1, &[(Broken, "driver")]);
    check(&with("580.95.05", "13.0"), 1, &[]);
    let volta = Recording {
        gpus: Some(cards(1, &H100.replace("550.54.15, 9.0", "580.95.05, 7.0"))),
        ..with("", "13.0")
    };
    check(&volta, 1, &[(Broken, "compute")]);
}

#[test]
fn sick_cards_are_found() {
    let sick = |from: &str, to: &str| Recording {
        gpus: Some(cards(1, &H100.replace(from, to))),
        ..Recording::default()
    };
    check(&sick("0x0000000000000000, 0,", "0x0000000000000000, 3,"), 1, &[(Broken, "ecc")]);
    check(&sick("0x0000000000000000", "0x0000000000000040"), 1, &[(Warning, "throttle")]);
    check(&sick("0x0000000000000000", "0x0000000000000001"), 1, &[]); // idle
    check(&sick("16, 16", "4, 16"), 1, &[(Warning, "pcie")]);
    check(&sick("Default", "Exclusive_Process"), 1, &[(Warning, "exclusive")]);
    check(&sick("Disabled", "Enabled"), 1, &[(Warning, "mig")]);
    let xid = |number: u32| Recording {
        xids: vec![format!("[12.3] NVRM: Xid (PCI:0000:65:00): {number}, pid='<unknown>', name=<unknown>")],
        ..sound()
    };
    check(&xid(79), 1, &[(Broken, "xid")]);
    check(&xid(31), 1, &[(Warning, "xid")]);
}

#[test]
fn memory_that_others_hold_is_found() {
    let busy = H100.replace("81559, 0", "81559, 70000");
    let apps = Some("GPU-0, 4242, python, 69000\nGPU-0, 4243, ComfyUI, 900\n".to_owned());
    let one = Recording { gpus: Some(cards(1, &busy)), apps: apps.clone(), ..Recording::default() };
    let bad = check(&one, 1, &[(Warning, "card_in_use")]);
    assert!(bad[0].what.contains("python (4242), ComfyUI (4243)"), "{}", bad[0].what);
    check(&Recording { apps: None, ..one.clone() }, 1, &[(Warning, "card_in_use")]);
    // Two engines on card 0 of four, and nobody pinned.
    let crowded = Recording { apps, ..sound() };
    check(&crowded, 1, &[(Warning, "card_in_use"), (Warning, "unpinned")]);
    let pinned = Recording { visible_devices: Some("GPU-0".to_owned()), ..crowded };
    check(&pinned, 1, &[(Warning, "card_in_use")]);
    // The first card of a pair at 90 %.
    let second = cards(2, H100).lines().nth(1).unwrap().to_owned();
    let uneven = Recording { gpus: Some(cards(1, &busy) + &second), ..sound() };
    check(&uneven, 2, &[(Warning, "uneven"), (Warning, "card_in_use")]);
}

#[test]
fn containers_that_a_daemon_reload_would_cut_off_are_found() {
    let how = Containers {
        cgroup_driver: Some("systemd".to_owned()),
        cgroup_version: Some("2".to_owned()),
        has_nvidia_runtime: true,
        has_cdi: false,
    };
    check(&Recording { containers: how.clone(), ..sound() }, 1, &[(Warning, "daemon_reload")]);
    check(&Recording { containers: Containers { has_cdi: true, ..how }, ..sound() }, 1, &[]);
}

#[test]
fn the_host_is_looked_over() {
    let taken = Port { port: 8000, holder: Some("python3 (process 7)".to_owned()) };
    check(
        &Recording { ports: vec![taken, Port { port: 9000, holder: None }], ..sound() },
        1,
        &[(Warning, "port")],
    );
    check(&Recording { open_files: Some(1024), ..sound() }, 1, &[(Warning, "open_files")]);
    check(&Recording { locked_bytes: Some(65_536), ..sound() }, 1, &[(Warning, "locked_memory")]);
    let redis = Redis { address: "r:6379".to_owned(), fault: Some("refused".to_owned()) };
    check(&Recording { redis: Some(redis), ..sound() }, 1, &[(Broken, "redis")]);
    let missing =
        ModelPath { path: "m".to_owned(), fault: Some("no such file".to_owned()), ..ModelPath::default() };
    check(&Recording { model: Some(missing), ..sound() }, 1, &[(Broken, "model")]);
    let large = ModelPath { weight_bytes: 1 << 40, disk_free_bytes: Some(1 << 30), ..ModelPath::default() };
    let small = Recording { model: Some(large), memory_bytes: Some(1 << 34), ..sound() };
    check(&small, 1, &[(Broken, "memory"), (Warning, "disk")]);
    let absent = |free| ModelPath {
        path: "smol".to_owned(),
        weight_bytes: 1 << 30,
        is_absent: true,
        disk_free_bytes: Some(free),
        ..ModelPath::default()
    };
    let with = |free| Recording { model: Some(absent(free)), ..sound() };
    check(&with(1 << 34), 1, &[(Warning, "model")]);
    check(&with(1 << 29), 1, &[(Warning, "model"), (Broken, "disk")]);
}

#[test]
fn replicas_that_are_not_who_they_say_are_found() {
    let replica = |address: &str, instance: &str, revision: &str| Replica {
        address: address.to_owned(),
        instance: instance.to_owned(),
        revision: revision.to_owned(),
        models: vec!["smol".to_owned()],
        ..Replica::default()
    };
    let with = |replicas| Recording { replicas, ..sound() };
    check(&with(vec![replica("a:1", "x", "r"), replica("b:1", "y", "r")]), 1, &[]);
    check(&with(vec![replica("a:1", "x", "r"), replica("b:1", "x", "r")]), 1, &[(Broken, "replica")]);
    check(&with(vec![replica("a:1", "x", "r"), replica("b:1", "y", "q")]), 1, &[(Warning, "revision")]);
    let gone = Replica { fault: Some("cannot connect".to_owned()), ..replica("a:1", "", "") };
    check(&with(vec![gone]), 1, &[(Broken, "replica")]);
}

#[test]
fn a_recording_can_be_kept_and_read_back() {
    let kept = serde_json::to_string(&sound()).unwrap();
    assert_eq!(serde_json::from_str::<Recording>(&kept).unwrap(), sound());
    assert!(serde_json::from_str::<Recording>(r#"{"gpu": 1}"#).is_err());
}
