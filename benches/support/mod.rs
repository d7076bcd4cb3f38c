//! What the benches share: interleaved rounds, medians, and a peer that costs nothing.
#![allow(dead_code)]

use hublane::transport::{
    Busy, ConnectError, Delivery, DeliveryId, HubInfo, Link, LinkInbox, LinkState, Settlement,
    Transport,
};
use hublane::{PartitionId, Target};
use std::time::{Duration, Instant};

/// The middle of the figures, which must not be empty.
pub fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The figure below which `share` of the (sorted here) samples lie.
pub fn percentile(samples: &mut [u64], share: f64) -> u64 {
    samples.sort_unstable();
    let last = samples.len() - 1;
    samples[((last as f64) * share).round() as usize]
}

/// Runs both alternately, so that noise of the machine meets both, and prints the medians
/// and their ratio.
pub fn compare(
    name: &str,
    unit: &str,
    rounds: usize,
    mut ours: impl FnMut() -> f64,
    (other_name, mut other): (&str, impl FnMut() -> f64),
) -> f64 {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            a.push(ours());
            b.push(other());
        } else {
            b.push(other());
            a.push(ours());
        }
    }
    let (ours, other) = (median(&mut a), median(&mut b));
    let ratio = ours / other;
    println!(
        "{name}: hublane {ours:.0} {unit} ({:.0}-{:.0}), {other_name} {other:.0} {unit} ({:.0}-{:.0}), ratio {ratio:.2}",
        a[0],
        a[a.len() - 1],
        b[0],
        b[b.len() - 1],
    );
    ratio
}

/// Things per second.
pub fn rate(things: u64, since: Instant) -> f64 {
    things as f64 / since.elapsed().as_secs_f64()
}

/// CPU time of this process so far.
pub fn cpu_time() -> Duration {
    // Fields 14 and 15 of /proc/self/stat, in ticks of 10 ms (proc(5)); the second field may
    // hold spaces, so counting begins behind its bracket.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let ticks = |n: usize| -> u64 { fields.get(n).and_then(|f| f.parse().ok()).unwrap_or(0) };
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

/// The first partition.
pub fn first() -> Target {
    Target::Partition(PartitionId::from("0"))
}

/// A peer that accepts everything inside `submit`.
pub struct InstantPeer {
    /// Its number of partitions.
    pub partitions: usize,
}

const LIMIT: LinkState = LinkState::Up {
    max_message_size: 1 << 20,
};

impl Transport for InstantPeer {
    fn connect(&self, _deadline: Instant) -> Result<HubInfo, ConnectError> {
        Ok(HubInfo {
            partitions: (0..self.partitions)
                .map(|n| PartitionId::from(n.to_string().as_str()))
                .collect(),
            max_message_size: 1 << 20,
        })
    }

    fn open_link(&self, _partition: &PartitionId, inbox: LinkInbox) -> Box<dyn Link> {
        inbox.link(LIMIT);
        Box::new(InstantLink(inbox))
    }

    fn close(&self, _deadline: Instant) {}
}

struct InstantLink(LinkInbox);

impl Link for InstantLink {
    fn submit(&mut self, delivery: Delivery) -> Result<(), Busy> {
        self.0.settle(delivery.id, Settlement::Accepted);
        Ok(())
    }

    fn cancel(&mut self, _id: DeliveryId) {}
}

/// Voluntary context switches of all threads of this process so far.
pub fn voluntary_switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .filter_map(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            line.trim().parse::<u64>().ok()
        })
        .sum()
}
