//! A lane: the way of one partition's events from any thread to its one worker.
//!
//! ```text
//! unborn ──first event──▶ open ──close──▶ closed ──nothing outstanding──▶ ended
//!                           └──worker panics──▶ dead ──everything drained──▶ ended
//! ```

mod flush;
mod message;
mod room;
mod waiters;
mod wake;
mod word;

pub(crate) use flush::{FlushJoin, FlushWaiters};
pub(crate) use message::{Accepted, Chunk, Message, Rare};
pub(crate) use room::AnyRoom;
pub(crate) use waiters::Waiters;
pub(crate) use wake::Wake;
pub use word::EVENT_OVERHEAD;
pub(crate) use word::{MAX_BYTES, MAX_EVENTS, Permits, Reading, Word};

use crate::engine_thread;
use crate::partition::PartitionId;
use crate::report::Counts;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::channel::{self, Receiver, Sender};
use crate::sync::{Arc, Clock, Instant, Monitor, OnceLock, ParkRole, Parker, Unparker};
use flush::FlushDoor;
use waiters::WaitEnd;
use word::Refusal;

/// How long an enqueue may wait for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    Try,
    /// Until the instant, or without limit.
    Until(Option<Instant>),
}

/// Why nothing was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedBecause {
    Full,
    TimedOut,
    /// Full, and the caller is an engine thread.
    WouldDeadlock,
    /// Full, and the worker that could make room lives in the parent process.
    Forked,
    Unborn,
    Closed,
    Dead,
}

/// The shared half of a lane. The other half, the [`Inbox`], belongs to its worker.
///
/// Every wait of a caller is a wait for permits: the channel has a slot for each event that
/// the bound allows and one for a flush marker, so a send after acceptance never finds it
/// full and nobody blocks inside the channel.
#[derive(Debug)]
pub(crate) struct Lane {
    word: Word,
    wake: Wake,
    bounds: Permits,
    waiters: Waiters,
    any_room: Arc<AnyRoom>,
    /// Set before the word's `unborn` bit is cleared.
    worker: OnceLock<WorkerSide>,
    flush: FlushDoor,
    ended: Monitor<bool>,
    clock: Clock,
    partition: PartitionId,
    producer_unparks: AtomicU64,
    process: u32,
}

#[derive(Debug)]
struct WorkerSide {
    sender: Sender<Message>,
    unparker: Unparker,
}

/// The worker's half of a lane. It outlives every accepted send: the worker keeps it until
/// the lane is closed or dead and nothing is outstanding.
pub(crate) struct Inbox {
    receiver: Receiver<Message>,
    parker: Parker,
}

impl From<WaitEnd> for RefusedBecause {
    fn from(end: WaitEnd) -> RefusedBecause {
        match end {
            WaitEnd::TimedOut => RefusedBecause::TimedOut,
            WaitEnd::Closed => RefusedBecause::Closed,
            WaitEnd::Dead => RefusedBecause::Dead,
            WaitEnd::Unborn => RefusedBecause::Unborn,
        }
    }
}

impl Lane {
    /// A lane without channel or worker: it costs its own few hundred bytes.
    pub(crate) fn unborn(
        partition: PartitionId,
        bounds: Permits,
        clock: Clock,
        any_room: Arc<AnyRoom>,
    ) -> Lane {
        Lane {
            word: Word::unborn(),
            wake: Wake::awake(),
            bounds,
            waiters: Waiters::new(),
            any_room,
            worker: OnceLock::new(),
            flush: FlushDoor::new(),
            ended: Monitor::new(false),
            clock,
            partition,
            producer_unparks: AtomicU64::new(0),
            process: std::process::id(),
        }
    }

    /// Makes channel and inbox and gives the inbox to `start`; the lane opens if that
    /// succeeds and stays unborn otherwise. The caller holds the registry's lock, which makes
    /// births one at a time and keeps them apart from close and flush.
    pub(crate) fn bear<E>(&self, start: impl FnOnce(Inbox) -> Result<(), E>) -> Result<(), E> {
        if self.is_born() {
            return Ok(());
        }
        let parker = self.clock.parker(ParkRole::Engine);
        let unparker = parker.unparker();
        // One slot beyond the bound is the flush marker's.
        let slots = usize::try_from(self.bounds.events).unwrap_or(usize::MAX - 1) + 1;
        let (sender, receiver) = channel::bounded(slots);
        // The worker may run before the lane is open: it finds an empty channel and dozes.
        start(Inbox { receiver, parker })?;
        if self.worker.set(WorkerSide { sender, unparker }).is_ok() {
            self.word.bear();
        }
        Ok(())
    }

    /// Takes permits. `Ok` is the acceptance of the events that [`push`](Lane::push) must
    /// follow up with at once: their caller still holds them here, so a refusal moves nothing.
    #[inline]
    pub(crate) fn admit(&self, want: Permits, patience: Patience) -> Result<(), RefusedBecause> {
        match self.word.admit(want, self.bounds) {
            Ok(()) => Ok(()),
            Err(refusal) => self.admit_slowly(refusal, want, patience),
        }
    }

