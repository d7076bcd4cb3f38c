//! What became of events.

use crate::event::Event;
use crate::partition::{PartitionId, PartitionKey};
use crate::sync::Arc;
use crate::transport::LinkError;

/// The one thing that became of an accepted event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The peer stored it.
    Delivered,
    /// Given up; never stored, as far as any answer says.
    Failed(Arc<FailureCause>),
    /// Given up; may be stored, since a transfer of it was never answered.
    Indeterminate(Arc<FailureCause>),
    /// Handed back by close or abort: never transferred, or definitely refused each time.
    Returned,
}

/// Why an event was given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FailureCause {
    /// The peer refused the batch, for good or once too often.
    #[error("refused after {attempts} attempts: {error}")]
    Rejected {
        /// The peer's last error.
        error: LinkError,
        /// How often the batch was transferred.
        attempts: u32,
    },
    /// Attempts are used up, and one of them was never answered.
    #[error("unanswered after {attempts} attempts: {last}")]
    Unanswered {
        /// What stood in the way last.
        last: LinkError,
        /// How often the batch was transferred.
        attempts: u32,
    },
    /// The close deadline passed before a batch that may be stored could be sent again.
    #[error("the producer was closed after {attempts} attempts, one of them unanswered")]
    Closed {
        /// How often the batch was transferred.
        attempts: u32,
    },
    /// The delivery deadline passed.
    #[error("delivery deadline passed after {attempts} attempts{}", .last.as_ref().map(|e| format!("; last problem: {e}")).unwrap_or_default())]
    DeadlineExceeded {
        /// What stood in the way last, if anything was said.
        last: Option<LinkError>,
        /// How often the batch was transferred.
        attempts: u32,
    },
    /// The link was attached anew with a smaller limit, and the event no longer fits.
    #[error("event of {size} bytes exceeds the link's limit of {limit} bytes")]
    TooLarge {
        /// Size of the event as one batch, in bytes.
        size: u64,
        /// The link's limit in bytes.
        limit: u64,
    },
    /// The producer was aborted while the batch was in flight.
    #[error("the producer was aborted")]
    Aborted,
    /// The lane's worker died of a panic.
    #[error("the partition's worker died")]
    LaneDied,
}

/// Counts of outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Stored by the peer.
    pub delivered: u64,
    /// Given up, never stored.
    pub failed: u64,
    /// Given up, perhaps stored.
    pub indeterminate: u64,
    /// Handed back.
    pub returned: u64,
}

impl Counts {
    /// All outcomes together.
    pub fn total(&self) -> u64 {
        self.delivered + self.failed + self.indeterminate + self.returned
    }

    /// True if every outcome is `Delivered`.
    pub fn all_delivered(&self) -> bool {
        self.total() == self.delivered
    }

    pub(crate) fn add(&mut self, outcome: &Outcome, n: u64) {
        match outcome {
            Outcome::Delivered => self.delivered += n,
            Outcome::Failed(_) => self.failed += n,
            Outcome::Indeterminate(_) => self.indeterminate += n,
            Outcome::Returned => self.returned += n,
        }
    }

    pub(crate) fn merge(&mut self, other: &Counts) {
        self.delivered += other.delivered;
        self.failed += other.failed;
        self.indeterminate += other.indeterminate;
        self.returned += other.returned;
    }

    /// What was counted since `earlier`, an older reading of the same counters.
    pub(crate) fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            delivered: self.delivered.saturating_sub(earlier.delivered),
            failed: self.failed.saturating_sub(earlier.failed),
            indeterminate: self.indeterminate.saturating_sub(earlier.indeterminate),
            returned: self.returned.saturating_sub(earlier.returned),
        }
    }
}

/// One batch's outcome, with its events, for the delivery handler.
#[derive(Debug)]
#[non_exhaustive]
pub struct DeliveryReport {
    /// The partition whose lane carried the events.
    pub partition: PartitionId,
    /// What became of every event below.
    pub outcome: Outcome,
    /// The events, in the order in which they were accepted.
    pub events: Vec<ReportedEvent>,
    /// How often the batch was transferred.
    pub attempts: u32,
}

/// An event in a report, with the key that it was sent with: all that sending it again takes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReportedEvent {
    /// The event as it was accepted, its user context included.
    pub event: Event,
    /// The partition key it was sent with.
    pub key: Option<PartitionKey>,
}
