//! What becomes of accepted events: retries, reports, tickets, and lanes that die.

use crate::support::{
    MILLI, Report, Rig, Running, SECOND, assert_settled, bodies, close, counts, events, flush,
    numbers, text, to, within,
};
use hublane::testing::Answer;
use hublane::transport::{DeliveryId, LinkError, Settlement};
use hublane::{
    CloseError, Counts, EnqueueRefusal, Event, FailureCause, FlushError, Outcome, Producer,
    RetryPolicy, Target, TicketError,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const FATAL: &str = "amqp:not-allowed";
const RETRIABLE: &str = "amqp:internal-error";
const BUSY: &str = "com.microsoft:server-busy";

/// A producer whose batches have one event each.
fn single(b: hublane::ProducerBuilder) -> hublane::ProducerBuilder {
    b.max_batch_events(1)
}

fn outcome(rig: &Rig, body: &str) -> Outcome {
    let of_it = |report: &&Report| report.bodies.iter().any(|b| b == body);
    let reports = rig.reports.all();
    let mut found = reports.iter().filter(of_it);
    let outcome = found.next().expect("a report").outcome.clone();
    assert!(found.next().is_none(), "{body} was reported twice");
    outcome
}

/// librdkafka 1092.
#[test]
fn a_batch_refused_once_keeps_its_place() {
    let rig = Rig::new(1);
    for answer in [
        Answer::accept(),
        Answer::reject(RETRIABLE),
        Answer::accept(),
    ] {
        rig.peer.script("0", answer);
    }
    let producer = rig.producer(single);
    producer.enqueue_all(&to(0), events(0..5)).unwrap();
    rig.clock.advance(2 * SECOND);
    assert_eq!(rig.stored("0"), numbers(0..5));
    assert_eq!(rig.reports.delivered(), numbers(0..5));
    let attempts: Vec<_> = rig.reports.all().iter().map(|r| r.attempts).collect();
    assert_eq!(attempts, [1, 2, 1, 1, 1]);
    assert_eq!(producer.stats().retries(), 1);
    assert_eq!(producer.stats().resends_after_unknown(), 0);
}

/// azure-sdk-for-net 28508.
#[test]
fn a_busy_server_gets_the_pause_that_it_asks_for() {
    let rig = Rig::new(1);
    for _ in 0..3 {
        rig.peer.script("0", Answer::reject(BUSY));
    }
    let producer = rig.producer(single);
    producer.enqueue_all(&to(0), events(0..3)).unwrap();
    rig.clock.advance(60 * SECOND);
    assert_eq!(rig.stored("0"), numbers(0..3));
    let at: Vec<_> = rig.peer.transfers("0").iter().map(|t| t.at).collect();
    for pair in at[..4].windows(2) {
        let wait = pair[1] - pair[0];
        assert!(wait >= 4 * SECOND && wait <= 8 * SECOND, "{wait:?}");
    }
    assert_eq!(rig.reports.all()[0].attempts, 4);
}

/// librdkafka 4736.
#[test]
fn a_retry_is_the_same_bytes() {
    let rig = Rig::new(1);
    rig.peer.script("0", Answer::reject(RETRIABLE));
    rig.peer.script("0", Answer::lose());
    let producer = rig.producer(|b| b.max_batch_events(3));
    producer.enqueue_all(&to(0), events(0..3)).unwrap();
    rig.clock.settle();
    producer.enqueue_all(&to(0), events(3..5)).unwrap();
    rig.clock.advance(30 * SECOND);
    let transfers = rig.peer.transfers("0");
    assert_eq!(transfers.len(), 4);
    for retry in &transfers[1..3] {
        assert_eq!(retry.payload.as_bytes(), transfers[0].payload.as_bytes());
        assert_ne!(retry.id, transfers[0].id);
    }
    assert_eq!(rig.stored("0"), numbers(0..5));
    assert_eq!(producer.stats().retries(), 2);
    assert_eq!(producer.stats().resends_after_unknown(), 1);
}

#[test]
fn only_accepted_is_success() {
    for given_back in [Settlement::Modified, Settlement::Released] {
        let rig = Rig::new(1);
        rig.peer.script("0", Answer::settle(given_back.clone()));
        let producer = rig.producer(single);
        producer.enqueue_to(&to(0), "0").unwrap();
        rig.clock.settle();
        assert_eq!(rig.reports.all().len(), 0);
        rig.clock.advance(SECOND);
        assert_eq!(rig.reports.delivered(), ["0"]);
        assert_eq!(rig.stored("0"), ["0"]);

        // Given back each time it fails, and is never called stored.
        rig.peer.default_answer(Answer::settle(given_back));
        producer.enqueue_to(&to(0), "1").unwrap();
        rig.clock.advance(120 * SECOND);
        assert!(matches!(outcome(&rig, "1"), Outcome::Failed(_)));
        assert_eq!(rig.stored("0"), ["0"]);
    }
}

#[test]
fn a_refusal_for_good_is_not_tried_again() {
    let rig = Rig::new(1);
    rig.peer.script("0", Answer::reject(FATAL));
    let producer = rig.producer(single);
    producer.enqueue_all(&to(0), events(0..2)).unwrap();
    rig.clock.settle();
    match outcome(&rig, "0") {
        Outcome::Failed(cause) => match &*cause {
            FailureCause::Rejected { error, attempts } => {
                assert_eq!((&*error.condition, *attempts), (FATAL, 1));
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.stored("0"), ["1"]);
    assert_eq!(rig.batches("0").len(), 2);
}

#[test]
fn retries_end_when_the_policy_says_so() {
    let rig = Rig::new(1);
    rig.peer.default_answer(Answer::reject(RETRIABLE));
    let policy = RetryPolicy {
        max_retries: 2,
        ..RetryPolicy::default()
    };
    let producer = rig.producer(|b| single(b).retry(policy));
    producer.enqueue_to(&to(0), "0").unwrap();
    rig.clock.advance(60 * SECOND);
    assert_eq!(rig.batches("0").len(), 3);
    assert!(matches!(outcome(&rig, "0"), Outcome::Failed(_)));
    assert_settled(&producer, 1);
}

#[test]
fn a_transfer_without_an_answer_ends_delivered_or_indeterminate() {
    let rig = Rig::new(1);
    rig.peer.script("0", Answer::store_and_lose());
    let producer = rig.producer(single);
    producer.enqueue_to(&to(0), "0").unwrap();
    rig.clock.advance(2 * SECOND);
    assert_eq!(outcome(&rig, "0"), Outcome::Delivered);
    assert_eq!(rig.stored("0"), ["0", "0"]);
    assert_eq!(producer.stats().resends_after_unknown(), 1);

    // Once it may be stored, no later refusal makes it certain that it is not.
    rig.peer.script("0", Answer::lose());
    rig.peer.script("0", Answer::reject(FATAL));
    producer.enqueue_to(&to(0), "1").unwrap();
    rig.clock.advance(60 * SECOND);
    assert!(matches!(outcome(&rig, "1"), Outcome::Indeterminate(_)));
    assert_settled(&producer, 2);
}

#[test]
fn what_was_handed_to_no_network_is_sent_again_and_counts_as_no_attempt() {
    let rig = Rig::new(1);
    let lost = LinkError::new("hublane:test", "the link went first");
    rig.peer
        .script("0", Answer::settle(Settlement::NotSent(lost)));
    let producer = rig.producer(single);
    producer.enqueue_all(&to(0), events(0..2)).unwrap();
    rig.clock.advance(5 * SECOND);
    assert_eq!(rig.stored("0"), numbers(0..2));
    assert_eq!(rig.reports.all()[0].attempts, 1);
    assert_eq!(producer.stats().retries(), 0);
}

#[test]
fn the_delivery_deadline_ends_everything_and_frees_its_room() {
    // In flight without an answer; behind it, never sent.
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| {
        b.max_batch_events(2)
            .max_buffered_events(6)
            .delivery_timeout(10 * SECOND)
    });
    let start = rig.clock.now();
    producer.enqueue_all(&to(0), events(0..3)).unwrap();
    rig.clock.advance(10 * SECOND);
    assert_eq!(rig.reports.indeterminate(), numbers(0..2));
    assert_eq!(rig.reports.failed(), ["2"]);
    for report in rig.reports.all() {
        assert_eq!(report.at - start, 10 * SECOND);
    }
    assert_eq!(rig.peer.cancelled("0").len(), 1);
    assert_settled(&producer, 3);

    // A late answer is ignored.
    let late = rig.peer.transfers("0")[0].id;
    rig.peer.settle("0", late, Settlement::Accepted);
    rig.peer.settle("0", DeliveryId(999), Settlement::Accepted);
    rig.clock.settle();
    assert_settled(&producer, 3);
    let ignored = producer.stats().partitions[0].engine.core;
    assert!(ignored.ignored_settlements <= 2);
    rig.release();
    for event in events(3..9) {
        producer.try_enqueue_to(&to(0), event).unwrap();
    }
    assert!(matches!(flush(&producer), Err(FlushError::Failures(_))));
    assert_eq!(rig.stored("0"), numbers(3..9));
}

#[test]
fn a_link_that_stays_down_is_no_death_and_deadlines_hold() {
    let rig = Rig::new(1);
    rig.peer.start_links_down();
    let producer = rig.producer(|b| b.delivery_timeout(10 * SECOND));
    producer.enqueue_to(&to(0), "0").unwrap();
    rig.clock.advance(5 * SECOND);
    producer.enqueue_to(&to(0), "1").unwrap();
    rig.clock.advance(5 * SECOND);
    assert_eq!(rig.reports.failed(), ["0"]);
    producer.enqueue_to(&to(0), "2").unwrap();
    rig.clock.settle();
    rig.peer.link_up("0");
    rig.clock.advance(SECOND);
    assert_eq!(rig.stored("0"), ["1", "2"]);
}

/// confluent-kafka-dotnet and friends: 10 000 events that each fail somewhere else.
#[test]
fn whatever_fails_wherever_all_room_comes_back() {
    let rig = Rig::new(4);
    let policy = RetryPolicy {
        max_retries: 1,
        ..RetryPolicy::default()
    };
    let bound = 64;
    let producer = rig.producer(|b| {
        single(b)
            .retry(policy)
            .max_buffered_events(bound)
            .delivery_timeout(3 * SECOND)
    });
    let hold = Answer::hold;
    let answers: [fn() -> Answer; 8] = [
        Answer::accept,
        || Answer::reject(FATAL),
        || Answer::reject(RETRIABLE),
        || Answer::settle(Settlement::Released),
        Answer::lose,
        Answer::store_and_lose,
        hold,
        || Answer::accept().after(700 * MILLI),
    ];
    let mut accepted = 0;
    for n in 0..10_000_usize {
        let partition = n % 4;
        let answer = answers[(n / 4 + n / 64) % answers.len()]();
        rig.peer.script(&partition.to_string(), answer);
        while producer
            .try_enqueue_to(&to(partition), n.to_string())
            .is_err()
        {
            rig.clock.advance(SECOND);
        }
        accepted += 1;
    }
    rig.clock.advance(600 * SECOND);
    assert_settled(&producer, accepted);
    let reported: usize = rig.reports.all().iter().map(|r| r.bodies.len()).sum();
    assert_eq!(reported, 10_000);
    rig.peer.default_answer(Answer::accept());
    for partition in 0..4 {
        rig.peer.link_down(&partition.to_string());
        rig.clock.settle();
        for _ in 0..bound {
            producer.try_enqueue_to(&to(partition), "again").unwrap();
        }
        assert!(producer.try_enqueue_to(&to(partition), "past").is_err());
    }
}

type Verdicts = (
    Result<hublane::FlushReport, FlushError>,
    Result<hublane::CloseReport, CloseError>,
    Option<EnqueueRefusal>,
    Option<EnqueueRefusal>,
    Result<Outcome, TicketError>,
);

/// apache/kafka 10790, azure-sdk-for-python 23748.
#[test]
fn a_handler_that_would_wait_for_its_own_engine_is_told_at_once() {
    let rig = Rig::stalled(2);
    let (send, verdicts) = mpsc::channel::<Verdicts>();
    let slot: Arc<Mutex<Option<Producer>>> = Arc::default();
    let in_handler = Arc::clone(&slot);
    let producer = rig
        .bare()
        .max_buffered_events(2)
        .on_delivery(move |report, enqueuer| {
            if report.partition.as_str() != "0" {
                return;
            }
            let guard = in_handler.lock().unwrap();
            let Some(producer) = guard.as_ref() else {
                return;
            };
            // Partition 1 is full and stalled; this lane has room, its own event's.
            let full = producer.enqueue_to(&to(1), "no room").unwrap_err();
            let also = enqueuer.enqueue_to(&to(1), "no room").unwrap_err();
            let ticket = producer.enqueue_tracked(&to(0), "room").unwrap();
            let _ = send.send((
                producer.flush(),
                producer.close(),
                Some(full.reason().clone()),
                Some(also.reason().clone()),
                ticket.wait(),
            ));
        })
        .build()
        .unwrap();
    *slot.lock().unwrap() = Some(producer.clone());
    producer.enqueue_all(&to(1), events(0..1)).unwrap();
    producer.enqueue_all(&to(1), events(1..2)).unwrap();
    producer.enqueue_to(&to(0), "0").unwrap();
    rig.clock.advance(SECOND);
    assert!(rig.peer.answer_held("0", Answer::accept()));
    let (flush, close, full, also, ticket) = within(move || verdicts.recv().unwrap());
    assert_eq!(flush, Err(FlushError::WouldDeadlock));
    assert!(matches!(close, Err(CloseError::WouldDeadlock)));
    assert_eq!(full, Some(EnqueueRefusal::WouldDeadlock));
    assert_eq!(also, Some(EnqueueRefusal::WouldDeadlock));
    assert_eq!(ticket, Err(TicketError::WouldDeadlock));
    *slot.lock().unwrap() = None;
    // Nothing was closed by that.
    rig.release();
    producer.enqueue_to(&to(0), "still open").unwrap();
    let last = producer.clone();
    within(move || last.flush()).unwrap();
    assert_eq!(rig.stored("0"), ["0", "room", "still open"]);
}

/// A bound of one event, and a handler that enqueues the next one: progress for ever.
#[test]
fn a_handler_can_enqueue_into_its_own_lane_of_one() {
    let rig = Rig::new(1);
    let producer = rig
        .bare()
        .max_buffered_events(1)
        .max_wait_time(Duration::ZERO)
        .on_delivery(|report, enqueuer| {
            for reported in report.events {
                let n: usize = text(&reported.event).parse().unwrap();
                if n < 999 {
                    enqueuer.enqueue_to(&to(0), (n + 1).to_string()).unwrap();
                }
            }
        })
        .build()
        .unwrap();
    producer.enqueue_to(&to(0), "0").unwrap();
    rig.clock.settle();
    assert_eq!(rig.stored("0"), numbers(0..1000));
    assert_settled(&producer, 1000);
}

#[test]
fn a_handler_that_panics_is_contained_and_counted() {
    let rig = Rig::new(2);
    let calls = AtomicU64::new(0);
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = Arc::clone(&seen);
    let producer = single(rig.bare())
        .on_delivery(move |report, _| {
            let mut seen = record
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            seen.extend(report.events.iter().map(|e| text(&e.event)));
            drop(seen);
            let bomb =
                report.partition.as_str() == "0" && calls.fetch_add(1, Ordering::Relaxed) % 3 == 2;
            assert!(!bomb, "the handler's own fault");
        })
        .build()
        .unwrap();
    for n in 0..30 {
        producer.enqueue_to(&to(0), n.to_string()).unwrap();
        producer.enqueue_to(&to(1), (100 + n).to_string()).unwrap();
    }
    assert_eq!(flush(&producer).unwrap().outcomes, counts(60, 0, 0, 0));
    let stats = producer.stats();
    assert_eq!(stats.partitions[0].engine.handler_panics, 10);
    assert_eq!(stats.partitions[1].engine.handler_panics, 0);
    close(&producer).unwrap();
    assert_settled(&producer, 60);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_by_key(|body| body.parse::<u32>().unwrap());
    assert_eq!(seen, [numbers(0..30), numbers(100..130)].concat());
}

/// What a panicking destructor leaves must not reach the engine.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a destructor's own fault");
        }
    }
}

