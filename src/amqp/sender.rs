//! One sending link: credit, transfers, dispositions (AMQP 1.0, 2.6.7 to 2.6.12).

use super::delivery::{LinkShared, Pending};
use super::errors;
use super::performatives;
use super::wire::Outbound;
use crate::codec::BATCH_MESSAGE_FORMAT;
use crate::sync::{Arc, Instant};
use crate::transport::{DeliveryId, LinkError};
use bytes::Bytes;
use fe2o3_amqp_types::messaging::DeliveryState;
use fe2o3_amqp_types::performatives::{Disposition, Flow};
use serde_amqp::primitives::Binary;
use std::collections::VecDeque;
use std::time::Duration;

/// Encoded bytes beyond which no more transfers are put before the socket has taken some: two
/// frames of the largest kind in use, so that the socket never waits and memory stays bounded.
const HIGH_WATER: usize = 128 * 1024;

/// The sending half of a link: what is queued, what is half sent, what is unanswered.
#[derive(Debug)]
pub(super) struct Sender {
    /// None for a link that nobody sends on.
    shared: Option<Arc<LinkShared>>,
    credit: u32,
    delivery_count: u32,
    drain: bool,
    /// Not handed to the network at all; their numbers mean nothing yet.
    queue: VecDeque<Sent>,
    /// Of which some frames went out, and what is left of it.
    current: Option<(Sent, Bytes)>,
    /// Handed over whole, in the order of their delivery numbers.
    unsettled: VecDeque<Sent>,
    next_number: u32,
    patience: Duration,
    /// No delivery is overdue before.
    look_at: Option<Instant>,
}

#[derive(Debug)]
struct Sent {
    number: u32,
    pending: Pending,
    overdue_at: Instant,
}

/// What came of sending.
pub(super) struct Pumped {
    /// Credit was given back, which the peer wants to hear of (2.6.7).
    pub(super) drained: bool,
    /// There is more that only waits for the socket.
    pub(super) more: bool,
}

/// What a session lends its link for transfers.
pub(super) struct Window<'a> {
    pub(super) channel: u16,
    pub(super) max_frame: usize,
    /// Frames that the peer still takes.
    pub(super) remote: &'a mut u32,
    pub(super) next_outgoing_id: &'a mut u32,
}

