//! Which replicas this machine gets. Pure: what it has and what is wished come in, the layout comes out.

use crate::machine::{Card, Machine};

/// CPU replicas where nobody says how many.
const CPU_REPLICAS: u32 = 2;
/// Less KV memory than this serves nobody.
const KV_BYTES_MIN: u64 = 32 << 20;
/// More than this is not taken unasked.
const KV_BYTES_MAX: u64 = 4 << 30;
/// A replica without its weights and KV: program, tokenizer, buffers.
const PROCESS_BYTES: u64 = 64 << 20;

/// What the user asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// How many replicas.
    pub replicas: Option<u32>,
    /// Cards (or CPU ranks) a replica.
    pub tensor_parallel: u32,
    /// Whether the replica program can use cards.
    pub cuda: bool,
    /// Weights, as long as they are on disk.
    pub weight_bytes: u64,
    /// KV memory a replica, where the user fixed it.
    pub kv_bytes: Option<u64>,
    /// Whether the model has weights and KV at all.
    pub is_fake: bool,
}

/// One replica to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// UUIDs of its cards; empty on CPU.
    pub cards: Vec<String>,
    /// Its threads.
    pub threads: u32,
    /// Its KV memory; `None` on cards, where the replica looks itself.
    pub kv_bytes: Option<u64>,
}

/// Lays out replicas: a group of cards each, else an equal share of this machine's CPU and memory.
///
/// # Errors
///
/// When the wish doesn't fit: the numbers, and the flag to change.
pub fn lay_out(machine: &Machine, wish: &Wish) -> Result<Vec<Place>, String> {
    if wish.tensor_parallel == 0 || wish.replicas == Some(0) {
        return Err("--replicas and --tensor-parallel-size begin at 1".to_owned());
    }
    if wish.cuda && !machine.cards.is_empty() && !wish.is_fake {
        return on_cards(machine, wish);
    }
    on_cpu(machine, wish)
}

fn on_cards(machine: &Machine, wish: &Wish) -> Result<Vec<Place>, String> {
    let (have, group) = (machine.cards.len() as u32, wish.tensor_parallel);
    let replicas = wish.replicas.unwrap_or(have / group).max(1);
    let need = u64::from(replicas) * u64::from(group);
    if need > u64::from(have) {
        return Err(format!(
            "{replicas} replicas of {group} cards need {need} cards, but {have} are visible; \
             lower --replicas or --tensor-parallel-size"
        ));
    }
    let groups = machine.cards.chunks(group as usize).take(replicas as usize);
    for cards in groups.clone() {
        check_cards(cards, wish)?;
    }
    let threads = (machine.threads / replicas).max(1);
    let uuids = |cards: &[Card]| cards.iter().map(|card| card.uuid.clone()).collect();
    Ok(groups.map(|cards| Place { cards: uuids(cards), threads, kv_bytes: None }).collect())
}

/// A rough check before minutes of loading: the replica itself counts exactly.
fn check_cards(cards: &[Card], wish: &Wish) -> Result<(), String> {
    let share = wish.weight_bytes / cards.len() as u64;
    match cards.iter().find(|card| card.memory_free_bytes < share) {
        None => Ok(()),
        Some(card) => Err(format!(
            "the weights take {} a card, but card {} ({}) has {} free; \
             raise --tensor-parallel-size, choose a smaller --model, or end what holds the card",
            size(share),
            card.index,
            card.name,
            size(card.memory_free_bytes)
        )),
    }
}