#[test]
fn a_handler_whose_panic_carries_another_is_contained() {
    let rig = Rig::new(1);
    let producer = single(rig.bare())
        .on_delivery(|_, _| std::panic::panic_any(Bomb))
        .build()
        .unwrap();
    producer.enqueue_all(&to(0), events(0..3)).unwrap();
    assert_eq!(flush(&producer).unwrap().outcomes, counts(3, 0, 0, 0));
    assert_eq!(producer.stats().partitions[0].engine.handler_panics, 3);
}

#[test]
fn a_destructor_in_an_event_that_panics_kills_no_lane() {
    let rig = Rig::new(1);
    let producer = single(rig.bare()).build().unwrap();
    for n in 0..3 {
        let event = Event::from(n.to_string()).with_context(Arc::new(Bomb));
        producer.enqueue_to(&to(0), event).unwrap();
    }
    assert_eq!(flush(&producer).unwrap().outcomes, counts(3, 0, 0, 0));
    producer.enqueue_to(&to(0), "alive").unwrap();
    close(&producer).unwrap();
}

/// google-cloud-rust 4483.
#[test]
fn a_worker_that_dies_loses_nothing_and_hangs_nobody() {
    let rig = Rig::new(2);
    rig.peer.script("0", Answer::busy());
    let producer = rig.producer(|b| b.max_batch_events(10));
    let tickets: Vec<_> = (0..100)
        .map(|n| producer.enqueue_tracked(&to(0), n.to_string()).unwrap())
        .collect();
    let more = events(100..150);
    producer.enqueue_all(&to(0), more).unwrap();
    rig.clock.settle();
    let waiting = producer.clone();
    let waiter = Running::start(move || waiting.flush());
    rig.clock.wait_for_callers(1);
    rig.peer.script("0", Answer::panic());
    rig.peer.ready("0");
    assert!(matches!(
        waiter.result(),
        Err(FlushError::LaneDied(_) | FlushError::Failures(_))
    ));
    for ticket in tickets {
        let outcome = within(move || ticket.wait()).unwrap();
        assert!(matches!(
            outcome,
            Outcome::Failed(_) | Outcome::Indeterminate(_)
        ));
    }
    let refused = producer.enqueue_to(&to(0), "dead").unwrap_err();
    assert_eq!(*refused.reason(), EnqueueRefusal::LaneDead);
    assert_eq!(text(&refused.into_event()), "dead");
    rig.clock.settle();
    assert_settled(&producer, 150);
    let reported: usize = rig.reports.all().iter().map(|r| r.bodies.len()).sum();
    assert_eq!(reported, 150);
    // What was never in flight is not called perhaps stored.
    assert_eq!(rig.reports.indeterminate().len(), 10);

    producer.enqueue_to(&to(1), "alive").unwrap();
    let closing = producer.clone();
    let report = crate::support::close_report(within(move || closing.close()));
    assert_eq!(report.still_owned, []);
    assert_eq!(rig.stored("1"), ["alive"]);
}

