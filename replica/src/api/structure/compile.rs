//! From a structure to the mask of one answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};

use super::Structure;
use crate::api::tokenizer::Tokenizer;
use crate::engine::command::Mask;

/// Compiled structures that are kept.
const KEPT_MAX: usize = 64;
/// Letters of a compiler's message that are told.
const MESSAGE_LETTERS_MAX: usize = 300;

/// Compiles for one tokenizer, and remembers.
#[derive(Default)]
pub struct Grammars {
    /// Made at the first use: most replicas never need it.
    factory: OnceLock<Result<ParserFactory, String>>,
    /// Newest last.
    kept: Mutex<VecDeque<(Structure, Matcher)>>,
}

/// A structure that compiled: gives a mask for each choice.
#[derive(Clone)]
pub struct Compiled {
    matcher: Matcher,
    /// The structure begins after this token, where the answer begins with thoughts.
    after: Option<u32>,
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Grammars")
    }
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compiled")
    }
}

impl Grammars {
    /// Compiles, or finds what was compiled before.
    ///
    /// # Errors
    ///
    /// The compiler's words, in one line.
    pub fn compile(
        &self,
        structure: &Structure,
        after: Option<u32>,
        tokenizer: &Tokenizer,
        end_tokens: &[u32],
    ) -> Result<Compiled, String> {
        if let Some(matcher) = self.find(structure) {
            return Ok(Compiled { matcher, after });
        }
        let factory = self.factory.get_or_init(|| factory(tokenizer, end_tokens));
        let factory = factory.as_ref().map_err(Clone::clone)?;
        let grammar = match structure {
            Structure::Schema(schema) => TopLevelGrammar::from_json_schema(with_defaults(schema)),
            Structure::Regex(regex) => TopLevelGrammar::from_regex(regex),
            Structure::Grammar(grammar) => TopLevelGrammar::from_lark(grammar.clone()),
        };
        let mut matcher = Matcher::new(factory.create_parser(grammar));
        // The first mask is the dearest: what can't be computed within its fuel shows here, not in the engine.
        if let Err(error) = matcher.compute_mask() {
            return Err(one_line(&error.to_string()));
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((structure.clone(), matcher.clone()));
        Ok(Compiled { matcher, after })
    }

    fn find(&self, structure: &Structure) -> Option<Matcher> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(known, _)| known == structure).map(|(_, matcher)| matcher.clone())
    }
}

impl Compiled {
    /// Bounds one answer.
    pub fn mask(&self) -> Mask {
        let mut matcher = self.matcher.clone();
        let after = self.after;
        // Where the structure begins in the answer, and how much of it has been read.
        let mut begins = after.is_none().then_some(0);
        let mut read = 0;
        Mask(Box::new(move |answer, logits| {
            let find = || answer.iter().position(|&token| Some(token) == after).map(|at| at + 1);
            begins = begins.or_else(find);
            let Some(begins) = begins else { return Ok(()) };
            for &token in &answer[begins.max(read)..] {
                matcher.consume_token(token).map_err(|error| one_line(&error.to_string()))?;
            }
            read = answer.len();
            let allowed = matcher.compute_mask_or_eos().map_err(|error| one_line(&error.to_string()))?;
            let known = allowed.len().min(logits.len());
            logits[known..].fill(f32::NEG_INFINITY);
            allowed.iter_unset_entries(|token| {
                if let Some(logit) = logits.get_mut(token) {
                    *logit = f32::NEG_INFINITY;
                }
            });
            Ok(())
        }))
    }
}

fn factory(tokenizer: &Tokenizer, end_tokens: &[u32]) -> Result<ParserFactory, String> {
    let (&end, _) = end_tokens.split_first().ok_or("this model has no token that ends an answer")?;
    let count = tokenizer.len() as u32;
    let spelling = |token: u32| {
        let bytes = tokenizer.token_bytes(token);
        // Marked, so that no text a grammar allows is ever spelled by a control token.
        let marker: &[u8] = if tokenizer.is_control(token) { &[TokTrie::SPECIAL_TOKEN_MARKER] } else { &[] };
        [marker, bytes].concat()
    };
    let spellings: Vec<_> = (0..count).map(spelling).collect();
    let trie = TokTrie::from(&TokRxInfo::new(count, end), &spellings).with_eos_tokens(end_tokens);
    let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory =
        ParserFactory::new_simple(&environment).map_err(|error| one_line(&error.to_string()))?;
    factory.quiet();
    factory.limits_mut().verbose_errors = false;
    Ok(factory)
}

/// `oneOf` read as `anyOf`, unless the schema itself says how to compile it.
fn with_defaults(schema: &serde_json::Value) -> serde_json::Value {
    let mut schema = schema.clone();
    if let Some(fields) = schema.as_object_mut() {
        fields.entry("x-guidance").or_insert_with(|| serde_json::json!({"coerce_one_of": true}));
    }
    schema
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MESSAGE_LETTERS_MAX).collect()
}
