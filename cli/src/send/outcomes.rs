//! What became of the events, as the producer reports it.

use super::ledger::Ledger;
use crate::console::Console;
use hublane::{DeliveryReport, Event, MessageId, Outcome, PartitionId, ReportedEvent};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Batches whose failure is told; the summary counts the others.
const TOLD: u64 = 10;

/// Counts outcomes, independently of the producer's own statistics, and tells the ledger what
/// need not be stored. The counters order nothing: they are read when all is over, or for show.
#[derive(Debug)]
pub struct Outcomes {
    delivered: AtomicU64,
    delivered_bytes: AtomicU64,
    failed: AtomicU64,
    indeterminate: AtomicU64,
    returned: AtomicU64,
    /// Batches that were not delivered.
    bad_batches: AtomicU64,
    ledger: Option<Arc<Mutex<Ledger>>>,
    console: Console,
}

impl Outcomes {
    /// Nothing so far.
    pub fn new(ledger: Option<Arc<Mutex<Ledger>>>, console: Console) -> Outcomes {
        Outcomes {
            delivered: AtomicU64::new(0),
            delivered_bytes: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            indeterminate: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            bad_batches: AtomicU64::new(0),
            ledger,
            console,
        }
    }

    /// Takes the report of a batch.
    pub fn record(&self, report: &DeliveryReport) {
        let events = || report.events.iter().map(|reported| &reported.event);
        let count = report.events.len() as u64;
        match &report.outcome {
            Outcome::Delivered => {
                let bytes = events().map(|event| event.body().len() as u64).sum();
                self.delivered_bytes.fetch_add(bytes, Relaxed);
                self.delivered.fetch_add(count, Relaxed);
            }
            Outcome::Failed(cause) => {
                self.failed.fetch_add(count, Relaxed);
                self.tell_ledger(events(), Ledger::withdraw);
                self.tell(events(), &format!("failed: {cause}"));
            }
            Outcome::Indeterminate(cause) => {
                self.indeterminate.fetch_add(count, Relaxed);
                self.tell_ledger(events(), Ledger::doubt);
                self.tell(events(), &format!("may not have been delivered: {cause}"));
            }
            Outcome::Returned => self.count_returned(events(), count),
            // An outcome of a later version, about which nothing is known.
            _ => {
                self.indeterminate.fetch_add(count, Relaxed);
                self.tell_ledger(events(), Ledger::doubt);
            }
        }
    }

    /// Takes the events that closing handed back.
    pub fn take_back(&self, unsent: &[(PartitionId, Vec<ReportedEvent>)]) {
        for (_, events) in unsent {
            let each = events.iter().map(|reported| &reported.event);
            self.count_returned(each, events.len() as u64);
        }
    }

    fn count_returned<'a>(&self, events: impl Iterator<Item = &'a Event>, count: u64) {
        self.returned.fetch_add(count, Relaxed);
        self.tell_ledger(events, Ledger::withdraw);
    }

    fn tell_ledger<'a>(
        &self,
        events: impl Iterator<Item = &'a Event>,
        entry: impl Fn(&mut Ledger, u64),
    ) {
        if let Some(ledger) = &self.ledger {
            let mut ledger = lock(ledger);
            events
                .filter_map(line_of)
                .for_each(|line| entry(&mut ledger, line));
        }
    }

    fn tell<'a>(&self, events: impl Iterator<Item = &'a Event>, what: &str) {
        if self.bad_batches.fetch_add(1, Relaxed) >= TOLD {
            return;
        }
        let lines: Vec<u64> = events.filter_map(line_of).collect();
        let which = match lines.as_slice() {
            [] => return,
            [line] => format!("line {line}"),
            [first, .., last] => format!("{} events, lines {first} to {last},", lines.len()),
        };
        self.console.complain(&format!("{which} {what}"));
    }

    /// Events delivered so far.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Relaxed)
    }

    /// The bytes of their bodies.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes.load(Relaxed)
    }

    /// Events given up that were never stored, as far as any answer says.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Events given up that may be stored.
    pub fn indeterminate(&self) -> u64 {
        self.indeterminate.load(Relaxed)
    }

    /// Events handed back.
    pub fn returned(&self) -> u64 {
        self.returned.load(Relaxed)
    }
}

/// The line that an event was.
fn line_of(event: &Event) -> Option<u64> {
    match event.message_id() {
        Some(MessageId::U64(line)) => Some(*line),
        _ => None,
    }
}

/// Locks in spite of a panic elsewhere: every entry leaves a whole ledger behind.
pub fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}
