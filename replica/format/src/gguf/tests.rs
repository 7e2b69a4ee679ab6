use proptest::prelude::*;

use super::*;
use crate::facts::{Architecture, RopeScaling};

/// Writes GGUF as its description has it.
#[derive(Clone, Default)]
struct Writer {
    keys: Vec<(String, Vec<u8>)>,
    tensors: Vec<(String, Vec<u64>, u32)>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Writer {
    fn key(mut self, name: &str, kind: u32, value: &[u8]) -> Self {
        self.keys.retain(|(known, _)| known != name);
        self.keys.push((name.to_owned(), [&kind.to_le_bytes(), value].concat()));
        self
    }

    fn u32(self, name: &str, value: u32) -> Self {
        self.key(name, 4, &value.to_le_bytes())
    }

    fn f32(self, name: &str, value: f32) -> Self {
        self.key(name, 6, &value.to_le_bytes())
    }

    fn text(self, name: &str, value: &str) -> Self {
        self.key(name, 8, &text(value))
    }

    fn texts(self, name: &str, values: &[&str]) -> Self {
        let head = [8_u32.to_le_bytes().as_slice(), &(values.len() as u64).to_le_bytes()].concat();
        let values: Vec<u8> = values.iter().flat_map(|value| text(value)).collect();
        self.key(name, 9, &[head, values].concat())
    }

    fn without(mut self, name: &str) -> Self {
        self.keys.retain(|(known, _)| known != name);
        self.tensors.retain(|(known, ..)| known != name);
        self
    }

    /// Shape innermost first.
    fn tensor(mut self, name: &str, shape: &[u64], kind: u32) -> Self {
        self.tensors.push((name.to_owned(), shape.to_vec(), kind));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = [b"GGUF".as_slice(), &3_u32.to_le_bytes()].concat();
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.keys.len() as u64).to_le_bytes());
        for (name, value) in &self.keys {
            bytes.extend(text(name));
            bytes.extend(value);
        }
        let mut offset = 0;
        for (name, shape, kind) in &self.tensors {
            bytes.extend(text(name));
            bytes.extend((shape.len() as u32).to_le_bytes());
            bytes.extend(shape.iter().flat_map(|size| size.to_le_bytes()));
            bytes.extend(kind.to_le_bytes());
            bytes.extend(u64::to_le_bytes(offset));
            let size = TensorKind::from_gguf(*kind).ok().and_then(|kind| bytes_of(shape, kind)).unwrap_or(0);
            offset += size.next_multiple_of(32);
        }
        let end = bytes.len().next_multiple_of(32) + offset as usize;
        bytes.resize(end, 1);
        bytes
    }
}

/// A llama of one layer.
fn llama() -> Writer {
    Writer::default()
        .text("general.architecture", "llama")
        .u32("llama.block_count", 1)
        .u32("llama.context_length", 64)
        .u32("llama.embedding_length", 64)
        .u32("llama.feed_forward_length", 96)
        .u32("llama.attention.head_count", 4)
        .u32("llama.attention.head_count_kv", 2)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .f32("llama.rope.freq_base", 100_000.0)
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "smollm")
        .texts("tokenizer.ggml.tokens", &["a", "b", "ab", "<|im_end|>"])
        .texts("tokenizer.ggml.merges", &["a b"])
        .u32("tokenizer.ggml.eos_token_id", 2)
        .tensor("token_embd.weight", &[64, 4], 8)
        .tensor("blk.0.attn_q.weight", &[64, 64], 3)
        .tensor("output_norm.weight", &[64], 0)
}

fn refusal(writer: &Writer) -> String {
    let bytes = writer.bytes();
    let parsed = Header::parse(&bytes, bytes.len() as u64);
    parsed.and_then(|header| header.facts()).unwrap_err().to_string()
}

