//! The emulator inside `hublane send`, and what it stored.
//!
//! Events are read from the broker's store, which shares no code with the producer, while they
//! arrive; so neither the broker nor the check needs memory for the whole input.

use super::ledger::{Found, Ledger, Verdict};
use super::outcomes::{Outcomes, lock};
use crate::exit::Failure;
use hublane_emulator::{
    Emulator, HubHandle, Position, Retention, StoredEvent, Subscription, Value,
};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What the broker may hold. It drops its oldest events for new ones: those that were read.
const BROKER_BYTES: u64 = 256 << 20;

/// What may be stored and not read yet before sending pauses.
const LAG_BYTES: u64 = 64 << 20;

/// What the producer may hold for all partitions together. With it and the lag the broker never
/// has to drop an event that was not read.
const PRODUCER_BYTES: u64 = 128 << 20;

/// Events read at once.
const READ_EVENTS: usize = 1024;

/// How long a read, or a sender that waits for one, sleeps before it looks round.
const PATIENCE: Duration = Duration::from_millis(50);

/// A broker and a reader of everything that it stores.
#[derive(Debug)]
pub struct Broker {
    emulator: Emulator,
    hub: HubHandle,
    ledger: Arc<Mutex<Ledger>>,
    reader: JoinHandle<()>,
    shared: Arc<Shared>,
}

/// What reader and sender tell each other.
#[derive(Debug, Default)]
struct Shared {
    /// Nothing more will be stored. Release and Acquire: the reader's last look must see what
    /// was stored before.
    stop: AtomicBool,
    read: Mutex<Progress>,
    advanced: Condvar,
}

/// How far the reader is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    events: u64,
    bytes: u64,
}

impl Broker {
    /// Starts an emulator with one hub on a free port of the loopback interface.
    ///
    /// # Errors
    ///
    /// [`Failure`] if it cannot be started.
    pub fn start(name: &str, partitions: usize) -> Result<Broker, Failure> {
        let emulator = Emulator::builder()
            .hub(name, partitions)
            .max_memory_bytes(BROKER_BYTES)
            .retention(Retention::DropOldest)
            .start()?;
        let hub = emulator.hub(name).ok_or_else(|| Failure::System {
            what: "the emulator does not know its hub",
            source: io::ErrorKind::NotFound.into(),
        })?;
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let shared = Arc::new(Shared::default());
        let reader = {
            let events = hub.subscribe(Position::Start);
            let (ledger, shared) = (Arc::clone(&ledger), Arc::clone(&shared));
            thread::Builder::new()
                .name("hublane-readback".to_owned())
                .spawn(move || read_back(events, &ledger, &shared))
                .map_err(|source| Failure::System {
                    what: "cannot start a thread",
                    source,
                })?
        };
        Ok(Broker {
            emulator,
            hub,
            ledger,
            reader,
            shared,
        })
    }

    /// A connection string for the hub.
    pub fn connection_string(&self) -> String {
        self.emulator.connection_string(self.hub.name())
    }

    /// The account of what is sent and found.
    pub fn ledger(&self) -> Arc<Mutex<Ledger>> {
        Arc::clone(&self.ledger)
    }

    /// The producer's bound for each partition: room for the largest event at least.
    pub fn bytes_per_partition(&self) -> u64 {
        let partitions = self.hub.partition_count() as u64;
        (PRODUCER_BYTES / partitions.max(1)).clamp(2 << 20, 32 << 20)
    }

    /// Waits while the reader is far behind. Never for events that the broker does not have.
    pub fn keep_up(&self, outcomes: &Outcomes) {
        let mut read = self.progress();
        while outcomes.delivered_bytes().saturating_sub(read.bytes) > LAG_BYTES
            && self.hub.stored() > read.events
        {
            let (next, _) = self
                .shared
                .advanced
                .wait_timeout(
                    self.shared
                        .read
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner),
                    PATIENCE,
                )
                .unwrap_or_else(PoisonError::into_inner);
            read = *next;
        }
    }

    fn progress(&self) -> Progress {
        *self
            .shared
            .read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads to the end and gives the findings. To be called when every event has its outcome.
    pub fn finish(self, limit: Duration) -> Verdict {
        // First the broker, so that nothing is stored behind the reader's last look.
        let _ = self.emulator.shutdown(limit);
        self.shared.stop.store(true, Ordering::Release);
        if self.reader.join().is_err() {
            // What was not read is lost, and the verdict says so.
            crate::console::complain("reading back failed");
        }
        lock(&self.ledger).verdict()
    }
}

fn read_back(mut stored: Subscription, ledger: &Mutex<Ledger>, shared: &Shared) {
    let fingerprints = lock(ledger).fingerprints();
    loop {
        // Before the look: what was stored before the stop is seen in it.
        let last = shared.stop.load(Ordering::Acquire);
        let events = stored.next_events(READ_EVENTS, if last { Duration::ZERO } else { PATIENCE });
        if events.is_empty() {
            if last {
                return;
            }
            continue;
        }
        let mut bytes = 0;
        let found: Vec<_> = events
            .iter()
            .map(|event| {
                let body = event.body();
                bytes += body.len() as u64;
                (event, fingerprints.of(&body, event.partition_key()))
            })
            .collect();
        let mut ledger = lock(ledger);
        for (event, fingerprint) in found {
            ledger.observe(Found {
                partition: event.partition(),
                line: line_of(event),
                key: event.partition_key(),
                fingerprint,
            });
        }
        drop(ledger);
        let mut read = shared.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.events += events.len() as u64;
        read.bytes += bytes;
        drop(read);
        shared.advanced.notify_all();
    }
}

/// The line number that the event carries as its message id.
fn line_of(event: &StoredEvent) -> Option<u64> {
    match event.message_id() {
        Value::Ulong(line) => Some(line),
        _ => None,
    }
}
