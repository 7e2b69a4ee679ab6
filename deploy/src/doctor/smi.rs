//! nvidia-smi's tables. Pure: text in, values out; what a driver doesn't tell is `None`.

/// Fields of `--query-gpu`, in this order.
pub const FIELDS: &str = "index,uuid,name,pci.bus_id,memory.total,memory.used,driver_version,compute_cap,\
pcie.link.width.current,pcie.link.width.max,clocks_event_reasons.active,ecc.errors.uncorrected.volatile.total,\
mig.mode.current,compute_mode";

/// One card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gpu {
    /// Index in PCI order.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// For people.
    pub name: String,
    /// MiB it has.
    pub memory_mib: Option<u64>,
    /// MiB in use.
    pub used_mib: Option<u64>,
    /// The driver's version.
    pub driver: String,
    /// Architecture, `8.9` as 89.
    pub compute: Option<u32>,
    /// PCIe lanes now and at most.
    pub lanes: Option<(u32, u32)>,
    /// Bits of the reasons why clocks are held down.
    pub throttle: Option<u64>,
    /// Errors that memory could not correct since the driver was loaded.
    pub ecc_errors: Option<u64>,
    /// Whether it is cut into instances.
    pub is_mig: bool,
    /// Whether one process at a time may use it.
    pub is_exclusive: bool,
}

/// A process on a card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct App {
    /// Its card.
    pub uuid: String,
    /// Its process id.
    pub process: u32,
    /// Its program.
    pub name: String,
    /// MiB it holds there.
    pub used_mib: Option<u64>,
}

/// Reads `--query-gpu=FIELDS`.
pub fn gpus(text: &str) -> Vec<Gpu> {
    text.lines().filter_map(gpu).collect()
}

fn gpu(line: &str) -> Option<Gpu> {
    let cells: Vec<_> = line.split(',').map(str::trim).collect();
    let &[index, uuid, name, _, total, used, driver, compute, width, width_max, reasons, ecc, mig, mode] =
        &cells[..]
    else {
        return None;
    };
    Some(Gpu {
        index: index.parse().ok()?,
        uuid: uuid.to_owned(),
        name: name.to_owned(),
        memory_mib: total.parse().ok(),
        used_mib: used.parse().ok(),
        driver: driver.to_owned(),
        compute: compute.split_once('.').and_then(|(major, minor)| format!("{major}{minor}").parse().ok()),
        lanes: width.parse().ok().zip(width_max.parse().ok()),
        throttle: reasons.strip_prefix("0x").and_then(|bits| u64::from_str_radix(bits, 16).ok()),
        ecc_errors: ecc.parse().ok(),
        is_mig: mig == "Enabled",
        is_exclusive: mode == "Exclusive_Process",
    })
}

/// Reads `--query-compute-apps`.
pub fn apps(text: &str) -> Vec<App> {
    let app = |line: &str| {
        let cells: Vec<_> = line.split(',').map(str::trim).collect();
        let &[uuid, process, name, used] = &cells[..] else { return None };
        let (uuid, name) = (uuid.to_owned(), name.to_owned());
        Some(App { uuid, process: process.parse().ok()?, name, used_mib: used.parse().ok() })
    };
    text.lines().filter_map(app).collect()
}

/// How two cards reach each other, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Path {
    /// NVLink, so many of them.
    Nvlink,
    /// One PCIe bridge at most.
    Pix,
    /// Several PCIe bridges, no host bridge.
    Pxb,
    /// A host bridge.
    Phb,
    /// Host bridges of one NUMA node.
    Node,
    /// Between NUMA nodes.
    Sys,
}

impl Path {
    fn parse(cell: &str) -> Option<Self> {
        match cell {
            "PIX" | "PSB" => Some(Self::Pix),
            "PXB" => Some(Self::Pxb),
            "PHB" => Some(Self::Phb),
            "NODE" => Some(Self::Node),
            "SYS" | "SOC" => Some(Self::Sys),
            "C2C" => Some(Self::Nvlink),
            _ => cell.strip_prefix("NV").filter(|links| links.parse::<u32>().is_ok()).map(|_| Self::Nvlink),
        }
    }

    /// nvidia-smi's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Nvlink => "NVLink",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        }
    }
}

/// Paths between all pairs of cards, by index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology(Vec<Vec<Option<Path>>>);

impl Topology {
    /// Reads `topo -m`: tabs between cells, escape codes in the head, columns of NICs and CPUs after the cards.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let head = lines.find(|line| plain(line).contains("GPU0"))?;
        let cards = plain(head).split('\t').filter(|cell| is_gpu(cell.trim())).count();
        let row = |line: &str| {
            let line = plain(line);
            let mut cells = line.split('\t').map(str::trim);
            cells.next().filter(|name| is_gpu(name))?;
            Some(cells.take(cards).map(Path::parse).collect::<Vec<_>>())
        };
        let rows: Vec<_> = lines
            .map_while(|line| if line.trim().is_empty() { None } else { Some(row(line)) })
            .flatten()
            .collect();
        (rows.len() == cards && rows.iter().all(|row| row.len() == cards)).then_some(Self(rows))
    }

    /// The worst path between any two of these cards; `None` for fewer than two, or where one is unknown.
    pub fn worst(&self, cards: &[u32]) -> Option<Path> {
        let pairs = cards.iter().flat_map(|&a| cards.iter().filter(move |&&b| a < b).map(move |&b| (a, b)));
        let paths: Option<Vec<_>> = pairs.map(|(a, b)| *self.0.get(a as usize)?.get(b as usize)?).collect();
        paths?.into_iter().max()
    }
}

fn is_gpu(cell: &str) -> bool {
    cell.strip_prefix("GPU")
        .is_some_and(|index| !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Without escape codes.
fn plain(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRS: &str = include_str!("fixtures/topo-two-pairs.txt");
    const SWITCH: &str = include_str!("fixtures/topo-nvswitch.txt");

    #[test]
    fn a_matrix_is_read_past_its_escape_codes_and_nics() {
        let topology = Topology::parse(SWITCH).unwrap();
        assert_eq!(topology.worst(&[0, 1, 2, 3]), Some(Path::Nvlink));
        assert_eq!(topology.worst(&[0]), None);
        assert_eq!(topology.worst(&[0, 9]), None);
    }

    #[test]
    fn the_worst_path_of_a_group_counts() {
        let topology = Topology::parse(PAIRS).unwrap();
        assert_eq!(topology.worst(&[0, 1]), Some(Path::Nvlink));
        assert_eq!(topology.worst(&[2, 3]), Some(Path::Phb));
        assert_eq!(topology.worst(&[0, 1, 2]), Some(Path::Sys));
    }

    #[test]
    fn what_is_no_matrix_is_none() {
        assert_eq!(Topology::parse(""), None);
        assert_eq!(Topology::parse("Failed to initialize NVML"), None);
        assert_eq!(Topology::parse("\tGPU0\tGPU1\nGPU0\t X \n"), None);
    }

    #[test]
    fn what_a_driver_does_not_tell_is_unknown() {
        let line = "0, GPU-a, NVIDIA GB10, 0000:01:00.0, [N/A], [N/A], 580.95.05, 12.1, 1, 1, 0x0000000000000000, [N/A], [N/A], Default";
        let gpu = &gpus(line)[0];
        assert_eq!((gpu.memory_mib, gpu.ecc_errors, gpu.compute), (None, None, Some(121)));
        assert!(!gpu.is_mig && gpu.throttle == Some(0));
        assert!(gpus("garbage\n1, 2").is_empty());
    }
}
