//! Any sequence of operations over a peer that does anything: every accepted event has exactly
//! one outcome, and the outcome is true.

use crate::support::{Live, MILLI, Report, Rig, Running, SECOND, close_report, text};
use hublane::testing::Answer;
use hublane::transport::{LinkError, Settlement};
use hublane::{
    Counts, EVENT_OVERHEAD, EnqueueRefusal, Event, FlushError, Outcome, PartitionKey, Producer,
    RetryPolicy, Target,
};
use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Clone, Debug)]
struct Setup {
    partitions: usize,
    window: usize,
    batch_events: usize,
    bound_events: u64,
    bound_bytes: u64,
    max_retries: u32,
    delivery: Duration,
    /// The handler panics at every call of this number.
    panic_every: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Try,
    Timeout(u16),
    Wait,
    All(u8),
    Threads(u8, u8),
}

#[derive(Clone, Copy, Debug)]
enum Reply {
    Accept,
    Late(u16),
    Fatal,
    Retriable,
    ServerBusy,
    Released,
    Modified,
    Lose,
    StoreAndLose,
    NotSent,
    Hold,
    LinkBusy,
    Die,
}

#[derive(Clone, Debug)]
enum Op {
    Enqueue { target: u8, size: u16, form: Form },
    Advance(u16),
    Script(u8, Reply),
    Default(Reply),
    AnswerHeld(u8, Reply),
    Ready(u8),
    Down(u8),
    Up(u8),
    Limit(u16),
    Flush(u16),
}

#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    CloseTimeout(u16),
    Abort,
    Drop,
}

fn any_setup() -> impl Strategy<Value = Setup> {
    (
        (1..4_usize, prop_oneof![3 => Just(1_usize), 1 => 2..4_usize]),
        (1..6_usize, 1..13_u64, 2_000..6_000_u64),
        prop_oneof![Just(u32::MAX), 0..3_u32],
        5..30_u64,
        prop_oneof![Just(None), (1..4_u64).prop_map(Some)],
    )
        .prop_map(|(places, bounds, max_retries, delivery, panic_every)| {
            let ((partitions, window), (batch_events, bound_events, bound_bytes)) =
                (places, bounds);
            Setup {
                partitions,
                window,
                batch_events,
                bound_events,
                bound_bytes,
                max_retries,
                delivery: Duration::from_secs(delivery),
                panic_every,
            }
        })
}

fn any_reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        4 => Just(Reply::Accept),
        2 => (0..5_000_u16).prop_map(Reply::Late),
        1 => Just(Reply::Fatal),
        2 => Just(Reply::Retriable),
        1 => Just(Reply::ServerBusy),
        1 => Just(Reply::Released),
        1 => Just(Reply::Modified),
        1 => Just(Reply::Lose),
        1 => Just(Reply::StoreAndLose),
        1 => Just(Reply::NotSent),
        2 => Just(Reply::Hold),
        1 => Just(Reply::LinkBusy),
    ]
}

