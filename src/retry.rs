//! When a refused batch is sent again.

use std::time::Duration;

/// Exponential back-off with jitter between the attempts of one batch.
///
/// The wait after refusal `n`, counted from 0, is `delay · 2ⁿ`, at most `max_delay`, spread by a
/// factor drawn evenly from `0.8 ..= 1.2`; a busy server is given at least `server_busy_delay`.
/// Whatever the numbers, a batch is given up at its delivery deadline, and at once if its next
/// attempt would come after it. A transfer without an answer counts as an attempt.
///
/// # Examples
///
/// ```
/// use hublane::RetryPolicy;
///
/// // Never a second copy: what is not answered is indeterminate.
/// let once = RetryPolicy { max_retries: 0, ..RetryPolicy::default() };
/// assert_eq!(once.delay.as_millis(), 800);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often a batch that was refused or not answered is sent again; 0 means never.
    pub max_retries: u32,
    /// The wait before the first retry.
    pub delay: Duration,
    /// The longest wait, jitter apart.
    pub max_delay: Duration,
    /// The shortest wait after `com.microsoft:server-busy`, jitter added on top.
    pub server_busy_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            max_retries: u32::MAX,
            delay: Duration::from_millis(800),
            max_delay: Duration::from_secs(60),
            server_busy_delay: Duration::from_secs(4),
        }
    }
}

impl RetryPolicy {
    /// The wait between refusal number `refusals` (0 is the first) and the next attempt.
    ///
    /// For a busy server the spread is `1.0 ..= 1.2`: it asked for a pause of that length, and
    /// clients that come back sooner prolong it.
    pub(crate) fn backoff(&self, refusals: u32, busy: bool, jitter: &mut Jitter) -> Duration {
        let doubled = doubled(self.delay, refusals).min(self.max_delay);
        if busy {
            jitter.spread(doubled.max(self.server_busy_delay), 1_000, 1_200)
        } else {
            jitter.spread(doubled, 800, 1_200)
        }
    }
}

/// `delay · 2ⁿ`, saturating at 584 years.
fn doubled(delay: Duration, n: u32) -> Duration {
    let nanos = delay.as_nanos();
    if nanos == 0 {
        return Duration::ZERO;
    }
    // The bits that the shift would push out are all zero if there are more of them than it moves.
    let nanos = if nanos.leading_zeros() > n {
        nanos << n
    } else {
        u128::MAX
    };
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// A small generator of pseudo-random numbers, for spreading retries in time.
///
/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014;
/// constants from Vigna's public-domain <https://prng.di.unimi.it/splitmix64.c>). Any seed will
/// do, lanes only need different ones.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Jitter {
        Jitter(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `wait` times a factor between `from` and `to` thousandths, both included.
    fn spread(&mut self, wait: Duration, from: u64, to: u64) -> Duration {
        const FINER: u64 = 1_000;
        let (from, to) = (from * FINER, to * FINER);
        // The remainder's bias is below 2⁻⁴⁵: of no consequence here.
        let factor = from + self.next() % (to - from + 1);
        let nanos = wait.as_nanos() * u128::from(factor) / u128::from(1_000 * FINER);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn policy() -> RetryPolicy {
        RetryPolicy {
            max_retries: 3,
            delay: Duration::from_millis(800),
            max_delay: Duration::from_secs(60),
            server_busy_delay: Duration::from_secs(4),
        }
    }

    /// The shortest and the longest of many waits.
    fn range(policy: &RetryPolicy, refusals: u32, busy: bool) -> (Duration, Duration) {
        let mut jitter = Jitter::new(7);
        let waits: Vec<_> = (0..20_000)
            .map(|_| policy.backoff(refusals, busy, &mut jitter))
            .collect();
        (
            waits.iter().copied().min().unwrap(),
            waits.iter().copied().max().unwrap(),
        )
    }

    /// True if the waits fill `0.001` of the interval's ends from inside.
    fn fills((low, high): (Duration, Duration), from: Duration, to: Duration) -> bool {
        low >= from && high <= to && low < from + from / 1_000 && high > to - to / 1_000
    }

    #[test]
    fn splitmix64_gives_the_published_numbers() {
        // The first outputs of the reference program for the seed 1234567.
        let mut jitter = Jitter::new(1_234_567);
        let numbers: Vec<u64> = (0..5).map(|_| jitter.next()).collect();
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
    }

    #[test]
    fn the_wait_doubles_from_the_first_delay_and_spreads_by_a_fifth() {
        let policy = policy();
        assert!(fills(range(&policy, 0, false), 640 * MILLI, 960 * MILLI));
        assert!(fills(
            range(&policy, 1, false),
            1_280 * MILLI,
            1_920 * MILLI
        ));
        assert!(fills(
            range(&policy, 5, false),
            20_480 * MILLI,
            30_720 * MILLI
        ));
    }

    #[test]
    fn the_wait_stops_growing_at_the_longest_delay() {
        let policy = policy();
        for refusals in [7, 8, 100, 127, 128, u32::MAX] {
            assert!(fills(
                range(&policy, refusals, false),
                48_000 * MILLI,
                72_000 * MILLI
            ));
        }
    }

    #[test]
    fn a_busy_server_is_never_asked_early() {
        let policy = policy();
        assert!(fills(range(&policy, 0, true), 4_000 * MILLI, 4_800 * MILLI));
        assert!(fills(range(&policy, 3, true), 6_400 * MILLI, 7_680 * MILLI));
        assert!(fills(
            range(&policy, 99, true),
            60_000 * MILLI,
            72_000 * MILLI
        ));
    }

    #[test]
    fn no_setting_overflows() {
        let mut policy = policy();
        policy.delay = Duration::MAX;
        policy.max_delay = Duration::MAX;
        policy.server_busy_delay = Duration::MAX;
        let mut jitter = Jitter::new(0);
        for refusals in [0, 1, 200, u32::MAX] {
            assert!(policy.backoff(refusals, false, &mut jitter) > Duration::from_secs(1 << 33));
            assert!(policy.backoff(refusals, true, &mut jitter) > Duration::from_secs(1 << 33));
        }
        policy.delay = Duration::ZERO;
        assert_eq!(policy.backoff(u32::MAX, false, &mut jitter), Duration::ZERO);
    }
}
