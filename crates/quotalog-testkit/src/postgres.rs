//! PostgreSQL servers for tests: started on a free port of 127.0.0.1, in a folder of their own, and ended
//! with the process that started them, however it ends.
//!
//! It needs PostgreSQL's programs on the search path or where Debian puts them, and the `/proc` of Linux.
//! As root, which PostgreSQL refuses to run as, the servers run as the user `nobody`.
#![expect(
    clippy::missing_panics_doc,
    reason = "a test fails by panicking where a server does not do as it is told"
)]

mod pooler;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub use pooler::Pooler;
use rustix::process::{Pid, Signal, geteuid, kill_process, test_kill_process};

const NO_SERVER: &str = "there is no PostgreSQL (package postgresql)";

/// The user and the group `nobody`, by number as the system counts them.
const NOBODY: u32 = 65_534;

/// When a wait is given up as a failure; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a wait looks again.
const GLANCE: Duration = Duration::from_millis(5);

/// Ports are looked for here, below those that systems give to outgoing connections: a client that tries
/// to reach a stopped server would now and then get its port as its own, and connect to itself.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// Ends the server that was named last and removes the folder, once nobody holds the other end.
const WATCH: &str = r#"
while read -r line; do server=$line; done
if [ -n "$server" ]; then kill -s CONT "$server"; kill -s QUIT "$server"; fi
for attempt in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$1" && exit; sleep 1; done
"#;

/// One server, with its data.
pub struct Cluster {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    settings: Vec<(String, String)>,
    server: Mutex<Option<Child>>,
    watch: Mutex<Watch>,
}

/// What a server of one test is like.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    settings: Vec<(String, String)>,
    files: Vec<(String, Vec<u8>)>,
}

/// A database of its own, empty at first. It goes with its cluster.
#[derive(Debug, Clone)]
pub struct Database {
    programs: PathBuf,
    port: u16,
    name: String,
}

/// A session of somebody else, which keeps what it has locked until it is dropped.
pub struct Session {
    psql: Child,
    told: ChildStdin,
    says: BufReader<ChildStdout>,
}

/// How a server is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Cuts connections off, and writes everything down.
    Fast,
    /// As a power cut for PostgreSQL: the next start recovers from the log.
    Immediate,
}

/// The process that outlives this one for long enough to clean up after it.
struct Watch {
    process: Child,
    told: Option<ChildStdin>,
}

impl Setup {
    /// A server as it is by default, but that nothing needs to be on disk: its processes are killed, the machine never,
    /// and a disk that others use too keeps nobody waiting.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets one of its settings, such as `max_connections`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Puts a file into its data folder, readable for itself alone, such as `server.key` or `pg_hba.conf`.
    #[must_use]
    pub fn file(mut self, name: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), content.into()));
        self
    }
}

