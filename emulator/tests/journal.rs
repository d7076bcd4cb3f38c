//! The journal: what was acknowledged is there after a restart.

mod common;

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::PathBuf,
};

use common::*;
use hublane_emulator::{Emulator, Position, StartError};

/// A file of its own for each test, gone before and after it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let file = format!("hublane-emulator-{}-{name}.journal", std::process::id());
        let path = std::env::temp_dir().join(file);
        let _ = fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

async fn fill(emulator: &Emulator, texts: &[&[&str]]) {
    let mut client = Client::connect(emulator).await;
    let mut sender = client.sender("hub/Partitions/1").await;
    for batch in texts {
        assert!(send(&mut sender, bodies(batch)).await.is_accepted());
    }
}

#[test]
fn acknowledged_events_survive_a_restart() {
    run(async {
        let scratch = Scratch::new("restart");
        let (emulator, hub) = start(Emulator::builder().journal(&scratch.0));
        fill(&emulator, &[&["a", "b"], &["c"]]).await;
        let before = hub.events(1);
        drop(emulator);

        let (emulator, hub) = start(Emulator::builder().journal(&scratch.0));
        assert_eq!(hub.events(1), before);
        assert_eq!(hub.stored(), 3);
        fill(&emulator, &[&["d"]]).await;
        drop(emulator);

        let (_emulator, hub) = start(Emulator::builder().journal(&scratch.0));
        assert_eq!(stored(&hub, 1), ["a", "b", "c", "d"]);
        let last = hub.read(1, Position::AfterOffset(before[2].offset()), 9);
        assert_eq!(last[0].sequence_number(), 3);
    });
}

#[test]
fn acknowledged_events_are_in_the_file_before_the_emulator_ends() {
    run(async {
        let scratch = Scratch::new("kill");
        let (emulator, _hub) = start(Emulator::builder().journal(&scratch.0));
        fill(&emulator, &[&["a", "b"], &["c"]]).await;
        // As a killed process would leave it: the first emulator has not even been told to stop.
        let copy = Scratch::new("kill-copy");
        fs::copy(&scratch.0, &copy.0).unwrap();
        let (_second, hub) = start(Emulator::builder().journal(&copy.0));
        assert_eq!(stored(&hub, 1), ["a", "b", "c"]);
        drop(emulator);
    });
}

#[test]
fn a_torn_record_is_cut_off_wherever_it_was_torn() {
    run(async {
        let scratch = Scratch::new("torn");
        let (emulator, _hub) = start(Emulator::builder().journal(&scratch.0));
        fill(&emulator, &[&["a", "b"]]).await;
        let whole = fs::metadata(&scratch.0).unwrap().len();
        fill(&emulator, &[&["torn"]]).await;
        drop(emulator);
        let bytes = fs::read(&scratch.0).unwrap();
        let whole = usize::try_from(whole).unwrap();
        for end in whole..bytes.len() {
            fs::write(&scratch.0, &bytes[..end]).unwrap();
            let (_emulator, hub) = start(Emulator::builder().journal(&scratch.0));
            assert_eq!(stored(&hub, 1), ["a", "b"]);
            assert_eq!(
                fs::metadata(&scratch.0).unwrap().len() as usize,
                whole,
                "cut at {end}"
            );
        }
        // What is appended after a repair is read again.
        let (emulator, _hub) = start(Emulator::builder().journal(&scratch.0));
        fill(&emulator, &[&["c"]]).await;
        drop(emulator);
        let (_emulator, hub) = start(Emulator::builder().journal(&scratch.0));
        assert_eq!(stored(&hub, 1), ["a", "b", "c"]);
    });
}

#[test]
fn garbage_and_other_hubs_do_no_harm() {
    run(async {
        let scratch = Scratch::new("garbage");
        fs::write(&scratch.0, b"this was never a journal").unwrap();
        let (emulator, hub) = start(Emulator::builder().journal(&scratch.0));
        assert!(hub.is_empty());
        fill(&emulator, &[&["a"]]).await;
        drop(emulator);
        let mut file = OpenOptions::new().append(true).open(&scratch.0).unwrap();
        file.write_all(&[0xff; 64]).unwrap();
        let other = Emulator::builder()
            .hub("other", 1)
            .journal(&scratch.0)
            .start()
            .unwrap();
        assert!(other.hub("other").unwrap().is_empty());
        drop(other);
        let (_emulator, hub) = start(Emulator::builder().journal(&scratch.0));
        assert_eq!(stored(&hub, 1), ["a"]);
    });
}

#[test]
fn a_journal_that_does_not_fit_or_cannot_be_opened_is_an_error() {
    run(async {
        let scratch = Scratch::new("large");
        let (emulator, _hub) = start(Emulator::builder().journal(&scratch.0));
        fill(&emulator, &[&["a"], &["b"], &["c"]]).await;
        drop(emulator);
        let small = Emulator::builder().hub(HUB, 2).max_memory_bytes(300);
        let error = small.journal(&scratch.0).start().unwrap_err();
        assert!(matches!(error, StartError::Journal(_)), "{error:?}");
        let folder = std::env::temp_dir();
        let error = Emulator::builder()
            .hub(HUB, 1)
            .journal(folder)
            .start()
            .unwrap_err();
        assert!(matches!(error, StartError::Journal(_)), "{error:?}");
    });
}
