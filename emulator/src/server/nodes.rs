//! The nodes that answer requests: `$cbs` and `$management`.

use std::time::Instant;

use serde_amqp::{
    Value,
    primitives::{Array, Timestamp},
};

use super::{
    attach::now_seconds,
    core::{Core, Later, LinkRef, Verdict},
    inbound::{Progress, accepted, rejected},
    outbound::{Sending, Supply},
    session::{Link, Role, Session},
};
use crate::{
    fault::{Action, Site, Step},
    sas::{self, Grant},
    store::{HubStore, PartitionProperties},
    wire::{
        code,
        fields::{composite, described, encode, map, string, text_of},
        message::Request,
        performative::Transfer,
    },
};

/// A node that is asked and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    Cbs,
    Management,
}

/// What an answer says.
#[derive(Debug)]
struct Status {
    code: i32,
    description: String,
    condition: Option<String>,
    body: Value,
}

impl Status {
    fn new(code: i32, description: impl Into<String>) -> Self {
        Self {
            code,
            description: description.into(),
            condition: None,
            body: Value::Null,
        }
    }

    fn failed(code: i32, condition: &str, description: impl Into<String>) -> Self {
        Self {
            condition: Some(condition.to_owned()),
            ..Self::new(code, description)
        }
    }
}

/// Takes one frame on a link for requests.
pub(crate) fn transfer(session: &mut Session, core: &mut Core, transfer: Transfer) {
    let handle = transfer.handle;
    let Some(Link {
        role: Role::Requests { node, receiving },
        ..
    }) = session.links.get_mut(&handle)
    else {
        return;
    };
    let node = *node;
    let delivery = match receiving.accept(transfer) {
        Progress::Partial => return,
        Progress::Whole(delivery) => delivery,
        Progress::Broken(condition, text) => {
            session.detach_with(core, handle, condition, text);
            return;
        }
    };
    let request = Request::parse(&delivery.payload);
    if !delivery.settled {
        let state = match &request {
            Ok(_) => accepted(),
            Err(error) => rejected("amqp:decode-error", &error.to_string()),
        };
        receiving.settle(core, &session.window, delivery.id, state);
    }
    receiving.replenish(core, &session.window);
    if let Ok(request) = request {
        respond(session, core, node, &request);
    }
}

fn respond(session: &mut Session, core: &mut Core, node: Node, request: &Request) {
    let step = match node {
        Node::Cbs => Step::Cbs,
        Node::Management => Step::Management,
    };
    let mut delay = None;
    let status = match core.strike(Site::step(step)) {
        Verdict::Proceed => answer(core, node, request),
        Verdict::Skip => return,
        Verdict::Special(Action::Status {
            code,
            description,
            condition,
        }) => Status {
            code,
            description,
            condition,
            body: Value::Null,
        },
        Verdict::Special(Action::DelayAnswer(duration)) => {
            delay = Some(duration);
            answer(core, node, request)
        }
        Verdict::Special(Action::EndSession(error)) => {
            session.end_with(core, &error.condition, &error.description);
            return;
        }
        Verdict::Special(_) => answer(core, node, request),
    };
    count(core, node, status.code);
    let message = encode_answer(&request.message_id, status);
    let Some(link) = reply_link(session, node, request.reply_to.as_deref()) else {
        tracing::debug!(?node, "a request came without a link for its answer");
        return;
    };
    match delay {
        Some(delay) => core.schedule(Instant::now() + delay, link, Later::Answer { message }),
        None => session.handle_later(core, link, Later::Answer { message }),
    }
}

fn count(core: &Core, node: Node, code: i32) {
    core.count(
        |counters| match (node, code) {
            (Node::Management, _) => &counters.management_requests,
            (Node::Cbs, 200..300) => &counters.tokens_accepted,
            (Node::Cbs, _) => &counters.tokens_refused,
        },
        1,
    );
}

/// The link that asked to be the address for answers; else the newest from the node.
///
/// Clients name the link, its target, or nothing at all.
fn reply_link(session: &Session, node: Node, wanted: Option<&str>) -> Option<LinkRef> {
    let links = session.links.values().filter_map(|link| match &link.role {
        Role::Sending(Sending {
            supply:
                Supply::Answers {
                    node: from,
                    reply_to,
                    ..
                },
            ..
        }) if *from == node => {
            let named = wanted.is_some()
                && (wanted == Some(link.name.as_str()) || wanted == reply_to.as_deref());
            Some(((named, link.reference.serial), link.reference))
        }
        _ => None,
    });
    links.max_by_key(|(rank, _)| *rank).map(|(_, link)| link)
}

