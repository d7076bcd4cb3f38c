//! The scripted peer.

use crate::codec::Payload;
use crate::partition::PartitionId;
use crate::sync::{Arc, Instant, Mutex, VirtualClock};
use crate::transport::{
    Busy, ConnectError, Delivery, DeliveryId, HubInfo, Link, LinkError, LinkInbox, LinkState,
    Settlement, Transport,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// What the peer does with one transfer.
#[derive(Clone, Debug)]
pub struct Answer {
    reaction: Reaction,
    after: Duration,
}

#[derive(Clone, Debug)]
enum Reaction {
    Settle(Settlement),
    StoreThenUnknown,
    Hold,
    Busy,
    Panic,
}

impl Answer {
    fn new(reaction: Reaction) -> Answer {
        Answer {
            reaction,
            after: Duration::ZERO,
        }
    }

    /// Stores the batch and accepts it.
    pub fn accept() -> Answer {
        Answer::settle(Settlement::Accepted)
    }

    /// Refuses the batch with this AMQP error condition.
    pub fn reject(condition: &str) -> Answer {
        Answer::settle(Settlement::Rejected {
            condition: condition.to_owned(),
            description: None,
        })
    }

    /// Answers with this settlement; the batch is stored if that is `Accepted`.
    pub fn settle(settlement: Settlement) -> Answer {
        Answer::new(Reaction::Settle(settlement))
    }

    /// The connection is lost before the batch is stored; the link knows only that no answer
    /// will come.
    pub fn lose() -> Answer {
        Answer::settle(Settlement::Unknown(lost()))
    }

    /// Stores the batch, and the connection is lost before the answer.
    pub fn store_and_lose() -> Answer {
        Answer::new(Reaction::StoreThenUnknown)
    }

    /// Gives no answer until [`ScriptedPeer::answer_held`].
    pub fn hold() -> Answer {
        Answer::new(Reaction::Hold)
    }

    /// The link does not take the batch; [`ScriptedPeer::ready`] says when it would.
    pub fn busy() -> Answer {
        Answer::new(Reaction::Busy)
    }

    /// The transport panics, which kills the lane's worker.
    pub fn panic() -> Answer {
        Answer::new(Reaction::Panic)
    }

    /// As this answer, but given only when the virtual clock has moved on by `delay`.
    pub fn after(mut self, delay: Duration) -> Answer {
        self.after = delay;
        self
    }
}

/// One transfer that the peer received.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The delivery's name on its link.
    pub id: DeliveryId,
    /// What was transferred.
    pub payload: Arc<Payload>,
    /// When, by the virtual clock.
    pub at: Instant,
}

/// A peer that answers as it is told, and remembers what it was sent.
///
/// All clones are the same peer. By default it accepts every batch at once.
#[derive(Clone)]
pub struct ScriptedPeer {
    shared: Arc<Shared>,
}

/// The transport to a [`ScriptedPeer`], for [`ProducerBuilder::new`](crate::ProducerBuilder::new).
pub struct ScriptedTransport {
    peer: ScriptedPeer,
}

struct Shared {
    clock: VirtualClock,
    state: Mutex<State>,
}

struct State {
    partitions: Vec<PartitionId>,
    max_message_size: u64,
    connect: VecDeque<ConnectError>,
    links_start_down: bool,
    default: Answer,
    lanes: BTreeMap<PartitionId, LaneState>,
    closed: bool,
}

#[derive(Default)]
struct LaneState {
    inbox: Option<LinkInbox>,
    script: VecDeque<Answer>,
    transfers: Vec<Transfer>,
    stored: Vec<Arc<Payload>>,
    held: VecDeque<Delivery>,
    cancelled: Vec<DeliveryId>,
}

fn lost() -> LinkError {
    LinkError::new("amqp:connection:forced", "scripted loss of the connection")
}

