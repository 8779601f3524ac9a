//! The first bytes of a connection tell which protocol it speaks, and are then read as if nobody had looked.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// What an HTTP/2 connection begins with (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose first bytes were looked at.
#[derive(Debug)]
pub(super) struct Sniffed<S> {
    stream: S,
    first: [u8; PREFACE.len()],
    /// Which of the first bytes are not read yet.
    unread: Range<usize>,
}

impl<S: AsyncRead + Unpin> Sniffed<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            first: [0; PREFACE.len()],
            unread: 0..0,
        }
    }

    /// Waits until the first bytes tell HTTP/1 from HTTP/2, or the client sends no more.
    pub(super) async fn is_http2(&mut self) -> io::Result<bool> {
        while self.first[..self.unread.end] == PREFACE[..self.unread.end] {
            if self.unread.end == PREFACE.len() {
                return Ok(true);
            }
            let length = self.stream.read(&mut self.first[self.unread.end..]).await?;
            if length == 0 {
                break;
            }
            self.unread.end += length;
        }
        Ok(false)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Sniffed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.unread.len().min(buffer.remaining());
        let from = self.unread.start;
        buffer.put_slice(&self.first[from..from + length]);
        self.unread.start += length;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Sniffed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_spoken_shows_in_the_first_bytes_which_stay_unread() {
        let all = [
            (&b"G"[..], false),
            (b"PUT", false),
            (b"PRI * HTTP/1", false),
            (PREFACE, true),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore", true),
        ];
        for (first, http2) in all {
            let (mut client, stream) = tokio::io::duplex(1);
            let sending = tokio::spawn(async move {
                client.write_all(first).await.unwrap();
            });
            let mut stream = Sniffed::new(stream);
            assert_eq!(stream.is_http2().await.unwrap(), http2);
            let mut read = Vec::new();
            stream.read_to_end(&mut read).await.unwrap();
            assert_eq!(read, first);
            sending.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_not_waited_for() {
        for first in [&b""[..], b"P", &PREFACE[..23]] {
            let (mut client, stream) = tokio::io::duplex(64);
            client.write_all(first).await.unwrap();
            drop(client);
            assert!(!Sniffed::new(stream).is_http2().await.unwrap());
        }
    }
}
