//! A way from a client to a server on which requests and answers get lost.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What becomes of one request on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Turn {
    /// It reaches the server, and its answer the client.
    Pass,
    /// It reaches the server; the connection breaks before the answer.
    CutAnswer,
    /// The same in the middle of the answer.
    CutInside,
    /// The same, but that the connection stays, and the answer comes byte by byte from this text on.
    DripFrom(&'static str),
    /// It is answered with this instead.
    Answer(&'static str),
}

pub(crate) const UNAVAILABLE: Turn = Turn::Answer(
    "HTTP/1.1 503 x\r\ncontent-type: application/problem+json\r\ncontent-length: 32\r\n\
     connection: close\r\n\r\n{\"type\":\"/problems/unavailable\"}",
);
pub(crate) const UNAVAILABLE_FOR_AN_HOUR: Turn = Turn::Answer(
    "HTTP/1.1 503 x\r\ncontent-type: application/problem+json\r\ncontent-length: 32\r\n\
     retry-after: 3600\r\nconnection: close\r\n\r\n{\"type\":\"/problems/unavailable\"}",
);
pub(crate) const UNAVAILABLE_FOR_A_SECOND: Turn = Turn::Answer(
    "HTTP/1.1 503 x\r\ncontent-type: application/problem+json\r\ncontent-length: 32\r\n\
     retry-after: 1\r\nconnection: close\r\n\r\n{\"type\":\"/problems/unavailable\"}",
);
pub(crate) const BAD_GATEWAY: Turn =
    Turn::Answer("HTTP/1.1 502 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
pub(crate) const TOO_MANY: Turn =
    Turn::Answer("HTTP/1.1 429 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");

/// What stands between client and server: it takes its turns, then lets everything pass.
pub(crate) struct Way {
    pub(crate) address: SocketAddr,
    /// The requests that came, as they came.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Way {
    pub(crate) async fn to(server: SocketAddr, turns: &[Turn]) -> Self {
        Self::at(([127, 0, 0, 1], 0).into(), server, turns).await
    }

    /// The same at an address that the client knows already.
    pub(crate) async fn at(own: SocketAddr, server: SocketAddr, turns: &[Turn]) -> Self {
        let turns = turns.to_vec();
        let listener = TcpListener::bind(own).await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let mut turns = turns.into_iter();
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let request = take(stream).await;
                let Some((mut stream, request)) = request else {
                    continue;
                };
                seen.lock().unwrap().push(request.clone());
                let turn = turns.next().unwrap_or(Turn::Pass);
                let answer = match turn {
                    Turn::Answer(answer) => answer.as_bytes().to_vec(),
                    Turn::Pass => forward(server, &request).await,
                    Turn::DripFrom(text) => {
                        let answer = forward(server, &request).await;
                        drip(&mut stream, &answer, text.as_bytes()).await
                    }
                    Turn::CutAnswer => {
                        forward(server, &request).await;
                        Vec::new()
                    }
                    Turn::CutInside => {
                        let mut answer = forward(server, &request).await;
                        answer.truncate(answer.len() - 1);
                        answer
                    }
                };
                // The client may be gone by now.
                let _gone = stream.write_all(&answer).await;
            }
        });
        Self { address, requests }
    }

    /// How many requests came, and how many different keys they bore.
    pub(crate) fn seen(&self) -> (usize, usize) {
        let requests = self.requests.lock().unwrap();
        let keys = requests.iter().filter_map(|request| {
            let mut lines = request.lines();
            lines.find_map(|line| field(line, "idempotency-key"))
        });
        let keys: BTreeSet<_> = keys.collect();
        (requests.len(), keys.len())
    }
}

/// One whole request; none if the client only looked in.
async fn take(mut stream: TcpStream) -> Option<(TcpStream, String)> {
    let mut request = Vec::new();
    loop {
        let read = stream.read_buf(&mut request).await.unwrap_or(0);
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| field(line, "content-length"));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return Some((stream, text));
            }
        }
        if read == 0 {
            return None;
        }
    }
}

/// The value of a field's line, if it is the one that is looked for.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (own, value) = line.split_once(':')?;
    own.eq_ignore_ascii_case(name).then(|| value.trim())
}

/// Sends the answer up to some text at once, and the rest byte by byte, as long as the client is there. Nothing is left.
async fn drip(stream: &mut TcpStream, answer: &[u8], text: &[u8]) -> Vec<u8> {
    let mut found = answer.windows(text.len());
    let (whole, rest) = answer.split_at(found.position(|window| window == text).unwrap());
    let mut sent = stream.write_all(whole).await;
    for byte in rest {
        if sent.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        sent = stream.write_all(&[*byte]).await;
    }
    Vec::new()
}

async fn forward(server: SocketAddr, request: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let request = request.replacen("\r\n\r\n", "\r\nconnection: close\r\n\r\n", 1);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer
}
