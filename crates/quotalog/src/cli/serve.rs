//! `quotalog serve`.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::app;
use crate::config::{self, Connections, Database};
use crate::jwt;

use super::{DatabaseArgument, RetentionArguments};

/// How clients connect, and for how long they may keep a connection for nothing.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connections")]
struct ConnectionArguments {
    /// The server's certificate and those of its issuers, in PEM; then the server speaks TLS alone. Read
    /// again when it changes, and on SIGHUP.
    #[arg(long, env = "QUOTALOG_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM.
    #[arg(long, env = "QUOTALOG_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// How long a client may take for the head of a request once it has begun it, and for a TLS handshake.
    #[arg(
        long,
        env = "QUOTALOG_HEAD_TIMEOUT",
        value_name = "DURATION",
        default_value = "10s"
    )]
    head_timeout: String,
    /// How long a connection may idle before a request.
    #[arg(
        long,
        env = "QUOTALOG_IDLE_TIMEOUT",
        value_name = "DURATION",
        default_value = "75s"
    )]
    idle_timeout: String,
    /// The most connections at once. One more takes the place of the one that has waited for its client the
    /// longest.
    #[arg(
        long,
        env = "QUOTALOG_CONNECTIONS_MAX",
        value_name = "N",
        default_value_t = 10_000,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..)
    )]
    connections_max: usize,
}

/// How many connections to the database there are, where it is PostgreSQL.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "PostgreSQL")]
struct LaneArguments {
    /// The most connections that count, each with one batch at a time.
    #[arg(
        long,
        env = "QUOTALOG_DATABASE_LANES",
        value_name = "N",
        default_value_t = 3,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100)
    )]
    database_lanes: usize,
    /// The most connections for all else: checks, lists, tokens, pruning.
    #[arg(
        long,
        env = "QUOTALOG_DATABASE_READERS",
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100)
    )]
    database_readers: usize,
}

/// The service that Envoy and other proxies ask over gRPC.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Rate-limit service for Envoy")]
struct RlsArguments {
    /// The address and port for Envoy's rate-limit service, gRPC with the same TLS [default: no such service].
    #[arg(long, env = "QUOTALOG_RLS_LISTEN", value_name = "ADDRESS")]
    rls_listen: Option<String>,
    /// The key of the descriptor entry that names the user.
    #[arg(
        long,
        env = "QUOTALOG_RLS_USER_KEY",
        value_name = "KEY",
        default_value = "user_id"
    )]
    rls_user_key: String,
    /// The key of the descriptor entry that names the resource; without such an entry it is the domain.
    #[arg(
        long,
        env = "QUOTALOG_RLS_RESOURCE_KEY",
        value_name = "KEY",
        default_value = "resource"
    )]
    rls_resource_key: String,
}

/// Whose JWTs are believed: keys from one place, and whom the tokens must be for.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "JWTs")]
struct JwtArguments {
    /// A file with the secret of HS256, at least 32 bytes [default: no JWT is believed].
    #[arg(long, env = "QUOTALOG_JWT_SECRET_FILE", value_name = "FILE")]
    jwt_secret_file: Option<PathBuf>,
    /// A file with the issuer's public key in PEM: of RSA (RS256), of P-256 (ES256) or of Ed25519 (EdDSA).
    #[arg(long, env = "QUOTALOG_JWT_PUBLIC_KEY_FILE", value_name = "FILE")]
    jwt_public_key_file: Option<PathBuf>,
    /// The issuer's keys as a JWKS, which is read again from time to time. The URL must be https, or http on this
    /// machine.
    #[arg(
        long,
        env = "QUOTALOG_JWKS",
        value_name = "FILE|URL",
        hide_env_values = true
    )]
    jwks: Option<String>,
    /// Whom tokens must be for, their `aud`. Required with any of the above.
    #[arg(long, env = "QUOTALOG_JWT_AUDIENCE", value_name = "TEXT")]
    jwt_audience: Option<String>,
    /// Who must have issued them, their `iss`, to the letter [default: anybody with the key].
    #[arg(long, env = "QUOTALOG_JWT_ISSUER", value_name = "TEXT")]
    jwt_issuer: Option<String>,
    /// The claim that names a token's role: a name, or a JSON pointer such as /realm_access/roles
    /// [default: every token is a user's, whose id is its `sub`].
    #[arg(long, env = "QUOTALOG_JWT_ROLE_CLAIM", value_name = "CLAIM")]
    jwt_role_claim: Option<String>,
}

impl JwtArguments {
    fn check(&self) -> anyhow::Result<Option<quotalog_jwt::Settings>> {
        let variable = |name| std::env::var_os(name).map(OsStringExt::into_vec);
        jwt::settings(jwt::Given {
            secret: variable(jwt::SECRET),
            secret_file: self.jwt_secret_file.clone(),
            public_key: variable(jwt::PUBLIC_KEY),
            public_key_file: self.jwt_public_key_file.clone(),
            jwks: self.jwks.clone(),
            audience: self.jwt_audience.clone(),
            issuer: self.jwt_issuer.clone(),
            role_claim: self.jwt_role_claim.clone(),
        })
    }
}

