//! Links go and come back.

use crate::support::*;
use hublane::{Event, Target};
use hublane_emulator::{Disruption, Emulator, Fault, Step};

#[test]
fn a_link_that_was_detached_for_idleness_comes_back_unnoticed() {
    let (emulator, hub) = start(Emulator::builder(), 2);
    let producer = producer(&emulator);
    deliver(&producer, 0, &["a"]);
    let attaches = emulator.stats().attaches;
    let hit = emulator.disrupt(Disruption::detach_links(
        "amqp:link:detach-forced",
        "idle for 30 minutes",
    ));
    assert_eq!(hit, 1);
    eventually("the link is attached again", || {
        emulator.stats().attaches > attaches
    });
    deliver(&producer, 0, &["b"]);
    assert_eq!(stored(&hub, 0), ["a", "b"]);
    assert_eq!(producer.stats().retries(), 0);
    assert_eq!(emulator.stats().connections, 1);
}

#[test]
fn an_idle_connection_that_was_closed_comes_back_unnoticed() {
    let (emulator, hub) = start(Emulator::builder(), 1);
    let producer = producer(&emulator);
    deliver(&producer, 0, &["a"]);
    emulator.disrupt(Disruption::close_connections(
        "amqp:connection:forced",
        "idle for 5 minutes",
    ));
    eventually("a new connection", || emulator.stats().connections == 2);
    deliver(&producer, 0, &["b"]);
    assert_eq!(stored(&hub, 0), ["a", "b"]);
    assert_eq!(producer.stats().resends_after_unknown(), 0);
    assert_eq!(emulator.stats().connections, 2);
}

#[test]
fn a_detach_instead_of_an_answer_is_an_unknown_outcome() {
    let (emulator, hub) = start(Emulator::builder(), 1);
    let producer = producer(&emulator);
    deliver(&producer, 0, &["a"]);
    emulator
        .faults()
        .push(Fault::detach_link("amqp:link:detach-forced", "moving"));
    deliver(&producer, 0, &["b"]);
    assert_eq!(stored(&hub, 0), ["a", "b"]);
    assert_eq!(producer.stats().resends_after_unknown(), 1);
    assert_eq!(emulator.stats().connections, 1);
}

#[test]
fn an_end_of_a_session_takes_one_link_down_and_no_more() {
    let (emulator, hub) = start(Emulator::builder(), 2);
    let producer = producer(&emulator);
    deliver(&producer, 0, &["a"]);
    deliver(&producer, 1, &["a"]);
    let attaches = emulator.stats().attaches;
    let fault = Fault::end_session(Step::Transfer, "amqp:internal-error", "gone").partition(0);
    emulator.faults().push(fault);
    deliver(&producer, 0, &["b"]);
    deliver(&producer, 1, &["b"]);
    assert_eq!(stored(&hub, 0), ["a", "b"]);
    assert_eq!(stored(&hub, 1), ["a", "b"]);
    assert_eq!(emulator.stats().attaches, attaches + 1);
    assert_eq!(emulator.stats().connections, 1);
}

#[test]
fn a_refused_link_is_tried_again_and_holds_up_no_other() {
    let (emulator, hub) = start(Emulator::builder(), 2);
    let producer = producer(&emulator);
    let refuse = Fault::refuse_attach("amqp:internal-error", "not yet").partition(1);
    let id = emulator.faults().push(refuse.always());
    enqueue(&producer, 1, &["late"]);
    assert!(emulator.faults().wait_fired(id, 2, LIMIT));
    enqueue(&producer, 0, &["a"]);
    producer.flush_partition(&"0".into()).unwrap();
    assert_eq!(stored(&hub, 0), ["a"]);
    emulator.faults().remove(id);
    producer.flush_timeout(LIMIT).unwrap();
    assert_eq!(stored(&hub, 1), ["late"]);
}

#[test]
fn a_link_without_credit_waits_and_holds_up_no_other() {
    let (emulator, hub) = start(Emulator::builder(), 2);
    let producer = builder(&emulator, options())
        .max_in_flight(4)
        .build()
        .unwrap();
    let withheld = Fault::withhold_credit(2000 * MILLI).partition(0);
    let id = emulator.faults().push(withheld);
    let target = Target::Partition("0".into());
    for n in 0..20 {
        producer
            .enqueue_to(&target, Event::new(n.to_string()))
            .unwrap();
    }
    assert!(emulator.faults().wait_fired(id, 1, LIMIT));
    enqueue(&producer, 1, &["b"]);
    producer.flush_partition(&"1".into()).unwrap();
    assert_eq!(stored(&hub, 1), ["b"]);
    assert_eq!(stored(&hub, 0).len(), 0);
    producer.flush_timeout(LIMIT).unwrap();
    assert_eq!(stored(&hub, 0).len(), 20);
    assert_eq!(producer.stats().retries(), 0);
}

#[test]
fn little_credit_only_slows() {
    let (emulator, hub) = start(Emulator::builder().link_credit(1), 1);
    let producer = builder(&emulator, options())
        .max_in_flight(8)
        .max_batch_events(3)
        .build()
        .unwrap();
    let bodies: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    deliver(&producer, 0, &bodies);
    assert_eq!(stored(&hub, 0), bodies);
}

#[test]
fn a_batch_of_many_frames_arrives_whole() {
    let (emulator, hub) = start(Emulator::builder(), 1);
    let producer = builder(&emulator, options().max_frame_size(1024))
        .max_batch_bytes(500_000)
        .build()
        .unwrap();
    let large = "x".repeat(300_000);
    deliver(
        &producer,
        0,
        &[&large, "a", &"y".repeat(900), &"z".repeat(1000)],
    );
    let lengths: Vec<_> = stored(&hub, 0).iter().map(String::len).collect();
    assert_eq!(lengths, [300_000, 1, 900, 1000]);
    assert_eq!(emulator.stats().protocol_errors, 0);
}
