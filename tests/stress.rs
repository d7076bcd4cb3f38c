//! What takes long or is measured:
//! `cargo test --release --features stress --test stress -- --nocapture`.
//!
//! One test at a time, so that none measures another; each prints what it measured. System time,
//! Linux's `/proc`.

use hublane::testing::{Answer, ScriptedPeer, VirtualClock};
use hublane::{
    CloseError, CloseReport, DeliveryReport, EnqueueRefusal, PartitionId, Producer,
    ProducerBuilder, Target,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use std::time::{Duration, Instant};

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A peer whose own clock nobody moves: it answers at once, or holds.
fn peer(partitions: usize) -> ScriptedPeer {
    ScriptedPeer::new(partitions, &VirtualClock::new())
}

fn builder(peer: &ScriptedPeer) -> ProducerBuilder {
    ProducerBuilder::new(peer.transport())
}

fn to(n: usize) -> Target {
    Target::Partition(PartitionId::from(n.to_string()))
}

fn close_report(result: Result<CloseReport, CloseError>) -> CloseReport {
    match result {
        Ok(report) | Err(CloseError::Incomplete(report)) => report,
        Err(error) => panic!("not closed: {error}"),
    }
}

fn proc(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_whitespace().nth(1))
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// Voluntary context switches of the process's threads whose name starts with `prefix`.
fn switches(prefix: &str) -> (usize, u64) {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut found = (0, 0);
    for task in tasks.flatten() {
        let status = proc(&format!("{}/status", task.path().display()));
        let name = status.lines().next().unwrap_or_default();
        if name.trim_start_matches("Name:").trim().starts_with(prefix) {
            found.0 += 1;
            found.1 += field(&status, "voluntary_ctxt_switches");
        }
    }
    found
}

/// CPU time, in clock ticks of usually 10 ms, of one `stat` file.
fn ticks(stat: &str) -> u64 {
    // The name in parentheses may hold spaces; user and system time are the 12th and 13th
    // fields behind it.
    let text = proc(stat);
    let rest = text.rsplit(')').next().unwrap_or_default();
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || {
        fields
            .next()
            .and_then(|f| f.parse::<u64>().ok())
            .unwrap_or(0)
    };
    next() + next()
}

/// azure-sdk-for-net 28926: 32 idle partitions.
#[test]
fn idle_partitions_use_nothing() {
    let _alone = alone();
    let peer = peer(32);
    let producer = builder(&peer).thread_name("quiet").build().unwrap();
    for n in 0..32 {
        producer.enqueue_to(&to(n), "once").unwrap();
    }
    producer.flush().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let (threads, before) = switches("quiet");
    let cpu = ticks("/proc/self/stat");
    std::thread::sleep(Duration::from_secs(10));
    let (_, after) = switches("quiet");
    let cpu = ticks("/proc/self/stat") - cpu;
    println!(
        "32 idle partitions, 10 s: {threads} threads, {} voluntary switches, {cpu} ticks of CPU",
        after - before
    );
    assert_eq!(threads, 32);
    assert_eq!(after, before);
    assert!(cpu <= 1);
    producer.close().unwrap();
}

/// azure-sdk-for-java 30258: a blocked caller.
#[test]
fn a_blocked_caller_uses_no_cpu() {
    let _alone = alone();
    let peer = peer(2);
    peer.default_answer(Answer::hold());
    let producer = builder(&peer).max_buffered_events(4).build().unwrap();
    for n in 0..8 {
        producer.enqueue_to(&to(n % 2), "full").unwrap();
    }
    let callers: Vec<_> = [to(0), Target::Any]
        .into_iter()
        .map(|target| {
            let producer = producer.clone();
            std::thread::spawn(move || {
                let start = ticks("/proc/thread-self/stat");
                let switched = field(&proc("/proc/thread-self/status"), "voluntary_ctxt_switches");
                let refused = producer.enqueue_timeout(&target, "waits", Duration::from_secs(5));
                let reason = refused.unwrap_err().reason().clone();
                assert_eq!(reason, EnqueueRefusal::TimedOut);
                let after = field(&proc("/proc/thread-self/status"), "voluntary_ctxt_switches");
                (ticks("/proc/thread-self/stat") - start, after - switched)
            })
        })
        .collect();
    for (kind, caller) in ["one partition", "any partition"].iter().zip(callers) {
        let (cpu, switches) = caller.join().unwrap();
        println!("blocked 5 s for {kind}: {cpu} ticks of CPU, {switches} voluntary switches");
        assert_eq!(cpu, 0);
        assert!(switches <= 5);
    }
    let _ = producer.abort();
}

/// sentry-rust 1040, fjall 324: a full lane and a dead peer.
#[test]
fn close_with_a_time_out_is_on_time() {
    let _alone = alone();
    let mut worst = Duration::ZERO;
    for _ in 0..20 {
        let peer = peer(4);
        peer.default_answer(Answer::hold());
        let producer = builder(&peer).max_buffered_events(1000).build().unwrap();
        let mut accepted = 0_u64;
        for n in 0..4 {
            while producer.try_enqueue_to(&to(n), "full").is_ok() {
                accepted += 1;
            }
        }
        let start = Instant::now();
        let report = close_report(producer.close_timeout(Duration::from_millis(200)));
        worst = worst.max(start.elapsed());
        let unsent: usize = report.unsent.iter().map(|(_, events)| events.len()).sum();
        let owned: u64 = report.still_owned.iter().map(|(_, n)| n).sum();
        assert_eq!(unsent as u64 + owned, accepted);
        let _ = producer.abort();
    }
    println!("close_timeout(200 ms), 20 times: {worst:?} at worst");
    assert!(worst <= Duration::from_millis(250));
}

/// crossbeam's channel: sends beside the end of their receiver.
#[test]
fn twenty_thousand_rounds_of_enqueue_beside_close() {
    let _alone = alone();
    let start = Instant::now();
    let (mut rounds, mut all_accepted, mut all_returned) = (0, 0, 0);
    while rounds < 20_000 && start.elapsed() < Duration::from_secs(55) {
        rounds += 1;
        let peer = peer(1);
        let reported = Arc::new(AtomicU64::new(0));
        let producer = builder(&peer)
            .max_buffered_events(16)
            .max_batch_events(4)
            .on_delivery({
                let reported = Arc::clone(&reported);
                move |report: DeliveryReport, _| {
                    reported.fetch_add(report.events.len() as u64, Ordering::Relaxed);
                }
            })
            .build()
            .unwrap();
        producer.enqueue("born").unwrap();
        let barrier = Arc::new(Barrier::new(3));
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let (producer, barrier) = (producer.clone(), Arc::clone(&barrier));
                std::thread::spawn(move || {
                    barrier.wait();
                    (0..64)
                        .take_while(|n| producer.enqueue(n.to_string()).is_ok())
                        .count() as u64
                })
            })
            .collect();
        barrier.wait();
        let report = close_report(match rounds % 2 {
            0 => producer.close(),
            _ => producer.close_timeout(Duration::ZERO),
        });
        let accepted = 1 + senders.into_iter().map(|s| s.join().unwrap()).sum::<u64>();
        let returned: usize = report.unsent.iter().map(|(_, events)| events.len()).sum();
        let outcomes = producer.stats().outcomes();
        assert_eq!(outcomes.delivered + outcomes.returned, accepted);
        assert_eq!(outcomes.returned, returned as u64);
        assert_eq!(reported.load(Ordering::Relaxed), outcomes.delivered);
        assert_eq!(report.outcomes, outcomes);
        all_accepted += accepted;
        all_returned += returned;
    }
    println!(
        "{rounds} rounds in {:?}: {all_accepted} accepted, {all_returned} returned, none lost",
        start.elapsed()
    );
}

