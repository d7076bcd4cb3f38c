//! One AMQP message as an event (AMQP 1.0, sections 1.2, 1.6 and 3.2).
//!
//! There is no recursion: what an event has no place for is stepped over by its width, which the
//! upper half of every constructor tells, and what it has a place for is never nested. So however
//! deep a message is nested, it costs one pass and no stack.

use std::borrow::Cow;

use bytes::Bytes;

use super::encode::code::{BINARY_8, BINARY_32, DESCRIBED, SMALL_ULONG};
use super::encode::section::{APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS, PROPERTIES};
use crate::event::{Event, MessageId, Symbol, SymbolError, Timestamp, Value};
use crate::partition::{PartitionKey, PartitionKeyError};

/// The annotation that carries the partition key of an event.
const PARTITION_KEY_ANNOTATION: &[u8] = b"x-opt-partition-key";

/// The most application properties that a message may have.
///
/// [`Event::with_property`] compares a new name with all before it, so the work grows with the
/// square of their number, and a message of 1 MiB has room for more than a hundred thousand. Far
/// more than senders set, and few enough that nobody can keep a reader busy with them.
const MAX_PROPERTIES: usize = 4096;

const AMQP_SEQUENCE: u8 = 0x76;
const AMQP_VALUE: u8 = 0x77;

/// The sections in the order in which they may stand: descriptor and symbolic descriptor (AMQP
/// 1.0, section 3.2). Their numbers ascend.
const SECTIONS: [(u8, &[u8]); 9] = [
    (0x70, b"amqp:header:list"),
    (0x71, b"amqp:delivery-annotations:map"),
    (MESSAGE_ANNOTATIONS, b"amqp:message-annotations:map"),
    (PROPERTIES, b"amqp:properties:list"),
    (APPLICATION_PROPERTIES, b"amqp:application-properties:map"),
    (DATA, b"amqp:data:binary"),
    (AMQP_SEQUENCE, b"amqp:amqp-sequence:list"),
    (AMQP_VALUE, b"amqp:amqp-value:*"),
    (0x78, b"amqp:footer:map"),
];

const NULL: u8 = 0x40;
const LIST_0: u8 = 0x45;

// The small and the large constructor of what has a length (AMQP 1.0, section 1.6).
const BINARY: [u8; 2] = [BINARY_8, BINARY_32];
const STRING: [u8; 2] = [0xa1, 0xb1];
const SYMBOL: [u8; 2] = [0xa3, 0xb3];
const LIST: [u8; 2] = [0xc0, 0xd0];
const MAP: [u8; 2] = [0xc1, 0xd1];

/// Strings and symbols, which not every sender tells apart.
const TEXT: [u8; 4] = [STRING[0], STRING[1], SYMBOL[0], SYMBOL[1]];

/// Reads one complete AMQP message: the event, and its partition key if it has one.
///
/// It undoes [`encode`](super::encode()): what comes out is what went in, the context aside. It
/// reads the messages of other senders too, in every encoding that AMQP has for a type:
///
/// - Header, delivery annotations and footer are skipped, as are all annotations but
///   `x-opt-partition-key` and all properties but the ids and the content type. Of what is
///   skipped only the width is looked at.
/// - The body is the `data` sections one after another, or an `amqp-value` that is a string or a
///   binary.
/// - An application property of a described type becomes the value that is described; the
///   descriptor is lost. The Azure SDKs describe their time spans and URIs.
/// - An empty or null partition key is no key, as the Azure SDKs have it.
///
/// The event owns copies of what it needs, each byte copied once; memory is proportional to the
/// message whatever lengths it claims.
///
/// # Errors
///
/// [`DecodeError`], which has the offset, if the bytes
///
/// - are not AMQP: an end too early, a constructor that does not exist, text that is not UTF-8,
///   a size that disagrees with its count;
/// - are no message: an unknown section, sections out of order or twice, no body, a property or a
///   partition key twice, a name or a field of a type that it cannot have;
/// - are a message that no event can hold: a body of any other type, an application property that
///   is a list, a map, an array or a decimal number, more than 4096 application properties, a
///   partition key longer than [`PartitionKey::MAX_LEN`]. Nothing of these is dropped or cut: an
///   event without it would be another event.
///
/// # Examples
///
/// ```
/// use hublane::codec::{Payload, decode};
/// use hublane::{Event, PartitionKey};
///
/// let event = Event::new("21.5").with_property("sensor", "roof");
/// let key = PartitionKey::new("house-3")?;
/// let mut batch = Payload::default();
/// batch.push(&event, Some(&key));
///
/// let message = batch.sections().next().unwrap();
/// assert_eq!(decode(message)?, (event, Some(key)));
/// assert_eq!(decode(&message[..9]).unwrap_err().offset(), 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn decode(message: &[u8]) -> Result<(Event, Option<PartitionKey>), DecodeError> {
    let sections = Sections::locate(message)?;
    let body = sections.body.ok_or(Reason::NoBody.at(message.len()))?;
    let mut event = Event::new(body.into_owned());
    if let Some(list) = sections.properties {
        event = read_properties(list, event)?;
    }
    if let Some(map) = sections.application_properties {
        event = read_application_properties(map, event)?;
    }
    let key = sections.annotations.map(read_partition_key).transpose()?;
    Ok((event, key.flatten()))
}

