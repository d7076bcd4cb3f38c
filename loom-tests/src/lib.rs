//! The runner of the models, and a peer for them.
//!
//! A model compiles the production lines through hublane's facade; `cfg(loom)` swaps only the
//! primitives below it. Time stands still, so no park ends by a time-out: a lost wake-up is a
//! deadlock, which loom reports.
#![cfg(loom)]

use hublane::transport::{
    Busy, ConnectError, Delivery, DeliveryId, HubInfo, Link, LinkInbox, LinkState, Settlement,
    Transport,
};
use hublane::{PartitionId, Producer, ProducerBuilder};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Explores every schedule of `body` up to the preemption bound (2, or
/// `LOOM_MAX_PREEMPTIONS`) and prints how many there were.
pub fn explore(name: &str, body: impl Fn() + Sync + Send + 'static) {
    let executions = Arc::new(AtomicU64::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 100_000;
    let counter = Arc::clone(&executions);
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        body();
    });
    // Past the capture of the test harness, so that the count is always seen.
    let _ = writeln!(
        std::io::stderr(),
        "{name}: executions: {}",
        executions.load(Ordering::Relaxed)
    );
}

/// What the peer does with each transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Stores and settles inside `submit`.
    Instant,
    /// Stores, and settles when [`ModelPeer::settle_held`] is called.
    Held,
    /// Panics in the first `submit`, as a broken transport would.
    Panic,
}

/// A peer without threads; what it records is behind locks that loom does not see, so it adds
/// nothing to the schedules.
#[derive(Clone)]
pub struct ModelPeer(Arc<PeerState>);

struct PeerState {
    mode: Mode,
    partitions: usize,
    stored: Mutex<Vec<usize>>,
    held: Mutex<Vec<(DeliveryId, LinkInbox)>>,
}

impl ModelPeer {
    /// A peer with this many partitions.
    pub fn new(mode: Mode, partitions: usize) -> ModelPeer {
        ModelPeer(Arc::new(PeerState {
            mode,
            partitions,
            stored: Mutex::new(Vec::new()),
            held: Mutex::new(Vec::new()),
        }))
    }

    /// A builder over this peer with a bound of `events` and no batching by age.
    pub fn builder(&self, events: u64) -> ProducerBuilder {
        ProducerBuilder::new(ModelTransport(self.clone())).max_buffered_events(events)
    }

    /// A producer over this peer with a bound of `events`.
    pub fn producer(&self, events: u64) -> Producer {
        self.builder(events)
            .build()
            .expect("the settings are valid")
    }

    /// Events that reached the peer.
    pub fn stored(&self) -> usize {
        self.0.stored.lock().unwrap().iter().sum()
    }

    /// Accepts one held transfer; false if there is none (yet).
    pub fn settle_held(&self) -> bool {
        let held = self.0.held.lock().unwrap().pop();
        match held {
            Some((id, inbox)) => {
                inbox.settle(id, Settlement::Accepted);
                true
            }
            None => false,
        }
    }
}

struct ModelTransport(ModelPeer);

impl Transport for ModelTransport {
    fn connect(&self, _deadline: Instant) -> Result<HubInfo, ConnectError> {
        Ok(HubInfo {
            partitions: (0..self.0.0.partitions)
                .map(|n| PartitionId::from(n.to_string().as_str()))
                .collect(),
            max_message_size: 1 << 20,
        })
    }

    fn open_link(&self, _partition: &PartitionId, inbox: LinkInbox) -> Box<dyn Link> {
        inbox.link(LinkState::Up {
            max_message_size: 1 << 20,
        });
        Box::new(ModelLink {
            peer: self.0.clone(),
            inbox,
        })
    }

    fn close(&self, _deadline: Instant) {}
}

struct ModelLink {
    peer: ModelPeer,
    inbox: LinkInbox,
}

impl Link for ModelLink {
    fn submit(&mut self, delivery: Delivery) -> Result<(), Busy> {
        let peer = &self.peer.0;
        assert!(peer.mode != Mode::Panic, "scripted panic of the transport");
        peer.stored.lock().unwrap().push(delivery.payload.count());
        match peer.mode {
            Mode::Held => {
                let held = (delivery.id, self.inbox.clone());
                peer.held.lock().unwrap().push(held);
            }
            _ => self.inbox.settle(delivery.id, Settlement::Accepted),
        }
        Ok(())
    }

    fn cancel(&mut self, _id: DeliveryId) {}
}
