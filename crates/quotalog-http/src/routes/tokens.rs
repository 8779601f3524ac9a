//! `POST` and `GET /tokens`, `DELETE /tokens/{id}`: API tokens. A secret is in the answer to `POST`
//! alone.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use quotalog_auth::{Action, Role, RoleError, RoleKind, Token, TokenId, TokenName, TokenNameError};
use quotalog_domain::Timestamp;
use quotalog_ledger::store::TokenOrder;

use crate::answer;
use crate::cursor;
use crate::extract::bearer::Authenticated;
use crate::extract::body::Payload;
use crate::extract::fields;
use crate::extract::ids::RawName;
use crate::extract::query::Query;
use crate::fault::{Code, Faults};
use crate::instant;
use crate::json::{Object, Value};
use crate::openapi::parameters::{PageQuery, TokenPath};
use crate::openapi::schemas::NewTokenRequest;
use crate::problem::Problem;
use crate::router::App;
use crate::wire::{NewTokenBody, TokenBody, TokensBody};

/// Makes a token.
///
/// The secret is in this answer alone.
#[utoipa::path(
    post,
    path = "/tokens",
    operation_id = "createToken",
    tag = "Administration",
    request_body = NewTokenRequest,
    responses(
        (status = 201, description = "The token, with its secret.", body = NewTokenBody),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Authenticated,
    mut payload: Payload,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::Administer)?;
    let mut body = payload.object().await?;
    let parameters = query.parameters()?;

    let mut faults = Faults::default();
    let role = role(&mut body, &mut faults);
    let name = name(&mut body, &mut faults);
    let expires_at = expires_at(&mut body, &mut faults);
    fields::no_more(body, &mut faults);
    let fields = ["role", "user_id", "name", "expires_at"];
    parameters.no_more_beside(&fields, &mut faults);
    let (Some(role), true) = (role, faults.is_empty()) else {
        return Err(faults.into());
    };

    let (token, new) = Token::generate(role, name, expires_at).map_err(Problem::internal)?;
    let created = app.ledger.create_token(caller.caller(), new).await?;
    let record = created.map_err(|passed| {
        let faults = Faults::one("expires_at", Code::Invalid, passed.to_string());
        Problem::from(faults).judged_by_store()
    })?;
    let body = NewTokenBody {
        record: TokenBody::from(&record),
        token: token.reveal(),
    };
    Ok(answer::json(StatusCode::CREATED, &body))
}

/// Lists the tokens, without their secrets.
#[utoipa::path(
    get,
    path = "/tokens",
    operation_id = "listTokens",
    tag = "Administration",
    params(PageQuery),
    responses(
        (status = 200, description = "A page of tokens.", body = TokensBody),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Authenticated,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::Administer)?;
    let mut parameters = query.parameters()?;

    let mut faults = Faults::default();
    let read_key = |last: &str| last.parse().ok().map(TokenOrder);
    let page = parameters.page(&["tokens"], read_key, &mut faults);
    parameters.no_more(&mut faults);
    let (Some(page), true) = (page, faults.is_empty()) else {
        return Err(faults.into());
    };

    let listed = app.ledger.tokens(caller.caller(), page).await?;
    let encode = |TokenOrder(last)| cursor::encode(&["tokens"], &last.to_string());
    let body = TokensBody {
        tokens: listed.entries.iter().map(TokenBody::from).collect(),
        next_cursor: listed.next.map(encode),
    };
    Ok(answer::json(StatusCode::OK, &body))
}

/// Revokes a token.
///
/// Its very next request is refused, on every node.
#[utoipa::path(
    delete,
    path = "/tokens/{id}",
    operation_id = "revokeToken",
    tag = "Administration",
    params(TokenPath),
    responses(
        (status = 204, description = "The token is of no use any more."),
    )
)]
pub(crate) async fn revoke(
    State(app): State<App>,
    id: RawName,
    caller: Authenticated,
    query: Query,
) -> Result<Response, Problem> {
    caller.may(Action::Administer)?;
    query.has_none()?;

    let id = TokenId::named(id.as_str());
    if app.ledger.revoke_token(caller.caller(), id).await? {
        Ok(answer::no_content())
    } else {
        Err(Problem::no_such_token())
    }
}

/// The role, from `role` and `user_id`, which are judged together only if each is sound by itself.
fn role(body: &mut Object<'_>, faults: &mut Faults) -> Option<Role> {
    let text = body.take("role").and_then(Value::string);
    let kind = RoleKind::try_from(text.as_deref().unwrap_or_default());
    let kind = kind
        .map_err(|error| faults.add("role", Code::Invalid, error.to_string()))
        .ok();
    let user_id = match given(body, "user_id") {
        None => None,
        value => Some(fields::id("user_id", value, faults)?),
    };
    let role = Role::new(kind?, user_id);
    role.map_err(|error: RoleError| faults.add("user_id", Code::Invalid, error.to_string()))
        .ok()
}

fn name(body: &mut Object<'_>, faults: &mut Faults) -> Option<TokenName> {
    let name = given(body, "name")?.string().ok_or(TokenNameError);
    // Names are listed and stored as they are, so none may be a secret that was put in the wrong place.
    if name.as_ref().is_ok_and(|text| Token::resembles(text)) {
        let message = "name must not be a token; if this is one that is in use, revoke it.";
        faults.add("name", Code::Invalid, message);
        return None;
    }
    faults.check("name", name.and_then(|text| TokenName::try_from(&*text)))
}

/// When the token ends, without its part of a second. Whether that is still to come is for the
/// store to say, whose clock counts.
fn expires_at(body: &mut Object<'_>, faults: &mut Faults) -> Option<Timestamp> {
    let end = given(body, "expires_at")?
        .string()
        .and_then(|text| instant::parse(&text));
    if end.is_none() {
        faults.add(
            "expires_at",
            Code::Invalid,
            "expires_at must be an instant of RFC 3339.",
        );
    }
    end
}

/// A field that may be left out, or be `null`, which means the same.
fn given<'a>(body: &mut Object<'a>, name: &str) -> Option<Value<'a>> {
    body.take(name).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_and_its_user_are_judged_together() {
        let check = |body: &str, fields: &[&str]| {
            let mut faults = Faults::default();
            let mut object = Object::parse(body.as_bytes()).unwrap();
            let role = role(&mut object, &mut faults);
            let faults: Vec<serde_json::Value> =
                serde_json::from_str(&serde_json::to_string(faults.as_slice()).unwrap()).unwrap();
            let found: Vec<&str> = faults
                .iter()
                .map(|f| f["field"].as_str().unwrap())
                .collect();
            assert_eq!(found, fields, "{body}");
            assert_eq!(role.is_some(), fields.is_empty(), "{body}");
        };
        check(r#"{"role":"admin"}"#, &[]);
        check(r#"{"role":"viewer","user_id":null}"#, &[]);
        check(r#"{"role":"user","user_id":"alice"}"#, &[]);
        check(r#"{"role":"user"}"#, &["user_id"]);
        check(r#"{"role":"service","user_id":"alice"}"#, &["user_id"]);
        check(r#"{"role":"user","user_id":""}"#, &["user_id"]);
        check(r#"{"role":"user","user_id":"a/b"}"#, &["user_id"]);
        check(r#"{"role":"admin","user_id":7}"#, &["user_id"]);
        check(r#"{"role":"Admin","user_id":".."}"#, &["role", "user_id"]);
        check("{}", &["role"]);
        check(r#"{"role":null,"user_id":"alice"}"#, &["role"]);
    }
}
