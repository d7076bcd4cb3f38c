//! What an enqueue accepts, refuses, and waits for.

use crate::support::{
    Rig, Running, SECOND, abort, assert_settled, close, counts, events, flush, numbers, text,
    texts, to, within,
};
use hublane::codec::{encoded_len, section_len};
use hublane::testing::Answer;
use hublane::{EVENT_OVERHEAD, EnqueueRefusal, Event, PartitionId, PartitionKey, Target, hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

fn sized(section: usize) -> Event {
    let mut body = section;
    loop {
        let event = Event::from("x".repeat(body));
        if section_len(encoded_len(&event, None)) <= section {
            assert_eq!(section_len(encoded_len(&event, None)), section);
            return event;
        }
        body -= 1;
    }
}

/// opentelemetry-rust 3089.
#[test]
fn refused_tries_leave_every_gauge_at_zero() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_buffered_events(10));
    for event in events(0..10) {
        producer.try_enqueue_to(&to(0), event).unwrap();
    }
    for n in 0..1000 {
        let refused = producer.try_enqueue_to(&to(0), n.to_string()).unwrap_err();
        assert_eq!(*refused.reason(), EnqueueRefusal::Full);
        assert!(refused.is_full());
        assert_eq!(text(&refused.into_event()), n.to_string());
    }
    rig.release();
    assert_eq!(flush(&producer).unwrap().outcomes, counts(10, 0, 0, 0));
    assert_settled(&producer, 10);
    assert_eq!(rig.stored("0"), numbers(0..10));
    for event in events(10..20) {
        producer.try_enqueue_to(&to(0), event).unwrap();
    }
}

#[test]
fn the_bound_in_events_is_exact() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_buffered_events(3));
    for event in events(0..3) {
        producer.try_enqueue_to(&to(0), event).unwrap();
    }
    assert!(producer.try_enqueue_to(&to(0), "one past").is_err());
    rig.clock.settle();
    assert_eq!(producer.stats().outstanding_events(), 3);
    assert!(producer.try_enqueue_to(&to(0), "in flight counts").is_err());
}

#[test]
fn the_bound_in_bytes_is_exact_and_counts_overhead() {
    let event = || Event::from("x".repeat(1000));
    let charged = encoded_len(&event(), None) as u64 + EVENT_OVERHEAD;
    for (bound, fit) in [(3 * charged, 3), (3 * charged - 1, 2)] {
        let rig = Rig::stalled(1);
        let producer = rig.producer(|b| b.max_buffered_bytes(bound).max_batch_bytes(2000));
        for _ in 0..fit {
            producer.try_enqueue_to(&to(0), event()).unwrap();
        }
        let refused = producer.try_enqueue_to(&to(0), event()).unwrap_err();
        assert_eq!(*refused.reason(), EnqueueRefusal::Full);
    }
}

/// librdkafka 488, azure-sdk-for-net 20615.
#[test]
fn an_event_larger_than_the_link_takes_is_refused_and_its_neighbours_do_not_notice() {
    let rig = Rig::new(1);
    rig.peer.set_max_message_size(1000);
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), sized(1000)).unwrap();
    let refused = producer.enqueue_to(&to(0), sized(1001)).unwrap_err();
    let (size, limit) = (1001, 1000);
    assert_eq!(*refused.reason(), EnqueueRefusal::TooLarge { size, limit });
    assert_eq!(refused.into_event(), sized(1001));
    producer.enqueue_to(&to(0), sized(999)).unwrap();
    assert_eq!(flush(&producer).unwrap().outcomes, counts(2, 0, 0, 0));
    let lengths: Vec<_> = rig.stored("0").iter().map(String::len).collect();
    assert_eq!(lengths, [sized(1000), sized(999)].map(|e| e.body().len()));
}

#[test]
fn a_link_without_a_limit_refuses_nothing() {
    let rig = Rig::new(1);
    rig.peer.set_max_message_size(0); // AMQP 1.0, 2.7.3: no limit
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), sized(2_000_000)).unwrap();
    assert_eq!(flush(&producer).unwrap().outcomes.delivered, 1);
}

