//! What a lane needs of a network: a link that takes batches and answers each of them once.
//!
//! Traits only. The AMQP transport (feature `amqp`) and the scripted one (feature `testing`)
//! implement them; the engine knows nothing else of either.

use crate::codec::Payload;
use crate::partition::PartitionId;
use crate::sync::{Arc, Instant, Mutex, Unparker, atomic::AtomicBool, atomic::Ordering};
use std::collections::VecDeque;

/// Names one submission of a batch on its link; never used twice by a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(pub u64);

/// One batch on its way to the peer.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Names this submission in its settlement.
    pub id: DeliveryId,
    /// The final bytes; a retry carries the same.
    pub payload: Arc<Payload>,
    /// When the lane will give the batch up, answered or not.
    pub deadline: Instant,
}

/// The answer to one [`Delivery`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The peer stored the batch.
    Accepted,
    /// The peer refused the batch with this AMQP error.
    Rejected {
        /// The AMQP error condition, such as `com.microsoft:server-busy`.
        condition: String,
        /// The peer's words, if it had any.
        description: Option<String>,
    },
    /// The peer gave the batch back unprocessed (AMQP 1.0, 3.4.4): not stored.
    Released,
    /// The peer gave the batch back, perhaps after a failed attempt (AMQP 1.0, 3.4.5): not stored.
    Modified,
    /// The transfer may have reached the peer; no answer will come.
    Unknown(LinkError),
    /// Nothing of the batch was handed to the network.
    NotSent(LinkError),
}

/// Why a link, or the connection below it, is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{condition}: {description}")]
pub struct LinkError {
    /// The AMQP error condition, or one of `hublane:*` for what no peer said.
    pub condition: Arc<str>,
    /// What happened, without secrets.
    pub description: Arc<str>,
}

impl LinkError {
    /// An error with the given AMQP condition and description.
    pub fn new(condition: impl Into<Arc<str>>, description: impl Into<Arc<str>>) -> LinkError {
        LinkError {
            condition: condition.into(),
            description: description.into(),
        }
    }
}

/// Whether batches can be handed to a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Not attached (yet, or any more). The transport is working on it.
    Down(Option<LinkError>),
    /// Attached.
    Up {
        /// The largest payload in bytes that the peer takes on this link.
        max_message_size: u64,
    },
}

/// The link cannot take a batch now; it wakes the lane through its [`LinkInbox`] when it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// What a transport learned of the hub when it connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubInfo {
    /// Every partition, in the service's order, which decides where a key goes.
    pub partitions: Vec<PartitionId>,
    /// The largest message in bytes that the hub's links take.
    pub max_message_size: u64,
}

/// Why a transport could not connect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The peer answered, and the answer was no (unknown hub, wrong key, …).
    #[error("the service refused: {0}")]
    Refused(LinkError),
    /// No connection, or none that speaks AMQP.
    #[error("cannot reach the service: {0}")]
    Unreachable(LinkError),
    /// The start-up deadline passed.
    #[error("no answer within the start-up time-out; last problem: {last}")]
    TimedOut {
        /// What stood in the way last.
        last: LinkError,
    },
}

/// A way to one hub.
pub trait Transport: Send + Sync + 'static {
    /// Connects and learns what the hub looks like, by `deadline`. Called before any link, once
    /// by `build`, and until it succeeds by `build_lazy`.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] says what stood in the way; nothing is left running for it.
    fn connect(&self, deadline: Instant) -> Result<HubInfo, ConnectError>;

    /// Starts a link to `partition`. Never blocks: the link attaches on the transport's own
    /// thread and tells `inbox` when it is up.
    fn open_link(&self, partition: &PartitionId, inbox: LinkInbox) -> Box<dyn Link>;

    /// Ends all links and the connection, by `deadline`. Idempotent.
    fn close(&self, deadline: Instant);
}

/// One partition's link, driven by one worker.
pub trait Link: Send {
    /// Hands a batch over; never blocks. Each delivery taken gets exactly one settlement,
    /// in its lane's [`LinkInbox`], whatever happens to the link.
    ///
    /// # Errors
    ///
    /// [`Busy`] if the link cannot take it now; nothing was sent and no settlement comes.
    fn submit(&mut self, delivery: Delivery) -> Result<(), Busy>;

    /// The lane gave this delivery up. The link must be treated as broken (its peer did not
    /// answer) and attached anew; a late settlement is ignored by the lane.
    fn cancel(&mut self, id: DeliveryId);
}

/// Where a link's news go; it wakes the lane's worker.
#[derive(Clone, Debug)]
pub struct LinkInbox {
    shared: Arc<InboxShared>,
    unparker: Unparker,
}

#[derive(Debug)]
struct InboxShared {
    /// Set after a change, cleared by the worker before it looks.
    dirty: AtomicBool,
    state: Mutex<InboxState>,
}

#[derive(Debug)]
struct InboxState {
    link: LinkState,
    link_changed: bool,
    ready: bool,
    settlements: VecDeque<(DeliveryId, Settlement)>,
    capacity: usize,
    overflowed: u64,
}

/// What the worker found in its inbox.
#[derive(Debug, Default)]
pub(crate) struct LinkNews {
    pub(crate) link: Option<LinkState>,
    pub(crate) ready: bool,
    pub(crate) settlements: VecDeque<(DeliveryId, Settlement)>,
}

impl LinkInbox {
    /// An inbox for `window` deliveries in flight, which wakes `unparker`.
    ///
    /// A lane has at most `window` unsettled deliveries and drains before it submits, so the
    /// room is never short for them; what a broken transport says beyond it is dropped and
    /// counted, and the delivery it spoke of ends by its own deadline.
    pub(crate) fn new(window: usize, unparker: Unparker) -> LinkInbox {
        let capacity = window.saturating_mul(4).saturating_add(8);
        LinkInbox {
            shared: Arc::new(InboxShared {
                dirty: AtomicBool::new(false),
                state: Mutex::new(InboxState {
                    link: LinkState::Down(None),
                    link_changed: false,
                    ready: false,
                    settlements: VecDeque::new(),
                    capacity,
                    overflowed: 0,
                }),
            }),
            unparker,
        }
    }

    /// Reports the answer to a delivery.
    pub fn settle(&self, id: DeliveryId, settlement: Settlement) {
        self.change(|state| {
            if state.settlements.len() < state.capacity {
                state.settlements.push_back((id, settlement));
            } else {
                state.overflowed += 1;
            }
        });
    }

    /// Reports that the link is attached, or no longer is.
    pub fn link(&self, link: LinkState) {
        self.change(|state| {
            state.link = link;
            state.link_changed = true;
        });
    }

    /// Reports that a link which answered [`Busy`] has room again.
    pub fn ready(&self) {
        self.change(|state| state.ready = true);
    }

    fn change(&self, f: impl FnOnce(&mut InboxState)) {
        f(&mut self.shared.state.lock());
        self.shared.dirty.store(true, Ordering::Release);
        self.unparker.unpark();
    }

    /// Takes what came since the last call; `None`, without the lock, if nothing did.
    pub(crate) fn take(&self) -> Option<LinkNews> {
        if !self.shared.dirty.load(Ordering::Acquire) {
            return None;
        }
        // Cleared before the look: what comes after it sets the flag again.
        self.shared.dirty.swap(false, Ordering::AcqRel);
        let mut state = self.shared.state.lock();
        Some(LinkNews {
            link: std::mem::take(&mut state.link_changed).then(|| state.link.clone()),
            ready: std::mem::take(&mut state.ready),
            settlements: std::mem::take(&mut state.settlements),
        })
    }
}
