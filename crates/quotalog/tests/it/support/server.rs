//! The real binary, on a free port and a folder of its own, ended with the test.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::answer::Answer;

/// The admin token of servers that are given one.
pub(crate) const ADMIN: &str = "an-admin-token-of-the-environment-0123456789";

/// A folder with a database, for servers and commands.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// One connection to a server.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

/// The program, without the variables of whoever runs the tests.
pub(crate) fn quotalog() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quotalog"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("QUOTALOG_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

impl Site {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.path().join("quotalog.db")
    }

    /// `quotalog` with `arguments` and this site's database.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = quotalog();
        command.args(arguments);
        command.env(
            "QUOTALOG_DATABASE",
            format!("sqlite:{}", self.database().display()),
        );
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Makes a token by the command line.
    #[track_caller]
    pub(crate) fn token(&self, arguments: &[&str]) -> String {
        let output = self.run(&[&["token", "create"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A server that knows [`ADMIN`].
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(|command| command)
    }

    /// A server that knows [`ADMIN`], started as `change` wants it.
    pub(crate) fn serve_with(&self, change: impl FnOnce(&mut Command) -> &mut Command) -> Server {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.env("QUOTALOG_ADMIN_TOKEN", ADMIN);
        command.env("QUOTALOG_SHUTDOWN_DELAY", "0s");
        change(&mut command);
        Server::start(&mut command)
    }
}

impl Server {
    /// Starts `command` and waits until it says where it listens.
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let mut lines = BufReader::new(out);
        let mut line = String::new();
        loop {
            line.clear();
            let read = lines.read_line(&mut line).unwrap();
            assert!(
                read > 0,
                "the server ended before it listened: {:?}",
                child.wait()
            );
            if let Some(url) = line.trim().strip_prefix("quotalog listens on http://") {
                let address = url.parse().unwrap();
                // What it prints later must not fill the pipe.
                std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
                return Self { child, address };
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill")
            .args(["-s", name, &pid])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Ends the server at once, as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the server as an operator would.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.child.wait().unwrap()
    }

    /// Waits for the server's end, after a signal.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection::open(self.address).await.unwrap()
    }

    /// One request on a connection of its own, with [`ADMIN`].
    pub(crate) async fn call(&self, method: Method, path: &str, body: &str) -> Answer {
        let mut connection = self.connect().await;
        connection.call(method, path, ADMIN, body).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(std::io::Error::other)?;
        tokio::spawn(async move {
            // A broken connection fails the request that was on it.
            let _broken = connection.await;
        });
        Ok(Self { sender })
    }

    /// Sends a request with `token` and, unless it is empty, a JSON body.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        token: &str,
        body: &str,
    ) -> Result<Answer, hyper::Error> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {token}"));
        let request = if body.is_empty() {
            request
        } else {
            request.header("content-type", "application/json")
        };
        let request = request
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        self.send(request).await
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, hyper::Error> {
        self.sender.ready().await?;
        Answer::read(self.sender.send_request(request).await?).await
    }
}

/// Reads one number from the database itself, beside a running server.
pub(crate) fn read_number(database: &Path, sql: &str) -> i64 {
    let connection = rusqlite::Connection::open(database).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}
