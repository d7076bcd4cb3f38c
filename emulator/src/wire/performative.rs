//! The performatives a client sends, reduced to the fields that a broker acts on.

use bytes::Bytes;
use serde_amqp::Value;

use super::{
    code,
    fields::{Fields, text_of},
    scan::{self, Malformed},
};

/// One performative with what it carries.
#[derive(Debug)]
pub(crate) enum Performative {
    Open(Open),
    Begin(Begin),
    Attach(Box<Attach>),
    Flow(Flow),
    Transfer(Transfer),
    Disposition,
    Detach(Detach),
    End,
    Close,
}

#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) max_frame_size: u32,
    pub(crate) channel_max: u16,
    pub(crate) idle_time_out_ms: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) next_outgoing_id: u32,
    pub(crate) incoming_window: u32,
}

#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) name: String,
    pub(crate) handle: u32,
    /// True when the *client* receives on this link.
    pub(crate) client_receives: bool,
    pub(crate) sender_settle_mode: u64,
    pub(crate) source: Value,
    pub(crate) target: Value,
}

impl Attach {
    /// The address inside a source or target.
    pub(crate) fn address(terminus: &Value) -> Option<&str> {
        match terminus {
            Value::Described(described) => match &described.value {
                Value::List(list) => list.first().and_then(text_of),
                _ => None,
            },
            _ => None,
        }
    }

    /// The filter map inside a source.
    pub(crate) fn filter(&self) -> &Value {
        match &self.source {
            Value::Described(described) => match &described.value {
                Value::List(list) => list.get(7).unwrap_or(&Value::Null),
                _ => &Value::Null,
            },
            _ => &Value::Null,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) next_incoming_id: Option<u32>,
    pub(crate) incoming_window: u32,
    pub(crate) handle: Option<u32>,
    pub(crate) delivery_count: Option<u32>,
    pub(crate) link_credit: Option<u32>,
    pub(crate) drain: bool,
    pub(crate) echo: bool,
}

#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) handle: u32,
    pub(crate) delivery_id: Option<u32>,
    pub(crate) message_format: Option<u32>,
    pub(crate) settled: bool,
    pub(crate) more: bool,
    pub(crate) aborted: bool,
    pub(crate) payload: Bytes,
}

#[derive(Debug)]
pub(crate) struct Detach {
    pub(crate) handle: u32,
    pub(crate) closed: bool,
}

/// Decodes the body of an AMQP frame.
pub(crate) fn parse(body: &Bytes) -> Result<Performative, Malformed> {
    let (code, _) = scan::descriptor(body)?;
    let (value, len) = scan::decode(body)?;
    let fields = Fields::of(value).ok_or(Malformed::NotDescribed)?;
    match code {
        code::OPEN => open(&fields).map(Performative::Open),
        code::BEGIN => begin(&fields).map(Performative::Begin),
        code::ATTACH => attach(fields).map(|attach| Performative::Attach(Box::new(attach))),
        code::FLOW => flow(&fields).map(Performative::Flow),
        code::TRANSFER => transfer(&fields, body.slice(len..)).map(Performative::Transfer),
        code::DISPOSITION => Ok(Performative::Disposition),
        code::DETACH => Ok(Performative::Detach(Detach {
            handle: Fields::need(fields.uint(0)?, 0)?,
            closed: fields.flag(1)?,
        })),
        code::END => Ok(Performative::End),
        code::CLOSE => Ok(Performative::Close),
        other => Err(Malformed::UnknownPerformative(other)),
    }
}

fn open(fields: &Fields) -> Result<Open, Malformed> {
    Ok(Open {
        max_frame_size: fields.uint(2)?.unwrap_or(u32::MAX),
        channel_max: u16::try_from(fields.uint(3)?.unwrap_or(u32::from(u16::MAX)))
            .map_err(|_| Malformed::Field(3))?,
        idle_time_out_ms: fields.uint(4)?,
    })
}

fn begin(fields: &Fields) -> Result<Begin, Malformed> {
    Ok(Begin {
        next_outgoing_id: Fields::need(fields.uint(1)?, 1)?,
        incoming_window: Fields::need(fields.uint(2)?, 2)?,
    })
}

fn attach(mut fields: Fields) -> Result<Attach, Malformed> {
    Ok(Attach {
        name: Fields::need(fields.text(0), 0)?.to_owned(),
        handle: Fields::need(fields.uint(1)?, 1)?,
        client_receives: fields.flag(2)?,
        sender_settle_mode: fields.unsigned(3)?.unwrap_or(2),
        source: fields.take(5),
        target: fields.take(6),
    })
}

fn flow(fields: &Fields) -> Result<Flow, Malformed> {
    Ok(Flow {
        next_incoming_id: fields.uint(0)?,
        incoming_window: Fields::need(fields.uint(1)?, 1)?,
        handle: fields.uint(4)?,
        delivery_count: fields.uint(5)?,
        link_credit: fields.uint(6)?,
        drain: fields.flag(8)?,
        echo: fields.flag(9)?,
    })
}

fn transfer(fields: &Fields, payload: Bytes) -> Result<Transfer, Malformed> {
    Ok(Transfer {
        handle: Fields::need(fields.uint(0)?, 0)?,
        delivery_id: fields.uint(1)?,
        message_format: fields.uint(3)?,
        settled: fields.flag(4)?,
        more: fields.flag(5)?,
        aborted: fields.flag(9)?,
        payload,
    })
}
