//! What a producer counts.

use crate::core::CoreStats;
use crate::partition::PartitionId;
use crate::report::Counts;
use crate::sync::{Instant, Mutex};
use std::time::Duration;

/// One partition's part of [`Stats`].
///
/// At every quiescent point `accepted = delivered + failed + indeterminate + returned +
/// outstanding`; while events move, a reading may be a batch apart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionStats {
    /// The partition.
    pub partition: PartitionId,
    /// Outcomes so far.
    pub outcomes: Counts,
    /// Accepted events that have no outcome yet.
    pub outstanding_events: u64,
    /// Their encoded size in bytes.
    pub outstanding_bytes: u64,
    /// How long ago the worker received the oldest event that has no outcome yet; `None` if it
    /// has received all that is accepted, and each has one.
    pub oldest_age: Option<Duration>,
    /// Batches, retries, seals by trigger.
    pub engine: EngineStats,
}

impl PartitionStats {
    /// Events accepted so far: the sum of the outcomes and what is outstanding. No counter of
    /// its own is kept on the way in, so this proves nothing about the others.
    pub fn accepted(&self) -> u64 {
        self.outcomes.total() + self.outstanding_events
    }
}

/// What a lane's engine did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStats {
    /// Batching, retries and settlements.
    pub core: CoreStats,
    /// Batches that the link took and nobody has answered yet.
    pub in_flight: u64,
    pub(crate) oldest_receipt: Option<Instant>,
    /// How often the worker was awake after a park.
    pub wakes: u64,
    /// Wakes that an enqueue caused.
    pub producer_unparks: u64,
    /// Panics of the delivery handler, contained.
    pub handler_panics: u64,
}

/// A reading of everything a producer counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Partitions that were sent to, in the service's order.
    pub partitions: Vec<PartitionStats>,
}

impl Stats {
    /// Outcomes of all partitions together.
    pub fn outcomes(&self) -> Counts {
        let mut sum = Counts::default();
        for partition in &self.partitions {
            sum.merge(&partition.outcomes);
        }
        sum
    }

    /// Events accepted so far.
    pub fn accepted(&self) -> u64 {
        self.partitions.iter().map(PartitionStats::accepted).sum()
    }

    /// Accepted events that have no outcome yet.
    pub fn outstanding_events(&self) -> u64 {
        self.partitions.iter().map(|p| p.outstanding_events).sum()
    }

    /// Encoded bytes of accepted events that have no outcome yet.
    pub fn outstanding_bytes(&self) -> u64 {
        self.partitions.iter().map(|p| p.outstanding_bytes).sum()
    }

    /// Batches sent again.
    pub fn retries(&self) -> u64 {
        self.partitions.iter().map(|p| p.engine.core.retries).sum()
    }

    /// Batches sent again although an earlier transfer was never answered: each may have left
    /// duplicates behind.
    pub fn resends_after_unknown(&self) -> u64 {
        self.partitions
            .iter()
            .map(|p| p.engine.core.resends_after_unknown)
            .sum()
    }
}

/// Where a worker publishes its lane's numbers: outcomes with each report, the rest once a
/// pass.
#[derive(Debug, Default)]
pub(crate) struct LaneStats {
    published: Mutex<(Counts, EngineStats)>,
}

impl LaneStats {
    pub(crate) fn publish_outcomes(&self, outcomes: Counts) {
        self.published.lock().0 = outcomes;
    }

    pub(crate) fn publish_engine(&self, engine: EngineStats) {
        self.published.lock().1 = engine;
    }

    pub(crate) fn read(&self) -> (Counts, EngineStats) {
        *self.published.lock()
    }
}
