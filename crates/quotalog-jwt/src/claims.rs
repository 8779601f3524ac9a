//! What a token must claim to be for us, and who it says is calling.

use std::time::Duration;

use jsonwebtoken::{Algorithm, Validation};
use quotalog_auth::{Caller, JwtId, Role, RoleKind};
use quotalog_domain::{Timestamp, UserId};
use serde_json::Value;

use crate::refusal::Refusal;

/// How far the clock of an issuer may be from ours.
pub(crate) const LEEWAY_S: i64 = 30;

/// What tokens must claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Whom they must be for (`aud`).
    pub audience: String,
    /// Who must have issued them (`iss`), if that matters.
    pub issuer: Option<String>,
    /// Where they say which role they have; without it they are users.
    pub role_claim: Option<RoleClaim>,
}

/// Where a token says which role it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleClaim {
    /// A claim of this name.
    Name(String),
    /// What a JSON pointer leads to (RFC 6901), inside of other claims.
    Pointer(String),
}

/// Who calls, and for how long that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) caller: Caller,
    pub(crate) not_before: Timestamp,
    pub(crate) expires_at: Timestamp,
}

impl From<&str> for RoleClaim {
    /// A text that begins with `/` is a pointer, any other a name, dots and all: issuers use URLs as names.
    fn from(text: &str) -> Self {
        if text.starts_with('/') {
            Self::Pointer(text.to_owned())
        } else {
            Self::Name(text.to_owned())
        }
    }
}

impl RoleClaim {
    fn value<'a>(&self, claims: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Name(name) => claims.get(name),
            Self::Pointer(pointer) => claims.pointer(pointer),
        }
    }

    /// The role it names, `None` if it names none. A single text must be a role, since whoever set it meant one; of a
    /// list, which tells of other programs' roles too, exactly one may be ours.
    fn kind(&self, claims: &Value) -> Result<Option<RoleKind>, Refusal> {
        let known = |text: &Value| text.as_str().map(RoleKind::try_from);
        match self.value(claims) {
            None => Ok(None),
            Some(Value::Array(texts)) => {
                let mut kinds = texts.iter().filter_map(|text| known(text)?.ok());
                let kind = kinds.next();
                let ambiguous = kinds.any(|other| Some(other) != kind);
                if ambiguous {
                    Err(Refusal::Role)
                } else {
                    Ok(kind)
                }
            }
            Some(text) => match known(text) {
                Some(Ok(kind)) => Ok(Some(kind)),
                Some(Err(_)) | None => Err(Refusal::Role),
            },
        }
    }
}

impl Expected {
    /// What the library judges of a token whose key is of `algorithm`: its audience and its issuer. Dates are judged here,
    /// by a clock that may be any.
    pub(crate) fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.set_audience(&[&self.audience]);
        let mut required = vec!["exp", "aud"];
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        validation.set_required_spec_claims(&required);
        validation
    }

    /// Who calls, by claims that were found to be for us.
    pub(crate) fn bearer(&self, claims: &Value) -> Result<Bearer, Refusal> {
        let expires_at = date(claims, "exp")?.ok_or(Refusal::Date)?;
        let not_before = date(claims, "nbf")?.unwrap_or(Timestamp::MIN);
        let issuer = issuer(claims)?;
        let role_claim = self.role_claim.as_ref();
        let kind = role_claim.map_or(Ok(None), |claim| claim.kind(claims))?;
        let kind = kind.unwrap_or(RoleKind::User);
        let subject = claims.get("sub").and_then(Value::as_str);
        let subject = subject.ok_or(Refusal::Subject)?;
        let user_id = match kind {
            RoleKind::User => Some(UserId::try_from(subject).map_err(|_| Refusal::Subject)?),
            RoleKind::Admin | RoleKind::Viewer | RoleKind::Service => None,
        };
        let role = Role::new(kind, user_id).map_err(|_| Refusal::Role)?;
        let id = JwtId::new(issuer, subject).ok_or(Refusal::Subject)?;
        let expires_at = expires_at.plus_s(LEEWAY_S);
        Ok(Bearer {
            caller: Caller::with_jwt(role, id, expires_at),
            not_before: not_before.plus_s(-LEEWAY_S),
            expires_at,
        })
    }
}

impl Bearer {
    /// Whether the token holds at `now`.
    pub(crate) fn holds_at(&self, now: Timestamp) -> Result<(), Refusal> {
        if self.expires_at <= now {
            Err(Refusal::Expired)
        } else if now < self.not_before {
            Err(Refusal::NotYetValid)
        } else {
            Ok(())
        }
    }
}

