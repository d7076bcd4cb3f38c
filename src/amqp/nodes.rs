//! The life of a node on a connection, the same for a worker's link, the management node and
//! the probe:
//!
//! ```text
//! Resting ─▶ WantsToken ─▶ Authorizing ─▶ Attaching ─▶ Up
//!    ▲            (one at a time, through $cbs)  │      │
//!    └───────── refused, detached, too late ─────┴──────┘
//! ```
//!
//! `$cbs` itself needs no token. It is one pair of links, asked for one thing at a time: the
//! service refuses a second pair on a connection.

use super::backoff::{backoff_policy, is_busy};
use super::connection::{Connection, Ended};
use super::errors;
use super::learning;
use super::mailbox::LinkId;
use super::requests::{Answer, Requests};
use super::sender::Sender;
use super::session::{Purpose, Session};
use super::token::Grant;
use crate::sync::{Arc, Instant};
use crate::transport::{LinkError, LinkState};
use fe2o3_amqp_types::primitives::SimpleValue;
use std::time::Duration;

/// Names a node of a connection. The order is that in which they get their tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NodeId {
    Cbs,
    Management,
    Probe,
    Link(LinkId),
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Waits until then before it is tried again.
    Resting(Instant),
    /// Waits for its turn with `$cbs`.
    WantsToken,
    /// Its token is being put.
    Authorizing,
    /// Its session begins, its links attach; there is until then.
    Attaching(u16, Instant),
    Up(u16),
}

#[derive(Debug)]
pub(super) struct Node {
    address: String,
    pub(super) phase: Phase,
    /// Failures since it was last up for some time.
    failures: u32,
    up_at: Instant,
    /// When its token is put again; `None` if it has none, or will get no other.
    renew_at: Option<Instant>,
}

/// A node that was up for less did not work.
const SOUND_AFTER: Duration = Duration::from_secs(1);

impl Node {
    fn new(address: String, now: Instant) -> Node {
        Node {
            address,
            phase: Phase::Resting(now),
            failures: 0,
            up_at: now,
            renew_at: None,
        }
    }
}

impl Connection {
    /// Sets out: with `$cbs` first, since everything else needs a token.
    pub(super) fn start(&mut self, now: Instant) {
        self.nodes
            .insert(NodeId::Cbs, Node::new("$cbs".to_owned(), now));
        match self.learning {
            Some(_) => {
                let management = "$management".to_owned();
                self.nodes
                    .insert(NodeId::Management, Node::new(management, now));
            }
            None => self.add_links(now),
        }
        self.advance(now);
    }

    fn add_links(&mut self, now: Instant) {
        let ids: Vec<_> = self.links.entries.keys().copied().collect();
        for id in ids {
            self.add_link(id, now);
        }
    }

    pub(super) fn add_link(&mut self, id: LinkId, now: Instant) {
        if let Some(entry) = self.links.entries.get(&id) {
            let address = self.settings.partition_address(entry.partition.as_str());
            self.nodes.insert(NodeId::Link(id), Node::new(address, now));
        }
    }

    /// Adds the probe, which learns what the hub's links take from one to a partition.
    pub(super) fn add_probe(&mut self, partition: &str, now: Instant) {
        let address = self.settings.partition_address(partition);
        self.nodes.insert(NodeId::Probe, Node::new(address, now));
    }

    /// What was to be learned is known: on with the links.
    pub(super) fn finish_learning(&mut self, now: Instant) {
        self.learning = None;
        let done = LinkError::new(errors::CLOSED, "of no more use");
        self.drop_node(NodeId::Management, &done);
        self.drop_node(NodeId::Probe, &done);
        self.add_links(now);
        self.advance(now);
    }

    /// Moves every node on that can move. Cheap if none can.
    pub(super) fn advance(&mut self, now: Instant) {
        if self.is_closing() {
            return;
        }
        let mut alarm = None;
        for node in self.nodes.values_mut() {
            let at = match node.phase {
                Phase::Resting(until) if now >= until => {
                    node.phase = Phase::WantsToken;
                    None
                }
                Phase::Resting(until) | Phase::Attaching(_, until) => Some(until),
                // One that is due waits for `$cbs`, not for the clock.
                Phase::Up(_) => node.renew_at.filter(|at| *at > now),
                Phase::WantsToken | Phase::Authorizing => None,
            };
            alarm = [alarm, at].into_iter().flatten().min();
        }
        self.wake_by(alarm);
        self.give_tokens(now);
    }

    /// Takes down what did not attach in time.
    pub(super) fn check_attaching(&mut self, now: Instant) -> Result<(), Ended> {
        let late = |node: &Node| match node.phase {
            Phase::Attaching(channel, by) if now >= by => Some(channel),
            _ => None,
        };
        let late: Vec<_> = self
            .nodes
            .iter()
            .filter_map(|(id, node)| Some((*id, late(node)?)))
            .collect();
        for (id, channel) in late {
            let error = errors::timed_out("an attach");
            self.suspect(&error, now)?;
            self.break_node(id, channel, error, now);
        }
        Ok(())
    }