impl Sender {
    /// A link that gives each delivery `patience` to be answered.
    pub(super) fn new(shared: Option<Arc<LinkShared>>, patience: Duration) -> Sender {
        Sender {
            shared,
            credit: 0,
            delivery_count: 0,
            drain: false,
            queue: VecDeque::new(),
            current: None,
            unsettled: VecDeque::new(),
            next_number: 0,
            patience,
            look_at: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.current.is_none() && self.unsettled.is_empty()
    }

    pub(super) fn submit(&mut self, pending: Pending, now: Instant) {
        let overdue_at = (now + self.patience).min(pending.deadline());
        self.watch(overdue_at);
        self.queue.push_back(Sent {
            number: 0,
            pending,
            overdue_at,
        });
    }

    pub(super) fn handle_flow(&mut self, flow: &Flow) {
        if let Some(credit) = flow.link_credit {
            // What was sent since the peer counted has used up some of it (2.6.7).
            let counted = flow.delivery_count.unwrap_or(0);
            let behind = self.delivery_count.wrapping_sub(counted);
            self.credit = credit.saturating_sub(behind);
        }
        self.drain = flow.drain;
    }

    /// The link's part of a flow that this end sends.
    pub(super) fn describe(&self, flow: &mut Flow) {
        flow.delivery_count = Some(self.delivery_count);
        flow.link_credit = Some(self.credit);
        flow.available = Some(u32::try_from(self.queue.len()).unwrap_or(u32::MAX));
        flow.drain = self.drain;
    }

    /// Sends what credit, window and socket allow.
    pub(super) fn pump(
        &mut self,
        window: &mut Window<'_>,
        out: &mut Outbound,
        now: Instant,
    ) -> Pumped {
        while out.len() < HIGH_WATER && *window.remote > 0 {
            let (sent, rest, first) = match self.current.take() {
                Some((sent, rest)) => (sent, rest, false),
                None if self.credit == 0 => break,
                None => match self.queue.pop_front() {
                    None => break,
                    Some(sent) => self.begin(sent, now),
                },
            };
            self.put_frame(window, out, sent, rest, first);
        }
        let starved = self.credit == 0 && self.current.is_none() && !self.queue.is_empty();
        self.set_congested(starved);
        let drained =
            self.drain && self.credit > 0 && self.current.is_none() && self.queue.is_empty();
        if drained {
            self.delivery_count = self.delivery_count.wrapping_add(self.credit);
            self.credit = 0;
        }
        let waiting = self.current.is_some() || (self.credit > 0 && !self.queue.is_empty());
        Pumped {
            drained,
            more: waiting && *window.remote > 0,
        }
    }

    fn begin(&mut self, mut sent: Sent, now: Instant) -> (Sent, Bytes, bool) {
        sent.pending.set_transferred();
        sent.number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        self.credit -= 1;
        self.delivery_count = self.delivery_count.wrapping_add(1);
        sent.overdue_at = (now + self.patience).min(sent.pending.deadline());
        self.watch(sent.overdue_at);
        let rest = sent.pending.payload().clone();
        (sent, rest, true)
    }

    fn put_frame(
        &mut self,
        window: &mut Window<'_>,
        out: &mut Outbound,
        sent: Sent,
        mut rest: Bytes,
        first: bool,
    ) {
        let mut transfer = performatives::transfer(0);
        if first {
            transfer.delivery_id = Some(sent.number);
            transfer.delivery_tag = Some(Binary::from(sent.number.to_be_bytes()));
            transfer.message_format = Some(BATCH_MESSAGE_FORMAT);
            transfer.settled = Some(false);
        }
        let taken = out.put_transfer(window.channel, &mut transfer, &rest, window.max_frame);
        *window.remote -= 1;
        *window.next_outgoing_id = window.next_outgoing_id.wrapping_add(1);
        let _ = rest.split_to(taken);
        if transfer.more {
            self.current = Some((sent, rest));
        } else {
            self.unsettled.push_back(sent);
        }
    }

    /// Gives lanes the peer's answers. True if the peer waits for this end to settle, too.
    pub(super) fn handle_disposition(
        &mut self,
        disposition: &Disposition,
        window: &mut Window<'_>,
        out: &mut Outbound,
    ) -> bool {
        let first = disposition.first;
        let span = disposition.last.unwrap_or(first).wrapping_sub(first);
        let named = |number: u32| number.wrapping_sub(first) <= span;
        let answer = || match &disposition.state {
            Some(state) => errors::settlement(state.clone()),
            None => None,
        };
        // `received` says nothing final, unless the peer forgets the delivery with it.
        if answer().is_none() && !disposition.settled {
            return false;
        }
        let settle = |pending: Pending| match answer() {
            Some(settlement) => pending.settle(settlement),
            None => pending.fail(no_outcome(disposition.state.as_ref())),
        };
        if self
            .current
            .as_ref()
            .is_some_and(|(sent, _)| named(sent.number))
        {
            if let Some((sent, _)) = self.current.take() {
                abort(window, out);
                settle(sent.pending);
            }
        }
        let mut at = self
            .unsettled
            .partition_point(|sent| precedes(sent.number, first));
        let mut any = false;
        while self
            .unsettled
            .get(at)
            .is_some_and(|sent| named(sent.number))
        {
            if let Some(sent) = self.unsettled.remove(at) {
                any = true;
                settle(sent.pending);
            } else {
                at += 1;
            }
        }
        any && !disposition.settled
    }

    /// Whether this delivery is here, unanswered.
    pub(super) fn has(&self, id: DeliveryId) -> bool {
        self.all().any(|sent| sent.pending.id() == id)
    }

    fn all(&self) -> impl Iterator<Item = &Sent> {
        let current = self.current.iter().map(|(sent, _)| sent);
        self.unsettled.iter().chain(current).chain(&self.queue)
    }

    /// Tells lanes that none of these will be answered on this link.
    pub(super) fn fail_all(&mut self, error: &LinkError) {
        let current = self.current.take().map(|(sent, _)| sent);
        let sent = self.unsettled.drain(..).chain(current);
        for sent in sent.chain(self.queue.drain(..)) {
            sent.pending.fail(error.clone());
        }
        self.set_congested(false);
    }

    /// Whether a delivery has had its time, be it for an answer or for credit.
    pub(super) fn is_overdue(&mut self, now: Instant) -> bool {
        if self.look_at.is_none_or(|at| now < at) {
            return false;
        }
        self.look_at = self.all().map(|sent| sent.overdue_at).min();
        self.look_at.is_some_and(|at| now >= at)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.look_at
    }

    fn set_congested(&self, congested: bool) {
        if let Some(shared) = &self.shared {
            shared.set_congested(congested);
        }
    }

    fn watch(&mut self, at: Instant) {
        self.look_at = Some(self.look_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// Sequence numbers wrap around (RFC 1982, as AMQP 1.0, 2.8.10 has it).
fn precedes(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

fn no_outcome(state: Option<&DeliveryState>) -> LinkError {
    let text = match state {
        Some(_) => "the peer settled with a state that is not final",
        None => "the peer settled without an outcome",
    };
    LinkError::new("hublane:no-outcome", text)
}

/// Ends a delivery of which the peer already said what becomes of it (2.6.14).
fn abort(window: &mut Window<'_>, out: &mut Outbound) {
    let mut aborted = performatives::transfer(0);
    aborted.aborted = true;
    out.put_frame(window.channel, &aborted);
    *window.remote = window.remote.saturating_sub(1);
    *window.next_outgoing_id = window.next_outgoing_id.wrapping_add(1);
}
