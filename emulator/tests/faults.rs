//! Every fault, as a client meets it.

mod common;

use std::time::{Duration, Instant};

use common::*;
use fe2o3_amqp::{link::SendError, sasl_profile::SaslProfile};
use fe2o3_amqp_types::messaging::Outcome;
use hublane_emulator::{Disruption, Emulator, Fault, FaultId, HubHandle, Moment, SocketDrop, Step};

const ADDRESS: &str = "hub/Partitions/0";
const SHORT: Duration = Duration::from_millis(60);

/// An emulator with one fault, and a sender with which it is to be met.
async fn with(fault: Fault) -> (Emulator, HubHandle, FaultId, Client, fe2o3_amqp::Sender) {
    let (emulator, hub) = emulator();
    let id = emulator.faults().push(fault);
    let mut client = Client::connect(&emulator).await;
    let sender = client.sender(ADDRESS).await;
    (emulator, hub, id, client, sender)
}

/// Sends one message whose outcome never comes, and waits until the fault has struck.
async fn send_into_the_void(
    emulator: &Emulator,
    id: FaultId,
    sender: &mut fe2o3_amqp::Sender,
) -> impl Future<Output = Result<Outcome, SendError>> + use<> {
    let outcome = sender.send_batchable(bodies(&["lost"])).await.unwrap();
    struck(emulator, id).await;
    outcome
}

/// Waits without blocking the client's own runtime.
async fn struck(emulator: &Emulator, id: FaultId) {
    let faults = emulator.faults().clone();
    let wait = move || faults.wait_fired(id, 1, LIMIT / 2);
    assert!(
        tokio::task::spawn_blocking(wait).await.unwrap(),
        "the fault did not strike"
    );
}

#[test]
fn messages_are_rejected_released_and_modified() {
    run(async {
        let (emulator, hub, id, _client, mut sender) =
            with(Fault::reject("com.microsoft:server-busy", "wait 4 seconds").times(2)).await;
        for _ in 0..2 {
            let outcome = send(&mut sender, bodies(&["x"])).await;
            let Outcome::Rejected(rejected) = outcome else {
                panic!("{outcome:?}")
            };
            let error = rejected.error.unwrap();
            assert!(format!("{:?}", error.condition).contains("com.microsoft:server-busy"));
            assert_eq!(error.description.as_deref(), Some("wait 4 seconds"));
        }
        assert!(send(&mut sender, bodies(&["x"])).await.is_accepted());
        emulator.faults().push(Fault::release());
        assert!(matches!(
            send(&mut sender, bodies(&["x"])).await,
            Outcome::Released(_)
        ));
        emulator.faults().push(Fault::modify(true, false));
        let outcome = send(&mut sender, bodies(&["x"])).await;
        let Outcome::Modified(modified) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(modified.delivery_failed, Some(true));
        assert_eq!((hub.len(), emulator.faults().fired(id)), (1, 2));
        assert_eq!(emulator.faults().fired_total(), 4);
        assert_eq!(emulator.stats().rejected, 2);
    });
}

#[test]
fn hub_partition_and_occasion_are_respected() {
    run(async {
        let fault = Fault::release().hub(HUB).partition(0).nth(2);
        let (emulator, hub, id, mut client, mut sender) = with(fault).await;
        let mut other = client.sender("hub/Partitions/1").await;
        for _ in 0..3 {
            assert!(send(&mut other, bodies(&["1"])).await.is_accepted());
        }
        assert!(send(&mut sender, bodies(&["first"])).await.is_accepted());
        assert!(!send(&mut sender, bodies(&["second"])).await.is_accepted());
        assert!(send(&mut sender, bodies(&["third"])).await.is_accepted());
        assert_eq!(stored(&hub, 0), ["first", "third"]);
        emulator.faults().push(Fault::release().always());
        emulator.faults().clear();
        assert!(send(&mut sender, bodies(&["fourth"])).await.is_accepted());
        assert_eq!(emulator.faults().fired(id), 1);
    });
}

#[test]
fn links_sessions_and_connections_end_with_their_condition() {
    run(async {
        let fault = Fault::detach_link("amqp:link:detach-forced", "idle");
        let (_emulator, hub, _, _client, mut sender) = with(fault).await;
        let error = try_send(&mut sender, bodies(&["x"])).await.unwrap_err();
        assert!(format!("{error:?}").contains("DetachForced"), "{error:?}");
        assert!(hub.is_empty());

        // Of these two the library tells session and connection, but not the message in flight.
        let fault = Fault::end_session(Step::Transfer, "amqp:internal-error", "session");
        let (emulator, hub, id, mut client, mut sender) = with(fault).await;
        let _outcome = send_into_the_void(&emulator, id, &mut sender).await;
        let error = client.session.on_end().await.unwrap_err();
        assert!(format!("{error:?}").contains("InternalError"), "{error:?}");
        assert!(hub.is_empty());

        let fault = Fault::close_connection(Step::Transfer, "amqp:connection:forced", "all");
        let (emulator, hub, id, mut client, mut sender) = with(fault).await;
        let _outcome = send_into_the_void(&emulator, id, &mut sender).await;
        let error = client.connection.on_close().await.unwrap_err();
        assert!(
            format!("{error:?}").contains("ConnectionForced"),
            "{error:?}"
        );
        assert!(hub.is_empty());
    });
}

