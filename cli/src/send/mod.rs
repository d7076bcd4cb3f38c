//! `hublane send`: one event a line, and the proof that it arrived.

mod drain;
mod feed;
mod key;
mod ledger;
mod lines;
mod outcomes;
mod readback;
mod summary;

use crate::args::{DEFAULT_HUB, DEFAULT_PARTITIONS, SendArgs};
use crate::console::{self, Console};
use crate::exit::{Exit, Failure, plain};
use crate::{args, signals};
use feed::{Ending, Fed, Feed};
use hublane::{ConnectionString, Producer, ProducerBuilder};
use key::KeyField;
use outcomes::Outcomes;
use readback::Broker;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use summary::Summary;

/// How long taking leave of a hub's own emulator may take.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// Sends, reports and says how it went.
///
/// # Errors
///
/// [`Failure`] if nothing could be begun; later troubles are told on the way and in the exit
/// code.
pub fn run(arguments: &SendArgs) -> Result<Exit, Failure> {
    let key_field = arguments.key_field.as_deref().map(KeyField::parse);
    let key_field = key_field
        .transpose()
        .map_err(|error| Failure::Setting(format!("--key-field: {error}")))?;
    let input = Input::open(arguments.file.as_deref())?;
    let console = Console::new(input.len);

    let broker = match &arguments.target.connection_string {
        Some(_) => None,
        None => Some(Broker::start(
            arguments.target.hub.as_deref().unwrap_or(DEFAULT_HUB),
            arguments.partitions.map_or(DEFAULT_PARTITIONS, |n| n.get()),
        )?),
    };
    let outcomes = Arc::new(Outcomes::new(
        broker.as_ref().map(Broker::ledger),
        console.clone(),
    ));
    let (producer, hub) = connect(arguments, broker.as_ref(), &outcomes)?;
    let signals = signals::receive().map_err(|source| Failure::System {
        what: "cannot receive signals",
        source,
    })?;

    let begun = Instant::now();
    let feed = Feed {
        producer: &producer,
        key_field: key_field.as_ref(),
        broker: broker.as_ref(),
        outcomes: &outcomes,
        console: &console,
        signals: &signals,
    };
    let fed = feed.run(input.read).map_err(|source| Failure::System {
        what: "cannot start a thread",
        source,
    })?;
    let limit = arguments.drain_timeout;
    let drained = drain::drain(&producer, &signals, &fed.ending, limit, &console, || {
        console.progress(fed.position, outcomes.delivered());
    });
    outcomes.take_back(&drained.unsent);
    let elapsed = begun.elapsed();
    console.finish();

    let partitions = producer.partitions().len();
    let stats = producer.stats();
    drop(producer);
    let verdict = broker.map(|broker| broker.finish(SHUTDOWN_LIMIT));
    let summary = Summary::new(hub, partitions, &fed, &outcomes, &stats, elapsed)
        .with_signal(drained.signal)
        .with_verdict(verdict);
    report(arguments, &summary, &fed);
    Ok(summary.exit(&fed.ending, drained.aborted))
}

/// Makes the producer, and says which hub it is for.
fn connect(
    arguments: &SendArgs,
    broker: Option<&Broker>,
    outcomes: &Arc<Outcomes>,
) -> Result<(Producer, String), Failure> {
    let (text, hub) = match (&arguments.target.connection_string, broker) {
        (Some(text), _) => (text.clone(), arguments.target.hub.as_deref()),
        (None, Some(broker)) => (broker.connection_string(), None),
        (None, None) => return Err(hublane::ConnectionStringError::NoEventHub.into()),
    };
    let hub_name = ConnectionString::parse(&text)?.event_hub(hub)?.to_owned();
    let mut builder = ProducerBuilder::from_connection_string(&text, hub)?;
    if let Some(broker) = broker {
        builder = builder.max_buffered_bytes(broker.bytes_per_partition());
    }
    if let Some(batches) = arguments.window {
        builder = builder.max_in_flight(batches);
    }
    if let Some(wait) = arguments.max_wait {
        builder = builder.max_wait_time(wait);
    }
    if let Some(timeout) = arguments.delivery_timeout {
        builder = builder.delivery_timeout(timeout);
    }
    if let Some(timeout) = arguments.connect_timeout {
        builder = builder.start_up_timeout(timeout);
    }
    let outcomes = Arc::clone(outcomes);
    let producer = builder
        .on_delivery(move |report, _| outcomes.record(&report))
        .build()?;
    Ok((producer, hub_name))
}

fn report(arguments: &SendArgs, summary: &Summary, fed: &Fed) {
    match &fed.ending {
        Ending::End | Ending::Signal(_) => {}
        Ending::Unreadable(error) => {
            let name = match arguments.file.as_deref() {
                Some(path) if !is_dash(path) => path.display().to_string(),
                _ => "standard input".to_owned(),
            };
            console::complain(&format!(
                "cannot read {name} after line {}: {}",
                fed.lines,
                plain(error)
            ));
        }
        Ending::Stopped { line, reason } => {
            console::complain(&format!("stopped at line {line}: {reason}"));
        }
    }
    for line in summary.complaints() {
        console::complain(&line);
    }
    console::print(&if arguments.json {
        summary.json()
    } else {
        summary.text()
    });
}

/// What is to be sent.
struct Input {
    read: Box<dyn Read + Send>,
    /// Its length in bytes, if that is known.
    len: Option<u64>,
}

impl Input {
    fn open(path: Option<&Path>) -> Result<Input, Failure> {
        let Some(path) = path.filter(|path| !is_dash(path)) else {
            return Ok(Input {
                read: Box::new(io::stdin()),
                len: None,
            });
        };
        if args::may_be_secret(&path.to_string_lossy()) {
            return Err(Failure::MisplacedSecret);
        }
        let refused = |source| Failure::Open {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(refused)?;
        let metadata = file.metadata().map_err(refused)?;
        if metadata.is_dir() {
            return Err(refused(io::ErrorKind::IsADirectory.into()));
        }
        Ok(Input {
            len: metadata.is_file().then_some(metadata.len()),
            read: Box::new(file),
        })
    }
}

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}
