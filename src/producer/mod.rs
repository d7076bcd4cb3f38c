//! The producer: what applications hold.

mod builder;
mod engine;
mod enqueue;
mod error;
mod partition_sender;
mod router;

pub use builder::ProducerBuilder;
pub use error::{
    BuildError, CloseError, CloseReport, EnqueueAllError, EnqueueError, EnqueueRefusal, FlushError,
    FlushReport,
};
pub use partition_sender::PartitionSender;

use crate::event::Event;
use crate::lane::Patience;
use crate::partition::{PartitionId, Target};
use crate::stats::Stats;
use crate::sync::{Arc, Weak};
use crate::ticket::Ticket;
use engine::{Ending, Engine, Unsent};
use std::time::{Duration, Instant};

/// A buffered producer of one event hub. Cheap to clone; all clones are the same producer.
///
/// `Ok` from an enqueue means *accepted*: the event will get exactly one
/// [`Outcome`](crate::Outcome), which the delivery handler, its ticket and the next flush
/// report.
///
/// Dropping the last clone closes the producer with the drop time-out. A producer in a
/// `static` is never dropped: close it.
#[derive(Clone)]
pub struct Producer {
    handle: Arc<Handle>,
}

/// Closes the producer when the last clone goes.
struct Handle {
    engine: Arc<Engine>,
}

impl Producer {
    fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    fn until(&self, timeout: Duration) -> Patience {
        enqueue::until(self.engine().clock.now(), timeout)
    }

