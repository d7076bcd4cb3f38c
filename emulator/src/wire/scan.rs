//! Measures and checks one encoded value without building anything (part 1.6 of the specification).

use serde_amqp::Value;
use thiserror::Error;

/// Deepest nesting that is followed; real messages use four or five levels.
const MAX_DEPTH: u8 = 24;

/// Longest array of elements that take no bytes at all. Such an array costs its sender nothing and a
/// naive reader everything.
const MAX_EMPTY_ELEMENTS: usize = 1024;

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Malformed {
    #[error("the encoding ends in the middle of a value")]
    Truncated,
    #[error("0x{0:02x} is no AMQP type code")]
    UnknownCode(u8),
    #[error("values are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    #[error("a compound value does not fill the size that it declares")]
    BadSize,
    #[error("a string is not UTF-8 or a symbol is not ASCII")]
    BadText,
    #[error("an array of empty elements is too long")]
    LongArray,
    #[error("a described value was expected")]
    NotDescribed,
    #[error("the message sections are out of order")]
    SectionOrder,
    #[error("0x{0:x} is no message section")]
    UnknownSection(u64),
    #[error("the message has no body")]
    NoBody,
    #[error("the batch holds no event")]
    EmptyBatch,
    #[error("field {0} of a performative has the wrong type")]
    Field(usize),
    #[error("0x{0:x} is no performative that is expected here")]
    UnknownPerformative(u64),
    #[error("the value could not be decoded")]
    Undecodable,
    #[error("a frame header is invalid or the frame is too large")]
    BadFrame,
}

/// The length of the value at the start of `bytes`, every nested value having been checked.
pub(crate) fn value_len(bytes: &[u8]) -> Result<usize, Malformed> {
    measure(bytes, MAX_DEPTH)
}

/// Decodes the value at the start of `bytes` and tells how long it was.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Value, usize), Malformed> {
    let len = value_len(bytes)?;
    let value = serde_amqp::from_slice(&bytes[..len]).map_err(|_| Malformed::Undecodable)?;
    Ok((value, len))
}

/// The numeric descriptor at the start of a described value, and how long constructor and
/// descriptor are together.
///
/// The symbolic form is legal but no Event Hubs client uses it for sections or performatives.
pub(crate) fn descriptor(bytes: &[u8]) -> Result<(u64, usize), Malformed> {
    match bytes {
        [0x00, 0x53, code, ..] => Ok((u64::from(*code), 3)),
        [0x00, 0x44, ..] => Ok((0, 2)),
        [0x00, 0x80, rest @ ..] => {
            let code = rest.first_chunk::<8>().ok_or(Malformed::Truncated)?;
            Ok((u64::from_be_bytes(*code), 10))
        }
        [] | [0x00] | [0x00, 0x53] => Err(Malformed::Truncated),
        _ => Err(Malformed::NotDescribed),
    }
}

/// The content of a binary, string or symbol at the start of `bytes`, with its offset.
pub(crate) fn variable(bytes: &[u8]) -> Result<(usize, &[u8]), Malformed> {
    let code = *bytes.first().ok_or(Malformed::Truncated)?;
    let (header, len) = match code {
        0xa0 | 0xa1 | 0xa3 => (2, usize::from(*bytes.get(1).ok_or(Malformed::Truncated)?)),
        0xb0 | 0xb1 | 0xb3 => (5, be32(bytes.get(1..).unwrap_or_default())?),
        other => return Err(Malformed::UnknownCode(other)),
    };
    let end = header + len;
    Ok((header, bytes.get(header..end).ok_or(Malformed::Truncated)?))
}

/// The entries of a list or map: their number and their bytes.
pub(crate) fn compound(bytes: &[u8]) -> Result<(usize, &[u8]), Malformed> {
    let code = *bytes.first().ok_or(Malformed::Truncated)?;
    let rest = &bytes[1..];
    match code {
        0x45 => Ok((0, &[])),
        0xc0 | 0xc1 => {
            let [size, count, ..] = rest else {
                return Err(Malformed::Truncated);
            };
            let end = 1 + usize::from(*size);
            Ok((
                usize::from(*count),
                rest.get(2..end).ok_or(Malformed::BadSize)?,
            ))
        }
        0xd0 | 0xd1 => {
            let size = be32(rest)?;
            let count = be32(rest.get(4..).unwrap_or_default())?;
            Ok((count, rest.get(8..4 + size).ok_or(Malformed::BadSize)?))
        }
        other => Err(Malformed::UnknownCode(other)),
    }
}

fn be32(bytes: &[u8]) -> Result<usize, Malformed> {
    let word = bytes.first_chunk::<4>().ok_or(Malformed::Truncated)?;
    Ok(u32::from_be_bytes(*word) as usize)
}

fn measure(bytes: &[u8], depth: u8) -> Result<usize, Malformed> {
    let code = *bytes.first().ok_or(Malformed::Truncated)?;
    let depth = depth.checked_sub(1).ok_or(Malformed::TooDeep)?;
    if code == 0x00 {
        let descriptor = measure(&bytes[1..], depth)?;
        let value = measure(&bytes[1 + descriptor..], depth)?;
        return Ok(1 + descriptor + value);
    }
    Ok(1 + payload_len(code, &bytes[1..], depth)?)
}

