//! Close, abort, and the end of the last handle.

use crate::support::{
    MILLI, Rig, Running, SECOND, abort, assert_settled, close, close_report, counts, events, flush,
    numbers, text, texts, to, unsent, within,
};
use hublane::testing::Answer;
use hublane::transport::Settlement;
use hublane::{
    CloseError, CloseReport, EnqueueRefusal, PartitionId, Producer, ProducerBuilder, Target,
};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

type Closing = Running<Result<CloseReport, CloseError>>;

fn start_close(producer: &Producer, timeout: Duration) -> Closing {
    let producer = producer.clone();
    Running::start(move || producer.close_timeout(timeout))
}

/// tracing 1120.
#[test]
fn close_drains() {
    let rig = Rig::new(2);
    rig.peer.default_answer(Answer::accept().after(300 * MILLI));
    let producer = rig.producer(|b| b.max_wait_time(60 * SECOND).max_batch_events(3));
    producer.enqueue_all(&to(0), events(0..8)).unwrap();
    producer.enqueue_all(&to(1), events(8..10)).unwrap();
    let closing = producer.clone();
    let closing = Running::start(move || closing.close());
    rig.rest(1);
    rig.clock.advance(900 * MILLI - Duration::from_nanos(1));
    closing.assert_blocked();
    rig.clock.advance(Duration::from_nanos(1));
    assert_eq!(closing.result().unwrap().outcomes, counts(10, 0, 0, 0));
    assert_eq!(rig.stored("0"), numbers(0..8));
    assert_eq!(rig.stored("1"), numbers(8..10));
    assert!(rig.peer.is_closed());
    assert_settled(&producer, 10);
}

#[test]
fn close_reports_what_was_not_delivered() {
    let rig = Rig::new(1);
    rig.peer.script("0", Answer::reject("amqp:not-allowed"));
    let producer = rig.producer(|b| b.max_batch_events(1));
    producer.enqueue_all(&to(0), events(0..3)).unwrap();
    match close(&producer) {
        Err(CloseError::Incomplete(report)) => {
            assert_eq!(report.outcomes, counts(2, 1, 0, 0));
            assert_eq!((report.unsent, report.still_owned), (vec![], vec![]));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn close_with_a_time_out_hands_back_in_order_what_was_never_sent() {
    let rig = Rig::stalled(2);
    let producer = rig.producer(|b| b.max_batch_events(2));
    producer.enqueue_all(&to(0), events(0..9)).unwrap();
    producer.enqueue_all(&to(1), events(9..12)).unwrap();
    rig.clock.settle();
    let closing = start_close(&producer, 200 * MILLI);
    rig.rest(1);
    rig.clock.advance(250 * MILLI);
    let report = close_report(closing.result());
    assert_eq!(unsent(&report, "0"), numbers(2..9));
    assert_eq!(unsent(&report, "1"), numbers(11..12));
    let owned: Vec<_> = report.still_owned.iter().map(|(_, n)| *n).collect();
    assert_eq!(owned, [2, 2]);
    // What the peer still owned gets its outcome later.
    rig.release();
    rig.clock.settle();
    assert_eq!(rig.reports.delivered().len(), 4);
    assert_settled(&producer, 12);
    let again = producer.clone();
    let report = close_report(within(move || again.close()));
    assert_eq!((report.unsent, report.still_owned), (vec![], vec![]));
    assert!(rig.peer.is_closed());
}

#[test]
fn a_batch_that_is_given_back_during_close_stands_before_those_behind_it() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_batch_events(2));
    producer.enqueue_all(&to(0), events(0..6)).unwrap();
    rig.clock.settle();
    let closing = start_close(&producer, SECOND);
    rig.rest(1);
    rig.clock.advance(SECOND);
    // The later events have been handed back; now the peer gives the first batch back.
    let released = Answer::settle(Settlement::Released);
    assert!(rig.peer.answer_held("0", released));
    let report = close_report(closing.result());
    assert_eq!(unsent(&report, "0"), numbers(0..6));
    assert_eq!(report.outcomes, counts(0, 0, 0, 6));
    assert_eq!(rig.reports.all().len(), 0);
}

/// sentry-rust 1040, fjall 324, in virtual time.
#[test]
fn close_with_a_full_lane_and_a_dead_peer_ends_by_its_deadline() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_buffered_events(100));
    for event in events(0..100) {
        producer.try_enqueue_to(&to(0), event).unwrap();
    }
    let waiting = producer.clone();
    let waiter = Running::start(move || waiting.enqueue_to(&to(0), "waits"));
    rig.rest(1);
    let start = rig.clock.now();
    let closing = start_close(&producer, 200 * MILLI);
    let refused = waiter.result().unwrap_err();
    assert_eq!(*refused.reason(), EnqueueRefusal::Closed);
    rig.clock.wait_for_callers(1);
    rig.clock.advance(250 * MILLI);
    let report = close_report(closing.result());
    assert!(rig.clock.now() - start <= 250 * MILLI);
    let in_flight = rig.batches("0")[0];
    assert_eq!(unsent(&report, "0"), numbers(in_flight..100));
    assert_eq!(report.still_owned.len(), 1);
    assert_eq!(report.still_owned[0].1, in_flight as u64);
}

