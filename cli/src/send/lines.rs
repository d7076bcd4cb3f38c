//! The lines of an input, as they become available, in constant memory.

use std::io::{self, Read};
use std::ops::Range;

/// Bytes asked for in one read.
const READ_BYTES: usize = 64 * 1024;

/// The longest line that is looked at, in bytes: the largest message that any tier of the
/// service takes. What the hub at hand takes is decided when the line is sent.
pub const MAX_LINE_BYTES: usize = 20 * 1024 * 1024;

/// Some lines, as many as one read completed.
#[derive(Debug, Default)]
pub struct Chunk {
    bytes: Vec<u8>,
    lines: Vec<(u64, Extent)>,
    /// Bytes of the input up to the end of this chunk.
    pub position: u64,
}

/// Where a line is, if anywhere.
#[derive(Clone, Debug)]
enum Extent {
    Here(Range<usize>),
    TooLong,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its number, counted from 1.
    pub number: u64,
    /// Its text without its end; `None` if it is longer than [`MAX_LINE_BYTES`].
    pub text: Option<&'a [u8]>,
}

impl Chunk {
    /// The lines, in order.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.lines.iter().map(|(number, extent)| Line {
            number: *number,
            text: match extent {
                Extent::Here(range) => Some(&self.bytes[range.clone()]),
                Extent::TooLong => None,
            },
        })
    }
}

/// Cuts an input into lines. Holds at most one line and one read of it.
#[derive(Debug)]
pub struct Lines<R> {
    input: R,
    limit: usize,
    /// The beginning of a line whose end was not read yet.
    carry: Vec<u8>,
    /// The line that is being read is too long, and `carry` does not hold its beginning.
    too_long: bool,
    /// Lines completed so far.
    number: u64,
    position: u64,
    ended: bool,
}

impl<R: Read> Lines<R> {
    /// The lines of `input`.
    pub fn new(input: R) -> Lines<R> {
        Lines::with_limit(input, MAX_LINE_BYTES)
    }

    fn with_limit(input: R, limit: usize) -> Lines<R> {
        Lines {
            input,
            limit,
            carry: Vec::new(),
            too_long: false,
            number: 0,
            position: 0,
            ended: false,
        }
    }

