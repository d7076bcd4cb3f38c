//! How events leave: settlements, retries, deadlines, and the ends of a lane.

use super::batch::{Block, InFlight, Sealed, later, section};
use super::{Entry, LaneCore, Phase, Report, Salvage, Spoken};
use crate::condition::{RetryClass, classify};
use crate::report::{FailureCause, Outcome};
use crate::sync::{Arc, Instant};
use crate::transport::{DeliveryId, LinkError, Settlement};

/// What a settlement means for its batch.
enum Answer {
    Stored,
    /// Refused for good.
    Refused(LinkError),
    /// Not stored; may be sent again.
    Retriable {
        problem: LinkError,
        busy: bool,
    },
    /// Perhaps stored; may be sent again.
    Unanswered(LinkError),
    /// Not transferred.
    NotSent(LinkError),
}

impl From<Settlement> for Answer {
    fn from(settlement: Settlement) -> Answer {
        let given_back = |condition: &str, description: &str| Answer::Retriable {
            problem: LinkError::new(condition, description),
            busy: false,
        };
        match settlement {
            Settlement::Accepted => Answer::Stored,
            Settlement::Rejected {
                condition,
                description,
            } => {
                let class = classify(&condition);
                let problem = LinkError::new(condition, description.unwrap_or_default());
                match class {
                    RetryClass::Fatal => Answer::Refused(problem),
                    RetryClass::ServerBusy => Answer::Retriable {
                        problem,
                        busy: true,
                    },
                    // What else there is to mend is the link's, and its transport mends it.
                    _ => Answer::Retriable {
                        problem,
                        busy: false,
                    },
                }
            }
            Settlement::Released => given_back("hublane:released", "the peer released the batch"),
            Settlement::Modified => given_back("hublane:modified", "the peer gave the batch back"),
            Settlement::Unknown(problem) => Answer::Unanswered(problem),
            Settlement::NotSent(problem) => Answer::NotSent(problem),
        }
    }
}

/// Answers.
impl<T> LaneCore<T> {
    /// The answer to a delivery. One that is not in flight (any more) is ignored and counted.
    pub(crate) fn handle_settled(&mut self, now: Instant, id: DeliveryId, settlement: Settlement) {
        let Some(at) = self.flight.iter().position(|sent| sent.id == id) else {
            self.stats.ignored_settlements += 1;
            return;
        };
        let answer = Answer::from(settlement);
        match &answer {
            Answer::Stored => self.link.problem = None,
            Answer::Refused(problem)
            | Answer::Retriable { problem, .. }
            | Answer::Unanswered(problem)
            | Answer::NotSent(problem) => {
                self.link.problem = Some(problem.clone());
                self.flight[at].batch.problem = Some(problem.clone());
            }
        }
        match answer {
            Answer::Stored => {
                let InFlight { batch, .. } = self.flight.remove(at);
                self.report(batch, Outcome::Delivered);
            }
            Answer::Refused(error) => {
                let InFlight { batch, .. } = self.flight.remove(at);
                let attempts = batch.attempts;
                self.give_up(batch, FailureCause::Rejected { error, attempts });
            }
            Answer::Retriable { problem, busy } => self.retry(now, at, problem, busy),
            Answer::Unanswered(problem) => {
                self.flight[at].batch.possibly_stored = true;
                self.retry(now, at, problem, false);
            }
            Answer::NotSent(_) => self.take_unsent(now, at),
        }
        self.refit();
        self.settle_down();
    }

