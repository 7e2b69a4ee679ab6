//! `/fleet/events`: pieces that came and went, as a stream without end.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use shared::wire::PieceEvents;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::app::App;
use super::pieces::Held;
use super::respond::{Response, stream};

/// A word now and then, so that either side notices when the other is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events on their way to one gateway.
const READY_MAX: usize = 16;

/// Begins a stream.
pub fn begin(app: &Arc<App>) -> Response {
    let (sender, events) = mpsc::channel(READY_MAX);
    let held = app.held.clone();
    tokio::spawn(async move { feed(&held, &sender).await });
    stream(Events(events).boxed_unsync())
}

/// Passes events on until the gateway leaves; one that falls behind gets the whole again.
async fn feed(held: &Held, sender: &mpsc::Sender<Bytes>) {
    let (whole, mut events) = held.subscribe();
    let mut next = line(&whole);
    while sender.send(next).await.is_ok() {
        next = tokio::select! {
            event = events.recv() => match event {
                Ok(event) => line(&event),
                Err(RecvError::Lagged(_)) => {
                    let whole;
                    (whole, events) = held.subscribe();
                    line(&whole)
                }
                Err(RecvError::Closed) => return,
            },
            () = tokio::time::sleep(KEEP_ALIVE) => Bytes::from_static(b":\n\n"),
            () = sender.closed() => return,
        };
    }
}

fn line(event: &PieceEvents) -> Bytes {
    let mut line = b"data: ".to_vec();
    super::json::write(&mut line, event);
    line.extend_from_slice(b"\n\n");
    line.into()
}

struct Events(mpsc::Receiver<Bytes>);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}
