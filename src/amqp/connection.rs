//! One connection, from its `open` to its end, as a state machine: frames, letters and the time
//! go in, bytes and settlements come out. No sockets and no clock.
//!
//! A connection has nodes: `$cbs`, which takes tokens; while the transport starts, `$management`,
//! which tells the partitions, and a probe, which learns the limit for messages; and the
//! workers' links. Each node has a session to itself ([`session`](super::session)); what moves a
//! node from phase to phase stands in [`nodes`](super::nodes).

use super::errors;
use super::learning::Learning;
use super::links::{Entry, Links, no_link};
use super::mailbox::{Letter, LinkId};
use super::nodes::{Node, NodeId, Phase};
use super::options::Settings;
use super::session::{Happening, Session};
use super::wire::Outbound;
use crate::retry::Jitter;
use crate::sync::{Arc, Instant};
use crate::transport::{LinkError, LinkState};
use fe2o3_amqp::frames::amqp::{Frame, FrameBody};
use fe2o3_amqp_types::performatives::{Close, Open};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// What the peer's `open` said.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerLimits {
    pub(super) max_frame: usize,
    pub(super) channel_max: u16,
    /// The longest that this end may be silent.
    pub(super) idle: Option<Duration>,
}

impl PeerLimits {
    /// Reads the peer's `open`. Frames are never longer than this end's own limit either.
    pub(super) fn new(open: &Open, own_max_frame: u32) -> PeerLimits {
        let max_frame = open.max_frame_size.0.clamp(512, own_max_frame.max(512));
        PeerLimits {
            max_frame: max_frame as usize,
            channel_max: open.channel_max.0,
            idle: match open.idle_time_out {
                None | Some(0) => None,
                Some(ms) => Some(Duration::from_millis(u64::from(ms))),
            },
        }
    }
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// It broke, or had to be broken.
    Lost(LinkError),
    /// Both ends said `close`.
    Closed,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) settings: Arc<Settings>,
    pub(super) limits: PeerLimits,
    /// What waits to be written.
    pub(super) out: Outbound,
    pub(super) links: Links,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) sessions: BTreeMap<u16, (NodeId, Session)>,
    /// The peer's channel of each session, which is its own choice (2.5.1).
    remote_channels: BTreeMap<u16, u16>,
    /// Channels with something to send, in the order of their turns.
    ready: VecDeque<u16>,
    /// What is being learned for `connect`.
    pub(super) learning: Option<Learning>,
    /// Whose token `$cbs` is asked to take.
    pub(super) authorizing: Option<NodeId>,
    pub(super) jitter: Jitter,
    /// Tells links of this connection from those of earlier ones.
    pub(super) generation: u64,
    pub(super) next_name: u64,
    last_received: Instant,
    last_written: Instant,
    /// Since when bytes wait for the socket and none went.
    stuck_since: Option<Instant>,
    /// This end said `close`, and waits until then for the peer's.
    closing: Option<Instant>,
    /// Nothing is due before.
    alarm: Option<Instant>,
}

impl Connection {
    /// A connection whose `open`s are exchanged. With `learning` it goes on to learn about the
    /// hub; then come the links.
    pub(super) fn new(
        settings: Arc<Settings>,
        limits: PeerLimits,
        links: Links,
        learning: Option<Learning>,
        generation: u64,
        jitter: Jitter,
        now: Instant,
    ) -> Connection {
        let mut connection = Connection {
            settings,
            limits,
            out: Outbound::default(),
            links,
            nodes: BTreeMap::new(),
            sessions: BTreeMap::new(),
            remote_channels: BTreeMap::new(),
            ready: VecDeque::new(),
            learning,
            authorizing: None,
            jitter,
            generation,
            next_name: 0,
            last_received: now,
            last_written: now,
            stuck_since: None,
            closing: None,
            alarm: Some(now),
        };
        connection.start(now);
        connection
    }

    /// Acts on a frame.
    pub(super) fn handle_frame(&mut self, frame: Frame, now: Instant) -> Result<(), Ended> {
        let channel = frame.channel;
        match frame.body {
            FrameBody::Empty => Ok(()),
            FrameBody::Close(close) => Err(self.handle_close(close)),
            _ if self.closing.is_some() => Ok(()),
            FrameBody::Open(_) => Err(out_of_turn("a second open")),
            FrameBody::Begin(begin) => {
                let known = begin
                    .remote_channel
                    .filter(|local| self.sessions.contains_key(local));
                let Some(local) = known else {
                    return Err(out_of_turn("a session that nobody asked for"));
                };
                self.remote_channels.insert(channel, local);
                self.handle_session(local, FrameBody::Begin(begin), now)
            }
            // What belongs to no session crossed its end: sessions end once, some peers end
            // them twice, and neither needs an answer.
            body => match self.remote_channels.get(&channel) {
                Some(local) => self.handle_session(*local, body, now),
                None => Ok(()),
            },
        }
    }

