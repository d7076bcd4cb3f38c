//! Flush as an exact cut.

use crate::support::{
    MILLI, Rig, Running, SECOND, assert_settled, close_report, counts, events, flush, numbers, to,
    within,
};
use hublane::testing::Answer;
use hublane::{FlushError, FlushReport, PartitionId, Producer};
use std::sync::mpsc;
use std::time::Duration;

const FATAL: &str = "amqp:not-allowed";

fn start_flush(producer: &Producer) -> Running<Result<FlushReport, FlushError>> {
    let producer = producer.clone();
    Running::start(move || producer.flush())
}

fn failures(result: Result<FlushReport, FlushError>) -> hublane::Counts {
    match result {
        Err(FlushError::Failures(report)) => report.outcomes,
        other => panic!("expected failures: {other:?}"),
    }
}

/// azure-sdk-for-python 23510.
#[test]
fn a_flush_with_nothing_to_do_returns_at_once() {
    let rig = Rig::new(3);
    let producer = rig.producer(|b| b);
    assert_eq!(flush(&producer).unwrap(), FlushReport::default());
    producer.enqueue_to(&to(0), "0").unwrap();
    assert_eq!(flush(&producer).unwrap().outcomes.delivered, 1);
    assert_eq!(flush(&producer).unwrap(), FlushReport::default());
}

#[test]
fn flushes_wait_for_a_batch_in_flight_and_share_its_settlement() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), "0").unwrap();
    rig.clock.advance(SECOND);
    assert_eq!(rig.peer.held("0"), 1);
    let flushes: Vec<_> = (0..3).map(|_| start_flush(&producer)).collect();
    rig.rest(3);
    for flush in &flushes {
        flush.assert_blocked();
    }
    rig.release();
    for flush in flushes {
        assert_eq!(flush.result().unwrap().outcomes, counts(1, 0, 0, 0));
    }
}

/// azure-sdk-for-python 25406.
#[test]
fn a_flush_that_times_out_says_what_is_left_and_loses_nothing() {
    let rig = Rig::stalled(2);
    let producer = rig.producer(|b| b);
    producer.enqueue_all(&to(0), events(0..3)).unwrap();
    producer.enqueue_all(&to(1), events(3..5)).unwrap();
    rig.clock.advance(SECOND);
    assert!(rig.peer.answer_held("1", Answer::accept()));
    let (flushing, clock) = (producer.clone(), rig.clock.clone());
    let start = rig.clock.now();
    let call = Running::start(move || (flushing.flush_timeout(50 * MILLI), clock.now()));
    rig.rest(1);
    rig.clock.advance(50 * MILLI);
    let (result, end) = call.result();
    assert_eq!(end - start, 50 * MILLI);
    match result {
        Err(FlushError::TimedOut {
            outstanding,
            report,
        }) => {
            assert_eq!(outstanding, 3);
            assert_eq!(report.outcomes, counts(2, 0, 0, 0));
        }
        other => panic!("expected a time-out: {other:?}"),
    }
    assert_eq!(producer.stats().outstanding_events(), 3);
    rig.release();
    flush(&producer).unwrap();
    assert_settled(&producer, 5);
    assert_eq!(rig.stored("0"), numbers(0..3));
}

/// azure-sdk-for-net 58969, -java 44879, librdkafka 3489.
#[test]
fn a_flush_ends_batching_waits_without_any_time_going_by() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| b.max_wait_time(60 * SECOND));
    let start = rig.clock.now();
    producer.enqueue_to(&to(0), "0").unwrap();
    assert_eq!(flush(&producer).unwrap().outcomes.delivered, 1);
    assert_eq!(rig.clock.now(), start);
}

/// azure-sdk-for-net 32871.
#[test]
fn flush_works_again_and_again() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| b);
    for n in 0..10 {
        producer.enqueue_to(&to(0), n.to_string()).unwrap();
        assert_eq!(flush(&producer).unwrap().outcomes, counts(1, 0, 0, 0));
        assert_eq!(rig.stored("0"), numbers(0..n + 1));
    }
}

/// azure-sdk-for-java 33813.
#[test]
fn a_flush_returns_after_the_settlement_and_after_the_handler() {
    let rig = Rig::new(1);
    rig.peer.default_answer(Answer::accept().after(300 * MILLI));
    let (enter, entered) = mpsc::channel();
    let (leave, left) = mpsc::channel();
    let left = std::sync::Mutex::new(left);
    let producer = rig
        .bare()
        .on_delivery(move |_, _| {
            enter.send(()).unwrap();
            let patience = Duration::from_secs(20);
            left.lock().unwrap().recv_timeout(patience).unwrap();
        })
        .build()
        .unwrap();
    producer.enqueue_to(&to(0), "0").unwrap();
    let flushing = start_flush(&producer);
    rig.rest(1);
    rig.clock.advance(300 * MILLI - Duration::from_nanos(1));
    flushing.assert_blocked();
    let (clock, time) = (rig.clock.clone(), Duration::from_nanos(1));
    let advancing = Running::start(move || clock.advance(time));
    within(move || entered.recv().unwrap());
    rig.clock.wait_for_callers(1);
    flushing.assert_blocked();
    leave.send(()).unwrap();
    assert_eq!(flushing.result().unwrap().outcomes.delivered, 1);
    advancing.result();
}

/// outboxx 110.
#[test]
fn a_failure_makes_the_next_flush_an_error_and_only_that() {
    let rig = Rig::new(1);
    rig.peer.script("0", Answer::reject(FATAL));
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), "0").unwrap();
    rig.clock.advance(SECOND);
    assert_eq!(rig.reports.failed(), ["0"]);
    producer.enqueue_to(&to(0), "1").unwrap();
    assert_eq!(failures(flush(&producer)), counts(1, 1, 0, 0));
    producer.enqueue_to(&to(0), "2").unwrap();
    assert_eq!(flush(&producer).unwrap().outcomes, counts(1, 0, 0, 0));
}

