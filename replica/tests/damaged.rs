//! Checkpoints that cannot be served: the process ends with one line that names the file, and never listens as
//! if it were ready.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A refused start takes at most ten seconds; twice that on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 134515008\n";

fn tiny() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/reference/tiny/llama")
}

/// A copy of a good folder, without the GGUF twin, and what is done to it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(tiny()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end != "gguf") {
                fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
            }
        }
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path().join(name)).unwrap()
    }

    fn write(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        fs::write(self.path().join(name), bytes).unwrap();
        self
    }

    fn without(self, name: &str) -> Self {
        fs::remove_file(self.path().join(name)).unwrap();
        self
    }

    /// Changes a key of a JSON file.
    fn with(self, file: &str, key: &str, value: Value) -> Self {
        let mut json: Value = serde_json::from_slice(&self.read(file)).unwrap();
        json[key] = value;
        self.write(file, json.to_string())
    }

    /// Moves the weights into two shards with an index.
    fn sharded(self) -> Self {
        let whole = self.read("model.safetensors");
        let length = usize::try_from(u64::from_le_bytes(whole[..8].try_into().unwrap())).unwrap();
        let header: serde_json::Map<String, Value> = serde_json::from_slice(&whole[8..8 + length]).unwrap();
        let data = &whole[8 + length..];
        let tensors: Vec<_> = header.into_iter().filter(|(name, _)| name != "__metadata__").collect();
        let mut map = serde_json::Map::new();
        let mut folder = self.without("model.safetensors");
        for (number, part) in tensors.chunks(tensors.len().div_ceil(2)).enumerate() {
            let name = format!("model-{}-of-2.safetensors", number + 1);
            let (mut header, mut bytes) = (serde_json::Map::new(), Vec::new());
            for (tensor, entry) in part {
                let place =
                    |index: usize| usize::try_from(entry["data_offsets"][index].as_u64().unwrap()).unwrap();
                let start = bytes.len();
                bytes.extend(&data[place(0)..place(1)]);
                let mut entry = entry.clone();
                entry["data_offsets"] = json!([start, bytes.len()]);
                header.insert(tensor.clone(), entry);
                map.insert(tensor.clone(), name.clone().into());
            }
            let header = Value::from(header).to_string();
            let length = (header.len() as u64).to_le_bytes();
            folder = folder.write(&name, [&length, header.as_bytes(), &bytes].concat());
        }
        folder.write("model.safetensors.index.json", json!({"metadata": {}, "weight_map": map}).to_string())
    }
}

