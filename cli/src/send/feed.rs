//! The way of lines into the producer.

use super::key::{KeyField, KeyProblem};
use super::ledger::{Fingerprints, Ledger};
use super::lines::{Chunk, Line, Lines, MAX_LINE_BYTES};
use super::outcomes::{Outcomes, lock};
use super::readback::Broker;
use crate::console::Console;
use bytes::Bytes;
use crossbeam_channel::{Receiver, bounded, never, select, tick};
use hublane::{EnqueueRefusal, Event, PartitionKey, Producer, Target};
use std::io::{self, Read};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Chunks that are read ahead.
const READ_AHEAD: usize = 4;

/// How long a full partition is waited for before signals are looked at.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often progress is shown while no input comes.
const TICK: Duration = Duration::from_millis(200);

/// Skipped lines that are told one by one; the last line of the report counts the others.
const TOLD: u64 = 10;

/// Everything that feeding needs.
#[derive(Clone, Copy, Debug)]
pub struct Feed<'a> {
    /// Where events go.
    pub producer: &'a Producer,
    /// Where a line has its key, if it has one.
    pub key_field: Option<&'a KeyField>,
    /// The broker in this process, if that is where events go.
    pub broker: Option<&'a Broker>,
    /// What became of events.
    pub outcomes: &'a Outcomes,
    /// Where troubles are told.
    pub console: &'a Console,
    /// What may stop it.
    pub signals: &'a Receiver<i32>,
}

/// What was fed.
#[derive(Debug)]
pub struct Fed {
    /// Lines that were looked at.
    pub lines: u64,
    /// Those of them that were empty.
    pub empty: u64,
    /// Those of them that could not be sent.
    pub skipped: u64,
    /// Those of them that the producer accepted.
    pub accepted: u64,
    /// The bytes of their bodies.
    pub accepted_bytes: u64,
    /// Bytes of the input that were read.
    pub position: u64,
    /// Why it ended.
    pub ending: Ending,
}

/// Why feeding ended.
#[derive(Debug)]
pub enum Ending {
    /// The input ended.
    End,
    /// A signal.
    Signal(i32),
    /// The input broke.
    Unreadable(io::Error),
    /// The producer takes nothing more.
    Stopped {
        /// The line that it did not take.
        line: u64,
        /// What it said.
        reason: EnqueueRefusal,
    },
}

/// Why a line was skipped.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    Key(#[from] KeyProblem),
    #[error("longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    #[error("{0}")]
    Refused(EnqueueRefusal),
}

impl Feed<'_> {
    /// Feeds until the input ends or something stops it.
    ///
    /// # Errors
    ///
    /// What the system refuses a thread with.
    pub fn run(self, input: Box<dyn Read + Send>) -> io::Result<Fed> {
        let chunks = read_ahead(input)?;
        let ledger = self.broker.map(Broker::ledger);
        let mut feeder = Feeder {
            fingerprints: ledger.as_deref().map(|ledger| lock(ledger).fingerprints()),
            ledger,
            fed: Fed {
                lines: 0,
                empty: 0,
                skipped: 0,
                accepted: 0,
                accepted_bytes: 0,
                position: 0,
                ending: Ending::End,
            },
            feed: self,
        };
        feeder.fed.ending = feeder.feed_all(&chunks);
        if feeder.fed.skipped > TOLD {
            let more = feeder.fed.skipped - TOLD;
            self.console.complain(&format!("{more} more lines skipped"));
        }
        Ok(feeder.fed)
    }
}

/// Reads on a thread of its own, which is never waited for: nothing ends a read of a terminal or
/// a pipe but its peer.
fn read_ahead(input: Box<dyn Read + Send>) -> io::Result<Receiver<io::Result<Chunk>>> {
    let (sender, receiver) = bounded(READ_AHEAD);
    thread::Builder::new()
        .name("hublane-input".to_owned())
        .spawn(move || {
            let mut lines = Lines::new(input);
            while let Some(chunk) = lines.next_chunk().transpose() {
                if sender.send(chunk).is_err() {
                    break;
                }
            }
        })?;
    Ok(receiver)
}

struct Feeder<'a> {
    feed: Feed<'a>,
    ledger: Option<Arc<Mutex<Ledger>>>,
    fingerprints: Option<Fingerprints>,
    fed: Fed,
}

