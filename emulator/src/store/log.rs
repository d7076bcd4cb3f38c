//! The events of one partition.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;

use super::event::StoredEvent;
use crate::{selector::Position, wire::annotate::SystemAnnotations};

/// The memory that a batch takes beside its payload: this structure and its share of the queue.
const BATCH_OVERHEAD: u64 = 128;

/// Events that were stored together.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Place in the order of all batches of the hub, for dropping the oldest.
    pub(crate) ordinal: u64,
    pub(crate) first_sequence: i64,
    /// Offset of the first byte of `payload`.
    pub(crate) base_offset: u64,
    pub(crate) enqueued_ms: i64,
    pub(crate) payload: Bytes,
    /// Where each event lies in `payload`; never empty.
    pub(crate) events: Box<[Range<u32>]>,
}

impl Batch {
    pub(crate) fn memory(payload: usize, events: usize) -> u64 {
        let ranges = events * size_of::<Range<u32>>();
        BATCH_OVERHEAD + payload as u64 + ranges as u64
    }

    fn end_sequence(&self) -> i64 {
        self.first_sequence + self.events.len() as i64
    }

    fn event(&self, partition: usize, index: usize) -> StoredEvent {
        let range = &self.events[index];
        StoredEvent {
            partition,
            sequence_number: self.first_sequence + index as i64,
            offset: self.base_offset + u64::from(range.start),
            enqueued_ms: self.enqueued_ms,
            raw: self.payload.slice(range.start as usize..range.end as usize),
        }
    }
}

/// What `$management` tells of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionProperties {
    /// Sequence number of the oldest event that is held.
    pub begin_sequence_number: i64,
    /// Sequence number of the newest event, -1 when there never was one.
    pub last_enqueued_sequence_number: i64,
    /// Offset of the newest event, `None` when there never was one.
    pub last_enqueued_offset: Option<u64>,
    /// When the newest event was stored, in milliseconds since the Unix epoch.
    pub last_enqueued_ms: Option<i64>,
    /// True when no event is held.
    pub is_empty: bool,
}

/// An append-only log with a moving start.
///
/// Invariant: the batches are contiguous in sequence numbers and end at `next_sequence`.
#[derive(Debug, Default)]
pub(crate) struct PartitionLog {
    batches: VecDeque<Batch>,
    next_sequence: i64,
    next_offset: u64,
    last: Option<(u64, i64)>,
}

impl PartitionLog {
    pub(crate) fn next_sequence(&self) -> i64 {
        self.next_sequence
    }

    pub(crate) fn begin_sequence(&self) -> i64 {
        self.batches
            .front()
            .map_or(self.next_sequence, |batch| batch.first_sequence)
    }

