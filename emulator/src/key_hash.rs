//! The service's map from partition key to partition.
//!
//! The hash is Bob Jenkins' public-domain `lookup3` in its two-word little-endian form; the public
//! SDKs fold it to sixteen signed bits.

/// The partition index of a key among `count` partitions.
pub(crate) fn partition_of(key: &str, count: usize) -> usize {
    // A remainder of an i16 is smaller than the count in magnitude, whatever the count.
    let hash = i64::from(hash(key.as_bytes()));
    let count = i64::try_from(count.max(1)).unwrap_or(i64::MAX);
    usize::try_from((hash % count).unsigned_abs()).unwrap_or(0)
}

fn hash(key: &[u8]) -> i16 {
    let (c, b) = lookup3(key);
    (c ^ b) as u16 as i16
}

fn lookup3(key: &[u8]) -> (u32, u32) {
    // The length enters as 32 bits; keys are far shorter.
    let start = 0xdead_beef_u32.wrapping_add(key.len() as u32);
    let mut words = [start; 3];
    let mut rest = key;
    while rest.len() > 12 {
        let (block, tail) = rest.split_at(12);
        add_block(&mut words, block);
        mix(&mut words);
        rest = tail;
    }
    if !rest.is_empty() {
        add_block(&mut words, rest);
        finish(&mut words);
    }
    (words[2], words[1])
}

/// Adds up to twelve bytes as three little-endian words, zeros standing for what is missing.
fn add_block(words: &mut [u32; 3], block: &[u8]) {
    for (word, bytes) in words.iter_mut().zip(block.chunks(4)) {
        let mut padded = [0; 4];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = word.wrapping_add(u32::from_le_bytes(padded));
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: &mut u32, z: &mut u32, turn: u32| {
        *x = x.wrapping_sub(*z) ^ z.rotate_left(turn);
        *z = z.wrapping_add(*y);
    };
    step(a, b, c, 4);
    step(b, c, a, 6);
    step(c, a, b, 8);
    step(a, b, c, 16);
    step(b, c, a, 19);
    step(c, a, b, 4);
}

fn finish([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: u32, turn: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(turn));
    step(c, *b, 14);
    step(a, *c, 11);
    step(b, *a, 25);
    step(c, *b, 16);
    step(a, *c, 4);
    step(b, *a, 14);
    step(c, *b, 24);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_agree_with_the_public_vectors() {
        for (key, expected) in [
            ("7", -15263),
            ("131", 30562),
            ("7149583486996073602", 12977),
            ("FWfAT", -22341),
            ("sOdeEAsyQoEuEFPGerWO", -6503),
            ("!c*_!I@1^c", 15372),
            ("p4*!jioeO/z-!-;w:dh", -3104),
            ("$0cb", 26269),
            ("-4189260826195535198", 453),
            ("", 0),
            ("abcdefghijkl", -2373),
            ("abcdefghijklm", -31855),
            ("é", -24812),
            ("日本語", -23353),
            ("😀", -17126),
        ] {
            assert_eq!(hash(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn partitions_agree_with_the_public_vectors() {
        for (key, of_3, of_32) in [
            ("7", 2, 31),
            ("131", 1, 2),
            ("FWfAT", 0, 5),
            ("$0cb", 1, 29),
            ("", 0, 0),
        ] {
            assert_eq!(partition_of(key, 3), of_3, "{key}");
            assert_eq!(partition_of(key, 32), of_32, "{key}");
        }
        assert_eq!(partition_of("a", 1), 0);
    }
}
