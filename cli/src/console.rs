//! Standard output and standard error, of which either may be closed at any time: nothing here
//! panics on a broken pipe.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};

/// Writes to standard output. Whoever closed it does not want it.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// Writes to standard error as it stands.
pub fn print_error(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// One line on standard error.
pub fn complain(text: &str) {
    print_error(&format!("hublane: {text}\n"));
}

/// Standard error with a progress bar on it, if it is a terminal. Clones share the bar.
#[derive(Clone, Debug)]
pub struct Console {
    bar: ProgressBar,
}

impl Console {
    /// A bar over `total` bytes; over an unknown number without it. Hidden unless standard error
    /// is a terminal.
    pub fn new(total: Option<u64>) -> Console {
        if !io::stderr().is_terminal() {
            return Console {
                bar: ProgressBar::hidden(),
            };
        }
        let (bar, template) = match total {
            Some(total) => (
                ProgressBar::new(total),
                "{bar:30} {bytes}/{total_bytes}, {msg}, {eta} left",
            ),
            None => (
                ProgressBar::no_length(),
                "{spinner} {bytes}, {msg}, {elapsed}",
            ),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Console { bar }
    }

    /// Whether anybody sees the bar.
    pub fn is_visible(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Shows how far the input was read and how many events were delivered.
    pub fn progress(&self, bytes: u64, delivered: u64) {
        if self.is_visible() {
            self.bar.set_message(format!("{delivered} delivered"));
            self.bar.set_position(bytes);
        }
    }

    /// One line on standard error, above the bar.
    pub fn complain(&self, text: &str) {
        self.bar.suspend(|| complain(text));
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
