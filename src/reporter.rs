//! The way of an outcome: permits, tickets, then the application.

use crate::contain::contain;
use crate::core::Entry;
use crate::lane::{Lane, Permits};
use crate::partition::PartitionId;
use crate::producer::Enqueuer;
use crate::report::{Counts, DeliveryReport, Outcome, ReportedEvent};
use crate::stats::{EngineStats, LaneStats};
use crate::sync::{Arc, Mutex};
use crate::ticket::TicketSlot;

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
    events: Vec<(PartitionId, Vec<Run>)>,
}

/// Neighbours of one lane, and how many events it had accepted before them.
#[derive(Debug)]
struct Run {
    first: u64,
    events: Vec<ReportedEvent>,
}

impl Returns {
    /// A closer begins to take returned events.
    pub(crate) fn begin(&self) {
        self.state.lock().closers += 1;
    }

    /// A closer ends and takes what has come back, each partition's events in the order of
    /// their acceptance: a batch that a peer gives back late stands before those behind it.
    pub(crate) fn finish(&self) -> Vec<(PartitionId, Vec<ReportedEvent>)> {
        let returned = {
            let mut state = self.state.lock();
            state.closers = state.closers.saturating_sub(1);
            std::mem::take(&mut state.events)
        };
        let in_order = |mut runs: Vec<Run>| {
            runs.sort_by_key(|run| run.first);
            runs.into_iter().flat_map(|run| run.events).collect()
        };
        returned
            .into_iter()
            .map(|(partition, runs)| (partition, in_order(runs)))
            .collect()
    }

    fn offer(&self, partition: &PartitionId, batch: Finished) -> Result<(), Finished> {
        let mut state = self.state.lock();
        if state.closers == 0 {
            return Err(batch);
        }
        let run = Run {
            first: batch.first,
            events: reported(batch.entries),
        };
        match state.events.iter_mut().find(|(id, _)| id == partition) {
            Some((_, known)) => known.push(run),
            None => state.events.push((partition.clone(), vec![run])),
        }
        Ok(())
    }
}

/// Neighbours of one lane that have their outcome.
#[derive(Debug)]
pub(crate) struct Finished {
    /// How many events the lane had accepted before them.
    pub(crate) first: u64,
    pub(crate) entries: Vec<Entry<Option<TicketSlot>>>,
    /// How often they were transferred.
    pub(crate) attempts: u32,
}

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
    pub(crate) fn report(&mut self, lane: &Lane, outcome: Outcome, mut batch: Finished) {
        let events = batch.entries.len() as u64;
        let bytes = batch.entries.iter().map(|e| u64::from(e.encoded_len)).sum();
        self.counts.add(&outcome, events);
        // Before anyone is told: whoever was told finds it counted.
        self.stats.publish_outcomes(self.counts);
        lane.release(Permits { events, bytes });
        for entry in &mut batch.entries {
            if let Some(ticket) = entry.tag.take() {
                ticket.resolve(&outcome);
            }
        }
        if outcome == Outcome::Returned {
            match self.returns.offer(lane.partition(), batch) {
                Ok(()) => return,
                Err(unclaimed) => batch = unclaimed,
            }
        }
        self.call_handler(lane.partition(), outcome, batch);
    }

    fn call_handler(&mut self, partition: &PartitionId, outcome: Outcome, batch: Finished) {
        let Some(handler) = &self.handler else {
            contain(|| log_unhandled(partition, &outcome, batch.entries.len()));
            // An event's context is the application's, and so is its destructor. One by one:
            // two that panic in one unwind would end the process.
            for entry in batch.entries {
                contain(|| drop(entry));
            }
            return;
        };
        let report = DeliveryReport {
            partition: partition.clone(),
            outcome,
            events: reported(batch.entries),
            attempts: batch.attempts,
        };
        if !contain(|| handler(report, &self.enqueuer)) {
            self.handler_panics += 1;
            contain(|| {
                tracing::error!(%partition, "delivery handler panicked; the outcome stands");
            });
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

fn reported(entries: Vec<Entry<Option<TicketSlot>>>) -> Vec<ReportedEvent> {
    entries
        .into_iter()
        .map(|entry| ReportedEvent {
            event: entry.event,
            key: entry.key,
        })
        .collect()
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
