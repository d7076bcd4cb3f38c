//! Each answer of the peer means what it says.

use crate::support::*;
use hublane::{Event, Outcome, Target};
use hublane_emulator::{Emulator, Fault};

#[test]
fn a_refusal_for_good_is_a_failure_with_its_reason() {
    let (emulator, hub) = start(Emulator::builder(), 1);
    let producer = producer(&emulator);
    emulator.faults().push(Fault::reject(
        "com.microsoft:argument-error",
        "not like this",
    ));
    let target = Target::Partition("0".into());
    let ticket = producer.enqueue_tracked(&target, Event::new("a")).unwrap();
    match ticket.wait_timeout(LIMIT).unwrap() {
        Outcome::Failed(cause) => {
            let text = format!("{cause:?}");
            assert!(text.contains("com.microsoft:argument-error"), "{text}");
            assert!(text.contains("not like this"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert!(hub.is_empty());
    assert_eq!(producer.stats().retries(), 0);
    assert!(producer.flush_timeout(LIMIT).is_err());
    deliver(&producer, 0, &["b"]);
    assert_eq!(stored(&hub, 0), ["b"]);
}

/// Each is not stored, is sent again, and is delivered once, in order.
#[test]
fn what_is_given_back_is_sent_again() {
    let faults = [
        Fault::release(),
        Fault::modify(true, false),
        Fault::modify(false, true),
        Fault::reject("com.microsoft:server-busy", "wait"),
        Fault::reject("amqp:internal-error", "once more"),
    ];
    let (emulator, hub) = start(Emulator::builder(), 1);
    let producer = producer(&emulator);
    for (n, fault) in faults.into_iter().enumerate() {
        let id = emulator.faults().push(fault);
        deliver(&producer, 0, &[&n.to_string()]);
        assert_eq!(emulator.faults().fired(id), 1);
        assert_eq!(producer.stats().retries(), n as u64 + 1);
    }
    assert_eq!(stored(&hub, 0), ["0", "1", "2", "3", "4"]);
    assert_eq!(producer.stats().resends_after_unknown(), 0);
}

#[test]
fn a_busy_server_is_given_time() {
    let (emulator, hub) = start(Emulator::builder(), 1);
    let producer = producer(&emulator);
    let busy = Fault::reject("com.microsoft:server-busy", "wait").times(3);
    emulator.faults().push(busy);
    let start = std::time::Instant::now();
    deliver(&producer, 0, &["a"]);
    assert!(start.elapsed() >= 300 * MILLI);
    assert_eq!(stored(&hub, 0), ["a"]);
    assert_eq!(producer.stats().retries(), 3);
}
