//! The lane's private parts, opened for the models in loom-tests (`cfg(loom)` alone).

use crate::lane::{AnyRoom, Permits, RefusedBecause, Waiters, Wake, Word};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Clock, Instant, ParkRole, Parker, Unparker};

/// The wake handshake over a bare count in place of the channel: a mutex in a stand-in
/// channel would hide a missing fence.
pub struct Handshake {
    word: Word,
    wake: Wake,
    sent: AtomicUsize,
    unparker: Unparker,
}

/// The worker's end of a [`Handshake`].
pub struct Dozer(Parker);

const WIDE: Permits = Permits {
    events: 100,
    bytes: 1 << 20,
};

impl Handshake {
    /// A born lane's word and wake, with nothing outstanding.
    pub fn new() -> (Handshake, Dozer) {
        let parker = Clock::System.parker(ParkRole::Engine);
        let word = Word::unborn();
        word.bear();
        let handshake = Handshake {
            word,
            wake: Wake::awake(),
            sent: AtomicUsize::new(0),
            unparker: parker.unparker(),
        };
        (handshake, Dozer(parker))
    }

    /// What `Lane::send` does, in its order: admit, send, claim, unpark.
    pub fn produce(&self) {
        let one = Permits {
            events: 1,
            bytes: 1,
        };
        assert_eq!(self.word.admit(one, WIDE), Ok(()));
        // Relaxed: the handshake's own fences must suffice.
        self.sent.fetch_add(1, Ordering::Relaxed);
        if self.wake.claim(&self.word) {
            self.unparker.unpark();
        }
    }

    /// What the worker does: drain, publish, re-check emptiness, park; until the amount
    /// outstanding has reached `events` of which `drained` are with it already.
    pub fn doze_until(&self, dozer: &Dozer, events: usize) {
        let mut drained = 0;
        loop {
            drained += self.sent.swap(0, Ordering::Relaxed);
            if drained >= events {
                return;
            }
            self.wake.publish(Permits {
                events: events as u64,
                bytes: u64::MAX / 2,
            });
            if self.sent.load(Ordering::Relaxed) == 0 {
                dozer.0.park(None);
            }
            self.wake.withdraw();
        }
    }
}

/// A lane's permits and those who wait for them.
pub struct PermitQueue {
    word: Word,
    waiters: Waiters,
    bounds: Permits,
}

impl PermitQueue {
    /// Room for `events` events.
    pub fn new(events: u64) -> PermitQueue {
        let word = Word::unborn();
        word.bear();
        PermitQueue {
            word,
            waiters: Waiters::new(),
            bounds: Permits {
                events,
                bytes: 1 << 20,
            },
        }
    }

    fn permits(events: u64) -> Permits {
        Permits { events, bytes: 0 }
    }

    /// Takes permits without waiting.
    pub fn try_take(&self, events: u64) -> bool {
        self.word.admit(Self::permits(events), self.bounds).is_ok()
    }

    /// Takes permits as `Lane::send` does: at once, or in the queue. `expired` waits with a
    /// deadline that has passed. `Err(true)` is a time-out, `Err(false)` the closed lane.
    pub fn take(&self, events: u64, expired: bool) -> Result<(), bool> {
        if self.try_take(events) {
            return Ok(());
        }
        let deadline: Option<Instant> = expired.then(|| Clock::System.now());
        self.waiters
            .acquire(
                &self.word,
                Self::permits(events),
                self.bounds,
                &Clock::System,
                deadline,
                || {},
            )
            .map_err(|end| RefusedBecause::from(end) == RefusedBecause::TimedOut)
    }

    /// Gives permits back, as `Lane::release` does.
    pub fn release(&self, events: u64) {
        if self.word.release(Self::permits(events)).has_waiters() {
            self.waiters.grant(&self.word, self.bounds);
        }
    }

    /// Shuts the gate, as `Lane::close` does.
    pub fn close(&self) {
        self.word.close();
        self.waiters.dismiss(&self.word);
    }

    /// Events outstanding.
    pub fn outstanding(&self) -> u64 {
        self.word.read().events()
    }

    /// True if the word says that somebody waits.
    pub fn has_waiters(&self) -> bool {
        self.word.read().has_waiters()
    }
}

/// Lanes of one permit each, for callers that take any of them.
pub struct AnyLane {
    lanes: Vec<PermitQueue>,
    room: AnyRoom,
}

impl AnyLane {
    /// `lanes` lanes, each with its permit taken.
    pub fn full(lanes: usize) -> AnyLane {
        let lanes: Vec<_> = (0..lanes).map(|_| PermitQueue::new(1)).collect();
        for lane in &lanes {
            assert!(lane.try_take(1));
        }
        AnyLane {
            lanes,
            room: AnyRoom::new(),
        }
    }

    /// Takes a permit of any lane, as `Engine::admit_any` does: which lane's.
    pub fn take_any(&self) -> Option<usize> {
        self.room.wait(&Clock::System, None, || {
            self.lanes.iter().position(|lane| lane.try_take(1))
        })
    }

    /// Gives a lane's permit back, as `Lane::release` does.
    pub fn release(&self, lane: usize) {
        self.lanes[lane].release(1);
        self.room.announce();
    }
}
