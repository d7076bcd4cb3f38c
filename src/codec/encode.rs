//! One event as one AMQP message (AMQP 1.0, sections 1.6 and 3.2).

use crate::event::{Event, MessageId, Timestamp, Value};
use crate::partition::PartitionKey;

/// The annotation by which consumers see the partition key of an event.
const PARTITION_KEY_ANNOTATION: &str = "x-opt-partition-key";

/// Descriptors of the sections of a message (AMQP 1.0, section 3.2), as `smallulong`s.
pub(super) mod section {
    pub(in crate::codec) const MESSAGE_ANNOTATIONS: u8 = 0x72;
    pub(in crate::codec) const PROPERTIES: u8 = 0x73;
    pub(in crate::codec) const APPLICATION_PROPERTIES: u8 = 0x74;
    pub(in crate::codec) const DATA: u8 = 0x75;
}

/// Constructors of the primitive types (AMQP 1.0, section 1.6).
pub(super) mod code {
    pub(in crate::codec) const DESCRIBED: u8 = 0x00;
    pub(super) const NULL: u8 = 0x40;
    pub(super) const TRUE: u8 = 0x41;
    pub(super) const FALSE: u8 = 0x42;
    pub(super) const UINT_0: u8 = 0x43;
    pub(super) const ULONG_0: u8 = 0x44;
    pub(super) const UBYTE: u8 = 0x50;
    pub(super) const BYTE: u8 = 0x51;
    pub(super) const SMALL_UINT: u8 = 0x52;
    pub(in crate::codec) const SMALL_ULONG: u8 = 0x53;
    pub(super) const SMALL_INT: u8 = 0x54;
    pub(super) const SMALL_LONG: u8 = 0x55;
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
    pub(in crate::codec) const BINARY_8: u8 = 0xa0;
    pub(super) const STRING_8: u8 = 0xa1;
    pub(super) const SYMBOL_8: u8 = 0xa3;
    pub(in crate::codec) const BINARY_32: u8 = 0xb0;
    pub(super) const STRING_32: u8 = 0xb1;
    pub(super) const SYMBOL_32: u8 = 0xb3;
    pub(super) const LIST_8: u8 = 0xc0;
    pub(super) const MAP_8: u8 = 0xc1;
    pub(super) const LIST_32: u8 = 0xd0;
    pub(super) const MAP_32: u8 = 0xd1;
}

/// The number of bytes that [`encode`] writes for this event and key.
///
/// It looks at lengths, not at contents, and allocates nothing. For a plain event (no key and
/// nothing beside the body) it is a comparison and an addition.
///
/// # Examples
///
/// ```
/// use hublane::Event;
/// use hublane::codec::encoded_len;
///
/// // Five bytes say that a data section follows and how long it is.
/// assert_eq!(encoded_len(&Event::new("21.5"), None), 5 + 4);
/// ```
#[must_use]
pub fn encoded_len(event: &Event, key: Option<&PartitionKey>) -> usize {
    let mut counted = Counter(0);
    put_message(event, key, &mut counted);
    counted.0
}

/// Appends the event to `out` as one complete AMQP message, in its smallest encoding.
///
/// The message has the sections that have something to say, in the order that AMQP prescribes:
/// the key as the annotation `x-opt-partition-key`, the ids and the content type as properties,
/// the application properties, and the body as one `data` section. The event's context is not
/// part of it.
///
/// # Panics
///
/// If the message has more than `u32::MAX` bytes, which AMQP cannot express. No link accepts a
/// message of that size, so an event that was compared with a link's maximum is far below.
///
/// # Examples
///
/// ```
/// use hublane::Event;
/// use hublane::codec::encode;
///
/// let mut out = Vec::new();
/// encode(&Event::new("21.5"), None, &mut out);
/// assert_eq!(out, b"\x00\x53\x75\xa0\x0421.5");
/// ```
pub fn encode(event: &Event, key: Option<&PartitionKey>, out: &mut Vec<u8>) {
    put_message(event, key, out);
}

/// Where an encoding goes: into a buffer, or only into a count.
///
/// One description of the encoding, run over both, is why lengths and bytes cannot disagree.
pub(super) trait Sink {
    /// Takes the next bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Takes a width in its four-byte form.
    ///
    /// Apart from [`Sink::put`] so that counting never panics: whoever only asks for the length
    /// of an event that is far too large must learn it, to refuse the event.
    fn put_width_32(&mut self, width: usize);
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    /// # Panics
    ///
    /// If the width does not fit; [`encode`] documents it.
    #[inline]
    fn put_width_32(&mut self, width: usize) {
        let width = u32::try_from(width).expect("AMQP cannot express a length beyond u32::MAX");
        self.extend_from_slice(&width.to_be_bytes());
    }
}

struct Counter(usize);

impl Sink for Counter {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    #[inline]
    fn put_width_32(&mut self, _: usize) {
        self.0 += 4;
    }
}

