use replica_format::gguf::TokenType;

use super::*;

/// Of the byte-level kind: every byte, a few merges, two control tokens.
fn byte_level() -> Tokenizer {
    let mut tokens: Vec<String> = (0..0x144_u32)
        .filter_map(char::from_u32)
        .filter(|&letter| pieces::byte_of(letter).is_some())
        .map(|letter| letter.to_string())
        .collect();
    assert_eq!(tokens.len(), 256);
    tokens.extend(["he", "Ġhe", "<|begin|>", "<|end|>", "<think>"].map(ToOwned::to_owned));
    let mut types = vec![TokenType::Normal; 258];
    types.extend([TokenType::Control, TokenType::Control, TokenType::UserDefined]);
    let vocabulary = Vocabulary {
        model: "gpt2".to_owned(),
        pre: Some("llama-bpe".to_owned()),
        tokens,
        types,
        scores: Vec::new(),
        merges: vec!["h e".to_owned(), "Ġ he".to_owned()],
        bos: Some(258),
        eos: Some(259),
        add_bos: None,
        add_space_prefix: None,
        unknown: None,
    };
    Tokenizer::from_vocabulary(&vocabulary, "").unwrap()
}

/// Of SentencePiece's kind: `▁`, a few words, all bytes.
fn sentence_piece() -> Tokenizer {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>", "▁", "h", "e", "he", "▁he", "l", "ll", "lo", "é"]
        .map(ToOwned::to_owned)
        .to_vec();
    let mut types = vec![TokenType::Unknown, TokenType::Control, TokenType::Control];
    types.resize(tokens.len(), TokenType::Normal);
    let scores: Vec<f32> = (0..tokens.len() + 256).map(|token| -(token as f32)).collect();
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    types.resize(tokens.len(), TokenType::Byte);
    let vocabulary = Vocabulary {
        model: "llama".to_owned(),
        pre: None,
        tokens,
        types,
        scores,
        merges: Vec::new(),
        bos: Some(1),
        eos: Some(2),
        add_bos: None,
        add_space_prefix: None,
        unknown: Some(0),
    };
    Tokenizer::from_vocabulary(&vocabulary, "").unwrap()
}

/// U044.
#[test]
fn a_prompt_begins_with_one_beginning_of_sequence() {
    for (tokenizer, bos, spelling) in [(byte_level(), 258, "<|begin|>"), (sentence_piece(), 1, "<s>")] {
        let count = |text: &str, begin: bool| {
            tokenizer.encode(text, begin).unwrap().iter().filter(|&&token| token == bos).count()
        };
        assert_eq!(count("he", true), 1);
        assert_eq!(count(&format!("{spelling}he"), true), 1);
        assert_eq!(count(&format!("{spelling}he"), false), 1);
        assert_eq!(count("he", false), 0);
        assert_eq!(tokenizer.encode("", true).unwrap(), [bos]);
    }
}

/// U072.
#[test]
fn control_tokens_are_one_id_and_are_not_shown() {
    let tokenizer = byte_level();
    assert_eq!(tokenizer.encode("he<|end|> he<think>", false).unwrap(), [256, 259, 257, 260]);
    assert_eq!(tokenizer.decode(&[256, 259, 257, 260], true), "he he<think>");
    assert_eq!(tokenizer.decode(&[256, 259], false), "he<|end|>");
    assert_eq!((tokenizer.token("<|end|>"), tokenizer.token("<|other|>")), (Some(259), None));
    assert_eq!(tokenizer.token_bytes(257), b" he");
    assert_eq!((tokenizer.token_bytes(9999), tokenizer.len()), (b"".as_slice(), 261));
}

#[test]
fn sentence_piece_merges_by_score_and_falls_back_to_bytes() {
    let tokenizer = sentence_piece();
    // ▁he wins over any other start; of "llo" the better score takes "ll".
    assert_eq!(tokenizer.encode("hello", false).unwrap()[..2], [7, 9]);
    assert_eq!(tokenizer.encode("é字", false).unwrap(), [3, 11, 12 + 0xe5, 12 + 0xad, 12 + 0x97]);
    for text in ["hello", " hé  字", "", "\n", "he</s>"] {
        let tokens = tokenizer.encode(text, false).unwrap();
        assert_eq!(tokenizer.decode(&tokens, false), text);
    }
}

/// U005.
#[test]
fn characters_split_over_tokens_come_out_whole() {
    for tokenizer in [byte_level(), sentence_piece()] {
        let text = "a 👩‍👩‍👧‍👦 字 é\u{301} ok";
        let mut decoder = tokenizer.decoder(true);
        let mut shown = String::new();
        for token in tokenizer.encode(text, false).unwrap() {
            let delta = decoder.push(&tokenizer, token);
            assert!(!delta.contains('\u{fffd}'), "{delta:?}");
            shown.push_str(&delta);
        }
        assert_eq!(decoder.finish(), "");
        assert_eq!(shown.trim_start(), text);
    }
}

