//! The one thread of a lane: it owns the batch from its first event to its outcome.
//!
//! One pass: news of the link, orders to close, drain, submit, report, doze. Everything that
//! decides stands in [`LaneCore`]; this only moves things in and out of it.

use crate::contain::contain;
use crate::core::{Entry, FlushId, LaneCore, Limits, Report};
use crate::event::Event;
use crate::lane::{Accepted, Chunk, FlushWaiters, Inbox, Lane, Message, Permits, Rare};
use crate::partition::PartitionKey;
use crate::report::{FailureCause, Outcome};
use crate::reporter::{Finished, Reporter};
use crate::stats::EngineStats;
use crate::sync::{Arc, Clock, Instant, Mutex, atomic::AtomicBool, atomic::Ordering};
use crate::ticket::TicketSlot;
use crate::transport::{Link, LinkInbox, Transport};
use std::collections::VecDeque;
use std::time::Duration;

/// How long the core may want no events before the worker takes them in all the same.
///
/// An event's delivery time-out runs from its receipt here. While batches move, what waits in
/// the channel is received soon; behind a link that is down or a peer that is silent it would
/// be received only when those before it have failed, one time-out after another.
const STALL: Duration = Duration::from_millis(100);

/// What a closer asks of a lane; it stands beside the word's `closed` bit.
#[derive(Debug, Default)]
pub(crate) struct CloseOrder {
    changed: AtomicBool,
    wish: Mutex<Wish>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Wish {
    return_at: Option<Instant>,
    abort: bool,
}

impl CloseOrder {
    /// Asks for what is certain not to be stored back at `at`, at the earliest instant that
    /// any closer named. The caller wakes the worker.
    pub(crate) fn return_at(&self, at: Instant) {
        let mut wish = self.wish.lock();
        wish.return_at = Some(wish.return_at.map_or(at, |earlier| earlier.min(at)));
        drop(wish);
        self.changed.store(true, Ordering::Release);
    }

    /// Asks for the end at once. The caller wakes the worker.
    pub(crate) fn abort(&self) {
        self.wish.lock().abort = true;
        self.changed.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<Wish> {
        // Cleared before the look: a wish that comes after it sets the flag again.
        (self.changed.load(Ordering::Acquire) && self.changed.swap(false, Ordering::AcqRel))
            .then(|| *self.wish.lock())
    }
}

/// What a worker is started with.
pub(crate) struct WorkerParts {
    pub(crate) lane: Arc<Lane>,
    pub(crate) order: Arc<CloseOrder>,
    pub(crate) inbox: Inbox,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    pub(crate) reporter: Reporter,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) seed: u64,
}

/// Runs a lane until it is closed or dead and nothing is outstanding.
pub(crate) fn run(parts: WorkerParts) {
    crate::engine_thread::mark();
    let mut worker = Worker::new(parts);
    // A second panic leaves accepted events without an outcome, which only a fault in this very
    // file can do; even then nobody hangs.
    if !contain(|| worker.live()) && !contain(|| worker.die()) {
        contain(|| tracing::error!("a lane could not be wound up after its worker's panic"));
    }
    worker.end();
}

struct Worker {
    lane: Arc<Lane>,
    order: Arc<CloseOrder>,
    inbox: Inbox,
    clock: Clock,
    core: LaneCore<Option<TicketSlot>>,
    reporter: Reporter,
    transport: Arc<dyn Transport>,
    link: Option<Box<dyn Link>>,
    link_inbox: LinkInbox,
    /// What is left of a chunk of which the core did not want more yet. Here, not in a local:
    /// whatever panics, what was accepted is found again.
    chunk: std::vec::IntoIter<(Event, u32)>,
    chunk_key: Option<PartitionKey>,
    /// The cuts handed to the core, in its order.
    flushes: VecDeque<(FlushId, FlushWaiters)>,
    closing: bool,
    /// Since when the core has wanted no events, with no batch taken by the link.
    full_since: Option<Instant>,
    return_at: Option<Instant>,
    /// The lane was seen empty then: what comes later is not older.
    empty_at: Instant,
    wakes: u64,
}

impl Worker {
    fn new(parts: WorkerParts) -> Worker {
        let link_inbox = LinkInbox::new(parts.limits.window, parts.inbox.unparker());
        Worker {
            empty_at: parts.clock.now(),
            core: LaneCore::new(parts.limits, parts.seed),
            lane: parts.lane,
            order: parts.order,
            inbox: parts.inbox,
            clock: parts.clock,
            reporter: parts.reporter,
            transport: parts.transport,
            link: None,
            link_inbox,
            chunk: Vec::new().into_iter(),
            chunk_key: None,
            flushes: VecDeque::new(),
            closing: false,
            full_since: None,
            return_at: None,
            wakes: 0,
        }
    }

