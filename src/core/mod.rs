//! The heart of a lane: what becomes of its events, without threads, clocks or sockets.
//!
//! A [`LaneCore`] is told what happens (`handle_*`) and asked what to do (`poll_*`). Time is an
//! argument, so that the core does the same in production, in a simulation and under a model
//! checker. An event's way through it:
//!
//! ```text
//! handle_event ─▶ backlog ─▶ open ─▶ queue ─▶ flight ─▶ reports ─▶ poll_report
//!                (did not    batch   ▲ sealed  │ link
//!                 fit)               └─────────┘ retry
//! ```
//!
//! A batch is sealed at the moment it can be sent and not before, so that one whose link is busy
//! goes on taking events. What waits in the queue has been sealed before and is to be sent
//! (again); nothing overtakes it.
//!
//! # The driver
//!
//! In each pass the driver makes any number of `handle_*` calls, among them
//! [`handle_timeout`](LaneCore::handle_timeout) if [`poll_deadline`](LaneCore::poll_deadline) has
//! passed; then it polls cancels, batches and reports, in this order, each until `None`; then it
//! may sleep until `poll_deadline`, which is not past then.
//!
//! # Nothing is lost on the way
//!
//! At every moment each event is in exactly one field of the core; no method holds one in a
//! variable while it runs code that could panic (encoding, above all). So whatever happens inside
//! a method, [`salvage`](LaneCore::salvage) finds every event.

mod batch;
mod flush;
mod settle;
mod types;

#[cfg(test)]
mod tests;

pub(crate) use batch::later;
pub use types::{CoreStats, Seals};
pub(crate) use types::{Entry, FlushId, Limits, Report, Room, Salvage};

use crate::report::{Counts, FailureCause, Outcome};
use crate::retry::Jitter;
use crate::sync::{Arc, Instant};
use crate::transport::{Delivery, DeliveryId, LinkError, LinkState};
use batch::{Block, InFlight, Open, Sealed, Spares, Times, Waiting, section};
use flush::Cuts;
use std::collections::VecDeque;
use types::Trigger;

/// The sans-io state machine of one lane.
#[derive(Debug)]
pub(crate) struct LaneCore<T> {
    limits: Limits,
    jitter: Jitter,
    phase: Phase,
    link: Link,

    /// Events that did not fit in the open batch, in order; later than all of it. Empty if the
    /// open batch is: whatever empties that fills it again from here.
    backlog: VecDeque<Waiting<T>>,
    /// The batch that takes events; later than all of `queue` and `flight`.
    open: Open<T>,
    /// Sealed batches that wait to be sent, in the order of their events.
    queue: VecDeque<Sealed<T>>,
    /// Batches that the link has, in the order in which it got them; at most a window of them.
    flight: Vec<InFlight<T>>,
    /// A batch came back while others were in flight: nothing is sent until those are answered,
    /// so that sending starts anew at the oldest. Means nothing while `flight` is empty.
    recovering: bool,

    /// What is to be said, in order. Bounded by the events in it and by the pending cuts.
    reports: VecDeque<Spoken<T>>,
    cuts: Cuts,
    /// Deliveries that the link must be told to forget. Nothing is submitted before it was, so
    /// there is at most a window of them.
    cancels: VecDeque<DeliveryId>,

    /// How many events were ever handed in: the sequence number of the next.
    handed_in: u64,
    /// Events before this one are due, since a caller waits for their room.
    pressed: u64,
    next_delivery: u64,
    spares: Spares,
    /// The outcomes of all events that have one, polled or not.
    counts: Counts,
    /// How many events, and how many encoded bytes of them, are inside. Gauges: no decision
    /// rests on them.
    held: (u64, u64),
    stats: CoreStats,
}

/// How far a lane is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Takes events and lets them wait for company.
    Running,
    /// Everything is due at once.
    Closing,
    /// Nothing is sent any more; what is not in flight is handed back.
    Returning,
    /// The worker panicked; nothing is trusted but the whereabouts of the events.
    Dead,
}

/// What is known of the link.
#[derive(Debug)]
struct Link {
    up: bool,
    /// It answered `Busy` and has not said that it is ready since.
    busy: bool,
    /// Its limit for a payload, the latest that it named.
    max_message: Option<usize>,
    /// What went wrong last on this lane, if nothing was accepted since.
    problem: Option<LinkError>,
}

