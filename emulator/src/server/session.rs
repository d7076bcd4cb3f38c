//! One session: windows and links, parts 2.5 and 2.6 of the specification.

use std::collections::{BTreeMap, VecDeque};

use bytes::BytesMut;
use serde_amqp::Value;

use super::{
    attach,
    connection::{HANDLE_MAX, error_or_null},
    core::{Core, Later, LinkRef, OUTPUT_HIGH},
    inbound::Receiving,
    ingest::{self, Ingest},
    nodes::{self, Node},
    outbound::{Sending, Supply},
};
use crate::fault::Aim;
use crate::wire::{
    code,
    fields::uint_or_null,
    performative::{Begin, Detach, Flow, Performative, Transfer},
    scan::Malformed,
};

/// Transfer frames that the client may send ahead, as on the service.
pub(crate) const SESSION_WINDOW: u32 = 5000;

/// What a link is for.
#[derive(Debug)]
pub(crate) enum Role {
    /// The client sends events.
    Ingest(Ingest),
    /// The client sends requests.
    Requests { node: Node, receiving: Receiving },
    /// The client receives events, or answers to its requests.
    Sending(Sending),
    /// Detached by the emulator; what still arrives is discarded until the client agrees.
    Detaching,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) reference: LinkRef,
    pub(crate) name: String,
    pub(crate) role: Role,
}

/// The windows of a session and its numbers.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) channel: u16,
    /// Transfer id that the client uses next.
    next_incoming: u32,
    /// Frames that the client may still send.
    incoming_left: u32,
    next_outgoing: u32,
    /// Frames that the client still takes.
    remote_left: u32,
    pub(crate) next_delivery: u32,
    /// Encoded transfer frames that wait for the client's window.
    pub(crate) pending: VecDeque<BytesMut>,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) window: Window,
    pub(crate) links: BTreeMap<u32, Link>,
    ended: bool,
    /// The link that is served first next time, so that none is starved.
    turn: u32,
}

/// What a flow tells of a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkFlow {
    pub(crate) handle: u32,
    pub(crate) delivery_count: u32,
    pub(crate) credit: u32,
    /// Messages that could be sent; only a sender knows.
    pub(crate) available: Option<u32>,
    pub(crate) drain: bool,
}

impl Window {
    /// The fields of a flow that concern the session, the link's to follow.
    fn flow_fields(&self) -> Vec<Value> {
        vec![
            Value::Uint(self.next_incoming),
            Value::Uint(self.incoming_left),
            Value::Uint(self.next_outgoing),
            Value::Uint(SESSION_WINDOW),
        ]
    }

    /// Sends a flow for the session and, if there is one, a link.
    pub(crate) fn send_flow(&self, core: &mut Core, link: Option<LinkFlow>) {
        let mut fields = self.flow_fields();
        match link {
            Some(link) => fields.extend([
                Value::Uint(link.handle),
                Value::Uint(link.delivery_count),
                Value::Uint(link.credit),
                uint_or_null(link.available),
                Value::Bool(link.drain),
            ]),
            None => fields.extend(
                [const { Value::Null }; 4]
                    .into_iter()
                    .chain([Value::Bool(false)]),
            ),
        }
        fields.extend([Value::Bool(false), Value::Null]);
        core.send(self.channel, code::FLOW, fields);
    }

    /// Counts an incoming frame; false when the client exceeds its window.
    fn count_incoming(&mut self, core: &mut Core) -> bool {
        let Some(left) = self.incoming_left.checked_sub(1) else {
            return false;
        };
        self.incoming_left = left;
        self.next_incoming = self.next_incoming.wrapping_add(1);
        if self.incoming_left <= SESSION_WINDOW / 2 {
            self.incoming_left = SESSION_WINDOW;
            self.send_flow(core, None);
        }
        true
    }

