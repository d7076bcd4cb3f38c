//! The program under test, run as its users run it, with a limit on every wait.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// The longest that anything here may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A running `hublane`. It is killed when it is dropped.
pub struct Program {
    pid: u32,
    stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    status: Receiver<ExitStatus>,
    ended: bool,
}

/// What a program left behind.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Lines that were not read before.
    pub stdout: Vec<String>,
    /// Lines that were not read before.
    pub stderr: Vec<String>,
}

impl Program {
    /// Starts `hublane` with these arguments and a connection string in the environment.
    pub fn start_with(arguments: &[&str], connection_string: &str) -> Program {
        let mut command = command(arguments);
        command.env("HUBLANE_CONNECTION_STRING", connection_string);
        Program::spawn(command, true)
    }

    /// Starts `hublane` with these arguments.
    pub fn start(arguments: &[&str]) -> Program {
        Program::spawn(command(arguments), true)
    }

    /// Starts `hublane` with these arguments; nobody reads its standard output.
    pub fn start_unread(arguments: &[&str]) -> Program {
        Program::spawn(command(arguments), false)
    }

    fn spawn(mut command: Command, read: bool) -> Program {
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().filter(|_| read);
        Program {
            pid: child.id(),
            stdin: child.stdin.take(),
            stdout: stdout.map_or_else(|| mpsc::channel().1, lines),
            stderr: lines(child.stderr.take().unwrap()),
            status: wait(child),
            ended: false,
        }
    }

    /// Starts `hublane emulator` on a free port, and gives the connection strings that it prints.
    pub fn emulator(arguments: &[&str], hubs: usize) -> (Program, Vec<String>) {
        let program = Program::start(&[&["emulator"], arguments].concat());
        let strings = (0..hubs).map(|_| program.line()).collect();
        (program, strings)
    }

    /// Writes to its standard input.
    pub fn write(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Writes to its standard input, which a program that refuses its arguments does not read.
    pub fn offer(&mut self, text: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(text.as_bytes());
        }
    }

    /// Ends its standard input.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Its standard input, to be kept open.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// The next line of its standard output.
    pub fn line(&self) -> String {
        match self.stdout.recv_timeout(LIMIT) {
            Ok(line) => line,
            Err(error) => panic!("no line: {error}; it says {:?}", self.stderr.try_recv()),
        }
    }

    /// The next line of its standard error that contains `text`; what comes before is dropped.
    pub fn says(&self, text: &str) -> String {
        loop {
            let line = self.stderr.recv_timeout(LIMIT).unwrap();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Sends it a signal, named as in `kill -TERM`.
    pub fn signal(&self, name: &str) {
        assert!(kill(self.pid, name));
    }

    /// Ends its input and waits for its end.
    pub fn finish(mut self) -> Ended {
        self.end_input();
        let status = self.status.recv_timeout(LIMIT).unwrap();
        self.ended = true;
        Ended {
            code: status.code(),
            stdout: self.stdout.iter().collect(),
            stderr: self.stderr.iter().collect(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Once it was waited for, its number may be another's.
        if !self.ended && self.status.try_recv().is_err() {
            kill(self.pid, "KILL");
        }
    }
}

impl Ended {
    /// The summary: the last line of standard output.
    pub fn summary(&self) -> Value {
        let last = self.stdout.last().unwrap_or_else(|| panic!("{self:?}"));
        serde_json::from_str(last).unwrap()
    }

    /// Some numbers of the summary.
    pub fn counts<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let summary = self.summary();
        names.map(|name| {
            summary[name]
                .as_u64()
                .unwrap_or_else(|| panic!("{name} in {self:?}"))
        })
    }
}

/// `hublane` with these arguments and none from the environment.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hublane"));
    command
        .args(arguments)
        .env_remove("HUBLANE_CONNECTION_STRING")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs `hublane` to its end with this input.
pub fn run(arguments: &[&str], input: &str) -> Ended {
    let mut program = Program::start(arguments);
    program.offer(input);
    program.finish()
}

/// A file of the examples.
pub fn example(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("../examples/data").join(name);
    path.to_str().unwrap().to_owned()
}

/// A directory of this test's own, removed in the end.
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty directory; `name` is the test's.
    pub fn new(name: &str) -> Scratch {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A file in it.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.join(name), content).unwrap();
        self.path(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The connection string's port.
pub fn port_of(connection_string: &str) -> String {
    let after = connection_string.split("127.0.0.1:").nth(1).unwrap();
    after.split(';').next().unwrap().to_owned()
}

fn kill(pid: u32, signal: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("kill -{signal} {pid}")])
        .status()
        .is_ok_and(|status| status.success())
}

/// Lines as they come, until nobody wants them: then the reading end is closed.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            if sender.send(line.unwrap()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn wait(mut child: Child) -> Receiver<ExitStatus> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let _ = sender.send(child.wait().unwrap());
    });
    receiver
}
