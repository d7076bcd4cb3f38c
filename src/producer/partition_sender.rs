//! A producer's handle on one partition.

use super::{EnqueueAllError, EnqueueError, FlushError, FlushReport, Producer};
use crate::event::Event;
use crate::partition::{PartitionId, Target};
use crate::ticket::Ticket;
use std::time::Duration;

/// Sends to one partition of a [`Producer`], of which it is a clone: the producer stays open
/// as long as it.
///
/// # Examples
///
/// ```
/// use hublane::testing::{ScriptedPeer, VirtualClock};
/// use hublane::ProducerBuilder;
///
/// let clock = VirtualClock::new();
/// let peer = ScriptedPeer::new(4, &clock);
/// let producer = ProducerBuilder::new(peer.transport()).virtual_clock(&clock).build()?;
///
/// let third = producer.partition("2").ok_or("no such partition")?;
/// third.enqueue("hello")?;
/// third.flush()?;
/// assert_eq!(peer.stored_bodies("2"), ["hello"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PartitionSender {
    producer: Producer,
    id: PartitionId,
    target: Target,
}

impl PartitionSender {
    pub(super) fn new(producer: Producer, id: PartitionId) -> PartitionSender {
        PartitionSender {
            producer,
            target: Target::Partition(id.clone()),
            id,
        }
    }

    /// The partition.
    pub fn id(&self) -> &PartitionId {
        &self.id
    }

    /// As [`Producer::enqueue_to`].
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn enqueue(&self, event: impl Into<Event>) -> Result<(), EnqueueError> {
        self.producer.enqueue_to(&self.target, event)
    }

    /// As [`Producer::enqueue_timeout`].
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn enqueue_timeout(
        &self,
        event: impl Into<Event>,
        timeout: Duration,
    ) -> Result<(), EnqueueError> {
        self.producer.enqueue_timeout(&self.target, event, timeout)
    }

    /// As [`Producer::try_enqueue_to`].
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn try_enqueue(&self, event: impl Into<Event>) -> Result<(), EnqueueError> {
        self.producer.try_enqueue_to(&self.target, event)
    }

    /// As [`Producer::enqueue_tracked`].
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn enqueue_tracked(&self, event: impl Into<Event>) -> Result<Ticket, EnqueueError> {
        self.producer.enqueue_tracked(&self.target, event)
    }

    /// As [`Producer::enqueue_all`].
    ///
    /// # Errors
    ///
    /// [`EnqueueAllError`] says how many were accepted and gives the others back.
    pub fn enqueue_all(&self, events: Vec<Event>) -> Result<(), EnqueueAllError> {
        self.producer.enqueue_all(&self.target, events)
    }

    /// As [`Producer::flush_partition`].
    ///
    /// # Errors
    ///
    /// As [`Producer::flush`].
    pub fn flush(&self) -> Result<FlushReport, FlushError> {
        self.producer.flush_partition(&self.id)
    }

    /// As [`Producer::flush_partition_timeout`].
    ///
    /// # Errors
    ///
    /// As [`Producer::flush_timeout`].
    pub fn flush_timeout(&self, timeout: Duration) -> Result<FlushReport, FlushError> {
        self.producer.flush_partition_timeout(&self.id, timeout)
    }
}
