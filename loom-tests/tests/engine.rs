//! Models over the whole producer: callers, lanes, workers and core as they run in production.
#![cfg(loom)]

use hublane::{EnqueueRefusal, Event, Outcome, PartitionId, Target};
use hublane_loom_tests::{Mode, ModelPeer, explore};
use loom::thread;

fn first() -> Target {
    Target::Partition(PartitionId::from("0"))
}

/// Model 2. Compiles: lane `send`, worker `drain`, `submit`, `doze`, core `poll_batch`.
///
/// The public bug: an event enqueued while a batch is being sealed and sent. With a bound of
/// one the second enqueue waits for the first one's outcome, which seals.
#[test]
fn an_event_enqueued_during_a_seal_is_not_lost() {
    explore("enqueue, seal", || {
        let peer = ModelPeer::new(Mode::Instant, 1);
        let producer = peer.producer(1);
        let other = {
            let producer = producer.clone();
            thread::spawn(move || producer.enqueue_to(&first(), "b").is_ok())
        };
        let mut accepted = u64::from(producer.enqueue_to(&first(), "a").is_ok());
        accepted += u64::from(other.join().unwrap());
        assert_eq!(accepted, 2);
        let report = producer.close().expect("everything is delivered");
        assert_eq!(report.outcomes.delivered, accepted);
        assert_eq!(peer.stored() as u64, accepted);
    });
}

/// Model 3. Compiles: lane/flush.rs `enter`, `take`, `complete`; core `handle_flush`.
#[test]
fn what_was_accepted_before_a_flush_has_its_outcome_after_it() {
    explore("enqueue, flush", || {
        let peer = ModelPeer::new(Mode::Instant, 1);
        let producer = peer.producer(4);
        let other = {
            let producer = producer.clone();
            thread::spawn(move || producer.enqueue_to(&first(), "b").unwrap())
        };
        let ticket = producer.enqueue_tracked(&first(), "a").unwrap();
        let report = producer.flush().unwrap();
        assert_eq!(ticket.poll(), Some(Outcome::Delivered));
        assert!(report.outcomes.delivered >= 1);
        other.join().unwrap();
        producer.close().unwrap();
        assert_eq!(peer.stored(), 2);
    });
}

/// Model 4. Compiles: word `admit`, `close`; worker `is_done`; lane `end`.
#[test]
fn an_event_accepted_during_close_has_its_outcome() {
    explore("enqueue, close", || {
        let peer = ModelPeer::new(Mode::Instant, 1);
        let producer = peer.producer(4);
        producer.enqueue_to(&first(), "a").unwrap();
        let other = {
            let producer = producer.clone();
            thread::spawn(move || match producer.enqueue_to(&first(), "b") {
                Ok(()) => 1,
                Err(refused) => {
                    assert_eq!(*refused.reason(), EnqueueRefusal::Closed);
                    assert_eq!(refused.into_event(), Event::from("b"));
                    0
                }
            })
        };
        producer.close().expect("everything is delivered");
        let accepted = 1 + other.join().unwrap();
        assert_eq!(peer.stored(), accepted);
        assert_eq!(producer.stats().outcomes().delivered, accepted as u64);
        assert_eq!(producer.stats().outstanding_events(), 0);
    });
}

/// Model 7. Two flushes share markers; neither is forgotten, both see the event.
#[test]
fn two_flushes_at_once_both_return() {
    explore("two flushes", || {
        let peer = ModelPeer::new(Mode::Instant, 1);
        let producer = peer.producer(2);
        let ticket = producer.enqueue_tracked(&first(), "a").unwrap();
        let other = {
            let producer = producer.clone();
            thread::spawn(move || producer.flush().unwrap())
        };
        producer.flush().unwrap();
        assert_eq!(ticket.poll(), Some(Outcome::Delivered));
        other.join().unwrap();
        producer.close().unwrap();
    });
}

