//! The AMQP simple types that an event's properties may hold.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

/// A property's value: one of AMQP's simple types (AMQP 1.0, section 1.6).
///
/// Application properties may hold no lists, maps or arrays (section 3.2.5), so there is no way
/// to write one:
///
/// ```compile_fail
/// let list = hublane::Value::from(vec!["a", "b"]);
/// ```
///
/// # Examples
///
/// ```
/// use hublane::Value;
///
/// assert_eq!(Value::from(7_u16), Value::U16(7));
/// assert_eq!(Value::from("seven"), Value::String("seven".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// The absence of a value, under a name that is present.
    Null,
    /// `boolean`.
    Bool(bool),
    /// `ubyte`.
    U8(u8),
    /// `ushort`.
    U16(u16),
    /// `uint`.
    U32(u32),
    /// `ulong`.
    U64(u64),
    /// `byte`.
    I8(i8),
    /// `short`.
    I16(i16),
    /// `int`.
    I32(i32),
    /// `long`.
    I64(i64),
    /// `float`.
    F32(f32),
    /// `double`.
    F64(f64),
    /// `char`, one Unicode scalar value.
    Char(char),
    /// `timestamp`.
    Timestamp(Timestamp),
    /// `uuid`, its 16 bytes in the order in which it is written.
    Uuid([u8; 16]),
    /// `binary`.
    Binary(Bytes),
    /// `string`.
    String(String),
    /// `symbol`, a name from a small set.
    Symbol(Symbol),
}

macro_rules! value_from {
    ($($variant:ident($source:ty)),+ $(,)?) => {$(
        impl From<$source> for Value {
            fn from(value: $source) -> Self {
                Value::$variant(value)
            }
        }
    )+};
}

value_from! {
    Bool(bool),
    U8(u8), U16(u16), U32(u32), U64(u64),
    I8(i8), I16(i16), I32(i32), I64(i64),
    F32(f32), F64(f64),
    Char(char), Timestamp(Timestamp), Binary(Bytes), String(String), Symbol(Symbol),
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::String(value.to_owned())
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Value::Binary(value.into())
    }
}

/// A point in time, in milliseconds since 1970-01-01T00:00:00Z; negative before it (AMQP 1.0,
/// section 1.6.17).
///
/// # Examples
///
/// ```
/// use hublane::Timestamp;
///
/// assert_eq!(Timestamp::from_millis(1_500).as_millis(), 1_500);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant this many milliseconds after 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Timestamp(millis)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }
}

/// A name made of ASCII characters, as AMQP requires of a symbol (AMQP 1.0, section 1.6.21).
///
/// # Examples
///
/// ```
/// use hublane::Symbol;
///
/// const CSV: Symbol = Symbol::from_static("text/csv");
/// assert_eq!("text/csv".parse::<Symbol>()?, CSV);
/// assert!(Symbol::new("naïve").is_err());
/// # Ok::<(), hublane::SymbolError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Symbol(Cow<'static, str>);

impl Symbol {
    /// A symbol with this text.
    ///
    /// # Errors
    ///
    /// [`SymbolError::NotAscii`] if a character is outside ASCII.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Result<Self, SymbolError> {
        let text = text.into();
        match text
            .char_indices()
            .find(|(_, character)| !character.is_ascii())
        {
            Some((position, character)) => Err(SymbolError::NotAscii {
                character,
                position,
            }),
            None => Ok(Symbol(text)),
        }
    }

    /// A symbol known when the program is written; in a constant it costs nothing at run time.
    ///
    /// # Panics
    ///
    /// If a character is outside ASCII. In a constant this is an error of the compiler.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        assert!(text.is_ascii(), "a symbol takes ASCII characters only");
        Symbol(Cow::Borrowed(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Symbol {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Symbol {
    type Err = SymbolError;

    fn from_str(text: &str) -> Result<Self, SymbolError> {
        Symbol::new(text.to_owned())
    }
}

/// Why a text is not a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolError {
    /// A character outside ASCII.
    #[error("a symbol takes ASCII characters only, and has {character:?} at byte {position}")]
    #[non_exhaustive]
    NotAscii {
        /// The first such character.
        character: char,
        /// Where it begins, in bytes from the start.
        position: usize,
    },
}

/// The name of an event or of a request, in one of the four types that AMQP allows (AMQP 1.0,
/// sections 3.2.11 to 3.2.14).
///
/// Consumers compare ids with their types: the string `"7"` and the number `7` are two ids.
///
/// # Examples
///
/// ```
/// use hublane::MessageId;
///
/// assert_ne!(MessageId::from("7"), MessageId::from(7));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MessageId {
    /// `string`.
    String(String),
    /// `ulong`.
    U64(u64),
    /// `uuid`, its 16 bytes in the order in which it is written.
    Uuid([u8; 16]),
    /// `binary`.
    Binary(Bytes),
}

impl From<&str> for MessageId {
    fn from(id: &str) -> Self {
        MessageId::String(id.to_owned())
    }
}

impl From<String> for MessageId {
    fn from(id: String) -> Self {
        MessageId::String(id)
    }
}

impl From<u64> for MessageId {
    fn from(id: u64) -> Self {
        MessageId::U64(id)
    }
}

impl From<Bytes> for MessageId {
    fn from(id: Bytes) -> Self {
        MessageId::Binary(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn natural_types_become_the_amqp_type_of_the_same_width() {
        assert_eq!(Value::from(1_u8), Value::U8(1));
        assert_eq!(Value::from(1_u64), Value::U64(1));
        assert_eq!(Value::from(-1_i8), Value::I8(-1));
        assert_eq!(Value::from(-1_i64), Value::I64(-1));
        assert_eq!(Value::from(0.5_f32), Value::F32(0.5));
        assert_eq!(Value::from('é'), Value::Char('é'));
        assert_eq!(
            Value::from(vec![1]),
            Value::Binary(Bytes::from_static(&[1]))
        );
    }

    #[test]
    fn a_symbol_outside_ascii_is_refused_with_its_place() {
        let refused = Symbol::new("text/日").unwrap_err();
        assert_eq!(
            refused,
            SymbolError::NotAscii {
                character: '日',
                position: 5
            }
        );
        assert_eq!(
            refused.to_string(),
            "a symbol takes ASCII characters only, and has '日' at byte 5"
        );
    }

    #[test]
    fn the_empty_symbol_and_the_last_ascii_character_are_symbols() {
        assert_eq!(Symbol::new("").unwrap().as_str(), "");
        assert_eq!(Symbol::new("\u{7f}").unwrap().as_str(), "\u{7f}");
        assert!(Symbol::new("\u{80}").is_err());
    }

    #[test]
    #[should_panic(expected = "ASCII")]
    fn a_static_symbol_outside_ascii_panics() {
        let _ = Symbol::from_static("é");
    }
}