impl Feeder<'_> {
    fn feed_all(&mut self, chunks: &Receiver<io::Result<Chunk>>) -> Ending {
        let Feed { console, .. } = self.feed;
        let ticks = if console.is_visible() {
            tick(TICK)
        } else {
            never()
        };
        loop {
            select! {
                recv(self.feed.signals) -> signal => {
                    if let Ok(signal) = signal {
                        return Ending::Signal(signal);
                    }
                }
                recv(chunks) -> chunk => match chunk {
                    Ok(Ok(chunk)) => {
                        if let Err(ending) = self.feed_chunk(&chunk) {
                            return ending;
                        }
                    }
                    Ok(Err(error)) => return Ending::Unreadable(error),
                    Err(_) => return Ending::End,
                },
                recv(ticks) -> _ => self.show(),
            }
        }
    }

    fn show(&self) {
        let delivered = self.feed.outcomes.delivered();
        self.feed.console.progress(self.fed.position, delivered);
    }

    fn feed_chunk(&mut self, chunk: &Chunk) -> Result<(), Ending> {
        for line in chunk.lines() {
            if let Ok(signal) = self.feed.signals.try_recv() {
                return Err(Ending::Signal(signal));
            }
            self.fed.lines = line.number;
            if line.text.is_some_and(<[u8]>::is_empty) {
                self.fed.empty += 1;
            } else if let Err(problem) = self.feed_line(line)? {
                self.skip(line.number, &problem);
            }
        }
        if let Some(broker) = self.feed.broker {
            broker.keep_up(self.feed.outcomes);
        }
        self.fed.position = chunk.position;
        self.show();
        Ok(())
    }

    /// The outer error ends everything, the inner one is this line's.
    fn feed_line(&mut self, line: Line<'_>) -> Result<Result<(), Problem>, Ending> {
        let Some(text) = line.text else {
            return Ok(Err(Problem::TooLong));
        };
        let key = match self.feed.key_field.map(|field| field.key_of(text)) {
            None => None,
            Some(Ok(key)) => Some(key),
            Some(Err(problem)) => return Ok(Err(problem.into())),
        };
        self.expect(line.number, text, key.as_ref());
        let target = key.map_or(Target::Any, Target::Key);
        let event = Event::new(Bytes::copy_from_slice(text)).with_message_id(line.number);
        let refused = self.enqueue(event, &target, line.number);
        match &refused {
            Ok(Ok(())) => {
                self.fed.accepted += 1;
                self.fed.accepted_bytes += text.len() as u64;
            }
            Ok(Err(_)) | Err(_) => self.withdraw(line.number),
        }
        refused
    }

    /// Before the event is accepted: it may be stored and read back before that is known here.
    fn expect(&self, line: u64, text: &[u8], key: Option<&PartitionKey>) {
        if let (Some(ledger), Some(fingerprints)) = (&self.ledger, &self.fingerprints) {
            let fingerprint = fingerprints.of(text, key.map(PartitionKey::as_str));
            lock(ledger).expect(line, fingerprint);
        }
    }

    fn withdraw(&self, line: u64) {
        if let Some(ledger) = &self.ledger {
            lock(ledger).withdraw(line);
        }
    }

    fn enqueue(
        &self,
        mut event: Event,
        target: &Target,
        line: u64,
    ) -> Result<Result<(), Problem>, Ending> {
        loop {
            let Err(refused) = self.feed.producer.enqueue_timeout(target, event, PATIENCE) else {
                return Ok(Ok(()));
            };
            let reason = refused.reason().clone();
            match reason {
                EnqueueRefusal::TimedOut | EnqueueRefusal::Full => {}
                EnqueueRefusal::TooLarge { .. } | EnqueueRefusal::ExceedsBuffer { .. } => {
                    return Ok(Err(Problem::Refused(reason)));
                }
                reason => return Err(Ending::Stopped { line, reason }),
            }
            if let Ok(signal) = self.feed.signals.try_recv() {
                return Err(Ending::Signal(signal));
            }
            self.show();
            event = refused.into_event();
        }
    }

    fn skip(&mut self, line: u64, problem: &Problem) {
        self.fed.skipped += 1;
        if self.fed.skipped <= TOLD {
            let text = format!("line {line} skipped: {problem}");
            self.feed.console.complain(&text);
        }
    }
}
