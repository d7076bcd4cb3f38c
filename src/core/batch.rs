//! Batches: the open one, which takes events, and sealed ones, whose bytes are final.

use super::types::{Entry, Trigger};
use crate::codec::{Payload, section_len};
use crate::sync::{Arc, Instant};
use crate::transport::{DeliveryId, LinkError};
use std::collections::VecDeque;
use std::time::Duration;

/// `at + wait`, or some decades on if the clock cannot say that instant: a wait without end.
pub(crate) fn later(at: Instant, wait: Duration) -> Instant {
    const DECADES: Duration = Duration::from_secs(30 * 365 * 86_400);
    at.checked_add(wait)
        .or_else(|| at.checked_add(DECADES))
        .unwrap_or(at)
}

/// The bytes that the entry takes of its batch.
pub(super) fn section<T>(entry: &Entry<T>) -> usize {
    section_len(entry.encoded_len as usize)
}

/// An event that no batch has taken yet.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    /// How many events were handed in before this one.
    pub(super) seq: u64,
    pub(super) times: Times,
    pub(super) entry: Entry<T>,
}

/// The instants from which an event's two waits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// When it was handed in; its delivery deadline counts from here.
    pub(super) received: Instant,
    /// When its lane was last seen empty; its batch's age counts from here. Not after `received`.
    pub(super) since: Instant,
}

/// The times of a run of neighbours. A worker reads the clock once per pass, so that one of
/// these serves all the events of a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// Sequence number of the first event with these times.
    from: u64,
    times: Times,
}

/// The entries of a batch: neighbours in the stream of events, without a gap.
#[derive(Debug)]
pub(super) struct Block<T> {
    /// Sequence number of the first entry; entry `i` has `first + i`.
    pub(super) first: u64,
    pub(super) entries: Vec<Entry<T>>,
    /// Empty exactly if `entries` is; ascending; the first has `from == first`.
    pub(super) stamps: VecDeque<Stamp>,
    /// The sum of the entries' sections: the length of the payload.
    pub(super) bytes: usize,
    /// The sum of the entries' `encoded_len`.
    pub(super) encoded: u64,
}

