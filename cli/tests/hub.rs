//! `hublane emulator`, `send` and `tail` as three programs.

mod common;

use common::{Ended, Program, Scratch, port_of};
use serde_json::{Value, json};
use std::net::TcpListener;

fn send_to(connection_string: &str, arguments: &[&str], input: &str) -> Ended {
    let arguments = [&["send", "--json"], arguments].concat();
    let mut program = Program::start_with(&arguments, connection_string);
    program.offer(input);
    program.finish()
}

fn tail_of(connection_string: &str, arguments: &[&str]) -> Program {
    Program::start_with(&[&["tail"], arguments].concat(), connection_string)
}

/// `count` events of the hub, ordered by partition and place.
fn events_of(connection_string: &str, count: usize) -> Vec<Value> {
    let count_text = count.to_string();
    let tail = tail_of(
        connection_string,
        &["--from", "start", "--count", &count_text],
    );
    let ended = tail.finish();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut events: Vec<Value> = ended
        .stdout
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), count);
    events.sort_by_key(|event| {
        let partition = event["partition"].as_str().unwrap().to_owned();
        (partition, event["sequence_number"].as_i64())
    });
    events
}

fn texts<'a>(events: &'a [Value], name: &str) -> Vec<&'a str> {
    events
        .iter()
        .map(|event| event[name].as_str().unwrap())
        .collect()
}

#[test]
fn what_is_sent_to_an_emulator_is_printed_with_its_place() {
    let (emulator, strings) = Program::emulator(&["--port", "0", "--hub", "a:2"], 1);
    let input = "{\"k\":\"x\",\"n\":1}\n{\"k\":\"x\",\"n\":2}\n";
    let sent = send_to(&strings[0], &["--key-field", "/k"], input);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let counts = [
        "accepted",
        "delivered",
        "failed",
        "partitions",
        "skipped_lines",
    ];
    assert_eq!(sent.counts(counts), [2, 2, 0, 2, 0]);
    // Somebody else's hub is not read back.
    assert_eq!(sent.summary()["received"], Value::Null);
    assert_eq!(sent.summary()["lost"], Value::Null);
    assert_eq!(sent.summary()["hub"], json!("a"));

    let events = events_of(&strings[0], 2);
    assert_eq!(
        texts(&events, "body"),
        ["{\"k\":\"x\",\"n\":1}", "{\"k\":\"x\",\"n\":2}"]
    );
    assert_eq!(texts(&events, "key"), ["x", "x"]);
    assert_eq!(events[0]["partition"], events[1]["partition"]);
    assert_eq!(events[0]["sequence_number"], json!(0));
    assert_eq!(events[1]["sequence_number"], json!(1));
    assert!(events[0]["offset"].is_string());
    assert!(events[0]["enqueued_time"].as_str().unwrap().ends_with('Z'));

    emulator.signal("TERM");
    let ended = emulator.finish();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn a_body_that_is_no_text_is_printed_in_base64() {
    let (_emulator, strings) = Program::emulator(&["--port", "0", "--hub", "a:1"], 1);
    let scratch = Scratch::new("base64");
    let file = scratch.file("input", b"\xff\n");
    let sent = send_to(&strings[0], &[&file], "");
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let events = events_of(&strings[0], 1);
    assert_eq!(events[0]["body_base64"], json!("/w=="));
    assert_eq!(events[0].get("body"), None);
    assert_eq!(events[0]["key"], Value::Null);
}

#[test]
fn tail_prints_events_as_they_arrive() {
    let (_emulator, strings) = Program::emulator(&["--port", "0", "--hub", "a:2"], 1);
    assert_eq!(send_to(&strings[0], &[], "old\n").code, Some(0));
    let tail = tail_of(&strings[0], &["--from", "latest", "--count", "2"]);
    tail.says("reading 2 partitions of 'a'");
    for text in ["new", "newer"] {
        assert_eq!(send_to(&strings[0], &[], text).code, Some(0));
        let event: Value = serde_json::from_str(&tail.line()).unwrap();
        assert_eq!(event["body"], json!(text));
    }
    let ended = tail.finish();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
}

#[test]
fn tail_of_one_partition_prints_no_other() {
    let (_emulator, strings) = Program::emulator(&["--port", "0", "--hub", "a:2"], 1);
    // Without a key partitions take turns.
    assert_eq!(send_to(&strings[0], &[], "a\nb\nc\nd\n").code, Some(0));
    let options = ["--from", "start", "--partition", "1", "--count", "2"];
    let ended = tail_of(&strings[0], &options).finish();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for line in &ended.stdout {
        assert!(line.starts_with("{\"partition\":\"1\","), "{line}");
    }
    let refused = tail_of(&strings[0], &["--partition", "2"]).finish();
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert_eq!(
        refused.stderr,
        ["hublane: cannot connect: the hub 'a' has no partition 2"]
    );
}

#[test]
fn tail_ends_quietly_when_nobody_reads() {
    let (_emulator, strings) = Program::emulator(&["--port", "0", "--hub", "a:1"], 1);
    assert_eq!(send_to(&strings[0], &[], "a\n").code, Some(0));
    let arguments = [
        "tail",
        "--from",
        "start",
        "--connection-string",
        &strings[0],
    ];
    let ended = Program::start_unread(&arguments).finish();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr, ["hublane: reading 1 partitions of 'a'"]);
}