    /// Accepts `event` for any partition; waits while all are full.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn enqueue(&self, event: impl Into<Event>) -> Result<(), EnqueueError> {
        self.enqueue_to(&Target::Any, event)
    }

    /// Accepts `event` for `target`; waits while its partition is full.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn enqueue_to(&self, target: &Target, event: impl Into<Event>) -> Result<(), EnqueueError> {
        self.engine()
            .enqueue(event.into(), target, Patience::Until(None), false)
            .map(drop)
    }

    /// As [`enqueue_to`](Producer::enqueue_to), but waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`EnqueueRefusal::TimedOut`] if there was no room by then, and whatever `enqueue_to`
    /// refuses.
    pub fn enqueue_timeout(
        &self,
        target: &Target,
        event: impl Into<Event>,
        timeout: Duration,
    ) -> Result<(), EnqueueError> {
        self.engine()
            .enqueue(event.into(), target, self.until(timeout), false)
            .map(drop)
    }

    /// As [`enqueue_to`](Producer::enqueue_to), but waits until `deadline` at the latest.
    ///
    /// # Errors
    ///
    /// [`EnqueueRefusal::TimedOut`] if there was no room by then, and whatever `enqueue_to`
    /// refuses.
    pub fn enqueue_deadline(
        &self,
        target: &Target,
        event: impl Into<Event>,
        deadline: Instant,
    ) -> Result<(), EnqueueError> {
        self.engine()
            .enqueue(event.into(), target, Patience::Until(Some(deadline)), false)
            .map(drop)
    }

    /// Accepts `event` for any partition that has room. Never waits.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn try_enqueue(&self, event: impl Into<Event>) -> Result<(), EnqueueError> {
        self.try_enqueue_to(&Target::Any, event)
    }

    /// Accepts `event` for `target` if its partition has room. Never waits.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn try_enqueue_to(
        &self,
        target: &Target,
        event: impl Into<Event>,
    ) -> Result<(), EnqueueError> {
        self.engine()
            .enqueue(event.into(), target, Patience::Try, false)
            .map(drop)
    }

    /// As [`enqueue_to`](Producer::enqueue_to), with a ticket on the event's outcome.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn enqueue_tracked(
        &self,
        target: &Target,
        event: impl Into<Event>,
    ) -> Result<Ticket, EnqueueError> {
        self.tracked(target, event.into(), Patience::Until(None))
    }

    /// As [`enqueue_tracked`](Producer::enqueue_tracked), but waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn enqueue_tracked_timeout(
        &self,
        target: &Target,
        event: impl Into<Event>,
        timeout: Duration,
    ) -> Result<Ticket, EnqueueError> {
        self.tracked(target, event.into(), self.until(timeout))
    }

    /// As [`try_enqueue_to`](Producer::try_enqueue_to), with a ticket on the event's outcome.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn try_enqueue_tracked(
        &self,
        target: &Target,
        event: impl Into<Event>,
    ) -> Result<Ticket, EnqueueError> {
        self.tracked(target, event.into(), Patience::Try)
    }

    fn tracked(
        &self,
        target: &Target,
        event: Event,
        patience: Patience,
    ) -> Result<Ticket, EnqueueError> {
        let issued = self.engine().enqueue(event, target, patience, true)?;
        Ok(issued.expect("a tracked enqueue issues a ticket"))
    }

    /// Accepts all of `events` for `target`, in order and in chunks; waits while its
    /// partition is full. With [`Target::Any`] each chunk goes to one partition.
    ///
    /// Several times cheaper an event than one call each. More events than the buffer holds
    /// go in piecewise.
    ///
    /// # Errors
    ///
    /// [`EnqueueAllError`] says how many were accepted and gives the others back.
    pub fn enqueue_all(&self, target: &Target, events: Vec<Event>) -> Result<(), EnqueueAllError> {
        self.engine()
            .enqueue_all(events, target, Patience::Until(None))
    }

    /// As [`enqueue_all`](Producer::enqueue_all), but waits for at most `timeout` in all.
    ///
    /// # Errors
    ///
    /// [`EnqueueAllError`] says how many were accepted and gives the others back.
    pub fn enqueue_all_timeout(
        &self,
        target: &Target,
        events: Vec<Event>,
        timeout: Duration,
    ) -> Result<(), EnqueueAllError> {
        self.engine()
            .enqueue_all(events, target, self.until(timeout))
    }

    /// Accepts the events of an iterator one by one, and never holds one that is not accepted
    /// while it asks for the next: if `next` panics, nothing is lost. Returns their number.
    ///
    /// # Errors
    ///
    /// [`EnqueueAllError`] says how many were accepted and gives the refused one back; the
    /// iterator keeps those behind it.
    pub fn enqueue_iter<E: Into<Event>>(
        &self,
        target: &Target,
        events: impl IntoIterator<Item = E>,
    ) -> Result<usize, EnqueueAllError> {
        let mut accepted = 0;
        for event in events {
            if let Err(error) = self.enqueue_to(target, event) {
                return Err(EnqueueAllError {
                    accepted,
                    reason: error.reason().clone(),
                    rest: vec![error.into_event()],
                });
            }
            accepted += 1;
        }
        Ok(accepted)
    }

    /// Waits until everything accepted before the call has its outcome, and its report has
    /// been delivered. Ends all batching waits at once.
    ///
    /// # Errors
    ///
    /// [`FlushError::Failures`] if anything was not delivered since the last flush that was
    /// complete when this one began; see [`FlushError`] for the others.
    pub fn flush(&self) -> Result<FlushReport, FlushError> {
        self.engine().flush(None, None)
    }

    /// As [`flush`](Producer::flush), but waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`FlushError::TimedOut`] with the number of events left, and whatever `flush` refuses.
    pub fn flush_timeout(&self, timeout: Duration) -> Result<FlushReport, FlushError> {
        let deadline = self.engine().clock.now().checked_add(timeout);
        self.engine().flush(None, deadline)
    }

    /// As [`flush`](Producer::flush), for one partition.
    ///
    /// # Errors
    ///
    /// [`FlushError::UnknownPartition`], and whatever `flush` refuses.
    pub fn flush_partition(&self, partition: &PartitionId) -> Result<FlushReport, FlushError> {
        self.engine().flush(Some(partition), None)
    }

    /// As [`flush_partition`](Producer::flush_partition), but waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`FlushError::TimedOut`], and whatever `flush_partition` refuses.
    pub fn flush_partition_timeout(
        &self,
        partition: &PartitionId,
        timeout: Duration,
    ) -> Result<FlushReport, FlushError> {
        let deadline = self.engine().clock.now().checked_add(timeout);
        self.engine().flush(Some(partition), deadline)
    }

    /// Closes the producer for all clones, and drains: returns when everything that was
    /// accepted has its outcome. Idempotent.
    ///
    /// # Errors
    ///
    /// [`CloseError::Incomplete`] if anything was not delivered.
    pub fn close(&self) -> Result<CloseReport, CloseError> {
        self.engine().close(Ending::Drain, Unsent::ToCaller)
    }

    /// As [`close`](Producer::close), but after `timeout` hands back what is certain not to
    /// be stored, in order, and returns whatever a peer or a handler does.
    ///
    /// # Errors
    ///
    /// [`CloseError::Incomplete`] with the unsent events and the number of those that
    /// somebody still owns.
    pub fn close_timeout(&self, timeout: Duration) -> Result<CloseReport, CloseError> {
        self.engine()
            .close(Ending::ReturnAfter(timeout), Unsent::ToCaller)
    }

    /// Closes the producer for all clones at once: hands back what is not in flight; what is
    /// in flight is [`Outcome::Indeterminate`](crate::Outcome::Indeterminate).
    ///
    /// # Errors
    ///
    /// [`CloseError::Incomplete`] if anything was not delivered.
    pub fn abort(&self) -> Result<CloseReport, CloseError> {
        self.engine().close(Ending::Abort, Unsent::ToCaller)
    }

    /// Waits until a lazily built producer has connected. True at once for others.
    ///
    /// False if `timeout` passes first, or the producer is closed.
    pub fn wait_ready(&self, timeout: Duration) -> bool {
        let deadline = self.engine().clock.now().checked_add(timeout);
        (self.engine().topology().is_some() || self.engine().wait_settled(deadline))
            && self.engine().topology().is_some()
            && !self.engine().is_closed()
    }

    /// The hub's partitions, in the service's order; empty until connected.
    pub fn partitions(&self) -> &[PartitionId] {
        self.engine()
            .topology()
            .map_or(&[], |topology| topology.router.ids())
    }

    /// A handle on one partition; `None` if the hub has no such partition, or is not connected.
    pub fn partition(&self, id: impl Into<PartitionId>) -> Option<PartitionSender> {
        let id = id.into();
        self.engine().topology()?.router.index_of(&id)?;
        Some(PartitionSender::new(self.clone(), id))
    }

    /// A reading of everything that is counted.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// A handle that does not keep the producer open, as handlers get it.
    pub fn enqueuer(&self) -> Enqueuer {
        Enqueuer::new(self.engine())
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer")
            .field("partitions", &self.partitions().len())
            .finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let timeout = self.engine.settings.drop_timeout;
        if crate::engine_thread::is_current() {
            // Sets the bits and detaches: to wait here would be to wait for oneself.
            self.engine.shut(Ending::ReturnAfter(timeout));
            return;
        }
        // The lock of the lifecycle may be held by a thread that the child does not have.
        if self.engine.is_forked() || self.engine.is_closed() {
            return;
        }
        if let Err(error) = self
            .engine
            .close(Ending::ReturnAfter(timeout), Unsent::ToHandler)
        {
            tracing::error!(%error, "a dropped producer could not deliver everything");
        }
    }
}

