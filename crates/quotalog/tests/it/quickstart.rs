//! The commands of `docs/quickstart.md`, in their order, as they are printed there, with a real nginx.
//!
//! Other than printed are addresses and folders, and that what has to listen is waited for and not slept for. Not run are
//! `cargo build --release`, since the tests have a program already, and `sudo`, since these folders need no other user.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::docs::blocks;
use crate::recipes::{nginx, nginx_paths};
use crate::recipes_clients::PYTHON;
use crate::support::server::{Server, in_a_morning, signal, skipped, until, without_variables};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A clone of the repository for the page's reader, and what is other than printed.
struct Clone<'a> {
    folder: &'a Path,
    changes: Vec<(&'static str, String)>,
}

/// An nginx as a distribution starts it, which takes what is put into `conf.d` when it is told to.
struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its workers would outlive a master that is killed.
        signal(self.0.id(), "TERM");
        let _ended = self.0.wait();
    }
}

impl Clone<'_> {
    /// A block of the page with what is other than printed; `own` are changes of this one.
    #[track_caller]
    fn adapted(&self, block: &str, own: &[(&str, &str)]) -> String {
        let mut block = block.to_owned();
        for (printed, other) in &self.changes {
            block = block.replace(printed, other);
        }
        for (printed, other) in own {
            assert!(block.contains(printed), "{printed} in {block}");
            block = block.replace(printed, other);
        }
        block
    }

    /// A terminal in the clone, for a script.
    fn terminal(&self, script: &str) -> Command {
        let mut bash = without_variables(Command::new("bash"));
        bash.args(["-c", script]).current_dir(self.folder);
        let path = std::env::var("PATH").unwrap_or_default();
        bash.env("PATH", format!("{}/bin:{path}", self.folder.display()));
        bash
    }

    /// The second terminal, which is given blocks, each with what is other than printed in this one. Their ends are
    /// told, with their status.
    fn run(&self, server: &Server, blocks: &[(&str, &[(&str, &str)])]) -> Output {
        let mut script = SHELL.to_owned();
        for (block, own) in blocks {
            script += self.adapted(block, own).strip_prefix("sh\n").unwrap();
            script += "\necho \"=== $?\"\n";
        }
        let mut second = self.terminal(&script);
        second.env("QUOTALOG_URL", format!("http://{}", server.address));
        second.output().unwrap()
    }

    fn program(&self, name: &str, script: &str) {
        let file = self.folder.join("bin").join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// The first terminal, in which a server is made and started.
    fn serve(&self, block: &str) -> Server {
        let own = [
            ("cargo build --release", ":"),
            ("quotalog serve", "exec quotalog serve"),
        ];
        let block = self.adapted(block.strip_prefix("sh\n").unwrap(), &own);
        let mut first = self.terminal(&block);
        first.env("QUOTALOG_LISTEN", "127.0.0.1:0");
        let log = std::fs::File::create(self.folder.join("quotalog.log"));
        first.stderr(log.unwrap());
        Server::start(in_a_morning(&mut first))
    }

    /// Starts an nginx, and makes it what `nginx` means in a terminal.
    async fn nginx(&self, program: &str) -> Nginx {
        let folder = self.folder.display();
        let paths = nginx_paths(self.folder);
        // As Debian has it; where nobody is root, it has no say.
        let config = format!(
            "user www-data;\npid {folder}/nginx.pid;\nerror_log {folder}/nginx.log;\nevents {{}}\n\
             http {{\naccess_log off;\n{paths}include {folder}/nginx/conf.d/*.conf;\n}}\n"
        );
        std::fs::write(self.folder.join("nginx.conf"), config).unwrap();
        // That of the system, and not this one again.
        let path = std::env::var("PATH").unwrap_or_default();
        let run = format!(
            "PATH='{path}'\nexec {program} -c {folder}/nginx.conf -e {folder}/nginx.log \"$@\""
        );
        self.program("nginx", &run);
        let mut nginx = Command::new(self.folder.join("bin/nginx"));
        nginx.args(["-g", "daemon off;"]).stdin(Stdio::null());
        let mut nginx = Nginx(nginx.spawn().unwrap());
        until("nginx runs", async || {
            assert_eq!(nginx.0.try_wait().unwrap(), None);
            let pid = std::fs::read_to_string(self.folder.join("nginx.pid"));
            pid.is_ok_and(|pid| !pid.is_empty())
        })
        .await;
        nginx
    }
}

/// Two ports that no test is given by the system: they lie below those that it gives.
fn ports() -> (u16, u16) {
    // Another run of the tests begins elsewhere.
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let mut free = (first..32_000).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    (free.next().unwrap(), free.next().unwrap())
}