/// Who has issued it, if it says so: one name, where the library takes a list too.
fn issuer(claims: &Value) -> Result<Option<&str>, Refusal> {
    match claims.get("iss") {
        None => Ok(None),
        Some(Value::String(issuer)) if JwtId::is_issuer(issuer) => Ok(Some(issuer)),
        Some(_) => Err(Refusal::Issuer),
    }
}

/// A NumericDate (RFC 7519 section 2), which may have a part of a second. One before 1970 is as past as 1970.
fn date(claims: &Value, name: &str) -> Result<Option<Timestamp>, Refusal> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    let seconds = value.as_f64().ok_or(Refusal::Date)?;
    let since_1970 = Duration::try_from_secs_f64(seconds.max(0.0)).map_err(|_| Refusal::Date)?;
    let unix_us = i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX);
    Ok(Some(Timestamp::from_unix_us(unix_us)))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::hmac;
    use serde_json::json;

    use super::*;
    use crate::key::Key;
    use crate::signed::Signed;

    const NOW: i64 = 1_796_062_800;

    fn expected(issuer: Option<&str>, role_claim: Option<&str>) -> Expected {
        Expected {
            audience: "quotalog".to_owned(),
            issuer: issuer.map(str::to_owned),
            role_claim: role_claim.map(RoleClaim::from),
        }
    }

    /// Claims that are believed, with `changes` to them; null takes one away.
    fn claims(changes: Value) -> Value {
        let mut claims = json!({"sub": "alice", "aud": "quotalog", "exp": NOW + 60});
        for (name, value) in changes.as_object().expect("changes are an object") {
            claims[name] = value.clone();
        }
        claims
            .as_object_mut()
            .expect("claims are an object")
            .retain(|_, value| !value.is_null());
        claims
    }

    #[track_caller]
    fn judged(expected: &Expected, changes: Value) -> Result<String, Refusal> {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!(
            "{}.{}",
            part(json!({"alg": "HS256"})),
            part(claims(changes))
        );
        let secret = [7; 32];
        let signature = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, &secret),
            message.as_bytes(),
        );
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
        let key = Key::secret(&secret).expect("it is long enough");
        let bearer = expected.bearer(&key.claims(&Signed::parse(&token)?, expected)?)?;
        bearer.holds_at(Timestamp::from_unix_s(NOW))?;
        let role = bearer.caller.role;
        Ok(match role.user_id() {
            Some(user_id) => format!("user {}", user_id.as_str()),
            None => role.kind().as_str().to_owned(),
        })
    }

    #[test]
    fn a_token_holds_from_its_nbf_to_its_exp_and_half_a_minute_around() {
        let check = |changes: Value, verdict: Result<(), Refusal>| {
            let found = judged(&expected(None, None), changes.clone());
            assert_eq!(found.map(|_| ()), verdict, "{changes}");
        };
        check(json!({"exp": NOW - 29}), Ok(()));
        check(json!({"exp": NOW - 30}), Err(Refusal::Expired));
        check(json!({"exp": 0}), Err(Refusal::Expired));
        check(json!({"exp": 1e15}), Ok(()));
        check(json!({"exp": u64::MAX}), Err(Refusal::Date));
        check(json!({"exp": f64::from(u32::MAX) + 0.5}), Ok(()));
        for none in [json!(null), json!("1796062900"), json!(true), json!(-5)] {
            check(json!({"exp": none}), Err(Refusal::Date));
        }
        // Where the library finds a list or an object, it reads no further.
        check(json!({"exp": [NOW + 60]}), Err(Refusal::Malformed));
        check(json!({"nbf": NOW}), Ok(()));
        check(json!({"nbf": -5}), Ok(()));
        check(json!({"nbf": NOW + 30}), Ok(()));
        check(json!({"nbf": NOW + 31}), Err(Refusal::NotYetValid));
        check(json!({"nbf": "soon"}), Err(Refusal::Date));
        // When it was made says nothing of until when it holds.
        check(json!({"iat": NOW + 3600}), Ok(()));
        check(json!({"iat": "now"}), Ok(()));
    }

    #[test]
    fn a_token_is_for_us_and_from_whom_we_know() {
        let check = |issuer, changes: Value, verdict: Result<(), Refusal>| {
            let found = judged(&expected(issuer, None), changes.clone());
            assert_eq!(found.map(|_| ()), verdict, "{changes}");
        };
        check(None, json!({"aud": ["other", "quotalog"]}), Ok(()));
        for aud in [
            json!(null),
            json!("other"),
            json!("Quotalog"),
            json!("quotalog "),
            json!(""),
            json!([]),
            json!(["other"]),
            json!(["quotalog", 7]),
            json!([["quotalog"]]),
            json!({"quotalog": true}),
            json!(7),
        ] {
            check(None, json!({"aud": aud}), Err(Refusal::Audience));
        }
        let ours = Some("https://idp.example");
        check(ours, json!({"iss": "https://idp.example"}), Ok(()));
        for iss in [
            json!(null),
            json!("https://idp.example/"),
            json!("HTTPS://idp.example"),
            json!(["https://idp.example"]),
            json!(7),
        ] {
            check(ours, json!({"iss": iss}), Err(Refusal::Issuer));
        }
        check(None, json!({"iss": "anybody"}), Ok(()));
        for iss in [
            json!(["anybody"]),
            json!(""),
            json!("a b"),
            json!("x".repeat(256)),
        ] {
            check(None, json!({"iss": iss}), Err(Refusal::Issuer));
        }
    }

    #[test]
    fn the_subject_is_the_user() {
        for sub in [
            "alice",
            "auth0|42",
            "日本語",
            "api'; DROP TABLE x; --",
            " a ",
        ] {
            let found = judged(&expected(None, None), json!({"sub": sub}));
            assert_eq!(found, Ok(format!("user {sub}")));
        }
        for sub in [
            json!(null),
            json!(""),
            json!(".."),
            json!("a/b"),
            json!("a\u{0}b"),
            json!("x".repeat(256)),
            json!(7),
        ] {
            let found = judged(&expected(None, None), json!({"sub": sub}));
            assert_eq!(found, Err(Refusal::Subject), "{sub}");
        }
        let several = judged(&expected(None, None), json!({"sub": ["alice"]}));
        assert_eq!(several, Err(Refusal::Malformed));
        // Who is no user may bear a name that no user may.
        let service = json!({"sub": "spiffe://cluster/gateway", "role": "service"});
        let found = judged(&expected(None, Some("role")), service);
        assert_eq!(found.as_deref(), Ok("service"));
    }

    #[test]
    fn a_role_is_believed_only_of_the_claim_that_was_named() {
        let check = |claim, value: Value, verdict: Result<&str, Refusal>| {
            let changes =
                json!({"role": value, "https://x.example/role": "viewer", "a.b": "service"});
            let found = judged(&expected(None, claim), changes);
            assert_eq!(
                found.as_deref().map_err(|refusal| *refusal),
                verdict,
                "{value}"
            );
        };
        check(None, json!("admin"), Ok("user alice"));
        check(Some("roles"), json!("admin"), Ok("user alice"));
        check(Some("https://x.example/role"), json!("admin"), Ok("viewer"));
        check(Some("a.b"), json!("admin"), Ok("service"));
        check(Some("role"), json!(null), Ok("user alice"));
        for role in ["admin", "viewer", "service"] {
            check(Some("role"), json!(role), Ok(role));
            check(Some("role"), json!(["offline_access", role, 7]), Ok(role));
        }
        check(Some("role"), json!("user"), Ok("user alice"));
        check(Some("role"), json!(["admin", "admin"]), Ok("admin"));
        check(Some("role"), json!(["offline_access"]), Ok("user alice"));
        check(Some("role"), json!([]), Ok("user alice"));
        for value in [
            json!("Admin"),
            json!("admin "),
            json!("admin viewer"),
            json!("customer"),
            json!(""),
            json!(true),
            json!({"admin": true}),
            json!(["admin", "viewer"]),
            json!(["user", "admin"]),
        ] {
            check(Some("role"), value, Err(Refusal::Role));
        }
    }

    #[test]
    fn a_role_may_lie_inside_of_other_claims() {
        let keycloak = json!({"realm_access": {"roles": ["uma_authorization", "viewer"]}});
        let at = |pointer| judged(&expected(None, Some(pointer)), keycloak.clone());
        assert_eq!(at("/realm_access/roles").as_deref(), Ok("viewer"));
        assert_eq!(at("/realm_access/others").as_deref(), Ok("user alice"));
        assert_eq!(at("realm_access.roles").as_deref(), Ok("user alice"));
        assert_eq!(at("/realm_access"), Err(Refusal::Role));
        assert_eq!(at("/"), Ok("user alice".to_owned()));
    }
}