#[test]
fn tickets_tell_the_outcome_of_their_own_event() {
    let rig = Rig::new(1);
    for answer in [
        Answer::accept(),
        Answer::reject(FATAL),
        Answer::hold(),
        Answer::accept(),
    ] {
        rig.peer.script("0", answer);
    }
    let producer = rig.producer(|b| single(b).delivery_timeout(10 * SECOND));
    let mut tickets: Vec<_> = (0..4)
        .map(|n| producer.enqueue_tracked(&to(0), n.to_string()).unwrap())
        .collect();
    rig.clock.settle();
    assert_eq!(tickets[2].poll(), None);
    let last = tickets.pop().unwrap();
    let waited = Running::start(move || (last.wait(), last));
    rig.clock.wait_for_callers(1);
    rig.clock.advance(10 * SECOND);
    let (outcome, last) = waited.result();
    assert!(matches!(outcome, Ok(Outcome::Failed(_))), "{outcome:?}");
    assert_eq!(last.poll(), outcome.ok());
    assert_eq!(tickets[0].wait(), Ok(Outcome::Delivered));
    match tickets[1].wait() {
        Ok(Outcome::Failed(cause)) => assert!(cause.to_string().contains(FATAL), "{cause}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        tickets[2].wait_timeout(Duration::ZERO),
        Ok(Outcome::Indeterminate(_))
    ));
}