impl Cluster {
    /// The server that all tests of this process share; none of them may stop it. `None`, said aloud, on a
    /// machine without PostgreSQL; with `CI=true` that is a failure.
    #[must_use]
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
        SHARED
            .get_or_init(|| Self::made(&Setup::new().setting("max_connections", "300")))
            .as_ref()
            .or_else(|| missing(NO_SERVER))
    }

    /// A server for one test, which may do with it what it likes. `None` as for [`Cluster::shared`].
    #[must_use]
    pub fn own(setup: &Setup) -> Option<Self> {
        Self::made(setup).or_else(|| missing(NO_SERVER))
    }

    fn made(setup: &Setup) -> Option<Self> {
        let mut settings = vec![
            ("listen_addresses".to_owned(), "127.0.0.1".to_owned()),
            ("unix_socket_directories".to_owned(), String::new()),
            ("fsync".to_owned(), "off".to_owned()),
        ];
        settings.extend(setup.settings.iter().cloned());
        let cluster = Self::without_data(programs()?, settings);
        cluster.initialise(&setup.files);
        Some(cluster.on_a_free_port())
    }

    fn without_data(programs: PathBuf, settings: Vec<(String, String)>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder").keep();
        if geteuid().is_root() {
            chown(&folder, Some(NOBODY), Some(NOBODY)).expect("root gives its folder away");
        }
        Self {
            watch: Mutex::new(Watch::over(&folder)),
            programs,
            folder,
            port: 0,
            settings,
            server: Mutex::new(None),
        }
    }

    fn on_a_free_port(mut self) -> Self {
        // Another process may take a port between the look and the start.
        for _ in 0..20 {
            self.port = free_port();
            if self.started() {
                return self;
            }
        }
        panic!("PostgreSQL does not start: {}", self.log());
    }

    /// A standby that follows this server as it writes. From then on this server answers no commit that the
    /// standby does not have on disk.
    #[must_use]
    pub fn standby(&self) -> Self {
        let mut standby = Self::without_data(self.programs.clone(), self.settings.clone());
        let mut copy = standby.command("pg_basebackup");
        copy.args(["--checkpoint=fast", "--no-sync", "--write-recovery-conf"]);
        copy.arg("--dbname").arg(self.maintenance().url());
        let output = copy.arg("--pgdata").arg(standby.data()).output();
        let output = output.expect("pg_basebackup runs");
        assert!(output.status.success(), "{output:?}");
        standby = standby.on_a_free_port();
        let ours = self.maintenance();
        ours.ask("ALTER SYSTEM SET synchronous_standby_names = '*'");
        ours.ask("SELECT pg_reload_conf()");
        wait_for("the standby to be waited for", || {
            ours.ask("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
        });
        standby
    }

    /// Makes a standby the server that writes, and returns when it is.
    pub fn promote(&self) {
        let promoted = self.maintenance().ask("SELECT pg_promote()");
        assert_eq!(promoted, "t", "{}", self.log());
    }

    /// The database of this name on this server, as on a standby those of its server are.
    #[must_use]
    pub fn named_as(&self, database: &Database) -> Database {
        Database {
            name: database.name.clone(),
            ..self.maintenance()
        }
    }

    /// A fresh database.
    #[must_use]
    pub fn database(&self) -> Database {
        static MADE: AtomicU16 = AtomicU16::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        self.maintenance().ask(&format!("CREATE DATABASE {name}"));
        Database {
            name,
            ..self.maintenance()
        }
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What the server has logged.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Stops the server, and returns when it has ended.
    pub fn stop(&self, stop: Stop) {
        let mut server = lock(&self.server).take().expect("the server runs");
        let signal = match stop {
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
        };
        send(pid(&server), signal);
        wait_for("the server's end", || ended(&mut server));
        self.watch_over(None);
    }

    /// Ends the server as if by a crash: it and all its processes at once.
    pub fn kill(&self) {
        if let Some(mut server) = lock(&self.server).take() {
            let server_pid = pid(&server);
            // So that it starts no more of them meanwhile.
            send(server_pid, Signal::STOP);
            let processes = children(server_pid);
            for process in &processes {
                send(*process, Signal::KILL);
            }
            send(server_pid, Signal::KILL);
            wait_for("the server's end", || ended(&mut server));
            wait_for("the end of its processes", || {
                processes.iter().all(|process| is_gone(*process))
            });
        }
        self.watch_over(None);
    }

    /// Starts the server again, on its port and with its data, and returns when it takes connections.
    pub fn start(&self) {
        assert!(lock(&self.server).is_none(), "the server runs already");
        assert!(self.started(), "it does not start again: {}", self.log());
    }

    /// Has the server stand still, with its connections open.
    pub fn freeze(&self) {
        let server_pid = self.pid();
        send(server_pid, Signal::STOP);
        for process in children(server_pid) {
            send(process, Signal::STOP);
        }
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        let server_pid = self.pid();
        for process in children(server_pid) {
            send(process, Signal::CONT);
        }
        send(server_pid, Signal::CONT);
    }

    /// The database that is always there, to make others from.
    fn maintenance(&self) -> Database {
        Database {
            programs: self.programs.clone(),
            port: self.port,
            name: "postgres".to_owned(),
        }
    }

    fn initialise(&self, files: &[(String, Vec<u8>)]) {
        let mut initdb = self.command("initdb");
        // Whoever has a password must know it, and the superuser of the tests has none.
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8"]);
        initdb.args(["--no-locale", "--no-sync", "--pgdata"]);
        let output = initdb.arg(self.data()).output().expect("initdb runs");
        assert!(output.status.success(), "{output:?}");
        let access = "host all postgres 127.0.0.1/32 trust\n\
                      host replication postgres 127.0.0.1/32 trust\n\
                      host all all 127.0.0.1/32 scram-sha-256\n";
        self.write("pg_hba.conf", access.as_bytes());
        for (name, content) in files {
            self.write(name, content);
        }
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.data().join(name);
        fs::write(&path, content).expect("the folder takes a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        if geteuid().is_root() {
            chown(&path, Some(NOBODY), Some(NOBODY)).expect("root gives its file away");
        }
    }

    /// Whether the server takes connections; if not, it has ended.
    fn started(&self) -> bool {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file());
        let mut postgres = self.command("postgres");
        postgres.arg("-D").arg(self.data());
        postgres.args(["-p", &self.port.to_string()]);
        for (name, value) in &self.settings {
            postgres.args(["-c", &format!("{name}={value}")]);
        }
        postgres.stdout(Stdio::null());
        postgres.stderr(log.expect("the folder takes a file"));
        let mut server = postgres.spawn().expect("postgres runs");
        self.watch_over(Some(&server));
        let mut runs = false;
        wait_for("the server's start", || {
            runs = self.is_ready(&server);
            runs || ended(&mut server)
        });
        if runs {
            *lock(&self.server) = Some(server);
        } else {
            self.watch_over(None);
        }
        runs
    }

    /// Whether the server's own file says so. It tells the process first, since the file of a server that
    /// was killed stays.
    fn is_ready(&self, server: &Child) -> bool {
        let status = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = status.lines();
        lines.next() == Some(&server.id().to_string())
            && lines.last().is_some_and(|line| line.trim() == "ready")
    }

    /// A program of PostgreSQL, as a user that it runs for.
    fn command(&self, program: &str) -> Command {
        let mut command = command(&self.programs, program);
        command.current_dir(&self.folder).stdin(Stdio::null());
        // A Ctrl-C at the terminal is for the test.
        command.process_group(0);
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn watch_over(&self, server: Option<&Child>) {
        lock(&self.watch).tell(server);
    }

    fn pid(&self) -> Pid {
        pid(lock(&self.server).as_ref().expect("the server runs"))
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("log")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill();
        lock(&self.watch).end();
    }
}

impl Database {
    /// As whoever may do anything, without a password.
    #[must_use]
    pub fn url(&self) -> String {
        let Self { port, name, .. } = self;
        format!("postgres://postgres@127.0.0.1:{port}/{name}")
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Another database of the same server.
    #[must_use]
    pub fn in_database(&self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self.clone()
        }
    }

    /// Has psql run a script, with these variables of the environment.
    #[track_caller]
    pub fn run_script(&self, script: &Path, variables: &[(&str, &str)]) {
        let mut psql = command(&self.programs, "psql");
        psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]);
        psql.args(["--dbname", &self.url()])
            .arg("--file")
            .arg(script);
        let output = psql.envs(variables.iter().copied()).output();
        let output = output.expect("psql runs");
        assert!(output.status.success(), "{output:?}");
    }

    /// Runs SQL beside the programs under test. Returns the rows, one a line, with `|` between the columns.
    #[track_caller]
    pub fn ask(&self, sql: &str) -> String {
        let mut psql = command(&self.programs, "psql");
        psql.args(["--no-psqlrc", "--tuples-only", "--no-align", "--quiet"]);
        psql.args(["--set=ON_ERROR_STOP=1", "--dbname", &self.url()]);
        let output = psql.args(["--command", sql]).output().expect("psql runs");
        assert!(output.status.success(), "{sql}: {output:?}");
        let rows = String::from_utf8(output.stdout).expect("the encoding is UTF-8");
        rows.trim_end().to_owned()
    }

    /// Opens a session that lasts.
    #[must_use]
    pub fn session(&self) -> Session {
        let mut psql = command(&self.programs, "psql");
        psql.args(["--no-psqlrc", "--tuples-only", "--no-align", "--quiet"]);
        psql.args(["--set=ON_ERROR_STOP=1", "--dbname", &self.url()]);
        psql.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut psql = psql.spawn().expect("psql runs");
        Session {
            told: psql.stdin.take().expect("it is piped"),
            says: BufReader::new(psql.stdout.take().expect("it is piped")),
            psql,
        }
    }
}

