//! The `/metrics` page, logs, and what the report says.

use serde_json::json;

use crate::support::{Replica, eventually};

// U113
#[test]
fn every_name_of_the_catalogue_is_there_from_the_start() {
    let replica = Replica::start(&[]);
    let page = replica.get("/metrics").text();
    for metric in shared::metric::replica::ALL {
        assert!(page.contains(&format!("# TYPE {} ", metric.name)), "{}", metric.name);
    }
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
    }
}

// U116: the counters add up to what clients were told.
#[test]
fn counters_equal_the_sum_of_usage() {
    let replica = Replica::start(&[]);
    let (mut prompt, mut answer) = (0, 0);
    for turn in 0..5 {
        let extra = json!({"n": 1 + turn % 2, "max_tokens": 4 + turn});
        let usage = replica.chat("count me", extra).json()["usage"].clone();
        prompt += usage["prompt_tokens"].as_u64().unwrap();
        answer += usage["completion_tokens"].as_u64().unwrap();
    }
    assert_eq!(replica.metric("vllm:prompt_tokens_total"), prompt as f64);
    assert_eq!(replica.metric("vllm:generation_tokens_total"), answer as f64);
    assert_eq!(replica.metric("vllm:request_success_total{engine=\"0\",finished_reason=\"length\""), 7.0);
    assert_eq!(replica.metric("flotilla_replica_requests_total{outcome=\"completed\"}"), 5.0);
    replica.settle();
}

// U117
#[test]
fn queue_and_prefill_make_up_the_time_to_first_token() {
    let replica = Replica::start_slow(30, &[]);
    for _ in 0..4 {
        replica.complete("tell", json!({"max_tokens": 2}));
    }
    let sum = |name: &str| replica.metric(&format!("vllm:{name}_seconds_sum"));
    let ttft = sum("time_to_first_token");
    let parts = sum("request_queue_time") + sum("request_prefill_time");
    assert!(parts <= ttft && parts > ttft * 0.5, "{parts} of {ttft}");
    let page = replica.get("/metrics").text();
    assert!(page.contains("le=\"320\""), "buckets reach five minutes");
}

#[test]
fn the_report_tells_identity_state_and_load() {
    let replica = Replica::start_slow(10, &["--max-num-seqs", "3", "--queue-max", "7"]);
    let report = replica.get("/fleet/report").json();
    assert_eq!(report["engine"], "flotilla");
    assert_eq!(report["models"], json!(["fake"]));
    assert_eq!(report["state"], "ready");
    assert_eq!(
        (&report["running_max"], &report["waiting_max"], &report["block_size"]),
        (&json!(3), &json!(7), &json!(32))
    );
    assert_eq!(report["ranks"].as_array().unwrap().len(), 1);
    let body = json!({"prompt": "tell", "stream": true, "max_tokens": 1000});
    let mut stream = replica.stream("/v1/completions", &body);
    stream.next().unwrap();
    let busy = replica.get("/fleet/report").json();
    assert_eq!((&busy["running"], &busy["instance"]), (&json!(1), &report["instance"]));
    assert!(busy["blocks_free"].as_u64() < busy["blocks_total"].as_u64());
    eventually("measured", || replica.get("/fleet/report").json()["decode_tokens_per_s"].is_number());
    let other = Replica::start(&[]).get("/fleet/report").json();
    assert_ne!(other["instance"], report["instance"]);
}

// U112
#[test]
fn logs_carry_the_request_id_and_no_text() {
    let replica = Replica::start(&["--log-level", "trace", "--log-format", "json"]);
    let body = json!({"messages": [{"role": "user", "content": "[[say:canary-out]] canary-in"}]}).to_string();
    let reply =
        replica.request("POST", "/v1/chat/completions", &[("x-request-id", "abc-1")], body.as_bytes());
    assert_eq!(reply.headers["x-request-id"], "abc-1");
    let bad =
        json!({"messages": [{"role": "user", "content": "canary-in"}], "stop": [5], "model": "canary-in"})
            .to_string();
    replica.request("POST", "/v1/chat/completions", &[("x-request-id", "abc-2")], bad.as_bytes());
    replica.request("POST", "/v1/chat/completions", &[], b"{\"canary-in\": canary-in}");
    assert_ne!(
        replica.get("/health").headers["x-request-id"],
        replica.get("/health").headers["x-request-id"]
    );
    let log = replica.end();
    assert!(log.contains("abc-1") && log.contains("abc-2"), "{log}");
    assert!(!log.contains("canary-out"), "{log}");
}

#[test]
fn the_api_describes_itself() {
    let replica = Replica::start(&[]);
    let document = replica.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let reply = replica.request(&method.to_uppercase(), path, &[], b"{}");
            assert!(![404, 405].contains(&reply.status) || path.contains("{id}"), "{method} {path}");
        }
    }
}
