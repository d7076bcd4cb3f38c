//! Settings that cannot hold are errors at build, and say which.

use crate::support::{MILLI, Rig, SECOND};
use hublane::{BuildError, ProducerBuilder, RetryPolicy};
use std::time::Duration;

fn refused(set: impl FnOnce(ProducerBuilder) -> ProducerBuilder) -> String {
    let rig = Rig::new(1);
    match set(rig.bare()).build() {
        Err(BuildError::Settings(error)) => error.to_string(),
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("built"),
    }
}

/// librdkafka 3709.
#[test]
fn contradictions_name_both_settings() {
    let wait = refused(|b| b.max_wait_time(11 * SECOND).delivery_timeout(10 * SECOND));
    assert!(wait.contains("max_wait_time") && wait.contains("delivery_timeout"));
    let batch = refused(|b| b.max_batch_bytes(2001).max_buffered_bytes(2000));
    assert!(batch.contains("max_batch_bytes") && batch.contains("max_buffered_bytes"));
    let policy = RetryPolicy {
        delay: 2 * SECOND,
        max_delay: SECOND,
        ..RetryPolicy::default()
    };
    let retry = refused(|b| b.retry(policy));
    assert!(retry.contains("retry.delay") && retry.contains("retry.max_delay"));
}

#[test]
fn an_event_alone_must_have_time_to_be_sent() {
    // It is sent when its age is max_wait_time, and given up when it is delivery_timeout.
    let wait = refused(|b| b.max_wait_time(10 * SECOND).delivery_timeout(10 * SECOND));
    assert!(wait.contains("max_wait_time") && wait.contains("delivery_timeout"));

    let rig = Rig::new(1);
    let producer = rig.producer(|b| {
        b.max_wait_time(10 * SECOND - MILLI)
            .delivery_timeout(10 * SECOND)
    });
    producer.enqueue("0").unwrap();
    rig.clock.advance(10 * SECOND);
    assert_eq!(rig.stored("0"), ["0"]);
}

#[test]
fn bounds_of_zero_are_refused_by_name() {
    assert!(refused(|b| b.max_buffered_events(0)).contains("max_buffered_events"));
    assert!(refused(|b| b.max_buffered_bytes(0)).contains("max_buffered_bytes"));
    assert!(refused(|b| b.max_batch_events(0)).contains("max_batch_events"));
    assert!(refused(|b| b.max_batch_bytes(0)).contains("max_batch_bytes"));
    assert!(refused(|b| b.max_in_flight(0)).contains("max_in_flight"));
    assert!(refused(|b| b.delivery_timeout(Duration::ZERO)).contains("delivery_timeout"));
    assert!(refused(|b| b.start_up_timeout(Duration::ZERO)).contains("start_up_timeout"));
}

#[test]
fn a_thread_name_that_no_system_takes_is_refused() {
    assert!(refused(|b| b.thread_name("a\0b")).contains("thread_name"));
}

#[test]
fn time_without_end_is_a_time_like_any_other() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| {
        b.max_wait_time(SECOND)
            .delivery_timeout(Duration::MAX)
            .start_up_timeout(Duration::MAX)
            .drop_timeout(Duration::MAX)
    });
    producer.enqueue("0").unwrap();
    rig.clock.advance(SECOND);
    assert_eq!(rig.stored("0"), ["0"]);
    assert!(producer.wait_ready(Duration::MAX));
    producer.flush_timeout(Duration::MAX).unwrap();
    let closing = producer.clone();
    crate::support::within(move || closing.close_timeout(Duration::MAX)).unwrap();
}
