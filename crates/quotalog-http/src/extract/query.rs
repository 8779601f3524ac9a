//! The query string: `limit`, `cursor` and filters of a list, and nothing unknown, so that no parameter is
//! ignored in silence.
//!
//! Names and values are read as forms write them: `+` is a space here, unlike in a path.

use std::borrow::Cow;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;
use quotalog_domain::IdError;
use quotalog_ledger::store::Page;

use crate::cursor;
use crate::exchange::Exchange;
use crate::fault::{Code, Faults};
use crate::path::percent_signs_are_sound;
use crate::problem::Problem;

const LEN_DEFAULT: usize = 100;
const LEN_MAX: usize = 1_000;

/// The query string as it came; judged only when a handler asks, after the caller's permission. A route without
/// parameters asks too, and so refuses all of them.
pub(crate) struct Query(Exchange);

/// The parameters of a query string.
pub(crate) struct Parameters<'a> {
    /// Those that no one has asked for yet, in their order.
    left: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Those that someone has asked for, given or not.
    known: Vec<&'static str>,
}

impl Query {
    /// The parameters, if the string can be read.
    pub(crate) fn parameters(&self) -> Result<Parameters<'_>, Problem> {
        Parameters::parse(self.0.query())
    }

    /// Refuses every parameter, on a route that has nothing else to judge.
    pub(crate) fn has_none(&self) -> Result<(), Problem> {
        let mut faults = Faults::default();
        self.parameters()?.no_more(&mut faults);
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults.into())
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Exchange::of(parts).map(Self)
    }
}

impl<'a> Parameters<'a> {
    fn parse(query: Option<&'a str>) -> Result<Self, Problem> {
        let query = query.unwrap_or_default();
        let pairs = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((decode(name)?, decode(value)?))
            });
        let pairs: Option<_> = pairs.collect();
        let left = pairs.ok_or_else(|| {
            Problem::malformed("The query string has a broken percent sign or is not UTF-8.")
        })?;
        let known = Vec::new();
        Ok(Self { left, known })
    }

    /// Takes a parameter out, if it was given. One that was given twice is left for
    /// [`Parameters::no_more`] to refuse.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<Cow<'a, str>> {
        self.known.push(name);
        let position = self.left.iter().position(|(given, _)| given == name)?;
        Some(self.left.remove(position).1)
    }

    /// The value of a parameter that may be left out, as `read` reads it; the outer `None` is a
    /// fault.
    pub(crate) fn value<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
        message: &'static str,
        faults: &mut Faults,
    ) -> Option<Option<T>> {
        let Some(text) = self.take(name) else {
            return Some(None);
        };
        let value = read(&text);
        if value.is_none() {
            faults.add(name, Code::Invalid, message);
        }
        value.map(Some)
    }

    /// A user id or a resource that a list is filtered by; the outer `None` is a fault.
    pub(crate) fn id<Id>(&mut self, name: &'static str, faults: &mut Faults) -> Option<Option<Id>>
    where
        Id: for<'t> TryFrom<&'t str, Error = IdError>,
    {
        match self.take(name) {
            None => Some(None),
            Some(text) => faults.check(name, Id::try_from(&text)).map(Some),
        }
    }

    /// The page that `limit` and `cursor` ask for. `list` is the list's name and what it is
    /// filtered by; `key` reads the entry that a cursor names.
    pub(crate) fn page<Key>(
        &mut self,
        list: &[&str],
        key: impl FnOnce(&str) -> Option<Key>,
        faults: &mut Faults,
    ) -> Option<Page<Key>> {
        let len_max = self.len_max(faults);
        let after = self.value(
            "cursor",
            |text| cursor::decode(list, text).and_then(|last| key(&last)),
            "cursor must be the next_cursor of an earlier page of this list, with the same filters.",
            faults,
        );
        Some(Page {
            after: after?,
            len_max: len_max?,
        })
    }

    /// The most entries that `limit` asks for.
    pub(crate) fn len_max(&mut self, faults: &mut Faults) -> Option<usize> {
        let message = "limit must be an integer from 1 to 1000.";
        let len_max = self.value("limit", page_len, message, faults)?;
        Some(len_max.unwrap_or(LEN_DEFAULT))
    }

    /// Refuses the parameters that no one has taken, each by its name.
    pub(crate) fn no_more(self, faults: &mut Faults) {
        self.no_more_beside(&[], faults);
    }

    /// The same, on a route whose body has these fields, for which parameters are easily mistaken.
    pub(crate) fn no_more_beside(self, fields: &[&str], faults: &mut Faults) {
        let known = self.known.join(", ");
        for (name, _) in self.left {
            let message = if fields.contains(&&*name) {
                format!("{name} is a field of the body, which is JSON; it is no parameter.")
            } else if known.is_empty() {
                "This method of this path knows no parameters.".to_owned()
            } else {
                format!("This path knows these parameters, each once: {known}.")
            };
            faults.add(name.into_owned(), Code::UnknownParameter, message);
        }
    }
}