fn on_cpu(machine: &Machine, wish: &Wish) -> Result<Vec<Place>, String> {
    let replicas = wish.replicas.unwrap_or(CPU_REPLICAS);
    let count = u64::from(replicas);
    let threads = (machine.threads / replicas).max(1);
    let place = |kv_bytes| vec![Place { cards: Vec::new(), threads, kv_bytes }; replicas as usize];
    if wish.is_fake {
        return Ok(place(wish.kv_bytes));
    }
    let fixed = count * (wish.weight_bytes + PROCESS_BYTES);
    let left = machine.memory_bytes.saturating_sub(fixed);
    // At most half of what is left, and never more than a quarter for one replica.
    let kv_bytes = wish.kv_bytes.unwrap_or((left / (2 * count).max(4)).min(KV_BYTES_MAX));
    if kv_bytes >= KV_BYTES_MIN && count.saturating_mul(kv_bytes) <= left {
        return Ok(place(Some(kv_bytes)));
    }
    let kv_wished = kv_bytes.max(KV_BYTES_MIN);
    Err(format!(
        "too little memory: {replicas} replicas of {} weights and {} KV need {}, but {} are available; \
         lower --replicas{}, or choose a smaller --model",
        size(wish.weight_bytes),
        size(kv_wished),
        size(fixed.saturating_add(count.saturating_mul(kv_wished))),
        size(machine.memory_bytes),
        if wish.kv_bytes.is_some() { " or --kv-cache-memory-bytes" } else { "" },
    ))
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn machine(cards: u32, threads: u32, memory_bytes: u64) -> Machine {
        let card = |index| Card {
            index,
            uuid: format!("GPU-{index}"),
            name: "card".to_owned(),
            memory_bytes: 24 * GIB,
            memory_free_bytes: 23 * GIB,
        };
        Machine { cards: (0..cards).map(card).collect(), threads, memory_bytes }
    }

    fn wish(replicas: Option<u32>, tensor_parallel: u32, weight_bytes: u64) -> Wish {
        Wish { replicas, tensor_parallel, cuda: true, weight_bytes, kv_bytes: None, is_fake: false }
    }

    /// Cards of each replica, as indices.
    fn check_cards(have: u32, wish: &Wish, expected: Result<&[&[u32]], &str>) {
        match (lay_out(&machine(have, 16, 64 * GIB), wish), expected) {
            (Ok(places), Ok(groups)) => {
                let wanted: Vec<Vec<_>> = groups
                    .iter()
                    .map(|group| group.iter().map(|index| format!("GPU-{index}")).collect())
                    .collect();
                assert_eq!(places.into_iter().map(|place| place.cards).collect::<Vec<_>>(), wanted);
            }
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (found, wanted) => panic!("{found:?} instead of {wanted:?}"),
        }
    }

    #[test]
    fn every_card_gets_a_replica() {
        check_cards(3, &wish(None, 1, GIB), Ok(&[&[0], &[1], &[2]]));
        check_cards(3, &wish(Some(2), 1, GIB), Ok(&[&[0], &[1]]));
    }

    #[test]
    fn a_group_of_cards_is_one_replica_and_odd_cards_stay_free() {
        check_cards(5, &wish(None, 2, GIB), Ok(&[&[0, 1], &[2, 3]]));
    }

    #[test]
    fn too_few_or_too_small_cards_are_said_with_numbers() {
        check_cards(2, &wish(Some(3), 1, GIB), Err("need 3 cards, but 2 are visible"));
        check_cards(2, &wish(None, 4, GIB), Err("need 4 cards, but 2 are visible"));
        check_cards(2, &wish(None, 1, 30 * GIB), Err("30.0 GiB a card, but card 0 (card) has 23.0 GiB free"));
        check_cards(2, &wish(None, 0, GIB), Err("--tensor-parallel-size begin at 1"));
    }

    #[test]
    fn cpu_replicas_share_threads_and_memory() {
        let places = lay_out(&machine(0, 8, 16 * GIB), &wish(None, 1, GIB)).unwrap();
        assert_eq!(places.len(), 2);
        for place in &places {
            assert_eq!((place.threads, place.cards.len()), (4, 0));
        }
        let places = lay_out(&machine(0, 2, 16 * GIB), &wish(Some(5), 1, GIB)).unwrap();
        let taken: u64 =
            places.iter().filter_map(|place| place.kv_bytes).sum::<u64>() + 5 * (GIB + PROCESS_BYTES);
        assert!(taken <= 16 * GIB && places.iter().all(|place| place.threads == 1), "{places:?}");
    }

    #[test]
    fn a_build_without_cuda_leaves_cards_alone() {
        let no_cuda = Wish { cuda: false, ..wish(None, 1, GIB) };
        assert!(
            lay_out(&machine(2, 4, 16 * GIB), &no_cuda).unwrap().iter().all(|place| place.cards.is_empty())
        );
    }

    #[test]
    fn too_little_memory_is_said_with_numbers_and_the_flag() {
        let message = lay_out(&machine(0, 2, 3 * GIB), &wish(Some(3), 1, GIB)).unwrap_err();
        assert!(message.contains("3 replicas of 1.0 GiB weights"), "{message}");
        assert!(message.contains("3.0 GiB are available; lower --replicas,"), "{message}");
        let fixed = Wish { kv_bytes: Some(8 * GIB), ..wish(None, 1, GIB) };
        let message = lay_out(&machine(0, 2, 16 * GIB), &fixed).unwrap_err();
        assert!(message.contains("or --kv-cache-memory-bytes"), "{message}");
    }

    #[test]
    fn the_fake_model_needs_no_memory() {
        let fake = Wish { is_fake: true, ..wish(Some(4), 1, 0) };
        assert_eq!(lay_out(&machine(1, 2, 0), &fake).unwrap().len(), 4);
    }
}
