//! A strict reading of JSON bodies (RFC 8259): what is bent elsewhere is refused here.
//!
//! A field given twice, a lone surrogate anywhere and deep nesting are malformed. Numbers keep the
//! text they were written with, so that `1.0` and `1e3` are not taken for integers and no integer
//! is too long to be judged.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The deepest nesting that is read. No request of ours nests deeper than 3.
const DEPTH_MAX: usize = 32;

/// The fields of a JSON object that no one has asked for yet.
#[derive(Debug, Default)]
pub(crate) struct Object<'a>(BTreeMap<String, &'a RawValue>);

/// One value as it was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Value<'a>(&'a str);

/// The text is not a JSON object, or one that could be read in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedJson;

impl<'a> Object<'a> {
    /// Reads a body.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, MalformedJson> {
        let text = std::str::from_utf8(body).map_err(|_not_utf8| MalformedJson)?;
        check_depth_and_surrogates(text)?;
        serde_json::from_str(text).map_err(|_malformed| MalformedJson)
    }

    /// Takes a field out, if it was given.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value<'a>> {
        self.0.remove(name).map(|raw| Value(raw.get()))
    }

    /// A field, if it was given, which stays to be taken.
    pub(crate) fn get(&self, name: &str) -> Option<Value<'a>> {
        self.0.get(name).map(|raw| Value(raw.get()))
    }

    /// The names of the fields that were not taken.
    pub(crate) fn into_names(self) -> impl Iterator<Item = String> {
        self.0.into_keys()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = BTreeMap<String, &'de RawValue>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry()? {
                    if fields.insert(name, value).is_some() {
                        return Err(A::Error::custom("a field twice"));
                    }
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(Fields).map(Self)
    }
}

impl<'a> Value<'a> {
    /// The elements of an array; `None` for anything else.
    pub(crate) fn array(self) -> Option<Vec<Self>> {
        let raws: Vec<&'a RawValue> = serde_json::from_str(self.0).ok()?;
        Some(raws.into_iter().map(|raw| Self(raw.get())).collect())
    }

    /// The fields of an object; `None` for anything else.
    ///
    /// # Errors
    /// [`MalformedJson`] if it has a field twice.
    pub(crate) fn object(self) -> Result<Option<Object<'a>>, MalformedJson> {
        if !self.0.starts_with('{') {
            return Ok(None);
        }
        serde_json::from_str(self.0)
            .map(Some)
            .map_err(|_twice| MalformedJson)
    }

    /// The value of an integer that is not negative, [`u64::MAX`] if it is larger than that; `None`
    /// for anything else, a fraction or exponent included.
    pub(crate) fn unsigned_integer(self) -> Option<u64> {
        let all_digits = self.0.bytes().all(|byte| byte.is_ascii_digit());
        all_digits.then(|| self.0.parse().unwrap_or(u64::MAX))
    }

    /// The text of a string; `None` for anything else.
    pub(crate) fn string(self) -> Option<String> {
        serde_json::from_str(self.0).ok()
    }

    /// Whether this is `null`.
    pub(crate) fn is_null(self) -> bool {
        self.0 == "null"
    }
}

/// Looks through the whole text once for what `serde_json` lets pass in values that nobody reads.
/// Everything else about the grammar is left to it.
fn check_depth_and_surrogates(text: &str) -> Result<(), MalformedJson> {
    let bytes = text.as_bytes();
    let (mut depth, mut in_string, mut at) = (0_usize, false, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match (in_string, byte) {
            (_, b'"') => in_string = !in_string,
            (true, b'\\') => at += escape_len(&bytes[at..])? - 1,
            (false, b'{' | b'[') => depth += 1,
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            (true | false, _) => {}
        }
        if depth > DEPTH_MAX {
            return Err(MalformedJson);
        }
        at += 1;
    }
    Ok(())
}

/// The length of the escape that `bytes` start with, both halves of a surrogate pair counted as
/// one.
fn escape_len(bytes: &[u8]) -> Result<usize, MalformedJson> {
    match code_unit(bytes) {
        None => Ok(2),
        Some(0xD800..=0xDBFF) => match bytes.get(6..).and_then(code_unit) {
            Some(0xDC00..=0xDFFF) => Ok(12),
            Some(_) | None => Err(MalformedJson),
        },
        Some(0xDC00..=0xDFFF) => Err(MalformedJson),
        Some(_) => Ok(6),
    }
}