impl Session {
    /// Runs SQL, and returns when it is done.
    #[track_caller]
    pub fn run(&mut self, sql: &str) {
        writeln!(self.told, "{sql};\n\\echo so it is").expect("psql reads");
        let mut line = String::new();
        while line.trim_end() != "so it is" {
            line.clear();
            let read = self.says.read_line(&mut line).expect("psql answers");
            assert!(read > 0, "psql ended at {sql}");
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The server ends what the session has begun, as for any client that is gone.
        let _ended = self.psql.kill();
        let _ended = self.psql.wait();
    }
}

impl Watch {
    fn over(folder: &Path) -> Self {
        let mut process = Command::new("sh")
            .args([OsStr::new("-c"), WATCH.as_ref(), "watch".as_ref()])
            .arg(folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("every system has a shell");
        Self {
            told: process.stdin.take(),
            process,
        }
    }

    /// Names the server that is to be ended with this process.
    fn tell(&mut self, server: Option<&Child>) {
        if let Some(told) = &mut self.told {
            let line = server.map_or_else(String::new, |server| server.id().to_string());
            writeln!(told, "{line}").expect("the watch outlives us");
        }
    }

    fn end(&mut self) {
        drop(self.told.take());
        let _ended = self.process.wait();
    }
}

/// Says that there is no server, which must not be where the tests are the last word.
fn missing<T>(why: &str) -> Option<T> {
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "must not be skipped: {why}"
    );
    eprintln!("skipped: {why}");
    None
}

/// Where PostgreSQL's programs are: on the search path, or the newest that Debian has installed.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).find_map(|folder| {
        // One of them may be linked to from there alone.
        let initdb = fs::canonicalize(folder.join("initdb")).ok()?;
        whole(initdb.parent()?)
    });
    on_path.or_else(|| {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
        let (_, newest) = versions
            .filter_map(|entry| {
                let folder = entry.ok()?.path();
                let version: u32 = folder.file_name()?.to_str()?.parse().ok()?;
                Some((version, whole(&folder.join("bin"))?))
            })
            .max()?;
        Some(newest)
    })
}

