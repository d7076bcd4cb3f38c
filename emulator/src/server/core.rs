//! What a connection's sessions and links share: the output, the timers and the script.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{Arc, atomic::AtomicU64},
    time::Instant,
};

use bytes::BytesMut;
use serde_amqp::Value;
use tokio::sync::Notify;

use super::Shared;
use crate::{
    fault::{Action, Moment, Site, SocketDrop, Step},
    sas::Grant,
    stats,
    wire::{
        code,
        fields::{self, composite},
        frame::{self, FrameKind},
    },
};

/// Output beyond which readers of events are not served until the socket has taken some.
pub(crate) const OUTPUT_HIGH: usize = 256 * 1024;

/// Frames are at most this large in both directions, as on the service.
pub(crate) const MAX_FRAME: usize = 65_536;

/// Tokens kept per connection; a client has one per link address.
const MAX_GRANTS: usize = 1024;

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// When all output is written.
    Flushed,
    /// At once.
    Dropped(SocketDrop),
}

/// A connection that no longer answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quiet {
    /// It reads and discards.
    Silent,
    /// It does not even read.
    Frozen,
}

/// Something to be done later on one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Later {
    /// Settle a delivery.
    Settle { delivery: u32, state: Value },
    /// Give back the credit that was withheld.
    Credit,
    /// Send a message that is ready.
    Answer { message: Vec<u8> },
}

/// A link within a connection. The serial tells it from a later link with the same handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkRef {
    pub(crate) channel: u16,
    pub(crate) handle: u32,
    pub(crate) serial: u64,
}

#[derive(Debug)]
struct Timer {
    at: Instant,
    order: u64,
    link: LinkRef,
    what: Later,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// What becomes of an occasion after the script has been asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing struck.
    Proceed,
    /// The fault has been carried out; the occasion gets no answer.
    Skip,
    /// Only the step itself can carry this out.
    Special(Action),
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) out: BytesMut,
    /// The largest frame that the client takes.
    pub(crate) max_frame: usize,
    pub(crate) ending: Option<Ending>,
    pub(crate) quiet: Option<Quiet>,
    /// Told of appends to the hubs that are read on this connection.
    pub(crate) wake: Arc<Notify>,
    /// The `$cbs` link of this connection on which requests come in.
    pub(crate) cbs: Option<LinkRef>,
    grants: Vec<Grant>,
    timers: BinaryHeap<Reverse<Timer>>,
    next_serial: u64,
}

impl Core {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            out: BytesMut::new(),
            max_frame: 512,
            ending: None,
            quiet: None,
            wake: Arc::new(Notify::new()),
            cbs: None,
            grants: Vec::new(),
            timers: BinaryHeap::new(),
            next_serial: 0,
        }
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    pub(crate) fn count(&self, pick: impl FnOnce(&crate::stats::Counters) -> &AtomicU64, n: u64) {
        stats::add(pick(&self.shared.counters), n);
    }

    /// Appends a frame that carries no payload.
    pub(crate) fn send(&mut self, channel: u16, code: u64, fields: Vec<Value>) {
        let performative = fields::encode(&composite(code, fields));
        self.send_encoded(channel, &performative, &[]);
    }

    pub(crate) fn send_encoded(&mut self, channel: u16, performative: &[u8], payload: &[u8]) {
        frame::put_frame(
            &mut self.out,
            FrameKind::Amqp,
            channel,
            performative,
            payload,
        );
    }

    /// Says `close` with an error and ends when that is written.
    pub(crate) fn close(&mut self, condition: &str, description: &str) {
        if self.ending.is_none() {
            self.send(0, code::CLOSE, vec![fields::error(condition, description)]);
            self.ending = Some(Ending::Flushed);
        }
    }

    /// Asks the script and carries out what concerns the whole connection.
    pub(crate) fn strike(&mut self, site: Site<'_>) -> Verdict {
        let Some(action) = self.shared.faults.strike(site) else {
            return Verdict::Proceed;
        };
        match action {
            Action::DropSocket {
                how,
                moment: Moment::BeforeStore,
            } => {
                self.ending = Some(Ending::Dropped(how));
            }
            // Before the AMQP header there is no way to say it.
            Action::CloseConnection(_) if matches!(site.step, Step::Accept | Step::Sasl) => {
                self.ending = Some(Ending::Dropped(SocketDrop::Finish));
            }
            Action::CloseConnection(error) => self.close(&error.condition, &error.description),
            Action::Silence => self.quiet = Some(Quiet::Silent),
            Action::Freeze => self.quiet = Some(Quiet::Frozen),
            // Nothing can go on after an answer that is missing there.
            Action::NoAnswer if matches!(site.step, Step::Accept | Step::Sasl | Step::Open) => {
                self.quiet = Some(Quiet::Silent);
            }
            Action::NoAnswer => {}
            other => return Verdict::Special(other),
        }
        Verdict::Skip
    }

    /// Remembers a token; a newer one for the same path replaces the older.
    pub(crate) fn grant(&mut self, grant: Grant) {
        self.grants.retain(|old| old.path != grant.path);
        if self.grants.len() == MAX_GRANTS {
            self.grants.remove(0);
        }
        self.grants.push(grant);
    }

    /// True when the path of an address may be used at `now`, in seconds since the Unix epoch.
    pub(crate) fn allows(&self, path: &str, now: u64) -> bool {
        self.shared.settings.sas.is_none()
            || self.grants.iter().any(|grant| grant.covers(path, now))
    }

    pub(crate) fn schedule(&mut self, at: Instant, link: LinkRef, what: Later) {
        let order = self.serial();
        self.timers.push(Reverse(Timer {
            at,
            order,
            link,
            what,
        }));
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse(timer)| timer.at)
    }

    /// Takes a timer that is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(LinkRef, Later)> {
        if self.next_timer()? > now {
            return None;
        }
        self.timers
            .pop()
            .map(|Reverse(timer)| (timer.link, timer.what))
    }
}
