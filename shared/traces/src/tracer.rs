//! Sends spans to a collector, from a queue that drops what does not fit: no request ever waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::endpoint::Endpoint;
use crate::span::Span;
use crate::trace::Trace;

/// Requests whose spans may wait; a few megabytes when full.
const QUEUE_REQUESTS: usize = 2048;
/// Spans sent at once, about.
const BATCH_SPANS: usize = 512;
/// How long spans wait for others to go with them.
const GATHER: Duration = Duration::from_secs(1);
/// How long a collector may take for a batch.
const SEND_MAX: Duration = Duration::from_secs(5);
/// How long the end of the process waits for the last batch.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Who sends.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The program.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Which one of several.
    pub instance: &'a str,
}

#[derive(Debug)]
enum Message {
    /// One request's spans.
    Spans(Vec<SpanData>),
    /// Send all there is, then say so.
    Flush(oneshot::Sender<()>),
}

/// The way out.
#[derive(Debug)]
pub struct Tracer {
    queue: mpsc::Sender<Message>,
    /// Requests whose spans found no room since that was last told.
    dropped: Arc<AtomicU64>,
    scope: InstrumentationScope,
}

impl Tracer {
    /// Starts sending, on `runtime`.
    ///
    /// # Errors
    ///
    /// When the exporter can't be made.
    pub fn start(
        endpoint: &Endpoint,
        origin: Origin<'_>,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Self, String> {
        let _inside = runtime.enter();
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(endpoint.to_string())
            .with_timeout(SEND_MAX)
            .build()
            .map_err(|error| format!("spans can't be sent to {endpoint}: {error}"))?;
        exporter.set_resource(&resource(origin));
        let (tracer, waiting) = Self::with_room(QUEUE_REQUESTS, origin);
        let outlet = Outlet { waiting, dropped: tracer.dropped.clone(), is_reachable: true };
        runtime.spawn(outlet.run(exporter));
        Ok(tracer)
    }

    fn with_room(requests: usize, origin: Origin<'_>) -> (Self, mpsc::Receiver<Message>) {
        let (queue, waiting) = mpsc::channel(requests);
        let scope = InstrumentationScope::builder(origin.name).with_version(origin.version).build();
        (Self { queue, dropped: Arc::default(), scope }, waiting)
    }

    /// Sends a request's spans, all of them or none. Never waits.
    pub fn tell(&self, trace: &Trace, request: &Span) {
        // Looked at first: spans that nobody takes are not made.
        let Ok(place) = self.queue.try_reserve() else {
            self.dropped.fetch_add(1, Relaxed);
            return;
        };
        place.send(Message::Spans(trace.spans(request, &self.scope)));
    }

    /// Sends what still waits, for a bounded time: called once, at the end of the process.
    pub async fn flush(&self) {
        let (done, told) = oneshot::channel();
        let flushed = async {
            if self.queue.send(Message::Flush(done)).await.is_ok() {
                // An error means that the outlet is gone, and nothing will be sent any more.
                let _ = told.await;
            }
        };
        if timeout(FLUSH_MAX, flushed).await.is_err() {
            tracing::warn!("the last spans are lost: the collector is too slow");
        }
    }
}

fn resource(origin: Origin<'_>) -> Resource {
    let attribute = |name: &'static str, value: &str| opentelemetry::KeyValue::new(name, value.to_owned());
    Resource::builder_empty()
        .with_attributes([
            attribute("service.name", origin.name),
            attribute("service.version", origin.version),
            attribute("service.instance.id", origin.instance),
        ])
        .build()
}

/// The other end of the queue.
struct Outlet {
    waiting: mpsc::Receiver<Message>,
    dropped: Arc<AtomicU64>,
    /// Whether the last batch was taken. Only changes are logged.
    is_reachable: bool,
}

impl Outlet {
    async fn run(mut self, exporter: SpanExporter) {
        let mut batch = Vec::new();
        loop {
            let is_open = match self.gather(&mut batch).await {
                Gathered::Due => true,
                Gathered::Flush(done) => {
                    self.send(&exporter, &mut batch).await;
                    // Whoever asked may have stopped waiting.
                    let _ = done.send(());
                    continue;
                }
                Gathered::Closed => false,
            };
            self.send(&exporter, &mut batch).await;
            if !is_open {
                return;
            }
        }
    }

