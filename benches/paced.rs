//! Callers at a given pace: what an enqueue costs them, and how often the worker wakes.
//!
//! One caller, 100-byte events, max_wait_time 5 ms, a peer that accepts inside `submit`.
//! Beside it the same pace into a bounded crossbeam channel whose consumer blocks in `recv`.

mod support;

use hublane::{Event, ProducerBuilder};
use std::time::{Duration, Instant};
use support::{InstantPeer, cpu_time, first, percentile};

const WAIT: Duration = Duration::from_millis(5);
const RUN: Duration = Duration::from_secs(2);
static BODY: [u8; 100] = [b'x'; 100];

/// Calls `enqueue` at `rate` a second and times each call. The pacing loop spins, so its
/// own cost is measured without any call and taken off the CPU figure.
fn pace(rate: u64, mut enqueue: impl FnMut()) -> Vec<u64> {
    let gap = Duration::from_secs(1) / rate as u32;
    let began = Instant::now();
    let mut costs = Vec::with_capacity((RUN.as_secs_f64() * rate as f64) as usize + 1);
    let mut next = began;
    while next - began < RUN {
        while Instant::now() < next {
            std::hint::spin_loop();
        }
        let before = Instant::now();
        enqueue();
        costs.push(before.elapsed().as_nanos() as u64);
        next += gap;
    }
    costs
}

struct Figures {
    p50: u64,
    p99: u64,
    cpu: Duration,
    switches: u64,
}

fn measure(rate: u64, enqueue: impl FnMut()) -> Figures {
    let (cpu, switches) = (cpu_time(), support::voluntary_switches());
    let mut costs = pace(rate, enqueue);
    Figures {
        p50: percentile(&mut costs, 0.5),
        p99: percentile(&mut costs, 0.99),
        // The caller's own thread spins all the time.
        cpu: (cpu_time() - cpu).saturating_sub(RUN),
        switches: support::voluntary_switches().saturating_sub(switches),
    }
}

fn print(name: &str, figures: &Figures) {
    println!(
        "  {name}: enqueue p50 {} ns, p99 {} ns, CPU beside the pacing {:?}, voluntary switches {}",
        figures.p50, figures.p99, figures.cpu, figures.switches
    );
}

fn run(rate: u64) {
    println!("{rate} events/s:");
    // What the two clock reads around each call cost, at this pace and as cold as the calls.
    let mut nothing = pace(rate, || {});
    println!(
        "  the measurement itself: p50 {} ns, p99 {} ns (in the figures below)",
        percentile(&mut nothing, 0.5),
        percentile(&mut nothing, 0.99)
    );
    let producer = ProducerBuilder::new(InstantPeer { partitions: 1 })
        .max_wait_time(WAIT)
        .build()
        .expect("valid settings");
    let target = first();
    let ours = measure(rate, || {
        let event = Event::new(&BODY[..]);
        producer.enqueue_to(&target, event).expect("open");
    });
    print("hublane", &ours);
    producer.flush().expect("all delivered");
    let stats = producer.stats();
    let engine = stats.partitions[0].engine;
    let batches = engine.core.seals.total();
    println!(
        "  hublane: {batches} batches, wakes a batch {:.2}, caused by enqueue {:.2}",
        engine.wakes as f64 / batches as f64,
        engine.producer_unparks as f64 / batches as f64,
    );
    let (sender, receiver) = crossbeam_channel::bounded(32_768);
    let consumer = std::thread::spawn(move || while receiver.recv().is_ok() {});
    let other = measure(rate, || sender.send(Event::new(&BODY[..])).expect("open"));
    print("blocking receive", &other);
    drop(sender);
    drop(consumer.join());
    println!(
        "  p50 ratio {:.2}, p99 ratio {:.2}, switches ratio {:.2}",
        ours.p50 as f64 / other.p50 as f64,
        ours.p99 as f64 / other.p99 as f64,
        ours.switches as f64 / other.switches.max(1) as f64,
    );
}

fn main() {
    println!("paced: 100-byte events, one caller, max_wait_time {WAIT:?}, {RUN:?} each");
    for rate in [1_000, 20_000, 100_000] {
        run(rate);
    }
}
