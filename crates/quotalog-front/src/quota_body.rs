//! The quota object, in JSON.

use quotalog_domain::{Quota, Source, Timestamp};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::instant;

/// Fits a quota object with ordinary ids.
pub const JSON_BYTES_USUAL: usize = 512;

/// The quota object: one shape everywhere a quota is answered.
#[derive(Debug)]
pub struct QuotaBody<'a>(&'a Quota);

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
    pub fn write_members(&self, json: &mut Vec<u8>) {
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
    pub fn write(&self, json: &mut Vec<u8>) {
        json.push(b'{');
        self.write_members(json);
        json.push(b'}');
    }
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
