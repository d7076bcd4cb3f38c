//! What goes into a batch, and when it goes.

use crate::support::{
    MILLI, Rig, Running, SECOND, assert_settled, counts, events, flush, numbers, to, within,
};
use hublane::codec::{encoded_len, section_len};
use hublane::testing::{Answer, Transfer};
use hublane::{Event, PartitionId, RetryPolicy};
use std::time::{Duration, Instant};

/// When each transfer on `partition` was made, counted from `start`.
fn instants(rig: &Rig, partition: &str, start: Instant) -> Vec<Duration> {
    let transfers = rig.peer.transfers(partition);
    transfers.iter().map(|t| t.at - start).collect()
}

/// azure-sdk-for-python 34711.
#[test]
fn an_event_that_comes_while_a_batch_is_in_flight_follows_it() {
    for by_age in [false, true] {
        let rig = Rig::stalled(1);
        let producer = rig.producer(|b| b.max_batch_events(4));
        for event in events(0..4) {
            producer.enqueue_to(&to(0), event).unwrap();
        }
        rig.clock.settle();
        assert_eq!(rig.peer.held("0"), 1);
        producer.enqueue_to(&to(0), "4").unwrap();
        rig.release();
        if by_age {
            rig.clock.advance(SECOND);
        } else {
            flush(&producer).unwrap();
        }
        assert_eq!(rig.stored("0"), numbers(0..5));
        assert_eq!(rig.reports.delivered(), numbers(0..5));
        assert_settled(&producer, 5);
    }
}

/// azure-sdk-for-net 47547.
#[test]
fn a_batch_has_at_most_the_greatest_number_of_events() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| b.max_batch_events(10));
    for event in events(0..25) {
        producer.enqueue_to(&to(0), event).unwrap();
    }
    flush(&producer).unwrap();
    assert_eq!(rig.batches("0"), [10, 10, 5]);
    let set = events(25..50);
    producer.enqueue_all(&to(0), set).unwrap();
    flush(&producer).unwrap();
    assert_eq!(rig.batches("0"), [10, 10, 5, 10, 10, 5]);
    assert_eq!(rig.stored("0"), numbers(0..50));
    let seals = producer.stats().partitions[0].engine.core.seals;
    assert_eq!((seals.count, seals.flush), (4, 2));
}

#[test]
fn a_full_batch_goes_without_waiting_for_time() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| b.max_batch_events(10).max_wait_time(60 * SECOND));
    for event in events(0..9) {
        producer.enqueue_to(&to(0), event).unwrap();
    }
    rig.clock.settle();
    assert!(rig.batches("0").is_empty());
    producer.enqueue_to(&to(0), "9").unwrap();
    rig.clock.settle();
    assert_eq!(rig.batches("0"), [10]);
}

#[test]
fn a_batch_is_filled_to_its_limit_in_bytes_and_not_beyond() {
    // The headers of a message change at 256 bytes: both sides of that, and mixtures.
    for body in [
        1, 200, 243, 244, 245, 246, 247, 248, 249, 250, 255, 256, 300,
    ] {
        let event = || Event::from("x".repeat(body));
        let section = section_len(encoded_len(&event(), None));
        for (limit, per_batch) in [(4 * section, 4), (4 * section - 1, 3), (3 * section + 1, 3)] {
            let rig = Rig::new(1);
            rig.peer.set_max_message_size(limit as u64);
            let producer = rig.producer(|b| b);
            let set = (0..12).map(|_| event()).collect();
            producer.enqueue_all(&to(0), set).unwrap();
            flush(&producer).unwrap();
            let full = 12 / per_batch;
            assert_eq!(rig.batches("0"), vec![per_batch; full]);
            for Transfer { payload, .. } in rig.peer.transfers("0") {
                assert!(payload.as_bytes().len() <= limit);
            }
        }
    }
}

#[test]
fn an_event_beyond_the_batch_size_goes_alone() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| b.max_batch_bytes(1000));
    producer.enqueue_to(&to(0), "before").unwrap();
    producer.enqueue_to(&to(0), "x".repeat(2000)).unwrap();
    producer.enqueue_to(&to(0), "after").unwrap();
    assert_eq!(flush(&producer).unwrap().outcomes.delivered, 3);
    assert_eq!(rig.batches("0"), [1, 1, 1]);
}

#[test]
fn an_event_waits_for_its_age_and_not_longer() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| b.max_wait_time(SECOND));
    let start = rig.clock.now();
    rig.clock.advance(7 * SECOND);
    producer.enqueue_to(&to(0), "first").unwrap();
    rig.clock.settle();
    rig.clock.advance(600 * MILLI);
    producer.enqueue_to(&to(0), "second").unwrap();
    rig.clock.advance(400 * MILLI - Duration::from_nanos(1));
    assert!(rig.batches("0").is_empty());
    rig.clock.advance(Duration::from_nanos(1));
    assert_eq!(rig.batches("0"), [2]);
    assert_eq!(instants(&rig, "0", start), [8 * SECOND]);
    assert_eq!(producer.stats().partitions[0].engine.core.seals.age, 1);
}