impl ScriptedPeer {
    /// A peer with partitions `"0"`, `"1"`, …, whose links are up at once and take 1 MiB.
    pub fn new(partitions: usize, clock: &VirtualClock) -> ScriptedPeer {
        ScriptedPeer {
            shared: Arc::new(Shared {
                clock: clock.clone(),
                state: Mutex::new(State {
                    partitions: (0..partitions)
                        .map(|n| PartitionId::from(n.to_string().as_str()))
                        .collect(),
                    max_message_size: 1024 * 1024,
                    connect: VecDeque::new(),
                    links_start_down: false,
                    default: Answer::accept(),
                    lanes: BTreeMap::new(),
                    closed: false,
                }),
            }),
        }
    }

    /// The transport to this peer.
    pub fn transport(&self) -> ScriptedTransport {
        ScriptedTransport { peer: self.clone() }
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.shared.state.lock())
    }

    fn lane<R>(&self, partition: &str, f: impl FnOnce(&mut LaneState) -> R) -> R {
        self.with(|state| f(state.lanes.entry(PartitionId::from(partition)).or_default()))
    }

    /// Makes the next connect fail with `error`.
    pub fn refuse_connect(&self, error: ConnectError) {
        self.with(|state| state.connect.push_back(error));
    }

    /// Lets links that are opened from now on wait for [`link_up`](ScriptedPeer::link_up).
    pub fn start_links_down(&self) {
        self.with(|state| state.links_start_down = true);
    }

    /// The largest message of links that come up from now on, in bytes.
    pub fn set_max_message_size(&self, bytes: u64) {
        self.with(|state| state.max_message_size = bytes);
    }

    /// What the peer does with transfers for which nothing is scripted.
    pub fn default_answer(&self, answer: Answer) {
        self.with(|state| state.default = answer);
    }

    /// Appends the answer to one further transfer on `partition`.
    pub fn script(&self, partition: &str, answer: Answer) {
        self.lane(partition, |lane| lane.script.push_back(answer));
    }

    /// Answers the oldest transfer that is held on `partition`; false if there is none.
    pub fn answer_held(&self, partition: &str, answer: Answer) -> bool {
        let Some(delivery) = self.lane(partition, |lane| lane.held.pop_front()) else {
            return false;
        };
        self.react(&PartitionId::from(partition), delivery, answer);
        true
    }

    /// Transfers that are held on `partition`.
    pub fn held(&self, partition: &str) -> usize {
        self.lane(partition, |lane| lane.held.len())
    }

    /// Takes the link of `partition` down. What is held stays held.
    pub fn link_down(&self, partition: &str) {
        self.tell(partition, |inbox| {
            inbox.link(LinkState::Down(Some(lost())));
        });
    }

    /// Brings the link of `partition` up with the current maximum message size.
    pub fn link_up(&self, partition: &str) {
        let max_message_size = self.with(|state| state.max_message_size);
        self.tell(partition, |inbox| {
            inbox.link(LinkState::Up { max_message_size });
        });
    }

    /// Tells the lane that a busy link has room again.
    pub fn ready(&self, partition: &str) {
        self.tell(partition, LinkInbox::ready);
    }

    /// Sends the lane a settlement that it may not expect.
    pub fn settle(&self, partition: &str, id: DeliveryId, settlement: Settlement) {
        self.tell(partition, |inbox| inbox.settle(id, settlement));
    }

    fn tell(&self, partition: &str, f: impl FnOnce(&LinkInbox)) {
        if let Some(inbox) = self.lane(partition, |lane| lane.inbox.clone()) {
            f(&inbox);
        }
    }

    /// Every transfer on `partition`, in order, stored or not.
    pub fn transfers(&self, partition: &str) -> Vec<Transfer> {
        self.lane(partition, |lane| lane.transfers.clone())
    }

    /// Deliveries on `partition` that the lane gave up.
    pub fn cancelled(&self, partition: &str) -> Vec<DeliveryId> {
        self.lane(partition, |lane| lane.cancelled.clone())
    }

    /// The batches stored on `partition`, in order, duplicates included.
    pub fn stored(&self, partition: &str) -> Vec<Arc<Payload>> {
        self.lane(partition, |lane| lane.stored.clone())
    }

    /// The bodies of the events stored on `partition`, in order, as text.
    pub fn stored_bodies(&self, partition: &str) -> Vec<String> {
        self.stored(partition)
            .iter()
            .flat_map(|payload| {
                payload
                    .sections()
                    .map(|message| match crate::codec::decode(message) {
                        Ok((event, _)) => String::from_utf8_lossy(event.body()).into_owned(),
                        Err(error) => format!("undecodable: {error}"),
                    })
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Forgets all transfers and what was stored.
    pub fn forget(&self) {
        self.with(|state| {
            for lane in state.lanes.values_mut() {
                lane.transfers = Vec::new();
                lane.stored = Vec::new();
            }
        });
    }

    /// True once the producer has closed its transport.
    pub fn is_closed(&self) -> bool {
        self.with(|state| state.closed)
    }

    fn react(&self, partition: &PartitionId, delivery: Delivery, answer: Answer) {
        if answer.after.is_zero() {
            self.react_now(partition, &delivery, answer.reaction);
            return;
        }
        let (peer, partition) = (self.clone(), partition.clone());
        self.shared.clock.schedule(answer.after, move || {
            peer.react_now(&partition, &delivery, answer.reaction);
        });
    }

    fn react_now(&self, partition: &PartitionId, delivery: &Delivery, reaction: Reaction) {
        let (inbox, settlement) = self.lane(partition.as_str(), |lane| {
            let stores = matches!(
                reaction,
                Reaction::Settle(Settlement::Accepted) | Reaction::StoreThenUnknown
            );
            if stores {
                lane.stored.push(Arc::clone(&delivery.payload));
            }
            let settlement = match reaction {
                Reaction::Settle(settlement) => Some(settlement),
                Reaction::StoreThenUnknown => Some(Settlement::Unknown(lost())),
                Reaction::Hold | Reaction::Busy | Reaction::Panic => {
                    lane.held.push_back(delivery.clone());
                    None
                }
            };
            (lane.inbox.clone(), settlement)
        });
        if let (Some(inbox), Some(settlement)) = (inbox, settlement) {
            inbox.settle(delivery.id, settlement);
        }
    }
}

impl Transport for ScriptedTransport {
    fn connect(&self, _deadline: Instant) -> Result<HubInfo, ConnectError> {
        self.peer.with(|state| match state.connect.pop_front() {
            Some(error) => Err(error),
            None => Ok(HubInfo {
                partitions: state.partitions.clone(),
                max_message_size: state.max_message_size,
            }),
        })
    }

    fn open_link(&self, partition: &PartitionId, inbox: LinkInbox) -> Box<dyn Link> {
        let start = self.peer.with(|state| {
            let lane = state.lanes.entry(partition.clone()).or_default();
            lane.inbox = Some(inbox.clone());
            (!state.links_start_down).then_some(state.max_message_size)
        });
        if let Some(max_message_size) = start {
            inbox.link(LinkState::Up { max_message_size });
        }
        Box::new(ScriptedLink {
            peer: self.peer.clone(),
            partition: partition.clone(),
        })
    }

    fn close(&self, _deadline: Instant) {
        self.peer.with(|state| state.closed = true);
    }
}

struct ScriptedLink {
    peer: ScriptedPeer,
    partition: PartitionId,
}

impl Link for ScriptedLink {
    fn submit(&mut self, delivery: Delivery) -> Result<(), Busy> {
        let at = self.peer.shared.clock.now();
        let answer = self.peer.with(|state| {
            let lane = state.lanes.entry(self.partition.clone()).or_default();
            let answer = lane.script.pop_front().unwrap_or(state.default.clone());
            if !matches!(answer.reaction, Reaction::Busy | Reaction::Panic) {
                lane.transfers.push(Transfer {
                    id: delivery.id,
                    payload: Arc::clone(&delivery.payload),
                    at,
                });
            }
            answer
        });
        match answer.reaction {
            Reaction::Busy => return Err(Busy),
            Reaction::Panic => panic!("scripted panic of the transport"),
            _ => self.peer.react(&self.partition, delivery, answer),
        }
        Ok(())
    }

    fn cancel(&mut self, id: DeliveryId) {
        self.peer.lane(self.partition.as_str(), |lane| {
            lane.held.retain(|delivery| delivery.id != id);
            lane.cancelled.push(id);
        });
    }
}
