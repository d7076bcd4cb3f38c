//! What a fault does.

use std::time::Duration;

/// How a socket is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketDrop {
    /// With a TCP reset.
    Reset,
    /// With an orderly end of the stream, but without an AMQP `close`.
    Finish,
}

/// Whether a message is stored before a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The message is lost.
    BeforeStore,
    /// The message is stored, though its sender will not hear of it.
    AfterStore,
}

/// A condition with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) condition: String,
    pub(crate) description: String,
}

pub(crate) fn error(condition: impl Into<String>, description: impl Into<String>) -> Condition {
    Condition {
        condition: condition.into(),
        description: description.into(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Reject(Condition),
    Release,
    Modify {
        delivery_failed: bool,
        undeliverable_here: bool,
    },
    DetachLink(Condition),
    EndSession(Condition),
    CloseConnection(Condition),
    DropSocket {
        how: SocketDrop,
        moment: Moment,
    },
    WithholdCredit(Duration),
    DelaySettlement(Duration),
    NeverSettle(Moment),
    Silence,
    Freeze,
    RefuseSasl,
    Status {
        code: i32,
        description: String,
        condition: Option<String>,
    },
    NoAnswer,
    DelayAnswer(Duration),
}
