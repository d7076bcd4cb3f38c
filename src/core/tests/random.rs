//! Any sequence of calls, against a bookkeeper that knows nothing of batches.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Op {
    Add {
        size: usize,
        count: usize,
        seen_empty: u64,
    },
    Flush,
    Pressure,
    Down,
    Up {
        max: u64,
    },
    /// The oldest, the second oldest … in flight is answered.
    Settle {
        which: usize,
        how: usize,
    },
    /// An answer to nothing in flight.
    Stray(u64),
    /// From here on the link is busy when it is asked.
    Busy,
    Ready,
    Pass {
        ms: u64,
    },
    ToDeadline,
    Close,
    Return,
    Abort,
}

const ANSWERS: usize = 8;

fn answer(how: usize) -> Settlement {
    match how {
        0 | 1 => Settlement::Accepted,
        2 => Settlement::Released,
        3 => Settlement::Modified,
        4 => busy_server(),
        5 => fatal(),
        6 => unknown(),
        _ => not_sent(),
    }
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![8 => 18_usize..200, 2 => 300_usize..900, 1 => 1_001_usize..2_000];
    let add = (
        size,
        prop_oneof![4 => Just(1_usize), 1 => 2_usize..12],
        0_u64..4_000,
    );
    prop_oneof![
        12 => add.prop_map(|(size, count, seen_empty)| Op::Add { size, count, seen_empty }),
        3 => Just(Op::Flush),
        1 => Just(Op::Pressure),
        1 => Just(Op::Down),
        3 => prop_oneof![Just(0_u64), Just(5_000), 250_u64..1_500].prop_map(|max| Op::Up { max }),
        8 => (0_usize..3, 0..ANSWERS).prop_map(|(which, how)| Op::Settle { which, how }),
        1 => (0_u64..20).prop_map(Op::Stray),
        1 => Just(Op::Busy),
        2 => Just(Op::Ready),
        4 => (0_u64..12_000).prop_map(|ms| Op::Pass { ms }),
        3 => Just(Op::ToDeadline),
    ]
}

/// Any calls, each followed by a pass of the driver or not; some with an end among them.
fn ops() -> impl Strategy<Value = Vec<(Op, bool)>> {
    let end = prop_oneof![Just(Op::Close), Just(Op::Return), Just(Op::Abort)];
    let ops = proptest::collection::vec((op(), prop::bool::weighted(0.8)), 1..120);
    (ops, proptest::option::weighted(0.3, (end, 0.0..1.0_f64))).prop_map(|(mut ops, end)| {
        if let Some((end, place)) = end {
            ops.insert((ops.len() as f64 * place) as usize, (end, true));
        }
        ops
    })
}

/// What is known of the lane from outside.
struct Books {
    rig: Rig,
    window: usize,
    received: Vec<Instant>,
    bytes: u64,
    reported_bytes: u64,
    outcomes: BTreeMap<u64, &'static str>,
    /// In flight, in the order of submission.
    flight: Vec<(DeliveryId, Vec<u64>, Vec<u8>)>,
    /// What was transferred and not given back unsent, by its first event.
    transferred: BTreeMap<u64, (Vec<u64>, Vec<u8>)>,
    accepted: BTreeSet<u64>,
    /// Events that the peer may have, without having said so.
    unanswered: BTreeSet<u64>,
    cuts: BTreeMap<u64, u64>,
    link_max: u64,
    link_busy: bool,
}

impl Books {
    fn new(window: usize, max_retries: u32) -> Books {
        let mut limits = Limits { window, ..limits() };
        limits.retry.max_retries = max_retries;
        Books {
            rig: Rig::down(limits),
            window,
            received: Vec::new(),
            bytes: 0,
            reported_bytes: 0,
            outcomes: BTreeMap::new(),
            flight: Vec::new(),
            transferred: BTreeMap::new(),
            accepted: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            cuts: BTreeMap::new(),
            link_max: 0,
            link_busy: false,
        }
    }