#[test]
fn a_header_tells_what_the_model_is() {
    let bytes = llama().bytes();
    let header = Header::parse(&bytes, bytes.len() as u64).unwrap();
    let facts = header.facts().unwrap();
    assert_eq!(facts.architecture, Architecture::Llama);
    assert_eq!((facts.layers, facts.heads, facts.kv_heads, facts.head_dim), (1, 4, 2, 16));
    assert_eq!((facts.vocab_size, facts.hidden_size, facts.context_tokens), (4, 64, 64));
    assert_eq!((facts.rope.dim, facts.rope.theta, &facts.rope.scaling), (16, 100_000.0, &RopeScaling::None));
    assert_eq!(facts.eos_tokens, [2, 3]);
    assert!(facts.tied_embeddings);
    assert_eq!(facts.weight_kind, TensorKind::Q4_1);
    let sizes = [4 * 64 / 32 * 34, 64 * 64 / 32 * 20, 64 * 4];
    assert_eq!(facts.weight_bytes, sizes.iter().sum::<u64>());
    let (query, first) = (&header.tensors[1], header.header_bytes);
    assert_eq!(
        (query.shape.as_slice(), query.offset, query.bytes),
        ([64, 64].as_slice(), first + sizes[0].next_multiple_of(32), sizes[1])
    );
}

/// U071.
#[test]
fn files_we_cannot_serve_say_why_in_one_line() {
    let cases = [
        (
            llama().text("general.architecture", "mamba"),
            "`general.architecture`: the architecture `mamba` is not supported",
        ),
        (llama().without("general.architecture"), "`general.architecture`: the key is missing"),
        (llama().without("llama.attention.head_count"), "`llama.attention.head_count`: the key is missing"),
        (llama().u32("llama.attention.head_count", 0), "`llama.attention.head_count`: is 0"),
        (llama().u32("llama.attention.head_count", 3), "3 attention heads cannot share 2 key/value heads"),
        (llama().u32("llama.block_count", u32::MAX), "layers is 4294967295, outside 1 to 4096"),
        (llama().text("llama.block_count", "x"), "`llama.block_count`: should be a 32-bit number"),
        (llama().without("tokenizer.ggml.model"), "`tokenizer.ggml.model`: the file has no tokenizer"),
        (llama().text("tokenizer.ggml.model", "none"), "`tokenizer.ggml.model`: the file has no tokenizer"),
        (
            llama().text("tokenizer.ggml.model", "t5"),
            "`tokenizer.ggml.model`: the tokenizer `t5` is not supported",
        ),
        (llama().without("tokenizer.ggml.tokens"), "`tokenizer.ggml.tokens`: the file has no tokenizer"),
        (llama().without("tokenizer.ggml.merges"), "`tokenizer.ggml.merges`: a gpt2 tokenizer needs merges"),
        (
            llama().key("split.count", 2, &[3, 0]).key("split.no", 2, &[1, 0]),
            "`split.count`: this is part 2 of 3",
        ),
        (llama().tensor("odd", &[32], 23), "`odd`: stored as IQ4_XS, which is not supported"),
        (llama().tensor("odd", &[32], 99), "`odd`: stored as type 99, which is not supported"),
        (llama().tensor("odd", &[33], 8), "`odd`: a shape of [33] cannot be stored as Q8_0"),
        (llama().tensor("odd", &[1 << 40, 1 << 40], 0), "`odd`: a shape of"),
        (llama().tensor("odd", &[], 0), "`odd`: 0 dimensions"),
        (llama().tensor("output_norm.weight", &[64], 0), "`output_norm.weight`: the tensor is there twice"),
        (llama().u32("general.alignment", 48), "`general.alignment`: 48 is not a power of two"),
        (llama().text("llama.rope.scaling.type", "magic"), "`llama.rope.scaling.type`: RoPE scaling `magic`"),
        (
            llama().text("llama.rope.scaling.type", "linear"),
            "`llama.rope.scaling.factor`: the key is missing",
        ),
        (llama().f32("llama.rope.freq_base", f32::NAN), "`llama.rope.freq_base`: should be a finite number"),
    ];
    for (writer, expected) in cases {
        let found = refusal(&writer);
        assert!(found.starts_with(expected), "{found}\n  instead of {expected}");
        assert!(!found.contains('\n'), "{found}");
    }
}

