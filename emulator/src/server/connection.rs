//! One connection: frames in, frames out, sessions by channel.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use serde_amqp::Value;

use super::{
    core::{Core, Ending, MAX_FRAME, Quiet, Verdict},
    session::{SESSION_WINDOW, Session},
};
use crate::{
    fault::{Action, Deed, Disruption, Site, Step},
    wire::{
        code,
        fields::{self, map, string, symbol, uint_or_null},
        frame::{self, Frame, FrameKind},
        performative::{self, Begin, Open, Performative},
        scan::Malformed,
    },
};

/// The highest channel number, as the service announces it.
const CHANNEL_MAX: u16 = 4999;

/// The highest link handle per session.
pub(crate) const HANDLE_MAX: u32 = 1023;

/// The least that every peer must take in one frame, part 2.4.1.
const MIN_MAX_FRAME: u32 = 512;

/// A heartbeat is never sent more often than this, whatever the peer asks for.
const MIN_HEARTBEAT: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) core: Core,
    /// How often the client must hear something.
    pub(crate) heartbeat: Option<Duration>,
    pub(crate) peer_closed: bool,
    opened: bool,
    /// After garbage nothing more can be understood.
    deaf: bool,
    sessions: HashMap<u16, Session>,
    client_channel_max: u16,
}

impl Connection {
    pub(crate) fn new(core: Core) -> Self {
        Self {
            core,
            heartbeat: None,
            peer_closed: false,
            opened: false,
            deaf: false,
            sessions: HashMap::new(),
            client_channel_max: u16::MAX,
        }
    }

    /// Acts on all whole frames in `input` and leaves the rest there.
    pub(crate) fn handle_input(&mut self, input: &mut BytesMut) {
        while !self.deaf && self.core.quiet.is_none() && !self.dropped() {
            let handled = match frame::take_frame(input, MAX_FRAME) {
                Ok(None) => return,
                Ok(Some(frame)) => self.handle_frame(&frame),
                Err(error) => Err(error),
            };
            if let Err(error) = handled {
                self.break_off(&error);
            }
        }
        input.clear();
    }

    fn dropped(&self) -> bool {
        matches!(self.core.ending, Some(Ending::Dropped(_)))
    }

    /// Ends the connection because the peer broke the protocol.
    fn break_off(&mut self, error: &Malformed) {
        self.core.count(|counters| &counters.protocol_errors, 1);
        let condition = match error {
            Malformed::BadFrame => "amqp:connection:framing-error",
            Malformed::UnknownPerformative(_) => "amqp:not-allowed",
            _ => "amqp:decode-error",
        };
        self.core.close(condition, &error.to_string());
        self.deaf = true;
    }