/// Why bytes are not a message that an [`Event`] can hold, and where.
///
/// # Examples
///
/// ```
/// use hublane::codec::decode;
///
/// let error = decode(b"\x00\x53\x75\x41").unwrap_err();
/// assert_eq!(error.offset(), 3);
/// assert_eq!(error.to_string(), "at byte 3: constructor 0x41 where a binary should begin");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {reason}")]
pub struct DecodeError {
    offset: usize,
    reason: Reason,
}

impl DecodeError {
    /// Where in the message the fault is, in bytes from its start: at most its length.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Reason {
    #[error("what begins here goes beyond the end of what it is in")]
    Truncated,
    #[error("constructor {found:#04x} where {wanted} should begin")]
    Constructor { found: u8, wanted: &'static str },
    #[error("the descriptor of no section of a message")]
    UnknownSection,
    #[error("a section that cannot follow the one before it")]
    Order,
    #[error("the message ends without a body")]
    NoBody,
    #[error("a body that is not bytes, but a sequence of values")]
    Sequence,
    #[error("text that is not UTF-8")]
    Utf8,
    #[error("a symbol with a character outside ASCII")]
    NotAscii,
    #[error("bytes that are no value of their type")]
    NoValue,
    #[error("the size of a list or map says there is more than its count says")]
    Leftover,
    #[error("a map with a key that has no value")]
    OddCount,
    #[error("a name that its map already has")]
    Duplicate,
    #[error("a map of {0} application properties, and the limit is {MAX_PROPERTIES}")]
    TooManyProperties(usize),
    #[error("{0}")]
    PartitionKey(PartitionKeyError),
}

impl Reason {
    fn at(self, offset: usize) -> DecodeError {
        let reason = self;
        DecodeError { offset, reason }
    }
}

/// The parts of a message, none but the body looked into yet.
#[derive(Default)]
struct Sections<'a> {
    annotations: Option<Items<'a>>,
    properties: Option<Items<'a>>,
    application_properties: Option<Items<'a>>,
    /// Borrowed while it is a single section, so that none is copied twice.
    body: Option<Cow<'a, [u8]>>,
}

impl<'a> Sections<'a> {
    fn locate(message: &'a [u8]) -> Result<Self, DecodeError> {
        let (bytes, at) = (message, 0);
        let mut reader = Reader { bytes, at };
        let (mut sections, mut last) = (Sections::default(), 0);
        while reader.at < message.len() {
            let start = reader.at;
            let section = reader.section()?;
            let again = section == last && section == DATA;
            let second_body = section == AMQP_VALUE && last == DATA;
            if (section <= last && !again) || second_body {
                return Err(Reason::Order.at(start));
            }
            last = section;
            match section {
                MESSAGE_ANNOTATIONS => sections.annotations = Some(reader.map()?),
                PROPERTIES => sections.properties = Some(reader.list()?),
                APPLICATION_PROPERTIES => sections.application_properties = Some(reader.map()?),
                DATA => {
                    let data = reader.sized_of(&BINARY, "a binary")?;
                    sections.push_data(data, message.len() - reader.at);
                }
                AMQP_SEQUENCE => return Err(Reason::Sequence.at(start)),
                AMQP_VALUE => sections.body = Some(reader.text_or_binary()?.into()),
                _ => reader.skip()?,
            }
        }
        Ok(sections)
    }

    /// Appends to the body. At most `left` bytes of the message come after this section.
    fn push_data(&mut self, data: &'a [u8], left: usize) {
        let Some(body) = &mut self.body else {
            self.body = Some(data.into());
            return;
        };
        if let Cow::Borrowed(first) = body {
            // Enough for whatever may follow, so it never grows, which would copy again.
            let mut joined = Vec::with_capacity(first.len() + data.len() + left);
            joined.extend_from_slice(first);
            *body = joined.into();
        }
        body.to_mut().extend_from_slice(data);
    }
}