/// azure-eventhub (Python) 5.15.1: a stalled partition and its neighbour.
#[test]
fn a_stalled_partition_does_not_slow_its_neighbour() {
    let _alone = alone();
    let peer = peer(2);
    peer.script("0", Answer::hold());
    let producer = builder(&peer).max_buffered_events(10_000).build().unwrap();
    while producer.try_enqueue_to(&to(0), "full").is_ok() {}
    let blocked = {
        let producer = producer.clone();
        std::thread::spawn(move || producer.enqueue_to(&to(0), "waits").is_err())
    };
    let mut times: Vec<_> = (0..200_000)
        .map(|_| {
            let start = Instant::now();
            producer.enqueue_to(&to(1), "passes").unwrap();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    println!(
        "beside a stalled partition: p50 {:?}, p99 {:?}, worst {:?}",
        at(0.5),
        at(0.99),
        times[times.len() - 1]
    );
    assert!(at(0.99) < Duration::from_millis(5));
    producer.flush_partition(&PartitionId::from("1")).unwrap();
    let _ = producer.abort();
    assert!(blocked.join().unwrap());
}

/// azure-sdk-for-python 38961: few CPUs, many partitions.
#[test]
fn thirty_two_partitions_send_on_time() {
    let _alone = alone();
    let peer = peer(32);
    let late = Arc::new(Mutex::new(Vec::new()));
    let producer = builder(&peer)
        .max_wait_time(Duration::from_millis(100))
        .on_delivery({
            let late = Arc::clone(&late);
            move |report: DeliveryReport, _| {
                for reported in report.events {
                    let born: &Instant = reported.event.context_as().unwrap();
                    late.lock().unwrap().push(born.elapsed());
                }
            }
        })
        .build()
        .unwrap();
    for _ in 0..20 {
        for n in 0..32 {
            let event = hublane::Event::from("tick").with_context(Arc::new(Instant::now()));
            producer.enqueue_to(&to(n), event).unwrap();
        }
        std::thread::sleep(Duration::from_millis(150));
    }
    producer.flush().unwrap();
    let mut ages = late.lock().unwrap().clone();
    ages.sort_unstable();
    let worst = ages[ages.len() - 1];
    println!(
        "32 partitions, wait 100 ms: median age {:?}, worst {worst:?}",
        ages[ages.len() / 2]
    );
    assert_eq!(ages.len(), 640);
    assert!(worst < Duration::from_millis(200));
    producer.close().unwrap();
}

fn census() -> (usize, usize, u64) {
    let count = |path| std::fs::read_dir(path).map_or(0, |entries| entries.count());
    let resident = field(&proc("/proc/self/status"), "VmRSS:");
    (count("/proc/self/task"), count("/proc/self/fd"), resident)
}

/// azure-sdk-for-rust 4595, 4931: threads, descriptors and memory stay flat.
#[test]
fn opening_and_closing_leaves_nothing_behind() {
    let _alone = alone();
    let round = |n: usize| {
        let peer = peer(4);
        let producer: Producer = builder(&peer).max_buffered_events(1000).build().unwrap();
        for event in 0..100 {
            producer.enqueue(event.to_string()).unwrap();
        }
        match n % 3 {
            0 => drop(producer.close()),
            1 => drop(producer.abort()),
            _ => drop(producer),
        }
    };
    (0..50).for_each(round);
    let before = census();
    (0..200).for_each(round);
    let after = census();
    println!("threads, descriptors, resident KiB: {before:?}, 200 rounds later {after:?}");
    assert_eq!((after.0, after.1), (before.0, before.1));
    assert!(after.2 <= before.2 + 2048);
}

/// The official Rust producer hangs here: its link registers a delivery after it was sent.
#[test]
fn a_peer_that_settles_at_once_never_hangs_a_run() {
    const RUNS: u64 = 50;
    const EVENTS: u64 = 1_000_000;
    let _alone = alone();
    let start = Instant::now();
    for run in 0..RUNS {
        let peer = peer(1);
        let producer = builder(&peer).build().unwrap();
        let target = to(0);
        for _ in 0..EVENTS {
            producer.enqueue_to(&target, "x").unwrap();
        }
        let report = producer.flush_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(report.outcomes.delivered, EVENTS, "run {run}");
        producer.close_timeout(Duration::from_secs(10)).unwrap();
    }
    println!(
        "{RUNS} runs of {EVENTS} events finished, {:.1} s",
        start.elapsed().as_secs_f64()
    );
}
