//! Which partition an event goes to.

use crate::partition::{PartitionId, RoundRobin, Target, hash};
use std::collections::HashMap;

/// The partitions of a hub, in the service's order, and the ways to choose one.
#[derive(Debug)]
pub(crate) struct Router {
    index: HashMap<PartitionId, usize>,
    ids: Vec<PartitionId>,
    turn: RoundRobin,
}

impl Router {
    /// A router over `ids`, of which there is at least one.
    pub(crate) fn new(ids: Vec<PartitionId>) -> Router {
        Router {
            index: ids.iter().cloned().zip(0..).collect(),
            turn: RoundRobin::new(),
            ids,
        }
    }

    pub(crate) fn index_of(&self, id: &PartitionId) -> Option<usize> {
        self.index.get(id).copied()
    }

    pub(crate) fn ids(&self) -> &[PartitionId] {
        &self.ids
    }

    /// The place of the target's partition; `None` if the hub has no such partition.
    pub(crate) fn route(&self, target: &Target) -> Option<usize> {
        match target {
            Target::Any => Some(self.turn.next_index(self.ids.len())),
            Target::Key(key) => Some(hash::partition_index(key.as_str(), self.ids.len())),
            Target::Partition(id) => self.index_of(id),
        }
    }
}