/// The ids and the content type are the fields 0, 5 and 6 (AMQP 1.0, section 3.2.4).
fn read_properties(list: Items<'_>, mut event: Event) -> Result<Event, DecodeError> {
    let mut inside = list.inside;
    for field in 0..list.count {
        event = match field {
            0 | 5 | 6 if inside.step_over(NULL) => event,
            0 => event.with_message_id(inside.message_id()?),
            5 => event.with_correlation_id(inside.message_id()?),
            6 => event.with_content_type(symbol(inside.text(&TEXT, "a content type")?)?),
            _ => {
                inside.skip()?;
                event
            }
        };
    }
    inside.finish()?;
    Ok(event)
}

fn read_application_properties(map: Items<'_>, mut event: Event) -> Result<Event, DecodeError> {
    let mut inside = map.inside;
    if map.count > MAX_PROPERTIES {
        return Err(Reason::TooManyProperties(map.count).at(inside.at));
    }
    for known in 0..map.count {
        let start = inside.at;
        let (name, _) = inside.text(&STRING, "the name of an application property")?;
        event = event.with_property(name.to_owned(), inside.value()?);
        if event.properties().len() == known {
            return Err(Reason::Duplicate.at(start));
        }
    }
    inside.finish()?;
    Ok(event)
}

fn read_partition_key(map: Items<'_>) -> Result<Option<PartitionKey>, DecodeError> {
    let mut inside = map.inside;
    let (mut key, mut seen) = (None, false);
    for _ in 0..map.count {
        let start = inside.at;
        if inside.name()? != PARTITION_KEY_ANNOTATION {
            inside.skip()?;
            continue;
        }
        if std::mem::replace(&mut seen, true) {
            return Err(Reason::Duplicate.at(start));
        }
        if !inside.step_over(NULL) {
            let (text, at) = inside.text(&TEXT, "a partition key")?;
            key = match PartitionKey::new(text) {
                Err(PartitionKeyError::Empty) => None,
                read => Some(read.map_err(|refused| Reason::PartitionKey(refused).at(at))?),
            };
        }
    }
    inside.finish()?;
    Ok(key)
}

fn symbol((text, at): (&str, usize)) -> Result<Symbol, DecodeError> {
    Symbol::new(text.to_owned())
        .map_err(|SymbolError::NotAscii { position, .. }| Reason::NotAscii.at(at + position))
}

fn unexpected<T>(found: u8, at: usize, wanted: &'static str) -> Result<T, DecodeError> {
    Err(Reason::Constructor { found, wanted }.at(at))
}

/// The inside of a list or a map.
struct Items<'a> {
    /// Ends where the list or map ends.
    inside: Reader<'a>,
    /// How many values a list has, or how many pairs a map.
    count: usize,
}

