//! An independent reading of what hublane encodes.

use fe2o3_amqp_types::messaging::annotations::{AnnotationKey, OwnedKey};
use fe2o3_amqp_types::messaging::message::DecodeIntoMessage;
use fe2o3_amqp_types::messaging::{self as amqp, Batch, Data, Message};
use fe2o3_amqp_types::primitives::{SimpleValue, Symbol as AmqpSymbol, Value as AmqpValue};
use hublane::codec::{encode, encoded_len};
use hublane::{Event, MessageId, PartitionKey, Value};
use serde_amqp::read::SliceReader;

/// Encodes, and holds the length to what was promised.
pub fn encoded(event: &Event, key: Option<&PartitionKey>) -> Vec<u8> {
    let mut out = vec![0xEE];
    encode(event, key, &mut out);
    assert_eq!(out.remove(0), 0xEE, "encode appends");
    assert_eq!(
        out.len(),
        encoded_len(event, key),
        "the promised length is the length"
    );
    let mut rest = out.as_slice();
    while !rest.is_empty() {
        rest = after_value(rest);
    }
    out
}

/// What follows the value at the front of `bytes`, read by the widths alone (AMQP 1.0, section
/// 1.2): the upper half of a constructor says how wide its value is. The decoder below believes
/// counts and ignores sizes; this holds each compound to both.
fn after_value(bytes: &[u8]) -> &[u8] {
    let (constructor, rest) = bytes.split_first().expect("a value");
    match constructor >> 4 {
        // A described value: its descriptor, then itself.
        0x0 => after_value(after_value(rest)),
        0x4 => rest,
        fixed @ 0x5..=0x9 => &rest[1 << (fixed - 5)..],
        variable @ (0xa | 0xb) => {
            let (size, rest) = number(rest, if variable == 0xa { 1 } else { 4 });
            &rest[size..]
        }
        compound @ (0xc | 0xd) => {
            let width = if compound == 0xc { 1 } else { 4 };
            let (size, rest) = number(rest, width);
            let (inside, rest) = rest.split_at(size);
            let (count, mut items) = number(inside, width);
            for _ in 0..count {
                items = after_value(items);
            }
            assert!(
                items.is_empty(),
                "a size covers its count and its items, no more"
            );
            rest
        }
        other => panic!("no type of this test is in the category {other:x}"),
    }
}

/// The unsigned number in the first `width` bytes, and what follows.
fn number(bytes: &[u8], width: usize) -> (usize, &[u8]) {
    let (digits, rest) = bytes.split_at(width);
    let value = digits
        .iter()
        .fold(0, |value, digit| value << 8 | usize::from(*digit));
    (value, rest)
}

pub fn decoded(bytes: &[u8]) -> Message<Data> {
    Data::decode_message_from_reader(SliceReader::new(bytes))
        .expect("a message of one data section")
}

pub fn decoded_batch(bytes: &[u8]) -> Message<Batch<Data>> {
    Batch::<Data>::decode_message_from_reader(SliceReader::new(bytes)).expect("a batch of data")
}

/// Checks a decoded message against the event it was encoded from, field by field.
pub fn assert_same(message: &Message<Data>, event: &Event, key: Option<&PartitionKey>) {
    assert!(message.header.is_none());
    assert!(message.delivery_annotations.is_none());
    assert!(message.footer.is_none());

    let annotations = message.message_annotations.as_ref();
    assert_eq!(
        annotations.map(|annotations| annotations.0.len()),
        key.map(|_| 1)
    );
    assert_eq!(
        partition_key(message),
        key.map(|key| AmqpValue::String(key.as_str().to_owned()))
    );

    let expected = amqp::Properties {
        message_id: event.message_id().map(amqp_id),
        correlation_id: event.correlation_id().map(amqp_id),
        content_type: event.content_type().map(AmqpSymbol::from),
        ..amqp::Properties::default()
    };
    let some = expected != amqp::Properties::default();
    assert_eq!(message.properties, some.then_some(expected));

    let properties: Vec<_> = message
        .application_properties
        .iter()
        .flat_map(|properties| properties.0.iter())
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    let expected: Vec<_> = event
        .properties()
        .map(|(name, value)| (name, amqp_value(value)))
        .collect();
    assert_eq!(properties, expected);
    assert_eq!(
        message.application_properties.is_some(),
        !expected.is_empty()
    );

    assert_eq!(message.body.0.as_slice(), event.body().as_ref());
}

fn partition_key(message: &Message<Data>) -> Option<AmqpValue> {
    let annotations = &message.message_annotations.as_ref()?.0;
    let key: &dyn AnnotationKey = &OwnedKey::from("x-opt-partition-key");
    annotations.get(key).cloned()
}

fn amqp_id(id: &MessageId) -> amqp::MessageId {
    match id {
        MessageId::String(text) => amqp::MessageId::String(text.clone()),
        MessageId::U64(number) => amqp::MessageId::Ulong(*number),
        MessageId::Uuid(uuid) => amqp::MessageId::Uuid((*uuid).into()),
        MessageId::Binary(bytes) => amqp::MessageId::Binary(bytes.to_vec().into()),
    }
}

fn amqp_value(value: &Value) -> SimpleValue {
    match value {
        Value::Null => SimpleValue::Null,
        Value::Bool(value) => SimpleValue::Bool(*value),
        Value::U8(value) => SimpleValue::Ubyte(*value),
        Value::U16(value) => SimpleValue::Ushort(*value),
        Value::U32(value) => SimpleValue::Uint(*value),
        Value::U64(value) => SimpleValue::Ulong(*value),
        Value::I8(value) => SimpleValue::Byte(*value),
        Value::I16(value) => SimpleValue::Short(*value),
        Value::I32(value) => SimpleValue::Int(*value),
        Value::I64(value) => SimpleValue::Long(*value),
        Value::F32(value) => SimpleValue::Float((*value).into()),
        Value::F64(value) => SimpleValue::Double((*value).into()),
        Value::Char(value) => SimpleValue::Char(*value),
        Value::Timestamp(time) => SimpleValue::Timestamp(time.as_millis().into()),
        Value::Uuid(uuid) => SimpleValue::Uuid((*uuid).into()),
        Value::Binary(bytes) => SimpleValue::Binary(bytes.to_vec().into()),
        Value::String(text) => SimpleValue::String(text.clone()),
        Value::Symbol(symbol) => SimpleValue::Symbol(symbol.as_str().into()),
        other => panic!("{other:?} has no counterpart in this test"),
    }
}

/// Encodes an event and reads it back.
pub fn round_trip(event: &Event, key: Option<&PartitionKey>) {
    assert_same(&decoded(&encoded(event, key)), event, key);
}