    fn live(&mut self) {
        self.link = Some(
            self.transport
                .open_link(self.lane.partition(), self.link_inbox.clone()),
        );
        let mut first_event_woke = false;
        loop {
            let now = self.clock.now();
            if first_event_woke {
                self.empty_at = now;
            }
            self.take_link_news(now);
            self.take_close_order(now);
            self.drain_and_submit(now);
            self.core.handle_timeout(now);
            // Before the next batch: the link is to be reset, and what it takes now would be
            // lost with what it is reset for.
            while let Some(id) = self.core.poll_cancel() {
                if let Some(link) = &mut self.link {
                    link.cancel(id);
                }
            }
            // An expiry may have made room for what stands behind it.
            self.submit(now);
            self.deliver_reports();
            if self.is_done() {
                return;
            }
            first_event_woke = self.doze();
        }
    }

    fn take_link_news(&mut self, now: Instant) {
        let Some(news) = self.link_inbox.take() else {
            return;
        };
        // Answers first: a link that went down answers for its deliveries as well.
        for (id, settlement) in news.settlements {
            self.core.handle_settled(now, id, settlement);
        }
        if let Some(state) = news.link {
            self.core.handle_link(now, &state);
        }
        if news.ready {
            self.core.handle_ready();
        }
    }

    fn take_close_order(&mut self, now: Instant) {
        if !self.closing && self.lane.reading().is_closed() {
            self.closing = true;
            self.core.handle_close(now);
        }
        if let Some(wish) = self.order.take() {
            self.return_at = wish.return_at;
            if wish.abort {
                self.core.handle_abort(now);
            }
        }
        if self.return_at.is_some_and(|at| now >= at) {
            self.return_at = None;
            self.core.handle_return(now);
        }
    }

    /// Takes what the core can use and hands over what is due, until one of the two is
    /// exhausted. Pressure is looked at after the drain: what it wants sealed is in the batch.
    fn drain_and_submit(&mut self, now: Instant) {
        loop {
            let emptied = self.drain(now);
            if self.lane.reading().has_pressure() {
                self.core.handle_pressure();
            }
            let submitted = self.submit(now);
            if emptied || !submitted {
                return;
            }
        }
    }

    /// True when the channel is empty, false when the core wants no more.
    fn drain(&mut self, now: Instant) -> bool {
        let stalled = self.is_stalled(now);
        while stalled || self.core.wants_events() {
            if let Some(accepted) = self.next_of_chunk() {
                self.hand_in(now, accepted);
                continue;
            }
            match self.inbox.try_recv() {
                Some(Message::One(accepted)) => self.hand_in(now, accepted),
                Some(Message::Rare(Rare::Many(chunk))) => self.open_chunk(chunk),
                Some(Message::Rare(Rare::Flush)) => {
                    let waiters = self.lane.take_flush();
                    let id = self.core.handle_flush(now);
                    match self.flushes.back_mut() {
                        Some((last, known)) if *last == id => {
                            known.retain(|waiter| waiter.is_wanted());
                            known.extend(waiters);
                        }
                        _ => self.flushes.push_back((id, waiters)),
                    }
                }
                None => {
                    self.empty_at = now;
                    return true;
                }
            }
        }
        false
    }

    /// True if the core has wanted no events for so long that their time-outs must begin.
    fn is_stalled(&self, now: Instant) -> bool {
        self.full_since.is_some_and(|since| now >= since + STALL)
    }

    fn open_chunk(&mut self, chunk: Chunk) {
        self.chunk = chunk.events.into_iter();
        self.chunk_key = chunk.key;
    }

    fn next_of_chunk(&mut self) -> Option<Accepted> {
        let (event, encoded_len) = self.chunk.next()?;
        Some(Accepted {
            event,
            key: self.chunk_key.clone(),
            ticket: None,
            encoded_len,
        })
    }

    fn hand_in(&mut self, now: Instant, accepted: Accepted) {
        if !self.core.wants_events() {
            // Taken in beyond what is wanted: the next such lot a while later, all at once.
            self.full_since = Some(now);
        }
        self.core.handle_event(
            now,
            self.empty_at,
            Entry {
                event: accepted.event,
                key: accepted.key,
                encoded_len: accepted.encoded_len,
                tag: accepted.ticket,
            },
        );
    }

    /// True if the link took anything.
    fn submit(&mut self, now: Instant) -> bool {
        let mut submitted = false;
        while let Some(delivery) = self.core.poll_batch(now) {
            let id = delivery.id;
            let taken = match &mut self.link {
                Some(link) => link.submit(delivery).is_ok(),
                None => false,
            };
            if !taken {
                self.core.handle_busy(id);
                break;
            }
            submitted = true;
        }
        if submitted {
            self.full_since = None;
        }
        submitted
    }

    fn deliver_reports(&mut self) {
        while let Some(report) = self.core.poll_report() {
            self.deliver(report);
        }
        self.publish_stats();
    }

