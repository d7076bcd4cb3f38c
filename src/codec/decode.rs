//! One AMQP message as an event (AMQP 1.0, sections 1.2, 1.6 and 3.2).
//!
//! There is no recursion: what an event has no place for is stepped over by its width, which the
//! upper half of every constructor tells, and what it has a place for is never nested. So however
//! deep a message is nested, it costs one pass and no stack.

use bytes::Bytes;

use super::encode::section::{APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS, PROPERTIES};
use crate::event::{Event, MessageId, Symbol, Timestamp, Value};
use crate::partition::{PartitionKey, PartitionKeyError};

/// The annotation that carries the partition key of an event.
const PARTITION_KEY_ANNOTATION: &[u8] = b"x-opt-partition-key";

/// The most application properties that a message may have.
///
/// [`Event::with_property`] compares a new name with all before it, so the work grows with the
/// square of their number: at this many some milliseconds, at the hundred thousand that fit a
/// message of 1 MiB many seconds, for whoever wants to keep a reader busy.
const MAX_PROPERTIES: usize = 4096;

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
    (0x76, b"amqp:amqp-sequence:list"),
    (AMQP_VALUE, b"amqp:amqp-value:*"),
    (0x78, b"amqp:footer:map"),
];

/// Constructors of the primitive types: what is written, and what only others write (AMQP 1.0,
/// section 1.6).
mod code {
    pub(super) use crate::codec::encode::code::{BINARY_8, BINARY_32, DESCRIBED, SMALL_ULONG};

    pub(super) const NULL: u8 = 0x40;
    pub(super) const TRUE: u8 = 0x41;
    pub(super) const FALSE: u8 = 0x42;
    pub(super) const UINT_0: u8 = 0x43;
    pub(super) const ULONG_0: u8 = 0x44;
    pub(super) const LIST_0: u8 = 0x45;
    pub(super) const UBYTE: u8 = 0x50;
    pub(super) const BYTE: u8 = 0x51;
    pub(super) const SMALL_UINT: u8 = 0x52;
    pub(super) const SMALL_INT: u8 = 0x54;
    pub(super) const SMALL_LONG: u8 = 0x55;
    pub(super) const BOOLEAN: u8 = 0x56;
    pub(super) const USHORT: u8 = 0x60;
    pub(super) const SHORT: u8 = 0x61;
    pub(super) const UINT: u8 = 0x70;
    pub(super) const INT: u8 = 0x71;
    pub(super) const FLOAT: u8 = 0x72;
    pub(super) const CHAR: u8 = 0x73;
    pub(super) const ULONG: u8 = 0x80;
    pub(super) const LONG: u8 = 0x81;
    pub(super) const DOUBLE: u8 = 0x82;
    pub(super) const TIMESTAMP: u8 = 0x83;
    pub(super) const UUID: u8 = 0x98;
    pub(super) const STRING_8: u8 = 0xa1;
    pub(super) const SYMBOL_8: u8 = 0xa3;
    pub(super) const STRING_32: u8 = 0xb1;
    pub(super) const SYMBOL_32: u8 = 0xb3;
    pub(super) const LIST_8: u8 = 0xc0;
    pub(super) const MAP_8: u8 = 0xc1;
    pub(super) const LIST_32: u8 = 0xd0;
    pub(super) const MAP_32: u8 = 0xd1;
}

/// Reads one complete AMQP message: the event, and its partition key if it has one.
///
/// It undoes [`encode`](super::encode): what comes out is what went in, the context aside. It
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
    let mut event = Event::new(sections.body);
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
    #[error("a boolean that is neither 0 nor 1")]
    Boolean,
    #[error("a character that is no Unicode scalar value")]
    Character,
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
        DecodeError {
            offset,
            reason: self,
        }
    }
}

/// The parts of a message, none but the body looked into yet.
struct Sections<'a> {
    annotations: Option<Items<'a>>,
    properties: Option<Items<'a>>,
    application_properties: Option<Items<'a>>,
    body: Bytes,
}

