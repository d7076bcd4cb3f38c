//! The lane word: gate and permits of a lane in one atomic.

use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, Ordering};

const CLOSED: u64 = 1 << 63;
const DEAD: u64 = 1 << 62;
const UNBORN: u64 = 1 << 61;
const WAITING: u64 = 1 << 60;
const PRESSURE: u64 = 1 << 59;

const BYTES_BITS: u32 = 37;
const BYTES_MASK: u64 = (1 << BYTES_BITS) - 1;
const EVENTS_MASK: u64 = (1 << (59 - BYTES_BITS)) - 1;

/// The most events a lane can be bounded to.
pub(crate) const MAX_EVENTS: u64 = EVENTS_MASK;
/// The most bytes a lane can be bounded to.
pub(crate) const MAX_BYTES: u64 = BYTES_MASK;

/// Bytes that the byte bound charges for each event beyond its encoded size: its slot in the
/// channel and its place in a batch.
pub const EVENT_OVERHEAD: u64 = 192;

/// Room in a lane: events and their encoded bytes, taken and given back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
}

impl Permits {
    /// Both at their place in the word. Neither can carry into its neighbour: an admission
    /// never takes the sum past the bounds, which are at most [`MAX_EVENTS`] and [`MAX_BYTES`].
    fn pack(self) -> u64 {
        (self.events << BYTES_BITS) | self.bytes
    }
}

/// One reading of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading(u64);

impl Reading {
    pub(crate) fn events(self) -> u64 {
        (self.0 >> BYTES_BITS) & EVENTS_MASK
    }

    pub(crate) fn bytes(self) -> u64 {
        self.0 & BYTES_MASK
    }

    pub(crate) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    pub(crate) fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    pub(crate) fn is_unborn(self) -> bool {
        self.0 & UNBORN != 0
    }

    pub(crate) fn has_waiters(self) -> bool {
        self.0 & WAITING != 0
    }

    pub(crate) fn has_pressure(self) -> bool {
        self.0 & (WAITING | PRESSURE) != 0
    }

    /// Why nothing more is admitted, whatever room there is.
    fn gate(self) -> Option<Refusal> {
        if self.0 & (CLOSED | DEAD | UNBORN) == 0 {
            None
        } else if self.is_dead() {
            Some(Refusal::Dead)
        } else if self.is_closed() {
            Some(Refusal::Closed)
        } else {
            Some(Refusal::Unborn)
        }
    }

    fn fits(self, want: Permits, bounds: Permits) -> bool {
        let events = self.events() + want.events;
        let charged = self.bytes() + want.bytes + events * EVENT_OVERHEAD;
        events <= bounds.events && charged <= bounds.bytes
    }
}

/// Why a lane did not admit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A bound would be passed, or others wait already.
    Full,
    /// The lane has no worker yet.
    Unborn,
    Closed,
    Dead,
}

/// Gate, event permits and byte permits of one lane, as one cache-padded word.
///
/// ```text
/// 63      62    61      60       59        58 .. 37        36 .. 0
/// closed  dead  unborn  waiting  pressure  events (22)     bytes (37)
/// ```
///
/// `events` and `bytes` (encoded) are outstanding: admitted, and not yet released just before
/// their report. The overhead of the structures is charged by the comparison with the bound. An event is accepted by the one compare-exchange that finds the gate open and
/// both bounds kept; there is no second counter that could disagree.
///
/// Ordering: every change is a read-modify-write, so the word has one modification order and
/// a release that follows the setting of `waiting` sees it. Admission acquires and release
/// releases, so what the worker did before it freed room happens before what the next owner
/// of that room does. The wake handshake adds its own fences (`wake.rs`).
#[derive(Debug)]
pub(crate) struct Word(CachePadded<AtomicU64>);

impl Word {
    pub(crate) fn unborn() -> Word {
        Word(CachePadded::new(AtomicU64::new(UNBORN)))
    }

    pub(crate) fn read(&self) -> Reading {
        Reading(self.0.load(Ordering::Acquire))
    }

    /// As [`read`](Word::read), for a caller that has fenced already.
    pub(crate) fn read_relaxed(&self) -> Reading {
        Reading(self.0.load(Ordering::Relaxed))
    }

    /// Takes permits if the gate is open, the bounds are kept and nobody waits ahead.
    pub(crate) fn admit(&self, want: Permits, bounds: Permits) -> Result<(), Refusal> {
        self.change(want, bounds, |word, fits| {
            if fits && !word.has_waiters() {
                Ok((word.0 + want.pack(), Ok(())))
            } else {
                Err(Refusal::Full)
            }
        })
        .and_then(|admitted| admitted)
    }

    /// Takes permits, or announces that the caller waits. Only under the wait queue's lock,
    /// and only when the queue is empty.
    pub(crate) fn admit_or_wait(&self, want: Permits, bounds: Permits) -> Result<(), Refusal> {
        self.change(want, bounds, |word, fits| {
            Ok(if fits {
                (word.0 + want.pack(), Ok(()))
            } else {
                (word.0 | WAITING | PRESSURE, Err(Refusal::Full))
            })
        })
        .and_then(|admitted| admitted)
    }

    /// Takes permits on behalf of the first waiter. Only under the wait queue's lock.
    pub(crate) fn admit_waiter(&self, want: Permits, bounds: Permits) -> Result<(), Refusal> {
        self.change(want, bounds, |word, fits| {
            if fits {
                Ok((word.0 + want.pack(), ()))
            } else {
                Err(Refusal::Full)
            }
        })
    }

