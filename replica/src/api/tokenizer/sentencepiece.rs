//! SentencePiece's BPE as GGUF files carry it (Llama 2, Mistral, Gemma, Phi-3): no list of merges, the score
//! of the token that a pair makes decides which pair merges first.
//!
//! Written out here, and not as merges for the library, because equal scores then fall to the leftmost pair:
//! so ids are llama.cpp's in every case.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use replica_format::gguf::{TokenType, Vocabulary};

use super::pieces;
use super::splitting::{Splitter, Stretch, Whole};

/// The algorithm and its vocabulary.
#[derive(Debug)]
pub struct SentencePiece {
    tokens: HashMap<String, u32>,
    scores: Vec<f32>,
    /// Token of each byte, for letters that no token spells.
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
    adds_space: bool,
    splitter: Splitter,
}

/// A pair that could merge.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Bytes of both when the pair was seen: another length means that it is no more.
    length: usize,
}

/// A letter, or letters merged; a list linked both ways.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: usize,
    /// 0 once it is merged into its left neighbour.
    length: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

impl SentencePiece {
    pub fn new(vocabulary: &Vocabulary, model_name: &str) -> Self {
        let tokens: HashMap<String, u32> = vocabulary.tokens.iter().cloned().zip(0..).collect();
        let mut bytes = [None; 256];
        for (spelling, token) in vocabulary.tokens.iter().zip(0..) {
            if let Some(byte) = pieces::byte_token(spelling) {
                bytes[usize::from(byte)] = Some(token);
            }
        }
        Self {
            splitter: Splitter::new(whole_tokens(vocabulary, model_name)),
            scores: vocabulary.scores.clone(),
            unknown: vocabulary.unknown,
            adds_space: vocabulary.add_space_prefix.unwrap_or(true),
            tokens,
            bytes,
        }
    }

    /// Tokens of a text, without a beginning of sequence.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        let mut after_whole = true;
        for stretch in self.splitter.split(text) {
            match stretch {
                Stretch::Token(token) => tokens.push(token),
                Stretch::Text(text) => {
                    let prefix = if self.adds_space && after_whole { "\u{2581}" } else { "" };
                    self.merge(&format!("{prefix}{}", text.replace(' ', "\u{2581}")), &mut tokens);
                }
            }
            after_whole = matches!(stretch, Stretch::Token(_));
        }
        tokens
    }

    pub fn token(&self, spelling: &str) -> Option<u32> {
        self.tokens.get(spelling).copied()
    }

    /// Whether some token swallows the white space behind it.
    pub fn takes_space(&self) -> bool {
        self.splitter.takes_space()
    }

    /// Whether a text gets a space in front.
    pub fn adds_space(&self) -> bool {
        self.adds_space
    }

    fn merge(&self, text: &str, tokens: &mut Vec<u32>) {
        let mut list = letters(text);
        let mut queue = BinaryHeap::new();
        for right in 1..list.len() {
            queue.extend(self.pair(text, &list, Some(right - 1), Some(right)));
        }
        while let Some(Pair { left, right, length, .. }) = queue.pop() {
            let (a, b) = (list[left], list[right]);
            if a.length == 0 || b.length == 0 || a.length + b.length != length {
                continue;
            }
            list[left].length = length;
            list[right].length = 0;
            list[left].next = b.next;
            if let Some(next) = b.next {
                list[next].previous = Some(left);
            }
            queue.extend(self.pair(text, &list, a.previous, Some(left)));
            queue.extend(self.pair(text, &list, Some(left), b.next));
        }
        for piece in list.iter().filter(|piece| piece.length > 0) {
            self.emit(&text[piece.start..piece.start + piece.length], tokens);
        }
    }

    /// The pair of two neighbours, where some token spells it.
    fn pair(&self, text: &str, list: &[Piece], left: Option<usize>, right: Option<usize>) -> Option<Pair> {
        let (left, right) = (left?, right?);
        let length = list[left].length + list[right].length;
        let token = *self.tokens.get(&text[list[left].start..list[left].start + length])?;
        Some(Pair { score: self.scores[token as usize], left, right, length })
    }

    fn emit(&self, spelling: &str, tokens: &mut Vec<u32>) {
        match self.tokens.get(spelling) {
            Some(&token) => tokens.push(token),
            None => tokens
                .extend(spelling.bytes().filter_map(|byte| self.bytes[usize::from(byte)].or(self.unknown))),
        }
    }
}

fn letters(text: &str) -> Vec<Piece> {
    let count = text.chars().count();
    let link = |index: usize, (start, letter): (usize, char)| Piece {
        start,
        length: letter.len_utf8(),
        previous: index.checked_sub(1),
        next: Some(index + 1).filter(|&next| next < count),
    };
    text.char_indices().enumerate().map(|(index, letter)| link(index, letter)).collect()
}

/// Control tokens and those that are always one token. llama.cpp knows that Phi-3's take the space behind
/// them, by the model's name alone.
fn whole_tokens(vocabulary: &Vocabulary, model_name: &str) -> Vec<Whole> {
    let name = model_name.to_lowercase();
    let phi = name.contains("phi-3") || name.contains("phi3");
    let whole = |kind| matches!(kind, TokenType::Control | TokenType::UserDefined | TokenType::Unknown);
    let spellings = vocabulary.tokens.iter().zip(&vocabulary.types).zip(0..);
    spellings
        .filter(|((_, kind), _)| whole(**kind))
        .map(|((spelling, _), token)| Whole {
            takes_space: phi && !matches!(spelling.as_str(), "<unk>" | "<s>" | "<|endoftext|>"),
            spelling: spelling.clone(),
            token,
        })
        .collect()
}

impl Eq for Pair {}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
