//! A load of rate-limit calls, for `scripts/bench-grpc`: so many calls at once over a few connections, as a proxy keeps
//! them, with messages that were encoded before. Prints what was answered and how long it took.
//!
//! ```text
//! load ADDRESS TOKEN PAIRS CONNECTIONS STREAMS SECONDS RATE
//! ```
//!
//! A rate of 0 is as fast as answers come. At another one, a call that could not be sent in time counts from when it
//! should have been sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The first byte of the message's first field, the verdict in all, and what it is where the units are counted.
const GRANTED: &[u8] = &[0x08, 1];

struct Plan {
    head: Request<()>,
    messages: Vec<Bytes>,
    ends_at: Instant,
    /// Between two calls of one stream; zero for as fast as answers come.
    interval: Duration,
}

/// What one stream after another of one place was answered.
#[derive(Default)]
struct Tally {
    took_us: Vec<u64>,
    refused: u64,
    failed: u64,
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, token, numbers @ ..] = &*arguments else {
        return Err("see the head of examples/load.rs for the arguments".into());
    };
    let numbers: Vec<u32> = numbers
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    let [pairs, connections, streams, seconds, rate] = numbers[..] else {
        return Err("five numbers are needed".into());
    };
    let interval = match rate {
        0 => Duration::ZERO,
        _ => Duration::from_secs(1) * streams / rate,
    };
    let began_at = Instant::now();
    let plan = Arc::new(Plan {
        head: head(address, token)?,
        messages: (0..pairs).map(message).collect(),
        ends_at: began_at + Duration::from_secs(seconds.into()),
        interval,
    });

    let mut senders = Vec::new();
    for _ in 0..connections {
        senders.push(connect(address).await?);
    }
    let mut places = JoinSet::new();
    for (place, sender) in (0..streams).zip(senders.iter().cycle()) {
        places.spawn(call_again_and_again(
            Arc::clone(&plan),
            place,
            sender.clone(),
        ));
    }
    let mut all = Tally::default();
    while let Some(tally) = places.join_next().await {
        let tally = tally??;
        all.took_us.extend(tally.took_us);
        all.refused += tally.refused;
        all.failed += tally.failed;
    }
    report(all, began_at.elapsed());
    Ok(())
}

fn head(address: &str, token: &str) -> Fallible<Request<()>> {
    let method = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let request = Request::post(format!("http://{address}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", "5S")
        .header("authorization", format!("Bearer {token}"));
    Ok(request.body(())?)
}

/// One call for one unit of a user's, as it is sent.
fn message(user: u32) -> Bytes {
    let entry = Entry {
        key: "user_id".to_owned(),
        value: format!("user-{user}"),
    };
    let request = RateLimitRequest {
        domain: "api-calls".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![entry],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    };
    // Not compressed, and its length.
    let mut framed = vec![0];
    let length = u32::try_from(request.encoded_len()).unwrap_or(u32::MAX);
    framed.extend(length.to_be_bytes());
    framed.extend(request.encode_to_vec());
    framed.into()
}

async fn connect(address: &str) -> Fallible<SendRequest<Bytes>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("a connection broke: {error}");
        }
    });
    Ok(sender)
}

async fn call_again_and_again(
    plan: Arc<Plan>,
    place: u32,
    sender: SendRequest<Bytes>,
) -> Fallible<Tally> {
    let mut tally = Tally::default();
    let mut next = usize::try_from(place)?;
    // Not all at the same moment.
    let mut due_at = Instant::now() + plan.interval * place / 64;
    loop {
        if plan.interval.is_zero() {
            due_at = Instant::now();
        } else {
            tokio::time::sleep_until(due_at).await;
        }
        if due_at >= plan.ends_at {
            return Ok(tally);
        }
        // A step that shares no factor with the number of pairs meets all of them.
        next = (next + 7_919) % plan.messages.len();
        match call(&plan, sender.clone(), plan.messages[next].clone()).await? {
            Some(true) => {}
            Some(false) => tally.refused += 1,
            None => tally.failed += 1,
        }
        let took_us = due_at.elapsed().as_micros();
        tally.took_us.push(u64::try_from(took_us)?);
        due_at += plan.interval;
    }
}

/// Whether the units were counted; `None`, if the call failed.
async fn call(plan: &Plan, sender: SendRequest<Bytes>, message: Bytes) -> Fallible<Option<bool>> {
    let (answer, mut body) = sender
        .ready()
        .await?
        .send_request(plan.head.clone(), false)?;
    body.send_data(message, true)?;
    let mut answer = answer.await?;
    let mut verdict = Vec::new();
    let is_ok = |headers: &HeaderMap| headers.get("grpc-status").is_some_and(|code| code == "0");
    while let Some(data) = answer.body_mut().data().await {
        let data = data?;
        answer
            .body_mut()
            .flow_control()
            .release_capacity(data.len())?;
        verdict.extend_from_slice(&data);
    }
    let trailers = answer.body_mut().trailers().await?;
    let went_well = trailers.is_some_and(|trailers| is_ok(&trailers));
    // The verdict stands behind the five bytes of the frame.
    Ok((went_well && verdict.len() > 7).then(|| verdict[5..7] == *GRANTED))
}

#[expect(clippy::print_stdout, reason = "it is for the script that reads it")]
fn report(mut tally: Tally, took: Duration) {
    tally.took_us.sort_unstable();
    let len = tally.took_us.len();
    let part = |per_mille: usize| {
        let at = (len * per_mille / 1_000).min(len.saturating_sub(1));
        let us = tally.took_us.get(at).copied().unwrap_or_default();
        format!("{}.{:02}ms", us / 1_000, us % 1_000 / 10)
    };
    let rate = u128::try_from(len).unwrap_or_default() * 1_000 / took.as_millis().max(1);
    println!(
        "{rate} p50 {} p99 {} refused {} failed {}",
        part(500),
        part(990),
        tally.refused,
        tally.failed
    );
}