#[test]
fn a_name_with_a_line_break_stays_on_the_line() {
    let found = refusal(&llama().tensor("a\nb\u{1b}[31m", &[32], 23));
    assert!(found.starts_with(r"`a\nb\u{1b}[31m`: stored as IQ4_XS"), "{found}");
}

#[test]
fn what_is_not_the_file_is_recognised() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 98362432\n";
    let cases: [(&[u8], &str); 5] = [
        (b"", "the file is empty"),
        (pointer, "this is a Git LFS pointer"),
        (&[0; 4096], "the file begins with zeros"),
        (b"PK\x03\x04 and more", "not a GGUF file"),
        (b"GGUF\x01\0\0\0 and more", "GGUF version 1;"),
    ];
    for (bytes, expected) in cases {
        let found = Header::parse(bytes, bytes.len() as u64).unwrap_err().to_string();
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn the_header_alone_is_enough_and_says_how_much_it_needs() {
    let bytes = llama().bytes();
    let whole = Header::parse(&bytes, bytes.len() as u64).unwrap();
    let mut have = 16;
    let header = loop {
        match Header::parse(&bytes[..have], bytes.len() as u64) {
            Ok(header) => break header,
            Err(Error::Short { needed }) => {
                assert!(needed as usize > have && needed <= whole.header_bytes);
                have = needed as usize;
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(header.tensors, whole.tensors);
}

#[test]
fn a_file_cut_anywhere_is_truncated() {
    let bytes = llama().bytes();
    for length in 0..bytes.len() {
        let cut = Header::parse(&bytes[..length], length as u64).unwrap_err();
        assert!(matches!(cut, Error::Refused { .. }), "cut at {length}: {cut:?}");
    }
}

#[test]
fn scalings_are_read_from_keys_and_tensors() {
    let yarn = llama()
        .text("llama.rope.scaling.type", "yarn")
        .f32("llama.rope.scaling.factor", 4.0)
        .u32("llama.rope.scaling.original_context_length", 16);
    let tables = llama().tensor("rope_freqs.weight", &[8], 0);
    let scaling = |writer: &Writer| {
        let bytes = writer.bytes();
        Header::parse(&bytes, bytes.len() as u64).unwrap().facts().unwrap().rope.scaling
    };
    let RopeScaling::Yarn { factor, attention_factor, original_context, .. } = scaling(&yarn) else {
        panic!()
    };
    assert_eq!((factor, original_context), (4.0, 16));
    assert!((attention_factor - 1.138_629_4).abs() < 1e-6);
    let RopeScaling::Long { short, long, attention_factor, .. } = scaling(&tables) else { panic!() };
    assert_eq!((short.len(), long.len(), attention_factor), (0, 0, 1.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), longer in 0_u64..1000) {
        let bytes = [b"GGUF\x03\0\0\0".as_slice(), &bytes].concat();
        _ = Header::parse(&bytes, bytes.len() as u64 + longer).and_then(|header| header.facts());
    }

    #[test]
    fn no_damage_to_a_good_file_makes_it_panic(
        damage in prop::collection::vec((0_usize..1200, any::<u8>()), 1..8),
        length in 0_usize..1400,
    ) {
        let mut bytes = llama().bytes();
        bytes.truncate(length.max(24));
        let end = bytes.len();
        for (place, byte) in damage {
            bytes[place % end] = byte;
        }
        if let Ok(header) = Header::parse(&bytes, bytes.len() as u64) {
            for tensor in &header.tensors {
                prop_assert!(tensor.offset + tensor.bytes <= bytes.len() as u64);
            }
            _ = header.facts();
        }
    }
}
