//! What the operations of a producer refuse with.

use crate::event::Event;
use crate::partition::PartitionId;
use crate::report::{Counts, ReportedEvent};
use crate::settings::SettingsError;
use crate::transport::ConnectError;
use std::fmt;

/// A refused event, and why. The event was not accepted and is in here.
#[derive(thiserror::Error)]
#[error("{reason}")]
pub struct EnqueueError {
    event: Event,
    reason: EnqueueRefusal,
}

/// Why an event was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueRefusal {
    /// The partition's buffer is full.
    #[error("the partition's buffer is full")]
    Full,
    /// The partition's buffer stayed full until the deadline.
    #[error("the partition's buffer stayed full until the deadline")]
    TimedOut,
    /// The producer is closed.
    #[error("the producer is closed")]
    Closed,
    /// The worker of the partition died of a panic; the partition takes nothing more.
    #[error("the partition's worker died")]
    LaneDead,
    /// The buffer is full and the caller is an engine thread, which must not wait.
    #[error("the partition's buffer is full and an engine thread must not wait for room")]
    WouldDeadlock,
    /// The producer has not connected yet.
    #[error("the producer has not connected yet")]
    NotReady,
    /// Larger than the link takes.
    #[error("event of {size} bytes exceeds the link's limit of {limit} bytes")]
    TooLarge {
        /// Size of the event as a batch of one, in bytes.
        size: u64,
        /// The link's limit in bytes.
        limit: u64,
    },
    /// Larger than the whole buffer: no wait could ever end.
    #[error("event charged with {charged} bytes exceeds max_buffered_bytes, {limit} bytes")]
    ExceedsBuffer {
        /// Encoded size plus overhead, in bytes.
        charged: u64,
        /// The bound in bytes.
        limit: u64,
    },
    /// The hub has no such partition.
    #[error("the hub has no partition {0}")]
    UnknownPartition(PartitionId),
    /// The system would not start a thread for the partition's worker.
    #[error("cannot start a thread for the partition: {0}")]
    NoThread(std::io::ErrorKind),
    /// The process was forked; the producer belongs to the parent.
    #[error("the producer belongs to the parent of this forked process")]
    Forked,
}

impl EnqueueError {
    pub(crate) fn new(event: Event, reason: EnqueueRefusal) -> EnqueueError {
        EnqueueError { event, reason }
    }

    /// The event, to be used again.
    pub fn into_event(self) -> Event {
        self.event
    }

    /// Why it was refused.
    pub fn reason(&self) -> &EnqueueRefusal {
        &self.reason
    }

    /// True if there was no room, now or until the deadline.
    pub fn is_full(&self) -> bool {
        matches!(
            self.reason,
            EnqueueRefusal::Full | EnqueueRefusal::TimedOut | EnqueueRefusal::WouldDeadlock
        )
    }
}

impl fmt::Debug for EnqueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueError")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

/// A chunk that was not accepted as a whole.
#[derive(thiserror::Error)]
#[error("{accepted} events accepted, {} refused: {reason}", rest.len())]
#[non_exhaustive]
pub struct EnqueueAllError {
    /// How many events, from the front, were accepted.
    pub accepted: usize,
    /// The others, in order, beginning with the one that was refused.
    pub rest: Vec<Event>,
    /// Why it was refused.
    pub reason: EnqueueRefusal,
}

impl fmt::Debug for EnqueueAllError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueAllError")
            .field("accepted", &self.accepted)
            .field("rest", &self.rest.len())
            .field("reason", &self.reason)
            .finish()
    }
}

/// What a flush covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlushReport {
    /// Outcomes since the last flush that was complete when this one began.
    pub outcomes: Counts,
}

/// Why a flush is not a plain success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlushError {
    /// Everything has its outcome; not every outcome is `Delivered`.
    #[error("{} failed, {} indeterminate, {} returned", .0.outcomes.failed, .0.outcomes.indeterminate, .0.outcomes.returned)]
    Failures(FlushReport),
    /// The deadline passed first. Nothing is lost; flush again.
    #[error("deadline passed with {outstanding} events outstanding")]
    TimedOut {
        /// What is known of the partitions that were done.
        report: FlushReport,
        /// Events of all partitions that have no outcome yet, also later ones.
        outstanding: u64,
    },
    /// A partition's worker died while the flush waited for it.
    #[error("a partition's worker died; its events have their outcomes in the reports")]
    LaneDied(FlushReport),
    /// The caller is an engine thread, which must not wait.
    #[error("an engine thread must not flush")]
    WouldDeadlock,
    /// The hub has no such partition.
    #[error("the hub has no partition {0}")]
    UnknownPartition(PartitionId),
    /// The process was forked; the producer belongs to the parent.
    #[error("the producer belongs to the parent of this forked process")]
    Forked,
}

/// What close or abort left behind.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CloseReport {
    /// Outcomes since the last flush that was complete when this call began.
    pub outcomes: Counts,
    /// Events that are certain not to be stored, handed back in the order in which their
    /// partition had accepted them. Another closer at the same time may have got them.
    pub unsent: Vec<(PartitionId, Vec<ReportedEvent>)>,
    /// Events that a peer or a handler still held when the deadline passed; they get their
    /// outcome later.
    pub still_owned: Vec<(PartitionId, u64)>,
}

/// Why a close is not a plain success.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The producer is closed, and not everything was delivered.
    #[error("{} failed, {} indeterminate, {} returned, {} still owned",
        .0.outcomes.failed, .0.outcomes.indeterminate, .0.outcomes.returned,
        .0.still_owned.iter().map(|(_, n)| n).sum::<u64>())]
    Incomplete(CloseReport),
    /// The caller is an engine thread, which must not wait. Nothing was closed.
    #[error("an engine thread must not close")]
    WouldDeadlock,
    /// The process was forked; the producer belongs to the parent.
    #[error("the producer belongs to the parent of this forked process")]
    Forked,
}

/// Why there is no producer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Settings that cannot hold.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The hub could not be reached, or refused.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The hub has no partitions.
    #[error("the hub has no partitions")]
    NoPartitions,
    /// The system would not start a thread.
    #[error("cannot start a thread: {0}")]
    NoThread(#[from] std::io::Error),
}
