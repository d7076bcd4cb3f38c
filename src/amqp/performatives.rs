//! Performatives as this end says them, with everything absent that it has no use for.

use fe2o3_amqp_types::definitions::{Handle, ReceiverSettleMode, Role, SenderSettleMode};
use fe2o3_amqp_types::messaging::{Source, Target, TargetArchetype};
use fe2o3_amqp_types::performatives::{Attach, Begin, Detach, Transfer};

/// The begin of a session with links up to `handle_max`.
pub(super) fn begin(incoming_window: u32, outgoing_window: u32, handle_max: u32) -> Begin {
    Begin {
        remote_channel: None,
        next_outgoing_id: 0,
        incoming_window,
        outgoing_window,
        handle_max: Handle(handle_max),
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
    }
}

/// An attach without its two ends.
pub(super) fn attach(name: String, handle: u32, role: Role) -> Attach {
    Attach {
        name,
        handle: Handle(handle),
        role,
        snd_settle_mode: SenderSettleMode::Mixed,
        rcv_settle_mode: ReceiverSettleMode::First,
        source: None,
        target: None,
        unsettled: None,
        incomplete_unsettled: false,
        initial_delivery_count: None,
        max_message_size: None,
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
    }
}

/// The end of a link that messages come from.
pub(super) fn source(address: &str) -> Option<Box<Source>> {
    Some(Box::new(Source {
        address: Some(address.to_owned()),
        ..Source::default()
    }))
}

/// The end of a link that messages go to.
pub(super) fn target(address: &str) -> Option<Box<TargetArchetype>> {
    Some(Box::new(TargetArchetype::Target(Target {
        address: Some(address.to_owned()),
        ..Target::default()
    })))
}

/// The end of a link, for good.
pub(super) fn detach(handle: u32) -> Detach {
    Detach {
        handle: Handle(handle),
        closed: true,
        error: None,
    }
}

/// A transfer on a link. It is not `batchable`: its answer is waited for.
pub(super) fn transfer(handle: u32) -> Transfer {
    Transfer {
        handle: Handle(handle),
        delivery_id: None,
        delivery_tag: None,
        message_format: None,
        settled: None,
        more: false,
        rcv_settle_mode: None,
        state: None,
        resume: false,
        aborted: false,
        batchable: false,
    }
}
