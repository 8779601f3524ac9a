//! The shapes of answers in JSON. The domain's types know nothing of them.

use quotalog_auth::TokenRecord;
use quotalog_domain::{DefaultPolicy, Quota, Resource, UserId};
pub(crate) use quotalog_front::{JSON_BYTES_USUAL, QuotaBody};
use quotalog_ledger::store::{AuditEntry, Fact, Facts, UsageEntry};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::instant::Instant;

/// The default of a resource.
#[derive(Debug, serde::Serialize)]
pub(crate) struct DefaultBody<'a> {
    resource: &'a str,
    window: &'static str,
    limit_count: u64,
    created_at: Instant,
    updated_at: Instant,
}

/// A page of one user's quotas.
#[derive(Debug, serde::Serialize)]
pub(crate) struct UserQuotasBody<'a> {
    pub(crate) user_id: &'a str,
    pub(crate) quotas: Vec<QuotaBody<'a>>,
    pub(crate) next_cursor: Option<String>,
}

/// A page of all users' quotas.
#[derive(Debug, serde::Serialize)]
pub(crate) struct QuotasBody<'a> {
    pub(crate) quotas: Vec<QuotaBody<'a>>,
    pub(crate) next_cursor: Option<String>,
}

/// A page of a pair's usage rows.
#[derive(Debug, serde::Serialize)]
pub(crate) struct UsageBody<'a> {
    pub(crate) user_id: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) windows: Vec<UsageRowBody>,
    pub(crate) next_cursor: Option<String>,
}

/// A usage row.
#[derive(Debug, serde::Serialize)]
pub(crate) struct UsageRowBody {
    window_start: Instant,
    usage: u64,
}

/// A page of defaults.
#[derive(Debug, serde::Serialize)]
pub(crate) struct DefaultsBody<'a> {
    pub(crate) defaults: Vec<DefaultBody<'a>>,
    pub(crate) next_cursor: Option<String>,
}

/// A page of the audit.
#[derive(Debug, serde::Serialize)]
pub(crate) struct AuditBody<'a> {
    pub(crate) entries: Vec<AuditEntryBody<'a>>,
    pub(crate) next_cursor: Option<String>,
}

/// An entry of the audit.
#[derive(Debug, serde::Serialize)]
pub(crate) struct AuditEntryBody<'a> {
    id: i64,
    at: Instant,
    actor: ActorBody<'a>,
    action: &'static str,
    user_id: Option<&'a str>,
    resource: Option<&'a str>,
    before: Option<FactsBody<'a>>,
    after: Option<FactsBody<'a>>,
}

/// Who did it.
#[derive(Debug, serde::Serialize)]
struct ActorBody<'a> {
    kind: &'static str,
    id: &'a str,
    name: Option<&'a str>,
}

/// What a thing was, as an object.
#[derive(Debug)]
struct FactsBody<'a>(&'a Facts);

/// A token; its secret only in the answer to its making.
#[derive(Debug, serde::Serialize)]
pub(crate) struct TokenBody<'a> {
    id: &'a str,
    role: &'static str,
    user_id: Option<&'a str>,
    name: Option<&'a str>,
    created_at: Instant,
    expires_at: Option<Instant>,
}

/// A new token with its secret.
#[derive(serde::Serialize)]
pub(crate) struct NewTokenBody<'a> {
    #[serde(flatten)]
    pub(crate) record: TokenBody<'a>,
    pub(crate) token: &'a str,
}

/// A page of tokens.
#[derive(Debug, serde::Serialize)]
pub(crate) struct TokensBody<'a> {
    pub(crate) tokens: Vec<TokenBody<'a>>,
    pub(crate) next_cursor: Option<String>,
}

/// The body of a batch: its quotas, item by item.
pub(crate) fn batch(quotas: &[Quota]) -> Vec<u8> {
    let mut json = Vec::with_capacity(quotas.len().saturating_mul(JSON_BYTES_USUAL));
    json.extend_from_slice(b"{\"quotas\":[");
    for (position, quota) in quotas.iter().enumerate() {
        if position > 0 {
            json.push(b',');
        }
        QuotaBody::from(quota).write(&mut json);
    }
    json.extend_from_slice(b"]}");
    json
}

impl<'a> From<&'a DefaultPolicy> for DefaultBody<'a> {
    fn from(default: &'a DefaultPolicy) -> Self {
        Self {
            resource: default.resource.as_str(),
            window: default.policy.window.as_str(),
            limit_count: default.policy.limit.get(),
            created_at: Instant(default.policy.created_at),
            updated_at: Instant(default.policy.updated_at),
        }
    }
}

impl<'a> From<&'a TokenRecord> for TokenBody<'a> {
    fn from(token: &'a TokenRecord) -> Self {
        Self {
            id: token.id.as_str(),
            role: token.role.kind().as_str(),
            user_id: token.user_id().map(UserId::as_str),
            name: token.name.as_ref().map(quotalog_auth::TokenName::as_str),
            created_at: Instant(token.created_at),
            expires_at: token.expires_at.map(Instant),
        }
    }
}

impl From<&UsageEntry> for UsageRowBody {
    fn from(row: &UsageEntry) -> Self {
        Self {
            window_start: Instant(row.window_start),
            usage: row.usage,
        }
    }
}

impl<'a> From<&'a AuditEntry> for AuditEntryBody<'a> {
    fn from(entry: &'a AuditEntry) -> Self {
        Self {
            id: entry.id.0,
            at: Instant(entry.at),
            actor: ActorBody {
                kind: entry.actor.kind.as_str(),
                id: &entry.actor.id,
                name: entry.actor.name.as_deref(),
            },
            action: entry.action.as_str(),
            user_id: entry.user_id.as_ref().map(UserId::as_str),
            resource: entry.resource.as_ref().map(Resource::as_str),
            before: entry.before.as_ref().map(FactsBody),
            after: entry.after.as_ref().map(FactsBody),
        }
    }
}

impl Serialize for FactsBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (name, fact) in self.0.iter() {
            match fact {
                Fact::Text(text) => object.serialize_entry(name, text)?,
                Fact::Texts(texts) => object.serialize_entry(name, texts)?,
                Fact::Number(number) => object.serialize_entry(name, number)?,
                Fact::Null => object.serialize_entry(name, &())?,
            }
        }
        object.end()
    }
}
