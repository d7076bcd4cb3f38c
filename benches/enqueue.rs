//! The way into a lane beside a bare crossbeam channel.
//!
//! `lane`: the real lane (word, permits, wake, channel) with a worker that gives each event its
//! outcome at once. `producer`: the whole engine over a peer that accepts inside `submit`, so
//! each event is also routed, encoded and reported. The comparator: a bounded channel of the
//! same capacity and message size, whose consumer drops what it receives. A round ends when
//! every event has its outcome, or was received.

mod support;

use hublane::testing::LaneAlone;
use hublane::{Event, ProducerBuilder};
use std::time::Instant;
use support::{InstantPeer, compare, first, rate};

const EVENTS: u64 = 2_000_000;
const BOUND: usize = 32_768;
const ROUNDS: usize = 9;
static BODY: [u8; 100] = [b'x'; 100];

/// As large as hublane's own message.
struct Message {
    _event: Event,
    _beside: [u64; 5],
}

fn producer_rate(callers: u64) -> f64 {
    let producer = ProducerBuilder::new(InstantPeer { partitions: 1 })
        .build()
        .expect("default settings");
    let target = first();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                for _ in 0..EVENTS / callers {
                    let event = Event::new(&BODY[..]);
                    producer.enqueue_to(&target, event).expect("open");
                }
            });
        }
    });
    let report = producer.flush().expect("all delivered");
    assert_eq!(report.outcomes.delivered, EVENTS);
    rate(EVENTS, began)
}

fn lane_rate(callers: u64) -> f64 {
    let lane = LaneAlone::start(BOUND as u64).expect("a thread");
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                for _ in 0..EVENTS / callers {
                    lane.enqueue(Event::new(&BODY[..])).expect("open");
                }
            });
        }
    });
    lane.close();
    rate(EVENTS, began)
}

fn channel_rate(callers: u64) -> f64 {
    let (sender, receiver) = crossbeam_channel::bounded::<Message>(BOUND);
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || while receiver.recv().is_ok() {});
        for _ in 0..callers {
            let sender = sender.clone();
            scope.spawn(move || {
                for _ in 0..EVENTS / callers {
                    let message = Message {
                        _event: Event::new(&BODY[..]),
                        _beside: [0; 5],
                    };
                    sender.send(message).expect("open");
                }
            });
        }
        drop(sender);
    });
    rate(EVENTS, began)
}

fn main() {
    println!(
        "enqueue: 100-byte events, bound {BOUND}, message {} bytes, default settings, {ROUNDS} rounds",
        size_of::<Message>()
    );
    for callers in [1, 4] {
        for (what, ours) in [
            ("lane", lane_rate as fn(u64) -> f64),
            ("producer", producer_rate),
        ] {
            compare(
                &format!("{what}, {callers} caller(s)"),
                "events/s",
                ROUNDS,
                || ours(callers),
                ("bare channel", || channel_rate(callers)),
            );
        }
    }
}
