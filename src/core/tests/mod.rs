//! The core driven by hand: virtual instants, a peer made of function calls.

mod batching;
mod deadlines;
mod ends;
mod flushes;
mod outcomes;
mod random;
mod shrinking;

use super::*;
use crate::codec::{encoded_len, section_len};
use crate::event::Event;
use crate::retry::RetryPolicy;
use crate::transport::Settlement;
use std::time::Duration;

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const NS: Duration = Duration::from_nanos(1);

/// Ten events or 1000 bytes, 5 s of waiting, 60 s to deliver, one in flight, retries after 1 s.
pub(super) fn limits() -> Limits {
    Limits {
        max_batch_bytes: 1_000,
        max_batch_events: 10,
        max_wait: 5_000 * MS,
        window: 1,
        delivery_timeout: 60_000 * MS,
        retry: RetryPolicy {
            max_retries: u32::MAX,
            delay: 1_000 * MS,
            max_delay: 8_000 * MS,
            server_busy_delay: 4_000 * MS,
        },
    }
}

/// A lane's core with a clock, and events that are known by their numbers.
pub(super) struct Rig {
    pub(super) core: LaneCore<u64>,
    pub(super) start: Instant,
    pub(super) now: Instant,
    pub(super) next: u64,
}

/// What a report says, in short.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    Delivered(Vec<u64>),
    Failed(Vec<u64>, FailureCause),
    Indeterminate(Vec<u64>, FailureCause),
    Returned(Vec<u64>),
    Flushed(u64, Counts),
}

impl Rig {
    /// A lane whose link is up and takes messages of any size.
    pub(super) fn up(limits: Limits) -> Rig {
        let mut rig = Rig::down(limits);
        rig.attach(0);
        rig
    }

    pub(super) fn down(limits: Limits) -> Rig {
        let now = Instant::now();
        Rig {
            core: LaneCore::new(limits, 1),
            start: now,
            now,
            next: 0,
        }
    }

    pub(super) fn attach(&mut self, max_message_size: u64) {
        self.core
            .handle_link(self.now, &LinkState::Up { max_message_size });
    }

    pub(super) fn detach(&mut self) {
        self.core
            .handle_link(self.now, &LinkState::Down(Some(problem("lost"))));
    }

    pub(super) fn pass(&mut self, wait: Duration) {
        self.now += wait;
        self.core.handle_timeout(self.now);
    }

    /// Hands in the next event, of a given size in its batch.
    pub(super) fn add(&mut self, size: usize) -> u64 {
        self.add_since(size, self.now)
    }

    pub(super) fn add_since(&mut self, size: usize, since: Instant) -> u64 {
        let tag = self.next;
        self.next += 1;
        let entry = entry(tag, size);
        self.core.handle_event(self.now, since, entry);
        tag
    }

    pub(super) fn add_many(&mut self, n: usize, size: usize) {
        for _ in 0..n {
            self.add(size);
        }
    }

    /// The id and the events of the next delivery.
    pub(super) fn send(&mut self) -> Option<(DeliveryId, Vec<u64>)> {
        self.core
            .poll_batch(self.now)
            .map(|delivery| (delivery.id, tags(&delivery)))
    }

    /// The events of the next delivery, which there must be, and which is then answered.
    pub(super) fn send_and(&mut self, settlement: Settlement) -> Vec<u64> {
        let (id, tags) = self.send().expect("a delivery");
        self.settle(id, settlement);
        tags
    }

    pub(super) fn settle(&mut self, id: DeliveryId, settlement: Settlement) {
        self.core.handle_settled(self.now, id, settlement);
    }

    /// Everything that the core has to say.
    pub(super) fn said(&mut self) -> Vec<Said> {
        std::iter::from_fn(|| self.core.poll_report())
            .map(said)
            .collect()
    }

    /// The instant the core waits for, from now.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.core.poll_deadline().map(|at| {
            assert!(at > self.now, "waits for the past");
            at - self.now
        })
    }
}

pub(super) fn said(report: Report<u64>) -> Said {
    let (outcome, entries) = match report {
        Report::Flush { id, counts } => return Said::Flushed(id.0, counts),
        Report::Batch {
            outcome, entries, ..
        } => (outcome, entries),
    };
    let tags = entries.iter().map(|entry| entry.tag).collect();
    match outcome {
        Outcome::Delivered => Said::Delivered(tags),
        Outcome::Failed(cause) => Said::Failed(tags, (*cause).clone()),
        Outcome::Indeterminate(cause) => Said::Indeterminate(tags, (*cause).clone()),
        Outcome::Returned => Said::Returned(tags),
    }
}

/// A rig with one batch of three events in flight.
pub(super) fn in_flight(limits: Limits) -> (Rig, DeliveryId) {
    let mut rig = Rig::up(limits);
    rig.add_many(3, 20);
    rig.core.handle_flush(rig.now);
    let (id, tags) = rig.send().unwrap();
    assert_eq!(tags, [0, 1, 2]);
    (rig, id)
}

/// Without the flushes.
pub(super) fn batches(said: Vec<Said>) -> Vec<Said> {
    said.into_iter()
        .filter(|said| !matches!(said, Said::Flushed(..)))
        .collect()
}

/// An event whose body starts with its number, and that takes `size` bytes of a batch.
pub(super) fn entry(tag: u64, size: usize) -> Entry<u64> {
    // Two headers of 5 bytes for a body this short, of 8 for a longer one.
    let overhead = if size <= 260 { 10 } else { 16 };
    let mut body = tag.to_be_bytes().to_vec();
    body.resize(size - overhead, b'.');
    let event = Event::new(body);
    let len = encoded_len(&event, None);
    assert_eq!(section_len(len), size, "a size that no event has");
    Entry {
        event,
        key: None,
        encoded_len: len as u32,
        tag,
    }
}

/// The numbers of the events in a delivery, read from its bytes.
pub(super) fn tags(delivery: &Delivery) -> Vec<u64> {
    let number = |message: &[u8]| {
        let header = if message.len() <= 260 { 5 } else { 8 };
        u64::from_be_bytes(message[header..header + 8].try_into().unwrap())
    };
    delivery.payload.sections().map(number).collect()
}

pub(super) fn problem(condition: &str) -> LinkError {
    LinkError::new(condition, "told so")
}

pub(super) fn rejected(condition: &str) -> Settlement {
    Settlement::Rejected {
        condition: condition.into(),
        description: Some("told so".into()),
    }
}

pub(super) fn busy_server() -> Settlement {
    rejected("com.microsoft:server-busy")
}

pub(super) fn fatal() -> Settlement {
    rejected("amqp:not-allowed")
}

pub(super) fn unknown() -> Settlement {
    Settlement::Unknown(problem("lost"))
}

pub(super) fn not_sent() -> Settlement {
    Settlement::NotSent(problem("lost"))
}

pub(super) fn deadline(last: Option<&str>, attempts: u32) -> FailureCause {
    FailureCause::DeadlineExceeded {
        last: last.map(problem),
        attempts,
    }
}
