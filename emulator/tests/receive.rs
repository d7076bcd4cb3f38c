//! Reading through a link, as a consumer does.

mod common;

use common::*;
use fe2o3_amqp::{Receiver, link::receiver::CreditMode};
use fe2o3_amqp_types::{
    messaging::{Body, Message, Source},
    primitives::{Symbol, Timestamp, Value},
};
use hublane_emulator::HubHandle;
use serde_amqp::{described::Described, descriptor::Descriptor};

const ADDRESS: &str = "amqps://ns/hub/ConsumerGroups/$Default/Partitions/0";

async fn receiver(client: &mut Client, selector: &str, credit: CreditMode) -> Receiver {
    let filter = Described {
        descriptor: Descriptor::Name(Symbol::from("apache.org:selector-filter:string")),
        value: Value::String(selector.into()),
    };
    let source = Source::builder()
        .address(ADDRESS)
        .add_to_filter("apache.org:selector-filter:string", Some(filter))
        .build();
    Receiver::builder()
        .name(selector)
        .source(source)
        .credit_mode(credit)
        .attach(&mut client.session)
        .await
        .unwrap()
}

async fn recv(receiver: &mut Receiver) -> Message<Body<Value>> {
    let delivery = receiver.recv::<Body<Value>>().await.unwrap();
    receiver.accept(&delivery).await.unwrap();
    delivery.into_message()
}

fn text(message: &Message<Body<Value>>) -> String {
    let data = message.body.try_as_data().ok().unwrap().next().unwrap();
    String::from_utf8(data.to_vec()).unwrap()
}

async fn fill(client: &mut Client, hub: &HubHandle, batches: &[&[&str]]) {
    let mut sender = client.sender("hub/Partitions/0").await;
    for batch in batches {
        assert!(send(&mut sender, bodies(batch)).await.is_accepted());
    }
    sender.close().await.unwrap();
    assert_eq!(
        hub.len(),
        batches.iter().map(|batch| batch.len()).sum::<usize>()
    );
}