/// What a person may say about the server.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The address and port to listen on; port 0 takes a free one and prints it.
    #[arg(
        long,
        env = "QUOTALOG_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8200"
    )]
    listen: String,
    /// Another address for GET /metrics alone, without a token; /metrics then leaves the first
    /// [default: an admin's token reads it beside the other routes].
    #[arg(long, env = "QUOTALOG_METRICS_LISTEN", value_name = "ADDRESS")]
    metrics_listen: Option<String>,
    /// An origin whose pages may use the server from a browser, such as `https://app.example`. May be given several
    /// times; in the variable, commas part them [default: none].
    #[arg(
        long,
        env = "QUOTALOG_CORS_ORIGIN",
        value_name = "ORIGIN",
        value_delimiter = ','
    )]
    cors_origin: Vec<String>,
    /// How many requests of one token are worked on at once; more wait for their turn.
    #[arg(
        long,
        env = "QUOTALOG_REQUESTS_PER_CALLER_MAX",
        value_name = "N",
        default_value_t = 512,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=65_536)
    )]
    requests_per_caller_max: usize,
    #[command(flatten)]
    database: DatabaseArgument,
    /// Where the admin token goes that a start makes if the database has no valid one, and standard output is
    /// no terminal
    /// [default: admin-token beside the SQLite file, else in the working directory].
    #[arg(long, env = "QUOTALOG_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    retention: RetentionArguments,
    /// On SIGTERM, how long /readyz says 503 while requests are still taken, so that a load balancer
    /// turns away first.
    #[arg(
        long,
        env = "QUOTALOG_SHUTDOWN_DELAY",
        value_name = "DURATION",
        default_value = "1s"
    )]
    shutdown_delay: String,
    /// After that, how long requests in flight may take to end.
    #[arg(
        long,
        env = "QUOTALOG_SHUTDOWN_DEADLINE",
        value_name = "DURATION",
        default_value = "30s"
    )]
    shutdown_deadline: String,
    #[command(flatten)]
    lanes: LaneArguments,
    #[command(flatten)]
    connections: ConnectionArguments,
    #[command(flatten)]
    jwt: JwtArguments,
    #[command(flatten)]
    rls: RlsArguments,
}

/// Runs the server until it is told to stop.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    app::run(checked(arguments)?)
}

/// The configuration that the arguments make.
pub(super) fn checked(arguments: &Arguments) -> anyhow::Result<config::Serve> {
    let database = Database::parse(&arguments.database.database)?;
    let token_file = arguments.token_file.clone();
    let connections = &arguments.connections;
    Ok(config::Serve {
        listen: config::listen("--listen", "QUOTALOG_LISTEN", &arguments.listen)?,
        metrics_listen: arguments
            .metrics_listen
            .as_ref()
            .map(|address| config::listen("--metrics-listen", "QUOTALOG_METRICS_LISTEN", address))
            .transpose()?,
        rate_limits: rate_limits(&arguments.rls)?,
        cors: config::cors(&arguments.cors_origin)?,
        requests_per_caller_max: arguments.requests_per_caller_max,
        tls: config::tls(connections.tls_cert.clone(), connections.tls_key.clone())?,
        head_timeout: config::wait(
            "--head-timeout",
            "QUOTALOG_HEAD_TIMEOUT",
            &connections.head_timeout,
        )?,
        idle_timeout: config::wait(
            "--idle-timeout",
            "QUOTALOG_IDLE_TIMEOUT",
            &connections.idle_timeout,
        )?,
        connections_max: connections.connections_max,
        token_file: token_file.unwrap_or_else(|| database.token_file()),
        database,
        database_connections: Connections {
            lanes: arguments.lanes.database_lanes,
            readers: arguments.lanes.database_readers,
            made_within: None,
        },
        admin_token: config::admin_token()?,
        jwt: arguments.jwt.check()?,
        retention: arguments.retention.check()?,
        shutdown_delay: config::seconds(
            "--shutdown-delay",
            "QUOTALOG_SHUTDOWN_DELAY",
            &arguments.shutdown_delay,
        )?,
        shutdown_deadline: config::seconds(
            "--shutdown-deadline",
            "QUOTALOG_SHUTDOWN_DEADLINE",
            &arguments.shutdown_deadline,
        )?,
    })
}

fn rate_limits(arguments: &RlsArguments) -> anyhow::Result<Option<config::RateLimits>> {
    let (user, resource) = (&arguments.rls_user_key, &arguments.rls_resource_key);
    let keys = config::rls_keys(user, resource)?;
    let Some(address) = &arguments.rls_listen else {
        return Ok(None);
    };
    let listen = config::listen("--rls-listen", "QUOTALOG_RLS_LISTEN", address)?;
    Ok(Some(config::RateLimits { listen, keys }))
}
