//! The shapes of answers in JSON. The domain's types know nothing of them.

use quotalog_auth::{Role, TokenRecord};
use quotalog_domain::{DefaultPolicy, Quota, Resource, UserId};
pub(crate) use quotalog_front::{JSON_BYTES_USUAL, QuotaBody};
use quotalog_ledger::store::{AuditEntry, Fact, Facts, UsageEntry};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use utoipa::ToSchema;

use crate::instant::Instant;
use crate::openapi::schemas;

/// The default of a resource.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = Default)]
pub(crate) struct DefaultBody<'a> {
    #[schema(value_type = schemas::Resource)]
    resource: &'a str,
    #[schema(value_type = schemas::Window)]
    window: &'static str,
    #[schema(minimum = 1)]
    limit_count: u64,
    #[schema(value_type = schemas::Instant)]
    created_at: Instant,
    #[schema(value_type = schemas::Instant)]
    updated_at: Instant,
}

/// A page of one user's quotas.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = UserQuotas)]
pub(crate) struct UserQuotasBody<'a> {
    #[schema(value_type = schemas::UserId)]
    pub(crate) user_id: &'a str,
    #[schema(value_type = Vec<schemas::Quota>)]
    pub(crate) quotas: Vec<QuotaBody<'a>>,
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// A page of all users' quotas.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = Quotas)]
pub(crate) struct QuotasBody<'a> {
    #[schema(value_type = Vec<schemas::Quota>)]
    pub(crate) quotas: Vec<QuotaBody<'a>>,
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// A page of a pair's usage rows.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = Usage)]
pub(crate) struct UsageBody<'a> {
    #[schema(value_type = schemas::UserId)]
    pub(crate) user_id: &'a str,
    #[schema(value_type = schemas::Resource)]
    pub(crate) resource: &'a str,
    pub(crate) windows: Vec<UsageRowBody>,
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// A usage row.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = UsageRow)]
pub(crate) struct UsageRowBody {
    #[schema(value_type = schemas::Instant)]
    window_start: Instant,
    usage: u64,
}

/// A page of defaults.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = Defaults)]
pub(crate) struct DefaultsBody<'a> {
    pub(crate) defaults: Vec<DefaultBody<'a>>,
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// A page of the audit.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = Audit)]
pub(crate) struct AuditBody<'a> {
    pub(crate) entries: Vec<AuditEntryBody<'a>>,
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// An entry of the audit.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct AuditEntryBody<'a> {
    id: i64,
    #[schema(value_type = schemas::Instant)]
    at: Instant,
    actor: ActorBody<'a>,
    #[schema(value_type = schemas::Action)]
    action: &'static str,
    #[schema(value_type = Option<schemas::UserId>, required)]
    user_id: Option<&'a str>,
    #[schema(value_type = Option<schemas::Resource>, required)]
    resource: Option<&'a str>,
    #[schema(schema_with = schemas::facts, required)]
    before: Option<FactsBody<'a>>,
    #[schema(schema_with = schemas::facts, required)]
    after: Option<FactsBody<'a>>,
}

/// Who did it.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = Actor)]
struct ActorBody<'a> {
    #[schema(value_type = schemas::ActorKind)]
    kind: &'static str,
    id: &'a str,
    #[schema(required)]
    name: Option<&'a str>,
}

/// What a thing was, as an object.
#[derive(Debug)]
struct FactsBody<'a>(&'a Facts);

/// A token; its secret only in the answer to its making.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = Token)]
pub(crate) struct TokenBody<'a> {
    id: &'a str,
    #[schema(value_type = schemas::Role)]
    role: &'static str,
    #[schema(value_type = Option<schemas::UserId>, required)]
    user_id: Option<&'a str>,
    #[schema(required)]
    name: Option<&'a str>,
    #[schema(value_type = schemas::Instant)]
    created_at: Instant,
    #[schema(value_type = Option<schemas::Instant>, required)]
    expires_at: Option<Instant>,
}

/// What a token may do, and for whom.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = Whoami)]
pub(crate) struct WhoamiBody<'a> {
    #[schema(value_type = schemas::Role)]
    role: &'static str,
    #[schema(value_type = Option<schemas::UserId>, required)]
    user_id: Option<&'a str>,
}

/// A new token with its secret.
#[derive(serde::Serialize, ToSchema)]
#[schema(as = NewToken)]
pub(crate) struct NewTokenBody<'a> {
    #[serde(flatten)]
    pub(crate) record: TokenBody<'a>,
    pub(crate) token: &'a str,
}

/// A page of tokens.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = Tokens)]
pub(crate) struct TokensBody<'a> {
    pub(crate) tokens: Vec<TokenBody<'a>>,
    #[schema(required)]
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

impl<'a> From<&'a Role> for WhoamiBody<'a> {
    fn from(role: &'a Role) -> Self {
        Self {
            role: role.kind().as_str(),
            user_id: role.user_id().map(UserId::as_str),
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
