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

    /// Ids are nearly always the decimal places themselves, which saves the hash.
    pub(crate) fn index_of(&self, id: &PartitionId) -> Option<usize> {
        let place = id.as_str().parse().ok();
        place
            .filter(|&place| self.ids.get(place) == Some(id))
            .or_else(|| self.index.get(id).copied())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_finds_its_place_whatever_it_looks_like() {
        let ids = ["1", "0", "west", "3"].map(PartitionId::from);
        let router = Router::new(ids.to_vec());
        for (place, id) in ids.iter().enumerate() {
            assert_eq!(router.index_of(id), Some(place));
        }
        assert_eq!(router.index_of(&PartitionId::from("2")), None);
        assert_eq!(router.route(&Target::Partition("03".into())), None);
    }
}