/// Model 8. Compiles: engine `bear`, `shut`. No event gets into a lane that close missed.
#[test]
fn a_lane_born_during_close_is_closed_or_was_never_born() {
    explore("lane birth, close", || {
        let peer = ModelPeer::new(Mode::Instant, 1);
        let producer = peer.producer(2);
        let other = {
            let producer = producer.clone();
            thread::spawn(move || usize::from(producer.enqueue_to(&first(), "a").is_ok()))
        };
        producer.close().expect("everything is delivered");
        let accepted = other.join().unwrap();
        assert_eq!(peer.stored(), accepted);
        assert!(producer.try_enqueue_to(&first(), "b").is_err());
    });
}

/// Model 9. Compiles: engine `bear`, `enter_flush`. A flush covers the first event of a lane
/// that another thread gave birth to.
#[test]
fn a_flush_covers_the_event_of_a_lane_born_just_before() {
    explore("lane birth, flush", || {
        let peer = ModelPeer::new(Mode::Instant, 2);
        let producer = peer.producer(2);
        let other = {
            let producer = producer.clone();
            thread::spawn(move || producer.enqueue_to(&first(), "b").unwrap())
        };
        let ticket = producer
            .enqueue_tracked(&Target::Partition(PartitionId::from("0")), "a")
            .unwrap();
        producer.flush().unwrap();
        assert_eq!(ticket.poll(), Some(Outcome::Delivered));
        other.join().unwrap();
        producer.close().unwrap();
        assert_eq!(peer.stored(), 2);
    });
}

/// Model 10. Compiles: ticket.rs `store`, `wait_until`, `poll`; a second ticket of the same
/// block is dropped meanwhile.
#[test]
fn a_ticket_that_is_waited_for_while_it_settles_answers() {
    explore("ticket wait, settle, drop", || {
        let peer = ModelPeer::new(Mode::Instant, 1);
        let producer = peer.producer(1);
        let ticket = producer.enqueue_tracked(&first(), "a").unwrap();
        let closer = {
            let producer = producer.clone();
            thread::spawn(move || drop(producer.close()))
        };
        assert_eq!(ticket.wait(), Ok(Outcome::Delivered));
        closer.join().unwrap();
    });
}

/// Model 11. Compiles: core `handle_abort`, `handle_settled`; engine `close`. A settlement
/// that races with the abort decides between delivered and indeterminate, and only once.
#[test]
fn a_batch_that_settles_during_an_abort_has_one_outcome() {
    explore("settle, abort", || {
        let peer = ModelPeer::new(Mode::Held, 1);
        let producer = peer.producer(2);
        let ticket = producer.enqueue_tracked(&first(), "a").unwrap();
        let settler = {
            let peer = peer.clone();
            thread::spawn(move || peer.settle_held())
        };
        let outcomes = match producer.abort() {
            Ok(report) => report.outcomes,
            Err(hublane::CloseError::Incomplete(report)) => {
                assert_eq!(
                    report.outcomes.returned,
                    report
                        .unsent
                        .iter()
                        .map(|(_, e)| e.len() as u64)
                        .sum::<u64>()
                );
                report.outcomes
            }
            Err(other) => panic!("{other}"),
        };
        settler.join().unwrap();
        assert_eq!(outcomes.total(), 1);
        match ticket.poll() {
            Some(Outcome::Delivered) => assert_eq!(outcomes.delivered, 1),
            Some(Outcome::Indeterminate(_)) => assert_eq!(outcomes.indeterminate, 1),
            Some(Outcome::Returned) => assert_eq!(outcomes.returned, 1),
            other => panic!("{other:?}"),
        }
    });
}

