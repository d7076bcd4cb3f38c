//! The clock and the parker that waits by it.

use super::imp::{self, park};
#[cfg(feature = "testing")]
use super::virtual_clock::{VirtualClock, VirtualParker, VirtualUnparker};
use std::time::Instant;

/// Where the engine's time comes from.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clock {
    /// The system's monotonic clock.
    #[default]
    System,
    /// A clock that moves only when a test says so.
    #[cfg(feature = "testing")]
    Virtual(VirtualClock),
}

/// The date, as the wall clock has it, in seconds since 1970: for what a peer reads too, such as
/// the expiry of a token. No wait goes by it.
#[cfg(feature = "amqp")]
pub(crate) fn unix_seconds() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |age| age.as_secs())
}

/// Whose waits a parker serves: virtual time waits for the engine to be quiet, never for a
/// caller, who may be blocked on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkRole {
    /// A thread of the engine.
    Engine,
    /// A thread of the application.
    Caller,
}

impl Clock {
    pub(crate) fn now(&self) -> Instant {
        match self {
            Clock::System => imp::now(),
            #[cfg(feature = "testing")]
            Clock::Virtual(clock) => clock.now(),
        }
    }

    pub(crate) fn parker(&self, role: ParkRole) -> Parker {
        match self {
            Clock::System => {
                let _ = role;
                Parker::System(park::Parker::new())
            }
            #[cfg(feature = "testing")]
            Clock::Virtual(clock) => Parker::Virtual(clock.parker(role)),
        }
    }
}

/// Blocks the one thread that owns it until its token is set or its deadline passes.
///
/// The token makes the order of `unpark` and `park` irrelevant: an unpark that comes first
/// lets the next park return at once. Memory written before an unpark is visible to the
/// thread that the unpark released.
pub(crate) enum Parker {
    System(park::Parker),
    #[cfg(feature = "testing")]
    Virtual(VirtualParker),
}

/// Sets the token of its [`Parker`], from any thread, any number of times.
#[derive(Clone)]
pub(crate) enum Unparker {
    System(park::Unparker),
    #[cfg(feature = "testing")]
    Virtual(VirtualUnparker),
}

impl Parker {
    pub(crate) fn unparker(&self) -> Unparker {
        match self {
            Parker::System(parker) => Unparker::System(parker.unparker()),
            #[cfg(feature = "testing")]
            Parker::Virtual(parker) => Unparker::Virtual(parker.unparker()),
        }
    }

    /// Waits for the token, at most until `deadline`, and takes it. May return early.
    pub(crate) fn park(&self, deadline: Option<Instant>) {
        match self {
            Parker::System(parker) => parker.park(deadline),
            #[cfg(feature = "testing")]
            Parker::Virtual(parker) => parker.park(deadline),
        }
    }
}

impl Unparker {
    pub(crate) fn unpark(&self) {
        match self {
            Unparker::System(unparker) => unparker.unpark(),
            #[cfg(feature = "testing")]
            Unparker::Virtual(unparker) => unparker.unpark(),
        }
    }
}

impl std::fmt::Debug for Unparker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unparker")
    }
}
