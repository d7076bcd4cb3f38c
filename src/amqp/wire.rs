//! Frames and bytes: what comes off the socket, and what waits to go onto it.
//!
//! Frames are decoded by fe2o3-amqp and performatives encoded by its serde_amqp; the cut between
//! frames is made here, so that no length which a peer names is believed unchecked, and so that
//! a batch goes from its lane's buffer to the socket without a copy.

use super::errors::{FRAMING, NOT_AMQP};
use crate::transport::LinkError;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use fe2o3_amqp::frames::{amqp, sasl};
use fe2o3_amqp_types::performatives::Transfer;
use serde::Serialize;
use serde_amqp::ser::Serializer;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;
use tokio_util::codec::Decoder;

/// The length of a frame's header (AMQP 1.0, 2.3.1).
pub(super) const FRAME_HEADER: usize = 8;

/// The header that opens SASL, and the one that opens AMQP (5.3.1 and 2.2).
pub(super) const SASL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";
pub(super) const AMQP_HEADER: [u8; 8] = *b"AMQP\x00\x01\x00\x00";

/// A payload below this is copied behind its performative: cheaper than a slice of its own.
const COPIED: usize = 1024;

/// Slices handed to the socket at once; the system's limit is 1024.
const MAX_SLICES: usize = 32;

/// Bytes that were read and are not a whole frame yet.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) bytes: BytesMut,
    max_frame: usize,
}

impl Inbound {
    /// An empty buffer for frames of at most `max_frame` bytes.
    pub(super) fn new(max_frame: usize) -> Inbound {
        Inbound {
            bytes: BytesMut::new(),
            max_frame,
        }
    }

    /// Takes a protocol header, if all of it is there.
    pub(super) fn take_header(&mut self) -> Result<Option<[u8; 8]>, LinkError> {
        let start = &self.bytes[..self.bytes.len().min(4)];
        if !b"AMQP".starts_with(start) {
            let what = "the peer does not speak AMQP 1.0";
            return Err(LinkError::new(NOT_AMQP, what));
        }
        let header = self.bytes.first_chunk::<8>().copied();
        if header.is_some() {
            self.bytes.advance(8);
        }
        Ok(header)
    }

    /// Takes the next AMQP frame, if all of it is there.
    pub(super) fn take_frame(&mut self) -> Result<Option<amqp::Frame>, LinkError> {
        let Some(mut frame) = self.cut()? else {
            return Ok(None);
        };
        decoded(|| amqp::FrameDecoder {}.decode(&mut frame))
    }

    /// Takes the next SASL frame, if all of it is there.
    pub(super) fn take_sasl(&mut self) -> Result<Option<sasl::Frame>, LinkError> {
        let Some(mut frame) = self.cut()? else {
            return Ok(None);
        };
        decoded(|| sasl::FrameCodec {}.decode(&mut frame))
    }

    /// Cuts a frame off, without its length and its extended header, which means nothing here.
    fn cut(&mut self) -> Result<Option<BytesMut>, LinkError> {
        let Some(length) = self.bytes.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if !(FRAME_HEADER..=self.max_frame).contains(&length) {
            let what = format!("a frame of {length} bytes");
            return Err(LinkError::new(FRAMING, what));
        }
        if self.bytes.len() < length {
            self.bytes.reserve(length - self.bytes.len());
            return Ok(None);
        }
        let mut frame = self.bytes.split_to(length);
        let offset = usize::from(frame[4]) * 4;
        if !(FRAME_HEADER..=length).contains(&offset) {
            let what = format!("a frame whose body begins at {offset}");
            return Err(LinkError::new(FRAMING, what));
        }
        if offset > FRAME_HEADER {
            let (kind, channel) = (frame[5], [frame[6], frame[7]]);
            frame.advance(offset - FRAME_HEADER);
            frame[4..FRAME_HEADER].copy_from_slice(&[2, kind, channel[0], channel[1]]);
        }
        frame.advance(4);
        Ok(Some(frame))
    }
}

fn decoded<F, E: std::fmt::Display>(
    decode: impl FnOnce() -> Result<Option<F>, E>,
) -> Result<Option<F>, LinkError> {
    guarded(decode)?
        .map_err(|error| LinkError::new(FRAMING, format!("a frame cannot be read: {error}")))
}

