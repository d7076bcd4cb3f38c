//! The way of an event from a caller into a lane.

use super::engine::{Engine, Slot, Topology};
use super::error::{EnqueueAllError, EnqueueError, EnqueueRefusal};
use crate::codec;
use crate::event::Event;
use crate::lane::{
    Accepted, Chunk, EVENT_OVERHEAD, Message, Patience, Rare, Refused, RefusedBecause,
};
use crate::partition::{PartitionKey, Target};
use crate::sync::{Arc, Instant};
use crate::ticket::{Ticket, TicketSlot};
use std::time::Duration;

/// Events of one chunk at most; the unit in which `enqueue_all` takes permits.
const CHUNK_EVENTS: u64 = 256;

/// How long a caller that takes any partition waits at one full lane before it looks at the
/// others again: a stuck partition must not hold whoever can go elsewhere.
const ANY_LANE_SLICE: Duration = Duration::from_millis(50);

/// An event with its size, checked against the limits.
struct Sized {
    event: Event,
    encoded_len: u32,
}

impl Engine {
    /// Accepts one event or gives it back. With `tracked`, the ticket on its outcome.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        event: Event,
        target: &Target,
        patience: Patience,
        tracked: bool,
    ) -> Result<Option<Ticket>, EnqueueError> {
        let topology = match self.ready(patience) {
            Ok(topology) => topology,
            Err(reason) => return Err(EnqueueError::new(event, reason)),
        };
        let key = key_of(target);
        let sized = self.size(topology, event, key)?;
        let Some(first) = topology.router.route(target) else {
            let reason = unknown(target);
            return Err(EnqueueError::new(sized.event, reason));
        };
        let message = |slot: &Slot, sized: Sized| {
            let (ticket, ticket_slot) = self.issue(slot, tracked);
            let accepted = Accepted {
                event: sized.event,
                key: key.cloned(),
                ticket: ticket_slot,
                encoded_len: sized.encoded_len,
            };
            (ticket, Message::One(accepted))
        };
        let candidates = candidates(topology, target);
        if candidates == 1 {
            let (ticket, message) = message(&topology.slots[first], sized);
            return self
                .send(topology, first, message, patience)
                .map(|()| ticket)
                .map_err(give_back);
        }
        let mut sized = sized;
        loop {
            let mut refusal = EnqueueRefusal::LaneDead;
            for step in 0..candidates {
                let index = (first + step) % candidates;
                let (ticket, message) = message(&topology.slots[index], sized);
                let encoded_len = message.permits().bytes as u32;
                match self.send(topology, index, message, Patience::Try) {
                    Ok(()) => return Ok(ticket),
                    Err((message, reason)) => {
                        let event = into_event(message);
                        if !may_try_another(&reason) {
                            return Err(EnqueueError::new(event, reason));
                        }
                        if refusal == EnqueueRefusal::LaneDead {
                            refusal = reason;
                        }
                        sized = Sized { event, encoded_len };
                    }
                }
            }
            let Patience::Until(deadline) = patience else {
                return Err(EnqueueError::new(sized.event, refusal));
            };
            if refusal == EnqueueRefusal::LaneDead {
                return Err(EnqueueError::new(sized.event, refusal));
            }
            // All full: wait at the lane whose turn it is, for a while.
            let slice = self.clock.now() + ANY_LANE_SLICE;
            let until = deadline.map_or(slice, |deadline| deadline.min(slice));
            let first = self.live_lane(topology, first);
            let (ticket, message) = message(&topology.slots[first], sized);
            let encoded_len = message.permits().bytes as u32;
            match self.send(topology, first, message, Patience::Until(Some(until))) {
                Ok(()) => return Ok(ticket),
                Err((message, reason)) => {
                    let event = into_event(message);
                    let again =
                        matches!(reason, EnqueueRefusal::TimedOut | EnqueueRefusal::LaneDead)
                            && !deadline.is_some_and(|at| self.clock.now() >= at);
                    if !again {
                        return Err(EnqueueError::new(event, reason));
                    }
                    sized = Sized { event, encoded_len };
                }
            }
        }
    }

    /// Accepts events in chunks, in order, each chunk with one slot and one permit operation.
    pub(crate) fn enqueue_all(
        self: &Arc<Self>,
        events: Vec<Event>,
        target: &Target,
        patience: Patience,
    ) -> Result<(), EnqueueAllError> {
        let topology = match self.ready(patience) {
            Ok(topology) => topology,
            Err(reason) => return Err(refuse_all(0, events, reason)),
        };
        let key = key_of(target);
        let most_events = (self.settings.max_buffered_events / 2).clamp(1, CHUNK_EVENTS);
        let most_bytes = self.settings.max_buffered_bytes / 2;
        let mut accepted = 0;
        let mut rest = events.into_iter().peekable();
        while rest.peek().is_some() {
            let Some(index) = topology.router.route(target) else {
                return Err(refuse_all(accepted, rest.collect(), unknown(target)));
            };
            let mut chunk = Vec::with_capacity((rest.len() as u64).min(most_events) as usize);
            let mut charged = 0;
            let mut misfit = None;
            while (chunk.len() as u64) < most_events && (charged < most_bytes || chunk.is_empty()) {
                let Some(event) = rest.next() else { break };
                match self.size(topology, event, key) {
                    Ok(sized) => {
                        let next = u64::from(sized.encoded_len) + EVENT_OVERHEAD;
                        charged += next;
                        chunk.push((sized.event, sized.encoded_len));
                        if charged > self.settings.max_buffered_bytes {
                            // One too many for the bound: it opens the next chunk.
                            misfit = chunk.pop().map(|(event, _)| (event, None));
                            break;
                        }
                    }
                    Err(error) => {
                        let reason = error.reason().clone();
                        misfit = Some((error.into_event(), Some(reason)));
                        break;
                    }
                }
            }
            if !chunk.is_empty() {
                let sent = chunk.len();
                let message = Message::Rare(Rare::Many(Chunk {
                    events: chunk,
                    key: key.cloned(),
                }));
                if let Err((message, reason)) = self.send(topology, index, message, patience) {
                    let mut left = into_events(message);
                    left.extend(misfit.map(|(event, _)| event));
                    left.extend(rest);
                    return Err(refuse_all(accepted, left, reason));
                }
                accepted += sent;
            }
            match misfit {
                Some((event, Some(reason))) => {
                    let mut left = vec![event];
                    left.extend(rest);
                    return Err(refuse_all(accepted, left, reason));
                }
                Some((event, None)) => {
                    let left: Vec<_> = std::iter::once(event).chain(rest).collect();
                    rest = left.into_iter().peekable();
                }
                None => {}
            }
        }
        Ok(())
    }

    /// The hub's partitions, once they are known.
    fn ready(&self, patience: Patience) -> Result<&Topology, EnqueueRefusal> {
        if let Some(topology) = self.topology() {
            return Ok(topology);
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
    fn size(
        &self,
        topology: &Topology,
        event: Event,
        key: Option<&PartitionKey>,
    ) -> Result<Sized, EnqueueError> {
        let encoded = codec::encoded_len(&event, key);
        let size = codec::section_len(encoded) as u64;
        let limit = topology.max_message_size.min(u64::from(u32::MAX));
        if size > limit {
            return Err(EnqueueError::new(
                event,
                EnqueueRefusal::TooLarge { size, limit },
            ));
        }
        let charged = encoded as u64 + EVENT_OVERHEAD;
        let limit = self.settings.max_buffered_bytes;
        if charged > limit {
            return Err(EnqueueError::new(
                event,
                EnqueueRefusal::ExceedsBuffer { charged, limit },
            ));
        }
        Ok(Sized {
            event,
            encoded_len: encoded as u32,
        })
    }

    fn issue(&self, slot: &Slot, tracked: bool) -> (Option<Ticket>, Option<TicketSlot>) {
        if !tracked {
            return (None, None);
        }
        let (ticket, ticket_slot) = slot.tickets.issue(&self.clock);
        (Some(ticket), Some(ticket_slot))
    }

    fn live_lane(&self, topology: &Topology, first: usize) -> usize {
        let lanes = topology.slots.len();
        (0..lanes)
            .map(|step| (first + step) % lanes)
            .find(|&index| !topology.slots[index].lane.reading().is_dead())
            .unwrap_or(first)
    }

    /// Sends into one lane, which is born first if need be.
    fn send(
        self: &Arc<Self>,
        topology: &Topology,
        index: usize,
        mut message: Message,
        patience: Patience,
    ) -> Result<(), (Message, EnqueueRefusal)> {
        loop {
            let refused = match topology.slots[index].lane.send(message, patience) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            message = match refused {
                Refused {
                    message,
                    reason: RefusedBecause::Unborn,
                } => message,
                Refused { message, reason } => return Err((message, refusal(reason))),
            };
            if let Err(reason) = self.bear(index) {
                return Err((message, reason));
            }
        }
    }
}

/// How many lanes the event may go to.
fn candidates(topology: &Topology, target: &Target) -> usize {
    match target {
        Target::Any => topology.slots.len(),
        Target::Key(_) | Target::Partition(_) => 1,
    }
}

/// The instant at which a relative time-out passes; far beyond any clock means never.
pub(crate) fn until(now: Instant, timeout: Duration) -> Patience {
    Patience::Until(now.checked_add(timeout))
}

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

fn may_try_another(reason: &EnqueueRefusal) -> bool {
    matches!(reason, EnqueueRefusal::Full | EnqueueRefusal::LaneDead)
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

fn give_back((message, reason): (Message, EnqueueRefusal)) -> EnqueueError {
    EnqueueError::new(into_event(message), reason)
}

fn into_event(message: Message) -> Event {
    match message {
        Message::One(accepted) => accepted.event,
        Message::Rare(Rare::Many(chunk)) => chunk
            .events
            .into_iter()
            .next()
            .map_or_else(|| Event::new(""), |(event, _)| event),
        Message::Rare(Rare::Flush) => Event::new(""),
    }
}

fn into_events(message: Message) -> Vec<Event> {
    match message {
        Message::One(accepted) => vec![accepted.event],
        Message::Rare(Rare::Many(chunk)) => {
            chunk.events.into_iter().map(|(event, _)| event).collect()
        }
        Message::Rare(Rare::Flush) => Vec::new(),
    }
}

fn refuse_all(accepted: usize, rest: Vec<Event>, reason: EnqueueRefusal) -> EnqueueAllError {
    EnqueueAllError {
        accepted,
        rest,
        reason,
    }
}