#[test]
fn a_wait_for_a_ticket_ends_at_its_time_out_and_the_ticket_stays_good() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(single);
    let ticket = producer.try_enqueue_tracked(&to(0), "0").unwrap();
    let waiting = Running::start(move || (ticket.wait_timeout(SECOND), ticket));
    rig.clock.wait_for_callers(1);
    rig.clock.advance(SECOND);
    let (result, ticket) = waiting.result();
    assert_eq!(result, Err(TicketError::TimedOut));
    rig.release();
    assert_eq!(within(move || ticket.wait()), Ok(Outcome::Delivered));
}

#[test]
fn a_dropped_ticket_loses_nothing() {
    let rig = Rig::new(1);
    let producer = rig.producer(|b| b);
    for n in 0..600 {
        drop(producer.enqueue_tracked(&to(0), n.to_string()).unwrap());
    }
    assert_eq!(flush(&producer).unwrap().outcomes.delivered, 600);
    assert_eq!(rig.reports.delivered(), numbers(0..600));
}

#[test]
fn many_tickets_of_many_blocks_do_not_mix() {
    let rig = Rig::new(2);
    for _ in 0..1000 {
        rig.peer.script("0", Answer::accept());
        rig.peer.script("0", Answer::reject(FATAL));
    }
    let producer = rig.producer(single);
    let tickets: Vec<_> = (0..1000)
        .map(|n| producer.enqueue_tracked(&to(0), n.to_string()).unwrap())
        .collect();
    let _ = flush(&producer);
    for (n, ticket) in tickets.iter().enumerate() {
        match ticket.poll() {
            Some(Outcome::Delivered) => assert_eq!(n % 2, 0),
            Some(Outcome::Failed(_)) => assert_eq!(n % 2, 1),
            other => panic!("{n}: {other:?}"),
        }
    }
}

