//! How a producer is made.

use super::engine::Engine;
use super::{BuildError, Enqueuer, Handle, Producer};
use crate::contain::contain;
use crate::core::later;
use crate::report::DeliveryReport;
use crate::reporter::Handler;
use crate::retry::{Jitter, RetryPolicy};
use crate::settings::Settings;
#[cfg(feature = "testing")]
use crate::sync::VirtualClock;
use crate::sync::{Arc, Clock, ParkRole, thread};
use crate::transport::{HubInfo, Transport};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// Collects settings and makes a [`Producer`]. docs/DEFAULTS.md gives each default's reason.
#[must_use = "a builder does nothing until it builds"]
pub struct ProducerBuilder {
    transport: Arc<dyn Transport>,
    settings: Settings,
    handler: Option<Arc<Handler>>,
    clock: Clock,
}

impl ProducerBuilder {
    /// A builder with default settings over `transport`.
    pub fn new(transport: impl Transport) -> ProducerBuilder {
        ProducerBuilder {
            transport: Arc::new(transport),
            settings: Settings::default(),
            handler: None,
            clock: Clock::System,
        }
    }

    /// A builder for the event hub that a connection string names, or for `event_hub`, over
    /// AMQP with the default options; [`AmqpTransport`](crate::amqp::AmqpTransport) takes others.
    ///
    /// # Errors
    ///
    /// [`ConnectionStringError`](crate::ConnectionStringError) if the text is no connection
    /// string, or names no hub or two different ones.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use hublane::ProducerBuilder;
    ///
    /// let text = std::env::var("EVENT_HUB")?;
    /// let producer = ProducerBuilder::from_connection_string(&text, None)?.build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "amqp")]
    pub fn from_connection_string(
        connection_string: &str,
        event_hub: Option<&str>,
    ) -> Result<ProducerBuilder, crate::ConnectionStringError> {
        let target = crate::ConnectionString::parse(connection_string)?;
        let transport = crate::amqp::AmqpTransport::new(target, event_hub)?;
        Ok(ProducerBuilder::new(transport))
    }

    /// The longest that an event waits for others to share its batch. Default 1 s.
    pub fn max_wait_time(mut self, wait: Duration) -> ProducerBuilder {
        self.settings.max_wait_time = wait;
        self
    }

    /// The size in bytes at which a batch is sent; the link's own maximum is the hard limit.
    /// Default 128 KiB.
    pub fn max_batch_bytes(mut self, bytes: usize) -> ProducerBuilder {
        self.settings.max_batch_bytes = bytes;
        self
    }

    /// The number of events at which a batch is sent. Default 8 192.
    pub fn max_batch_events(mut self, events: usize) -> ProducerBuilder {
        self.settings.max_batch_events = events;
        self
    }

    /// The bound of each partition in events, from acceptance to outcome. Default 32 768.
    pub fn max_buffered_events(mut self, events: u64) -> ProducerBuilder {
        self.settings.max_buffered_events = events;
        self
    }

    /// The bound of each partition in bytes, from acceptance to outcome: encoded size plus
    /// [`EVENT_OVERHEAD`](crate::EVENT_OVERHEAD) an event. Default 32 MiB.
    pub fn max_buffered_bytes(mut self, bytes: u64) -> ProducerBuilder {
        self.settings.max_buffered_bytes = bytes;
        self
    }

    /// Batches that may be unanswered at once, per partition. Default 1, which keeps the
    /// order of a partition across retries; more does not.
    pub fn max_in_flight(mut self, batches: usize) -> ProducerBuilder {
        self.settings.max_in_flight = batches;
        self
    }

    /// How long after its receipt by the worker an event is given up. Default 120 s.
    pub fn delivery_timeout(mut self, timeout: Duration) -> ProducerBuilder {
        self.settings.delivery_timeout = timeout;
        self
    }

    /// How long [`build`](ProducerBuilder::build) waits for the service. Default 30 s.
    pub fn start_up_timeout(mut self, timeout: Duration) -> ProducerBuilder {
        self.settings.start_up_timeout = timeout;
        self
    }

    /// The time-out of the close when the last handle is dropped. Default 5 s.
    pub fn drop_timeout(mut self, timeout: Duration) -> ProducerBuilder {
        self.settings.drop_timeout = timeout;
        self
    }

