//! Who waits for which flush cut of a lane.

use crate::report::Counts;
use crate::sync::{Arc, Clock, Instant, Monitor, Mutex, Weak};

/// One `flush()` call over any number of lanes.
#[derive(Debug)]
pub(crate) struct FlushJoin {
    progress: Monitor<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    pending: usize,
    counts: Counts,
    broken: bool,
    cuts: Vec<(usize, Counts)>,
}

/// How a flush went whose every cut is complete or lost.
#[derive(Debug)]
pub(crate) struct FlushEnd {
    /// The outcomes that its report covers.
    pub(crate) counts: Counts,
    /// A cut was lost with its worker.
    pub(crate) broken: bool,
    /// Of each lane whose cut is complete, by its number: its counts there.
    pub(crate) cuts: Vec<(usize, Counts)>,
}

impl FlushJoin {
    pub(crate) fn new() -> Arc<FlushJoin> {
        Arc::new(FlushJoin {
            progress: Monitor::new(Progress::default()),
        })
    }

    /// Waits until every cut is complete or lost. `Err` with what is known so far when
    /// `deadline` passes.
    pub(crate) fn wait(
        &self,
        clock: &Clock,
        deadline: Option<Instant>,
    ) -> Result<FlushEnd, Counts> {
        self.progress
            .wait(clock, deadline, |progress| {
                (progress.pending == 0).then(|| FlushEnd {
                    counts: progress.counts,
                    broken: progress.broken,
                    cuts: std::mem::take(&mut progress.cuts),
                })
            })
            .ok_or_else(|| self.progress.with(|progress| progress.counts))
    }

    /// A lane's cut is complete, with these counts of the lane at it and at its base, or lost.
    fn arrive(&self, lane: usize, cut: Option<(&Counts, &Counts)>) {
        self.progress.update(|progress| {
            progress.pending -= 1;
            match cut {
                Some((at_cut, base)) => {
                    progress.counts.merge(&at_cut.since(base));
                    progress.cuts.push((lane, *at_cut));
                }
                None => progress.broken = true,
            }
        });
    }
}

/// One lane's part in one flush. Dropped without completion it breaks the flush: a marker
/// that gets lost is an error, never a hang.
#[derive(Debug)]
pub(crate) struct FlushWaiter {
    join: Option<Weak<FlushJoin>>,
    lane: usize,
    /// The lane's counts at the latest cut that was complete when this flush began.
    base: Counts,
}

impl FlushWaiter {
    fn new(join: &Arc<FlushJoin>, lane: usize, base: Counts) -> FlushWaiter {
        join.progress.with(|progress| progress.pending += 1);
        FlushWaiter {
            join: Some(Arc::downgrade(join)),
            lane,
            base,
        }
    }

    /// False once its flush has timed out.
    pub(crate) fn is_wanted(&self) -> bool {
        self.join
            .as_ref()
            .is_some_and(|join| join.strong_count() > 0)
    }

    fn complete(mut self, at_cut: &Counts) {
        if let Some(join) = self.join.take().and_then(|join| join.upgrade()) {
            join.arrive(self.lane, Some((at_cut, &self.base)));
        }
    }
}

impl Drop for FlushWaiter {
    fn drop(&mut self) {
        if let Some(join) = self.join.take().and_then(|join| join.upgrade()) {
            join.arrive(self.lane, None);
        }
    }
}

/// Those whose cut the worker has taken out of the channel.
pub(crate) type FlushWaiters = Vec<FlushWaiter>;

/// A lane's side of its flushes: at most one marker is in the channel, in the slot reserved
/// for it; whoever comes meanwhile shares the next one.
#[derive(Debug)]
pub(crate) struct FlushDoor {
    state: Mutex<DoorState>,
}

#[derive(Debug, Default)]
struct DoorState {
    /// A marker is in the channel, or about to be put there by who set this.
    marker_out: bool,
    /// Covered by the marker that is out.
    current: FlushWaiters,
    /// To be covered by the next.
    next: FlushWaiters,
    /// Cumulative counts at the latest cut whose flush has told its caller. Not at one that is
    /// complete and whose flush timed out: a failure before it is still to be told.
    told: Counts,
    /// The lane's last counts, once the worker has gone and everything has its outcome: cuts
    /// complete at once.
    ended: Option<Counts>,
}

impl FlushDoor {
    pub(crate) fn new() -> FlushDoor {
        FlushDoor {
            state: Mutex::new(DoorState::default()),
        }
    }

    /// Joins a flush as its lane number `lane`. `send` puts the marker into the reserved slot,
    /// under the door's lock, so that a marker and its waiters cannot part.
    pub(crate) fn enter(&self, join: &Arc<FlushJoin>, lane: usize, send: impl FnOnce() -> bool) {
        let mut state = self.state.lock();
        let waiter = FlushWaiter::new(join, lane, state.told);
        if let Some(counts) = state.ended {
            waiter.complete(&counts);
            return;
        }
        if state.marker_out {
            state.next.retain(FlushWaiter::is_wanted);
            state.next.push(waiter);
            return;
        }
        state.current.push(waiter);
        state.marker_out = send();
        if !state.marker_out {
            // No channel to put it in: the waiters break rather than hang.
            state.current.clear();
        }
    }

    /// The worker took the marker out: those it covers. If others wait for the next, `send`
    /// puts it into the slot that has just become free.
    pub(crate) fn take(&self, send: impl FnOnce() -> bool) -> FlushWaiters {
        let mut state = self.state.lock();
        let covered = std::mem::take(&mut state.current);
        state.current = std::mem::take(&mut state.next);
        state.marker_out = !state.current.is_empty() && send();
        if !state.marker_out {
            state.current.clear();
        }
        covered
    }

    /// A cut is complete, and every report before it has been delivered.
    pub(crate) fn complete(&self, waiters: FlushWaiters, at_cut: Counts) {
        for waiter in waiters {
            waiter.complete(&at_cut);
        }
    }

    /// The caller of a flush or a close is about to be told of everything up to `counts`.
    pub(crate) fn tell(&self, counts: Counts) {
        let mut state = self.state.lock();
        // Of two that end at once the later cut may come first.
        if counts.total() > state.told.total() {
            state.told = counts;
        }
    }

    /// What the latest flush that has returned told of.
    pub(crate) fn told(&self) -> Counts {
        self.state.lock().told
    }

    /// The worker ends with everything accounted for in `counts`; what a late marker would
    /// have covered is complete.
    pub(crate) fn end(&self, counts: Counts) {
        let waiters = {
            let mut state = self.state.lock();
            state.ended = Some(counts);
            let mut waiters = std::mem::take(&mut state.current);
            waiters.append(&mut state.next);
            waiters
        };
        for waiter in waiters {
            waiter.complete(&counts);
        }
    }
}
