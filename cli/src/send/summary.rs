//! The account of a run.

use super::feed::{Ending, Fed};
use super::ledger::Verdict;
use super::outcomes::Outcomes;
use crate::exit::Exit;
use hublane::Stats;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// What a run did. As JSON it is the last line of standard output; what could not be checked,
/// because the broker is somebody else's, is null there.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The hub.
    hub: String,
    /// Its partitions.
    partitions: usize,
    /// Lines that were looked at.
    lines: u64,
    /// Those that were empty.
    empty_lines: u64,
    /// Those that could not be sent.
    skipped_lines: u64,
    /// Events that the producer accepted.
    accepted: u64,
    /// Events that the hub stored, as its answers say.
    delivered: u64,
    /// Events given up that were never stored, as far as any answer says.
    failed: u64,
    /// Events given up that may be stored.
    indeterminate: u64,
    /// Events handed back at the end.
    returned: u64,
    /// Events without an outcome when time was up.
    outstanding: u64,
    /// Events read back.
    received: Option<u64>,
    /// Accepted events that were not found, and that nobody had said would not be.
    lost: Option<u64>,
    /// Events found more than once, each further time counted.
    duplicated: Option<u64>,
    /// Events found out of the order of their partition or key.
    out_of_order: Option<u64>,
    /// Events found with another body or key.
    altered: Option<u64>,
    /// Events found that should not be there.
    unexpected: Option<u64>,
    /// Bytes of the accepted events' bodies.
    bytes: u64,
    /// From the first read to the last outcome.
    seconds: f64,
    /// Delivered events in a second.
    events_per_second: f64,
    /// Batches sent again.
    retries: u64,
    /// Those of them whose earlier transfer was never answered.
    resends_after_unknown: u64,
    /// The signal that ended the run.
    signal: Option<i32>,
    #[serde(skip)]
    verdict: Option<Verdict>,
}

impl Summary {
    /// The account of what was fed and what became of it.
    pub fn new(
        hub: String,
        partitions: usize,
        fed: &Fed,
        outcomes: &Outcomes,
        stats: &Stats,
        elapsed: Duration,
    ) -> Summary {
        let seconds = elapsed.as_secs_f64();
        let delivered = outcomes.delivered();
        let settled =
            delivered + outcomes.failed() + outcomes.indeterminate() + outcomes.returned();
        Summary {
            hub,
            partitions,
            lines: fed.lines,
            empty_lines: fed.empty,
            skipped_lines: fed.skipped,
            accepted: fed.accepted,
            delivered,
            failed: outcomes.failed(),
            indeterminate: outcomes.indeterminate(),
            returned: outcomes.returned(),
            outstanding: fed.accepted.saturating_sub(settled),
            received: None,
            lost: None,
            duplicated: None,
            out_of_order: None,
            altered: None,
            unexpected: None,
            bytes: fed.accepted_bytes,
            seconds: (seconds * 1e6).round() / 1e6,
            events_per_second: (delivered as f64 / seconds.max(1e-6)).round(),
            retries: stats.retries(),
            resends_after_unknown: stats.resends_after_unknown(),
            signal: None,
            verdict: None,
        }
    }

    /// With the signal that ended the run.
    pub fn with_signal(mut self, signal: Option<i32>) -> Summary {
        self.signal = signal;
        self
    }

    /// With what was found when everything was read back.
    pub fn with_verdict(mut self, verdict: Option<Verdict>) -> Summary {
        self.received = verdict.map(|found| found.received);
        self.lost = verdict.map(|found| found.lost);
        self.duplicated = verdict.map(|found| found.duplicated);
        self.out_of_order = verdict.map(|found| found.out_of_order);
        self.altered = verdict.map(|found| found.altered);
        self.unexpected = verdict.map(|found| found.unexpected);
        self.verdict = verdict;
        self
    }

    /// How the run ends, worst first; `aborted` by a second signal.
    pub fn exit(&self, ending: &Ending, aborted: bool) -> Exit {
        if let (true, Some(signal)) = (aborted, self.signal) {
            return Exit::Signal(signal);
        }
        let found = self.verdict.is_none_or(|verdict| verdict.is_good());
        if self.delivered != self.accepted || !found {
            return Exit::NotDelivered;
        }
        match (ending, self.signal) {
            (Ending::Stopped { .. }, _) => Exit::NotDelivered,
            (Ending::Unreadable(_), _) => Exit::Input,
            (_, Some(signal)) => Exit::Signal(signal),
            _ if self.skipped_lines > 0 => Exit::SkippedLines,
            _ => Exit::Success,
        }
    }

    /// What is wrong, a line each.
    pub fn complaints(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.delivered != self.accepted {
            lines.push(format!(
                "of {} accepted events {} were delivered, {} failed, {} may have been \
                 delivered, {} were handed back, {} are still under way",
                self.accepted,
                self.delivered,
                self.failed,
                self.indeterminate,
                self.returned,
                self.outstanding
            ));
        }
        if let Some(found) = self.verdict.filter(|found| !found.is_good()) {
            lines.push(format!(
                "read back {}: {} lost, {} duplicated, {} out of order, {} altered, {} unexpected",
                found.received,
                found.lost,
                found.duplicated,
                found.out_of_order,
                found.altered,
                found.unexpected
            ));
        }
        lines
    }

    /// The JSON object in a line.
    pub fn json(&self) -> String {
        // A plain structure of numbers and a name cannot be refused.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Some lines for people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} of {} accepted events delivered to {} partitions of '{}' in {:.3} s, {} events/s\n",
            self.delivered,
            self.accepted,
            self.partitions,
            self.hub,
            self.seconds,
            self.events_per_second
        );
        // A string takes everything.
        if self.skipped_lines > 0 || self.empty_lines > 0 {
            let _ = writeln!(
                text,
                "{} lines read: {} empty, {} skipped",
                self.lines, self.empty_lines, self.skipped_lines
            );
        }
        if self.retries > 0 {
            let _ = writeln!(
                text,
                "{} batches sent again, {} of them after no answer",
                self.retries, self.resends_after_unknown
            );
        }
        if let Some(found) = self.verdict.filter(Verdict::is_good) {
            let _ = writeln!(
                text,
                "read back all {}: each once, unaltered, in order",
                found.received
            );
        }
        text
    }
}
