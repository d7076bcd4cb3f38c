//! The I/O thread: connects, stays connected, ends.
//!
//! ```text
//! start-up ─▶ online ─▶ waiting ─▶ connecting ─▶ online ─▶ …
//!    │           │         ▲  (back-off)  │
//!    ▼           ▼         └──────────────┘
//!  refused     closed
//! ```

use super::backoff::{backoff_policy, is_busy};
use super::connection::{Connection, Ended, PeerLimits};
use super::driver::{Online, Stop};
use super::errors;
use super::handshake::shake_hands;
use super::learning::Learning;
use super::links::Links;
use super::mailbox::{Letter, Mailbox};
use super::options::Settings;
use super::socket;
use super::wire::Inbound;
use crate::retry::Jitter;
use crate::sync::{Arc, Clock, Instant, Monitor};
use crate::transport::{ConnectError, HubInfo, LinkError};
use std::future::Future;
use std::time::Duration;
use tokio::time::{sleep_until, timeout_at};

/// A connection that lived less than this did not work: the wait before the next grows.
const SOUND_AFTER: Duration = Duration::from_secs(5);

/// What the I/O thread and its transport share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) mailbox: Mailbox,
    pub(super) progress: Monitor<Progress>,
}

/// How far the thread is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// What `connect` is to return.
    pub(super) outcome: Option<Result<HubInfo, ConnectError>>,
    /// The thread does nothing any more.
    pub(super) ended: bool,
}

impl Shared {
    pub(super) fn new() -> Shared {
        Shared {
            mailbox: Mailbox::new(),
            progress: Monitor::new(Progress::default()),
        }
    }

    fn tell(&self, outcome: Result<HubInfo, ConnectError>) {
        self.progress.update(|progress| {
            progress.outcome.get_or_insert(outcome);
        });
    }
}

/// Runs the thread's life from its start-up, which must succeed by `deadline`.
pub(super) fn run(settings: Settings, shared: &Arc<Shared>, deadline: Instant, seed: u64) {
    crate::engine_thread::mark();
    // Dropped last, also by a panic: whoever waits for this thread or its answers gets them.
    let _end = End(Arc::clone(shared));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // For looking up host names; one at a time is looked up, one may still hang.
        .thread_name("hublane-dns")
        .max_blocking_threads(2)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let what = format!("the I/O thread cannot start: {error}");
            let error = LinkError::new(errors::UNREACHABLE, what);
            return shared.tell(Err(ConnectError::Unreachable(error)));
        }
    };
    let life = Life {
        settings: Arc::new(settings),
        shared: Arc::clone(shared),
        clock: Clock::System,
        jitter: Jitter::new(seed),
        generation: 0,
        failures: 0,
    };
    runtime.block_on(life.run(deadline));
    // A look-up of a host name that never ends must not hold the thread.
    runtime.shutdown_background();
}

struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        let left = self.0.mailbox.shut();
        drop(left);
        let gone = LinkError::new(errors::CLOSED, "the transport ended");
        self.0.tell(Err(ConnectError::Unreachable(gone)));
        self.0.progress.update(|progress| progress.ended = true);
    }
}

/// An open connection that nobody drives yet.
type Parts = (socket::Socket, Inbound, PeerLimits);

struct Life {
    settings: Arc<Settings>,
    shared: Arc<Shared>,
    clock: Clock,
    jitter: Jitter,
    generation: u64,
    /// Connections in a row that came to nothing.
    failures: u32,
}

impl Life {
    async fn run(mut self, deadline: Instant) {
        let mut links = Links::default();
        let online = self.start_up(&mut links, deadline).await;
        let mut online = match online {
            Ok(online) => online,
            Err(error) => return self.shared.tell(Err(error)),
        };
        loop {
            let since = self.clock.now();
            let error = match online.drive(&self.shared.mailbox, &self.clock).await {
                Stop::Ended(Ended::Lost(error)) => error,
                Stop::Ended(Ended::Closed) => return,
                Stop::Learned(_) => continue,
            };
            tracing::warn!(%error, "a connection ended");
            links = online.connection.end(&error);
            drop((online.socket, online.inbound));
            if self.clock.now() >= since + SOUND_AFTER {
                self.failures = 0;
            }
            match self.reconnect(links).await {
                Some(again) => online = again,
                None => return,
            }
        }
    }

