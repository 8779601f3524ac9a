//! An answer, read whole.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{HeaderMap, StatusCode};
use serde_json::Value;

/// Status, headers and body of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn read<B>(response: hyper::Response<B>) -> Result<Self, B::Error>
    where
        B: hyper::body::Body,
    {
        let (parts, body) = response.into_parts();
        Ok(Self {
            status: StatusCode::as_u16(&parts.status),
            headers: parts.headers,
            body: body.collect().await?.to_bytes(),
        })
    }

    /// The body as JSON; null where there is none.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        if self.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    /// One header's value; fails if it comes twice.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        assert!(values.next().is_none(), "{name} comes twice");
        Some(value.to_str().expect("the header is text"))
    }

    /// Checks the status and, of a problem, everything that all problems have in common.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{text}");
        if status >= 400 && !self.body.is_empty() {
            assert_eq!(
                self.header("content-type"),
                Some("application/problem+json")
            );
            let problem = self.json();
            assert_eq!(problem["status"], status);
            for member in ["type", "title", "detail", "instance"] {
                assert!(problem[member].is_string(), "no {member} in {text}");
            }
            for inside in ["sqlite", "SELECT", "quotalog.db", ".rs:", "panicked"] {
                assert!(!text.contains(inside), "{text}");
            }
        }
        assert_eq!(
            self.headers.contains_key("retry-after"),
            matches!(status, 429 | 503)
        );
        self
    }

    /// Checks that this is a problem of `name`.
    #[track_caller]
    pub(crate) fn problem(self, status: u16, name: &str) -> Self {
        let answer = self.is(status);
        let kind = answer.json()["type"].as_str().map(str::to_owned);
        let expected = match name {
            "quota-exceeded" => {
                "https://iana.org/assignments/http-problem-types#quota-exceeded".to_owned()
            }
            name => format!("/problems/{name}"),
        };
        assert_eq!(kind.as_deref(), Some(&*expected));
        answer
    }

    /// Checks that this is a 422 with just these faults, each as `field code`, in any order.
    #[track_caller]
    pub(crate) fn faults(self, expected: &[&str]) -> Self {
        let answer = self.problem(422, "validation-failed");
        let problem = answer.json();
        let errors = problem["errors"].as_array().expect("errors are listed");
        let mut faults: Vec<String> = errors
            .iter()
            .map(|error| {
                assert!(
                    error["message"]
                        .as_str()
                        .is_some_and(|text| !text.is_empty())
                );
                let text = |member: &str| error[member].as_str().unwrap_or("?").to_owned();
                format!("{} {}", text("field"), text("code"))
            })
            .collect();
        faults.sort();
        let mut expected: Vec<_> = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(faults, expected);
        answer
    }

    #[track_caller]
    pub(crate) fn usage(&self) -> u64 {
        self.json()["usage"].as_u64().expect("a usage")
    }

    #[track_caller]
    pub(crate) fn remaining(&self) -> u64 {
        self.json()["remaining"].as_u64().expect("a remaining")
    }

    /// The start of the quota's window.
    #[track_caller]
    pub(crate) fn window_start(&self) -> String {
        self.json()["window_start"]
            .as_str()
            .expect("a window")
            .to_owned()
    }
}
