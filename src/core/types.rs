//! What goes into a [`LaneCore`](super::LaneCore) and what comes out of it.

use crate::event::Event;
use crate::partition::PartitionKey;
use crate::report::{Counts, Outcome};
use crate::retry::RetryPolicy;
use std::time::Duration;

/// One accepted event, with what its lane must give back together with it.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    /// The event as it was accepted.
    pub(crate) event: Event,
    /// The key it was sent with.
    pub(crate) key: Option<PartitionKey>,
    /// [`encoded_len`](crate::codec::encoded_len) of the event with its key.
    pub(crate) encoded_len: u32,
    /// The caller's; the core only carries it.
    pub(crate) tag: T,
}

/// The settings of one lane; valid ones (the builder refuses others).
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// The size in bytes at which a batch is full. An event larger than this goes alone: the
    /// hard limit is the link's.
    pub(crate) max_batch_bytes: usize,
    /// The number of events at which a batch is full, at least 1.
    pub(crate) max_batch_events: usize,
    /// The longest that an event waits for others to share its batch.
    pub(crate) max_wait: Duration,
    /// How many batches may be unanswered at once, at least 1.
    pub(crate) window: usize,
    /// How long after its receipt an event is given up.
    pub(crate) delivery_timeout: Duration,
    /// When a refused batch is sent again.
    pub(crate) retry: RetryPolicy,
}

/// Names one flush cut of a lane; they are numbered in the order of their calls, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FlushId(pub(crate) u64);

/// What a lane has to say, in order.
#[derive(Debug)]
pub(crate) enum Report<T> {
    /// These events have this outcome, and it is their only one.
    Batch {
        /// How many events were handed in before the first entry.
        first: u64,
        /// What became of every entry below.
        outcome: Outcome,
        /// In the order in which they were handed in.
        entries: Vec<Entry<T>>,
        /// How often they were transferred.
        attempts: u32,
    },
    /// Every event that was handed in before the cut has been reported before this.
    Flush {
        /// Which cut.
        id: FlushId,
        /// The outcomes of all events of the lane before the cut, from its first event on.
        counts: Counts,
    },
}

/// What the open batch can still take before it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Events.
    pub(crate) events: usize,
    /// Bytes, each event counted with the header of its section.
    pub(crate) bytes: usize,
}

/// Why a batch was closed and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// The next event did not fit, or none would.
    Size,
    /// It held the greatest number of events.
    Count,
    /// Its oldest event had waited long enough.
    Age,
    /// A flush cut lies behind some of its events.
    Flush,
    /// A caller waited for room.
    Pressure,
    /// The lane was closing.
    Close,
}

/// How many batches were sent for which reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seals {
    /// The next event did not fit, or none would.
    pub size: u64,
    /// They held the greatest number of events.
    pub count: u64,
    /// Their oldest event had waited long enough.
    pub age: u64,
    /// A flush covered some of their events.
    pub flush: u64,
    /// A caller waited for room.
    pub pressure: u64,
    /// The producer was closing.
    pub close: u64,
}

impl Seals {
    /// The counter of `trigger`.
    pub(super) fn of(&mut self, trigger: Trigger) -> &mut u64 {
        match trigger {
            Trigger::Size => &mut self.size,
            Trigger::Count => &mut self.count,
            Trigger::Age => &mut self.age,
            Trigger::Flush => &mut self.flush,
            Trigger::Pressure => &mut self.pressure,
            Trigger::Close => &mut self.close,
        }
    }

    /// All together: the number of batches ever made, but for those that a shrunken link split.
    pub fn total(&self) -> u64 {
        self.size + self.count + self.age + self.flush + self.pressure + self.close
    }
}

/// What happened in a lane, since its birth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreStats {
    /// Transfers of batches that had been transferred before.
    pub retries: u64,
    /// Those of them that may have put a second copy on the partition.
    pub resends_after_unknown: u64,
    /// Settlements of deliveries that are not in flight (any more).
    pub ignored_settlements: u64,
    /// Deliveries given up in flight at their deadline.
    pub cancelled: u64,
    /// Sealed batches that a smaller link forced apart, before their first transfer.
    pub splits: u64,
    /// Batches made, by reason.
    pub seals: Seals,
}

/// What [`salvage`](super::LaneCore::salvage) saved.
#[derive(Debug)]
pub(crate) struct Salvage<T> {
    /// Every event that was inside, each with an outcome; and what was not polled yet.
    pub(crate) reports: Vec<Report<T>>,
    /// The cuts that were not completed and never will be, in order.
    pub(crate) broken: Vec<FlushId>,
}
