//! The command line.

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// Partitions of an emulated hub when nobody says otherwise.
pub const DEFAULT_PARTITIONS: usize = 4;

/// The hub that `send` declares in its own emulator when nobody names one.
pub const DEFAULT_HUB: &str = "hublane";

const EXIT_CODES: &str = "\
Exit codes:
  0    done; everything that was accepted was delivered, and found again where that was checked
  1    not everything that was accepted was delivered, or reading back found a fault
  2    usage: an argument, a setting or the connection string
  3    the input could not be opened, or not be read to its end
  4    the hub could not be reached, or refused
  5    some lines were skipped, all others were delivered
  6    the emulator, or something else on this machine, could not be started
  130  stopped by SIGINT, 143 by SIGTERM: what had been accepted was delivered, unless a second
       signal gave it up; the emulator, stopped so, exits 0";

/// A lossless producer for Azure Event Hubs, on the command line.
#[derive(Debug, Parser)]
#[command(name = "hublane", version, about, after_help = EXIT_CODES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send the lines of a file or of standard input, one event a line
    ///
    /// An event's body is its line, byte for byte, without the line end (LF or CR LF); its
    /// message id is the line's number. Empty lines are not sent.
    ///
    /// Without a connection string it starts an emulator in this process, sends to it over
    /// AMQP, reads back what the emulator stored and checks it: every event once, unaltered,
    /// and in order in its partition and for its key.
    ///
    /// SIGINT or SIGTERM stops reading, delivers what was accepted, reports and exits; a second
    /// one stops delivering, too.
    #[command(after_help = EXIT_CODES)]
    Send(SendArgs),
    /// Run an Event Hubs emulator on this machine until SIGINT or SIGTERM
    ///
    /// Prints a connection string for each hub, one a line. The hubs share 1 GiB of memory for
    /// events; when a hub's part is full it refuses further ones.
    #[command(after_help = EXIT_CODES)]
    Emulator(EmulatorArgs),
    /// Print a hub's events as they arrive, one JSON object a line
    ///
    /// Fields: partition, offset, sequence_number, enqueued_time, key, body; a body that is not
    /// UTF-8 is in body_base64 instead. A lost connection is made again, and reading goes on
    /// where it stopped.
    #[command(after_help = EXIT_CODES)]
    Tail(TailArgs),
}

/// Arguments of `hublane send`.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// The file; standard input if it is - or absent
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Where each line, as JSON, has its partition key (RFC 6901, such as /properties/net)
    ///
    /// The value must be a string, a number or a boolean; a number is taken as it is written.
    /// A line without such a value is skipped and reported.
    #[arg(long, value_name = "JSON_POINTER")]
    pub key_field: Option<String>,
    /// Where the hub is
    #[command(flatten)]
    pub target: Target,
    /// Partitions of the emulated hub [default: 4]
    #[arg(long, value_name = "N", conflicts_with = "connection_string")]
    pub partitions: Option<NonZeroUsize>,
    /// Batches that may be unanswered at once, per partition; more than one gives up the order
    /// of events across a retry [default: 1]
    #[arg(long, value_name = "BATCHES")]
    pub window: Option<usize>,
    /// The longest that an event waits for others to share its batch, such as 5ms [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max_wait: Option<Duration>,
    /// How long an event that was accepted may take before it is given up [default: 2m]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub delivery_timeout: Option<Duration>,
    /// How long connecting may take [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub connect_timeout: Option<Duration>,
    /// How long delivering may go on after the first signal
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    pub drain_timeout: Duration,
    /// Print the summary as one JSON object, the last line of standard output
    #[arg(long)]
    pub json: bool,
}

/// Arguments that name a hub.
#[derive(Debug, Args)]
pub struct Target {
    /// The hub, unless the connection string names it in EntityPath
    #[arg(long, value_name = "NAME")]
    pub hub: Option<String>,
    /// How to reach the namespace; other users may see arguments, so prefer the environment
    #[arg(
        long,
        value_name = "CONNECTION_STRING",
        env = "HUBLANE_CONNECTION_STRING",
        hide_env_values = true
    )]
    pub connection_string: Option<String>,
}

/// Arguments of `hublane emulator`.
#[derive(Debug, Args)]
pub struct EmulatorArgs {
    /// The port to listen on; 0 picks a free one
    #[arg(long, default_value_t = 5672)]
    pub port: u16,
    /// The address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind: IpAddr,
    /// A hub and the number of its partitions, 4 if absent; may be given several times
    #[arg(
        long = "hub",
        value_name = "NAME[:PARTITIONS]",
        required = true,
        action = ArgAction::Append,
        value_parser = hub_spec
    )]
    pub hubs: Vec<HubSpec>,
    /// Keep events in this file, too, and begin with those that it holds
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
}

/// A hub to be emulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSpec {
    /// Its name.
    pub name: String,
    /// The number of its partitions.
    pub partitions: usize,
}

/// Arguments of `hublane tail`.
#[derive(Debug, Args)]
pub struct TailArgs {
    /// Where the hub is
    #[command(flatten)]
    pub target: Target,
    /// Only this partition
    #[arg(long, value_name = "ID")]
    pub partition: Option<String>,
    /// Begin with the oldest events, or with those that arrive from now on
    #[arg(long, value_enum, default_value_t = ReadFrom::Latest)]
    pub from: ReadFrom,
    /// The consumer group to read in
    #[arg(long, value_name = "NAME", default_value = "$Default")]
    pub consumer_group: String,
    /// End after this many events
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReadFrom {
    /// With the oldest event that the hub holds.
    Start,
    /// With the first event that arrives from now on.
    Latest,
}

/// Whether a text may hold a key, and so must not be shown.
pub fn may_be_secret(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("sharedaccess") || text.contains("endpoint=sb:")
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "not a duration such as 5ms, 2s or 1m 30s".to_owned())
}

fn hub_spec(text: &str) -> Result<HubSpec, String> {
    let (name, partitions) = match text.split_once(':') {
        None => (text, DEFAULT_PARTITIONS),
        Some((name, number)) => match number.parse() {
            Ok(partitions) => (name, partitions),
            Err(_) => return Err("not of the form NAME:PARTITIONS".to_owned()),
        },
    };
    Ok(HubSpec {
        name: name.to_owned(),
        partitions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_hub_has_a_name_and_perhaps_a_number_of_partitions() {
        let spec = |name: &str, partitions| {
            Ok(HubSpec {
                name: name.to_owned(),
                partitions,
            })
        };
        assert_eq!(hub_spec("a"), spec("a", 4));
        assert_eq!(hub_spec("a:8"), spec("a", 8));
        assert!(hub_spec("a:").is_err());
        assert!(hub_spec("a:x").is_err());
        assert!(hub_spec("a:-1").is_err());
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(duration("5").is_err());
        assert!(duration("-1s").is_err());
    }

    #[test]
    fn connection_strings_are_recognised_in_any_case() {
        assert!(may_be_secret("x 'SHAREDACCESSKEY=abc' y"));
        assert!(may_be_secret("Endpoint=sb://host"));
        assert!(!may_be_secret("examples/data/flights.ndjson"));
    }

    #[test]
    fn the_number_of_partitions_is_the_emulators_only() {
        let parsed = Arguments::try_parse_from([
            "hublane",
            "send",
            "--partitions",
            "8",
            "--connection-string",
            "x",
        ]);
        assert!(parsed.is_err());
    }
}
