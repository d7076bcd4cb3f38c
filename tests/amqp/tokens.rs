//! Tokens: before each attach, one at a time, and renewed in time.

use crate::support::*;
use hublane_emulator::{Disruption, Emulator, Fault, SocketDrop, Step};
use std::time::{Duration, Instant};

const KEY: (&str, &str) = ("send", "c2VjcmV0");

/// A hundred are more than `$cbs` is given credit for at once.
#[test]
fn a_hundred_links_at_once_use_one_cbs_link() {
    let (emulator, hub) = start(Emulator::builder().sas_key(KEY.0, KEY.1), 100);
    let producer = producer(&emulator);
    for partition in 0..100 {
        enqueue(&producer, partition, &["a"]);
    }
    producer.flush_timeout(LIMIT).unwrap();
    assert_eq!(hub.len(), 100);
    let stats = emulator.stats();
    assert_eq!(stats.cbs_conflicts, 0);
    assert_eq!(stats.attaches_refused, 0);
    assert_eq!(stats.tokens_refused, 0);
    assert_eq!(
        stats.tokens_accepted,
        100 + 2,
        "the links', the hub's, the probe's"
    );
}

/// The emulator refuses an attach without a token of its connection, so that links which came
/// back after a reconnection had one each.
#[test]
fn after_a_reconnection_each_link_gets_a_token_first() {
    let (emulator, hub) = start(Emulator::builder().sas_key(KEY.0, KEY.1), 4);
    let producer = producer(&emulator);
    for partition in 0..4 {
        deliver(&producer, partition, &["a"]);
    }
    let before = emulator.stats();
    emulator.disrupt(Disruption::drop_sockets(SocketDrop::Reset));
    eventually("a new connection", || {
        emulator.stats().connections > before.connections
    });
    for partition in 0..4 {
        deliver(&producer, partition, &["b"]);
    }
    let after = emulator.stats();
    assert_eq!(hub.len(), 8);
    assert_eq!(after.connections, before.connections + 1);
    assert_eq!(after.attaches, before.attaches + 4);
    assert_eq!(after.tokens_accepted, before.tokens_accepted + 4);
    assert_eq!(after.attaches_refused, 0);
}

#[test]
fn a_token_is_renewed_while_sends_go_on() {
    let (emulator, hub) = start(Emulator::builder().sas_key(KEY.0, KEY.1), 1);
    let options = options().sas_life(Duration::from_secs(2));
    let producer = builder(&emulator, options).build().unwrap();
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < Duration::from_secs(4) {
        deliver(&producer, 0, &["a"]);
        sent += 1;
        std::thread::sleep(20 * MILLI);
    }
    assert_eq!(hub.len(), sent);
    let stats = emulator.stats();
    assert!(stats.tokens_accepted >= 2 + 3, "{stats:?}");
    assert_eq!(stats.attaches, 2, "{stats:?}");
    assert_eq!(producer.stats().retries(), 0);
}

#[test]
fn a_renewal_that_fails_is_tried_again_while_sends_go_on() {
    for fault in [
        Fault::cbs_status(500, "not now"),
        Fault::no_answer(Step::Cbs),
    ] {
        let (emulator, _) = start(Emulator::builder().sas_key(KEY.0, KEY.1), 1);
        let options = options()
            .sas_life(Duration::from_secs(3))
            .operation_timeout(300 * MILLI);
        let producer = builder(&emulator, options).build().unwrap();
        deliver(&producer, 0, &["a"]);
        let tokens = emulator.stats().tokens_accepted;
        let id = emulator.faults().push(fault);
        eventually("the token is renewed", || {
            deliver(&producer, 0, &["b"]);
            std::thread::sleep(10 * MILLI);
            emulator.faults().fired(id) == 1 && emulator.stats().tokens_accepted > tokens
        });
        assert_eq!(emulator.stats().connections, 1);
        assert_eq!(producer.stats().retries(), 0);
    }
}
