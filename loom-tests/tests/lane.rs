//! Models of the lane's own edges: wake handshake, permits.
#![cfg(loom)]

use hublane::model_api::{AnyLane, Handshake, PermitQueue};
use hublane_loom_tests::explore;
use loom::thread;
use std::sync::Arc;

/// Model 1. Compiles: lane/wake.rs `publish`, `withdraw`, `claim`; lane/word.rs `admit`.
///
/// Three producers and a mark of three: each producer alone is below it, any two of them may
/// be overtaken by the third.
#[test]
fn the_worker_is_woken_when_the_mark_is_reached_by_three_producers() {
    explore("wake handshake", || {
        let (handshake, dozer) = Handshake::new();
        let handshake = Arc::new(handshake);
        let producers: Vec<_> = (0..3)
            .map(|_| {
                let handshake = Arc::clone(&handshake);
                thread::spawn(move || handshake.produce())
            })
            .collect();
        handshake.doze_until(&dozer, 3);
        for producer in producers {
            producer.join().unwrap();
        }
    });
}

/// Model 1, the first event of an idle lane.
#[test]
fn the_first_event_wakes_an_idle_worker() {
    explore("wake handshake, first event", || {
        let (handshake, dozer) = Handshake::new();
        let handshake = Arc::new(handshake);
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let handshake = Arc::clone(&handshake);
                thread::spawn(move || handshake.produce())
            })
            .collect();
        handshake.doze_until(&dozer, 1);
        for producer in producers {
            producer.join().unwrap();
        }
    });
}

/// Model 5. Compiles: lane/waiters.rs `acquire`, `grant`, `dismiss`; lane/word.rs
/// `admit_or_wait`, `admit_waiter`, `release`, `close`.
#[test]
fn a_blocked_caller_gets_the_permit_or_closed() {
    explore("blocked permit, release, close", || {
        let queue = Arc::new(PermitQueue::new(1));
        assert!(queue.try_take(1));
        let waiter = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.take(1, false))
        };
        let closer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.close())
        };
        queue.release(1);
        let taken = waiter.join().unwrap();
        closer.join().unwrap();
        match taken {
            Ok(()) => assert_eq!(queue.outstanding(), 1),
            Err(timed_out) => {
                assert!(!timed_out);
                assert_eq!(queue.outstanding(), 0);
            }
        }
        assert!(!queue.has_waiters());
    });
}

/// Model 5, fairness: a release serves who waits, and both get through.
#[test]
fn two_blocked_callers_both_get_through() {
    explore("two blocked permits", || {
        let queue = Arc::new(PermitQueue::new(1));
        assert!(queue.try_take(1));
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    assert_eq!(queue.take(1, false), Ok(()));
                    queue.release(1);
                })
            })
            .collect();
        queue.release(1);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!(queue.outstanding(), 0);
        assert!(!queue.has_waiters());
    });
}

/// Model 6. Compiles: lane/waiters.rs `leave`. A waiter whose deadline has passed leaves the
/// queue at the instant of a release; the one behind it must not be forgotten.
#[test]
fn a_timed_out_waiter_passes_the_wake_on() {
    explore("permit time-out, release", || {
        let queue = Arc::new(PermitQueue::new(2));
        assert!(queue.try_take(2));
        let expiring = {
            let queue = Arc::clone(&queue);
            // Wants more than one release gives.
            thread::spawn(move || queue.take(2, true).is_ok())
        };
        let patient = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.take(1, false))
        };
        queue.release(1);
        // Only the expiring waiter's leaving can serve the patient one if it is behind it.
        let got_two = expiring.join().unwrap();
        if got_two {
            queue.release(2);
        }
        assert_eq!(patient.join().unwrap(), Ok(()));
        queue.release(1);
        assert!(!got_two || queue.outstanding() == 1);
        assert!(!queue.has_waiters());
    });
}

/// Compiles: lane/room.rs `announce`, `wait`. Two callers that take any lane, and two lanes that
/// are given back at the same time: both get one.
#[test]
fn a_caller_of_any_lane_is_woken_by_whichever_has_room() {
    explore("any lane, two releases", || {
        let lanes = Arc::new(AnyLane::full(2));
        let releaser = {
            let lanes = Arc::clone(&lanes);
            thread::spawn(move || lanes.release(1))
        };
        let other = {
            let lanes = Arc::clone(&lanes);
            thread::spawn(move || lanes.take_any())
        };
        lanes.release(0);
        let mut taken = [lanes.take_any(), other.join().unwrap()];
        taken.sort_unstable();
        assert_eq!(taken, [Some(0), Some(1)]);
        releaser.join().unwrap();
    });
}
