//! What these tests share: a peer, a clock, a record of reports, and calls that cannot hang.

use fe2o3_amqp_types::messaging::Data;
use fe2o3_amqp_types::messaging::message::DecodeIntoMessage;
use hublane::codec::Payload;
use hublane::testing::{Answer, ScriptedPeer, VirtualClock};
use hublane::{
    CloseError, CloseReport, Counts, Event, FlushError, FlushReport, Outcome, PartitionId,
    Producer, ProducerBuilder, Target,
};
use serde_amqp::read::SliceReader;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long, in real time, anything may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(20);

pub const SECOND: Duration = Duration::from_secs(1);
pub const MILLI: Duration = Duration::from_millis(1);

/// A peer with its clock, and what the delivery handler was told.
pub struct Rig {
    pub clock: VirtualClock,
    pub peer: ScriptedPeer,
    pub reports: Reports,
}

impl Rig {
    /// A peer that accepts everything at once.
    pub fn new(partitions: usize) -> Rig {
        let clock = VirtualClock::new();
        Rig {
            peer: ScriptedPeer::new(partitions, &clock),
            clock,
            reports: Reports::default(),
        }
    }

    /// A peer that answers only when it is told to.
    pub fn stalled(partitions: usize) -> Rig {
        let rig = Rig::new(partitions);
        rig.peer.default_answer(Answer::hold());
        rig
    }

    /// A builder in virtual time, without a handler.
    pub fn bare(&self) -> ProducerBuilder {
        ProducerBuilder::new(self.peer.transport()).virtual_clock(&self.clock)
    }

    /// A builder in virtual time whose handler records.
    pub fn builder(&self) -> ProducerBuilder {
        let (reports, clock) = (self.reports.clone(), self.clock.clone());
        self.bare().on_delivery(move |report, _| {
            let bodies = report.events.iter().map(|e| text(&e.event)).collect();
            reports.push(Report {
                partition: report.partition.to_string(),
                outcome: report.outcome,
                bodies,
                attempts: report.attempts,
                at: clock.now(),
            });
        })
    }

    pub fn producer(&self, set: impl FnOnce(ProducerBuilder) -> ProducerBuilder) -> Live {
        Live(set(self.builder()).build().unwrap())
    }

    /// From now on the peer accepts, and so it does with all that it held back.
    pub fn release(&self) {
        self.peer.default_answer(Answer::accept());
        let partitions = (0..64).map(|n| n.to_string());
        for partition in partitions {
            while self.peer.answer_held(&partition, Answer::accept()) {}
        }
    }

    /// Waits until the engine is quiet and `callers` calls wait for it.
    pub fn rest(&self, callers: usize) {
        // The engine may have let callers go, who then give it work: it rests again after them.
        self.clock.settle();
        self.clock.wait_for_callers(callers);
        self.clock.settle();
    }

    /// The bodies stored on `partition`, in order, duplicates included.
    pub fn stored(&self, partition: &str) -> Vec<String> {
        self.peer
            .stored(partition)
            .iter()
            .flat_map(|payload| bodies(payload))
            .collect()
    }

    /// How many events each transfer on `partition` had.
    pub fn batches(&self, partition: &str) -> Vec<usize> {
        let transfers = self.peer.transfers(partition);
        transfers.iter().map(|t| t.payload.count()).collect()
    }
}

/// A producer that is aborted in the end, so that no failed test waits for a stalled peer.
pub struct Live(pub Producer);

impl std::ops::Deref for Live {
    type Target = Producer;

    fn deref(&self) -> &Producer {
        &self.0
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let producer = self.0.clone();
        let _ = Running::start(move || producer.abort()).finish();
    }
}

/// One call of the delivery handler.
#[derive(Clone, Debug)]
pub struct Report {
    pub partition: String,
    pub outcome: Outcome,
    pub bodies: Vec<String>,
    pub attempts: u32,
    pub at: Instant,
}

/// The calls of the delivery handler so far.
#[derive(Clone, Debug, Default)]
pub struct Reports(Arc<Mutex<Vec<Report>>>);

impl Reports {
    pub fn push(&self, report: Report) {
        self.0.lock().unwrap().push(report);
    }

    pub fn all(&self) -> Vec<Report> {
        self.0.lock().unwrap().clone()
    }

    /// The bodies with the outcomes that `choose` takes, in the order of their reports.
    pub fn bodies(&self, choose: impl Fn(&Outcome) -> bool) -> Vec<String> {
        let reports = self.all().into_iter().filter(|r| choose(&r.outcome));
        reports.flat_map(|report| report.bodies).collect()
    }

