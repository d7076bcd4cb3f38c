//! Scripted misbehaviour.

mod action;
mod disruption;
mod script;

pub(crate) use self::{
    action::Action,
    disruption::{Aim, Deed},
    script::Site,
};
pub use self::{
    action::{Moment, SocketDrop},
    disruption::Disruption,
    script::{FaultId, Faults},
};

use std::time::Duration;

/// A step of a client's journey, at which a fault can strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// A TCP connection was accepted; nothing has been read.
    Accept,
    /// The SASL mechanism was chosen and its outcome is due.
    Sasl,
    /// The client's `open` is due an answer.
    Open,
    /// The client's `begin` is due an answer.
    Begin,
    /// A link to a hub or partition is due an answer.
    Attach,
    /// A `put-token` is due an answer.
    Cbs,
    /// A management request is due an answer.
    Management,
    /// A complete message for a hub has arrived.
    Transfer,
}

/// One rule: what happens, at which step, to whom and how often.
///
/// A rule made by a constructor strikes once, at the first occasion, for any hub and partition; the
/// builder methods narrow or widen that. Hub and partition are known at [`Step::Attach`] and
/// [`Step::Transfer`] only; a rule that names them strikes at no other step. A link to the hub as a
/// whole has no partition when it is attached. Links of readers are attached, too.
#[derive(Debug, Clone)]
#[must_use = "a fault does nothing until it is given to an emulator"]
pub struct Fault {
    pub(crate) step: Step,
    pub(crate) action: Action,
    pub(crate) hub: Option<String>,
    pub(crate) partition: Option<usize>,
    /// Occasions that pass by before the first strike.
    pub(crate) skip: u64,
    /// Strikes left, `None` for no limit.
    pub(crate) strikes: Option<u64>,
}

impl Fault {
    fn new(step: Step, action: Action) -> Self {
        Self {
            step,
            action,
            hub: None,
            partition: None,
            skip: 0,
            strikes: Some(1),
        }
    }

    /// A message is rejected with this condition and is not stored.
    pub fn reject(condition: impl Into<String>, description: impl Into<String>) -> Self {
        Self::new(
            Step::Transfer,
            Action::Reject(action::error(condition, description)),
        )
    }

    /// A message is released and is not stored.
    pub fn release() -> Self {
        Self::new(Step::Transfer, Action::Release)
    }

    /// A message is answered with `modified` and is not stored.
    pub fn modify(delivery_failed: bool, undeliverable_here: bool) -> Self {
        Self::new(
            Step::Transfer,
            Action::Modify {
                delivery_failed,
                undeliverable_here,
            },
        )
    }

    /// The link is detached with this condition instead of an answer to a message, which is not
    /// stored.
    pub fn detach_link(condition: impl Into<String>, description: impl Into<String>) -> Self {
        Self::new(
            Step::Transfer,
            Action::DetachLink(action::error(condition, description)),
        )
    }

    /// The session is ended with this condition instead of an answer.
    ///
    /// At [`Step::Begin`] the session is begun and ended at once.
    pub fn end_session(
        step: Step,
        condition: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        Self::new(
            step,
            Action::EndSession(action::error(condition, description)),
        )
    }

    /// The connection is closed with this condition instead of an answer.
    ///
    /// At [`Step::Accept`] and [`Step::Sasl`], where AMQP has no words yet, the socket is dropped.
    pub fn close_connection(
        step: Step,
        condition: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        Self::new(
            step,
            Action::CloseConnection(action::error(condition, description)),
        )
    }

    /// The socket is dropped instead of an answer.
    ///
    /// At [`Step::Transfer`] the message is not stored; see
    /// [`drop_socket_after_store`](Self::drop_socket_after_store).
    pub fn drop_socket(step: Step, how: SocketDrop) -> Self {
        Self::new(
            step,
            Action::DropSocket {
                how,
                moment: Moment::BeforeStore,
            },
        )
    }

