//! How a run can end, and the exit code of each end.

use hublane::{BuildError, ConnectionStringError};
use hublane_emulator::StartError;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit codes, as `--help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything was done.
    Success,
    /// Something that was accepted was not delivered, or reading back did not find it.
    NotDelivered,
    /// Arguments, settings or a connection string that cannot be.
    Usage,
    /// The input could not be opened or not be read to its end.
    Input,
    /// The hub could not be reached, or refused.
    Connection,
    /// Some lines could not be sent; all others were delivered.
    SkippedLines,
    /// The emulator, or something else on this machine, could not be started.
    Emulator,
    /// A signal ended the run; everything that was accepted was delivered, unless a second
    /// signal cut that short.
    Signal(i32),
}

impl Exit {
    /// The code that the process ends with.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::NotDelivered => 1,
            Exit::Usage => 2,
            Exit::Input => 3,
            Exit::Connection => 4,
            Exit::SkippedLines => 5,
            Exit::Emulator => 6,
            Exit::Signal(number) => 128 + (number & 0x7f) as u8,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Why a command could not begin. Each is one line, and none shows a secret.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A connection string where none belongs.
    #[error(
        "a connection string goes behind --connection-string or into HUBLANE_CONNECTION_STRING"
    )]
    MisplacedSecret,
    /// A setting with a value that it cannot have.
    #[error("{0}")]
    Setting(String),
    /// The connection string cannot be used.
    #[error("bad connection string: {0}")]
    ConnectionString(#[from] ConnectionStringError),
    /// The input file cannot be opened.
    #[error("cannot open {}: {}", path.display(), plain(source))]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The hub could not be reached, or refused.
    #[error("cannot connect: {0}")]
    Connection(String),
    /// The emulator could not be started.
    #[error("{}", chain(.0))]
    Emulator(#[source] StartError),
    /// The system refused something.
    #[error("{what}: {}", plain(source))]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl Failure {
    /// The code that goes with it.
    pub fn exit(&self) -> Exit {
        match self {
            Failure::MisplacedSecret | Failure::Setting(_) | Failure::ConnectionString(_) => {
                Exit::Usage
            }
            Failure::Open { .. } => Exit::Input,
            Failure::Connection(_) => Exit::Connection,
            Failure::Emulator(_) | Failure::System { .. } => Exit::Emulator,
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        match error {
            StartError::Journal(_) | StartError::Bind { .. } | StartError::Thread(_) => {
                Failure::Emulator(error)
            }
            setting => Failure::Setting(chain(&setting)),
        }
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Failure {
        match error {
            BuildError::Settings(error) => Failure::Setting(error.to_string()),
            BuildError::NoThread(source) => Failure::System {
                what: "cannot start a thread",
                source,
            },
            other => Failure::Connection(chain(&other)),
        }
    }
}

/// An error and its causes, in one line; a cause that its effect quotes is not said twice.
pub fn chain(error: &dyn Error) -> String {
    let mut text = one_line(&error.to_string());
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = one_line(&cause.to_string());
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// An operating system's error without Rust's `(os error 2)`.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => one_line(&text),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_a_code_of_its_own() {
        let ends = [
            Exit::Success,
            Exit::NotDelivered,
            Exit::Usage,
            Exit::Input,
            Exit::Connection,
            Exit::SkippedLines,
            Exit::Emulator,
            Exit::Signal(2),
            Exit::Signal(15),
        ];
        assert_eq!(ends.map(Exit::code), [0, 1, 2, 3, 4, 5, 6, 130, 143]);
    }

    #[test]
    fn an_error_and_its_causes_are_one_line() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot\nlisten")]
        struct Outer(#[source] io::Error);
        assert_eq!(
            chain(&Outer(io::Error::other("port is taken"))),
            "cannot listen: port is taken"
        );
    }

    #[test]
    fn a_missing_file_is_told_without_numbers() {
        let failure = Failure::Open {
            path: "no/such".into(),
            source: io::Error::from_raw_os_error(2),
        };
        assert_eq!(
            failure.to_string(),
            "cannot open no/such: No such file or directory"
        );
    }
}
