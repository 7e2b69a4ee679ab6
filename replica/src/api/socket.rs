//! A client's socket that doesn't wait for ever: it must say something soon, and take what it is sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The first byte must come within this; later requests of a connection are watched by hyper.
const FIRST_BYTE_MAX: Duration = Duration::from_secs(30);
/// A client that takes nothing for this long is gone.
const WRITE_STALL_MAX: Duration = Duration::from_mins(1);

/// See the module.
#[derive(Debug)]
pub struct Socket<S> {
    inner: S,
    first_byte: Option<Pin<Box<Sleep>>>,
    write_stall: Option<Pin<Box<Sleep>>>,
}

impl<S> Socket<S> {
    /// A socket just accepted.
    pub fn new(inner: S) -> Self {
        Self { inner, first_byte: Some(Box::pin(sleep(FIRST_BYTE_MAX))), write_stall: None }
    }

    /// Passes a write's outcome on; one that stays pending too long becomes an error.
    fn watch<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.write_stall = None;
            return outcome;
        }
        let stall = self.write_stall.get_or_insert_with(|| Box::pin(sleep(WRITE_STALL_MAX)));
        match stall.as_mut().poll(context) {
            Poll::Ready(()) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(context, into);
        if read.is_ready() {
            self.first_byte = None;
            return read;
        }
        match self.first_byte.as_mut().map(|deadline| deadline.as_mut().poll(context)) {
            Some(Poll::Ready(())) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client says nothing")))
            }
            _ => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.watch(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        self.watch(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(context);
        self.watch(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_let_go() {
        let (_client, server) = duplex(16);
        let error = Socket::new(server).read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_let_go() {
        let (_client, server) = duplex(16);
        let error = Socket::new(server).write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_that_takes_a_little_is_kept() {
        let (mut client, server) = duplex(16);
        let write = tokio::spawn(async move { Socket::new(server).write_all(&[0; 64]).await });
        for _ in 0..64 {
            sleep(WRITE_STALL_MAX / 20).await;
            client.read_u8().await.unwrap();
        }
        write.await.unwrap().unwrap();
    }
}
