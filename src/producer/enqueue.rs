//! The way of an event from a caller into a lane.
//!
//! Admission comes first and takes permits alone; the event moves only once it is accepted,
//! so a refusal costs nothing and has nothing to give back but what its caller still holds.

use super::engine::{Engine, Topology};
use super::error::{EnqueueAllError, EnqueueError, EnqueueRefusal};
use crate::codec;
use crate::event::Event;
use crate::lane::{
    Accepted, Chunk, EVENT_OVERHEAD, Message, Patience, Permits, Rare, RefusedBecause,
};
use crate::partition::{PartitionKey, Target};
use crate::sync::{Arc, Instant};
use crate::ticket::Ticket;
use std::time::Duration;

/// Events of one chunk at most; the unit in which `enqueue_all` takes permits.
const CHUNK_EVENTS: u64 = 256;

impl Engine {
    /// Accepts one event or gives it back. With `tracked`, the ticket on its outcome.
    #[inline]
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        event: Event,
        target: &Target,
        patience: Patience,
        tracked: bool,
    ) -> Result<Option<Ticket>, EnqueueError> {
        let key = key_of(target);
        let (topology, index, encoded_len) = match self.admit_event(&event, target, patience) {
            Ok(admitted) => admitted,
            Err(reason) => return Err(EnqueueError::new(event, reason)),
        };
        let slot = &topology.slots[index];
        let (ticket, ticket_slot) = if tracked {
            let (ticket, ticket_slot) = slot.tickets.issue(&self.clock);
            (Some(ticket), Some(ticket_slot))
        } else {
            (None, None)
        };
        let message = Message::One(Accepted {
            event,
            key: key.cloned(),
            ticket: ticket_slot,
            encoded_len,
        });
        match slot.lane.push(message) {
            Ok(()) => Ok(ticket),
            Err(message) => Err(EnqueueError::new(
                events_of(message).next().unwrap_or_else(|| Event::new("")),
                EnqueueRefusal::LaneDead,
            )),
        }
    }

    /// Takes permits for one event: in which lane, and the event's encoded size.
    #[inline]
    fn admit_event(
        self: &Arc<Self>,
        event: &Event,
        target: &Target,
        patience: Patience,
    ) -> Result<(&Topology, usize, u32), EnqueueRefusal> {
        let topology = self.ready(patience)?;
        let encoded_len = self.size(topology, event, key_of(target))?;
        let permits = Permits {
            events: 1,
            bytes: u64::from(encoded_len),
        };
        let index = self.admit_target(topology, target, permits, patience)?;
        Ok((topology, index, encoded_len))
    }

    /// Takes permits in a lane of the target: which.
    #[inline]
    fn admit_target(
        self: &Arc<Self>,
        topology: &Topology,
        target: &Target,
        permits: Permits,
        patience: Patience,
    ) -> Result<usize, EnqueueRefusal> {
        let index = topology
            .router
            .route(target)
            .ok_or_else(|| unknown(target))?;
        if matches!(target, Target::Any) && topology.slots.len() > 1 {
            return self.admit_any(topology, index, permits, patience);
        }
        self.admit(topology, index, permits, patience)?;
        Ok(index)
    }

    /// Takes permits in whichever lane has room, beginning with the one whose turn it is.
    fn admit_any(
        self: &Arc<Self>,
        topology: &Topology,
        first: usize,
        permits: Permits,
        patience: Patience,
    ) -> Result<usize, EnqueueRefusal> {
        let lanes = topology.slots.len();
        let attempt = || {
            let mut all_dead = true;
            for index in (first..lanes).chain(0..first) {
                match self.admit(topology, index, permits, Patience::Try) {
                    Ok(()) => return Some(Ok(index)),
                    Err(EnqueueRefusal::Full) => all_dead = false,
                    Err(EnqueueRefusal::LaneDead) => {}
                    Err(reason) => return Some(Err(reason)),
                }
            }
            all_dead.then_some(Err(EnqueueRefusal::LaneDead))
        };
        if let Some(result) = attempt() {
            return result;
        }
        let Patience::Until(deadline) = patience else {
            return Err(EnqueueRefusal::Full);
        };
        if crate::engine_thread::is_current() {
            return Err(EnqueueRefusal::WouldDeadlock);
        }
        if self.is_forked() {
            return Err(EnqueueRefusal::Forked);
        }
        topology
            .any_room
            .wait(&self.clock, deadline, attempt)
            .unwrap_or(Err(EnqueueRefusal::TimedOut))
    }

    /// Accepts events in chunks, in order, each chunk with one slot and one permit operation.
    pub(crate) fn enqueue_all(
        self: &Arc<Self>,
        events: Vec<Event>,
        target: &Target,
        patience: Patience,
    ) -> Result<(), EnqueueAllError> {
        let mut accepted = 0;
        let mut rest = events.into_iter();
        while !rest.as_slice().is_empty() {
            let sent = self
                .ready(patience)
                .and_then(|topology| self.enqueue_chunk(topology, &mut rest, target, patience));
            match sent {
                Ok(sent) => accepted += sent,
                Err(reason) => {
                    return Err(EnqueueAllError {
                        accepted,
                        rest: rest.collect(),
                        reason,
                    });
                }
            }
        }
        Ok(())
    }

    /// Accepts the longest chunk from the front of `rest`, at least one event. A refusal
    /// leaves `rest` as it was.
    fn enqueue_chunk(
        self: &Arc<Self>,
        topology: &Topology,
        rest: &mut std::vec::IntoIter<Event>,
        target: &Target,
        patience: Patience,
    ) -> Result<usize, EnqueueRefusal> {
        let key = key_of(target);
        let (sizes, permits) = self.size_chunk(topology, rest.as_slice(), key)?;
        let index = self.admit_target(topology, target, permits, patience)?;
        let count = sizes.len();
        let chunk = Chunk {
            events: rest.by_ref().take(count).zip(sizes).collect(),
            key: key.cloned(),
        };
        let message = Message::Rare(Rare::Many(chunk));
        if let Err(message) = topology.slots[index].lane.push(message) {
            let left: Vec<_> = events_of(message).chain(rest.by_ref()).collect();
            *rest = left.into_iter();
            return Err(EnqueueRefusal::LaneDead);
        }
        Ok(count)
    }

    /// The sizes of the events that go into the next chunk. It stops before an event that can
    /// never be accepted, unless that is the first, and takes at most half of each bound, so
    /// that a large set goes in piecewise while its front is being sent.
    fn size_chunk(
        &self,
        topology: &Topology,
        events: &[Event],
        key: Option<&PartitionKey>,
    ) -> Result<(Vec<u32>, Permits), EnqueueRefusal> {
        let most_events = (self.settings.max_buffered_events / 2).clamp(1, CHUNK_EVENTS) as usize;
        let most_bytes = self.settings.max_buffered_bytes / 2;
        let mut sizes = Vec::with_capacity(events.len().min(most_events));
        let mut bytes = 0;
        for event in events.iter().take(most_events) {
            let size = match self.size(topology, event, key) {
                Ok(size) => size,
                Err(reason) if sizes.is_empty() => return Err(reason),
                Err(_) => break,
            };
            let charged = bytes + u64::from(size) + EVENT_OVERHEAD * (sizes.len() as u64 + 1);
            if charged > most_bytes && !sizes.is_empty() {
                break;
            }
            sizes.push(size);
            bytes += u64::from(size);
        }
        let events = sizes.len() as u64;
        Ok((sizes, Permits { events, bytes }))
    }

    /// The hub's partitions, once they are known.
    #[inline]
    fn ready(&self, patience: Patience) -> Result<&Topology, EnqueueRefusal> {
        match self.topology() {
            Some(topology) => Ok(topology),
            None => self.wait_for_topology(patience),
        }
    }

    #[cold]
    fn wait_for_topology(&self, patience: Patience) -> Result<&Topology, EnqueueRefusal> {
        if self.is_forked() {
            return Err(EnqueueRefusal::Forked);
        }
        if self.is_closed() {
            return Err(EnqueueRefusal::Closed);
        }
        let Patience::Until(deadline) = patience else {
            return Err(EnqueueRefusal::NotReady);
        };
        if crate::engine_thread::is_current() {
            return Err(EnqueueRefusal::WouldDeadlock);
        }
        if !self.wait_settled(deadline) {
            return Err(EnqueueRefusal::TimedOut);
        }
        self.topology().ok_or(EnqueueRefusal::Closed)
    }

    /// Sizes an event exactly and refuses what could never be sent or never find room.
    #[inline]
    fn size(
        &self,
        topology: &Topology,
        event: &Event,
        key: Option<&PartitionKey>,
    ) -> Result<u32, EnqueueRefusal> {
        let encoded = codec::encoded_len(event, key);
        let size = codec::section_len(encoded) as u64;
        let limit = topology.max_message_size.min(u64::from(u32::MAX));
        if size > limit {
            return Err(EnqueueRefusal::TooLarge { size, limit });
        }
        let charged = encoded as u64 + EVENT_OVERHEAD;
        let limit = self.settings.max_buffered_bytes;
        if charged > limit {
            return Err(EnqueueRefusal::ExceedsBuffer { charged, limit });
        }
        Ok(encoded as u32)
    }

    /// Takes permits in one lane, which is born first if need be.
    #[inline]
    fn admit(
        self: &Arc<Self>,
        topology: &Topology,
        index: usize,
        permits: Permits,
        patience: Patience,
    ) -> Result<(), EnqueueRefusal> {
        loop {
            match topology.slots[index].lane.admit(permits, patience) {
                Ok(()) => return Ok(()),
                Err(RefusedBecause::Unborn) => self.bear(index)?,
                Err(reason) => return Err(refusal(reason)),
            }
        }
    }
}