#[test]
fn close_ends_by_its_deadline_whatever_a_handler_does() {
    let rig = Rig::new(2);
    let (leave, left) = mpsc::channel::<()>();
    let (enter, entered) = mpsc::channel::<()>();
    let left = Mutex::new(left);
    // System time: virtual time waits for handlers.
    let producer = ProducerBuilder::new(rig.peer.transport())
        .max_batch_events(1)
        .on_delivery(move |report, _| {
            if report.partition.as_str() == "0" && text(&report.events[0].event) == "0" {
                let _ = enter.send(());
                let _ = left.lock().unwrap().recv_timeout(Duration::from_secs(20));
            }
        })
        .build()
        .unwrap();
    producer.enqueue_all(&to(0), events(0..3)).unwrap();
    producer.enqueue_all(&to(1), events(3..5)).unwrap();
    within(move || entered.recv().unwrap());
    let flushing = producer.clone();
    within(move || flushing.flush_partition(&PartitionId::from("1"))).unwrap();
    let closing = producer.clone();
    let start = Instant::now();
    let report = close_report(within(move || closing.close_timeout(300 * MILLI)));
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(report.still_owned.len(), 1);
    assert_eq!(report.still_owned[0].0.as_str(), "0");
    assert_eq!(report.still_owned[0].1, 2);
    assert_eq!(rig.stored("1"), numbers(3..5));
    leave.send(()).unwrap();
    let again = producer.clone();
    let report = close_report(within(move || again.close()));
    assert_eq!(report.still_owned, []);
    // Nobody was closing when they came back, or this close was: never both, never neither.
    assert_settled(&producer, 5);
}

#[test]
fn abort_returns_or_reports_each_event_once() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_batch_events(3).max_buffered_events(10));
    for event in events(0..10) {
        producer.try_enqueue_to(&to(0), event).unwrap();
    }
    rig.clock.settle();
    let start = rig.clock.now();
    let report = abort(&producer);
    assert_eq!(rig.clock.now(), start);
    assert_eq!(report.outcomes, counts(0, 0, 3, 7));
    assert_eq!(unsent(&report, "0"), numbers(3..10));
    assert_eq!(report.still_owned, []);
    assert_eq!(rig.reports.indeterminate(), numbers(0..3));
    assert_eq!(rig.reports.returned().len(), 0);
    assert_settled(&producer, 10);
    // A late answer changes nothing.
    rig.peer.answer_held("0", Answer::accept());
    rig.clock.settle();
    assert_settled(&producer, 10);
}

#[test]
fn abort_ends_a_close_that_waits() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_batch_events(2));
    producer.enqueue_all(&to(0), events(0..5)).unwrap();
    rig.clock.settle();
    let closing = producer.clone();
    let closing = Running::start(move || closing.close());
    rig.clock.wait_for_callers(1);
    let aborted = abort(&producer);
    let closed = close_report(closing.result());
    let mut back = unsent(&aborted, "0");
    back.extend(unsent(&closed, "0"));
    assert_eq!(back, numbers(2..5));
    assert_eq!(rig.reports.indeterminate(), numbers(0..2));
    assert_settled(&producer, 5);
}