    fn handle_frame(&mut self, frame: &Frame) -> Result<(), Malformed> {
        if frame.kind != FrameKind::Amqp {
            return Err(Malformed::BadFrame);
        }
        if frame.body.is_empty() {
            return Ok(());
        }
        let performative = performative::parse(&frame.body)?;
        if self.core.ending.is_some() {
            self.peer_closed |= matches!(performative, Performative::Close);
            return Ok(());
        }
        match performative {
            Performative::Open(open) if !self.opened => self.open(&open),
            Performative::Close => self.close(),
            _ if !self.opened => return Err(Malformed::UnknownPerformative(0)),
            Performative::Open(_) => return Err(Malformed::UnknownPerformative(code::OPEN)),
            Performative::Begin(begin) => self.begin(frame.channel, &begin)?,
            Performative::End => self.end(frame.channel),
            other => {
                // A frame may cross the `end` of its session; clients that shut down do that.
                if let Some(session) = self.sessions.get_mut(&frame.channel) {
                    session.handle(&mut self.core, other)?;
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, open: &Open) {
        self.opened = true;
        let max = open.max_frame_size.clamp(MIN_MAX_FRAME, MAX_FRAME as u32);
        self.core.max_frame = max as usize;
        self.client_channel_max = open.channel_max;
        // Half the time that the peer allows, so that one late frame does no harm.
        self.heartbeat = open
            .idle_time_out_ms
            .filter(|ms| *ms > 0)
            .map(|ms| (Duration::from_millis(u64::from(ms)) / 2).max(MIN_HEARTBEAT));
        match self.core.strike(Site::step(Step::Open)) {
            // A close must follow an open, part 2.4.5.
            Verdict::Skip if self.core.ending == Some(Ending::Flushed) => {
                let close = self.core.out.split();
                self.answer_open();
                self.core.out.unsplit(close);
            }
            Verdict::Skip => {}
            Verdict::Proceed | Verdict::Special(_) => self.answer_open(),
        }
    }

    fn answer_open(&mut self) {
        let idle = self.core.shared.settings.idle_time_out.as_millis();
        let idle = u32::try_from(idle).unwrap_or(u32::MAX);
        let fields = vec![
            string("hublane-emulator"),
            Value::Null,
            Value::Uint(MAX_FRAME as u32),
            Value::Ushort(CHANNEL_MAX),
            Value::Uint(idle),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            product(),
        ];
        self.core.send(0, code::OPEN, fields);
    }

    fn close(&mut self) {
        self.peer_closed = true;
        self.core.send(0, code::CLOSE, vec![Value::Null]);
        self.core.ending = Some(Ending::Flushed);
    }

    fn begin(&mut self, channel: u16, begin: &Begin) -> Result<(), Malformed> {
        let free = !self.sessions.contains_key(&channel);
        if channel > CHANNEL_MAX.min(self.client_channel_max) || !free {
            return Err(Malformed::BadFrame);
        }
        let special = match self.core.strike(Site::step(Step::Begin)) {
            Verdict::Proceed => None,
            Verdict::Skip => return Ok(()),
            Verdict::Special(action) => Some(action),
        };
        self.core.count(|counters| &counters.sessions, 1);
        let fields = vec![
            Value::Ushort(channel),
            Value::Uint(0),
            Value::Uint(SESSION_WINDOW),
            Value::Uint(SESSION_WINDOW),
            uint_or_null(Some(HANDLE_MAX)),
            Value::Null,
            Value::Null,
            product(),
        ];
        self.core.send(channel, code::BEGIN, fields);
        let mut session = Session::new(channel, begin);
        if let Some(Action::EndSession(error)) = special {
            session.end_with(&mut self.core, &error.condition, &error.description);
        }
        self.sessions.insert(channel, session);
        Ok(())
    }

    fn end(&mut self, channel: u16) {
        let Some(session) = self.sessions.remove(&channel) else {
            return;
        };
        if self.core.cbs.is_some_and(|cbs| cbs.channel == channel) {
            self.core.cbs = None;
        }
        if !session.ended() {
            self.core.send(channel, code::END, vec![Value::Null]);
        }
    }

    /// Does what was asked for from outside.
    pub(crate) fn disrupt(&mut self, disruption: &Disruption) {
        match &disruption.deed {
            Deed::DetachLinks(error) => {
                for session in self.sessions.values_mut() {
                    let (condition, text) = (&error.condition, &error.description);
                    session.disrupt(&mut self.core, &disruption.aim, condition, text);
                }
            }
            Deed::CloseConnections(error) => self.core.close(&error.condition, &error.description),
            Deed::DropSockets(how) => self.core.ending = Some(Ending::Dropped(*how)),
            Deed::Silence => self.core.quiet = Some(Quiet::Silent),
            Deed::Freeze => self.core.quiet = Some(Quiet::Frozen),
        }
    }

    /// Does what has become due.
    pub(crate) fn handle_time(&mut self, now: Instant) {
        while let Some((link, later)) = self.core.due(now) {
            if let Some(session) = self.sessions.get_mut(&link.channel) {
                session.handle_later(&mut self.core, link, later);
            }
        }
    }

    /// Sends readers what has arrived for them; true when there is more.
    pub(crate) fn pump(&mut self) -> bool {
        if self.core.ending.is_some() || self.core.quiet.is_some() {
            return false;
        }
        let mut more = false;
        for session in self.sessions.values_mut() {
            more |= session.pump(&mut self.core);
        }
        more
    }
}

/// Who answers. Some clients need the last field of these performatives to be present.
pub(crate) fn product() -> Value {
    map([
        (symbol("product"), string("hublane-emulator")),
        (symbol("version"), string(env!("CARGO_PKG_VERSION"))),
    ])
}

/// An error, or null.
pub(crate) fn error_or_null(error: Option<(&str, &str)>) -> Value {
    error.map_or(Value::Null, |(condition, text)| {
        fields::error(condition, text)
    })
}