/// librdkafka 2464.
#[test]
fn an_event_larger_than_the_whole_buffer_is_refused_at_once() {
    let rig = Rig::stalled(1);
    let bound = encoded_len(&Event::from("x".repeat(600)), None) as u64 + EVENT_OVERHEAD;
    let producer = rig.producer(|b| b.max_buffered_bytes(bound).max_batch_bytes(500));
    let waiting = producer.clone();
    let refused = within(move || waiting.enqueue_to(&to(0), "x".repeat(601))).unwrap_err();
    let (charged, limit) = (bound + 1, bound);
    assert_eq!(
        *refused.reason(),
        EnqueueRefusal::ExceedsBuffer { charged, limit }
    );
    assert_eq!(refused.into_event().body().len(), 601);
    producer.try_enqueue_to(&to(0), "x".repeat(600)).unwrap();
}

/// azure-eventhub (Python) 5.15.1.
#[test]
fn a_set_larger_than_the_buffer_goes_in_piecewise() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_buffered_events(10));
    let all = producer.clone();
    let filling = Running::start(move || all.enqueue_all(&to(0), events(0..50)));
    let mut most = 0;
    while rig.stored("0").len() < 40 {
        rig.rest(1);
        let outstanding = producer.stats().outstanding_events();
        assert!(
            outstanding <= 10,
            "{outstanding} outstanding of a bound of 10"
        );
        most = most.max(outstanding);
        assert!(rig.peer.answer_held("0", Answer::accept()));
    }
    assert_eq!(most, 10);
    rig.release();
    filling.result().unwrap();
    rig.release();
    flush(&producer).unwrap();
    assert_eq!(rig.stored("0"), numbers(0..50));
}

#[test]
fn a_misfit_within_a_set_ends_it_there() {
    let rig = Rig::new(1);
    rig.peer.set_max_message_size(500);
    let producer = rig.producer(|b| b);
    let mut set = events(0..3);
    set.insert(2, sized(501));
    let error = producer.enqueue_all(&to(0), set).unwrap_err();
    let (size, limit) = (501, 500);
    assert_eq!(error.accepted, 2);
    assert_eq!(error.reason, EnqueueRefusal::TooLarge { size, limit });
    assert_eq!(error.rest, [sized(501), Event::from("2")]);
    let mut rest = error.rest;
    producer.enqueue_all(&to(0), rest.split_off(1)).unwrap();
    flush(&producer).unwrap();
    assert_eq!(rig.stored("0"), numbers(0..3));
    assert_settled(&producer, 3);
}

#[test]
fn a_set_of_events_that_fill_half_the_buffer_each_goes_in_in_order() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| b.max_buffered_bytes(2000).max_batch_bytes(2000));
    let set: Vec<_> = (0..20)
        .map(|n| Event::from(format!("{n:0width$}", width = 600 + 50 * (n % 8))))
        .collect();
    let (all, bodies) = (producer.clone(), texts(&set));
    within(move || all.enqueue_all(&to(0), set)).unwrap();
    flush(&producer).unwrap();
    assert_eq!(rig.stored("0"), bodies);
}

#[test]
fn a_set_that_waits_when_its_producer_closes_is_accepted_up_to_there() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_buffered_events(4));
    let all = producer.clone();
    let filling = Running::start(move || all.enqueue_all(&to(0), events(0..20)));
    rig.rest(1);
    assert!(rig.peer.answer_held("0", Answer::accept()));
    rig.rest(1);
    let left = abort(&producer);
    let error = filling.result().unwrap_err();
    assert_eq!(error.reason, EnqueueRefusal::Closed);
    assert_eq!(texts(&error.rest), numbers(error.accepted..20));
    assert_eq!(left.outcomes.total(), error.accepted as u64);
    assert_settled(&producer, error.accepted as u64);
}

#[test]
fn an_iterator_that_panics_takes_nothing_with_it() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| b);
    let bomb = (0..5).map(|n| {
        assert!(n < 3, "an iterator's own fault");
        n.to_string()
    });
    let panicked = catch_unwind(AssertUnwindSafe(|| producer.enqueue_iter(&to(0), bomb)));
    assert!(panicked.is_err());
    flush(&producer).unwrap();
    assert_eq!(rig.stored("0"), numbers(0..3));
}

#[test]
fn an_iterator_keeps_what_is_behind_a_refused_event() {
    let rig = Rig::new(1);
    rig.peer.set_max_message_size(500);
    let producer = rig.producer(|b| b);
    let mut set = vec![Event::from("0"), sized(501), Event::from("1")].into_iter();
    let error = producer.enqueue_iter(&to(0), set.by_ref()).unwrap_err();
    assert_eq!((error.accepted, error.rest), (1, vec![sized(501)]));
    assert_eq!(producer.enqueue_iter(&to(0), set).unwrap(), 1);
    flush(&producer).unwrap();
    assert_eq!(rig.stored("0"), numbers(0..2));
}

