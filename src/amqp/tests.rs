//! The state machines without a socket, against a peer that does what it likes.

use super::connection::{Connection, Ended, PeerLimits};
use super::delivery::LinkShared;
use super::learning::Learning;
use super::links::Links;
use super::mailbox::{Letter, LinkId};
use super::options::{AmqpOptions, Settings};
use super::token::TokenSource;
use super::wire::Inbound;
use crate::codec::Payload;
use crate::connection_string::ConnectionString;
use crate::event::Event;
use crate::retry::Jitter;
use crate::sync::{Arc, Clock, Instant, ParkRole};
use crate::transport::{Delivery, DeliveryId, LinkInbox, LinkState, Settlement};
use bytes::Bytes;
use fe2o3_amqp::frames::amqp::{Frame, FrameBody};
use fe2o3_amqp_types::definitions::SenderSettleMode;
use fe2o3_amqp_types::definitions::{AmqpError, Error, Handle, ReceiverSettleMode, Role};
use fe2o3_amqp_types::messaging::message::__private::Serializable;
use fe2o3_amqp_types::messaging::{
    Accepted, AmqpValue, ApplicationProperties, DeliveryState, Message, Modified, Received,
    Rejected, Released, Source, Target, TargetArchetype,
};
use fe2o3_amqp_types::performatives::{
    Attach, Begin, Close, Detach, Disposition, End, Flow, Transfer,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

const MILLI: Duration = Duration::from_millis(1);
/// The peer numbers its channels from here.
const PEER_CHANNELS: u16 = 100;

struct Bench {
    connection: Connection,
    now: Instant,
    /// What the connection said, not yet answered.
    said: Vec<Frame>,
    inboxes: Vec<LinkInbox>,
    submitted: u64,
    settled: BTreeMap<DeliveryId, Settlement>,
    states: Vec<LinkState>,
    ended: Option<Ended>,
}

impl Bench {
    fn new(links: usize) -> Bench {
        Bench::with(links, None)
    }

    fn with(links: usize, learning: Option<Learning>) -> Bench {
        let target: ConnectionString = "Endpoint=sb://localhost;SharedAccessKeyName=n;\
            SharedAccessKey=k;UseDevelopmentEmulator=true"
            .parse()
            .unwrap();
        let life = Duration::from_secs(60);
        let tokens = TokenSource::new(target.credential(), life).unwrap();
        let options = AmqpOptions::default().operation_timeout(1000 * MILLI);
        let settings = Settings::new(&target, "hub".into(), options, tokens, "me".into()).unwrap();
        let limits = PeerLimits {
            max_frame: 512,
            channel_max: 20,
            idle: Some(Duration::from_secs(5)),
        };
        let now = Clock::System.now();
        let connection = Connection::new(
            Arc::new(settings),
            limits,
            Links::default(),
            learning,
            1,
            Jitter::new(1),
            now,
        );
        let mut bench = Bench {
            connection,
            now,
            said: Vec::new(),
            inboxes: Vec::new(),
            submitted: 0,
            settled: BTreeMap::new(),
            states: Vec::new(),
            ended: None,
        };
        for id in 0..links {
            let unparker = Clock::System.parker(ParkRole::Caller).unparker();
            let inbox = LinkInbox::new(1024, unparker);
            let shared = Arc::new(LinkShared::new(inbox.clone()));
            let id = LinkId(id as u64);
            let letter = Letter::Open(id, "0".into(), shared);
            bench.connection.handle_letter(letter, now);
            bench.inboxes.push(inbox);
        }
        bench
    }

    /// Writes what there is to write, and reads it as the peer would.
    fn listen(&mut self) {
        self.connection.pump(self.now);
        let mut written = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        let out = &mut self.connection.out;
        let result = out.poll_write(&mut context, Pin::new(&mut written), &mut 0);
        assert!(result.is_ready());
        self.connection.note_written(self.now);
        let mut inbound = Inbound::new(512);
        inbound.bytes.extend_from_slice(&written);
        while let Some(frame) = inbound.take_frame().unwrap() {
            self.said.push(frame);
        }
        assert!(inbound.bytes.is_empty(), "whole frames");
    }

    fn hear(&mut self, channel: u16, body: FrameBody) {
        if self.ended.is_none() {
            let frame = Frame { channel, body };
            self.connection.note_received(self.now);
            self.ended = self.connection.handle_frame(frame, self.now).err();
        }
    }

    fn pass(&mut self, time: Duration) {
        self.listen();
        self.now += time;
        if self.ended.is_none() {
            self.ended = self.connection.handle_timeout(self.now).err();
        }
    }

    fn submit(&mut self, link: usize, bytes: usize) {
        let mut payload = Payload::default();
        payload.push(&Event::new(vec![b'x'; bytes]), None);
        let id = DeliveryId(self.submitted);
        self.submitted += 1;
        let delivery = Delivery {
            id,
            payload: Arc::new(payload),
            deadline: self.now + Duration::from_secs(60),
        };
        let entry = &self.connection.links.entries[&LinkId(link as u64)];
        match entry.shared.admit(delivery) {
            Err(_) => self.submitted -= 1,
            Ok(pending) => {
                let letter = Letter::Submit(LinkId(link as u64), pending);
                self.connection.handle_letter(letter, self.now);
            }
        }
    }

    /// Answers what was said, as a peer does that means well.
    fn answer(&mut self) {
        for _ in 0..64 {
            self.listen();
            let said = std::mem::take(&mut self.said);
            if said.is_empty() {
                return;
            }
            for frame in said {
                self.answer_one(frame);
            }
        }
        panic!("they talk without end");
    }

    fn answer_one(&mut self, frame: Frame) {
        let channel = frame.channel + PEER_CHANNELS;
        match frame.body {
            FrameBody::Begin(_) => self.hear(channel, begin(frame.channel)),
            FrameBody::Attach(attach) => {
                let handle = attach.handle.0;
                let sends = attach.role == Role::Sender;
                self.hear(channel, attached(attach));
                if sends {
                    self.hear(channel, credit(handle, 0, 1000));
                }
            }
            FrameBody::Transfer { performative, .. } if !performative.more => {
                let requests = performative.message_format == Some(0);
                if requests {
                    self.hear(channel, ok_answer());
                }
            }
            FrameBody::Detach(detach) => {
                let answer = Detach {
                    handle: Handle(detach.handle.0 + 7),
                    closed: true,
                    error: None,
                };
                self.hear(channel, FrameBody::Detach(answer));
            }
            FrameBody::End(_) => self.hear(channel, FrameBody::End(End { error: None })),
            _ => {}
        }
    }

    fn read_inboxes(&mut self) {
        for inbox in &self.inboxes {
            let Some(news) = inbox.take() else { continue };
            self.states.extend(news.link);
            for (id, settlement) in news.settlements {
                let earlier = self.settled.insert(id, settlement);
                assert!(earlier.is_none(), "{id:?} was settled twice");
            }
        }
    }

    /// Up, with a token and a link each.
    fn up(links: usize) -> Bench {
        let mut bench = Bench::new(links);
        bench.answer();
        bench.read_inboxes();
        let ups = bench
            .states
            .iter()
            .filter(|state| matches!(state, LinkState::Up { .. }));
        assert_eq!(ups.count(), links, "{:?}", bench.states);
        bench
    }

    /// The peer's channel of the latest session.
    fn last_channel(&self) -> u16 {
        self.connection.sessions.keys().max().unwrap() + PEER_CHANNELS
    }
}

fn begin(remote_channel: u16) -> FrameBody {
    FrameBody::Begin(Begin {
        remote_channel: Some(remote_channel),
        next_outgoing_id: u32::MAX,
        incoming_window: 5000,
        outgoing_window: 5000,
        handle_max: Handle(255),
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
    })
}

/// The answer to an attach; the peer's handles are others than ours.
fn attached(attach: Attach) -> FrameBody {
    let receives = attach.role == Role::Sender;
    FrameBody::Attach(Attach {
        handle: Handle(attach.handle.0 + 7),
        role: if receives {
            Role::Receiver
        } else {
            Role::Sender
        },
        snd_settle_mode: SenderSettleMode::Mixed,
        rcv_settle_mode: ReceiverSettleMode::First,
        source: Some(Box::new(Source::default())),
        target: Some(Box::new(TargetArchetype::Target(Target::default()))),
        initial_delivery_count: (!receives).then_some(0),
        max_message_size: Some(1_000_000),
        ..attach
    })
}

fn credit(handle: u32, delivery_count: u32, credit: u32) -> FrameBody {
    FrameBody::Flow(Flow {
        next_incoming_id: Some(0),
        incoming_window: 5000,
        next_outgoing_id: 0,
        outgoing_window: 5000,
        handle: Some(Handle(handle + 7)),
        delivery_count: Some(delivery_count),
        link_credit: Some(credit),
        available: None,
        drain: false,
        echo: false,
        properties: None,
    })
}

fn ok_answer() -> FrameBody {
    let status = ApplicationProperties::builder().insert("status-code", 202_i32);
    let message = Message::builder()
        .application_properties(status.build())
        .body(AmqpValue(0_u32))
        .build();
    let payload = serde_amqp::to_vec(&Serializable(message)).unwrap();
    transfer(8, payload)
}

fn transfer(handle: u32, payload: Vec<u8>) -> FrameBody {
    FrameBody::Transfer {
        performative: Transfer {
            handle: Handle(handle),
            delivery_id: Some(0),
            delivery_tag: None,
            message_format: Some(0),
            settled: Some(true),
            more: false,
            rcv_settle_mode: None,
            state: None,
            resume: false,
            aborted: false,
            batchable: false,
        },
        payload: Bytes::from(payload),
    }
}

fn disposition(
    first: u32,
    last: Option<u32>,
    settled: bool,
    state: Option<DeliveryState>,
) -> FrameBody {
    FrameBody::Disposition(Disposition {
        role: Role::Receiver,
        first,
        last,
        settled,
        state,
        batchable: false,
    })
}

fn rejected() -> DeliveryState {
    let error = Error::new(AmqpError::NotAllowed, "no".to_owned(), None);
    DeliveryState::Rejected(Rejected { error: Some(error) })
}

fn states() -> Vec<Option<DeliveryState>> {
    vec![
        None,
        Some(DeliveryState::Accepted(Accepted {})),
        Some(DeliveryState::Released(Released {})),
        Some(DeliveryState::Modified(Modified {
            delivery_failed: None,
            undeliverable_here: None,
            message_annotations: None,
        })),
        Some(rejected()),
        Some(DeliveryState::Received(Received {
            section_number: 0,
            section_offset: 0,
        })),
    ]
}

#[test]
fn one_answer_for_many_settles_each_of_them() {
    let mut bench = Bench::up(1);
    for _ in 0..4 {
        bench.submit(0, 2000);
    }
    bench.answer();
    let accepted = Some(DeliveryState::Accepted(Accepted {}));
    let channel = bench.last_channel();
    bench.hear(channel, disposition(0, Some(2), true, accepted));
    bench.hear(channel, disposition(3, None, true, Some(rejected())));
    bench.read_inboxes();
    assert_eq!(bench.settled.len(), 4);
    assert_eq!(bench.settled[&DeliveryId(2)], Settlement::Accepted);
    let refused = Settlement::Rejected {
        condition: "amqp:not-allowed".into(),
        description: Some("no".into()),
    };
    assert_eq!(bench.settled[&DeliveryId(3)], refused);
}

#[test]
fn a_state_that_is_not_final_settles_nothing_unless_the_peer_forgets() {
    let mut bench = Bench::up(1);
    bench.submit(0, 10);
    bench.answer();
    let channel = bench.last_channel();
    let received = states().pop().unwrap();
    bench.hear(channel, disposition(0, None, false, received.clone()));
    bench.read_inboxes();
    assert!(bench.settled.is_empty());
    bench.hear(channel, disposition(0, None, true, received));
    bench.read_inboxes();
    assert!(matches!(
        bench.settled[&DeliveryId(0)],
        Settlement::Unknown(_)
    ));
}

#[test]
fn what_waits_for_credit_when_its_link_breaks_was_not_sent() {
    let mut bench = Bench::up(1);
    let channel = bench.last_channel();
    bench.hear(channel, credit(0, 0, 1));
    bench.submit(0, 10);
    bench.submit(0, 10);
    bench.answer();
    bench.hear(channel, FrameBody::End(End { error: None }));
    bench.read_inboxes();
    assert!(matches!(
        bench.settled[&DeliveryId(0)],
        Settlement::Unknown(_)
    ));
    assert!(matches!(
        bench.settled[&DeliveryId(1)],
        Settlement::NotSent(_)
    ));
}

#[test]
fn what_is_half_sent_when_its_link_breaks_is_unknown() {
    let mut bench = Bench::up(1);
    bench.submit(0, 900_000);
    bench.connection.pump(bench.now);
    let channel = bench.last_channel();
    bench.hear(channel, FrameBody::End(End { error: None }));
    bench.read_inboxes();
    assert!(matches!(
        bench.settled[&DeliveryId(0)],
        Settlement::Unknown(_)
    ));
}

#[test]
fn a_delivery_that_is_refused_half_way_is_aborted() {
    let mut bench = Bench::up(1);
    bench.submit(0, 900_000);
    bench.connection.pump(bench.now);
    let channel = bench.last_channel();
    bench.hear(channel, disposition(0, None, true, Some(rejected())));
    bench.listen();
    bench.read_inboxes();
    assert!(matches!(
        bench.settled[&DeliveryId(0)],
        Settlement::Rejected { .. }
    ));
    let last = bench.said.pop().unwrap();
    assert!(
        matches!(&last.body, FrameBody::Transfer { performative, .. } if performative.aborted),
        "{last:?}"
    );
}

#[test]
fn credit_that_is_drained_is_given_back() {
    let mut bench = Bench::up(1);
    let channel = bench.last_channel();
    let FrameBody::Flow(mut flow) = credit(0, 0, 50) else {
        unreachable!()
    };
    flow.drain = true;
    bench.hear(channel, FrameBody::Flow(flow));
    bench.listen();
    let drained = bench.said.iter().any(|frame| {
        matches!(&frame.body, FrameBody::Flow(flow)
            if flow.delivery_count == Some(50) && flow.link_credit == Some(0))
    });
    assert!(drained, "{:?}", bench.said);
}

#[test]
fn a_session_that_ends_twice_and_frames_after_it_do_no_harm() {
    let mut bench = Bench::up(2);
    let channel = bench.last_channel();
    for _ in 0..2 {
        bench.hear(channel, FrameBody::End(End { error: None }));
    }
    bench.hear(channel, credit(0, 0, 1));
    bench.hear(channel, transfer(7, vec![1, 2, 3]));
    bench.hear(999, FrameBody::End(End { error: None }));
    assert!(bench.ended.is_none());
    bench.pass(1000 * MILLI);
    bench.answer();
    bench.read_inboxes();
    assert!(
        matches!(bench.states.last(), Some(LinkState::Up { .. })),
        "{:?}",
        bench.states
    );
    bench.hear(0, FrameBody::Close(Close { error: None }));
    assert!(matches!(bench.ended, Some(Ended::Lost(_))));
}

#[test]
fn an_answer_that_cannot_be_read_breaks_the_request_and_no_more() {
    let mut bench = Bench::new(1);
    bench.listen();
    for _ in 0..6 {
        for frame in std::mem::take(&mut bench.said) {
            let channel = frame.channel + PEER_CHANNELS;
            match frame.body {
                FrameBody::Transfer { .. } => bench.hear(channel, transfer(8, vec![0xff; 40])),
                body => bench.answer_one(Frame {
                    channel: frame.channel,
                    body,
                }),
            }
        }
        bench.listen();
    }
    assert!(bench.ended.is_none());
    bench.pass(1000 * MILLI);
    bench.answer();
    bench.pass(1000 * MILLI);
    bench.answer();
    bench.read_inboxes();
    assert!(
        matches!(bench.states.last(), Some(LinkState::Up { .. })),
        "{:?}",
        bench.states
    );
}

#[test]
fn bytes_that_wait_since_a_moment_ago_are_not_stuck_however_long_it_was_quiet() {
    let mut bench = Bench::up(1);
    let channel = bench.last_channel();
    bench.pass(4000 * MILLI);
    bench.hear(channel, credit(0, 0, 10));
    bench.submit(0, 10);
    bench.connection.pump(bench.now);
    bench.ended = bench.connection.handle_timeout(bench.now).err();
    assert!(bench.ended.is_none());
    bench.ended = bench
        .connection
        .handle_timeout(bench.now + 1000 * MILLI)
        .err();
    assert!(matches!(bench.ended, Some(Ended::Lost(_))));
}

/// What a peer may do next.
#[derive(Clone, Debug)]
enum Deed {
    Answer,
    Submit(usize, usize),
    Cancel(usize, u64),
    Pass(u64),
    Credit(u16, u32, u32),
    Window(u16, u32, u32),
    Settle(u16, u32, u32, bool, usize),
    Detach(u16, u32),
    End(u16),
    Begin(u16, u16),
    Attach(u16, bool),
    Transfer(u16, u32, Vec<u8>),
    CloseLink(usize),
    Shut,
}

fn deeds() -> impl Strategy<Value = Deed> {
    let channel = || PEER_CHANNELS..PEER_CHANNELS + 6;
    prop_oneof![
        6 => Just(Deed::Answer),
        6 => (0..3_usize, 0..3000_usize).prop_map(|(link, bytes)| Deed::Submit(link, bytes)),
        1 => (0..3_usize, 0..20_u64).prop_map(|(link, id)| Deed::Cancel(link, id)),
        3 => (0..1500_u64).prop_map(Deed::Pass),
        2 => (channel(), 0..10_u32, 0..10_u32).prop_map(|(c, n, k)| Deed::Credit(c, n, k)),
        1 => (channel(), any::<u32>(), 0..100_u32).prop_map(|(c, n, k)| Deed::Window(c, n, k)),
        4 => (channel(), 0..6_u32, any::<u32>(), any::<bool>(), 0..6_usize)
            .prop_map(|(c, f, l, s, n)| Deed::Settle(c, f, l % 8, s, n)),
        1 => (channel(), 5..10_u32).prop_map(|(c, h)| Deed::Detach(c, h)),
        1 => channel().prop_map(Deed::End),
        1 => (channel(), 0..6_u16).prop_map(|(c, r)| Deed::Begin(c, r)),
        1 => (channel(), any::<bool>()).prop_map(|(c, s)| Deed::Attach(c, s)),
        1 => (channel(), 5..10_u32, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(c, h, p)| Deed::Transfer(c, h, p)),
        1 => (0..3_usize).prop_map(Deed::CloseLink),
        1 => Just(Deed::Shut),
    ]
}

impl Bench {
    fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Answer => self.answer(),
            Deed::Submit(link, bytes) => {
                if self
                    .connection
                    .links
                    .entries
                    .contains_key(&LinkId(link as u64))
                {
                    self.submit(link, bytes);
                }
            }
            Deed::Cancel(link, id) => {
                let letter = Letter::Cancel(LinkId(link as u64), DeliveryId(id));
                self.connection.handle_letter(letter, self.now);
            }
            Deed::Pass(ms) => self.pass(ms as u32 * MILLI),
            Deed::Credit(channel, count, k) => self.hear(channel, credit(0, count, k)),
            Deed::Window(channel, seen, window) => {
                let FrameBody::Flow(mut flow) = credit(0, 0, 0) else {
                    unreachable!()
                };
                (flow.handle, flow.link_credit) = (None, None);
                flow.next_incoming_id = Some(seen);
                flow.incoming_window = window;
                flow.echo = true;
                self.hear(channel, FrameBody::Flow(flow));
            }
            Deed::Settle(channel, first, span, settled, n) => {
                let state = states()[n].clone();
                let last = Some(first.wrapping_add(span));
                self.hear(channel, disposition(first, last, settled, state));
            }
            Deed::Detach(channel, handle) => {
                let detach = Detach {
                    handle: Handle(handle),
                    closed: false,
                    error: None,
                };
                self.hear(channel, FrameBody::Detach(detach));
            }
            Deed::End(channel) => self.hear(channel, FrameBody::End(End { error: None })),
            Deed::Begin(channel, remote) => self.hear(channel, begin(remote)),
            Deed::Attach(channel, sends) => {
                let FrameBody::Attach(attach) = attached(bare_attach(sends)) else {
                    unreachable!()
                };
                self.hear(channel, FrameBody::Attach(attach));
            }
            Deed::Transfer(channel, handle, payload) => {
                self.hear(channel, transfer(handle, payload));
            }
            Deed::CloseLink(link) => {
                let letter = Letter::Close(LinkId(link as u64));
                self.connection.handle_letter(letter, self.now);
            }
            Deed::Shut => self.connection.close(self.now + 5000 * MILLI),
        }
    }
}