    /// Sends the batch at `at` in `flight` again, later, or gives it up.
    ///
    /// An attempt without an answer counts like a refused one: whoever sets `max_retries` to 0
    /// does so in order never to have a second copy, and only then gets none.
    ///
    /// A batch whose next attempt would come after its deadline is given up at once: nothing can
    /// change its outcome any more, and its room and the batches behind it need not wait.
    fn retry(&mut self, now: Instant, at: usize, error: LinkError, busy: bool) {
        let InFlight { mut batch, .. } = self.flight.remove(at);
        let attempts = batch.attempts;
        if self.phase >= Phase::Returning {
            return self.hand_back(batch);
        }
        if attempts > self.limits.retry.max_retries {
            let cause = match batch.possibly_stored {
                true => FailureCause::Unanswered {
                    last: error,
                    attempts,
                },
                false => FailureCause::Rejected { error, attempts },
            };
            return self.give_up(batch, cause);
        }
        let wait = self
            .limits
            .retry
            .backoff(attempts.saturating_sub(1), busy, &mut self.jitter);
        let not_before = later(now, wait);
        if not_before >= batch.deadline {
            let last = Some(error);
            return self.give_up(batch, FailureCause::DeadlineExceeded { last, attempts });
        }
        batch.not_before = Some(not_before);
        batch.not_sent = 0;
        self.recovering = true;
        self.enqueue(batch);
    }

    /// Puts a batch of which nothing was transferred back to where it was.
    fn take_unsent(&mut self, now: Instant, at: usize) {
        self.undo_attempt(at);
        let InFlight { mut batch, .. } = self.flight.remove(at);
        if self.phase >= Phase::Returning {
            return self.hand_back(batch);
        }
        // The state of the link says when to go on. Only one that claims to be up and sends
        // nothing, again and again, is given time: it would be asked without end.
        batch.not_before = batch.not_sent.checked_sub(1).map(|refusals| {
            later(
                now,
                self.limits.retry.backoff(refusals, false, &mut self.jitter),
            )
        });
        batch.not_sent = batch.not_sent.saturating_add(1);
        self.recovering = true;
        self.enqueue(batch);
    }

    /// The batch at `at` in `flight` was not transferred after all.
    pub(super) fn undo_attempt(&mut self, at: usize) {
        let batch = &mut self.flight[at].batch;
        self.stats.retries -= u64::from(batch.attempts > 1);
        self.stats.resends_after_unknown -= u64::from(batch.possibly_stored);
        batch.attempts -= 1;
    }

    /// Puts a batch into the queue, in the order of its events.
    pub(super) fn enqueue(&mut self, batch: Sealed<T>) {
        let at = self
            .queue
            .partition_point(|other| other.block.first < batch.block.first);
        self.queue.insert(at, batch);
    }
}

/// Outcomes.
impl<T> LaneCore<T> {
    /// Reports a whole batch.
    fn report(&mut self, batch: Sealed<T>, outcome: Outcome) {
        let Sealed {
            block,
            body,
            attempts,
            ..
        } = batch;
        self.report_block(block, outcome, attempts);
        self.spares.keep(body);
    }

    fn report_block(&mut self, block: Block<T>, outcome: Outcome, attempts: u32) {
        let (first, n) = (block.first, block.len());
        self.counts.add(&outcome, n);
        self.cuts.add(first, n, &outcome);
        let Block {
            entries,
            stamps,
            encoded,
            ..
        } = block;
        let report = Report::Batch {
            first,
            outcome,
            entries,
            attempts,
        };
        self.reports.push_back(Spoken { report, encoded });
        self.spares.keep_stamps(stamps);
    }

    /// Reports one event that no batch has, together with those before it if they ended alike.
    pub(super) fn report_one(&mut self, seq: u64, entry: Entry<T>, outcome: Outcome) {
        self.counts.add(&outcome, 1);
        self.cuts.add(seq, 1, &outcome);
        let size = u64::from(entry.encoded_len);
        if let Some(Spoken {
            report:
                Report::Batch {
                    first,
                    outcome: last,
                    entries,
                    attempts: 0,
                },
            encoded,
        }) = self.reports.back_mut()
        {
            // A report is a run of neighbours: what comes back late stands alone.
            if *last == outcome && *first + entries.len() as u64 == seq {
                entries.push(entry);
                *encoded += size;
                return;
            }
        }
        let report = Report::Batch {
            first: seq,
            outcome,
            entries: vec![entry],
            attempts: 0,
        };
        self.reports.push_back(Spoken {
            report,
            encoded: size,
        });
    }

