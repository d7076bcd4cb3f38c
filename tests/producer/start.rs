//! How a producer comes to life.

use crate::support::{
    Live, Rig, Running, SECOND, assert_settled, close, events, flush, numbers, text, texts, to,
    within,
};
use hublane::transport::{ConnectError, LinkError};
use hublane::{BuildError, EnqueueRefusal, PartitionId, Target};
use std::time::Duration;

fn unreachable() -> ConnectError {
    ConnectError::Unreachable(LinkError::new("hublane:test", "nobody there"))
}

#[test]
fn build_fails_with_what_the_service_said() {
    let rig = Rig::new(1);
    rig.peer.refuse_connect(unreachable());
    match rig.bare().build() {
        Err(BuildError::Connect(error)) => assert_eq!(error, unreachable()),
        other => panic!("{other:?}"),
    }
    assert!(rig.peer.is_closed());
    rig.bare().build().unwrap();
}

#[test]
fn a_hub_without_partitions_is_an_error() {
    let rig = Rig::new(0);
    assert!(matches!(rig.bare().build(), Err(BuildError::NoPartitions)));
}

#[test]
fn a_built_producer_is_ready_and_knows_its_partitions() {
    let rig = Rig::new(3);
    let producer = rig.producer(|b| b);
    assert!(producer.wait_ready(Duration::ZERO));
    let expected: Vec<_> = ["0", "1", "2"].map(PartitionId::from).into();
    assert_eq!(producer.partitions(), expected);
    close(&producer).unwrap();
    assert!(!producer.wait_ready(Duration::ZERO));
}

#[test]
fn a_lazy_producer_refuses_tries_and_lets_others_wait_until_it_is_ready() {
    let rig = Rig::new(2);
    for _ in 0..3 {
        rig.peer.refuse_connect(unreachable());
    }
    let producer = Live(rig.builder().build_lazy().unwrap());
    rig.clock.settle();
    assert_eq!(producer.partitions(), []);
    let refused = producer.try_enqueue("0").unwrap_err();
    assert_eq!(*refused.reason(), EnqueueRefusal::NotReady);
    assert_eq!(text(&refused.into_event()), "0");
    let refused = producer.try_enqueue_tracked(&to(0), "0").unwrap_err();
    assert_eq!(*refused.reason(), EnqueueRefusal::NotReady);
    let refused = producer.enqueue_timeout(&to(0), "0", Duration::ZERO);
    assert_eq!(*refused.unwrap_err().reason(), EnqueueRefusal::TimedOut);
    assert!(!producer.wait_ready(Duration::ZERO));
    // Nothing was accepted, so there is nothing to flush.
    flush(&producer).unwrap();

    let waiting = producer.clone();
    let one = Running::start(move || waiting.enqueue_to(&to(0), "0"));
    let waiting = producer.clone();
    let ready = Running::start(move || waiting.wait_ready(3600 * SECOND));
    rig.clock.wait_for_callers(2);
    rig.clock.advance(60 * SECOND);
    one.result().unwrap();
    assert!(ready.result());
    producer.enqueue_to(&to(0), "1").unwrap();
    flush(&producer).unwrap();
    assert_eq!(rig.stored("0"), numbers(0..2));
}

#[test]
fn a_lazy_producer_can_be_closed_before_it_is_ready() {
    let rig = Rig::new(2);
    for _ in 0..1000 {
        rig.peer.refuse_connect(unreachable());
    }
    let producer = Live(rig.builder().build_lazy().unwrap());
    rig.clock.settle();
    let waiting = producer.clone();
    let one = Running::start(move || waiting.enqueue("0"));
    let waiting = producer.clone();
    let all = Running::start(move || waiting.enqueue_all(&Target::Any, events(0..3)));
    let waiting = producer.clone();
    let ready = Running::start(move || waiting.wait_ready(Duration::MAX));
    rig.clock.wait_for_callers(3);
    let report = close(&producer).unwrap();
    assert_eq!(report.still_owned, []);
    let refused = one.result().unwrap_err();
    assert_eq!(*refused.reason(), EnqueueRefusal::Closed);
    assert_eq!(text(&refused.into_event()), "0");
    let refused = all.result().unwrap_err();
    assert_eq!(
        (refused.accepted, refused.reason),
        (0, EnqueueRefusal::Closed)
    );
    assert_eq!(texts(&refused.rest), numbers(0..3));
    assert!(!ready.result());
    let refused = producer.try_enqueue("1").unwrap_err();
    assert_eq!(*refused.reason(), EnqueueRefusal::Closed);
    // The thread that connects has gone: time goes by without it.
    rig.clock.advance(3600 * SECOND);
    assert_settled(&producer, 0);
}

#[test]
fn dropping_a_lazy_producer_before_it_is_ready_ends_it() {
    let rig = Rig::new(2);
    for _ in 0..1000 {
        rig.peer.refuse_connect(unreachable());
    }
    let producer = rig.builder().build_lazy().unwrap();
    rig.clock.settle();
    within(move || drop(producer));
    rig.clock.advance(3600 * SECOND);
    assert!(rig.peer.is_closed());
}

#[test]
fn a_lazy_producer_waits_for_ever_longer() {
    let rig = Rig::new(1);
    for _ in 0..6 {
        rig.peer.refuse_connect(unreachable());
    }
    let producer = Live(
        rig.builder()
            .start_up_timeout(Duration::MAX)
            .build_lazy()
            .unwrap(),
    );
    // 0.8 + 1.6 + 3.2 + 6.4 + 12.8 + 25.6 seconds, a fifth more or less.
    rig.clock.advance(40 * SECOND);
    assert!(!producer.wait_ready(Duration::ZERO));
    rig.clock.advance(21 * SECOND);
    assert!(producer.wait_ready(Duration::ZERO));
}
