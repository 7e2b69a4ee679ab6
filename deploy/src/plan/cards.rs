//! GPUs by name or by hand: memory, bandwidth, arithmetic, links. Pure.

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// How cards of one machine reach each other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Link {
    /// NVLink among `cards` of them; bytes a second, one way, as reached in practice.
    Nvlink { cards: u32, bytes_per_s: f64 },
    /// PCIe, card to card.
    Pcie,
    /// PCIe through the host's memory: GeForce has no peer access.
    PcieHost,
}

/// One kind of card.
#[derive(Clone, PartialEq, Debug)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// What the driver says it has, in bytes: less than on the box.
    pub memory_bytes: u64,
    /// Speed, where it is known.
    pub speed: Option<Speed>,
    /// Its links.
    pub link: Link,
}

/// What a card can do at best.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Speed {
    /// Memory bandwidth, bytes a second.
    pub bytes_per_s: f64,
    /// 16-bit arithmetic with 32-bit sums, operations a second.
    pub flop_per_s: f64,
}

/// A number of alike cards.
#[derive(Clone, PartialEq, Debug)]
pub struct Pile {
    /// How many.
    pub count: u32,
    /// Which.
    pub card: Card,
}

const NVLINK_H100: Link = Link::Nvlink { cards: 8, bytes_per_s: 330e9 };
const NVLINK_A100: Link = Link::Nvlink { cards: 8, bytes_per_s: 220e9 };
const NVLINK_B200: Link = Link::Nvlink { cards: 8, bytes_per_s: 650e9 };
const BRIDGE: Link = Link::Nvlink { cards: 2, bytes_per_s: 45e9 };

/// Name, MiB as the driver reports, GB/s, TFLOP/s at 16 bits, link. From makers' sheets.
const SHEET: &[(&str, u64, f64, f64, Link)] = &[
    ("V100-16G", 16_384, 900.0, 125.0, Link::Nvlink { cards: 8, bytes_per_s: 120e9 }),
    ("V100-32G", 32_768, 900.0, 125.0, Link::Nvlink { cards: 8, bytes_per_s: 120e9 }),
    ("T4", 15_360, 320.0, 65.0, Link::Pcie),
    ("A10", 23_028, 600.0, 125.0, Link::Pcie),
    ("A30", 24_576, 933.0, 165.0, Link::Nvlink { cards: 2, bytes_per_s: 80e9 }),
    ("A40", 46_068, 696.0, 150.0, BRIDGE),
    ("A6000", 49_140, 768.0, 155.0, BRIDGE),
    ("A100-40G", 40_960, 1555.0, 312.0, NVLINK_A100),
    ("A100-80G", 81_920, 2039.0, 312.0, NVLINK_A100),
    ("A100-80G-PCIE", 81_920, 1935.0, 312.0, Link::Pcie),
    ("RTX3090", 24_576, 936.0, 71.0, BRIDGE),
    ("RTX4090", 24_564, 1008.0, 165.0, Link::PcieHost),
    ("RTX5090", 32_607, 1792.0, 209.0, Link::PcieHost),
    ("L4", 23_034, 300.0, 121.0, Link::Pcie),
    ("L40S", 46_068, 864.0, 362.0, Link::Pcie),
    ("RTX6000ADA", 49_140, 960.0, 364.0, Link::Pcie),
    ("RTXPRO6000", 97_887, 1792.0, 468.0, Link::Pcie),
    ("H100", 81_559, 3350.0, 989.0, NVLINK_H100),
    ("H100-PCIE", 81_559, 2000.0, 756.0, Link::Pcie),
    ("H100-NVL", 95_830, 3938.0, 835.0, Link::Nvlink { cards: 2, bytes_per_s: 220e9 }),
    ("H200", 143_771, 4800.0, 989.0, NVLINK_H100),
    ("H20", 97_871, 4000.0, 148.0, NVLINK_H100),
    ("B200", 183_359, 7700.0, 2250.0, NVLINK_B200),
    ("B300", 275_040, 7750.0, 2250.0, NVLINK_B200),
];

