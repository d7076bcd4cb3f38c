//! Requests and their answers, as `$cbs` and `$management` have them: a message with application
//! properties goes out, and one whose correlation id repeats its message id comes back.

use super::errors;
use crate::sync::Instant;
use crate::transport::LinkError;
use bytes::{Bytes, BytesMut};
use fe2o3_amqp_types::messaging::message::__private::{Deserializable, Serializable};
use fe2o3_amqp_types::messaging::{
    AmqpValue, ApplicationProperties, Body, Message, MessageId, Properties,
};
use fe2o3_amqp_types::performatives::Transfer;
use fe2o3_amqp_types::primitives::SimpleValue;
use serde_amqp::Value;

/// The longest answer that is read. A hub of 2048 partitions fits in a tenth of it.
const MAX_ANSWER: usize = 1024 * 1024;

/// Where a request says what it wants.
pub(super) type Asked = Vec<(&'static str, SimpleValue)>;

/// The requests of one pair of links; one at a time.
#[derive(Debug, Default)]
pub(super) struct Requests {
    last_id: u64,
    waiting: Option<Waiting>,
    /// What came of an answer that is not complete.
    partial: BytesMut,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    what: &'static str,
    by: Instant,
    since: Instant,
}

/// An answer: 200 and 202 are good news.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) status: i32,
    condition: Option<String>,
    description: Option<String>,
    pub(super) body: Value,
}

impl Requests {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_none()
    }

    /// What there is no answer to yet, since when, and by when there must be one.
    pub(super) fn waiting(&self) -> Option<(&'static str, Instant, Instant)> {
        let waiting = self.waiting.as_ref()?;
        Some((waiting.what, waiting.since, waiting.by))
    }

    /// Encodes a request, which is under way from now on.
    pub(super) fn ask(
        &mut self,
        what: &'static str,
        properties: Asked,
        body: Option<&str>,
        reply_to: &str,
        (since, by): (Instant, Instant),
    ) -> Bytes {
        self.last_id += 1;
        self.waiting = Some(Waiting {
            id: self.last_id,
            what,
            by,
            since,
        });
        let mut map = ApplicationProperties::builder();
        for (name, value) in properties {
            map = map.insert(name, value);
        }
        let mut head = Properties::new();
        head.message_id = Some(MessageId::Ulong(self.last_id));
        head.reply_to = Some(reply_to.to_owned());
        let message = Message::builder()
            .properties(head)
            .application_properties(map.build())
            .body(AmqpValue(body))
            .build();
        match serde_amqp::to_vec(&Serializable(message)) {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                // Made of strings and numbers, which all have an encoding.
                tracing::error!(%error, "a request cannot be encoded");
                Bytes::new()
            }
        }
    }

    /// Takes a frame of an answer; the answer once it is whole and to the request under way.
    pub(super) fn handle_transfer(
        &mut self,
        transfer: &Transfer,
        payload: &Bytes,
    ) -> Result<Option<Answer>, LinkError> {
        if transfer.aborted {
            self.partial.clear();
            return Ok(None);
        }
        if self.partial.len() + payload.len() > MAX_ANSWER {
            let what = "an answer is longer than any answer should be";
            return Err(LinkError::new("amqp:link:message-size-exceeded", what));
        }
        self.partial.extend_from_slice(payload);
        if transfer.more {
            return Ok(None);
        }
        let bytes = self.partial.split().freeze();
        let Some((correlation, answer)) = Answer::decode(&bytes)? else {
            return Ok(None);
        };
        // An answer without a number can only be to the one request there is.
        let wanted = |waiting: &mut Waiting| match correlation {
            Some(MessageId::Ulong(id)) => id == waiting.id,
            Some(_) => false,
            None => true,
        };
        Ok(self.waiting.take_if(wanted).map(|_| answer))
    }
}

impl Answer {
    fn decode(bytes: &Bytes) -> Result<Option<(Option<MessageId>, Answer)>, LinkError> {
        let decoded: Result<Deserializable<Message<Body<Value>>>, _> =
            super::wire::guarded(|| serde_amqp::from_slice(bytes))?;
        let message = match decoded {
            Ok(message) => message.0,
            Err(error) => {
                let what = format!("an answer cannot be read: {error}");
                return Err(LinkError::new("amqp:decode-error", what));
            }
        };
        let properties = message.application_properties.unwrap_or_default();
        let text = |name: &str| match properties.get(name) {
            Some(SimpleValue::String(text)) => Some(text.clone()),
            Some(SimpleValue::Symbol(text)) => Some(text.as_str().to_owned()),
            _ => None,
        };
        let status =
            ["status-code", "statusCode"]
                .iter()
                .find_map(|name| match properties.get(*name)? {
                    SimpleValue::Int(code) => Some(*code),
                    SimpleValue::Uint(code) => i32::try_from(*code).ok(),
                    SimpleValue::Long(code) => i32::try_from(*code).ok(),
                    SimpleValue::Ushort(code) => Some(i32::from(*code)),
                    SimpleValue::Short(code) => Some(i32::from(*code)),
                    _ => None,
                });
        let Some(status) = status else {
            return Ok(None);
        };
        let answer = Answer {
            status,
            condition: text("error-condition").or_else(|| text("errorCondition")),
            description: text("status-description").or_else(|| text("statusDescription")),
            body: match message.body {
                Body::Value(AmqpValue(value)) => value,
                _ => Value::Null,
            },
        };
        let correlation = message.properties.and_then(|head| head.correlation_id);
        Ok(Some((correlation, answer)))
    }

    /// The answer's body, or why there is none.
    pub(super) fn into_result(self) -> Result<Value, LinkError> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let condition = match self.condition {
            Some(condition) => condition,
            None => condition_of(self.status).to_owned(),
        };
        let description = self.description.unwrap_or_default();
        let description = errors::clipped(&description);
        Err(LinkError::new(
            errors::clipped(&condition),
            format!("status {}: {description}", self.status),
        ))
    }
}

/// What a status stands for where no condition is named; the SDK for .NET reads them so.
fn condition_of(status: i32) -> &'static str {
    match status {
        400 => "com.microsoft:argument-error",
        401 => errors::UNAUTHORIZED,
        403 => "amqp:resource-limit-exceeded",
        404 => "amqp:not-found",
        408 => "com.microsoft:timeout",
        410 => "amqp:link:stolen",
        501 => "amqp:not-implemented",
        503 => "com.microsoft:server-busy",
        _ => "amqp:internal-error",
    }
}
