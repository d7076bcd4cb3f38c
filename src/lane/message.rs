//! What travels through a lane's channel.

use super::word::Permits;
use crate::event::Event;
use crate::partition::PartitionKey;
use crate::ticket::TicketSlot;

/// An accepted event on its way to the worker.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) event: Event,
    pub(crate) key: Option<PartitionKey>,
    pub(crate) ticket: Option<TicketSlot>,
    pub(crate) encoded_len: u32,
}

/// Several accepted events of one call, in one slot.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) events: Vec<(Event, u32)>,
    pub(crate) key: Option<PartitionKey>,
}

/// One slot of a lane's channel.
#[derive(Debug)]
pub(crate) enum Message {
    One(Accepted),
    Rare(Rare),
}

/// What is not a single event. One variant of [`Message`], so that the slot needs no tag.
#[derive(Debug)]
pub(crate) enum Rare {
    Many(Chunk),
    /// A flush cut: it covers every message before it. Who waits for it stands in the lane's
    /// [`FlushDoor`](super::flush::FlushDoor).
    Flush,
}

// A bounded channel reserves all its slots at birth.
const _: () = assert!(size_of::<Message>() <= 96);

impl Message {
    /// The permits that go with the message.
    pub(crate) fn permits(&self) -> Permits {
        match self {
            Message::One(accepted) => Permits {
                events: 1,
                bytes: u64::from(accepted.encoded_len),
            },
            Message::Rare(Rare::Many(chunk)) => Permits {
                events: chunk.events.len() as u64,
                bytes: chunk.events.iter().map(|(_, len)| u64::from(*len)).sum(),
            },
            Message::Rare(Rare::Flush) => Permits {
                events: 0,
                bytes: 0,
            },
        }
    }
}
