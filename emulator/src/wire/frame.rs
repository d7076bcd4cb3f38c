//! Frame headers, part 2.3 of the specification.

use bytes::{Buf, Bytes, BytesMut};

use super::scan::Malformed;

/// What the eight bytes before a protocol say, part 2.2.
pub(crate) const AMQP_HEADER: [u8; 8] = *b"AMQP\x00\x01\x00\x00";
/// The same for the SASL layer, part 5.3.1.
pub(crate) const SASL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";

const HEADER_LEN: usize = 8;

/// The layer to which a frame belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Amqp,
    Sasl,
}

/// One frame; an empty body is a heartbeat.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) channel: u16,
    pub(crate) body: Bytes,
}

/// Takes one frame off the front of `input`, or `None` until it is complete.
pub(crate) fn take_frame(input: &mut BytesMut, max: usize) -> Result<Option<Frame>, Malformed> {
    let Some(word) = input.first_chunk::<4>() else {
        return Ok(None);
    };
    let size = u32::from_be_bytes(*word) as usize;
    if size < HEADER_LEN || size > max {
        return Err(Malformed::BadFrame);
    }
    if input.len() < size {
        return Ok(None);
    }
    let mut frame = input.split_to(size);
    let offset = usize::from(frame[4]) * 4;
    if offset < HEADER_LEN || offset > size {
        return Err(Malformed::BadFrame);
    }
    let kind = match frame[5] {
        0 => FrameKind::Amqp,
        1 => FrameKind::Sasl,
        _ => return Err(Malformed::BadFrame),
    };
    let channel = u16::from_be_bytes([frame[6], frame[7]]);
    frame.advance(offset);
    Ok(Some(Frame {
        kind,
        channel,
        body: frame.freeze(),
    }))
}

/// Appends one frame made of `performative` and `payload`.
pub(crate) fn put_frame(
    out: &mut BytesMut,
    kind: FrameKind,
    channel: u16,
    performative: &[u8],
    payload: &[u8],
) {
    // The callers keep a frame below the peer's maximum, so the size fits.
    let size = HEADER_LEN + performative.len() + payload.len();
    out.reserve(size);
    out.extend_from_slice(&u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes());
    let [high, low] = channel.to_be_bytes();
    let layer = match kind {
        FrameKind::Amqp => 0,
        FrameKind::Sasl => 1,
    };
    out.extend_from_slice(&[2, layer, high, low]);
    out.extend_from_slice(performative);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_and_half_a_frame_does_not() {
        let mut out = BytesMut::new();
        put_frame(&mut out, FrameKind::Amqp, 3, b"perf", b"payload");
        let whole = out.clone();
        let mut half = BytesMut::from(&whole[..whole.len() - 1]);
        assert!(take_frame(&mut half, 512).unwrap().is_none());
        let frame = take_frame(&mut out, 512).unwrap().unwrap();
        assert_eq!((frame.channel, frame.kind), (3, FrameKind::Amqp));
        assert_eq!(&frame.body[..], b"perfpayload");
        assert!(out.is_empty());
    }

    #[test]
    fn bad_headers_are_refused() {
        for bytes in [
            [0, 0, 0, 7, 2, 0, 0, 0], // shorter than its own header
            [0, 0, 2, 1, 2, 0, 0, 0], // larger than the limit
            [0, 0, 0, 8, 1, 0, 0, 0], // data offset inside the header
            [0, 0, 0, 8, 3, 0, 0, 0], // data offset past the end
            [0, 0, 0, 8, 2, 9, 0, 0], // unknown layer
            *b"GET / HT",
        ] {
            let mut input = BytesMut::from(&bytes[..]);
            assert_eq!(
                take_frame(&mut input, 512).unwrap_err(),
                Malformed::BadFrame
            );
        }
    }
}