/// A report that was not polled yet.
#[derive(Debug)]
struct Spoken<T> {
    report: Report<T>,
    /// The sum of its entries' `encoded_len`.
    encoded: u64,
}

/// What goes in.
impl<T> LaneCore<T> {
    /// The core of a lane that holds nothing and whose link is down. The seed spreads retries.
    pub(crate) fn new(limits: Limits, seed: u64) -> LaneCore<T> {
        LaneCore {
            jitter: Jitter::new(seed),
            phase: Phase::Running,
            link: Link {
                up: false,
                busy: false,
                max_message: None,
                problem: None,
            },
            backlog: VecDeque::new(),
            open: Open::new(),
            queue: VecDeque::new(),
            flight: Vec::new(),
            recovering: false,
            reports: VecDeque::new(),
            cuts: Cuts::default(),
            cancels: VecDeque::new(),
            handed_in: 0,
            pressed: 0,
            next_delivery: 0,
            spares: Spares::new(limits.window, limits.max_batch_bytes),
            counts: Counts::default(),
            held: (0, 0),
            stats: CoreStats::default(),
            limits,
        }
    }

    /// False while the open batch is full. What is handed in all the same waits behind it.
    pub(crate) fn wants_events(&self) -> bool {
        self.phase >= Phase::Returning || self.full().is_none()
    }

    /// Takes one accepted event over.
    ///
    /// `since`, not after `now`, is the instant at which the lane was last seen empty: the age of
    /// its batch counts from there, so it may be found due early, but never late. Its delivery
    /// deadline counts from `now`.
    pub(crate) fn handle_event(&mut self, now: Instant, since: Instant, entry: Entry<T>) {
        let seq = self.handed_in;
        self.handed_in += 1;
        self.held.0 += 1;
        self.held.1 += u64::from(entry.encoded_len);
        let times = Times {
            received: now,
            since,
        };
        match self.phase {
            Phase::Returning => self.report_one(seq, entry, Outcome::Returned),
            Phase::Dead => {
                self.report_one(
                    seq,
                    entry,
                    Outcome::Failed(Arc::new(FailureCause::LaneDied)),
                );
            }
            Phase::Running | Phase::Closing => {
                let fits = self.backlog.is_empty()
                    && self.oversize(&entry).is_none()
                    && self.open_takes(seq, section(&entry));
                if fits {
                    self.open.push(seq, times, entry);
                } else {
                    self.backlog.push_back(Waiting { seq, times, entry });
                    self.settle_down();
                }
            }
        }
    }

    /// Cuts the stream of events here: all events handed in before are due, and when the last of
    /// them has been reported, the cut is.
    pub(crate) fn handle_flush(&mut self, _now: Instant) -> FlushId {
        let id = self.cuts.push(self.handed_in, self.counts);
        self.settle_down();
        id
    }

    /// A caller waits for room: all events handed in before are due.
    pub(crate) fn handle_pressure(&mut self) {
        self.pressed = self.handed_in;
    }

    /// The link was attached or lost.
    pub(crate) fn handle_link(&mut self, _now: Instant, state: &LinkState) {
        match state {
            LinkState::Down(problem) => {
                self.link.up = false;
                if problem.is_some() {
                    self.link.problem.clone_from(problem);
                }
            }
            LinkState::Up { max_message_size } => {
                self.link.up = true;
                // What was busy was the link before this one.
                self.link.busy = false;
                // Zero stands for no limit (AMQP 1.0, section 2.7.3).
                self.link.max_message = match usize::try_from(*max_message_size) {
                    Ok(0) | Err(_) => None,
                    Ok(bytes) => Some(bytes),
                };
                for batch in &mut self.queue {
                    if std::mem::take(&mut batch.not_sent) > 0 {
                        batch.not_before = None;
                    }
                }
                self.refit();
                self.settle_down();
            }
        }
    }

