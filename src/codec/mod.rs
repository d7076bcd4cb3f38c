//! The wire form of events and batches: AMQP 1.0, written by hand.
//!
//! An event becomes one complete AMQP message of its own, and a batch is a message whose body is
//! a row of `data` sections, each of which holds one such message:
//!
//! ```text
//! batch, message format 0x80013700
//! ├─ data ── message: [message-annotations] [properties] [application-properties] data
//! ├─ data ── message: …
//! └─ data ── message: …
//! ```
//!
//! Sizes are exact: [`encoded_len`] is what [`encode()`] writes, to the byte, because one
//! description of the encoding serves both. A batch of messages of these sizes is as long as the
//! sum of their [`section_len`]s; the batch message has no other sections.
//!
//! # Examples
//!
//! ```
//! use hublane::Event;
//! use hublane::codec::{Payload, encoded_len, section_len};
//!
//! let event = Event::new("21.5");
//! let mut batch = Payload::with_capacity(1024, 1);
//! batch.push(&event, None);
//! assert_eq!(batch.len_bytes(), section_len(encoded_len(&event, None)));
//! ```

mod decode;
mod encode;
mod payload;

pub use decode::{DecodeError, decode};
pub use encode::{encode, encoded_len};
pub use payload::{BATCH_MESSAGE_FORMAT, Payload, Sections, section_len};
