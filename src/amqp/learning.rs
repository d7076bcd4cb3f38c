//! What `connect` learns of the hub: its partitions from `$management`, and the limit for
//! messages from a link to the first of them.

use super::requests::Asked;
use crate::partition::PartitionId;
use crate::transport::{HubInfo, LinkError};
use fe2o3_amqp_types::primitives::SimpleValue;
use serde_amqp::Value;

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct Learning {
    partitions: Vec<PartitionId>,
    outcome: Option<Result<HubInfo, LinkError>>,
}

/// The request for a hub's description.
pub(super) fn request(hub: &str, token: &str) -> Asked {
    let text = |text: &str| SimpleValue::String(text.to_owned());
    vec![
        ("operation", text("READ")),
        ("type", text("com.microsoft:eventhub")),
        ("name", text(hub)),
        ("security_token", text(token)),
    ]
}

impl Learning {
    /// Takes the hub's description; the partition to probe next, if all is well so far.
    pub(super) fn description(&mut self, answer: Result<Value, LinkError>) -> Option<PartitionId> {
        let partitions = answer.and_then(|body| {
            partitions(&body).ok_or_else(|| {
                let what = "the hub's description names no partitions";
                LinkError::new("amqp:decode-error", what)
            })
        });
        match partitions {
            Err(error) => self.fail(error),
            Ok(partitions) => self.partitions = partitions,
        }
        let first = self.partitions.first().cloned();
        if first.is_none() {
            self.max_message_size(0);
        }
        first
    }

    /// Takes the limit for messages, the last thing to be learned.
    pub(super) fn max_message_size(&mut self, bytes: u64) {
        let hub = HubInfo {
            partitions: std::mem::take(&mut self.partitions),
            // Zero stands for no limit (AMQP 1.0, 2.7.3).
            max_message_size: if bytes == 0 { u64::MAX } else { bytes },
        };
        self.outcome.get_or_insert(Ok(hub));
    }

    /// Something went wrong; what is first to go wrong counts.
    pub(super) fn fail(&mut self, error: LinkError) {
        self.outcome.get_or_insert(Err(error));
    }

    /// What it came to, once it has.
    pub(super) fn outcome(&mut self) -> Option<Result<HubInfo, LinkError>> {
        self.outcome.take()
    }
}

fn partitions(description: &Value) -> Option<Vec<PartitionId>> {
    let Value::Map(map) = description else {
        return None;
    };
    let named = |key: &Value| match key {
        Value::String(name) => name == "partition_ids",
        Value::Symbol(name) => name.as_str() == "partition_ids",
        _ => false,
    };
    let (_, ids) = map.iter().find(|(key, _)| named(key))?;
    let ids: Vec<&Value> = match ids {
        Value::Array(ids) => ids.iter().collect(),
        Value::List(ids) => ids.iter().collect(),
        one => vec![one],
    };
    ids.into_iter()
        .map(|id| match id {
            Value::String(id) => Some(PartitionId::from(id.as_str())),
            _ => None,
        })
        .collect()
}
