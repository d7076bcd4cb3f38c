//! The queue of callers that wait for permits of one lane.

use super::word::{Permits, Refusal, Word};
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Arc, Clock, Instant, Mutex, ParkRole, Unparker};
use std::collections::VecDeque;

const QUEUED: u8 = 0;
const GRANTED: u8 = 1;
const CLOSED: u8 = 2;
const DEAD: u8 = 3;

/// Why a wait for permits ended without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    TimedOut,
    Closed,
    Dead,
    Unborn,
}

impl WaitEnd {
    fn of(refusal: Refusal) -> Option<WaitEnd> {
        match refusal {
            Refusal::Full => None,
            Refusal::Unborn => Some(WaitEnd::Unborn),
            Refusal::Closed => Some(WaitEnd::Closed),
            Refusal::Dead => Some(WaitEnd::Dead),
        }
    }
}

/// First come, first served; permits are handed over, not raced for.
///
/// The thread that releases takes the permits *for* the first waiter, under the queue's lock,
/// and only then wakes it. So a wake cannot be lost or stolen: a waiter that times out at that
/// instant looks at its state under the same lock and finds itself granted.
///
/// The word's `waiting` bit is set exactly while the queue is not empty. It is set by the
/// compare-exchange that found no room, hence a release that comes later in the word's
/// modification order sees it and comes here; one that came earlier made the compare-exchange
/// fail.
#[derive(Debug)]
pub(crate) struct Waiters {
    queue: Mutex<VecDeque<Arc<Waiter>>>,
}

#[derive(Debug)]
struct Waiter {
    want: Permits,
    /// Written under the queue's lock; the final value is published with Release.
    state: AtomicU8,
    unparker: Unparker,
}

impl Waiter {
    fn ended(&self) -> Option<Result<(), WaitEnd>> {
        match self.state.load(Ordering::Acquire) {
            GRANTED => Some(Ok(())),
            CLOSED => Some(Err(WaitEnd::Closed)),
            DEAD => Some(Err(WaitEnd::Dead)),
            _ => None,
        }
    }

    fn end(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.unparker.unpark();
    }
}

impl Waiters {
    pub(crate) fn new() -> Waiters {
        Waiters {
            queue: Mutex::new(VecDeque::new()),
        }
    }

    /// Waits for permits until `deadline`. `on_wait` runs once if the caller has to queue.
    pub(crate) fn acquire(
        &self,
        word: &Word,
        want: Permits,
        bounds: Permits,
        clock: &Clock,
        deadline: Option<Instant>,
        on_wait: impl FnOnce(),
    ) -> Result<(), WaitEnd> {
        let parker = clock.parker(ParkRole::Caller);
        let waiter = Arc::new(Waiter {
            want,
            state: AtomicU8::new(QUEUED),
            unparker: parker.unparker(),
        });
        {
            let mut queue = self.queue.lock();
            // With others ahead the caller does not even try; close and death empty the
            // queue under this lock after they have set their bit, so a waiter that they
            // missed sees the bit here.
            let attempt = if queue.is_empty() {
                word.admit_or_wait(want, bounds)
            } else {
                let reading = word.read();
                if reading.is_dead() {
                    Err(Refusal::Dead)
                } else if reading.is_closed() {
                    Err(Refusal::Closed)
                } else {
                    Err(Refusal::Full)
                }
            };
            match attempt.map_err(WaitEnd::of) {
                Ok(()) => return Ok(()),
                Err(Some(end)) => return Err(end),
                Err(None) => queue.push_back(Arc::clone(&waiter)),
            }
        }
        on_wait();
        loop {
            if let Some(ended) = waiter.ended() {
                return ended;
            }
            if deadline.is_some_and(|deadline| clock.now() >= deadline) {
                return self.leave(&waiter, word, bounds);
            }
            parker.park(deadline);
        }
    }

    /// A waiter gives up, unless it was served at the last moment.
    fn leave(&self, waiter: &Arc<Waiter>, word: &Word, bounds: Permits) -> Result<(), WaitEnd> {
        let mut queue = self.queue.lock();
        if let Some(ended) = waiter.ended() {
            return ended;
        }
        queue.retain(|other| !Arc::ptr_eq(other, waiter));
        // The one behind may want less than this one did.
        Waiters::serve(&mut queue, word, bounds);
        Err(WaitEnd::TimedOut)
    }

    /// Hands freed permits on. Called after every release that saw the `waiting` bit.
    pub(crate) fn grant(&self, word: &Word, bounds: Permits) {
        Waiters::serve(&mut self.queue.lock(), word, bounds);
    }

    fn serve(queue: &mut VecDeque<Arc<Waiter>>, word: &Word, bounds: Permits) {
        while let Some(first) = queue.front() {
            // A closed or dead lane refuses too: its queue is about to be emptied.
            if word.admit_waiter(first.want, bounds).is_err() {
                return;
            }
            first.end(GRANTED);
            queue.pop_front();
        }
        word.clear_waiting();
    }

    /// Sends everybody away, after the word was closed or killed.
    pub(crate) fn dismiss(&self, word: &Word) {
        let mut queue = self.queue.lock();
        let state = if word.read().is_dead() { DEAD } else { CLOSED };
        for waiter in queue.drain(..) {
            waiter.end(state);
        }
        word.clear_waiting();
    }
}
