//! Callers that take any lane, and wait for the first of several to have room.

use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use crate::sync::{Clock, Instant, Monitor};

/// Where such callers wait; the lanes of one producer share it.
///
/// They queue at no lane: one of those may be stuck while another has room. Each tries all
/// lanes, and again whenever one of them has changed. Waiting is the exception, so a lane looks
/// for waiters with one load:
///
/// ```text
/// lane                                 caller
/// word -= permits        (a)           waiting += 1           (c)
/// fence(SeqCst)                        fence(SeqCst)
/// waiting ≠ 0? → announce (b)          try every word         (d)
///                                      wait for an announcement since before (d)
/// ```
///
/// The fences order (a)(b) against (c)(d): if (b) misses a waiter, its (d) sees the room.
#[derive(Debug)]
pub(crate) struct AnyRoom {
    waiting: AtomicUsize,
    announcements: Monitor<u64>,
}

impl AnyRoom {
    pub(crate) fn new() -> AnyRoom {
        AnyRoom {
            waiting: AtomicUsize::new(0),
            announcements: Monitor::new(0),
        }
    }

    /// A lane has given permits back, or was shut.
    pub(crate) fn announce(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.announcements.update(|count| *count += 1);
        }
    }

    /// Makes attempts until one yields something; `None` if `deadline` passes first.
    pub(crate) fn wait<R>(
        &self,
        clock: &Clock,
        deadline: Option<Instant>,
        attempt: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let result = self.attempt_until(clock, deadline, attempt);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }

    fn attempt_until<R>(
        &self,
        clock: &Clock,
        deadline: Option<Instant>,
        mut attempt: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        loop {
            let seen = self.announcements.with(|count| *count);
            if let Some(result) = attempt() {
                return Some(result);
            }
            self.announcements
                .wait(clock, deadline, |count| (*count != seen).then_some(()))?;
        }
    }
}
