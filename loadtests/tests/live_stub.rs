//! `flotilla-load live` against a server of known delays.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadtests::exchange::Failure;
use loadtests::report::run::Report;
use loadtests::statistics::Spread;
use loadtests::stub::{Script, Server};

/// A stub that serves as long as the runtime lives.
struct Running {
    server: Arc<Server>,
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

fn start(script: Script) -> Running {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::new(script);
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(Arc::clone(&server).serve(listener));
    Running { server, address, _runtime: runtime }
}

/// Runs the program; its exit and its report.
fn live(stub: &Running, flags: &[&str]) -> (Output, Report) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let output = Command::new(env!("CARGO_BIN_EXE_flotilla-load"))
        .args(["live", "--quiet", "--url", &format!("http://{}", stub.address), "--json"])
        .arg(&json)
        .args(flags)
        .output()
        .unwrap();
    let report = std::fs::read_to_string(&json);
    let report = report.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (output, serde_json::from_str(&report).unwrap())
}

/// What the stub really took is what is measured, within 10 ms for half of all requests. A loaded machine may need
/// several tries: what is delayed between the two is nobody's mistake. `bench/truth` holds it to 1 ms.
#[test]
fn measured_times_are_those_of_the_server() {
    let deadline = Instant::now() + Duration::from_mins(3);
    loop {
        let stub = start(Script { ttft_ms: 40.0, itl_ms: 5.0, ..Script::default() });
        let (_, report) = live(&stub, &["--num-prompts", "60", "--request-rate", "60", "--output-len", "8"]);
        let served = stub.server.served();
        let truth = Spread::of(served.iter().map(|one| (one.first - one.received) * 1e3)).p50;
        let end = Spread::of(served.iter().map(|one| (one.last - one.received) * 1e3)).p50;
        assert_eq!((report.answered, served.len()), (60, 60));
        assert!((report.output_tokens_mean - 8.0).abs() < 1e-9);
        // Nothing can be seen before it was written.
        assert!(report.exchanges.iter().all(|one| one.ttft_ms().unwrap() >= 40.0), "{:?}", report.ttft_ms);
        let off = [report.ttft_ms.p50 - truth, report.e2e_ms.p50 - end];
        if off.iter().all(|off| (0.0..10.0).contains(off)) {
            return;
        }
        assert!(Instant::now() < deadline, "off by {off:?} ms");
    }
}

