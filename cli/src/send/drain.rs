//! The end of a producer: everything gets its outcome, or signals cut it short.

use super::feed::Ending;
use crate::console::Console;
use crossbeam_channel::{Receiver, Sender, bounded, never, select, tick};
use hublane::{CloseError, CloseReport, PartitionId, Producer, ReportedEvent};
use std::thread;
use std::time::Duration;

/// How often progress is shown.
const TICK: Duration = Duration::from_millis(200);

/// How long calls that an abort overtook are waited for.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// What closing left behind.
#[derive(Debug, Default)]
pub struct Drained {
    /// Events that were handed back.
    pub unsent: Vec<(PartitionId, Vec<ReportedEvent>)>,
    /// The signal that ended the run, if one did.
    pub signal: Option<i32>,
    /// A second signal gave up what was not delivered.
    pub aborted: bool,
}

/// The ways to close, each more urgent than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    Drain,
    Limited(Duration),
    Abort,
}

type Closed = Result<CloseReport, CloseError>;

impl Urgency {
    fn close(self, producer: &Producer) -> Closed {
        match self {
            Urgency::Drain => producer.close(),
            Urgency::Limited(limit) => producer.close_timeout(limit),
            Urgency::Abort => producer.abort(),
        }
    }
}

/// Closes the producer. After the end of the input that takes as long as the delivery time-out
/// allows; from the first signal on at most `limit`; a second one ends it at once.
pub fn drain(
    producer: &Producer,
    signals: &Receiver<i32>,
    ending: &Ending,
    limit: Duration,
    console: &Console,
    mut progress: impl FnMut(),
) -> Drained {
    let mut closing = Closing::new(producer);
    match ending {
        Ending::Signal(signal) => closing.limit(*signal, limit, console),
        _ => closing.begin(Urgency::Drain),
    }
    let ticks = tick(TICK);
    let mut signals = signals.clone();
    while closing.running > 0 {
        select! {
            recv(closing.closed) -> closed => {
                if let Ok((urgency, report)) = closed {
                    closing.ended(urgency, report);
                }
            }
            recv(signals) -> signal => match (closing.urgency, signal) {
                (Some(Urgency::Drain), Ok(signal)) => closing.limit(signal, limit, console),
                _ => {
                    closing.drained.aborted = true;
                    closing.begin(Urgency::Abort);
                    signals = never();
                }
            },
            recv(ticks) -> _ => progress(),
        }
    }
    closing.drained
}

/// The calls that close the producer, each on a thread of its own: only so can a more urgent one
/// overtake them.
struct Closing<'a> {
    producer: &'a Producer,
    urgency: Option<Urgency>,
    running: usize,
    done: Sender<(Urgency, Closed)>,
    closed: Receiver<(Urgency, Closed)>,
    drained: Drained,
}

impl Closing<'_> {
    fn new(producer: &Producer) -> Closing<'_> {
        // Each way to close is gone at most once.
        let (done, closed) = bounded(3);
        Closing {
            producer,
            urgency: None,
            running: 0,
            done,
            closed,
            drained: Drained::default(),
        }
    }

    /// The first signal.
    fn limit(&mut self, signal: i32, limit: Duration, console: &Console) {
        self.drained.signal = Some(signal);
        let limit_text = humantime::format_duration(limit);
        console.complain(&format!(
            "signal {signal}: delivering what was accepted, for at most {limit_text}"
        ));
        self.begin(Urgency::Limited(limit));
    }

    fn begin(&mut self, urgency: Urgency) {
        if self.urgency == Some(Urgency::Abort) {
            return;
        }
        self.urgency = Some(urgency);
        self.running += 1;
        let (producer, done) = (self.producer.clone(), self.done.clone());
        let close = move || {
            let _ = done.send((urgency, urgency.close(&producer)));
        };
        let started = thread::Builder::new().name("hublane-close".to_owned());
        if started.spawn(close).is_err() {
            let closed = Urgency::Abort.close(self.producer);
            self.ended(urgency, closed);
        }
    }

    fn ended(&mut self, urgency: Urgency, closed: Closed) {
        self.running -= 1;
        let report = match closed {
            Ok(report) | Err(CloseError::Incomplete(report)) => report,
            // Neither can be: this is the process and no thread of the engine.
            Err(_) => return,
        };
        let overdue = !report.still_owned.is_empty();
        self.drained.unsent.extend(report.unsent);
        if urgency != Urgency::Abort {
            if overdue {
                // Time is up, and somebody still holds a batch: its fate stays unknown.
                self.begin(Urgency::Abort);
            }
            return;
        }
        // Nothing more can come of the others, so they end soon, or never.
        while self.running > 0 {
            let Ok((_, closed)) = self.closed.recv_timeout(LAST_WAIT) else {
                self.running = 0;
                return;
            };
            self.running -= 1;
            if let Ok(report) | Err(CloseError::Incomplete(report)) = closed {
                self.drained.unsent.extend(report.unsent);
            }
        }
    }
}
