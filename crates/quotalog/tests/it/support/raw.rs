//! A client that sends what it is told, byte for byte, and tells a cut answer from none.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// A read that takes this long fails its test; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection.
pub(crate) struct RawConnection {
    stream: BufReader<TcpStream>,
}

/// One whole answer.
#[derive(Debug, Clone)]
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    /// The status line and the fields, names in lower case.
    pub(crate) head: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl RawConnection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Sends bytes; `false` if the server has closed the connection.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        match self.stream.get_mut().write_all(bytes.as_ref()) {
            Ok(()) => true,
            Err(error) if is_closed(error.kind()) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Says that nothing more will be sent.
    pub(crate) fn send_no_more(&mut self) {
        // The server may have closed the connection already.
        let _closed = self.stream.get_mut().shutdown(Shutdown::Write);
    }

    /// Reads an answer; none if the connection was closed before any byte of it.
    #[track_caller]
    pub(crate) fn read(&mut self) -> Option<RawAnswer> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut head = vec![status_line];
        loop {
            let line = self.line().expect("the head of an answer is cut");
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap();
            head.push(format!("{}:{value}", name.to_ascii_lowercase()));
        }
        let mut answer = RawAnswer {
            status,
            head,
            body: Vec::new(),
        };
        let body_bytes = answer.field("content-length").map_or(0, |length| {
            let length: usize = length.parse().unwrap();
            length
        });
        answer.body.resize(body_bytes, 0);
        self.stream
            .read_exact(&mut answer.body)
            .expect("the body of an answer is cut");
        Some(answer)
    }

    /// Checks that the server closes the connection without another byte.
    #[track_caller]
    pub(crate) fn is_closed(&mut self) {
        let answer = self.read();
        assert!(answer.is_none(), "{answer:?}");
    }

    /// Everything until the server closes the connection.
    pub(crate) fn ends(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) => assert!(is_closed(error.kind()), "{error}"),
        }
        bytes
    }

    /// A line without its end; none at the connection's end.
    #[track_caller]
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.strip_suffix("\r\n").expect("a cut line").to_owned()),
            Err(error) if is_closed(error.kind()) && line.is_empty() => None,
            Err(error) => panic!("{error}"),
        }
    }
}

impl RawAnswer {
    /// One field's value; fails if it comes twice.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.head.iter().skip(1).filter_map(|line| {
            let (own, value) = line.split_once(':')?;
            (own == name).then(|| value.trim())
        });
        let value = values.next();
        assert!(values.next().is_none(), "{name} comes twice");
        value
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    /// Checks the status and, of a problem, its form.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        if status >= 400 && !self.body.is_empty() {
            assert_eq!(self.field("content-type"), Some("application/problem+json"));
            assert_eq!(self.json()["status"], status);
        }
        self
    }
}

/// A request's head for the pair's path, with a token and the given further lines, each with its end.
pub(crate) fn request(method: &str, path: &str, token: &str, lines: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{lines}\r\n"
    )
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}
