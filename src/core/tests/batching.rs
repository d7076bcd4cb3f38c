//! When a batch goes, and what is in it.

use super::*;

#[test]
fn twenty_five_events_go_as_ten_ten_and_five() {
    let mut rig = Rig::up(limits());
    rig.add_many(25, 20);
    rig.core.handle_flush(rig.now);
    assert_eq!(
        rig.send_and(Settlement::Accepted),
        (0..10).collect::<Vec<_>>()
    );
    assert_eq!(
        rig.send_and(Settlement::Accepted),
        (10..20).collect::<Vec<_>>()
    );
    assert_eq!(
        rig.send_and(Settlement::Accepted),
        (20..25).collect::<Vec<_>>()
    );
    assert_eq!(rig.send(), None);
    let seals = rig.core.stats().seals;
    assert_eq!((seals.count, seals.flush, seals.total()), (2, 1, 3));
}

#[test]
fn a_batch_is_full_at_its_limit_in_bytes_and_not_before() {
    let mut rig = Rig::up(limits());
    rig.add_many(3, 250);
    rig.add(249);
    assert_eq!(
        rig.core.room(),
        Some(Room {
            events: 6,
            bytes: 1
        })
    );
    assert!(rig.core.wants_events());
    assert_eq!(rig.send(), None);

    let mut rig = Rig::up(limits());
    rig.add_many(4, 250);
    assert_eq!(
        rig.core.room(),
        Some(Room {
            events: 0,
            bytes: 0
        })
    );
    assert!(!rig.core.wants_events());
    assert_eq!(rig.send_and(Settlement::Accepted), [0, 1, 2, 3]);
    assert_eq!(rig.core.stats().seals.size, 1);
}

#[test]
fn an_event_that_does_not_fit_closes_the_batch_and_opens_the_next() {
    let mut rig = Rig::up(limits());
    rig.add_many(3, 250);
    rig.add(251);
    assert!(!rig.core.wants_events());
    assert_eq!(
        rig.core.room(),
        Some(Room {
            events: 0,
            bytes: 0
        })
    );
    assert_eq!(rig.send_and(Settlement::Accepted), [0, 1, 2]);
    assert!(rig.core.wants_events());
    assert_eq!(
        rig.core.room(),
        Some(Room {
            events: 9,
            bytes: 749
        })
    );
    assert_eq!(rig.send(), None);
}

#[test]
fn the_links_limit_is_the_batchs_if_it_is_less() {
    let mut rig = Rig::down(limits());
    rig.attach(500);
    rig.add_many(3, 200);
    let delivery = rig.core.poll_batch(rig.now).unwrap();
    assert_eq!(tags(&delivery), [0, 1]);
    assert!(delivery.payload.len_bytes() <= 500);
}

#[test]
fn an_event_above_the_target_goes_alone() {
    let mut rig = Rig::up(limits());
    rig.add(20);
    rig.add(2_000);
    rig.add(20);
    assert_eq!(rig.send_and(Settlement::Accepted), [0]);
    assert_eq!(rig.send_and(Settlement::Accepted), [1]);
    assert_eq!(rig.send(), None);
    rig.pass(5_000 * MS);
    assert_eq!(rig.send_and(Settlement::Accepted), [2]);
}

#[test]
fn events_handed_in_beyond_the_batch_fill_the_next_ones_in_order() {
    let mut rig = Rig::up(limits());
    rig.add_many(35, 20);
    for batch in 0..3 {
        assert_eq!(
            rig.send_and(Settlement::Accepted),
            (batch * 10..batch * 10 + 10).collect::<Vec<_>>()
        );
    }
    assert_eq!(rig.core.room().map(|room| room.events), Some(5));
    assert_eq!(rig.send(), None);
}

#[test]
fn a_batch_goes_at_its_age_and_not_a_nanosecond_before() {
    let mut rig = Rig::up(limits());
    rig.add(20);
    rig.pass(1_000 * MS);
    rig.add(20);
    assert_eq!(rig.wait(), Some(4_000 * MS));
    rig.pass(4_000 * MS - NS);
    assert_eq!(rig.send(), None);
    rig.pass(NS);
    assert_eq!(rig.send_and(Settlement::Accepted), [0, 1]);
    assert_eq!(rig.core.stats().seals.age, 1);
    assert_eq!(rig.wait(), None);
}

#[test]
fn the_age_counts_from_the_instant_the_lane_was_seen_empty() {
    let mut rig = Rig::up(limits());
    let seen_empty = rig.now;
    rig.now += 2_000 * MS;
    rig.add_since(20, seen_empty);
    assert_eq!(rig.wait(), Some(3_000 * MS));
    rig.pass(3_000 * MS);
    let delivery = rig.core.poll_batch(rig.now).unwrap();
    // The deadline counts from the receipt.
    assert_eq!(delivery.deadline, rig.start + 62_000 * MS);
}

#[test]
fn the_age_of_a_batch_is_its_oldest_events_and_drifts_by_nothing() {
    let mut rig = Rig::up(limits());
    for _ in 0..3_600 {
        let first = rig.add(20);
        rig.pass(2_000 * MS);
        rig.add(20);
        assert_eq!(rig.wait(), Some(3_000 * MS));
        rig.pass(3_000 * MS);
        assert_eq!(rig.send_and(Settlement::Accepted), [first, first + 1]);
        rig.said();
    }
    assert_eq!(rig.now - rig.start, 3_600 * 5_000 * MS);
}