    /// Connects and learns about the hub, again and again until it succeeds, cannot succeed, or
    /// `deadline` passes.
    async fn start_up(
        &mut self,
        links: &mut Links,
        deadline: Instant,
    ) -> Result<Online, ConnectError> {
        let (host, port) = (&self.settings.host, self.settings.port);
        let mut last = LinkError::new(errors::TIMED_OUT, format!("{host}:{port} did not answer"));
        loop {
            match timeout_at(deadline.into(), self.start_once(links)).await {
                Ok(Ok((online, hub))) => {
                    self.shared.tell(Ok(hub));
                    return Ok(online);
                }
                Ok(Err(error)) if !errors::is_passing(&error) => {
                    return Err(errors::refused(error));
                }
                Ok(Err(error)) => last = error,
                Err(_) => return Err(ConnectError::TimedOut { last }),
            }
            tracing::debug!(error = %last, "an attempt to connect failed");
            let until = self.next_attempt(&last);
            if until >= deadline {
                return Err(ConnectError::TimedOut { last });
            }
            let mailbox = &self.shared.mailbox;
            if offline(mailbox, links, sleep_until(until.into()))
                .await
                .is_none()
            {
                let error = LinkError::new(errors::CLOSED, "closed while it connected");
                return Err(ConnectError::Unreachable(error));
            }
        }
    }

    async fn start_once(&mut self, links: &mut Links) -> Result<(Online, HubInfo), LinkError> {
        let Some(parts) = self.establish(links).await else {
            return Err(LinkError::new(errors::CLOSED, "closed while it connected"));
        };
        let learning = Some(Learning::default());
        let mut online = self.online(parts?, std::mem::take(links), learning);
        let (error, ended) = match online.drive(&self.shared.mailbox, &self.clock).await {
            Stop::Learned(Ok(hub)) => {
                online.connection.finish_learning(self.clock.now());
                return Ok((online, hub));
            }
            Stop::Learned(Err(error)) => (error, false),
            Stop::Ended(Ended::Lost(error)) => (error, true),
            Stop::Ended(Ended::Closed) => {
                let error = LinkError::new(errors::CLOSED, "closed while it connected");
                (error, true)
            }
        };
        if !ended {
            online.connection.close(self.clock.now());
            let _ = online.drive(&self.shared.mailbox, &self.clock).await;
        }
        *links = online.connection.end(&error);
        Err(error)
    }

    /// Connects again, for as long as it takes; `None` if the transport is closed meanwhile.
    async fn reconnect(&mut self, mut links: Links) -> Option<Online> {
        let mut error = LinkError::new(errors::CONNECTION_LOST, "the connection ended");
        loop {
            let until = self.next_attempt(&error);
            let mailbox = &self.shared.mailbox;
            offline(mailbox, &mut links, sleep_until(until.into())).await?;
            match self.establish(&mut links).await? {
                Ok(parts) => return Some(self.online(parts, links, None)),
                Err(again) => error = again,
            }
            tracing::debug!(%error, "an attempt to connect failed");
            links.report_down(&error);
        }
    }

    fn next_attempt(&mut self, error: &LinkError) -> Instant {
        let wait = backoff_policy().backoff(self.failures, is_busy(error), &mut self.jitter);
        self.failures = self.failures.saturating_add(1);
        self.clock.now() + wait
    }

    /// One attempt to get as far as an open connection, while letters are read.
    async fn establish(&mut self, links: &mut Links) -> Option<Result<Parts, LinkError>> {
        let settings = Arc::clone(&self.settings);
        let by = self.clock.now() + settings.connect_timeout;
        let attempt = async {
            let mut inbound = Inbound::new(settings.max_frame_size as usize);
            let mut socket = socket::connect(&settings).await?;
            let limits = shake_hands(&mut socket, &mut inbound, &settings).await?;
            Ok((socket, inbound, limits))
        };
        let attempt = async {
            match timeout_at(by.into(), attempt).await {
                Ok(result) => result,
                Err(_) => Err(errors::timed_out("an attempt to connect")),
            }
        };
        offline(&self.shared.mailbox, links, attempt).await
    }

    fn online(
        &mut self,
        (socket, inbound, limits): Parts,
        links: Links,
        learning: Option<Learning>,
    ) -> Online {
        self.generation += 1;
        let connection = Connection::new(
            Arc::clone(&self.settings),
            limits,
            links,
            learning,
            self.generation,
            self.jitter.clone(),
            self.clock.now(),
        );
        Online {
            socket,
            inbound,
            connection,
        }
    }
}

/// Waits for `what` and reads letters meanwhile; `None` if one of them ends everything.
async fn offline<T>(
    mailbox: &Mailbox,
    links: &mut Links,
    what: impl Future<Output = T>,
) -> Option<T> {
    let mut what = std::pin::pin!(what);
    let mut letters: Vec<Letter> = Vec::new();
    loop {
        if links.shut.is_some() {
            return None;
        }
        tokio::select! {
            done = &mut what => return Some(done),
            () = mailbox.bell() => {
                mailbox.take(&mut letters);
                for letter in letters.drain(..) {
                    links.handle_offline(letter);
                }
            }
        }
    }
}
