//! A run in the words of `vllm bench serve --save-result`, by its definitions.
//!
//! Times count from when a request was sent; the first token is the first event with a choice, whatever is in it;
//! gaps are those between events; a run lasts from the first send to the last event.

use serde_json::{Map, Value, json};

use super::run::Report;
use crate::exchange::Exchange;
use crate::statistics::Spread;

/// The result file.
pub fn result(report: &Report) -> Value {
    let judged = || report.exchanges.iter().filter(|exchange| exchange.intended_s >= report.about.warmup_s);
    let answered = || judged().filter(|exchange| exchange.is_answered());
    let first_s = judged().map(|exchange| exchange.sent_s).fold(f64::INFINITY, f64::min);
    let last_s = judged().map(|exchange| exchange.end_s).fold(0.0, f64::max);
    let duration_s = (last_s - first_s).max(1e-9);
    let sum = |of: fn(&Exchange) -> u32| answered().map(|exchange| u64::from(of(exchange))).sum::<u64>();
    let (input, output) = (sum(|exchange| exchange.prompt_tokens), sum(|exchange| exchange.answer_tokens));
    let mut result = Map::new();
    result.insert("backend".to_owned(), "openai-chat".into());
    result.insert("model_id".to_owned(), report.about.model.as_str().into());
    result.insert("num_prompts".to_owned(), report.requests.into());
    let figures = json!({
        "duration": duration_s,
        "completed": report.answered,
        "failed": report.requests - report.answered,
        "total_input_tokens": input,
        "total_output_tokens": output,
        "request_throughput": report.answered as f64 / duration_s,
        "request_goodput": report.attainment * report.requests as f64 / duration_s,
        "output_throughput": output as f64 / duration_s,
        "total_token_throughput": (input + output) as f64 / duration_s,
    });
    result.extend(figures.as_object().cloned().unwrap_or_default());
    let since_sent = |of: fn(&Exchange) -> Option<f64>| {
        Spread::of(answered().filter_map(|exchange| Some((of(exchange)? - exchange.sent_s) * 1e3)))
    };
    spread(&mut result, "ttft", since_sent(|exchange| exchange.first_chunk_s));
    spread(&mut result, "tpot", Spread::of(answered().filter_map(tpot_ms)));
    let gaps = answered().flat_map(|exchange| exchange.gaps_ms.iter().map(|gap| f64::from(*gap)));
    spread(&mut result, "itl", Spread::of(gaps));
    spread(&mut result, "e2el", since_sent(|exchange| Some(exchange.end_s)));
    Value::Object(result)
}

/// By the first event, as vLLM has it.
fn tpot_ms(exchange: &Exchange) -> Option<f64> {
    let later = exchange.answer_tokens.checked_sub(1).filter(|&later| later > 0)?;
    Some((exchange.end_s - exchange.first_chunk_s?) * 1e3 / f64::from(later))
}

fn spread(result: &mut Map<String, Value>, name: &str, spread: Spread) {
    for (figure, value) in [
        ("mean", spread.mean),
        ("median", spread.p50),
        ("std", spread.std),
        ("p50", spread.p50),
        ("p90", spread.p90),
        ("p95", spread.p95),
        ("p99", spread.p99),
    ] {
        result.insert(format!("{figure}_{name}_ms"), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::run::About;

    #[test]
    fn times_count_from_the_send_to_events() {
        let exchange = Exchange {
            intended_s: 1.0,
            sent_s: 1.5,
            first_chunk_s: Some(1.6),
            first_token_s: Some(1.7),
            end_s: 2.0,
            prompt_tokens: 10,
            answer_tokens: 5,
            gaps_ms: vec![75.0; 4],
            ..Exchange::default()
        };
        let about = About { slo_ttft_ms: 1000.0, slo_tpot_ms: 1000.0, ..About::default() };
        let result = result(&Report::of(about, vec![exchange]));
        let near = |name: &str, wanted: f64| {
            let value = result[name].as_f64().unwrap();
            assert!((value - wanted).abs() < 1e-6, "{name}: {value}");
        };
        near("mean_ttft_ms", 100.0);
        near("median_tpot_ms", 100.0);
        near("p99_itl_ms", 75.0);
        near("p99_e2el_ms", 500.0);
        near("duration", 0.5);
        near("request_throughput", 2.0);
        near("request_goodput", 2.0);
        near("total_token_throughput", 30.0);
    }
}
