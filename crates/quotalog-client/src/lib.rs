//! A client of [quotalog](https://docs.rs/quotalog), the quota server: typed, async, for any program on tokio.
//!
//! ```no_run
//! use quotalog_client::{Client, Error};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("http://127.0.0.1:8200")
//!     .token(std::env::var("QUOTALOG_TOKEN")?)
//!     .build()?;
//! match client.consume("alice", "api-calls").send().await {
//!     Ok(_grant) => println!("go on"),
//!     Err(Error::Exhausted(exhausted)) => println!("{exhausted}"),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Retries
//!
//! A call is sent again after a broken connection, after `unavailable` and after `outcome-unknown`, with pauses
//! that double and are cut by chance, as `Retry-After` asks, until its [deadline](Builder::deadline). A 500, and
//! what a proxy says in the server's place, may have come after a change took effect: its outcome is unknown
//! too. What counts
//! carries one idempotency key through all attempts, made for the call or
//! [the caller's](Consume::idempotency_key), so that it counts once. A 429 is an answer and never repeated, nor is
//! anything else that the server has decided. What knows no key is repeated only where twice is as good as once.
//! `docs/clients.md` of the repository has what becomes of each answer.
//!
//! # When the server cannot be asked
//!
//! [`OnOutage`] says what a consume is answered then: the error, or [`Grant::LetThrough`]. A program that fails
//! open wants a short deadline, since every request waits for it.
//!
//! # In front of a service
//!
//! With the feature `tower` there is `QuotaLayer`, which asks for units before a request of HTTP or gRPC gets
//! through to any service, such as axum's or tonic's.
//!
//! # What it does not do
//!
//! It follows no redirects, which would carry the token elsewhere, and heeds no proxy variables.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

mod admin;
mod answer;
mod client;
mod connect;
mod error;
#[cfg(feature = "tower")]
mod layer;
mod pages;
mod path;
mod quota;
mod ratelimit;
mod request;
mod retry;
mod wire;

pub use admin::{Audit, DeletePolicy, Quotas, SetPolicy};
pub use answer::{Counted, CountedBatch, FromAnswer};
pub use client::{BuildError, Builder, Client, OnOutage};
pub use error::{DeniedItem, Error, Exhausted, FieldError, Problem};
#[cfg(feature = "tower")]
pub use layer::{Ask, LayerBody, QuotaLayer, QuotaService};
pub use pages::Pages;
pub use quota::{Consume, ConsumeBatch, Grant, Refund, Reset, Usage};
pub use ratelimit::RateLimitFields;
pub use request::Request;
pub use wire::{
    Actor, AuditEntry, CreatedToken, DefaultPolicy, Item, NewToken, Policy, Quota, Role, Source,
    Token, UsageRow, Window,
};