    /// When a refused or unanswered batch is sent again. Default: [`RetryPolicy::default`], as
    /// often as the delivery time-out allows.
    pub fn retry(mut self, policy: RetryPolicy) -> ProducerBuilder {
        self.settings.retry = policy;
        self
    }

    /// Called once a batch with its outcome and all its events, on the partition's worker:
    /// what takes long there holds up its partition and no other. A panic is contained. Returned
    /// events go to whoever waits in `close` or `abort` instead, if anybody does.
    pub fn on_delivery(
        mut self,
        handler: impl Fn(DeliveryReport, &Enqueuer) + Send + Sync + 'static,
    ) -> ProducerBuilder {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// The prefix of the names of worker threads; the partition's id follows. A transport's own
    /// threads are not affected. Default `hublane`.
    pub fn thread_name(mut self, name: impl Into<String>) -> ProducerBuilder {
        self.settings.thread_name = name.into();
        self
    }

    /// The stack size of worker threads in bytes. Default: the standard library's.
    pub fn thread_stack_size(mut self, bytes: usize) -> ProducerBuilder {
        self.settings.thread_stack_size = Some(bytes);
        self
    }

    /// Takes time from a [`VirtualClock`] instead of the system.
    #[cfg(feature = "testing")]
    pub fn virtual_clock(mut self, clock: &VirtualClock) -> ProducerBuilder {
        self.clock = Clock::Virtual(clock.clone());
        self
    }

    /// Connects, and learns the hub's partitions and limits, within the start-up time-out.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for settings that cannot hold, a service that refuses or does not
    /// answer, and a hub without partitions. Nothing is left running.
    pub fn build(self) -> Result<Producer, BuildError> {
        let engine = self.engine()?;
        let deadline = later(engine.clock.now(), engine.settings.start_up_timeout);
        let hub = checked(engine.transport().connect(deadline)?)?;
        engine.connected(hub);
        Ok(Producer {
            handle: Arc::new(Handle { engine }),
        })
    }

    /// As [`build`](ProducerBuilder::build), but connects in the background, again and again
    /// with the retry policy's back-off. Until then try-forms answer
    /// [`NotReady`](crate::EnqueueRefusal::NotReady) and waiting forms wait.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for settings that cannot hold and a thread that cannot be started.
    pub fn build_lazy(self) -> Result<Producer, BuildError> {
        let engine = self.engine()?;
        let parker = engine.clock.parker(ParkRole::Engine);
        let name = format!("{}-connect", engine.settings.thread_name);
        let weak = Arc::downgrade(&engine);
        let seed = engine.seed();
        engine.on_shut(parker.unparker());
        thread::spawn(name, engine.settings.thread_stack_size, move || {
            crate::engine_thread::mark();
            let mut attempt = 0;
            let mut jitter = Jitter::new(seed);
            while let Some(engine) = weak.upgrade().filter(|engine| !engine.is_closed()) {
                let deadline = later(engine.clock.now(), engine.settings.start_up_timeout);
                let mut answer = None;
                contain(|| answer = Some(engine.transport().connect(deadline).map(checked)));
                match answer {
                    Some(Ok(Ok(hub))) => return engine.connected(hub),
                    Some(Ok(Err(error))) => tracing::warn!(%error, "cannot use the hub yet"),
                    Some(Err(error)) => tracing::warn!(%error, "cannot connect yet"),
                    // Callers wait for this thread: it must not end before they can go.
                    None => tracing::error!("the transport panicked while it connected"),
                }
                let wait = engine.settings.retry.backoff(attempt, false, &mut jitter);
                attempt = attempt.saturating_add(1);
                let until = later(engine.clock.now(), wait);
                // Not held while parked: the last handle must be able to go.
                drop(engine);
                parker.park(Some(until));
            }
        })?;
        Ok(Producer {
            handle: Arc::new(Handle { engine }),
        })
    }

    fn engine(self) -> Result<Arc<Engine>, BuildError> {
        self.settings.validate()?;
        // Only spreads retries; the hasher's keys are the standard library's random source.
        let seed = RandomState::new().build_hasher().finish();
        Ok(Arc::new(Engine::new(
            self.settings,
            self.clock,
            self.transport,
            self.handler,
            seed,
        )))
    }
}

fn checked(hub: HubInfo) -> Result<HubInfo, BuildError> {
    if hub.partitions.is_empty() {
        return Err(BuildError::NoPartitions);
    }
    Ok(hub)
}
