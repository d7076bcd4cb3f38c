//! One session and what is attached in it: a sending link, or the pair of links of a node that
//! answers requests.
//!
//! Each link has a session of its own, so that the window of one cannot stop another and an
//! `end` takes one link down and no more. So a link lives and dies with its session:
//!
//! ```text
//! Beginning ─▶ Attaching ─▶ Up ─▶ Ending ─▶ Ended
//!     └────────────┴─────────┴────────────────▲
//!        detach, end, or given up here        └ the peer's end
//! ```

use super::errors;
use super::performatives;
use super::requests::{Answer, Asked, Requests};
use super::sender::{Sender, Window};
use super::wire::Outbound;
use crate::sync::Instant;
use crate::transport::LinkError;
use bytes::Bytes;
use fe2o3_amqp::frames::amqp::FrameBody;
use fe2o3_amqp_types::definitions::{Handle, Role};
use fe2o3_amqp_types::messaging::{Accepted, DeliveryState};
use fe2o3_amqp_types::performatives::{Attach, Detach, Disposition, End, Flow, Transfer};
use serde_amqp::Value;
use serde_amqp::primitives::{Binary, OrderedMap, Symbol};

/// Answers that the peer may send ahead; one request is under way at a time.
const ANSWER_CREDIT: u32 = 16;
/// Frames that the peer may send ahead in a session.
const INCOMING_WINDOW: u32 = 2048;
/// Said to peers that ask for it; what is sent is bounded by credit and their own window.
const OUTGOING_WINDOW: u32 = 2048;

const SENDS: u32 = 0;
const RECEIVES: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Beginning,
    Attaching,
    Up,
    /// This end said `end`; what still comes is discarded until the peer does, too (2.5.5).
    Ending,
    Ended,
}

/// What is attached in a session.
#[derive(Debug)]
pub(super) enum Purpose {
    Sender(Sender),
    Requests(Requests),
}

/// What a frame led to.
#[derive(Debug)]
pub(super) enum Happening {
    Nothing,
    /// All is attached; the peer's limit for a message, 0 if it has none.
    Up(u64),
    /// The peer ended it; the session answered and is of no more use.
    Broken(LinkError),
    Answer(Answer),
}

#[derive(Debug)]
pub(super) struct Session {
    channel: u16,
    state: State,
    /// The node's address.
    address: String,
    /// Unique among this end's links, also across reconnections.
    name: String,
    pub(super) purpose: Purpose,
    max_frame: usize,
    next_outgoing_id: u32,
    remote_window: u32,
    next_incoming_id: u32,
    incoming_window: u32,
    answer_credit: u32,
    /// Where the peer's count of its answers stands; credit is relative to it (2.6.7).
    answer_count: u32,
    /// The peer's handles of the links that it has confirmed: ours to send, ours to receive.
    /// Numbers are each end's own (2.6.2).
    handles: (Option<u32>, Option<u32>),
    /// The peer confirmed both ends of it, not just its name.
    attached: (bool, bool),
    /// Requests that the peer takes.
    request_credit: u32,
    max_message_size: u64,
    timeout_ms: u32,
}

impl Session {
    /// Begins a session for a link called `name` to `address`.
    pub(super) fn begin(
        channel: u16,
        (name, address): (String, String),
        purpose: Purpose,
        max_frame: usize,
        timeout_ms: u32,
        out: &mut Outbound,
    ) -> Session {
        let begin = performatives::begin(INCOMING_WINDOW, OUTGOING_WINDOW, RECEIVES);
        out.put_frame(channel, &begin);
        Session {
            channel,
            state: State::Beginning,
            address,
            name,
            purpose,
            max_frame,
            next_outgoing_id: 0,
            remote_window: 0,
            next_incoming_id: 0,
            incoming_window: INCOMING_WINDOW,
            answer_credit: ANSWER_CREDIT,
            answer_count: 0,
            handles: (None, None),
            attached: (false, false),
            request_credit: 0,
            max_message_size: 0,
            timeout_ms,
        }
    }

    pub(super) fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    pub(super) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    pub(super) fn sender(&mut self) -> Option<&mut Sender> {
        match &mut self.purpose {
            Purpose::Sender(sender) => Some(sender),
            Purpose::Requests(_) => None,
        }
    }

    pub(super) fn requests(&self) -> Option<&Requests> {
        match &self.purpose {
            Purpose::Sender(_) => None,
            Purpose::Requests(requests) => Some(requests),
        }
    }