    /// Ends a batch that was not accepted.
    fn give_up(&mut self, batch: Sealed<T>, cause: FailureCause) {
        let cause = Arc::new(cause);
        let outcome = match batch.possibly_stored {
            true => Outcome::Indeterminate(cause),
            false => Outcome::Failed(cause),
        };
        self.report(batch, outcome);
    }

    /// Ends a batch that the lane may not send any more.
    pub(super) fn hand_back(&mut self, batch: Sealed<T>) {
        let outcome = match batch.possibly_stored {
            true => Outcome::Indeterminate(Arc::new(FailureCause::Closed {
                attempts: batch.attempts,
            })),
            false => Outcome::Returned,
        };
        self.report(batch, outcome);
    }

    /// Fills the open batch from the backlog, and completes the cuts that are.
    pub(super) fn settle_down(&mut self) {
        while let Some(waiting) = self.backlog.front() {
            let (seq, section) = (waiting.seq, section(&waiting.entry));
            if let Some(limit) = self.oversize(&waiting.entry) {
                let cause = FailureCause::TooLarge {
                    size: section as u64,
                    limit: limit as u64,
                };
                let Some(waiting) = self.backlog.pop_front() else {
                    break;
                };
                self.report_one(seq, waiting.entry, Outcome::Failed(Arc::new(cause)));
            } else if self.open_takes(seq, section) {
                let Some(waiting) = self.backlog.pop_front() else {
                    break;
                };
                self.open.push(seq, waiting.times, waiting.entry);
            } else {
                break;
            }
        }
        if self.cuts.is_empty() {
            return;
        }
        let oldest = self.oldest_held();
        while let Some((id, counts)) = self.cuts.pop_complete(oldest) {
            self.reports.push_back(Spoken {
                report: Report::Flush { id, counts },
                encoded: 0,
            });
        }
    }
}

/// Limits that change.
impl<T> LaneCore<T> {
    /// Divides what no longer fits the link. Bytes that were transferred once stay as they are:
    /// the peer may have them.
    pub(super) fn refit(&mut self) {
        let Some(max) = self.link.max_message else {
            return;
        };
        let limit = self.batch_limit();
        let mut at = 0;
        while let Some(batch) = self.queue.get_mut(at) {
            if !batch.is_untouched() || batch.block.bytes <= max {
                at += 1;
            } else if let Some(rest) = batch.split(limit) {
                self.stats.splits += 1;
                self.queue.insert(at + 1, rest);
            } else {
                // A batch that cannot be divided has one entry.
                let Some(batch) = self.queue.remove(at) else {
                    break;
                };
                self.fail_too_large(batch.block, max);
            }
        }
        while self.open.block.bytes > limit && self.open.block.entries.len() > 1 {
            let Some(waiting) = self.open.pop() else {
                break;
            };
            self.backlog.push_front(waiting);
        }
        if self.open.block.bytes > max {
            let block = self.open.take_front(1);
            self.fail_too_large(block, max);
        }
    }

    /// Ends one event that is larger than the link's limit of `max` bytes.
    fn fail_too_large(&mut self, block: Block<T>, max: usize) {
        let cause = FailureCause::TooLarge {
            size: block.bytes as u64,
            limit: max as u64,
        };
        self.report_block(block, Outcome::Failed(Arc::new(cause)), 0);
    }
}

/// Deadlines and ends.
impl<T> LaneCore<T> {
    /// Gives up what is in flight past its deadline, oldest first. A later answer is ignored.
    pub(super) fn expire_flight(&mut self, now: Instant) {
        while let Some(at) = self
            .flight
            .iter()
            .position(|sent| sent.batch.deadline <= now)
        {
            let InFlight { id, mut batch } = self.flight.remove(at);
            self.stats.cancelled += 1;
            self.cancels.push_back(id);
            batch.possibly_stored = true;
            let cause = self.deadline_exceeded(Some(&batch));
            self.give_up(batch, cause);
        }
    }

