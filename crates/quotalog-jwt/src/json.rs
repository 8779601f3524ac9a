//! JSON objects in which no member comes twice: two readers of one token must not see different claims
//! (RFC 7519 section 4, RFC 7515 section 5.2).

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The object that `bytes` are, if they are one without repeated members, at any depth.
pub(crate) fn object(bytes: &[u8]) -> Option<Value> {
    let Object(value) = serde_json::from_slice(bytes).ok()?;
    Some(value)
}

/// An object without repeated members, at any depth.
pub(crate) struct Object(pub(crate) Value);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Unique(value) = Unique::deserialize(deserializer)?;
        if value.is_object() {
            Ok(Self(value))
        } else {
            Err(D::Error::custom("no object"))
        }
    }
}

/// A value whose objects have no member twice.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON without repeated members")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value);
        number
            .map(Value::Number)
            .ok_or_else(|| E::custom("not finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Unique(value))) = members.next_entry::<String, Unique>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a member comes twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_as_it_is_written() {
        let text = r#"{"a":[1,-2,1.5,"x",true,null,{"b":{}}],"c":18446744073709551615}"#;
        assert_eq!(object(text.as_bytes()).unwrap().to_string(), text);
    }

    #[test]
    fn a_member_that_comes_twice_is_refused_at_any_depth() {
        for text in [
            r#"{"sub":"alice","sub":"bob"}"#,
            r#"{"sub":"alice","\u0073ub":"bob"}"#,
            r#"{"a":[{"b":1,"b":1}]}"#,
            r#"{"a":1} "#.repeat(2).as_str(),
            "[]",
            "\"x\"",
            "",
            "{",
            "\u{feff}{}",
            r#"{"a":1e999}"#,
            &"[".repeat(10_000),
        ] {
            assert_eq!(object(text.as_bytes()), None, "{text}");
        }
        assert_eq!(object(b"{\"a\":\"\xff\"}"), None);
    }
}