    /// Ends what ends by time.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.expire_flight(now);
        self.expire_waiting(now);
        self.settle_down();
    }

    /// The lane is to end: no event waits for company any more.
    pub(crate) fn handle_close(&mut self, _now: Instant) {
        self.phase = self.phase.max(Phase::Closing);
    }

    /// The link did not take this delivery: nothing of it was sent, and nothing will be until
    /// [`handle_ready`](LaneCore::handle_ready) or until the link is attached anew.
    pub(crate) fn handle_busy(&mut self, id: DeliveryId) {
        let Some(at) = self.flight.iter().position(|sent| sent.id == id) else {
            return;
        };
        self.link.busy = true;
        self.undo_attempt(at);
        let InFlight { mut batch, .. } = self.flight.remove(at);
        let untouched = batch.is_untouched() && self.queue.is_empty() && self.open.is_empty();
        if self.phase >= Phase::Returning {
            self.hand_back(batch);
        } else if untouched {
            // Open again, it takes the events that come until the link is free.
            if let Some(trigger) = batch.trigger.take() {
                *self.stats.seals.of(trigger) -= 1;
            }
            self.open.reopen(batch, &mut self.spares);
        } else {
            self.enqueue(batch);
        }
        self.settle_down();
    }

    /// The link that was busy has room again.
    pub(crate) fn handle_ready(&mut self) {
        self.link.busy = false;
    }
}

/// What comes out.
impl<T> LaneCore<T> {
    /// The next batch to submit, if one is due and the link can take it. It is in flight from
    /// here on, until [`handle_settled`](LaneCore::handle_settled) or
    /// [`handle_busy`](LaneCore::handle_busy) speaks of it. May leave reports of what expired.
    pub(crate) fn poll_batch(&mut self, now: Instant) -> Option<Delivery> {
        self.expire_waiting(now);
        let delivery = self.submit(now);
        self.settle_down();
        delivery
    }

    fn submit(&mut self, now: Instant) -> Option<Delivery> {
        if !self.can_submit() {
            return None;
        }
        match self.queue.front() {
            Some(batch) if batch.not_before.is_some_and(|at| at > now) => return None,
            Some(_) => {}
            None => {
                let trigger = self.due(now)?;
                let received = self.open.block.oldest().map_or(now, |times| times.received);
                let deadline = later(received, self.limits.delivery_timeout);
                *self.stats.seals.of(trigger) += 1;
                self.queue
                    .push_back(self.open.seal(&mut self.spares, deadline, trigger));
            }
        }
        // Encoded where it stands in the queue: encoding may fail.
        self.queue.front_mut()?.encode(&mut self.spares);
        let mut batch = self.queue.pop_front()?;
        // Were it still true, something would be in flight, and nothing could be submitted.
        self.recovering = false;
        batch.attempts = batch.attempts.saturating_add(1);
        self.stats.retries += u64::from(batch.attempts > 1);
        self.stats.resends_after_unknown += u64::from(batch.possibly_stored);
        let id = DeliveryId(self.next_delivery);
        self.next_delivery += 1;
        let (payload, deadline) = (batch.body.clone(), batch.deadline);
        self.flight.push(InFlight { id, batch });
        Some(Delivery {
            id,
            payload,
            deadline,
        })
    }

    /// The next delivery that was given up unanswered: the link must be attached anew. No batch
    /// is given out before all of these are.
    pub(crate) fn poll_cancel(&mut self) -> Option<DeliveryId> {
        self.cancels.pop_front()
    }

    /// The next thing to be said.
    pub(crate) fn poll_report(&mut self) -> Option<Report<T>> {
        let Spoken { report, encoded } = self.reports.pop_front()?;
        if let Report::Batch { entries, .. } = &report {
            self.held.0 -= entries.len() as u64;
            self.held.1 -= encoded;
        }
        Some(report)
    }

    /// The earliest instant at which time alone changes something: an event or a batch expires,
    /// or, while the link can take a batch, one becomes due. It is past only if something can be
    /// done at once, which is never so when all polls have returned `None`.
    pub(crate) fn poll_deadline(&self) -> Option<Instant> {
        let flight = self.flight.iter().map(|sent| sent.batch.deadline);
        let queue = self.queue.iter().map(|batch| batch.deadline);
        let oldest = self.open.block.oldest();
        let open = oldest.map(|times| later(times.received, self.limits.delivery_timeout));
        let expiry = flight.chain(queue).chain(open).min();

        let due = match self.queue.front() {
            // Ages and back-offs that end while nothing can be sent wait for the link.
            _ if !self.can_submit() => None,
            Some(batch) => batch
                .not_before
                .or(batch.block.oldest().map(|times| times.received)),
            None => oldest.map(|times| match self.overdue() {
                Some(_) => times.since,
                None => later(times.since, self.limits.max_wait),
            }),
        };
        expiry.into_iter().chain(due).min()
    }

