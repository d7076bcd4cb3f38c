//! Moves bytes between a socket and the state machine of its connection.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::TcpStream,
    sync::{broadcast, watch},
    time,
};

use super::{
    Shared,
    connection::Connection,
    core::{Core, Ending, Quiet, Verdict},
    handshake::{self, HandshakeError},
};
use crate::{
    fault::{Disruption, Site, SocketDrop, Step},
    stats,
};

/// From the TCP connection to the AMQP header.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(30);

/// How long a connection that is being closed waits for its last bytes to be taken.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Bytes asked of the socket at a time.
const READ_CHUNK: usize = 256 * 1024;

/// Output beyond which nothing more is read: a peer that does not take its answers gets no more.
const OUTPUT_LIMIT: usize = 4 * 1024 * 1024;

/// Serves one connection to its end.
pub(crate) async fn run(
    mut stream: TcpStream,
    shared: &Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    // Answers are small and waited for.
    let _ = stream.set_nodelay(true);
    let disruptions = shared.disruptions.subscribe();
    let mut core = Core::new(shared);
    let mut input = BytesMut::new();
    if core.strike(Site::step(Step::Accept)) != Verdict::Skip {
        let shake = handshake::shake_hands(&mut stream, &mut input, &mut core);
        let outcome = tokio::select! {
            outcome = time::timeout(HANDSHAKE_LIMIT, shake) => outcome,
            _ = stop.changed() => return,
        };
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(HandshakeError::Fault)) if core.quiet.is_some() || core.ending.is_some() => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "the handshake failed");
                if !matches!(error, HandshakeError::Fault | HandshakeError::Io(_)) {
                    stats::add(&shared.counters.protocol_errors, 1);
                }
                return;
            }
            Err(_) => return,
        }
    }
    let mut driver = Driver {
        stream,
        input,
        connection: Connection::new(core),
        disruptions,
        last_read: Instant::now(),
        last_write: Instant::now(),
        closing_since: None,
    };
    match driver.serve(&mut stop).await {
        Ok(SocketDrop::Finish) => {
            let _ = driver.stream.shutdown().await;
        }
        Ok(SocketDrop::Reset) => {
            let _ = socket2::SockRef::from(&driver.stream).set_linger(Some(Duration::ZERO));
        }
        Err(error) => tracing::debug!(%error, "the connection failed"),
    }
}

struct Driver {
    stream: TcpStream,
    input: BytesMut,
    connection: Connection,
    disruptions: broadcast::Receiver<Disruption>,
    last_read: Instant,
    last_write: Instant,
    closing_since: Option<Instant>,
}

impl Driver {
    async fn serve(&mut self, stop: &mut watch::Receiver<bool>) -> io::Result<SocketDrop> {
        self.connection.handle_input(&mut self.input);
        let wake = Arc::clone(&self.connection.core.wake);
        loop {
            self.connection.handle_time(Instant::now());
            if let Some(quiet) = self.connection.core.quiet {
                return self.stay_quiet(quiet, stop).await;
            }
            let more = self.connection.pump();
            self.write()?;
            if let Some(how) = self.ended() {
                return Ok(how);
            }
            if more && self.connection.core.out.is_empty() {
                // The socket took all; other connections get their turn first.
                tokio::task::yield_now().await;
                continue;
            }
            let ready = self.stream.ready(self.interest());
            let deadline = self.deadline();
            tokio::select! {
                ready = ready => {
                    if ready?.is_readable() && !self.read()? {
                        return Ok(SocketDrop::Finish);
                    }
                }
                () = wake.notified() => {}
                Ok(disruption) = self.disruptions.recv() => self.connection.disrupt(&disruption),
                () = time::sleep_until(deadline.into()) => self.check_idle(),
                _ = stop.changed() => {
                    self.connection.core.close("amqp:connection:forced", "the emulator stops");
                }
            }
        }
    }

    /// What to wait for. A socket is always waited for in some way, so that its end is seen.
    fn interest(&self) -> Interest {
        let pending = self.connection.core.out.len();
        match pending {
            0 => Interest::READABLE,
            1..OUTPUT_LIMIT => Interest::READABLE | Interest::WRITABLE,
            _ => Interest::WRITABLE,
        }
    }

    /// Takes what the socket has and acts on it; false at the end of the stream.
    fn read(&mut self) -> io::Result<bool> {
        self.input.reserve(READ_CHUNK);
        match self.stream.try_read_buf(&mut self.input) {
            Ok(0) => return Ok(false),
            Ok(_) => self.last_read = Instant::now(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        }
        self.connection.handle_input(&mut self.input);
        Ok(true)
    }

    fn write(&mut self) -> io::Result<()> {
        if matches!(self.connection.core.ending, Some(Ending::Dropped(_))) {
            return Ok(());
        }
        while !self.connection.core.out.is_empty() {
            match self.stream.try_write(&self.connection.core.out) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.connection.core.out.advance(n);
                    self.last_write = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn ended(&mut self) -> Option<SocketDrop> {
        match self.connection.core.ending? {
            Ending::Dropped(how) => Some(how),
            Ending::Flushed => {
                let since = *self.closing_since.get_or_insert_with(Instant::now);
                // Closing a socket with unread input resets it, and the peer may then never see
                // the frames that say why: so its own `close` or end of stream is waited for.
                let done = self.connection.peer_closed && self.connection.core.out.is_empty();
                (done || since.elapsed() > CLOSE_LIMIT).then_some(SocketDrop::Finish)
            }
        }
    }

    fn deadline(&self) -> Instant {
        let mut deadline = self.last_read + self.idle_limit();
        if let Some(interval) = self.connection.heartbeat {
            deadline = deadline.min(self.last_write + interval);
        }
        if let Some(timer) = self.connection.core.next_timer() {
            deadline = deadline.min(timer);
        }
        if let Some(since) = self.closing_since {
            deadline = deadline.min(since + CLOSE_LIMIT);
        }
        deadline
    }

    /// A peer may take twice the announced time, part 2.4.5.
    fn idle_limit(&self) -> Duration {
        self.connection.core.shared.settings.idle_time_out * 2
    }

    fn check_idle(&mut self) {
        if self.last_read.elapsed() >= self.idle_limit() {
            self.connection
                .core
                .close("amqp:resource-limit-exceeded", "the connection was idle");
        }
        let due = self
            .connection
            .heartbeat
            .is_some_and(|every| self.last_write.elapsed() >= every);
        if due && self.connection.core.out.is_empty() {
            self.connection.core.send_encoded(0, &[], &[]);
            // Even when the socket is full: the next attempt is one interval away.
            self.last_write = Instant::now();
        }
    }

    /// Says nothing more until the peer gives up or the emulator stops.
    async fn stay_quiet(
        &mut self,
        quiet: Quiet,
        stop: &mut watch::Receiver<bool>,
    ) -> io::Result<SocketDrop> {
        loop {
            let readable = async {
                match quiet {
                    Quiet::Silent => self.stream.readable().await,
                    Quiet::Frozen => std::future::pending().await,
                }
            };
            tokio::select! {
                ready = readable => ready?,
                Ok(disruption) = self.disruptions.recv() => {
                    self.connection.disrupt(&disruption);
                    match self.connection.core.ending {
                        Some(Ending::Dropped(how)) => return Ok(how),
                        _ => continue,
                    }
                }
                _ = stop.changed() => return Ok(SocketDrop::Finish),
            }
            self.input.clear();
            self.input.reserve(READ_CHUNK);
            match self.stream.try_read_buf(&mut self.input) {
                Ok(0) => return Ok(SocketDrop::Finish),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
