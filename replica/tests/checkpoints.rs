//! Checkpoints as they are on disk: shards, extra tensors, GGUF twins, and the default model.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use replica::weights::Checkpoint;
use replica_format::facts::{Architecture, TensorKind};
use serde_json::{Map, Value, json};

fn tiny(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/reference/tiny").join(name)
}

/// A model of the user's cache folder; tests of it are skipped, by name, where it was never fetched.
fn cached(file: &str) -> Option<Checkpoint> {
    let home = std::env::home_dir().map(|home| home.join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home)?;
    let path = cache.join("flotilla/models").join(file);
    if !path.exists() {
        println!("skipped: {} is not there; deploy/test.sh fetches it", path.display());
        return None;
    }
    Some(Checkpoint::open(&path).unwrap())
}

/// The header and the data of a safetensors file.
fn parts(path: &Path) -> (Map<String, Value>, Vec<u8>) {
    let whole = fs::read(path).unwrap();
    let length = usize::try_from(u64::from_le_bytes(whole[..8].try_into().unwrap())).unwrap();
    let mut header: Map<String, Value> = serde_json::from_slice(&whole[8..8 + length]).unwrap();
    header.remove("__metadata__");
    (header, whole[8 + length..].to_vec())
}

fn join(header: &Map<String, Value>, data: &[u8]) -> Vec<u8> {
    let header = Value::from(header.clone()).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// A copy of a tiny folder's small files.
fn small_files(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "generation_config.json", "tokenizer.json"] {
        fs::copy(tiny(name).join(file), folder.path().join(file)).unwrap();
    }
    folder
}

/// Every tensor of both, row by row, and every vector as the arithmetic uses it.
fn assert_equal(one: &Checkpoint, other: &Checkpoint) {
    let names: Vec<&str> = one.names().collect();
    assert_eq!(names, other.names().collect::<Vec<_>>());
    for name in names {
        let (a, b) = (one.tensor(name).unwrap(), other.tensor(name).unwrap());
        assert_eq!((a.rows, a.cols), (b.rows, b.cols), "{name}");
        if a.cols == 1 {
            assert_eq!(one.vector(name).unwrap(), other.vector(name).unwrap(), "{name}");
        } else if a.kind == b.kind {
            assert!((0..a.rows).all(|row| a.row(row) == b.row(row)), "{name}");
        }
    }
}

#[test]
fn a_gguf_twin_has_the_same_tensors() {
    let families = fs::read_dir(tiny("")).unwrap().map(|entry| entry.unwrap().path());
    let twins: Vec<PathBuf> = families.filter(|folder| folder.join("model.gguf").exists()).collect();
    assert!(twins.len() > 10);
    for folder in twins {
        let (one, other) = (Checkpoint::open(&folder), Checkpoint::open(&folder.join("model.gguf")));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_equal(&one, &other);
        assert_eq!(one.facts.parameters, one.facts.weight_bytes / 2, "{}", folder.display());
        let sizes =
            |c: &Checkpoint| (c.facts.architecture, c.facts.layers, c.facts.heads, c.facts.context_tokens);
        assert_eq!(sizes(&one), sizes(&other), "{}", folder.display());
        assert_eq!(one.facts.local_layers, other.facts.local_layers, "{}", folder.display());
        assert_eq!(one.facts.unrotated_layers, other.facts.unrotated_layers, "{}", folder.display());
        assert_eq!(one.facts.eos_tokens, other.facts.eos_tokens, "{}", folder.display());
    }
}

#[test]
fn shards_are_one_checkpoint() {
    let (header, data) = parts(&tiny("qwen3").join("model.safetensors"));
    let folder = small_files("qwen3");
    let mut map = Map::new();
    let entries: Vec<_> = header.iter().collect();
    for (number, entries) in entries.chunks(entries.len().div_ceil(3)).enumerate() {
        let name = format!("model-{number}.safetensors");
        let (mut header, mut bytes) = (Map::new(), Vec::new());
        for (tensor, entry) in entries {
            let place =
                |index: usize| usize::try_from(entry["data_offsets"][index].as_u64().unwrap()).unwrap();
            let mut entry = (*entry).clone();
            let start = bytes.len();
            bytes.extend(&data[place(0)..place(1)]);
            entry["data_offsets"] = json!([start, bytes.len()]);
            header.insert((*tensor).clone(), entry);
            map.insert((*tensor).clone(), name.clone().into());
        }
        fs::write(folder.path().join(name), join(&header, &bytes)).unwrap();
    }
    let index = json!({"metadata": {}, "weight_map": map}).to_string();
    fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    let (one, many) = (Checkpoint::open(&tiny("qwen3")).unwrap(), Checkpoint::open(folder.path()).unwrap());
    assert_equal(&one, &many);
    assert_eq!(one.facts, many.facts);
}

