//! From an outcome to the message that answers a call.

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit, rate_limit::Unit,
};
use envoy_types::pb::google::protobuf::Duration;
use quotalog_domain::{Quota, Window};
use quotalog_front::denial::{self, DeniedPart};
use quotalog_front::ratelimit;
use tonic::Response;

/// Marks the answer of a call that does not fit, for whoever counts the calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverLimit;

/// The answer to a call whose units are counted; `quotas` are those of its descriptors.
pub(crate) fn granted(quotas: &[Option<Quota>]) -> Response<RateLimitResponse> {
    Response::new(message(Code::Ok, quotas))
}

/// The answer to a call that does not fit. `units` are what the descriptors asked for.
pub(crate) fn denied(units: &[u64], quotas: &[Option<Quota>]) -> Response<RateLimitResponse> {
    let mut message = message(Code::OverLimit, quotas);
    let wait_s = denial::wait_s(quotas.iter().flatten());
    message.raw_body = document(units, quotas);
    message
        .response_headers_to_add
        .push(field(ratelimit::RETRY_AFTER, wait_s.to_string()));
    message
        .response_headers_to_add
        .push(field("content-type", denial::MEDIA_TYPE));
    let mut response = Response::new(message);
    response.extensions_mut().insert(OverLimit);
    response
}

fn message(overall: Code, quotas: &[Option<Quota>]) -> RateLimitResponse {
    RateLimitResponse {
        overall_code: overall.into(),
        statuses: quotas.iter().map(|quota| status(quota.as_ref())).collect(),
        response_headers_to_add: only_one(quotas).map(fields).unwrap_or_default(),
        ..RateLimitResponse::default()
    }
}

fn status(quota: Option<&Quota>) -> DescriptorStatus {
    let Some(quota) = quota else {
        return DescriptorStatus {
            code: Code::Ok.into(),
            ..DescriptorStatus::default()
        };
    };
    let code = if quota.allowed {
        Code::Ok
    } else {
        Code::OverLimit
    };
    let unit = match quota.window() {
        Window::Hourly => Unit::Hour,
        Window::Daily => Unit::Day,
    };
    DescriptorStatus {
        code: code.into(),
        current_limit: Some(RateLimit {
            name: quota.window().as_str().to_owned(),
            requests_per_unit: clamped(quota.limit().get()),
            unit: unit.into(),
        }),
        limit_remaining: clamped(quota.remaining()),
        duration_until_reset: Some(Duration {
            seconds: i64::try_from(quota.reset_in_s()).unwrap_or(i64::MAX),
            nanos: 0,
        }),
        quota: None,
    }
}

/// A limit of an older store may lie above what the message can hold.
fn clamped(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// The quota of a call that asks for one pair alone: only that can be told in fields of which each stands once.
fn only_one(quotas: &[Option<Quota>]) -> Option<&Quota> {
    let (first, others) = quotas.split_first()?;
    let first = first.as_ref()?;
    let is_of_the_pair = |other: &Option<Quota>| {
        let other = other.as_ref();
        other.is_some_and(|other| other.pair == first.pair)
    };
    others.iter().all(is_of_the_pair).then_some(first)
}

fn fields(quota: &Quota) -> Vec<HeaderValue> {
    let values = ratelimit::NAMES.into_iter().zip(ratelimit::values(quota));
    values
        .map(|(name, value)| field(name, String::from_utf8_lossy(&value)))
        .collect()
}

fn field(name: &str, value: impl Into<String>) -> HeaderValue {
    HeaderValue {
        key: name.to_owned(),
        value: value.into(),
        raw_value: Vec::new(),
    }
}

fn document(units: &[u64], quotas: &[Option<Quota>]) -> Vec<u8> {
    if let Some(quota) = only_one(quotas) {
        return denial::of_one(None, quota);
    }
    let parts = units.iter().zip(quotas).map(|(units, quota)| DeniedPart {
        amount: *units,
        quota: quota.as_ref(),
    });
    denial::of_several(None, &parts.collect::<Vec<_>>())
}
