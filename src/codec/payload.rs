//! A batch as the bytes that go over the wire.

use std::fmt;

use super::encode::{code, encode, encoded_len, put_data_header};
use crate::event::Event;
use crate::partition::PartitionKey;

/// The message format that tells Event Hubs to take every `data` section of a message's body for
/// an event of its own.
///
/// A format is three bytes of number and one of version, and belongs to its vendor (AMQP 1.0,
/// section 2.8.11). The Azure SDKs use this one.
pub const BATCH_MESSAGE_FORMAT: u32 = 0x8001_3700;

/// The length in bytes of the batch's `data` section around a message of `encoded_len` bytes.
///
/// # Examples
///
/// ```
/// use hublane::codec::section_len;
///
/// assert_eq!(section_len(255), 255 + 5);
/// assert_eq!(section_len(256), 256 + 8);
/// ```
#[must_use]
pub const fn section_len(encoded_len: usize) -> usize {
    // Descriptor and constructor take 4 bytes; the length itself takes 1 or 4.
    encoded_len
        + if encoded_len <= u8::MAX as usize {
            5
        } else {
            8
        }
}

/// The body of one batch: `data` sections in a row, ready for the wire.
///
/// The batch message has no sections but these. In particular it has no partition key of its
/// own: events with different keys share the batch of their partition, and a key on the batch
/// would speak for all of them. Each event carries its key itself.
///
/// It grows as it needs to; [`Payload::clear`] keeps what it has grown to, so one that is used
/// again allocates nothing.
///
/// # Examples
///
/// ```
/// use hublane::Event;
/// use hublane::codec::Payload;
///
/// let mut batch = Payload::with_capacity(128 * 1024, 2);
/// batch.push(&Event::new("a"), None);
/// batch.push(&Event::new("b"), None);
/// assert_eq!(batch.count(), 2);
/// assert_eq!(batch.sections().next().unwrap(), b"\x00\x53\x75\xa0\x01a");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Payload {
    /// Whole sections only: what [`Sections`] relies on.
    bytes: Vec<u8>,
    /// How many sections there are in `bytes`.
    count: usize,
}

// A sealed batch is shared between its owner and the transport.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Payload>();
};

impl Payload {
    /// An empty batch with room for `events` messages of `bytes` bytes in all.
    #[must_use]
    pub fn with_capacity(bytes: usize, events: usize) -> Self {
        let overhead = section_len(u8::MAX as usize + 1) - (u8::MAX as usize + 1);
        let capacity = bytes.saturating_add(events.saturating_mul(overhead));
        Payload {
            bytes: Vec::with_capacity(capacity),
            count: 0,
        }
    }

    /// Appends an event, and returns the number of bytes that the batch grew by: the
    /// [`section_len`] of its [`encoded_len`].
    ///
    /// # Panics
    ///
    /// If the encoded event has more than `u32::MAX` bytes, see [`encode`].
    pub fn push(&mut self, event: &Event, key: Option<&PartitionKey>) -> usize {
        let before = self.bytes.len();
        let len = encoded_len(event, key);
        self.bytes.reserve(section_len(len));
        put_data_header(len, &mut self.bytes);
        encode(event, key, &mut self.bytes);
        self.count += 1;

        let grown = self.bytes.len() - before;
        debug_assert_eq!(grown, section_len(len), "the estimate is the size");
        grown
    }

    /// The length of the batch message in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The number of events.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether there is no event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The batch message, to be sent with [`BATCH_MESSAGE_FORMAT`].
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The events' own messages, in the order in which they were pushed.
    #[must_use]
    pub fn sections(&self) -> Sections<'_> {
        Sections {
            rest: &self.bytes,
            left: self.count,
        }
    }

    /// Forgets all events and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }
}

/// Shows sizes only; the bytes are the events'.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload")
            .field("count", &self.count)
            .field("len_bytes", &self.bytes.len())
            .finish()
    }
}

/// The encoded messages in a [`Payload`], see [`Payload::sections`].
#[derive(Clone)]
pub struct Sections<'a> {
    /// Whole sections, `left` of them.
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Sections<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        // Three bytes of descriptor, then constructor and length. No other bytes are ever
        // written, so a mismatch can only be the end.
        let (header, len) = match *self.rest {
            [_, _, _, code::BINARY_8, len, ..] => (5, usize::from(len)),
            [_, _, _, code::BINARY_32, a, b, c, d, ..] => {
                (8, u32::from_be_bytes([a, b, c, d]) as usize)
            }
            _ => return None,
        };
        let (section, rest) = self.rest[header..].split_at(len);
        self.rest = rest;
        self.left -= 1;
        Some(section)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Sections<'_> {}

impl std::iter::FusedIterator for Sections<'_> {}

impl fmt::Debug for Sections<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sections")
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_batch_has_no_bytes() {
        let batch = Payload::default();
        assert!(batch.is_empty());
        assert_eq!(batch.as_bytes(), b"");
        assert_eq!(batch.sections().len(), 0);
        assert_eq!(batch.sections().next(), None);
    }

    #[test]
    fn a_batch_has_room_for_what_was_asked() {
        let event = Event::new(vec![0; 300]);
        let mut batch = Payload::with_capacity(10 * encoded_len(&event, None), 10);
        let before = batch.bytes.capacity();
        for _ in 0..10 {
            batch.push(&event, None);
        }
        assert_eq!(batch.bytes.capacity(), before);
    }

    #[test]
    fn a_cleared_batch_keeps_its_memory() {
        let mut batch = Payload::with_capacity(0, 0);
        batch.push(&Event::new(vec![0; 1000]), None);
        let before = batch.bytes.capacity();
        batch.clear();
        assert!(batch.is_empty());
        assert_eq!(batch.len_bytes(), 0);
        assert_eq!(batch.bytes.capacity(), before);
    }

    #[test]
    fn sections_know_how_many_are_left() {
        let mut batch = Payload::default();
        for body in ["a", "", "ccc"] {
            batch.push(&Event::new(body), None);
        }
        let mut sections = batch.sections();
        for left in (0..3).rev() {
            assert!(sections.next().is_some());
            assert_eq!(sections.len(), left);
        }
        assert_eq!(sections.next(), None);
        assert_eq!(sections.len(), 0);
    }

    #[test]
    fn debug_shows_no_event() {
        let mut batch = Payload::default();
        batch.push(&Event::new("AAAA"), None);
        let shown = format!("{batch:?} {:?}", batch.sections());
        assert!(!shown.contains("65") && !shown.contains("AA"), "{shown}");
    }
}