    fn handle_session(&mut self, channel: u16, body: FrameBody, now: Instant) -> Result<(), Ended> {
        let Some((id, session)) = self.sessions.get_mut(&channel) else {
            return Ok(());
        };
        let id = *id;
        let happening = session.handle(body, &mut self.out);
        let ended = session.is_ended();
        let moved = !matches!(happening, Happening::Nothing);
        match happening {
            Happening::Nothing => {}
            Happening::Up(max_message_size) => self.node_up(id, max_message_size, now),
            Happening::Answer(answer) => self.node_answered(id, answer, now),
            Happening::Broken(error) => self.node_broken(id, channel, error, now),
        }
        if ended {
            self.sessions.remove(&channel);
            self.remote_channels.retain(|_, local| *local != channel);
        } else {
            self.is_ready(channel);
        }
        if moved {
            self.advance(now);
        }
        Ok(())
    }

    /// The peer's last word; this end's, if it did not say it yet, is all there is to answer.
    fn handle_close(&mut self, close: Close) -> Ended {
        if self.closing.is_some() {
            return Ended::Closed;
        }
        self.out.put_frame(0, &Close { error: None });
        Ended::Lost(errors::told(close.error, "the peer closed the connection"))
    }

    /// Acts on a letter.
    pub(super) fn handle_letter(&mut self, letter: Letter, now: Instant) {
        if self.is_closing() {
            return self.links.handle_offline(letter);
        }
        match letter {
            Letter::Open(id, partition, shared) => {
                self.links.entries.insert(id, Entry { partition, shared });
                if self.learning.is_none() {
                    self.add_link(id, now);
                    self.advance(now);
                }
            }
            Letter::Submit(id, pending) => match self.up_session(id) {
                None => pending.fail(no_link()),
                Some((channel, session)) => {
                    if let Some(sender) = session.sender() {
                        sender.submit(pending, now);
                        let deadline = sender.deadline();
                        self.wake_by(deadline);
                    }
                    self.is_ready(channel);
                }
            },
            Letter::Cancel(id, delivery) => {
                let Some((channel, session)) = self.up_session(id) else {
                    return;
                };
                // Given up because the peer does not answer, or gives no credit: a link as good
                // as broken, unless the answer was on its way.
                if session.sender().is_some_and(|sender| sender.has(delivery)) {
                    let error = LinkError::new(errors::CANCELLED, "the lane gave a batch up");
                    self.break_node(NodeId::Link(id), channel, error, now);
                    self.advance(now);
                }
            }
            Letter::Close(id) => {
                self.links.entries.remove(&id);
                let error = LinkError::new(errors::CLOSED, "the link was closed");
                self.drop_node(NodeId::Link(id), &error);
            }
            Letter::Shut(deadline) => self.links.shut(deadline),
        }
    }

    fn up_session(&mut self, id: LinkId) -> Option<(u16, &mut Session)> {
        let Phase::Up(channel) = self.nodes.get(&NodeId::Link(id))?.phase else {
            return None;
        };
        let (_, session) = self.sessions.get_mut(&channel)?;
        Some((channel, session))
    }

    /// The session has something to send, perhaps.
    pub(super) fn is_ready(&mut self, channel: u16) {
        if !self.ready.contains(&channel) {
            self.ready.push_back(channel);
        }
    }

    /// Encodes what may be sent, session by session in turn, until enough of it waits.
    pub(super) fn pump(&mut self, now: Instant) {
        for _ in 0..self.ready.len() {
            let Some(channel) = self.ready.pop_front() else {
                break;
            };
            let Some((_, session)) = self.sessions.get_mut(&channel) else {
                continue;
            };
            if session.pump(&mut self.out, now) {
                self.ready.push_back(channel);
            }
        }
        if self.stuck_since.is_none() && !self.out.is_idle() {
            self.stuck_since = Some(now);
            self.wake_by(Some(now + self.settings.operation_timeout));
        }
    }

