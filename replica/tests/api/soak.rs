//! Mixed random load on a KV pool that is much too small: no answer is lost or changed, nothing leaks or sticks.
//!
//! Twenty seconds; `FLOTILLA_SOAK_S` makes them more.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::support::{Events, Replica, Reply, chat_body};

const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/hermes.jinja");
const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
/// Clients at once: far more than the pool has room for.
const CLIENTS: u64 = 24;
/// Growth between the first quarter and the end that is no leak: the allocator's own slack.
const GROWTH_BYTES_MAX: u64 = 48 << 20;

/// What all clients know.
struct Load<'a> {
    replica: &'a Replica,
    until: Instant,
    /// Greedy answers by prompt, the longest seen of each.
    answers: Mutex<BTreeMap<String, String>>,
    /// How often each kind of request was answered, and how often one was refused.
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

/// One client.
struct Client<'a> {
    load: &'a Load<'a>,
    random: SmallRng,
}

/// The name of a kind of request, and how it is made.
type Turn<'a> = (&'static str, fn(&mut Client<'a>) -> bool);

impl<'a> Client<'a> {
    /// Each says whether its request was taken.
    const TURNS: [Turn<'a>; 10] = [
        ("short", Self::short),
        ("long", Self::long),
        ("left in the stream", Self::leave_stream),
        ("left before the answer", Self::leave_early),
        ("tool", Self::call_tool),
        ("schema", Self::fit_schema),
        ("choices", Self::choose),
        ("scores", Self::score_prompt),
        ("vectors", Self::embed),
        ("fault", Self::fail),
    ];

    fn run(&mut self) {
        while Instant::now() < self.load.until {
            let &(name, turn) = Self::TURNS.choose(&mut self.random).unwrap();
            let name = if turn(self) { name } else { "refused" };
            *self.load.counts.lock().unwrap().entry(name).or_default() += 1;
        }
    }

    /// An answer, or none where the queue is full.
    fn ask(&mut self, path: &str, body: &Value) -> Option<Reply> {
        let reply = self.load.replica.post(path, body);
        if reply.status == 429 {
            assert!(reply.headers.contains_key("retry-after"));
            std::thread::sleep(Duration::from_millis(self.random.random_range(1..20)));
            return None;
        }
        Some(reply)
    }

    fn answer(&mut self, path: &str, body: &Value) -> Option<Value> {
        let reply = self.ask(path, body)?;
        assert_eq!(reply.status, 200, "{body}: {}", reply.text());
        Some(reply.json())
    }

    /// A prompt that shares its beginning with others: what is cached counts.
    fn prompt(&mut self, bytes: usize) -> String {
        let (group, own) = (self.random.random_range(0..6), self.random.random_range(0..4));
        let mut text = format!("group {group} goes on and on ").repeat(bytes / 24 + 1);
        text.truncate(bytes * 3 / 4);
        text + &format!("own {own} ").repeat(bytes / 24 + 1)
    }

    /// A greedy answer is the beginning of every longer one to its prompt.
    fn agree(&self, prompt: String, text: String) {
        let mut answers = self.load.answers.lock().unwrap();
        let known = answers.entry(prompt).or_default();
        let shorter = known.len().min(text.len());
        assert_eq!(known.as_bytes()[..shorter], text.as_bytes()[..shorter], "an answer changed: {text}");
        if text.len() > known.len() {
            *known = text;
        }
    }

    fn short(&mut self) -> bool {
        let number: u32 = self.random.random();
        let text = format!("{number:x} is né🦀");
        let body = chat_body(&format!("[[say:{text}]]"), json!({"logprobs": number.is_multiple_of(2)}));
        let Some(answer) = self.answer(CHAT, &body) else { return false };
        assert_eq!(answer["choices"][0]["message"]["content"], text);
        true
    }

    fn long(&mut self) -> bool {
        let length = self.random.random_range(100..900);
        let prompt = self.prompt(length);
        let most = self.random.random_range(1..300);
        let body = json!({"prompt": prompt, "max_tokens": most, "temperature": 0, "ignore_eos": true});
        let Some(answer) = self.answer(COMPLETIONS, &body) else { return false };
        assert_eq!(answer["usage"]["completion_tokens"], most);
        self.agree(prompt, answer["choices"][0]["text"].as_str().unwrap().to_owned());
        true
    }

    fn leave_stream(&mut self) -> bool {
        let prompt = self.prompt(200);
        let body = json!({"prompt": prompt, "max_tokens": 900, "temperature": 0, "ignore_eos": true, "stream": true});
        let mut connection = self.load.replica.connect();
        connection.send("POST", COMPLETIONS, &[], body.to_string().as_bytes());
        let Some(events) = Events::begun(connection) else { return false };
        let count = self.random.random_range(1..60);
        let chunks = events.take(count).map(|event| serde_json::from_str::<Value>(&event).unwrap());
        let text = chunks.map(|chunk| chunk["choices"][0]["text"].as_str().unwrap().to_owned()).collect();
        self.agree(prompt, text);
        true
    }

    fn leave_early(&mut self) -> bool {
        let body = chat_body(&self.prompt(300), json!({"max_tokens": 500, "n": 2}));
        let mut connection = self.load.replica.connect();
        connection.send("POST", CHAT, &[], body.to_string().as_bytes());
        std::thread::sleep(Duration::from_millis(self.random.random_range(0..30)));
        true
    }

    fn call_tool(&mut self) -> bool {
        let number: u32 = self.random.random();
        let arguments = format!("{{\"a\": {number}}}");
        // One that is left to the model, in its own form, and one that a grammar demands.
        let (choice, call) = if number.is_multiple_of(2) {
            ("auto", format!("<tool_call>{{\"name\": \"add\", \"arguments\": {arguments}}}</tool_call>"))
        } else {
            ("required", format!("[{{\"name\": \"add\", \"parameters\": {arguments}}}] "))
        };
        let tools = json!([{"type": "function", "function": {"name": "add", "parameters": schema("a")}}]);
        let body = chat_body(&format!("[[say:{call}]]"), json!({"tools": tools, "tool_choice": choice}));
        let Some(answer) = self.answer(CHAT, &body) else { return false };
        assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls", "{answer}");
        let called = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
        let called: Value = serde_json::from_str(called["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(called, json!({"a": number}));
        true
    }

    fn fit_schema(&mut self) -> bool {
        // More than are kept compiled.
        let name = format!("key{}", self.random.random_range(0..100));
        let format = json!({"type": "json_schema", "json_schema": {"name": "s", "schema": schema(&name)}});
        let extra = json!({"response_format": format, "n": 3, "temperature": 1, "max_tokens": 120});
        let body = chat_body("say what you like", extra);
        let Some(answer) = self.answer(CHAT, &body) else { return false };
        for choice in answer["choices"].as_array().unwrap() {
            if choice["finish_reason"] == "stop" {
                let said: Value =
                    serde_json::from_str(choice["message"]["content"].as_str().unwrap()).unwrap();
                assert!(said[&name].is_number(), "{said}");
            }
        }
        true
    }

    fn choose(&mut self) -> bool {
        let seed = self.random.random_range(0..8);
        let extra = json!({"n": 4, "temperature": 1.2, "seed": seed, "max_tokens": 60, "stop": ["zz"]});
        let Some(answer) = self.answer(CHAT, &chat_body("choose", extra)) else { return false };
        let choices = answer["choices"].as_array().unwrap();
        let texts = choices.iter().map(|choice| choice["message"]["content"].as_str().unwrap());
        let text = texts.collect::<Vec<_>>().join("|");
        self.agree(format!("seed {seed}"), text);
        true
    }

    fn score_prompt(&mut self) -> bool {
        let prompt = self.prompt(250);
        let body = json!({"prompt": prompt, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1});
        let Some(answer) = self.answer(COMPLETIONS, &body) else { return false };
        let told = answer["choices"][0]["prompt_logprobs"].to_string();
        self.agree(format!("scores of {prompt}"), told);
        true
    }

    fn embed(&mut self) -> bool {
        let texts = [self.prompt(80), self.prompt(300)];
        let Some(answer) = self.answer("/v1/embeddings", &json!({"input": texts})) else { return false };
        assert_eq!(answer["data"].as_array().unwrap().len(), 2);
        true
    }

    fn fail(&mut self) -> bool {
        let place = self.random.random_range(0..4);
        let (body, status) = match self.random.random_range(0..3) {
            0 => (chat_body(&format!("[[nan:{place}]]"), json!({})), 500),
            1 => (chat_body("x", json!({"max_tokens": 0})), 400),
            _ => (chat_body(&"x".repeat(9000), json!({})), 400),
        };
        let Some(reply) = self.ask(CHAT, &body) else { return false };
        assert_eq!(reply.status, status, "{}", reply.text());
        true
    }
}

fn schema(key: &str) -> Value {
    json!({"type": "object", "properties": {key: {"type": "integer", "minimum": 0, "maximum": 99_999_999_999_u64}},
        "required": [key], "additionalProperties": false})
}

fn seconds() -> u64 {
    std::env::var("FLOTILLA_SOAK_S").map_or(20, |seconds| seconds.parse().unwrap())
}

#[test]
fn random_load_leaves_nothing_behind() {
    // 54 blocks: one long answer may take 40 of them.
    let flags = ["--kv-cache-memory-bytes", "40000000", "--max-num-seqs", "24", "--queue-max", "12"];
    let quiet = ["--log-level", "error", "--chat-template", TEMPLATE];
    let replica = Replica::start_slow(1, &[&flags[..], &quiet].concat());
    let begun = Instant::now();
    let load = Load {
        replica: &replica,
        until: begun + Duration::from_secs(seconds()),
        answers: Mutex::default(),
        counts: Mutex::default(),
    };
    let first_quarter = std::thread::scope(|scope| {
        for seed in 0..CLIENTS {
            let mut client = Client { load: &load, random: SmallRng::seed_from_u64(seed) };
            scope.spawn(move || client.run());
        }
        std::thread::sleep((load.until - begun) / 4);
        replica.rss_bytes()
    });
    replica.settle();
    let end = replica.rss_bytes();
    let metric = |name: &str| replica.metric(name);
    let preemptions = metric("vllm:num_preemptions_total");
    let hits = metric("vllm:prefix_cache_hits_total");
    let aborted = metric("flotilla_replica_requests_total{outcome=\"aborted\"}");
    let counts = load.counts.into_inner().unwrap();
    println!(
        "{} s: {counts:?}, {preemptions} preemptions, {hits} tokens found, {aborted} aborted, {} MiB then {} MiB",
        begun.elapsed().as_secs(),
        first_quarter >> 20,
        end >> 20,
    );
    assert!(Client::TURNS.iter().all(|(name, _)| counts.contains_key(name)), "too light a load");
    assert!(preemptions > 0.0 && hits > 0.0 && aborted > 0.0, "too light a load");
    assert!(end < first_quarter + GROWTH_BYTES_MAX, "memory grows");
    assert_eq!(replica.chat("[[say:well]]", json!({})).json()["choices"][0]["message"]["content"], "well");
    replica.signal("TERM");
    assert!(replica.wait().0.success());
}
