//! A layout as the topology of a stack, which `flotilla compose --topology` renders. Pure.

use super::cards::Pile;
use super::layout::Layout;
use super::model::Model;
use crate::compose::topology::{GatewayPart, GpuAccess, ReplicaPart, Topology};

/// Threads of a replica on cards: its arithmetic is elsewhere.
const THREADS: u32 = 4;

/// Cards alike, and what each is called; in the order of the piles that were laid out.
pub type Uuids = Vec<Vec<String>>;

/// Names for cards that are planned and not here: to be replaced by those of `nvidia-smi -L`.
pub fn stand_ins(piles: &[Pile]) -> Uuids {
    let mut numbers = 0..;
    let names =
        |pile: &Pile| numbers.by_ref().take(pile.count as usize).map(|n: u32| format!("GPU-{n}")).collect();
    piles.iter().map(names).collect()
}

/// Every replica that the cards hold, with the model at `path`.
///
/// # Errors
///
/// When the layout is none that our replica runs in.
pub fn topology(
    model: &Model,
    path: String,
    layout: &Layout,
    context_tokens: u32,
    piles: &[Pile],
    uuids: &Uuids,
) -> Result<Topology, String> {
    if layout.groups.is_empty() {
        return Err("no stack is written: the model doesn't run on these cards".to_owned());
    }
    if layout.groups.iter().any(|group| group.stages > 1) {
        return Err("no stack is written: our replica has no pipeline stages".to_owned());
    }
    let mut replicas = Vec::new();
    let mut left: Vec<_> = piles.iter().zip(uuids).collect();
    for group in &layout.groups {
        // A pile that can't hold a replica has no group.
        let is_its =
            |(pile, _): &(&Pile, &Vec<String>)| (&pile.card, pile.count) == (&group.card, group.cards);
        let Some(pile) = left.iter().position(is_its) else { continue };
        let (_, cards) = left.remove(pile);
        for cards in cards.chunks_exact(group.ranks as usize).take(group.replicas as usize) {
            let part = ReplicaPart::new(replicas.len(), cards.to_vec(), THREADS);
            replicas.push(ReplicaPart { context_tokens: Some(context_tokens), ..part });
        }
    }
    Ok(Topology {
        name: "flotilla".to_owned(),
        model: path,
        served_model_name: Some(model.name.clone()),
        weight_bytes: model.weight_bytes,
        gateway: GatewayPart::new(8000, 9000),
        replicas,
        gpu_access: GpuAccess::Cdi,
        monitoring: false,
        redis: false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::cards::parse;
    use super::super::known::known;
    use super::super::layout::{Demand, lay_out};
    use super::super::memory::{Engine, KvPlan};
    use super::*;

    /// Cards of each replica.
    fn check(model: &str, gpus: &str, expected: Result<&[&str], &str>) {
        let (model, piles) = (known(model).unwrap(), parse(gpus).unwrap());
        let kv = KvPlan { engine: Engine::Flotilla, element_bytes: 2 };
        let layout = lay_out(&model, kv, &piles, Demand { context_tokens: 4096, concurrency: 4 });
        let made = topology(&model, "/m".to_owned(), &layout, 4096, &piles, &stand_ins(&piles));
        match (made, expected) {
            (Ok(topology), Ok(expected)) => {
                topology.check().unwrap();
                let cards: Vec<_> = topology.replicas.iter().map(|replica| replica.cards.join(" ")).collect();
                assert_eq!(cards, expected, "{gpus}");
            }
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (found, wanted) => panic!("{found:?} instead of {wanted:?}"),
        }
    }

    #[test]
    fn every_replica_gets_cards_of_its_own_pile() {
        check("llama-3-8b", "2xL4", Ok(&["GPU-0", "GPU-1"]));
        check("llama-3-70b", "8xA100-80G", Ok(&["GPU-0 GPU-1 GPU-2 GPU-3", "GPU-4 GPU-5 GPU-6 GPU-7"]));
        // A T4 holds no replica, and piles of one kind stay apart.
        check("llama-3-8b", "1xL4,1xT4,2xL4", Ok(&["GPU-0", "GPU-2", "GPU-3"]));
    }

    #[test]
    fn what_our_replica_does_not_run_in_is_no_stack() {
        check("llama-3-70b", "1xT4", Err("doesn't run"));
        check("llama-3-70b", "12xL4", Err("pipeline stages"));
    }
}