#[inline]
fn put_message<S: Sink>(event: &Event, key: Option<&PartitionKey>, sink: &mut S) {
    if let Some(key) = key {
        put_section(section::MESSAGE_ANNOTATIONS, sink);
        put_compound(code::MAP_8, code::MAP_32, 2, sink, &PartitionKeyPair(key));
    }
    if !event.is_plain() {
        put_extras(event, sink);
    }
    put_data_header(event.body().len(), sink);
    sink.put(event.body());
}

/// The sections between annotations and body. Apart, so that plain events stay inline.
#[cold]
fn put_extras<S: Sink>(event: &Event, sink: &mut S) {
    let fields = PropertyFields::of(event);
    if fields.count() > 0 {
        put_section(section::PROPERTIES, sink);
        put_compound(code::LIST_8, code::LIST_32, fields.count(), sink, &fields);
    }
    let pairs = event.properties().len();
    if pairs > 0 {
        put_section(section::APPLICATION_PROPERTIES, sink);
        // A map counts its keys and its values (AMQP 1.0, section 1.6.23).
        put_compound(
            code::MAP_8,
            code::MAP_32,
            2 * pairs,
            sink,
            &ApplicationProperties(event),
        );
    }
}

/// Everything of a `data` section before its bytes: 5 bytes up to a length of 255, else 8.
#[inline]
pub(super) fn put_data_header<S: Sink>(len: usize, sink: &mut S) {
    put_section(section::DATA, sink);
    put_variable_header(code::BINARY_8, code::BINARY_32, len, sink);
}

#[inline]
fn put_section<S: Sink>(descriptor: u8, sink: &mut S) {
    sink.put(&[code::DESCRIBED, code::SMALL_ULONG, descriptor]);
}

/// Constructor and length of a value of variable width: one byte of length if it suffices.
#[inline]
fn put_variable_header<S: Sink>(small: u8, large: u8, len: usize, sink: &mut S) {
    match u8::try_from(len) {
        Ok(len) => sink.put(&[small, len]),
        Err(_) => {
            sink.put(&[large]);
            sink.put_width_32(len);
        }
    }
}

#[inline]
fn put_variable<S: Sink>(small: u8, large: u8, bytes: &[u8], sink: &mut S) {
    put_variable_header(small, large, bytes.len(), sink);
    sink.put(bytes);
}

fn put_string<S: Sink>(text: &str, sink: &mut S) {
    put_variable(code::STRING_8, code::STRING_32, text.as_bytes(), sink);
}

fn put_symbol<S: Sink>(text: &str, sink: &mut S) {
    put_variable(code::SYMBOL_8, code::SYMBOL_32, text.as_bytes(), sink);
}

fn put_binary<S: Sink>(bytes: &[u8], sink: &mut S) {
    put_variable(code::BINARY_8, code::BINARY_32, bytes, sink);
}

/// Items of a list or a map, in a form that can be run twice: for their size, and for good.
trait Items {
    fn put_items<S: Sink>(&self, sink: &mut S);
}

/// A list or a map of `count` items, with one byte each for size and count if that suffices.
///
/// The size that is written includes the count (AMQP 1.0, sections 1.6.22 and 1.6.23).
fn put_compound<S: Sink, I: Items>(small: u8, large: u8, count: usize, sink: &mut S, items: &I) {
    let mut counted = Counter(0);
    items.put_items(&mut counted);
    match (u8::try_from(counted.0 + 1), u8::try_from(count)) {
        (Ok(size), Ok(count)) => sink.put(&[small, size, count]),
        _ => {
            sink.put(&[large]);
            sink.put_width_32(counted.0 + 4);
            sink.put_width_32(count);
        }
    }
    items.put_items(sink);
}

struct PartitionKeyPair<'a>(&'a PartitionKey);

impl Items for PartitionKeyPair<'_> {
    fn put_items<S: Sink>(&self, sink: &mut S) {
        // Annotations are keyed by symbols (AMQP 1.0, section 3.2.10).
        put_symbol(PARTITION_KEY_ANNOTATION, sink);
        put_string(self.0.as_str(), sink);
    }
}

struct ApplicationProperties<'a>(&'a Event);

impl Items for ApplicationProperties<'_> {
    fn put_items<S: Sink>(&self, sink: &mut S) {
        for (name, value) in self.0.properties() {
            put_string(name, sink);
            put_value(value, sink);
        }
    }
}

/// The fields of the `properties` section that an event can have. It is a list, so a field's
/// place is its number: a gap takes a null, and what would be null at the end is left out (AMQP
/// 1.0, sections 1.4 and 3.2.4).
struct PropertyFields<'a> {
    message_id: Option<&'a MessageId>,
    correlation_id: Option<&'a MessageId>,
    content_type: Option<&'a str>,
}

impl<'a> PropertyFields<'a> {
    fn of(event: &'a Event) -> Self {
        PropertyFields {
            message_id: event.message_id(),
            correlation_id: event.correlation_id(),
            content_type: event.content_type(),
        }
    }