    /// What the open batch still takes before it is full; `None` if there is none.
    pub(crate) fn room(&self) -> Option<Room> {
        if self.open.is_empty() {
            return None;
        }
        if self.full().is_some() {
            return Some(Room {
                events: 0,
                bytes: 0,
            });
        }
        let events = self
            .limits
            .max_batch_events
            .saturating_sub(self.open.block.entries.len());
        let bytes = self.batch_limit().saturating_sub(self.open.block.bytes);
        Some(Room { events, bytes })
    }

    /// How many events, and how many encoded bytes, are inside: not polled in a report.
    pub(crate) fn held(&self) -> (u64, u64) {
        self.held
    }

    /// True if no event is inside, no report waits to be polled and no cut is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest_held().is_none() && self.reports.is_empty() && self.cuts.is_empty()
    }

    /// The outcomes of all events ever handed in that have one.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn stats(&self) -> &CoreStats {
        &self.stats
    }

    /// When the oldest event without an outcome was handed in.
    /// Batches that were handed out and have no answer yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.flight.len()
    }

    pub(crate) fn oldest_receipt(&self) -> Option<Instant> {
        let flight = self.flight.iter().map(|sent| &sent.batch.block);
        let queue = self.queue.iter().map(|batch| &batch.block);
        let blocks = flight.chain(queue).chain([&self.open.block]);
        blocks
            .filter_map(Block::oldest)
            .map(|times| times.received)
            .min()
    }
}

/// Questions the core asks itself.
impl<T> LaneCore<T> {
    /// The size at which a batch is full.
    fn batch_limit(&self) -> usize {
        let target = self.limits.max_batch_bytes;
        self.link.max_message.map_or(target, |max| target.min(max))
    }

    /// The link's limit, if the event alone would exceed it.
    fn oversize(&self, entry: &Entry<T>) -> Option<usize> {
        self.link.max_message.filter(|max| section(entry) > *max)
    }

    /// True if the event may join the open batch. An empty one takes any event.
    fn open_takes(&self, seq: u64, section: usize) -> bool {
        let block = &self.open.block;
        block.entries.is_empty()
            || (block.entries.len() < self.limits.max_batch_events
                && block.bytes.saturating_add(section) <= self.batch_limit()
                // Nor may a batch span an event that failed alone: its numbers have no gap.
                && block.first + block.len() == seq)
    }

    /// Why the open batch takes no more events, if it does not.
    fn full(&self) -> Option<Trigger> {
        if self.open.is_empty() {
            None
        } else if self.open.block.entries.len() >= self.limits.max_batch_events {
            Some(Trigger::Count)
        } else if !self.backlog.is_empty() || self.open.block.bytes >= self.batch_limit() {
            Some(Trigger::Size)
        } else {
            None
        }
    }

    /// Why the open batch must go now, if it must.
    fn due(&self, now: Instant) -> Option<Trigger> {
        let oldest = self.open.block.oldest()?;
        let aged = || (later(oldest.since, self.limits.max_wait) <= now).then_some(Trigger::Age);
        self.overdue().or_else(aged)
    }

    /// Why the open batch must go whatever its age, if it must.
    fn overdue(&self) -> Option<Trigger> {
        if self.open.is_empty() {
            return None;
        }
        let first = self.open.block.first;
        if let Some(trigger) = self.full() {
            Some(trigger)
        } else if self.cuts.last().is_some_and(|cut| cut > first) {
            Some(Trigger::Flush)
        } else if self.pressed > first {
            Some(Trigger::Pressure)
        } else if self.phase >= Phase::Closing {
            Some(Trigger::Close)
        } else {
            None
        }
    }

    /// True if a batch could be handed to the link now, were one ready.
    fn can_submit(&self) -> bool {
        self.link.up
            && !self.link.busy
            && self.cancels.is_empty()
            && self.phase < Phase::Returning
            && self.flight.len() < self.limits.window.max(1)
            && (self.flight.is_empty() || !self.recovering)
    }

    /// The sequence number of the oldest event without an outcome.
    fn oldest_held(&self) -> Option<u64> {
        let flight = self.flight.iter().map(|sent| sent.batch.block.first);
        let queue = self.queue.iter().map(|batch| batch.block.first);
        let open = (!self.open.is_empty()).then_some(self.open.block.first);
        let backlog = self.backlog.front().map(|waiting| waiting.seq);
        flight.chain(queue).chain(open).chain(backlog).min()
    }
}
