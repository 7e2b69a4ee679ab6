//! `flotilla plan` as a process, with a capacity file as `flotilla-load` writes it.

#![expect(clippy::unwrap_used, reason = "a fault of the harness is a failed test")]

use std::process::{Command, Output};

use serde_json::{Value, json};

fn plan(flags: &[&str], measured: &Value) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capacity.json");
    std::fs::write(&file, measured.to_string()).unwrap();
    Command::new(env!("CARGO_BIN_EXE_flotilla"))
        .args(["plan", "qwen2.5-32b", "--weights", "int4", "--engine", "vllm", "--json", "--measured"])
        .arg(&file)
        .args(flags)
        .output()
        .unwrap()
}

fn capacity() -> Value {
    json!({
        "model": "qwen", "endpoint": "http://127.0.0.1:8000", "slo": {"ttft_ms": 2000, "tpot_ms": 100},
        "rate_max_per_s": 6.0, "concurrency_max": 24, "output_tokens_per_s": 1500, "prompt_tokens_mean": 3000,
        "output_tokens_mean": 250, "replicas": 3, "ttft_ms": {"p50": 600, "p99": 1500}, "tpot_ms": {"p50": 40, "p99": 60},
    })
}

/// Replicas are the peak over what was measured, with headroom: 10 × 1.4 ÷ (6 ÷ 3). Cards by hand have no speed on
/// the sheet, so the measurement is all there is; U129's cards.
#[test]
fn a_measured_rate_decides_how_many_replicas() {
    let output = plan(&["--gpus", "6x16G", "--concurrency", "6", "--rate", "10"], &capacity());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    let speed = &plan["speed"];
    assert_eq!(
        (&speed["requests_per_s"], &speed["replicas_for_rate"]),
        (&json!(2.0), &json!(7)),
        "{speed:#}"
    );
    assert_eq!((&speed["is_measured"], &speed["tpot_ms"]), (&json!(true), &Value::Null));
}

/// Where the cards' speed is known, the forecast moves by what was measured.
#[test]
fn a_measured_time_corrects_the_forecast() {
    let output = plan(&["--gpus", "2xH100", "--concurrency", "16"], &capacity());
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    let speed = &plan["speed"];
    assert!(speed["calibration"]["tpot"].as_f64().unwrap() > 1.0, "{speed:#}");
    assert!(speed["tpot_ms"].as_f64().unwrap() > 20.0, "{speed:#}");
}

#[test]
fn a_file_that_is_none_is_named_with_its_key() {
    let mut wrong = capacity();
    wrong["replicas"] = json!(0);
    let output = plan(&["--gpus", "1xH100"], &wrong);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("capacity.json: replicas is 0"), "{said}");
}

/// U130: what quantising buys is there to see.
#[test]
fn kv_tokens_are_told_for_each_way_to_store_weights() {
    let output = Command::new(env!("CARGO_BIN_EXE_flotilla"))
        .args(["plan", "llama-3-8b", "--gpus", "1xRTX4090"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find(|line| line.contains("KV tokens a replica by weights")).unwrap();
    let tokens = |way: &str| -> u64 {
        let mut words = line.split([' ', ',']).skip_while(|word| *word != way);
        words.nth(1).unwrap().parse().unwrap()
    };
    assert!(tokens("bf16") < tokens("int8") && tokens("int8") < tokens("int4"), "{line}");
}
