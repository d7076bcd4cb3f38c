//! hublane: a synchronous, lossless, buffered event producer for Azure Event Hubs.

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
