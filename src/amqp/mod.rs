//! The AMQP 1.0 transport: Event Hubs, its emulator, and whatever else speaks their protocol.
//!
//! One thread, `hublane-io`, has one connection and on it a link for each partition in use. It
//! is the only asynchronous code in the crate. Workers hand batches over through a mailbox and
//! never wait for it; answers come back into each lane's inbox.
//!
//! ```text
//! worker ─ AmqpLink ─▶ mailbox ─▶ driver ─▶ connection ─▶ node ─▶ session ─▶ sender
//!    ▲                            (bytes,    (frames)   (token, ($cbs, $management or
//!    │                             time)                 attach) a partition's link)
//!    └──────────────── settlements, link states ◀────────────────────────┘
//! ```
//!
//! Connection, sessions and links are state machines without sockets or clocks
//! (`connection`, `nodes`, `session`, `sender`). Frames are fe2o3-amqp's; its own connection and
//! session engines are not used, since they take no encoded batch and leave deliveries without
//! an answer when a connection dies.

mod backoff;
mod connection;
mod delivery;
mod driver;
mod errors;
mod handshake;
mod learning;
mod links;
mod mailbox;
mod nodes;
mod options;
mod performatives;
mod requests;
mod sender;
mod session;
mod socket;
mod thread;
mod tls;
mod token;
mod wire;

#[cfg(test)]
mod tests;

pub use options::AmqpOptions;
/// The version of rustls whose configuration [`AmqpOptions::tls`] takes.
pub use rustls;

use crate::connection_string::{ConnectionString, ConnectionStringError};
use crate::partition::PartitionId;
use crate::settings::SettingsError;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Clock, Instant, Mutex};
use crate::transport::{
    Busy, ConnectError, Delivery, DeliveryId, HubInfo, Link, LinkError, LinkInbox, LinkState,
    Transport,
};
use delivery::LinkShared;
use mailbox::{Letter, LinkId};
use options::Settings;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;
use thread::Shared;
use token::TokenSource;

/// The name of the I/O thread.
const THREAD_NAME: &str = "hublane-io";

/// How much longer than its deadline a `connect` waits for the thread to say that it passed.
const CONNECT_GRACE: Duration = Duration::from_millis(500);

/// A way to one event hub over AMQP 1.0.
///
/// # Examples
///
/// ```no_run
/// use hublane::amqp::{AmqpOptions, AmqpTransport};
/// use hublane::{ConnectionString, ProducerBuilder};
/// use std::time::Duration;
///
/// let target: ConnectionString = std::env::var("EVENT_HUB")?.parse()?;
/// let options = AmqpOptions::default().operation_timeout(Duration::from_secs(30));
/// let transport = AmqpTransport::new(target, Some("readings"))?.with_options(options)?;
/// let producer = ProducerBuilder::new(transport).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AmqpTransport {
    target: ConnectionString,
    hub: String,
    options: AmqpOptions,
    running: Mutex<Option<Running>>,
    next_link: AtomicU64,
}

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    thread: crate::sync::thread::JoinHandle<()>,
}

impl AmqpTransport {
    /// A transport to the hub that the connection string names, or to `event_hub`. It does
    /// nothing until a producer is built on it.
    ///
    /// # Errors
    ///
    /// [`ConnectionStringError`] if no hub is named, or two different ones are.
    pub fn new(
        target: ConnectionString,
        event_hub: Option<&str>,
    ) -> Result<AmqpTransport, ConnectionStringError> {
        let hub = target.event_hub(event_hub)?.to_owned();
        Ok(AmqpTransport {
            target,
            hub,
            options: AmqpOptions::default(),
            running: Mutex::new(None),
            next_link: AtomicU64::new(0),
        })
    }

    /// The same with other options.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] for an option that is out of its range.
    pub fn with_options(mut self, options: AmqpOptions) -> Result<AmqpTransport, SettingsError> {
        options.validate()?;
        self.options = options;
        Ok(self)
    }

