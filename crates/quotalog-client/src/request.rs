//! One call: its attempts, and what becomes of it.

use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, IF_MATCH, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::answer::{Answer, FromAnswer};
use crate::client::Client;
use crate::error::{BoxError, Error};
use crate::path::{Path, add_parameter};
use crate::retry::Backoff;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The largest answer that is read; a page of 1000 quotas with the longest ids is a fifth of it.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A call that is yet to be sent, and will be answered with a `T`.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is sent"]
pub struct Request<T> {
    call: Call,
    answer: PhantomData<fn() -> T>,
}

/// What is sent, whatever its answer is read as.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    client: Client,
    method: Method,
    path: Path,
    query: String,
    body: Option<Bytes>,
    key: Key,
    if_match: Option<String>,
}

/// What a repetition of the call would be under.
#[derive(Debug, Clone)]
enum Key {
    /// Nothing: the route knows no key.
    None,
    /// One made for this call.
    Made,
    /// The caller's.
    Given(String),
}

impl<T> Request<T> {
    pub(crate) fn new(client: &Client, method: Method, path: Path) -> Self {
        Self {
            call: Call {
                client: client.clone(),
                method,
                path,
                query: String::new(),
                body: None,
                key: Key::None,
                if_match: None,
            },
            answer: PhantomData,
        }
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        let json = serde_json::to_vec(body).expect("plain structs serialise into a vector");
        self.call.body = Some(Bytes::from(json));
        self
    }

    /// Adds a parameter to the query.
    pub(crate) fn parameter(mut self, name: &str, value: &str) -> Self {
        add_parameter(&mut self.call.query, name, value);
        self
    }

    /// The route knows idempotency keys; one is made unless the caller gives theirs.
    pub(crate) fn keyed(mut self) -> Self {
        self.call.key = Key::Made;
        self
    }

    pub(crate) fn key(mut self, key: String) -> Self {
        self.call.key = Key::Given(key);
        self
    }

    pub(crate) fn if_match(mut self, etag: String) -> Self {
        self.call.if_match = Some(etag);
        self
    }

    pub(crate) fn client(&self) -> &Client {
        &self.call.client
    }

    /// The same call, to be answered with something else.
    pub(crate) fn answered_with<U>(self) -> Request<U> {
        Request {
            call: self.call,
            answer: PhantomData,
        }
    }
}

impl<T: FromAnswer> Request<T> {
    /// Sends it, again and again where that is safe, until it is answered or its deadline has come.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send(self) -> Result<T, Error> {
        self.call.send(Answer::read::<T>).await
    }

    /// The same, but the answer's JSON as the server wrote it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send_raw(self) -> Result<Box<RawValue>, Error> {
        let read = |answer: &Answer| {
            answer.read::<T>()?;
            answer.raw()
        };
        self.call.send(read).await
    }
}