    /// Gives up what waits to be sent and is past its deadline, oldest first.
    pub(super) fn expire_waiting(&mut self, now: Instant) {
        while let Some(at) = self.queue.iter().position(|batch| batch.deadline <= now) {
            let Some(batch) = self.queue.remove(at) else {
                break;
            };
            let cause = self.deadline_exceeded(Some(&batch));
            self.give_up(batch, cause);
        }
        self.expire_singly(now);
    }

    /// Gives up events, one by one, that are in no sealed batch.
    fn expire_singly(&mut self, now: Instant) {
        let timeout = self.limits.delivery_timeout;
        let late = |received| later(received, timeout) <= now;
        let n = self.open.block.received_until(late);
        if n == 0 {
            return;
        }
        let outcome = Outcome::Failed(Arc::new(self.deadline_exceeded(None)));
        let block = self.open.take_front(n);
        self.report_block(block, outcome.clone(), 0);
        if !self.open.is_empty() {
            return;
        }
        while self
            .backlog
            .front()
            .is_some_and(|waiting| late(waiting.times.received))
        {
            let Some(waiting) = self.backlog.pop_front() else {
                break;
            };
            self.report_one(waiting.seq, waiting.entry, outcome.clone());
        }
    }

    fn deadline_exceeded(&self, batch: Option<&Sealed<T>>) -> FailureCause {
        let own = batch.and_then(|batch| batch.problem.as_ref());
        FailureCause::DeadlineExceeded {
            last: self.link.problem.as_ref().or(own).cloned(),
            attempts: batch.map_or(0, |batch| batch.attempts),
        }
    }

    /// The lane has no more time: everything that is certain not to be stored is handed back, in
    /// order. What is in flight stays so until its answer or its deadline; nothing is sent again.
    pub(crate) fn handle_return(&mut self, _now: Instant) {
        self.phase = self.phase.max(Phase::Returning);
        while let Some(batch) = self.queue.pop_front() {
            self.hand_back(batch);
        }
        self.empty_unsealed(&Outcome::Returned);
        self.settle_down();
    }

    /// As [`handle_return`](LaneCore::handle_return); what is in flight is given up too, and its
    /// answers are ignored.
    pub(crate) fn handle_abort(&mut self, now: Instant) {
        self.phase = self.phase.max(Phase::Returning);
        while !self.flight.is_empty() {
            let InFlight { mut batch, .. } = self.flight.remove(0);
            batch.possibly_stored = true;
            self.give_up(batch, FailureCause::Aborted);
        }
        self.handle_return(now);
    }

    /// Ends all events that are in no sealed batch, in one report.
    fn empty_unsealed(&mut self, outcome: &Outcome) {
        if !self.open.is_empty() {
            let block = self.open.take_front(usize::MAX);
            self.report_block(block, outcome.clone(), 0);
        }
        while let Some(waiting) = self.backlog.pop_front() {
            self.report_one(waiting.seq, waiting.entry, outcome.clone());
        }
    }

    /// Gives everything out after a panic, in whichever method it was.
    ///
    /// What waits to be reported keeps its outcome. The rest is Failed, or Indeterminate where a
    /// transfer may have reached the peer. The core stays usable for those who come late: events
    /// fail, and cuts are complete, at once.
    pub(crate) fn salvage(&mut self) -> Salvage<T> {
        self.phase = Phase::Dead;
        let broken = self.cuts.take_all();
        while !self.flight.is_empty() {
            let InFlight { mut batch, .. } = self.flight.remove(0);
            batch.possibly_stored = true;
            self.give_up(batch, FailureCause::LaneDied);
        }
        while let Some(batch) = self.queue.pop_front() {
            self.give_up(batch, FailureCause::LaneDied);
        }
        self.empty_unsealed(&Outcome::Failed(Arc::new(FailureCause::LaneDied)));
        self.cancels.clear();
        let mut reports = Vec::with_capacity(self.reports.len());
        while let Some(report) = self.poll_report() {
            reports.push(report);
        }
        Salvage { reports, broken }
    }
}
