//! The time that a caller gives its call (the gRPC protocol's `grpc-timeout`).

use std::time::Duration;

use axum::http::HeaderMap;

/// How long the server may work on a call whose head this is: nine tenths of the time that the caller gives, since an
/// answer that comes later than the caller waits tells it nothing. `None` where the caller waits for ever, or
/// where its time cannot be read.
pub(crate) fn working_time(headers: &HeaderMap) -> Option<Duration> {
    let given = headers.get("grpc-timeout")?.to_str().ok()?;
    Some(parse(given)? * 9 / 10)
}

/// At most eight digits and the letter of a unit.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn of(text: &'static str) -> Option<Duration> {
        let value = HeaderValue::from_static(text);
        working_time(&HeaderMap::from_iter([(
            axum::http::HeaderName::from_static("grpc-timeout"),
            value,
        )]))
    }

    #[test]
    fn a_tenth_of_the_time_is_left_for_the_way_back() {
        assert_eq!(of("20m"), Some(Duration::from_millis(18)));
        assert_eq!(of("250000u"), Some(Duration::from_millis(225)));
        assert_eq!(of("1S"), Some(Duration::from_millis(900)));
        assert_eq!(of("10n"), Some(Duration::from_nanos(9)));
        assert_eq!(of("0m"), Some(Duration::ZERO));
        assert_eq!(of("1M"), Some(Duration::from_secs(54)));
        let longest = Duration::from_secs(99_999_999 * 3_600 * 9 / 10);
        assert_eq!(of("99999999H"), Some(longest));
    }

    #[test]
    fn what_is_no_time_sets_no_deadline() {
        for text in [
            "",
            "S",
            "1",
            "1s",
            "-1S",
            "+1S",
            "1.5S",
            "1 S",
            "123456789S",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(working_time(&HeaderMap::new()), None);
    }
}
