//! One stored event and what can be read from it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_amqp::Value;

use crate::wire::{
    fields::{Fields, text_of},
    message::{self, SectionKind},
    scan,
};

/// An event as the emulator holds it: the encoded message and where it was put.
///
/// Nothing but the place is decoded until it is asked for. Cloning is cheap; a clone keeps the batch
/// in which the event arrived in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    pub(crate) partition: usize,
    pub(crate) sequence_number: i64,
    pub(crate) offset: u64,
    pub(crate) enqueued_ms: i64,
    pub(crate) raw: Bytes,
}

impl StoredEvent {
    /// The index of the partition; its id is the same number in decimal.
    #[must_use]
    pub fn partition(&self) -> usize {
        self.partition
    }

    /// The position in the partition, counted in events from 0.
    #[must_use]
    pub fn sequence_number(&self) -> i64 {
        self.sequence_number
    }

    /// The position in the partition in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// When the batch was stored, to the millisecond.
    #[must_use]
    pub fn enqueued_time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(u64::try_from(self.enqueued_ms).unwrap_or(0))
    }

    /// The complete encoded AMQP message, exactly as it was sent.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The partition key annotation.
    #[must_use]
    pub fn partition_key(&self) -> Option<&str> {
        message::partition_key(&self.raw)
    }

    /// The data of the body: the sections joined when there are several, empty when the body is
    /// a value or a sequence.
    #[must_use]
    pub fn body(&self) -> Bytes {
        let mut parts = message::sections(&self.raw)
            .map_while(Result::ok)
            .filter(|section| section.kind == SectionKind::Data)
            .filter_map(|section| {
                let value = &self.raw[section.value.clone()];
                let (header, content) = scan::variable(value).ok()?;
                let start = section.value.start + header;
                Some(self.raw.slice(start..start + content.len()))
            });
        let first = parts.next().unwrap_or_default();
        match parts.next() {
            None => first,
            Some(second) => {
                let mut joined = first.to_vec();
                joined.extend_from_slice(&second);
                parts.for_each(|part| joined.extend_from_slice(&part));
                joined.into()
            }
        }
    }

    /// The value of an `amqp-value` body, null for a body of data.
    #[must_use]
    pub fn body_value(&self) -> Value {
        message::section_value(&self.raw, SectionKind::Value)
    }

    /// The application properties in the order in which they were encoded.
    #[must_use]
    pub fn properties(&self) -> Vec<(String, Value)> {
        entries(message::section_value(
            &self.raw,
            SectionKind::ApplicationProperties,
        ))
    }

    /// One application property.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<Value> {
        self.properties()
            .into_iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }

    /// The message annotations that the sender gave.
    #[must_use]
    pub fn annotations(&self) -> Vec<(String, Value)> {
        entries(message::section_value(
            &self.raw,
            SectionKind::MessageAnnotations,
        ))
    }

    /// The message id, null when there is none.
    #[must_use]
    pub fn message_id(&self) -> Value {
        self.header_field(0)
    }

    /// The correlation id, null when there is none.
    #[must_use]
    pub fn correlation_id(&self) -> Value {
        self.header_field(5)
    }

    /// The content type.
    #[must_use]
    pub fn content_type(&self) -> Option<String> {
        text_of(&self.header_field(6)).map(str::to_owned)
    }

    /// A field of the properties section by its place in part 3.2.4 of the specification.
    fn header_field(&self, index: usize) -> Value {
        Fields::of(message::section_value(&self.raw, SectionKind::Properties))
            .map_or(Value::Null, |mut fields| fields.take(index))
    }
}

fn entries(map: Value) -> Vec<(String, Value)> {
    let Value::Map(map) = map else {
        return Vec::new();
    };
    map.into_inner()
        .into_iter()
        .filter_map(|(key, value)| Some((text_of(&key)?.to_owned(), value)))
        .collect()
}
