//! A batch between its lane and its answer.

use super::errors;
use crate::codec::Payload;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::sync::{Arc, Instant};
use crate::transport::{Busy, Delivery, DeliveryId, LinkError, LinkInbox, LinkState, Settlement};
use bytes::Bytes;

/// Deliveries that a link takes before it answers [`Busy`]. Lanes have far fewer in flight; this
/// bounds the memory that a driver of this transport which has no bound of its own can bind.
pub(super) const MAX_OUTSTANDING: usize = 1024;

/// What both ends of a link share.
#[derive(Debug)]
pub(super) struct LinkShared {
    inbox: LinkInbox,
    /// Deliveries taken and not settled.
    outstanding: AtomicUsize,
    /// The link has deliveries and no credit for them.
    congested: AtomicBool,
    /// A submission was refused since the last `ready`.
    refused: AtomicBool,
}

impl LinkShared {
    pub(super) fn new(inbox: LinkInbox) -> LinkShared {
        LinkShared {
            inbox,
            outstanding: AtomicUsize::new(0),
            congested: AtomicBool::new(false),
            refused: AtomicBool::new(false),
        }
    }

    /// Takes a delivery in, unless the link is full or waits for credit.
    pub(super) fn admit(self: &Arc<Self>, delivery: Delivery) -> Result<Pending, Busy> {
        if self.is_full() {
            self.refused.store(true, Ordering::SeqCst);
            // Either this second look sees the room that was made meanwhile, or whoever made it
            // sees the flag: both sides write, fence, and then read.
            fence(Ordering::SeqCst);
            if self.is_full() {
                return Err(Busy);
            }
        }
        self.outstanding.fetch_add(1, Ordering::SeqCst);
        Ok(Pending {
            id: delivery.id,
            payload: Bytes::from_owner(Lent(delivery.payload)),
            deadline: delivery.deadline,
            transferred: false,
            link: Some(Arc::clone(self)),
        })
    }

    fn is_full(&self) -> bool {
        self.outstanding.load(Ordering::SeqCst) >= MAX_OUTSTANDING
            || self.congested.load(Ordering::SeqCst)
    }

    /// Tells whether the link waits for credit.
    pub(super) fn set_congested(&self, congested: bool) {
        if self.congested.swap(congested, Ordering::SeqCst) && !congested {
            self.offer_room();
        }
    }

    /// Tells the lane of the link's state.
    pub(super) fn report(&self, state: LinkState) {
        self.inbox.link(state);
    }

    fn offer_room(&self) {
        fence(Ordering::SeqCst);
        if !self.is_full() && self.refused.swap(false, Ordering::SeqCst) {
            self.inbox.ready();
        }
    }
}

/// A delivery that was taken and has no answer yet.
///
/// It settles exactly once, whatever happens: by [`settle`](Pending::settle) or
/// [`fail`](Pending::fail), which consume it, or when it is dropped.
#[derive(Debug)]
pub(super) struct Pending {
    id: DeliveryId,
    payload: Bytes,
    deadline: Instant,
    transferred: bool,
    /// Taken when it settles.
    link: Option<Arc<LinkShared>>,
}

impl Pending {
    pub(super) fn id(&self) -> DeliveryId {
        self.id
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// A part of it is handed to the network: from now on it may be stored.
    pub(super) fn set_transferred(&mut self) {
        self.transferred = true;
    }

    /// Gives the lane the peer's answer.
    pub(super) fn settle(mut self, settlement: Settlement) {
        self.finish(settlement);
    }

    /// Tells the lane that there will be no answer.
    pub(super) fn fail(mut self, error: LinkError) {
        self.finish_without_answer(error);
    }

    fn finish_without_answer(&mut self, error: LinkError) {
        self.finish(match self.transferred {
            true => Settlement::Unknown(error),
            false => Settlement::NotSent(error),
        });
    }

    fn finish(&mut self, settlement: Settlement) {
        let Some(link) = self.link.take() else {
            return;
        };
        // Before the lane hears of it, so that it finds the memory of its batch unshared.
        self.payload = Bytes::new();
        link.outstanding.fetch_sub(1, Ordering::SeqCst);
        link.inbox.settle(self.id, settlement);
        link.offer_room();
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.link.is_some() {
            let gone = "the transport ended before an answer came";
            self.finish_without_answer(LinkError::new(errors::CLOSED, gone));
        }
    }
}

/// Lends a batch's bytes to [`Bytes`] without a copy.
struct Lent(Arc<Payload>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