    fn handle_flow(&mut self, flow: &Flow) {
        // Part 2.5.6: the client's window as it stood when it had seen `next-incoming-id`.
        let seen = flow.next_incoming_id.unwrap_or(0);
        let under_way = self.next_outgoing.wrapping_sub(seen);
        // A client may lower its window below what is under way.
        self.remote_left = flow.incoming_window.saturating_sub(under_way);
    }

    /// Moves frames that fit the client's window to the output.
    pub(crate) fn drain(&mut self, core: &mut Core) {
        while self.remote_left > 0 {
            let Some(frame) = self.pending.pop_front() else {
                return;
            };
            core.out.extend_from_slice(&frame);
            self.remote_left -= 1;
            self.next_outgoing = self.next_outgoing.wrapping_add(1);
        }
    }

    /// True when a message that is queued now would go out at once.
    pub(crate) fn open(&self) -> bool {
        self.pending.is_empty() && self.remote_left > 0
    }
}

impl Session {
    pub(crate) fn new(channel: u16, begin: &Begin) -> Self {
        let window = Window {
            channel,
            next_incoming: begin.next_outgoing_id,
            incoming_left: SESSION_WINDOW,
            next_outgoing: 0,
            remote_left: begin.incoming_window,
            next_delivery: 0,
            pending: VecDeque::new(),
        };
        Self {
            window,
            links: BTreeMap::new(),
            ended: false,
            turn: 0,
        }
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Ends the session from this side.
    pub(crate) fn end_with(&mut self, core: &mut Core, condition: &str, description: &str) {
        self.ended = true;
        self.links.clear();
        self.window.pending.clear();
        if core
            .cbs
            .is_some_and(|cbs| cbs.channel == self.window.channel)
        {
            core.cbs = None;
        }
        let error = error_or_null(Some((condition, description)));
        core.send(self.window.channel, code::END, vec![error]);
    }

    pub(crate) fn handle(
        &mut self,
        core: &mut Core,
        performative: Performative,
    ) -> Result<(), Malformed> {
        if self.ended {
            return Ok(());
        }
        match performative {
            Performative::Attach(attach) => {
                if attach.handle > HANDLE_MAX {
                    return Err(Malformed::BadFrame);
                }
                if self.links.contains_key(&attach.handle) {
                    self.end_with(core, "amqp:session:handle-in-use", "the handle is in use");
                } else {
                    attach::attach(self, core, *attach);
                }
            }
            Performative::Flow(flow) => self.flow(core, &flow),
            Performative::Transfer(transfer) => self.transfer(core, transfer),
            Performative::Detach(detach) => self.detach(core, &detach),
            // The log does not depend on what readers say of their deliveries.
            Performative::Disposition => {}
            Performative::Open(_)
            | Performative::Begin(_)
            | Performative::End
            | Performative::Close => {}
        }
        Ok(())
    }

    fn flow(&mut self, core: &mut Core, flow: &Flow) {
        self.window.handle_flow(flow);
        self.window.drain(core);
        let Some(handle) = flow.handle else {
            if flow.echo {
                self.window.send_flow(core, None);
            }
            return;
        };
        let Some(link) = self.links.get_mut(&handle) else {
            self.end_with(
                core,
                "amqp:session:unattached-handle",
                "flow for an unknown handle",
            );
            return;
        };
        match &mut link.role {
            Role::Sending(sending) => {
                sending.handle_flow(flow);
                sending.pump(core, &mut self.window);
                if flow.drain || flow.echo {
                    sending.answer_flow(core, &self.window, flow.drain);
                }
            }
            Role::Ingest(Ingest { receiving, .. }) | Role::Requests { receiving, .. } => {
                if flow.echo {
                    receiving.send_flow(core, &self.window);
                }
            }
            Role::Detaching => {}
        }
    }

    fn transfer(&mut self, core: &mut Core, transfer: Transfer) {
        if !self.window.count_incoming(core) {
            self.end_with(
                core,
                "amqp:session:window-violation",
                "the session window is exceeded",
            );
            return;
        }
        match self.links.get(&transfer.handle).map(|link| &link.role) {
            Some(Role::Ingest(_)) => ingest::transfer(self, core, transfer),
            Some(Role::Requests { .. }) => nodes::transfer(self, core, transfer),
            Some(Role::Detaching) => {}
            Some(Role::Sending(_)) => {
                self.end_with(
                    core,
                    "amqp:not-allowed",
                    "the client does not send on this link",
                );
            }
            None => self.end_with(
                core,
                "amqp:session:unattached-handle",
                "transfer for an unknown handle",
            ),
        }
    }

    fn detach(&mut self, core: &mut Core, detach: &Detach) {
        let Some(link) = self.links.remove(&detach.handle) else {
            return;
        };
        if core.cbs == Some(link.reference) {
            core.cbs = None;
        }
        if !matches!(link.role, Role::Detaching) {
            let fields = vec![
                Value::Uint(detach.handle),
                Value::Bool(detach.closed),
                Value::Null,
            ];
            core.send(self.window.channel, code::DETACH, fields);
        }
    }

    /// Closes a link from this side.
    pub(crate) fn detach_with(
        &mut self,
        core: &mut Core,
        handle: u32,
        condition: &str,
        description: &str,
    ) {
        let Some(link) = self.links.get_mut(&handle) else {
            return;
        };
        link.role = Role::Detaching;
        if core.cbs == Some(link.reference) {
            core.cbs = None;
        }
        let error = error_or_null(Some((condition, description)));
        let fields = vec![Value::Uint(handle), Value::Bool(true), error];
        core.send(self.window.channel, code::DETACH, fields);
    }

    /// Closes the links to a hub that a disruption is meant for.
    pub(crate) fn disrupt(
        &mut self,
        core: &mut Core,
        aim: &Aim,
        condition: &str,
        description: &str,
    ) {
        let hit = |link: &&Link| match &link.role {
            Role::Ingest(ingest) => aim.hits(ingest.hub.name(), ingest.partition),
            Role::Sending(Sending {
                supply: Supply::Events { hub, partition, .. },
                ..
            }) => aim.hits(hub.name(), Some(*partition)),
            _ => false,
        };
        let handles: Vec<u32> = self
            .links
            .values()
            .filter(hit)
            .map(|link| link.reference.handle)
            .collect();
        for handle in handles {
            self.detach_with(core, handle, condition, description);
        }
    }

    pub(crate) fn handle_later(&mut self, core: &mut Core, link: LinkRef, later: Later) {
        let found = self
            .links
            .get_mut(&link.handle)
            .filter(|found| found.reference == link);
        let Some(found) = found else { return };
        match (&mut found.role, later) {
            (Role::Ingest(Ingest { receiving, .. }), Later::Settle { delivery, state }) => {
                receiving.settle_late(core, &self.window, delivery, state);
            }
            (Role::Ingest(Ingest { receiving, .. }), Later::Credit) => {
                receiving.give_back(core, &self.window);
            }
            (Role::Sending(sending), Later::Answer { message }) => {
                sending.queue(message);
                sending.pump(core, &mut self.window);
            }
            _ => {}
        }
    }

    /// Sends what links have to send, as far as windows, credit and output allow; true when a link
    /// has used its turn up but not its events.
    pub(crate) fn pump(&mut self, core: &mut Core) -> bool {
        self.window.drain(core);
        let mut more = false;
        let turn = self.turn;
        let after = self.links.range(turn..).map(|(handle, _)| *handle);
        let before = self.links.range(..turn).map(|(handle, _)| *handle);
        for handle in after.chain(before).collect::<Vec<_>>() {
            let Some(Link {
                role: Role::Sending(sending),
                ..
            }) = self.links.get_mut(&handle)
            else {
                continue;
            };
            if !self.window.open() || core.out.len() >= OUTPUT_HIGH {
                self.turn = handle;
                return self.window.open();
            }
            more |= sending.pump(core, &mut self.window);
        }
        more && self.window.open()
    }
}