    /// Fills a batch until it is large enough or old enough.
    async fn gather(&mut self, batch: &mut Vec<SpanData>) -> Gathered {
        let mut due = None;
        while batch.len() < BATCH_SPANS {
            let message = match due {
                None => self.waiting.recv().await,
                Some(due) => match timeout_at(due, self.waiting.recv()).await {
                    Ok(message) => message,
                    Err(_) => return Gathered::Due,
                },
            };
            match message {
                Some(Message::Spans(spans)) => {
                    batch.extend(spans);
                    due.get_or_insert_with(|| Instant::now() + GATHER);
                }
                Some(Message::Flush(done)) => return Gathered::Flush(done),
                None => return Gathered::Closed,
            }
        }
        Gathered::Due
    }

    async fn send(&mut self, exporter: &SpanExporter, batch: &mut Vec<SpanData>) {
        let dropped = self.dropped.swap(0, Relaxed);
        if dropped > 0 {
            tracing::warn!(requests = dropped, "spans dropped: the collector is slower than they come");
        }
        if batch.is_empty() {
            return;
        }
        let spans = batch.len();
        let sent = timeout(SEND_MAX, exporter.export(std::mem::take(batch))).await;
        let error = match sent {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {SEND_MAX:?}")),
        };
        match (error, self.is_reachable) {
            (Some(error), true) => {
                tracing::warn!(spans, error, "spans are lost until the collector takes them");
            }
            (None, false) => tracing::info!("the collector takes spans again"),
            (Some(_), false) | (None, true) => return,
        }
        self.is_reachable = !self.is_reachable;
    }
}

enum Gathered {
    /// Enough, or long enough.
    Due,
    /// Somebody waits for it to be sent.
    Flush(oneshot::Sender<()>),
    /// Nothing comes any more.
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: Origin<'static> = Origin { name: "test", version: "0", instance: "1" };

    fn tell(tracer: &Tracer) {
        let now = std::time::Instant::now();
        tracer.tell(&Trace::begin(None).unwrap(), &Span::new("chat m", now, now));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (tracer, mut waiting) = Tracer::with_room(2, ORIGIN);
        for _ in 0..5 {
            tell(&tracer);
        }
        assert_eq!(tracer.dropped.load(Relaxed), 3);
        assert!(waiting.try_recv().is_ok());
        tell(&tracer);
        assert_eq!(tracer.dropped.load(Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_goes_when_it_is_old_enough_large_enough_or_asked_for() {
        let (tracer, waiting) = Tracer::with_room(2 * BATCH_SPANS, ORIGIN);
        let mut outlet = Outlet { waiting, dropped: Arc::default(), is_reachable: true };
        let mut batch = Vec::new();

        tell(&tracer);
        assert!(matches!(outlet.gather(&mut batch).await, Gathered::Due));
        assert_eq!(batch.len(), 1);

        batch.clear();
        for _ in 0..=BATCH_SPANS {
            tell(&tracer);
        }
        assert!(matches!(outlet.gather(&mut batch).await, Gathered::Due));
        assert_eq!(batch.len(), BATCH_SPANS);

        batch.clear();
        let (done, _told) = oneshot::channel();
        tracer.queue.try_send(Message::Flush(done)).unwrap();
        assert!(matches!(outlet.gather(&mut batch).await, Gathered::Flush(_)));
        assert_eq!(batch.len(), 1);

        batch.clear();
        drop(tracer);
        assert!(matches!(outlet.gather(&mut batch).await, Gathered::Closed));
    }

    #[tokio::test]
    async fn the_end_waits_for_nobody_who_is_gone() {
        let (tracer, waiting) = Tracer::with_room(2, ORIGIN);
        drop(waiting);
        tracer.flush().await;
        tell(&tracer);
        assert_eq!(tracer.dropped.load(Relaxed), 1);
    }
}
