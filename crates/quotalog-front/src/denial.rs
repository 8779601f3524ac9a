//! The problem document of a denial (RFC 9457): the units do not fit into what is left.

use quotalog_domain::{Quota, Window};
use serde::Serialize;

use crate::quota_body::{JSON_BYTES_USUAL, QuotaBody};

/// The media type of the document.
pub const MEDIA_TYPE: &str = "application/problem+json";
/// The registered type of the problem, by draft-ietf-httpapi-ratelimit-headers-10.
pub const TYPE_URI: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The title of the problem.
pub const TITLE: &str = "Request cannot be satisfied as assigned quota has been exceeded";
const STATUS: u16 = 429;

/// What happened, in a sentence.
pub const DETAIL: &str =
    "The units do not fit into what is left of the window. Nothing was counted.";

/// One of several pairs that were asked for at once.
#[derive(Debug)]
pub struct DeniedPart<'a> {
    /// What was asked of it.
    pub amount: u64,
    /// Its quota, whose `allowed` tells whether it alone would have fitted; `None` where nothing limits it.
    pub quota: Option<&'a Quota>,
}

/// The document of a request for one pair, whose members stand beside those of the problem. `instance` is the path
/// of the request, as far as it is known.
#[must_use]
pub fn of_one(instance: Option<&str>, quota: &Quota) -> Vec<u8> {
    let mut document = written(&Document::new(instance, [quota], None));
    document.pop();
    document.push(b',');
    QuotaBody::from(quota).write_members(&mut document);
    document.push(b'}');
    document
}

/// The document of a request for several pairs at once, in the order of the request.
#[must_use]
pub fn of_several(instance: Option<&str>, parts: &[DeniedPart<'_>]) -> Vec<u8> {
    let items = parts.iter().map(ItemBody::from).collect();
    written(&Document::new(
        instance,
        parts.iter().filter_map(|part| part.quota),
        Some(items),
    ))
}

/// The seconds until every one of these quotas that was not allowed begins anew.
pub fn wait_s<'a>(quotas: impl IntoIterator<Item = &'a Quota>) -> u64 {
    let denied = quotas.into_iter().filter(|quota| !quota.allowed);
    denied.map(Quota::reset_in_s).max().unwrap_or(1)
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<Vec<ItemBody<'a>>>,
}

#[derive(Serialize)]
struct ItemBody<'a> {
    amount: u64,
    allowed: bool,
    quota: Option<QuotaBody<'a>>,
}

impl<'a> Document<'a> {
    fn new<'q>(
        instance: Option<&'a str>,
        quotas: impl IntoIterator<Item = &'q Quota>,
        items: Option<Vec<ItemBody<'a>>>,
    ) -> Self {
        let denied = quotas.into_iter().filter(|quota| !quota.allowed);
        let windows: Vec<Window> = denied.map(Quota::window).collect();
        let violated_policies = [Window::Hourly, Window::Daily].into_iter();
        Self {
            kind: TYPE_URI,
            title: TITLE,
            status: STATUS,
            detail: DETAIL,
            instance,
            violated_policies: violated_policies
                .filter(|window| windows.contains(window))
                .map(Window::as_str)
                .collect(),
            items,
        }
    }
}

impl<'a> From<&DeniedPart<'a>> for ItemBody<'a> {
    fn from(part: &DeniedPart<'a>) -> Self {
        Self {
            amount: part.amount,
            allowed: part.quota.is_none_or(|quota| quota.allowed),
            quota: part.quota.map(QuotaBody::from),
        }
    }
}

fn written(document: &Document<'_>) -> Vec<u8> {
    let mut json = Vec::with_capacity(2 * JSON_BYTES_USUAL);
    serde_json::to_writer(&mut json, document).expect("plain structs serialise into a vector");
    json
}
