//! Engines to test, and clients that wait for their answers with a deadline.

use std::thread;
use std::time::{Duration, Instant};

use replica::engine::command::{Event, Mask};
use replica::engine::{Handle, Options, Place, Refusal, Snapshot, Source, Started, clock, start};
use replica::kernel::KvKind;
use replica::model::{Precision, fake};
use replica_core::sampler::{Sampled, Sampling};
use replica_core::scheduler::Policy;
use replica_core::sequence::{Finish, Request, Timing, Wants};
use shared::id::{BlockHash, SequenceId};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

/// Longer than anything here takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// An engine of the fake model with room for everything.
pub fn options() -> Options {
    Options {
        place: Place::Cpu,
        source: Source::Fake(fake::Delay::default()),
        precision: Precision::F32,
        kv_kind: Some(KvKind::F32),
        kv_bytes: 256 << 20,
        block_tokens: 32,
        ranks: 1,
        threads: 1,
        context_tokens_max: Some(2048),
        running_max: 64,
        waiting_max: 64,
        step_tokens_max: 256,
        step_target: None,
        step_timeout: DEADLINE,
        policy: Policy::Fcfs,
        prefix_caching: true,
    }
}

/// An engine that ends with the test.
pub struct Rig {
    pub handle: Handle,
    pub started: Option<Started>,
    next_id: std::cell::Cell<u64>,
}

impl Rig {
    pub fn new(options: Options) -> Self {
        let started = start(options, |_| ()).unwrap();
        Self { handle: started.handle.clone(), started: Some(started), next_id: std::cell::Cell::new(0) }
    }

    /// A greedy request.
    pub fn request(&self, prompt: &[u32], answer_tokens_max: u32) -> Request {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        Request {
            id: SequenceId(id),
            tokens: prompt.to_vec(),
            answered: 0,
            answer_tokens_max,
            answer_tokens_min: 0,
            stop_tokens: vec![fake::END],
            sampling: Sampling { temperature: 0.0, ..Sampling::default() },
            chain_seed: BlockHash(1),
            priority: 0,
            arrival: clock::now(),
            deadline: None,
            wants: Wants::Tokens,
        }
    }

    pub fn submit(&self, request: Request) -> Client {
        self.try_submit(request).unwrap()
    }

    pub fn try_submit(&self, request: Request) -> Result<Client, Refusal> {
        self.try_submit_masked(request, None)
    }

    pub fn try_submit_masked(&self, request: Request, mask: Option<Mask>) -> Result<Client, Refusal> {
        let id = request.id;
        let (sender, events) = mpsc::channel(request.answer_tokens_max as usize + 4);
        self.handle.submit_masked(request, sender, mask)?;
        Ok(Client { id, events })
    }

    /// Answers to prompts, each submitted before the first is awaited.
    pub fn together(&self, prompts: &[Vec<u32>], answer_tokens_max: u32) -> Vec<Vec<u32>> {
        let submit = |prompt: &Vec<u32>| self.submit(self.request(prompt, answer_tokens_max));
        let clients: Vec<_> = prompts.iter().map(submit).collect();
        clients.into_iter().map(|client| client.finish().tokens()).collect()
    }

    /// Answers to prompts, one after the other.
    pub fn in_turn(&self, prompts: &[Vec<u32>], answer_tokens_max: u32) -> Vec<Vec<u32>> {
        let ask = |prompt: &Vec<u32>| self.submit(self.request(prompt, answer_tokens_max)).finish().tokens();
        prompts.iter().map(ask).collect()
    }

    /// Waits until the numbers look like this.
    pub fn until(&self, what: &str, holds: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let give_up = Instant::now() + DEADLINE;
        loop {
            let seen = self.handle.snapshot();
            if holds(&seen) {
                return seen;
            }
            assert!(Instant::now() < give_up, "never {what}: {seen:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until nothing runs and every block is free.
    pub fn until_idle(&self) -> Snapshot {
        self.until("idle", |seen| seen.running + seen.waiting == 0 && seen.blocks_free == seen.blocks_total)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.handle.drain();
        if let Some(started) = self.started.take() {
            let ended = started.thread.join().unwrap();
            assert!(ended.is_ok() || thread::panicking(), "{ended:?}");
        }
    }
}

/// Waits for one answer.
pub struct Client {
    pub id: SequenceId,
    pub events: mpsc::Receiver<Event>,
}

/// All that was said of one request.
#[derive(Debug)]
pub struct Answer {
    pub sampled: Vec<Sampled>,
    pub timing: Option<Timing>,
    pub prompt_scores: Vec<Sampled>,
    pub hidden: Vec<f32>,
    pub finish: Finish,
}

impl Answer {
    pub fn tokens(&self) -> Vec<u32> {
        self.sampled.iter().map(|sampled| sampled.token).collect()
    }

    pub fn text(&self) -> String {
        self.sampled.iter().map(|sampled| char::from(u8::try_from(sampled.token).unwrap())).collect()
    }
}

impl Client {
    /// The next event.
    pub fn next(&mut self) -> Event {
        let give_up = Instant::now() + DEADLINE;
        loop {
            match self.events.try_recv() {
                Ok(event) => return event,
                Err(TryRecvError::Disconnected) => panic!("{:?} was dropped without an end", self.id),
                Err(TryRecvError::Empty) => assert!(Instant::now() < give_up, "{:?} says nothing", self.id),
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Everything up to the end.
    pub fn finish(mut self) -> Answer {
        let (mut sampled, mut timing, mut prompt_scores, mut hidden) =
            (Vec::new(), None, Vec::new(), Vec::new());
        loop {
            match self.next() {
                Event::Started(when) => assert!(timing.replace(when).is_none() && sampled.is_empty()),
                Event::Token(token) => sampled.push(token),
                Event::PromptLogprobs(scores) => prompt_scores = scores,
                Event::Hidden(values) => hidden = values,
                Event::Finished(finish) => return Answer { sampled, timing, prompt_scores, hidden, finish },
            }
        }
    }
}

pub fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}
