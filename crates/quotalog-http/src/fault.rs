//! What is wrong with the values of a request: all of it at once, field by field.

use std::borrow::Cow;
use std::fmt::Display;

use quotalog_auth::TokenNameError;
use quotalog_domain::{AmountError, IdError, IdempotencyKeyError, LimitError, WindowError};
use serde::Serialize;
use utoipa::ToSchema;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Fault {
    /// The field, the parameter or the header field, such as `items[3].amount`.
    #[schema(value_type = String)]
    field: Cow<'static, str>,
    code: Code,
    #[schema(value_type = String)]
    message: Cow<'static, str>,
}

/// What kind of thing it is, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    Invalid,
    TooLarge,
    TooLong,
    TooMany,
    ExceedsLimit,
    UnknownField,
    UnknownParameter,
}

/// The faults of one request, in the order in which they were found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// Adds one.
    pub(crate) fn add(
        &mut self,
        field: impl Into<Cow<'static, str>>,
        code: Code,
        message: impl Into<Cow<'static, str>>,
    ) {
        self.0.push(Fault {
            field: field.into(),
            code,
            message: message.into(),
        });
    }

    /// The value, or `None` and a fault of `field` whose message is the error's.
    pub(crate) fn check<T, E: Coded>(
        &mut self,
        field: &'static str,
        value: Result<T, E>,
    ) -> Option<T> {
        value
            .map_err(|error| self.add(field, error.code(), error.message(field)))
            .ok()
    }

    /// Adds the faults of a part of the body, whose place their fields' names then start with.
    pub(crate) fn add_within(&mut self, place: &str, part: Self) {
        self.0.extend(part.0.into_iter().map(|fault| Fault {
            field: format!("{place}.{}", fault.field).into(),
            ..fault
        }));
    }

    /// Whether nothing is wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The faults.
    pub(crate) fn as_slice(&self) -> &[Fault] {
        &self.0
    }

    /// This fault alone.
    pub(crate) fn one(
        field: impl Into<Cow<'static, str>>,
        code: Code,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let mut faults = Self::default();
        faults.add(field, code, message);
        faults
    }
}

/// An error of a value that has a code.
pub(crate) trait Coded: Display {
    /// Its code.
    fn code(&self) -> Code {
        Code::Invalid
    }

    /// What a person reads.
    fn message(&self, _field: &str) -> String {
        self.to_string()
    }
}

impl Coded for WindowError {}
impl Coded for TokenNameError {}
impl Coded for IdempotencyKeyError {}

impl Coded for LimitError {
    fn code(&self) -> Code {
        match self {
            Self::NotPositive => Code::Invalid,
            Self::TooLarge => Code::TooLarge,
        }
    }
}

impl Coded for AmountError {
    fn code(&self) -> Code {
        match self {
            Self::NotPositive => Code::Invalid,
            Self::TooLarge => Code::TooLarge,
        }
    }
}

impl Coded for IdError {
    fn code(&self) -> Code {
        match self {
            Self::TooLong => Code::TooLong,
            Self::Empty | Self::ControlCharacter | Self::DotSegment | Self::Slash => Code::Invalid,
        }
    }

    fn message(&self, field: &str) -> String {
        format!("{field} {self}")
    }
}