    /// Events that are held.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.next_sequence - self.begin_sequence()).unwrap_or(0)
    }

    pub(crate) fn properties(&self) -> PartitionProperties {
        PartitionProperties {
            begin_sequence_number: self.begin_sequence(),
            last_enqueued_sequence_number: self.next_sequence - 1,
            last_enqueued_offset: self.last.map(|(offset, _)| offset),
            last_enqueued_ms: self.last.map(|(_, ms)| ms),
            is_empty: self.batches.is_empty(),
        }
    }

    /// Appends a batch; `events` is not empty.
    pub(crate) fn append(&mut self, ordinal: u64, ms: i64, payload: Bytes, events: &[Range<u32>]) {
        let Some(last) = events.last() else { return };
        self.last = Some((self.next_offset + u64::from(last.start), ms));
        let batch = Batch {
            ordinal,
            first_sequence: self.next_sequence,
            base_offset: self.next_offset,
            enqueued_ms: ms,
            events: events.into(),
            payload,
        };
        self.next_offset += batch.payload.len() as u64;
        self.next_sequence = batch.end_sequence();
        self.batches.push_back(batch);
    }

    /// Ordinal of the oldest batch.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.batches.front().map(|batch| batch.ordinal)
    }

    /// Drops the oldest batch and tells the memory that it took.
    pub(crate) fn drop_oldest(&mut self) -> u64 {
        self.batches.pop_front().map_or(0, |batch| {
            Batch::memory(batch.payload.len(), batch.events.len())
        })
    }

    /// The sequence number at which reading from a position starts.
    pub(crate) fn resolve(&self, position: Position) -> i64 {
        let first = |wanted: &dyn Fn(&StoredEvent) -> bool, skip: &dyn Fn(&Batch) -> bool| {
            let start = self.batches.partition_point(skip);
            let candidates =
                self.batches.iter().skip(start).flat_map(|batch| {
                    (0..batch.events.len()).map(move |index| batch.event(0, index))
                });
            candidates
                .into_iter()
                .find(wanted)
                .map_or(self.next_sequence, |event| event.sequence_number)
        };
        let end_offset = |batch: &Batch| batch.base_offset + batch.payload.len() as u64;
        match position {
            Position::Start => self.begin_sequence(),
            Position::End => self.next_sequence,
            Position::AfterSequenceNumber(number) => number
                .saturating_add(1)
                .clamp(self.begin_sequence(), self.next_sequence),
            Position::FromSequenceNumber(number) => {
                number.clamp(self.begin_sequence(), self.next_sequence)
            }
            Position::AfterOffset(offset) => first(&|event| event.offset > offset, &|batch| {
                end_offset(batch) <= offset
            }),
            Position::FromOffset(offset) => first(&|event| event.offset >= offset, &|batch| {
                end_offset(batch) <= offset
            }),
            Position::AfterEnqueuedTime(ms) => first(&|event| event.enqueued_ms > ms, &|batch| {
                batch.enqueued_ms <= ms
            }),
            Position::FromEnqueuedTime(ms) => first(&|event| event.enqueued_ms >= ms, &|batch| {
                batch.enqueued_ms < ms
            }),
        }
    }

    /// Up to `max` events from a sequence number on, or from the oldest if that one is gone.
    pub(crate) fn read(&self, partition: usize, from: i64, max: usize) -> Vec<StoredEvent> {
        let from = from.max(self.begin_sequence());
        let start = self
            .batches
            .partition_point(|batch| batch.end_sequence() <= from);
        let mut events = Vec::new();
        for batch in self.batches.iter().skip(start) {
            let skip = usize::try_from(from - batch.first_sequence).unwrap_or(0);
            for index in skip..batch.events.len() {
                if events.len() == max {
                    return events;
                }
                events.push(batch.event(partition, index));
            }
        }
        events
    }
}

impl StoredEvent {
    pub(crate) fn system_annotations(&self) -> SystemAnnotations {
        SystemAnnotations {
            sequence_number: self.sequence_number,
            offset: self.offset,
            enqueued_ms: self.enqueued_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> PartitionLog {
        let mut log = PartitionLog::default();
        log.append(0, 100, Bytes::from_static(b"aabb"), &[0..2, 2..4]);
        log.append(
            1,
            200,
            Bytes::from_static(b"xcc"),
            std::slice::from_ref(&(1..3)),
        );
        log
    }

    fn bodies(events: &[StoredEvent]) -> Vec<&[u8]> {
        events.iter().map(|event| &event.raw[..]).collect()
    }

    #[test]
    fn reading_starts_anywhere_and_ends_at_the_limit() {
        let log = log();
        assert_eq!(bodies(&log.read(0, 0, 9)), [&b"aa"[..], b"bb", b"cc"]);
        assert_eq!(bodies(&log.read(0, 1, 1)), [&b"bb"[..]]);
        assert_eq!(bodies(&log.read(0, 3, 9)), [] as [&[u8]; 0]);
        assert_eq!(log.len(), 3);
    }

    #[test]
    fn positions_resolve_to_sequence_numbers() {
        let log = log();
        for (position, expected) in [
            (Position::Start, 0),
            (Position::End, 3),
            (Position::AfterOffset(0), 1),
            (Position::FromOffset(2), 1),
            (Position::AfterOffset(2), 2),
            (Position::FromOffset(5), 2),
            (Position::AfterOffset(5), 3),
            (Position::AfterSequenceNumber(-1), 0),
            (Position::FromSequenceNumber(2), 2),
            (Position::AfterSequenceNumber(i64::MAX), 3),
            (Position::AfterEnqueuedTime(100), 2),
            (Position::FromEnqueuedTime(100), 0),
            (Position::AfterEnqueuedTime(200), 3),
        ] {
            assert_eq!(log.resolve(position), expected, "{position:?}");
        }
    }

    #[test]
    fn dropping_the_oldest_moves_the_start() {
        let mut log = log();
        assert_eq!(log.drop_oldest(), Batch::memory(4, 2));
        assert_eq!(log.begin_sequence(), 2);
        assert_eq!(bodies(&log.read(0, 0, 9)), [&b"cc"[..]]);
        assert_eq!(log.resolve(Position::Start), 2);
        log.drop_oldest();
        assert!(log.properties().is_empty);
        assert_eq!(log.properties().last_enqueued_offset, Some(5));
    }
}
