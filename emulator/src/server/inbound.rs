//! The receiving end of a link: frames become messages, credit is given, outcomes are told.

use bytes::Bytes;
use serde_amqp::Value;

use super::{
    core::{Core, MAX_FRAME},
    session::{LinkFlow, Window},
};
use crate::wire::{code, fields, fields::composite, performative::Transfer};

/// A whole message.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) id: u32,
    pub(crate) format: u32,
    /// The client does not want to hear of it.
    pub(crate) settled: bool,
    pub(crate) payload: Bytes,
}

/// What a frame has led to.
#[derive(Debug)]
pub(crate) enum Progress {
    /// More frames are to come, or the message was taken back.
    Partial,
    Whole(Delivery),
    /// The link must be closed: condition and text.
    Broken(&'static str, &'static str),
}

#[derive(Debug)]
pub(crate) struct Receiving {
    handle: u32,
    max_message_size: u64,
    /// Credit that is kept up.
    target: u32,
    /// Messages that the client may still begin.
    credit: u32,
    delivery_count: u32,
    /// Unsettled messages, which keep their share of the credit.
    held: u32,
    withheld: bool,
    /// The credit is to be withdrawn after the message at hand.
    revoking: bool,
    /// The message that has begun.
    current: Option<Begun>,
    buffer: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Begun {
    id: u32,
    format: u32,
    settled: bool,
}

impl Receiving {
    pub(crate) fn new(handle: u32, target: u32, max_message_size: u64) -> Self {
        Self {
            handle,
            max_message_size,
            target,
            credit: 0,
            delivery_count: 0,
            held: 0,
            withheld: false,
            revoking: false,
            current: None,
            buffer: Vec::new(),
        }
    }

    /// Takes one frame.
    pub(crate) fn accept(&mut self, transfer: Transfer) -> Progress {
        if self.current.is_none() {
            let Some(id) = transfer.delivery_id else {
                return Progress::Broken("amqp:invalid-field", "the first transfer has no id");
            };
            let Some(credit) = self.credit.checked_sub(1) else {
                return Progress::Broken("amqp:link:transfer-limit-exceeded", "no credit is left");
            };
            self.credit = credit;
            self.delivery_count = self.delivery_count.wrapping_add(1);
            self.buffer.clear();
            let format = transfer.message_format.unwrap_or(0);
            self.current = Some(Begun {
                id,
                format,
                settled: false,
            });
        }
        let Some(mut begun) = self.current else {
            return Progress::Partial;
        };
        if transfer.delivery_id.is_some_and(|id| id != begun.id) {
            return Progress::Broken("amqp:invalid-field", "two messages are interleaved");
        }
        begun.settled |= transfer.settled;
        self.current = Some(begun);
        if transfer.aborted {
            self.current = None;
            return Progress::Partial;
        }
        let size = self.buffer.len() as u64 + transfer.payload.len() as u64;
        if size > self.max_message_size {
            return Progress::Broken(
                "amqp:link:message-size-exceeded",
                "the message is larger than the link allows",
            );
        }
        let alone = self.buffer.is_empty() && !transfer.more;
        if !alone {
            self.buffer.extend_from_slice(&transfer.payload);
        }
        if transfer.more {
            return Progress::Partial;
        }
        self.current = None;
        let payload = if alone {
            transfer.payload
        } else {
            std::mem::take(&mut self.buffer).into()
        };
        Progress::Whole(Delivery {
            id: begun.id,
            format: begun.format,
            settled: begun.settled,
            payload,
        })
    }

    /// Takes the memory of a message back for the next one.
    pub(crate) fn reuse(&mut self, payload: Bytes) {
        // A message of one frame lies in the connection's input, which is not to be taken away.
        if payload.len() > MAX_FRAME {
            if let Ok(buffer) = payload.try_into_mut() {
                self.buffer = buffer.into();
                self.buffer.clear();
            }
        }
    }

    /// Tells the outcome of a message.
    pub(crate) fn settle(&mut self, core: &mut Core, window: &Window, id: u32, state: Value) {
        // role, first, last, settled, state, batchable
        let fields = vec![
            Value::Bool(true),
            Value::Uint(id),
            Value::Uint(id),
            Value::Bool(true),
            state,
            Value::Bool(false),
        ];
        core.send(window.channel, code::DISPOSITION, fields);
    }

    /// Tells that a message was accepted. Only this happens often enough to be encoded by hand.
    pub(crate) fn settle_accepted(&self, core: &mut Core, window: &Window, id: u32) {
        let [a, b, c, d] = id.to_be_bytes();
        let performative = [
            0x00, 0x53, 0x15, 0xc0, 18, 6, // disposition, six fields
            0x41, 0x70, a, b, c, d, 0x70, a, b, c, d, 0x41, // receiver, first, last, settled
            0x00, 0x53, 0x24, 0x45, // accepted
            0x42, // not batchable
        ];
        core.send_encoded(window.channel, &performative, &[]);
    }

    /// A message that gets its outcome later, or never.
    pub(crate) fn hold(&mut self) {
        self.held = self.held.saturating_add(1);
    }

    pub(crate) fn settle_late(&mut self, core: &mut Core, window: &Window, id: u32, state: Value) {
        self.held = self.held.saturating_sub(1);
        self.settle(core, window, id, state);
        self.replenish(core, window);
    }

    /// Gives credit when half of it is used.
    pub(crate) fn replenish(&mut self, core: &mut Core, window: &Window) {
        let wanted = self.target.saturating_sub(self.held);
        if !self.withheld && self.credit <= wanted / 2 && self.credit < wanted {
            self.credit = wanted;
            self.send_flow(core, window);
        }
    }

    /// Withdraws the credit as soon as the message at hand is answered.
    pub(crate) fn revoke(&mut self) {
        self.revoking = true;
    }

    /// Gives no credit until it is given back.
    pub(crate) fn withhold(&mut self) {
        self.withheld = true;
    }

    /// Withdraws the credit if that was asked for. Messages that are under way are still taken.
    pub(crate) fn finish_revoking(&mut self, core: &mut Core, window: &Window) {
        if std::mem::take(&mut self.revoking) {
            self.withheld = true;
            self.send_flow(core, window);
        }
    }

    pub(crate) fn give_back(&mut self, core: &mut Core, window: &Window) {
        self.withheld = false;
        self.credit = self.target.saturating_sub(self.held);
        self.send_flow(core, window);
    }

    pub(crate) fn send_flow(&self, core: &mut Core, window: &Window) {
        let credit = if self.withheld { 0 } else { self.credit };
        let link = LinkFlow {
            handle: self.handle,
            delivery_count: self.delivery_count,
            credit,
            available: None,
            drain: false,
        };
        window.send_flow(core, Some(link));
    }
}

pub(crate) fn accepted() -> Value {
    composite(code::ACCEPTED, Vec::new())
}

pub(crate) fn rejected(condition: &str, description: &str) -> Value {
    composite(code::REJECTED, vec![fields::error(condition, description)])
}