    /// A message is stored, then the socket is dropped without an answer.
    pub fn drop_socket_after_store(how: SocketDrop) -> Self {
        Self::new(
            Step::Transfer,
            Action::DropSocket {
                how,
                moment: Moment::AfterStore,
            },
        )
    }

    /// No credit for this long: a link gets its first credit late, and one that has credit when a
    /// message arrives has it revoked.
    ///
    /// Strikes at [`Step::Attach`]; change that with [`at`](Self::at).
    pub fn withhold_credit(duration: Duration) -> Self {
        Self::new(Step::Attach, Action::WithholdCredit(duration))
    }

    /// A message is stored and answered, but the answer goes out late; later answers overtake it.
    pub fn delay_settlement(duration: Duration) -> Self {
        Self::new(Step::Transfer, Action::DelaySettlement(duration))
    }

    /// A message gets no answer, ever; `moment` tells whether it is stored.
    pub fn never_settle(moment: Moment) -> Self {
        Self::new(Step::Transfer, Action::NeverSettle(moment))
    }

    /// From this step on the connection reads but never writes again.
    pub fn silence(step: Step) -> Self {
        Self::new(step, Action::Silence)
    }

    /// From this step on the connection neither reads nor writes again, as a frozen peer would.
    pub fn freeze(step: Step) -> Self {
        Self::new(step, Action::Freeze)
    }

    /// A connection is accepted and closed at once.
    pub fn refuse_connection() -> Self {
        Self::drop_socket(Step::Accept, SocketDrop::Finish)
    }

    /// SASL ends with an outcome of 1 (`auth`).
    pub fn refuse_sasl() -> Self {
        Self::new(Step::Sasl, Action::RefuseSasl)
    }

    /// A link is refused with this condition.
    pub fn refuse_attach(condition: impl Into<String>, description: impl Into<String>) -> Self {
        Self::new(
            Step::Attach,
            Action::DetachLink(action::error(condition, description)),
        )
    }

    /// A put-token is answered with this status.
    pub fn cbs_status(code: i32, description: impl Into<String>) -> Self {
        let status = Action::Status {
            code,
            description: description.into(),
            condition: None,
        };
        Self::new(Step::Cbs, status)
    }

    /// A management request is answered with this status and error condition.
    pub fn management_status(
        code: i32,
        condition: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        let condition = Some(condition.into());
        let status = Action::Status {
            code,
            description: description.into(),
            condition,
        };
        Self::new(Step::Management, status)
    }

    /// A step gets no answer while the rest of the connection goes on.
    ///
    /// At [`Step::Transfer`] that is [`never_settle`](Self::never_settle) with a message that is
    /// not stored; up to [`Step::Open`] it is [`silence`](Self::silence).
    pub fn no_answer(step: Step) -> Self {
        Self::new(step, Action::NoAnswer)
    }

    /// A step is answered late, on every occasion with the same delay. For [`Step::Cbs`] and
    /// [`Step::Management`]; see [`delay_settlement`](Self::delay_settlement) for messages.
    pub fn delay_answer(step: Step, duration: Duration) -> Self {
        Self::new(step, Action::DelayAnswer(duration))
    }

    /// Strikes at another step.
    pub fn at(mut self, step: Step) -> Self {
        self.step = step;
        self
    }

    /// Strikes for this hub only.
    pub fn hub(mut self, hub: impl Into<String>) -> Self {
        self.hub = Some(hub.into());
        self
    }

    /// Strikes for this partition only.
    pub fn partition(mut self, partition: usize) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Strikes first at the `n`th occasion after the rule was given, counted from 1.
    pub fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        self
    }

    /// Strikes this many times in a row.
    pub fn times(mut self, times: u64) -> Self {
        self.strikes = Some(times);
        self
    }

    /// Strikes at every occasion until it is removed.
    pub fn always(mut self) -> Self {
        self.strikes = None;
        self
    }
}