/// Starts the binary; it must end by itself. Gives its exit code and what it said on standard error.
fn start(model: &Path) -> (i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flotilla-replica"))
        .args(["--port", "0", "--threads", "1", "--model"])
        .arg(model)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed() > DEADLINE {
            drop(child.kill());
            panic!("{} neither ended nor refused in {DEADLINE:?}", model.display());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The one line must name `file` and say `reason`.
fn check(model: &Path, file: &str, reason: &str) {
    let (code, said) = start(model);
    assert_ne!(code, 0, "{file}");
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    let [line] = errors.as_slice() else { panic!("{file}: {} errors in {said:?}", errors.len()) };
    assert!(line.contains(file) && line.contains(reason), "{line}\n  should name {file} and say {reason}");
    assert!(!said.contains("panicked"), "{said}");
}

fn check_folder(folder: &Folder, file: &str, reason: &str) {
    check(folder.path(), file, reason);
}

#[test]
fn missing_files_are_named() {
    check(Path::new("/nowhere/at/all"), "/nowhere/at/all", "no such file or folder");
    check(tempfile::tempdir().unwrap().path(), "", "neither config.json nor a GGUF file");
    for (file, reason) in
        [("model.safetensors", "the file is missing"), ("tokenizer.json", "the file is missing")]
    {
        check_folder(&Folder::new().without(file), file, reason);
    }
    let shard = "model-2-of-2.safetensors";
    check_folder(&Folder::new().sharded().without(shard), shard, "No such file");
}

#[test]
fn files_that_were_never_fetched_are_named() {
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        check_folder(&Folder::new().write(file, POINTER), file, "Git LFS pointer");
        check_folder(&Folder::new().write(file, ""), file, "the file is empty");
    }
    let shard = "model-1-of-2.safetensors";
    check_folder(&Folder::new().sharded().write(shard, POINTER), shard, "Git LFS pointer");
}

#[test]
fn truncated_and_zeroed_weights_are_named() {
    let file = "model.safetensors";
    let good = Folder::new().read(file);
    let header = 8 + usize::try_from(u64::from_le_bytes(good[..8].try_into().unwrap())).unwrap();
    for length in [5, 100, header, good.len() - 1] {
        check_folder(&Folder::new().write(file, &good[..length]), file, "truncated");
    }
    check_folder(&Folder::new().write(file, vec![0; good.len()]), file, "begins with zeros");
    let reserved = [&good[..header], &vec![0; good.len() - header]].concat();
    check_folder(&Folder::new().write(file, reserved), file, "holds only zeros");
}

#[test]
fn an_index_that_names_absent_tensors_is_refused() {
    let folder = Folder::new().sharded();
    let file = "model.safetensors.index.json";
    let mut index: Value = serde_json::from_slice(&folder.read(file)).unwrap();
    index["weight_map"]["model.layers.9.nothing.weight"] = "model-1-of-2.safetensors".into();
    check_folder(&folder.write(file, index.to_string()), file, "`model.layers.9.nothing.weight`");
    check_folder(&Folder::new().sharded().write(file, "{}"), file, "`weight_map`");
}

#[test]
fn types_and_settings_we_do_not_serve_are_named() {
    let file = "model.safetensors";
    let mut bytes = Folder::new().read(file);
    let place = bytes.windows(6).position(|window| window == b"\"BF16\"").unwrap();
    bytes[place..place + 6].copy_from_slice(b"\"I16\" ");
    check_folder(&Folder::new().write(file, bytes), "", "stored as I16, which is not supported");
    let config = "config.json";
    for (key, value, reason) in [
        ("model_type", json!("mamba"), "`mamba` is not supported"),
        ("quantization_config", json!({"quant_method": "gptq"}), "quantised by `gptq`"),
        ("num_hidden_layers", json!(null), "`num_hidden_layers`: the key is missing"),
        ("rope_parameters", json!({"rope_type": "magic"}), "RoPE scaling `magic`"),
    ] {
        check_folder(&Folder::new().with(config, key, value), config, reason);
    }
    check_folder(&Folder::new().with(config, "num_hidden_layers", json!(4)), "", "model.layers.3");
    check_folder(
        &Folder::new().with(config, "vocab_size", json!(300)),
        "",
        "`model.embed_tokens.weight`: its shape",
    );
    check_folder(&Folder::new().write("tokenizer.json", "{}"), "tokenizer.json", "");
    let broken = json!({"chat_template": "{% if %}"}).to_string();
    check_folder(&Folder::new().write("tokenizer_config.json", broken), "", "chat template cannot be parsed");
}

/// U067.
#[test]
fn a_head_that_is_neither_there_nor_tied_is_named_with_the_flag() {
    let folder = Folder::new().with("config.json", "tie_word_embeddings", json!(false));
    check_folder(&folder, "lm_head.weight", "tie_word_embeddings");
}

/// U071.
#[test]
fn damaged_gguf_files_are_named() {
    let good = fs::read(tiny().join("model.gguf")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let mut renamed = good.clone();
    let place = renamed.windows(5).position(|window| window == b"llama").unwrap();
    renamed[place..place + 5].copy_from_slice(b"mamba");
    for (bytes, reason) in [
        (&good[..good.len() / 2], "truncated"),
        (&good[..3000], "truncated"),
        (&vec![0; 5000], "begins with zeros"),
        (POINTER.as_bytes(), "Git LFS pointer"),
        (b"", "the file is empty"),
        (b"PK\x03\x04", "not a GGUF file"),
        (&renamed, "`mamba` is not supported"),
    ] {
        fs::write(&path, bytes).unwrap();
        check(&path, "tiny.gguf", reason);
        // A folder that holds one GGUF file stands for it.
        check(folder.path(), "tiny.gguf", reason);
    }
    fs::write(folder.path().join("other.gguf"), &good).unwrap();
    check(folder.path(), "", "2 GGUF files");
}