    /// Opens `$cbs` if need be, and puts the next token if it is free.
    fn give_tokens(&mut self, now: Instant) {
        let Some(cbs) = self.nodes.get(&NodeId::Cbs) else {
            return;
        };
        let channel = match cbs.phase {
            Phase::WantsToken => return self.attach_node(NodeId::Cbs, now),
            Phase::Up(channel) => channel,
            _ => return,
        };
        let idle = |session: &Session| session.requests().is_some_and(Requests::is_idle);
        if !self
            .sessions
            .get(&channel)
            .is_some_and(|(_, session)| idle(session))
        {
            return;
        }
        // Who is attached already comes first: a lapsed token costs more than a late link.
        let renewal = self.nodes.iter().find(|(_, node)| {
            matches!(node.phase, Phase::Up(_)) && node.renew_at.is_some_and(|at| now >= at)
        });
        let next = renewal.or_else(|| {
            let wants = |node: &Node| matches!(node.phase, Phase::WantsToken);
            self.nodes.iter().find(|(_, node)| wants(node))
        });
        if let Some(id) = next.map(|(id, _)| *id) {
            self.put_token(id, channel, now);
        }
    }

    fn put_token(&mut self, id: NodeId, channel: u16, now: Instant) {
        let audience = self.audience(id);
        let Grant { token, renew_at } = self.settings.tokens.grant(&audience, now);
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        if let Phase::WantsToken = node.phase {
            node.phase = Phase::Authorizing;
        }
        node.renew_at = renew_at;
        self.authorizing = Some(id);
        let text = |text: &str| SimpleValue::String(text.to_owned());
        let properties = vec![
            ("operation", text("put-token")),
            ("type", text(crate::sas::Token::TYPE)),
            ("name", text(&audience)),
        ];
        let by = now + self.settings.operation_timeout;
        if let Some((_, session)) = self.sessions.get_mut(&channel) {
            let body = Some(token.expose());
            session.ask("put-token", properties, body, (now, by), &mut self.out);
        }
        self.wake_by(Some(by));
    }

    /// What a node's token is good for: the URL of what it sends to.
    fn audience(&self, id: NodeId) -> String {
        match id {
            NodeId::Cbs | NodeId::Management => self.settings.url(&self.settings.hub),
            NodeId::Probe | NodeId::Link(_) => match self.nodes.get(&id) {
                Some(node) => self.settings.url(&node.address),
                None => self.settings.url(&self.settings.hub),
            },
        }
    }

    /// Begins a session for a node, in which its links attach.
    fn attach_node(&mut self, id: NodeId, now: Instant) {
        let by = now + self.settings.operation_timeout;
        let purpose = match id {
            NodeId::Cbs | NodeId::Management => Purpose::Requests(Requests::default()),
            NodeId::Probe => Purpose::Sender(Sender::new(None, self.settings.operation_timeout)),
            NodeId::Link(link) => match self.links.entries.get(&link) {
                None => return,
                Some(entry) => Purpose::Sender(Sender::new(
                    Some(Arc::clone(&entry.shared)),
                    self.settings.operation_timeout,
                )),
            },
        };
        let Some(channel) = self.free_channel() else {
            return self.rest(id, false, now);
        };
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        self.next_name += 1;
        let container = &self.settings.container_id;
        let name = format!("{container}-{}-{}", self.generation, self.next_name);
        let names = (name, node.address.clone());
        let timeout = u32::try_from(self.settings.operation_timeout.as_millis());
        let session = Session::begin(
            channel,
            names,
            purpose,
            self.limits.max_frame,
            timeout.unwrap_or(u32::MAX),
            &mut self.out,
        );
        node.phase = Phase::Attaching(channel, by);
        self.sessions.insert(channel, (id, session));
        self.wake_by(Some(by));
    }

    /// A channel that no session has. One whose end the peer never confirmed is not free.
    fn free_channel(&self) -> Option<u16> {
        (0..=self.limits.channel_max).find(|channel| !self.sessions.contains_key(channel))
    }

