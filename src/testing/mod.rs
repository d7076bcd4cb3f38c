//! A scripted peer and a virtual clock, to test what is built on a producer without a network
//! and without waiting (feature `testing`).
//!
//! The producer is the real one, threads included; only its peer and its time are scripted.
//!
//! ```
//! use hublane::testing::{Answer, ScriptedPeer, VirtualClock};
//! use hublane::{ProducerBuilder, Target};
//! use std::time::Duration;
//!
//! let clock = VirtualClock::new();
//! let peer = ScriptedPeer::new(2, &clock);
//! let producer = ProducerBuilder::new(peer.transport())
//!     .virtual_clock(&clock)
//!     .build()?;
//!
//! // The first batch is refused by a busy server, the retry is stored.
//! peer.script("0", Answer::reject("com.microsoft:server-busy"));
//! producer.enqueue_to(&Target::Partition("0".into()), "hello")?;
//!
//! clock.advance(Duration::from_secs(1)); // max_wait_time: the batch goes, and is refused
//! assert_eq!(producer.stats().outcomes().delivered, 0);
//! clock.advance(Duration::from_secs(5)); // the wait that a busy server asks for
//! assert_eq!(producer.stats().outcomes().delivered, 1);
//! assert_eq!(peer.stored_bodies("0"), ["hello"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod lane;
mod peer;

pub use crate::sync::VirtualClock;
#[doc(hidden)]
pub use lane::LaneAlone;
pub use peer::{Answer, ScriptedPeer, ScriptedTransport, Transfer};
