//! A claim on one event's outcome.

use crate::report::{FailureCause, Outcome};
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};
use crate::sync::{Arc, Clock, Instant, Monitor, Mutex};
use std::collections::HashMap;
use std::time::Duration;

/// Tickets per allocation.
#[cfg(not(loom))]
const BLOCK: usize = 256;
#[cfg(loom)]
const BLOCK: usize = 2;

const PENDING: u8 = 0;
const DELIVERED: u8 = 1;
const FAILED: u8 = 2;
const INDETERMINATE: u8 = 3;
const RETURNED: u8 = 4;

/// A shared block of slots, one a ticket.
///
/// A slot is written once, with Release, by the worker; waiting is the exception, so the
/// settling side looks for waiters with one load: it stores the slot, fences, reads
/// `waiting`; a waiter raises `waiting`, fences, reads the slot. One of the two sees the
/// other.
#[derive(Debug)]
struct Block {
    slots: [AtomicU8; BLOCK],
    waiting: AtomicU32,
    /// Why slots failed, for the few that do; also what waiters park on.
    causes: Monitor<HashMap<u32, Arc<FailureCause>>>,
    process: u32,
}

impl Block {
    fn new() -> Arc<Block> {
        Arc::new(Block {
            slots: std::array::from_fn(|_| AtomicU8::new(PENDING)),
            waiting: AtomicU32::new(0),
            causes: Monitor::new(HashMap::new()),
            process: std::process::id(),
        })
    }

    fn read(&self, index: u32) -> Option<Outcome> {
        let cause = || {
            self.causes
                .with(|causes| causes.get(&index).cloned())
                .unwrap_or_else(|| Arc::new(FailureCause::LaneDied))
        };
        match self.slots[index as usize].load(Ordering::Acquire) {
            DELIVERED => Some(Outcome::Delivered),
            FAILED => Some(Outcome::Failed(cause())),
            INDETERMINATE => Some(Outcome::Indeterminate(cause())),
            RETURNED => Some(Outcome::Returned),
            _ => None,
        }
    }
}

/// The worker's end of a ticket. Dropped without an outcome, as only an unforeseen unwind
/// can, it answers `Indeterminate`: a ticket never waits for ever.
#[derive(Debug)]
pub(crate) struct TicketSlot {
    block: Arc<Block>,
    index: u32,
}

impl TicketSlot {
    pub(crate) fn resolve(self, outcome: &Outcome) {
        self.store(outcome);
    }

    fn store(&self, outcome: &Outcome) {
        let (state, cause) = match outcome {
            Outcome::Delivered => (DELIVERED, None),
            Outcome::Failed(cause) => (FAILED, Some(cause)),
            Outcome::Indeterminate(cause) => (INDETERMINATE, Some(cause)),
            Outcome::Returned => (RETURNED, None),
        };
        if let Some(cause) = cause {
            let cause = Arc::clone(cause);
            self.block
                .causes
                .with(|causes| causes.insert(self.index, cause));
        }
        self.block.slots[self.index as usize].store(state, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.block.waiting.load(Ordering::Relaxed) != 0 {
            self.block.causes.update(|_| ());
        }
    }
}

impl Drop for TicketSlot {
    fn drop(&mut self) {
        // Only the worker writes the slot: what it reads here is its own store.
        if self.block.slots[self.index as usize].load(Ordering::Relaxed) == PENDING {
            self.store(&Outcome::Indeterminate(Arc::new(FailureCause::LaneDied)));
        }
    }
}

/// A claim on the outcome of one event, from
/// [`Producer::enqueue_tracked`](crate::Producer::enqueue_tracked).
///
/// Dropping it loses nothing: the event's outcome still reaches the delivery handler, flush
/// and the statistics.
#[derive(Debug)]
#[must_use = "a ticket that nobody waits for says nothing"]
pub struct Ticket {
    block: Arc<Block>,
    index: u32,
    clock: Clock,
}

/// Why a wait for a ticket ended without an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// The time-out passed; the ticket is still good.
    #[error("no outcome within the time-out")]
    TimedOut,
    /// The caller is an engine thread, which the outcome may depend on.
    #[error("an engine thread must not wait for an outcome")]
    WouldDeadlock,
    /// The process was forked; the outcome will be known to the parent alone.
    #[error("the producer belongs to the parent of this forked process")]
    Forked,
}

impl Ticket {
    /// The outcome, if there is one yet. Never blocks.
    pub fn poll(&self) -> Option<Outcome> {
        self.block.read(self.index)
    }

    /// Waits for the outcome. An accepted event always gets one: at the latest when its
    /// delivery time-out has passed and the handler has returned for the batches before it.
    ///
    /// # Errors
    ///
    /// [`TicketError::WouldDeadlock`] on an engine thread, as inside a delivery handler.
    pub fn wait(&self) -> Result<Outcome, TicketError> {
        self.wait_until(None)
    }

    /// Waits for the outcome for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`TicketError::TimedOut`] if there is none by then, and
    /// [`TicketError::WouldDeadlock`] on an engine thread.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Outcome, TicketError> {
        self.wait_until(self.clock.now().checked_add(timeout))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Result<Outcome, TicketError> {
        if let Some(outcome) = self.poll() {
            return Ok(outcome);
        }
        if crate::engine_thread::is_current() {
            return Err(TicketError::WouldDeadlock);
        }
        if std::process::id() != self.block.process {
            return Err(TicketError::Forked);
        }
        self.block.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let slot = &self.block.slots[self.index as usize];
        // The slot alone under the monitor's lock: its causes are behind that lock too.
        let resolved = self.block.causes.wait(&self.clock, deadline, |_| {
            (slot.load(Ordering::Acquire) != PENDING).then_some(())
        });
        self.block.waiting.fetch_sub(1, Ordering::Relaxed);
        resolved
            .and_then(|()| self.poll())
            .ok_or(TicketError::TimedOut)
    }
}

/// Hands out tickets, a block at a time.
#[derive(Debug)]
pub(crate) struct TicketSource {
    open: Mutex<Option<(Arc<Block>, u32)>>,
}

impl TicketSource {
    pub(crate) fn new() -> TicketSource {
        TicketSource {
            open: Mutex::new(None),
        }
    }

    pub(crate) fn issue(&self, clock: &Clock) -> (Ticket, TicketSlot) {
        let mut open = self.open.lock();
        let (block, index) = match open.take() {
            Some((block, next)) if (next as usize) < BLOCK => (block, next),
            _ => (Block::new(), 0),
        };
        *open = Some((Arc::clone(&block), index + 1));
        drop(open);
        let ticket = Ticket {
            block: Arc::clone(&block),
            index,
            clock: clock.clone(),
        };
        (ticket, TicketSlot { block, index })
    }
}
