//! Clients that ask all the time, each of whose answers must be whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use tokio::task::JoinSet;

use crate::client;
use crate::fleet::until;

/// Clients at once.
const CLIENTS: usize = 6;
/// Tokens of an answer: with the stack's step time each is under way for a while.
pub const ANSWER_TOKENS: u32 = 32;

/// What the clients share.
struct Shared {
    is_over: AtomicBool,
    /// Where to ask next.
    port: AtomicU16,
    /// Where each client asks now.
    asks: [AtomicU16; CLIENTS],
}

/// The load of a stack.
pub struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<usize>,
}

impl Load {
    /// Starts asking.
    pub fn start(port: u16) -> Self {
        let asks = std::array::from_fn(|_| AtomicU16::new(port));
        let shared = Arc::new(Shared { is_over: AtomicBool::new(false), port: AtomicU16::new(port), asks });
        let mut clients = JoinSet::new();
        for index in 0..CLIENTS {
            clients.spawn(ask_on(Arc::clone(&shared), index));
        }
        Self { shared, clients }
    }

    /// Sends every client elsewhere, as a load balancer does; returns when nobody asks at the old port any more.
    pub async fn move_to(&self, port: u16) {
        self.shared.port.store(port, Ordering::SeqCst);
        until("every client has moved", async || {
            self.shared.asks.iter().all(|at| at.load(Ordering::SeqCst) == port)
        })
        .await;
    }

    /// Fails as soon as some client has.
    pub fn check(&mut self, after: &str) {
        if let Some(ended) = self.clients.try_join_next() {
            panic!("a request failed by the time of {after:?}: {ended:?}");
        }
    }

    /// Stops asking; how many answers there were.
    pub async fn end(mut self) -> usize {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let mut all = 0;
        while let Some(answers) = self.clients.join_next().await {
            let answers = answers.unwrap();
            assert!(answers > 0, "a client got no answer at all");
            all += answers;
        }
        all
    }
}

async fn ask_on(shared: Arc<Shared>, index: usize) -> usize {
    let mut answers = 0;
    while !shared.is_over.load(Ordering::SeqCst) {
        let port = shared.port.load(Ordering::SeqCst);
        shared.asks[index].store(port, Ordering::SeqCst);
        let prompt = format!("client {index} asks {answers}");
        let answer = client::chat(port, &prompt, ANSWER_TOKENS).await.unwrap();
        assert!(answer.status == 200 && answer.dones() == 1 && !answer.ends_with_error(), "{answer:?}");
        answers += 1;
    }
    answers
}
