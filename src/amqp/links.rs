//! The links that workers hold; they outlive connections.

use super::delivery::LinkShared;
use super::errors;
use super::mailbox::{Letter, LinkId};
use crate::partition::PartitionId;
use crate::sync::{Arc, Instant};
use crate::transport::{LinkError, LinkState};
use std::collections::BTreeMap;

/// One worker's link, attached or not.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) partition: PartitionId,
    pub(super) shared: Arc<LinkShared>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) entries: BTreeMap<LinkId, Entry>,
    /// What ends everything, once somebody asked for it.
    pub(super) shut: Option<Instant>,
}

impl Links {
    /// Acts on a letter while there is no connection.
    pub(super) fn handle_offline(&mut self, letter: Letter) {
        match letter {
            Letter::Open(id, partition, shared) => {
                self.entries.insert(id, Entry { partition, shared });
            }
            Letter::Submit(_, pending) => pending.fail(no_link()),
            Letter::Cancel(..) => {}
            Letter::Close(id) => {
                self.entries.remove(&id);
            }
            Letter::Shut(deadline) => self.shut(deadline),
        }
    }

    /// Ends everything by `deadline`, or by the one that somebody named before.
    pub(super) fn shut(&mut self, deadline: Instant) {
        self.shut = Some(self.shut.map_or(deadline, |earlier| earlier.min(deadline)));
    }

    /// Tells every lane why there is no link.
    pub(super) fn report_down(&self, error: &LinkError) {
        for entry in self.entries.values() {
            entry.shared.report(LinkState::Down(Some(error.clone())));
        }
    }
}

/// What a delivery is told that came while its link was not there.
pub(super) fn no_link() -> LinkError {
    LinkError::new(errors::LINK_DOWN, "the link is not attached")
}

impl Drop for Links {
    /// Whatever ends the I/O thread, no lane goes on waiting for a link.
    fn drop(&mut self) {
        self.report_down(&LinkError::new(errors::CLOSED, "the transport is closed"));
    }
}
