//! Where an event goes: to a partition by its id, to the partition of a key, or to any.

pub mod hash;

use crate::sync::Arc;
use std::fmt;

use crate::sync::atomic::{AtomicUsize, Ordering};

/// The id of a partition, as the service names it; usually a small number in decimal.
///
/// Cloning is cheap: the text is shared.
///
/// # Examples
///
/// ```
/// use hublane::PartitionId;
///
/// let id = PartitionId::from("3");
/// assert_eq!(id.as_str(), "3");
/// assert_eq!(format!("partition {id}"), "partition 3");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(Arc<str>);

impl PartitionId {
    /// The id's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for PartitionId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for PartitionId {
    fn from(id: &str) -> Self {
        PartitionId(id.into())
    }
}

impl From<String> for PartitionId {
    fn from(id: String) -> Self {
        PartitionId(id.into())
    }
}

/// A key that keeps events together: all events with one key go to one partition, in order.
///
/// Cloning is cheap: the text is shared.
///
/// # Examples
///
/// ```
/// use hublane::PartitionKey;
///
/// let key = PartitionKey::new("customer-17")?;
/// assert_eq!(key.as_str(), "customer-17");
/// assert!(PartitionKey::new("x".repeat(129)).is_err());
/// # Ok::<(), hublane::PartitionKeyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey(Arc<str>);

impl PartitionKey {
    /// The longest key, in UTF-16 code units.
    ///
    /// The Java SDK refuses keys longer than 128 by the `length` of its strings, which counts
    /// UTF-16 code units: one for most characters, two for those beyond the Basic Multilingual
    /// Plane, such as most emoji. The JavaScript SDK, whose strings count alike, has the same
    /// limit. So a key that one of them takes, this takes.
    pub const MAX_LEN: usize = 128;

    /// A key with this text.
    ///
    /// # Errors
    ///
    /// - [`PartitionKeyError::Empty`] for the empty text. The Azure SDKs take an empty key for no
    ///   key at all; here [`Target::Any`] says that, and an empty key is more likely a mistake.
    /// - [`PartitionKeyError::TooLong`] beyond [`PartitionKey::MAX_LEN`].
    pub fn new(key: impl Into<Arc<str>>) -> Result<Self, PartitionKeyError> {
        let key = key.into();
        if key.is_empty() {
            return Err(PartitionKeyError::Empty);
        }
        // UTF-8 never has fewer bytes than UTF-16 has units, so most keys need no count.
        if key.len() > Self::MAX_LEN {
            let len = key.encode_utf16().count();
            if len > Self::MAX_LEN {
                return Err(PartitionKeyError::TooLong {
                    len,
                    limit: Self::MAX_LEN,
                });
            }
        }
        Ok(PartitionKey(key))
    }

    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for PartitionKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<&str> for PartitionKey {
    type Error = PartitionKeyError;

    fn try_from(key: &str) -> Result<Self, PartitionKeyError> {
        PartitionKey::new(key)
    }
}

impl TryFrom<String> for PartitionKey {
    type Error = PartitionKeyError;

    fn try_from(key: String) -> Result<Self, PartitionKeyError> {
        PartitionKey::new(key)
    }
}

/// Why a text is not a partition key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionKeyError {
    /// The text was empty.
    #[error("the partition key is empty; an event without a key goes to any partition")]
    Empty,
    /// The text was longer than the service takes.
    #[error("the partition key has {len} UTF-16 code units, and the limit is {limit}")]
    #[non_exhaustive]
    TooLong {
        /// The key's length in UTF-16 code units.
        len: usize,
        /// [`PartitionKey::MAX_LEN`].
        limit: usize,
    },
}

/// Where an event is to go.
///
/// # Examples
///
/// ```
/// use hublane::{PartitionId, PartitionKey, Target};
///
/// assert_eq!(Target::default(), Target::Any);
/// let key = PartitionKey::new("customer-17")?;
/// assert_eq!(Target::from(&key), Target::Key(key));
/// assert!(matches!(Target::from(PartitionId::from("0")), Target::Partition(_)));
/// # Ok::<(), hublane::PartitionKeyError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Target {
    /// Any partition: they take turns.
    #[default]
    Any,
    /// The partition that this key belongs to, see [`hash::partition_index`].
    Key(PartitionKey),
    /// This partition.
    Partition(PartitionId),
}

impl From<PartitionKey> for Target {
    fn from(key: PartitionKey) -> Self {
        Target::Key(key)
    }
}

impl From<&PartitionKey> for Target {
    fn from(key: &PartitionKey) -> Self {
        Target::Key(key.clone())
    }
}

impl From<PartitionId> for Target {
    fn from(id: PartitionId) -> Self {
        Target::Partition(id)
    }
}

impl From<&PartitionId> for Target {
    fn from(id: &PartitionId) -> Self {
        Target::Partition(id.clone())
    }
}

/// Deals out partitions in turn to all callers of one producer, beginning with the first.
#[derive(Debug)]
pub(crate) struct RoundRobin {
    /// How many turns were dealt out. Relaxed: it orders nothing, and the read-modify-write alone
    /// gives every caller a turn of its own.
    turns: AtomicUsize,
}

impl RoundRobin {
    /// A dealer whose first turn goes to index 0.
    pub(crate) fn new() -> Self {
        RoundRobin {
            turns: AtomicUsize::new(0),
        }
    }

    /// The next index below `partitions`.
    ///
    /// After `usize::MAX` turns the count begins again at zero, and with it the round: if
    /// `partitions` is no power of two, one round is cut short there.
    ///
    /// # Panics
    ///
    /// If `partitions` is zero.
    pub(crate) fn next_index(&self, partitions: usize) -> usize {
        assert!(partitions > 0, "there must be a partition to take a turn");
        self.turns.fetch_add(1, Ordering::Relaxed) % partitions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_have_128_utf16_units_and_no_more() {
        // One, two and three bytes of UTF-8 for one unit; four bytes for two units.
        for (character, units) in [("a", 1), ("é", 1), ("日", 1), ("😀", 2)] {
            let at_limit = character.repeat(128 / units);
            assert_eq!(
                PartitionKey::new(at_limit.as_str()).unwrap().as_str(),
                at_limit
            );

            let refused = PartitionKey::new(at_limit + character).unwrap_err();
            assert_eq!(
                refused,
                PartitionKeyError::TooLong {
                    len: 128 + units,
                    limit: 128
                }
            );
        }
        assert_eq!(
            PartitionKey::try_from("x".repeat(200))
                .unwrap_err()
                .to_string(),
            "the partition key has 200 UTF-16 code units, and the limit is 128"
        );
    }

    #[test]
    fn an_empty_key_is_refused() {
        assert_eq!(PartitionKey::new(""), Err(PartitionKeyError::Empty));
        assert_eq!(PartitionKey::new("\0").unwrap().as_str(), "\0");
    }

    #[test]
    fn keys_and_ids_fit_two_words() {
        assert_eq!(size_of::<PartitionKey>(), 2 * size_of::<usize>());
        assert_eq!(size_of::<PartitionId>(), 2 * size_of::<usize>());
    }

    #[test]
    fn turns_begin_at_the_first_partition_and_go_round() {
        let dealer = RoundRobin::new();
        let turns: Vec<_> = (0..7).map(|_| dealer.next_index(3)).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn the_count_of_turns_begins_again_after_its_maximum() {
        let dealer = RoundRobin {
            turns: AtomicUsize::new(usize::MAX),
        };
        assert_eq!(dealer.next_index(4), 3);
        assert_eq!(dealer.next_index(4), 0);
        assert_eq!(dealer.next_index(4), 1);
    }
}
