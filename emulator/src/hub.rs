//! What a test or a tool sees of a hub.

use std::{sync::Arc, time::Duration};

use thiserror::Error;

use crate::{
    selector::Position,
    store::{HubStore, PartitionProperties, StoredEvent},
    subscription::Subscription,
};

/// Fewer events came than were waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{stored} of {wanted} events came in time")]
#[non_exhaustive]
pub struct WaitError {
    /// Events that were waited for.
    pub wanted: u64,
    /// Events that had been stored at the end.
    pub stored: u64,
}

/// A hub; clones name the same one. It can be read even after the emulator has stopped.
#[derive(Debug, Clone)]
pub struct HubHandle {
    store: Arc<HubStore>,
}

impl HubHandle {
    pub(crate) fn new(store: Arc<HubStore>) -> Self {
        Self { store }
    }

    /// The name as it was declared.
    #[must_use]
    pub fn name(&self) -> &str {
        self.store.name()
    }

    /// The number of partitions.
    #[must_use]
    pub fn partition_count(&self) -> usize {
        self.store.partition_count()
    }

    /// All events of a partition that are held, oldest first; none if there is no such partition.
    ///
    /// The bodies are shared, not copied.
    #[must_use]
    pub fn events(&self, partition: usize) -> Vec<StoredEvent> {
        self.store.read(partition, 0, usize::MAX)
    }

    /// Up to `max` events of a partition from a position on.
    #[must_use]
    pub fn read(&self, partition: usize, position: Position, max: usize) -> Vec<StoredEvent> {
        self.store
            .read(partition, self.store.resolve(partition, position), max)
    }

    /// As [`read`](Self::read), but waits for the first event; none came when the result is empty.
    #[must_use]
    pub fn read_timeout(
        &self,
        partition: usize,
        position: Position,
        max: usize,
        timeout: Duration,
    ) -> Vec<StoredEvent> {
        let from = self.store.resolve(partition, position);
        self.store
            .wait(timeout, |hub| {
                Some(hub.read(partition, from, max)).filter(|it| !it.is_empty())
            })
            .unwrap_or_default()
    }

    /// Events that are held, in all partitions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.held()
    }

    /// True when no event is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Events that were ever stored: those that were dropped for newer ones and those that came
    /// from the journal are counted, too.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.store.stored()
    }

    /// Bytes of memory that the events take, as the bound counts them.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.store.memory()
    }

    /// Waits until `count` events were ever [stored](Self::stored).
    ///
    /// # Errors
    ///
    /// [`WaitError`] when `timeout` passes first.
    pub fn wait_for_events(&self, count: u64, timeout: Duration) -> Result<(), WaitError> {
        self.store
            .wait(timeout, |hub| (hub.stored() >= count).then_some(()))
            .ok_or_else(|| WaitError {
                wanted: count,
                stored: self.stored(),
            })
    }

    /// What `$management` would tell of a partition, `None` if there is no such partition.
    #[must_use]
    pub fn partition_properties(&self, partition: usize) -> Option<PartitionProperties> {
        self.store.properties(partition)
    }

    /// Reads all partitions as events arrive, each from `position` on.
    #[must_use]
    pub fn subscribe(&self, position: Position) -> Subscription {
        let all = (0..self.partition_count()).collect();
        Subscription::new(Arc::clone(&self.store), all, position)
    }

    /// Reads one partition as events arrive; a partition that does not exist yields nothing.
    #[must_use]
    pub fn subscribe_partition(&self, partition: usize, position: Position) -> Subscription {
        Subscription::new(Arc::clone(&self.store), vec![partition], position)
    }
}
