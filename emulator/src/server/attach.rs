//! Links are attached here: address, permission, fault, answer.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_amqp::Value;

use super::{
    connection::product,
    core::{Core, Later, LinkRef, Verdict},
    inbound::Receiving,
    ingest::Ingest,
    nodes::Node,
    outbound::{Sending, Supply},
    session::{Link, Role, Session},
};
use crate::{
    address::{self, Address},
    fault::{Action, Site, Step},
    selector::Position,
    store::HubStore,
    wire::{code, fields::text_of, performative::Attach},
};

/// Requests that a client may send ahead.
const REQUEST_CREDIT: u32 = 100;

/// Requests are small; nothing reads larger ones.
const REQUEST_SIZE: u64 = 64 * 1024;

const SENDER_SETTLES: u64 = 1;

/// Condition and text of a refusal.
type Refusal = (String, String);

fn refusal(condition: &str, text: impl Into<String>) -> Refusal {
    (condition.to_owned(), text.into())
}

/// Answers an attach.
pub(crate) fn attach(session: &mut Session, core: &mut Core, attach: Attach) {
    let reference = LinkRef {
        channel: session.window.channel,
        handle: attach.handle,
        serial: core.serial(),
    };
    let wanted = resolve(core, &attach);
    let mut withheld = None;
    let role = match site_of(&wanted).map(|site| core.strike(site)) {
        None | Some(Verdict::Proceed) => wanted,
        Some(Verdict::Skip) => return,
        Some(Verdict::Special(Action::WithholdCredit(duration))) => {
            withheld = Some(duration);
            wanted
        }
        Some(Verdict::Special(Action::DetachLink(error))) => {
            Err((error.condition, error.description))
        }
        Some(Verdict::Special(Action::EndSession(error))) => {
            session.end_with(core, &error.condition, &error.description);
            return;
        }
        Some(Verdict::Special(_)) => wanted,
    };
    match role {
        Ok(role) => accept(session, core, attach, reference, role, withheld),
        Err((condition, text)) => refuse(session, core, attach, reference, &condition, &text),
    }
}

/// The occasion that a link to a hub is; other links are not the script's business.
fn site_of(role: &Result<Role, Refusal>) -> Option<Site<'_>> {
    let (hub, partition) = match role {
        Ok(Role::Ingest(ingest)) => (&ingest.hub, ingest.partition),
        Ok(Role::Sending(Sending {
            supply: Supply::Events { hub, partition, .. },
            ..
        })) => (hub, Some(*partition)),
        _ => return None,
    };
    Some(Site {
        step: Step::Attach,
        hub: Some(hub.name()),
        partition,
    })
}

fn accept(
    session: &mut Session,
    core: &mut Core,
    mut attach: Attach,
    reference: LinkRef,
    mut role: Role,
    withheld: Option<Duration>,
) {
    let (source, target) = (
        std::mem::take(&mut attach.source),
        std::mem::take(&mut attach.target),
    );
    send_attach(core, &attach, reference.channel, source, target);
    match &mut role {
        Role::Ingest(Ingest { receiving, .. }) => {
            core.count(|counters| &counters.attaches, 1);
            if let Some(duration) = withheld {
                receiving.withhold();
                core.schedule(Instant::now() + duration, reference, Later::Credit);
            }
            receiving.replenish(core, &session.window);
        }
        Role::Requests { node, receiving } => {
            if *node == Node::Cbs {
                core.cbs = Some(reference);
            }
            receiving.replenish(core, &session.window);
        }
        Role::Sending(Sending {
            supply: Supply::Events { hub, .. },
            ..
        }) => {
            core.count(|counters| &counters.attaches, 1);
            hub.watch(&core.wake);
        }
        Role::Sending(_) | Role::Detaching => {}
    }
    let link = Link {
        reference,
        name: attach.name,
        role,
    };
    session.links.insert(reference.handle, link);
}

/// A refused link is attached without its terminus and detached at once, part 2.6.3.
fn refuse(
    session: &mut Session,
    core: &mut Core,
    mut attach: Attach,
    reference: LinkRef,
    condition: &str,
    text: &str,
) {
    core.count(|counters| &counters.attaches_refused, 1);
    let (source, target) = (
        std::mem::take(&mut attach.source),
        std::mem::take(&mut attach.target),
    );
    let (source, target) = if attach.client_receives {
        (Value::Null, target)
    } else {
        (source, Value::Null)
    };
    send_attach(core, &attach, reference.channel, source, target);
    let link = Link {
        reference,
        name: attach.name,
        role: Role::Detaching,
    };
    session.links.insert(reference.handle, link);
    session.detach_with(core, reference.handle, condition, text);
}

fn send_attach(core: &mut Core, attach: &Attach, channel: u16, source: Value, target: Value) {
    let mode = u8::try_from(attach.sender_settle_mode).unwrap_or(2);
    let count = if attach.client_receives {
        Value::Uint(0)
    } else {
        Value::Null
    };
    let fields = vec![
        Value::String(attach.name.clone()),
        Value::Uint(attach.handle),
        // The other role: true stands for a receiver.
        Value::Bool(!attach.client_receives),
        Value::Ubyte(mode),
        // The receiver settles first, whatever the client proposed: see `Receiving::settle`.
        Value::Ubyte(0),
        source,
        target,
        Value::Null,
        Value::Bool(false),
        count,
        Value::Ulong(core.shared.settings.max_message_size),
        Value::Null,
        Value::Null,
        product(),
    ];
    core.send(channel, code::ATTACH, fields);
}

