//! Counters of what clients did.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What clients have done since the start, read at one go but not at one instant.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The live counters.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// TCP connections accepted.
    connections,
    /// TCP connections that are open now.
    connections_open,
    /// Sessions begun.
    sessions,
    /// Links to a hub or partition that were accepted.
    attaches,
    /// Links that were refused, for whatever reason.
    attaches_refused,
    /// Tokens that were accepted.
    tokens_accepted,
    /// Tokens that were refused.
    tokens_refused,
    /// `$cbs` links refused because the connection already had one.
    cbs_conflicts,
    /// Management requests answered.
    management_requests,
    /// Messages received whole on links to a hub, batches counted as one.
    transfers,
    /// Messages of these that were stored and answered with `accepted`.
    accepted,
    /// Messages of these that were answered with `rejected`, by a fault or for a reason.
    rejected,
    /// Events stored.
    events_stored,
    /// Events sent to readers.
    events_delivered,
    /// Connections that were ended because the peer broke the protocol.
    protocol_errors,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

pub(crate) fn sub(counter: &AtomicU64, n: u64) {
    counter.fetch_sub(n, Ordering::Relaxed);
}