fn bare_attach(sends: bool) -> Attach {
    Attach {
        name: "any".into(),
        handle: Handle(0),
        role: if sends { Role::Sender } else { Role::Receiver },
        snd_settle_mode: SenderSettleMode::Mixed,
        rcv_settle_mode: ReceiverSettleMode::First,
        source: None,
        target: None,
        unsettled: None,
        incomplete_unsettled: false,
        initial_delivery_count: None,
        max_message_size: None,
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
    }
}

/// Few cases, since a case is a long talk; `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 64;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    /// Whatever the peer does and whenever the connection ends: no panic, and each delivery
    /// that was taken is settled exactly once.
    #[test]
    fn each_delivery_is_settled_once_whatever_the_peer_does(
        started in any::<bool>(),
        deeds in prop::collection::vec(deeds(), 0..60),
    ) {
        let mut bench = if started { Bench::up(3) } else { Bench::new(3) };
        for deed in deeds {
            bench.act(deed);
            bench.read_inboxes();
            if bench.ended.is_some() {
                break;
            }
        }
        let Bench { connection, inboxes, settled, submitted, .. } = bench;
        let error = super::errors::timed_out("the end");
        drop(connection.end(&error));
        let mut all = settled;
        for inbox in inboxes {
            if let Some(news) = inbox.take() {
                for (id, settlement) in news.settlements {
                    prop_assert!(all.insert(id, settlement).is_none(), "{:?} twice", id);
                }
                if let Some(state) = news.link {
                    prop_assert!(matches!(state, LinkState::Down(_)));
                }
            }
        }
        prop_assert_eq!(all.len() as u64, submitted);
    }

    /// Bytes that are no frames are an error, never a panic, and never believed.
    #[test]
    fn any_bytes_are_frames_or_an_error(
        mut bytes in prop::collection::vec(any::<u8>(), 0..80),
        length in 0..100_u32,
    ) {
        if bytes.len() >= 8 {
            bytes[..4].copy_from_slice(&length.to_be_bytes());
            bytes[4] %= 6;
            bytes[5] %= 2;
        }
        for sasl in [false, true] {
            let mut inbound = Inbound::new(4096);
            inbound.bytes.extend_from_slice(&bytes);
            let before = inbound.bytes.len();
            loop {
                let left = inbound.bytes.len();
                let more = match sasl {
                    true => inbound.take_sasl().map(|frame| frame.is_some()),
                    false => inbound.take_frame().map(|frame| frame.is_some()),
                };
                match more {
                    Ok(true) => prop_assert!(inbound.bytes.len() < left),
                    Ok(false) => { prop_assert_eq!(inbound.bytes.len(), left); break }
                    Err(_) => break,
                }
            }
            prop_assert!(inbound.bytes.len() <= before);
        }
    }
}

#[test]
fn a_frame_is_cut_by_its_length_and_freed_of_its_extended_header() {
    let cut = |bytes: &[u8]| {
        let mut inbound = Inbound::new(16);
        inbound.bytes.extend_from_slice(bytes);
        inbound.take_frame()
    };
    assert!(cut(&[0, 0, 0]).unwrap().is_none());
    assert!(cut(&[0, 0, 0, 8, 2, 0, 0]).unwrap().is_none());
    let heartbeat = cut(&[0, 0, 0, 8, 2, 0, 0, 9]).unwrap().unwrap();
    assert_eq!(heartbeat.channel, 9);
    assert!(matches!(heartbeat.body, FrameBody::Empty));
    let extended = cut(&[0, 0, 0, 12, 3, 0, 0, 9, 1, 2, 3, 4])
        .unwrap()
        .unwrap();
    assert_eq!(extended.channel, 9);
    for bad in [
        [0, 0, 0, 7, 2, 0, 0, 0],
        [0, 0, 0, 17, 2, 0, 0, 0],
        [0, 0, 0, 8, 1, 0, 0, 0],
        [0, 0, 0, 8, 3, 0, 0, 0],
    ] {
        assert!(cut(&bad).is_err(), "{bad:?}");
    }
}
