//! Verdicts on cards: driver, groups, memory, health. Pure.

use std::collections::BTreeSet;

use super::Wish;
use super::finding::Finding;
use super::recording::Recording;
use super::smi::{self, App, Gpu, Path, Topology};

/// Least driver for each CUDA major version.
const DRIVER_MIN: [(u32, u32); 3] = [(11, 450), (12, 525), (13, 580)];
/// First driver of each CUDA version: PTX of a newer one is not understood.
const DRIVER_OF_CUDA: [((u32, u32), u32); 13] = [
    ((11, 8), 520),
    ((12, 0), 525),
    ((12, 1), 530),
    ((12, 2), 535),
    ((12, 3), 545),
    ((12, 4), 550),
    ((12, 5), 555),
    ((12, 6), 560),
    ((12, 8), 570),
    ((12, 9), 575),
    ((13, 0), 580),
    ((13, 1), 590),
    ((13, 2), 595),
];
/// XIDs after which a card must be taken out: ECC, page retirement, fallen off the bus, GSP.
const XIDS_FATAL: [u32; 9] = [48, 63, 64, 74, 79, 94, 95, 119, 120];
/// Throttle bits: hardware slowdown, its thermal and power-brake parts, software thermal.
const THROTTLE_BAD: u64 = 0x8 | 0x40 | 0x80 | 0x20;

/// All verdicts on cards.
pub fn judge(recording: &Recording, wish: Wish) -> Vec<Finding> {
    let Some(text) = &recording.gpus else {
        return vec![no_cards(wish)];
    };
    let gpus = smi::gpus(text);
    if gpus.is_empty() {
        return vec![Finding::broken(
            "gpus",
            format!("nvidia-smi lists no card: {}", text.lines().next().unwrap_or("it says nothing")),
            "load the nvidia kernel module, or reboot after a driver update",
        )];
    }
    let apps = recording.apps.as_deref().map(smi::apps).unwrap_or_default();
    let mut findings =
        vec![Finding::sound("gpus", format!("{} cards, driver {}", gpus.len(), gpus[0].driver))];
    findings.extend(driver(&gpus, recording.build_cuda.as_deref()));
    findings.extend(groups(&gpus, recording, wish));
    findings.extend(processes(&gpus, &apps));
    findings.extend(sharing(&apps, recording));
    findings.extend(gpus.iter().flat_map(health));
    findings.extend(xids(&recording.xids));
    findings
}

fn no_cards(wish: Wish) -> Finding {
    if wish.ranks > 1 {
        let what = format!("no NVIDIA driver answers, and a group of {} cards is planned", wish.ranks);
        return Finding::broken("gpus", what, "install the driver, or plan CPU replicas");
    }
    Finding::sound("gpus", "no NVIDIA driver answers: replicas run on CPU")
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next().and_then(Result::ok).unwrap_or(0)))
}

/// The driver against the toolkit of our build.
fn driver(gpus: &[Gpu], build_cuda: Option<&str>) -> Vec<Finding> {
    let (Some(build), Some((have, _))) = (build_cuda.and_then(version), version(&gpus[0].driver)) else {
        return Vec::new();
    };
    let (cuda, driver) = (format!("{}.{}", build.0, build.1), &gpus[0].driver);
    let least = DRIVER_MIN.iter().find(|(major, _)| *major == build.0).map_or(0, |(_, least)| *least);
    if have < least {
        let what = format!("driver {driver} is too old for CUDA {cuda}: {least} or later is needed");
        return vec![Finding::broken("driver", what, "update the driver")];
    }
    let newest = DRIVER_OF_CUDA.iter().filter(|(_, first)| *first <= have).map(|(cuda, _)| *cuda).max();
    let mut findings = Vec::new();
    if newest.is_some_and(|newest| newest < build) {
        findings.push(Finding::broken(
            "ptx",
            format!("driver {driver} runs CUDA {cuda} libraries but not its PTX (CUDA_ERROR_UNSUPPORTED_PTX_VERSION)"),
            format!("update the driver, or build with a toolkit that it came with, {} at most", newest_word(newest)),
        ));
    } else {
        findings.push(Finding::sound("driver", format!("driver {driver} runs CUDA {cuda}")));
    }
    let old = gpus.iter().filter(|gpu| build.0 >= 13 && gpu.compute.is_some_and(|compute| compute < 75));
    findings.extend(old.map(|gpu| {
        let what = format!("card {} ({}) is older than CUDA {cuda} supports", gpu.index, gpu.name);
        Finding::broken("compute", what, "build with CUDA 12")
    }));
    findings
}