#[test]
fn reports_carry_the_events_with_their_context_and_key() {
    let rig = Rig::new(1);
    rig.peer.script("0", Answer::reject(FATAL));
    let (send, reports) = mpsc::channel();
    let producer = rig
        .bare()
        .on_delivery(move |report, _| send.send(report).unwrap())
        .build()
        .unwrap();
    let key = hublane::PartitionKey::new("alpha").unwrap();
    let event = Event::from("0").with_context(Arc::new(42_u32));
    producer
        .enqueue_to(&Target::from(&key), event.clone())
        .unwrap();
    let _ = flush(&producer);
    let mut report = within(move || reports.recv().unwrap());
    assert_eq!(report.events.len(), 1);
    let reported = report.events.pop().unwrap();
    assert_eq!(reported.event, event);
    assert_eq!(reported.event.context_as::<u32>(), Some(&42));
    assert_eq!(reported.key, Some(key));
}

#[test]
fn with_a_window_a_refusal_stops_new_sends_and_resends_begin_at_the_oldest() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| single(b).max_in_flight(3));
    producer.enqueue_all(&to(0), events(0..6)).unwrap();
    rig.clock.settle();
    assert_eq!(rig.peer.held("0"), 3);
    assert!(rig.peer.answer_held("0", Answer::reject(RETRIABLE)));
    rig.clock.advance(2 * SECOND);
    // 1 and 2 are unanswered: nothing is sent until they are.
    assert_eq!(rig.peer.held("0"), 2);
    rig.peer.default_answer(Answer::accept());
    assert!(rig.peer.answer_held("0", Answer::accept()));
    assert!(rig.peer.answer_held("0", Answer::accept()));
    rig.clock.advance(2 * SECOND);
    let sent: Vec<_> = rig
        .peer
        .transfers("0")
        .iter()
        .flat_map(|t| bodies(&t.payload))
        .collect();
    assert_eq!(sent, ["0", "1", "2", "0", "3", "4", "5"]);
    assert_settled(&producer, 6);
}

