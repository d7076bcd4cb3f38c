//! What an emulator is to be.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use thiserror::Error;
use tokio::sync::broadcast;

use crate::{
    emulator::{Emulator, Launch},
    fault::{Fault, Faults},
    sas::SasKey,
    server::{Settings, Shared},
    stats::Counters,
    store::{Retention, Store},
};

/// The service's limit for an event hub, and the most partitions one hub may have.
const MAX_PARTITIONS: usize = 2048;

/// Frames of a record of the journal, and a 32-bit position in a batch, end here.
const MAX_MESSAGE_SIZE: u64 = 128 << 20;

/// Disruptions that a busy connection may fall behind before it misses the oldest.
const DISRUPTIONS: usize = 256;

/// Longer idle time-outs make no difference to anybody.
const MAX_IDLE: Duration = Duration::from_secs(24 * 3600);

/// Why an emulator did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// No hub was declared.
    #[error("an emulator needs at least one hub")]
    NoHub,
    /// A hub was declared twice; names differ in more than case.
    #[error("the hub '{0}' is declared twice")]
    DuplicateHub(String),
    /// A hub name that cannot stand in an address.
    #[error("'{0}' is no name for a hub")]
    HubName(String),
    /// A hub needs between 1 and 2048 partitions.
    #[error("the hub '{hub}' cannot have {partitions} partitions")]
    Partitions {
        /// The hub.
        hub: String,
        /// The number that was asked for.
        partitions: usize,
    },
    /// A number is outside the range that the builder's method states.
    #[error("the setting {0} is out of range")]
    Setting(&'static str),
    /// The journal could not be opened, read, or held in memory.
    #[error("the journal cannot be used")]
    Journal(#[source] io::Error),
    /// The address could not be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The thread could not be started.
    #[error("the emulator's thread cannot be started")]
    Thread(#[source] io::Error),
}

/// Settings of an emulator. [`start`](Self::start) checks them.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    hubs: Vec<(String, usize)>,
    address: SocketAddr,
    max_message_size: u64,
    max_memory_bytes: u64,
    retention: Retention,
    link_credit: u32,
    idle_time_out: Duration,
    exclusive_cbs: bool,
    sas: Option<SasKey>,
    journal: Option<PathBuf>,
    faults: Faults,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            hubs: Vec::new(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            // The standard tier's limit.
            max_message_size: 1_048_576,
            max_memory_bytes: 1 << 30,
            retention: Retention::default(),
            link_credit: 1000,
            // What the service announces.
            idle_time_out: Duration::from_secs(240),
            exclusive_cbs: true,
            sas: None,
            journal: None,
            faults: Faults::default(),
        }
    }
}

impl Builder {
    /// Adds a hub with this many partitions.
    pub fn hub(mut self, name: impl Into<String>, partitions: usize) -> Self {
        self.hubs.push((name.into(), partitions));
        self
    }

    /// The address to listen on; port 0, which is the default, picks a free one.
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// The largest message in bytes, a batch being one message: 1 to 128 Mi, by default 1 048 576.
    pub fn max_message_size(mut self, bytes: u64) -> Self {
        self.max_message_size = bytes;
        self
    }

    /// The memory for events, 1 GiB by default, shared equally among the hubs.
    ///
    /// It counts payloads and what the emulator needs to find events in them.
    pub fn max_memory_bytes(mut self, bytes: u64) -> Self {
        self.max_memory_bytes = bytes;
        self
    }

    /// What happens when the memory is full, by default [`Retention::Reject`].
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Messages that a client may send ahead on a link: at least 1, by default 1000.
    pub fn link_credit(mut self, credit: u32) -> Self {
        self.link_credit = credit;
        self
    }

    /// The idle time-out that is announced, 240 s by default; a connection that says nothing for
    /// twice as long is closed. Between a millisecond and a day.
    pub fn idle_time_out(mut self, duration: Duration) -> Self {
        self.idle_time_out = duration;
        self
    }

    /// Whether a second `$cbs` link on one connection is refused with `amqp:not-allowed`, as the
    /// service does. By default it is.
    pub fn exclusive_cbs(mut self, exclusive: bool) -> Self {
        self.exclusive_cbs = exclusive;
        self
    }

    /// Has tokens checked against this key; without a key any token will do, and none is needed.
    pub fn sas_key(mut self, name: impl Into<String>, key: impl Into<String>) -> Self {
        self.sas = Some(SasKey {
            name: name.into(),
            key: key.into(),
        });
        self
    }

    /// Keeps events in this file, too, written and synchronised before they are acknowledged; what
    /// the file holds already is loaded. It grows without limit: dropping the oldest events from
    /// memory does not shorten it.
    pub fn journal(mut self, path: impl Into<PathBuf>) -> Self {
        self.journal = Some(path.into());
        self
    }

    /// Adds a fault that is in force from the start; see [`Emulator::faults`] for later ones.
    pub fn fault(self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Starts listening.
    ///
    /// # Errors
    ///
    /// [`StartError`] when a setting is impossible, or the journal, the address or a thread cannot
    /// be had.
    pub fn start(self) -> Result<Emulator, StartError> {
        self.check()?;
        let journal = self.journal.as_deref();
        let store = Store::open(&self.hubs, self.max_memory_bytes, self.retention, journal)
            .map_err(StartError::Journal)?;
        let settings = Settings {
            max_message_size: self.max_message_size,
            link_credit: self.link_credit,
            idle_time_out: self.idle_time_out,
            sas: self.sas,
            exclusive_cbs: self.exclusive_cbs,
        };
        let shared = Shared {
            settings,
            store: Arc::new(store),
            faults: self.faults,
            counters: Counters::default(),
            disruptions: broadcast::Sender::new(DISRUPTIONS),
        };
        Launch {
            address: self.address,
            shared: Arc::new(shared),
        }
        .start()
    }

    fn check(&self) -> Result<(), StartError> {
        if self.hubs.is_empty() {
            return Err(StartError::NoHub);
        }
        for (index, (hub, partitions)) in self.hubs.iter().enumerate() {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if hub.is_empty() || hub.len() > 256 || !hub.bytes().all(plain) {
                return Err(StartError::HubName(hub.clone()));
            }
            if !(1..=MAX_PARTITIONS).contains(partitions) {
                return Err(StartError::Partitions {
                    hub: hub.clone(),
                    partitions: *partitions,
                });
            }
            if self.hubs[..index]
                .iter()
                .any(|(other, _)| other.eq_ignore_ascii_case(hub))
            {
                return Err(StartError::DuplicateHub(hub.clone()));
            }
        }
        let ranges = [
            (
                "max_message_size",
                (1..=MAX_MESSAGE_SIZE).contains(&self.max_message_size),
            ),
            ("link_credit", self.link_credit > 0),
            (
                "idle_time_out",
                (Duration::from_millis(1)..=MAX_IDLE).contains(&self.idle_time_out),
            ),
        ];
        match ranges.into_iter().find(|(_, good)| !good) {
            Some((name, _)) => Err(StartError::Setting(name)),
            None => Ok(()),
        }
    }
}