    fn start(&self, deadline: Instant) -> Result<Arc<Shared>, ConnectError> {
        let life = self.options.sas_life;
        let tokens =
            TokenSource::new(self.target.credential(), life).map_err(ConnectError::Refused)?;
        let seed = RandomState::new().build_hasher().finish();
        let container_id = format!("hublane-{:x}-{seed:x}", std::process::id());
        let settings = Settings::new(
            &self.target,
            self.hub.clone(),
            self.options.clone(),
            tokens,
            container_id,
        );
        let settings = settings.map_err(ConnectError::Unreachable)?;
        let shared = Arc::new(Shared::new());
        let on_thread = Arc::clone(&shared);
        let body = move || thread::run(settings, &on_thread, deadline, seed);
        let thread = crate::sync::thread::spawn(THREAD_NAME.to_owned(), None, body);
        let thread = thread.map_err(|error| {
            let what = format!("the I/O thread cannot start: {error}");
            ConnectError::Unreachable(LinkError::new(errors::UNREACHABLE, what))
        })?;
        let running = Running {
            shared: Arc::clone(&shared),
            thread,
        };
        *self.running.lock() = Some(running);
        Ok(shared)
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        let running = self.running.lock();
        running.as_ref().map(|running| Arc::clone(&running.shared))
    }
}

impl Transport for AmqpTransport {
    fn connect(&self, deadline: Instant) -> Result<HubInfo, ConnectError> {
        self.close(Clock::System.now());
        let shared = self.start(deadline)?;
        let patience = deadline.checked_add(CONNECT_GRACE);
        let outcome = shared
            .progress
            .wait(&Clock::System, patience, |progress| progress.outcome.take());
        let outcome = outcome.unwrap_or_else(|| {
            let last = LinkError::new(errors::TIMED_OUT, "the I/O thread did not answer");
            Err(ConnectError::TimedOut { last })
        });
        if outcome.is_err() {
            self.close(Clock::System.now() + CONNECT_GRACE);
        }
        outcome
    }

    fn open_link(&self, partition: &PartitionId, inbox: LinkInbox) -> Box<dyn Link> {
        let id = LinkId(self.next_link.fetch_add(1, Ordering::Relaxed));
        let link = AmqpLink {
            id,
            shared: Arc::new(LinkShared::new(inbox)),
            io: self.shared(),
        };
        match &link.io {
            None => {
                let error = LinkError::new(errors::CLOSED, "the transport is not connected");
                link.shared.report(LinkState::Down(Some(error)));
            }
            Some(io) => {
                let shared = Arc::clone(&link.shared);
                io.mailbox.post(Letter::Open(id, partition.clone(), shared));
            }
        }
        Box::new(link)
    }

    fn close(&self, deadline: Instant) {
        let Some(shared) = self.shared() else {
            return;
        };
        shared.mailbox.post(Letter::Shut(deadline));
        let ended = shared
            .progress
            .wait(&Clock::System, Some(deadline), |progress| {
                progress.ended.then_some(())
            });
        if ended.is_none() {
            // It ends by itself, very soon.
            return;
        }
        let running = self
            .running
            .lock()
            .take_if(|running| Arc::ptr_eq(&running.shared, &shared));
        // Behind its last line by now.
        if running.is_some_and(|running| running.thread.join().is_err()) {
            tracing::error!("the I/O thread ended in a panic");
        }
    }
}

impl Drop for AmqpTransport {
    fn drop(&mut self) {
        self.close(Clock::System.now());
    }
}

/// A worker's end of a link.
#[derive(Debug)]
struct AmqpLink {
    id: LinkId,
    shared: Arc<LinkShared>,
    io: Option<Arc<Shared>>,
}

impl Link for AmqpLink {
    fn submit(&mut self, delivery: Delivery) -> Result<(), Busy> {
        let pending = self.shared.admit(delivery)?;
        match &self.io {
            Some(io) => io.mailbox.post(Letter::Submit(self.id, pending)),
            None => pending.fail(links::no_link()),
        }
        Ok(())
    }

    fn cancel(&mut self, id: DeliveryId) {
        if let Some(io) = &self.io {
            io.mailbox.post(Letter::Cancel(self.id, id));
        }
    }
}

impl Drop for AmqpLink {
    fn drop(&mut self) {
        if let Some(io) = &self.io {
            io.mailbox.post(Letter::Close(self.id));
        }
    }
}