#[test]
fn bytes_that_never_become_a_character_are_marked_once_it_is_sure() {
    let tokenizer = byte_level();
    let byte = |byte: u8| (0..256).find(|&token| tokenizer.token_bytes(token) == [byte]).unwrap();
    let mut decoder = tokenizer.decoder(true);
    assert_eq!(decoder.push(&tokenizer, byte(0xf0)), "");
    assert_eq!(decoder.push(&tokenizer, byte(0x9f)), "");
    assert_eq!(decoder.push(&tokenizer, byte(b'a')), "\u{fffd}a");
    assert_eq!(decoder.push(&tokenizer, byte(0xe5)), "");
    assert_eq!(decoder.finish(), "\u{fffd}");
    assert_eq!(decoder.finish(), "");
}

#[test]
fn a_tokenizer_json_gives_the_same_ids_and_bytes() {
    let json = llama_3_json();
    let tokenizer = Tokenizer::from_json(json.as_bytes(), &Value::Null).unwrap();
    assert_eq!(tokenizer.encode("ab<|end|>", true).unwrap(), [3, 2, 4]);
    assert_eq!(tokenizer.decode(&[3, 2, 4], true), "ab");
    let older = json.replace(r#"{"SpecialToken":{"id":"<|begin|>","type_id":0}},"#, "");
    let setting = serde_json::json!({"add_bos_token": true, "bos_token": {"content": "<|begin|>"}});
    let tokenizer = Tokenizer::from_json(older.as_bytes(), &setting).unwrap();
    assert_eq!(tokenizer.encode("ab", true).unwrap(), [3, 2]);
    let without = serde_json::json!({"add_bos_token": false});
    let tokenizer = Tokenizer::from_json(json.as_bytes(), &without).unwrap();
    assert_eq!(tokenizer.encode("ab", true).unwrap(), [2]);
}

/// Llama 3's form: a beginning of sequence that the post-processor writes.
fn llama_3_json() -> String {
    let special = |id: u32, content: &str| {
        serde_json::json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    };
    serde_json::json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": [special(3, "<|begin|>"), special(4, "<|end|>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [3], "tokens": ["<|begin|>"]}}
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
    })
    .to_string()
}

/// Llama 2's form: SentencePiece written as merges.
#[test]
fn a_sentence_piece_json_takes_its_space_back() {
    let mut vocabulary = serde_json::Map::new();
    let pieces = ["<unk>", "<s>", "</s>"].map(ToOwned::to_owned).into_iter();
    let pieces = pieces.chain((0..256).map(|byte| format!("<0x{byte:02X}>")));
    for (token, piece) in pieces.chain(["▁", "h", "i", "▁h", "▁hi"].map(ToOwned::to_owned)).enumerate()
    {
        vocabulary.insert(piece, token.into());
    }
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocabulary, "merges": ["▁ h", "▁h i"]}
    });
    let tokenizer = Tokenizer::from_json(json.to_string().as_bytes(), &Value::Null).unwrap();
    let tokens = tokenizer.encode("hi hi\n字", false).unwrap();
    assert_eq!(tokens, [263, 263, 3 + 0x0a, 3 + 0xe5, 3 + 0xad, 3 + 0x97]);
    assert_eq!(tokenizer.decode(&tokens, false), "hi hi\n字");
}

/// U049: what is far too long is known without encoding it.
#[test]
fn a_text_has_at_least_so_many_tokens() {
    for tokenizer in [byte_level(), sentence_piece()] {
        for text in
            ["", "he", "hehehe<think>he", "\u{0}\u{0}\u{0}", "字字字字字字字字", "<|begin|><s><|end|>"]
        {
            let tokens = tokenizer.encode(text, false).unwrap().len();
            assert!(tokenizer.tokens_least(text.len()) <= tokens, "{text:?}");
        }
        assert!(tokenizer.tokens_least(1_000_000) > 100_000);
    }
}

#[test]
fn a_tokenizer_we_could_not_promise_ids_for_is_refused() {
    let refused = Tokenizer::from_json(b"{}", &Value::Null).unwrap_err().to_string();
    assert!(!refused.is_empty() && !refused.contains('\n'), "{refused}");
    let json = llama_3_json().replace(
        r#""decoder":{"type":"ByteLevel""#,
        r#""decoder":{"type":"WordPiece","prefix":"","cleanup":false,"x":"y""#,
    );
    let refused = Tokenizer::from_json(json.as_bytes(), &Value::Null).unwrap_err().to_string();
    assert!(refused.starts_with("`decoder`: `WordPiece` is not supported"), "{refused}");
}
