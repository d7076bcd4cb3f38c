//! `build` connects by its deadline, or says clearly why it cannot.

use crate::support::*;
use hublane::BuildError;
use hublane::transport::ConnectError;
use hublane_emulator::{Emulator, Fault, SocketDrop, Step};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

const KEY: (&str, &str) = ("send", "c2VjcmV0");

/// Builds a producer, which must fail, and fast.
fn refusal(connection_string: &str, within: Duration) -> ConnectError {
    let start = Instant::now();
    let built = over(connection_string, options()).build();
    let took = start.elapsed();
    assert!(took < within, "it took {took:?}");
    match built.map(drop).unwrap_err() {
        BuildError::Connect(error) => error,
        other => panic!("{other}"),
    }
}

fn local(address: SocketAddr) -> String {
    format!(
        "Endpoint=sb://{address};SharedAccessKeyName={};SharedAccessKey={};\
         EntityPath={HUB};UseDevelopmentEmulator=true",
        KEY.0, KEY.1
    )
}

/// A listener whose connections get `answer` once they have said something.
fn peer(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 64];
            let _ = stream.read(&mut bytes);
            let _ = stream.write_all(answer);
            // Held open until the other end goes.
            while stream.read(&mut bytes).is_ok_and(|n| n > 0) {}
        }
    });
    address
}

#[test]
fn an_unknown_hub_is_refused_by_name() {
    let (emulator, _) = start(Emulator::builder(), 1);
    match refusal(&emulator.connection_string("other"), Duration::from_secs(2)) {
        ConnectError::Refused(error) => {
            assert_eq!(&*error.condition, "amqp:not-found");
            assert!(error.description.contains("other"), "{error}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_wrong_key_is_refused_and_not_shown() {
    let (emulator, _) = start(Emulator::builder().sas_key(KEY.0, KEY.1), 1);
    let wrong = emulator
        .connection_string(HUB)
        .replace(KEY.1, "d3JvbmctaGVyZQ==");
    match refusal(&wrong, Duration::from_secs(2)) {
        ConnectError::Refused(error) => {
            assert_eq!(&*error.condition, "amqp:unauthorized-access");
            assert!(!format!("{error:?}").contains("d3Jvbmct"));
        }
        other => panic!("{other}"),
    }
    builder(&emulator, options()).build().unwrap();
}

#[test]
fn a_port_that_nobody_listens_on_is_told_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    match refusal(&local(address), Duration::from_secs(2)) {
        ConnectError::Unreachable(error) => {
            assert!(error.description.contains(&address.to_string()), "{error}");
            assert!(error.description.contains("refused"), "{error}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_peer_that_speaks_something_else_is_told_at_once() {
    let address = peer(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    match refusal(&local(address), Duration::from_secs(2)) {
        ConnectError::Unreachable(error) => {
            assert_eq!(&*error.condition, "hublane:not-amqp");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_peer_without_sasl_is_told_at_once() {
    let address = peer(b"AMQP\x00\x01\x00\x00");
    match refusal(&local(address), Duration::from_secs(2)) {
        ConnectError::Unreachable(error) => {
            assert_eq!(&*error.condition, "hublane:not-amqp");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_silent_peer_ends_the_start_up_at_its_time_out() {
    let address = peer(b"");
    let start = Instant::now();
    let built = over(&local(address), options())
        .start_up_timeout(200 * MILLI)
        .build();
    let error = built.map(drop).unwrap_err();
    assert!(
        matches!(error, BuildError::Connect(ConnectError::TimedOut { .. })),
        "{error:?}"
    );
    let took = start.elapsed();
    assert!(
        took >= 200 * MILLI && took < Duration::from_secs(2),
        "{took:?}"
    );
}

#[test]
fn management_that_never_answers_ends_the_start_up_at_its_time_out() {
    let fault = Fault::no_answer(Step::Management).always();
    let (emulator, _) = start(Emulator::builder().fault(fault), 1);
    let built = builder(&emulator, options())
        .start_up_timeout(300 * MILLI)
        .build();
    let error = built.map(drop).unwrap_err();
    assert!(
        matches!(error, BuildError::Connect(ConnectError::TimedOut { .. })),
        "{error:?}"
    );
}

#[test]
fn a_refused_sasl_is_refused() {
    let (emulator, _) = start(Emulator::builder().fault(Fault::refuse_sasl()), 1);
    let refused = refusal(&emulator.connection_string(HUB), Duration::from_secs(2));
    assert!(matches!(refused, ConnectError::Refused(_)), "{refused:?}");
}

#[test]
fn passing_trouble_at_any_step_is_tried_again() {
    let steps = [
        Step::Accept,
        Step::Sasl,
        Step::Open,
        Step::Begin,
        Step::Cbs,
        Step::Management,
        Step::Attach,
    ];
    for step in steps {
        for how in [SocketDrop::Reset, SocketDrop::Finish] {
            let (emulator, hub) = start(Emulator::builder(), 1);
            let id = emulator.faults().push(Fault::drop_socket(step, how));
            let producer = producer(&emulator);
            deliver(&producer, 0, &["a"]);
            assert_eq!(emulator.faults().fired(id), 1, "{step:?}");
            assert_eq!(stored(&hub, 0), ["a"], "{step:?}");
        }
    }
}

#[test]
fn a_busy_service_is_waited_for() {
    let faults = [
        Fault::close_connection(Step::Open, "amqp:connection:forced", "moving"),
        Fault::cbs_status(500, "not now"),
        Fault::management_status(500, "amqp:internal-error", "not now"),
        Fault::end_session(Step::Begin, "amqp:internal-error", "not now"),
        Fault::refuse_attach("com.microsoft:timeout", "not now"),
    ];
    for fault in faults {
        let (emulator, _) = start(Emulator::builder(), 1);
        let id = emulator.faults().push(fault.clone());
        deliver(&producer(&emulator), 0, &["a"]);
        assert_eq!(emulator.faults().fired(id), 1, "{fault:?}");
    }
}

#[test]
fn a_lazy_producer_connects_when_the_service_is_there() {
    let (emulator, hub) = start(Emulator::builder().fault(Fault::refuse_sasl().times(2)), 1);
    let producer = builder(&emulator, options()).build_lazy().unwrap();
    assert!(producer.wait_ready(LIMIT));
    deliver(&producer, 0, &["a"]);
    assert_eq!(stored(&hub, 0), ["a"]);
}