    fn deliver(&mut self, report: Report<Option<TicketSlot>>) {
        match report {
            Report::Batch {
                first,
                outcome,
                entries,
                attempts,
            } => {
                let batch = Finished {
                    first,
                    entries,
                    attempts,
                };
                self.reporter.report(&self.lane, outcome, batch);
            }
            Report::Flush { id, counts } => {
                self.publish_stats();
                if let Some((expected, waiters)) = self.flushes.pop_front() {
                    debug_assert_eq!(expected, id, "cuts complete in order");
                    self.lane.complete_flush(waiters, counts);
                }
            }
        }
    }

    fn publish_stats(&self) {
        let engine = EngineStats {
            core: *self.core.stats(),
            in_flight: self.core.in_flight() as u64,
            oldest_receipt: self.core.oldest_receipt(),
            wakes: self.wakes,
            producer_unparks: self.lane.producer_unparks(),
            handler_panics: self.reporter.handler_panics(),
        };
        self.reporter.publish(engine);
    }

    /// Closed, and nothing that was accepted is without its outcome. No event can come any
    /// more: admission and the closed bit are one word.
    fn is_done(&self) -> bool {
        let word = self.lane.reading();
        word.is_closed() && word.events() == 0 && self.core.is_empty()
    }

    /// True if it was an empty lane's first event that ended the wait.
    fn doze(&mut self) -> bool {
        let now = self.clock.now();
        if self.core.wants_events() {
            self.full_since = None;
        } else {
            self.full_since.get_or_insert(now);
        }
        let takes_events = self.core.wants_events() || self.is_stalled(now);
        if takes_events && !self.chunk.as_slice().is_empty() {
            // An expiry made room after the drain, and this is in no channel that doze looks at.
            return false;
        }
        let stall = self.full_since.map(|since| since + STALL);
        let deadline = [
            self.core.poll_deadline(),
            self.return_at,
            stall.filter(|_| !takes_events),
        ]
        .into_iter()
        .flatten()
        .min();
        let wake_at = takes_events.then(|| self.wake_mark());
        let idle = self.core.room().is_none();
        let parked = self.inbox.doze(&self.lane, wake_at, deadline);
        self.wakes += u64::from(parked);
        parked && idle && wake_at.is_some()
    }

    /// The amount outstanding that is worth a wake: what is held here already, and the first
    /// event if no batch is open, else what fills the batch or half the lane.
    fn wake_mark(&self) -> Permits {
        let (held_events, held_bytes) = self.core.held();
        let bounds = self.lane.bounds();
        let (events, bytes) = match self.core.room() {
            Some(room) if !self.closing => (
                (room.events as u64).min(bounds.events / 2).max(1),
                (room.bytes as u64).min(bounds.bytes / 2).max(1),
            ),
            _ => (1, u64::MAX / 2),
        };
        Permits {
            events: held_events + events,
            bytes: held_bytes + bytes,
        }
    }

    /// After a panic: the gate is shut, everything inside gets an outcome, and what callers
    /// had admitted by then is waited for and gets one too.
    fn die(&mut self) {
        self.lane.kill();
        self.drop_link();
        let salvage = self.core.salvage();
        for report in salvage.reports {
            self.deliver(report);
        }
        // Dropped, which breaks them: their cut will never be complete.
        debug_assert!(
            salvage
                .broken
                .iter()
                .eq(self.flushes.iter().map(|(id, _)| id))
        );
        self.flushes.clear();
        while self.lane.reading().events() > 0 {
            if let Some(accepted) = self.next_of_chunk() {
                self.bury(accepted);
                continue;
            }
            match self.inbox.try_recv() {
                Some(Message::One(accepted)) => self.bury(accepted),
                Some(Message::Rare(Rare::Many(chunk))) => self.open_chunk(chunk),
                Some(Message::Rare(Rare::Flush)) => drop(self.lane.take_flush()),
                None => {
                    // Admitted, and about to be sent.
                    let first = Permits {
                        events: 1,
                        bytes: u64::MAX / 2,
                    };
                    self.inbox.doze(&self.lane, Some(first), None);
                }
            }
        }
        self.publish_stats();
    }

    fn bury(&mut self, accepted: Accepted) {
        let entry = Entry {
            event: accepted.event,
            key: accepted.key,
            encoded_len: accepted.encoded_len,
            tag: accepted.ticket,
        };
        let outcome = Outcome::Failed(Arc::new(FailureCause::LaneDied));
        let batch = Finished {
            first: u64::MAX,
            entries: vec![entry],
            attempts: 0,
        };
        self.reporter.report(&self.lane, outcome, batch);
    }

    /// A transport's destructor is as foreign as the rest of it.
    fn drop_link(&mut self) {
        let link = self.link.take();
        contain(|| drop(link));
    }

    fn end(mut self) {
        self.drop_link();
        self.publish_stats();
        self.lane.end(self.reporter.counts());
    }
}
