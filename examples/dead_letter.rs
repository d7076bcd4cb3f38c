//! Keeps the events that could not be delivered: one JSON object a line, on standard output.
//!
//! The peer is scripted (feature `testing`) and refuses the first batch for good, so this runs
//! without a network. With a real hub only the line that makes the builder differs.

use hublane::testing::{Answer, ScriptedPeer, VirtualClock};
use hublane::{CloseError, DeliveryReport, Event, Outcome, ProducerBuilder, Target};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let clock = VirtualClock::new();
    let peer = ScriptedPeer::new(1, &clock);
    peer.script("0", Answer::reject("amqp:not-allowed"));

    let producer = ProducerBuilder::new(peer.transport())
        .virtual_clock(&clock)
        .on_delivery(|report, _| keep_undelivered(&report))
        .build()?;
    let target = Target::Partition("0".into());
    producer.enqueue_to(&target, "refused")?;
    if let Err(error) = producer.flush() {
        eprintln!("flush: {error}");
    }
    producer.enqueue_to(&target, "stored")?;

    // What a close hands back goes to its caller and not to the handler.
    if let Err(CloseError::Incomplete(report)) = producer.close() {
        for (partition, events) in &report.unsent {
            for event in events {
                let key = event.key.as_ref().map(|key| key.as_str());
                write("returned", partition.as_str(), key, &event.event);
            }
        }
    }
    Ok(())
}

/// Runs on the partition's worker: what takes long here holds up that partition.
fn keep_undelivered(report: &DeliveryReport) {
    let outcome = match &report.outcome {
        Outcome::Delivered => return,
        Outcome::Failed(_) => "failed",
        // May be stored: whoever sends these again must be able to bear duplicates.
        Outcome::Indeterminate(_) => "indeterminate",
        _ => "returned",
    };
    for reported in &report.events {
        let key = reported.key.as_ref().map(|key| key.as_str());
        write(outcome, report.partition.as_str(), key, &reported.event);
    }
}

fn write(outcome: &str, partition: &str, key: Option<&str>, event: &Event) {
    let line = serde_json::json!({
        "outcome": outcome,
        "partition": partition,
        "key": key,
        "body": String::from_utf8_lossy(event.body()),
    });
    println!("{line}");
}
