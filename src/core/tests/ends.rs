//! Return, abort and salvage.

use super::*;

/// A lane with events 0..10 in flight, 10..20 in the open batch and 20 behind it.
fn laden() -> (Rig, DeliveryId) {
    let mut rig = Rig::up(limits());
    rig.add_many(21, 20);
    let (id, _) = rig.send().unwrap();
    (rig, id)
}

fn range(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

#[test]
fn return_hands_back_in_order_what_was_never_sent() {
    let (mut rig, id) = laden();
    rig.core.handle_return(rig.now);
    assert_eq!(rig.said(), [Said::Returned(range(10..21))]);
    assert_eq!(rig.send(), None);
    assert_eq!(
        rig.wait(),
        Some(60_000 * MS),
        "what is in flight has its deadline"
    );
    rig.settle(id, Settlement::Accepted);
    assert_eq!(rig.said(), [Said::Delivered(range(0..10))]);
    assert!(rig.core.is_empty());
}

#[test]
fn return_completes_cuts_with_what_it_hands_back() {
    let (mut rig, id) = laden();
    rig.core.handle_flush(rig.now);
    rig.core.handle_return(rig.now);
    rig.settle(id, Settlement::Accepted);
    let counts = Counts {
        delivered: 10,
        returned: 11,
        ..Counts::default()
    };
    assert_eq!(rig.said().last(), Some(&Said::Flushed(0, counts)));
}

#[test]
fn return_hands_back_a_refused_batch_before_the_rest() {
    let (mut rig, id) = laden();
    rig.settle(id, Settlement::Released);
    rig.core.handle_return(rig.now);
    assert_eq!(
        rig.said(),
        [Said::Returned(range(0..10)), Said::Returned(range(10..21))]
    );
    assert!(rig.core.is_empty());
}

#[test]
fn return_cannot_vouch_for_an_unanswered_batch() {
    let (mut rig, id) = laden();
    rig.settle(id, unknown());
    rig.core.handle_return(rig.now);
    let cause = FailureCause::Closed { attempts: 1 };
    assert_eq!(
        rig.said(),
        [
            Said::Indeterminate(range(0..10), cause),
            Said::Returned(range(10..21))
        ]
    );
}

#[test]
fn after_return_nothing_is_sent_again() {
    for (settlement, expected) in [
        (Settlement::Released, "returned"),
        (busy_server(), "returned"),
        (not_sent(), "returned"),
        (unknown(), "indeterminate"),
        (fatal(), "failed"),
    ] {
        let (mut rig, id) = laden();
        rig.core.handle_return(rig.now);
        rig.said();
        rig.settle(id, settlement);
        let got = match &rig.said()[..] {
            [Said::Returned(_)] => "returned",
            [Said::Indeterminate(..)] => "indeterminate",
            [Said::Failed(..)] => "failed",
            other => panic!("{other:?}"),
        };
        assert_eq!(got, expected);
        assert!(rig.core.is_empty());
        assert_eq!(rig.wait(), None);
    }
}

#[test]
fn after_return_a_busy_link_gives_the_batch_back() {
    let (mut rig, id) = laden();
    rig.core.handle_return(rig.now);
    rig.core.handle_busy(id);
    assert_eq!(
        rig.said(),
        [Said::Returned(range(10..21)), Said::Returned(range(0..10))]
    );
    assert!(rig.core.is_empty());
}

#[test]
fn after_return_events_come_back_at_once_and_cuts_are_complete() {
    let mut rig = Rig::up(limits());
    rig.core.handle_return(rig.now);
    rig.core.handle_close(rig.now);
    rig.add_many(3, 20);
    rig.core.handle_flush(rig.now);
    assert!(rig.core.wants_events());
    let counts = Counts {
        returned: 3,
        ..Counts::default()
    };
    assert_eq!(
        rig.said(),
        [Said::Returned(range(0..3)), Said::Flushed(0, counts)]
    );
    assert!(rig.core.is_empty());
}

#[test]
fn after_return_an_unanswered_delivery_ends_at_its_deadline() {
    let (mut rig, id) = laden();
    rig.core.handle_return(rig.now);
    rig.pass(60_000 * MS);
    assert_eq!(rig.core.poll_cancel(), Some(id));
    assert_eq!(
        rig.said()[1],
        Said::Indeterminate(range(0..10), deadline(None, 1))
    );
}

#[test]
fn abort_ends_what_is_in_flight_and_ignores_its_answer() {
    let (mut rig, id) = laden();
    rig.core.handle_abort(rig.now);
    let expected = [
        Said::Indeterminate(range(0..10), FailureCause::Aborted),
        Said::Returned(range(10..21)),
    ];
    assert_eq!(rig.said(), expected);
    rig.settle(id, Settlement::Accepted);
    rig.core.handle_abort(rig.now);
    rig.core.handle_close(rig.now);
    assert_eq!(rig.said(), []);
    assert_eq!(rig.core.stats().ignored_settlements, 1);
    assert!(rig.core.is_empty());
}

#[test]
fn salvage_gives_every_event_out_and_names_the_broken_cuts() {
    let mut rig = Rig::up(Limits {
        window: 2,
        ..limits()
    });
    rig.add_many(42, 20);
    let first = rig.send().unwrap().0;
    let second = rig.send().unwrap().0;
    let id = rig.core.handle_flush(rig.now);
    rig.settle(first, Settlement::Accepted);
    rig.settle(second, Settlement::Released);
    rig.pass(10_000 * MS);
    rig.send().unwrap();
    rig.send().unwrap();
    let salvage = rig.core.salvage();
    assert_eq!(salvage.broken, [id]);
    let said: Vec<_> = salvage.reports.into_iter().map(super::said).collect();
    let died = || FailureCause::LaneDied;
    let expected = [
        Said::Delivered(range(0..10)),
        Said::Indeterminate(range(10..20), died()),
        Said::Indeterminate(range(20..30), died()),
        Said::Failed(range(30..42), died()),
    ];
    assert_eq!(said, expected);
    assert!(rig.core.is_empty());
    assert_eq!(rig.core.counts().total(), 42);
    assert_eq!(rig.core.held(), (0, 0));
}

#[test]
fn salvage_tells_a_refused_batch_from_an_unanswered_one() {
    for (settlement, stored) in [(Settlement::Released, false), (unknown(), true)] {
        let (mut rig, id) = laden();
        rig.settle(id, settlement);
        let salvage = rig.core.salvage();
        let said = salvage.reports.into_iter().map(super::said).next().unwrap();
        let (tags, died) = (range(0..10), FailureCause::LaneDied);
        let expected = if stored {
            Said::Indeterminate(tags, died)
        } else {
            Said::Failed(tags, died)
        };
        assert_eq!(said, expected);
    }
}

#[test]
fn a_salvaged_core_fails_what_comes_late() {
    let (mut rig, _) = laden();
    rig.core.salvage();
    rig.add(20);
    rig.add(20);
    rig.core.handle_close(rig.now);
    assert_eq!(rig.send(), None);
    assert_eq!(
        rig.said(),
        [Said::Failed(range(21..23), FailureCause::LaneDied)]
    );
    assert_eq!(rig.wait(), None);
}

/// A wrong size makes the encoding panic, where assertions are compiled in.
#[cfg(debug_assertions)]
#[test]
fn a_panic_while_an_event_is_encoded_loses_none() {
    // The wrong one is added to the open batch itself, or comes to it from the backlog.
    for before in [0, 3, 10, 15] {
        let mut rig = Rig::up(limits());
        rig.add_many(before, 20);
        let mut wrong = entry(before as u64, 20);
        wrong.encoded_len += 1;
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rig.core.handle_event(rig.now, rig.now, wrong);
            rig.core.poll_batch(rig.now);
            rig.core.handle_abort(rig.now);
        }));
        assert!(panic.is_err());
        let salvage = rig.core.salvage();
        let mut tags: Vec<_> = salvage
            .reports
            .into_iter()
            .flat_map(|report| match super::said(report) {
                Said::Failed(tags, _) | Said::Indeterminate(tags, _) => tags,
                other => panic!("{other:?}"),
            })
            .collect();
        tags.sort_unstable();
        assert_eq!(tags, range(0..before as u64 + 1));
        assert!(rig.core.is_empty());
    }
}

#[test]
fn events_that_end_unlike_are_reported_apart() {
    let mut rig = Rig::up(limits());
    rig.attach(300);
    rig.add_many(2, 400);
    rig.core.handle_return(rig.now);
    rig.add_many(2, 20);
    let cause = FailureCause::TooLarge {
        size: 400,
        limit: 300,
    };
    let expected = [
        Said::Failed(range(0..2), cause),
        Said::Returned(range(2..4)),
    ];
    assert_eq!(rig.said(), expected);
}