/// The instant at which a relative time-out passes; far beyond any clock means never.
pub(crate) fn until(now: Instant, timeout: Duration) -> Patience {
    Patience::Until(now.checked_add(timeout))
}

#[inline]
fn key_of(target: &Target) -> Option<&PartitionKey> {
    match target {
        Target::Key(key) => Some(key),
        Target::Any | Target::Partition(_) => None,
    }
}

fn unknown(target: &Target) -> EnqueueRefusal {
    match target {
        Target::Partition(id) => EnqueueRefusal::UnknownPartition(id.clone()),
        // A hub has at least one partition: the builder refuses others.
        Target::Any | Target::Key(_) => EnqueueRefusal::NotReady,
    }
}

fn refusal(reason: RefusedBecause) -> EnqueueRefusal {
    match reason {
        RefusedBecause::Full => EnqueueRefusal::Full,
        RefusedBecause::TimedOut => EnqueueRefusal::TimedOut,
        RefusedBecause::WouldDeadlock => EnqueueRefusal::WouldDeadlock,
        RefusedBecause::Forked => EnqueueRefusal::Forked,
        RefusedBecause::Unborn => EnqueueRefusal::NotReady,
        RefusedBecause::Closed => EnqueueRefusal::Closed,
        RefusedBecause::Dead => EnqueueRefusal::LaneDead,
    }
}

fn events_of(message: Message) -> impl Iterator<Item = Event> {
    let (one, many) = match message {
        Message::One(accepted) => (Some(accepted.event), Vec::new()),
        Message::Rare(Rare::Many(chunk)) => (None, chunk.events),
        Message::Rare(Rare::Flush) => (None, Vec::new()),
    };
    one.into_iter()
        .chain(many.into_iter().map(|(event, _)| event))
}
