//! A connection of many that carries bytes as they are told, and to which a cut is no failure of the test.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::raw::RawAnswer;

/// One connection.
pub(crate) struct Stream {
    stream: BufReader<TcpStream>,
}

impl Stream {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(64 * 1024, stream),
        })
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref()).await
    }

    /// Reads one answer whole.
    pub(crate) async fn read(&mut self) -> io::Result<RawAnswer> {
        let status_line = self.line().await?;
        let status = status_line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = RawAnswer {
            status,
            head: vec![status_line],
            body: Vec::new(),
        };
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap();
            let name = name.to_ascii_lowercase();
            answer.head.push(format!("{name}:{value}"));
        }
        let body_bytes = answer.field("content-length").unwrap_or("0");
        answer.body.resize(body_bytes.parse().unwrap(), 0);
        self.stream.read_exact(&mut answer.body).await?;
        Ok(answer)
    }

    /// Reads so many bytes of an answer.
    pub(crate) async fn read_part(&mut self, bytes: usize) -> io::Result<()> {
        self.stream.read_exact(&mut vec![0; bytes]).await?;
        Ok(())
    }

    /// Cuts the connection so that the other side meets an error, rather than an end.
    pub(crate) fn reset(self) -> io::Result<()> {
        self.stream.into_inner().set_zero_linger()
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).await?;
        let whole = line.strip_suffix("\r\n").map(ToOwned::to_owned);
        whole.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}
