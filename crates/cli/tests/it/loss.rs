//! `packtrain loss`: one verdict per line, and a model from its data to its report.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use crate::common::{Home, code, exists, stderr, stdout};

/// A window of the paper's length with bursts of losses.
fn window(lost: &[(usize, usize)]) -> String {
    let mut bits = vec![b'1'; 97_656];
    for &(at, run) in lost {
        bits[at..at + run].fill(b'0');
    }
    String::from_utf8(bits).expect("digits")
}

fn solid() -> String {
    window(&[(9_000, 400), (31_000, 350), (48_500, 420), (77_000, 380)])
}

fn periodic() -> String {
    window(&(0..130).map(|i| (i * 750, 1)).collect::<Vec<_>>())
}

#[test]
fn one_line_of_json_a_signature() {
    let home = Home::new();
    let text = format!("# three windows\n{}\n{}\n{}\n", solid(), periodic(), window(&[]));
    home.file("signatures", text.as_bytes());
    let output = home.run(&["loss", "classify", "signatures", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let lines: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let causes: Vec<_> = lines.iter().map(|line| line["cause"].clone()).collect();
    assert_eq!(causes, ["cpu", "network", "inconclusive"], "{lines:?}");
    for line in &lines {
        for key in ["loss_rate", "complexity", "p_cpu"] {
            assert!(line[key].is_number(), "{key}: {line}");
        }
        assert!(line["paper"]["cause"].is_string() && line["paper"]["p_cpu"].is_number());
    }
    assert!(lines[0]["success_proportion"].as_f64().is_some_and(|share| share > 0.99));
    assert!(lines[2]["success_proportion"].is_null());
}

#[test]
fn people_are_told_in_words_and_standard_input_is_read() {
    let home = Home::new();
    let mut command = home.command();
    command.args(["loss", "classify", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("starts");
    child.stdin.take().expect("piped").write_all(solid().as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("ends");
    let said = stdout(&output);
    assert!(said.starts_with("line 1: 1550 of 97656 packets lost (1.6 %): "), "{said}");
    assert!(said.contains("the receiving host did not read in time"), "{said}");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let home = Home::new();
    home.file("bad", b"1101\n11x1\n");
    home.file("model", b"{}");
    for (words, exit, says) in [
        (&["loss", "classify", "bad"][..], 2, "bad: line 2: 'x' is neither 1 (received) nor 0"),
        (&["loss", "classify", "none"], 3, "none: "),
        (&["loss", "classify", "bad", "--model", "model"], 2, "model: not a model"),
        (&["loss", "classify", "bad", "--window", "0"], 2, "--window"),
        (&["loss", "train", "bad", "--out", "m"], 2, "bad: line 1: "),
        (&["loss", "train", "--out", "m"], 2, "<DATA>"),
    ] {
        let output = home.run(words);
        let said = stderr(&output);
        assert_eq!(code(&output), exit, "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }
}

#[test]
fn a_model_is_trained_reported_and_used() {
    let home = Home::new();
    let mut data = String::new();
    for index in 0..200 {
        let split = if index % 4 == 3 { "test" } else { "train" };
        let (phase, step) = (index * 31 % 700, 150 + index * 17 % 900);
        let singles: Vec<usize> = (0..20_000 / step)
            .flat_map(|i| [step - 1 - usize::from(i % 3 == 0) * (phase % 90), 1])
            .collect();
        let run = 150 + index * 13 % 400;
        let solid = [2_000 + phase, run, 5_000 + 2 * phase, run + 40, 4_000, run - 30, 3_000];
        for (family, cause, runs) in
            [("singles", "network", &singles[..]), ("solid", "cpu", &solid)]
        {
            let packets: usize = runs.iter().sum();
            data += &format!(
                "{{\"family\":\"{family}\",\"cause\":\"{cause}\",\"split\":\"{split}\",\
                 \"packets\":{packets},\"runs\":{runs:?}}}\n"
            );
        }
    }
    home.file("data.jsonl", data.as_bytes());
    let train = ["loss", "train", "data.jsonl", "--out", "m.json", "--report", "report"];
    let output = home.run(&train);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for name in ["report.md", "judgement.json", "reliability.svg"] {
        assert!(exists(&home.path("report").join(name)), "{name}");
    }
    let report = std::fs::read_to_string(home.path("report/report.md")).expect("text");
    assert!(report.contains("| cpu solid | 50 |"), "{report}");
    let first = std::fs::read(home.path("m.json")).expect("a model");
    assert_eq!(code(&home.run(&train)), 0);
    assert_eq!(std::fs::read(home.path("m.json")).expect("a model"), first, "the same again");
    let output = home.run(&["loss", "classify", "data.jsonl", "--model", "m.json", "--json"]);
    assert_eq!(stdout(&output).lines().count(), 400, "{}", stderr(&output));
}
