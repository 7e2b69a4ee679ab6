//! A model without weights: deterministic text for fault and fleet tests, at any speed.
//!
//! The next token is a fixed function of the tokens so far, which it reads back through the block table from a
//! pool of its own: a wrong slot, table or prefix hit changes the text. A prompt may hold one script,
//! `[[verb:argument]]`, which the answer obeys; the answer begins after the last `<|assistant|>`, or right
//! after the script where there is none.
//!
//! | script | what happens |
//! | --- | --- |
//! | `[[say:TEXT]]` | the answer is TEXT, then the end |
//! | `[[nan:N]]` | the logits of answer token N are not numbers |
//! | `[[panic:N]]` | the step of answer token N panics |
//! | `[[stall:MS]]` | the step of answer token 0 takes MS milliseconds more |

use std::thread;
use std::time::Duration;

use replica_core::batch::{Batch, Output as Wanted, Share};
use replica_format::facts::{Architecture, ModelFacts, Rope, RopeScaling, TensorKind};
use xxhash_rust::xxh3::xxh3_64;

use super::{Model, Output};
use crate::kernel::{Device, KvLayer};
use crate::parallel::{Collective, Fault};

/// Ends a message and an answer.
pub const END: u32 = 256;
/// Begins a system message.
pub const SYSTEM: u32 = 257;
/// Begins a user's message.
pub const USER: u32 = 258;
/// Begins an answer.
pub const ASSISTANT: u32 = 259;
/// Begins a tool's message.
pub const TOOL: u32 = 260;
/// Tokens there are: the 256 bytes, then the five above.
pub const VOCAB: u32 = 261;
/// The special tokens as text, from [`END`] on.
pub const SPECIALS: [&str; 5] = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"];

/// How a chat becomes a prompt.
pub const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|' + message.role + '|>' + \
    (message.content or '') + '<|end|>' }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

/// What unscripted answers are spelled with.
const LETTERS: &[u8; 16] = b"etaoin shrdlu ce";

/// A `tokenizer.json` in which every byte is a token and nothing merges.
pub fn tokenizer_json() -> String {
    let vocabulary: serde_json::Map<_, _> =
        (0..=255u8).map(|byte| (byte_char(byte).to_string(), u32::from(byte).into())).collect();
    let added: Vec<_> = SPECIALS
        .iter()
        .zip(END..)
        .map(|(text, id)| {
            serde_json::json!({"id": id, "content": text, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let bytes = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
        "use_regex": false});
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": []},
    })
    .to_string()
}

/// GPT-2's printable stand-in for a byte.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(256 + before).expect("68 code points from U+0100 on are all characters")
}

/// What a checkpoint of this model would say.
pub fn facts(context_tokens: u32) -> ModelFacts {
    ModelFacts {
        architecture: Architecture::Llama,
        name: Some("fake".to_owned()),
        // A token's KV is accounted for like SmolLM2's, so that pools are as large as a real small model's.
        layers: 30,
        hidden_size: 576,
        intermediate_size: 1536,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        vocab_size: VOCAB,
        context_tokens,
        norm_eps: 1e-5,
        rope: Rope { theta: 10_000.0, local_theta: None, dim: 64, scaling: RopeScaling::None },
        tied_embeddings: true,
        sliding_window: None,
        local_layers: Vec::new(),
        unrotated_layers: Vec::new(),
        attention_softcap: None,
        logit_softcap: None,
        attention_scale: None,
        experts: None,
        eos_tokens: vec![END],
        bos_token: None,
        weight_bytes: 0,
        parameters: 0,
        weight_kind: TensorKind::F32,
    }
}

/// How long a step takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delay {
    /// Every step.
    pub step: Duration,
    /// And for each of its rows.
    pub row: Duration,
}

/// Remembers tokens where a real model keeps keys and values.
#[derive(Debug)]
pub struct Fake {
    device: Device,
    delay: Delay,
    block_tokens: usize,
    /// Slot to token.
    slots: Vec<u32>,
}

impl Fake {
    /// A model with a pool of `blocks` blocks.
    pub fn new(device: Device, delay: Delay, blocks: usize, block_tokens: usize) -> Self {
        Self { device, delay, block_tokens, slots: vec![0; blocks * block_tokens] }
    }

    /// The tokens of a share's sequence up to the position of `row`, as the block table finds them.
    fn tokens_up_to(&self, batch: &Batch, share: &Share, row: usize) -> Vec<u32> {
        let table = &batch.tables[share.table.clone()];
        let slot = |position: usize| {
            table[position / self.block_tokens].0 as usize * self.block_tokens + position % self.block_tokens
        };
        (0..=batch.positions[row] as usize).map(|position| self.slots[slot(position)]).collect()
    }
}

