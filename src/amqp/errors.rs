//! What the peer, the socket or this module says went wrong, as a [`LinkError`].
//!
//! Conditions that a peer named are passed on as they are; what no peer said is named
//! `hublane:…`. No text here is made of anything secret: tokens and keys never reach an error.

use crate::condition::{RetryClass, classify};
use crate::transport::{ConnectError, LinkError, Settlement};
use fe2o3_amqp_types::definitions::{Error, ErrorCondition};
use fe2o3_amqp_types::messaging::DeliveryState;
use serde_amqp::primitives::Symbol;
use std::io;

/// The transport was closed, by its user or because its thread is gone.
pub(super) const CLOSED: &str = "hublane:closed";
/// There is no link just now.
pub(super) const LINK_DOWN: &str = "hublane:link-down";
/// The socket ended or broke.
pub(super) const CONNECTION_LOST: &str = "hublane:connection-lost";
/// Nobody listens there, or no way leads there.
pub(super) const UNREACHABLE: &str = "hublane:unreachable";
/// The other end does not speak AMQP 1.0 (with SASL).
pub(super) const NOT_AMQP: &str = "hublane:not-amqp";
/// TLS could not be agreed upon.
pub(super) const TLS: &str = "hublane:tls";
/// An answer did not come in time.
pub(super) const TIMED_OUT: &str = "hublane:timed-out";
/// The lane gave a delivery up.
pub(super) const CANCELLED: &str = "hublane:cancelled";
/// The peer ended a link or session without a reason.
pub(super) const DETACHED: &str = "hublane:detached";
/// The peer's bytes are not frames, or not frames that may come now.
pub(super) const FRAMING: &str = "amqp:connection:framing-error";
/// Somebody is not let in.
pub(super) const UNAUTHORIZED: &str = "amqp:unauthorized-access";

/// The longest description that is kept of what a peer says.
const MAX_DESCRIPTION: usize = 1024;

/// What the peer says in a `detach`, `end` or `close`; `otherwise` if it says nothing.
pub(super) fn told(error: Option<Error>, otherwise: &str) -> LinkError {
    match error {
        None => LinkError::new(DETACHED, otherwise),
        Some(error) => {
            let description = error.description.as_deref().unwrap_or_default();
            LinkError::new(condition(&error.condition), clipped(description))
        }
    }
}

/// A condition as it stands on the wire.
fn condition(condition: &ErrorCondition) -> String {
    let symbol = match condition {
        ErrorCondition::AmqpError(error) => Symbol::from(error),
        ErrorCondition::ConnectionError(error) => Symbol::from(error),
        ErrorCondition::SessionError(error) => Symbol::from(error),
        ErrorCondition::LinkError(error) => Symbol::from(error),
        ErrorCondition::Custom(symbol) => symbol.clone(),
        #[allow(unreachable_patterns, reason = "a feature of the types adds one more")]
        _ => Symbol::from("amqp:internal-error"),
    };
    clipped(symbol.as_str()).to_owned()
}

/// The first part of a text that the peer chose the length of.
pub(super) fn clipped(text: &str) -> &str {
    let mut end = text.len().min(MAX_DESCRIPTION);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The answer that a delivery state is; `None` if it is not final (AMQP 1.0, 3.4).
pub(super) fn settlement(state: DeliveryState) -> Option<Settlement> {
    Some(match state {
        DeliveryState::Accepted(_) => Settlement::Accepted,
        DeliveryState::Released(_) => Settlement::Released,
        DeliveryState::Modified(_) => Settlement::Modified,
        DeliveryState::Rejected(rejected) => {
            let unexplained = "amqp:internal-error";
            match rejected.error {
                // A refusal without a reason; what the condition stands for is retried.
                None => Settlement::Rejected {
                    condition: unexplained.to_owned(),
                    description: None,
                },
                Some(error) => Settlement::Rejected {
                    condition: condition(&error.condition),
                    description: error.description.map(|text| clipped(&text).to_owned()),
                },
            }
        }
        _ => return None,
    })
}

/// What became of the socket.
pub(super) fn lost(error: &io::Error) -> LinkError {
    LinkError::new(CONNECTION_LOST, format!("the connection broke: {error}"))
}

/// An answer that did not come.
pub(super) fn timed_out(what: &str) -> LinkError {
    LinkError::new(TIMED_OUT, format!("no answer in time to {what}"))
}

/// Whether an attempt to connect that met `error` is worth repeating. A key that is refused or a
/// port that nobody listens on does not get better within a start-up time-out.
pub(super) fn is_passing(error: &LinkError) -> bool {
    let condition = &*error.condition;
    let ours = [UNREACHABLE, NOT_AMQP, TLS, CLOSED];
    !ours.contains(&condition)
        && condition != UNAUTHORIZED
        && classify(condition) != RetryClass::Fatal
}

/// The error of a start-up that `error` ended for good.
pub(super) fn refused(error: LinkError) -> ConnectError {
    match &*error.condition {
        UNREACHABLE | NOT_AMQP | TLS | CLOSED => ConnectError::Unreachable(error),
        _ => ConnectError::Refused(error),
    }
}