/// Runs a decoder over what a peer sent. A panic in it would be a fault of the library, and is
/// one more way in which bytes cannot be read.
pub(super) fn guarded<T>(decode: impl FnOnce() -> T) -> Result<T, LinkError> {
    catch_unwind(AssertUnwindSafe(decode))
        .map_err(|_| LinkError::new(FRAMING, "the decoder gave up"))
}

/// Bytes that wait for the socket, in order.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    chunks: VecDeque<Bytes>,
    /// What is encoded but not yet in `chunks`.
    tail: BytesMut,
    /// The length of both together.
    len: usize,
    /// Bytes were given to the writer that it may hold back (TLS does).
    unflushed: bool,
}

impl Outbound {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether the socket has nothing left to do.
    pub(super) fn is_idle(&self) -> bool {
        self.len == 0 && !self.unflushed
    }

    /// Appends bytes as they are.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends an empty frame, which only shows that this end lives (2.4.5).
    pub(super) fn put_heartbeat(&mut self) {
        self.put(&[0, 0, 0, 8, 2, 0, 0, 0]);
    }

    /// Appends a frame with a performative of AMQP.
    pub(super) fn put_frame(&mut self, channel: u16, performative: &impl Serialize) {
        self.put_performative(0, channel, performative, 0);
    }

    /// Appends a frame of SASL.
    pub(super) fn put_sasl(&mut self, performative: &impl Serialize) {
        self.put_performative(1, 0, performative, 0);
    }

    /// Appends a frame with as much of `payload` as fits in `max_frame` bytes, and returns how
    /// much that is. The `more` of `transfer` is set by what is left.
    pub(super) fn put_transfer(
        &mut self,
        channel: u16,
        transfer: &mut Transfer,
        payload: &Bytes,
        max_frame: usize,
    ) -> usize {
        let start = self.tail.len();
        transfer.more = true;
        self.put_performative(0, channel, transfer, 0);
        // Without `more` the performative is not longer.
        let room = max_frame.saturating_sub(self.tail.len() - start).max(1);
        let taken = payload.len().min(room);
        if taken == payload.len() {
            self.len -= self.tail.len() - start;
            self.tail.truncate(start);
            transfer.more = false;
            self.put_performative(0, channel, transfer, taken);
        } else {
            self.set_length(start, taken);
        }
        if taken < COPIED {
            self.put(&payload[..taken]);
        } else {
            self.chunks.push_back(self.tail.split().freeze());
            self.chunks.push_back(payload.slice(..taken));
            self.len += taken;
        }
        taken
    }

    fn put_performative(
        &mut self,
        kind: u8,
        channel: u16,
        performative: &impl Serialize,
        payload: usize,
    ) {
        let start = self.tail.len();
        self.tail.put_u32(0);
        self.tail.put_slice(&[2, kind]);
        self.tail.put_u16(channel);
        let mut serializer = Serializer::from((&mut self.tail).writer());
        if let Err(error) = performative.serialize(&mut serializer) {
            // The performatives are this module's own; their types have an encoding.
            tracing::error!(%error, "a performative cannot be encoded");
            debug_assert!(false, "a performative cannot be encoded: {error}");
        }
        self.len += self.tail.len() - start;
        self.set_length(start, payload);
    }

    /// Writes the length of the frame that begins at `start` of the tail.
    fn set_length(&mut self, start: usize, payload: usize) {
        let length = u32::try_from(self.tail.len() - start + payload).unwrap_or(u32::MAX);
        self.tail[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Writes until nothing is left or the socket takes no more. Ready when all is written and
    /// flushed, or on an error; the number of bytes written is added to `written` either way.
    pub(super) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        mut io: Pin<&mut (impl AsyncWrite + ?Sized)>,
        written: &mut u64,
    ) -> Poll<io::Result<()>> {
        if !self.tail.is_empty() {
            self.chunks.push_back(self.tail.split().freeze());
        }
        while self.len > 0 {
            let n = {
                let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                let mut count = 0;
                for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
                    *slice = IoSlice::new(chunk);
                    count += 1;
                }
                ready!(io.as_mut().poll_write_vectored(context, &slices[..count]))?
            };
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *written += n as u64;
            self.unflushed = true;
            self.advance(n);
        }
        if self.unflushed {
            ready!(io.poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut n: usize) {
        self.len -= n.min(self.len);
        while let Some(chunk) = self.chunks.front_mut() {
            if n < chunk.len() {
                chunk.advance(n);
                return;
            }
            n -= chunk.len();
            self.chunks.pop_front();
        }
    }
}
