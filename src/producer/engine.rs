//! What all handles of one producer share: its lanes and their lives.

use super::error::{CloseError, CloseReport, EnqueueRefusal, FlushError, FlushReport};
use super::{Enqueuer, router::Router};
use crate::lane::{AnyRoom, FlushJoin, Lane, Permits};
use crate::partition::PartitionId;
use crate::report::Counts;
use crate::reporter::{Handler, Reporter, Returns};
use crate::settings::Settings;
use crate::stats::{LaneStats, PartitionStats, Stats};
use crate::sync::{Arc, Clock, Instant, Monitor, Mutex, OnceLock, Unparker, thread};
use crate::ticket::TicketSource;
use crate::transport::{HubInfo, Transport};
use crate::worker::{self, CloseOrder, WorkerParts};
use std::ops::Range;
use std::time::Duration;

/// How long beyond its deadline a close waits for workers to hand events back: a wake and a
/// pass. A worker that takes longer is inside a handler, and its events are `still_owned`.
const CLOSE_GRACE: Duration = Duration::from_millis(25);

/// How long an abort waits for workers that are not inside a handler.
const ABORT_GRACE: Duration = Duration::from_millis(100);

/// One partition's lane and what belongs to it on this side.
pub(crate) struct Slot {
    pub(crate) lane: Arc<Lane>,
    pub(crate) tickets: TicketSource,
    order: Arc<CloseOrder>,
    stats: Arc<LaneStats>,
}

/// The hub as it was when the producer connected; it does not change.
pub(crate) struct Topology {
    pub(crate) router: Router,
    pub(crate) slots: Vec<Slot>,
    pub(crate) any_room: Arc<AnyRoom>,
    pub(crate) max_message_size: u64,
}

/// Closing and the birth of lanes exclude each other under this lock: a lane is born before
/// the door closes, and then close and flush see it, or not at all.
struct Lifecycle {
    closed: bool,
    /// The thread that connects a lazy producer, to be told of the end.
    connecting: Option<Unparker>,
    threads: Vec<(usize, thread::JoinHandle<()>)>,
}

pub(crate) struct Engine {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    transport: Arc<dyn Transport>,
    handler: Option<Arc<Handler>>,
    topology: OnceLock<Topology>,
    /// What a lazy producer's callers wait on: true once connected or closed.
    settled: Monitor<bool>,
    lifecycle: Mutex<Lifecycle>,
    returns: Arc<Returns>,
    process: u32,
    seed: u64,
}

impl Engine {
    pub(crate) fn new(
        settings: Settings,
        clock: Clock,
        transport: Arc<dyn Transport>,
        handler: Option<Arc<Handler>>,
        seed: u64,
    ) -> Engine {
        Engine {
            settings,
            clock,
            transport,
            handler,
            topology: OnceLock::new(),
            settled: Monitor::new(false),
            lifecycle: Mutex::new(Lifecycle {
                closed: false,
                connecting: None,
                threads: Vec::new(),
            }),
            returns: Arc::new(Returns::default()),
            process: std::process::id(),
            seed,
        }
    }

    pub(crate) fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Wakes `unparker` when the producer is shut.
    pub(crate) fn on_shut(&self, unparker: Unparker) {
        self.lifecycle.lock().connecting = Some(unparker);
    }

    /// Installs what the transport learned; events are accepted from here on.
    pub(crate) fn connected(&self, hub: HubInfo) {
        let bounds = Permits {
            events: self.settings.max_buffered_events,
            bytes: self.settings.max_buffered_bytes,
        };
        let any_room = Arc::new(AnyRoom::new());
        let lane = |id: &PartitionId| {
            let any_room = Arc::clone(&any_room);
            Lane::unborn(id.clone(), bounds, self.clock.clone(), any_room)
        };
        let slots = hub
            .partitions
            .iter()
            .map(|id| Slot {
                lane: Arc::new(lane(id)),
                tickets: TicketSource::new(),
                order: Arc::new(CloseOrder::default()),
                stats: Arc::new(LaneStats::default()),
            })
            .collect();
        let topology = Topology {
            router: Router::new(hub.partitions),
            slots,
            any_room,
            // Zero stands for no limit (AMQP 1.0, section 2.7.3).
            max_message_size: match hub.max_message_size {
                0 => u64::MAX,
                limit => limit,
            },
        };
        // Under the lock, so that a close sees all lanes or forbids every birth.
        let lifecycle = self.lifecycle.lock();
        let first = self.topology.set(topology).is_ok();
        debug_assert!(first, "a producer connects once");
        drop(lifecycle);
        self.settled.update(|settled| *settled = true);
    }