#[test]
fn hubs_have_a_connection_string_each_and_nothing_else_in_common() {
    let hubs = ["--port", "0", "--hub", "a:1", "--hub", "b:3"];
    let (_emulator, strings) = Program::emulator(&hubs, 2);
    let sent: Vec<_> = strings
        .iter()
        .zip(["to a", "to b"])
        .map(|(string, text)| send_to(string, &[], text).counts(["delivered", "partitions"]))
        .collect();
    assert_eq!(sent, [[1, 1], [1, 3]]);
    assert_eq!(texts(&events_of(&strings[0], 1), "body"), ["to a"]);
    assert_eq!(texts(&events_of(&strings[1], 1), "body"), ["to b"]);
}

#[test]
fn a_restarted_emulator_still_has_its_journal_and_tail_goes_on_where_it_was() {
    let scratch = Scratch::new("journal");
    let journal = scratch.path("journal");
    let serve = |port: &str| {
        let arguments = ["--port", port, "--hub", "a:1", "--journal", &journal];
        Program::emulator(&arguments, 1)
    };
    let (emulator, strings) = serve("0");
    assert_eq!(send_to(&strings[0], &[], "one").code, Some(0));
    let tail = tail_of(&strings[0], &["--from", "start", "--count", "2"]);
    assert!(tail.line().contains("\"body\":\"one\""));

    emulator.signal("KILL");
    emulator.finish();
    tail.says("connection lost");
    let (_emulator, strings) = serve(&port_of(&strings[0]));
    assert_eq!(send_to(&strings[0], &[], "two").code, Some(0));
    let second = tail.line();
    assert!(second.contains("\"body\":\"two\""), "{second}");
    assert!(second.contains("\"sequence_number\":1"), "{second}");
    assert_eq!(tail.finish().code, Some(0));
    assert_eq!(texts(&events_of(&strings[0], 2), "body"), ["one", "two"]);
}

#[test]
fn a_port_that_is_taken_is_one_clear_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ended = Program::start(&["emulator", "--port", &port, "--hub", "a"]).finish();
    assert_eq!(ended.code, Some(6), "{ended:?}");
    assert_eq!(ended.stderr.len(), 1, "{ended:?}");
    assert!(ended.stderr[0].contains(&format!("cannot listen on 127.0.0.1:{port}")));
}

/// Expects one line on standard error that does not show the key.
fn refused_in_one_line(ended: &Ended, code: i32) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert_eq!(ended.stderr.len(), 1, "{ended:?}");
    assert!(!format!("{ended:?}").contains("c2VjcmV0"), "{ended:?}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
}

#[test]
fn a_bad_connection_string_is_one_clear_line_without_its_key() {
    for text in [
        "",
        "nonsense",
        "SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0",
        "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0",
        "Endpoint=http://localhost;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;EntityPath=a",
    ] {
        refused_in_one_line(&send_to(text, &[], "a\n"), 2);
        refused_in_one_line(&tail_of(text, &[]).finish(), 2);
    }
}

#[test]
fn a_connection_string_in_the_wrong_place_is_not_shown() {
    let text = "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0";
    for arguments in [&["send", text][..], &["send", "a", text], &["tail", text]] {
        refused_in_one_line(&Program::start(arguments).finish(), 2);
    }
    let help = Program::start_with(&["send", "--help"], text).finish();
    assert_eq!(help.code, Some(0));
    assert!(!format!("{help:?}").contains("c2VjcmV0"));
}

#[test]
fn partitions_are_not_asked_of_somebody_elses_hub() {
    let text = "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0";
    let ended = send_to(text, &["--partitions", "2"], "");
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(!format!("{ended:?}").contains("c2VjcmV0"), "{ended:?}");
}

#[test]
fn a_refused_port_is_one_clear_line() {
    // Bound and not listening: nobody else can have it, and it refuses.
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let text = format!(
        "Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;\
         EntityPath=a;UseDevelopmentEmulator=true"
    );
    let sent = send_to(&text, &["--connect-timeout", "5s"], "a\n");
    refused_in_one_line(&sent, 4);
    refused_in_one_line(&tail_of(&text, &[]).finish(), 4);
}

