//! What is sent arrives, as it was.

use crate::support::*;
use hublane::{Event, PartitionKey, Target};
use hublane_emulator::Emulator;

#[test]
fn what_is_sent_can_be_read_back() {
    let (emulator, hub) = start(Emulator::builder(), 4);
    let producer = producer(&emulator);
    assert_eq!(producer.partitions().len(), 4);
    deliver(&producer, 0, &["a", "b"]);
    deliver(&producer, 3, &["c"]);
    producer.close_timeout(LIMIT).unwrap();
    assert_eq!(stored(&hub, 0), ["a", "b"]);
    assert_eq!(stored(&hub, 3), ["c"]);
    assert_eq!(emulator.stats().connections, 1);
    assert_eq!(emulator.stats().protocol_errors, 0);
}

#[test]
fn a_key_stands_on_every_event_and_not_on_the_batch() {
    let (emulator, hub) = start(Emulator::builder(), 1);
    let producer = producer(&emulator);
    for key in ["red", "blue"] {
        let target = Target::Key(PartitionKey::new(key).unwrap());
        producer.enqueue_to(&target, Event::new(key)).unwrap();
    }
    producer.flush_timeout(LIMIT).unwrap();
    let events = hub.events(0);
    let keys: Vec<_> = events.iter().map(|event| event.partition_key()).collect();
    assert_eq!(keys, [Some("red"), Some("blue")]);
}
