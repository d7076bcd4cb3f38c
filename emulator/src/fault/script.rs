//! The list of rules, shared between the caller and the connections.

use std::sync::{
    Arc, Condvar, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::time::{Duration, Instant};

use super::{Action, Fault, Step};
use crate::store::lock;

/// Names a rule that was pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FaultId(u64);

/// An occasion for a fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) step: Step,
    pub(crate) hub: Option<&'a str>,
    pub(crate) partition: Option<usize>,
}

impl Site<'_> {
    pub(crate) fn step(step: Step) -> Self {
        Self {
            step,
            hub: None,
            partition: None,
        }
    }
}

#[derive(Debug)]
struct Rule {
    id: FaultId,
    fault: Fault,
    fired: u64,
    removed: bool,
}

#[derive(Debug, Default)]
struct Inner {
    rules: Mutex<Vec<Rule>>,
    fired: Condvar,
    /// Lets a connection without a script pass without the lock.
    armed: AtomicBool,
}

/// The script of an emulator; clones share it.
///
/// On each occasion the first rule in the order of pushing that matches and is not used up strikes,
/// and only that one. A rule that matches but still lets occasions pass counts the occasion and
/// leaves it to the rules behind it.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    inner: Arc<Inner>,
}

impl Faults {
    /// Adds a rule, which is in force at once.
    pub fn push(&self, fault: Fault) -> FaultId {
        let mut rules = lock(&self.inner.rules);
        let id = FaultId(rules.len() as u64);
        rules.push(Rule {
            id,
            fault,
            fired: 0,
            removed: false,
        });
        self.inner.armed.store(true, Ordering::SeqCst);
        id
    }

    /// Ends a rule; its counter can still be read.
    pub fn remove(&self, id: FaultId) {
        for rule in lock(&self.inner.rules)
            .iter_mut()
            .filter(|rule| rule.id == id)
        {
            rule.removed = true;
        }
    }

    /// Ends all rules.
    ///
    /// Connections that were silenced or frozen stay so.
    pub fn clear(&self) {
        let mut rules = lock(&self.inner.rules);
        rules.iter_mut().for_each(|rule| rule.removed = true);
        self.inner.armed.store(false, Ordering::SeqCst);
    }

    /// How often a rule has struck.
    #[must_use]
    pub fn fired(&self, id: FaultId) -> u64 {
        fired(&lock(&self.inner.rules), id)
    }

    /// How often any rule has struck.
    #[must_use]
    pub fn fired_total(&self) -> u64 {
        lock(&self.inner.rules).iter().map(|rule| rule.fired).sum()
    }

    /// Waits until a rule has struck `times` times; false when `timeout` passes first.
    ///
    /// A strike is counted when it is decided, an instant before its effect.
    #[must_use]
    pub fn wait_fired(&self, id: FaultId, times: u64, timeout: Duration) -> bool {
        let end = Instant::now() + timeout.min(Duration::from_secs(86_400));
        let mut rules = lock(&self.inner.rules);
        while fired(&rules, id) < times {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            (rules, _) = self
                .inner
                .fired
                .wait_timeout(rules, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Tells what strikes on this occasion, and counts it.
    pub(crate) fn strike(&self, site: Site<'_>) -> Option<Action> {
        if !self.inner.armed.load(Ordering::SeqCst) {
            return None;
        }
        let mut rules = lock(&self.inner.rules);
        let action = rules.iter_mut().find_map(|rule| rule.strike(site));
        if action.is_some() {
            self.inner.fired.notify_all();
        }
        action
    }
}

fn fired(rules: &[Rule], id: FaultId) -> u64 {
    rules
        .iter()
        .find(|rule| rule.id == id)
        .map_or(0, |rule| rule.fired)
}

impl Rule {
    fn strike(&mut self, site: Site<'_>) -> Option<Action> {
        let fault = &mut self.fault;
        let hub_fits = match (&fault.hub, site.hub) {
            (None, _) => true,
            (Some(wanted), Some(hub)) => wanted.eq_ignore_ascii_case(hub),
            (Some(_), None) => false,
        };
        let partition_fits = fault.partition.is_none() || fault.partition == site.partition;
        let used_up = self.removed || fault.strikes == Some(0);
        if used_up || fault.step != site.step || !hub_fits || !partition_fits {
            return None;
        }
        if fault.skip > 0 {
            fault.skip -= 1;
            return None;
        }
        fault.strikes = fault.strikes.map(|left| left - 1);
        self.fired += 1;
        Some(fault.action.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(hub: &str, partition: usize) -> Site<'_> {
        Site {
            step: Step::Transfer,
            hub: Some(hub),
            partition: Some(partition),
        }
    }

    #[test]
    fn the_nth_occasion_is_struck_and_no_other() {
        let faults = Faults::default();
        let id = faults.push(Fault::release().nth(2));
        let struck: Vec<bool> = (0..4)
            .map(|_| faults.strike(transfer("h", 0)).is_some())
            .collect();
        assert_eq!(struck, [false, true, false, false]);
        assert_eq!(faults.fired(id), 1);
    }

    #[test]
    fn rules_look_at_step_hub_and_partition() {
        let faults = Faults::default();
        faults.push(Fault::release().hub("H").partition(1).always());
        assert_eq!(faults.strike(transfer("h", 0)), None);
        assert_eq!(faults.strike(transfer("x", 1)), None);
        assert_eq!(faults.strike(Site::step(Step::Cbs)), None);
        assert_eq!(faults.strike(transfer("h", 1)), Some(Action::Release));
        faults.clear();
        assert_eq!(faults.strike(transfer("h", 1)), None);
        assert_eq!(faults.fired_total(), 1);
    }

    #[test]
    fn rules_strike_in_the_order_of_pushing() {
        let faults = Faults::default();
        faults.push(Fault::release().times(2));
        faults.push(Fault::modify(true, false));
        let modify = Action::Modify {
            delivery_failed: true,
            undeliverable_here: false,
        };
        assert_eq!(faults.strike(transfer("h", 0)), Some(Action::Release));
        assert_eq!(faults.strike(transfer("h", 0)), Some(Action::Release));
        assert_eq!(faults.strike(transfer("h", 0)), Some(modify));
        assert_eq!(faults.strike(transfer("h", 0)), None);
    }

    #[test]
    fn waiting_for_a_strike_has_a_deadline() {
        let faults = Faults::default();
        let id = faults.push(Fault::release());
        assert!(!faults.wait_fired(id, 1, Duration::ZERO));
        faults.strike(transfer("h", 0));
        assert!(faults.wait_fired(id, 1, Duration::ZERO));
    }
}
