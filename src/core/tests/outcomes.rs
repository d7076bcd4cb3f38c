//! Answers and retries.

use super::*;

#[test]
fn an_accepted_batch_is_delivered() {
    let (mut rig, id) = in_flight(limits());
    assert_eq!(rig.core.held().0, 3);
    assert_eq!(rig.core.oldest_receipt(), Some(rig.start));
    rig.settle(id, Settlement::Accepted);
    assert_eq!(rig.core.oldest_receipt(), None);
    assert_eq!(batches(rig.said()), [Said::Delivered(vec![0, 1, 2])]);
    assert_eq!(rig.core.held(), (0, 0));
    assert!(rig.core.is_empty());
}

#[test]
fn a_batch_refused_once_is_received_in_its_place() {
    let mut rig = Rig::up(limits());
    rig.add_many(30, 20);
    let mut received = rig.send_and(Settlement::Accepted);
    let refused = rig.send_and(rejected("com.microsoft:timeout"));
    assert_eq!(rig.send(), None, "nothing overtakes it");
    while rig.send().is_none_or(|(id, tags)| {
        if received.len() == 10 {
            assert_eq!(tags, refused);
        }
        received.extend(tags);
        rig.settle(id, Settlement::Accepted);
        received.len() < 30
    }) {
        rig.pass(100 * MS);
    }
    assert_eq!(received, (0..30).collect::<Vec<_>>());
    assert_eq!(rig.core.stats().retries, 1);
    assert_eq!(rig.core.stats().resends_after_unknown, 0);
}

#[test]
fn a_retry_has_the_same_bytes_and_a_new_name() {
    let (mut rig, id) = in_flight(limits());
    rig.settle(id, Settlement::Released);
    rig.pass(1_200 * MS);
    let second = rig.core.poll_batch(rig.now).unwrap();
    assert_ne!(second.id, id);
    rig.settle(second.id, Settlement::Modified);
    rig.add(20);
    rig.pass(2_400 * MS);
    let third = rig.core.poll_batch(rig.now).unwrap();
    assert_eq!(third.payload.as_bytes(), second.payload.as_bytes());
    assert_eq!(third.deadline, second.deadline);
}

#[test]
fn waits_between_retries_double_and_spread_by_a_fifth() {
    let (mut rig, mut id) = in_flight(limits());
    for expected in [1_000, 2_000, 4_000, 8_000, 8_000] {
        rig.settle(id, rejected("amqp:internal-error"));
        assert_eq!(rig.send(), None);
        let wait = rig.wait().unwrap();
        assert!(
            wait >= expected * 4 / 5 * MS && wait <= expected * 6 / 5 * MS,
            "{wait:?}"
        );
        rig.pass(wait - NS);
        assert_eq!(rig.send(), None);
        rig.pass(NS);
        id = rig.send().unwrap().0;
    }
}

#[test]
fn a_busy_server_is_given_its_four_seconds_three_times() {
    let (mut rig, mut id) = in_flight(limits());
    rig.add(20);
    for _ in 0..3 {
        rig.settle(id, busy_server());
        rig.pass(4_000 * MS - NS);
        assert_eq!(rig.send(), None);
        rig.pass(800 * MS + NS);
        let (next, tags) = rig.send().unwrap();
        assert_eq!(tags, [0, 1, 2]);
        id = next;
    }
    rig.settle(id, Settlement::Accepted);
    assert_eq!(batches(rig.said()), [Said::Delivered(vec![0, 1, 2])]);
    assert_eq!(rig.send().unwrap().1, [3]);
}

#[test]
fn released_and_modified_are_no_success() {
    for settlement in [Settlement::Released, Settlement::Modified] {
        let (mut rig, id) = in_flight(limits());
        rig.settle(id, settlement.clone());
        assert_eq!(rig.said(), []);
        let mut policy = limits();
        policy.retry.max_retries = 0;
        let (mut rig, id) = in_flight(policy);
        rig.settle(id, settlement);
        assert!(
            matches!(&batches(rig.said())[..], [Said::Failed(tags, FailureCause::Rejected { attempts: 1, .. })] if tags.len() == 3)
        );
    }
}

#[test]
fn a_refusal_for_good_fails_the_batch_and_not_the_next() {
    let (mut rig, id) = in_flight(limits());
    rig.add(20);
    rig.settle(id, fatal());
    let cause = FailureCause::Rejected {
        error: problem("amqp:not-allowed"),
        attempts: 1,
    };
    assert_eq!(batches(rig.said()), [Said::Failed(vec![0, 1, 2], cause)]);
    rig.core.handle_close(rig.now);
    assert_eq!(rig.send_and(Settlement::Accepted), [3]);
}

#[test]
fn retries_end_at_their_number() {
    let mut few = limits();
    few.retry.max_retries = 2;
    let (mut rig, mut id) = in_flight(few);
    for _ in 0..2 {
        rig.settle(id, rejected("com.microsoft:timeout"));
        rig.pass(10_000 * MS);
        id = rig.send().unwrap().0;
    }
    rig.settle(id, rejected("com.microsoft:timeout"));
    let cause = FailureCause::Rejected {
        error: problem("com.microsoft:timeout"),
        attempts: 3,
    };
    assert_eq!(batches(rig.said()), [Said::Failed(vec![0, 1, 2], cause)]);
}