/// What the link is to be, or why it cannot be.
fn resolve(core: &mut Core, attach: &Attach) -> Result<Role, Refusal> {
    let terminus = if attach.client_receives {
        &attach.source
    } else {
        &attach.target
    };
    let text = Attach::address(terminus)
        .ok_or_else(|| refusal("amqp:not-implemented", "the link names no address"))?;
    let address = Address::parse(text).ok_or_else(|| {
        refusal(
            "amqp:not-found",
            format!("the address '{text}' does not exist"),
        )
    })?;
    if matches!(address, Address::Ingress { .. } | Address::Egress { .. })
        && !core.allows(address::path(text), now_seconds())
    {
        return Err(refusal(
            "amqp:unauthorized-access",
            format!("no valid token covers '{text}'"),
        ));
    }
    match (address, attach.client_receives) {
        (Address::Cbs, true) => Ok(answers(attach, Node::Cbs)),
        (Address::Management, true) => Ok(answers(attach, Node::Management)),
        (Address::Cbs, false) if core.cbs.is_some() && core.shared.settings.exclusive_cbs => {
            core.count(|counters| &counters.cbs_conflicts, 1);
            Err(refusal(
                "amqp:not-allowed",
                "the connection has a $cbs link already",
            ))
        }
        (Address::Cbs, false) => Ok(requests(attach, Node::Cbs)),
        (Address::Management, false) => Ok(requests(attach, Node::Management)),
        (Address::Ingress { hub, partition }, false) => {
            ingest(core, attach, text, &hub, partition.as_deref())
        }
        (Address::Egress { hub, partition, .. }, true) => events(core, attach, &hub, &partition),
        (_, _) => Err(refusal(
            "amqp:not-allowed",
            format!("'{text}' does not work that way"),
        )),
    }
}

fn answers(attach: &Attach, node: Node) -> Role {
    let reply_to = Attach::address(&attach.target).map(str::to_owned);
    let supply = Supply::Answers {
        node,
        reply_to,
        queue: VecDeque::new(),
    };
    Role::Sending(Sending::new(
        attach.handle,
        supply,
        attach.sender_settle_mode == SENDER_SETTLES,
    ))
}

fn requests(attach: &Attach, node: Node) -> Role {
    Role::Requests {
        node,
        receiving: Receiving::new(attach.handle, REQUEST_CREDIT, REQUEST_SIZE),
    }
}

fn find_hub(core: &Core, name: &str) -> Result<Arc<HubStore>, Refusal> {
    core.shared.store.hub(name).cloned().ok_or_else(|| {
        refusal(
            "amqp:not-found",
            format!("the messaging entity '{name}' could not be found"),
        )
    })
}

fn find_partition(hub: &HubStore, id: &str) -> Result<usize, Refusal> {
    hub.partition(id).ok_or_else(|| {
        let name = hub.name();
        refusal(
            "amqp:not-found",
            format!("the partition '{id}' of '{name}' could not be found"),
        )
    })
}

fn ingest(
    core: &Core,
    attach: &Attach,
    address: &str,
    hub: &str,
    partition: Option<&str>,
) -> Result<Role, Refusal> {
    let hub = find_hub(core, hub)?;
    let partition = partition.map(|id| find_partition(&hub, id)).transpose()?;
    let settings = &core.shared.settings;
    let receiving = Receiving::new(
        attach.handle,
        settings.link_credit,
        settings.max_message_size,
    );
    let path = address::path(address).to_owned();
    Ok(Role::Ingest(Ingest {
        receiving,
        hub,
        partition,
        path,
        events: Vec::new(),
    }))
}

fn events(core: &Core, attach: &Attach, hub: &str, partition: &str) -> Result<Role, Refusal> {
    let hub = find_hub(core, hub)?;
    let partition = find_partition(&hub, partition)?;
    let position = match selector(attach.filter()) {
        None => Position::Start,
        Some(text) => Position::parse(text).ok_or_else(|| {
            refusal(
                "amqp:invalid-field",
                format!("the selector '{text}' is not understood"),
            )
        })?,
    };
    let next = hub.resolve(partition, position);
    let supply = Supply::Events {
        hub,
        partition,
        next,
    };
    let settled = attach.sender_settle_mode == SENDER_SETTLES;
    Ok(Role::Sending(Sending::new(attach.handle, supply, settled)))
}

/// The text of the selector filter, whatever descriptor the client gives it.
fn selector(filter: &Value) -> Option<&str> {
    let Value::Map(map) = filter else { return None };
    map.iter()
        .find(|(name, _)| text_of(name).is_some_and(|name| name.contains("selector")))
        .and_then(|(_, value)| match value {
            Value::Described(described) => text_of(&described.value),
            plain => text_of(plain),
        })
}

/// Seconds since the Unix epoch.
pub(crate) fn now_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| age.as_secs())
}