fn any_form() -> impl Strategy<Value = Form> {
    prop_oneof![
        6 => Just(Form::Try),
        2 => (0..3_000_u16).prop_map(Form::Timeout),
        2 => Just(Form::Wait),
        2 => (0..20_u8).prop_map(Form::All),
        1 => (2..4_u8, 1..10_u8).prop_map(|(threads, each)| Form::Threads(threads, each)),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    let enqueue = (
        any::<u8>(),
        prop_oneof![4 => 0..100_u16, 1 => 200..3_000_u16],
        any_form(),
    );
    prop_oneof![
        8 => enqueue.prop_map(|(target, size, form)| Op::Enqueue { target, size, form }),
        3 => (0..3_000_u16).prop_map(Op::Advance),
        3 => (any::<u8>(), any_reply()).prop_map(|(p, reply)| Op::Script(p, reply)),
        1 => any_reply().prop_map(Op::Default),
        3 => (any::<u8>(), any_reply()).prop_map(|(p, reply)| Op::AnswerHeld(p, reply)),
        1 => any::<u8>().prop_map(Op::Ready),
        1 => any::<u8>().prop_map(Op::Down),
        1 => any::<u8>().prop_map(Op::Up),
        1 => (300..4_000_u16).prop_map(Op::Limit),
        2 => (0..8_000_u16).prop_map(Op::Flush),
    ]
}

fn any_end() -> impl Strategy<Value = End> {
    prop_oneof![
        Just(End::Close),
        (0..10_000_u16).prop_map(End::CloseTimeout),
        Just(End::Abort),
        Just(End::Drop),
    ]
}

fn answer(reply: Reply) -> Answer {
    let error = || LinkError::new("hublane:test", "scripted");
    match reply {
        Reply::Accept => Answer::accept(),
        Reply::Late(ms) => Answer::accept().after(u32::from(ms) * MILLI),
        Reply::Fatal => Answer::reject("amqp:not-allowed"),
        Reply::Retriable => Answer::reject("amqp:internal-error"),
        Reply::ServerBusy => Answer::reject("com.microsoft:server-busy"),
        Reply::Released => Answer::settle(Settlement::Released),
        Reply::Modified => Answer::settle(Settlement::Modified),
        Reply::Lose => Answer::lose(),
        Reply::StoreAndLose => Answer::store_and_lose(),
        Reply::NotSent => Answer::settle(Settlement::NotSent(error())),
        Reply::Hold => Answer::hold(),
        Reply::LinkBusy => Answer::busy(),
        Reply::Die => Answer::panic(),
    }
}

/// The number that stands in front of a body.
fn id(body: &str) -> u64 {
    let digits = body.split(':').next().expect("a first part");
    digits.parse().expect("a number")
}

fn event(id: u64, size: usize) -> Event {
    Event::from(format!("{id}:{}", "x".repeat(size)))
}

/// The whole of one run, and what is known about it from outside.
struct World {
    rig: Rig,
    setup: Setup,
    producer: Option<Live>,
    next_id: u64,
    /// Each accepted event, with its caller: the events of one caller have an order.
    accepted: BTreeMap<u64, u64>,
    callers: u64,
    /// What completed flushes have told of.
    told: BTreeSet<u64>,
    /// Lanes may die.
    deadly: bool,
}

impl World {
    fn new(setup: Setup, deadly: bool) -> World {
        let rig = Rig::new(setup.partitions);
        let (reports, clock) = (rig.reports.clone(), rig.clock.clone());
        let calls = AtomicU64::new(0);
        let panic_every = setup.panic_every;
        let policy = RetryPolicy {
            max_retries: setup.max_retries,
            ..RetryPolicy::default()
        };
        let producer = rig
            .bare()
            .max_in_flight(setup.window)
            .max_batch_events(setup.batch_events)
            .max_batch_bytes(1500)
            .max_buffered_events(setup.bound_events)
            .max_buffered_bytes(setup.bound_bytes)
            .delivery_timeout(setup.delivery)
            .drop_timeout(3 * SECOND)
            .retry(policy)
            .on_delivery(move |report, _| {
                reports.push(Report {
                    partition: report.partition.to_string(),
                    outcome: report.outcome,
                    bodies: report.events.iter().map(|e| text(&e.event)).collect(),
                    attempts: report.attempts,
                    at: clock.now(),
                });
                let call = calls.fetch_add(1, Ordering::Relaxed) + 1;
                let bomb = panic_every.is_some_and(|every| call % every == 0);
                assert!(!bomb, "the handler's own fault");
            })
            .build()
            .unwrap();
        World {
            rig,
            setup,
            producer: Some(Live(producer)),
            next_id: 0,
            accepted: BTreeMap::new(),
            callers: 1,
            told: BTreeSet::new(),
            deadly,
        }
    }

    fn producer(&self) -> Producer {
        self.producer.as_ref().expect("still open").0.clone()
    }

    fn partition(&self, n: u8) -> String {
        (usize::from(n) % self.setup.partitions).to_string()
    }

    fn target(&self, n: u8) -> Target {
        let n = usize::from(n) % (self.setup.partitions + 2);
        if n < self.setup.partitions {
            Target::Partition(n.to_string().into())
        } else if n == self.setup.partitions {
            Target::Any
        } else {
            Target::Key(PartitionKey::new("key").unwrap())
        }
    }

    fn ids(&mut self, n: u64) -> std::ops::Range<u64> {
        self.next_id += n;
        self.next_id - n..self.next_id
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Enqueue { target, size, form } => {
                let target = self.target(target);
                self.enqueue(&target, usize::from(size), form);
            }
            Op::Advance(ms) => self.rig.clock.advance(u32::from(ms) * MILLI),
            Op::Script(p, reply) => self.rig.peer.script(&self.partition(p), answer(reply)),
            Op::Default(reply) => self.rig.peer.default_answer(answer(reply)),
            Op::AnswerHeld(p, reply) => {
                self.rig.peer.answer_held(&self.partition(p), answer(reply));
            }
            Op::Ready(p) => self.rig.peer.ready(&self.partition(p)),
            Op::Down(p) => self.rig.peer.link_down(&self.partition(p)),
            Op::Up(p) => self.rig.peer.link_up(&self.partition(p)),
            Op::Limit(bytes) => self.rig.peer.set_max_message_size(u64::from(bytes)),
            Op::Flush(ms) => self.flush(u32::from(ms) * MILLI),
        }
        self.rig.clock.settle();
        self.check_ledger();
    }

    fn enqueue(&mut self, target: &Target, size: usize, form: Form) {
        let producer = self.producer();
        match form {
            Form::Try => {
                let id = self.ids(1).start;
                let result = producer.try_enqueue_to(target, event(id, size));
                self.note(id, 0, result);
            }
            Form::Timeout(ms) => {
                let id = self.ids(1).start;
                let (target, timeout) = (target.clone(), u32::from(ms) * MILLI);
                let call = Running::start(move || {
                    producer.enqueue_timeout(&target, event(id, size), timeout)
                });
                let result = call.result_in_time(&self.rig.clock, 500 * MILLI);
                self.note(id, 0, result);
            }
            Form::Wait => {
                let id = self.ids(1).start;
                let target = target.clone();
                let call = Running::start(move || producer.enqueue_to(&target, event(id, size)));
                let result = call.result_in_time(&self.rig.clock, 500 * MILLI);
                self.note(id, 0, result);
            }
            Form::All(n) => {
                let ids = self.ids(u64::from(n));
                let target = target.clone();
                let set: Vec<_> = ids.clone().map(|id| event(id, size)).collect();
                let call = Running::start(move || producer.enqueue_all(&target, set));
                let result = call.result_in_time(&self.rig.clock, 500 * MILLI);
                let accepted = match result {
                    Ok(()) => u64::from(n),
                    Err(error) => {
                        let rest: Vec<_> = error.rest.iter().map(|e| id(&text(e))).collect();
                        let accepted = error.accepted as u64;
                        assert!(rest.iter().copied().eq(ids.start + accepted..ids.end));
                        accepted
                    }
                };
                self.accepted
                    .extend((ids.start..ids.start + accepted).map(|id| (id, 0)));
            }
            Form::Threads(threads, each) => {
                let calls: Vec<_> = (0..threads)
                    .map(|_| {
                        let ids = self.ids(u64::from(each));
                        let (producer, target) = (producer.clone(), target.clone());
                        Running::start(move || {
                            ids.map(|id| (id, producer.enqueue_to(&target, event(id, size))))
                                .collect::<Vec<_>>()
                        })
                    })
                    .collect();
                for call in calls {
                    let caller = self.callers;
                    self.callers += 1;
                    for (id, result) in call.result_in_time(&self.rig.clock, 500 * MILLI) {
                        self.note(id, caller, result);
                    }
                }
            }
        }
    }

    fn note(&mut self, number: u64, caller: u64, result: Result<(), hublane::EnqueueError>) {
        let Err(refused) = result else {
            self.accepted.insert(number, caller);
            return;
        };
        match refused.reason() {
            EnqueueRefusal::Full
            | EnqueueRefusal::TimedOut
            | EnqueueRefusal::TooLarge { .. }
            | EnqueueRefusal::ExceedsBuffer { .. } => {}
            EnqueueRefusal::LaneDead if self.deadly => {}
            other => panic!("refused: {other}"),
        }
        assert_eq!(id(&text(&refused.into_event())), number);
    }

    /// The outcome of each reported event; an event reported twice is a failure.
    fn outcomes(&self) -> HashMap<u64, Outcome> {
        let mut outcomes = HashMap::new();
        for report in self.rig.reports.all() {
            for body in &report.bodies {
                let before = outcomes.insert(id(body), report.outcome.clone());
                assert_eq!(before, None, "{body} was reported twice");
            }
        }
        outcomes
    }

    fn flush(&mut self, timeout: Duration) {
        let producer = self.producer();
        let reports = self.rig.reports.clone();
        let call = Running::start(move || {
            let result = producer.flush_timeout(timeout);
            let reported: BTreeSet<_> = reports.bodies(|_| true).iter().map(|b| id(b)).collect();
            (result, reported)
        });
        let (result, reported) = call.result_in_time(&self.rig.clock, 500 * MILLI);
        let report = match &result {
            Ok(report) | Err(FlushError::Failures(report)) => *report,
            Err(FlushError::LaneDied(_)) if self.deadly => return,
            Err(FlushError::TimedOut { .. }) => return,
            Err(other) => panic!("flush: {other}"),
        };
        for id in self.accepted.keys() {
            assert!(reported.contains(id), "{id} was accepted before the flush");
        }
        // A flush that a death broke has told of the other lanes: what is told is not known here.
        if !self.deadly {
            let expected = self.news(&self.outcomes());
            assert_eq!(report.outcomes, expected);
            assert_eq!(result.is_ok(), expected.all_delivered());
        }
        self.told = self.accepted.keys().copied().collect();
    }

    /// What became of everything that no completed flush has told of.
    fn news(&self, outcomes: &HashMap<u64, Outcome>) -> Counts {
        let news = self.accepted.keys().filter(|id| !self.told.contains(id));
        count(news.map(|id| &outcomes[id]))
    }

    fn check_ledger(&self) {
        let stats = self.producer().stats();
        assert_eq!(stats.accepted(), self.accepted.len() as u64);
        assert_eq!(stats.outcomes(), count(self.outcomes().values()));
        for partition in stats.partitions {
            let events = partition.outstanding_events;
            assert!(events <= self.setup.bound_events);
            let charged = partition.outstanding_bytes + events * EVENT_OVERHEAD;
            assert!(charged <= self.setup.bound_bytes);
        }
    }

    /// Ends the producer, then lets what is owed come in, and checks everything.
    fn finish(mut self, end: End) {
        let live = self.producer.take().expect("still open");
        let producer = live.0.clone();
        let mut returned = Vec::new();
        let mut open = Some(live);
        match end {
            End::Drop => {
                // Its guard would be another handle.
                let enqueuer = producer.enqueuer();
                std::mem::forget(open.take());
                drop(enqueuer);
            }
            End::Close | End::CloseTimeout(_) | End::Abort => {
                let closing = producer.clone();
                let call = Running::start(move || match end {
                    End::CloseTimeout(ms) => closing.close_timeout(u32::from(ms) * MILLI),
                    End::Abort => closing.abort(),
                    End::Close | End::Drop => closing.close(),
                });
                let result = call.result_in_time(&self.rig.clock, 500 * MILLI);
                let is_ok = result.is_ok();
                let report = close_report(result);
                for (partition, events) in &report.unsent {
                    let ids: Vec<_> = events.iter().map(|e| id(&text(&e.event))).collect();
                    self.check_order(&ids, partition.as_str());
                    returned.extend(ids);
                }
                if report.still_owned.is_empty() {
                    assert!(self.rig.peer.is_closed());
                    let mut outcomes = self.outcomes();
                    outcomes.extend(returned.iter().map(|id| (*id, Outcome::Returned)));
                    if !self.deadly {
                        let expected = self.news(&outcomes);
                        assert_eq!(report.outcomes, expected);
                        assert_eq!(is_ok, expected.all_delivered());
                    }
                } else {
                    assert!(!is_ok);
                    assert!(!matches!(end, End::Close));
                }
            }
        }
        if matches!(end, End::Drop) {
            let call = Running::start(move || producer.close());
            let report = close_report(call.result_in_time(&self.rig.clock, 500 * MILLI));
            returned.extend(
                report
                    .unsent
                    .iter()
                    .flat_map(|(_, events)| events.iter().map(|e| id(&text(&e.event)))),
            );
        }
        self.rig.clock.advance(2_000 * SECOND);
        self.check(&returned, open);
    }

    fn check(&self, returned: &[u64], open: Option<Live>) {
        let mut outcomes = self.outcomes();
        for id in returned {
            let before = outcomes.insert(*id, Outcome::Returned);
            assert_eq!(before, None, "{id} was reported and returned");
        }
        assert!(outcomes.keys().all(|id| self.accepted.contains_key(id)));
        assert!(self.accepted.keys().all(|id| outcomes.contains_key(id)));
        if let Some(producer) = open {
            let stats = producer.stats();
            assert_eq!(stats.outcomes(), count(outcomes.values()));
            assert_eq!(stats.outstanding_events(), 0);
        }
        let mut stored = HashMap::new();
        for partition in (0..self.setup.partitions).map(|n| n.to_string()) {
            let mut first_stores = Vec::new();
            for body in self.rig.stored(&partition) {
                let id = id(&body);
                let before = stored.entry(id).or_insert_with(|| partition.clone());
                assert_eq!(*before, partition, "{id} is in two partitions");
                if !first_stores.contains(&id) {
                    first_stores.push(id);
                }
            }
            // What was given up unanswered may be stored later than what came after it.
            first_stores.retain(|id| outcomes.get(id) == Some(&Outcome::Delivered));
            if self.setup.window == 1 {
                self.check_order(&first_stores, &partition);
            }
        }
        for report in self.rig.reports.all() {
            for id in report.bodies.iter().map(|body| id(body)) {
                if report.outcome == Outcome::Delivered {
                    assert_eq!(stored.get(&id), Some(&report.partition));
                }
            }
        }
        for (id, outcome) in &outcomes {
            let may_be_stored = matches!(outcome, Outcome::Delivered | Outcome::Indeterminate(_));
            assert!(
                may_be_stored || !stored.contains_key(id),
                "{id}: {outcome:?}"
            );
        }
        assert!(stored.keys().all(|id| self.accepted.contains_key(id)));
    }

    /// The events of each caller stand in the order in which it enqueued them.
    fn check_order(&self, ids: &[u64], partition: &str) {
        let mut last = HashMap::new();
        for id in ids {
            let before = last.insert(self.accepted[id], *id);
            let in_order = before.is_none_or(|before| before < *id);
            assert!(in_order, "{id} behind {before:?} in {partition}");
        }
    }
}