/// The UTF-16 code unit of the `\uXXXX` that `bytes` start with.
fn code_unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(br"\u")?.get(..4)?;
    let all_digits = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| all_digits)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_sound_object_is_malformed() {
        for text in [
            "",
            " \n",
            "null",
            "[]",
            "7",
            "\"x\"",
            "{",
            "{}x",
            "{}{}",
            "{\"a\":1,}",
            "{'a':1}",
            "{a:1}",
            "{\"a\":1,\"a\":1}",
            "{\"a\":1,\"\\u0061\":1}",
            "\u{feff}{}",
            "{\"a\":05}",
            "{\"a\":+5}",
            "{\"a\":0x5}",
            "{\"a\":NaN}",
            "{\"a\":5.}",
            "{\"a\":.5}",
            "{\"a\":-}",
            "{\"a\":1e}",
            "{\"a\":Infinity}",
            "{\"a\":\"\n\"}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u12\"}",
            r#"{"a":"\ud800"}"#,
            r#"{"a":"\udc00"}"#,
            r#"{"a":"\ud800\ud800"}"#,
            r#"{"a":"\ud800x"}"#,
            r#"{"a":"\udc00\ud800"}"#,
            r#"{"\ud83d":1}"#,
            r#"{"a":[{"b":"\uD800\n"}]}"#,
            r#"{"a":"\ud800\"}"#,
            r#"{"a":"\u+123"}"#,
            "{} // x",
            "{\"a\":1}\0",
        ] {
            assert!(Object::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Object::parse(b"{\"a\":\"\xff\"}").is_err());
        assert!(Object::parse(b"\xff\xfe{\0}\0").is_err());
        assert!(Object::parse(b"{\0}\0").is_err());
    }

    #[test]
    fn deep_nesting_is_malformed_and_deeper_nesting_no_danger() {
        let nested = |depth: usize| {
            format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth)).into_bytes()
        };
        assert!(Object::parse(&nested(DEPTH_MAX - 1)).is_ok());
        assert!(Object::parse(&nested(DEPTH_MAX)).is_err());
        assert!(Object::parse(&nested(100_000)).is_err());
        assert!(Object::parse("{\"a\":".repeat(100_000).as_bytes()).is_err());
        assert!(Object::parse(br#"{"a":"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["}"#).is_ok());
    }

    #[test]
    fn escapes_are_read() {
        let body = br#" { "\u0061" : "\ud83d\ude00 \\\"\/ \\ud800" , "b" : null } "#;
        let mut object = Object::parse(body).unwrap();
        let text = object.take("a").unwrap().string();
        assert_eq!(text.as_deref(), Some("\u{1f600} \\\"/ \\ud800"));
        assert!(object.take("a").is_none());
        assert!(object.take("b").unwrap().is_null());
        assert_eq!(object.into_names().count(), 0);
    }

    #[test]
    fn an_array_holds_objects_that_are_read_as_strictly() {
        let body = br#"{"a":[{"b":1}, 7 ,{"b":1,"b":1}],"o":{},"n":null}"#;
        let mut object = Object::parse(body).unwrap();
        let elements = object.get("a").unwrap().array().unwrap();
        assert_eq!(elements.len(), 3);
        let mut first = elements[0].object().unwrap().unwrap();
        assert_eq!(first.take("b").unwrap().unsigned_integer(), Some(1));
        assert!(elements[1].object().unwrap().is_none());
        assert_eq!(elements[1].unsigned_integer(), Some(7));
        assert_eq!(elements[2].object().unwrap_err(), MalformedJson);
        assert!(object.take("a").is_some());
        assert!(object.take("o").unwrap().array().is_none());
        assert!(object.take("n").unwrap().array().is_none());
    }

    #[test]
    fn an_integer_is_what_is_written_as_one() {
        let check = |text: &str, integer: Option<u64>| {
            let body = format!("{{\"a\":{text}}}");
            let mut object = Object::parse(body.as_bytes()).unwrap();
            assert_eq!(
                object.take("a").unwrap().unsigned_integer(),
                integer,
                "{text}"
            );
        };
        check("0", Some(0));
        check(" 10 ", Some(10));
        check("18446744073709551615", Some(u64::MAX));
        check("18446744073709551616", Some(u64::MAX));
        check(&"9".repeat(10_000), Some(u64::MAX));
        for text in [
            "9.9",
            "1.0",
            "1e3",
            "1E400",
            "-0",
            "-1",
            "-99999999999999999999",
            "\"10\"",
            "true",
            "null",
            "[5]",
            "{}",
        ] {
            check(text, None);
        }
    }
}
