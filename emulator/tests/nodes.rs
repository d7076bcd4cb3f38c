//! `$management`, `$cbs` and the permissions that come with tokens.

mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use common::*;
use fe2o3_amqp::{link::SenderAttachError, sasl_profile::SaslProfile};
use fe2o3_amqp_types::messaging::MessageId;
use hmac::{Hmac, KeyInit, Mac};
use hublane_emulator::{Emulator, Value};

fn entry(map: &Value, key: &str) -> Value {
    match map {
        Value::Map(map) => map
            .get(&Value::String(key.into()))
            .cloned()
            .unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

const HUB_TYPE: (&str, &str) = ("type", "com.microsoft:eventhub");
const PARTITION_TYPE: (&str, &str) = ("type", "com.microsoft:partition");
const READ: (&str, &str) = ("operation", "READ");

#[test]
fn management_tells_of_hubs_and_partitions() {
    run(async {
        let (emulator, _hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("hub/Partitions/1").await;
        send(&mut sender, bodies(&["a", "b"])).await;

        let hub = client
            .request("$management", Request(&[READ, HUB_TYPE, ("name", HUB)], ""))
            .await;
        assert_eq!(
            (hub.status, hub.correlation),
            (200, Some(MessageId::Ulong(7)))
        );
        assert_eq!(entry(&hub.body, "name"), Value::String(HUB.into()));
        assert_eq!(entry(&hub.body, "partition_count"), Value::Int(2));
        let ids = ["0", "1"].map(|id| Value::String(id.into())).to_vec();
        assert_eq!(entry(&hub.body, "partition_ids"), Value::Array(ids.into()));
        assert!(matches!(
            entry(&hub.body, "created_at"),
            Value::Timestamp(_)
        ));

        let request = [
            READ,
            PARTITION_TYPE,
            ("name", HUB),
            ("partition", "1"),
            ("security_token", "x"),
        ];
        let full = client.request("$management", Request(&request, "")).await;
        assert_eq!(
            entry(&full.body, "last_enqueued_sequence_number"),
            Value::Long(1)
        );
        assert_eq!(entry(&full.body, "begin_sequence_number"), Value::Long(0));
        assert_eq!(entry(&full.body, "is_partition_empty"), Value::Bool(false));
        assert!(matches!(
            entry(&full.body, "last_enqueued_sequence_number_epoch"),
            Value::Int(_)
        ));
        let request = [READ, PARTITION_TYPE, ("name", HUB), ("partition", "0")];
        let empty = client.request("$management", Request(&request, "")).await;
        assert_eq!(
            entry(&empty.body, "last_enqueued_sequence_number"),
            Value::Long(-1)
        );
        assert_eq!(
            entry(&empty.body, "last_enqueued_offset"),
            Value::String("-1".into())
        );
        assert_eq!(entry(&empty.body, "is_partition_empty"), Value::Bool(true));
    });
}

#[test]
fn management_tells_what_does_not_exist() {
    run(async {
        let (emulator, _hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        for (request, status, condition) in [
            (
                vec![READ, HUB_TYPE, ("name", "nohub")],
                404,
                "amqp:not-found",
            ),
            (
                vec![READ, PARTITION_TYPE, ("name", HUB), ("partition", "9")],
                404,
                "amqp:not-found",
            ),
            (
                vec![READ, ("type", "x"), ("name", HUB)],
                400,
                "com.microsoft:argument-error",
            ),
            (
                vec![("operation", "WRITE"), HUB_TYPE],
                501,
                "amqp:not-implemented",
            ),
        ] {
            let answer = client.request("$management", Request(&request, "")).await;
            assert_eq!(
                (answer.status, answer.condition.as_deref()),
                (status, Some(condition))
            );
        }
    });
}

#[test]
fn any_token_will_do_without_a_key() {
    run(async {
        let (emulator, _hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let request = [
            ("operation", "put-token"),
            ("type", "jwt"),
            ("name", "amqps://ns/hub"),
        ];
        let answer = client.request("$cbs", Request(&request, "anything")).await;
        assert_eq!(
            (answer.status, answer.correlation),
            (202, Some(MessageId::Ulong(7)))
        );
        assert_eq!(emulator.stats().tokens_accepted, 1);
    });
}

fn token(audience: &str, key: &str, expiry: u64) -> String {
    let encode = |text: &str| {
        text.replace(':', "%3a")
            .replace('/', "%2f")
            .replace('+', "%2B")
            .replace('=', "%3D")
    };
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(format!("{}\n{expiry}", encode(audience)).as_bytes());
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    format!(
        "SharedAccessSignature sr={}&sig={}&se={expiry}&skn=rule",
        encode(audience),
        encode(&signature)
    )
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

async fn put(client: &mut Client, audience: &str, token: &str) -> i32 {
    let kind = ("type", "servicebus.windows.net:sastoken");
    let request = [("operation", "put-token"), kind, ("name", audience)];
    client
        .request("$cbs", Request(&request, token))
        .await
        .status
}

#[test]
fn with_a_key_a_link_needs_a_token_that_covers_it() {
    run(async {
        let (emulator, hub) = start(Emulator::builder().sas_key("rule", "secret"));
        let audience = "amqps://ns/hub/Partitions/0";
        let refused =
            async |mut client: Client, address: &str| match client.try_sender(address).await {
                Err(SenderAttachError::RemoteClosedWithError(error)) => {
                    assert!(
                        format!("{:?}", error.condition).contains("Unauthorized"),
                        "{error:?}"
                    );
                }
                other => panic!("{other:?}"),
            };
        refused(Client::connect(&emulator).await, "hub/Partitions/0").await;
        let soon = now() + 600;
        let mut client = Client::connect(&emulator).await;
        assert_eq!(
            put(&mut client, audience, &token(audience, "wrong", soon)).await,
            401
        );
        assert_eq!(
            put(&mut client, audience, &token(audience, "secret", now() - 1)).await,
            401
        );
        assert_eq!(
            put(
                &mut client,
                "amqps://ns/other",
                &token(audience, "secret", soon)
            )
            .await,
            401
        );
        refused(client, "hub/Partitions/0").await;

        let mut client = Client::connect(&emulator).await;
        assert_eq!(
            put(&mut client, audience, &token(audience, "secret", soon)).await,
            202
        );
        let mut sender = client.sender("hub/Partitions/0").await;
        assert!(send(&mut sender, bodies(&["a"])).await.is_accepted());
        assert_eq!(hub.len(), 1);
        refused(client, "hub/Partitions/1").await;
        // Tokens belong to their connection.
        refused(Client::connect(&emulator).await, "hub/Partitions/0").await;
        let stats = emulator.stats();
        assert_eq!((stats.tokens_accepted, stats.tokens_refused), (1, 3));
    });
}

#[test]
fn a_connection_has_one_cbs_link_at_a_time() {
    run(async {
        let (emulator, _hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        client.sender("$cbs").await.close().await.unwrap();
        let _first = client.sender("$cbs").await;
        assert!(client.try_sender("$cbs").await.is_err());
        assert_eq!(emulator.stats().cbs_conflicts, 1);

        let (emulator, _hub) = start(Emulator::builder().exclusive_cbs(false));
        let mut client = Client::connect(&emulator).await;
        let _first = client.sender("$cbs").await;
        client.sender("$cbs").await;
    });
}

#[test]
fn mechanisms_of_the_service_are_accepted() {
    run(async {
        let (emulator, _hub) = emulator();
        for profile in [
            SaslProfile::Anonymous,
            SaslProfile::Plain {
                username: "u".into(),
                password: "p".into(),
            },
        ] {
            Client::connect_with(&emulator, profile)
                .await
                .sender(HUB)
                .await;
        }
    });
}
