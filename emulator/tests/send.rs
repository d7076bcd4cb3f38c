//! Sending: what is stored, where, and what is refused.

mod common;

use std::{collections::VecDeque, time::Duration};

use common::*;
use fe2o3_amqp::{Sendable, link::SenderAttachError};
use fe2o3_amqp_types::messaging::{Message, Outcome};
use hublane_emulator::{Emulator, Position, Retention, Value};

fn condition(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Rejected(rejected) => format!("{:?}", rejected.error.as_ref().unwrap().condition),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_is_stored_in_order_with_all_that_it_carries() {
    run(async {
        let (emulator, hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("hub/Partitions/1").await;
        assert_eq!(sender.max_message_size(), Some(1_048_576));
        assert!(
            send(&mut sender, bodies(&["a", "bb", "ccc"]))
                .await
                .is_accepted()
        );
        assert_eq!(stored(&hub, 1), ["a", "bb", "ccc"]);
        assert_eq!(stored(&hub, 0), [] as [&str; 0]);
        let events = hub.events(1);
        assert_eq!(events[2].sequence_number(), 2);
        assert_eq!(events[2].property("size"), Some(Value::Long(3)));
        assert_eq!(&events[0].raw()[..], event("a", None));
        assert!(events[0].offset() < events[1].offset());
        assert_eq!((hub.len(), hub.stored()), (3, 3));
        let stats = emulator.stats();
        assert_eq!(
            (stats.transfers, stats.accepted, stats.events_stored),
            (1, 1, 3)
        );
    });
}

#[test]
fn a_batch_of_many_frames_is_put_together_again() {
    run(async {
        let (emulator, hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("hub/Partitions/0").await;
        let texts: Vec<String> = (0..3000).map(|n| format!("{n:0>300}")).collect();
        let events = texts.iter().map(|text| event(text, None)).collect();
        assert!(send(&mut sender, batch(events)).await.is_accepted());
        assert_eq!(stored(&hub, 0), texts);
    });
}

#[test]
fn many_messages_pass_the_credit_and_the_window() {
    run(async {
        let (emulator, hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("hub/Partitions/0").await;
        let mut outcomes = VecDeque::new();
        // Beyond the session window of 5000 and the link credit of 1000, several times.
        for n in 0..12_000 {
            let message = bodies(&[&n.to_string()]);
            outcomes.push_back(sender.send_batchable(message).await.unwrap());
            if outcomes.len() == 100 {
                assert!(outcomes.pop_front().unwrap().await.unwrap().is_accepted());
            }
        }
        for outcome in outcomes {
            assert!(outcome.await.unwrap().is_accepted());
        }
        let events = hub.events(0);
        assert_eq!(events.len(), 12_000);
        assert!(
            (0..)
                .zip(&events)
                .all(|(n, event)| event.body() == n.to_string())
        );
    });
}

#[test]
fn an_emulator_starts_again_on_the_same_port() {
    run(async {
        let (first, _hub) = emulator();
        let address = first.local_addr();
        let mut client = Client::connect(&first).await;
        client.sender(HUB).await;
        first.shutdown(LIMIT).unwrap();
        assert!(client.connection.on_close().await.is_err());
        let (second, hub) = start(Emulator::builder().bind(address));
        assert_eq!(second.local_addr(), address);
        let mut client = Client::connect(&second).await;
        let mut sender = client.sender(HUB).await;
        assert!(send(&mut sender, bodies(&["x"])).await.is_accepted());
        assert_eq!(hub.len(), 1);
    });
}

#[test]
fn a_plain_message_is_one_event() {
    run(async {
        let (emulator, hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("amqps://ns/hub/Partitions/0").await;
        let message = Message::builder().value("text").build();
        assert!(sender.send(message).await.unwrap().is_accepted());
        assert_eq!(hub.events(0)[0].body_value(), Value::String("text".into()));
    });
}

#[test]
fn the_hub_link_hashes_keys_and_goes_round_without() {
    run(async {
        let (emulator, hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("hub").await;
        for (key, partition) in [("7", 1), ("131", 0), ("sOdeEAsyQoEuEFPGerWO", 1)] {
            let before = hub.events(partition).len();
            let keyed = batch(vec![event("x", Some(key)), event("y", Some(key))]);
            assert!(send(&mut sender, keyed).await.is_accepted());
            let events = hub.events(partition);
            assert_eq!(events.len(), before + 2, "{key}");
            assert_eq!(events[before].partition_key(), Some(key));
        }
        let before = [hub.events(0).len(), hub.events(1).len()];
        for _ in 0..4 {
            send(&mut sender, bodies(&["z"])).await;
        }
        assert_eq!(
            [hub.events(0).len(), hub.events(1).len()],
            before.map(|n| n + 2)
        );
    });
}

#[test]
fn unknown_entities_refuse_the_link() {
    run(async {
        let (emulator, _hub) = emulator();
        for address in [
            "nohub",
            "hub/Partitions/2",
            "hub/Partitions/01",
            "hub/x/y/z",
            "nohub/Partitions/0",
        ] {
            let mut client = Client::connect(&emulator).await;
            match client.try_sender(address).await {
                Err(SenderAttachError::RemoteClosedWithError(error)) => {
                    assert!(
                        format!("{:?}", error.condition).contains("NotFound"),
                        "{error:?}"
                    );
                }
                other => panic!("{address}: {other:?}"),
            }
        }
        assert_eq!(emulator.stats().attaches_refused, 5);
    });
}

#[test]
fn a_batch_with_a_broken_event_is_rejected_as_a_whole() {
    run(async {
        let (emulator, hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("hub/Partitions/0").await;
        let mut torn = event("torn", None);
        torn.pop();
        for bad in [torn, vec![0xff; 9], Vec::new(), vec![0x00, 0x53, 0x77]] {
            let outcome = send(&mut sender, batch(vec![event("good", None), bad])).await;
            assert!(condition(&outcome).contains("DecodeError"), "{outcome:?}");
        }
        let outcome = send(&mut sender, batch(Vec::new())).await;
        assert!(condition(&outcome).contains("DecodeError"), "{outcome:?}");
        assert!(hub.is_empty());
        assert!(send(&mut sender, bodies(&["next"])).await.is_accepted());
    });
}

#[test]
fn a_message_above_the_limit_ends_the_link() {
    run(async {
        let (emulator, hub) = start(Emulator::builder().max_message_size(1000));
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("hub/Partitions/0").await;
        let fits = event(&"x".repeat(900), None);
        assert!(send(&mut sender, batch(vec![fits])).await.is_accepted());
        // The library refuses locally, so the test asks for a larger limit than the peer told.
        let large = event(&"x".repeat(1100), None);
        assert!(try_send(&mut sender, batch(vec![large])).await.is_err());
        assert_eq!(hub.len(), 1);
    });
}

#[test]
fn full_memory_rejects_or_drops_the_oldest() {
    run(async {
        let small = || Emulator::builder().max_memory_bytes(4096);
        let (emulator, hub) = start(small());
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("hub/Partitions/0").await;
        let text = "x".repeat(1000);
        for _ in 0..3 {
            assert!(send(&mut sender, bodies(&[&text])).await.is_accepted());
        }
        let outcome = send(&mut sender, bodies(&[&text])).await;
        assert!(
            condition(&outcome).contains("ResourceLimitExceeded"),
            "{outcome:?}"
        );
        assert!(hub.memory_bytes() <= 4096);

        let (emulator, hub) = start(small().retention(Retention::DropOldest));
        let mut subscription = hub.subscribe(Position::Start);
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("hub/Partitions/0").await;
        for _ in 0..10 {
            assert!(send(&mut sender, bodies(&[&text])).await.is_accepted());
        }
        assert!(hub.memory_bytes() <= 4096);
        assert_eq!((hub.len(), hub.stored()), (3, 10));
        let events = subscription.next_events(99, Duration::ZERO);
        assert_eq!((events.len(), subscription.missed()), (3, 7));
        assert_eq!(events[0].sequence_number(), 7);
    });
}

#[test]
fn a_settled_message_is_stored_without_an_answer() {
    run(async {
        let (emulator, hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("hub/Partitions/0").await;
        let mut message: Sendable<_> = bodies(&["quiet"]);
        message.settled = Some(true);
        sender.send(message).await.unwrap();
        assert!(send(&mut sender, bodies(&["loud"])).await.is_accepted());
        assert_eq!(stored(&hub, 0), ["quiet", "loud"]);
    });
}

#[test]
fn waiting_and_subscribing_see_events_arrive() {
    let (emulator, hub) = emulator();
    let mut subscription = hub.subscribe(Position::End);
    assert!(hub.wait_for_events(1, Duration::ZERO).is_err());
    assert!(subscription.next_event(Duration::ZERO).is_none());
    run(async {
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender("hub").await;
        send(&mut sender, bodies(&["1", "2"])).await;
        send(&mut sender, bodies(&["3"])).await;
    });
    hub.wait_for_events(3, LIMIT).unwrap();
    let mut seen: Vec<_> = (0..3)
        .map(|_| subscription.next_event(LIMIT).unwrap().body())
        .collect();
    seen.sort();
    assert_eq!(seen, ["1", "2", "3"]);
    emulator.shutdown(LIMIT).unwrap();
    assert_eq!(hub.len(), 3);
}
