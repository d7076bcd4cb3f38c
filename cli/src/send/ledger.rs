//! What was sent against what was stored.
//!
//! An event is known by its line's number, which is its message id. Of its body and key only a
//! 64-bit fingerprint is kept, made with a key that is new in each run (SipHash 1-3), so that an
//! altered event goes unnoticed with a probability of 2⁻⁶⁴: about ten bytes a line, and twenty
//! a partition key.

use serde::Serialize;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// What became of a line, as far as its sender says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// Nothing was sent of it, or all of it definitely came back: it must not be stored.
    NotStored,
    /// It must be stored.
    Stored,
    /// It may be stored.
    Unknown,
}

/// One line's account.
#[derive(Clone, Copy, Debug)]
struct Account {
    said: Said,
    seen: bool,
}

const BLANK: Account = Account {
    said: Said::NotStored,
    seen: false,
};

/// Makes fingerprints. Clones make the same ones.
#[derive(Clone, Debug, Default)]
pub struct Fingerprints(RandomState);

impl Fingerprints {
    /// The fingerprint of a body and a key.
    pub fn of(&self, body: &[u8], key: Option<&str>) -> u64 {
        self.0.hash_one((body, key))
    }
}

/// An event as it was stored.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Its partition.
    pub partition: usize,
    /// Its message id, if that is a number.
    pub line: Option<u64>,
    /// Its partition key.
    pub key: Option<&'a str>,
    /// Its fingerprint.
    pub fingerprint: u64,
}

/// The findings. All but `received` are zero if all is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Events that were read back, whatever they are.
    pub received: u64,
    /// Accepted events that were not stored, though nobody said that they would not be.
    pub lost: u64,
    /// Events stored again after the first time.
    pub duplicated: u64,
    /// Events stored behind a later line of their partition or of their key, or in another
    /// partition than an earlier event of their key.
    pub out_of_order: u64,
    /// Events whose body or key is not the line's.
    pub altered: u64,
    /// Events that no line accounts for: unknown ones, and some reported as not stored.
    pub unexpected: u64,
}

impl Verdict {
    /// Whether everything was found as it should be.
    pub fn is_good(&self) -> bool {
        *self
            == Verdict {
                received: self.received,
                ..Verdict::default()
            }
    }
}

/// The latest event of a key.
#[derive(Clone, Copy, Debug)]
struct KeyPlace {
    partition: u32,
    line: u64,
}

/// Compares what was sent with what is found.
#[derive(Debug, Default)]
pub struct Ledger {
    fingerprints: Fingerprints,
    /// By line; index 0 is line 1.
    accounts: Vec<Account>,
    /// Fingerprints by line.
    expected: Vec<u64>,
    /// The latest line of each partition.
    partitions: Vec<u64>,
    /// By a hash of the key.
    keys: HashMap<u64, KeyPlace>,
    found: Verdict,
}

impl Ledger {
    /// What makes this ledger's fingerprints.
    pub fn fingerprints(&self) -> Fingerprints {
        self.fingerprints.clone()
    }

    /// A line is about to be sent. It counts as stored from now on, unless it is withdrawn.
    pub fn expect(&mut self, line: u64, fingerprint: u64) {
        let Some(index) = index_of(line) else { return };
        if self.accounts.len() <= index {
            self.accounts.resize(index + 1, BLANK);
            self.expected.resize(index + 1, 0);
        }
        self.accounts[index].said = Said::Stored;
        self.expected[index] = fingerprint;
    }

    /// A line was refused, given up or handed back, and is said not to be stored.
    pub fn withdraw(&mut self, line: u64) {
        self.say(line, Said::NotStored);
    }

    /// A line was given up and may be stored.
    pub fn doubt(&mut self, line: u64) {
        self.say(line, Said::Unknown);
    }

    fn say(&mut self, line: u64, said: Said) {
        let account = index_of(line).and_then(|index| self.accounts.get_mut(index));
        if let Some(account) = account {
            account.said = said;
        }
    }

