//! A running emulator and its thread.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use thiserror::Error;
use tokio::{runtime, sync::watch};

use crate::{
    builder::{Builder, StartError},
    fault::{Disruption, Faults},
    hub::HubHandle,
    server::{self, Shared},
    stats::Stats,
};

/// How long dropping an emulator waits for its thread.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// The key pair in connection strings of an emulator that checks no tokens.
const ANY_KEY: (&str, &str) = ("RootManageSharedAccessKey", "c2VjcmV0");

/// The emulator did not stop in time; its thread goes on with stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the emulator did not stop in time")]
pub struct ShutdownError;

/// A running emulator. Dropping it stops it.
#[derive(Debug)]
pub struct Emulator {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    /// Disconnected when the thread is done.
    done: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// What is needed to start.
pub(crate) struct Launch {
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<Shared>,
}

impl Launch {
    pub(crate) fn start(self) -> Result<Emulator, StartError> {
        let address = self.address;
        let bind = |source| StartError::Bind { address, source };
        let listener = listen(address).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        let (stop, stopped) = watch::channel(false);
        let (finished, done) = mpsc::sync_channel::<()>(0);
        let shared = Arc::clone(&self.shared);
        let body = move || {
            runtime.block_on(async move {
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => server::serve(listener, shared, stopped).await,
                    Err(error) => tracing::error!(%error, "the listener cannot be used"),
                }
            });
            drop(finished);
        };
        let thread = thread::Builder::new()
            .name("hublane-emulator".into())
            .spawn(body)
            .map_err(StartError::Thread)?;
        Ok(Emulator {
            shared: self.shared,
            address,
            stop,
            done,
            thread: Some(thread),
        })
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};

    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // A restarted emulator can have its port back at once; elsewhere the option means more.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    // The Python client sets the TCP options that it has read back, and the kernel refuses the
    // segment size of a loopback connection; with a smaller one on the listener it does not.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_mss(16_384)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

impl Emulator {
    /// Settings for a new emulator.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The address that it listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// A connection string for a hub, whether it exists or not.
    #[must_use]
    pub fn connection_string(&self, hub: &str) -> String {
        let (name, key) = match &self.shared.settings.sas {
            Some(sas) => (sas.name.as_str(), sas.key.as_str()),
            None => ANY_KEY,
        };
        // An emulator that listens everywhere is reached on the loopback interface.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!(
            "Endpoint=sb://{address};SharedAccessKeyName={name};SharedAccessKey={key};\
             EntityPath={hub};UseDevelopmentEmulator=true"
        )
    }

    /// A hub by name, without regard to case.
    #[must_use]
    pub fn hub(&self, name: &str) -> Option<HubHandle> {
        self.shared
            .store
            .hub(name)
            .map(|store| HubHandle::new(Arc::clone(store)))
    }

    /// All hubs in the order of their declaration.
    #[must_use]
    pub fn hubs(&self) -> Vec<HubHandle> {
        self.shared
            .store
            .hubs
            .iter()
            .map(|store| HubHandle::new(Arc::clone(store)))
            .collect()
    }

    /// The script of faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Does something to all that is open now, and tells how many connections will hear of it.
    pub fn disrupt(&self, disruption: Disruption) -> usize {
        self.shared.disruptions.send(disruption).unwrap_or(0)
    }

    /// What clients have done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.counters.snapshot()
    }

    /// Closes all connections and stops. Handles to hubs can still be read.
    ///
    /// # Errors
    ///
    /// [`ShutdownError`] when that takes longer than `timeout`.
    pub fn shutdown(mut self, timeout: Duration) -> Result<(), ShutdownError> {
        self.stop_within(timeout)
    }

    fn stop_within(&mut self, timeout: Duration) -> Result<(), ShutdownError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.stop.send_replace(true);
        match self.done.recv_timeout(timeout) {
            Err(mpsc::RecvTimeoutError::Timeout) => Err(ShutdownError),
            // Its last act was to drop the sender, so this does not wait; a panic has been printed.
            _ => {
                let _ = thread.join();
                Ok(())
            }
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if self.stop_within(DROP_LIMIT).is_err() {
            tracing::warn!("the emulator's thread is still stopping");
        }
    }
}
