//! Flush cuts: which events each covers, and what became of those.

use super::types::FlushId;
use crate::report::{Counts, Outcome};
use std::collections::VecDeque;

/// The cuts that are not complete, oldest first.
///
/// A cut stands between two events of the stream. It is complete when no event before it is held
/// any more, which the lane reads off its batches ([`pop_complete`](Cuts::pop_complete) is given
/// the oldest event that is held); the counts kept here only say how it went, never whether it
/// has. They are exact: of a batch that lies across a cut, only the part before it counts.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    pending: VecDeque<Cut>,
    next: u64,
}

#[derive(Debug)]
struct Cut {
    id: FlushId,
    /// The number of events before the cut: the sequence number of the first one behind it.
    at: u64,
    /// The outcomes so far of the events before the cut.
    counts: Counts,
}

impl Cuts {
    /// Cuts behind the first `at` events. `counts` are the outcomes of the lane so far, which
    /// are all of events before the cut.
    pub(super) fn push(&mut self, at: u64, counts: Counts) -> FlushId {
        debug_assert!(self.last().is_none_or(|last| last <= at));
        debug_assert!(counts.total() <= at);
        if let Some(last) = self.pending.back().filter(|last| last.at == at) {
            return last.id;
        }
        let id = FlushId(self.next);
        self.next += 1;
        self.pending.push_back(Cut { id, at, counts });
        id
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Where the latest pending cut is.
    pub(super) fn last(&self) -> Option<u64> {
        self.pending.back().map(|cut| cut.at)
    }

    /// Events `first .. first + n` have this outcome.
    pub(super) fn add(&mut self, first: u64, n: u64, outcome: &Outcome) {
        for cut in &mut self.pending {
            cut.counts.add(outcome, cut.at.saturating_sub(first).min(n));
        }
    }

    /// Takes the oldest cut if it is complete, where `oldest` is the first event still held.
    pub(super) fn pop_complete(&mut self, oldest: Option<u64>) -> Option<(FlushId, Counts)> {
        let cut = self.pending.front()?;
        if oldest.is_some_and(|oldest| oldest < cut.at) {
            return None;
        }
        debug_assert_eq!(
            cut.counts.total(),
            cut.at,
            "a cut's counts cover exactly its events"
        );
        let cut = self.pending.pop_front()?;
        Some((cut.id, cut.counts))
    }

    /// Takes all of them, complete or not.
    pub(super) fn take_all(&mut self) -> Vec<FlushId> {
        self.pending.drain(..).map(|cut| cut.id).collect()
    }
}