impl Call {
    async fn send<T>(self, read: impl Fn(&Answer) -> Result<T, Error>) -> Result<T, Error> {
        let patience = self.client.patience;
        let request = self.prepare()?;
        let until = Instant::now().checked_add(patience.deadline);
        let left = || match until {
            Some(until) => until.saturating_duration_since(Instant::now()),
            // So far away that no clock reaches it.
            None => Duration::MAX,
        };
        let mut backoff = Backoff::new();
        let mut may_have_counted = false;
        let mut attempts = 0_u32;
        loop {
            let time = patience.attempt_timeout.min(left());
            let answer = match self.attempt(request.clone(), time).await {
                // An attempt before this one has removed it.
                Err(Error::NotFound(_)) if may_have_counted && self.method == Method::DELETE => {
                    Ok(Answer::nothing())
                }
                answer => answer,
            };
            let failure = match answer.and_then(|answer| read(&answer)) {
                Ok(read) => return Ok(read),
                Err(failure) => failure,
            };
            attempts = attempts.saturating_add(1);
            if may_have_counted && failure.settles_a_key() {
                return Err(failure);
            }
            let again = match &failure {
                Error::Transport(_) | Error::Unavailable { .. } => true,
                Error::OutcomeUnknown { .. } => {
                    may_have_counted = true;
                    self.may_be_repeated()
                }
                Error::Exhausted(_)
                | Error::NotFound(_)
                | Error::Unauthorized(_)
                | Error::Forbidden(_)
                | Error::Invalid { .. }
                | Error::Mismatch(_)
                | Error::Precondition(_)
                | Error::Internal(_)
                | Error::Unexpected { .. } => false,
            };
            let pause = backoff.next(failure.retry_after());
            if !again || attempts >= patience.attempts_max || pause >= left() {
                return Err(if may_have_counted {
                    failure.after_an_unknown_outcome()
                } else {
                    failure
                });
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(
        &self,
        request: http::Request<Full<Bytes>>,
        time: Duration,
    ) -> Result<Answer, Error> {
        let exchange = async {
            let response = self.client.shared.connections.request(request).await;
            let response = response.map_err(|error| {
                if error.is_connect() {
                    Error::Transport(error.into())
                } else {
                    self.unanswered(error)
                }
            })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            Ok(Answer {
                status: head.status,
                headers: head.headers,
                body: body.map_err(|error| self.unanswered(error))?.to_bytes(),
            })
        };
        // Boxed, since it is large and lies in every future of a caller.
        let answer = match tokio::time::timeout(time, Box::pin(exchange)).await {
            Ok(answer) => answer?,
            Err(_elapsed) => return Err(self.unanswered("no answer came in time")),
        };
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(Error::of_answer(&answer, self.changes()))
    }

    /// What it means that a request was perhaps sent, and no answer came.
    fn unanswered(&self, cause: impl Into<BoxError>) -> Error {
        if self.changes() {
            Error::OutcomeUnknown {
                cause: cause.into(),
                retry_after: None,
            }
        } else {
            Error::Transport(cause.into())
        }
    }

    fn changes(&self) -> bool {
        self.method != Method::GET
    }

    /// Whether sending it twice does what sending it once does.
    fn may_be_repeated(&self) -> bool {
        match self.key {
            Key::Made | Key::Given(_) => true,
            // What is set or removed twice is set or removed; unless somebody else's change in between is
            // what the condition would find.
            Key::None => self.method != Method::POST && self.if_match.is_none(),
        }
    }

    /// The request, the same for every attempt, its key included.
    fn prepare(&self) -> Result<http::Request<Full<Bytes>>, Error> {
        let shared = &self.client.shared;
        let url = format!("{}{}{}", shared.base, self.path.text()?, self.query);
        let uri: Uri = url
            .parse()
            .map_err(|_too_long| Error::invalid("path", "is too long."))?;
        let mut request = http::Request::new(Full::new(self.body.clone().unwrap_or_default()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, shared.user_agent.clone());
        if let Some(authorization) = &shared.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if self.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(etag) = &self.if_match {
            let value = HeaderValue::from_str(etag);
            let value = value.map_err(|_unfit| Error::invalid("If-Match", "must be an ETag."))?;
            headers.insert(IF_MATCH, value);
        }
        match &self.key {
            Key::None => {}
            Key::Made => {
                headers.insert(IDEMPOTENCY_KEY, new_key()?);
            }
            Key::Given(key) => {
                headers.insert(IDEMPOTENCY_KEY, given_key(key)?);
            }
        }
        Ok(request)
    }
}

impl Answer {
    fn nothing() -> Self {
        Self {
            status: StatusCode::NO_CONTENT,
            headers: http::HeaderMap::new(),
            body: Bytes::new(),
        }
    }
}

fn new_key() -> Result<HeaderValue, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::Transport(error.into()))?;
    let key = format!("{:032x}", u128::from_be_bytes(bytes));
    Ok(HeaderValue::from_str(&key).expect("hexadecimal digits are visible"))
}

/// A blank at an end would be lost on the way, and the key be another one.
fn given_key(key: &str) -> Result<HeaderValue, Error> {
    let unfit = || {
        let message = "must be 1 to 255 visible ASCII characters.";
        Error::invalid("Idempotency-Key", message)
    };
    if !(1..=255).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unfit());
    }
    HeaderValue::from_str(key).map_err(|_unfit| unfit())
}