/// U068.
#[test]
fn extra_tensors_are_named_once_and_do_no_harm() {
    let (mut header, mut data) = parts(&tiny("llama").join("model.safetensors"));
    for number in 0..10 {
        let (start, end) = (data.len(), data.len() + 8);
        data.extend([1; 8]);
        let entry = json!({"dtype": "I64", "shape": [1], "data_offsets": [start, end]});
        header.insert(format!("adapter.{number}"), entry);
    }
    let folder = small_files("llama");
    fs::write(folder.path().join("model.safetensors"), join(&header, &data)).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let [warning] = checkpoint.warnings.as_slice() else { panic!("{:?}", checkpoint.warnings) };
    assert!(warning.starts_with("10 tensors of the checkpoint are not part of the model"), "{warning}");
    assert!(warning.contains("adapter.0, adapter.1,") && warning.ends_with("and 2 more"), "{warning}");
    assert_equal(&Checkpoint::open(&tiny("llama")).unwrap(), &checkpoint);
}

#[test]
fn the_revision_follows_weights_and_tokenizer_and_nothing_else() {
    let revision = |folder: &Path| Checkpoint::open(folder).unwrap().revision;
    let (header, mut data) = parts(&tiny("llama").join("model.safetensors"));
    let folder = small_files("llama");
    fs::write(folder.path().join("model.safetensors"), join(&header, &data)).unwrap();
    let first = revision(folder.path());
    assert_eq!(first, revision(folder.path()));
    data[0] ^= 1;
    fs::write(folder.path().join("model.safetensors"), join(&header, &data)).unwrap();
    let second = revision(folder.path());
    let tokenizer = fs::read_to_string(folder.path().join("tokenizer.json")).unwrap();
    fs::write(folder.path().join("tokenizer.json"), tokenizer + " ").unwrap();
    let third = revision(folder.path());
    assert!(first != second && second != third && first.len() == 32, "{first} {second} {third}");
}

#[test]
fn the_default_model_is_what_its_header_says() {
    let Some(checkpoint) = cached("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let facts = &checkpoint.facts;
    assert_eq!((facts.architecture, facts.weight_kind), (Architecture::Llama, TensorKind::Q4_1));
    assert_eq!((facts.layers, facts.heads, facts.kv_heads, facts.head_dim), (30, 9, 3, 64));
    assert_eq!((facts.parameters, facts.vocab_size, facts.context_tokens), (134_515_008, 49_152, 8192));
    assert!(facts.tied_embeddings && facts.eos_tokens.contains(&2));
    assert_eq!((checkpoint.bos_text.as_str(), checkpoint.eos_text.as_str()), ("<|im_start|>", "<|im_end|>"));
    assert_eq!(checkpoint.warnings, [""; 0]);
    assert_eq!(checkpoint.vector("model.norm.weight").unwrap().len(), 576);
}

#[test]
fn gemma_3_is_what_llama_cpp_knows_of_it() {
    let Some(checkpoint) = cached("gemma-3-270m-q4_k_m.gguf") else { return };
    let facts = &checkpoint.facts;
    assert_eq!((facts.architecture, facts.head_dim, facts.kv_heads), (Architecture::Gemma3, 256, 1));
    assert_eq!((facts.sliding_window, facts.rope.theta, facts.rope.local_theta), (Some(512), 1e6, Some(1e4)));
    let global: Vec<usize> = (0..18).filter(|&layer| !facts.local_layers[layer]).collect();
    assert_eq!(global, [5, 11, 17]);
    assert!(facts.tied_embeddings && facts.attention_scale.is_none());
    assert_eq!(checkpoint.warnings, [""; 0]);
}