    fn apply(&mut self, op: Op) {
        let now = self.rig.now;
        match op {
            Op::Add {
                size,
                count,
                seen_empty,
            } => {
                let since = now
                    .checked_sub(Duration::from_millis(seen_empty))
                    .unwrap_or(now);
                for _ in 0..count {
                    self.add(size, since);
                }
            }
            Op::Flush => {
                let id = self.rig.core.handle_flush(now);
                self.cuts.insert(id.0, self.rig.next);
            }
            Op::Pressure => self.rig.core.handle_pressure(),
            Op::Down => self.rig.detach(),
            Op::Up { max } => self.attach(max),
            Op::Settle { which, how } => self.settle(which, answer(how)),
            Op::Stray(id) => {
                if self.flight.iter().all(|(flying, ..)| flying.0 != id) {
                    self.rig.settle(DeliveryId(id), Settlement::Accepted);
                }
            }
            Op::Busy => self.link_busy = true,
            Op::Ready => {
                self.link_busy = false;
                self.rig.core.handle_ready();
            }
            Op::Pass { ms } => self.rig.now += Duration::from_millis(ms),
            Op::ToDeadline => self.rig.now = self.rig.core.poll_deadline().unwrap_or(now).max(now),
            Op::Close => self.rig.core.handle_close(now),
            Op::Return => self.rig.core.handle_return(now),
            Op::Abort => {
                let flying = std::mem::take(&mut self.flight);
                self.unanswered
                    .extend(flying.into_iter().flat_map(|(_, tags, _)| tags));
                self.rig.core.handle_abort(now);
            }
        }
        self.check_ledger();
    }

    fn add(&mut self, size: usize, since: Instant) {
        let size = if (261..264).contains(&size) {
            264
        } else {
            size
        };
        self.received.push(self.rig.now);
        self.rig.add_since(size, since);
        self.bytes += u64::from(entry(0, size).encoded_len);
    }

    fn attach(&mut self, max: u64) {
        self.link_max = max;
        self.link_busy = false;
        self.rig.attach(max);
    }

    fn settle(&mut self, which: usize, settlement: Settlement) {
        if which >= self.flight.len() {
            return;
        }
        let (id, tags, bytes) = self.flight.remove(which);
        match &settlement {
            Settlement::Accepted => self.accepted.extend(&tags),
            Settlement::Unknown(_) => self.unanswered.extend(&tags),
            _ => {}
        }
        if !matches!(settlement, Settlement::NotSent(_)) {
            self.transferred.insert(tags[0], (tags, bytes));
        }
        self.rig.settle(id, settlement);
    }

    /// One pass of a driver.
    fn pump(&mut self) {
        let now = self.rig.now;
        if self.rig.core.poll_deadline().is_some_and(|at| at <= now) {
            self.rig.core.handle_timeout(now);
        }
        while let Some(id) = self.rig.core.poll_cancel() {
            let at = self.flight.iter().position(|(flying, ..)| *flying == id);
            let (_, tags, _) = self.flight.remove(at.expect("cancels what is in flight"));
            self.unanswered.extend(tags);
        }
        self.hear();
        while let Some(delivery) = self.rig.core.poll_batch(now) {
            self.hear();
            if self.link_busy {
                self.rig.core.handle_busy(delivery.id);
            } else {
                self.submit(&delivery);
            }
        }
        self.hear();
        for (id, cut) in &self.cuts {
            assert!(
                (0..*cut).any(|tag| !self.outcomes.contains_key(&tag)),
                "cut {id} is late"
            );
        }
        if let Some(at) = self.rig.core.poll_deadline() {
            assert!(at > now, "waits for the past");
        }
        self.check_ledger();
    }

    fn submit(&mut self, delivery: &Delivery) {
        let numbers = tags(delivery);
        let bytes = delivery.payload.as_bytes().to_vec();
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        assert_eq!(numbers, (first..=last).collect::<Vec<_>>(), "a gap");
        assert!(self.flight.len() < self.window, "beyond the window");
        assert!(delivery.deadline > self.rig.now, "sent at its deadline");
        assert!(delivery.deadline <= self.received[first as usize] + 60_000 * MS);

        let flying: BTreeSet<_> = self.flight.iter().flat_map(|(_, tags, _)| tags).collect();
        for tag in first..=last {
            assert!(
                !self.outcomes.contains_key(&tag),
                "{tag} is sent after its outcome"
            );
            assert!(!flying.contains(&tag), "{tag} is sent twice at once");
        }
        for tag in 0..first {
            let ahead = self.outcomes.contains_key(&tag) || flying.contains(&tag);
            assert!(ahead, "{first} overtakes {tag}");
        }
        if let Some((before, same)) = self.transferred.get(&first) {
            assert_eq!(
                (before, same),
                (&numbers, &bytes),
                "a retry is another batch"
            );
        } else {
            assert!((first..=last).all(|tag| !self.transferred.contains_key(&tag)));
            assert!(
                self.link_max == 0 || bytes.len() as u64 <= self.link_max,
                "too large"
            );
            assert!(numbers.len() == 1 || bytes.len() <= 1_000);
            assert!(numbers.len() <= 10);
        }
        self.flight.push((delivery.id, numbers, bytes));
    }

