//! PgBouncer in transaction mode, in front of a server for tests: each transaction gets any of a few sessions.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Signal, geteuid};

use super::{
    Cluster, Database, NOBODY, Watch, ended, free_port, lock, missing, pid, send, wait_for,
};

/// The page that prints the settings of a pooler.
const PAGE: &str = include_str!("../../../../docs/postgres.md");

/// One pooler, on a port of its own.
pub struct Pooler {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    running: Mutex<Option<Child>>,
    watch: Mutex<Watch>,
}

impl Pooler {
    /// A pooler that keeps at most `sessions` of the cluster's server for each database. `None`, said aloud, on a
    /// machine without PgBouncer; with `CI=true` that is a failure.
    #[must_use]
    pub fn before(cluster: &Cluster, sessions: usize) -> Option<Self> {
        let Some(program) = program() else {
            return missing("there is no PgBouncer (package pgbouncer)");
        };
        let folder = tempfile::tempdir().expect("a temporary folder").keep();
        let mut pooler = Self {
            watch: Mutex::new(Watch::over(&folder)),
            program,
            folder,
            port: 0,
            running: Mutex::new(None),
        };
        pooler.write("users", "\"postgres\" \"\"\n");
        // Another process may take a port between the look and the start.
        for _ in 0..20 {
            pooler.port = free_port();
            pooler.configure(cluster.port(), sessions);
            if pooler.started() {
                return Some(pooler);
            }
        }
        panic!("PgBouncer does not start: {}", pooler.log());
    }

    /// The database by way of the pooler, as quotalog is told it.
    #[must_use]
    pub fn url(&self, database: &Database) -> String {
        format!("{}?pooler=transaction", self.plain_url(database))
    }

    /// The same as drivers know it.
    #[must_use]
    pub fn plain_url(&self, database: &Database) -> String {
        let name = database.name();
        format!("postgres://postgres@127.0.0.1:{}/{name}", self.port)
    }

    /// Ends the pooler at once, with all connections through it.
    pub fn stop(&self) {
        if let Some(mut running) = lock(&self.running).take() {
            send(pid(&running), Signal::KILL);
            wait_for("the pooler's end", || ended(&mut running));
        }
        lock(&self.watch).tell(None);
    }

    /// Starts it again, on its port.
    pub fn start(&self) {
        assert!(self.started(), "it does not start again: {}", self.log());
    }

    /// The settings are those that the documentation prints, but for what belongs to this machine and this test.
    fn configure(&self, server_port: u16, sessions: usize) {
        let Self { port, folder, .. } = self;
        let folder = folder.display();
        let settings = [
            (
                "quotalog = ",
                format!("* = host=127.0.0.1 port={server_port}"),
            ),
            ("listen_addr = ", "listen_addr = 127.0.0.1".to_owned()),
            ("listen_port = ", format!("listen_port = {port}")),
            (
                "default_pool_size = ",
                format!("default_pool_size = {sessions}"),
            ),
            ("auth_type = ", "auth_type = trust".to_owned()),
            ("auth_file = ", format!("auth_file = {folder}/users")),
        ];
        let mut ini = printed().to_owned();
        for (name, line) in settings {
            ini = with(&ini, name, &line);
        }
        ini += &format!("unix_socket_dir =\nlogfile = {folder}/log\nserver_round_robin = 1\n");
        self.write("pgbouncer.ini", &ini);
    }

    /// Whether it takes connections; if not, it has ended.
    fn started(&self) -> bool {
        let mut command = Command::new(&self.program);
        command.arg(self.folder.join("pgbouncer.ini"));
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let _before = File::create(self.folder.join("log"));
        self.give_away("log");
        let mut running = command.spawn().expect("pgbouncer runs");
        lock(&self.watch).tell(Some(&running));
        let mut runs = false;
        wait_for("the pooler's start", || {
            runs = self.log().contains("process up");
            runs || ended(&mut running)
        });
        if runs {
            *lock(&self.running) = Some(running);
        } else {
            lock(&self.watch).tell(None);
        }
        runs
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.folder.join(name);
        fs::write(&path, content).expect("the folder takes a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        self.give_away(name);
    }

    fn give_away(&self, name: &str) {
        if geteuid().is_root() {
            for path in [self.folder.clone(), self.folder.join(name)] {
                chown(path, Some(NOBODY), Some(NOBODY)).expect("root gives its file away");
            }
        }
    }

    /// What the pooler has logged since its start.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.stop();
        lock(&self.watch).end();
    }
}

/// The settings that the documentation prints.
fn printed() -> &'static str {
    let (_, block) = PAGE
        .split_once("```ini\n")
        .expect("the page prints the settings of PgBouncer");
    block.split_once("```").expect("the block ends").0
}

/// The settings with another line in place of the one that begins so.
fn with(ini: &str, start: &str, line: &str) -> String {
    let mut replaced = 0;
    let lines = ini.lines().map(|printed| {
        if !printed.starts_with(start) {
            return printed;
        }
        replaced += 1;
        line
    });
    let ini = lines.flat_map(|line| [line, "\n"]).collect();
    assert_eq!(replaced, 1, "{start}");
    ini
}

/// Where the program is: on the search path, or where Debian puts what only root was meant to run.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).chain([Path::new("/usr/sbin").to_owned()]);
    places.find_map(|folder| Some(folder.join("pgbouncer")).filter(|program| program.is_file()))
}
