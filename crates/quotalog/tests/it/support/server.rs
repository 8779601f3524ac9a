//! The real binary, on a free port and a folder of its own, ended with the test.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use quotalog_testkit::postgres::Database;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::answer::Answer;
use crate::cli::succeeds;
use crate::faults::{at_another_time, other_clocks};

/// The admin token of servers that are given one.
pub(crate) const ADMIN: &str = "an-admin-token-of-the-environment-0123456789";

/// A folder with a database, for servers and commands.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    /// One of PostgreSQL instead of a file.
    pub(crate) postgres: Option<Database>,
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// What it wrote to standard output until it listened.
    pub(crate) printed: String,
}

/// When a wait is given up as a failure; nothing is measured by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One connection to a server.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

/// The program, without the variables of whoever runs the tests.
pub(crate) fn quotalog() -> Command {
    without_variables(Command::new(env!("CARGO_BIN_EXE_quotalog")))
}

/// A command without the variables of whoever runs the tests, and without input.
pub(crate) fn without_variables(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("QUOTALOG_") || text.starts_with("PG") {
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
            postgres: None,
        }
    }

    /// A folder for servers and commands on a database of PostgreSQL.
    pub(crate) fn on(database: &Database) -> Self {
        let mut site = Self::new();
        site.postgres = Some(database.clone());
        site
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.path().join("quotalog.db")
    }

    /// What the servers of this site have logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("quotalog.log")
    }

    /// `quotalog` with `arguments` and this site's database.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = quotalog();
        command.args(arguments);
        let url = match &self.postgres {
            Some(database) => {
                // Where the first admin token goes, which has no file to lie beside.
                command.current_dir(self.folder.path());
                database.url()
            }
            None => format!("sqlite:{}", self.database().display()),
        };
        command.env("QUOTALOG_DATABASE", url);
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs `quotalog serve`, which must refuse to start. Returns its exit code and its one line.
    #[track_caller]
    pub(crate) fn refused(
        &self,
        change: impl FnOnce(&mut Command) -> &mut Command,
    ) -> (i32, String) {
        let mut command = self.serving();
        change(&mut command);
        let output = run_to_its_end(&mut command);
        let error = String::from_utf8(output.stderr).unwrap();
        // What was noticed on the way there may be logged before.
        let said = error
            .lines()
            .filter(|line| !line.contains(" INFO ") && !line.contains(" WARN "));
        let said: Vec<_> = said.collect();
        assert_eq!(said.len(), 1, "not one line: {error}");
        assert!(said[0].starts_with("quotalog: "), "{error}");
        assert!(output.stdout.is_empty(), "{:?}", output.stdout);
        (output.status.code().unwrap(), said[0].to_owned())
    }

    /// Makes a token by the command line, in a database that a server has made.
    #[track_caller]
    pub(crate) fn token(&self, arguments: &[&str]) -> String {
        if self.postgres.is_none() && !self.database().exists() {
            drop(self.serve());
        }
        let output = self.run(&[&["token", "create"], arguments].concat());
        succeeds(&output);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A server that knows [`ADMIN`].
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(|command| command)
    }

    /// A server that knows [`ADMIN`], started as `change` wants it.
    pub(crate) fn serve_with(&self, change: impl FnOnce(&mut Command) -> &mut Command) -> Server {
        let mut command = self.serving();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file());
        command.stderr(log.unwrap());
        change(&mut command);
        Server::start(&mut command)
    }

    /// A server that knows [`ADMIN`], whose clock began in a morning: no test of its length meets the end of an hour
    /// or a day. Without libfaketime the clock is the machine's.
    pub(crate) fn serve_in_a_morning(&self) -> Server {
        self.serve_with(in_a_morning)
    }

    /// A server that knows [`ADMIN`] and serves rate limits too.
    pub(crate) fn serve_rls(&self) -> Server {
        self.serve_with(with_rls)
    }

    fn serving(&self) -> Command {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.env("QUOTALOG_ADMIN_TOKEN", ADMIN);
        command.env("QUOTALOG_SHUTDOWN_DELAY", "0s");
        command
    }

    /// The usage of a pair as the database holds it, by the start of its window as answers write it.
    pub(crate) fn stored(&self, user_id: &str, resource: &str) -> BTreeMap<String, u64> {
        match &self.postgres {
            Some(database) => stored_on_postgres(database, user_id, resource),
            None => stored(&self.database(), user_id, resource),
        }
    }
}

/// See [`Site::serve_in_a_morning`].
pub(crate) fn in_a_morning(command: &mut Command) -> &mut Command {
    match other_clocks() {
        // An absolute time is read in the zone of the process.
        Some(library) => {
            at_another_time(command, &library, "@2027-01-15 06:00:00").env("TZ", "UTC")
        }
        None => command,
    }
}