fn newest_word(newest: Option<(u32, u32)>) -> String {
    newest.map_or_else(|| "11.8".to_owned(), |(major, minor)| format!("{major}.{minor}"))
}

/// Planned tensor-parallel groups: consecutive visible cards.
fn groups(gpus: &[Gpu], recording: &Recording, wish: Wish) -> Vec<Finding> {
    if wish.ranks <= 1 {
        return Vec::new();
    }
    let cards: Vec<_> = gpus.iter().map(|gpu| gpu.index).collect();
    if cards.len() < wish.ranks as usize {
        let what = format!("a group of {} cards is planned, but {} are there", wish.ranks, cards.len());
        return vec![Finding::broken("group", what, "lower --tensor-parallel-size")];
    }
    let topology = recording.topology.as_deref().and_then(Topology::parse);
    let mut findings = Vec::new();
    for group in cards.chunks_exact(wish.ranks as usize) {
        let members: Vec<_> = gpus.iter().filter(|gpu| group.contains(&gpu.index)).collect();
        findings.extend(topology.as_ref().map(|topology| link(topology, group, wish)));
        findings.extend(evenness(&members));
    }
    if topology.is_none() {
        let remedy = "look at `nvidia-smi topo -m` yourself";
        findings.push(Finding::warning(
            "group",
            "the topology is not known: links of groups are not checked",
            remedy,
        ));
    }
    findings
}

/// U062: whether peer-to-peer is advised for a group.
fn link(topology: &Topology, group: &[u32], wish: Wish) -> Finding {
    let names = names(group);
    match topology.worst(group) {
        Some(Path::Nvlink) => Finding::sound("group", format!("cards {names}: NVLink, peer-to-peer advised")),
        Some(path @ (Path::Pix | Path::Pxb)) => Finding::sound(
            "group",
            format!("cards {names}: {}, peer-to-peer advised, slower than NVLink", path.word()),
        ),
        Some(path @ (Path::Phb | Path::Node)) => Finding::warning(
            "group",
            format!("cards {names}: {}, traffic crosses the host", path.word()),
            "prefer one replica a card with smaller weights; try NCCL_P2P_LEVEL=PHB and measure",
        ),
        Some(Path::Sys) if wish.allow_slow_links => Finding::warning(
            "group",
            format!("cards {names}: SYS, traffic crosses CPU sockets"),
            "expect all-reduces to eat much of the gain; NCCL_P2P_DISABLE=1 if they hang",
        ),
        Some(Path::Sys) => Finding::broken(
            "group",
            format!("cards {names}: SYS, traffic crosses CPU sockets; peer-to-peer not advised"),
            "group cards of one socket (CUDA_VISIBLE_DEVICES), or pass --allow-slow-links",
        ),
        None => {
            Finding::warning("group", format!("cards {names}: path unknown"), "look at `nvidia-smi topo -m`")
        }
    }
}

