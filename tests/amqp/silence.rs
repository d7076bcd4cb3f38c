//! Peers that say nothing, or take nothing.

use crate::support::*;
use hublane_emulator::{Disruption, Emulator, Fault, Moment, Step};

/// One batch is not answered while others are: its link is attached anew.
#[test]
fn a_batch_without_an_answer_is_sent_again_over_a_new_link() {
    let (emulator, hub) = start(Emulator::builder(), 2);
    let options = options().operation_timeout(500 * MILLI);
    let producer = builder(&emulator, options).build().unwrap();
    deliver(&producer, 0, &["a"]);
    let fault = Fault::never_settle(Moment::BeforeStore);
    let id = emulator.faults().push(fault);
    enqueue(&producer, 0, &["b"]);
    assert!(emulator.faults().wait_fired(id, 1, LIMIT));
    // The other link is answered meanwhile, so the connection is not suspected.
    eventually("the batch is sent again", || {
        deliver_one(&producer, 1);
        producer.stats().resends_after_unknown() == 1
    });
    producer.flush_timeout(LIMIT).unwrap();
    assert_eq!(stored(&hub, 0), ["a", "b"]);
    assert_eq!(emulator.stats().connections, 1);
}

fn deliver_one(producer: &hublane::Producer, partition: usize) {
    enqueue(producer, partition, &["x"]);
    let id = partition.to_string();
    producer.flush_partition(&id.as_str().into()).unwrap();
}

#[test]
fn a_silent_peer_is_left_for_a_new_connection() {
    for fault in [
        Fault::silence(Step::Transfer),
        Fault::freeze(Step::Transfer),
    ] {
        let (emulator, hub) = start(Emulator::builder(), 1);
        let options = options().operation_timeout(500 * MILLI);
        let producer = builder(&emulator, options).build().unwrap();
        deliver(&producer, 0, &["a"]);
        emulator.faults().push(fault);
        deliver(&producer, 0, &["b"]);
        assert_eq!(stored(&hub, 0).last().unwrap(), "b");
        assert!(producer.stats().resends_after_unknown() >= 1);
        assert!(emulator.stats().connections >= 2);
    }
}

/// A peer that reads nothing while megabytes wait for it: the socket is stuck in the middle of a
/// frame, and neither timers nor other work may be.
#[test]
fn a_peer_that_takes_no_bytes_is_left_for_a_new_connection() {
    let (emulator, hub) = start(Emulator::builder(), 2);
    let options = options().operation_timeout(1000 * MILLI);
    let producer = builder(&emulator, options)
        .max_in_flight(32)
        .max_batch_bytes(1_000_000)
        .build()
        .unwrap();
    deliver(&producer, 0, &["a"]);
    emulator.faults().push(Fault::freeze(Step::Transfer));
    let large = "x".repeat(900_000);
    for _ in 0..10 {
        enqueue(&producer, 0, &[&large]);
        enqueue(&producer, 1, &[&large]);
    }
    producer.flush_timeout(LIMIT).unwrap();
    assert!(hub.len() >= 21);
    assert!(emulator.stats().connections >= 2);
}

#[test]
fn a_peer_that_is_silent_while_nothing_is_asked_is_noticed_by_its_idle_time() {
    let (emulator, _) = start(Emulator::builder(), 1);
    let options = options().idle_time_out(500 * MILLI);
    let producer = builder(&emulator, options).build().unwrap();
    deliver(&producer, 0, &["a"]);
    std::thread::sleep(1500 * MILLI);
    assert_eq!(emulator.stats().connections, 1, "heartbeats keep it");
    emulator.disrupt(Disruption::silence());
    eventually("a new connection", || emulator.stats().connections == 2);
}

#[test]
fn a_peer_with_a_short_idle_time_hears_heartbeats() {
    let (emulator, _) = start(Emulator::builder().idle_time_out(500 * MILLI), 1);
    let producer = producer(&emulator);
    deliver(&producer, 0, &["a"]);
    std::thread::sleep(2000 * MILLI);
    deliver(&producer, 0, &["b"]);
    assert_eq!(emulator.stats().connections, 1);
}

#[test]
fn an_attach_without_an_answer_is_tried_again() {
    let (emulator, hub) = start(Emulator::builder(), 2);
    let options = options().operation_timeout(200 * MILLI);
    let producer = builder(&emulator, options).build().unwrap();
    let id = emulator.faults().push(Fault::no_answer(Step::Attach));
    deliver(&producer, 0, &["a"]);
    assert_eq!(emulator.faults().fired(id), 1);
    assert_eq!(stored(&hub, 0), ["a"]);
}