impl Server {
    /// Starts `command` and waits until it says where it listens.
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        // From here on it is ended if the test fails.
        let mut server = Self {
            child,
            address: ([127, 0, 0, 1], 0).into(),
            printed: String::new(),
        };
        loop {
            let before = server.printed.len();
            let read = lines.read_line(&mut server.printed).unwrap();
            assert!(
                read > 0,
                "the server ended before it listened: {:?}",
                server.child.wait()
            );
            let line = server.printed[before..].trim();
            if let Some(url) = line.strip_prefix("quotalog listens on ") {
                let (_scheme, address) = url.split_once("://").unwrap();
                server.address = address.parse().unwrap();
                // What it prints later must not fill the pipe.
                std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
                return server;
            }
        }
    }

    /// Where it serves rate limits, as it has said.
    #[track_caller]
    pub(crate) fn rls_address(&self) -> SocketAddr {
        let mut said = self.printed.lines();
        let url = said.find_map(|line| line.strip_prefix("the rate-limit service listens on "));
        let (_scheme, address) = url.unwrap().split_once("://").unwrap();
        address.parse().unwrap()
    }

    /// Waits until it says that it is ready.
    pub(crate) async fn ready(&self) {
        until("the server is ready", async || {
            self.call(Method::GET, "/readyz", "").await.status == 200
        })
        .await;
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
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

    /// Waits for the server's end, after a signal, while the test's other tasks go on.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        let waiting = tokio::task::spawn_blocking(move || self.child.wait().unwrap());
        waiting.await.unwrap()
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection::open(self.address).await.unwrap()
    }

    /// One request on a connection of its own, with [`ADMIN`].
    pub(crate) async fn call(&self, method: Method, path: &str, body: &str) -> Answer {
        let mut connection = self.connect().await;
        connection.call(method, path, ADMIN, body).await.unwrap()
    }

    /// Sets a policy.
    pub(crate) async fn set(&self, path: &str, window: &str, limit: u64) {
        let body = format!(r#"{{"window":"{window}","limit_count":{limit}}}"#);
        self.call(Method::PUT, path, &body).await.is(200);
    }

    /// The present window of a pair and its usage, as a check answers them.
    pub(crate) async fn usage(&self, path: &str) -> (String, u64) {
        let answer = self.call(Method::GET, path, "").await.is(200);
        (answer.window_start(), answer.usage())
    }
}

/// What a test that failed shows of the servers' log.
const LINES_SHOWN: usize = 50;

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let last = lines.len().saturating_sub(LINES_SHOWN);
            eprintln!("the end of the log:\n{}", lines[last..].join("\n"));
        }
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
        Self::over(TcpStream::connect(address).await?).await
    }

    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> std::io::Result<Self> {
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

/// Has a server serve rate limits on a free port.
pub(crate) fn with_rls(command: &mut Command) -> &mut Command {
    command.env("QUOTALOG_RLS_LISTEN", "127.0.0.1:0")
}

/// Runs a command that should end by itself.
#[track_caller]
pub(crate) fn run_to_its_end(command: &mut Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let given_up_at = Instant::now() + PATIENCE;
    let mut in_time = true;
    while in_time && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
        in_time = Instant::now() < given_up_at;
    }
    if !in_time {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(in_time, "it did not end: {output:?}");
    output
}

/// Sends a signal by its name.
#[track_caller]
pub(crate) fn signal(pid: u32, name: &str) {
    // The shell's own `kill`, since not every system has the program.
    let kill = format!("kill -s {name} {pid}");
    let status = Command::new("sh").args(["-c", &kill]).status().unwrap();
    assert!(status.success());
}

/// Asks again and again until `done` says so.
pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let given_up_at = Instant::now() + PATIENCE;
    while !done().await {
        assert!(Instant::now() < given_up_at, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Notes that this machine cannot run a test; where it must, that is a failure.
#[track_caller]
pub(crate) fn skipped(why: &str) {
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "must not be skipped: {why}"
    );
    eprintln!("skipped: {why}");
}

/// The usage of a pair in `database`, by the start of its window as answers write it.
pub(crate) fn stored(database: &Path, user_id: &str, resource: &str) -> BTreeMap<String, u64> {
    let connection = rusqlite::Connection::open(database).unwrap();
    let sql = "SELECT replace(window_start, ' ', 'T') || 'Z', usage FROM quota_usage \
               WHERE user_id = ?1 AND resource = ?2 AND usage > 0";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([user_id, resource], |row| {
        Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap()))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

fn stored_on_postgres(database: &Database, user_id: &str, resource: &str) -> BTreeMap<String, u64> {
    let sql = format!(
        "SELECT to_char(window_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), usage \
         FROM quota_usage WHERE user_id = '{user_id}' AND resource = '{resource}' AND usage > 0"
    );
    let rows = database.ask(&sql);
    let rows = rows.lines().map(|row| {
        let (window_start, usage) = row.split_once('|').unwrap();
        (window_start.to_owned(), usage.parse().unwrap())
    });
    rows.collect()
}

/// Reads one number from the database itself, beside a running server.
pub(crate) fn read_number(database: &Path, sql: &str) -> i64 {
    let connection = rusqlite::Connection::open(database).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}
