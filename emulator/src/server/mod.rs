//! The broker: one task per connection, each a state machine that reads frames and appends frames.

mod attach;
mod connection;
mod core;
mod driver;
mod handshake;
mod inbound;
mod ingest;
mod nodes;
mod outbound;
mod session;

use std::{sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, broadcast, watch},
    task::JoinSet,
    time,
};

use crate::{
    fault::{Disruption, Faults},
    sas::SasKey,
    stats::{self, Counters},
    store::Store,
};

/// Connections served at a time; more wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 4096;

/// How long connections get to say goodbye when the emulator stops.
const FAREWELL: Duration = Duration::from_millis(250);

/// What never changes while the emulator runs.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) max_message_size: u64,
    pub(crate) link_credit: u32,
    pub(crate) idle_time_out: Duration,
    pub(crate) sas: Option<SasKey>,
    pub(crate) exclusive_cbs: bool,
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) store: Arc<Store>,
    pub(crate) faults: Faults,
    pub(crate) counters: Counters,
    /// Every connection listens to it.
    pub(crate) disruptions: broadcast::Sender<Disruption>,
}

/// Accepts connections until `stop` is set or its sender is gone, then ends them.
pub(crate) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &slots) => accepted,
            Some(_) = tasks.join_next() => continue,
            _ = stop.changed() => break,
        };
        let Some((stream, slot)) = accepted else {
            // Out of file descriptors, most likely; accepting again at once would spin.
            time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        tasks.spawn(async move {
            stats::add(&shared.counters.connections, 1);
            stats::add(&shared.counters.connections_open, 1);
            driver::run(stream, &shared, stop).await;
            stats::sub(&shared.counters.connections_open, 1);
            drop(slot);
        });
    }
    drop(listener);
    let all = async { while tasks.join_next().await.is_some() {} };
    // What is left after that is aborted by dropping the set.
    let _ = time::timeout(FAREWELL, all).await;
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    let (stream, _) = listener.accept().await.ok()?;
    Some((stream, slot))
}