/// The length of what follows a constructor.
fn payload_len(code: u8, bytes: &[u8], depth: u8) -> Result<usize, Malformed> {
    if let Some(width) = fixed_width(code) {
        return if bytes.len() < width {
            Err(Malformed::Truncated)
        } else {
            Ok(width)
        };
    }
    match code {
        0xa0 | 0xa1 | 0xa3 => {
            let len = usize::from(*bytes.first().ok_or(Malformed::Truncated)?);
            check_text(code, bytes.get(1..1 + len).ok_or(Malformed::Truncated)?)?;
            Ok(1 + len)
        }
        0xb0 | 0xb1 | 0xb3 => {
            let len = be32(bytes)?;
            check_text(code, bytes.get(4..4 + len).ok_or(Malformed::Truncated)?)?;
            Ok(4 + len)
        }
        0xc0 | 0xc1 | 0xe0 => {
            let [size, count, ..] = bytes else {
                return Err(Malformed::Truncated);
            };
            let end = 1 + usize::from(*size);
            check_entries(code, usize::from(*count), within(bytes, 2, end)?, depth)?;
            Ok(end)
        }
        0xd0 | 0xd1 | 0xf0 => {
            let end = 4 + be32(bytes)?;
            let count = be32(bytes.get(4..).unwrap_or_default())?;
            check_entries(code, count, within(bytes, 8, end)?, depth)?;
            Ok(end)
        }
        other => Err(Malformed::UnknownCode(other)),
    }
}

fn within(bytes: &[u8], start: usize, end: usize) -> Result<&[u8], Malformed> {
    if end < start {
        return Err(Malformed::BadSize);
    }
    bytes.get(start..end).ok_or(Malformed::Truncated)
}

fn fixed_width(code: u8) -> Option<usize> {
    Some(match code {
        0x40..=0x45 => 0,
        0x50..=0x56 => 1,
        0x60 | 0x61 => 2,
        0x70..=0x74 => 4,
        0x80..=0x84 => 8,
        0x94 | 0x98 => 16,
        _ => return None,
    })
}

fn check_text(code: u8, content: &[u8]) -> Result<(), Malformed> {
    let good = match code {
        0xa1 | 0xb1 => std::str::from_utf8(content).is_ok(),
        0xa3 | 0xb3 => content.is_ascii(),
        _ => true,
    };
    if good {
        Ok(())
    } else {
        Err(Malformed::BadText)
    }
}

fn check_entries(code: u8, count: usize, body: &[u8], depth: u8) -> Result<(), Malformed> {
    if matches!(code, 0xe0 | 0xf0) {
        return check_array(count, body, depth);
    }
    if matches!(code, 0xc1 | 0xd1) && count % 2 != 0 {
        return Err(Malformed::BadSize);
    }
    let mut at = 0;
    // Every entry takes at least one byte, so a lying count ends with the body.
    for _ in 0..count {
        at += measure(&body[at..], depth)?;
    }
    if at == body.len() {
        Ok(())
    } else {
        Err(Malformed::BadSize)
    }
}

fn check_array(count: usize, body: &[u8], depth: u8) -> Result<(), Malformed> {
    let mut at = 0;
    if body.first() == Some(&0x00) {
        at = 1 + measure(&body[1..], depth.checked_sub(1).ok_or(Malformed::TooDeep)?)?;
    }
    let code = *body.get(at).ok_or(Malformed::Truncated)?;
    at += 1;
    if fixed_width(code) == Some(0) {
        if count > MAX_EMPTY_ELEMENTS {
            return Err(Malformed::LongArray);
        }
    } else {
        let depth = depth.checked_sub(1).ok_or(Malformed::TooDeep)?;
        for _ in 0..count {
            at += payload_len(code, &body[at..], depth)?;
        }
    }
    if at == body.len() {
        Ok(())
    } else {
        Err(Malformed::BadSize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_of_a_value_is_truncated() {
        let value = Value::List(vec![
            Value::String("text".into()),
            Value::Ulong(7),
            Value::List(vec![Value::Bool(true), Value::Null]),
        ]);
        let bytes = serde_amqp::to_vec(&value).unwrap();
        assert_eq!(value_len(&bytes), Ok(bytes.len()));
        assert_eq!(decode(&bytes), Ok((value, bytes.len())));
        for end in 0..bytes.len() {
            assert!(value_len(&bytes[..end]).is_err(), "prefix of {end}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        // list8 of one list8 of one …, written from the inside out
        let mut bytes = vec![0x45];
        for _ in 0..MAX_DEPTH {
            let mut outer = vec![0xc0, (bytes.len() + 1) as u8, 1];
            outer.extend(&bytes);
            bytes = outer;
        }
        assert_eq!(value_len(&bytes), Err(Malformed::TooDeep));
        assert_eq!(value_len(&bytes[3..]), Ok(bytes.len() - 3));
    }

    #[test]
    fn an_array_of_nothing_is_bounded() {
        let long = [0xf0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x40];
        assert_eq!(value_len(&long), Err(Malformed::LongArray));
        let short = [0xf0, 0, 0, 0, 5, 0, 0, 0, 2, 0x40];
        assert_eq!(value_len(&short), Ok(10));
    }

    #[test]
    fn sizes_that_lie_are_refused() {
        assert_eq!(value_len(&[0xc0, 0, 0]), Err(Malformed::BadSize));
        assert_eq!(value_len(&[0xc0, 2, 1, 0x40, 0x40][..4]), Ok(4));
        assert_eq!(
            value_len(&[0xc0, 3, 1, 0x40, 0x40]),
            Err(Malformed::BadSize)
        );
        assert_eq!(value_len(&[0xc1, 2, 1, 0x40]), Err(Malformed::BadSize));
        assert_eq!(value_len(&[0x3f]), Err(Malformed::UnknownCode(0x3f)));
        assert_eq!(value_len(&[0xa1, 1, 0xff]), Err(Malformed::BadText));
    }
}
