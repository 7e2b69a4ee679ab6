//! Which tensor-parallel sizes a model can be split into, and what forbids the others. Pure.

use super::model::Model;

/// Whether `ranks` can share the model.
///
/// # Errors
///
/// Names the size that does not divide.
pub fn check(model: &Model, ranks: u32) -> Result<(), String> {
    let no = |what: String| Err(format!("TP={ranks}: {what}"));
    if ranks == 0 {
        return no("there is no group of none".to_owned());
    }
    if !model.heads.is_multiple_of(ranks) {
        return no(format!("{} attention heads can't be shared by {ranks}", model.heads));
    }
    if !model.kv_heads.is_multiple_of(ranks) && !ranks.is_multiple_of(model.kv_heads) {
        return no(format!("{} key/value heads neither divide nor are divided by {ranks}", model.kv_heads));
    }
    if !model.intermediate.is_multiple_of(ranks) {
        return no(format!("{} MLP columns can't be shared by {ranks}", model.intermediate));
    }
    let group = model.weights.group();
    if !(model.intermediate / ranks).is_multiple_of(group) {
        return no(format!(
            "{} MLP columns a rank are no whole groups of {group}",
            model.intermediate / ranks
        ));
    }
    if !model.vocab.next_multiple_of(64).is_multiple_of(ranks) {
        return no(format!("{} vocabulary rows (padded to 64) can't be shared by {ranks}", model.vocab));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::known::known;
    use super::*;

    /// U065: which sizes of 1 to 8 are legal for so many heads.
    #[test]
    fn only_sizes_that_divide_are_legal() {
        let cases: [(u32, u32, &[u32]); 4] =
            [(40, 8, &[1, 2, 4, 8]), (28, 4, &[1, 2, 4]), (52, 52, &[1, 2, 4]), (64, 8, &[1, 2, 4, 8])];
        for (heads, kv_heads, legal) in cases {
            let model = Model { heads, kv_heads, ..known("qwen2.5-32b").unwrap() };
            let found: Vec<_> = (1..=8).filter(|&ranks| check(&model, ranks).is_ok()).collect();
            assert_eq!(found, legal, "({heads}, {kv_heads})");
        }
    }

    #[test]
    fn a_refusal_names_what_does_not_divide() {
        let message = check(&known("qwen2-7b").unwrap(), 3).unwrap_err();
        assert_eq!(message, "TP=3: 28 attention heads can't be shared by 3");
    }

    /// U141's grid, against the rule as one would write it down.
    #[test]
    fn the_rule_holds_over_a_grid_of_heads_and_ranks() {
        for heads in [8, 14, 28, 32, 40] {
            for kv_heads in [1, 2, 4, 7, 8] {
                for ranks in [1, 2, 4, 8] {
                    let model = Model { heads, kv_heads, ..known("llama-3-8b").unwrap() };
                    let splits = heads % ranks == 0 && (kv_heads % ranks == 0 || ranks % kv_heads == 0);
                    assert_eq!(check(&model, ranks).is_ok(), splits, "{heads} {kv_heads} {ranks}");
                }
            }
        }
    }
}
