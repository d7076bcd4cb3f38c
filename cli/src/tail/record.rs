//! An event as a line of JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fe2o3_amqp_types::messaging::annotations::AnnotationKey;
use fe2o3_amqp_types::messaging::{AmqpValue, Body, Message, MessageAnnotations};
use fe2o3_amqp_types::primitives::{Symbol, Value};
use serde::Serialize;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

/// What is printed of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// The partition that it is in.
    pub partition: String,
    /// Its place there, as the service names it.
    pub offset: Option<String>,
    /// Its number there.
    pub sequence_number: Option<i64>,
    /// When it was stored (RFC 3339, UTC).
    pub enqueued_time: Option<String>,
    /// Its partition key.
    pub key: Option<String>,
    /// Its body, if that is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Its body, if that is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

impl Record {
    /// Reads a message that came from this partition.
    pub fn new(partition: &str, message: &Message<Body<Value>>) -> Record {
        let annotations = message.message_annotations.as_ref();
        let annotation = |name: &str| annotations.and_then(|all| find(all, name));
        let (body, body_base64) = match String::from_utf8(bytes_of(&message.body)) {
            Ok(text) => (Some(text), None),
            Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
        };
        Record {
            partition: partition.to_owned(),
            offset: annotation("x-opt-offset").and_then(text_of),
            sequence_number: annotation("x-opt-sequence-number").and_then(integer_of),
            enqueued_time: annotation("x-opt-enqueued-time").and_then(time_of),
            key: annotation("x-opt-partition-key").and_then(text_of),
            body,
            body_base64,
        }
    }

    /// The record in one line, without its end.
    pub fn json(&self) -> String {
        // A plain structure of texts and a number cannot be refused.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn find<'a>(annotations: &'a MessageAnnotations, name: &str) -> Option<&'a Value> {
    annotations.0.get(&Symbol::from(name) as &dyn AnnotationKey)
}

/// The bytes of data sections, one behind the other; of a value, its text or its own bytes. Other
/// bodies, which no producer of Event Hubs makes, are shown as they are told in Rust.
fn bytes_of(body: &Body<Value>) -> Vec<u8> {
    match body {
        Body::Data(sections) => sections.iter().flat_map(|data| data.0.to_vec()).collect(),
        Body::Value(AmqpValue(Value::String(text))) => text.clone().into_bytes(),
        Body::Value(AmqpValue(Value::Binary(bytes))) => bytes.to_vec(),
        Body::Value(AmqpValue(value)) => format!("{value:?}").into_bytes(),
        Body::Sequence(sequences) => format!("{sequences:?}").into_bytes(),
        Body::Empty => Vec::new(),
    }
}

/// Offsets are texts, and numbers in the answers of older brokers.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Symbol(symbol) => Some(symbol.0.clone()),
        Value::Long(number) => Some(number.to_string()),
        Value::Ulong(number) => Some(number.to_string()),
        _ => None,
    }
}

fn integer_of(value: &Value) -> Option<i64> {
    match value {
        Value::Long(number) => Some(*number),
        Value::Int(number) => Some(i64::from(*number)),
        _ => None,
    }
}

fn time_of(value: &Value) -> Option<String> {
    let Value::Timestamp(stamp) = value else {
        return None;
    };
    // The formatter knows the years 1970 to 9999: it panics at earlier ones, and refuses later
    // ones with an error, which `to_string` would make a panic.
    let since_epoch = u64::try_from(stamp.milliseconds()).ok()?;
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(since_epoch))?;
    let mut text = String::new();
    write!(text, "{}", humantime::format_rfc3339_millis(time)).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fe2o3_amqp_types::messaging::{Batch, Data};
    use fe2o3_amqp_types::primitives::{Binary, Timestamp};

    fn message(sections: &[&[u8]], milliseconds: i64) -> Message<Body<Value>> {
        let data: Batch<Data> = sections
            .iter()
            .map(|bytes| Data(Binary::from(bytes.to_vec())))
            .collect();
        let annotations = MessageAnnotations::builder()
            .insert("x-opt-offset", "4096".to_owned())
            .insert("x-opt-sequence-number", 7_i64)
            .insert(
                "x-opt-enqueued-time",
                Timestamp::from_milliseconds(milliseconds),
            )
            .insert("x-opt-partition-key", "k".to_owned())
            .build();
        Message::builder()
            .message_annotations(annotations)
            .body(Body::Data(data))
            .build()
    }

    #[test]
    fn a_record_is_one_line_of_json_with_its_place() {
        let record = Record::new("3", &message(&[b"a\n", "é".as_bytes()], 1_700_000_000_123));
        assert_eq!(
            record.json(),
            r#"{"partition":"3","offset":"4096","sequence_number":7,"enqueued_time":"2023-11-14T22:13:20.123Z","key":"k","body":"a\né"}"#
        );
    }

    #[test]
    fn a_body_that_is_no_text_is_in_base64() {
        let record = Record::new("0", &message(&[&[0xff, 0x00]], 0));
        assert_eq!(record.body, None);
        assert_eq!(record.body_base64.as_deref(), Some("/wA="));
        assert!(!record.json().contains("\"body\""));
    }

    #[test]
    fn a_time_that_cannot_be_told_is_null_and_not_the_end() {
        for milliseconds in [i64::MIN, -1, i64::MAX] {
            let record = Record::new("0", &message(&[b""], milliseconds));
            assert_eq!(record.enqueued_time, None, "{milliseconds}");
        }
    }

    #[test]
    fn a_message_without_annotations_is_shown() {
        let plain = Message::builder()
            .value(Value::String("text".to_owned()))
            .build();
        let record = Record::new(
            "0",
            &Message {
                body: Body::Value(plain.body),
                header: None,
                delivery_annotations: None,
                message_annotations: None,
                properties: None,
                application_properties: None,
                footer: None,
            },
        );
        assert_eq!(record.body.as_deref(), Some("text"));
        assert_eq!(record.offset, None);
    }
}
