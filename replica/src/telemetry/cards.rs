//! The cards this replica uses, as NVML sees them: read once a second by a thread of its own, shown at each scrape.
//!
//! Without a driver, or on CPU, there is nothing: no thread and no series. What a card can't tell is left out.

use std::sync::{Arc, Mutex, PoisonError};

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
};
use nvml_wrapper::{Device, EventSet, Nvml};
use shared::metric::{Metric, gpu as names};

use super::page::Page;

/// How often cards are read, and how long an event is waited for.
const TICK_MS: u32 = 1000;
/// Where the driver's library is; the second under WSL.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];

/// One card at some moment.
#[derive(Clone, Debug, Default)]
pub struct Card {
    index: u32,
    uuid: String,
    name: String,
    driver: String,
    values: Vec<(&'static Metric, f64)>,
}

/// The latest reading of all cards.
#[derive(Clone, Debug, Default)]
pub struct Cards(Arc<Mutex<Vec<Card>>>);

impl Cards {
    /// Watches the cards that `CUDA_VISIBLE_DEVICES` names, or the first `ranks` where it names none.
    pub fn watch(visible: Option<String>, ranks: u32) -> Self {
        let cards = Self::default();
        let latest = Arc::downgrade(&cards.0);
        let watch = move || {
            let nvml = LIBRARIES.iter().find_map(|path| Nvml::builder().lib_path(path.as_ref()).init().ok());
            let Some(nvml) = nvml else { return };
            let devices = devices(&nvml, visible.as_deref(), ranks);
            let mut errors = Errors::listen(&nvml, &devices);
            while let Some(latest) = latest.upgrade() {
                let read = devices.iter().zip(&errors.counts).map(|(device, xid)| read(&nvml, device, *xid));
                *latest.lock().unwrap_or_else(PoisonError::into_inner) = read.flatten().collect();
                drop(latest);
                errors.wait();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("cards".into()).spawn(watch) {
            tracing::warn!(%error, "cards are not watched");
        }
        cards
    }

    /// Their lines of a scrape.
    pub fn render(&self) -> String {
        render(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Critical errors of each device since the start.
struct Errors<'a> {
    set: Option<EventSet<'a>>,
    uuids: Vec<Option<String>>,
    counts: Vec<u64>,
}

impl<'a> Errors<'a> {
    fn listen(nvml: &'a Nvml, devices: &[Device<'a>]) -> Self {
        let register = |set: Option<EventSet<'a>>, device: &Device<'a>| {
            device.register_events(EventTypes::CRITICAL_XID_ERROR, set?).ok()
        };
        let set = devices.iter().fold(nvml.create_event_set().ok(), register);
        let uuids = devices.iter().map(|device| device.uuid().ok()).collect();
        Self { set, uuids, counts: vec![0; devices.len()] }
    }

    /// Waits for the next tick; errors that come meanwhile are counted.
    fn wait(&mut self) {
        let tick = std::time::Duration::from_millis(u64::from(TICK_MS));
        let Some(set) = &self.set else { return std::thread::sleep(tick) };
        match set.wait(TICK_MS) {
            Ok(event) => {
                let uuid = event.device.uuid().ok();
                if let Some(at) = self.uuids.iter().position(|known| *known == uuid) {
                    self.counts[at] += 1;
                }
                tracing::error!(uuid, "a card reported a critical error (XID)");
            }
            Err(NvmlError::Timeout) => {}
            Err(_) => std::thread::sleep(tick),
        }
    }
}

/// The devices that the process uses: entries are indices or (beginnings of) UUIDs.
fn devices<'a>(nvml: &'a Nvml, visible: Option<&str>, ranks: u32) -> Vec<Device<'a>> {
    let count = nvml.device_count().unwrap_or(0);
    let all: Vec<_> = (0..count).filter_map(|index| nvml.device_by_index(index).ok()).collect();
    let Some(visible) = visible else { return all.into_iter().take(ranks as usize).collect() };
    let named = |entry: &str| match entry.parse() {
        Ok(index) => nvml.device_by_index(index).ok(),
        Err(_) => (0..count).find_map(|index| {
            let device = nvml.device_by_index(index).ok()?;
            device.uuid().ok()?.starts_with(entry).then_some(device)
        }),
    };
    visible.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map_while(named).collect()
}

fn read(nvml: &Nvml, device: &Device<'_>, xid: u64) -> Option<Card> {
    let memory = device.memory_info().ok();
    let ecc = |kind| device.total_ecc_errors(kind, EccCounter::Volatile).ok().map(|count| count as f64);
    let values = [
        (&names::UTILIZATION, device.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0)),
        (&names::MEMORY_USED, memory.as_ref().map(|memory| memory.used as f64)),
        (&names::MEMORY_TOTAL, memory.as_ref().map(|memory| memory.total as f64)),
        (&names::MEMORY_FOREIGN, foreign_bytes(device)),
        (&names::TEMPERATURE, device.temperature(TemperatureSensor::Gpu).ok().map(f64::from)),
        (&names::POWER, device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1e3)),
        (&names::CLOCK, device.clock_info(Clock::SM).ok().map(|megahertz| f64::from(megahertz) * 1e6)),
        (&names::NVLINK, nvlink_bytes(device)),
        (&names::ECC_CORRECTED, ecc(MemoryError::Corrected)),
        (&names::ECC_UNCORRECTED, ecc(MemoryError::Uncorrected)),
        (&names::XID, Some(xid as f64)),
        (
            &names::THROTTLED,
            device.current_throttle_reasons().ok().map(|reasons| f64::from(u8::from(is_held(reasons)))),
        ),
    ];
    Some(Card {
        index: device.index().ok()?,
        uuid: device.uuid().ok()?,
        name: device.name().unwrap_or_default(),
        driver: nvml.sys_driver_version().unwrap_or_default(),
        values: values.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect(),
    })
}