impl<T> Block<T> {
    fn new(stamps: VecDeque<Stamp>) -> Block<T> {
        Block {
            first: 0,
            entries: Vec::new(),
            stamps,
            bytes: 0,
            encoded: 0,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The times of the oldest entry.
    pub(super) fn oldest(&self) -> Option<Times> {
        self.stamps.front().map(|stamp| stamp.times)
    }

    /// How many of the oldest entries were received at `limit` or before.
    pub(super) fn received_until(&self, limit: impl Fn(Instant) -> bool) -> usize {
        let late = self
            .stamps
            .iter()
            .find(|stamp| !limit(stamp.times.received));
        let count = late.map_or(self.len(), |stamp| stamp.from.saturating_sub(self.first));
        // At most the length, which is a usize.
        count as usize
    }

    /// The greatest number of oldest entries whose sections fit in `limit` bytes.
    fn fitting(&self, limit: usize) -> usize {
        let mut bytes = 0;
        let fits = |entry: &&Entry<T>| {
            bytes += section(*entry);
            bytes <= limit
        };
        self.entries.iter().take_while(fits).count()
    }

    fn append(&mut self, seq: u64, times: Times, entry: Entry<T>) {
        let section = section(&entry);
        let encoded = u64::from(entry.encoded_len);
        if self.entries.is_empty() {
            self.first = seq;
        }
        self.entries.push(entry);
        if self.stamps.back().is_none_or(|last| last.times != times) {
            self.stamps.push_back(Stamp { from: seq, times });
        }
        self.bytes += section;
        self.encoded += encoded;
    }

    /// Takes the youngest entry out again.
    fn pop(&mut self) -> Option<Waiting<T>> {
        let times = self.stamps.back()?.times;
        let last = self.entries.last()?;
        self.bytes -= section(last);
        self.encoded -= u64::from(last.encoded_len);
        let seq = self.first + self.len() - 1;
        if self.stamps.back().is_some_and(|stamp| stamp.from >= seq) {
            self.stamps.pop_back();
        }
        self.entries
            .pop()
            .map(|entry| Waiting { seq, times, entry })
    }

    /// Takes the `n` oldest entries out, at most all.
    fn take_front(&mut self, n: usize) -> Block<T> {
        let rest = self.take_back(n);
        std::mem::replace(self, rest)
    }

    /// Takes all but the `n` oldest entries out.
    fn take_back(&mut self, n: usize) -> Block<T> {
        let n = n.min(self.entries.len());
        let first = self.first + n as u64;
        let back = &self.entries[n..];
        let bytes = back.iter().map(section).sum();
        let encoded = back.iter().map(|entry| u64::from(entry.encoded_len)).sum();
        let spans = !back.is_empty();

        let at = self.stamps.partition_point(|stamp| stamp.from < first);
        let mut stamps = self.stamps.split_off(at);
        if let (true, Some(last)) = (spans, self.stamps.back()) {
            // The run that the cut goes through serves both sides.
            if stamps.front().is_none_or(|stamp| stamp.from > first) {
                stamps.push_front(Stamp {
                    from: first,
                    times: last.times,
                });
            }
        }
        self.bytes -= bytes;
        self.encoded -= encoded;
        Block {
            first,
            entries: self.entries.split_off(n),
            stamps,
            bytes,
            encoded,
        }
    }

    fn encode(&self, payload: &mut Payload) {
        payload.clear();
        for entry in &self.entries {
            payload.push(&entry.event, entry.key.as_ref());
        }
    }
}

/// The batch that takes events.
#[derive(Debug)]
pub(super) struct Open<T> {
    pub(super) block: Block<T>,
    /// The encoded entries, unless `stale`.
    payload: Payload,
    /// Entries were taken out again. The payload is empty and stays so until the batch is sealed,
    /// so that events which expire one by one do not each cost an encoding of the others.
    stale: bool,
    /// How many entries the last batch had: the room to make for the next.
    usual: usize,
}

impl<T> Open<T> {
    pub(super) fn new() -> Open<T> {
        // Room is made as events come: a lane that is hardly used stays small.
        let payload = Payload::with_capacity(0, 0);
        Open {
            block: Block::new(VecDeque::new()),
            payload,
            stale: false,
            usual: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.block.entries.is_empty()
    }

    /// Adds an event behind the others and encodes it.
    pub(super) fn push(&mut self, seq: u64, times: Times, entry: Entry<T>) {
        if self.block.entries.capacity() == 0 {
            self.block.entries.reserve(self.usual);
        }
        // Into its place before it is encoded: what fails from here on finds it there.
        self.block.append(seq, times, entry);
        debug_assert_eq!(self.block.first + self.block.len(), seq + 1, "a gap");
        if let (false, Some(entry)) = (self.stale, self.block.entries.last()) {
            self.payload.push(&entry.event, entry.key.as_ref());
            debug_assert_eq!(
                self.payload.len_bytes(),
                self.block.bytes,
                "inexact encoded_len"
            );
        }
    }

    /// Takes the youngest entry out again.
    pub(super) fn pop(&mut self) -> Option<Waiting<T>> {
        self.payload.clear();
        self.stale = self.block.entries.len() > 1;
        self.block.pop()
    }

    /// Takes the `n` oldest entries out.
    pub(super) fn take_front(&mut self, n: usize) -> Block<T> {
        self.payload.clear();
        self.stale = self.block.entries.len() > n;
        self.block.take_front(n)
    }

    /// Makes what is in it a batch of its own, and is empty and open again.
    pub(super) fn seal(
        &mut self,
        spares: &mut Spares,
        deadline: Instant,
        trigger: Trigger,
    ) -> Sealed<T> {
        if self.stale {
            self.block.encode(&mut self.payload);
            self.stale = false;
        }
        self.usual = self.block.entries.len();
        let stamps = spares.take_stamps();
        let mut body = spares.take();
        let stale = match Arc::get_mut(&mut body) {
            Some(spare) => {
                std::mem::swap(spare, &mut self.payload);
                false
            }
            // Spares are unshared; were one not, its batch would be encoded once more.
            None => {
                self.payload.clear();
                true
            }
        };
        Sealed {
            block: std::mem::replace(&mut self.block, Block::new(stamps)),
            body,
            stale,
            deadline,
            trigger: Some(trigger),
            attempts: 0,
            possibly_stored: false,
            not_before: None,
            not_sent: 0,
            problem: None,
        }
    }

    /// Takes a batch back that was never transferred. The open batch must be empty.
    pub(super) fn reopen(&mut self, batch: Sealed<T>, spares: &mut Spares) {
        debug_assert!(self.is_empty());
        let Sealed {
            block,
            mut body,
            stale,
            ..
        } = batch;
        self.block = block;
        self.stale = match Arc::get_mut(&mut body) {
            Some(payload) if !stale => {
                std::mem::swap(payload, &mut self.payload);
                false
            }
            _ => true,
        };
        spares.keep(body);
    }
}

/// A batch whose content is final. Once it was transferred, so are its bytes.
#[derive(Debug)]
pub(super) struct Sealed<T> {
    pub(super) block: Block<T>,
    /// The encoded entries, unless `stale`.
    pub(super) body: Arc<Payload>,
    /// The batch was split and is not encoded yet. Never true of a transferred batch.
    stale: bool,
    /// When the batch is given up: its oldest event's, fixed when it was sealed.
    pub(super) deadline: Instant,
    /// Why it was sealed; `None` for what was split off, so that each seal counts once.
    pub(super) trigger: Option<Trigger>,
    /// How often it was handed to a link and not given back unsent, the one under way included.
    pub(super) attempts: u32,
    /// A transfer may have reached the peer and was not answered. Never reset: from then on the
    /// batch can only be `Delivered` or `Indeterminate`.
    pub(super) possibly_stored: bool,
    /// Not to be sent again before.
    pub(super) not_before: Option<Instant>,
    /// How often in a row the link, without any change of its state, gave it back unsent.
    pub(super) not_sent: u32,
    /// What went wrong with it last.
    pub(super) problem: Option<LinkError>,
}

impl<T> Sealed<T> {
    /// True if no byte of it was ever transferred, so that its content may still change.
    pub(super) fn is_untouched(&self) -> bool {
        self.attempts == 0
    }

    /// Divides an untouched batch so that it fits in `limit` bytes, and gives what did not fit.
    /// At least one entry stays, fitting or not.
    pub(super) fn split(&mut self, limit: usize) -> Option<Sealed<T>> {
        debug_assert!(self.is_untouched());
        let n = self.block.fitting(limit).max(1);
        if n >= self.block.entries.len() {
            return None;
        }
        self.stale = true;
        Some(Sealed {
            block: self.block.take_back(n),
            body: self.body.clone(),
            stale: true,
            deadline: self.deadline,
            trigger: None,
            attempts: 0,
            possibly_stored: false,
            not_before: self.not_before,
            not_sent: self.not_sent,
            problem: self.problem.clone(),
        })
    }

    /// Encodes the entries if that is still to be done.
    pub(super) fn encode(&mut self, spares: &mut Spares) {
        if !self.stale {
            return;
        }
        let mut body = spares.take();
        if let Some(payload) = Arc::get_mut(&mut body) {
            self.block.encode(payload);
            spares.keep(std::mem::replace(&mut self.body, body));
            self.stale = false;
        }
    }
}

/// A batch that a link has, and that it has not answered.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    pub(super) id: DeliveryId,
    pub(super) batch: Sealed<T>,
}

/// Memory to be used again, so that a lane at work allocates none but what it hands out.
#[derive(Debug)]
pub(super) struct Spares {
    payloads: Vec<Arc<Payload>>,
    stamps: Vec<VecDeque<Stamp>>,
    /// The most of each that can be of use: one for each batch in flight, and one.
    limit: usize,
    /// The longest payload to keep: an outsize event must not be remembered for ever.
    longest: usize,
}

impl Spares {
    pub(super) fn new(window: usize, max_batch_bytes: usize) -> Spares {
        Spares {
            payloads: Vec::new(),
            stamps: Vec::new(),
            limit: window.saturating_add(1),
            longest: max_batch_bytes,
        }
    }

    /// An empty payload that nobody shares.
    fn take(&mut self) -> Arc<Payload> {
        // A link may still hold the payload of a delivery that it has just settled: passed over.
        let free = self
            .payloads
            .iter_mut()
            .position(|payload| Arc::get_mut(payload).map(Payload::clear).is_some());
        match free {
            Some(at) => self.payloads.swap_remove(at),
            None => Arc::new(Payload::with_capacity(0, 0)),
        }
    }

    pub(super) fn keep(&mut self, payload: Arc<Payload>) {
        if self.payloads.len() < self.limit && payload.len_bytes() <= self.longest {
            self.payloads.push(payload);
        }
    }

    fn take_stamps(&mut self) -> VecDeque<Stamp> {
        self.stamps.pop().unwrap_or_default()
    }

    pub(super) fn keep_stamps(&mut self, mut stamps: VecDeque<Stamp>) {
        if self.stamps.len() < self.limit {
            stamps.clear();
            self.stamps.push(stamps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;

    #[test]
    fn an_outsize_payload_and_more_than_can_be_of_use_are_let_go() {
        let mut spares = Spares::new(1, 100);
        for (bytes, kept) in [(101, 0), (100, 1), (20, 2), (20, 2)] {
            let mut payload = Payload::with_capacity(0, 0);
            payload.push(&Event::new(vec![0; bytes - 10]), None);
            assert_eq!(payload.len_bytes(), bytes);
            spares.keep(Arc::new(payload));
            assert_eq!(spares.payloads.len(), kept);
        }
        assert!(spares.take().is_empty());
    }
}