    pub fn delivered(&self) -> Vec<String> {
        self.bodies(|outcome| *outcome == Outcome::Delivered)
    }

    pub fn returned(&self) -> Vec<String> {
        self.bodies(|outcome| *outcome == Outcome::Returned)
    }

    pub fn failed(&self) -> Vec<String> {
        self.bodies(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    pub fn indeterminate(&self) -> Vec<String> {
        self.bodies(|outcome| matches!(outcome, Outcome::Indeterminate(_)))
    }
}

/// A call on a thread of its own.
pub struct Running<T>(Receiver<T>);

impl<T: Send + 'static> Running<T> {
    pub fn start(call: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || send.send(call()));
        Running(receive)
    }

    fn finish(self) -> Result<T, mpsc::RecvTimeoutError> {
        self.0.recv_timeout(PATIENCE)
    }

    /// The call's result, which must come without any further help.
    #[track_caller]
    pub fn result(self) -> T {
        self.finish().expect("the call hangs or panicked")
    }

    /// The call's result, with time going by in `step`s until it comes.
    #[track_caller]
    pub fn result_in_time(self, clock: &VirtualClock, step: Duration) -> T {
        let limit = Instant::now() + PATIENCE;
        loop {
            match self.0.recv_timeout(MILLI) {
                Ok(result) => return result,
                Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the call panicked"),
                Err(mpsc::RecvTimeoutError::Timeout) => clock.advance(step),
            }
            assert!(Instant::now() < limit, "the call hangs");
        }
    }

    #[track_caller]
    pub fn assert_blocked(&self) {
        let early = self.0.try_recv().is_ok();
        assert!(!early, "the call should still be waiting");
    }
}

/// The result of a call that must not hang.
#[track_caller]
pub fn within<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    Running::start(call).result()
}

#[track_caller]
pub fn flush(producer: &Producer) -> Result<FlushReport, FlushError> {
    let producer = producer.clone();
    within(move || producer.flush())
}

#[track_caller]
pub fn close(producer: &Producer) -> Result<CloseReport, CloseError> {
    let producer = producer.clone();
    within(move || producer.close())
}

#[track_caller]
pub fn abort(producer: &Producer) -> CloseReport {
    let producer = producer.clone();
    close_report(within(move || producer.abort()))
}

/// What a close left, whether that is an error or not.
#[track_caller]
pub fn close_report(result: Result<CloseReport, CloseError>) -> CloseReport {
    match result {
        Ok(report) | Err(CloseError::Incomplete(report)) => report,
        Err(error) => panic!("not closed: {error}"),
    }
}

/// The bodies that a close handed back for `partition`.
pub fn unsent(report: &CloseReport, partition: &str) -> Vec<String> {
    let of_it = report
        .unsent
        .iter()
        .filter(|(id, _)| id.as_str() == partition);
    of_it
        .flat_map(|(_, events)| texts(events.iter().map(|e| &e.event)))
        .collect()
}

/// The target partition number `n`.
pub fn to(n: usize) -> Target {
    Target::Partition(PartitionId::from(n.to_string()))
}

pub fn text(event: &Event) -> String {
    String::from_utf8_lossy(event.body()).into_owned()
}

pub fn texts<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<String> {
    events.into_iter().map(text).collect()
}

pub fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

pub fn events(range: std::ops::Range<usize>) -> Vec<Event> {
    range.map(|n| Event::from(n.to_string())).collect()
}

pub fn bodies(payload: &Payload) -> Vec<String> {
    let body = |message| {
        Data::decode_message_from_reader(SliceReader::new(message))
            .map(|message| String::from_utf8_lossy(&message.body.0).into_owned())
            .expect("a message of one data section")
    };
    payload.sections().map(body).collect()
}

pub fn counts(delivered: u64, failed: u64, indeterminate: u64, returned: u64) -> Counts {
    Counts {
        delivered,
        failed,
        indeterminate,
        returned,
    }
}

/// Everything that was accepted has its outcome, and no permit is left.
#[track_caller]
pub fn assert_settled(producer: &Producer, accepted: u64) {
    let stats = producer.stats();
    assert_eq!(stats.accepted(), accepted);
    assert_eq!(stats.outcomes().total(), accepted);
    for partition in &stats.partitions {
        assert_eq!(partition.outstanding_events, 0);
        assert_eq!(partition.outstanding_bytes, 0);
    }
}
