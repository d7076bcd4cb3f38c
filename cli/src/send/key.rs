//! The partition key of a line: the value at one place of its JSON.

use hublane::{PartitionKey, PartitionKeyError};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// A place in a JSON document, as RFC 6901 writes it.
#[derive(Clone, Debug)]
pub struct KeyField {
    text: String,
    tokens: Vec<String>,
}

/// Why a text is not a JSON pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// It does not begin as pointers do.
    #[error("a JSON pointer begins with /")]
    NoSlash,
    /// A tilde that stands for nothing.
    #[error("in a JSON pointer ~ is written ~0, and / in a name ~1")]
    Tilde,
}

/// Why a line has no partition key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// The line is not one JSON text.
    #[error("not JSON (column {column})")]
    NotJson {
        /// Where that was noticed, counted from 1.
        column: usize,
    },
    /// The document has nothing there.
    #[error("no value at {pointer}")]
    Missing {
        /// The place.
        pointer: String,
    },
    /// What is there cannot be a key.
    #[error("{kind} at {pointer}, which cannot be a partition key")]
    Kind {
        /// The place.
        pointer: String,
        /// What is there.
        kind: &'static str,
    },
    /// What is there is too long or empty.
    #[error("{0}")]
    Refused(#[from] PartitionKeyError),
}

impl KeyField {
    /// Reads a pointer; the empty one means the whole document.
    ///
    /// # Errors
    ///
    /// [`PointerError`] says what is wrong with it.
    pub fn parse(text: &str) -> Result<KeyField, PointerError> {
        let mut parts = text.split('/');
        if parts.next() != Some("") {
            return Err(PointerError::NoSlash);
        }
        let tokens = parts.map(unescape).collect::<Result<_, _>>()?;
        Ok(KeyField {
            text: text.to_owned(),
            tokens,
        })
    }

    /// The key of a line.
    ///
    /// # Errors
    ///
    /// [`KeyProblem`] says why it has none.
    pub fn key_of(&self, line: &[u8]) -> Result<PartitionKey, KeyProblem> {
        let mut json = serde_json::Deserializer::from_slice(line);
        let found = Walk(&self.tokens)
            .deserialize(&mut json)
            .and_then(|found| json.end().map(|()| found))
            .map_err(|error| KeyProblem::NotJson {
                column: error.column(),
            })?;
        let Some(value) = found.map(RawValue::get) else {
            return Err(KeyProblem::Missing {
                pointer: self.text.clone(),
            });
        };
        let kind = match value.as_bytes().first() {
            Some(b'"') => {
                let text: String =
                    serde_json::from_str(value).map_err(|error| KeyProblem::NotJson {
                        column: error.column(),
                    })?;
                return Ok(PartitionKey::new(text)?);
            }
            Some(b'n') => "null",
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            _ => return Ok(PartitionKey::new(value)?),
        };
        Err(KeyProblem::Kind {
            pointer: self.text.clone(),
            kind,
        })
    }
}

fn unescape(token: &str) -> Result<String, PointerError> {
    let mut text = String::with_capacity(token.len());
    let mut rest = token.chars();
    while let Some(c) = rest.next() {
        text.push(match c {
            '~' => match rest.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => return Err(PointerError::Tilde),
            },
            c => c,
        });
    }
    Ok(text)
}