fn names(group: &[u32]) -> String {
    group.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A group holds what its smallest card holds.
fn evenness(members: &[&Gpu]) -> Option<Finding> {
    let free = |gpu: &&Gpu| Some(gpu.memory_mib?.saturating_sub(gpu.used_mib?));
    let all: Option<Vec<_>> = members.iter().map(free).collect();
    let all = all?;
    let (least, most) = (*all.iter().min()?, *all.iter().max()?);
    let indices: Vec<_> = members.iter().map(|gpu| gpu.index).collect();
    (least * 10 < most * 9).then(|| {
        Finding::warning(
            "uneven",
            format!(
                "cards {}: {least} to {most} MiB free; the group is as large as its smallest card",
                names(&indices)
            ),
            "end what holds the fuller card, or group alike cards",
        )
    })
}

/// Memory that someone else holds.
fn processes(gpus: &[Gpu], apps: &[App]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for gpu in gpus {
        let ours: Vec<_> = apps.iter().filter(|app| app.uuid == gpu.uuid).collect();
        let known: u64 = ours.iter().filter_map(|app| app.used_mib).sum();
        let used = gpu.used_mib.unwrap_or(0);
        if !ours.is_empty() {
            let who: Vec<_> = ours.iter().map(|app| format!("{} ({})", app.name, app.process)).collect();
            let what = format!("card {} is in use: {used} MiB, by {}", gpu.index, who.join(", "));
            findings.push(Finding::warning(
                "card_in_use",
                what,
                "end them, or lower --gpu-memory-utilization by their share",
            ));
        } else if used > known + 1024 {
            let what =
                format!("card {}: {used} MiB are held by processes that can't be seen from here", gpu.index);
            findings.push(Finding::warning(
                "card_in_use",
                what,
                "look from the host: they are in another container",
            ));
        }
    }
    findings
}

/// Engines on one card because nobody pinned them.
fn sharing(apps: &[App], recording: &Recording) -> Option<Finding> {
    let cards: BTreeSet<_> = apps.iter().map(|app| &app.uuid).collect();
    let crowded = cards.into_iter().find(|card| apps.iter().filter(|app| app.uuid == **card).count() > 1)?;
    let gpus = recording.gpus.as_deref().map(smi::gpus).unwrap_or_default();
    (gpus.len() > 1 && recording.visible_devices.is_none()).then(|| {
        let index = gpus.iter().find(|gpu| gpu.uuid == *crowded).map_or(0, |gpu| gpu.index);
        Finding::warning(
            "unpinned",
            format!("several processes share card {index} while others are there, and CUDA_VISIBLE_DEVICES is not set"),
            "pin each by UUID, with CUDA_DEVICE_ORDER=PCI_BUS_ID; `flotilla up` does",
        )
    })
}

/// One card's own state.
fn health(gpu: &Gpu) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = format!("card {} ({})", gpu.index, gpu.name);
    if gpu.ecc_errors.is_some_and(|errors| errors > 0) {
        let what = format!("{name}: {} uncorrected memory errors", gpu.ecc_errors.unwrap_or(0));
        findings.push(Finding::broken("ecc", what, "drain its replica and reset or replace the card"));
    }
    if gpu.throttle.is_some_and(|bits| bits & THROTTLE_BAD != 0) {
        let what = format!("{name}: clocks are held down by heat or power");
        findings.push(Finding::warning(
            "throttle",
            what,
            "check cooling, the power cables and `nvidia-smi -q -d PERFORMANCE`",
        ));
    }
    if let Some((lanes, most)) = gpu.lanes.filter(|(lanes, most)| lanes < most) {
        let what = format!("{name}: {lanes} of {most} PCIe lanes");
        findings.push(Finding::warning("pcie", what, "reseat the card or move it to a wider slot"));
    }
    if gpu.is_exclusive {
        let what = format!("{name}: one process at a time may use it (Exclusive_Process)");
        findings.push(Finding::warning(
            "exclusive",
            what,
            "nvidia-smi -c DEFAULT, if replicas are to share it",
        ));
    }
    if gpu.is_mig {
        findings.push(Finding::warning(
            "mig",
            format!("{name}: is cut into instances"),
            "pin replicas by MIG UUID",
        ));
    }
    findings
}

fn xids(lines: &[String]) -> Vec<Finding> {
    let number = |line: &String| {
        let (_, rest) = line.split_once("Xid")?;
        let (_, rest) = rest.split_once("): ")?;
        rest.split(',').next()?.trim().parse::<u32>().ok()
    };
    let seen: BTreeSet<_> = lines.iter().filter_map(number).collect();
    let finding = |xid: u32| {
        let what = format!("the kernel log has XID {xid}");
        if XIDS_FATAL.contains(&xid) {
            Finding::broken("xid", what, "drain the card's replica; reset the card or reboot")
        } else {
            Finding::warning(
                "xid",
                what,
                "look it up in NVIDIA's XID list; 13, 31 and 43 are usually the program's fault",
            )
        }
    };
    seen.into_iter().map(finding).collect()
}
