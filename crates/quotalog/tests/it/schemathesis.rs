//! The real binary against its own OpenAPI document, by a tool of others that makes requests from it: sound ones,
//! unsound ones, and sequences of them. No answer may be a server error or other than the document says.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use hyper::Method;

use crate::support::described::document;
use crate::support::server::{ADMIN, Connection, Site, skipped};

/// The release of the tool, in Python's registry.
const RELEASE: &str = "4.32.5";

/// How long each of the two runs may go on making requests.
const RUN_S: &str = "75";

/// The same requests each time, as far as the answers are the same.
const SEED: &str = "1";

/// The tool in an environment of its own; `None`, where it cannot be had.
static PROGRAM: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("schemathesis-{RELEASE}"));
    let program = folder.join("bin/schemathesis");
    // The program is there before all that it needs is, so the end of the installation is marked.
    let mark = folder.join("is-whole");
    if !mark.exists() {
        install(&folder).ok()?;
        std::fs::write(&mark, "").ok()?;
    }
    Some(program)
});

fn install(folder: &Path) -> io::Result<()> {
    let made = Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(folder)
        .stdin(Stdio::null())
        .status()?;
    let installed = made.success()
        && Command::new(folder.join("bin/python3"))
            .args(["-m", "pip", "install", "--quiet"])
            .arg(format!("schemathesis=={RELEASE}"))
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
            .stdin(Stdio::null())
            .status()?
            .success();
    if installed {
        Ok(())
    } else {
        Err(io::Error::other("there is no such environment"))
    }
}

fn run(program: &Path, site: &Site, url: &str, token: &str) -> Output {
    let settings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemathesis");
    // From the file, since the tool leaves out the route that it gets its description from.
    let document = settings.join("../../../../docs/openapi.json");
    Command::new(program)
        .arg("--config-file")
        .arg(settings.join("schemathesis.toml"))
        .arg("run")
        .arg(document)
        .args(["--url", url, "--checks", "all", "--continue-on-failure"])
        .args(["--seed", SEED, "--max-time", RUN_S])
        .args(["--generation-database", "none"])
        // A thread more, and Python 3.11 may fail by itself (python/cpython#106905).
        .args(["--workers", "1", "--no-color"])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .current_dir(site.folder.path())
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", settings)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[track_caller]
fn program() -> Option<&'static Path> {
    let program = PROGRAM.as_deref();
    if program.is_none() {
        skipped(
            "schemathesis cannot be had: it needs python3-venv and python3-pip, and comes from Python's registry",
        );
    }
    program
}

/// Makes requests with a token of these arguments, else with the admin's.
async fn check(token: Option<&[&str]>) {
    let Some(program) = program() else {
        return;
    };
    let site = Site::new();
    let server = site.serve();
    let token = token.map_or(ADMIN.to_owned(), |arguments| site.token(arguments));
    let mut connection = Connection::open(server.address).await.unwrap();
    // What the examples of the document speak of, so that they count something.
    for path in ["/quotas/alice/api-calls", "/defaults/exports"] {
        let body = r#"{"window":"daily","limit_count":1000000}"#;
        let set = connection.call(Method::PUT, path, ADMIN, body).await;
        set.unwrap().is(200);
    }
    let url = format!("http://{}", server.address);
    let output = run(program, &site, &url, &token);
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{wrong}");
    let paths = document()["paths"].as_object().unwrap().values();
    let operations: usize = paths.map(|path| path.as_object().unwrap().len()).sum();
    let all = format!("Tested: {operations}");
    assert!(said.contains(&all), "not all of {operations}: {said}");
    // No answer was cut off by a fault either.
    let log = site.log();
    assert!(!log.contains("ERROR"), "{log}");
    drop(server);
}

#[tokio::test]
async fn an_admin_is_answered_as_the_document_says() {
    check(None).await;
}

#[tokio::test]
async fn a_user_is_answered_as_the_document_says() {
    check(Some(&["--role", "user", "--user-id", "alice"])).await;
}