    /// An event was read back. Events of one partition come in its order.
    pub fn observe(&mut self, event: Found<'_>) {
        self.found.received += 1;
        let index = event.line.and_then(index_of);
        let Some((line, index)) = event
            .line
            .zip(index.filter(|&index| index < self.accounts.len()))
        else {
            self.found.unexpected += 1;
            return;
        };
        if self.accounts[index].seen {
            self.found.duplicated += 1;
            return;
        }
        self.accounts[index].seen = true;
        if self.expected[index] != event.fingerprint {
            self.found.altered += 1;
        }
        let in_partition = self.comes_later(event.partition, line);
        let in_key = event
            .key
            .is_none_or(|key| self.comes_later_for(key, event.partition, line));
        if !(in_partition && in_key) {
            self.found.out_of_order += 1;
        }
    }

    fn comes_later(&mut self, partition: usize, line: u64) -> bool {
        if self.partitions.len() <= partition {
            self.partitions.resize(partition + 1, 0);
        }
        let latest = &mut self.partitions[partition];
        let later = line > *latest;
        *latest = line.max(*latest);
        later
    }

    fn comes_later_for(&mut self, key: &str, partition: usize, line: u64) -> bool {
        let partition = partition as u32;
        let hash = self.fingerprints.of(&[], Some(key));
        let latest = self
            .keys
            .entry(hash)
            .or_insert(KeyPlace { partition, line: 0 });
        let later = line > latest.line && partition == latest.partition;
        latest.line = line.max(latest.line);
        later
    }

    /// The findings, once nothing more can be found.
    pub fn verdict(&self) -> Verdict {
        let mut verdict = self.found;
        for account in &self.accounts {
            match (account.said, account.seen) {
                (Said::Stored, false) => verdict.lost += 1,
                (Said::NotStored, true) => verdict.unexpected += 1,
                (Said::Stored, true) | (Said::NotStored, false) | (Said::Unknown, _) => {}
            }
        }
        verdict
    }
}