    /// How many fields the list needs: up to the last one that has a value.
    fn count(&self) -> usize {
        match (self.message_id, self.correlation_id, self.content_type) {
            (_, _, Some(_)) => 7,
            (_, Some(_), None) => 6,
            (Some(_), None, None) => 1,
            (None, None, None) => 0,
        }
    }
}

impl Items for PropertyFields<'_> {
    fn put_items<S: Sink>(&self, sink: &mut S) {
        let count = self.count();
        put_message_id(self.message_id, sink);
        if count > 1 {
            // user-id, to, subject, reply-to
            sink.put(&[code::NULL; 4]);
            put_message_id(self.correlation_id, sink);
        }
        if let Some(content_type) = self.content_type {
            put_symbol(content_type, sink);
        }
    }
}

fn put_message_id<S: Sink>(id: Option<&MessageId>, sink: &mut S) {
    match id {
        None => sink.put(&[code::NULL]),
        Some(MessageId::String(text)) => put_string(text, sink),
        Some(MessageId::U64(number)) => put_ulong(*number, sink),
        Some(MessageId::Uuid(uuid)) => put_fixed(code::UUID, uuid, sink),
        Some(MessageId::Binary(bytes)) => put_binary(bytes, sink),
    }
}

fn put_value<S: Sink>(value: &Value, sink: &mut S) {
    match value {
        Value::Null => sink.put(&[code::NULL]),
        Value::Bool(true) => sink.put(&[code::TRUE]),
        Value::Bool(false) => sink.put(&[code::FALSE]),
        Value::U8(number) => sink.put(&[code::UBYTE, *number]),
        Value::U16(number) => put_fixed(code::USHORT, &number.to_be_bytes(), sink),
        Value::U32(number) => put_uint(*number, sink),
        Value::U64(number) => put_ulong(*number, sink),
        Value::I8(number) => put_fixed(code::BYTE, &number.to_be_bytes(), sink),
        Value::I16(number) => put_fixed(code::SHORT, &number.to_be_bytes(), sink),
        Value::I32(number) => match i8::try_from(*number) {
            Ok(small) => put_fixed(code::SMALL_INT, &small.to_be_bytes(), sink),
            Err(_) => put_fixed(code::INT, &number.to_be_bytes(), sink),
        },
        Value::I64(number) => match i8::try_from(*number) {
            Ok(small) => put_fixed(code::SMALL_LONG, &small.to_be_bytes(), sink),
            Err(_) => put_fixed(code::LONG, &number.to_be_bytes(), sink),
        },
        Value::F32(number) => put_fixed(code::FLOAT, &number.to_be_bytes(), sink),
        Value::F64(number) => put_fixed(code::DOUBLE, &number.to_be_bytes(), sink),
        // UTF-32, big-endian (AMQP 1.0, section 1.6.16).
        Value::Char(character) => {
            put_fixed(code::CHAR, &u32::from(*character).to_be_bytes(), sink);
        }
        Value::Timestamp(time) => put_timestamp(*time, sink),
        Value::Uuid(uuid) => put_fixed(code::UUID, uuid, sink),
        Value::Binary(bytes) => put_binary(bytes, sink),
        Value::String(text) => put_string(text, sink),
        Value::Symbol(symbol) => put_symbol(symbol.as_str(), sink),
    }
}

fn put_fixed<S: Sink>(constructor: u8, bytes: &[u8], sink: &mut S) {
    sink.put(&[constructor]);
    sink.put(bytes);
}

fn put_uint<S: Sink>(number: u32, sink: &mut S) {
    match (number, u8::try_from(number)) {
        (0, _) => sink.put(&[code::UINT_0]),
        (_, Ok(small)) => sink.put(&[code::SMALL_UINT, small]),
        (_, Err(_)) => put_fixed(code::UINT, &number.to_be_bytes(), sink),
    }
}

fn put_ulong<S: Sink>(number: u64, sink: &mut S) {
    match (number, u8::try_from(number)) {
        (0, _) => sink.put(&[code::ULONG_0]),
        (_, Ok(small)) => sink.put(&[code::SMALL_ULONG, small]),
        (_, Err(_)) => put_fixed(code::ULONG, &number.to_be_bytes(), sink),
    }
}

fn put_timestamp<S: Sink>(time: Timestamp, sink: &mut S) {
    put_fixed(code::TIMESTAMP, &time.as_millis().to_be_bytes(), sink);
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    const BEYOND: usize = u32::MAX as usize + 1;

    #[test]
    fn a_length_that_amqp_cannot_express_is_counted_all_the_same() {
        let mut counted = Counter(0);
        put_data_header(BEYOND, &mut counted);
        assert_eq!(counted.0, 8);
    }

    #[test]
    #[should_panic(expected = "cannot express")]
    fn a_length_that_amqp_cannot_express_is_never_written() {
        put_data_header(BEYOND, &mut Vec::new());
    }
}