    /// Acts on a frame of this session.
    pub(super) fn handle(&mut self, body: FrameBody, out: &mut Outbound) -> Happening {
        match (self.state, body) {
            (State::Ended, _) => Happening::Nothing,
            (State::Ending, FrameBody::End(_)) => {
                self.state = State::Ended;
                Happening::Nothing
            }
            (State::Ending, _) => Happening::Nothing,
            (_, FrameBody::End(end)) => {
                out.put_frame(self.channel, &End { error: None });
                self.state = State::Ended;
                Happening::Broken(errors::told(end.error, "the peer ended the session"))
            }
            (State::Beginning, FrameBody::Begin(begin)) => {
                self.next_incoming_id = begin.next_outgoing_id;
                self.remote_window = begin.incoming_window;
                self.state = State::Attaching;
                self.attach(out);
                Happening::Nothing
            }
            (State::Attaching, FrameBody::Attach(attach)) => self.handle_attach(attach, out),
            (_, FrameBody::Detach(detach)) => self.handle_detach(detach, out),
            (_, FrameBody::Flow(flow)) => self.handle_flow(&flow, out),
            (_, FrameBody::Disposition(disposition)) => self.handle_disposition(&disposition, out),
            (
                State::Attaching | State::Up,
                FrameBody::Transfer {
                    performative,
                    payload,
                },
            ) => self.handle_transfer(&performative, &payload, out),
            // A second begin or attach, a transfer before its link: the peer is out of step.
            (_, body) => {
                tracing::debug!(frame = ?body, "a frame came out of turn");
                Happening::Nothing
            }
        }
    }

    fn attach(&self, out: &mut Outbound) {
        let mut attach = self.attach_frame(SENDS, Role::Sender);
        attach.source = performatives::source(&self.reply_to());
        attach.target = performatives::target(&self.address);
        attach.initial_delivery_count = Some(0);
        if let Purpose::Sender(_) = self.purpose {
            let mut properties = OrderedMap::new();
            let name = Symbol::from("com.microsoft:timeout");
            properties.insert(name, Value::Uint(self.timeout_ms));
            attach.properties = Some(properties);
        }
        out.put_frame(self.channel, &attach);
        if let Purpose::Requests(_) = self.purpose {
            let mut attach = self.attach_frame(RECEIVES, Role::Receiver);
            attach.source = performatives::source(&self.address);
            attach.target = performatives::target(&self.reply_to());
            out.put_frame(self.channel, &attach);
        }
    }

    fn attach_frame(&self, handle: u32, role: Role) -> Attach {
        let side = match role {
            Role::Sender => "send",
            Role::Receiver => "receive",
        };
        performatives::attach(format!("{}-{side}", self.name), handle, role)
    }

    /// Where answers are wanted; a link that only sends has it as its source.
    fn reply_to(&self) -> String {
        self.name.clone()
    }

    fn handle_attach(&mut self, attach: Attach, out: &mut Outbound) -> Happening {
        // A refused link has no far end, and its detach follows (2.6.3).
        match attach.role {
            Role::Receiver => {
                self.handles.0 = Some(attach.handle.0);
                self.attached.0 = attach.target.is_some();
                self.max_message_size = attach.max_message_size.unwrap_or(0);
            }
            Role::Sender => {
                self.handles.1 = Some(attach.handle.0);
                self.attached.1 = attach.source.is_some();
                self.answer_count = attach.initial_delivery_count.unwrap_or(0);
                if self.attached.1 {
                    self.send_flow(Some(RECEIVES), out);
                }
            }
        }
        self.rise()
    }

    /// Comes up if all is there that it needs; for requests that includes credit for one.
    fn rise(&mut self) -> Happening {
        let ready = match self.purpose {
            Purpose::Sender(_) => self.attached.0,
            Purpose::Requests(_) => self.attached == (true, true) && self.request_credit > 0,
        };
        if self.state != State::Attaching || !ready {
            return Happening::Nothing;
        }
        self.state = State::Up;
        Happening::Up(self.max_message_size)
    }

    fn handle_detach(&mut self, detach: Detach, out: &mut Outbound) -> Happening {
        let error = errors::told(detach.error, "the peer detached the link");
        let receives = self.handles.1 == Some(detach.handle.0);
        let answer = performatives::detach(if receives { RECEIVES } else { SENDS });
        out.put_frame(self.channel, &answer);
        self.end(out);
        Happening::Broken(error)
    }

    fn handle_flow(&mut self, flow: &Flow, out: &mut Outbound) -> Happening {
        // The peer's window as it was when it had seen `next-incoming-id` (2.5.6).
        let seen = flow.next_incoming_id.unwrap_or(0);
        let under_way = self.next_outgoing_id.wrapping_sub(seen);
        self.remote_window = flow.incoming_window.saturating_sub(under_way);
        self.next_incoming_id = flow.next_outgoing_id;
        let handle = flow.handle.as_ref().map(|handle| handle.0);
        let sends = handle.is_some() && handle == self.handles.0;
        if sends {
            match &mut self.purpose {
                Purpose::Sender(sender) => sender.handle_flow(flow),
                Purpose::Requests(_) => self.request_credit = flow.link_credit.unwrap_or(0),
            }
        }
        if flow.echo {
            let receives = handle.is_some() && handle == self.handles.1;
            let link = if sends {
                Some(SENDS)
            } else {
                receives.then_some(RECEIVES)
            };
            self.send_flow(link, out);
        }
        self.rise()
    }

