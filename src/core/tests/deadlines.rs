//! What ends by time.

use super::*;

#[test]
fn events_in_no_sealed_batch_expire_one_by_one() {
    let mut rig = Rig::down(limits());
    rig.add_many(10, 20);
    rig.add(20);
    rig.pass(1_000 * MS);
    rig.add_many(2, 20);
    rig.detach();
    rig.pass(59_000 * MS - NS);
    assert_eq!(rig.said(), []);
    assert_eq!(rig.wait(), Some(NS));
    rig.pass(NS);
    assert_eq!(
        rig.said(),
        [Said::Failed((0..11).collect(), deadline(Some("lost"), 0))]
    );
    assert_eq!(rig.core.held().0, 2);
    assert_eq!(rig.wait(), Some(1_000 * MS));
    rig.attach(0);
    assert_eq!(rig.send_and(Settlement::Accepted), [11, 12]);
}

#[test]
fn what_is_left_of_an_open_batch_takes_more_and_is_encoded_whole() {
    let mut rig = Rig::down(limits());
    rig.add_many(2, 20);
    rig.pass(1_000 * MS);
    rig.add_many(2, 300);
    rig.pass(59_000 * MS);
    rig.add(100);
    assert_eq!(
        rig.core.room(),
        Some(Room {
            events: 7,
            bytes: 300
        })
    );
    rig.attach(0);
    let delivery = rig.core.poll_batch(rig.now).unwrap();
    assert_eq!(tags(&delivery), [2, 3, 4]);
    assert_eq!(delivery.payload.len_bytes(), 700);
}

#[test]
fn no_event_is_sent_at_its_deadline_even_without_a_timeout_before() {
    let mut rig = Rig::down(limits());
    rig.add(20);
    rig.now += 60_000 * MS;
    rig.core.handle_link(
        rig.now,
        &LinkState::Up {
            max_message_size: 0,
        },
    );
    assert_eq!(rig.send(), None);
    assert_eq!(rig.said(), [Said::Failed(vec![0], deadline(None, 0))]);
}

#[test]
fn a_retry_that_would_come_too_late_is_not_waited_for() {
    let (mut rig, id) = in_flight(limits());
    rig.pass(57_000 * MS);
    rig.settle(id, busy_server());
    assert_eq!(
        batches(rig.said()),
        [Said::Failed(
            vec![0, 1, 2],
            deadline(Some("com.microsoft:server-busy"), 1)
        )]
    );
}

#[test]
fn a_retry_waiting_for_its_link_ends_at_its_deadline() {
    for (settlement, stored) in [(Settlement::Released, false), (unknown(), true)] {
        let (mut rig, id) = in_flight(limits());
        rig.settle(id, settlement);
        rig.detach();
        assert_eq!(rig.wait(), Some(60_000 * MS));
        rig.pass(60_000 * MS);
        let said = batches(rig.said());
        let (tags, cause) = (vec![0, 1, 2], deadline(Some("lost"), 1));
        let expected = if stored {
            Said::Indeterminate(tags, cause)
        } else {
            Said::Failed(tags, cause)
        };
        assert_eq!(said, [expected]);
        assert_eq!(rig.core.poll_cancel(), None);
    }
}

#[test]
fn an_unanswered_delivery_is_given_up_at_its_deadline_and_its_link_reset() {
    let (mut rig, id) = in_flight(limits());
    rig.add(20);
    rig.core.handle_pressure();
    rig.pass(60_000 * MS - NS);
    assert_eq!(rig.core.poll_cancel(), None);
    rig.add(20);
    rig.core.handle_pressure();
    rig.pass(NS);
    assert_eq!(rig.send(), None, "the link must forget the old one first");
    assert_eq!(rig.core.poll_cancel(), Some(id));
    assert_eq!(rig.core.poll_cancel(), None);
    rig.settle(id, Settlement::Accepted);
    assert_eq!(
        batches(rig.said()),
        [
            Said::Indeterminate(vec![0, 1, 2], deadline(None, 1)),
            Said::Failed(vec![3], deadline(None, 0)),
        ]
    );
    assert_eq!(rig.core.stats().ignored_settlements, 1);
}

#[test]
fn what_can_be_done_at_once_is_never_slept_over() {
    let (mut rig, id) = in_flight(limits());
    rig.pass(59_000 * MS);
    rig.add(20);
    rig.core.handle_pressure();
    rig.pass(1_000 * MS);
    assert_eq!(rig.core.poll_cancel(), Some(id));
    assert!(rig.core.poll_deadline().unwrap() <= rig.now);
    assert_eq!(rig.send_and(Settlement::Accepted), [3]);
}

#[test]
fn an_endless_timeout_is_no_overflow() {
    let mut rig = Rig::up(Limits {
        max_wait: Duration::MAX,
        delivery_timeout: Duration::MAX,
        ..limits()
    });
    rig.add(20);
    assert_eq!(rig.send(), None);
    assert!(rig.wait().unwrap() > 86_400_000 * MS);
}

#[test]
fn a_problem_is_forgotten_when_something_is_accepted() {
    let (mut rig, id) = in_flight(limits());
    rig.settle(id, busy_server());
    rig.add(20);
    rig.pass(5_000 * MS);
    let (id, _) = rig.send().unwrap();
    rig.settle(id, Settlement::Accepted);
    rig.core.handle_link(rig.now, &LinkState::Down(None));
    rig.pass(60_000 * MS);
    let last = batches(rig.said()).pop();
    assert_eq!(last, Some(Said::Failed(vec![3], deadline(None, 0))));
}

#[test]
fn the_last_problem_is_told_whichever_batch_it_hit() {
    let (mut rig, id) = in_flight(limits());
    rig.settle(id, busy_server());
    rig.add(20);
    rig.core.handle_link(rig.now, &LinkState::Down(None));
    rig.pass(60_000 * MS);
    let last = batches(rig.said()).pop();
    let cause = deadline(Some("com.microsoft:server-busy"), 0);
    assert_eq!(last, Some(Said::Failed(vec![3], cause)));
}
