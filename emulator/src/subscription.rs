//! Reading a hub as events arrive.

use std::{sync::Arc, time::Duration};

use crate::{
    selector::Position,
    store::{HubStore, Snapshot, StoredEvent},
};

/// A reader with a place in each of its partitions.
///
/// It holds places, not events: nothing is queued for it, and a slow one costs nobody anything. If
/// the hub drops its oldest events meanwhile, they are [`missed`](Self::missed).
#[derive(Debug)]
pub struct Subscription {
    store: Arc<HubStore>,
    /// Partition and the sequence number that comes next.
    places: Vec<(usize, i64)>,
    /// Index into `places` that is read first next time, so that none is starved.
    turn: usize,
    missed: u64,
}

impl Subscription {
    pub(crate) fn new(store: Arc<HubStore>, partitions: Vec<usize>, position: Position) -> Self {
        let place = |partition| (partition, store.resolve(partition, position));
        let places = partitions.into_iter().map(place).collect();
        Self {
            store,
            places,
            turn: 0,
            missed: 0,
        }
    }

    /// Up to `max` events that have not been read, waiting for the first; empty when none came.
    ///
    /// Events of one partition are in their order. Between partitions there is none.
    #[must_use]
    pub fn next_events(&mut self, max: usize, timeout: Duration) -> Vec<StoredEvent> {
        let store = Arc::clone(&self.store);
        store
            .wait(timeout, |hub| {
                Some(self.take(hub, max)).filter(|it| !it.is_empty() || max == 0)
            })
            .unwrap_or_default()
    }

    /// The next event, waiting for it.
    #[must_use]
    pub fn next_event(&mut self, timeout: Duration) -> Option<StoredEvent> {
        self.next_events(1, timeout).pop()
    }

    /// Events that were dropped before this subscription read them.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    fn take(&mut self, hub: &Snapshot<'_>, max: usize) -> Vec<StoredEvent> {
        let mut events = Vec::new();
        for step in 0..self.places.len() {
            let index = (self.turn + step) % self.places.len();
            let (partition, next) = &mut self.places[index];
            let gap = hub.begin(*partition) - *next;
            if gap > 0 {
                self.missed += gap.unsigned_abs();
                *next += gap;
            }
            if *next < hub.end(*partition) {
                let read = hub.read(*partition, *next, max - events.len());
                *next += read.len() as i64;
                events.extend(read);
            }
            if events.len() == max {
                self.turn = index + 1;
                break;
            }
        }
        events
    }
}
