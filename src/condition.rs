//! What to do about an error that the service reports by its condition.

/// What must happen before a batch that was refused may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryClass {
    /// Nothing but the usual wait: the same link will do.
    Retry,
    /// A longer wait: the service is throttling, and asks for 4 seconds.
    ServerBusy,
    /// A new link, with a fresh token: this one is gone or spent, the connection is not.
    Relink,
    /// A new connection.
    Reconnect,
    /// There is no point: the same bytes would meet the same refusal.
    Fatal,
}

/// The class of an AMQP error condition.
///
/// The Azure SDKs disagree about many conditions. They answer a caller who waits for one request;
/// here a batch waits in memory until its delivery deadline, which bounds whatever is tried. So a
/// condition is [`RetryClass::Fatal`] only if trying again cannot help or would do harm, and when
/// the SDKs differ the gentlest repair that can work is taken.
///
/// | condition | class | reason |
/// |---|---|---|
/// | `com.microsoft:server-busy` | server busy | throttled; the service's own text says to wait 4 seconds |
/// | `com.microsoft:timeout` | retry | passing; all SDKs retry |
/// | `com.microsoft:operation-cancelled` | retry | the service gave up midway, as it does when a partition moves |
/// | `amqp:internal-error` | retry | passing; a broken connection would show by other conditions |
/// | `amqp:resource-locked` | retry | contention, which ends |
/// | `amqp:link:detach-forced` | relink | the link was idle, or its host is being replaced |
/// | `amqp:link:transfer-limit-exceeded` | relink | credit is out of step with the peer; a new link counts afresh |
/// | `amqp:illegal-state` | relink | the state of the link is out of step with the peer; the same |
/// | `amqp:unauthorized-access` | relink | mid-stream, a token has lapsed; a new link brings a fresh one. No SDK retries here, but each would fail the events of a whole producer for one late refresh |
/// | `amqp:connection:forced` | reconnect | the service drains its hosts, or dropped an idle connection |
/// | `amqp:connection:framing-error` | reconnect | the byte stream is out of step |
/// | `amqp:session:window-violation`, `amqp:session:errant-link`, `amqp:session:handle-in-use`, `amqp:session:unattached-handle` | reconnect | the session is out of step, and lives and dies with its connection here |
/// | `amqp:link:stolen` | fatal | somebody owns the link now by design; stealing it back would go on forever |
/// | `amqp:link:message-size-exceeded` | fatal | the batch does not get smaller |
/// | `amqp:not-found`, `amqp:resource-deleted` | fatal | no such hub or partition |
/// | `amqp:not-allowed`, `amqp:not-implemented`, `amqp:precondition-failed`, `amqp:invalid-field`, `amqp:decode-error`, `amqp:frame-size-too-small` | fatal | the peer understood, and says no to these bytes |
/// | `amqp:resource-limit-exceeded` | fatal | a quota, which more attempts only press on |
/// | `com.microsoft:entity-disabled` | fatal | somebody switched the hub off on purpose |
/// | `com.microsoft:argument-error`, `com.microsoft:argument-out-of-range` | fatal | the request is wrong and stays so |
/// | `com.microsoft:out-of-order-sequence`, `com.microsoft:producer-epoch-stolen` | fatal | another producer writes in this one's name |
/// | anything else | retry | a refusal was not stored, so trying again is safe, and the deadline ends it |
///
/// Conditions of AMQP itself are listed in AMQP 1.0, sections 2.8.15 to 2.8.18.
///
/// # Examples
///
/// ```
/// use hublane::{RetryClass, classify};
///
/// assert_eq!(classify("com.microsoft:server-busy"), RetryClass::ServerBusy);
/// assert_eq!(classify("amqp:link:message-size-exceeded"), RetryClass::Fatal);
/// ```
#[must_use]
pub fn classify(condition: &str) -> RetryClass {
    match condition {
        "com.microsoft:server-busy" => RetryClass::ServerBusy,

        "amqp:link:detach-forced"
        | "amqp:link:transfer-limit-exceeded"
        | "amqp:illegal-state"
        | "amqp:unauthorized-access" => RetryClass::Relink,

        "amqp:connection:forced"
        | "amqp:connection:framing-error"
        | "amqp:session:window-violation"
        | "amqp:session:errant-link"
        | "amqp:session:handle-in-use"
        | "amqp:session:unattached-handle" => RetryClass::Reconnect,

        "amqp:link:stolen"
        | "amqp:link:message-size-exceeded"
        | "amqp:not-found"
        | "amqp:resource-deleted"
        | "amqp:not-allowed"
        | "amqp:not-implemented"
        | "amqp:precondition-failed"
        | "amqp:invalid-field"
        | "amqp:decode-error"
        | "amqp:frame-size-too-small"
        | "amqp:resource-limit-exceeded"
        | "com.microsoft:entity-disabled"
        | "com.microsoft:argument-error"
        | "com.microsoft:argument-out-of-range"
        | "com.microsoft:out-of-order-sequence"
        | "com.microsoft:producer-epoch-stolen" => RetryClass::Fatal,

        // com.microsoft:timeout, com.microsoft:operation-cancelled, amqp:internal-error and
        // amqp:resource-locked among them.
        _ => RetryClass::Retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_class() {
        use RetryClass::{Fatal, Reconnect, Relink, Retry, ServerBusy};
        let rows = [
            ("com.microsoft:server-busy", ServerBusy),
            ("com.microsoft:timeout", Retry),
            ("com.microsoft:operation-cancelled", Retry),
            ("amqp:internal-error", Retry),
            ("amqp:resource-locked", Retry),
            ("amqp:link:detach-forced", Relink),
            ("amqp:link:transfer-limit-exceeded", Relink),
            ("amqp:illegal-state", Relink),
            ("amqp:unauthorized-access", Relink),
            ("amqp:connection:forced", Reconnect),
            ("amqp:connection:framing-error", Reconnect),
            ("amqp:session:window-violation", Reconnect),
            ("amqp:session:errant-link", Reconnect),
            ("amqp:session:handle-in-use", Reconnect),
            ("amqp:session:unattached-handle", Reconnect),
            ("amqp:link:stolen", Fatal),
            ("amqp:link:message-size-exceeded", Fatal),
            ("amqp:not-found", Fatal),
            ("amqp:resource-deleted", Fatal),
            ("amqp:not-allowed", Fatal),
            ("amqp:not-implemented", Fatal),
            ("amqp:precondition-failed", Fatal),
            ("amqp:invalid-field", Fatal),
            ("amqp:decode-error", Fatal),
            ("amqp:frame-size-too-small", Fatal),
            ("amqp:resource-limit-exceeded", Fatal),
            ("com.microsoft:entity-disabled", Fatal),
            ("com.microsoft:argument-error", Fatal),
            ("com.microsoft:argument-out-of-range", Fatal),
            ("com.microsoft:out-of-order-sequence", Fatal),
            ("com.microsoft:producer-epoch-stolen", Fatal),
        ];
        for (condition, class) in rows {
            assert_eq!(classify(condition), class, "{condition}");
        }
    }

    #[test]
    fn a_condition_that_nobody_knows_is_tried_again() {
        assert_eq!(classify("com.example:new"), RetryClass::Retry);
        assert_eq!(classify(""), RetryClass::Retry);
    }
}