fn index_of(line: u64) -> Option<usize> {
    usize::try_from(line.checked_sub(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines `1..=n` are sent, each with its number as its body and one of two keys.
    struct Trial(Ledger);

    fn key_of(line: u64) -> &'static str {
        if line % 2 == 0 { "even" } else { "odd" }
    }

    impl Trial {
        fn sent(lines: u64) -> Trial {
            let mut trial = Trial(Ledger::default());
            for line in 1..=lines {
                let body = line.to_string();
                let print = trial
                    .0
                    .fingerprints()
                    .of(body.as_bytes(), Some(key_of(line)));
                trial.0.expect(line, print);
            }
            trial
        }

        fn found(&mut self, line: u64) {
            self.found_as(line, line % 2, &line.to_string(), key_of(line));
        }

        fn found_as(&mut self, line: u64, partition: u64, body: &str, key: &str) {
            let fingerprint = self.0.fingerprints().of(body.as_bytes(), Some(key));
            self.0.observe(Found {
                partition: partition as usize,
                line: Some(line),
                key: Some(key),
                fingerprint,
            });
        }
    }

    fn good(received: u64) -> Verdict {
        Verdict {
            received,
            ..Verdict::default()
        }
    }

    #[test]
    fn what_is_stored_once_in_order_and_unaltered_is_good() {
        let mut trial = Trial::sent(10);
        // Partitions may be read in any order.
        [2, 4, 1, 3, 5, 6, 8, 10, 7, 9]
            .into_iter()
            .for_each(|line| trial.found(line));
        assert_eq!(trial.0.verdict(), good(10));
        assert!(trial.0.verdict().is_good());
    }

    #[test]
    fn a_lost_event_is_found_out() {
        let mut trial = Trial::sent(3);
        trial.found(1);
        trial.found(3);
        let verdict = trial.0.verdict();
        assert_eq!(verdict, Verdict { lost: 1, ..good(2) });
        assert!(!verdict.is_good());
    }

    #[test]
    fn nothing_received_is_everything_lost() {
        assert_eq!(Trial::sent(5).0.verdict().lost, 5);
    }

    #[test]
    fn a_duplicate_is_found_out_and_is_not_out_of_order() {
        let mut trial = Trial::sent(4);
        [1, 2, 3, 1, 4]
            .into_iter()
            .for_each(|line| trial.found(line));
        let verdict = trial.0.verdict();
        assert_eq!(
            verdict,
            Verdict {
                duplicated: 1,
                ..good(5)
            }
        );
        assert!(!verdict.is_good());
    }

    #[test]
    fn a_swap_in_a_partition_is_found_out() {
        let mut trial = Trial::sent(6);
        [1, 5, 3, 2, 4, 6]
            .into_iter()
            .for_each(|line| trial.found(line));
        let verdict = trial.0.verdict();
        assert_eq!(
            verdict,
            Verdict {
                out_of_order: 1,
                ..good(6)
            }
        );
        assert!(!verdict.is_good());
    }

    #[test]
    fn a_key_in_two_partitions_is_out_of_order() {
        let mut trial = Trial::sent(3);
        trial.found(1);
        trial.found(2);
        trial.found_as(3, 0, "3", "odd");
        assert_eq!(trial.0.verdict().out_of_order, 1);
    }

    #[test]
    fn events_without_a_key_are_in_order_in_their_partition() {
        let mut ledger = Ledger::default();
        let prints = ledger.fingerprints();
        for line in 1..=3 {
            ledger.expect(line, prints.of(b"x", None));
        }
        for (line, partition) in [(2, 0), (1, 1), (3, 1)] {
            ledger.observe(Found {
                partition,
                line: Some(line),
                key: None,
                fingerprint: prints.of(b"x", None),
            });
        }
        assert_eq!(ledger.verdict(), good(3));
    }

    #[test]
    fn an_altered_body_or_key_is_found_out() {
        let mut trial = Trial::sent(4);
        trial.found(1);
        trial.found_as(2, 0, "2 ", "even");
        trial.found_as(3, 1, "3", "eve");
        trial.found_as(4, 0, "", "even");
        let verdict = trial.0.verdict();
        assert_eq!(
            verdict,
            Verdict {
                altered: 3,
                ..good(4)
            }
        );
        assert!(!verdict.is_good());
    }

    #[test]
    fn a_body_does_not_run_into_its_key() {
        let prints = Fingerprints::default();
        assert_ne!(prints.of(b"ab", Some("c")), prints.of(b"a", Some("bc")));
        assert_ne!(prints.of(b"a", Some("")), prints.of(b"a", None));
    }

    #[test]
    fn strangers_are_unexpected() {
        let mut trial = Trial::sent(1);
        trial.found(1);
        trial.found(2);
        trial.found(0);
        trial.0.observe(Found {
            partition: 0,
            line: None,
            key: None,
            fingerprint: 0,
        });
        let verdict = trial.0.verdict();
        assert_eq!(
            verdict,
            Verdict {
                unexpected: 3,
                ..good(4)
            }
        );
        assert!(!verdict.is_good());
    }

    #[test]
    fn what_was_given_up_may_be_absent_and_only_a_doubtful_event_may_be_there() {
        let mut trial = Trial::sent(4);
        trial.0.withdraw(1);
        trial.0.doubt(2);
        trial.0.doubt(3);
        trial.found(3);
        trial.found(4);
        assert_eq!(trial.0.verdict(), good(2));
        // Said not to be stored, before or after it was seen.
        trial.found(1);
        trial.0.withdraw(4);
        assert_eq!(trial.0.verdict().unexpected, 2);
        assert!(!trial.0.verdict().is_good());
    }

    #[test]
    fn an_account_is_small() {
        assert!(size_of::<Account>() + size_of::<u64>() <= 10);
    }
}