/// U131: streams that end badly are counted by kind, stay out of latencies and spend the error budget.
#[test]
fn bad_streams_are_told_apart_and_the_exit_code_says_so() {
    let script = Script { ttft_ms: 5.0, itl_ms: 1.0, errors: 30, cuts: 10, empties: 10, ..Script::default() };
    let stub = start(script);
    let flags = ["--num-prompts", "200", "--max-concurrency", "8", "--output-len", "8"];
    let (output, report) = live(&stub, &flags);
    let expected = [(Failure::InStream, 60), (Failure::Cut, 20), (Failure::Empty, 20)];
    assert_eq!(report.failures, expected.into());
    assert_eq!((report.requests, report.answered, report.ttft_ms.count), (200, 100, 100));
    assert!(!output.status.success());
    let (output, _) = live(&stub, &[&flags[..], &["--error-budget", "0.5"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// U094: twenty events in one write came through a hop that holds them back.
#[test]
fn a_hop_that_holds_events_back_is_noticed() {
    let stub = start(Script { ttft_ms: 5.0, itl_ms: 1.0, clump: 20, ..Script::default() });
    let flags = ["--num-prompts", "20", "--max-concurrency", "4", "--output-len", "60"];
    let (output, report) = live(&stub, &flags);
    assert!(report.clumped_share > 0.3, "{}", report.clumped_share);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("buffered hop"), "{said}");
    // Events that come one by one, 20 ms apart, are nobody's fault.
    let stub = start(Script { ttft_ms: 5.0, itl_ms: 20.0, ..Script::default() });
    let (output, report) =
        live(&stub, &["--num-prompts", "8", "--max-concurrency", "4", "--output-len", "10"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(report.clumped_share < 0.3 && !said.contains("buffered hop"), "{said}");
}

/// U133: a cold burst is told apart from what comes after it.
#[test]
fn requests_of_the_warm_up_are_reported_apart() {
    let stub = start(Script { ttft_ms: 5.0, itl_ms: 1.0, prefill_ms: 20.0, ..Script::default() });
    let flags = ["--num-prompts", "60", "--request-rate", "40", "--output-len", "4", "--warmup", "0.5"];
    let (_, report) = live(&stub, &flags);
    assert!(report.warmup_ttft_ms.count > 0 && report.requests > 0);
    assert_eq!(report.warmup_ttft_ms.count + report.requests, 60);
}

/// U133: forty prefills at once wait for each other; those that come one by one after the warm-up take what one takes
/// alone, and their 99th percentile says so. As above a loaded machine may need several tries.
#[test]
fn the_warm_up_keeps_a_burst_out_of_the_percentiles() {
    const ALONE_MS: f64 = 300.0;
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    let at = |ms: u32| {
        format!("{{\"timestamp\":{ms},\"input_length\":8,\"output_length\":2,\"hash_ids\":[{ms}]}}\n")
    };
    let lines: String = (0..40).map(|_| at(0)).chain((0..12).map(|place| at(3000 + 400 * place))).collect();
    std::fs::write(&trace, lines).unwrap();
    let deadline = Instant::now() + Duration::from_mins(3);
    loop {
        let stub = start(Script { ttft_ms: ALONE_MS, prefill_ms: 20.0, itl_ms: 1.0, ..Script::default() });
        let (_, report) = live(&stub, &["--trace", trace.to_str().unwrap(), "--warmup", "2"]);
        assert_eq!((report.warmup_ttft_ms.count, report.requests, report.answered), (40, 12, 12));
        assert!(report.warmup_ttft_ms.p99 > 2.0 * ALONE_MS, "{:?}", report.warmup_ttft_ms);
        let off = report.ttft_ms.p99 / ALONE_MS - 1.0;
        if off < 0.15 {
            return;
        }
        assert!(Instant::now() < deadline, "{:?}", report.ttft_ms);
    }
}

/// A session's turns follow one another and carry what was said.
#[test]
fn turns_of_a_session_grow() {
    let stub = start(Script { ttft_ms: 2.0, itl_ms: 0.5, ..Script::default() });
    let flags = ["--workload", "multi-turn", "--num-prompts", "6", "--turns", "3", "--think-ms", "1-5"];
    let (_, report) = live(&stub, &[&flags[..], &["--max-concurrency", "1", "--output-len", "4"]].concat());
    let prompts: Vec<_> = report.exchanges.iter().map(|exchange| exchange.prompt_tokens).collect();
    assert_eq!(prompts.len(), 18);
    assert!(prompts.chunks(3).all(|turns| turns[0] < turns[1] && turns[1] < turns[2]), "{prompts:?}");
}

/// Prompts beside one another wait for three seconds each: only one client at a time stays within the SLO. The file has
/// what the planner asks of it.
#[test]
fn a_capacity_is_found_and_written_for_the_planner() {
    let stub = start(Script { ttft_ms: 40.0, prefill_ms: 3000.0, itl_ms: 1.0, ..Script::default() });
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("capacity.json");
    let output = Command::new(env!("CARGO_BIN_EXE_flotilla-load"))
        .args(["capacity", "--quiet", "--url", &format!("http://{}", stub.address), "--by", "concurrency"])
        .args([
            "--start",
            "4",
            "--num-prompts",
            "12",
            "--output-len",
            "4",
            "--warmup",
            "0",
            "--duration",
            "30",
        ])
        .args(["--ttft-ms", "1500", "--tpot-ms", "1500", "--attainment", "0.8", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    assert!(file["rate_max_per_s"].as_f64().unwrap() > 0.0, "{file}");
    assert_eq!((&file["model"], &file["replicas"]), (&"stub".into(), &1.into()));
    assert!((file["output_tokens_mean"].as_f64().unwrap() - 4.0).abs() < 1e-9);
    let trials: Vec<_> = file["trials"].as_array().unwrap().iter().map(|trial| &trial["load"]).collect();
    assert!(trials.len() > 1, "{trials:?}");
}