#[test]
fn a_flush_does_not_cover_what_comes_after_it() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_wait_time(60 * SECOND));
    producer.enqueue_to(&to(0), "0").unwrap();
    let flushing = start_flush(&producer);
    rig.rest(1);
    producer.enqueue_to(&to(0), "1").unwrap();
    assert!(rig.peer.answer_held("0", Answer::accept()));
    assert_eq!(flushing.result().unwrap().outcomes, counts(1, 0, 0, 0));
    // Nor does it send it.
    rig.clock.settle();
    assert_eq!(rig.batches("0"), [1]);
    assert_eq!(producer.stats().outstanding_events(), 1);
}

#[test]
fn a_later_flush_waits_for_its_own_events() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), "0").unwrap();
    let first = start_flush(&producer);
    rig.rest(1);
    producer.enqueue_to(&to(0), "1").unwrap();
    let second = start_flush(&producer);
    rig.rest(2);
    assert!(rig.peer.answer_held("0", Answer::accept()));
    assert_eq!(first.result().unwrap().outcomes, counts(1, 0, 0, 0));
    rig.clock.settle();
    second.assert_blocked();
    assert!(rig.peer.answer_held("0", Answer::accept()));
    assert_eq!(second.result().unwrap().outcomes, counts(2, 0, 0, 0));
}

#[test]
fn overlapping_flushes_both_see_a_failure() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), "0").unwrap();
    let first = start_flush(&producer);
    rig.rest(1);
    let second = start_flush(&producer);
    rig.rest(2);
    assert!(rig.peer.answer_held("0", Answer::reject(FATAL)));
    assert_eq!(failures(first.result()), counts(0, 1, 0, 0));
    assert_eq!(failures(second.result()), counts(0, 1, 0, 0));
    assert_eq!(flush(&producer).unwrap(), FlushReport::default());
}

#[test]
fn a_flush_that_timed_out_swallows_no_failure() {
    let rig = Rig::stalled(2);
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), "0").unwrap();
    producer.enqueue_to(&to(1), "1").unwrap();
    let flushing = producer.clone();
    let call = Running::start(move || flushing.flush_timeout(SECOND));
    rig.rest(1);
    // Partition 0 fails before the time-out, partition 1 after it: nobody has returned with
    // either, and the next flush that is complete must tell of both.
    assert!(rig.peer.answer_held("0", Answer::reject(FATAL)));
    rig.clock.settle();
    rig.clock.advance(SECOND);
    assert!(matches!(call.result(), Err(FlushError::TimedOut { .. })));
    assert!(rig.peer.answer_held("1", Answer::reject(FATAL)));
    rig.clock.settle();
    assert_eq!(failures(flush(&producer)), counts(0, 2, 0, 0));
    assert_eq!(flush(&producer).unwrap(), FlushReport::default());
}

#[test]
fn a_flush_of_one_partition_waits_for_no_other() {
    let rig = Rig::stalled(2);
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), "0").unwrap();
    producer.enqueue_to(&to(1), "1").unwrap();
    rig.peer.script("1", Answer::accept());
    let (flushing, id) = (producer.clone(), PartitionId::from("1"));
    let report = within(move || flushing.flush_partition(&id)).unwrap();
    assert_eq!(report.outcomes, counts(1, 0, 0, 0));
    let unknown = PartitionId::from("2");
    assert_eq!(
        producer.flush_partition(&unknown),
        Err(FlushError::UnknownPartition(unknown))
    );
    rig.release();
    assert_eq!(flush(&producer).unwrap().outcomes, counts(1, 0, 0, 0));
}

#[test]
fn a_worker_that_dies_breaks_the_flush_that_waits_for_it() {
    let rig = Rig::new(2);
    rig.peer.script("0", Answer::panic());
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), "0").unwrap();
    producer.enqueue_to(&to(1), "1").unwrap();
    match flush(&producer) {
        Err(FlushError::LaneDied(report)) => assert_eq!(report.outcomes.delivered, 1),
        other => panic!("expected the death of a lane: {other:?}"),
    }
    // The next one is whole, and tells what became of the event.
    let outcomes = failures(flush(&producer));
    assert_eq!(outcomes.failed + outcomes.indeterminate, 1);
    assert_eq!(flush(&producer).unwrap(), FlushReport::default());
}

#[test]
fn a_flush_after_close_tells_what_nobody_was_told() {
    let rig = Rig::new(1);
    rig.peer.script("0", Answer::reject(FATAL));
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), "0").unwrap();
    rig.clock.advance(SECOND);
    let closing = producer.clone();
    let report = close_report(within(move || closing.close()));
    assert_eq!(report.outcomes, counts(0, 1, 0, 0));
    assert_eq!(flush(&producer).unwrap(), FlushReport::default());
}

/// opentelemetry-rust 3453, without a model: many flushes beside many enqueues.
#[test]
fn what_was_accepted_before_a_flush_has_its_outcome_when_it_returns() {
    let rig = Rig::new(3);
    let producer = rig.producer(|b| b.max_batch_events(7).max_buffered_events(50));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let producer = producer.clone();
            Running::start(move || {
                for n in 0..200 {
                    let target = to((n + thread) % 3);
                    let ticket = producer.enqueue_tracked(&target, n.to_string()).unwrap();
                    if n % 9 == 0 {
                        producer.flush().unwrap();
                        assert!(ticket.poll().is_some());
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.result();
    }
    flush(&producer).unwrap();
    assert_settled(&producer, 800);
}
