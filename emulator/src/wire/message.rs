//! Messages as sections, batches as messages of messages, and the annotations a reader sees.

use std::ops::Range;

use serde_amqp::Value;

use super::{
    fields::{self, Fields},
    scan::{self, Malformed},
};

/// The message format of a batch envelope.
pub(crate) const BATCH_FORMAT: u32 = 0x8001_3700;

/// The annotation that carries the partition key.
pub(crate) const PARTITION_KEY: &str = "x-opt-partition-key";

/// The sections of a bare or annotated message, part 3.2 of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SectionKind {
    Header,
    DeliveryAnnotations,
    MessageAnnotations,
    Properties,
    ApplicationProperties,
    Data,
    Sequence,
    Value,
    Footer,
}

impl SectionKind {
    fn of(code: u64) -> Result<Self, Malformed> {
        Ok(match code {
            0x70 => Self::Header,
            0x71 => Self::DeliveryAnnotations,
            0x72 => Self::MessageAnnotations,
            0x73 => Self::Properties,
            0x74 => Self::ApplicationProperties,
            0x75 => Self::Data,
            0x76 => Self::Sequence,
            0x77 => Self::Value,
            0x78 => Self::Footer,
            other => return Err(Malformed::UnknownSection(other)),
        })
    }

    fn is_body(self) -> bool {
        matches!(self, Self::Data | Self::Sequence | Self::Value)
    }
}

/// One section: where it is in the message and the encoding of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) kind: SectionKind,
    pub(crate) whole: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// Walks the sections of a message and checks each, their order and the presence of a body.
#[derive(Debug)]
pub(crate) struct Sections<'a> {
    bytes: &'a [u8],
    at: usize,
    last: Option<SectionKind>,
    body: bool,
}

pub(crate) fn sections(bytes: &[u8]) -> Sections<'_> {
    Sections {
        bytes,
        at: 0,
        last: None,
        body: false,
    }
}

impl Sections<'_> {
    fn step(&mut self) -> Result<Option<Section>, Malformed> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return if self.body {
                Ok(None)
            } else {
                Err(Malformed::NoBody)
            };
        }
        let (code, header) = scan::descriptor(rest)?;
        let kind = SectionKind::of(code)?;
        let repeats = matches!(kind, SectionKind::Data | SectionKind::Sequence);
        match self.last {
            Some(last) if last > kind || (last == kind && !repeats) => {
                return Err(Malformed::SectionOrder);
            }
            // One kind of body only.
            Some(last) if last != kind && last.is_body() && kind.is_body() => {
                return Err(Malformed::SectionOrder);
            }
            _ => {}
        }
        let value = &rest[header..];
        let len = scan::value_len(value)?;
        check_shape(kind, value[0])?;
        let start = self.at;
        self.at += header + len;
        self.last = Some(kind);
        self.body |= kind.is_body();
        Ok(Some(Section {
            kind,
            whole: start..self.at,
            value: start + header..self.at,
        }))
    }
}

impl Iterator for Sections<'_> {
    type Item = Result<Section, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step().transpose();
        if matches!(step, Some(Err(_))) {
            // An error is the last item.
            self.at = self.bytes.len();
            self.body = true;
        }
        step
    }
}

/// Checks that a section is the list, map or binary that its kind calls for.
fn check_shape(kind: SectionKind, code: u8) -> Result<(), Malformed> {
    let good = match kind {
        SectionKind::Header | SectionKind::Properties | SectionKind::Sequence => {
            matches!(code, 0x45 | 0xc0 | 0xd0)
        }
        SectionKind::Data => matches!(code, 0xa0 | 0xb0),
        SectionKind::Value => true,
        _ => matches!(code, 0xc1 | 0xd1),
    };
    if good {
        Ok(())
    } else {
        Err(Malformed::UnknownCode(code))
    }
}

/// Where each event of a batch lies; the vector is cleared first.
///
/// Every inner message is walked, so a batch that is accepted can be read.
pub(crate) fn split_batch(payload: &[u8], events: &mut Vec<Range<u32>>) -> Result<(), Malformed> {
    events.clear();
    for section in sections(payload) {
        let section = section?;
        if section.kind != SectionKind::Data {
            if section.kind.is_body() {
                return Err(Malformed::EmptyBatch);
            }
            continue;
        }
        let (header, inner) = scan::variable(&payload[section.value.clone()])?;
        check_message(inner)?;
        let start = section.value.start + header;
        events.push(narrow(start)?..narrow(start + inner.len())?);
    }
    Ok(())
}

