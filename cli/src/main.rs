//! `hublane`: sends lines to Azure Event Hubs, prints what a hub holds, and emulates one.

#![forbid(unsafe_code)]

mod args;
mod console;
mod emulator;
mod exit;
mod send;
mod signals;
mod tail;

use args::{Arguments, Command};
use clap::Parser;
use exit::{Exit, Failure};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse_usage(&error),
    };
    let result = match &arguments.command {
        Command::Send(send) => send::run(send),
        Command::Emulator(emulator) => emulator::run(emulator),
        Command::Tail(tail) => tail::run(tail),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            console::complain(&failure.to_string());
            failure.exit().into()
        }
    }
}

/// Prints help and usage errors as clap words them, unless that would print a key: clap quotes
/// what it does not understand, and that may be a connection string in the wrong place.
fn refuse_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        console::print(&error.render().to_string());
        return Exit::Success.into();
    }
    let text = error.render().to_string();
    if args::may_be_secret(&text) {
        let failure = Failure::MisplacedSecret;
        console::complain(&failure.to_string());
        return failure.exit().into();
    }
    console::print_error(&text);
    Exit::Usage.into()
}
