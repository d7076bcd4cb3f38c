//! Signals that ask the program to stop.

use crossbeam_channel::Receiver;
use std::io;

/// Signals that may wait to be looked at; more say nothing new.
const PENDING: usize = 8;

/// From now on SIGINT and SIGTERM arrive here, as numbers, instead of ending the process.
///
/// # Errors
///
/// What the system refuses handlers or a thread with.
#[cfg(unix)]
pub fn receive() -> io::Result<Receiver<i32>> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    let (sender, receiver) = crossbeam_channel::bounded(PENDING);
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new()
        .name("hublane-signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                let _ = sender.try_send(signal);
            }
        })?;
    Ok(receiver)
}

/// Where there are no such signals none arrive.
///
/// # Errors
///
/// None.
#[cfg(not(unix))]
pub fn receive() -> io::Result<Receiver<i32>> {
    let (sender, receiver) = crossbeam_channel::bounded(PENDING);
    // The channel must stay connected: a disconnected one is always ready.
    std::mem::forget(sender);
    Ok(receiver)
}