/// A handle that can enqueue and does not keep the producer open: for delivery handlers, which
/// the producer itself owns.
#[derive(Clone)]
pub struct Enqueuer {
    engine: Weak<Engine>,
}

impl Enqueuer {
    fn new(engine: &Arc<Engine>) -> Enqueuer {
        Enqueuer {
            engine: Arc::downgrade(engine),
        }
    }

    /// Accepts `event` for any partition that has room. Never waits.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn try_enqueue(&self, event: impl Into<Event>) -> Result<(), EnqueueError> {
        self.send(&Target::Any, event.into(), Patience::Try)
    }

    /// Accepts `event` for `target` if its partition has room. Never waits.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn try_enqueue_to(
        &self,
        target: &Target,
        event: impl Into<Event>,
    ) -> Result<(), EnqueueError> {
        self.send(target, event.into(), Patience::Try)
    }

    /// Accepts `event` for `target`. On an engine thread, such as a handler's, it answers
    /// [`EnqueueRefusal::WouldDeadlock`] where it would have to wait.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn enqueue_to(&self, target: &Target, event: impl Into<Event>) -> Result<(), EnqueueError> {
        self.send(target, event.into(), Patience::Until(None))
    }

    /// As [`enqueue_to`](Enqueuer::enqueue_to), but waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`] gives the event back and says why.
    pub fn enqueue_timeout(
        &self,
        target: &Target,
        event: impl Into<Event>,
        timeout: Duration,
    ) -> Result<(), EnqueueError> {
        let patience = match self.engine.upgrade() {
            Some(engine) => enqueue::until(engine.clock.now(), timeout),
            None => Patience::Try,
        };
        self.send(target, event.into(), patience)
    }

    /// As [`Producer::flush`]; on an engine thread [`FlushError::WouldDeadlock`] at once.
    ///
    /// # Errors
    ///
    /// As [`Producer::flush`].
    pub fn flush(&self) -> Result<FlushReport, FlushError> {
        match self.engine.upgrade() {
            Some(engine) => engine.flush(None, None),
            None => Ok(FlushReport::default()),
        }
    }

    /// As [`Producer::close`]; on an engine thread [`CloseError::WouldDeadlock`] at once.
    ///
    /// # Errors
    ///
    /// As [`Producer::close`].
    pub fn close(&self) -> Result<CloseReport, CloseError> {
        match self.engine.upgrade() {
            Some(engine) => engine.close(Ending::Drain, Unsent::ToCaller),
            None => Ok(CloseReport::default()),
        }
    }

    /// As [`Producer::flush_timeout`]; on an engine thread [`FlushError::WouldDeadlock`] at once.
    ///
    /// # Errors
    ///
    /// As [`Producer::flush_timeout`].
    pub fn flush_timeout(&self, timeout: Duration) -> Result<FlushReport, FlushError> {
        match self.engine.upgrade() {
            Some(engine) => engine.flush(None, engine.clock.now().checked_add(timeout)),
            None => Ok(FlushReport::default()),
        }
    }

    /// As [`Producer::close_timeout`]; on an engine thread [`CloseError::WouldDeadlock`] at once.
    ///
    /// # Errors
    ///
    /// As [`Producer::close_timeout`].
    pub fn close_timeout(&self, timeout: Duration) -> Result<CloseReport, CloseError> {
        match self.engine.upgrade() {
            Some(engine) => engine.close(Ending::ReturnAfter(timeout), Unsent::ToCaller),
            None => Ok(CloseReport::default()),
        }
    }

    fn send(&self, target: &Target, event: Event, patience: Patience) -> Result<(), EnqueueError> {
        match self.engine.upgrade() {
            Some(engine) => engine.enqueue(event, target, patience, false).map(drop),
            None => Err(EnqueueError::new(event, EnqueueRefusal::Closed)),
        }
    }
}

impl std::fmt::Debug for Enqueuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Enqueuer")
    }
}