pub(super) fn narrow(position: usize) -> Result<u32, Malformed> {
    u32::try_from(position).map_err(|_| Malformed::BadSize)
}

/// Walks every section of one message.
pub(crate) fn check_message(message: &[u8]) -> Result<(), Malformed> {
    for section in sections(message) {
        section?;
    }
    Ok(())
}

/// The first section of a kind, if the message is well formed up to it.
pub(crate) fn find_section(message: &[u8], kind: SectionKind) -> Option<Section> {
    sections(message)
        .map_while(Result::ok)
        .find(|section| section.kind == kind)
}

/// The partition key annotation, found without decoding the other entries.
pub(crate) fn partition_key(message: &[u8]) -> Option<&str> {
    let section = find_section(message, SectionKind::MessageAnnotations)?;
    let (count, mut rest) = scan::compound(&message[section.value]).ok()?;
    for _ in 0..count / 2 {
        let (_, name) = scan::variable(rest).ok()?;
        let value = rest.get(scan::value_len(rest).ok()?..)?;
        if name == PARTITION_KEY.as_bytes() {
            let (_, key) = scan::variable(value).ok()?;
            return std::str::from_utf8(key).ok();
        }
        rest = value.get(scan::value_len(value).ok()?..)?;
    }
    None
}

/// Decodes the value of a section, null when the message has none of that kind.
pub(crate) fn section_value(message: &[u8], kind: SectionKind) -> Value {
    find_section(message, kind)
        .and_then(|section| scan::decode(&message[section.value]).ok())
        .map_or(Value::Null, |(value, _)| value)
}

/// A message to `$cbs` or `$management`.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) message_id: Value,
    pub(crate) reply_to: Option<String>,
    properties: Value,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn parse(message: &[u8]) -> Result<Self, Malformed> {
        // The Python client leaves the body of a management request out.
        let mut walk = Sections {
            body: true,
            ..sections(message)
        };
        walk.try_for_each(|section| section.map(drop))?;
        let mut header = Fields::of(section_value(message, SectionKind::Properties));
        Ok(Self {
            message_id: header.as_mut().map_or(Value::Null, |fields| fields.take(0)),
            reply_to: header
                .as_ref()
                .and_then(|fields| fields.text(4))
                .map(str::to_owned),
            properties: section_value(message, SectionKind::ApplicationProperties),
            body: section_value(message, SectionKind::Value),
        })
    }

    /// A textual application property.
    pub(crate) fn property(&self, key: &str) -> Option<&str> {
        fields::map_entry(&self.properties, key).and_then(fields::text_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section with a map of one symbol and one string.
    fn annotations(key: &str, value: &str) -> Vec<u8> {
        let map = fields::map([(fields::symbol(key), fields::string(value))]);
        fields::encode(&fields::described(0x72, map))
    }

    fn data(content: &[u8]) -> Vec<u8> {
        let content = Value::Binary(content.to_vec().into());
        fields::encode(&fields::described(0x75, content))
    }

    #[test]
    fn sections_have_an_order_and_a_body() {
        let (note, body) = (annotations("a", "b"), data(b"x"));
        assert_eq!(check_message(&[&note[..], &body].concat()), Ok(()));
        assert_eq!(check_message(&[&body[..], &body].concat()), Ok(()));
        for (message, error) in [
            ([&body[..], &note].concat(), Malformed::SectionOrder),
            ([&note[..], &note, &body].concat(), Malformed::SectionOrder),
            (note.clone(), Malformed::NoBody),
            (Vec::new(), Malformed::NoBody),
            (vec![0x00, 0x53, 0x75, 0x40], Malformed::UnknownCode(0x40)),
            (
                vec![0x00, 0x53, 0x13, 0x45],
                Malformed::UnknownSection(0x13),
            ),
        ] {
            assert_eq!(check_message(&message), Err(error));
        }
    }

    #[test]
    fn batches_are_split_without_copying() {
        let events = [data(b"one"), data(&[b'2'; 300]), data(b"")];
        let payload = events
            .iter()
            .flat_map(|event| data(event))
            .collect::<Vec<_>>();
        let mut ranges = Vec::new();
        split_batch(&payload, &mut ranges).unwrap();
        let split: Vec<_> = ranges
            .iter()
            .map(|range| &payload[range.start as usize..range.end as usize])
            .collect();
        assert_eq!(split, events);
        let value = fields::encode(&fields::described(0x77, Value::Null));
        assert_eq!(split_batch(&value, &mut ranges), Err(Malformed::EmptyBatch));
    }
}
