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

    fn configure(&self, server_port: u16, sessions: usize) {
        let Self { port, folder, .. } = self;
        let folder = folder.display();
        self.write(
            "pgbouncer.ini",
            &format!(
                "[databases]\n* = host=127.0.0.1 port={server_port}\n[pgbouncer]\n\
                 listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
                 auth_type = trust\nauth_file = {folder}/users\nlogfile = {folder}/log\n\
                 pool_mode = transaction\ndefault_pool_size = {sessions}\nmax_client_conn = 500\n\
                 server_login_retry = 1\nserver_round_robin = 1\n"
            ),
        );
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

    fn log(&self) -> String {
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

/// Where the program is: on the search path, or where Debian puts what only root was meant to run.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).chain([Path::new("/usr/sbin").to_owned()]);
    places.find_map(|folder| Some(folder.join("pgbouncer")).filter(|program| program.is_file()))
}
