//! The hubs: what was accepted, in memory and, if wished, in a journal.

mod event;
mod hub;
mod journal;
mod log;

pub use self::{event::StoredEvent, log::PartitionProperties};
pub(crate) use self::{
    hub::{AppendError, HubStore, Snapshot, now_ms},
    journal::Journal,
};

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What happens to a batch for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Retention {
    /// It is rejected with `amqp:resource-limit-exceeded`: nothing that was accepted disappears.
    #[default]
    Reject,
    /// The oldest batches of the hub are dropped for it, as the service's retention would.
    DropOldest,
}

/// All hubs.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) hubs: Vec<Arc<HubStore>>,
}

impl Store {
    /// Creates the hubs and loads the journal, if there is one, into them.
    pub(crate) fn open(
        hubs: &[(String, usize)],
        memory_bytes: u64,
        retention: Retention,
        journal: Option<&Path>,
    ) -> io::Result<Self> {
        // A share each, so that a noisy hub cannot starve another.
        let share = memory_bytes / hubs.len().max(1) as u64;
        let new = |(name, partitions): &(String, usize)| {
            Arc::new(HubStore::new(name, *partitions, share, retention))
        };
        let store = Self {
            hubs: hubs.iter().map(new).collect(),
        };
        let Some(path) = journal else {
            return Ok(store);
        };
        let mut fits = true;
        let journal = Journal::open(path, |record| {
            // A journal may hold hubs that are no longer wanted.
            if let Some(hub) = store.hub(&record.hub) {
                fits &= hub.restore(record).is_ok();
            }
        })?;
        if !fits {
            return Err(io::Error::other(
                "the journal holds more than the memory bound allows",
            ));
        }
        let journal = Arc::new(Mutex::new(journal));
        for hub in &store.hubs {
            hub.keep_journal(Arc::clone(&journal));
        }
        Ok(store)
    }

    /// Hub names are compared as the service compares them: without regard to case.
    pub(crate) fn hub(&self, name: &str) -> Option<&Arc<HubStore>> {
        self.hubs
            .iter()
            .find(|hub| hub.name().eq_ignore_ascii_case(name))
    }
}

/// Locks in spite of a panic elsewhere: every critical section here leaves whole values behind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