    fn change<R>(
        &self,
        want: Permits,
        bounds: Permits,
        decide: impl Fn(Reading, bool) -> Result<(u64, R), Refusal>,
    ) -> Result<R, Refusal> {
        let mut current = self.0.load(Ordering::Relaxed);
        loop {
            let word = Reading(current);
            if let Some(refusal) = word.gate() {
                return Err(refusal);
            }
            let (next, result) = decide(word, word.fits(want, bounds))?;
            match self
                .0
                .compare_exchange_weak(current, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Ok(result),
                Err(changed) => current = changed,
            }
        }
    }

    /// Gives permits back; the reading is the one before.
    pub(crate) fn release(&self, permits: Permits) -> Reading {
        let give = |word| Some((word - permits.pack()) & !PRESSURE);
        let before = match self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, give)
        {
            Ok(before) | Err(before) => Reading(before),
        };
        debug_assert!(before.events() >= permits.events && before.bytes() >= permits.bytes);
        before
    }

    /// Notes that a caller was refused for want of room. True for the first since room was last
    /// given back: that caller wakes the worker. The note stays until a release clears it in the
    /// same step, so it outlives any drain that has not seen the event that filled the lane.
    pub(crate) fn press(&self) -> bool {
        if self.read_relaxed().0 & PRESSURE != 0 {
            return false;
        }
        self.0.fetch_or(PRESSURE, Ordering::AcqRel) & PRESSURE == 0
    }

    /// Only under the wait queue's lock, when the queue is empty.
    pub(crate) fn clear_waiting(&self) {
        self.0.fetch_and(!WAITING, Ordering::AcqRel);
    }

    /// Opens an unborn lane, after its channel and worker are there.
    pub(crate) fn bear(&self) {
        self.0.fetch_and(!UNBORN, Ordering::AcqRel);
    }

    pub(crate) fn close(&self) -> Reading {
        Reading(self.0.fetch_or(CLOSED, Ordering::AcqRel))
    }

    pub(crate) fn kill(&self) -> Reading {
        Reading(self.0.fetch_or(DEAD, Ordering::AcqRel))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const BOUNDS: Permits = Permits {
        events: 3,
        bytes: 100 + 3 * EVENT_OVERHEAD,
    };

    fn permits(events: u64, bytes: u64) -> Permits {
        Permits { events, bytes }
    }

    fn born() -> Word {
        let word = Word::unborn();
        word.bear();
        word
    }

    #[test]
    fn both_bounds_are_hard_at_them_and_one_past() {
        let word = born();
        assert_eq!(word.admit(permits(1, 100), BOUNDS), Ok(()));
        assert_eq!(word.admit(permits(2, 1), BOUNDS), Err(Refusal::Full));
        assert_eq!(word.admit(permits(2, 0), BOUNDS), Ok(()));
        assert_eq!(word.admit(permits(1, 0), BOUNDS), Err(Refusal::Full));
        word.release(permits(1, 100));
        assert_eq!(word.admit(permits(1, 101), BOUNDS), Err(Refusal::Full));
        assert_eq!(word.admit(permits(1, 100), BOUNDS), Ok(()));
    }

    #[test]
    fn the_largest_bounds_do_not_carry_into_each_other() {
        let word = born();
        let bounds = permits(MAX_EVENTS, MAX_BYTES);
        let all = permits(MAX_EVENTS, MAX_BYTES - MAX_EVENTS * EVENT_OVERHEAD);
        assert_eq!(word.admit(all, bounds), Ok(()));
        assert_eq!(word.admit(permits(1, 0), bounds), Err(Refusal::Full));
        assert_eq!(word.admit(permits(0, 1), bounds), Err(Refusal::Full));
        let reading = word.read();
        assert_eq!((reading.events(), reading.bytes()), (all.events, all.bytes));
        assert!(!reading.is_closed() && !reading.has_pressure());
        word.release(all);
        assert_eq!(word.read(), Reading(0));
    }

    #[test]
    fn a_closed_or_dead_lane_admits_nothing_and_keeps_its_counts() {
        let word = born();
        assert_eq!(word.admit(permits(1, 7), BOUNDS), Ok(()));
        word.close();
        assert_eq!(word.admit(permits(1, 1), BOUNDS), Err(Refusal::Closed));
        word.kill();
        assert_eq!(word.admit(permits(1, 1), BOUNDS), Err(Refusal::Dead));
        assert_eq!((word.read().events(), word.read().bytes()), (1, 7));
    }

    #[test]
    fn nobody_passes_those_who_wait() {
        let word = born();
        assert_eq!(word.admit(permits(3, 0), BOUNDS), Ok(()));
        assert_eq!(
            word.admit_or_wait(permits(1, 0), BOUNDS),
            Err(Refusal::Full)
        );
        word.release(permits(2, 0));
        assert_eq!(word.admit(permits(1, 0), BOUNDS), Err(Refusal::Full));
        assert_eq!(word.admit_waiter(permits(1, 0), BOUNDS), Ok(()));
        word.clear_waiting();
        assert_eq!(word.admit(permits(1, 0), BOUNDS), Ok(()));
    }

    #[test]
    fn pressure_is_announced_once_until_it_is_taken() {
        let word = born();
        assert_eq!(word.admit(permits(1, 1), BOUNDS), Ok(()));
        assert!(word.press());
        assert!(!word.press());
        assert!(word.read().has_pressure());
        word.release(permits(1, 1));
        assert!(!word.read().has_pressure());
        assert!(word.press());
    }
}
