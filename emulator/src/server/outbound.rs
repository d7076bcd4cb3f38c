//! The sending end of a link: stored events for readers, answers for requests.

use std::{collections::VecDeque, sync::Arc};

use bytes::BytesMut;
use serde_amqp::Value;
use serde_bytes::ByteBuf;

use super::{
    core::Core,
    nodes::Node,
    session::{LinkFlow, Window},
};
use crate::{
    store::HubStore,
    wire::{
        annotate, code,
        fields::{self, composite},
        frame::{self, FrameKind},
        performative::Flow,
    },
};

/// Answers that wait for credit; a client that asks more than this without reading gets no more.
const MAX_ANSWERS: usize = 256;

/// Events read from the log at a time.
const CHUNK: usize = 64;

/// Bytes that one link may append before another gets its turn.
const TURN: usize = 64 * 1024;

/// Room for the header and the performative of a transfer frame.
const TRANSFER_OVERHEAD: usize = 64;

/// What a sending link sends.
#[derive(Debug)]
pub(crate) enum Supply {
    /// The events of a partition from a sequence number on.
    Events {
        hub: Arc<HubStore>,
        partition: usize,
        next: i64,
    },
    /// Answers of a node.
    Answers {
        node: Node,
        reply_to: Option<String>,
        queue: VecDeque<Vec<u8>>,
    },
}

#[derive(Debug)]
pub(crate) struct Sending {
    handle: u32,
    pub(crate) supply: Supply,
    settled: bool,
    credit: u32,
    delivery_count: u32,
}

impl Sending {
    pub(crate) fn new(handle: u32, supply: Supply, settled: bool) -> Self {
        Self {
            handle,
            supply,
            settled,
            credit: 0,
            delivery_count: 0,
        }
    }

    pub(crate) fn handle_flow(&mut self, flow: &Flow) {
        let Some(credit) = flow.link_credit else {
            return;
        };
        // Part 2.6.7: the credit as it stood when the client had seen `delivery-count`.
        let seen = flow.delivery_count.unwrap_or(0);
        let under_way = self.delivery_count.wrapping_sub(seen);
        self.credit = credit.saturating_sub(under_way);
    }

    /// Tells the link's state; a drain uses up the credit for which there is nothing to send.
    pub(crate) fn answer_flow(&mut self, core: &mut Core, window: &Window, drain: bool) {
        if drain {
            self.delivery_count = self.delivery_count.wrapping_add(self.credit);
            self.credit = 0;
        }
        let link = LinkFlow {
            handle: self.handle,
            delivery_count: self.delivery_count,
            credit: self.credit,
            available: Some(0),
            drain,
        };
        window.send_flow(core, Some(link));
    }

    /// Queues an answer.
    pub(crate) fn queue(&mut self, message: Vec<u8>) {
        if let Supply::Answers { queue, .. } = &mut self.supply {
            if queue.len() < MAX_ANSWERS {
                queue.push_back(message);
            }
        }
    }

    /// Sends while there is credit, for one turn; true when there may be more to send.
    pub(crate) fn pump(&mut self, core: &mut Core, window: &mut Window) -> bool {
        let limit = core.out.len() + TURN;
        while self.credit > 0 && window.open() {
            if core.out.len() >= limit {
                return true;
            }
            let chunk = self.next_messages();
            if chunk.is_empty() {
                return false;
            }
            for message in chunk {
                self.send(core, window, &message);
            }
        }
        false
    }

    /// Encoded messages within the credit.
    fn next_messages(&mut self) -> Vec<Vec<u8>> {
        match &mut self.supply {
            Supply::Answers { queue, .. } => queue.pop_front().into_iter().collect(),
            Supply::Events {
                hub,
                partition,
                next,
            } => {
                let max = CHUNK.min(self.credit as usize);
                let mut events = hub.read(*partition, *next, max);
                // As many as one turn takes, and never less than one.
                let mut bytes = 0;
                let fits = events.iter().take_while(|event| {
                    let fits = bytes < TURN;
                    bytes += event.raw().len();
                    fits
                });
                let count = fits.count();
                events.truncate(count);
                let Some(last) = events.last() else {
                    return Vec::new();
                };
                *next = last.sequence_number() + 1;
                let annotate = |event: &crate::store::StoredEvent| {
                    let mut out = Vec::with_capacity(event.raw().len() + 128);
                    // Only messages that were walked to their end are stored.
                    annotate::annotate(event.raw(), event.system_annotations(), &mut out).ok()?;
                    Some(out)
                };
                events.iter().filter_map(annotate).collect()
            }
        }
    }

    fn send(&mut self, core: &mut Core, window: &mut Window, message: &[u8]) {
        let id = window.next_delivery;
        window.next_delivery = id.wrapping_add(1);
        self.credit = self.credit.saturating_sub(1);
        self.delivery_count = self.delivery_count.wrapping_add(1);
        if matches!(self.supply, Supply::Events { .. }) {
            core.count(|counters| &counters.events_delivered, 1);
        }
        let room = core.max_frame - TRANSFER_OVERHEAD;
        let mut chunks = message.chunks(room).peekable();
        while let Some(chunk) = chunks.next() {
            let performative = self.transfer(id, chunks.peek().is_some());
            let mut frame = BytesMut::new();
            let channel = window.channel;
            frame::put_frame(&mut frame, FrameKind::Amqp, channel, &performative, chunk);
            window.pending.push_back(frame);
        }
        window.drain(core);
    }

    fn transfer(&self, id: u32, more: bool) -> Vec<u8> {
        let fields = vec![
            Value::Uint(self.handle),
            Value::Uint(id),
            Value::Binary(ByteBuf::from(id.to_be_bytes())),
            Value::Uint(0),
            Value::Bool(self.settled),
            Value::Bool(more),
            Value::Null,
            Value::Null,
            Value::Bool(false),
            Value::Bool(false),
            Value::Bool(true),
        ];
        fields::encode(&composite(code::TRANSFER, fields))
    }
}