fn page_len(text: &str) -> Option<usize> {
    integer(text).filter(|len| (1..=LEN_MAX).contains(len))
}

/// An integer that is not negative and written in the one usual way.
pub(crate) fn integer<N: FromStr>(text: &str) -> Option<N> {
    let all_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let sound = all_digits && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| sound)
}

fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    if !percent_signs_are_sound(text) {
        return None;
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(Cow::Owned(decoded.into_owned()))
}

#[cfg(test)]
mod tests {
    use quotalog_domain::UserId;

    use super::*;

    type Found = (Option<(usize, Option<u32>)>, Vec<String>);

    fn read(query: &str) -> Found {
        let mut faults = Faults::default();
        let Ok(mut parameters) = Parameters::parse(Some(query)) else {
            return (None, vec!["malformed".to_owned()]);
        };
        let page = parameters.page(&["numbers"], |last| last.parse().ok(), &mut faults);
        parameters.no_more(&mut faults);
        let faults: Vec<serde_json::Value> =
            serde_json::from_str(&serde_json::to_string(faults.as_slice()).unwrap()).unwrap();
        let faults = faults.iter().map(|fault| {
            format!(
                "{} {}",
                fault["field"].as_str().unwrap(),
                fault["code"].as_str().unwrap()
            )
        });
        (
            page.map(|page| (page.len_max, page.after)),
            faults.collect(),
        )
    }

    #[test]
    fn a_page_has_100_entries_unless_it_is_told_otherwise() {
        let check = |query: &str, len_max: usize, after: Option<u32>| {
            assert_eq!(read(query), (Some((len_max, after)), vec![]), "{query}");
        };
        check("", 100, None);
        check("&", 100, None);
        check("limit=1", 1, None);
        check("limit=1000", 1_000, None);
        check("%6cimit=%37", 7, None);
        let cursor = cursor::encode(&["numbers"], "42");
        check(&format!("cursor={cursor}&limit=5"), 5, Some(42));
        assert!(Parameters::parse(None).is_ok_and(|parameters| parameters.left.is_empty()));
    }

    #[test]
    fn a_bad_value_is_invalid() {
        for limit in [
            "0",
            "-1",
            "1001",
            "1000000000",
            "99999999999999999999",
            "abc",
            "",
            "+5",
            "05",
            "5.0",
        ] {
            let (page, faults) = read(&format!("limit={limit}"));
            assert_eq!(
                (page, faults),
                (None, vec!["limit invalid".to_owned()]),
                "{limit}"
            );
        }
        for cursor in [
            "",
            "x",
            &cursor::encode(&["letters"], "42"),
            &cursor::encode(&["numbers"], "x"),
        ] {
            let (page, faults) = read(&format!("cursor={cursor}"));
            assert_eq!(
                (page, faults),
                (None, vec!["cursor invalid".to_owned()]),
                "{cursor}"
            );
        }
        let both = vec!["limit invalid".to_owned(), "cursor invalid".to_owned()];
        assert_eq!(read("cursor=%20&limit"), (None, both));
    }

    #[test]
    fn a_filter_is_left_out_or_sound() {
        let read = |query: &'static str| {
            let mut faults = Faults::default();
            let mut parameters = Parameters::parse(Some(query)).unwrap();
            let id: Option<Option<UserId>> = parameters.id("user_id", &mut faults);
            let number = parameters.value("n", integer::<u8>, "n", &mut faults);
            (id, number, faults.as_slice().len())
        };
        let id = |text| Some(Some(UserId::try_from(text).unwrap()));
        assert_eq!(read(""), (Some(None), Some(None), 0));
        assert_eq!(read("user_id=a%25b&n=0"), (id("a%b"), Some(Some(0)), 0));
        assert_eq!(read("user_id=a+b&n=255"), (id("a b"), Some(Some(255)), 0));
        for query in ["user_id=&n=256", "user_id=a/b&n=00", "user_id=..&n=+1"] {
            assert_eq!(read(query), (None, None, 2), "{query}");
        }
    }

    #[test]
    fn an_unknown_or_repeated_parameter_is_named() {
        let check = |query: &str, name: &str| {
            assert_eq!(
                read(query).1,
                vec![format!("{name} unknown_parameter")],
                "{query}"
            );
        };
        check("page=2", "page");
        check("limit=5&limit=5", "limit");
        check("Limit=5", "Limit");
        check("a+b%2B=1", "a b+");
        for query in ["%", "limit=%zz", "a=%ff", "%f", "a=%+41"] {
            assert_eq!(read(query), (None, vec!["malformed".to_owned()]), "{query}");
        }
    }
}
