//! Sends sessions: at their times whatever the servers do (open loop), or by so many clients at once (closed loop).

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use shared::slo::Slo;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::prompt::{Conversation, Style, Words};
use super::target::Target;
use crate::exchange::Exchange;
use crate::workload::{Session, Turn};

/// Who decides when a session begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loop {
    /// Its own start time.
    Open,
    /// The end of another: so many run at once.
    Closed(NonZeroU32),
}

/// What to send.
#[derive(Debug)]
pub struct Load {
    /// The sessions, in the order of their starts.
    pub sessions: Vec<Session>,
    /// Their words.
    pub words: Words,
    /// How bodies are written.
    pub style: Style,
    /// When sessions begin.
    pub pace: Loop,
    /// No session begins later.
    pub duration: Option<Duration>,
    /// What counts as good.
    pub slo: Slo,
    /// Requests before this are not judged.
    pub warmup: Duration,
    /// Ends the run once so many judged requests were not good.
    pub bad_max: Option<usize>,
}

/// What happened so far; shared with whoever shows it.
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests sent.
    pub sent: AtomicUsize,
    /// Requests that ended.
    pub ended: AtomicUsize,
    /// Of these, without a whole answer.
    pub failed: AtomicUsize,
    bad: AtomicUsize,
    is_over: AtomicBool,
    over: Notify,
    exchanges: Mutex<Vec<Exchange>>,
}

impl Tally {
    /// Nothing more is begun, nothing waited for.
    pub fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.over.notify_waiters();
    }

    /// Whether it was stopped.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// All that ended, in the order of their ends.
    pub fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut *self.exchanges.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ended(&self, exchange: Exchange, load: &Load) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(usize::from(!exchange.is_answered()), Ordering::Relaxed);
        let is_judged = exchange.intended_s >= load.warmup.as_secs_f64();
        let is_bad = is_judged && !exchange.is_good(load.slo);
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner).push(exchange);
        let bad = self.bad.fetch_add(usize::from(is_bad), Ordering::Relaxed) + usize::from(is_bad);
        if load.bad_max.is_some_and(|max| bad > max) {
            self.stop();
        }
    }
}

/// Runs a load to its end, or until the tally is stopped.
pub async fn run(load: Arc<Load>, target: Target, tally: Arc<Tally>) {
    let over = Arc::clone(&tally);
    let stopped = over.over.notified();
    tokio::pin!(stopped);
    stopped.as_mut().enable();
    let run = async {
        match load.pace {
            Loop::Open => open(load, target, tally).await,
            Loop::Closed(clients) => closed(&load, &target, &tally, clients.get()).await,
        }
    };
    tokio::select! {
        () = run => {}
        () = stopped => {}
    }
}

/// A session whose time has come, with its first body ready.
struct Begun {
    index: usize,
    intended_s: f64,
    conversation: Conversation,
    body: Bytes,
}

async fn open(load: Arc<Load>, target: Target, tally: Arc<Tally>) {
    let (sender, mut begun) = mpsc::channel(load.sessions.len().max(1));
    // A thread of its own: a runtime's timers are too coarse for the times that everything is measured from.
    let (its_load, its_target, its_tally) = (Arc::clone(&load), target.clone(), Arc::clone(&tally));
    let pacer = std::thread::spawn(move || keep_pace(&its_load, &its_target, &its_tally, &sender));
    let mut sessions = JoinSet::new();
    while let Some(begun) = begun.recv().await {
        let (load, target, tally) = (Arc::clone(&load), target.clone(), Arc::clone(&tally));
        sessions.spawn(async move { converse(&load, &target, &tally, begun).await });
    }
    while sessions.join_next().await.is_some() {}
    pacer.join().expect("the pacer does not panic");
}

/// Prepares each session's first request and passes it on at its time.
fn keep_pace(load: &Load, target: &Target, tally: &Tally, sender: &mpsc::Sender<Begun>) {
    /// Stops are noticed within this.
    const NAP: Duration = Duration::from_millis(100);
    for (index, session) in load.sessions.iter().enumerate() {
        if load.duration.is_some_and(|duration| session.start > duration) {
            return;
        }
        let mut begun = begin(load, index, session.start.as_secs_f64());
        let due = target.origin() + session.start;
        loop {
            if tally.is_over() {
                return;
            }
            let left = due.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(NAP));
        }
        begun.index = index;
        if sender.blocking_send(begun).is_err() {
            return;
        }
    }
}

async fn closed(load: &Arc<Load>, target: &Target, tally: &Arc<Tally>, clients: u32) {
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    tokio::time::sleep_until(target.origin().into()).await;
    for _ in 0..clients {
        let (load, target, tally, next) =
            (Arc::clone(load), target.clone(), Arc::clone(tally), Arc::clone(&next));
        workers.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let now_s = target.now_s();
                let is_late = load.duration.is_some_and(|duration| now_s > duration.as_secs_f64());
                if index >= load.sessions.len() || is_late || tally.is_over() {
                    return;
                }
                let mut begun = begin(&load, index, now_s);
                begun.intended_s = target.now_s();
                converse(&load, &target, &tally, begun).await;
            }
        });
    }
    while workers.join_next().await.is_some() {}
}

fn begin(load: &Load, index: usize, intended_s: f64) -> Begun {
    let mut conversation = Conversation::default();
    let turn = &load.sessions[index].turns[0];
    let body = say(load, turn, &mut conversation);
    Begun { index, intended_s, conversation, body }
}

fn say(load: &Load, turn: &Turn, conversation: &mut Conversation) -> Bytes {
    let mut text = String::new();
    for &segment in &turn.text {
        load.words.text(segment, &mut text);
    }
    conversation.ask(text);
    conversation.body(&load.style, turn.answer_tokens)
}

/// All turns of a session, until one fails.
async fn converse(load: &Load, target: &Target, tally: &Tally, begun: Begun) {
    let Begun { index, mut intended_s, mut conversation, mut body } = begun;
    let turns = &load.sessions[index].turns;
    let name = format!("session-{index}");
    for (number, turn) in turns.iter().enumerate() {
        if number > 0 {
            intended_s = target.now_s() + turn.think.as_secs_f64();
            let is_late = load.duration.is_some_and(|duration| intended_s > duration.as_secs_f64());
            if is_late || tally.is_over() {
                return;
            }
            body = say(load, turn, &mut conversation);
            let due = target.origin() + Duration::from_secs_f64(intended_s);
            tokio::time::sleep_until(due.into()).await;
        }
        tally.sent.fetch_add(1, Ordering::Relaxed);
        let (exchange, text) = target.ask(body.clone(), &name, intended_s).await;
        let is_answered = exchange.is_answered();
        tally.ended(exchange, load);
        if !is_answered {
            return;
        }
        conversation.answer(text);
    }
}