    fn handle_disposition(&mut self, disposition: &Disposition, out: &mut Outbound) -> Happening {
        let ours = disposition.role == Role::Receiver;
        if let (true, Purpose::Sender(sender)) = (ours, &mut self.purpose) {
            let mut window = Window {
                channel: self.channel,
                max_frame: self.max_frame,
                remote: &mut self.remote_window,
                next_outgoing_id: &mut self.next_outgoing_id,
            };
            if sender.handle_disposition(disposition, &mut window, out) {
                let settled = Disposition {
                    role: Role::Sender,
                    first: disposition.first,
                    last: disposition.last,
                    settled: true,
                    state: disposition.state.clone(),
                    batchable: false,
                };
                out.put_frame(self.channel, &settled);
            }
        }
        Happening::Nothing
    }

    fn handle_transfer(
        &mut self,
        transfer: &Transfer,
        payload: &Bytes,
        out: &mut Outbound,
    ) -> Happening {
        self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
        self.incoming_window = self.incoming_window.saturating_sub(1);
        let Purpose::Requests(requests) = &mut self.purpose else {
            return Happening::Nothing;
        };
        let answer = requests.handle_transfer(transfer, payload);
        if !transfer.more {
            self.answer_credit = self.answer_credit.saturating_sub(1);
            self.answer_count = self.answer_count.wrapping_add(1);
            if let (Some(id), false) = (transfer.delivery_id, transfer.settled.unwrap_or(false)) {
                let accepted = Disposition {
                    role: Role::Receiver,
                    first: id,
                    last: None,
                    settled: true,
                    state: Some(DeliveryState::Accepted(Accepted {})),
                    batchable: false,
                };
                out.put_frame(self.channel, &accepted);
            }
        }
        if self.answer_credit < ANSWER_CREDIT / 2 || self.incoming_window < INCOMING_WINDOW / 2 {
            self.answer_credit = ANSWER_CREDIT;
            self.incoming_window = INCOMING_WINDOW;
            self.send_flow(Some(RECEIVES), out);
        }
        match answer {
            Ok(None) => Happening::Nothing,
            Ok(Some(answer)) => Happening::Answer(answer),
            Err(error) => {
                self.abandon(out);
                Happening::Broken(error)
            }
        }
    }

    fn send_flow(&self, handle: Option<u32>, out: &mut Outbound) {
        let mut flow = Flow {
            next_incoming_id: Some(self.next_incoming_id),
            incoming_window: self.incoming_window,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: OUTGOING_WINDOW,
            handle: handle.map(Handle),
            delivery_count: None,
            link_credit: None,
            available: None,
            drain: false,
            echo: false,
            properties: None,
        };
        match (handle, &self.purpose) {
            (Some(SENDS), Purpose::Sender(sender)) => sender.describe(&mut flow),
            (Some(RECEIVES), _) => {
                flow.delivery_count = Some(self.answer_count);
                flow.link_credit = Some(self.answer_credit);
            }
            _ => flow.handle = None,
        }
        out.put_frame(self.channel, &flow);
    }

    /// Sends what may be sent; true if only the socket stands in the way of more.
    pub(super) fn pump(&mut self, out: &mut Outbound, now: Instant) -> bool {
        let (State::Up, Purpose::Sender(sender)) = (self.state, &mut self.purpose) else {
            return false;
        };
        let mut window = Window {
            channel: self.channel,
            max_frame: self.max_frame,
            remote: &mut self.remote_window,
            next_outgoing_id: &mut self.next_outgoing_id,
        };
        let pumped = sender.pump(&mut window, out, now);
        if pumped.drained {
            self.send_flow(Some(SENDS), out);
        }
        pumped.more
    }

    /// Sends a request; it must be up and idle.
    pub(super) fn ask(
        &mut self,
        what: &'static str,
        properties: Asked,
        body: Option<&str>,
        times: (Instant, Instant),
        out: &mut Outbound,
    ) {
        let reply_to = self.reply_to();
        let Purpose::Requests(requests) = &mut self.purpose else {
            return;
        };
        let message = requests.ask(what, properties, body, &reply_to, times);
        let number = self.next_outgoing_id;
        let mut transfer = performatives::transfer(SENDS);
        transfer.delivery_id = Some(number);
        transfer.delivery_tag = Some(Binary::from(number.to_be_bytes()));
        transfer.message_format = Some(0);
        // What is said of it is ignored: its answer is what matters.
        transfer.settled = Some(false);
        let mut rest = message;
        loop {
            let taken = out.put_transfer(self.channel, &mut transfer, &rest, self.max_frame);
            self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
            if !transfer.more {
                return;
            }
            let _ = rest.split_to(taken);
        }
    }

    /// Gives the session up from this side. Its deliveries are the caller's to fail.
    pub(super) fn abandon(&mut self, out: &mut Outbound) {
        if matches!(self.state, State::Attaching | State::Up) {
            let links = match self.purpose {
                Purpose::Sender(_) => SENDS..=SENDS,
                Purpose::Requests(_) => SENDS..=RECEIVES,
            };
            for handle in links {
                let detach = performatives::detach(handle);
                out.put_frame(self.channel, &detach);
            }
        }
        self.end(out);
    }

    fn end(&mut self, out: &mut Outbound) {
        if !matches!(self.state, State::Ending | State::Ended) {
            out.put_frame(self.channel, &End { error: None });
            self.state = State::Ending;
        }
    }
}
