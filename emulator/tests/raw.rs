//! A peer that keeps to no protocol: the emulator neither panics nor hangs, and serves others.

mod common;

use std::{io::Read, time::Duration};

use common::{
    Client, bodies, emulator, event,
    raw::{AMQP, Raw, described, text},
    run, send, start,
};
use hublane_emulator::{Emulator, Fault, HubHandle, Moment, StartError, Value};
use serde_amqp::to_vec;

/// The emulator still does its work.
fn serves(emulator: &Emulator, hub: &HubHandle) {
    let before = hub.stored();
    run(async {
        let mut client = Client::connect(emulator).await;
        let mut sender = client.sender("hub/Partitions/1").await;
        assert!(send(&mut sender, bodies(&["alive"])).await.is_accepted());
    });
    assert_eq!(hub.stored(), before + 1);
}

#[test]
fn a_message_above_the_limit_closes_the_link_and_nothing_else() {
    let (emulator, hub) = start(Emulator::builder().max_message_size(1000));
    let mut raw = Raw::attached(&emulator);
    let message = event(&"x".repeat(700), None);
    raw.transfer(0, true, &message[..600]);
    raw.transfer(0, true, &message[..600]);
    assert_eq!(
        raw.read_error(),
        (0x16, "amqp:link:message-size-exceeded".into())
    );
    // What was under way is discarded until the client detaches, then the handle is free.
    raw.transfer(0, false, &message);
    raw.frame(0x16, vec![Value::Uint(0), Value::Bool(true)], &[]);
    raw.attach(0, "hub/Partitions/0");
    assert_eq!(raw.read_frame().unwrap().0, 0x12);
    assert_eq!(raw.read_frame().unwrap().0, 0x13);
    raw.transfer(1, false, &message);
    assert_eq!(raw.read_frame().unwrap().0, 0x15);
    assert_eq!(hub.len(), 1);
}

#[test]
fn an_aborted_message_is_forgotten() {
    let (emulator, hub) = emulator();
    let mut raw = Raw::attached(&emulator);
    let message = event("whole", None);
    raw.transfer(0, true, &message[..5]);
    let mut fields = vec![Value::Uint(0), Value::Uint(0)];
    fields.extend([const { Value::Null }; 7]);
    fields.push(Value::Bool(true));
    raw.frame(0x14, fields, &[]);
    raw.transfer(1, true, &message[..5]);
    raw.transfer(1, false, &message[5..]);
    let (code, fields) = raw.read_frame().unwrap();
    assert_eq!((code, &fields[1]), (0x15, &Value::Uint(1)));
    assert_eq!(common::stored(&hub, 0), ["whole"]);
}

#[test]
fn interleaved_messages_close_the_link() {
    let (emulator, hub) = emulator();
    let mut raw = Raw::attached(&emulator);
    let message = event("whole", None);
    raw.transfer(0, true, &message[..5]);
    raw.transfer(1, false, &message[5..]);
    assert_eq!(raw.read_error(), (0x16, "amqp:invalid-field".into()));
    assert!(hub.is_empty());
}

#[test]
fn every_mechanism_is_accepted_as_symbol_or_string_and_pipelined() {
    let (emulator, _hub) = emulator();
    for mechanism in ["MSSBCBS", "ANONYMOUS", "EXTERNAL", "PLAIN", "UNKNOWN"] {
        for value in [Value::Symbol(mechanism.into()), text(mechanism)] {
            let mut raw = Raw::connect(&emulator);
            // All at once: nothing is read before everything is sent.
            raw.write(b"AMQP\x03\x01\x00\x00");
            raw.sasl_frame(0x41, vec![value, Value::Binary(b"\0k\0s".to_vec().into())]);
            raw.write(AMQP);
            raw.frame(0x10, vec![text("raw")], &[]);
            let begin = vec![Value::Null, Value::Uint(0), Value::Uint(9), Value::Uint(9)];
            raw.frame(0x11, begin, &[]);
            raw.attach(0, "amqps://ns/hub/Partitions/0");
            assert_eq!(raw.read_header(), *b"AMQP\x03\x01\x00\x00");
            assert_eq!(raw.read_frame().unwrap().0, 0x40);
            let (code, fields) = raw.read_frame().unwrap();
            assert_eq!(code, 0x44);
            if mechanism == "UNKNOWN" {
                assert_eq!(fields[0], Value::Ubyte(1));
                continue;
            }
            assert_eq!(fields[0], Value::Ubyte(0));
            assert_eq!(raw.read_header(), *AMQP);
            for expected in [0x10, 0x11, 0x12, 0x13] {
                assert_eq!(raw.read_frame().unwrap().0, expected);
            }
        }
    }
}

#[test]
fn credit_and_handles_are_enforced() {
    let (emulator, hub) = start(Emulator::builder().link_credit(2));
    // What is not settled keeps its credit, so the third message has none.
    let unsettled = Fault::never_settle(Moment::BeforeStore).always();
    let id = emulator.faults().push(unsettled);
    let mut raw = Raw::attached(&emulator);
    for delivery in 0..3 {
        raw.transfer(delivery, false, &event("x", None));
    }
    assert_eq!(
        raw.read_error(),
        (0x16, "amqp:link:transfer-limit-exceeded".into())
    );
    assert_eq!(emulator.faults().fired(id), 2);
    emulator.faults().clear();
    let mut raw = Raw::attached(&emulator);
    raw.frame(0x14, vec![Value::Uint(9), Value::Uint(0)], &[]);
    assert_eq!(
        raw.read_error(),
        (0x17, "amqp:session:unattached-handle".into())
    );
    let mut raw = Raw::attached(&emulator);
    raw.attach(0, "hub/Partitions/1");
    assert_eq!(
        raw.read_error(),
        (0x17, "amqp:session:handle-in-use".into())
    );
    let mut raw = Raw::attached(&emulator);
    raw.attach(5000, "hub/Partitions/1");
    assert_eq!(
        raw.read_error(),
        (0x18, "amqp:connection:framing-error".into())
    );
    serves(&emulator, &hub);
}

