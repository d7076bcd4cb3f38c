//! Cuts.

use super::*;

fn delivered(n: u64) -> Counts {
    Counts {
        delivered: n,
        ..Counts::default()
    }
}

#[test]
fn a_cut_of_nothing_is_complete_at_once() {
    let mut rig = Rig::down(limits());
    rig.core.handle_flush(rig.now);
    rig.core.handle_flush(rig.now);
    assert!(!rig.core.is_empty());
    assert_eq!(
        rig.said(),
        [
            Said::Flushed(0, delivered(0)),
            Said::Flushed(1, delivered(0))
        ]
    );
    assert!(rig.core.is_empty());
}

#[test]
fn a_cut_ends_waiting_and_is_complete_after_the_reports_it_covers() {
    let mut rig = Rig::up(limits());
    rig.add(20);
    rig.core.handle_flush(rig.now);
    assert_eq!(rig.send_and(Settlement::Accepted), [0]);
    assert_eq!(
        rig.said(),
        [Said::Delivered(vec![0]), Said::Flushed(0, delivered(1))]
    );
    assert_eq!(rig.core.stats().seals.flush, 1);
}

#[test]
fn a_cut_waits_for_what_is_in_flight() {
    let mut rig = Rig::up(limits());
    rig.add_many(10, 20);
    let (id, _) = rig.send().unwrap();
    let first = rig.core.handle_flush(rig.now);
    // Two at the same place are one.
    assert_eq!(rig.core.handle_flush(rig.now), first);
    assert_eq!(rig.said(), []);
    rig.settle(id, Settlement::Accepted);
    assert_eq!(
        rig.said(),
        [
            Said::Delivered((0..10).collect()),
            Said::Flushed(0, delivered(10)),
        ]
    );
}

#[test]
fn of_a_batch_across_a_cut_only_the_part_before_counts() {
    let mut rig = Rig::down(limits());
    rig.add_many(3, 20);
    rig.core.handle_flush(rig.now);
    rig.add_many(2, 20);
    rig.core.handle_flush(rig.now);
    rig.add(20);
    rig.attach(0);
    assert_eq!(rig.send_and(fatal()).len(), 6);
    let said = rig.said();
    assert!(matches!(&said[0], Said::Failed(tags, _) if tags.len() == 6));
    let failed = |n| Counts {
        failed: n,
        ..Counts::default()
    };
    assert_eq!(
        said[1..],
        [Said::Flushed(0, failed(3)), Said::Flushed(1, failed(5))]
    );
    assert_eq!(rig.core.counts(), failed(6));
}

#[test]
fn a_cut_does_not_cover_what_comes_after_it() {
    let mut rig = Rig::up(limits());
    rig.add_many(10, 20);
    rig.core.handle_flush(rig.now);
    rig.add(20);
    assert_eq!(rig.send_and(Settlement::Accepted).len(), 10);
    assert_eq!(rig.said()[1], Said::Flushed(0, delivered(10)));
    assert_eq!(rig.send(), None, "what is behind the cut may wait");
}

#[test]
fn with_a_window_a_cut_waits_for_the_oldest_and_counts_only_before_it() {
    let mut rig = Rig::up(Limits {
        window: 3,
        ..limits()
    });
    rig.add_many(15, 20);
    rig.core.handle_flush(rig.now);
    rig.add_many(15, 20);
    let ids: Vec<_> = (0..3).map(|_| rig.send().unwrap().0).collect();
    rig.settle(ids[2], fatal());
    rig.settle(ids[1], Settlement::Accepted);
    assert!(
        rig.said()
            .iter()
            .all(|said| !matches!(said, Said::Flushed(..)))
    );
    rig.settle(ids[0], Settlement::Accepted);
    let said = rig.said();
    assert_eq!(said[0], Said::Delivered((0..10).collect()));
    assert_eq!(
        said[1],
        Said::Flushed(0, delivered(15)),
        "the failed batch lies behind"
    );
}

#[test]
fn a_cut_covers_retries_and_expiries() {
    let mut rig = Rig::up(limits());
    rig.add_many(11, 20);
    let (id, _) = rig.send().unwrap();
    rig.core.handle_flush(rig.now);
    rig.settle(id, unknown());
    rig.detach();
    rig.pass(59_999 * MS);
    assert_eq!(rig.said(), []);
    rig.pass(MS);
    let said = rig.said();
    assert_eq!(said.len(), 3);
    let counts = Counts {
        failed: 1,
        indeterminate: 10,
        ..Counts::default()
    };
    assert_eq!(said[2], Said::Flushed(0, counts));
}

#[test]
fn every_batch_before_a_cut_is_due_also_those_not_yet_open() {
    let mut rig = Rig::up(limits());
    rig.add_many(3, 500);
    rig.core.handle_flush(rig.now);
    assert_eq!(rig.send_and(Settlement::Accepted), [0, 1]);
    assert_eq!(rig.send_and(Settlement::Accepted), [2]);
    assert_eq!(rig.said().last(), Some(&Said::Flushed(0, delivered(3))));
}

#[test]
fn a_pending_cut_does_not_make_due_what_stands_right_behind_it() {
    let mut rig = Rig::up(Limits {
        window: 3,
        ..limits()
    });
    rig.add_many(10, 20);
    rig.send().unwrap();
    rig.core.handle_flush(rig.now);
    rig.add(20);
    assert_eq!(rig.send(), None);
}
