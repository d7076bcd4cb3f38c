//! How much memory an event costs. One test alone in its process: the counters are global.

use hublane::testing::{Answer, ScriptedPeer, VirtualClock};
use hublane::{Event, ProducerBuilder, Target};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const EVENTS: usize = 20_000;
static BODY: [u8; 100] = [b'x'; 100];

#[test]
fn an_event_costs_no_allocation_on_its_way_to_the_link_and_a_stalled_peer_holds_the_bound() {
    let clock = VirtualClock::new();
    let peer = ScriptedPeer::new(1, &clock);
    let producer = ProducerBuilder::new(peer.transport())
        .virtual_clock(&clock)
        .build()
        .expect("default settings");
    let target = Target::Partition("0".into());
    let send = || {
        for _ in 0..EVENTS {
            let event = Event::new(&BODY[..]);
            producer.enqueue_to(&target, event).expect("open");
        }
        producer.flush().expect("all delivered");
    };
    // The lane is born and the buffers grow once.
    send();
    peer.forget();

    let region = Region::new(ALLOCATOR);
    send();
    let change = region.change();
    let batches = peer.transfers("0").len();
    // A batch has its list of entries, which grows by doubling, and what the scripted peer
    // notes of it; an event has nothing.
    assert!(
        change.allocations + change.reallocations <= 40 * batches + 100,
        "{change:?} for {EVENTS} events in {batches} batches"
    );
    assert!(batches < EVENTS / 100, "{batches}");

    // A stalled peer: the bound is reached, and memory stays near what the bound says.
    peer.forget();
    peer.default_answer(Answer::hold());
    let region = Region::new(ALLOCATOR);
    let mut accepted = 0_u64;
    while producer
        .try_enqueue_to(&target, Event::new(&BODY[..]))
        .is_ok()
    {
        accepted += 1;
    }
    let change = region.change();
    assert_eq!(accepted, 32_768);
    let held = change
        .bytes_allocated
        .saturating_sub(change.bytes_deallocated);
    // Bodies are static here: what is held is structure, which the bound charges with
    // EVENT_OVERHEAD an event; the payload in flight comes on top.
    let bound = accepted * hublane::EVENT_OVERHEAD + 2 * 128 * 1024;
    assert!((held as u64) < bound, "{held} bytes held of {bound}");
    drop(producer.abort());
}
