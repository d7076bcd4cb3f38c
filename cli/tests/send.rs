//! `hublane send` with the emulator inside it.

mod common;

use common::{Program, Scratch, example, run};

const ALL: [&str; 6] = [
    "accepted",
    "delivered",
    "received",
    "lost",
    "duplicated",
    "out_of_order",
];

#[test]
fn lines_of_standard_input_go_there_and_back() {
    let ended = run(&["send", "--json", "-"], "a\nb\n");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.counts(ALL), [2, 2, 2, 0, 0, 0]);
    assert_eq!(ended.counts(["failed", "altered", "unexpected"]), [0, 0, 0]);
    assert_eq!(ended.counts(["partitions", "lines"]), [4, 2]);
    assert!(ended.stderr.is_empty(), "{ended:?}");
    assert_eq!(ended.stdout.len(), 1, "{ended:?}");
}

#[test]
fn earthquakes_go_there_and_back_by_network() {
    let file = example("earthquakes.ndjson");
    let ended = run(
        &["send", "--key-field", "/properties/net", "--json", &file],
        "",
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.counts(ALL), [1707, 1707, 1707, 0, 0, 0]);
    assert_eq!(ended.counts(["failed", "skipped_lines"]), [0, 0]);
}

#[test]
fn flights_go_there_and_back_by_airport() {
    let file = example("flights.ndjson");
    let arguments = ["send", "--json", "--partitions", "8", "--key-field"];
    let ended = run(&[&arguments[..], &["/origin", &file]].concat(), "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.counts(ALL), [20_000, 20_000, 20_000, 0, 0, 0]);
    assert_eq!(ended.counts(["partitions", "altered"]), [8, 0]);
}

#[test]
fn many_partitions_all_get_their_share() {
    // More links than answers that a client lets its peer send ahead.
    let input: String = (0..640).map(|n| format!("{n}\n")).collect();
    let arguments = ["send", "--json", "--partitions", "64"];
    let timeout = ["--delivery-timeout", "20s"];
    let ended = run(&[&arguments[..], &timeout].concat(), &input);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.counts(ALL), [640, 640, 640, 0, 0, 0]);
}

#[test]
fn a_summary_for_people_says_the_same() {
    let ended = run(&["send", "--partitions", "2"], "a\n\nb");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = ended.stdout.join("\n");
    assert!(text.starts_with("2 of 2 accepted events delivered to 2 partitions"));
    assert!(text.contains("3 lines read: 1 empty, 0 skipped"), "{text}");
    assert!(text.contains("read back all 2: each once"), "{text}");
}

#[test]
fn no_lines_are_no_failure() {
    let ended = run(&["send", "--json"], "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.counts(ALL), [0; 6]);
}

#[test]
fn bodies_are_bytes_and_line_ends_are_not_part_of_them() {
    let scratch = Scratch::new("bytes");
    let file = scratch.file("input", b"\xff\xfe\0\r\n\r\n \nlast\r");
    let ended = run(&["send", "--json", &file], "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.counts(ALL), [3, 3, 3, 0, 0, 0]);
    assert_eq!(ended.counts(["empty_lines", "bytes", "altered"]), [1, 9, 0]);
}

#[test]
fn lines_without_a_key_are_told_and_the_others_are_sent() {
    let input = "{\"k\":\"a\"}\nnot json\n{\"k\":1}\n{}\n{\"k\":null}\n\n{\"k\":true}\n";
    let ended = run(&["send", "--key-field", "/k", "--json"], input);
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert_eq!(ended.counts(ALL), [3, 3, 3, 0, 0, 0]);
    assert_eq!(
        ended.counts(["lines", "skipped_lines", "empty_lines"]),
        [7, 3, 1]
    );
    let told: Vec<_> = ended.stderr.iter().map(String::as_str).collect();
    assert_eq!(
        told,
        [
            "hublane: line 2 skipped: not JSON (column 2)",
            "hublane: line 4 skipped: no value at /k",
            "hublane: line 5 skipped: null at /k, which cannot be a partition key",
        ]
    );
}

#[test]
fn many_bad_lines_are_summed_up() {
    let input = "x\n".repeat(500) + "{\"k\":\"a\"}\n";
    let ended = run(&["send", "--key-field", "/k", "--json"], &input);
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert_eq!(
        ended.counts(["accepted", "received", "skipped_lines"]),
        [1, 1, 500]
    );
    assert_eq!(ended.stderr.len(), 11, "{ended:?}");
    assert_eq!(ended.stderr[10], "hublane: 490 more lines skipped");
}

#[test]
fn a_line_larger_than_the_hub_takes_is_skipped_and_its_neighbours_are_sent() {
    let input = format!("a\n{}\nb\n", "x".repeat(1_048_576));
    let ended = run(&["send", "--json"], &input);
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert_eq!(ended.counts(ALL), [2, 2, 2, 0, 0, 0]);
    assert!(ended.stderr[0].starts_with("hublane: line 2 skipped: event of 10"));
}

#[test]
fn a_file_that_is_not_there_is_one_clear_line() {
    let ended = run(&["send", "no/such/file", "--json"], "");
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(
        ended.stderr,
        ["hublane: cannot open no/such/file: No such file or directory"]
    );
    assert!(ended.stdout.is_empty());
    let ended = run(&["send", env!("CARGO_MANIFEST_DIR")], "");
    assert_eq!((ended.code, ended.stderr.len()), (Some(3), 1), "{ended:?}");
}

#[test]
fn arguments_that_cannot_be_are_usage_errors() {
    for arguments in [
        &["send", "--key-field", "k"][..],
        &["send", "--partitions", "0"],
        &["send", "--partitions", "9999"],
        &["send", "--hub", "a/b"],
        &["send", "--window", "0"],
        &["send", "--max-wait", "5"],
        &["send", "--delivery-timeout", "1s", "--max-wait", "2s"],
        &["send", "--nonsense"],
        &["emulator"],
        &["emulator", "--hub", "a:b"],
        &["emulator", "--hub", "a", "--hub", "A"],
        &["tail"],
        &[],
    ] {
        let ended = run(arguments, "");
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert!(!ended.stderr.is_empty(), "{arguments:?}");
        assert!(ended.stdout.is_empty(), "{arguments:?}");
    }
}

/// A line that is skipped tells when those before it have been accepted.
fn accept_one(arguments: &[&str]) -> Program {
    let mut program =
        Program::start(&[&["send", "--key-field", "/k", "--json"], arguments].concat());
    program.write("{\"k\":\"a\"}\nbad\n");
    program.says("line 2 skipped");
    program
}

#[test]
fn signals_in_the_middle_of_the_input_end_it_and_lose_nothing() {
    for (name, number) in [("TERM", 15), ("INT", 2)] {
        // Its batch would wait for an hour: the signal must end that wait, too.
        let mut program = accept_one(&["--max-wait", "1h", "--delivery-timeout", "2h"]);
        program.signal(name);
        program.says(&format!("signal {number}: delivering"));
        let ended = {
            // Its input stays open: the read is not waited for.
            let stdin = program.stdin();
            let ended = program.finish();
            drop(stdin);
            ended
        };
        assert_eq!(ended.code, Some(128 + number), "{ended:?}");
        assert_eq!(ended.counts(ALL), [1, 1, 1, 0, 0, 0]);
        assert_eq!(ended.counts(["signal"]), [number as u64]);
    }
}

#[test]
fn a_closed_standard_output_changes_nothing() {
    let mut program = Program::start_unread(&["send", "--json"]);
    program.write("a\n");
    let ended = program.finish();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.is_empty(), "{ended:?}");
}