    /// Takes the reports and checks each against what is known.
    fn hear(&mut self) {
        while let Some(report) = self.rig.core.poll_report() {
            if let Report::Batch { entries, .. } = &report {
                self.reported_bytes += entries
                    .iter()
                    .map(|entry| u64::from(entry.encoded_len))
                    .sum::<u64>();
            }
            match said(report) {
                Said::Delivered(tags) => self.conclude(&tags, "delivered"),
                Said::Failed(tags, _) => self.conclude(&tags, "failed"),
                Said::Indeterminate(tags, _) => self.conclude(&tags, "indeterminate"),
                Said::Returned(tags) => self.conclude(&tags, "returned"),
                Said::Flushed(id, counts) => self.flushed(id, counts),
            }
        }
    }

    fn conclude(&mut self, tags: &[u64], outcome: &'static str) {
        assert!(tags.is_sorted() && !tags.is_empty());
        for tag in tags {
            assert_eq!(
                self.outcomes.insert(*tag, outcome),
                None,
                "{tag} has two outcomes"
            );
            assert_eq!(self.accepted.contains(tag), outcome == "delivered", "{tag}");
            if outcome != "delivered" {
                let unanswered = self.unanswered.contains(tag);
                assert_eq!(unanswered, outcome == "indeterminate", "{tag} is {outcome}");
            }
        }
    }

    fn flushed(&mut self, id: u64, counts: Counts) {
        assert_eq!(
            self.cuts.first_key_value().map(|(id, _)| *id),
            Some(id),
            "out of order"
        );
        let cut = self.cuts.remove(&id).unwrap();
        let of = |wanted| {
            let before = self.outcomes.range(..cut);
            before.filter(|(_, outcome)| **outcome == wanted).count() as u64
        };
        let expected = Counts {
            delivered: of("delivered"),
            failed: of("failed"),
            indeterminate: of("indeterminate"),
            returned: of("returned"),
        };
        assert_eq!(counts, expected);
        assert_eq!(counts.total(), cut, "complete too early");
    }

    fn check_ledger(&self) {
        let (events, bytes) = self.rig.core.held();
        assert_eq!(events + self.outcomes.len() as u64, self.rig.next);
        assert_eq!(bytes + self.reported_bytes, self.bytes);
    }

    /// With a good peer everything ends.
    fn drain(&mut self) {
        self.rig.core.handle_close(self.rig.now);
        self.attach(0);
        for _ in 0..10_000 {
            self.pump();
            if self.rig.core.is_empty() {
                break;
            }
            if self.flight.is_empty() {
                self.rig.now = self
                    .rig
                    .core
                    .poll_deadline()
                    .expect("something to wait for");
            } else {
                self.settle(0, Settlement::Accepted);
            }
        }
        assert!(self.rig.core.is_empty(), "does not drain");
        assert_eq!(self.outcomes.len() as u64, self.rig.next);
        assert!(self.cuts.is_empty());
        assert_eq!(self.rig.core.poll_deadline(), None);
        let salvage = self.rig.core.salvage();
        assert!(salvage.reports.is_empty() && salvage.broken.is_empty());
    }

    fn salvage(&mut self) {
        self.unanswered
            .extend(self.flight.drain(..).flat_map(|(_, tags, _)| tags));
        let salvage = self.rig.core.salvage();
        let mut cuts = std::mem::take(&mut self.cuts);
        for id in salvage.broken {
            assert!(cuts.remove(&id.0).is_some());
        }
        self.cuts = cuts;
        for report in salvage.reports {
            match said(report) {
                Said::Delivered(tags) => self.conclude(&tags, "delivered"),
                Said::Failed(tags, _) => self.conclude(&tags, "failed"),
                Said::Indeterminate(tags, _) => self.conclude(&tags, "indeterminate"),
                Said::Returned(tags) => self.conclude(&tags, "returned"),
                Said::Flushed(id, counts) => self.flushed(id, counts),
            }
        }
        assert_eq!(self.outcomes.len() as u64, self.rig.next);
        assert!(self.cuts.is_empty() && self.rig.core.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_event_gets_one_true_outcome_and_every_cut_is_exact(
        window in prop_oneof![Just(1_usize), Just(3)],
        max_retries in prop_oneof![2 => Just(u32::MAX), 1 => 0_u32..3],
        ops in ops(),
        dies in prop::bool::weighted(0.3),
    ) {
        let mut books = Books::new(window, max_retries);
        books.attach(0);
        for (op, pumped) in ops {
            books.apply(op);
            if pumped {
                books.pump();
            }
        }
        if dies {
            books.salvage();
        } else {
            books.drain();
        }
    }
}
