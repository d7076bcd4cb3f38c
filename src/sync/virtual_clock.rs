//! Time that moves only when a test says so.

use super::ParkRole;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long, in real time, [`VirtualClock::advance`] lets the engine settle before it
/// panics: only a thread that is stuck in user code takes as long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A clock for tests: it stands still until [`advance`](VirtualClock::advance) moves it.
///
/// Every wait of a producer built with this clock (batching, back-off, deadlines, time-outs
/// of callers) ends by it. `advance` steps from deadline to deadline, wakes whoever waits for
/// that instant, and goes on only when every engine thread is parked again, so there is no
/// race between time and threads.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Signalled when a thread parks or leaves.
    quieter: Condvar,
}

struct State {
    now: Instant,
    next_id: u64,
    parkers: BTreeMap<u64, Slot>,
    timers: BTreeMap<(Instant, u64), Box<dyn FnOnce() + Send>>,
}

struct Slot {
    role: ParkRole,
    token: bool,
    /// Present while its thread is parked and nothing has released it.
    parked: Option<Option<Instant>>,
    wake: Arc<Condvar>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VirtualClock")
    }
}

impl Default for VirtualClock {
    fn default() -> VirtualClock {
        VirtualClock::new()
    }
}

impl VirtualClock {
    /// A clock that stands at an arbitrary instant.
    pub fn new() -> VirtualClock {
        VirtualClock {
            inner: Arc::new(Inner {
                state: Mutex::new(State {
                    now: Instant::now(),
                    next_id: 0,
                    parkers: BTreeMap::new(),
                    timers: BTreeMap::new(),
                }),
                quieter: Condvar::new(),
            }),
        }
    }

    /// The instant at which the clock stands.
    pub fn now(&self) -> Instant {
        self.inner.state.lock().now
    }

    /// Moves time forward by `by`, one deadline at a time, and returns when every engine
    /// thread is parked and nothing is due any more.
    ///
    /// # Panics
    ///
    /// If an engine thread does not come to rest within 30 seconds of real time, as when
    /// a delivery handler blocks.
    pub fn advance(&self, by: Duration) {
        let target = self.now() + by;
        loop {
            self.settle();
            let mut state = self.inner.state.lock();
            let Some(next) = state.next_deadline().filter(|next| *next <= target) else {
                state.now = state.now.max(target);
                return;
            };
            state.now = state.now.max(next);
            state.release_due();
            let timers = state.take_due_timers();
            drop(state);
            for timer in timers {
                timer();
            }
        }
    }

    /// Waits until every engine thread is parked, without moving time.
    ///
    /// # Panics
    ///
    /// As [`advance`](VirtualClock::advance).
    pub fn settle(&self) {
        let limit = Instant::now() + PATIENCE;
        let mut state = self.inner.state.lock();
        loop {
            // What is due at this very instant counts as not yet quiet.
            let timers = state.take_due_timers();
            if !timers.is_empty() {
                drop(state);
                for timer in timers {
                    timer();
                }
                state = self.inner.state.lock();
                continue;
            }
            state.release_due();
            if state.is_quiet() {
                return;
            }
            let timed_out = self.inner.quieter.wait_until(&mut state, limit).timed_out();
            assert!(
                !timed_out || state.is_quiet(),
                "an engine thread did not come to rest within {PATIENCE:?}: is a handler blocked?"
            );
        }
    }

    /// Waits until at least `callers` threads of the application are blocked in the producer,
    /// as in an enqueue into a full partition, a flush, a close or a wait for a ticket.
    ///
    /// # Panics
    ///
    /// If that is not so within 30 seconds of real time.
    pub fn wait_for_callers(&self, callers: usize) {
        let limit = Instant::now() + PATIENCE;
        let mut state = self.inner.state.lock();
        while state.blocked_callers() < callers {
            let timed_out = self.inner.quieter.wait_until(&mut state, limit).timed_out();
            assert!(
                !timed_out || state.blocked_callers() >= callers,
                "{callers} callers did not block within {PATIENCE:?}"
            );
        }
    }

    /// Runs `action` on the advancing thread once the clock has moved by `after`.
    pub(crate) fn schedule(&self, after: Duration, action: impl FnOnce() + Send + 'static) {
        let mut state = self.inner.state.lock();
        let id = state.take_id();
        let at = state.now + after;
        state.timers.insert((at, id), Box::new(action));
    }

