//! A connection's bytes, with an eye on when they come and whether they are taken.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;

/// A stream that notes in its activity what the client does. It lies below TLS, so that neither a record
/// that comes byte by byte nor one that waits to be sent is hidden from it.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
    /// Whether the client must read before more can be written.
    blocked: bool,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self {
            stream,
            activity,
            blocked: false,
        }
    }

    /// Notes whether the client has to read before this can go on.
    fn note<T>(&mut self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() != self.blocked {
            self.blocked = written.is_pending();
            if self.blocked {
                self.activity.blocked();
            } else {
                self.activity.unblocked();
            }
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.activity.ends_turn() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let received = buffer.filled().len() - before;
        if received > 0 {
            self.activity.received(received);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // A socket has nothing to flush, and closing it waits for nobody.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn who_has_much_to_send_lets_others_have_their_turn() {
        let sent = vec![0; 100_000];
        let activity = Arc::new(Activity::idle());
        let mut watched = Watched::new(
            tokio::io::join(&*sent, tokio::io::sink()),
            Arc::clone(&activity),
        );
        let mut context = Context::from_waker(Waker::noop());
        let mut taken = [0; 1_000];
        let mut turn = || {
            activity.begins_turn();
            let mut read = 0;
            loop {
                let mut buffer = ReadBuf::new(&mut taken);
                match Pin::new(&mut watched).poll_read(&mut context, &mut buffer) {
                    Poll::Ready(outcome) => outcome.unwrap(),
                    Poll::Pending => return (read, false),
                }
                if buffer.filled().is_empty() {
                    return (read, true);
                }
                read += buffer.filled().len();
            }
        };
        for _ in 0..5 {
            // As many reads as it takes to have 16 KiB.
            assert_eq!(turn(), (17_000, false));
        }
        assert_eq!(turn(), (15_000, true));
    }
}
