//! hublane: a synchronous, lossless, buffered event producer for Azure Event Hubs.
//!
//! Applications on plain threads call [`enqueue`](Producer::enqueue); one worker thread per used
//! partition batches, sends, retries and reports. `Ok` from an enqueue means that the event will
//! get exactly one [`Outcome`]; a refusal gives it back. [`flush`](Producer::flush) is an exact
//! barrier: when it returns, everything accepted before it has its outcome, and its report was
//! delivered.
//!
//! ```
//! use hublane::testing::{ScriptedPeer, VirtualClock};
//! use hublane::{Outcome, PartitionKey, ProducerBuilder, Target};
//!
//! // A scripted peer in place of a hub; see `ProducerBuilder::from_connection_string`.
//! let clock = VirtualClock::new();
//! let peer = ScriptedPeer::new(4, &clock);
//! let producer = ProducerBuilder::new(peer.transport())
//!     .virtual_clock(&clock)
//!     .on_delivery(|report, _enqueuer| {
//!         if report.outcome != Outcome::Delivered {
//!             eprintln!("{} events: {:?}", report.events.len(), report.outcome);
//!         }
//!     })
//!     .build()?;
//!
//! let roof = Target::Key(PartitionKey::new("roof")?);
//! producer.enqueue_to(&roof, "21.5")?;
//! let ticket = producer.enqueue_tracked(&roof, "21.6")?;
//! assert_eq!(producer.flush()?.outcomes.delivered, 2);
//! assert_eq!(ticket.wait()?, Outcome::Delivered);
//! producer.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! - `amqp` (default): the transport to Event Hubs, and with it tokio and rustls on a thread of
//!   their own. Without it the engine takes any [`Transport`](transport::Transport).
//! - `testing`: the scripted peer and the virtual clock, for tests of applications.

#![forbid(unsafe_code)]

#[cfg(feature = "amqp")]
pub mod amqp;
pub mod codec;
mod condition;
#[cfg(feature = "amqp")]
mod connection_string;
mod contain;
mod core;
mod engine_thread;
mod event;
mod lane;
#[cfg(loom)]
#[doc(hidden)]
pub mod model_api;
mod partition;
mod producer;
mod report;
mod reporter;
mod retry;
#[cfg(feature = "amqp")]
mod sas;
#[cfg(feature = "amqp")]
mod secret;
mod settings;
mod stats;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod ticket;
pub mod transport;
mod worker;

pub use condition::{RetryClass, classify};
#[cfg(feature = "amqp")]
pub use connection_string::{ConnectionString, ConnectionStringError, Credential};
pub use core::{CoreStats, Seals};
pub use event::{Event, EventError, MessageId, Symbol, SymbolError, Timestamp, Value};
pub use lane::EVENT_OVERHEAD;
pub use partition::{PartitionId, PartitionKey, PartitionKeyError, Target, hash};
pub use producer::{
    BuildError, CloseError, CloseReport, EnqueueAllError, EnqueueError, EnqueueRefusal, Enqueuer,
    FlushError, FlushReport, PartitionSender, Producer, ProducerBuilder,
};
pub use report::{Counts, DeliveryReport, FailureCause, Outcome, ReportedEvent};
pub use retry::RetryPolicy;
#[cfg(feature = "amqp")]
pub use sas::{SasKey, Token, TokenError};
#[cfg(feature = "amqp")]
pub use secret::Secret;
pub use settings::SettingsError;
pub use stats::{EngineStats, PartitionStats, Stats};
pub use ticket::{Ticket, TicketError};