#[test]
fn after_an_unanswered_transfer_only_delivered_or_indeterminate_is_said() {
    for (end, delivered) in [
        (fatal(), false),
        (Settlement::Released, false),
        (Settlement::Accepted, true),
    ] {
        let mut few = limits();
        few.retry.max_retries = 1;
        let (mut rig, id) = in_flight(few);
        rig.settle(id, unknown());
        assert_eq!(rig.said(), []);
        rig.pass(1_200 * MS);
        let (id, _) = rig.send().unwrap();
        assert_eq!(rig.core.stats().resends_after_unknown, 1);
        rig.settle(id, end);
        match &batches(rig.said())[..] {
            [Said::Delivered(_)] => assert!(delivered),
            [
                Said::Indeterminate(
                    _,
                    FailureCause::Rejected { attempts: 2, .. }
                    | FailureCause::Unanswered { attempts: 2, .. },
                ),
            ] => {
                assert!(!delivered)
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn without_retries_an_unanswered_transfer_is_not_repeated() {
    let mut none = limits();
    none.retry.max_retries = 0;
    let (mut rig, id) = in_flight(none);
    rig.settle(id, unknown());
    assert!(matches!(
        &batches(rig.said())[..],
        [Said::Indeterminate(..)]
    ));
    assert_eq!(rig.core.stats().resends_after_unknown, 0);
}

#[test]
fn what_was_not_sent_goes_first_and_at_once_when_the_link_is_back() {
    let mut none = limits();
    none.retry.max_retries = 0;
    let (mut rig, id) = in_flight(none);
    rig.add(20);
    rig.detach();
    rig.settle(id, not_sent());
    assert_eq!(rig.send(), None);
    rig.attach(0);
    let (id, tags) = rig.send().unwrap();
    assert_eq!(tags, [0, 1, 2]);
    rig.settle(id, Settlement::Accepted);
    assert_eq!(batches(rig.said()), [Said::Delivered(vec![0, 1, 2])]);
    assert_eq!(rig.core.stats().retries, 0);
}

#[test]
fn a_link_that_is_up_and_sends_nothing_is_not_asked_without_end() {
    let (mut rig, id) = in_flight(limits());
    rig.settle(id, not_sent());
    let (id, _) = rig.send().expect("once more at once");
    rig.settle(id, not_sent());
    assert_eq!(rig.send(), None);
    assert!(
        rig.wait()
            .is_some_and(|wait| wait >= 800 * MS && wait <= 1_200 * MS)
    );
}

#[test]
fn an_answer_to_nothing_in_flight_is_counted_and_ignored() {
    let (mut rig, id) = in_flight(limits());
    rig.settle(DeliveryId(99), Settlement::Accepted);
    assert_eq!(rig.said(), []);
    rig.settle(id, Settlement::Accepted);
    rig.settle(id, fatal());
    assert_eq!(batches(rig.said()), [Said::Delivered(vec![0, 1, 2])]);
    assert_eq!(rig.core.stats().ignored_settlements, 2);
}

#[test]
fn with_a_window_a_failure_stops_new_sends_and_resending_starts_at_the_oldest() {
    let mut rig = Rig::up(Limits {
        window: 3,
        ..limits()
    });
    rig.add_many(50, 20);
    let ids: Vec<_> = (0..3).map(|_| rig.send().unwrap().0).collect();
    rig.settle(ids[1], Settlement::Released);
    rig.pass(10_000 * MS);
    assert_eq!(rig.send(), None, "others are in flight");
    rig.settle(ids[0], Settlement::Released);
    assert_eq!(rig.send(), None);
    rig.settle(ids[2], Settlement::Accepted);
    rig.pass(10_000 * MS);
    let (first, tags) = rig.send().unwrap();
    assert_eq!(tags[0], 0);
    let (second, tags) = rig.send().unwrap();
    assert_eq!(tags[0], 10);
    assert_eq!(rig.send().unwrap().1[0], 30, "the queue is empty again");
    assert_eq!(rig.send(), None);
    rig.settle(second, Settlement::Accepted);
    rig.settle(first, Settlement::Accepted);
    let said = rig.said();
    let firsts = said.iter().map(|said| match said {
        Said::Delivered(tags) => tags[0],
        other => panic!("{other:?}"),
    });
    assert_eq!(firsts.collect::<Vec<_>>(), [20, 10, 0]);
}

#[test]
fn a_link_that_changed_or_answered_since_is_asked_at_once() {
    let (mut rig, mut id) = in_flight(limits());
    for _ in 0..3 {
        rig.settle(id, not_sent());
        rig.detach();
        rig.attach(0);
        id = rig.send().expect("at once").0;
    }
    rig.settle(id, not_sent());
    id = rig.send().expect("at once").0;
    rig.settle(id, Settlement::Released);
    rig.pass(2_000 * MS);
    id = rig.send().unwrap().0;
    rig.settle(id, not_sent());
    assert!(rig.send().is_some());
}