    pub(crate) fn parker(&self, role: ParkRole) -> VirtualParker {
        let mut state = self.inner.state.lock();
        let id = state.take_id();
        state.parkers.insert(
            id,
            Slot {
                role,
                token: false,
                parked: None,
                wake: Arc::new(Condvar::new()),
            },
        );
        VirtualParker {
            inner: Arc::clone(&self.inner),
            id,
        }
    }
}

impl State {
    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn is_quiet(&self) -> bool {
        self.parkers
            .values()
            .all(|slot| slot.role == ParkRole::Caller || slot.parked.is_some())
    }

    fn blocked_callers(&self) -> usize {
        self.parkers
            .values()
            .filter(|slot| slot.role == ParkRole::Caller && slot.parked.is_some())
            .count()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let parked = self.parkers.values().filter_map(|slot| slot.parked?);
        let timers = self.timers.keys().map(|(at, _)| *at);
        parked.chain(timers).min()
    }

    fn release_due(&mut self) {
        let now = self.now;
        for slot in self.parkers.values_mut() {
            if slot.parked.flatten().is_some_and(|at| at <= now) {
                slot.parked = None;
                slot.wake.notify_one();
            }
        }
    }

    fn take_due_timers(&mut self) -> Vec<Box<dyn FnOnce() + Send>> {
        let mut due = Vec::new();
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            due.push(entry.remove());
        }
        due
    }
}

pub(crate) struct VirtualParker {
    inner: Arc<Inner>,
    id: u64,
}

#[derive(Clone)]
pub(crate) struct VirtualUnparker {
    inner: Arc<Inner>,
    id: u64,
}

impl VirtualParker {
    pub(crate) fn unparker(&self) -> VirtualUnparker {
        VirtualUnparker {
            inner: Arc::clone(&self.inner),
            id: self.id,
        }
    }

    pub(crate) fn park(&self, deadline: Option<Instant>) {
        let mut state = self.inner.state.lock();
        let now = state.now;
        let Some(slot) = state.parkers.get_mut(&self.id) else {
            return;
        };
        if std::mem::take(&mut slot.token) || deadline.is_some_and(|at| at <= now) {
            return;
        }
        slot.parked = Some(deadline);
        let wake = Arc::clone(&slot.wake);
        self.inner.quieter.notify_all();
        // Released by an unpark or by `advance`, both of which clear `parked`.
        while state
            .parkers
            .get(&self.id)
            .is_some_and(|slot| slot.parked.is_some())
        {
            wake.wait(&mut state);
        }
        if let Some(slot) = state.parkers.get_mut(&self.id) {
            slot.token = false;
        }
    }
}

impl Drop for VirtualParker {
    fn drop(&mut self) {
        self.inner.state.lock().parkers.remove(&self.id);
        self.inner.quieter.notify_all();
    }
}

impl VirtualUnparker {
    pub(crate) fn unpark(&self) {
        let mut state = self.inner.state.lock();
        if let Some(slot) = state.parkers.get_mut(&self.id) {
            slot.token = true;
            slot.parked = None;
            slot.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advance_steps_from_deadline_to_deadline() {
        let clock = VirtualClock::new();
        let start = clock.now();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let parker = clock.parker(ParkRole::Engine);
        let thread = std::thread::spawn({
            let (clock, seen) = (clock.clone(), Arc::clone(&seen));
            move || {
                for step in [2, 5, 9] {
                    let at = start + Duration::from_secs(step);
                    while clock.now() < at {
                        parker.park(Some(at));
                    }
                    seen.lock().push(clock.now() - start);
                }
            }
        });
        clock.advance(Duration::from_secs(6));
        assert_eq!(*seen.lock(), [2, 5].map(Duration::from_secs));
        clock.advance(Duration::from_secs(3));
        assert_eq!(*seen.lock(), [2, 5, 9].map(Duration::from_secs));
        assert!(thread.join().is_ok());
    }

    #[test]
    fn an_early_unpark_is_kept() {
        let clock = VirtualClock::new();
        let parker = clock.parker(ParkRole::Caller);
        parker.unparker().unpark();
        parker.park(None);
    }

    #[test]
    fn timers_fire_at_their_instant() {
        let clock = VirtualClock::new();
        let start = clock.now();
        let fired = Arc::new(Mutex::new(None));
        clock.schedule(Duration::from_millis(30), {
            let (clock, fired) = (clock.clone(), Arc::clone(&fired));
            move || *fired.lock() = Some(clock.now() - start)
        });
        clock.advance(Duration::from_millis(29));
        assert_eq!(*fired.lock(), None);
        clock.advance(Duration::from_secs(1));
        assert_eq!(*fired.lock(), Some(Duration::from_millis(30)));
    }
}