    /// The next lines, or `None` at the end; waits only until at least one line is complete.
    ///
    /// # Errors
    ///
    /// What the input refuses with. The line that it broke is not given out.
    pub fn next_chunk(&mut self) -> io::Result<Option<Chunk>> {
        while !self.ended {
            let start = self.carry.len();
            self.carry.resize(start + READ_BYTES, 0);
            let read = loop {
                match self.input.read(&mut self.carry[start..]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            let read = match read {
                Ok(read) => read,
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            };
            self.carry.truncate(start + read);
            self.position += read as u64;
            if read == 0 {
                self.ended = true;
                return Ok((!self.carry.is_empty() || self.too_long).then(|| self.cut(start)));
            }
            match self.carry[start..].iter().rposition(|&byte| byte == b'\n') {
                Some(at) => return Ok(Some(self.cut(start + at + 1))),
                // One more than the limit, because the last byte may be half of a line end.
                None if self.carry.len() > self.limit + 1 => {
                    self.carry.clear();
                    self.too_long = true;
                }
                None => {}
            }
        }
        Ok(None)
    }

    /// Gives out what was read up to `end`, which is the end of a line or of the input.
    fn cut(&mut self, end: usize) -> Chunk {
        let rest = self.carry.split_off(end);
        let bytes = std::mem::replace(&mut self.carry, rest);
        let mut lines = Vec::new();
        let mut start = 0;
        while start < bytes.len() || self.too_long {
            let newline = bytes[start..].iter().position(|&byte| byte == b'\n');
            let next = newline.map_or(bytes.len(), |at| start + at + 1);
            let mut text = start..newline.map_or(bytes.len(), |at| start + at);
            if newline.is_some() && bytes[text.clone()].last() == Some(&b'\r') {
                text.end -= 1;
            }
            self.number += 1;
            let extent = if std::mem::take(&mut self.too_long) || text.len() > self.limit {
                Extent::TooLong
            } else {
                Extent::Here(text)
            };
            lines.push((self.number, extent));
            start = next;
        }
        Chunk {
            bytes,
            lines,
            position: self.position,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives out its pieces one by one, as a pipe does.
    struct Pieces(Vec<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            if piece == b"!" {
                return Err(io::Error::other("broken"));
            }
            buffer[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    fn pieces(texts: &[&str]) -> Pieces {
        Pieces(texts.iter().map(|text| text.as_bytes().to_vec()).collect())
    }

    fn all(mut lines: Lines<Pieces>) -> Vec<(u64, Option<String>)> {
        let mut found = Vec::new();
        while let Some(chunk) = lines.next_chunk().unwrap() {
            found.extend(chunk.lines().map(|line| {
                let text = line
                    .text
                    .map(|text| String::from_utf8(text.to_vec()).unwrap());
                (line.number, text)
            }));
        }
        found
    }

    fn texts(input: &[&str]) -> Vec<String> {
        all(Lines::new(pieces(input)))
            .into_iter()
            .enumerate()
            .map(|(index, (number, text))| {
                assert_eq!(number, index as u64 + 1);
                text.unwrap()
            })
            .collect()
    }

    #[test]
    fn lines_are_the_same_however_the_input_is_cut() {
        let text = "a\nbc\r\n\n\rd\re\nlast";
        let expected = ["a", "bc", "", "\rd\re", "last"];
        for size in 1..=text.len() {
            let cut: Vec<_> = text
                .as_bytes()
                .chunks(size)
                .map(|piece| std::str::from_utf8(piece).unwrap())
                .collect();
            assert_eq!(texts(&cut), expected, "pieces of {size}");
        }
    }

    #[test]
    fn the_end_of_the_last_line_is_optional() {
        assert_eq!(texts(&["a\n"]), ["a"]);
        assert_eq!(texts(&["a"]), ["a"]);
        assert_eq!(texts(&["a\r"]), ["a\r"]);
        assert_eq!(texts(&[]), Vec::<String>::new());
        assert_eq!(texts(&["\n"]), [""]);
    }

    #[test]
    fn a_line_comes_as_soon_as_it_is_complete() {
        let mut lines = Lines::new(pieces(&["a\nb", "c\n", "!"]));
        let count = |chunk: Chunk| chunk.lines().count();
        assert_eq!(lines.next_chunk().unwrap().map(count), Some(1));
        assert_eq!(lines.next_chunk().unwrap().map(count), Some(1));
        assert!(lines.next_chunk().is_err());
        assert!(lines.next_chunk().unwrap().is_none());
    }

    #[test]
    fn a_line_at_the_limit_is_read_and_one_past_it_is_not() {
        let limited = |input: &[&str]| all(Lines::with_limit(pieces(input), 4));
        let here = |number, text: &str| (number, Some(text.to_owned()));
        assert_eq!(
            limited(&["1234\n12345\nx\n"]),
            [here(1, "1234"), (2, None), here(3, "x")]
        );
        // In pieces, so that its beginning is thrown away before its end is known.
        assert_eq!(
            limited(&["a\n123", "456", "789\nx", "\n"]),
            [here(1, "a"), (2, None), here(3, "x")]
        );
        assert_eq!(limited(&["12345", "\n"]), [(1, None)]);
        assert_eq!(limited(&["12345"]), [(1, None)]);
        assert_eq!(limited(&["12345", "6"]), [(1, None)]);
    }

    #[test]
    fn positions_count_bytes() {
        let mut lines = Lines::new(pieces(&["a\nb", "c"]));
        assert_eq!(lines.next_chunk().unwrap().unwrap().position, 3);
        assert_eq!(lines.next_chunk().unwrap().unwrap().position, 4);
    }
}