/// The folder, if all that is needed is in it.
fn whole(folder: &Path) -> Option<PathBuf> {
    let needed = ["initdb", "postgres", "psql", "pg_basebackup"];
    let has_all = needed.iter().all(|program| folder.join(program).is_file());
    has_all.then(|| folder.to_owned())
}

/// A program of PostgreSQL, without the variables of whoever runs the tests.
fn command(programs: &Path, program: &str) -> Command {
    let mut command = Command::new(programs.join(program));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command
}

/// A port that nobody listens on. Processes that run side by side begin their search at different places.
fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let len = PORTS.end - PORTS.start;
    let begin = u16::try_from(std::process::id() % u32::from(len)).expect("less than a port");
    for _ in 0..len {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        // A step that shares no divisor with the range's length visits every port of it.
        let place = (u64::from(begin) * 7_919 + u64::from(tried) * 31) % u64::from(len);
        let port = PORTS.start + u16::try_from(place).expect("less than a port");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// The processes that this one has started, as Linux tells them.
fn children(parent: Pid) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").expect("Linux tells of its processes");
    let children = processes.filter_map(|entry| {
        let folder = entry.ok()?.path();
        let number: i32 = folder.file_name()?.to_str()?.parse().ok()?;
        let status = fs::read_to_string(folder.join("stat")).ok()?;
        // The name stands in brackets, and may hold any character; then the state, then the parent.
        let (_, after_name) = status.rsplit_once(')')?;
        let its_parent = after_name.split_whitespace().nth(1)?;
        let is_child = its_parent == parent.as_raw_nonzero().to_string();
        Pid::from_raw(number).filter(|_| is_child)
    });
    children.collect()
}

/// Whether a process is gone, or at least holds nothing any more.
fn is_gone(process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    test_kill_process(process).is_err()
        || status.map_or(true, |status| {
            status
                .rsplit_once(')')
                .is_some_and(|(_, after_name)| after_name.trim_start().starts_with(['Z', 'X']))
        })
}

fn send(process: Pid, signal: Signal) {
    // One that has just ended needs no signal.
    let _gone = kill_process(process, signal);
}

fn pid(child: &Child) -> Pid {
    let number = i32::try_from(child.id()).expect("the system's numbers fit");
    Pid::from_raw(number).expect("a child is no process 0")
}

fn ended(child: &mut Child) -> bool {
    child.try_wait().expect("the child is ours").is_some()
}

#[track_caller]
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let given_up_at = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < given_up_at, "in vain: {what}");
        std::thread::sleep(GLANCE);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that panicked with it leaves what is there to be ended.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