    pub(super) fn node_up(&mut self, id: NodeId, max_message_size: u64, now: Instant) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        if let Phase::Attaching(channel, _) = node.phase {
            node.phase = Phase::Up(channel);
            node.up_at = now;
            let renew_at = node.renew_at;
            self.wake_by(renew_at);
        }
        match id {
            NodeId::Cbs => {}
            NodeId::Management => self.read_hub(now),
            NodeId::Probe => {
                if let Some(learning) = &mut self.learning {
                    learning.max_message_size(max_message_size);
                }
            }
            NodeId::Link(link) => {
                if let Some(entry) = self.links.entries.get(&link) {
                    entry.shared.report(LinkState::Up { max_message_size });
                }
            }
        }
    }

    fn read_hub(&mut self, now: Instant) {
        let Some(Node {
            phase: Phase::Up(channel),
            ..
        }) = self.nodes.get(&NodeId::Management)
        else {
            return;
        };
        let audience = self.audience(NodeId::Management);
        let Grant { token, .. } = self.settings.tokens.grant(&audience, now);
        let properties = learning::request(&self.settings.hub, token.expose());
        let by = now + self.settings.operation_timeout;
        if let Some((_, session)) = self.sessions.get_mut(channel) {
            session.ask(
                "the hub's description",
                properties,
                None,
                (now, by),
                &mut self.out,
            );
        }
        self.wake_by(Some(by));
    }

    pub(super) fn node_answered(&mut self, id: NodeId, answer: Answer, now: Instant) {
        let result = answer.into_result();
        match (id, &mut self.learning) {
            (NodeId::Cbs, _) => {
                if let Some(asker) = self.authorizing.take() {
                    self.token_answered(asker, result.map(drop), now);
                }
            }
            (NodeId::Management, Some(learning)) => {
                if let Some(partition) = learning.description(result) {
                    self.add_probe(partition.as_str(), now);
                }
            }
            _ => {}
        }
    }

    fn token_answered(&mut self, id: NodeId, result: Result<(), LinkError>, now: Instant) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        match (&node.phase, result) {
            (Phase::Authorizing, Ok(())) => self.attach_node(id, now),
            (Phase::Authorizing, Err(error)) => {
                let busy = is_busy(&error);
                self.report_problem(id, Some(error));
                self.rest(id, busy, now);
            }
            (_, Ok(())) => {
                node.failures = 0;
                let renew_at = node.renew_at;
                self.wake_by(renew_at);
            }
            (_, Err(error)) => self.retry_renewal(id, &error, now),
        }
    }

    /// What is attached stays so until its token ends; till then a new one is tried for.
    fn retry_renewal(&mut self, id: NodeId, error: &LinkError, now: Instant) {
        tracing::warn!(%error, "a token was not renewed; trying again");
        let failures = self.nodes.get(&id).map_or(0, |node| node.failures);
        let wait = backoff_policy().backoff(failures, is_busy(error), &mut self.jitter);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.failures = failures.saturating_add(1);
            node.renew_at = Some(now + wait);
        }
        self.wake_by(Some(now + wait));
    }

    /// The peer took a node down, and its session with it.
    pub(super) fn node_broken(&mut self, id: NodeId, channel: u16, error: LinkError, now: Instant) {
        let mut idle = true;
        if let Some((_, session)) = self.sessions.get_mut(&channel) {
            if let Some(sender) = session.sender() {
                idle = sender.is_empty();
                sender.fail_all(&error);
            }
        }
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        // A result of a session that this node does not have any more means nothing.
        let (was_up, current) = match node.phase {
            Phase::Up(current) => (true, current),
            Phase::Attaching(current, _) => (false, current),
            _ => return,
        };
        if current != channel {
            return;
        }
        if id == NodeId::Cbs {
            self.cbs_broken(&error, now);
        }
        // The service detaches what was idle for long; nothing is lost, and nobody need know.
        let quiet = was_up && idle && &*error.condition == "amqp:link:detach-forced";
        let busy = is_busy(&error);
        self.report_problem(id, (!quiet).then_some(error));
        self.rest(id, busy, now);
    }

    /// Takes a node down from this side.
    pub(super) fn break_node(&mut self, id: NodeId, channel: u16, error: LinkError, now: Instant) {
        if let Some((_, session)) = self.sessions.get_mut(&channel) {
            session.abandon(&mut self.out);
        }
        self.node_broken(id, channel, error, now);
    }

    /// Whoever waits for an answer from `$cbs` waits in vain.
    fn cbs_broken(&mut self, error: &LinkError, now: Instant) {
        if let Some(asker) = self.authorizing.take() {
            self.token_answered(asker, Err(error.clone()), now);
        }
    }

    /// Removes a node for good.
    pub(super) fn drop_node(&mut self, id: NodeId, error: &LinkError) {
        let Some(node) = self.nodes.remove(&id) else {
            return;
        };
        let (Phase::Up(channel) | Phase::Attaching(channel, _)) = node.phase else {
            return;
        };
        if let Some((_, session)) = self.sessions.get_mut(&channel) {
            if let Some(sender) = session.sender() {
                sender.fail_all(error);
            }
            session.abandon(&mut self.out);
        }
    }

    fn report_problem(&mut self, id: NodeId, error: Option<LinkError>) {
        if let (Some(learning), Some(error)) = (&mut self.learning, &error) {
            learning.fail(error.clone());
        }
        if let NodeId::Link(link) = id {
            if let Some(entry) = self.links.entries.get(&link) {
                entry.shared.report(LinkState::Down(error));
            }
        }
    }

    /// Puts a node aside for a while; longer each time, unless it was up in between.
    fn rest(&mut self, id: NodeId, busy: bool, now: Instant) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let worked = matches!(node.phase, Phase::Up(_)) && now >= node.up_at + SOUND_AFTER;
        let wait = if worked {
            node.failures = 0;
            Duration::ZERO
        } else {
            let wait = backoff_policy().backoff(node.failures, busy, &mut self.jitter);
            node.failures = node.failures.saturating_add(1);
            wait
        };
        node.renew_at = None;
        node.phase = Phase::Resting(now + wait);
        self.wake_by(Some(now + wait));
    }
}