#[test]
fn garbage_in_frames_closes_the_connection_with_a_reason() {
    let (emulator, hub) = emulator();
    let deep = {
        let mut bytes = vec![0x00, 0x53, 0x14];
        bytes.extend([0x00].repeat(60_000));
        bytes
    };
    for body in [
        &b"\x00\x53\x14\xff"[..],                            // no such type
        b"\x00\x53\x14\xc0\xff\x01\x40",                     // a size past the end
        b"\x00\x53\x14\xd0\xff\xff\xff\xff\xff\xff\xff\xff", // sizes that would overflow
        b"\x00\x53\x99\x45",                                 // no such performative
        b"\x00\x53\x12\x45",                                 // mandatory fields missing
        b"\x00\x53\x14\x40",                                 // no list
        b"\x40",                                             // not described
        &deep,
    ] {
        let mut raw = Raw::attached(&emulator);
        let mut frame = u32::try_from(body.len() + 8)
            .unwrap()
            .to_be_bytes()
            .to_vec();
        frame.extend([2, 0, 0, 0]);
        frame.extend(body);
        raw.write(&frame);
        assert_eq!(raw.read_error().0, 0x18);
    }
    assert_eq!(emulator.stats().protocol_errors, 8);
    serves(&emulator, &hub);
}

#[test]
fn other_protocols_are_answered_with_the_right_header() {
    let (emulator, hub) = emulator();
    for hello in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x02\x01\x00\x00",
    ] {
        let mut raw = Raw::connect(&emulator);
        raw.write(hello);
        let mut answer = Vec::new();
        let _ = raw.0.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer == AMQP);
    }
    let mut raw = Raw::connect(&emulator);
    raw.write(b"AMQP\x03\x01\x00\x00\x00\x00\x00\x09\x02\x01\x00\x00\xff");
    let _ = raw.0.read_to_end(&mut Vec::new());
    serves(&emulator, &hub);
}

#[test]
fn random_bytes_at_every_stage_do_no_harm() {
    let (emulator, hub) = emulator();
    // xorshift64: the same bytes in every run
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..200 {
        let mut raw = if round % 2 == 0 {
            let mut raw = Raw::connect(&emulator);
            raw.write(&AMQP[..(next() % 9) as usize]);
            raw
        } else {
            Raw::attached(&emulator)
        };
        // A good frame with some bytes changed reaches further than noise.
        let mut body = to_vec(&described(
            0x10 + next() % 9,
            Value::List(vec![
                text("name"),
                Value::Uint(1),
                Value::Bool(false),
                Value::Ubyte(2),
            ]),
        ))
        .unwrap();
        for _ in 0..next() % 4 {
            let at = (next() as usize) % body.len();
            body[at] = next() as u8;
        }
        body.extend((0..next() % 64).map(|_| next() as u8));
        let mut frame = u32::try_from(body.len() + 8)
            .unwrap()
            .to_be_bytes()
            .to_vec();
        frame.extend([2, 0, 0, 0]);
        frame.extend(body);
        raw.write(&frame);
    }
    serves(&emulator, &hub);
}

#[test]
fn an_idle_connection_hears_heartbeats_and_a_dead_one_is_closed() {
    let (emulator, hub) = start(Emulator::builder().idle_time_out(Duration::from_millis(100)));
    let mut raw = Raw::connect(&emulator);
    raw.write(AMQP);
    let fields = vec![
        text("raw"),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Uint(100),
    ];
    raw.frame(0x10, fields, &[]);
    let mut header = [0; 8];
    raw.0.read_exact(&mut header).unwrap();
    assert_eq!(raw.read_frame().unwrap().0, 0x10);
    let mut heartbeat = [0; 8];
    raw.0.read_exact(&mut heartbeat).unwrap();
    assert_eq!(heartbeat, [0, 0, 0, 8, 2, 0, 0, 0]);
    assert_eq!(
        raw.read_error(),
        (0x18, "amqp:resource-limit-exceeded".into())
    );
    serves(&emulator, &hub);
}

#[test]
fn impossible_settings_are_errors() {
    let start = |builder: hublane_emulator::Builder| builder.start().map(drop).unwrap_err();
    let one = || Emulator::builder().hub("hub", 1);
    assert!(matches!(start(Emulator::builder()), StartError::NoHub));
    assert!(matches!(
        start(one().hub("HUB", 1)),
        StartError::DuplicateHub(_)
    ));
    assert!(matches!(start(one().hub("a/b", 1)), StartError::HubName(_)));
    assert!(matches!(start(one().hub("", 1)), StartError::HubName(_)));
    assert!(matches!(
        start(one().hub("x", 0)),
        StartError::Partitions { .. }
    ));
    assert!(matches!(
        start(one().hub("x", 2049)),
        StartError::Partitions { .. }
    ));
    assert!(matches!(
        start(one().link_credit(0)),
        StartError::Setting("link_credit")
    ));
    assert!(matches!(
        start(one().max_message_size(0)),
        StartError::Setting(_)
    ));
    assert!(matches!(
        start(one().idle_time_out(Duration::ZERO)),
        StartError::Setting(_)
    ));
    let running = one().start().unwrap();
    assert!(matches!(
        start(one().bind(running.local_addr())),
        StartError::Bind { .. }
    ));
}
