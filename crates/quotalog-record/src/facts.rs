//! Facts of the audit as JSON texts: an object of texts, arrays of texts, numbers and nulls, in the order of
//! the facts.
//!
//! A name that is not known here is read like any other, since a newer program may have written it.

use std::fmt;

use quotalog_ledger::store::{Fact, Facts};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// The facts as text.
#[must_use]
#[expect(
    clippy::missing_panics_doc,
    reason = "texts, their arrays, numbers and nulls have a JSON text"
)]
pub fn to_json(facts: &Facts) -> String {
    serde_json::to_string(&Written(facts))
        .expect("texts, their arrays, numbers and nulls have a JSON text")
}

/// The facts of a text; `None` if it is not of this form.
#[must_use]
pub fn from_json(text: &str) -> Option<Facts> {
    let Read(facts) = serde_json::from_str(text).ok()?;
    Some(facts)
}

struct Written<'a>(&'a Facts);
struct WrittenFact<'a>(&'a Fact);
struct Read(Facts);
struct ReadFact(Fact);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (name, fact) in self.0.iter() {
            object.serialize_entry(name, &WrittenFact(fact))?;
        }
        object.end()
    }
}

impl Serialize for WrittenFact<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Fact::Text(text) => serializer.serialize_str(text),
            Fact::Texts(texts) => texts.serialize(serializer),
            Fact::Number(number) => serializer.serialize_u64(*number),
            Fact::Null => serializer.serialize_unit(),
        }
    }
}

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object)
    }
}

impl<'de> Deserialize<'de> for ReadFact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Value)
    }
}

struct Object;
struct Value;

impl<'de> Visitor<'de> for Object {
    type Value = Read;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of facts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Read, A::Error> {
        let mut facts = Vec::new();
        while let Some((name, ReadFact(fact))) = object.next_entry()? {
            facts.push((name, fact));
        }
        Ok(Read(facts.into_iter().collect()))
    }
}

impl<'de> Visitor<'de> for Value {
    type Value = ReadFact;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text, an array of texts, a number or null")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ReadFact, E> {
        Ok(ReadFact(Fact::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<ReadFact, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = array.next_element()? {
            texts.push(text);
        }
        Ok(ReadFact(Fact::Texts(texts)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<ReadFact, E> {
        Ok(ReadFact(Fact::Number(number)))
    }

    fn visit_unit<E: Error>(self) -> Result<ReadFact, E> {
        Ok(ReadFact(Fact::Null))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts::default()
            .with(
                "window",
                Fact::Text("a \"quoted\" \\ 日本語 \u{1f600}".to_owned()),
            )
            .with("limit_count", Fact::Number(u64::MAX))
            .with("a name of later", Fact::Null)
            .with("ids", Fact::Texts(vec!["a".to_owned(), "\"".to_owned()]))
            .with("none", Fact::Texts(vec![]))
            .with("", Fact::Number(0))
    }

    #[test]
    fn facts_are_read_as_they_were_written_and_in_their_order() {
        for facts in [facts(), Facts::default()] {
            assert_eq!(from_json(&to_json(&facts)), Some(facts));
        }
        let policy = Facts::default()
            .with("window", Fact::Text("daily".to_owned()))
            .with("limit_count", Fact::Number(5));
        assert_eq!(to_json(&policy), r#"{"window":"daily","limit_count":5}"#);
    }

    #[test]
    fn what_is_no_object_of_facts_is_none() {
        let whole = to_json(&facts());
        for len in (0..whole.len()).filter(|len| whole.is_char_boundary(*len)) {
            assert_eq!(from_json(&whole[..len]), None, "cut at {len}");
        }
        for text in [
            "[]",
            "null",
            "7",
            r#"{"a":{}}"#,
            r#"{"a":-1}"#,
            r#"{"a":[1]}"#,
            r#"{"a":[[]]}"#,
            r#"{"a":1.5}"#,
            "{} {}",
        ] {
            assert_eq!(from_json(text), None, "{text}");
        }
    }
}