impl Model for Fake {
    fn forward(
        &mut self,
        batch: &Batch,
        _: &mut [KvLayer],
        ranks: &mut dyn Collective,
    ) -> Result<Output, Fault> {
        // Ranks keep step as those of a real model do.
        ranks.sum(&self.device, &mut self.device.from_host(&[1.0], 1)?)?;
        thread::sleep(self.delay.step + self.delay.row * batch.rows() as u32);
        for (&slot, &token) in batch.slots.iter().zip(&batch.tokens) {
            self.slots[slot as usize] = token;
        }
        let (mut logits, mut hidden) = (Vec::new(), Vec::new());
        for share in &batch.shares {
            for row in share.output_rows() {
                let tokens = self.tokens_up_to(batch, share, row);
                match share.output {
                    Wanted::Hidden => hidden.push((tokens.len() % 7) as f32),
                    _ => answer(&tokens, &mut logits),
                }
            }
        }
        let rows = |values: Vec<f32>, width| {
            if values.is_empty() { Ok(None) } else { self.device.from_host(&values, width).map(Some) }
        };
        let (logits, hidden) = (rows(logits, VOCAB as usize)?, rows(hidden, 1)?);
        Ok(Output { device: self.device.clone(), vocab: VOCAB as usize, logits, hidden })
    }
}

/// Adds the logits of the token that follows `tokens`.
fn answer(tokens: &[u32], logits: &mut Vec<f32>) {
    let start = logits.len();
    logits.resize(start + VOCAB as usize, 0.0);
    let logits = &mut logits[start..];
    let text: Vec<u8> = tokens.iter().map(|&token| u8::try_from(token).unwrap_or(0)).collect();
    let script = Script::find(&text);
    let speaks = tokens.iter().rposition(|&token| token == ASSISTANT).map(|place| place + 1);
    let begin = speaks.or_else(|| script.as_ref().map(|script| script.end)).unwrap_or(0);
    let index = tokens.len().saturating_sub(begin);
    match script.as_ref().and_then(|script| script.next(index)) {
        Some(Act::Say(token)) => logits[token as usize] = 20.0,
        Some(Act::Nan) => logits.fill(f32::NAN),
        None => improvise(tokens, logits),
    }
}

/// A letter by the hash of all before it; the runners-up are near enough that seeds matter.
fn improvise(tokens: &[u32], logits: &mut [f32]) {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let hash = xxh3_64(&bytes);
    for place in 0..4 {
        let letter = LETTERS[(hash >> (8 * place)) as usize % LETTERS.len()];
        let logit = &mut logits[usize::from(letter)];
        *logit = logit.max(8.0 - place as f32 * 0.5);
    }
}

/// What a script makes of one token.
enum Act {
    Say(u32),
    Nan,
}

/// A prompt's instruction.
struct Script<'a> {
    verb: &'a [u8],
    argument: &'a [u8],
    /// Where it ends in the prompt.
    end: usize,
}

impl<'a> Script<'a> {
    fn find(text: &'a [u8]) -> Option<Self> {
        let open = text.windows(2).rposition(|pair| pair == b"[[")?;
        let inner = open + 2;
        let close = inner + text[inner..].windows(2).position(|pair| pair == b"]]")?;
        let colon = inner + text[inner..close].iter().position(|&byte| byte == b':')?;
        Some(Self { verb: &text[inner..colon], argument: &text[colon + 1..close], end: close + 2 })
    }

    /// What becomes of answer token `index`; `None` improvises.
    fn next(&self, index: usize) -> Option<Act> {
        let number = std::str::from_utf8(self.argument).ok().and_then(|text| text.parse::<usize>().ok());
        match self.verb {
            b"say" => Some(Act::Say(self.argument.get(index).map_or(END, |&byte| u32::from(byte)))),
            b"nan" if number == Some(index) => Some(Act::Nan),
            b"panic" if number == Some(index) => panic!("the script of the fake model says so"),
            b"stall" if index == 0 => {
                thread::sleep(Duration::from_millis(number.unwrap_or(0) as u64));
                None
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The greedy answer to a prompt, token by token.
    fn check(prompt: &[u32], expected: &[u8]) {
        let mut tokens = prompt.to_vec();
        for &byte in expected {
            let next = best(&tokens);
            assert_eq!(next, u32::from(byte), "after {tokens:?}");
            tokens.push(next);
        }
    }

    fn best(tokens: &[u32]) -> u32 {
        let mut logits = Vec::new();
        answer(tokens, &mut logits);
        let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.map(|(token, _)| token as u32).unwrap()
    }

    fn bytes(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    #[test]
    fn a_script_is_said_word_for_word_and_ended() {
        check(&bytes("x [[say:grüß]]"), "grüß".as_bytes());
        assert_eq!(best(&bytes("[[say:a]]a")), END);
        let chat = [vec![USER], bytes("[[say:hi]] please"), vec![END, ASSISTANT]].concat();
        check(&chat, b"hi");
    }

    #[test]
    fn an_unscripted_answer_depends_on_everything_before_it() {
        let spoken = |prompt: &str| {
            let mut tokens = bytes(prompt);
            (0..32).for_each(|_| tokens.push(best(&tokens)));
            tokens.split_off(prompt.len())
        };
        assert_eq!(spoken("hello"), spoken("hello"));
        assert_ne!(spoken("hello"), spoken("hallo"));
    }

    #[test]
    fn its_tokenizer_gives_bytes_and_specials() {
        let tokenizer: tokenizers::Tokenizer = tokenizer_json().parse().unwrap();
        let text = "<|user|>a ü\u{0}\n<|end|>";
        let encoded = tokenizer.encode(text, false).unwrap();
        let expected = [&[USER][..], &bytes("a ü\u{0}\n"), &[END]].concat();
        assert_eq!(encoded.get_ids(), expected);
        assert_eq!(tokenizer.decode(&expected, false).unwrap(), text);
    }
}
