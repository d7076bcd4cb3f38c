//! The map from a partition key to a partition, as the Azure SDKs' buffered producers compute it.
//!
//! Every event with one key goes to one partition, and programs in different languages agree on
//! which: the .NET, JavaScript and Rust SDKs share this function.
//!
//! The function is Bob Jenkins' *lookup3*, `hashlittle2` (2006, public domain,
//! <https://burtleburtle.net/bob/c/lookup3.c>), with both seeds zero, over the UTF-8 bytes of the
//! key. Its two 32-bit results are combined by exclusive or and cut to 16 bits, taken as signed.

/// The index, in the hub's list of partitions, of the partition that `key` belongs to.
///
/// The result is below `partitions`. It changes with `partitions`: a hub that is given more of
/// them moves most keys.
///
/// # Panics
///
/// If `partitions` is zero.
///
/// # Examples
///
/// ```
/// use hublane::hash::partition_index;
///
/// assert_eq!(partition_index("FWfAT", 32), 5);
/// ```
#[must_use]
pub fn partition_index(key: &str, partitions: usize) -> usize {
    assert!(
        partitions > 0,
        "a key needs at least one partition to belong to"
    );
    // The SDKs take the remainder toward zero and then its magnitude, which is the remainder of
    // the magnitude; and the magnitude of -32768 does not fit in the signed type.
    usize::from(key_hash(key).unsigned_abs()) % partitions
}

/// The 16-bit hash of `key`.
///
/// With 16 bits there are 32 769 magnitudes at most, so a hub with more partitions than that
/// would have some that no key reaches. The hash of the empty key is zero.
///
/// # Examples
///
/// ```
/// assert_eq!(hublane::hash::key_hash("7"), -15263);
/// ```
#[must_use]
pub fn key_hash(key: &str) -> i16 {
    let (first, second) = lookup3(key.as_bytes());
    let [low, high, _, _] = (first ^ second).to_le_bytes();
    i16::from_le_bytes([low, high])
}

/// `hashlittle2` with both seeds zero: (the primary result, the secondary result).
fn lookup3(bytes: &[u8]) -> (u32, u32) {
    // Lengths are taken modulo 2^32, as the C original's `uint32_t` cast does.
    let start = 0xDEAD_BEEF_u32.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);

    let mut rest = bytes;
    // Strictly more than 12: a last block of 12 bytes belongs to the final mix.
    while rest.len() > 12 {
        let (block, after) = rest.split_at(12);
        a = a.wrapping_add(word(block, 0));
        b = b.wrapping_add(word(block, 4));
        c = c.wrapping_add(word(block, 8));
        (a, b, c) = mix(a, b, c);
        rest = after;
    }
    // Only the empty key has nothing left here, and it is not mixed at all.
    if !rest.is_empty() {
        let mut block = [0; 12];
        block[..rest.len()].copy_from_slice(rest);
        a = a.wrapping_add(word(&block, 0));
        b = b.wrapping_add(word(&block, 4));
        c = c.wrapping_add(word(&block, 8));
        (b, c) = final_mix(a, b, c);
    }
    (c, b)
}

/// The little-endian word at `at`.
fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// lookup3's `mix`: reversible, so no two states of one length fall together.
fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    (a, b, c)
}

/// lookup3's `final`: (b, c), the two results.
fn final_mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32) {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    (b, c)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Vector {
        key: String,
        hash: i16,
        partition_of: BTreeMap<usize, usize>,
        official: bool,
    }

    fn vectors() -> Vec<Vector> {
        let text = include_str!("../../tests/data/partition_key_vectors.json");
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn every_vector_hashes_as_published() {
        let vectors = vectors();
        assert_eq!(vectors.iter().filter(|vector| vector.official).count(), 12);
        for Vector { key, hash, .. } in &vectors {
            assert_eq!(key_hash(key), *hash, "{key}");
        }
    }

    #[test]
    fn every_vector_falls_in_its_partition() {
        for Vector {
            key, partition_of, ..
        } in vectors()
        {
            assert!(!partition_of.is_empty(), "{key}");
            for (partitions, index) in partition_of {
                assert_eq!(
                    partition_index(&key, partitions),
                    index,
                    "{key} of {partitions}"
                );
            }
        }
    }

    #[test]
    fn one_partition_takes_every_key() {
        for vector in vectors() {
            assert_eq!(partition_index(&vector.key, 1), 0);
        }
    }

    /// `driver5` of the lookup3 source: the published results for "" with both seeds zero, and
    /// for a text of 30 bytes, which runs the loop twice.
    #[test]
    fn the_hash_agrees_with_the_self_test_of_its_author() {
        assert_eq!(lookup3(b""), (0xdead_beef, 0xdead_beef));
        assert_eq!(
            lookup3(b"Four score and seven years ago"),
            (0x1777_0551, 0xce72_26e6)
        );
    }

    #[test]
    #[should_panic(expected = "at least one partition")]
    fn no_partition_at_all_is_a_mistake_of_the_caller() {
        let _ = partition_index("a", 0);
    }
}