#[test]
fn events_for_any_partition_are_spread_evenly() {
    let rig = Rig::new(4);
    let producer = rig.producer(|b| b);
    for event in events(0..8) {
        producer.enqueue(event).unwrap();
    }
    flush(&producer).unwrap();
    for partition in ["0", "1", "2", "3"] {
        assert_eq!(rig.stored(partition).len(), 2);
    }
}

#[test]
fn events_for_any_partition_go_round_a_full_one() {
    let rig = Rig::new(3);
    rig.peer.script("1", Answer::hold());
    let producer = rig.producer(|b| b.max_buffered_events(2));
    producer.try_enqueue_to(&to(1), "stuck").unwrap();
    producer.try_enqueue_to(&to(1), "stuck").unwrap();
    for event in events(0..30) {
        let waiting = producer.clone();
        within(move || waiting.enqueue(event)).unwrap();
        rig.clock.settle();
    }
    flush_others(&rig, &producer);
    assert_eq!(rig.stored("0").len() + rig.stored("2").len(), 30);
    assert_eq!(rig.stored("1").len(), 0);
}

fn flush_others(rig: &Rig, producer: &hublane::Producer) {
    for partition in ["0", "2"] {
        let (producer, id) = (producer.clone(), PartitionId::from(partition));
        within(move || producer.flush_partition(&id)).unwrap();
    }
    rig.clock.settle();
}

#[test]
fn sets_for_any_partition_go_round_a_full_one() {
    let rig = Rig::new(3);
    rig.peer.script("1", Answer::hold());
    let producer = rig.producer(|b| b.max_buffered_events(4));
    producer.enqueue_all(&to(1), events(0..4)).unwrap();
    let all = producer.clone();
    within(move || all.enqueue_all(&Target::Any, events(0..30))).unwrap();
    flush_others(&rig, &producer);
    assert_eq!(rig.stored("0").len() + rig.stored("2").len(), 30);
}

#[test]
fn when_all_partitions_are_full_the_first_that_frees_takes_the_event() {
    let rig = Rig::stalled(3);
    let producer = rig.producer(|b| b.max_buffered_events(1));
    for n in 0..3 {
        producer.try_enqueue_to(&to(n), "stuck").unwrap();
    }
    let refused = producer.try_enqueue("no room").unwrap_err();
    assert_eq!(*refused.reason(), EnqueueRefusal::Full);
    let waiting = producer.clone();
    let waiter = Running::start(move || waiting.enqueue("waits"));
    rig.rest(1);
    assert!(rig.peer.answer_held("2", Answer::accept()));
    waiter.result().unwrap();
    rig.release();
    flush(&producer).unwrap();
    assert_eq!(rig.stored("2"), ["stuck", "waits"]);
}

#[test]
fn a_wait_for_any_partition_ends_at_its_deadline() {
    let rig = Rig::stalled(2);
    let producer = rig.producer(|b| b.max_buffered_events(1));
    for n in 0..2 {
        producer.try_enqueue_to(&to(n), "stuck").unwrap();
    }
    let (waiting, clock) = (producer.clone(), rig.clock.clone());
    let waiter = Running::start(move || {
        let before = clock.now();
        let refused = waiting.enqueue_timeout(&Target::Any, "late", SECOND);
        (refused, clock.now() - before)
    });
    rig.clock.wait_for_callers(1);
    let (refused, waited) = waiter.result_in_time(&rig.clock, Duration::from_millis(10));
    assert_eq!(*refused.unwrap_err().reason(), EnqueueRefusal::TimedOut);
    assert!(waited >= SECOND, "{waited:?}");
}

#[test]
fn events_and_sets_for_any_partition_go_round_a_dead_one() {
    let rig = Rig::new(2);
    rig.peer.script("0", Answer::panic());
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), "kills").unwrap();
    let _ = flush(&producer);
    rig.clock.settle();
    for event in events(0..4) {
        producer.enqueue(event).unwrap();
    }
    producer.enqueue_all(&Target::Any, events(4..8)).unwrap();
    let _ = flush(&producer);
    assert_eq!(rig.stored("1"), numbers(0..8));

    rig.peer.script("1", Answer::panic());
    producer.enqueue("kills").unwrap();
    let _ = flush(&producer);
    rig.clock.settle();
    let refused = producer.enqueue("nowhere").unwrap_err();
    assert_eq!(*refused.reason(), EnqueueRefusal::LaneDead);
    let refused = producer
        .enqueue_all(&Target::Any, events(0..2))
        .unwrap_err();
    assert_eq!(refused.reason, EnqueueRefusal::LaneDead);
    assert_eq!(texts(&refused.rest), numbers(0..2));
}

