//! Protocol headers and SASL, part 5.3 of the specification.

use bytes::BytesMut;
use serde_amqp::{Value, primitives::Array};
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::core::{Core, MAX_FRAME, Verdict};
use crate::{
    fault::{Action, Site, Step},
    wire::{
        code,
        fields::{self, Fields, composite, symbol},
        frame::{self, FrameKind},
        scan::{self, Malformed},
    },
};

/// The list that the service announces. No credentials are checked here: tokens are what counts.
const MECHANISMS: [&str; 4] = ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"];

const SASL_OK: u8 = 0;
const SASL_AUTH: u8 = 1;

/// Why a connection did not get as far as AMQP.
#[derive(Debug, Error)]
pub(crate) enum HandshakeError {
    #[error("the socket failed")]
    Io(#[from] std::io::Error),
    #[error("the peer broke the protocol")]
    Malformed(#[from] Malformed),
    #[error("the peer speaks another protocol")]
    Header,
    #[error("the peer chose an unknown mechanism")]
    Mechanism,
    #[error("a fault was asked for")]
    Fault,
}

/// Exchanges headers up to the AMQP header; what the peer sent ahead is left in `input`.
pub(crate) async fn shake_hands(
    stream: &mut TcpStream,
    input: &mut BytesMut,
    core: &mut Core,
) -> Result<(), HandshakeError> {
    let mut header = read_header(stream, input).await?;
    if header == frame::SASL_HEADER {
        stream.write_all(&frame::SASL_HEADER).await?;
        sasl(stream, input, core).await?;
        header = read_header(stream, input).await?;
    }
    // The answer to anything else is what would have been understood, part 2.2.
    stream.write_all(&frame::AMQP_HEADER).await?;
    if header == frame::AMQP_HEADER {
        Ok(())
    } else {
        Err(HandshakeError::Header)
    }
}

async fn sasl(
    stream: &mut TcpStream,
    input: &mut BytesMut,
    core: &mut Core,
) -> Result<(), HandshakeError> {
    let names = MECHANISMS
        .iter()
        .map(|name| symbol(name))
        .collect::<Vec<_>>();
    let offer = composite(code::SASL_MECHANISMS, vec![Value::Array(Array(names))]);
    write_sasl(stream, &offer).await?;
    let body = loop {
        match frame::take_frame(input, MAX_FRAME)? {
            Some(frame) if frame.kind == FrameKind::Sasl => break frame.body,
            Some(_) => return Err(Malformed::BadFrame.into()),
            None => read_some(stream, input).await?,
        }
    };
    let (code, _) = scan::descriptor(&body)?;
    let (init, _) = scan::decode(&body)?;
    let init = Fields::of(init).filter(|_| code == code::SASL_INIT);
    let init = init.ok_or(Malformed::UnknownPerformative(code))?;
    let known = init.text(0).is_some_and(|name| MECHANISMS.contains(&name));
    let refuse = match core.strike(Site::step(Step::Sasl)) {
        Verdict::Skip => return Err(HandshakeError::Fault),
        Verdict::Special(Action::RefuseSasl) => true,
        Verdict::Proceed | Verdict::Special(_) => false,
    };
    let outcome = if known && !refuse { SASL_OK } else { SASL_AUTH };
    let outcome = composite(code::SASL_OUTCOME, vec![Value::Ubyte(outcome), Value::Null]);
    write_sasl(stream, &outcome).await?;
    match (known, refuse) {
        (_, true) => Err(HandshakeError::Fault),
        (false, _) => Err(HandshakeError::Mechanism),
        (true, false) => Ok(()),
    }
}

async fn write_sasl(stream: &mut TcpStream, performative: &Value) -> std::io::Result<()> {
    let mut out = BytesMut::new();
    frame::put_frame(
        &mut out,
        FrameKind::Sasl,
        0,
        &fields::encode(performative),
        &[],
    );
    stream.write_all(&out).await
}

async fn read_header(
    stream: &mut TcpStream,
    input: &mut BytesMut,
) -> Result<[u8; 8], HandshakeError> {
    loop {
        if let Some(header) = input.first_chunk::<8>().copied() {
            let _ = input.split_to(8);
            return Ok(header);
        }
        read_some(stream, input).await?;
    }
}

async fn read_some(stream: &mut TcpStream, input: &mut BytesMut) -> Result<(), HandshakeError> {
    input.reserve(4096);
    if stream.read_buf(input).await? == 0 {
        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
    }
    Ok(())
}
