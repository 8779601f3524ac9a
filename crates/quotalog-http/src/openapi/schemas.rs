//! The shapes of what is read and of what is written by hand, as JSON Schema knows them. What serde writes has its
//! schema beside it, in `wire.rs`.
//!
//! These types are described and never made. The program's tests hold every answer to them.

#![expect(
    dead_code,
    reason = "a type that is described alone has fields that nobody reads"
)]

use quotalog_auth::RoleKind;
use quotalog_domain::{Amount, Limit};
use quotalog_ledger::store::AuditAction;
use utoipa::ToSchema;
use utoipa::openapi::schema::{AdditionalProperties, AnyOfBuilder, SchemaType, Type};
use utoipa::openapi::{
    ArrayBuilder, KnownFormat, Object, ObjectBuilder, RefOr, Schema, SchemaFormat,
};

use crate::fault::Fault;

/// Whose quota: any printable text of up to 255 bytes of UTF-8, without a `/`, neither `.` nor `..`. Compared byte
/// by byte.
#[derive(ToSchema)]
#[schema(
    min_length = 1,
    max_length = 255,
    pattern = r"^(?:[^./\u0000-\u001f\u007f-\u009f]|\.[^./\u0000-\u001f\u007f-\u009f]|\.\.[^/\u0000-\u001f\u007f-\u009f])[^/\u0000-\u001f\u007f-\u009f]*$",
    example = "alice"
)]
pub(crate) struct UserId(String);

/// What is counted: any printable text of up to 255 bytes of UTF-8, without a `/`, neither `.` nor `..`. Compared
/// byte by byte.
#[derive(ToSchema)]
#[schema(
    min_length = 1,
    max_length = 255,
    pattern = r"^(?:[^./\u0000-\u001f\u007f-\u009f]|\.[^./\u0000-\u001f\u007f-\u009f]|\.\.[^/\u0000-\u001f\u007f-\u009f])[^/\u0000-\u001f\u007f-\u009f]*$",
    example = "api-calls"
)]
pub(crate) struct Resource(String);

/// The span after which usage starts again: the UTC hour or the UTC day.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase", example = "hourly")]
pub(crate) enum Window {
    Hourly,
    Daily,
}

/// An instant of RFC 3339 in UTC, in whole seconds.
#[derive(ToSchema)]
#[schema(
    format = DateTime,
    pattern = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$",
    example = "2026-11-30T18:00:00Z"
)]
pub(crate) struct Instant(String);

/// What a token may do.
pub(crate) struct Role;

/// What was done.
pub(crate) struct Action;

/// How whoever did it was known.
pub(crate) struct ActorKind;

/// Where the limit comes from: the pair's own policy, or the default of its resource.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase", example = "policy")]
pub(crate) enum Source {
    Policy,
    Default,
}

/// A pair's policy and its usage in the present window.
#[derive(ToSchema)]
pub(crate) struct Quota {
    user_id: UserId,
    resource: Resource,
    window: Window,
    /// The most units of a window. One that an older store holds may lie above what can be set today.
    #[schema(minimum = 1, example = 100)]
    limit_count: u64,
    /// The units that were counted in the present window.
    #[schema(example = 42)]
    usage: u64,
    /// What is left of the limit; never below 0.
    #[schema(example = 58)]
    remaining: u64,
    /// On a check whether a unit is left, on a consume whether the units were granted, in a batch's 429 whether
    /// this pair alone would have fitted.
    allowed: bool,
    /// The first instant of the window.
    window_start: Instant,
    /// The first instant after it.
    reset_at: Instant,
    source: Source,
    /// Since when there is the policy, or the default that serves the pair.
    created_at: Instant,
    /// When it was last changed.
    updated_at: Instant,
}

/// What became of a batch: a quota for each item, in their order, as it is after the whole batch.
#[derive(ToSchema)]
pub(crate) struct BatchQuotas {
    quotas: Vec<Quota>,
}

/// A limit of so many units a window.
#[derive(ToSchema)]
#[schema(example = json!({"window": "hourly", "limit_count": 100}))]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyBody {
    window: Window,
    /// The most units of a window.
    #[schema(schema_with = settable_limit)]
    limit_count: u64,
}

/// How many units; 1 if it is left out, and also without any body.
#[derive(ToSchema)]
#[schema(example = json!({"amount": 3}))]
#[serde(deny_unknown_fields)]
pub(crate) struct AmountBody {
    #[schema(schema_with = amount_or_1, required = false)]
    amount: u64,
}

/// No fields: this takes none, and needs no body.
#[derive(ToSchema)]
#[schema(example = json!({}))]
#[serde(deny_unknown_fields)]
pub(crate) struct NoFields {}

/// The items of a batch, all of which are counted or none.
#[derive(ToSchema)]
#[schema(example = json!({"items": [
    {"user_id": "alice", "resource": "api-calls", "amount": 2},
    {"user_id": "alice", "resource": "exports"}
]}))]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchBody {
    #[schema(min_items = 1, max_items = 100)]
    items: Vec<BatchItem>,
}

/// Units of one pair. A pair that is named twice is asked for the sum.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchItem {
    user_id: UserId,
    resource: Resource,
    #[schema(schema_with = amount_or_1, required = false)]
    amount: u64,
}