#[test]
fn a_dropped_socket_leaves_the_message_stored_or_not() {
    run(async {
        for (fault, count) in [
            (Fault::drop_socket(Step::Transfer, SocketDrop::Reset), 0),
            (Fault::drop_socket(Step::Transfer, SocketDrop::Finish), 0),
            (Fault::drop_socket_after_store(SocketDrop::Reset), 1),
            (Fault::drop_socket_after_store(SocketDrop::Finish), 1),
        ] {
            let (emulator, hub, id, mut client, mut sender) = with(fault).await;
            let outcome = send_into_the_void(&emulator, id, &mut sender).await;
            // The library tells only the connection; what was in flight has to be given up.
            assert!(client.connection.on_close().await.is_err());
            drop(sender);
            assert!(outcome.await.is_err());
            assert_eq!(hub.len(), count);
        }
    });
}

#[test]
fn an_answer_is_late_or_never_comes() {
    run(async {
        let (emulator, hub, _, _client, mut sender) = with(Fault::delay_settlement(SHORT)).await;
        let started = Instant::now();
        let late = sender.send_batchable(bodies(&["late"])).await.unwrap();
        assert!(send(&mut sender, bodies(&["soon"])).await.is_accepted());
        assert!(late.await.unwrap().is_accepted());
        assert!(started.elapsed() >= SHORT);
        assert_eq!(stored(&hub, 0), ["late", "soon"]);

        for (moment, count) in [(Moment::BeforeStore, 2), (Moment::AfterStore, 3)] {
            let id = emulator.faults().push(Fault::never_settle(moment));
            let outcome = send_into_the_void(&emulator, id, &mut sender).await;
            hub.wait_for_events(count, LIMIT / 4).unwrap();
            assert_eq!(hub.stored(), count);
            assert!(tokio::time::timeout(SHORT, outcome).await.is_err());
        }
        // The link still works.
        assert!(send(&mut sender, bodies(&["next"])).await.is_accepted());
    });
}

#[test]
fn a_silent_or_frozen_connection_says_nothing_more() {
    run(async {
        for fault in [
            Fault::silence(Step::Transfer),
            Fault::freeze(Step::Transfer),
        ] {
            let (emulator, hub, id, _client, mut sender) = with(fault).await;
            let outcome = send_into_the_void(&emulator, id, &mut sender).await;
            assert!(tokio::time::timeout(SHORT, outcome).await.is_err());
            assert!(hub.is_empty());
            // Other connections are not affected.
            let mut other = Client::connect(&emulator).await;
            let mut sender = other.sender(ADDRESS).await;
            assert!(send(&mut sender, bodies(&["x"])).await.is_accepted());
        }
    });
}

#[test]
fn credit_is_withheld_for_a_while() {
    run(async {
        let (_emulator, _hub, _, _client, mut sender) = with(Fault::withhold_credit(SHORT)).await;
        let started = Instant::now();
        assert!(send(&mut sender, bodies(&["x"])).await.is_accepted());
        assert!(started.elapsed() >= SHORT);

        let (_emulator, hub, _, _client, mut sender) =
            with(Fault::withhold_credit(SHORT).at(Step::Transfer)).await;
        let started = Instant::now();
        assert!(send(&mut sender, bodies(&["1"])).await.is_accepted());
        // Until the revocation is seen, messages still pass.
        while started.elapsed() < SHORT {
            assert!(send(&mut sender, bodies(&["2"])).await.is_accepted());
        }
        assert!(send(&mut sender, bodies(&["3"])).await.is_accepted());
        assert!(hub.len() >= 3);
    });
}

#[test]
fn connections_are_refused_at_each_early_step() {
    run(async {
        for fault in [
            Fault::refuse_connection(),
            Fault::drop_socket(Step::Accept, SocketDrop::Reset),
            Fault::refuse_sasl(),
            Fault::close_connection(Step::Sasl, "amqp:internal-error", "unsaid"),
            Fault::drop_socket(Step::Sasl, SocketDrop::Finish),
            Fault::close_connection(Step::Open, "amqp:internal-error", "no"),
            Fault::drop_socket(Step::Open, SocketDrop::Reset),
            Fault::drop_socket(Step::Begin, SocketDrop::Finish),
        ] {
            let (emulator, _hub) = emulator();
            let id = emulator.faults().push(fault.clone());
            let refused = tokio::time::timeout(
                LIMIT / 4,
                Client::try_connect(&emulator, SaslProfile::Anonymous),
            );
            // The library may wait for ever for a session that never begins.
            assert!(!matches!(refused.await, Ok(Ok(_))), "{fault:?}");
            assert_eq!(emulator.faults().fired(id), 1, "{fault:?}");
            Client::connect(&emulator).await;
        }
    });
}