/// Heat or the power supply hold the clock down; a set limit or idleness does not count.
fn is_held(reasons: ThrottleReasons) -> bool {
    reasons.intersects(
        ThrottleReasons::HW_SLOWDOWN
            | ThrottleReasons::HW_THERMAL_SLOWDOWN
            | ThrottleReasons::SW_THERMAL_SLOWDOWN
            | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN,
    )
}

fn foreign_bytes(device: &Device<'_>) -> Option<f64> {
    let own = std::process::id();
    let others = device.running_compute_processes().ok()?.into_iter().filter(|process| process.pid != own);
    let bytes = others.map(|process| match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => bytes as f64,
        UsedGpuMemory::Unavailable => 0.0,
    });
    Some(bytes.sum())
}

/// Payload of all links, both ways. The driver counts in KiB.
fn nvlink_bytes(device: &Device<'_>) -> Option<f64> {
    let fields = [NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX].map(FieldId);
    let kib = |sample: SampleValue| match sample {
        SampleValue::F64(value) => value,
        SampleValue::U32(value) => f64::from(value),
        SampleValue::U64(value) => value as f64,
        SampleValue::I64(value) => value as f64,
    };
    let samples = device.field_values_for(&fields).ok()?;
    let sum: Option<f64> = samples.into_iter().map(|sample| sample.ok()?.value.ok().map(kib)).sum();
    sum.map(|kib| kib * 1024.0)
}

fn render(cards: &[Card]) -> String {
    let mut page = Page::default();
    if cards.is_empty() {
        return page.finish();
    }
    page.head(&names::INFO);
    for card in cards {
        let index = card.index.to_string();
        let labels = [&index, &card.uuid, &card.name, &card.driver].map(String::as_str);
        page.sample(names::INFO.name, "", names::INFO.labels.iter().copied().zip(labels), 1);
    }
    for metric in &names::ALL[1..] {
        let told = |card: &&Card| card.values.iter().any(|(known, _)| *known == metric);
        if cards.iter().any(|card| told(&card)) {
            page.head(metric);
        }
        for card in cards.iter().filter(told) {
            let labels = [("gpu", card.index.to_string()), ("uuid", card.uuid.clone())];
            let labels = labels.each_ref().map(|(name, value)| (*name, value.as_str()));
            for (_, value) in card.values.iter().filter(|(known, _)| *known == metric) {
                page.sample(metric.name, "", labels, value);
            }
        }
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_there_is_nothing_and_no_zero() {
        assert_eq!(Cards::default().render(), "");
    }

    #[test]
    fn every_card_tells_what_it_can_by_index_and_uuid() {
        let card = |index, values: &[(&'static Metric, f64)]| Card {
            index,
            uuid: format!("GPU-{index}"),
            name: "H200".into(),
            driver: "570.1".into(),
            values: values.to_vec(),
        };
        let page =
            render(&[card(0, &[(&names::POWER, 310.5), (&names::XID, 0.0)]), card(1, &[(&names::XID, 2.0)])]);
        let has = |line: &str| assert!(page.lines().any(|found| found == line), "{line} in {page}");
        has("flotilla_gpu_info{gpu=\"0\",uuid=\"GPU-0\",name=\"H200\",driver=\"570.1\"} 1");
        has("flotilla_gpu_power_watts{gpu=\"0\",uuid=\"GPU-0\"} 310.5");
        has("flotilla_gpu_xid_errors_total{gpu=\"1\",uuid=\"GPU-1\"} 2");
        has("# TYPE flotilla_gpu_xid_errors_total counter");
        assert!(!page.contains("temperature") && !page.contains("power_watts{gpu=\"1\""), "{page}");
    }
}
