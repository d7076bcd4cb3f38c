//! One hub: its partitions, its memory bound and those who wait for events.

use std::{
    io,
    ops::Range,
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::Notify;

use super::{
    Journal, Retention, StoredEvent,
    journal::Record,
    lock,
    log::{Batch, PartitionLog, PartitionProperties},
};
use crate::{key_hash, selector::Position};

/// Why a batch was not stored.
#[derive(Debug, Error)]
pub(crate) enum AppendError {
    #[error("the memory of the hub is full")]
    Full,
    #[error("the journal cannot be written")]
    Journal(#[from] io::Error),
}

#[derive(Debug)]
struct State {
    partitions: Vec<PartitionLog>,
    /// Memory of all batches that are held; never above the limit.
    memory: u64,
    next_ordinal: u64,
    /// When the newest batch was stored.
    newest_ms: i64,
    /// Events ever stored, the restored ones included.
    stored: u64,
    /// Connections with a reader on some partition of the hub.
    watchers: Vec<Weak<Notify>>,
}

/// A hub's events.
#[derive(Debug)]
pub(crate) struct HubStore {
    name: String,
    created_ms: i64,
    memory_limit: u64,
    retention: Retention,
    state: Mutex<State>,
    /// Signalled after each append.
    grown: Condvar,
    journal: OnceLock<Arc<Mutex<Journal>>>,
    round_robin: AtomicUsize,
    partition_count: usize,
}

impl HubStore {
    pub(crate) fn new(name: &str, count: usize, memory_limit: u64, retention: Retention) -> Self {
        let state = State {
            partitions: (0..count).map(|_| PartitionLog::default()).collect(),
            memory: 0,
            next_ordinal: 0,
            newest_ms: 0,
            stored: 0,
            watchers: Vec::new(),
        };
        Self {
            name: name.to_owned(),
            created_ms: now_ms(),
            memory_limit,
            retention,
            state: Mutex::new(state),
            grown: Condvar::new(),
            journal: OnceLock::new(),
            round_robin: AtomicUsize::new(0),
            partition_count: count,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn created_ms(&self) -> i64 {
        self.created_ms
    }

    pub(crate) fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// The index behind a partition id.
    pub(crate) fn partition(&self, id: &str) -> Option<usize> {
        // "01" and "+1" parse but are no ids.
        let index: usize = id.parse().ok()?;
        (index < self.partition_count && index.to_string() == id).then_some(index)
    }

    /// The partition that the service picks for events with or without a key.
    pub(crate) fn route(&self, key: Option<&str>) -> usize {
        match key {
            Some(key) => key_hash::partition_of(key, self.partition_count),
            None => self.round_robin.fetch_add(1, Ordering::Relaxed) % self.partition_count,
        }
    }

    pub(super) fn keep_journal(&self, journal: Arc<Mutex<Journal>>) {
        // Called once, before the hub is shared.
        let _ = self.journal.set(journal);
    }

    /// Puts a batch of an earlier life back; a partition that is no longer wanted is left out.
    pub(super) fn restore(&self, record: Record) -> Result<(), AppendError> {
        let mut state = lock(&self.state);
        if record.partition < self.partition_count {
            self.make_room(&mut state, record.payload.len(), record.events.len())?;
            push(
                &mut state,
                record.partition,
                record.enqueued_ms,
                record.payload,
                &record.events,
            );
        }
        Ok(())
    }

    /// Stores a batch as a whole or not at all.
    pub(crate) fn append(
        &self,
        partition: usize,
        payload: &[u8],
        events: &[Range<u32>],
    ) -> Result<(), AppendError> {
        let mut state = lock(&self.state);
        self.make_room(&mut state, payload.len(), events.len())?;
        // Never backwards: readers look times up by bisection.
        let ms = now_ms().max(state.newest_ms);
        if let Some(journal) = self.journal.get() {
            lock(journal).append(&self.name, partition, ms, events, payload)?;
        }
        push(
            &mut state,
            partition,
            ms,
            Bytes::copy_from_slice(payload),
            events,
        );
        state.watchers.retain(|watcher| match watcher.upgrade() {
            Some(notify) => {
                notify.notify_one();
                true
            }
            None => false,
        });
        drop(state);
        self.grown.notify_all();
        Ok(())
    }

    fn make_room(&self, state: &mut State, bytes: usize, count: usize) -> Result<(), AppendError> {
        let need = Batch::memory(bytes, count);
        if need > self.memory_limit {
            return Err(AppendError::Full);
        }
        while state.memory + need > self.memory_limit {
            let oldest = state
                .partitions
                .iter_mut()
                .filter(|_| self.retention == Retention::DropOldest)
                .min_by_key(|log| log.oldest().unwrap_or(u64::MAX))
                .ok_or(AppendError::Full)?;
            state.memory -= oldest.drop_oldest();
        }
        Ok(())
    }

    /// Has `notify` told of every later append until it is dropped.
    pub(crate) fn watch(&self, notify: &Arc<Notify>) {
        let mut state = lock(&self.state);
        // Those of connections that are gone are dropped on the way.
        let mine = Arc::downgrade(notify);
        state
            .watchers
            .retain(|watcher| watcher.strong_count() > 0 && !watcher.ptr_eq(&mine));
        state.watchers.push(mine);
    }

    pub(crate) fn properties(&self, partition: usize) -> Option<PartitionProperties> {
        lock(&self.state)
            .partitions
            .get(partition)
            .map(PartitionLog::properties)
    }

    pub(crate) fn held(&self) -> usize {
        lock(&self.state)
            .partitions
            .iter()
            .map(PartitionLog::len)
            .sum()
    }

    pub(crate) fn stored(&self) -> u64 {
        lock(&self.state).stored
    }

    pub(crate) fn memory(&self) -> u64 {
        lock(&self.state).memory
    }

    pub(crate) fn resolve(&self, partition: usize, position: Position) -> i64 {
        lock(&self.state)
            .partitions
            .get(partition)
            .map_or(0, |log| log.resolve(position))
    }

    pub(crate) fn read(&self, partition: usize, from: i64, max: usize) -> Vec<StoredEvent> {
        let state = lock(&self.state);
        state
            .partitions
            .get(partition)
            .map_or_else(Vec::new, |log| log.read(partition, from, max))
    }

    /// Waits until `check` gives something, or for `timeout`; it is tried again after each append.
    pub(crate) fn wait<T>(
        &self,
        timeout: Duration,
        mut check: impl FnMut(&Snapshot<'_>) -> Option<T>,
    ) -> Option<T> {
        let end = Instant::now().checked_add(timeout);
        let mut state = lock(&self.state);
        loop {
            if let Some(found) = check(&Snapshot { state: &state }) {
                return Some(found);
            }
            // A time-out beyond the clock's range is cut to an hour at a time.
            let left = end.map_or(Duration::from_secs(3600), |end| {
                end.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return None;
            }
            (state, _) = self
                .grown
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The hub at one instant.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    state: &'a State,
}

impl Snapshot<'_> {
    pub(crate) fn stored(&self) -> u64 {
        self.state.stored
    }

    pub(crate) fn begin(&self, partition: usize) -> i64 {
        self.state
            .partitions
            .get(partition)
            .map_or(0, PartitionLog::begin_sequence)
    }

    pub(crate) fn end(&self, partition: usize) -> i64 {
        self.state
            .partitions
            .get(partition)
            .map_or(0, PartitionLog::next_sequence)
    }

    pub(crate) fn read(&self, partition: usize, from: i64, max: usize) -> Vec<StoredEvent> {
        let log = self.state.partitions.get(partition);
        log.map_or_else(Vec::new, |log| log.read(partition, from, max))
    }
}

fn push(state: &mut State, partition: usize, ms: i64, payload: Bytes, events: &[Range<u32>]) {
    state.memory += Batch::memory(payload.len(), events.len());
    state.stored += events.len() as u64;
    let ordinal = state.next_ordinal;
    state.next_ordinal += 1;
    state.newest_ms = ms;
    if let Some(log) = state.partitions.get_mut(partition) {
        log.append(ordinal, ms, payload, events);
    }
}

/// Milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
}