struct Reader<'a> {
    /// The message from its very start, so that every place in it is an offset, up to where this
    /// reader may read.
    bytes: &'a [u8],
    /// The next byte: at most the length of `bytes`.
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..len).ok_or(Reason::Truncated.at(self.at))?;
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let first = self.bytes[self.at..].first_chunk();
        let array = *first.ok_or(Reason::Truncated.at(self.at))?;
        self.at += N;
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    /// A size or a count: of the constructors that have any, the odd categories have four bytes.
    fn width(&mut self, constructor: u8) -> Result<usize, DecodeError> {
        if constructor & 0x10 == 0 {
            self.byte().map(usize::from)
        } else {
            Ok(u32::from_be_bytes(self.array()?) as usize)
        }
    }

    fn sized(&mut self, constructor: u8) -> Result<&'a [u8], DecodeError> {
        let width = self.width(constructor)?;
        self.take(width)
    }

    /// What is inside of a value that has a length and one of these constructors.
    fn sized_of(&mut self, of: &[u8], wanted: &'static str) -> Result<&'a [u8], DecodeError> {
        let start = self.at;
        match self.byte()? {
            found if of.contains(&found) => self.sized(found),
            found => unexpected(found, start, wanted),
        }
    }

    /// A text after its constructor, and where it begins.
    fn utf8(&mut self, constructor: u8) -> Result<(&'a str, usize), DecodeError> {
        let bytes = self.sized(constructor)?;
        let at = self.at - bytes.len();
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok((text, at)),
            Err(error) => Err(Reason::Utf8.at(at + error.valid_up_to())),
        }
    }

    /// A text that has one of these constructors, and where it begins.
    fn text(&mut self, of: &[u8], wanted: &'static str) -> Result<(&'a str, usize), DecodeError> {
        let start = self.at;
        match self.byte()? {
            found if of.contains(&found) => self.utf8(found),
            found => unexpected(found, start, wanted),
        }
    }

    fn text_or_binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let wanted = "a string or a binary as body";
        match self.bytes.get(self.at) {
            Some(next) if BINARY.contains(next) => self.sized_of(&BINARY, wanted),
            _ => self.text(&STRING, wanted).map(|(text, _)| text.as_bytes()),
        }
    }

    /// The name of an annotation; nothing for one that has a number (AMQP 1.0, section 3.2.10).
    fn name(&mut self) -> Result<&'a [u8], DecodeError> {
        match self.bytes.get(self.at) {
            Some(next) if TEXT.contains(next) => self.sized_of(&TEXT, "a name"),
            _ => self.skip().map(|()| &[][..]),
        }
    }

    /// Steps over this byte if it is the next one.
    fn step_over(&mut self, byte: u8) -> bool {
        let is_next = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// The descriptor of a section, as a number or as a symbol.
    fn section(&mut self) -> Result<u8, DecodeError> {
        let start = self.at;
        let found = self.byte()?;
        if found != DESCRIBED {
            return unexpected(found, start, "a section");
        }
        let start = self.at;
        let number = match self.byte()? {
            SMALL_ULONG => u64::from(self.byte()?),
            0x80 => u64::from_be_bytes(self.array()?),
            constructor if SYMBOL.contains(&constructor) => {
                let name = self.sized(constructor)?;
                let known = SECTIONS.iter().find(|section| section.1 == name);
                known.map_or(0, |section| section.0.into())
            }
            _ => 0,
        };
        let mut known = SECTIONS.iter().map(|section| section.0);
        known
            .find(|section| u64::from(*section) == number)
            .ok_or(Reason::UnknownSection.at(start))
    }

    fn list(&mut self) -> Result<Items<'a>, DecodeError> {
        if self.step_over(LIST_0) {
            let (bytes, at) = (&self.bytes[..self.at], self.at);
            let inside = Reader { bytes, at };
            return Ok(Items { inside, count: 0 });
        }
        self.compound(&LIST, "a list")
    }

    fn map(&mut self) -> Result<Items<'a>, DecodeError> {
        let mut items = self.compound(&MAP, "a map")?;
        // A map counts its keys and its values (AMQP 1.0, section 1.6.23).
        if items.count % 2 == 1 {
            return Err(Reason::OddCount.at(items.inside.at));
        }
        items.count /= 2;
        Ok(items)
    }

    fn compound(&mut self, of: &[u8], wanted: &'static str) -> Result<Items<'a>, DecodeError> {
        let start = self.at;
        let size = self.sized_of(of, wanted)?.len();
        let (bytes, at) = (&self.bytes[..self.at], self.at - size);
        let mut inside = Reader { bytes, at };
        // The count is within the size, and as wide.
        let count = inside.width(self.bytes[start])?;
        Ok(Items { inside, count })
    }

    /// Checks that nothing is left.
    fn finish(&self) -> Result<(), DecodeError> {
        if self.at < self.bytes.len() {
            return Err(Reason::Leftover.at(self.at));
        }
        Ok(())
    }

    /// Steps over one value of any type, by its width (AMQP 1.0, section 1.2).
    fn skip(&mut self) -> Result<(), DecodeError> {
        let mut values = 1_usize;
        while values > 0 {
            let start = self.at;
            let found = self.byte()?;
            values -= 1;
            match found >> 4 {
                // Two values, its descriptor and itself. Each costs a byte, so this ends.
                _ if found == DESCRIBED => values += 2,
                0x4 => {}
                fixed @ 0x5..=0x9 => drop(self.take(1 << (fixed - 5))?),
                0xa.. => drop(self.sized(found)?),
                _ => return unexpected(found, start, "a value"),
            }
        }
        Ok(())
    }

    fn message_id(&mut self) -> Result<MessageId, DecodeError> {
        let start = self.at;
        match self.value()? {
            Value::String(text) => Ok(MessageId::String(text)),
            Value::U64(number) => Ok(MessageId::U64(number)),
            Value::Uuid(uuid) => Ok(MessageId::Uuid(uuid)),
            Value::Binary(bytes) => Ok(MessageId::Binary(bytes)),
            _ => unexpected(self.bytes[start], start, "an id"),
        }
    }

    /// A value of a simple type, without the descriptors that it may have: the table of AMQP 1.0,
    /// section 1.6, but for the decimal numbers.
    fn value(&mut self) -> Result<Value, DecodeError> {
        while self.step_over(DESCRIBED) {
            self.skip()?;
        }
        let start = self.at;
        let found = self.byte()?;
        Ok(match found {
            NULL => Value::Null,
            0x41 => Value::Bool(true),
            0x42 => Value::Bool(false),
            0x56 => match self.byte()? {
                bit @ 0..=1 => Value::Bool(bit == 1),
                _ => return Err(Reason::NoValue.at(start + 1)),
            },
            0x50 => Value::U8(self.byte()?),
            0x60 => Value::U16(u16::from_be_bytes(self.array()?)),
            0x43 => Value::U32(0),
            0x52 => Value::U32(self.byte()?.into()),
            0x70 => Value::U32(u32::from_be_bytes(self.array()?)),
            0x44 => Value::U64(0),
            0x53 => Value::U64(self.byte()?.into()),
            0x80 => Value::U64(u64::from_be_bytes(self.array()?)),
            0x51 => Value::I8(i8::from_be_bytes(self.array()?)),
            0x61 => Value::I16(i16::from_be_bytes(self.array()?)),
            0x54 => Value::I32(i8::from_be_bytes(self.array()?).into()),
            0x71 => Value::I32(i32::from_be_bytes(self.array()?)),
            0x55 => Value::I64(i8::from_be_bytes(self.array()?).into()),
            0x81 => Value::I64(i64::from_be_bytes(self.array()?)),
            0x72 => Value::F32(f32::from_be_bytes(self.array()?)),
            0x82 => Value::F64(f64::from_be_bytes(self.array()?)),
            0x73 => char::from_u32(u32::from_be_bytes(self.array()?))
                .map(Value::Char)
                .ok_or(Reason::NoValue.at(start + 1))?,
            0x83 => Timestamp::from_millis(i64::from_be_bytes(self.array()?)).into(),
            0x98 => Value::Uuid(self.array()?),
            BINARY_8 | BINARY_32 => Value::Binary(Bytes::copy_from_slice(self.sized(found)?)),
            _ if STRING.contains(&found) => self.utf8(found)?.0.into(),
            _ if SYMBOL.contains(&found) => symbol(self.utf8(found)?)?.into(),
            _ => return unexpected(found, start, "a simple value"),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{
        Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
    };

    use super::*;
    use crate::codec::encode;

    const BODY: &[u8] = b"\x00\x53\x75\xa0\x01b";

    fn encoded(event: &Event, key: Option<&PartitionKey>) -> Vec<u8> {
        let mut out = Vec::new();
        encode(event, key, &mut out);
        out
    }

    /// A map or list with four-byte size and count.
    fn compound(constructor: u8, count: usize, items: &[u8]) -> Vec<u8> {
        let number = |n: usize| u32::try_from(n).unwrap().to_be_bytes();
        [
            &[constructor][..],
            &number(items.len() + 4),
            &number(count),
            items,
        ]
        .concat()
    }

    /// What a section of this descriptor and value before a body decodes to.
    fn with(descriptor: u8, value: &[u8]) -> Result<(Event, Option<PartitionKey>), DecodeError> {
        decode(&[&[0x00, 0x53, descriptor][..], value, BODY].concat())
    }

    /// What one application property of this encoding decodes to.
    fn property(value: &[u8]) -> Result<Value, DecodeError> {
        let map = compound(0xd1, 2, &[b"\xa1\x01p", value].concat());
        with(0x74, &map).map(|(event, _)| event.property("p").unwrap().clone())
    }

    fn key(value: &[u8]) -> Result<Option<String>, DecodeError> {
        let items = [b"\xa3\x13x-opt-partition-key", value].concat();
        with(0x72, &compound(0xd1, 2, &items)).map(|(_, key)| key.map(|key| key.to_string()))
    }

    #[test]
    fn every_encoding_of_a_value_is_read() {
        let symbol = |text| Value::Symbol(Symbol::from_static(text));
        let cases: Vec<(&[u8], Value)> = vec![
            (b"\x40", Value::Null),
            (b"\x41", true.into()),
            (b"\x42", false.into()),
            (b"\x56\x01", true.into()),
            (b"\x56\x00", false.into()),
            (b"\x50\xff", 255_u8.into()),
            (b"\x60\x01\x02", 0x0102_u16.into()),
            (b"\x43", 0_u32.into()),
            (b"\x52\xff", 255_u32.into()),
            (b"\x70\0\0\0\x01", 1_u32.into()),
            (b"\x44", 0_u64.into()),
            (b"\x53\xff", 255_u64.into()),
            (b"\x80\0\0\0\0\0\0\0\x01", 1_u64.into()),
            (b"\x51\xff", (-1_i8).into()),
            (b"\x61\xff\xfe", (-2_i16).into()),
            (b"\x54\xff", (-1_i32).into()),
            (b"\x71\xff\xff\xff\xff", (-1_i32).into()),
            (b"\x55\xff", (-1_i64).into()),
            (b"\x81\xff\xff\xff\xff\xff\xff\xff\xff", (-1_i64).into()),
            (b"\x72\x3f\xc0\0\0", 1.5_f32.into()),
            (b"\x82\xc0\0\0\0\0\0\0\0", (-2.0_f64).into()),
            (b"\x73\0\x01\xf6\0", '😀'.into()),
            (b"\x83\0\0\0\0\0\0\0\x05", Timestamp::from_millis(5).into()),
            (b"\x98ABCDEFGHIJKLMNOP", Value::Uuid(*b"ABCDEFGHIJKLMNOP")),
            (b"\xa0\x01\xff", vec![255].into()),
            (b"\xb0\0\0\0\x01\xff", vec![255].into()),
            (b"\xa1\x02\xc3\xa9", "é".into()),
            (b"\xb1\0\0\0\x02\xc3\xa9", "é".into()),
            (b"\xa3\x01s", symbol("s")),
            (b"\xb3\0\0\0\x01s", symbol("s")),
            // Described by a symbol, and twice.
            (b"\x00\xa3\x01d\x55\x07", 7_i64.into()),
            (b"\x00\x00\x44\x44\x00\x43\x55\x07", 7_i64.into()),
        ];
        for (bytes, value) in cases {
            assert_eq!(property(bytes), Ok(value), "{bytes:x?}");
        }
    }

    #[test]
    fn a_value_that_no_property_can_have_is_an_error_at_its_place() {
        let at = |bytes: &[u8]| property(bytes).unwrap_err();
        let wanted = "a simple value";
        // Lists, maps, arrays, decimals, and what AMQP has no type for.
        for found in [
            0x45, 0xc0, 0xd0, 0xc1, 0xd1, 0xe0, 0xf0, 0x74, 0x84, 0x94, 0x01, 0x4f,
        ] {
            let expected = Reason::Constructor { found, wanted }.at(15);
            assert_eq!(at(&[&[found][..], &[0; 16]].concat()), expected);
        }
        assert_eq!(at(b"\x56\x02"), Reason::NoValue.at(16));
        assert_eq!(at(b"\x73\0\0\xd8\0"), Reason::NoValue.at(16));
        assert_eq!(at(b"\xa1\x02a\xff"), Reason::Utf8.at(18));
        assert_eq!(at(b"\xa3\x03a\xc3\xa9"), Reason::NotAscii.at(18));
        assert_eq!(at(b"\xb0\xff\xff\xff\xff"), Reason::Truncated.at(20));
        assert_eq!(at(b"\x40\x40"), Reason::Leftover.at(16));
    }

    #[test]
    fn a_message_of_another_sender_is_read() {
        let array = b"\xe0\x04\x02\x50\x01\x02";
        let annotations = [b"\x80\0\0\0\0\0\0\0\x09", &array[..], b"\xb3\0\0\0\x13"].concat();
        let annotations = [&annotations[..], b"x-opt-partition-key\xb1\0\0\0\x01k"].concat();
        let fields = b"\x44\xa0\x01u\xa1\x02to\x40\x45\x98ABCDEFGHIJKLMNOP\xb3\0\0\0\x01t\x40";
        let message = [
            b"\x00\x53\x70\xc0\x02\x01\x41",
            &b"\x00\xa3\x1damqp:delivery-annotations:map\xd1\0\0\0\x04\0\0\0\0"[..],
            b"\x00\x80\0\0\0\0\0\0\0\x72",
            &compound(0xd1, 4, &annotations),
            b"\x00\x53\x73",
            &compound(0xd0, 8, fields),
            b"\x00\x53\x74\xc1\x01\x00",
            b"\x00\x53\x75\xb0\0\0\0\x02ab\x00\x53\x75\xa0\x00\x00\xa3\x10amqp:data:binary\xa0\x01c",
            b"\x00\x53\x78\xc1\x01\x00",
        ]
        .concat();
        let expected = Event::new("abc")
            .with_message_id(0)
            .with_correlation_id(MessageId::Uuid(*b"ABCDEFGHIJKLMNOP"))
            .with_content_type(Symbol::from_static("t"));
        let key = PartitionKey::new("k").unwrap();
        assert_eq!(decode(&message), Ok((expected, Some(key))));
        assert_eq!(with(0x73, b"\x45"), Ok((Event::new("b"), None)));
    }

    #[test]
    fn a_body_is_bytes() {
        let body = |bytes: &[u8]| decode(bytes).map(|(event, _)| event.into_body());
        for text in [b"\xa0\x01x", &b"\xa1\x01x"[..], b"\xb1\0\0\0\x01x"] {
            assert_eq!(body(&[b"\x00\x53\x77", text].concat()).unwrap(), "x");
        }
        assert_eq!(body(b"\x00\x53\x77\xa1\x01\xff").unwrap_err().offset(), 5);
        assert_eq!(body(b"\x00\x53\x77\x40").unwrap_err().offset(), 3);
        assert_eq!(body(b"\x00\x53\x76\x45"), Err(Reason::Sequence.at(0)));
        assert_eq!(body(b""), Err(Reason::NoBody.at(0)));
        assert_eq!(body(b"\x00\x53\x70\x45"), Err(Reason::NoBody.at(4)));
        assert_eq!(with(0x77, b"\xa0\x00"), Err(Reason::Order.at(5)));
        let after = [BODY, b"\x00\x53\x77\xa0\x00"].concat();
        assert_eq!(body(&after), Err(Reason::Order.at(6)));
    }

    #[test]
    fn sections_are_known_and_in_order() {
        let twice = [b"\x00\x53\x73\x45\x00\x53\x73\x45", BODY].concat();
        assert_eq!(decode(&twice), Err(Reason::Order.at(4)));
        let late = [BODY, b"\x00\x53\x70\x45"].concat();
        assert_eq!(decode(&late), Err(Reason::Order.at(6)));
        for unknown in [&b"\x00\x53\x79"[..], b"\x00\x44", b"\x00\xa3\x01x"] {
            assert_eq!(decode(unknown), Err(Reason::UnknownSection.at(1)));
        }
        assert_eq!(decode(b"\x53\x75").unwrap_err().offset(), 0);
    }

    #[test]
    fn a_partition_key_is_a_key_or_none_or_an_error() {
        assert_eq!(key(b"\xa3\x01k"), Ok(Some("k".into())));
        assert_eq!(key(b"\xa1\x00"), Ok(None));
        assert_eq!(key(b"\x40"), Ok(None));
        assert_eq!(key(b"\x44").unwrap_err().offset(), 33);
        let text = |len: u8| key(&[&[0xa1, len][..], &vec![b'x'; len.into()]].concat());
        assert_eq!(text(128), Ok(Some("x".repeat(128))));
        let error = text(129).unwrap_err();
        assert_eq!(error.offset(), 35);
        assert!(error.to_string().contains("limit is 128"), "{error}");
        let again = key(b"\x40\xa3\x13x-opt-partition-key\x40");
        assert_eq!(again.unwrap_err().reason, Reason::Leftover);
        let pair = b"\xa3\x13x-opt-partition-key\x40";
        let again = with(0x72, &compound(0xd1, 4, &[&pair[..], pair].concat()));
        assert_eq!(again, Err(Reason::Duplicate.at(12 + pair.len())));
    }

    #[test]
    fn maps_have_pairs_and_each_name_once() {
        let map = |count, items: &[u8]| with(0x74, &compound(0xd1, count, items)).unwrap_err();
        assert_eq!(map(1, b"\xa1\x01p"), Reason::OddCount.at(12));
        assert_eq!(
            map(4, b"\xa1\x01p\x40\xa1\x01p\x41"),
            Reason::Duplicate.at(16)
        );
        assert_eq!(map(4, b"\xa1\x01p\x40"), Reason::Truncated.at(16));
        assert_eq!(map(2, b"\xa3\x01p\x40").offset(), 12);
        assert_eq!(
            with(0x74, b"\xc1\x00").unwrap_err(),
            Reason::Truncated.at(5)
        );
    }

    #[test]
    fn as_many_properties_as_the_limit_are_read_and_no_more() {
        let count = |pairs: usize| {
            let event = (0..pairs).fold(Event::new(""), |event, n| {
                event.with_property(n.to_string(), Value::Null)
            });
            decode(&encoded(&event, None)).map(|(event, _)| event.properties().len())
        };
        assert_eq!(count(4096), Ok(4096));
        assert_eq!(count(4097), Err(Reason::TooManyProperties(4097).at(12)));
    }

    #[test]
    fn nesting_costs_no_stack() {
        let deep = vec![0; 1 << 20];
        for section in [0x70, 0x72, 0x73, 0x74, 0x75] {
            let error = with(section, &deep).unwrap_err();
            assert!(error.offset() >= 3, "{error}");
        }
        assert!(property(&deep).is_err());
        let descriptors = [&deep[..], &[0x40; 1 << 20], b"\x41"].concat();
        assert_eq!(property(&descriptors), Ok(true.into()));
    }

    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![4 => vec(any::<u8>(), 0..8), 1 => vec(any::<u8>(), 250..260)]
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![4 => ".{0,8}", 1 => "[a-z]{250,260}"]
    }

    fn any_symbol() -> impl Strategy<Value = Symbol> {
        "[ -~]{0,8}".prop_map(|text| Symbol::new(text).unwrap())
    }

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u8>().prop_map(Value::from),
            any::<u16>().prop_map(Value::from),
            prop_oneof![0..300_u32, any::<u32>()].prop_map(Value::from),
            prop_oneof![0..300_u64, any::<u64>()].prop_map(Value::from),
            any::<i8>().prop_map(Value::from),
            any::<i16>().prop_map(Value::from),
            prop_oneof![-200..200_i32, any::<i32>()].prop_map(Value::from),
            prop_oneof![-200..200_i64, any::<i64>()].prop_map(Value::from),
            // Not a number is not equal to itself.
            any::<f32>()
                .prop_filter("a number", |number| !number.is_nan())
                .prop_map(Value::from),
            any::<f64>()
                .prop_filter("a number", |number| !number.is_nan())
                .prop_map(Value::from),
            any::<char>().prop_map(Value::from),
            any::<i64>().prop_map(|millis| Timestamp::from_millis(millis).into()),
            any::<[u8; 16]>().prop_map(Value::Uuid),
            any_bytes().prop_map(Value::from),
            any_text().prop_map(Value::from),
            any_symbol().prop_map(Value::from),
        ]
    }

    fn any_id() -> impl Strategy<Value = MessageId> {
        prop_oneof![
            any_text().prop_map(MessageId::from),
            any::<u64>().prop_map(MessageId::from),
            any::<[u8; 16]>().prop_map(MessageId::Uuid),
            any_bytes().prop_map(|bytes| Bytes::from(bytes).into()),
        ]
    }

    fn any_event() -> impl Strategy<Value = Event> {
        use proptest::option::of;
        let properties = vec((any_text(), any_value()), 0..6);
        (
            any_bytes(),
            of(any_id()),
            of(any_id()),
            of(any_symbol()),
            properties,
        )
            .prop_map(|(body, id, correlation_id, content_type, properties)| {
                let mut event = Event::new(body);
                event = id.into_iter().fold(event, Event::with_message_id);
                event = correlation_id
                    .into_iter()
                    .fold(event, Event::with_correlation_id);
                event = content_type
                    .into_iter()
                    .fold(event, Event::with_content_type);
                properties.into_iter().fold(event, |event, (name, value)| {
                    event.with_property(name, value)
                })
            })
    }

    fn any_key() -> impl Strategy<Value = Option<PartitionKey>> {
        let text = prop_oneof![".{1,64}", "[日-本]{128}"];
        proptest::option::of(text.prop_map(|text| PartitionKey::new(text).unwrap()))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_encoded_decodes_to_itself(event in any_event(), key in any_key()) {
            let message = encoded(&event, key.as_ref());
            prop_assert_eq!(decode(&message), Ok((event, key)));
        }

        #[test]
        fn a_message_cut_short_anywhere_is_an_error_within(
            event in any_event(),
            key in any_key(),
        ) {
            let message = encoded(&event, key.as_ref());
            for end in 0..message.len() {
                let error = decode(&message[..end]).unwrap_err();
                prop_assert!(error.offset() <= end, "{} of {}", error, end);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in vec(any::<u8>(), 0..200), descriptor in 0x70..0x79_u8) {
            let errors = [
                decode(&bytes).err(),
                decode(&[&[0x00, 0x53, descriptor][..], &bytes].concat()).err(),
            ];
            for error in errors.into_iter().flatten() {
                prop_assert!(error.offset() <= bytes.len() + 3);
            }
        }

        #[test]
        fn no_change_of_a_message_panics(
            event in any_event(),
            changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut message = encoded(&event, None);
            for (place, byte) in changes {
                let place = place.index(message.len());
                message[place] = byte;
            }
            let len = message.len();
            prop_assert!(decode(&message).err().is_none_or(|error| error.offset() <= len));
        }
    }
}