/// opentelemetry-collector 13717.
#[test]
fn the_age_of_a_trickle_does_not_drift() {
    let rig = Rig::new(1);
    rig.peer.default_answer(Answer::accept().after(3 * MILLI));
    let wait = 100 * MILLI;
    let producer = rig.producer(|b| b.max_wait_time(wait));
    let mut born = Vec::new();
    for n in 0..3600 * 100 / 37 {
        born.push(rig.clock.now());
        producer.enqueue_to(&to(0), n.to_string()).unwrap();
        rig.clock.advance(37 * MILLI);
    }
    flush_slowly(&rig, &producer);
    let mut first = 0;
    for transfer in rig.peer.transfers("0") {
        let age = transfer.at - born[first];
        // A batch that came of age while the one before it was unanswered goes right after.
        assert!(age <= wait + 3 * MILLI, "event {first} waited {age:?}");
        first += transfer.payload.count();
    }
    assert_eq!(rig.stored("0"), numbers(0..born.len()));
    let batches = rig.batches("0").len();
    // Three or four events share a window: batching did happen.
    assert!(batches < born.len() / 2, "{batches} batches");
}

fn flush_slowly(rig: &Rig, producer: &hublane::Producer) {
    let producer = producer.clone();
    let flushing = Running::start(move || producer.flush());
    flushing.result_in_time(&rig.clock, MILLI).unwrap();
}

#[test]
fn what_came_of_age_behind_a_busy_link_goes_the_moment_it_is_free() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_wait_time(SECOND));
    let start = rig.clock.now();
    producer.enqueue_to(&to(0), "0").unwrap();
    rig.clock.advance(SECOND);
    for n in 1..6 {
        producer.enqueue_to(&to(0), n.to_string()).unwrap();
        rig.clock.advance(SECOND);
    }
    assert_eq!(rig.batches("0"), [1]);
    assert!(rig.peer.answer_held("0", Answer::accept()));
    rig.clock.settle();
    // All that fits by then, the youngest included, which is not of age itself.
    assert_eq!(rig.batches("0"), [1, 5]);
    assert_eq!(instants(&rig, "0", start), [SECOND, 6 * SECOND]);
}

#[test]
fn a_link_that_takes_nothing_lets_the_batch_grow() {
    let rig = Rig::new(1);
    rig.peer.script("0", Answer::busy());
    let producer = rig.producer(|b| b.max_wait_time(SECOND));
    producer.enqueue_to(&to(0), "0").unwrap();
    rig.clock.advance(SECOND);
    for event in events(1..4) {
        producer.enqueue_to(&to(0), event).unwrap();
    }
    rig.clock.advance(SECOND);
    assert!(rig.batches("0").is_empty());
    rig.peer.ready("0");
    rig.clock.settle();
    assert_eq!(rig.batches("0"), [4]);
    assert_eq!(rig.stored("0"), numbers(0..4));
    let stats = producer.stats();
    assert_eq!(stats.retries(), 0);
    assert_eq!(stats.partitions[0].engine.core.seals.total(), 1);
}

#[test]
fn a_bound_smaller_than_a_batch_stalls_nobody() {
    let rig = Rig::new(1);
    let wait = 60 * SECOND;
    let producer = rig.producer(|b| b.max_buffered_events(3).max_wait_time(wait));
    let start = rig.clock.now();
    for event in events(0..20) {
        let waiting = producer.clone();
        within(move || waiting.enqueue_to(&to(0), event)).unwrap();
    }
    flush(&producer).unwrap();
    assert_eq!(rig.stored("0"), numbers(0..20));
    // Time stood still: it was those who waited that sealed.
    assert_eq!(rig.clock.now(), start);
    assert!(producer.stats().partitions[0].engine.core.seals.pressure > 0);
}

#[test]
fn a_refused_try_seals_what_stands_in_its_way() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| b.max_buffered_events(3));
    for event in events(0..3) {
        producer.try_enqueue_to(&to(0), event).unwrap();
    }
    assert!(producer.try_enqueue_to(&to(0), "3").is_err());
    rig.clock.settle();
    producer.try_enqueue_to(&to(0), "3").unwrap();
    assert_eq!(rig.stored("0"), numbers(0..3));
}

/// azure-sdk-for-python 38961.
#[test]
fn every_partition_sends_on_time() {
    let rig = Rig::new(32);
    let producer = rig.producer(|b| b.max_wait_time(100 * MILLI));
    let start = rig.clock.now();
    for n in 0..32 {
        producer.enqueue_to(&to(n), n.to_string()).unwrap();
    }
    rig.clock.advance(100 * MILLI);
    for n in 0..32 {
        assert_eq!(instants(&rig, &n.to_string(), start), [100 * MILLI]);
    }
    assert_settled(&producer, 32);
}