#[test]
fn the_numbers_of_a_lane_add_up_at_every_rest() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| b.max_batch_events(2));
    let mut ledger = Counts::default();
    for n in 0..40 {
        producer.enqueue_to(&to(0), n.to_string()).unwrap();
        rig.clock.settle();
        if n % 4 == 3 {
            let answer = match n % 3 {
                0 => Answer::accept(),
                _ => Answer::reject(FATAL),
            };
            match n % 3 {
                0 => ledger.delivered += 2,
                _ => ledger.failed += 2,
            }
            assert!(rig.peer.answer_held("0", answer));
            rig.clock.settle();
        }
        let stats = producer.stats();
        assert_eq!(stats.accepted(), n + 1);
        assert_eq!(stats.outcomes(), ledger);
        assert_eq!(stats.outstanding_events(), n + 1 - ledger.total());
    }
}

#[test]
fn what_waits_behind_an_expired_batch_of_its_set_is_not_forgotten() {
    let rig = Rig::new(1);
    rig.peer.start_links_down();
    let producer = rig.producer(|b| {
        b.max_batch_events(2)
            .max_wait_time(SECOND)
            .delivery_timeout(10 * SECOND)
    });
    producer.enqueue_all(&to(0), events(0..6)).unwrap();
    // A batch's worth at a time reaches the worker's hands and gets its deadline there.
    rig.clock.advance(60 * SECOND);
    assert_eq!(rig.reports.failed(), numbers(0..6));
    assert_settled(&producer, 6);
}

