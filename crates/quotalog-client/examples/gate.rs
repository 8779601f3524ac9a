//! A small service of HTTP behind a quota: each request counts one unit of `api-calls` for the user that its
//! header `X-User` names.
//!
//! ```sh
//! quotalog serve &
//! export QUOTALOG_TOKEN=…   # of the role service
//! quotalog default set api-calls --hourly 5   # with an admin's token
//! cargo run -p quotalog-client --example gate --features tower
//! curl -i -H 'X-User: alice' http://127.0.0.1:8300/
//! ```

use std::time::Duration;

use axum::routing::get;
use axum::{Extension, Router};
use quotalog_client::{Ask, Client, OnOutage, Quota, QuotaLayer};

/// The service: what it does, and the quota in front of it.
pub(crate) fn app(client: Client) -> Router {
    let quota = QuotaLayer::new(client, |request| {
        // A request of nobody counts for "anonymous", rather than for nothing.
        let user = request.headers.get("x-user");
        let user = user.and_then(|user| std::str::from_utf8(user.as_bytes()).ok());
        Some(Ask::new(user.unwrap_or("anonymous"), "api-calls"))
    });
    let hello = async |quota: Option<Extension<Quota>>| match quota {
        Some(Extension(quota)) => format!("hello {}, {} left\n", quota.user_id, quota.remaining),
        None => "hello, whoever you are\n".to_owned(),
    };
    Router::new().route("/", get(hello)).layer(quota)
}

/// A client that would rather let a request through than keep it waiting.
pub(crate) fn client(url: &str, token: &str) -> Result<Client, quotalog_client::BuildError> {
    Client::builder(url)
        .token(token)
        .deadline(Duration::from_secs(1))
        .on_outage(OnOutage::FailOpen)
        .build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("QUOTALOG_URL").unwrap_or_else(|_| "http://127.0.0.1:8200".to_owned());
    let client = client(&url, &std::env::var("QUOTALOG_TOKEN")?)?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8300").await?;
    axum::serve(listener, app(client)).await?;
    Ok(())
}