/// Walks to a place and takes what stands there as it is written. Reads the document to its end
/// and keeps nothing else of it. Of names that stand twice the last counts, as in `serde_json`.
struct Walk<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            serde::Deserialize::deserialize(json).map(Some)
        } else {
            json.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Some((wanted, rest)) = self.0.split_first() else {
            return Ok(None);
        };
        let mut found = None;
        while let Some(here) = map.next_key_seed(Name(wanted))? {
            if here {
                found = map.next_value_seed(Walk(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let Some((wanted, rest)) = self.0.split_first() else {
            return Ok(None);
        };
        // "01" and "+1" are no indices.
        let index = wanted
            .parse::<usize>()
            .ok()
            .filter(|index| index.to_string() == *wanted);
        let mut found = None;
        for at in 0.. {
            if Some(at) == index {
                match seq.next_element_seed(Walk(rest))? {
                    Some(value) => found = value,
                    None => break,
                }
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Whether a name is this one, without a copy of it.
struct Name<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pointer: &str, line: &str) -> Result<String, String> {
        KeyField::parse(pointer)
            .unwrap()
            .key_of(line.as_bytes())
            .map(|key| key.as_str().to_owned())
            .map_err(|problem| problem.to_string())
    }

    #[test]
    fn strings_numbers_and_booleans_are_keys_as_they_are_written() {
        let line = r#" {"s":"a\u00e9\n","n":1.50,"big":123456789012345678901234567890,"e":1e3,
            "t":true,"deep":{"list":[0,{"x":"y"}]},"a/b":"slash","c~d":"tilde","":"empty"} "#;
        for (pointer, value) in [
            ("/s", "aé\n"),
            ("/n", "1.50"),
            ("/big", "123456789012345678901234567890"),
            ("/e", "1e3"),
            ("/t", "true"),
            ("/deep/list/0", "0"),
            ("/deep/list/1/x", "y"),
            ("/a~1b", "slash"),
            ("/c~0d", "tilde"),
            ("/", "empty"),
        ] {
            assert_eq!(key(pointer, line).as_deref(), Ok(value), "{pointer}");
        }
        assert_eq!(key("", "17").as_deref(), Ok("17"));
    }

    #[test]
    fn the_last_of_equal_names_counts() {
        assert_eq!(key("/a", r#"{"a":1,"a":2}"#).as_deref(), Ok("2"));
        assert_eq!(
            key("/a/b", r#"{"a":{"b":1},"a":3}"#).unwrap_err(),
            "no value at /a/b"
        );
    }

    #[test]
    fn what_is_absent_is_missing() {
        for (pointer, line) in [
            ("/a", "{}"),
            ("/a/b", r#"{"a":"text"}"#),
            ("/a/b", r#"{"a":null}"#),
            ("/a/2", r#"{"a":[0,1]}"#),
            ("/a/01", r#"{"a":[0,1]}"#),
            ("/a/-", r#"{"a":[0,1]}"#),
            ("/a", "1.5"),
            ("/a", "-2"),
            ("/a", "false"),
        ] {
            assert_eq!(
                key(pointer, line).unwrap_err(),
                format!("no value at {pointer}"),
                "{line}"
            );
        }
    }

    #[test]
    fn what_cannot_be_a_key_says_what_it_is() {
        let line = r#"{"z":null,"o":{},"l":[],"e":""}"#;
        assert!(key("/z", line).unwrap_err().starts_with("null at /z"));
        assert!(key("/o", line).unwrap_err().starts_with("an object at /o"));
        assert!(key("/l", line).unwrap_err().starts_with("an array at /l"));
        assert!(key("/e", line).unwrap_err().contains("empty"));
        let long = format!(r#"{{"k":"{}"}}"#, "x".repeat(129));
        assert!(key("/k", &long).unwrap_err().contains("129"));
    }

    #[test]
    fn a_line_that_is_not_one_json_text_is_refused_wherever_it_breaks() {
        for line in [
            "",
            "text",
            r#"{"a":1"#,
            r#"{"a":1} x"#,
            r#"{"a":1}{"a":2}"#,
            r#"{"a":1,}"#,
            r#"{"a":1,"b":nul}"#,
            "{\"a\":\"\u{1}\"}",
        ] {
            let problem = key("/a", line).unwrap_err();
            assert!(problem.starts_with("not JSON"), "{line}: {problem}");
        }
        let field = KeyField::parse("/a").unwrap();
        assert!(field.key_of(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn a_pointer_begins_with_a_slash_and_escapes_its_tildes() {
        assert_eq!(KeyField::parse("a").unwrap_err(), PointerError::NoSlash);
        assert_eq!(KeyField::parse("/a~").unwrap_err(), PointerError::Tilde);
        assert_eq!(KeyField::parse("/a~2").unwrap_err(), PointerError::Tilde);
    }
}
