//! The codec against an independent reading of AMQP: whatever hublane encodes, the `fe2o3-amqp`
//! family of crates must decode to the same message, and sizes must be exact.

mod oracle;
mod properties;

use bytes::Bytes;
use fe2o3_amqp_types::messaging::Data;
use hublane::codec::{Payload, encoded_len, section_len};
use hublane::{Event, MessageId, PartitionKey, Symbol, Timestamp, Value};

use oracle::{assert_same, decoded, decoded_batch, encoded, round_trip};

/// Every type, with each of its widths on both sides of the step from one to the next.
fn values() -> Vec<(Value, Vec<u8>)> {
    let fixed = |constructor: u8, bytes: &[u8]| [&[constructor][..], bytes].concat();
    vec![
        (Value::Null, vec![0x40]),
        (true.into(), vec![0x41]),
        (false.into(), vec![0x42]),
        (u8::MAX.into(), vec![0x50, 0xff]),
        (0x0102_u16.into(), vec![0x60, 1, 2]),
        (0_u32.into(), vec![0x43]),
        (1_u32.into(), vec![0x52, 1]),
        (255_u32.into(), vec![0x52, 255]),
        (256_u32.into(), vec![0x70, 0, 0, 1, 0]),
        (u32::MAX.into(), vec![0x70, 255, 255, 255, 255]),
        (0_u64.into(), vec![0x44]),
        (1_u64.into(), vec![0x53, 1]),
        (255_u64.into(), vec![0x53, 255]),
        (256_u64.into(), vec![0x80, 0, 0, 0, 0, 0, 0, 1, 0]),
        (u64::MAX.into(), fixed(0x80, &[255; 8])),
        ((-2_i8).into(), vec![0x51, 0xfe]),
        ((-2_i16).into(), vec![0x61, 0xff, 0xfe]),
        (0_i32.into(), vec![0x54, 0]),
        (127_i32.into(), vec![0x54, 127]),
        (128_i32.into(), vec![0x71, 0, 0, 0, 128]),
        ((-128_i32).into(), vec![0x54, 128]),
        ((-129_i32).into(), vec![0x71, 255, 255, 255, 127]),
        (127_i64.into(), vec![0x55, 127]),
        (128_i64.into(), vec![0x81, 0, 0, 0, 0, 0, 0, 0, 128]),
        ((-128_i64).into(), vec![0x55, 128]),
        (i64::MIN.into(), vec![0x81, 128, 0, 0, 0, 0, 0, 0, 0]),
        (1.5_f32.into(), vec![0x72, 0x3f, 0xc0, 0, 0]),
        ((-2.0_f64).into(), vec![0x82, 0xc0, 0, 0, 0, 0, 0, 0, 0]),
        ('😀'.into(), vec![0x73, 0, 1, 0xf6, 0]),
        (Timestamp::from_millis(-1).into(), fixed(0x83, &[255; 8])),
        (Value::Uuid([7; 16]), fixed(0x98, &[7; 16])),
        (Value::Binary(Bytes::new()), vec![0xa0, 0]),
        (
            Bytes::from(vec![9; 255]).into(),
            fixed(0xa0, &[&[255][..], &[9; 255]].concat()),
        ),
        (
            vec![9; 256].into(),
            fixed(0xb0, &[&[0, 0, 1, 0][..], &[9; 256]].concat()),
        ),
        ("".into(), vec![0xa1, 0]),
        ("é".into(), vec![0xa1, 2, 0xc3, 0xa9]),
        (
            "s".repeat(255).into(),
            fixed(0xa1, &[&[255][..], &[b's'; 255]].concat()),
        ),
        (
            "s".repeat(256).into(),
            fixed(0xb1, &[&[0, 0, 1, 0][..], &[b's'; 256]].concat()),
        ),
        (symbol(0), vec![0xa3, 0]),
        (
            symbol(255),
            fixed(0xa3, &[&[255][..], &[b'y'; 255]].concat()),
        ),
        (
            symbol(256),
            fixed(0xb3, &[&[0, 0, 1, 0][..], &[b'y'; 256]].concat()),
        ),
    ]
}

fn symbol(len: usize) -> Value {
    Value::Symbol(Symbol::new("y".repeat(len)).unwrap())
}

#[test]
fn every_value_takes_its_smallest_encoding_and_decodes_to_itself() {
    for (value, bytes) in values() {
        let event = Event::new("").with_property("p", value.clone());
        let message = encoded(&event, None);
        // The value stands between the name and the data section, which is 5 bytes long.
        let value_at = message.len() - 5 - bytes.len();
        assert_eq!(message[value_at..message.len() - 5], bytes, "{value:?}");
        assert_eq!(message[value_at - 3..value_at], *b"\xa1\x01p", "{value:?}");
        round_trip(&event, None);
    }
}

#[test]
fn a_message_with_everything_is_these_bytes() {
    let event = Event::new("body")
        .with_message_id("m")
        .with_correlation_id(0_u64)
        .with_content_type(Symbol::from_static("t/p"))
        .with_property("n", 1_u8);
    let key = PartitionKey::new("k").unwrap();
    let expected: &[&[u8]] = &[
        b"\x00\x53\x72\xc1\x19\x02\xa3\x13x-opt-partition-key\xa1\x01k",
        b"\x00\x53\x73\xc0\x0e\x07\xa1\x01m\x40\x40\x40\x40\x44\xa3\x03t/p",
        b"\x00\x53\x74\xc1\x06\x02\xa1\x01n\x50\x01",
        b"\x00\x53\x75\xa0\x04body",
    ];
    assert_eq!(encoded(&event, Some(&key)), expected.concat());
    round_trip(&event, Some(&key));
}