impl<'a> Sections<'a> {
    fn locate(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader {
            bytes: message,
            at: 0,
        };
        let (mut annotations, mut properties, mut application_properties) = (None, None, None);
        let mut body = Body::Absent;
        let mut last = 0;
        while reader.at < message.len() {
            let start = reader.at;
            let section = reader.section()?;
            let again = section == last && section == DATA;
            let second_body = section == AMQP_VALUE && !matches!(body, Body::Absent);
            if (section <= last && !again) || second_body {
                return Err(Reason::Order.at(start));
            }
            last = section;
            match section {
                MESSAGE_ANNOTATIONS => annotations = Some(reader.map()?),
                PROPERTIES => properties = Some(reader.list()?),
                APPLICATION_PROPERTIES => application_properties = Some(reader.map()?),
                DATA => body.push(reader.binary()?, message.len() - reader.at),
                AMQP_VALUE => body.push(reader.text_or_binary()?, 0),
                0x76 => return Err(Reason::Sequence.at(start)),
                _ => reader.skip()?,
            }
        }
        Ok(Sections {
            annotations,
            properties,
            application_properties,
            body: body.into_bytes().ok_or(Reason::NoBody.at(reader.at))?,
        })
    }
}

/// A body as it comes together. A single section is copied when it is certain to be the only one,
/// so that no section is copied twice.
enum Body<'a> {
    Absent,
    Single(&'a [u8]),
    Joined(Vec<u8>),
}

impl<'a> Body<'a> {
    /// Appends a section. At most `left` bytes of the message come after it.
    fn push(&mut self, section: &'a [u8], left: usize) {
        match self {
            Body::Absent => *self = Body::Single(section),
            Body::Single(first) => {
                // Enough for whatever may follow, so it never grows, which would copy again.
                let mut joined = Vec::with_capacity(first.len() + section.len() + left);
                joined.extend_from_slice(first);
                joined.extend_from_slice(section);
                *self = Body::Joined(joined);
            }
            Body::Joined(joined) => joined.extend_from_slice(section),
        }
    }

    fn into_bytes(self) -> Option<Bytes> {
        match self {
            Body::Absent => None,
            Body::Single(section) => Some(Bytes::copy_from_slice(section)),
            Body::Joined(joined) => Some(joined.into()),
        }
    }
}

/// The ids and the content type are the fields 0, 5 and 6 (AMQP 1.0, section 3.2.4).
fn read_properties(list: Items<'_>, mut event: Event) -> Result<Event, DecodeError> {
    let Items { mut inside, count } = list;
    for field in 0..count {
        match field {
            0 => {
                if let Some(id) = inside.message_id()? {
                    event = event.with_message_id(id);
                }
            }
            5 => {
                if let Some(id) = inside.message_id()? {
                    event = event.with_correlation_id(id);
                }
            }
            6 => {
                let wanted = "a content type";
                if let Some((text, at)) = inside.text(wanted)? {
                    event = event.with_content_type(symbol(text, at)?);
                }
            }
            _ => inside.skip()?,
        }
    }
    inside.finish()?;
    Ok(event)
}

fn read_application_properties(map: Items<'_>, mut event: Event) -> Result<Event, DecodeError> {
    let (mut inside, pairs) = map.pairs()?;
    if pairs > MAX_PROPERTIES {
        return Err(Reason::TooManyProperties(pairs).at(inside.at));
    }
    for known in 0..pairs {
        let start = inside.at;
        let wanted = "the name of an application property";
        let name = inside.of(&[code::STRING_8, code::STRING_32], wanted)?;
        let name = utf8(name, inside.at - name.len())?.to_owned();
        event = event.with_property(name, inside.value()?);
        if event.properties().len() == known {
            return Err(Reason::Duplicate.at(start));
        }
    }
    inside.finish()?;
    Ok(event)
}

fn read_partition_key(map: Items<'_>) -> Result<Option<PartitionKey>, DecodeError> {
    let (mut inside, pairs) = map.pairs()?;
    let (mut key, mut seen) = (None, false);
    for _ in 0..pairs {
        let start = inside.at;
        if !inside.skip_is_text(PARTITION_KEY_ANNOTATION)? {
            inside.skip()?;
            continue;
        }
        if std::mem::replace(&mut seen, true) {
            return Err(Reason::Duplicate.at(start));
        }
        key = match inside.text("a partition key")? {
            None => None,
            Some((bytes, at)) => match PartitionKey::new(utf8(bytes, at)?) {
                Ok(key) => Some(key),
                Err(PartitionKeyError::Empty) => None,
                Err(too_long) => return Err(Reason::PartitionKey(too_long).at(at)),
            },
        };
    }
    inside.finish()?;
    Ok(key)
}

fn utf8(bytes: &[u8], at: usize) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|error| Reason::Utf8.at(at + error.valid_up_to()))
}