fn encode_answer(message_id: &Value, status: Status) -> Vec<u8> {
    let mut properties = vec![Value::Null; 13];
    // correlation-id, of the same type as the message-id it repeats
    properties[5] = message_id.clone();
    let mut entries = vec![
        (string("status-code"), Value::Int(status.code)),
        (
            string("status-description"),
            Value::String(status.description),
        ),
    ];
    if let Some(condition) = status.condition {
        entries.push((string("error-condition"), string(condition)));
    }
    let mut message = encode(&composite(code::PROPERTIES, properties));
    message.extend(encode(&described(
        code::APPLICATION_PROPERTIES,
        map(entries),
    )));
    message.extend(encode(&described(code::AMQP_VALUE, status.body)));
    message
}

fn answer(core: &mut Core, node: Node, request: &Request) -> Status {
    match (node, request.property("operation")) {
        (Node::Cbs, Some("put-token")) => put_token(core, request),
        (Node::Management, Some("READ")) => read(core, request),
        _ => Status::failed(501, "amqp:not-implemented", "the operation is not known"),
    }
}

fn put_token(core: &mut Core, request: &Request) -> Status {
    let Some(audience) = request.property("name") else {
        return Status::failed(
            400,
            "com.microsoft:argument-error",
            "the token has no audience",
        );
    };
    let Some(token) = text_of(&request.body) else {
        return Status::failed(400, "com.microsoft:argument-error", "the body is no token");
    };
    let grant = match &core.shared.settings.sas {
        None => Ok(Grant {
            path: sas::lower_path(audience),
            expires: u64::MAX,
        }),
        Some(key) => key.check(token, audience, now_seconds()),
    };
    match grant {
        Ok(grant) => {
            core.grant(grant);
            Status::new(202, "Accepted")
        }
        Err(error) => Status::failed(401, "amqp:unauthorized-access", error.to_string()),
    }
}

fn read(core: &Core, request: &Request) -> Status {
    let name = request.property("name").unwrap_or_default();
    let Some(hub) = core.shared.store.hub(name) else {
        let text = format!("the messaging entity '{name}' could not be found");
        return Status::failed(404, "amqp:not-found", text);
    };
    let body = match request.property("type") {
        Some("com.microsoft:eventhub") => hub_properties(hub),
        Some("com.microsoft:partition") => {
            let id = request.property("partition").unwrap_or_default();
            let properties = hub.partition(id).and_then(|index| hub.properties(index));
            let Some(properties) = properties else {
                let text = format!("the partition '{id}' of '{name}' could not be found");
                return Status::failed(404, "amqp:not-found", text);
            };
            partition_properties(hub, id, &properties)
        }
        _ => {
            return Status::failed(400, "com.microsoft:argument-error", "the type is not known");
        }
    };
    Status {
        body,
        ..Status::new(200, "OK")
    }
}

fn timestamp(ms: i64) -> Value {
    Value::Timestamp(Timestamp::from_milliseconds(ms))
}

fn hub_properties(hub: &HubStore) -> Value {
    let ids = (0..hub.partition_count())
        .map(|index| string(index.to_string()))
        .collect();
    map([
        (string("name"), string(hub.name())),
        (string("type"), string("com.microsoft:eventhub")),
        (string("created_at"), timestamp(hub.created_ms())),
        (
            string("partition_count"),
            Value::Int(i32::try_from(hub.partition_count()).unwrap_or(i32::MAX)),
        ),
        (string("partition_ids"), Value::Array(Array(ids))),
        (string("georeplication_factor"), Value::Int(1)),
    ])
}

fn partition_properties(hub: &HubStore, id: &str, properties: &PartitionProperties) -> Value {
    // As the service does for a partition that never held an event.
    let offset = properties
        .last_enqueued_offset
        .map_or("-1".to_owned(), |n| n.to_string());
    map([
        (string("name"), string(hub.name())),
        (string("type"), string("com.microsoft:partition")),
        (string("partition"), string(id)),
        (
            string("begin_sequence_number"),
            Value::Long(properties.begin_sequence_number),
        ),
        (string("begin_sequence_number_epoch"), Value::Int(-1)),
        (
            string("last_enqueued_sequence_number"),
            Value::Long(properties.last_enqueued_sequence_number),
        ),
        (
            string("last_enqueued_sequence_number_epoch"),
            Value::Int(-1),
        ),
        (string("last_enqueued_offset"), string(offset)),
        (
            string("last_enqueued_time_utc"),
            timestamp(properties.last_enqueued_ms.unwrap_or(0)),
        ),
        (
            string("is_partition_empty"),
            Value::Bool(properties.is_empty),
        ),
        (
            string("runtime_info_retrieval_time_utc"),
            timestamp(crate::store::now_ms()),
        ),
    ])
}
