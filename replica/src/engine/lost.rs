//! An engine that was given up on. Its own thread hangs and can tell nobody, so everyone who waits for it is
//! told past it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use replica_core::sequence::Finish;
use tokio::sync::{mpsc, watch};

use super::command::Event;

/// Whether the engine is lost, and why; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost(watch::Sender<Option<Arc<str>>>);

impl Lost {
    /// Tells everyone. The first reason counts.
    pub fn tell(&self, reason: &str) {
        self.0.send_if_modified(|told| {
            let is_first = told.is_none();
            told.get_or_insert_with(|| reason.into());
            is_first
        });
    }

    /// Whether it was told.
    pub fn is_told(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Ends with the reason; without one, never.
    fn wait(&self) -> impl Future<Output = Arc<str>> + Send + 'static {
        let mut told = self.0.subscribe();
        async move {
            let reason = told.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
            match reason {
                Some(reason) => reason,
                None => std::future::pending().await,
            }
        }
    }
}

/// What one sequence hears: the engine's events, or that there is no engine any more.
pub struct Events {
    from_engine: mpsc::Receiver<Event>,
    lost: Pin<Box<dyn Future<Output = Arc<str>> + Send>>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("from_engine", &self.from_engine).finish_non_exhaustive()
    }
}

impl Events {
    pub(super) fn new(from_engine: mpsc::Receiver<Event>, lost: &Lost) -> Self {
        Self { from_engine, lost: Box::pin(lost.wait()) }
    }

    /// The next event; `None` after the last.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Poll::Ready(event) = self.from_engine.poll_recv(context) {
            return Poll::Ready(event);
        }
        self.lost.as_mut().poll(context).map(|reason| {
            // Nothing follows, and the reason is told once.
            self.from_engine.close();
            self.lost = Box::pin(std::future::pending());
            Some(Event::Finished(Finish::Failed(reason.to_string())))
        })
    }

    /// The same, waited for.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }
}
