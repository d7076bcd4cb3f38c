//! Connections that break with batches in flight.

use crate::support::*;
use hublane_emulator::{Disruption, Emulator, Fault, SocketDrop, Step};

/// A socket that ends before the batch is stored: sent again, stored once.
#[test]
fn a_batch_whose_connection_broke_before_it_was_stored_is_sent_again() {
    for how in [SocketDrop::Reset, SocketDrop::Finish] {
        let (emulator, hub) = start(Emulator::builder(), 1);
        let producer = producer(&emulator);
        deliver(&producer, 0, &["a"]);
        emulator
            .faults()
            .push(Fault::drop_socket(Step::Transfer, how));
        deliver(&producer, 0, &["b"]);
        assert_eq!(stored(&hub, 0), ["a", "b"]);
        assert_eq!(producer.stats().resends_after_unknown(), 1);
        assert_eq!(emulator.stats().connections, 2);
    }
}

/// A socket that ends after the batch is stored: a duplicate, which is counted.
#[test]
fn a_batch_whose_connection_broke_after_it_was_stored_is_counted_as_resent() {
    for how in [SocketDrop::Reset, SocketDrop::Finish] {
        let (emulator, hub) = start(Emulator::builder(), 1);
        let producer = producer(&emulator);
        emulator.faults().push(Fault::drop_socket_after_store(how));
        deliver(&producer, 0, &["a"]);
        assert_eq!(stored(&hub, 0), ["a", "a"]);
        assert_eq!(producer.stats().resends_after_unknown(), 1);
    }
}

#[test]
fn a_connection_that_is_closed_instead_of_an_answer_is_made_anew() {
    let (emulator, hub) = start(Emulator::builder(), 2);
    let producer = producer(&emulator);
    let fault = Fault::close_connection(Step::Transfer, "amqp:connection:forced", "moving");
    emulator.faults().push(fault);
    enqueue(&producer, 0, &["a"]);
    enqueue(&producer, 1, &["b"]);
    producer.flush_timeout(LIMIT).unwrap();
    assert_eq!(stored(&hub, 0), ["a"]);
    assert_eq!(stored(&hub, 1), ["b"]);
}

/// Sixteen batches, each of which meets a break now and then: none is lost.
#[test]
fn nothing_is_lost_when_connections_break_again_and_again() {
    let (emulator, hub) = start(Emulator::builder(), 2);
    let producer = builder(&emulator, options())
        .max_batch_events(4)
        .max_in_flight(3)
        .build()
        .unwrap();
    let fault = Fault::drop_socket_after_store(SocketDrop::Reset);
    for nth in [2, 5, 9] {
        emulator.faults().push(fault.clone().nth(nth));
    }
    let bodies: Vec<String> = (0..64).map(|n| n.to_string()).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    enqueue(&producer, 0, &bodies);
    enqueue(&producer, 1, &bodies);
    producer.flush_timeout(LIMIT).unwrap();
    for partition in [0, 1] {
        let stored = stored(&hub, partition);
        for body in &bodies {
            assert!(stored.iter().any(|other| other == body), "{body}");
        }
    }
    assert!(producer.stats().resends_after_unknown() > 0);
}

#[test]
fn a_service_that_is_away_for_a_while_is_found_again() {
    let (emulator, hub) = start(Emulator::builder(), 1);
    let address = emulator.local_addr();
    let producer = producer(&emulator);
    deliver(&producer, 0, &["a"]);
    emulator.shutdown(LIMIT).unwrap();
    enqueue(&producer, 0, &["b"]);
    let (_emulator, again) = start(Emulator::builder().bind(address), 1);
    producer.flush_timeout(LIMIT).unwrap();
    assert_eq!(stored(&hub, 0), ["a"]);
    assert_eq!(stored(&again, 0), ["b"]);
}

#[test]
fn close_ends_by_its_deadline_with_a_batch_that_is_never_answered() {
    let (emulator, _) = start(Emulator::builder(), 1);
    let producer = producer(&emulator);
    let id = emulator.faults().push(Fault::freeze(Step::Transfer));
    enqueue(&producer, 0, &["a"]);
    assert!(emulator.faults().wait_fired(id, 1, LIMIT));
    let start = std::time::Instant::now();
    producer.close_timeout(300 * MILLI).unwrap_err();
    assert!(start.elapsed() < 1000 * MILLI, "{:?}", start.elapsed());
}

#[test]
fn close_waits_for_batches_in_flight() {
    let (emulator, hub) = start(Emulator::builder(), 4);
    let producer = producer(&emulator);
    emulator
        .faults()
        .push(Fault::delay_settlement(200 * MILLI).times(4));
    for partition in 0..4 {
        enqueue(&producer, partition, &["a"]);
    }
    let report = producer.close_timeout(LIMIT).unwrap();
    assert_eq!(report.outcomes.delivered, 4);
    assert_eq!(hub.len(), 4);
    eventually("the connection ends", || {
        emulator.stats().connections_open == 0
    });
    assert_eq!(emulator.stats().protocol_errors, 0);
}

/// Whatever step of a reconnection breaks, the next attempt starts afresh, and no result of a
/// connection that is gone is taken for one of the new one.
#[test]
fn a_reconnection_that_breaks_at_any_step_starts_afresh() {
    let steps = [
        Step::Accept,
        Step::Sasl,
        Step::Open,
        Step::Begin,
        Step::Cbs,
        Step::Attach,
    ];
    for step in steps {
        let (emulator, hub) = start(Emulator::builder(), 2);
        let producer = producer(&emulator);
        deliver(&producer, 0, &["a"]);
        deliver(&producer, 1, &["a"]);
        let fault = Fault::drop_socket(step, SocketDrop::Reset);
        let id = emulator.faults().push(fault.times(2));
        emulator.disrupt(Disruption::drop_sockets(SocketDrop::Finish));
        assert!(emulator.faults().wait_fired(id, 2, LIMIT), "{step:?}");
        deliver(&producer, 0, &["b"]);
        deliver(&producer, 1, &["b"]);
        assert_eq!(stored(&hub, 0), ["a", "b"], "{step:?}");
        assert_eq!(stored(&hub, 1), ["a", "b"], "{step:?}");
        assert_eq!(emulator.stats().connections, 4, "{step:?}");
    }
}

#[test]
fn producers_come_and_go_and_leave_nothing_behind() {
    let (emulator, hub) = start(Emulator::builder(), 1);
    for _ in 0..50 {
        let producer = producer(&emulator);
        deliver(&producer, 0, &["a"]);
        producer.close_timeout(LIMIT).unwrap();
    }
    for _ in 0..10 {
        // Without a close: the last handle's drop is one.
        let producer = producer(&emulator);
        enqueue(&producer, 0, &["a"]);
        drop(producer);
    }
    eventually("all connections end", || {
        emulator.stats().connections_open == 0
    });
    assert_eq!(hub.len(), 60);
    assert_eq!(emulator.stats().protocol_errors, 0);
}