#[test]
fn a_retry_that_waits_is_handed_back_by_close_but_not_if_it_may_be_stored() {
    for (answer, returned) in [
        (Answer::reject("amqp:internal-error"), true),
        (Answer::lose(), false),
    ] {
        let rig = Rig::new(1);
        rig.peer.script("0", answer);
        let producer = rig.producer(|b| b.max_batch_events(2));
        producer.enqueue_all(&to(0), events(0..4)).unwrap();
        rig.clock.settle();
        let report = abort(&producer);
        if returned {
            assert_eq!(unsent(&report, "0"), numbers(0..4));
            assert_eq!(report.outcomes, counts(0, 0, 0, 4));
        } else {
            assert_eq!(unsent(&report, "0"), numbers(2..4));
            assert_eq!(rig.reports.indeterminate(), numbers(0..2));
        }
        assert_settled(&producer, 4);
    }
}

#[test]
fn close_is_idempotent_from_any_clone() {
    let rig = Rig::new(3);
    let producer = rig.producer(|b| b);
    for n in 0..30 {
        producer.enqueue_to(&to(n % 3), n.to_string()).unwrap();
    }
    let barrier = Arc::new(Barrier::new(4));
    let closers: Vec<_> = (0..4)
        .map(|n| {
            let (producer, barrier) = (producer.clone(), Arc::clone(&barrier));
            Running::start(move || {
                barrier.wait();
                match n % 2 {
                    0 => producer.close(),
                    _ => producer.close_timeout(60 * SECOND),
                }
            })
        })
        .collect();
    for closer in closers {
        assert_eq!(closer.result().unwrap().still_owned, []);
    }
    assert_settled(&producer, 30);
    assert_eq!(close(&producer).unwrap().unsent, []);
    assert_eq!(abort(&producer).unsent, []);
}

#[test]
fn a_producer_that_never_sent_closes_at_once() {
    let rig = Rig::new(3);
    let producer = rig.producer(|b| b);
    close(&producer).unwrap();
    assert!(rig.peer.is_closed());
}

/// crossbeam's channel: a message whose receiver goes is gone, and its send said `Ok`.
#[test]
fn whatever_is_accepted_while_close_runs_has_an_outcome() {
    for round in 0..100 {
        let rig = Rig::new(2);
        let producer = rig.producer(|b| b.max_batch_events(4).max_buffered_events(8));
        let barrier = Arc::new(Barrier::new(3));
        let senders: Vec<_> = (0..2)
            .map(|sender| {
                let (producer, barrier) = (producer.clone(), Arc::clone(&barrier));
                Running::start(move || {
                    barrier.wait();
                    let mut accepted = 0;
                    for n in 0..100 {
                        let target = to((sender + n) % 2);
                        match producer.enqueue_to(&target, n.to_string()) {
                            Ok(()) => accepted += 1,
                            Err(refused) => {
                                assert_eq!(*refused.reason(), EnqueueRefusal::Closed);
                                break;
                            }
                        }
                    }
                    accepted
                })
            })
            .collect();
        barrier.wait();
        let closing = producer.clone();
        let report = close_report(within(move || match round % 3 {
            0 => closing.close(),
            1 => closing.close_timeout(Duration::ZERO),
            _ => closing.abort(),
        }));
        let accepted: u64 = senders.into_iter().map(Running::result).sum();
        let returned: usize = report.unsent.iter().map(|(_, events)| events.len()).sum();
        assert_eq!(report.still_owned, []);
        assert_settled(&producer, accepted);
        let outcomes = producer.stats().outcomes();
        assert_eq!(outcomes.returned, returned as u64);
        let stored = rig.stored("0").len() + rig.stored("1").len();
        assert_eq!(outcomes.delivered + outcomes.indeterminate, stored as u64);
        assert_eq!(outcomes.failed, 0);
    }
}

#[test]
fn the_last_handle_drains() {
    let rig = Rig::new(1);
    let producer = rig.builder().build().unwrap();
    let clone = producer.clone();
    producer.enqueue_all(&to(0), events(0..3)).unwrap();
    drop(producer);
    assert!(rig.batches("0").is_empty());
    within(move || drop(clone));
    assert_eq!(rig.reports.delivered(), numbers(0..3));
    assert!(rig.peer.is_closed());
}

