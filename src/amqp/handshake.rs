//! From a socket to an open connection: headers, SASL ANONYMOUS, `open` (AMQP 1.0, 2.2, 5.3
//! and 2.4.1).

use super::connection::PeerLimits;
use super::errors;
use super::options::Settings;
use super::socket::Socket;
use super::wire::{AMQP_HEADER, Inbound, Outbound, SASL_HEADER};
use crate::transport::LinkError;
use fe2o3_amqp::frames::amqp::FrameBody;
use fe2o3_amqp::frames::sasl;
use fe2o3_amqp_types::performatives::{ChannelMax, Close, MaxFrameSize, Open};
use fe2o3_amqp_types::sasl::{SaslCode, SaslInit};
use serde_amqp::primitives::Symbol;
use std::io;
use std::pin::pin;
use tokio::io::AsyncReadExt;

/// Sessions that a connection may have; the service announces as many.
const CHANNEL_MAX: u16 = 4999;

const ANONYMOUS: &str = "ANONYMOUS";

/// Opens a connection over `socket`. What came after the peer's `open` is left in `inbound`.
pub(super) async fn shake_hands(
    socket: &mut Socket,
    inbound: &mut Inbound,
    settings: &Settings,
) -> Result<PeerLimits, LinkError> {
    let mut peer = Peer { socket, inbound };
    peer.exchange_headers(SASL_HEADER, "SASL").await?;
    peer.authenticate(settings).await?;
    peer.exchange_headers(AMQP_HEADER, "AMQP").await?;
    peer.open(settings).await
}

struct Peer<'a> {
    socket: &'a mut Socket,
    inbound: &'a mut Inbound,
}

impl Peer<'_> {
    async fn exchange_headers(&mut self, header: [u8; 8], layer: &str) -> Result<(), LinkError> {
        let mut out = Outbound::default();
        out.put(&header);
        self.write(out).await?;
        loop {
            if let Some(answer) = self.inbound.take_header()? {
                if answer == header {
                    return Ok(());
                }
                // A peer that wants something else answers with the header of that (2.2).
                let what = format!("the peer does not take {layer} 1.0, it answered {answer:02x?}");
                return Err(LinkError::new(errors::NOT_AMQP, what));
            }
            self.read().await?;
        }
    }

    async fn authenticate(&mut self, settings: &Settings) -> Result<(), LinkError> {
        loop {
            let Some(frame) = self.inbound.take_sasl()? else {
                self.read().await?;
                continue;
            };
            match frame {
                sasl::Frame::Mechanisms(offer) => {
                    let offered = &offer.sasl_server_mechanisms.0;
                    if !offered.iter().any(|name| name.as_str() == ANONYMOUS) {
                        let what = "the peer offers no SASL ANONYMOUS";
                        return Err(LinkError::new(errors::NOT_AMQP, what));
                    }
                    let mut out = Outbound::default();
                    out.put_sasl(&SaslInit {
                        mechanism: Symbol::from(ANONYMOUS),
                        initial_response: None,
                        hostname: Some(settings.host.clone()),
                    });
                    self.write(out).await?;
                }
                sasl::Frame::Outcome(outcome) => {
                    return match outcome.code {
                        SaslCode::Ok => Ok(()),
                        SaslCode::Auth => {
                            let what = "the peer refused SASL ANONYMOUS";
                            Err(LinkError::new(errors::UNAUTHORIZED, what))
                        }
                        code => {
                            let what = format!("SASL failed on the peer's side: {code:?}");
                            Err(LinkError::new("amqp:internal-error", what))
                        }
                    };
                }
                _ => return Err(out_of_turn("a SASL frame")),
            }
        }
    }

    async fn open(&mut self, settings: &Settings) -> Result<PeerLimits, LinkError> {
        let idle = settings.idle_time_out.as_millis();
        let open = Open {
            container_id: settings.container_id.clone(),
            hostname: Some(settings.host.clone()),
            max_frame_size: MaxFrameSize(settings.max_frame_size),
            channel_max: ChannelMax(CHANNEL_MAX),
            idle_time_out: Some(u32::try_from(idle).unwrap_or(u32::MAX)),
            outgoing_locales: None,
            incoming_locales: None,
            offered_capabilities: None,
            desired_capabilities: None,
            properties: None,
        };
        let mut out = Outbound::default();
        out.put_frame(0, &open);
        self.write(out).await?;
        loop {
            let Some(frame) = self.inbound.take_frame()? else {
                self.read().await?;
                continue;
            };
            match frame.body {
                FrameBody::Empty => {}
                FrameBody::Open(open) => {
                    let mut limits = PeerLimits::new(&open, settings.max_frame_size);
                    limits.channel_max = limits.channel_max.min(CHANNEL_MAX);
                    return Ok(limits);
                }
                FrameBody::Close(close) => {
                    let mut out = Outbound::default();
                    out.put_frame(0, &Close { error: None });
                    // A courtesy to a peer that has said its last word already.
                    let _ = self.write(out).await;
                    return Err(errors::told(close.error, "the peer closed the connection"));
                }
                _ => return Err(out_of_turn("a frame")),
            }
        }
    }

    async fn write(&mut self, mut out: Outbound) -> Result<(), LinkError> {
        let mut socket = pin!(&mut *self.socket);
        std::future::poll_fn(|context| out.poll_write(context, socket.as_mut(), &mut 0))
            .await
            .map_err(|error| errors::lost(&error))
    }

    async fn read(&mut self) -> Result<(), LinkError> {
        self.inbound.bytes.reserve(4096);
        match self.socket.read_buf(&mut self.inbound.bytes).await {
            Ok(0) => Err(errors::lost(&io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(error) => Err(errors::lost(&error)),
        }
    }
}

fn out_of_turn(what: &str) -> LinkError {
    LinkError::new(errors::FRAMING, format!("the peer sent {what} out of turn"))
}
