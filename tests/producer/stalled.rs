//! Lanes that do not move: what may be seen of them, and what they cost.

use crate::support::{MILLI, Rig, SECOND, assert_settled, events, flush, to, within};
use hublane::testing::Answer;
use hublane::{Event, PartitionId, Producer, Target};
use std::time::Duration;

fn engine(producer: &Producer) -> hublane::EngineStats {
    producer.stats().partitions[0].engine
}

#[test]
fn the_statistics_of_a_stuck_lane_go_on() {
    let rig = Rig::new(1);
    rig.peer
        .default_answer(Answer::reject("com.microsoft:timeout"));
    let producer = rig.producer(|b| b.max_batch_events(1));
    producer
        .enqueue_to(&to(0), "refused again and again")
        .unwrap();
    rig.clock.advance(60 * SECOND);
    assert!(producer.stats().retries() >= 3);
    let oldest = producer.stats().partitions[0].oldest_age;
    assert_eq!(oldest, Some(60 * SECOND));
    rig.peer.default_answer(Answer::accept());
    rig.clock.advance(60 * SECOND);
    assert_eq!(producer.stats().partitions[0].oldest_age, None);
    assert_settled(&producer, 1);
}

#[test]
fn events_behind_a_dead_link_do_not_each_wake_the_worker() {
    let rig = Rig::new(1);
    rig.peer.start_links_down();
    let producer = rig.producer(|b| b.max_batch_events(10));
    for event in events(0..10) {
        producer.enqueue_to(&to(0), event).unwrap();
    }
    rig.clock.advance(SECOND);
    let before = engine(&producer).wakes;
    for event in events(10..1010) {
        producer.enqueue_to(&to(0), event).unwrap();
        rig.clock.settle();
    }
    rig.clock.advance(SECOND);
    let wakes = engine(&producer).wakes - before;
    assert!(wakes <= 20, "{wakes} wakes for 1000 events in one second");
}

#[test]
fn refused_tries_do_not_each_wake_the_worker() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_buffered_events(1).max_batch_events(1));
    producer.enqueue_to(&to(0), "in flight").unwrap();
    rig.clock.settle();
    producer.try_enqueue_to(&to(0), "refused").unwrap_err();
    rig.clock.advance(MILLI);
    let before = engine(&producer).wakes;
    for _ in 0..1000 {
        producer.try_enqueue_to(&to(0), "refused").unwrap_err();
    }
    rig.clock.advance(MILLI);
    let wakes = engine(&producer).wakes - before;
    assert!(wakes <= 2, "{wakes} wakes for 1000 refusals");
}

#[test]
fn flushes_that_time_out_leave_nothing_behind() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_batch_events(1));
    producer.enqueue_to(&to(0), "in flight").unwrap();
    rig.clock.settle();
    for _ in 0..1000 {
        producer.flush_timeout(Duration::ZERO).unwrap_err();
    }
    rig.clock.settle();
    rig.release();
    assert_eq!(flush(&producer).unwrap().outcomes.delivered, 1);
    assert_settled(&producer, 1);
}

/// A set waits in the queue like anyone else, and is served in its turn.
#[test]
fn a_set_for_any_of_one_partition_is_not_passed_by_later_events() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_buffered_events(4).max_batch_events(1));
    for event in events(0..4) {
        producer.enqueue_to(&to(0), event).unwrap();
    }
    let set = producer.clone();
    let waiting = crate::support::Running::start(move || {
        set.enqueue_all(&Target::Any, vec![Event::from("s1"), Event::from("s2")])
    });
    rig.rest(1);
    // One permit comes back; it is not enough for the set, and nobody may take it from it.
    assert!(rig.peer.answer_held("0", Answer::accept()));
    rig.clock.settle();
    producer.try_enqueue_to(&to(0), "later").unwrap_err();
    assert!(rig.peer.answer_held("0", Answer::accept()));
    within(move || waiting.result()).unwrap();
    rig.release();
    rig.clock.settle();
    let partition = PartitionId::from("0");
    within({
        let producer = producer.clone();
        move || producer.flush_partition(&partition)
    })
    .unwrap();
    assert_eq!(rig.stored("0"), ["0", "1", "2", "3", "s1", "s2"]);
}
