//! Reading and building the lists that performatives are.

use serde_amqp::{
    Value,
    described::Described,
    descriptor::Descriptor,
    primitives::{OrderedMap, Symbol},
};

use super::scan::Malformed;

/// The fields of a performative in order; trailing fields may be missing.
#[derive(Debug)]
pub(crate) struct Fields(Vec<Value>);

impl Fields {
    /// Takes the list out of a described value, whatever its descriptor.
    pub(crate) fn of(value: Value) -> Option<Self> {
        match value {
            Value::Described(described) => match described.value {
                Value::List(list) => Some(Self(list)),
                _ => None,
            },
            Value::List(list) => Some(Self(list)),
            _ => None,
        }
    }

    /// Moves a field out; missing fields are null.
    pub(crate) fn take(&mut self, index: usize) -> Value {
        self.0
            .get_mut(index)
            .map(std::mem::take)
            .unwrap_or_default()
    }

    pub(crate) fn get(&self, index: usize) -> &Value {
        self.0.get(index).unwrap_or(&Value::Null)
    }

    /// An unsigned integer of any width, `None` when null.
    pub(crate) fn unsigned(&self, index: usize) -> Result<Option<u64>, Malformed> {
        match self.get(index) {
            Value::Null => Ok(None),
            Value::Ubyte(n) => Ok(Some(u64::from(*n))),
            Value::Ushort(n) => Ok(Some(u64::from(*n))),
            Value::Uint(n) => Ok(Some(u64::from(*n))),
            Value::Ulong(n) => Ok(Some(*n)),
            _ => Err(Malformed::Field(index)),
        }
    }

    pub(crate) fn uint(&self, index: usize) -> Result<Option<u32>, Malformed> {
        let wide = self.unsigned(index)?;
        wide.map(|n| u32::try_from(n).map_err(|_| Malformed::Field(index)))
            .transpose()
    }

    pub(crate) fn flag(&self, index: usize) -> Result<bool, Malformed> {
        match self.get(index) {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            _ => Err(Malformed::Field(index)),
        }
    }

    /// A string or symbol: clients mix the two.
    pub(crate) fn text(&self, index: usize) -> Option<&str> {
        text_of(self.get(index))
    }

    pub(crate) fn need<T>(value: Option<T>, index: usize) -> Result<T, Malformed> {
        value.ok_or(Malformed::Field(index))
    }
}

/// The characters of a string or symbol.
pub(crate) fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        Value::Symbol(symbol) => Some(symbol.as_str()),
        _ => None,
    }
}

/// The entry of a map whose key is the string or symbol `key`.
pub(crate) fn map_entry<'a>(map: &'a Value, key: &str) -> Option<&'a Value> {
    let Value::Map(map) = map else { return None };
    map.iter()
        .find(|(name, _)| text_of(name) == Some(key))
        .map(|(_, value)| value)
}

pub(crate) fn described(code: u64, value: Value) -> Value {
    Value::Described(Box::new(Described {
        descriptor: Descriptor::Code(code),
        value,
    }))
}

/// A described list in which every field is present, null where it has nothing to say.
///
/// The specification lets a sender omit trailing nulls; the Python client indexes by position
/// and fails on that.
pub(crate) fn composite(code: u64, fields: Vec<Value>) -> Value {
    described(code, Value::List(fields))
}

pub(crate) fn symbol(text: &str) -> Value {
    Value::Symbol(Symbol::new(text))
}

pub(crate) fn string(text: impl Into<String>) -> Value {
    Value::String(text.into())
}

pub(crate) fn map(entries: impl IntoIterator<Item = (Value, Value)>) -> Value {
    let mut map = OrderedMap::new();
    for (key, value) in entries {
        map.insert(key, value);
    }
    Value::Map(map)
}

/// An optional number as a value.
pub(crate) fn uint_or_null(number: Option<u32>) -> Value {
    number.map_or(Value::Null, Value::Uint)
}

/// An `amqp:error:list`.
pub(crate) fn error(condition: &str, description: &str) -> Value {
    composite(
        super::code::ERROR,
        vec![symbol(condition), string(description), Value::Null],
    )
}

/// Encodes a value that this crate has built itself.
pub(crate) fn encode(value: &Value) -> Vec<u8> {
    // Serializing a `Value` into memory fails for no value; an empty frame body would be a
    // heartbeat, which is harmless.
    serde_amqp::to_vec(value).unwrap_or_default()
}
