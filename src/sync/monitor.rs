//! A value that threads can wait on: a mutex, a list of parked waiters, and the clock.

use super::{Clock, Instant, Mutex, ParkRole, Unparker};

/// State under a mutex, with waits that end by a deadline of the [`Clock`].
///
/// It takes the place of a condition variable, whose time-outs neither virtual time nor a
/// model checker can see. Used off the hot path only: flush, close, tickets that are waited
/// for, start-up.
#[derive(Debug)]
pub(crate) struct Monitor<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    value: T,
    /// One entry per waiting thread at most.
    waiters: Vec<(u64, Unparker)>,
    next_id: u64,
}

impl<T> Monitor<T> {
    pub(crate) fn new(value: T) -> Monitor<T> {
        Monitor {
            state: Mutex::new(State {
                value,
                waiters: Vec::new(),
                next_id: 0,
            }),
        }
    }

    /// Reads or changes the value without waking anyone.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.state.lock().value)
    }

    /// Changes the value and wakes every waiter, so that each looks at it again.
    pub(crate) fn update<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let (result, waiters) = {
            let mut state = self.state.lock();
            let result = f(&mut state.value);
            (result, std::mem::take(&mut state.waiters))
        };
        // Outside the lock: a woken thread takes it first thing.
        for (_, waiter) in waiters {
            waiter.unpark();
        }
        result
    }

    /// Waits until `ready` yields something or `deadline` passes (`None`).
    ///
    /// `ready` runs under the lock, at least once, also when the deadline has passed.
    pub(crate) fn wait<R>(
        &self,
        clock: &Clock,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        // The first look needs no parker: most waits are over before they begin.
        if let Some(result) = self.with(&mut ready) {
            return Some(result);
        }
        let parker = clock.parker(ParkRole::Caller);
        let mut registered = None;
        loop {
            {
                let mut state = self.state.lock();
                // An update has taken the entry out already; a wake by time has not.
                if let Some(id) = registered.take() {
                    state.waiters.retain(|(waiter, _)| *waiter != id);
                }
                if let Some(result) = ready(&mut state.value) {
                    return Some(result);
                }
                if deadline.is_some_and(|deadline| clock.now() >= deadline) {
                    return None;
                }
                // Registered under the lock that `update` takes: a change after this look
                // finds the waiter in the list.
                let id = state.next_id;
                state.next_id += 1;
                state.waiters.push((id, parker.unparker()));
                registered = Some(id);
            }
            parker.park(deadline);
        }
    }
}