#[test]
fn events_come_with_the_annotations_of_the_service() {
    run(async {
        let (emulator, hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("hub/Partitions/0").await;
        send(
            &mut sender,
            batch(vec![event("a", None), event("b", Some("key"))]),
        )
        .await;
        let all = "amqp.annotation.x-opt-offset > '-1'";
        let mut receiver = receiver(&mut client, all, CreditMode::Auto(10)).await;
        for (number, body, key) in [(0, "a", None), (1, "b", Some("key"))] {
            let message = recv(&mut receiver).await;
            let stored = &hub.events(0)[number as usize];
            assert_eq!(text(&message), body);
            let annotations = message.message_annotations.unwrap().0;
            let annotation = |name: &str| {
                annotations
                    .get(
                        &Symbol::from(name)
                            as &dyn fe2o3_amqp_types::messaging::annotations::AnnotationKey,
                    )
                    .cloned()
            };
            assert_eq!(
                annotation("x-opt-sequence-number"),
                Some(Value::Long(number))
            );
            assert_eq!(
                annotation("x-opt-offset"),
                Some(Value::String(stored.offset().to_string()))
            );
            assert!(matches!(
                annotation("x-opt-enqueued-time"),
                Some(Value::Timestamp(_))
            ));
            assert_eq!(
                annotation("x-opt-partition-key"),
                key.map(|key| Value::String(key.into()))
            );
            assert!(
                message
                    .application_properties
                    .unwrap()
                    .0
                    .contains_key("size")
            );
        }
    });
}

#[test]
fn selectors_start_where_they_say() {
    run(async {
        let (emulator, hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        fill(&mut client, &hub, &[&["0", "1"], &["2"], &["3"]]).await;
        let events = hub.events(0);
        let offset = events[1].offset();
        let time = Timestamp::from_milliseconds(
            i64::try_from(
                events[0]
                    .enqueued_time()
                    .duration_since(std::time::UNIX_EPOCH)
                    .unwrap()
                    .as_millis(),
            )
            .unwrap(),
        );
        for (selector, first) in [
            (format!("amqp.annotation.x-opt-offset > '{offset}'"), "2"),
            (format!("amqp.annotation.x-opt-offset >= '{offset}'"), "1"),
            ("amqp.annotation.x-opt-sequence-number > '2'".into(), "3"),
            ("amqp.annotation.x-opt-sequence-number >= '2'".into(), "2"),
            (
                format!(
                    "amqp.annotation.x-opt-enqueued-time >= '{}'",
                    time.milliseconds()
                ),
                "0",
            ),
        ] {
            let mut receiver = receiver(&mut client, &selector, CreditMode::Auto(10)).await;
            assert_eq!(text(&recv(&mut receiver).await), first, "{selector}");
            receiver.close().await.unwrap();
        }
    });
}

#[test]
fn a_reader_at_the_end_sees_what_arrives_later() {
    run(async {
        let (emulator, hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        fill(&mut client, &hub, &[&["old"]]).await;
        let latest = "amqp.annotation.x-opt-offset > '@latest'";
        let mut receiver = receiver(&mut client, latest, CreditMode::Auto(10)).await;
        let mut other = Client::connect(&emulator).await;
        let mut sender = other.sender("hub/Partitions/0").await;
        for body in ["x", "y"] {
            send(&mut sender, bodies(&[body])).await;
            assert_eq!(text(&recv(&mut receiver).await), body);
        }
    });
}

#[test]
fn credit_is_kept_to() {
    run(async {
        let (emulator, hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let texts: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        fill(&mut client, &hub, &[&texts]).await;
        let all = "amqp.annotation.x-opt-offset > '-1'";
        let mut receiver = receiver(&mut client, all, CreditMode::Manual).await;
        receiver.set_credit(3).await.unwrap();
        for expected in ["0", "1", "2"] {
            assert_eq!(text(&recv(&mut receiver).await), expected);
        }
        // A request on the same connection is answered after anything that was sent before it.
        let request = [
            ("operation", "READ"),
            ("type", "com.microsoft:eventhub"),
            ("name", HUB),
        ];
        client.request("$management", Request(&request, "")).await;
        assert_eq!(emulator.stats().events_delivered, 3);
        receiver.set_credit(1).await.unwrap();
        assert_eq!(text(&recv(&mut receiver).await), "3");
    });
}

#[test]
fn a_large_event_and_many_small_ones_pass_through_the_window() {
    run(async {
        let (emulator, hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let large = "x".repeat(900_000);
        let mut sender = client.sender("hub/Partitions/0").await;
        send(&mut sender, bodies(&[&large])).await;
        let small = (0..8000).map(|n| event(&n.to_string(), None)).collect();
        send(&mut sender, batch(small)).await;
        hub.wait_for_events(8001, LIMIT).unwrap();
        let all = "amqp.annotation.x-opt-offset > '-1'";
        let mut receiver = receiver(&mut client, all, CreditMode::Auto(500)).await;
        assert_eq!(text(&recv(&mut receiver).await), large);
        for n in 0..8000 {
            assert_eq!(text(&recv(&mut receiver).await), n.to_string());
        }
    });
}

#[test]
fn an_unknown_selector_or_partition_is_refused() {
    run(async {
        let (emulator, _hub) = emulator();
        for address in [
            "hub/ConsumerGroups/$Default/Partitions/7",
            "hub",
            "nohub/ConsumerGroups/g/Partitions/0",
        ] {
            // The library cannot reuse a session in which a link was refused.
            let mut client = Client::connect(&emulator).await;
            assert!(
                Receiver::attach(&mut client.session, address, address)
                    .await
                    .is_err()
            );
        }
        assert_eq!(emulator.stats().attaches_refused, 3);
    });
}