#[test]
fn an_unknown_hub_is_one_clear_line() {
    let (_emulator, strings) = Program::emulator(&["--port", "0", "--hub", "a:1"], 1);
    let text = strings[0].replace("EntityPath=a;", "");
    for ended in [
        send_to(&text, &["--hub", "b", "--connect-timeout", "5s"], "a\n"),
        tail_of(&text, &["--hub", "b"]).finish(),
    ] {
        refused_in_one_line(&ended, 4);
    }
}

#[test]
fn a_signal_in_the_middle_of_the_input_delivers_what_was_accepted() {
    let (_emulator, strings) = Program::emulator(&["--port", "0", "--hub", "a:1"], 1);
    let arguments = ["send", "--json", "--max-wait", "1ms"];
    let mut program = Program::start_with(&arguments, &strings[0]);
    program.write("a\n");
    assert_eq!(texts(&events_of(&strings[0], 1), "body"), ["a"]);
    program.signal("TERM");
    program.says("signal 15: delivering");
    let input = program.stdin();
    let ended = program.finish();
    drop(input);
    assert_eq!(ended.code, Some(143), "{ended:?}");
    assert_eq!(
        ended.counts(["accepted", "delivered", "signal"]),
        [1, 1, 15]
    );
}

#[test]
fn a_second_signal_gives_up_what_a_silent_hub_does_not_take() {
    let (emulator, strings) = Program::emulator(&["--port", "0", "--hub", "a:1"], 1);
    let arguments = ["send", "--json", "--max-wait", "1ms", "--key-field", "/k"];
    let mut program = Program::start_with(&arguments, &strings[0]);
    program.write("{\"k\":1}\n");
    assert_eq!(texts(&events_of(&strings[0], 1), "key"), ["1"]);
    emulator.signal("STOP");
    program.write("{\"k\":2}\nbad\n");
    program.says("line 3 skipped");
    program.signal("TERM");
    program.says("signal 15: delivering");
    program.signal("TERM");
    let ended = program.finish();
    assert_eq!(ended.code, Some(143), "{ended:?}");
    assert_eq!(ended.counts(["accepted", "delivered", "failed"]), [2, 1, 0]);
    let [indeterminate, returned] = ended.counts(["indeterminate", "returned"]);
    assert_eq!(indeterminate + returned, 1, "{ended:?}");
    assert!(
        ended
            .stderr
            .iter()
            .any(|line| line.contains("of 2 accepted events 1 were delivered"))
    );
}

/// Nothing is transferred before the drain, and then the hub is silent.
fn drain_towards_silence(input_ends_first: bool) {
    let (emulator, strings) = Program::emulator(&["--port", "0", "--hub", "a:1"], 1);
    let waits = ["--max-wait", "1h", "--delivery-timeout", "2h"];
    let drain = ["--key-field", "/k", "--drain-timeout", "100ms"];
    let arguments = [&["send", "--json"][..], &waits, &drain].concat();
    let mut program = Program::start_with(&arguments, &strings[0]);
    program.write("{\"k\":1}\nbad\n");
    program.says("line 2 skipped");
    emulator.signal("STOP");
    if input_ends_first {
        program.end_input();
    }
    program.signal("INT");
    program.says("signal 2: delivering");
    let ended = program.finish();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let counts = ["accepted", "delivered", "failed", "signal"];
    assert_eq!(ended.counts(counts), [1, 0, 0, 2]);
    let [indeterminate, returned, outstanding] =
        ended.counts(["indeterminate", "returned", "outstanding"]);
    assert_eq!(indeterminate + returned + outstanding, 1, "{ended:?}");
}

#[test]
fn a_drain_that_takes_too_long_ends_and_says_what_is_missing() {
    drain_towards_silence(false);
}

#[test]
fn a_signal_behind_the_end_of_the_input_bounds_the_drain_too() {
    drain_towards_silence(true);
}

#[test]
fn a_hub_that_goes_away_for_good_is_a_failure() {
    let (emulator, strings) = Program::emulator(&["--port", "0", "--hub", "a:1"], 1);
    let timeouts = ["--max-wait", "1ms", "--delivery-timeout", "500ms"];
    let arguments = [&["send", "--json"][..], &timeouts].concat();
    let mut program = Program::start_with(&arguments, &strings[0]);
    program.write("a\n");
    assert_eq!(texts(&events_of(&strings[0], 1), "body"), ["a"]);
    emulator.signal("KILL");
    emulator.finish();
    program.write("b\n");
    let ended = program.finish();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(
        ended.counts(["accepted", "delivered", "returned"]),
        [2, 1, 0]
    );
    let [failed, indeterminate] = ended.counts(["failed", "indeterminate"]);
    assert_eq!(failed + indeterminate, 1, "{ended:?}");
    assert!(ended.stderr[0].starts_with("hublane: line 2 "), "{ended:?}");
}