#[test]
fn a_stuck_partition_slows_no_other() {
    let rig = Rig::new(2);
    rig.peer.script("0", Answer::hold());
    let producer = rig.producer(|b| b.max_buffered_events(4));
    producer.enqueue_all(&to(0), events(0..2)).unwrap();
    producer.enqueue_all(&to(0), events(2..4)).unwrap();
    assert!(producer.try_enqueue_to(&to(0), "full").is_err());
    for n in 0..100 {
        let waiting = producer.clone();
        within(move || waiting.enqueue_to(&to(1), n.to_string())).unwrap();
    }
    let id = PartitionId::from("1");
    let flushing = producer.clone();
    within(move || flushing.flush_partition(&id)).unwrap();
    assert_eq!(rig.stored("1"), numbers(0..100));
    assert_eq!(rig.stored("0").len(), 0);
}

/// azure-sdk-for-net 28926.
#[test]
fn idle_partitions_are_not_woken() {
    let rig = Rig::new(32);
    let producer = rig.producer(|b| b);
    for n in 0..32 {
        producer.enqueue_to(&to(n), "once").unwrap();
    }
    flush(&producer).unwrap();
    rig.clock.settle();
    let before = producer.stats();
    rig.clock.advance(24 * 3600 * SECOND);
    // A worker publishes its wakes with its reports: so make one more.
    for n in 0..32 {
        producer.enqueue_to(&to(n), "again").unwrap();
    }
    flush(&producer).unwrap();
    for (before, after) in before.partitions.iter().zip(producer.stats().partitions) {
        let wakes = after.engine.wakes - before.engine.wakes;
        // Parked after the last flush, then the event, this flush, the settlement.
        assert!(wakes <= 4, "{wakes} wakes");
    }
}

#[test]
fn partitions_that_are_not_used_have_no_worker() {
    let rig = Rig::new(32);
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(7), "only").unwrap();
    flush(&producer).unwrap();
    let stats = producer.stats();
    assert_eq!(stats.partitions.len(), 1);
    assert_eq!(stats.partitions[0].partition.as_str(), "7");
}

#[test]
fn a_batch_costs_few_wakes() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| b.max_wait_time(SECOND));
    rig.clock.settle();
    let rounds: u64 = 50;
    for _ in 0..rounds {
        for event in events(0..100) {
            producer.enqueue_to(&to(0), event).unwrap();
        }
        rig.clock.advance(2 * SECOND);
    }
    let engine = producer.stats().partitions[0].engine;
    assert_eq!(engine.core.seals.total(), rounds);
    assert!(engine.producer_unparks <= rounds, "{engine:?}");
    // First event, age, settlement; and the link's news at the start.
    assert!(engine.wakes <= 3 * rounds + 3, "{engine:?}");
}

#[test]
fn a_link_that_comes_up_later_gets_what_waits() {
    let rig = Rig::new(1);
    rig.peer.start_links_down();
    let producer = rig.producer(|b| b);
    producer.enqueue_all(&to(0), events(0..3)).unwrap();
    rig.clock.advance(10 * SECOND);
    assert!(rig.batches("0").is_empty());
    assert_eq!(producer.stats().outstanding_events(), 3);
    rig.peer.link_up("0");
    rig.clock.settle();
    assert_eq!(rig.stored("0"), numbers(0..3));
}

#[test]
fn a_link_that_comes_back_smaller_splits_what_was_not_sent() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), "opens the lane").unwrap();
    flush(&producer).unwrap();
    rig.peer.link_down("0");
    rig.clock.settle();
    for n in 0..6 {
        let event = format!("{n:0200}");
        producer.enqueue_to(&to(0), event).unwrap();
    }
    producer.enqueue_to(&to(0), "x".repeat(700)).unwrap();
    producer.enqueue_to(&to(0), "last").unwrap();
    rig.clock.advance(5 * SECOND);
    rig.peer.set_max_message_size(600);
    rig.peer.link_up("0");
    rig.clock.advance(SECOND);
    assert_eq!(flush(&producer).unwrap_err().to_string(), {
        "1 failed, 0 indeterminate, 0 returned"
    });
    for transfer in &rig.peer.transfers("0")[1..] {
        assert!(transfer.payload.len_bytes() <= 600);
    }
    let mut expected: Vec<_> = (0..6).map(|n| format!("{n:0200}")).collect();
    expected.insert(0, "opens the lane".to_owned());
    expected.push("last".to_owned());
    assert_eq!(rig.stored("0"), expected);
    assert_eq!(rig.reports.failed(), ["x".repeat(700)]);
    assert_settled(&producer, 9);
}

#[test]
fn with_a_window_batches_go_without_waiting_for_answers() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| {
        b.max_in_flight(3)
            .max_batch_events(2)
            .retry(RetryPolicy::default())
    });
    for event in events(0..10) {
        producer.enqueue_to(&to(0), event).unwrap();
    }
    rig.clock.settle();
    assert_eq!(rig.batches("0"), [2, 2, 2]);
    assert!(rig.peer.answer_held("0", Answer::accept()));
    rig.clock.settle();
    assert_eq!(rig.batches("0"), [2, 2, 2, 2]);
    rig.release();
    assert_eq!(flush(&producer).unwrap().outcomes, counts(10, 0, 0, 0));
    assert_settled(&producer, 10);
}
