//! Drives a connection: moves bytes between it and its socket, letters to it, and time.
//!
//! Nothing is awaited but the next thing to happen, whichever it is, so that a socket which
//! takes no bytes stops neither clocks nor letters.

use super::connection::{Connection, Ended};
use super::errors;
use super::mailbox::{Letter, Mailbox};
use super::socket::Socket;
use super::wire::Inbound;
use crate::sync::{Clock, Instant};
use crate::transport::{HubInfo, LinkError};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::Sleep;

/// Read ahead of what is acted on: a frame of the usual limit fits.
const READ_SIZE: usize = 64 * 1024;

/// How long a thread that was told to end at once still tries to part in good order.
const PARTING: Duration = Duration::from_millis(250);

/// A connection with its socket.
pub(super) struct Online {
    pub(super) socket: Socket,
    pub(super) inbound: Inbound,
    pub(super) connection: Connection,
}

/// Why driving stopped.
pub(super) enum Stop {
    Ended(Ended),
    /// What was to be learned is known, or will not be.
    Learned(Result<HubInfo, LinkError>),
}

enum Moved {
    Written(io::Result<()>),
    Read(io::Result<usize>),
}

impl Online {
    /// Drives until the connection ends or has learned what it was to learn.
    pub(super) async fn drive(&mut self, mailbox: &Mailbox, clock: &Clock) -> Stop {
        let mut letters = Vec::new();
        let mut timer = pin!(Timer::new(clock.now()));
        loop {
            let now = clock.now();
            self.connection.pump(now);
            if let Some(learning) = &mut self.connection.learning {
                if let Some(outcome) = learning.outcome() {
                    return Stop::Learned(outcome);
                }
            }
            if let Some(by) = self.connection.links.shut {
                self.connection.close(by.max(now + PARTING));
            }
            let deadline = self.connection.poll_deadline();
            let step = tokio::select! {
                () = mailbox.bell() => {
                    self.read_letters(mailbox, &mut letters, clock.now());
                    Ok(())
                }
                moved = moved(&mut self.socket, &mut self.inbound, &mut self.connection) => {
                    self.handle_moved(moved, clock.now())
                }
                () = timer.as_mut().until(deadline) => self.connection.handle_timeout(clock.now()),
            };
            if let Err(ended) = step {
                self.part().await;
                return Stop::Ended(ended);
            }
        }
    }

    fn read_letters(&mut self, mailbox: &Mailbox, letters: &mut Vec<Letter>, now: Instant) {
        mailbox.take(letters);
        for letter in letters.drain(..) {
            self.connection.handle_letter(letter, now);
        }
    }

    fn handle_moved(&mut self, moved: Moved, now: Instant) -> Result<(), Ended> {
        match moved {
            Moved::Written(Ok(())) => self.connection.note_written(now),
            Moved::Read(Ok(n)) if n > 0 => {
                self.connection.note_received(now);
                while let Some(frame) = self.inbound.take_frame().map_err(Ended::Lost)? {
                    self.connection.handle_frame(frame, now)?;
                }
            }
            Moved::Read(Ok(_)) => {
                return Err(Ended::Lost(errors::lost(
                    &io::ErrorKind::UnexpectedEof.into(),
                )));
            }
            Moved::Written(Err(error)) | Moved::Read(Err(error)) => {
                return Err(Ended::Lost(errors::lost(&error)));
            }
        }
        Ok(())
    }

    /// Sends what is left to be said, as far as the socket takes it without a wait.
    async fn part(&mut self) {
        let (socket, out) = (&mut self.socket, &mut self.connection.out);
        std::future::poll_fn(|context| {
            let mut socket = Pin::new(&mut *socket);
            let written = out.poll_write(context, socket.as_mut(), &mut 0);
            if written.is_ready() {
                // Ends TLS, so that the peer can tell this from a break.
                let _ = socket.poll_shutdown(context);
            }
            Poll::Ready(())
        })
        .await;
    }
}

/// Waits until bytes were written or read. Whatever was written counts, also when more is left:
/// there is room for new ones then.
async fn moved(socket: &mut Socket, inbound: &mut Inbound, connection: &mut Connection) -> Moved {
    inbound.bytes.reserve(READ_SIZE);
    std::future::poll_fn(|context| {
        if !connection.out.is_idle() {
            let mut written = 0;
            let result = connection
                .out
                .poll_write(context, Pin::new(&mut *socket), &mut written);
            match result {
                Poll::Ready(result) => return Poll::Ready(Moved::Written(result)),
                Poll::Pending if written > 0 => return Poll::Ready(Moved::Written(Ok(()))),
                Poll::Pending => {}
            }
        }
        let read = pin!(socket.read_buf(&mut inbound.bytes));
        read.poll(context).map(Moved::Read)
    })
    .await
}

/// A timer that is set anew only when it must fire earlier, or has fired: most deadlines are
/// never met, and setting one costs more than looking at it.
struct Timer {
    armed: Instant,
    sleep: Pin<Box<Sleep>>,
    fired: bool,
}

impl Timer {
    fn new(now: Instant) -> Timer {
        Timer {
            armed: now,
            sleep: Box::pin(tokio::time::sleep_until(now.into())),
            fired: true,
        }
    }

    /// Waits until `deadline`, or somewhat less long; for ever without one.
    async fn until(self: Pin<&mut Self>, deadline: Option<Instant>) {
        let timer = self.get_mut();
        let Some(deadline) = deadline else {
            return std::future::pending().await;
        };
        if timer.fired || deadline < timer.armed {
            timer.armed = deadline;
            timer.sleep.as_mut().reset(deadline.into());
            timer.fired = false;
        }
        timer.sleep.as_mut().await;
        timer.fired = true;
    }
}