/// The folders of the repository that the page names, and those of the system.
fn lay_out(folder: &Path, changes: &[(&'static str, String)]) {
    // Debian's nginx works as another user.
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["bin", "deploy", "nginx/conf.d"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    for name in ["clients", "docs"] {
        symlink(Path::new(ROOT).join(name), folder.join(name)).unwrap();
    }
    let mut config = std::fs::read_to_string(format!("{ROOT}/deploy/nginx.conf")).unwrap();
    for (printed, other) in changes {
        config = config.replace(printed, other);
    }
    std::fs::write(folder.join("deploy/nginx.conf"), config).unwrap();
}

#[tokio::test]
async fn the_quickstart_does_what_it_says() {
    let (Some(nginx), Some(python)) = (nginx(), *PYTHON) else {
        return skipped("there is no nginx, or no Python that has requests");
    };
    let page = std::fs::read_to_string(format!("{ROOT}/docs/quickstart.md")).unwrap();
    let blocks = blocks(&page);
    let [
        start,
        token,
        alice,
        service,
        curl,
        consume,
        refund,
        endpoint,
        ask,
        files,
        proxy,
    ] = blocks[..]
    else {
        panic!("another number of blocks: {}", blocks.len());
    };
    let folder = tempfile::tempdir().unwrap();
    let (own, proxied) = ports();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_quotalog"));
    let program = program.parent().unwrap().display();
    let mut clone = Clone {
        folder: folder.path(),
        changes: vec![
            // First what might stand in the others by chance.
            ("8080", own.to_string()),
            ("10000", proxied.to_string()),
            ("$PWD/target/release", program.to_string()),
            ("/etc/nginx", format!("{}/nginx", folder.path().display())),
        ],
    };

    let server = clone.serve(start);
    assert!(page.contains("It says `quotalog listens on http://127.0.0.1:8200`"));
    assert!(page.contains("keeps its data in `./quotalog.db`"));
    assert!(folder.path().join("quotalog.db").exists());

    clone
        .changes
        .push(("127.0.0.1:8200", server.address.to_string()));
    lay_out(folder.path(), &clone.changes);
    clone.program("sudo", "exec \"$@\"");
    let _nginx = clone.nginx(nginx).await;
    let file = clone.adapted(endpoint.strip_prefix("python\n").unwrap(), &[]);
    std::fs::write(folder.path().join("endpoint.py"), file).unwrap();

    // With what is in the text as a block of its own.
    assert!(page.contains("Stop it with `kill %1`."));
    let python = format!("{python} endpoint.py");
    let (listens, listens_too) = (format!("listens {own}"), format!("listens {proxied}"));
    let files_listen = format!("docs &\n{listens}");
    let ask_changes = [("python3 endpoint.py", &*python), ("sleep 1", &*listens)];
    let output = clone.run(
        &server,
        &[
            (token, &[][..]),
            (alice, &[]),
            (service, &[]),
            (curl, &[]),
            (consume, &[]),
            (refund, &[]),
            (ask, &ask_changes),
            ("sh\nkill %1; wait %1", &[]),
            (files, &[("docs &", &*files_listen)]),
            (proxy, &[("sleep 1", &*listens_too)]),
        ],
    );
    let said = String::from_utf8(output.stdout).unwrap();
    let noticed = String::from_utf8_lossy(&output.stderr);
    says_what_the_page_says(&said, &format!("{said}\n{noticed}"));
}

/// Waits in bounded time for who listens on a port, and ends with all that it started.
const SHELL: &str = r#"
trap 'kill $(jobs -p)' EXIT
listens() {
  for _ in {1..1200}; do
    (: < "/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
    sleep 0.05
  done
  exit 1
}
"#;

fn says_what_the_page_says(said: &str, all: &str) {
    let said: Vec<_> = said.split("=== ").collect();
    let [
        _token,
        alice,
        service,
        curl,
        consume,
        refund,
        ask,
        stop,
        files,
        proxy,
        end,
    ] = said[..]
    else {
        panic!("{all}");
    };
    // What a block says comes before its status, which stands at the beginning of the next part.
    for part in [alice, service, curl, consume, refund, ask, stop, proxy, end] {
        assert!(part.starts_with("0\n"), "{part}\nof\n{all}");
    }
    // That it was stopped by a signal.
    assert!(files.starts_with("143\n"), "{all}");
    assert!(curl.contains("HTTP/1.1 200 OK"), "{all}");
    assert!(curl.contains(r#""usage":1,"remaining":4"#), "{all}");
    assert!(consume.ends_with("\n3\n"), "{all}");
    assert!(refund.contains("alice") && refund.contains("bob"), "{all}");
    let (granted, denied) = ask.split_once("HTTP/1.0 429 ").expect(all);
    assert!(granted.contains("HTTP/1.0 200 OK") && granted.ends_with("hello bob, 0 left\n"));
    assert!(denied.contains("Retry-After: ") && denied.contains("come back at 2"));
    let lines: Vec<_> = proxy.lines().skip(1).collect();
    let (last, granted) = lines.split_last().expect(all);
    let granted = granted.iter().filter(|line| **line == "HTTP/1.1 200 OK");
    assert_eq!(granted.count(), 5, "{all}");
    assert_eq!(*last, "HTTP/1.1 429 Too Many Requests", "{all}");
}
