//! `packtrain predict`: JSON lines, text, plots, and errors in a file.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use crate::common::{Home, code, stderr, stdout};

/// A path whose throughput is highest with 8 streams.
const SAMPLES: &str = "streams,throughput_mbps\n1,100\n2,195\n4,350\n8,520\n16,480\n32,400\n";

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_line_a_model_and_last_the_answer() {
    let home = Home::new();
    home.file("samples.csv", SAMPLES.as_bytes());
    let line = ["predict", "--from", "samples.csv", "--at", "6", "--json"];
    let output = home.run(&line);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let lines = lines(&stdout(&output));
    let (last, models) = lines.split_last().expect("lines");
    assert_eq!(last["event"], "prediction");
    assert!((6..=12).contains(&last["streams"].as_u64().expect("a number")), "{last}");
    let throughput = last["throughput_mbps"].as_f64().expect("a number");
    let interval = |key: usize| last["interval_mbps"][key].as_f64().expect("a number");
    assert!(interval(0) < throughput && throughput < interval(1), "{last}");
    assert_eq!(last["at"]["streams"], 6);
    let at = last["at"]["throughput_mbps"].as_f64().expect("a number");
    assert!((400.0..520.0).contains(&at), "{last}");
    for model in models {
        for key in ["model", "valid", "coefficients", "optimum", "curve"] {
            assert!(model.get(key).is_some(), "{key}: {model}");
        }
        assert_eq!(model["valid"] == false, model["reason"].is_string(), "{model}");
    }
    let named = |name: &str| models.iter().find(|m| m["model"] == name).expect("named");
    let newton = named("newton");
    assert_eq!(newton["valid"], true);
    assert!(newton["coefficients"]["c"].as_f64().expect("c'") > 2.0);
    assert_eq!(newton["curve"].as_array().map(Vec::len), Some(64));
    assert_eq!(named("dinda")["optimum"], Value::Null, "it only rises");
    assert_eq!(named("kola-vernon")["valid"], false);
    assert_eq!(named("argmax")["optimum"], 8);
}

#[test]
fn people_get_a_table_and_a_sentence_and_standard_input_is_read() {
    let home = Home::new();
    let mut command = home.command();
    command.args(["predict", "--from", "-", "--max-streams", "4"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    child.stdin.take().expect("piped").write_all(SAMPLES.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("ends");
    let said = stdout(&output);
    assert!(said.contains("from 6 measurements: use 4 streams: "), "{said}");
    assert!(said.contains("kola-vernon           not valid: needs the bottleneck's"), "{said}");
}

#[test]
fn one_measurement_or_zeros_have_an_answer_too() {
    let home = Home::new();
    for (text, streams) in [("4,500\n", 4..=8), ("1,0\n2,0\n", 1..=1), ("3,5\n3,7\n", 3..=6)] {
        home.file("s.csv", format!("streams,throughput_mbps\n{text}").as_bytes());
        let output = home.run(&["predict", "--from", "s.csv", "--json"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let last = lines(&stdout(&output)).pop().expect("lines");
        assert!(streams.contains(&last["streams"].as_u64().expect("a number")), "{last}");
    }
}

#[test]
fn plots_are_written_and_other_names_refused_before_anything_is_done() {
    let home = Home::new();
    home.file("samples.csv", SAMPLES.as_bytes());
    let output = home.run(&["predict", "--from", "samples.csv", "--plot", "p.svg"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let drawn = std::fs::read_to_string(home.path("p.svg")).expect("written");
    assert!(drawn.contains("<svg") && drawn.contains("combined") && drawn.contains("newton"));
    let output = home.run(&["predict", "--from", "samples.csv", "--plot", "p.gif"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_line() {
    let home = Home::new();
    home.file("bad.csv", b"streams,throughput_mbps\n1,10\ntwo,20\n");
    home.file("empty.csv", b"streams,throughput_mbps\n");
    home.file("binary.csv", b"\x00\xff\xfe\x1b[2J");
    for (file, expected, says) in [
        ("bad.csv", 2, "bad.csv: line 3: `two` is not a number of streams"),
        ("empty.csv", 2, "empty.csv: there is no sample"),
        ("binary.csv", 2, "there is no column `streams`"),
        ("missing.csv", 3, "missing.csv"),
    ] {
        let output = home.run(&["predict", "--from", file]);
        assert_eq!(code(&output), expected, "{file}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{file}: {}", stderr(&output));
        assert!(!stderr(&output).contains('\u{1b}'));
    }
}

#[test]
fn an_empty_history_is_said() {
    let home = Home::new();
    for (words, status, says) in [
        ("--from history", 3, "no measurement of TCP streams: copy something"),
        ("--from history --to far.example", 3, "no measurement of TCP streams from"),
        ("--from samples.csv --to far.example", 2, "--to applies to --from history"),
        ("--from history --sender a", 2, "--to"),
    ] {
        let mut line = vec!["predict"];
        line.extend(words.split(' '));
        let output = home.run(&line);
        assert_eq!(code(&output), status, "{words}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{words}: {}", stderr(&output));
    }
}