/// Reads `4xH100`, `2xRTX4090,1xL4` or, by hand, `6x16G`.
///
/// # Errors
///
/// Names the part that is not understood, and the cards there are.
pub fn parse(text: &str) -> Result<Vec<Pile>, String> {
    let piles: Result<Vec<_>, _> = text.split(',').map(|part| pile(part.trim())).collect();
    piles.map_err(|part| {
        let names: Vec<_> = SHEET.iter().map(|entry| entry.0).collect();
        format!(
            "--gpus {part}: give COUNTxNAME or COUNTxNG, for example 4xH100 or 6x16G; known: {}",
            names.join(", ")
        )
    })
}

fn pile(part: &str) -> Result<Pile, &str> {
    let (count, name) = part.split_once(['x', 'X']).ok_or(part)?;
    let count = count.trim().parse().ok().filter(|count| (1..=4096).contains(count)).ok_or(part)?;
    let card = named(name).or_else(|| by_hand(name)).ok_or(part)?;
    Ok(Pile { count, card })
}

/// The card of that name on the sheet, whether written as there or as a driver writes it.
pub fn named(name: &str) -> Option<Card> {
    let plain = plain(name);
    let found = SHEET.iter().find(|entry| self::plain(entry.0) == plain)?;
    Some(Card {
        name: found.0.to_owned(),
        memory_bytes: found.1 * MIB,
        speed: Some(Speed { bytes_per_s: found.2 * 1e9, flop_per_s: found.3 * 1e12 }),
        link: found.4,
    })
}

/// A card that the driver found: its memory as it says, its speed from the sheet where the name is there.
pub fn found(name: &str, memory_bytes: u64) -> Card {
    let words = plain(name);
    let by_name =
        SHEET.iter().filter(|entry| words.contains(plain(entry.0).trim_end_matches(char::is_alphabetic)));
    let nearest =
        by_name.min_by_key(|entry| (entry.1 * MIB).abs_diff(memory_bytes)).and_then(|entry| named(entry.0));
    let link = nearest.as_ref().map_or(Link::Pcie, |card| card.link);
    Card { name: name.to_owned(), memory_bytes, speed: nearest.and_then(|card| card.speed), link }
}

fn by_hand(name: &str) -> Option<Card> {
    let gib: f64 = name.trim().trim_end_matches(['b', 'B']).strip_suffix(['g', 'G'])?.trim().parse().ok()?;
    let is_sane = (1.0..=1024.0).contains(&gib);
    is_sane.then(|| Card {
        name: format!("{gib} GiB card"),
        memory_bytes: (gib * GIB as f64) as u64,
        speed: None,
        link: Link::Pcie,
    })
}

/// Letters and digits of a name in capitals, without what makers put around them.
fn plain(name: &str) -> String {
    let name = name.to_uppercase().replace("NVIDIA", "").replace("GEFORCE", "").replace("80GB", "80G");
    let name = name.replace("40GB", "40G").replace("SXM4", "").replace("SXM5", "").replace("HBM3", "");
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(u32, u64)]) {
        let piles: Vec<_> =
            parse(text).unwrap().iter().map(|pile| (pile.count, pile.card.memory_bytes / GIB)).collect();
        assert_eq!(piles, expected, "{text}");
    }

    #[test]
    fn cards_are_named_as_people_name_them() {
        check("4xH100", &[(4, 79)]);
        check("2x RTX 4090", &[(2, 23)]);
        check("1xA100-80GB, 2xt4", &[(1, 80), (2, 15)]);
        check("6x16G", &[(6, 16)]);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for wrong in ["H100", "0xH100", "2xFoo", "2x-3G", "x", ""] {
            assert!(parse(wrong).unwrap_err().contains("4xH100"), "{wrong}");
        }
    }

    #[test]
    fn a_drivers_name_finds_the_sheet() {
        let check = |name: &str, gib: u64, expected: Option<f64>| {
            let speed = found(name, gib * GIB).speed.map(|speed| speed.bytes_per_s / 1e9);
            assert_eq!(speed, expected, "{name}");
        };
        check("NVIDIA GeForce RTX 4090", 24, Some(1008.0));
        check("NVIDIA H200", 140, Some(4800.0));
        check("NVIDIA A100-SXM4-80GB", 80, Some(2039.0));
        check("NVIDIA L40S", 45, Some(864.0));
        check("Tesla T4", 15, Some(320.0));
        check("Some Card", 8, None);
    }
}
