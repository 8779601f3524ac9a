//! The shapes of answers in JSON. The domain's types know nothing of them.

use quotalog_auth::TokenRecord;
use quotalog_domain::{DefaultPolicy, Quota, Resource, Source, Timestamp, UserId};
use quotalog_ledger::store::{AuditEntry, Fact, Facts, UsageEntry};
use serde::ser::{Error as _, Serialize, SerializeMap as _, Serializer};
use serde_json::value::RawValue;

use crate::instant::{self, Instant};

/// Fits a quota object with ordinary ids.
pub(crate) const JSON_BYTES_USUAL: usize = 512;

/// The quota object: one shape everywhere a quota is answered.
#[derive(Debug)]
pub(crate) struct QuotaBody<'a>(&'a Quota);

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

impl<'a> From<&'a Quota> for QuotaBody<'a> {
    fn from(quota: &'a Quota) -> Self {
        Self(quota)
    }
}

impl QuotaBody<'_> {
    /// Writes the members of the object, without its braces.
    ///
    /// Nearly every answer is one, and of its twelve members only the ids can hold a character that JSON
    /// writes otherwise, so the rest is written as it is.
    pub(crate) fn write_members(&self, json: &mut Vec<u8>) {
        let quota = self.0;
        let span = quota.span();
        let mut members = Members(json);
        members.escaped("\"user_id\":", quota.pair.user_id.as_str());
        members.escaped(",\"resource\":", quota.pair.resource.as_str());
        members.plain(",\"window\":", quota.window().as_str());
        members.number(",\"limit_count\":", quota.limit().get());
        members.number(",\"usage\":", quota.usage);
        members.number(",\"remaining\":", quota.remaining());
        members.raw(if quota.allowed {
            ",\"allowed\":true"
        } else {
            ",\"allowed\":false"
        });
        members.instant(",\"window_start\":", span.start);
        members.instant(",\"reset_at\":", span.reset_at);
        members.plain(
            ",\"source\":",
            match quota.source {
                Source::Policy => "policy",
                Source::Default => "default",
            },
        );
        members.instant(",\"created_at\":", quota.policy.created_at);
        members.instant(",\"updated_at\":", quota.policy.updated_at);
    }

    /// Writes the object.
    pub(crate) fn write(&self, json: &mut Vec<u8>) {
        json.push(b'{');
        self.write_members(json);
        json.push(b'}');
    }
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

impl Serialize for QuotaBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = Vec::with_capacity(JSON_BYTES_USUAL);
        self.write(&mut json);
        let json = String::from_utf8(json).map_err(S::Error::custom)?;
        RawValue::from_string(json)
            .map_err(S::Error::custom)?
            .serialize(serializer)
    }
}

/// Members of a JSON object, each with its name and what parts it from the one before.
struct Members<'a>(&'a mut Vec<u8>);

impl Members<'_> {
    fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn escaped(&mut self, name: &str, text: &str) {
        self.raw(name);
        serde_json::to_writer(&mut *self.0, text).expect("a text serialises into a vector");
    }

    /// `text` has nothing to escape.
    fn plain(&mut self, name: &str, text: &str) {
        self.raw(name);
        self.0.push(b'"');
        self.raw(text);
        self.0.push(b'"');
    }

    fn number(&mut self, name: &str, number: u64) {
        self.raw(name);
        self.raw(itoa::Buffer::new().format(number));
    }

    fn instant(&mut self, name: &str, instant: Timestamp) {
        self.plain(name, instant::Text::of(instant).as_str());
    }
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

#[cfg(test)]
mod tests {
    use quotalog_domain::{Limit, Pair, Policy, Resource, UserId, Window};

    use super::*;

    #[test]
    fn a_quota_is_written_as_the_contract_shows_it() {
        let quota = |user_id: &str| Quota {
            pair: Pair {
                user_id: UserId::try_from(user_id).unwrap(),
                resource: Resource::try_from("api-calls").unwrap(),
            },
            policy: Policy {
                window: Window::Hourly,
                limit: Limit::settable(100).unwrap(),
                created_at: Timestamp::from_unix_s(1_793_523_600),
                updated_at: Timestamp::from_unix_s(1_796_026_500),
            },
            source: Source::Policy,
            usage: 42,
            allowed: true,
            at: Timestamp::from_unix_s(1_796_063_940),
        };
        let check = |user_id: &str, in_json: &str| {
            let quota = quota(user_id);
            let mut written = Vec::new();
            QuotaBody::from(&quota).write(&mut written);
            let expected = format!(
                "{{\"user_id\":{in_json},\"resource\":\"api-calls\",\"window\":\"hourly\",\
                 \"limit_count\":100,\"usage\":42,\"remaining\":58,\"allowed\":true,\
                 \"window_start\":\"2026-11-30T18:00:00Z\",\"reset_at\":\"2026-11-30T19:00:00Z\",\
                 \"source\":\"policy\",\"created_at\":\"2026-11-01T09:00:00Z\",\
                 \"updated_at\":\"2026-11-30T08:15:00Z\"}}"
            );
            assert_eq!(String::from_utf8(written).unwrap(), expected);
            let within = serde_json::to_string(&[QuotaBody::from(&quota)]).unwrap();
            assert_eq!(within, format!("[{expected}]"));
        };
        check("alice", "\"alice\"");
        check("a\"b\\c\u{65e5}", "\"a\\\"b\\\\c\u{65e5}\"");
    }
}
