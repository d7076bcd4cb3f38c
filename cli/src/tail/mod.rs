//! `hublane tail`: prints a hub's events as they arrive.

mod client;
mod follow;
mod record;
mod refusal;
mod tls;

use crate::args::TailArgs;
use crate::console;
use crate::exit::{Exit, Failure};
use client::Source;
use hublane::ConnectionString;
use std::io::{self, BufWriter, Write};
use std::thread;
use tokio::sync::mpsc;

/// Events that may be received ahead of the printer.
const AHEAD: usize = 1024;

/// What the receiving thread tells the printing one.
#[derive(Debug)]
pub enum News {
    /// All partitions are being read.
    Reading {
        /// Their number.
        partitions: usize,
    },
    /// An event, as a line of JSON.
    Event(String),
    /// The connection was lost and will be made again.
    Lost(String),
    /// There is no connection, and there will be none.
    Refused(String),
}

/// Prints until enough was printed, or nobody reads it any more; SIGINT and SIGTERM end it as
/// they end any program.
///
/// # Errors
///
/// [`Failure`] if the connection string is bad, or the hub cannot be reached at first, or
/// refuses.
pub fn run(arguments: &TailArgs) -> Result<Exit, Failure> {
    let text = arguments
        .target
        .connection_string
        .as_deref()
        .ok_or_else(|| Failure::Setting("tail needs a connection string".to_owned()))?;
    let connection = ConnectionString::parse(text)?;
    let hub = connection.event_hub(arguments.target.hub.as_deref());
    let source = Source {
        hub: hub.map_err(Failure::from)?.to_owned(),
        connection,
        consumer_group: arguments.consumer_group.clone(),
        partition: arguments.partition.clone(),
        from: arguments.from,
    };
    if arguments.count == Some(0) {
        return Ok(Exit::Success);
    }
    let hub = source.hub.clone();
    let (sender, news) = mpsc::channel(AHEAD);
    thread::Builder::new()
        .name("hublane-tail".to_owned())
        .spawn(move || follow::follow(&source, sender))
        .map_err(|source| Failure::System {
            what: "cannot start a thread",
            source,
        })?;
    print_all(news, &hub, arguments.count.unwrap_or(u64::MAX))
}

fn print_all(mut news: mpsc::Receiver<News>, hub: &str, count: u64) -> Result<Exit, Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut printed = 0;
    while printed < count {
        let item = match news.try_recv() {
            Ok(item) => Some(item),
            // Nothing waits, so whoever reads should have all that there is.
            Err(_) => match out.flush() {
                Ok(()) => news.blocking_recv(),
                Err(error) => return closed(error),
            },
        };
        match item {
            Some(News::Event(line)) => {
                if let Err(error) = writeln!(out, "{line}") {
                    return closed(error);
                }
                printed += 1;
            }
            Some(News::Reading { partitions }) => {
                console::complain(&format!("reading {partitions} partitions of '{hub}'"));
            }
            Some(News::Lost(reason)) => {
                console::complain(&format!("connection lost, trying again: {reason}"));
            }
            Some(News::Refused(reason)) => return Err(Failure::Connection(reason)),
            None => break,
        }
    }
    out.flush().map_or_else(closed, |()| Ok(Exit::Success))
}

/// A reader that has enough closes its end, and that is no failure.
fn closed(error: io::Error) -> Result<Exit, Failure> {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Ok(Exit::Success);
    }
    Err(Failure::System {
        what: "cannot write",
        source: error,
    })
}
