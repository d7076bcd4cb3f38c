//! The dozing worker's wake handshake.

use super::word::{Permits, Word};
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// Nobody need wake the worker for an event: it is awake, or wants none.
const NEVER: u64 = u64::MAX;

const BYTES_BITS: u32 = 38;

/// The amount outstanding at which a producer must wake the worker.
///
/// Store-then-check on both sides (Dekker's pattern):
///
/// ```text
/// worker                               producer
/// number := n            (a)           admit: word += event, send    (c)
/// fence(SeqCst)                        fence(SeqCst)
/// channel empty? no → stay awake (b)   word ≥ number? yes → claim, unpark (d)
/// park
/// ```
///
/// The fences order (a)(b) against (c)(d) in one total order: if (b) misses a message, then
/// its sender's (d) sees `n`. The producer compares the *word*, read after its own send, with
/// `≥`: of all producers whose messages (b) missed, the one whose admission is last in the
/// word's modification order reads at least the sum of them all, so if together they reach
/// `n`, at least that one claims. Its own admission alone, or `==`, would not do: with three
/// producers each may see an older sum, or one that jumped past `n`.
///
/// The worker re-checks that the channel is *empty*, never that it is below the number: what
/// it misses must have a sender that is still to compare. While it dozes nothing is released
/// (it alone releases), so the word only grows.
///
/// One claim per number: the first to cross swaps it away and unparks; everybody else sees
/// [`NEVER`]. A claim of an older number is a wake too many, never one too few.
#[derive(Debug)]
pub(crate) struct Wake {
    number: CachePadded<AtomicU64>,
}

impl Wake {
    pub(crate) fn awake() -> Wake {
        Wake {
            number: CachePadded::new(AtomicU64::new(NEVER)),
        }
    }

    /// The worker is about to park; `at` is the amount outstanding that is worth waking it
    /// for. The caller must look at the channel after this, and not park unless it is empty.
    pub(crate) fn publish(&self, at: Permits) {
        // Clipped, not carried: a mark that cannot be reached in one dimension is reached in
        // the other.
        let bytes = at.bytes.min((1 << BYTES_BITS) - 1);
        let events = at.events.min((1 << (63 - BYTES_BITS)) - 1);
        self.number
            .store((events << BYTES_BITS) | bytes, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The worker is awake.
    pub(crate) fn withdraw(&self) {
        self.number.store(NEVER, Ordering::Relaxed);
    }

    /// After a send: true if this producer must unpark the worker.
    pub(crate) fn claim(&self, word: &Word) -> bool {
        fence(Ordering::SeqCst);
        let number = self.number.load(Ordering::Relaxed);
        if number == NEVER {
            return false;
        }
        let word = word.read_relaxed();
        let reached = word.events() >= number >> BYTES_BITS
            || word.bytes() >= number & ((1 << BYTES_BITS) - 1);
        reached && self.number.swap(NEVER, Ordering::AcqRel) != NEVER
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn holding(events: u64, bytes: u64) -> Word {
        let word = Word::unborn();
        word.bear();
        let bounds = Permits {
            events: 1 << 20,
            bytes: 1 << 30,
        };
        assert_eq!(word.admit(Permits { events, bytes }, bounds), Ok(()));
        word
    }

    #[test]
    fn either_dimension_wakes_at_its_mark_and_not_below() {
        let mark = Permits {
            events: 10,
            bytes: 1000,
        };
        for (events, bytes, wakes) in [
            (9, 999, false),
            (10, 0, true),
            (1, 1000, true),
            (11, 2000, true),
        ] {
            let wake = Wake::awake();
            wake.publish(mark);
            assert_eq!(wake.claim(&holding(events, bytes)), wakes);
        }
    }

    #[test]
    fn only_one_producer_claims() {
        let wake = Wake::awake();
        let word = holding(5, 5);
        wake.publish(Permits {
            events: 1,
            bytes: u64::MAX,
        });
        assert!(wake.claim(&word));
        assert!(!wake.claim(&word));
    }

    #[test]
    fn an_awake_worker_is_left_alone() {
        let wake = Wake::awake();
        assert!(!wake.claim(&holding(5, 5)));
        wake.publish(Permits {
            events: 1,
            bytes: 1,
        });
        wake.withdraw();
        assert!(!wake.claim(&holding(5, 5)));
    }
}
