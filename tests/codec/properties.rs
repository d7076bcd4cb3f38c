//! Any event and any batch: sizes are exact, and what is encoded decodes to what was meant.

use std::collections::BTreeMap;

use bytes::Bytes;
use fe2o3_amqp_types::messaging::Data;
use hublane::codec::{Payload, encoded_len, section_len};
use hublane::{Event, MessageId, PartitionKey, Symbol, Timestamp, Value};
use proptest::collection::vec;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert_eq, prop_oneof, proptest,
};

use crate::oracle::{assert_same, decoded, decoded_batch, round_trip};

fn any_text() -> impl Strategy<Value = String> {
    // Some of each side of 255 bytes.
    prop_oneof![4 => ".{0,8}", 1 => "[a-z]{250,260}"]
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![4 => vec(any::<u8>(), 0..8), 1 => vec(any::<u8>(), 250..260)].prop_map(Bytes::from)
}

fn any_symbol() -> impl Strategy<Value = Symbol> {
    prop_oneof![4 => "[ -~]{0,8}", 1 => "[a-z]{250,260}"]
        .prop_map(|text| Symbol::new(text).unwrap())
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
        any::<f32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<char>().prop_map(Value::from),
        any::<i64>().prop_map(|millis| Timestamp::from_millis(millis).into()),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        any_bytes().prop_map(Value::from),
        any_text().prop_map(Value::from),
        any_symbol().prop_map(Value::from),
    ]
}

fn any_id() -> impl Strategy<Value = Option<MessageId>> {
    prop_oneof![
        2 => Just(None),
        1 => any_text().prop_map(|text| Some(text.into())),
        1 => prop_oneof![0..300_u64, any::<u64>()].prop_map(|number| Some(number.into())),
        1 => any::<[u8; 16]>().prop_map(|uuid| Some(MessageId::Uuid(uuid))),
        1 => any_bytes().prop_map(|bytes| Some(bytes.into())),
    ]
}

fn any_event() -> impl Strategy<Value = Event> {
    let content_type = proptest::option::of(any_symbol());
    let properties = prop_oneof![
        8 => vec((any_text(), any_value()), 0..4),
        1 => vec((any_text(), any_value()), 126..131),
    ];
    (any_bytes(), any_id(), any_id(), content_type, properties).prop_map(
        |(body, message_id, correlation_id, content_type, properties)| {
            let mut event = Event::new(body);
            if let Some(id) = message_id {
                event = event.with_message_id(id);
            }
            if let Some(id) = correlation_id {
                event = event.with_correlation_id(id);
            }
            if let Some(content_type) = content_type {
                event = event.with_content_type(content_type);
            }
            properties.into_iter().fold(event, |event, (name, value)| {
                event.with_property(name, value)
            })
        },
    )
}

fn any_key() -> impl Strategy<Value = Option<PartitionKey>> {
    let text = prop_oneof![".{1,64}", "[日-本]{128}"];
    proptest::option::of(text.prop_map(|text| PartitionKey::new(text).unwrap()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_event_has_the_promised_length_and_decodes_to_itself(
        event in any_event(),
        key in any_key(),
    ) {
        round_trip(&event, key.as_ref());
    }

    #[test]
    fn any_batch_has_the_promised_length_and_decodes_to_its_events(
        events in vec((any_event(), any_key()), 1..12),
    ) {
        let mut batch = Payload::default();
        let mut promised = 0;
        for (event, key) in &events {
            promised += section_len(encoded_len(event, key.as_ref()));
            batch.push(event, key.as_ref());
            prop_assert_eq!(batch.len_bytes(), promised);
        }
        prop_assert_eq!(batch.as_bytes().len(), promised);
        prop_assert_eq!(batch.count(), events.len());
        prop_assert_eq!(batch.sections().len(), events.len());

        let envelope = decoded_batch(batch.as_bytes());
        prop_assert_eq!(envelope.body.len(), events.len());
        let inner = envelope.body.iter().zip(batch.sections()).zip(&events);
        for ((Data(bytes), section), (event, key)) in inner {
            prop_assert_eq!(bytes.as_slice(), section);
            assert_same(&decoded(section), event, key.as_ref());
        }
    }

    #[test]
    fn setting_names_again_leaves_one_of_each(
        pairs in vec(("[a-c]", any::<u8>()), 0..12),
    ) {
        let event = pairs.iter().fold(Event::new(""), |event, (name, value)| {
            event.with_property(name.clone(), *value)
        });
        let last: BTreeMap<_, _> = pairs.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        prop_assert_eq!(event.properties().len(), last.len());
        for (name, value) in last {
            prop_assert_eq!(event.property(name), Some(&Value::U8(value)));
        }
        round_trip(&event, None);
    }
}