    #[cold]
    fn admit_slowly(
        &self,
        refusal: Refusal,
        want: Permits,
        patience: Patience,
    ) -> Result<(), RefusedBecause> {
        match (refusal, patience) {
            (Refusal::Unborn, _) => Err(RefusedBecause::Unborn),
            (Refusal::Closed, _) => Err(RefusedBecause::Closed),
            (Refusal::Dead, _) => Err(RefusedBecause::Dead),
            (Refusal::Full, _) if std::process::id() != self.process => Err(RefusedBecause::Forked),
            (Refusal::Full, Patience::Try) => {
                if self.word.press() {
                    self.unpark_worker();
                }
                Err(RefusedBecause::Full)
            }
            (Refusal::Full, Patience::Until(_)) if engine_thread::is_current() => {
                Err(RefusedBecause::WouldDeadlock)
            }
            (Refusal::Full, Patience::Until(deadline)) => self
                .waiters
                .acquire(&self.word, want, self.bounds, &self.clock, deadline, || {
                    self.unpark_worker()
                })
                .map_err(RefusedBecause::from),
        }
    }

    /// Sends what was admitted; the worker will read it.
    ///
    /// The channel has room for whatever the word admits and its receiver outlives every
    /// admission. Should a fault in the engine break that, the message comes back.
    #[inline]
    pub(crate) fn push(&self, message: Message) -> Result<(), Message> {
        let Some(worker) = self.worker.get() else {
            return Err(self.undo(message));
        };
        if let Err(refused) = worker.sender.try_send(message) {
            return Err(self.undo(refused.into_inner()));
        }
        if self.wake.claim(&self.word) {
            self.producer_unparks.fetch_add(1, Ordering::Relaxed);
            worker.unparker.unpark();
        }
        Ok(())
    }

    #[cold]
    fn undo(&self, message: Message) -> Message {
        debug_assert!(false, "an admitted message found no slot");
        self.release(message.permits());
        self.unpark_worker();
        message
    }

    /// Gives permits back, just before the report of their events reaches user code.
    pub(crate) fn release(&self, permits: Permits) {
        if self.word.release(permits).has_waiters() {
            self.waiters.grant(&self.word, self.bounds);
        }
        self.any_room.announce();
    }

    /// Joins `flush`, as its lane number `lane`, for everything accepted so far.
    pub(crate) fn enter_flush(&self, join: &Arc<FlushJoin>, lane: usize) {
        self.flush.enter(join, lane, || self.send_marker());
        self.unpark_worker();
    }

    /// The caller of a flush or a close is about to be told of everything up to `counts`.
    pub(crate) fn tell(&self, counts: Counts) {
        self.flush.tell(counts);
    }

    /// What the latest flush that has returned told of.
    pub(crate) fn told(&self) -> Counts {
        self.flush.told()
    }

    fn send_marker(&self) -> bool {
        self.worker
            .get()
            .is_some_and(|worker| worker.sender.try_send(Message::Rare(Rare::Flush)).is_ok())
    }

    /// The worker took a marker out of its inbox.
    pub(crate) fn take_flush(&self) -> FlushWaiters {
        self.flush.take(|| self.send_marker())
    }

    /// Every report before the cut has been delivered.
    pub(crate) fn complete_flush(&self, waiters: FlushWaiters, at_cut: Counts) {
        self.flush.complete(waiters, at_cut);
    }

    /// Shuts the gate: callers that wait get `Closed`, the worker drains and ends.
    pub(crate) fn close(&self) {
        self.word.close();
        self.waiters.dismiss(&self.word);
        self.any_room.announce();
        self.unpark_worker();
    }

    /// Shuts the gate because the worker died.
    pub(crate) fn kill(&self) {
        self.word.kill();
        self.waiters.dismiss(&self.word);
        self.any_room.announce();
    }

    /// The worker has gone, and nothing is outstanding.
    pub(crate) fn end(&self, counts: Counts) {
        self.flush.end(counts);
        self.ended.update(|ended| *ended = true);
    }

    /// Waits until the worker has gone; false if `deadline` passes first. A lane that was
    /// never born has none.
    pub(crate) fn wait_ended(&self, deadline: Option<Instant>) -> bool {
        !self.is_born()
            || self
                .ended
                .wait(&self.clock, deadline, |ended| ended.then_some(()))
                .is_some()
    }

    pub(crate) fn unpark_worker(&self) {
        if let Some(worker) = self.worker.get() {
            worker.unparker.unpark();
        }
    }

    pub(crate) fn reading(&self) -> Reading {
        self.word.read()
    }

    pub(crate) fn is_born(&self) -> bool {
        !self.word.read().is_unborn()
    }

    pub(crate) fn bounds(&self) -> Permits {
        self.bounds
    }

    pub(crate) fn partition(&self) -> &PartitionId {
        &self.partition
    }

    pub(crate) fn producer_unparks(&self) -> u64 {
        self.producer_unparks.load(Ordering::Relaxed)
    }
}

impl Inbox {
    pub(crate) fn unparker(&self) -> Unparker {
        self.parker.unparker()
    }

    pub(crate) fn try_recv(&self) -> Option<Message> {
        self.receiver.try_recv().ok()
    }

    /// Parks until `deadline`, or until the lane's outstanding amount reaches `wake_at`, or
    /// until anyone unparks. With `wake_at` absent events do not wake the worker. Returns at
    /// once if a message is there that `wake_at` asks for. True if it parked.
    pub(crate) fn doze(
        &self,
        lane: &Lane,
        wake_at: Option<Permits>,
        deadline: Option<Instant>,
    ) -> bool {
        let Some(wake_at) = wake_at else {
            self.parker.park(deadline);
            return true;
        };
        lane.wake.publish(wake_at);
        let parks = self.receiver.is_empty();
        if parks {
            self.parker.park(deadline);
        }
        lane.wake.withdraw();
        parks
    }
}