    pub(crate) fn topology(&self) -> Option<&Topology> {
        self.topology.get()
    }

    /// The hub's lanes; none until it is known.
    fn slots(&self) -> &[Slot] {
        self.topology().map_or(&[], |topology| &topology.slots)
    }

    /// Waits for a lazy producer to connect or close; false if `deadline` passes first.
    pub(crate) fn wait_settled(&self, deadline: Option<Instant>) -> bool {
        self.settled
            .wait(&self.clock, deadline, |settled| settled.then_some(()))
            .is_some()
    }

    /// Only a slow path asks: it costs a system call.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lifecycle.lock().closed
    }

    /// Gives an unborn lane its worker.
    pub(crate) fn bear(self: &Arc<Self>, index: usize) -> Result<(), EnqueueRefusal> {
        if self.is_forked() {
            return Err(EnqueueRefusal::Forked);
        }
        let slot = self
            .topology()
            .and_then(|topology| topology.slots.get(index))
            .ok_or(EnqueueRefusal::NotReady)?;
        let mut lifecycle = self.lifecycle.lock();
        if lifecycle.closed {
            return Err(EnqueueRefusal::Closed);
        }
        let mut handle = None;
        let born = slot.lane.bear(|inbox| {
            let parts = WorkerParts {
                lane: Arc::clone(&slot.lane),
                order: Arc::clone(&slot.order),
                inbox,
                limits: self.settings.limits(),
                clock: self.clock.clone(),
                reporter: Reporter::new(
                    self.handler.clone(),
                    Enqueuer::new(self),
                    Arc::clone(&self.returns),
                    Arc::clone(&slot.stats),
                ),
                transport: Arc::clone(&self.transport),
                seed: self.seed ^ (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            };
            // The worker keeps the engine alive: events whose last handle was dropped still
            // get their outcomes, and the last worker to leave closes the transport.
            let engine = Arc::clone(self);
            let name = format!("{}-{}", self.settings.thread_name, slot.lane.partition());
            let started = thread::spawn(name, self.settings.thread_stack_size, move || {
                worker::run(parts);
                drop(engine);
            })?;
            handle = Some(started);
            Ok::<(), std::io::Error>(())
        });
        lifecycle
            .threads
            .extend(handle.map(|handle| (index, handle)));
        born.map_err(|error| EnqueueRefusal::NoThread(error.kind()))
    }

    /// Waits until everything accepted before the call has its outcome and its report.
    pub(crate) fn flush(
        &self,
        only: Option<&PartitionId>,
        deadline: Option<Instant>,
    ) -> Result<FlushReport, FlushError> {
        if crate::engine_thread::is_current() {
            return Err(FlushError::WouldDeadlock);
        }
        if self.is_forked() {
            return Err(FlushError::Forked);
        }
        let Some(topology) = self.topology() else {
            return Ok(FlushReport::default());
        };
        let lanes = match only {
            None => 0..topology.slots.len(),
            Some(id) => {
                let index = topology
                    .router
                    .index_of(id)
                    .ok_or_else(|| FlushError::UnknownPartition(id.clone()))?;
                index..index + 1
            }
        };
        let slots = &topology.slots;
        let join = FlushJoin::new();
        self.enter_flush(slots, lanes.clone(), &join);
        match join.wait(&self.clock, deadline) {
            Ok(end) => {
                for (lane, at_cut) in end.cuts {
                    slots[lane].lane.tell(at_cut);
                }
                let outcomes = end.counts;
                let report = FlushReport { outcomes };
                match (end.broken, outcomes.all_delivered()) {
                    (true, _) => Err(FlushError::LaneDied(report)),
                    (false, false) => Err(FlushError::Failures(report)),
                    (false, true) => Ok(report),
                }
            }
            Err(outcomes) => Err(FlushError::TimedOut {
                report: FlushReport { outcomes },
                outstanding: lanes.map(|lane| slots[lane].lane.reading().events()).sum(),
            }),
        }
    }

    /// Joins every lane that is born. Whatever was accepted before this call is in one of
    /// them, since births are under the lock that this takes first.
    fn enter_flush(&self, slots: &[Slot], lanes: Range<usize>, join: &Arc<FlushJoin>) {
        drop(self.lifecycle.lock());
        for lane in lanes.filter(|&lane| slots[lane].lane.is_born()) {
            slots[lane].lane.enter_flush(join, lane);
        }
    }

    /// Shuts the door for births and every gate, then drains; see [`Ending`].
    pub(crate) fn close(&self, ending: Ending, unsent: Unsent) -> Result<CloseReport, CloseError> {
        if crate::engine_thread::is_current() {
            return Err(CloseError::WouldDeadlock);
        }
        if self.is_forked() {
            return Err(CloseError::Forked);
        }
        if unsent == Unsent::ToCaller {
            self.returns.begin();
        }
        let bases: Vec<_> = self.slots().iter().map(|slot| slot.lane.told()).collect();
        let patience = self.shut(ending);
        // Looked at only now: a lazy producer may have connected, and sent, until the door shut.
        let slots = self.slots();
        // The end of each lane, not a cut in it: an event that is admitted by now may be sent only
        // behind any marker.
        let ended: Vec<_> = slots
            .iter()
            .map(|slot| slot.lane.wait_ended(patience))
            .collect();
        // Before what is left is counted: what a worker hands back later goes to the handler, and
        // no event is in both.
        let unsent = match unsent {
            Unsent::ToCaller => self.returns.finish(),
            Unsent::ToHandler => Vec::new(),
        };
        let mut outcomes = Counts::default();
        let mut still_owned = Vec::new();
        for (lane, (slot, ended)) in slots.iter().zip(ended).enumerate() {
            if !slot.lane.is_born() {
                continue;
            }
            let (counts, _) = slot.stats.read();
            outcomes.merge(&counts.since(&bases.get(lane).copied().unwrap_or_default()));
            if ended {
                slot.lane.tell(counts);
            } else {
                let owned = slot.lane.reading().events();
                still_owned.push((slot.lane.partition().clone(), owned));
            }
        }
        if still_owned.is_empty() {
            self.join_threads();
            self.transport
                .close(patience.unwrap_or_else(|| self.clock.now() + ABORT_GRACE));
        }
        let report = CloseReport {
            outcomes,
            unsent,
            still_owned,
        };
        if report.outcomes.all_delivered()
            && report.unsent.is_empty()
            && report.still_owned.is_empty()
        {
            Ok(report)
        } else {
            Err(CloseError::Incomplete(report))
        }
    }

    /// Sets all bits and wakes everybody, and waits for nothing. The instant until which a
    /// caller that waits should do so.
    pub(crate) fn shut(&self, ending: Ending) -> Option<Instant> {
        let connecting = {
            let mut lifecycle = self.lifecycle.lock();
            lifecycle.closed = true;
            lifecycle.connecting.take()
        };
        if let Some(unparker) = connecting {
            unparker.unpark();
        }
        self.settled.update(|settled| *settled = true);
        let now = self.clock.now();
        let (return_at, patience) = match ending {
            Ending::Drain => (None, None),
            Ending::ReturnAfter(timeout) => {
                let at = now.checked_add(timeout);
                (at, at.and_then(|at| at.checked_add(CLOSE_GRACE)))
            }
            Ending::Abort => (None, Some(now + ABORT_GRACE)),
        };
        for slot in self.slots() {
            if let Some(at) = return_at {
                slot.order.return_at(at);
            }
            if ending == Ending::Abort {
                slot.order.abort();
            }
            slot.lane.close();
        }
        patience
    }

    /// The threads of lanes that have ended: they have nothing left to do but leave.
    fn join_threads(&self) {
        let threads = std::mem::take(&mut self.lifecycle.lock().threads);
        for (_, handle) in threads {
            if handle.join().is_err() {
                tracing::error!("a worker's thread ended in a panic");
            }
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let partitions = self
            .slots()
            .iter()
            .filter(|slot| slot.lane.is_born())
            .map(|slot| {
                let word = slot.lane.reading();
                let (outcomes, engine) = slot.stats.read();
                PartitionStats {
                    partition: slot.lane.partition().clone(),
                    outcomes,
                    outstanding_events: word.events(),
                    outstanding_bytes: word.bytes(),
                    oldest_age: engine
                        .oldest_receipt
                        .map(|at| self.clock.now().saturating_duration_since(at)),
                    engine,
                }
            })
            .collect();
        Stats { partitions }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The last handle or the last worker, whichever is later. Never blocks for long: the
        // transport ends what is left on its own thread.
        self.transport.close(self.clock.now());
    }
}

/// Who gets what a close hands back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// The caller of close, in its report.
    ToCaller,
    /// The delivery handler, or the log: nobody looks at the report.
    ToHandler,
}

/// How a producer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Everything gets its outcome, however long its delivery deadline.
    Drain,
    /// As drain, but after this long what is certain not to be stored is handed back.
    ReturnAfter(Duration),
    /// What is not in flight is handed back now, what is in flight is indeterminate now.
    Abort,
}
