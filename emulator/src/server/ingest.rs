//! Links on which events arrive: split, route, ask the script, store, answer.

use std::{ops::Range, sync::Arc, time::Instant};

use bytes::Bytes;
use serde_amqp::Value;

use super::{
    core::{Core, Ending, Later, LinkRef, Verdict},
    inbound::{Delivery, Progress, Receiving, accepted, rejected},
    session::{Link, Role, Session, Window},
};
use crate::{
    fault::{Action, Moment, Site, Step},
    stats::Counters,
    store::{AppendError, HubStore},
    wire::{
        code,
        fields::composite,
        message::{self, BATCH_FORMAT},
        performative::Transfer,
        scan::Malformed,
    },
};

/// A link on which the client sends events.
#[derive(Debug)]
pub(crate) struct Ingest {
    pub(crate) receiving: Receiving,
    pub(crate) hub: Arc<HubStore>,
    /// Fixed by the address, or picked for each message.
    pub(crate) partition: Option<usize>,
    /// What a token must cover.
    pub(crate) path: String,
    /// Where the events of the message at hand lie; kept for its memory.
    pub(crate) events: Vec<Range<u32>>,
}

/// What a message is answered with.
enum Answer {
    Accepted,
    State(Value),
    /// The answer goes out at that time.
    Later(Instant, Value),
    /// No answer, the link goes on.
    Nothing,
    Detach(String, String),
    End(String, String),
}

/// Takes one frame on an ingest link.
pub(crate) fn transfer(session: &mut Session, core: &mut Core, transfer: Transfer) {
    let handle = transfer.handle;
    let Some(Link {
        role: Role::Ingest(ingest),
        reference,
        ..
    }) = session.links.get_mut(&handle)
    else {
        return;
    };
    let reference = *reference;
    let delivery = match ingest.receiving.accept(transfer) {
        Progress::Partial => return,
        Progress::Whole(delivery) => delivery,
        Progress::Broken(condition, text) => {
            session.detach_with(core, handle, condition, text);
            return;
        }
    };
    core.count(|counters| &counters.transfers, 1);
    if !core.allows(&ingest.path, super::attach::now_seconds()) {
        session.detach_with(
            core,
            handle,
            "amqp:unauthorized-access",
            "the token has expired",
        );
        return;
    }
    let answer = ingest.decide(core, &delivery, reference);
    ingest.receiving.reuse(delivery.payload);
    if core.ending.is_some() || core.quiet.is_some() {
        return;
    }
    match answer {
        Answer::Detach(condition, text) => session.detach_with(core, handle, &condition, &text),
        Answer::End(condition, text) => session.end_with(core, &condition, &text),
        answer => {
            let (receiving, window) = (&mut ingest.receiving, &session.window);
            if !delivery.settled {
                tell(receiving, core, window, reference, delivery.id, answer);
            }
            receiving.finish_revoking(core, window);
            receiving.replenish(core, window);
        }
    }
}

/// Gives the client its answer, now or later.
fn tell(
    receiving: &mut Receiving,
    core: &mut Core,
    window: &Window,
    link: LinkRef,
    delivery: u32,
    answer: Answer,
) {
    match answer {
        Answer::Accepted => receiving.settle_accepted(core, window, delivery),
        Answer::State(state) => receiving.settle(core, window, delivery, state),
        Answer::Later(at, state) => {
            receiving.hold();
            core.schedule(at, link, Later::Settle { delivery, state });
        }
        Answer::Nothing | Answer::Detach(..) | Answer::End(..) => receiving.hold(),
    }
}

impl Ingest {
    fn decide(&mut self, core: &mut Core, delivery: &Delivery, link: LinkRef) -> Answer {
        let payload = &delivery.payload;
        if let Err(error) = split(delivery.format, payload, &mut self.events) {
            core.count(|counters| &counters.rejected, 1);
            return Answer::State(rejected("amqp:decode-error", &error.to_string()));
        }
        let partition = self
            .partition
            .unwrap_or_else(|| self.hub.route(self.key(payload)));
        let hub = Arc::clone(&self.hub);
        let site = Site {
            step: Step::Transfer,
            hub: Some(hub.name()),
            partition: Some(partition),
        };
        match core.strike(site) {
            Verdict::Proceed => self.store(core, partition, payload),
            Verdict::Skip => Answer::Nothing,
            Verdict::Special(action) => self.misbehave(core, partition, payload, action, link),
        }
    }

    /// The key by which the service would pick a partition: the envelope's, else the first event's.
    fn key<'a>(&self, payload: &'a Bytes) -> Option<&'a str> {
        let first = self.events.first()?;
        message::partition_key(payload)
            .or_else(|| message::partition_key(&payload[first.start as usize..first.end as usize]))
    }

    fn store(&self, core: &mut Core, partition: usize, payload: &Bytes) -> Answer {
        let count = self.events.len() as u64;
        let (condition, error) = match self.hub.append(partition, payload, &self.events) {
            Ok(()) => {
                core.count(|counters| &counters.accepted, 1);
                core.count(|counters| &counters.events_stored, count);
                return Answer::Accepted;
            }
            Err(error @ AppendError::Full) => ("amqp:resource-limit-exceeded", error),
            Err(error @ AppendError::Journal(_)) => ("amqp:internal-error", error),
        };
        core.count(|counters| &counters.rejected, 1);
        Answer::State(rejected(condition, &error.to_string()))
    }

    fn misbehave(
        &mut self,
        core: &mut Core,
        partition: usize,
        payload: &Bytes,
        action: Action,
        link: LinkRef,
    ) -> Answer {
        match action {
            Action::Reject(error) => {
                core.count(|counters: &Counters| &counters.rejected, 1);
                Answer::State(rejected(&error.condition, &error.description))
            }
            Action::Release => Answer::State(composite(code::RELEASED, Vec::new())),
            Action::Modify {
                delivery_failed,
                undeliverable_here,
            } => {
                let flags = [delivery_failed, undeliverable_here].map(Value::Bool);
                let mut fields = flags.to_vec();
                fields.push(Value::Null);
                Answer::State(composite(code::MODIFIED, fields))
            }
            Action::DetachLink(error) => Answer::Detach(error.condition, error.description),
            Action::EndSession(error) => Answer::End(error.condition, error.description),
            Action::DropSocket {
                how,
                moment: Moment::AfterStore,
            } => {
                let _ = self.store(core, partition, payload);
                core.ending = Some(Ending::Dropped(how));
                Answer::Nothing
            }
            Action::NeverSettle(moment) => {
                if moment == Moment::AfterStore {
                    let _ = self.store(core, partition, payload);
                }
                Answer::Nothing
            }
            Action::DelaySettlement(duration) => {
                let state = match self.store(core, partition, payload) {
                    Answer::State(state) => state,
                    _ => accepted(),
                };
                Answer::Later(Instant::now() + duration, state)
            }
            Action::WithholdCredit(duration) => {
                self.receiving.revoke();
                core.schedule(Instant::now() + duration, link, Later::Credit);
                self.store(core, partition, payload)
            }
            // Meant for another step.
            _ => self.store(core, partition, payload),
        }
    }
}

fn split(format: u32, payload: &Bytes, events: &mut Vec<Range<u32>>) -> Result<(), Malformed> {
    if format == BATCH_FORMAT {
        message::split_batch(payload, events)?;
        return if events.is_empty() {
            Err(Malformed::EmptyBatch)
        } else {
            Ok(())
        };
    }
    message::check_message(payload)?;
    let end = u32::try_from(payload.len()).map_err(|_| Malformed::BadSize)?;
    events.clear();
    events.push(0..end);
    Ok(())
}
