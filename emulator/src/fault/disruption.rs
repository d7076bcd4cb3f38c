//! Misbehaviour at once, not on an occasion.

use super::{
    SocketDrop,
    action::{self, Condition},
};

/// Something done at once to what is open now; later connections and links are not affected.
///
/// This is how a client meets trouble while it is idle or waits. See
/// [`Emulator::disrupt`](crate::Emulator::disrupt).
#[derive(Debug, Clone)]
#[must_use = "a disruption does nothing until it is given to an emulator"]
pub struct Disruption {
    pub(crate) deed: Deed,
    pub(crate) aim: Aim,
}

#[derive(Debug, Clone)]
pub(crate) enum Deed {
    DetachLinks(Condition),
    CloseConnections(Condition),
    DropSockets(SocketDrop),
    Silence,
    Freeze,
}

/// The links that are meant.
#[derive(Debug, Clone, Default)]
pub(crate) struct Aim {
    hub: Option<String>,
    partition: Option<usize>,
}

impl Aim {
    pub(crate) fn hits(&self, hub: &str, partition: Option<usize>) -> bool {
        let hub_fits = self
            .hub
            .as_deref()
            .is_none_or(|name| name.eq_ignore_ascii_case(hub));
        hub_fits && (self.partition.is_none() || self.partition == partition)
    }
}

impl Disruption {
    fn new(deed: Deed) -> Self {
        Self {
            deed,
            aim: Aim::default(),
        }
    }

    /// Detaches links to hubs, those of readers included, with this condition.
    ///
    /// [`hub`](Self::hub) and [`partition`](Self::partition) narrow it.
    pub fn detach_links(condition: impl Into<String>, description: impl Into<String>) -> Self {
        Self::new(Deed::DetachLinks(action::error(condition, description)))
    }

    /// Closes all connections with this condition.
    pub fn close_connections(condition: impl Into<String>, description: impl Into<String>) -> Self {
        Self::new(Deed::CloseConnections(action::error(
            condition,
            description,
        )))
    }

    /// Drops all sockets, those of silent and frozen connections included.
    pub fn drop_sockets(how: SocketDrop) -> Self {
        Self::new(Deed::DropSockets(how))
    }

    /// All connections go on reading but write nothing more.
    pub fn silence() -> Self {
        Self::new(Deed::Silence)
    }

    /// All connections neither read nor write any more.
    pub fn freeze() -> Self {
        Self::new(Deed::Freeze)
    }

    /// Only links to this hub; for [`detach_links`](Self::detach_links).
    pub fn hub(mut self, hub: impl Into<String>) -> Self {
        self.aim.hub = Some(hub.into());
        self
    }

    /// Only links to this partition; for [`detach_links`](Self::detach_links).
    pub fn partition(mut self, partition: usize) -> Self {
        self.aim.partition = Some(partition);
        self
    }
}
