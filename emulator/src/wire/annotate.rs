//! The annotations that the service adds to an event for its readers.

use super::{
    message::{SectionKind, narrow, sections},
    scan::{self, Malformed},
};

/// Where and when an event was stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemAnnotations {
    pub(crate) sequence_number: i64,
    pub(crate) offset: u64,
    pub(crate) enqueued_ms: i64,
}

const SYSTEM_KEYS: [&[u8]; 3] = [
    b"x-opt-sequence-number",
    b"x-opt-offset",
    b"x-opt-enqueued-time",
];

/// Appends `message` to `out` with the service's annotations merged into its own.
pub(crate) fn annotate(
    message: &[u8],
    system: SystemAnnotations,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let mut own: &[u8] = &[];
    let mut own_count = 0;
    let mut body_at = message.len();
    for section in sections(message) {
        let section = section?;
        match section.kind {
            SectionKind::Header => out.extend_from_slice(&message[section.whole]),
            // Addressed to the next hop, which was the service.
            SectionKind::DeliveryAnnotations => {}
            SectionKind::MessageAnnotations => {
                (own_count, own) = scan::compound(&message[section.value])?;
            }
            _ => {
                body_at = section.whole.start;
                break;
            }
        }
    }
    put_annotations(own_count, own, system, out)?;
    out.extend_from_slice(&message[body_at..]);
    Ok(())
}

fn put_annotations(
    own_count: usize,
    own: &[u8],
    system: SystemAnnotations,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    out.extend_from_slice(&[0x00, 0x53, 0x72, 0xd1]);
    let size_at = out.len();
    out.extend_from_slice(&[0; 8]);
    let mut count = 0u32;
    let mut rest = own;
    for _ in 0..own_count / 2 {
        let name_len = scan::value_len(rest)?;
        let len = name_len + scan::value_len(&rest[name_len..])?;
        // A forwarded event may carry the annotations of its first journey.
        let stale = scan::variable(rest).is_ok_and(|(_, name)| SYSTEM_KEYS.contains(&name));
        if !stale {
            out.extend_from_slice(&rest[..len]);
            count += 2;
        }
        rest = &rest[len..];
    }
    let offset = system.offset.to_string();
    for (key, code) in SYSTEM_KEYS.iter().zip([0x81, 0xa1, 0x83]) {
        out.extend_from_slice(&[0xa3, key.len() as u8]);
        out.extend_from_slice(key);
        out.push(code);
        match code {
            0x81 => out.extend_from_slice(&system.sequence_number.to_be_bytes()),
            0x83 => out.extend_from_slice(&system.enqueued_ms.to_be_bytes()),
            _ => {
                out.push(offset.len() as u8);
                out.extend_from_slice(offset.as_bytes());
            }
        }
        count += 2;
    }
    let size = narrow(out.len() - size_at - 4)?;
    out[size_at..size_at + 4].copy_from_slice(&size.to_be_bytes());
    out[size_at + 4..size_at + 8].copy_from_slice(&count.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_amqp::Value;

    use super::*;
    use crate::wire::{
        fields,
        message::{PARTITION_KEY, partition_key, section_value},
    };

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
    fn system_annotations_join_those_of_the_sender() {
        let message = [annotations(PARTITION_KEY, "k"), data(b"x")].concat();
        assert_eq!(partition_key(&message), Some("k"));
        let system = SystemAnnotations {
            sequence_number: 7,
            offset: 42,
            enqueued_ms: 1000,
        };
        let mut once = Vec::new();
        annotate(&message, system, &mut once).unwrap();
        assert_eq!(partition_key(&once), Some("k"));
        let map = section_value(&once, SectionKind::MessageAnnotations);
        assert_eq!(
            fields::map_entry(&map, "x-opt-sequence-number"),
            Some(&Value::Long(7))
        );
        assert_eq!(
            fields::map_entry(&map, "x-opt-offset"),
            Some(&fields::string("42"))
        );
        // A forwarded event gets new ones in the place of the old.
        let mut twice = Vec::new();
        annotate(
            &once,
            SystemAnnotations {
                offset: 43,
                ..system
            },
            &mut twice,
        )
        .unwrap();
        assert_eq!(twice.len(), once.len());
        let map = section_value(&twice, SectionKind::MessageAnnotations);
        assert_eq!(
            fields::map_entry(&map, "x-opt-offset"),
            Some(&fields::string("43"))
        );
        assert_eq!(partition_key(&data(b"x")), None);
    }
}
