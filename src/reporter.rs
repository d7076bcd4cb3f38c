//! The way of an outcome: permits, tickets, then the application.

use crate::core::Entry;
use crate::event::Event;
use crate::lane::{Lane, Permits};
use crate::partition::PartitionId;
use crate::producer::Enqueuer;
use crate::report::{Counts, DeliveryReport, Outcome, ReportedEvent};
use crate::stats::{EngineStats, LaneStats};
use crate::sync::{Arc, Mutex};
use crate::ticket::TicketSlot;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The application's delivery handler.
pub(crate) type Handler = dyn Fn(DeliveryReport, &Enqueuer) + Send + Sync;

/// Where events that are handed back go while somebody closes.
///
/// Each returned event goes to exactly one place: the closer, while there is one, or the
/// delivery handler.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    state: Mutex<ReturnsState>,
}

#[derive(Debug, Default)]
struct ReturnsState {
    closers: usize,
    events: Vec<(PartitionId, Vec<Event>)>,
}

impl Returns {
    /// A closer begins to take returned events.
    pub(crate) fn begin(&self) {
        self.state.lock().closers += 1;
    }

    /// A closer ends and takes what has come back.
    pub(crate) fn finish(&self) -> Vec<(PartitionId, Vec<Event>)> {
        let mut state = self.state.lock();
        state.closers = state.closers.saturating_sub(1);
        std::mem::take(&mut state.events)
    }

    fn offer(&self, partition: &PartitionId, entries: Entries) -> Result<(), Entries> {
        let mut state = self.state.lock();
        if state.closers == 0 {
            return Err(entries);
        }
        let events = entries.into_iter().map(|entry| entry.event);
        match state.events.iter_mut().find(|(id, _)| id == partition) {
            Some((_, known)) => known.extend(events),
            None => {
                let events = events.collect();
                state.events.push((partition.clone(), events));
            }
        }
        Ok(())
    }
}

type Entries = Vec<Entry<Option<TicketSlot>>>;

/// One lane's reporter, on its worker.
pub(crate) struct Reporter {
    pub(crate) handler: Option<Arc<Handler>>,
    pub(crate) enqueuer: Enqueuer,
    pub(crate) returns: Arc<Returns>,
    pub(crate) stats: Arc<LaneStats>,
    counts: Counts,
    handler_panics: u64,
}

impl Reporter {
    pub(crate) fn new(
        handler: Option<Arc<Handler>>,
        enqueuer: Enqueuer,
        returns: Arc<Returns>,
        stats: Arc<LaneStats>,
    ) -> Reporter {
        Reporter {
            handler,
            enqueuer,
            returns,
            stats,
            counts: Counts::default(),
            handler_panics: 0,
        }
    }

    /// Makes an outcome known. The permits go first, so that the handler finds room for the
    /// events that it may enqueue, even in a lane bounded to one.
    pub(crate) fn report(
        &mut self,
        lane: &Lane,
        outcome: Outcome,
        mut entries: Entries,
        attempts: u32,
    ) {
        let events = entries.len() as u64;
        let bytes = entries.iter().map(|e| u64::from(e.encoded_len)).sum();
        self.counts.add(&outcome, events);
        // Before anyone is told: whoever was told finds it counted.
        self.stats.publish_outcomes(self.counts);
        for entry in &mut entries {
            if let Some(ticket) = entry.tag.take() {
                ticket.resolve(&outcome);
            }
        }
        lane.release(Permits { events, bytes });
        if outcome == Outcome::Returned {
            match self.returns.offer(lane.partition(), entries) {
                Ok(()) => return,
                Err(unclaimed) => entries = unclaimed,
            }
        }
        self.call_handler(lane.partition(), outcome, entries, attempts);
    }

    fn call_handler(
        &mut self,
        partition: &PartitionId,
        outcome: Outcome,
        entries: Entries,
        attempts: u32,
    ) {
        let Some(handler) = &self.handler else {
            log_unhandled(partition, &outcome, entries.len());
            return;
        };
        let report = DeliveryReport {
            partition: partition.clone(),
            outcome,
            events: entries
                .into_iter()
                .map(|entry| ReportedEvent {
                    event: entry.event,
                    key: entry.key,
                })
                .collect(),
            attempts,
        };
        // Unwind safety: nothing of ours is borrowed mutably by the handler, and what its
        // panic leaves of its own state is its own affair.
        if catch_unwind(AssertUnwindSafe(|| handler(report, &self.enqueuer))).is_err() {
            self.handler_panics += 1;
            tracing::error!(%partition, "delivery handler panicked; the outcome stands");
        }
    }

    pub(crate) fn publish(&self, engine: EngineStats) {
        self.stats.publish_engine(engine);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn handler_panics(&self) -> u64 {
        self.handler_panics
    }
}

/// Without a handler a failure is at least in the log.
fn log_unhandled(partition: &PartitionId, outcome: &Outcome, events: usize) {
    match outcome {
        Outcome::Delivered => {}
        Outcome::Failed(cause) => {
            tracing::error!(%partition, events, %cause, "events were not delivered");
        }
        Outcome::Indeterminate(cause) => {
            tracing::error!(%partition, events, %cause, "events may not have been delivered");
        }
        Outcome::Returned => {
            tracing::error!(%partition, events, "events were dropped unsent at close");
        }
    }
}
