//! What this machine has, asked once: cards, threads, memory. No opinions.

use std::path::Path;

use nvml_wrapper::Nvml;

/// A GPU as the driver names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    /// Index in PCI order.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// For people.
    pub name: String,
    /// All of its memory.
    pub memory_bytes: u64,
    /// What nobody holds now.
    pub memory_free_bytes: u64,
}

/// What there is to plan with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// GPUs that this process may use.
    pub cards: Vec<Card>,
    /// Threads that this process may run at once.
    pub threads: u32,
    /// Memory that can be taken without swapping, in bytes, within this process's cgroup.
    pub memory_bytes: u64,
}

impl Machine {
    /// Asks driver and kernel. A machine without a driver has no cards; that is not an error.
    pub fn look() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        Self { cards: visible_cards(cards(), visible.as_deref()), threads, memory_bytes: memory_bytes() }
    }
}

/// Cards in PCI order; empty without a driver.
fn cards() -> Vec<Card> {
    let library = ["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];
    let Some(nvml) = library.iter().find_map(|path| Nvml::builder().lib_path(path.as_ref()).init().ok())
    else {
        return Vec::new();
    };
    let count = nvml.device_count().unwrap_or(0);
    let card = |index| {
        let device = nvml.device_by_index(index).ok()?;
        let memory = device.memory_info().ok();
        Some(Card {
            index,
            uuid: device.uuid().ok()?,
            name: device.name().unwrap_or_else(|_| "unnamed".to_owned()),
            memory_bytes: memory.as_ref().map_or(0, |memory| memory.total),
            memory_free_bytes: memory.as_ref().map_or(0, |memory| memory.free),
        })
    };
    (0..count).filter_map(card).collect()
}

/// The cards that `CUDA_VISIBLE_DEVICES` leaves, in its order. As in CUDA, an entry that names no card hides
/// itself and all after it; entries are indices or (beginnings of) UUIDs.
pub fn visible_cards(all: Vec<Card>, visible: Option<&str>) -> Vec<Card> {
    let Some(visible) = visible else { return all };
    let named = |entry: &str| {
        let by_index = entry.parse().ok().and_then(|index: u32| all.iter().find(|card| card.index == index));
        by_index.or_else(|| all.iter().find(|card| entry.starts_with("GPU-") && card.uuid.starts_with(entry)))
    };
    visible.split(',').map_while(|entry| named(entry.trim()).cloned()).collect()
}

/// Nothing known counts as nothing there: what then fails says so with this number.
fn memory_bytes() -> u64 {
    let Ok(mut system) = sysinfo::System::new() else { return 0 };
    system.refresh_memory();
    let free = system.available_memory();
    system.cgroup_limits().map_or(free, |group| group.free_memory.min(free))
}

/// Where a program of ours is: beside this one.
///
/// # Errors
///
/// Names the place where it should be.
pub fn program(name: &str) -> Result<std::path::PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find my own executable: {error}"))?;
    let path = own.parent().unwrap_or(Path::new(".")).join(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("{name} is missing: it belongs beside flotilla, at {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(index: u32, uuid: &str) -> Card {
        let (uuid, name) = (uuid.to_owned(), "card".to_owned());
        Card { index, uuid, name, memory_bytes: 1, memory_free_bytes: 1 }
    }

    fn check(visible: Option<&str>, expected: &[u32]) {
        let all = vec![card(0, "GPU-aaaa-1"), card(1, "GPU-bbbb-2"), card(2, "GPU-cccc-3")];
        let found: Vec<_> = visible_cards(all, visible).iter().map(|card| card.index).collect();
        assert_eq!(found, expected, "{visible:?}");
    }

    #[test]
    fn cuda_visible_devices_is_read_as_cuda_reads_it() {
        check(None, &[0, 1, 2]);
        check(Some(""), &[]);
        check(Some("-1"), &[]);
        check(Some("2,0"), &[2, 0]);
        check(Some("GPU-bbbb"), &[1]);
        check(Some("0,7,1"), &[0]);
        check(Some(" 1 , 2"), &[1, 2]);
    }
}