fn count<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Counts {
    let mut counts = Counts::default();
    for outcome in outcomes {
        match outcome {
            Outcome::Delivered => counts.delivered += 1,
            Outcome::Failed(_) => counts.failed += 1,
            Outcome::Indeterminate(_) => counts.indeterminate += 1,
            Outcome::Returned => counts.returned += 1,
            other => panic!("unknown outcome {other:?}"),
        }
    }
    counts
}

fn run(setup: Setup, ops: Vec<Op>, end: End, deadly: bool) {
    let mut world = World::new(setup, deadly);
    for op in ops {
        world.run(op);
    }
    world.finish(end);
}

fn cases(n: u32) -> ProptestConfig {
    let factor = std::env::var("HUBLANE_CASES").ok();
    let factor = factor.and_then(|text| text.parse().ok()).unwrap_or(1);
    ProptestConfig {
        cases: n * factor,
        max_shrink_iters: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(100))]

    /// azure-sdk-for-net 38332.
    #[test]
    fn every_accepted_event_has_one_true_outcome(
        setup in any_setup(),
        ops in vec(any_op(), 1..40),
        end in any_end(),
    ) {
        run(setup, ops, end, false);
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn so_it_has_when_workers_die(
        setup in any_setup(),
        mut ops in vec(any_op(), 1..40),
        deaths in vec((any::<u8>(), any::<u8>()), 1..3),
        end in any_end(),
    ) {
        for (at, partition) in deaths {
            ops.insert(usize::from(at) % ops.len(), Op::Script(partition, Reply::Die));
        }
        run(setup, ops, end, true);
    }
}
