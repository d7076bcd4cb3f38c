//! What stands in the way of reading.

use crate::exit::chain;
use fe2o3_amqp::link::{LinkStateError, ReceiverAttachError, RecvError, SenderAttachError};
use fe2o3_amqp_types::definitions::{self, AmqpError, ErrorCondition};
use fe2o3_amqp_types::messaging::ApplicationProperties;
use fe2o3_amqp_types::primitives::{SimpleValue, Symbol};
use hublane::TokenError;
use std::error::Error;

/// Why there is no connection, or no longer one.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    text: String,
    is_final: bool,
}

impl Refusal {
    /// Another attempt may do better.
    pub fn lost(text: String) -> Refusal {
        Refusal {
            text,
            is_final: false,
        }
    }

    /// Every attempt will end like this.
    pub fn for_good(text: String) -> Refusal {
        Refusal {
            text,
            is_final: true,
        }
    }

    /// Whether there is no use in another attempt.
    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// A partition that the hub does not have.
    pub fn unknown_partition(hub: &str, id: &str) -> Refusal {
        Refusal::for_good(format!("the hub '{hub}' has no partition {id}"))
    }

    /// What ended a receiver.
    pub fn from_receiving(error: &RecvError) -> Refusal {
        match error {
            RecvError::LinkStateError(
                LinkStateError::RemoteClosedWithError(error)
                | LinkStateError::RemoteDetachedWithError(error),
            ) => Refusal::told(error),
            other => Refusal::lost(chain(other)),
        }
    }

    /// What this end says.
    pub fn from_error(error: &(dyn Error + 'static)) -> Refusal {
        Refusal::lost(chain(error))
    }

    /// What the peer says.
    fn told(error: &definitions::Error) -> Refusal {
        let condition = match &error.condition {
            ErrorCondition::AmqpError(error) => Symbol::from(error),
            ErrorCondition::ConnectionError(error) => Symbol::from(error),
            ErrorCondition::SessionError(error) => Symbol::from(error),
            ErrorCondition::LinkError(error) => Symbol::from(error),
            ErrorCondition::Custom(symbol) => symbol.clone(),
            #[allow(unreachable_patterns, reason = "a feature of the types adds one more")]
            _ => Symbol::from("amqp:internal-error"),
        };
        let text = match &error.description {
            Some(description) => format!("{}: {description}", condition.0),
            None => condition.0,
        };
        let is_final = matches!(
            error.condition,
            ErrorCondition::AmqpError(
                AmqpError::UnauthorizedAccess | AmqpError::NotFound | AmqpError::NotAllowed
            )
        );
        Refusal { text, is_final }
    }
}

impl From<SenderAttachError> for Refusal {
    fn from(error: SenderAttachError) -> Refusal {
        match &error {
            SenderAttachError::RemoteClosedWithError(error) => Refusal::told(error),
            other => Refusal::from_error(other),
        }
    }
}

impl From<ReceiverAttachError> for Refusal {
    fn from(error: ReceiverAttachError) -> Refusal {
        match &error {
            ReceiverAttachError::RemoteClosedWithError(error) => Refusal::told(error),
            other => Refusal::from_error(other),
        }
    }
}

impl From<TokenError> for Refusal {
    fn from(error: TokenError) -> Refusal {
        Refusal::for_good(error.to_string())
    }
}

/// Whether an answer is good, by its status.
///
/// # Errors
///
/// [`Refusal`] if it is not.
pub fn judge(properties: Option<&ApplicationProperties>) -> Result<(), Refusal> {
    let property = |name: &str| properties.and_then(|all| all.0.get(name));
    let text = |name: &str| match property(name) {
        Some(SimpleValue::String(text)) => Some(text.as_str()),
        Some(SimpleValue::Symbol(symbol)) => Some(symbol.0.as_str()),
        _ => None,
    };
    let status = match property("status-code") {
        Some(SimpleValue::Int(code)) => *code,
        _ => return Err(Refusal::lost("an answer without a status".to_owned())),
    };
    let said = text("status-description").or(text("error-condition"));
    let refusal = format!("status {status}: {}", said.unwrap_or("no reason given"));
    match status {
        200 | 202 => Ok(()),
        400 | 401 | 403 | 404 => Err(Refusal::for_good(refusal)),
        _ => Err(Refusal::lost(refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: i32) -> ApplicationProperties {
        ApplicationProperties::builder()
            .insert("status-code", status)
            .insert("status-description", "because")
            .build()
    }

    #[test]
    fn an_answer_is_good_refused_or_worth_another_attempt() {
        assert!(judge(Some(&answer(200))).is_ok());
        assert!(judge(Some(&answer(202))).is_ok());
        for (status, is_final) in [(401, true), (404, true), (500, false), (503, false)] {
            let refusal = judge(Some(&answer(status))).unwrap_err();
            assert_eq!(refusal.to_string(), format!("status {status}: because"));
            assert_eq!(refusal.is_final(), is_final, "{status}");
        }
        assert!(!judge(None).unwrap_err().is_final());
    }

    #[test]
    fn conditions_are_told_as_they_stand_on_the_wire() {
        let error = |condition: ErrorCondition| definitions::Error::new(condition, None, None);
        let unknown = Refusal::told(&error(AmqpError::NotFound.into()));
        assert_eq!(unknown.to_string(), "amqp:not-found");
        assert!(unknown.is_final());
        let busy = ErrorCondition::Custom(Symbol::from("com.microsoft:server-busy"));
        let busy = Refusal::told(&error(busy));
        assert_eq!(busy.to_string(), "com.microsoft:server-busy");
        assert!(!busy.is_final());
    }
}
