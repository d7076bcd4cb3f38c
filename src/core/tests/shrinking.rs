//! A link that comes back with a smaller limit.

use super::*;

#[test]
fn a_smaller_link_divides_what_was_never_sent_and_keeps_its_order() {
    let mut rig = Rig::up(limits());
    rig.add_many(11, 90);
    let (id, _) = rig.send().unwrap();
    rig.settle(id, not_sent());
    rig.detach();
    rig.attach(300);
    rig.core.handle_flush(rig.now);
    let mut got = Vec::new();
    while let Some(delivery) = rig.core.poll_batch(rig.now) {
        assert!(delivery.payload.len_bytes() <= 300);
        assert_eq!(delivery.deadline, rig.start + 60_000 * MS);
        got.push(tags(&delivery));
        rig.settle(delivery.id, Settlement::Accepted);
    }
    assert_eq!(
        got,
        [
            vec![0, 1, 2],
            vec![3, 4, 5],
            vec![6, 7, 8],
            vec![9],
            vec![10]
        ]
    );
    assert_eq!(rig.core.stats().splits, 3);
}

#[test]
fn a_smaller_link_divides_the_open_batch() {
    let mut rig = Rig::up(limits());
    rig.add_many(9, 90);
    rig.attach(300);
    assert!(!rig.core.wants_events());
    rig.core.handle_flush(rig.now);
    for batch in 0..3 {
        assert_eq!(
            rig.send_and(Settlement::Accepted),
            [batch * 3, batch * 3 + 1, batch * 3 + 2]
        );
    }
    assert!(matches!(rig.said().last(), Some(Said::Flushed(0, counts)) if counts.delivered == 9));
}

#[test]
fn an_event_too_large_for_a_smaller_link_fails_alone() {
    for sealed in [false, true] {
        let mut rig = Rig::up(limits());
        rig.add(90);
        rig.add(400);
        rig.add(90);
        if sealed {
            rig.core.handle_flush(rig.now);
            let (id, _) = rig.send().unwrap();
            rig.settle(id, not_sent());
        }
        rig.attach(300);
        let cause = FailureCause::TooLarge {
            size: 400,
            limit: 300,
        };
        assert_eq!(rig.said(), [Said::Failed(vec![1], cause)]);
        rig.core.handle_flush(rig.now);
        while rig.send().is_some_and(|(id, _)| {
            rig.settle(id, Settlement::Accepted);
            true
        }) {}
        assert_eq!(
            rig.core.counts(),
            Counts {
                delivered: 2,
                failed: 1,
                ..Counts::default()
            }
        );
    }
}

#[test]
fn a_batch_of_one_too_large_for_a_smaller_link_fails() {
    let mut rig = Rig::up(limits());
    rig.add(2_000);
    let (id, _) = rig.send().unwrap();
    rig.settle(id, not_sent());
    rig.attach(1_999);
    let cause = FailureCause::TooLarge {
        size: 2_000,
        limit: 1_999,
    };
    assert_eq!(rig.said(), [Said::Failed(vec![0], cause)]);
    assert!(rig.core.is_empty());
    // The same at the limit.
    rig.add(2_000);
    rig.attach(2_000);
    rig.add(2_000);
    assert_eq!(rig.send_and(Settlement::Accepted), [2]);
}

#[test]
fn a_batch_that_was_sent_keeps_its_bytes_on_a_smaller_link() {
    let mut rig = Rig::up(limits());
    rig.add_many(10, 90);
    let delivery = rig.core.poll_batch(rig.now).unwrap();
    rig.settle(delivery.id, unknown());
    rig.attach(300);
    rig.pass(1_200 * MS);
    let again = rig.core.poll_batch(rig.now).unwrap();
    assert_eq!(again.payload.as_bytes(), delivery.payload.as_bytes());
}

/// A lane with a batch in three pieces, 0..3, 3..6 and 6..8, whose last event came a second after
/// the others.
fn divided() -> Rig {
    let mut rig = Rig::up(limits());
    rig.add_many(7, 90);
    rig.pass(1_000 * MS);
    rig.add(90);
    rig.core.handle_pressure();
    let (id, _) = rig.send().unwrap();
    rig.settle(id, not_sent());
    rig.attach(300);
    rig
}

#[test]
fn a_piece_that_a_busy_link_refused_stays_ahead_of_the_others() {
    let mut rig = divided();
    let (id, first) = rig.send().unwrap();
    rig.core.handle_busy(id);
    rig.core.handle_ready();
    assert_eq!(rig.send_and(Settlement::Accepted), first);
    assert_eq!(rig.send_and(Settlement::Accepted), [3, 4, 5]);
}

#[test]
fn the_last_piece_keeps_its_times_when_it_takes_events_again() {
    let mut rig = divided();
    for _ in 0..2 {
        rig.send_and(Settlement::Accepted);
    }
    let (id, _) = rig.send().unwrap();
    rig.core.handle_busy(id);
    assert_eq!(rig.core.oldest_receipt(), Some(rig.start));
    assert_eq!(rig.wait(), Some(59_000 * MS));
    rig.pass(59_000 * MS);
    rig.add(90);
    assert_eq!(
        rig.said().last(),
        Some(&Said::Failed(vec![6], deadline(None, 0)))
    );
    rig.core.handle_ready();
    assert_eq!(rig.send_and(Settlement::Accepted), [7, 8]);
}