#[test]
fn a_key_decides_the_partition() {
    let rig = Rig::new(5);
    let producer = rig.producer(|b| b);
    for name in ["alpha", "beta", "gamma", "delta"] {
        let key = PartitionKey::new(name).unwrap();
        for _ in 0..2 {
            producer.enqueue_to(&Target::from(&key), name).unwrap();
        }
    }
    flush(&producer).unwrap();
    for name in ["alpha", "beta", "gamma", "delta"] {
        let partition = hash::partition_index(name, 5).to_string();
        let here = rig.stored(&partition);
        assert_eq!(here.iter().filter(|body| *body == name).count(), 2);
    }
}

#[test]
fn an_unknown_partition_is_refused() {
    let rig = Rig::new(2);
    let producer = rig.producer(|b| b);
    let refused = producer.enqueue_to(&to(2), "where?").unwrap_err();
    let unknown = EnqueueRefusal::UnknownPartition(PartitionId::from("2"));
    assert_eq!(*refused.reason(), unknown);
    assert_eq!(text(&refused.into_event()), "where?");
    let refused = producer.enqueue_all(&to(2), events(0..3)).unwrap_err();
    assert_eq!((refused.accepted, refused.reason), (0, unknown));
    assert_eq!(texts(&refused.rest), numbers(0..3));
    assert_settled(&producer, 0);
}

#[test]
fn a_wait_for_room_ends_at_its_deadline_and_not_before() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_buffered_events(1));
    producer.try_enqueue_to(&to(0), "stuck").unwrap();
    let deadline = rig.clock.now() + 3 * SECOND;
    let waiting = producer.clone();
    let waiter = Running::start(move || waiting.enqueue_deadline(&to(0), "late", deadline));
    rig.clock.wait_for_callers(1);
    rig.clock.advance(3 * SECOND - Duration::from_nanos(1));
    rig.clock.wait_for_callers(1);
    waiter.assert_blocked();
    rig.clock.advance(Duration::from_nanos(1));
    let refused = waiter.result().unwrap_err();
    assert_eq!(*refused.reason(), EnqueueRefusal::TimedOut);
    assert!(refused.is_full());
    assert_eq!(text(&refused.into_event()), "late");

    // A deadline that has passed is a try.
    let refused = producer.enqueue_timeout(&to(0), "late", Duration::ZERO);
    assert_eq!(*refused.unwrap_err().reason(), EnqueueRefusal::TimedOut);
    rig.release();
    flush(&producer).unwrap();
    assert_settled(&producer, 1);
    producer
        .enqueue_timeout(&to(0), "room", Duration::MAX)
        .unwrap();
}

#[test]
fn callers_who_wait_are_served_in_the_order_in_which_they_came() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_buffered_events(1));
    producer.try_enqueue_to(&to(0), "0").unwrap();
    let mut waiters = Vec::new();
    for n in 1..5 {
        let waiting = producer.clone();
        waiters.push(Running::start(move || {
            waiting.enqueue_to(&to(0), n.to_string())
        }));
        rig.clock.wait_for_callers(n);
    }
    for waiter in waiters {
        rig.clock.settle();
        assert!(producer.try_enqueue_to(&to(0), "passes").is_err());
        assert!(rig.peer.answer_held("0", Answer::accept()));
        waiter.result().unwrap();
        // Nobody passes those who wait still, nor finds room beside the one just served.
        assert!(producer.try_enqueue_to(&to(0), "passes").is_err());
    }
    rig.release();
    flush(&producer).unwrap();
    assert_eq!(rig.stored("0"), numbers(0..5));
}