#[test]
fn early_steps_get_no_answer() {
    run(async {
        for fault in [
            Fault::silence(Step::Accept),
            Fault::no_answer(Step::Accept),
            Fault::freeze(Step::Sasl),
            Fault::no_answer(Step::Sasl),
            Fault::silence(Step::Open),
            Fault::no_answer(Step::Begin),
        ] {
            let (emulator, _hub) = emulator();
            let id = emulator.faults().push(fault.clone());
            let mut pending =
                std::pin::pin!(Client::try_connect(&emulator, SaslProfile::Anonymous));
            tokio::select! {
                _ = &mut pending => panic!("an answer came in spite of {fault:?}"),
                () = struck(&emulator, id) => {}
            }
            assert!(
                tokio::time::timeout(SHORT, pending).await.is_err(),
                "{fault:?}"
            );
            Client::connect(&emulator).await;
        }
    });
}

#[test]
fn an_attach_is_refused_or_gets_no_answer() {
    run(async {
        let (emulator, _hub) = emulator();
        emulator
            .faults()
            .push(Fault::refuse_attach("com.microsoft:entity-disabled", "off"));
        let mut client = Client::connect(&emulator).await;
        let error = client.try_sender(ADDRESS).await.unwrap_err();
        assert!(
            format!("{error:?}").contains("entity-disabled"),
            "{error:?}"
        );

        let id = emulator
            .faults()
            .push(Fault::no_answer(Step::Attach).partition(1));
        let mut client = Client::connect(&emulator).await;
        client.sender(ADDRESS).await;
        let silent = tokio::time::timeout(SHORT, client.try_sender("hub/Partitions/1"));
        assert!(silent.await.is_err());
        assert_eq!(emulator.faults().fired(id), 1);
    });
}

#[test]
fn nodes_answer_with_a_status_late_or_never() {
    const TOKEN: [(&str, &str); 2] = [("operation", "put-token"), ("name", "amqps://ns/hub")];
    const READ: [(&str, &str); 3] = [
        ("operation", "READ"),
        ("type", "com.microsoft:eventhub"),
        ("name", HUB),
    ];
    run(async {
        let (emulator, _hub) = emulator();
        let faults = emulator.faults();
        faults.push(Fault::cbs_status(401, "no"));
        faults.push(Fault::management_status(
            503,
            "com.microsoft:server-busy",
            "later",
        ));
        let mut client = Client::connect(&emulator).await;
        assert_eq!(
            client.request("$cbs", Request(&TOKEN, "t")).await.status,
            401
        );
        let answer = client.request("$management", Request(&READ, "")).await;
        assert_eq!(answer.status, 503);
        assert_eq!(
            answer.condition.as_deref(),
            Some("com.microsoft:server-busy")
        );

        for (step, node, request) in [
            (Step::Cbs, "$cbs", &TOKEN[..]),
            (Step::Management, "$management", &READ[..]),
        ] {
            faults.push(Fault::delay_answer(step, SHORT));
            let started = Instant::now();
            let answer = client.request(node, Request(request, "t")).await;
            assert!((200..300).contains(&answer.status) && started.elapsed() >= SHORT);

            let id = faults.push(Fault::no_answer(step));
            let silent = client.request(node, Request(request, "t"));
            assert!(tokio::time::timeout(SHORT, silent).await.is_err());
            assert_eq!(faults.fired(id), 1);
            client = Client::connect(&emulator).await;
        }
    });
}

#[test]
fn open_links_and_connections_are_disrupted_at_once() {
    run(async {
        let (emulator, _hub) = emulator();
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender(ADDRESS).await;
        let mut other = client.sender("hub/Partitions/1").await;
        let detach = || Disruption::detach_links("amqp:link:detach-forced", "idle").hub("HUB");
        assert_eq!(emulator.disrupt(detach().partition(0)), 1);
        let error = sender.on_detach().await;
        assert!(format!("{error:?}").contains("DetachForced"), "{error:?}");
        assert!(send(&mut other, bodies(&["x"])).await.is_accepted());

        emulator.disrupt(Disruption::close_connections(
            "amqp:connection:forced",
            "idle",
        ));
        let error = client.connection.on_close().await.unwrap_err();
        assert!(
            format!("{error:?}").contains("ConnectionForced"),
            "{error:?}"
        );

        for quiet in [
            None,
            Some(Disruption::silence()),
            Some(Disruption::freeze()),
        ] {
            let mut client = Client::connect(&emulator).await;
            if let Some(quiet) = quiet {
                emulator.disrupt(quiet);
            }
            emulator.disrupt(Disruption::drop_sockets(SocketDrop::Reset));
            assert!(client.connection.on_close().await.is_err());
        }
    });
}

#[test]
fn a_builder_can_carry_faults() {
    run(async {
        let (emulator, _hub) = start(Emulator::builder().fault(Fault::release()));
        let mut client = Client::connect(&emulator).await;
        let mut sender = client.sender(ADDRESS).await;
        assert!(!send(&mut sender, bodies(&["x"])).await.is_accepted());
        assert!(send(&mut sender, bodies(&["x"])).await.is_accepted());
    });
}
