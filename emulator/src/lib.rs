//! An Event Hubs emulator for tests and first steps.
//!
//! It speaks AMQP 1.0 over plain TCP on a thread of its own and keeps what it accepts in bounded
//! memory, where a test can read it, and on request in a journal. [`Faults`] make it misbehave on
//! cue, a [`Disruption`] at once. It shares no code with any producer, so that it can judge them.
//!
//! # What it does as the service does
//!
//! SASL and `$cbs` (tokens are checked when a [key](Builder::sas_key) is set, again with every
//! message), `$management` reads, links to hubs, partitions and publishers with their limits, batches
//! stored as a whole, keys hashed to partitions, readers with selectors, idle time-outs, and refusals
//! with the conditions of the service.
//!
//! # What it does not do
//!
//! TLS, WebSockets, tokens other than shared access signatures (without a key any token will do),
//! epochs and ownership of readers, idempotent producers, detaching of links for idleness or for a
//! token that expires while nothing is sent, throttling, and message sections with symbolic
//! descriptors. With a [journal](Builder::journal) every batch waits for the disk, and all
//! connections wait with it, since one thread serves them all.
//!
//! ```
//! use std::time::Duration;
//! use hublane_emulator::Emulator;
//!
//! let emulator = Emulator::builder().hub("telemetry", 4).start()?;
//! println!("{}", emulator.connection_string("telemetry"));
//! let hub = emulator.hub("telemetry").expect("the hub was just declared");
//! assert!(hub.is_empty());
//! emulator.shutdown(Duration::from_secs(5))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod address;
mod builder;
mod emulator;
mod fault;
mod hub;
mod key_hash;
mod sas;
mod selector;
mod server;
mod stats;
mod store;
mod subscription;
mod wire;

pub use self::{
    builder::{Builder, StartError},
    emulator::{Emulator, ShutdownError},
    fault::{Disruption, Fault, FaultId, Faults, Moment, SocketDrop, Step},
    hub::{HubHandle, WaitError},
    selector::Position,
    stats::Stats,
    store::{PartitionProperties, Retention, StoredEvent},
    subscription::Subscription,
};
/// The AMQP value type in which properties, annotations and ids of an event are told.
pub use serde_amqp::Value;
