//! The fields that several bodies share.

use quotalog_domain::{Amount, AmountError, IdError, Limit, LimitError, Window};

use crate::fault::{Code, Faults};
use crate::json::{Object, Value};

/// `amount`: one unit if it is left out.
pub(crate) fn amount(object: &mut Object<'_>, faults: &mut Faults) -> Option<Amount> {
    let Some(value) = object.take("amount") else {
        return Some(Amount::ONE);
    };
    let units = value.unsigned_integer().ok_or(AmountError::NotPositive);
    faults.check("amount", units.and_then(Amount::try_from))
}

/// `window`, which is required.
pub(crate) fn window(object: &mut Object<'_>, faults: &mut Faults) -> Option<Window> {
    let text = object.take("window").and_then(Value::string);
    faults.check(
        "window",
        Window::try_from(text.as_deref().unwrap_or_default()),
    )
}

/// `limit_count`, which is required.
pub(crate) fn limit_count(object: &mut Object<'_>, faults: &mut Faults) -> Option<Limit> {
    let units = object.take("limit_count").and_then(Value::unsigned_integer);
    let units = units.ok_or(LimitError::NotPositive);
    faults.check("limit_count", units.and_then(Limit::settable))
}

/// A user id or a resource, which is required and a string.
pub(crate) fn id<Id>(
    name: &'static str,
    value: Option<Value<'_>>,
    faults: &mut Faults,
) -> Option<Id>
where
    Id: for<'a> TryFrom<&'a str, Error = IdError>,
{
    let Some(text) = value.and_then(Value::string) else {
        faults.add(name, Code::Invalid, format!("{name} must be a string."));
        return None;
    };
    faults.check(name, Id::try_from(&text))
}

/// Refuses the fields that no one has taken, each by its name, so that a misspelt one is never
/// ignored.
pub(crate) fn no_more(object: Object<'_>, faults: &mut Faults) {
    for name in object.into_names() {
        faults.add(name, Code::UnknownField, "This request has no such field.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(body: &str, read: impl Fn(&mut Object<'_>, &mut Faults)) -> String {
        let mut object = Object::parse(body.as_bytes()).unwrap();
        let mut faults = Faults::default();
        read(&mut object, &mut faults);
        no_more(object, &mut faults);
        serde_json::to_string(faults.as_slice()).unwrap()
    }

    const WINDOW: &str =
        r#"{"field":"window","code":"invalid","message":"window must be one of: hourly, daily."}"#;
    const LIMIT: &str = r#"{"field":"limit_count","code":"invalid","message":"limit_count must be a positive integer."}"#;
    const LIMIT_TOO_LARGE: &str = r#"{"field":"limit_count","code":"too_large","message":"limit_count must not exceed 1000000."}"#;
    const AMOUNT: &str =
        r#"{"field":"amount","code":"invalid","message":"amount must be a positive integer."}"#;
    const AMOUNT_TOO_LARGE: &str =
        r#"{"field":"amount","code":"too_large","message":"amount must not exceed 1000000."}"#;

    #[track_caller]
    fn check_policy(body: &str, faults: &[&str]) {
        let found = faults_of(body, |object, faults| {
            window(object, faults);
            limit_count(object, faults);
        });
        assert_eq!(found, format!("[{}]", faults.join(",")), "{body}");
    }

    #[test]
    fn a_policy_names_its_window_and_limit() {
        check_policy(r#"{"window":"hourly","limit_count":1}"#, &[]);
        check_policy(r#"{"limit_count":1000000,"window":"daily"}"#, &[]);
        check_policy("{}", &[WINDOW, LIMIT]);
        for window in [
            "\"Hourly\"",
            "\" hourly\"",
            "\"weekly\"",
            "\"\"",
            "null",
            "1",
            "[\"hourly\"]",
        ] {
            check_policy(
                &format!(r#"{{"window":{window},"limit_count":1}}"#),
                &[WINDOW],
            );
        }
        for limit in [
            "\"5\"", "true", "[5]", "null", "5.5", "0", "-1", "5.0", "5e0", "1E400", "-0",
        ] {
            check_policy(
                &format!(r#"{{"window":"daily","limit_count":{limit}}}"#),
                &[LIMIT],
            );
        }
        for limit in ["1000001", "99999999999999999999", "18446744073709551616"] {
            check_policy(
                &format!(r#"{{"window":"daily","limit_count":{limit}}}"#),
                &[LIMIT_TOO_LARGE],
            );
        }
    }

    #[test]
    fn an_unknown_field_is_named_beside_the_other_faults() {
        let unknown = |name: &str| {
            let message = "This request has no such field.";
            format!(r#"{{"field":"{name}","code":"unknown_field","message":"{message}"}}"#)
        };
        let body = r#"{"window":"x","limitcount":9,"Limit_count":1}"#;
        check_policy(
            body,
            &[
                WINDOW,
                LIMIT,
                &unknown("Limit_count"),
                &unknown("limitcount"),
            ],
        );
    }

    #[test]
    fn an_amount_is_one_unless_it_is_given() {
        let check = |body: &str, fault: &str| {
            let found = faults_of(body, |object, faults| {
                amount(object, faults);
            });
            assert_eq!(found, format!("[{fault}]"), "{body}");
        };
        check("{}", "");
        check(r#"{"amount":1000000}"#, "");
        for text in [
            "0",
            "-1",
            "-9223372036854775808",
            "null",
            "\"3\"",
            "1.0",
            "-99999999999999999999999",
        ] {
            check(&format!(r#"{{"amount":{text}}}"#), AMOUNT);
        }
        for text in ["1000001", "99999999999999999999999"] {
            check(&format!(r#"{{"amount":{text}}}"#), AMOUNT_TOO_LARGE);
        }
        assert_eq!(
            amount(&mut Object::default(), &mut Faults::default()),
            Some(Amount::ONE)
        );
    }
}