fn symbol(bytes: &[u8], at: usize) -> Result<Symbol, DecodeError> {
    match bytes.iter().position(|byte| !byte.is_ascii()) {
        Some(position) => Err(Reason::NotAscii.at(at + position)),
        None => Symbol::new(utf8(bytes, at)?.to_owned()).map_err(|_| Reason::NotAscii.at(at)),
    }
}

/// The inside of a list or a map.
struct Items<'a> {
    /// Ends where the list or map ends.
    inside: Reader<'a>,
    count: usize,
}

impl<'a> Items<'a> {
    /// The items as pairs, of which there are half as many (AMQP 1.0, section 1.6.23).
    fn pairs(self) -> Result<(Reader<'a>, usize), DecodeError> {
        if self.count % 2 == 1 {
            return Err(Reason::OddCount.at(self.inside.at));
        }
        Ok((self.inside, self.count / 2))
    }
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
        let truncated = Reason::Truncated.at(self.at);
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..len).ok_or(truncated)?;
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let truncated = Reason::Truncated.at(self.at);
        let array = *self.bytes[self.at..].first_chunk().ok_or(truncated)?;
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

    /// The bytes of a value of variable width that has one of these constructors.
    fn of(&mut self, accepted: &[u8], wanted: &'static str) -> Result<&'a [u8], DecodeError> {
        let start = self.at;
        match self.byte()? {
            found if accepted.contains(&found) => self.sized(found),
            found => Err(Reason::Constructor { found, wanted }.at(start)),
        }
    }

    fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        self.of(&[code::BINARY_8, code::BINARY_32], "a binary")
    }

    fn text_or_binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let strings = [code::STRING_8, code::STRING_32];
        let start = self.at;
        let accepted = [strings[0], strings[1], code::BINARY_8, code::BINARY_32];
        let bytes = self.of(&accepted, "a string or a binary as body")?;
        if strings.contains(&self.bytes[start]) {
            utf8(bytes, self.at - bytes.len())?;
        }
        Ok(bytes)
    }

    /// A symbol or a string, which not every sender tells apart, and where its bytes begin.
    fn text(&mut self, wanted: &'static str) -> Result<Option<(&'a [u8], usize)>, DecodeError> {
        if self.bytes.get(self.at) == Some(&code::NULL) {
            self.at += 1;
            return Ok(None);
        }
        let bytes = self.of(&TEXT, wanted)?;
        Ok(Some((bytes, self.at - bytes.len())))
    }

    /// Steps over a value, and says whether it was this text.
    fn skip_is_text(&mut self, text: &[u8]) -> Result<bool, DecodeError> {
        if self
            .bytes
            .get(self.at)
            .is_some_and(|next| TEXT.contains(next))
        {
            return self.of(&TEXT, "a name").map(|bytes| bytes == text);
        }
        self.skip().map(|()| false)
    }

    /// The descriptor of a section, as a number or as a symbol.
    fn section(&mut self) -> Result<u8, DecodeError> {
        let start = self.at;
        let found = self.byte()?;
        if found != code::DESCRIBED {
            let wanted = "a section";
            return Err(Reason::Constructor { found, wanted }.at(start));
        }
        let start = self.at;
        let known = match self.byte()? {
            code::SMALL_ULONG => section_of(u64::from(self.byte()?)),
            code::ULONG => section_of(u64::from_be_bytes(self.array()?)),
            constructor @ (code::SYMBOL_8 | code::SYMBOL_32) => {
                let name = self.sized(constructor)?;
                SECTIONS.iter().find(|section| section.1 == name)
            }
            _ => None,
        };
        known
            .map(|section| section.0)
            .ok_or(Reason::UnknownSection.at(start))
    }

    fn list(&mut self) -> Result<Items<'a>, DecodeError> {
        if self.bytes.get(self.at) == Some(&code::LIST_0) {
            self.at += 1;
            let inside = Reader {
                bytes: &self.bytes[..self.at],
                at: self.at,
            };
            return Ok(Items { inside, count: 0 });
        }
        self.compound([code::LIST_8, code::LIST_32], "a list")
    }

    fn map(&mut self) -> Result<Items<'a>, DecodeError> {
        self.compound([code::MAP_8, code::MAP_32], "a map")
    }

    fn compound(&mut self, of: [u8; 2], wanted: &'static str) -> Result<Items<'a>, DecodeError> {
        let start = self.at;
        let size = self.of(&of, wanted)?.len();
        let mut inside = Reader {
            bytes: &self.bytes[..self.at],
            at: self.at - size,
        };
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
                _ if found == code::DESCRIBED => values += 2,
                0x4 => {}
                fixed @ 0x5..=0x9 => drop(self.take(1 << (fixed - 5))?),
                0xa.. => drop(self.sized(found)?),
                _ => {
                    let wanted = "a value";
                    return Err(Reason::Constructor { found, wanted }.at(start));
                }
            }
        }
        Ok(())
    }

    fn message_id(&mut self) -> Result<Option<MessageId>, DecodeError> {
        let start = self.at;
        match self.value()? {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(MessageId::String(text))),
            Value::U64(number) => Ok(Some(MessageId::U64(number))),
            Value::Uuid(uuid) => Ok(Some(MessageId::Uuid(uuid))),
            Value::Binary(bytes) => Ok(Some(MessageId::Binary(bytes))),
            _ => {
                let (found, wanted) = (self.bytes[start], "an id");
                Err(Reason::Constructor { found, wanted }.at(start))
            }
        }
    }

    /// A value of a simple type, without the descriptors that it may have.
    fn value(&mut self) -> Result<Value, DecodeError> {
        while self.bytes.get(self.at) == Some(&code::DESCRIBED) {
            self.at += 1;
            self.skip()?;
        }
        let start = self.at;
        let found = self.byte()?;
        Ok(match found {
            code::NULL => Value::Null,
            code::TRUE => Value::Bool(true),
            code::FALSE => Value::Bool(false),
            code::BOOLEAN => match self.byte()? {
                byte @ 0..=1 => Value::Bool(byte == 1),
                _ => return Err(Reason::Boolean.at(start + 1)),
            },
            code::UBYTE => Value::U8(self.byte()?),
            code::USHORT => Value::U16(u16::from_be_bytes(self.array()?)),
            code::UINT_0 => Value::U32(0),
            code::SMALL_UINT => Value::U32(self.byte()?.into()),
            code::UINT => Value::U32(u32::from_be_bytes(self.array()?)),
            code::ULONG_0 => Value::U64(0),
            code::SMALL_ULONG => Value::U64(self.byte()?.into()),
            code::ULONG => Value::U64(u64::from_be_bytes(self.array()?)),
            code::BYTE => Value::I8(i8::from_be_bytes(self.array()?)),
            code::SHORT => Value::I16(i16::from_be_bytes(self.array()?)),
            code::SMALL_INT => Value::I32(i8::from_be_bytes(self.array()?).into()),
            code::INT => Value::I32(i32::from_be_bytes(self.array()?)),
            code::SMALL_LONG => Value::I64(i8::from_be_bytes(self.array()?).into()),
            code::LONG => Value::I64(i64::from_be_bytes(self.array()?)),
            code::FLOAT => Value::F32(f32::from_be_bytes(self.array()?)),
            code::DOUBLE => Value::F64(f64::from_be_bytes(self.array()?)),
            code::CHAR => char::from_u32(u32::from_be_bytes(self.array()?))
                .map(Value::Char)
                .ok_or(Reason::Character.at(start + 1))?,
            code::TIMESTAMP => Timestamp::from_millis(i64::from_be_bytes(self.array()?)).into(),
            code::UUID => Value::Uuid(self.array()?),
            code::BINARY_8 | code::BINARY_32 => {
                Value::Binary(Bytes::copy_from_slice(self.sized(found)?))
            }
            code::STRING_8 | code::STRING_32 => {
                let bytes = self.sized(found)?;
                utf8(bytes, self.at - bytes.len())?.into()
            }
            code::SYMBOL_8 | code::SYMBOL_32 => {
                let bytes = self.sized(found)?;
                symbol(bytes, self.at - bytes.len())?.into()
            }
            _ => {
                let wanted = "a simple value";
                return Err(Reason::Constructor { found, wanted }.at(start));
            }
        })
    }
}

/// The constructors of strings and symbols.
const TEXT: [u8; 4] = [
    code::STRING_8,
    code::STRING_32,
    code::SYMBOL_8,
    code::SYMBOL_32,
];

fn section_of(descriptor: u64) -> Option<&'static (u8, &'static [u8])> {
    SECTIONS
        .iter()
        .find(|section| u64::from(section.0) == descriptor)
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
        assert_eq!(at(b"\x56\x02"), Reason::Boolean.at(16));
        assert_eq!(at(b"\x73\0\0\xd8\0"), Reason::Character.at(16));
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