#[test]
fn an_event_carried_over_keeps_its_age() {
    let mut rig = Rig::up(limits());
    rig.add(900);
    rig.add(900);
    rig.now += 1_000 * MS;
    assert_eq!(rig.send_and(Settlement::Accepted), [0]);
    assert_eq!(rig.wait(), Some(4_000 * MS));
}

#[test]
fn pressure_seals_what_is_held_and_nothing_that_comes_later() {
    let mut rig = Rig::up(limits());
    rig.core.handle_pressure();
    rig.add(20);
    assert_eq!(rig.send(), None);
    rig.core.handle_pressure();
    assert_eq!(rig.send_and(Settlement::Accepted), [0]);
    rig.add(20);
    assert_eq!(rig.send(), None);
    assert_eq!(rig.core.stats().seals.pressure, 1);
}

#[test]
fn nothing_waits_for_company_in_a_closing_lane() {
    let mut rig = Rig::up(limits());
    rig.add(20);
    rig.core.handle_close(rig.now);
    assert_eq!(rig.send_and(Settlement::Accepted), [0]);
    rig.add(20);
    assert_eq!(rig.send_and(Settlement::Accepted), [1]);
    assert_eq!(rig.core.stats().seals.close, 2);
}

#[test]
fn a_due_batch_takes_more_until_its_link_can_take_it() {
    let mut rig = Rig::down(limits());
    rig.add(20);
    rig.pass(10_000 * MS);
    assert_eq!(rig.send(), None);
    assert_eq!(rig.wait(), Some(50_000 * MS), "the age waits for the link");
    rig.add(20);
    rig.attach(0);
    assert_eq!(rig.send_and(Settlement::Accepted), [0, 1]);
}

#[test]
fn a_due_batch_takes_more_while_another_is_in_flight() {
    let mut rig = Rig::up(limits());
    rig.add_many(11, 20);
    let (id, _) = rig.send().unwrap();
    rig.pass(7_000 * MS);
    assert_eq!(rig.send(), None);
    rig.add(20);
    rig.settle(id, Settlement::Accepted);
    assert_eq!(rig.send().unwrap().1, [10, 11]);
}

#[test]
fn a_busy_link_gets_the_batch_back_when_it_is_ready_with_all_that_came() {
    let mut rig = Rig::up(limits());
    rig.add(20);
    rig.pass(5_000 * MS);
    let (id, _) = rig.send().unwrap();
    rig.core.handle_busy(id);
    assert_eq!(rig.send(), None);
    assert_eq!(
        rig.wait(),
        Some(55_000 * MS),
        "nothing to do before the link is ready"
    );
    rig.add(20);
    assert_eq!(rig.core.held().0, 2);
    rig.core.handle_ready();
    assert_eq!(rig.send_and(Settlement::Accepted), [0, 1]);
    assert_eq!(rig.said(), [Said::Delivered(vec![0, 1])]);
    let stats = *rig.core.stats();
    assert_eq!((stats.seals.total(), stats.retries), (1, 0));
}

#[test]
fn a_batch_that_a_busy_link_refused_stays_ahead_of_what_is_open() {
    let mut rig = Rig::up(limits());
    rig.add_many(11, 20);
    let (id, first) = rig.send().unwrap();
    rig.core.handle_busy(id);
    rig.add(20);
    rig.attach(0);
    assert_eq!(rig.send_and(Settlement::Accepted), first);
    rig.core.handle_flush(rig.now);
    assert_eq!(rig.send_and(Settlement::Accepted), [10, 11]);
}

#[test]
fn a_busy_answer_does_not_count_as_an_attempt() {
    let mut rig = Rig::up(limits());
    rig.add_many(11, 20);
    for _ in 0..3 {
        let (id, _) = rig.send().unwrap();
        rig.core.handle_busy(id);
        rig.core.handle_ready();
    }
    rig.send_and(Settlement::Accepted);
    let report = rig.core.poll_report();
    assert!(
        matches!(report, Some(Report::Batch { attempts: 1, .. })),
        "{report:?}"
    );
}

#[test]
fn a_window_of_three_is_used_and_not_exceeded() {
    let mut rig = Rig::up(Limits {
        window: 3,
        ..limits()
    });
    rig.add_many(40, 20);
    let ids: Vec<_> = (0..3).map(|_| rig.send().unwrap().0).collect();
    assert_eq!(rig.send(), None);
    rig.settle(ids[1], Settlement::Accepted);
    assert_eq!(rig.send().unwrap().1, (30..40).collect::<Vec<_>>());
    assert_eq!(rig.said(), [Said::Delivered((10..20).collect())]);
}

#[test]
fn payloads_are_used_again() {
    let mut rig = Rig::up(limits());
    let mut seen = std::collections::HashSet::new();
    for _ in 0..50 {
        rig.add_many(10, 20);
        let delivery = rig.core.poll_batch(rig.now).unwrap();
        seen.insert(delivery.payload.as_bytes().as_ptr() as usize);
        let id = delivery.id;
        drop(delivery);
        rig.settle(id, Settlement::Accepted);
    }
    assert!(seen.len() <= 3, "{} buffers", seen.len());
}

#[test]
fn a_payload_that_the_link_still_reads_is_left_alone() {
    let mut rig = Rig::up(limits());
    let mut kept = Vec::new();
    for _ in 0..5 {
        rig.add_many(10, 20);
        let delivery = rig.core.poll_batch(rig.now).unwrap();
        rig.settle(delivery.id, Settlement::Accepted);
        kept.push(delivery);
    }
    for (batch, delivery) in kept.iter().enumerate() {
        let first = batch as u64 * 10;
        assert_eq!(tags(delivery), (first..first + 10).collect::<Vec<_>>());
    }
}