    /// Bytes came, whatever they mean.
    pub(super) fn note_received(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// Bytes went.
    pub(super) fn note_written(&mut self, now: Instant) {
        self.last_written = now;
        self.stuck_since = None;
    }

    /// When [`handle_timeout`](Connection::handle_timeout) is due.
    pub(super) fn poll_deadline(&self) -> Option<Instant> {
        self.alarm
    }

    /// Something is due by then.
    pub(super) fn wake_by(&mut self, at: Option<Instant>) {
        if let Some(at) = at {
            self.alarm = Some(self.alarm.map_or(at, |earlier| earlier.min(at)));
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), Ended> {
        self.alarm = None;
        if self.closing.is_some_and(|by| now >= by) {
            return Err(Ended::Closed);
        }
        self.check_peer(now)?;
        self.check_sessions(now)?;
        self.check_attaching(now)?;
        self.advance(now);
        Ok(())
    }

    fn check_peer(&mut self, now: Instant) -> Result<(), Ended> {
        // The peer was told half of what it is given (2.4.5).
        let silence = self.settings.idle_time_out * 2;
        if now >= self.last_received + silence {
            let what = "nothing came from the peer for twice its time-out";
            return Err(Ended::Lost(LinkError::new(errors::CONNECTION_LOST, what)));
        }
        self.wake_by(Some(self.last_received + silence));
        if let Some(since) = self.stuck_since {
            let by = since + self.settings.operation_timeout;
            if now >= by {
                let what = "the peer takes no bytes";
                return Err(Ended::Lost(LinkError::new(errors::CONNECTION_LOST, what)));
            }
            self.wake_by(Some(by));
        }
        if let Some(idle) = self.limits.idle {
            // Half of it, so that one late frame does no harm.
            let mut due = self.last_written + idle / 2;
            if now >= due {
                self.out.put_heartbeat();
                due = now + idle / 2;
            }
            self.wake_by(Some(due));
        }
        self.wake_by(self.closing);
        Ok(())
    }

    /// Looks for deliveries and requests that had their time.
    fn check_sessions(&mut self, now: Instant) -> Result<(), Ended> {
        let mut broken = Vec::new();
        for (channel, (id, session)) in &mut self.sessions {
            if !session.is_up() {
                continue;
            }
            let mut deadline = None;
            if let Some(sender) = session.sender() {
                if sender.is_overdue(now) {
                    broken.push((*id, *channel, errors::timed_out("a batch")));
                }
                deadline = sender.deadline();
            } else if let Some((what, _, by)) = session.requests().and_then(|asked| asked.waiting())
            {
                if now >= by {
                    broken.push((*id, *channel, errors::timed_out(what)));
                }
                deadline = Some(by);
            }
            if let Some(at) = deadline {
                self.alarm = Some(self.alarm.map_or(at, |earlier| earlier.min(at)));
            }
        }
        for (id, channel, error) in broken {
            self.suspect(&error, now)?;
            self.break_node(id, channel, error, now);
        }
        Ok(())
    }

    /// Somebody waited in vain. If nothing at all came meanwhile, it is not one link that is
    /// silent, and only a new connection can help.
    pub(super) fn suspect(&self, error: &LinkError, now: Instant) -> Result<(), Ended> {
        match now >= self.last_received + self.settings.operation_timeout {
            true => Err(Ended::Lost(error.clone())),
            false => Ok(()),
        }
    }

    /// Says `close`, after an end to all that is in flight. The peer has until `by` to answer.
    pub(super) fn close(&mut self, by: Instant) {
        if self.closing.is_some() {
            return;
        }
        let error = LinkError::new(errors::CLOSED, "the transport is closed");
        self.fail_all(&error);
        self.ready.clear();
        self.out.put_frame(0, &Close { error: None });
        self.closing = Some(by);
        self.wake_by(Some(by));
    }

    /// Whether this end has said its last word.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Tells every lane that its link is gone; the links go to the next connection.
    pub(super) fn end(mut self, error: &LinkError) -> Links {
        let forced = &*error.condition == "amqp:connection:forced";
        for (id, entry) in &self.links.entries {
            let busy = match self.nodes.get(&NodeId::Link(*id)).map(|node| &node.phase) {
                Some(Phase::Up(channel)) => match self.sessions.get_mut(channel) {
                    Some((_, session)) => session.sender().is_some_and(|sender| !sender.is_empty()),
                    None => false,
                },
                _ => false,
            };
            // A service that puts an idle connection away did nothing wrong.
            let quiet = forced && !busy;
            let problem = (!quiet).then(|| error.clone());
            entry.shared.report(LinkState::Down(problem));
        }
        self.fail_all(error);
        std::mem::take(&mut self.links)
    }

    fn fail_all(&mut self, error: &LinkError) {
        for (_, session) in self.sessions.values_mut() {
            if let Some(sender) = session.sender() {
                sender.fail_all(error);
            }
        }
    }
}

fn out_of_turn(what: &str) -> Ended {
    Ended::Lost(LinkError::new(
        errors::FRAMING,
        format!("the peer sent {what}"),
    ))
}