#[test]
fn the_last_handle_waits_for_its_time_out_and_no_longer() {
    let rig = Rig::stalled(1);
    let producer = rig
        .builder()
        .max_batch_events(2)
        .drop_timeout(2 * SECOND)
        .build()
        .unwrap();
    producer.enqueue_all(&to(0), events(0..5)).unwrap();
    rig.clock.settle();
    let dropping = Running::start(move || drop(producer));
    rig.clock.wait_for_callers(1);
    rig.clock.advance(2 * SECOND - MILLI);
    dropping.assert_blocked();
    rig.clock.advance(50 * MILLI);
    dropping.result();
    // Nobody reads what a drop hands back: it goes to the handler.
    assert_eq!(rig.reports.returned(), numbers(2..5));
    // The worker lives on for what is in flight, and then the transport is closed.
    assert!(!rig.peer.is_closed());
    rig.release();
    rig.clock.settle();
    assert_eq!(rig.reports.delivered(), numbers(0..2));
    assert_eventually(|| rig.peer.is_closed());
}

/// A worker's thread goes some time after its lane.
fn assert_eventually(condition: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < limit, "not within 20 s");
        std::thread::yield_now();
    }
}

#[test]
fn the_last_handle_may_go_inside_a_handler() {
    let rig = Rig::new(2);
    let slot: Arc<Mutex<Option<Producer>>> = Arc::default();
    let (in_handler, reports) = (Arc::clone(&slot), rig.reports.clone());
    let clock = rig.clock.clone();
    let producer = rig
        .bare()
        .max_batch_events(1)
        .on_delivery(move |report, enqueuer| {
            reports.push(crate::support::Report {
                partition: report.partition.to_string(),
                bodies: texts(report.events.iter().map(|e| &e.event)),
                outcome: report.outcome,
                attempts: report.attempts,
                at: clock.now(),
            });
            if let Some(last) = in_handler.lock().unwrap().take() {
                drop(last);
                let refused = enqueuer.try_enqueue("after").unwrap_err();
                assert_eq!(*refused.reason(), EnqueueRefusal::Closed);
            }
        })
        .build()
        .unwrap();
    let enqueuer = producer.enqueuer();
    let hold = slot.lock().unwrap();
    producer.enqueue_all(&to(0), events(0..3)).unwrap();
    producer.enqueue_to(&to(1), "3").unwrap();
    let mut hold = hold;
    *hold = Some(producer);
    drop(hold);
    assert_eventually(|| rig.peer.is_closed());
    rig.clock.settle();
    assert_eq!(rig.stored("0"), numbers(0..3));
    assert_eq!(rig.reports.delivered().len(), 4);
    let refused = enqueuer.enqueue_to(&to(0), "late").unwrap_err();
    assert_eq!(*refused.reason(), EnqueueRefusal::Closed);
    assert_eq!(text(&refused.into_event()), "late");
}

#[test]
fn an_enqueuer_does_not_keep_the_producer_open() {
    let rig = Rig::new(1);
    let producer = rig.builder().build().unwrap();
    let enqueuer = producer.enqueuer();
    enqueuer.try_enqueue_to(&to(0), "0").unwrap();
    within(move || drop(producer));
    assert_eq!(rig.stored("0"), ["0"]);
    assert!(rig.peer.is_closed());
    for target in [to(0), Target::Any] {
        let refused = enqueuer.enqueue_to(&target, "1").unwrap_err();
        assert_eq!(*refused.reason(), EnqueueRefusal::Closed);
    }
    enqueuer.flush().unwrap();
    enqueuer.close().unwrap();
}

#[test]
fn events_behind_a_flush_and_a_close_are_covered_by_both() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), "0").unwrap();
    let flushing = producer.clone();
    let flushing = Running::start(move || flushing.flush());
    rig.clock.wait_for_callers(1);
    producer.enqueue_to(&to(0), "1").unwrap();
    let closing = producer.clone();
    let closing = Running::start(move || closing.close());
    rig.rest(2);
    rig.release();
    flushing.result().unwrap();
    assert_eq!(closing.result().unwrap().outcomes, counts(2, 0, 0, 0));
    flush(&producer).unwrap();
}