#[test]
fn trailing_fields_that_are_absent_are_left_out() {
    let fields = |event: Event| {
        let bytes = encoded(&event, None);
        assert_eq!(bytes[..4], [0x00, 0x53, 0x73, 0xc0]);
        round_trip(&event, None);
        bytes[5]
    };
    let content_type = Symbol::from_static("c");
    assert_eq!(fields(Event::new("").with_message_id(1)), 1);
    assert_eq!(fields(Event::new("").with_correlation_id(1)), 6);
    assert_eq!(
        fields(Event::new("").with_content_type(content_type.clone())),
        7
    );
    assert_eq!(
        fields(
            Event::new("")
                .with_message_id(1)
                .with_content_type(content_type)
        ),
        7
    );
}

#[test]
fn every_kind_of_id_decodes_to_itself_in_either_place() {
    let ids = [
        MessageId::from(""),
        "i".repeat(255).into(),
        "i".repeat(256).into(),
        0.into(),
        255.into(),
        256.into(),
        u64::MAX.into(),
        MessageId::Uuid(*b"0123456789abcdef"),
        Bytes::from(vec![1; 255]).into(),
        Bytes::from(vec![1; 256]).into(),
    ];
    for id in ids {
        round_trip(&Event::new("b").with_message_id(id.clone()), None);
        round_trip(&Event::new("b").with_correlation_id(id), None);
    }
}

/// The list of properties grows four-byte sizes when its size, which counts the count, passes 255.
#[test]
fn a_list_of_properties_changes_its_form_between_255_and_256_bytes() {
    // One byte of count, two before the text.
    for (text, constructor) in [(252, 0xc0), (253, 0xd0)] {
        let event = Event::new("").with_message_id("i".repeat(text));
        assert_eq!(encoded(&event, None)[3], constructor);
        round_trip(&event, None);
    }
}

#[test]
fn a_map_of_properties_changes_its_form_between_255_and_256_bytes() {
    // One byte of count, three of name, two before the text.
    for (text, constructor) in [(249, 0xc1), (250, 0xd1)] {
        let event = Event::new("").with_property("n", "v".repeat(text));
        assert_eq!(encoded(&event, None)[3], constructor);
        round_trip(&event, None);
    }
}

#[test]
fn a_map_of_more_items_than_a_byte_can_count_has_the_large_form() {
    // A pair takes at least four bytes here, so the size outgrows its byte before the count does.
    for (pairs, constructor) in [
        (63, 0xc1),
        (64, 0xd1),
        (127, 0xd1),
        (128, 0xd1),
        (300, 0xd1),
    ] {
        let event = (0..pairs).fold(Event::new("b"), |event, n| {
            let name = char::from_u32(0x21 + n).unwrap().to_string();
            event.with_property(name, Value::Null)
        });
        let bytes = encoded(&event, None);
        assert_eq!(bytes[3], constructor, "{pairs} pairs");
        if constructor == 0xd1 {
            assert_eq!(bytes[8..12], (2 * pairs).to_be_bytes(), "{pairs} pairs");
        }
        round_trip(&event, None);
    }
}

#[test]
fn bodies_change_their_form_between_255_and_256_bytes() {
    for (len, overhead) in [(0, 5), (255, 5), (256, 8), (70_000, 8)] {
        let event = Event::new(vec![b'x'; len]);
        assert_eq!(encoded_len(&event, None), len + overhead);
        round_trip(&event, None);
    }
}

#[test]
fn keys_of_every_width_decode_to_themselves() {
    // The map outgrows its small form at 232 bytes of key, the string at 256.
    for (text, bytes, map) in [
        ("k", 1, 0xc1),
        ("日", 231, 0xc1),
        ("é", 232, 0xd1),
        ("日", 255, 0xd1),
        ("é", 256, 0xd1),
        ("日", 384, 0xd1),
    ] {
        let key = PartitionKey::new(text.repeat(bytes / text.len())).unwrap();
        assert_eq!(
            encoded(&Event::new("b"), Some(&key))[3],
            map,
            "{bytes} bytes of key"
        );
        round_trip(&Event::new("b"), Some(&key));
        round_trip(
            &Event::new("b").with_property("p", 1_u8).with_message_id(1),
            Some(&key),
        );
    }
}

/// The message inside a batch's section, of 255 and of 256 bytes.
#[test]
fn sections_change_their_form_between_255_and_256_encoded_bytes() {
    for (body, message, section) in [(250, 255, 260), (251, 256, 264), (255, 260, 268)] {
        let event = Event::new(vec![b'x'; body]);
        assert_eq!(encoded_len(&event, None), message);
        assert_eq!(section_len(message), section);
        let mut batch = Payload::default();
        assert_eq!(batch.push(&event, None), section);
        assert_eq!(batch.len_bytes(), section);
        assert_eq!(
            batch.sections().collect::<Vec<_>>(),
            [encoded(&event, None)]
        );
    }
}

#[test]
fn a_mixed_batch_carries_keys_inside_and_none_on_its_envelope() {
    let keys =
        [Some("a"), None, Some("b")].map(|key| key.map(|key| PartitionKey::new(key).unwrap()));
    let mut batch = Payload::default();
    for key in &keys {
        batch.push(&Event::new("body"), key.as_ref());
    }
    let envelope = decoded_batch(batch.as_bytes());
    assert!(envelope.message_annotations.is_none());
    let inner: Vec<_> = envelope
        .body
        .iter()
        .map(|Data(bytes)| decoded(bytes))
        .collect();
    for (message, key) in inner.iter().zip(&keys) {
        assert_same(message, &Event::new("body"), key.as_ref());
    }
    assert_eq!(inner.len(), 3);
}