#[test]
fn who_gives_up_waiting_lets_the_next_one_pass() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_buffered_bytes(3000).max_batch_bytes(1000));
    producer.try_enqueue_to(&to(0), "x".repeat(1000)).unwrap();
    let deadline = rig.clock.now() + SECOND;
    let waiting = producer.clone();
    let large =
        Running::start(move || waiting.enqueue_deadline(&to(0), "x".repeat(2500), deadline));
    rig.clock.wait_for_callers(1);
    let waiting = producer.clone();
    let small = Running::start(move || waiting.enqueue_to(&to(0), "small"));
    rig.clock.wait_for_callers(2);
    rig.clock.advance(SECOND);
    let refused = large.result().unwrap_err();
    assert_eq!(*refused.reason(), EnqueueRefusal::TimedOut);
    small.result().unwrap();
}

#[test]
fn close_and_death_send_those_who_wait_away() {
    for dies in [false, true] {
        let rig = Rig::new(1);
        let answer = if dies { Answer::busy() } else { Answer::hold() };
        rig.peer.script("0", answer);
        let producer = rig.producer(|b| b.max_buffered_events(2));
        producer.enqueue_all(&to(0), events(0..2)).unwrap();
        let mut waiters = Vec::new();
        for n in 0..3 {
            let waiting = producer.clone();
            waiters.push(Running::start(move || {
                waiting.enqueue_to(&to(0), n.to_string())
            }));
            rig.clock.wait_for_callers(n + 1);
        }
        rig.clock.settle();
        let expected = if dies {
            rig.peer.script("0", Answer::panic());
            rig.peer.ready("0");
            EnqueueRefusal::LaneDead
        } else {
            let producer = producer.clone();
            drop(Running::start(move || producer.close()));
            EnqueueRefusal::Closed
        };
        for (n, waiter) in waiters.into_iter().enumerate() {
            let refused = waiter.result().unwrap_err();
            assert_eq!(*refused.reason(), expected);
            assert_eq!(text(&refused.into_event()), n.to_string());
        }
        rig.clock.settle();
        assert_eq!(producer.stats().accepted(), 2);
    }
}

/// azure-eventhub (Python) 5.15.1.
#[test]
fn a_closed_producer_refuses_and_stays_closed() {
    let rig = Rig::new(2);
    let producer = rig.producer(|b| b);
    producer.enqueue_to(&to(0), "before").unwrap();
    close(&producer).unwrap();
    assert!(rig.peer.is_closed());
    // Partition 1 never had an event: it is not started for this one either.
    for n in 0..2 {
        let refused = producer.enqueue_to(&to(n), "after").unwrap_err();
        assert_eq!(*refused.reason(), EnqueueRefusal::Closed);
        assert_eq!(text(&refused.into_event()), "after");
        let refused = producer.try_enqueue_to(&to(n), "after").unwrap_err();
        assert_eq!(*refused.reason(), EnqueueRefusal::Closed);
    }
    let refused = producer.enqueue("after").unwrap_err();
    assert_eq!(*refused.reason(), EnqueueRefusal::Closed);
    let refused = producer.enqueue_all(&to(0), events(0..3)).unwrap_err();
    assert_eq!(refused.reason, EnqueueRefusal::Closed);
    assert_eq!(texts(&refused.rest), numbers(0..3));
    flush(&producer).unwrap();
    assert_eq!(rig.stored("0"), ["before"]);
    assert_eq!(rig.peer.transfers("1").len(), 0);
}

#[test]
fn a_thread_that_the_system_refuses_refuses_the_event() {
    let rig = Rig::new(2);
    let producer = rig.producer(|b| b.thread_stack_size(usize::MAX / 2));
    for target in [to(0), Target::Any] {
        let refused = producer.enqueue_to(&target, "unborn").unwrap_err();
        assert!(matches!(refused.reason(), EnqueueRefusal::NoThread(_)));
        assert_eq!(text(&refused.into_event()), "unborn");
    }
    let refused = producer.enqueue_all(&to(1), events(0..3)).unwrap_err();
    assert_eq!((refused.accepted, refused.rest.len()), (0, 3));
    flush(&producer).unwrap();
    close(&producer).unwrap();
    assert_settled(&producer, 0);
}

#[test]
fn errors_do_not_print_what_is_in_an_event() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_buffered_events(1));
    producer.enqueue_to(&to(0), "first").unwrap();
    let secret = || Event::from("hunter2").with_property("password", "hunter2");
    let one = producer.try_enqueue_to(&to(0), secret()).unwrap_err();
    abort(&producer);
    let set = producer.enqueue_all(&to(0), vec![secret()]).unwrap_err();
    for shown in [
        format!("{one:?}"),
        format!("{one}"),
        format!("{set:?}"),
        format!("{set}"),
    ] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
