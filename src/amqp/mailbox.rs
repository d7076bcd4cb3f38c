//! The way from workers to the I/O thread.

use super::delivery::{LinkShared, Pending};
use crate::partition::PartitionId;
use crate::sync::{Arc, Instant, Mutex};
use crate::transport::DeliveryId;
use tokio::sync::Notify;

/// Names a link within its transport; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkId(pub(super) u64);

/// What a thread asks of the I/O thread.
#[derive(Debug)]
pub(super) enum Letter {
    /// Attach a link and keep it attached.
    Open(LinkId, PartitionId, Arc<LinkShared>),
    /// Send a batch.
    Submit(LinkId, Pending),
    /// The lane gave this delivery up.
    Cancel(LinkId, DeliveryId),
    /// The lane needs the link no more.
    Close(LinkId),
    /// End everything, by then.
    Shut(Instant),
}

/// Letters in the order in which they were posted.
///
/// Bounded by what may be posted, not by its own length, so that posting neither blocks nor
/// fails: per link one `Open`, one `Close`, at most
/// [`MAX_OUTSTANDING`](super::delivery::MAX_OUTSTANDING) `Submit`s and a `Cancel` for each;
/// `Shut` from each call of `close`.
#[derive(Debug)]
pub(super) struct Mailbox {
    letters: Mutex<Letters>,
    bell: Notify,
}

#[derive(Debug)]
struct Letters {
    open: bool,
    queue: Vec<Letter>,
}

impl Mailbox {
    pub(super) fn new() -> Mailbox {
        Mailbox {
            letters: Mutex::new(Letters {
                open: true,
                queue: Vec::new(),
            }),
            bell: Notify::new(),
        }
    }

    /// Posts a letter. Behind a shut mailbox nobody reads: the letter is dropped, and with it a
    /// delivery in it gets its answer.
    pub(super) fn post(&self, letter: Letter) {
        let mut letters = self.letters.lock();
        if letters.open {
            letters.queue.push(letter);
            drop(letters);
            self.bell.notify_one();
        } else {
            drop(letters);
            drop(letter);
        }
    }

    /// Waits until there may be letters.
    pub(super) async fn bell(&self) {
        self.bell.notified().await;
    }

    /// Moves all letters to the empty `into`.
    pub(super) fn take(&self, into: &mut Vec<Letter>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut self.letters.lock().queue, into);
    }

    /// Takes no more letters, and gives those back that nobody read.
    pub(super) fn shut(&self) -> Vec<Letter> {
        let mut letters = self.letters.lock();
        letters.open = false;
        std::mem::take(&mut letters.queue)
    }
}
