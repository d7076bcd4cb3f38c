//! `hublane emulator`: a broker for other programs.

use crate::args::EmulatorArgs;
use crate::console;
use crate::exit::{Exit, Failure};
use crate::signals;
use hublane_emulator::Emulator;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// How long clients are given to take their leave.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// Runs until a signal.
///
/// # Errors
///
/// [`Failure`] if the emulator cannot be started.
pub fn run(arguments: &EmulatorArgs) -> Result<Exit, Failure> {
    let mut builder = Emulator::builder().bind(SocketAddr::new(arguments.bind, arguments.port));
    for hub in &arguments.hubs {
        builder = builder.hub(&hub.name, hub.partitions);
    }
    if let Some(journal) = &arguments.journal {
        builder = builder.journal(journal);
    }
    let signals = signals::receive().map_err(|source| Failure::System {
        what: "cannot receive signals",
        source,
    })?;
    let emulator = builder.start()?;
    let mut lines = String::new();
    for hub in &arguments.hubs {
        // A string takes everything.
        let _ = writeln!(lines, "{}", emulator.connection_string(&hub.name));
    }
    console::print(&lines);
    // An error would mean that no signal can come any more.
    let _ = signals.recv();
    if emulator.shutdown(SHUTDOWN_LIMIT).is_err() {
        console::complain("the emulator did not stop in time");
    }
    Ok(Exit::Success)
}