/// A token to be made.
#[derive(ToSchema)]
#[schema(example = json!({"role": "user", "user_id": "alice", "name": "alice's laptop"}))]
#[serde(untagged)]
pub(crate) enum NewTokenRequest {
    OfUser(UserTokenRequest),
    OfOther(OtherTokenRequest),
}

/// A token of one user.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserTokenRequest {
    #[schema(schema_with = user_role)]
    role: String,
    user_id: UserId,
    #[schema(schema_with = token_name, required = false)]
    name: String,
    #[schema(schema_with = token_end, required = false)]
    expires_at: String,
}

/// A token of another role, which is bound to no user.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OtherTokenRequest {
    #[schema(schema_with = other_role)]
    role: String,
    #[schema(schema_with = null, required = false)]
    user_id: (),
    #[schema(schema_with = token_name, required = false)]
    name: String,
    #[schema(schema_with = token_end, required = false)]
    expires_at: String,
}

/// What went wrong, for programs and for people (RFC 9457).
#[derive(ToSchema)]
pub(crate) struct Problem {
    /// Which problem it is. GET of it explains it.
    #[schema(format = "uri-reference")]
    r#type: String,
    title: String,
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    detail: String,
    /// The path of the request.
    instance: String,
}

/// Values that are not valid: `errors` tells of each. Without `errors`, the idempotency key belongs to another
/// request.
#[derive(ToSchema)]
pub(crate) struct InvalidProblem {
    #[serde(flatten)]
    problem: Problem,
    #[schema(min_items = 1, required = false)]
    errors: Vec<Fault>,
}

/// The units do not fit into what is left: a problem with every member of the quota.
#[derive(ToSchema)]
pub(crate) struct QuotaExceeded {
    #[serde(flatten)]
    problem: Problem,
    /// The windows whose limit would have been exceeded.
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<Window>,
    #[serde(flatten)]
    quota: Quota,
}

/// The units of some pair of a batch do not fit; none were counted.
#[derive(ToSchema)]
pub(crate) struct BatchExceeded {
    #[serde(flatten)]
    problem: Problem,
    /// The windows whose limit would have been exceeded, each once.
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<Window>,
    /// The items in the order of the request.
    items: Vec<DeniedItem>,
}

/// One item of a batch that was denied.
#[derive(ToSchema)]
pub(crate) struct DeniedItem {
    #[schema(schema_with = amount)]
    amount: u64,
    /// Whether this pair alone, its items summed, would have fitted.
    allowed: bool,
    quota: Quota,
}

/// Whether the server lives, or can serve.
#[derive(ToSchema)]
pub(crate) struct Health {
    #[schema(schema_with = health)]
    status: String,
}

macro_rules! named_texts {
    ($($name:ident: $texts:expr;)*) => {$(
        impl utoipa::PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                texts($texts).into()
            }
        }
        impl ToSchema for $name {}
    )*};
}

named_texts! {
    Role: RoleKind::ALL.map(RoleKind::as_str);
    Action: AuditAction::ALL.map(AuditAction::as_str);
    ActorKind: quotalog_auth::ActorKind::ALL.map(quotalog_auth::ActorKind::as_str);
}

fn texts(texts: impl IntoIterator<Item = &'static str>) -> Object {
    let object = ObjectBuilder::new().schema_type(Type::String);
    object.enum_values(Some(texts)).build()
}

fn user_role() -> Object {
    texts([RoleKind::User.as_str()])
}

fn other_role() -> Object {
    let others = RoleKind::ALL.into_iter();
    texts(
        others
            .filter(|kind| *kind != RoleKind::User)
            .map(RoleKind::as_str),
    )
}

fn health() -> Object {
    texts(["alive", "ready"])
}

fn null() -> Object {
    Object::with_type(Type::Null)
}

fn units(most: u64) -> ObjectBuilder {
    let object = ObjectBuilder::new().schema_type(Type::Integer);
    object.minimum(Some(1_u64)).maximum(Some(most))
}

fn amount() -> Object {
    units(Amount::MAX.get()).build()
}

fn amount_or_1() -> Object {
    units(Amount::MAX.get()).default(Some(1.into())).build()
}

fn settable_limit() -> Object {
    units(Limit::SETTABLE_MAX.get()).build()
}

fn text_or_null() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Null]))
}

fn token_name() -> Object {
    let name = text_or_null().description(Some("What people call it."));
    let name = name
        .min_length(Some(1))
        .max_length(Some(quotalog_auth::TokenName::LEN_CHARS_MAX));
    name.pattern(Some(r"^[^\u0000-\u001f\u007f-\u009f]+$"))
        .build()
}

fn token_end() -> Object {
    let end = "When it ends, an instant of RFC 3339 that is still to come. Without it, it does not end by itself.";
    let object = text_or_null().description(Some(end));
    object
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .build()
}

/// What a thing was before or after a change: the facts that its action keeps, by name; null where there was nothing.
pub(crate) fn facts() -> Schema {
    let text = Object::with_type(Type::String);
    let texts = ArrayBuilder::new().items(text.clone());
    let fact = AnyOfBuilder::new()
        .item(text)
        .item(texts)
        .item(Object::with_type(Type::Integer))
        .item(null());
    let facts = ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .additional_properties(Some(AdditionalProperties::RefOr(fact.into())));
    facts.build().into()
}