/// Model 12. Compiles: worker `die`; lane `kill`; waiters `dismiss`. An event accepted while
/// the worker dies has an outcome, one refused comes back.
#[test]
fn an_event_enqueued_while_the_worker_dies_is_refused_or_reported() {
    explore("worker death, enqueue", || {
        let peer = ModelPeer::new(Mode::Panic, 1);
        let producer = peer.builder(2).max_batch_events(1).build().unwrap();
        let ticket = producer.enqueue_tracked(&first(), "a").unwrap();
        // Gets in before the death and is drained, or is refused.
        let second = match producer.enqueue_tracked(&first(), "b") {
            Ok(ticket) => Some(ticket),
            Err(refused) => {
                assert_eq!(*refused.reason(), EnqueueRefusal::LaneDead);
                None
            }
        };
        assert!(matches!(
            ticket.wait(),
            Ok(Outcome::Failed(_) | Outcome::Indeterminate(_))
        ));
        if let Some(second) = second {
            assert!(matches!(
                second.wait(),
                Ok(Outcome::Failed(_) | Outcome::Indeterminate(_))
            ));
        }
        assert!(producer.close().is_err());
        assert_eq!(producer.stats().outstanding_events(), 0);
    });
}

/// Model 13. Compiles: `Drop` of the handle; engine `shut`. The last handle goes on the
/// worker's own thread, inside a delivery handler.
#[test]
fn the_last_handle_dropped_on_the_worker_closes_and_does_not_wait() {
    explore("last handle dropped on the worker", || {
        let slot = std::sync::Arc::new(std::sync::Mutex::new(None::<hublane::Producer>));
        let peer = ModelPeer::new(Mode::Instant, 1);
        let producer = peer
            .builder(2)
            .max_batch_events(1)
            .on_delivery({
                let slot = std::sync::Arc::clone(&slot);
                move |_, _| drop(slot.lock().unwrap().take())
            })
            .build()
            .unwrap();
        let enqueuer = producer.enqueuer();
        *slot.lock().unwrap() = Some(producer.clone());
        producer.enqueue_to(&first(), "a").unwrap();
        // Either this drop or the handler's is the last one.
        drop(producer);
        let refused = loop {
            match enqueuer.try_enqueue_to(&first(), "b") {
                Ok(()) => thread::yield_now(),
                Err(refused) if refused.is_full() => thread::yield_now(),
                Err(refused) => break refused,
            }
        };
        assert_eq!(*refused.reason(), EnqueueRefusal::Closed);
    });
}

/// Compiles: engine `close`. Whatever got in before the gate shut is in the closer's counts.
#[test]
fn close_counts_every_event_that_got_in() {
    explore("close, counts", || {
        let peer = ModelPeer::new(Mode::Instant, 1);
        let producer = peer.producer(4);
        producer.enqueue_to(&first(), "a").unwrap();
        let other = {
            let producer = producer.clone();
            thread::spawn(move || u64::from(producer.enqueue_to(&first(), "b").is_ok()))
        };
        let report = producer.close().expect("everything is delivered");
        let accepted = 1 + other.join().unwrap();
        assert_eq!(report.outcomes.total(), accepted);
    });
}

/// Compiles: reporter `report`. Who was told of an outcome finds the room that it gave back.
#[test]
fn a_settled_ticket_means_room() {
    explore("ticket, room", || {
        let peer = ModelPeer::new(Mode::Instant, 1);
        let producer = peer.builder(1).max_batch_events(1).build().unwrap();
        let ticket = producer.enqueue_tracked(&first(), "a").unwrap();
        ticket.wait().unwrap();
        assert!(producer.try_enqueue_to(&first(), "b").is_ok());
        producer.close().unwrap();
    });
}

/// Compiles: word `press`, `release`; worker `drain_and_submit`. A refused caller's pressure
/// lasts until room is given back: it must not be taken before the event that fills the lane
/// is seen.
#[test]
fn pressure_lasts_until_there_is_room() {
    explore("refused try, pressure", || {
        let peer = ModelPeer::new(Mode::Instant, 1);
        let producer = peer.producer(1);
        let ticket = producer.enqueue_tracked(&first(), "a").unwrap();
        if producer.try_enqueue_to(&first(), "b").is_err() {
            assert_eq!(ticket.wait(), Ok(Outcome::Delivered));
        }
        producer.close().unwrap();
    });
}
