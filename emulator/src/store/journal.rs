//! A file of all batches, written before they are acknowledged.
//!
//! One record holds one batch: a header of two little-endian words (length and CRC-32 of what
//! follows), then hub name, partition, time, event ranges and payload. A record that is cut off or
//! damaged ends the journal: it and all behind it are removed when the file is opened.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    ops::Range,
    path::Path,
};

use bytes::{Buf, Bytes};

/// Larger lengths are damage: a batch cannot exceed a message, nor a message this.
const MAX_RECORD: u32 = 256 << 20;
const HEADER_LEN: usize = 8;

/// One batch as the journal holds it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) hub: String,
    pub(crate) partition: usize,
    pub(crate) enqueued_ms: i64,
    pub(crate) events: Vec<Range<u32>>,
    pub(crate) payload: Bytes,
}

/// The open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// After a failed write the end of the file is unknown, so nothing more is written.
    broken: bool,
    buffer: Vec<u8>,
}

impl Journal {
    /// Opens or creates the file and hands every record in it to `load`.
    pub(crate) fn open(path: &Path, mut load: impl FnMut(Record)) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let end = {
            let mut reader = BufReader::with_capacity(1 << 20, &mut file);
            let mut end = 0;
            while let Some((record, len)) = read_record(&mut reader)? {
                load(record);
                end += len;
            }
            end
        };
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        file.sync_data()?;
        Ok(Self {
            file,
            broken: false,
            buffer: Vec::new(),
        })
    }

    /// Writes one record and waits until it is on the disk.
    pub(crate) fn append(
        &mut self,
        hub: &str,
        partition: usize,
        enqueued_ms: i64,
        events: &[Range<u32>],
        payload: &[u8],
    ) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier write to the journal failed"));
        }
        encode(
            &mut self.buffer,
            hub,
            partition,
            enqueued_ms,
            events,
            payload,
        )?;
        let written = self
            .file
            .write_all(&self.buffer)
            .and_then(|()| self.file.sync_data());
        self.broken = written.is_err();
        written
    }
}

fn encode(
    out: &mut Vec<u8>,
    hub: &str,
    partition: usize,
    enqueued_ms: i64,
    events: &[Range<u32>],
    payload: &[u8],
) -> io::Result<()> {
    out.clear();
    out.extend_from_slice(&[0; HEADER_LEN]);
    put_len(out, hub.len())?;
    out.extend_from_slice(hub.as_bytes());
    put_len(out, partition)?;
    out.extend_from_slice(&enqueued_ms.to_le_bytes());
    put_len(out, events.len())?;
    for range in events {
        out.extend_from_slice(&range.start.to_le_bytes());
        out.extend_from_slice(&range.end.to_le_bytes());
    }
    out.extend_from_slice(payload);
    let body = &out[HEADER_LEN..];
    let len = u32::try_from(body.len())
        .ok()
        .filter(|len| *len <= MAX_RECORD);
    let len = len.ok_or_else(|| io::Error::other("the batch is too large for the journal"))?;
    let crc = crc32fast::hash(body);
    out[..4].copy_from_slice(&len.to_le_bytes());
    out[4..HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

fn put_len(out: &mut Vec<u8>, len: usize) -> io::Result<()> {
    let len = u32::try_from(len).map_err(io::Error::other)?;
    out.extend_from_slice(&len.to_le_bytes());
    Ok(())
}

/// The next whole record with its length in the file, `None` at the end or at damage.
fn read_record(reader: &mut impl Read) -> io::Result<Option<(Record, u64)>> {
    let mut header = Vec::with_capacity(HEADER_LEN);
    reader
        .by_ref()
        .take(HEADER_LEN as u64)
        .read_to_end(&mut header)?;
    if header.len() < HEADER_LEN {
        return Ok(None);
    }
    let mut words = &header[..];
    let (len, crc) = (words.get_u32_le(), words.get_u32_le());
    if len > MAX_RECORD {
        return Ok(None);
    }
    let mut body = Vec::new();
    reader
        .by_ref()
        .take(u64::from(len))
        .read_to_end(&mut body)?;
    if body.len() < len as usize || crc32fast::hash(&body) != crc {
        return Ok(None);
    }
    let record = decode(Bytes::from(body));
    Ok(record.map(|record| (record, u64::from(len) + HEADER_LEN as u64)))
}

fn decode(mut body: Bytes) -> Option<Record> {
    let hub_len = body.try_get_u32_le().ok()? as usize;
    if hub_len > body.len() {
        return None;
    }
    let hub = String::from_utf8(body.split_to(hub_len).to_vec()).ok()?;
    let partition = body.try_get_u32_le().ok()? as usize;
    let enqueued_ms = body.try_get_i64_le().ok()?;
    let count = body.try_get_u32_le().ok()? as usize;
    if count.checked_mul(8)? > body.len() {
        return None;
    }
    let mut events = Vec::with_capacity(count);
    for _ in 0..count {
        events.push(body.get_u32_le()..body.get_u32_le());
    }
    let inside = |range: &Range<u32>| range.start <= range.end && range.end as usize <= body.len();
    if events.is_empty() || !events.iter().all(inside) {
        return None;
    }
    Some(Record {
        hub,
        partition,
        enqueued_ms,
        events,
        payload: body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(payload: &'static [u8]) -> Record {
        Record {
            hub: "hub".into(),
            partition: 3,
            enqueued_ms: 17,
            events: vec![0..1, 1..2],
            payload: Bytes::from_static(payload),
        }
    }

    fn encoded(record: &Record) -> Vec<u8> {
        let mut out = Vec::new();
        encode(
            &mut out,
            &record.hub,
            record.partition,
            record.enqueued_ms,
            &record.events,
            &record.payload,
        )
        .unwrap();
        out
    }

    #[test]
    fn a_record_comes_back_and_no_prefix_of_it_does() {
        let bytes = encoded(&record(b"ab"));
        let (back, len) = read_record(&mut &bytes[..]).unwrap().unwrap();
        assert_eq!((back, len), (record(b"ab"), bytes.len() as u64));
        for end in 0..bytes.len() {
            assert!(
                read_record(&mut &bytes[..end]).unwrap().is_none(),
                "prefix of {end}"
            );
        }
    }

    #[test]
    fn a_flipped_bit_ends_the_journal() {
        for at in 0..encoded(&record(b"ab")).len() {
            let mut bytes = encoded(&record(b"ab"));
            bytes[at] ^= 0x10;
            assert!(read_record(&mut &bytes[..]).unwrap().is_none(), "byte {at}");
        }
    }
}
