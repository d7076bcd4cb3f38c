//! The facade: the only place that names `std::sync`, `std::thread`, crossbeam,
//! parking_lot or the clock.
//!
//! Everything else in the crate takes its atomics, locks, channels, threads and time from
//! here, so that the very code that runs in production also runs under loom (`cfg(loom)`)
//! and in virtual time (feature `testing`). `.ci/facade` enforces it.
//!
//! All blocking in hublane is done by one primitive, the [`Parker`]: it has a sticky token,
//! so an unpark that comes early is never lost, and its deadline is an instant of the
//! [`Clock`], so that virtual time covers every wait.

mod clock;
mod monitor;
#[cfg(feature = "testing")]
mod virtual_clock;

#[cfg(loom)]
mod model;
#[cfg(loom)]
use model as imp;
#[cfg(not(loom))]
mod real;
#[cfg(not(loom))]
use real as imp;

#[cfg(feature = "amqp")]
pub(crate) use clock::unix_seconds;
pub(crate) use clock::{Clock, ParkRole, Parker, Unparker};
pub(crate) use imp::{Mutex, OnceLock, atomic, channel, thread};
pub(crate) use monitor::Monitor;
pub(crate) use std::sync::{Arc, Weak};
pub(crate) use std::time::Instant;
#[cfg(feature = "testing")]
pub use virtual_clock::VirtualClock;

/// A value alone on its cache line.
pub(crate) use crossbeam_utils::CachePadded;

#[cfg(loom)]
pub(crate) use loom::thread_local;
#[cfg(not(loom))]
pub(crate) use std::thread_local;