/// The time-outs of events that wait behind a full batch run beside each other, not one after
/// another.
#[test]
fn behind_a_dead_link_all_events_fail_together() {
    let rig = Rig::new(1);
    rig.peer.start_links_down();
    let producer = rig.producer(|b| {
        b.max_batch_events(2)
            .max_wait_time(SECOND)
            .delivery_timeout(10 * SECOND)
    });
    producer.enqueue_all(&to(0), events(0..7)).unwrap();
    for event in events(7..20) {
        producer.enqueue_to(&to(0), event).unwrap();
    }
    rig.clock.advance(10 * SECOND - MILLI);
    assert_eq!(rig.reports.failed(), numbers(0..0));
    rig.clock.advance(200 * MILLI);
    assert_eq!(rig.reports.failed(), numbers(0..20));
    assert_settled(&producer, 20);
}

#[test]
fn behind_a_silent_peer_the_time_outs_run_beside_each_other() {
    let rig = Rig::stalled(1);
    let producer = rig.producer(|b| {
        b.max_batch_events(2)
            .max_wait_time(SECOND)
            .delivery_timeout(10 * SECOND)
    });
    for event in events(0..20) {
        producer.enqueue_to(&to(0), event).unwrap();
    }
    rig.clock.advance(10 * SECOND + 200 * MILLI);
    // The second transfer is of those that were received a moment after the first ones.
    assert_eq!(rig.batches("0"), [2, 2]);
    assert_eq!(rig.reports.indeterminate(), ["0", "1", "4", "5"]);
    assert_eq!(rig.reports.failed().len(), 16);
    assert_settled(&producer, 20);
}
