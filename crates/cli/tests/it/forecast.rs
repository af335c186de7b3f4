//! `packtrain forecast`: forecasts of a path from the history and from archives.

use serde_json::Value;

use crate::common::{Home, code, stderr, stdout};

fn series() -> String {
    let points: Vec<String> = [900, 940, 910, 300, 920, 905, 930, 915, 925]
        .iter()
        .enumerate()
        .map(|(at, mbps)| format!("{{\"ts\": {}, \"val\": {mbps}e6}}", 1_795_000_000 + at * 3600))
        .collect();
    format!("[{}]", points.join(", "))
}

fn forecast(home: &Home, words: &str) -> Value {
    let mut line = vec!["forecast"];
    line.extend(words.split(' '));
    let output = home.run(&line);
    assert_eq!(code(&output), 0, "{words}: {}", stderr(&output));
    serde_json::from_str(stdout(&output).trim_end()).expect("JSON")
}

#[test]
fn an_archive_alone_is_enough() {
    let home = Home::new();
    home.file("series.json", series().as_bytes());
    let found = forecast(&home, "a b --perfsonar series.json --json");
    let rate = found["throughput_mbps"].as_f64().unwrap();
    assert!((850.0..950.0).contains(&rate), "one slow hour is not the path: {found}");
    let [low, high] = [0, 1].map(|at| found["interval_mbps"][at].as_f64().unwrap());
    assert!(low <= rate && rate <= high, "{found}");
    assert_eq!(found["measurements"], 9);
    assert_eq!(found["newest_us"], 1_795_028_800_000_000_u64);
    assert!(found["rtt_ms"].is_null());
    let again = forecast(&home, "a b --perfsonar series.json --export");
    assert_eq!(again.as_array().unwrap().len(), 9);
    let recent = forecast(&home, "a b --perfsonar series.json --since 2026-11-18T14:00 --json");
    assert!(recent["measurements"].as_u64().unwrap() < 9, "{recent}");
    let output = home.run(&["forecast", "a", "b", "--perfsonar", "series.json", "--explain"]);
    let text = stdout(&output);
    assert!(text.starts_with("a -> b: ") && text.contains("adaptive-median-5..21"), "{text}");
}

#[test]
fn transfers_of_the_history_are_measurements() {
    let home = Home::new();
    home.file("data", &vec![7; 3 << 20]);
    for copy in ["one", "two"] {
        let output = home.run(&["cp", "data", copy]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
    }
    let output = home.run(&["history", "--json"]);
    let row: Value = serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap();
    let host = row["from_host"].as_str().unwrap();
    let found = forecast(&home, &format!("{host} {host} --at-least 1MiB --json"));
    assert_eq!(found["measurements"], 2, "{found}");
    let output = home.run(&["forecast", host, host]);
    let said = stderr(&output);
    assert_eq!(code(&output), 3, "3 MiB are less than the default: {said}");
    assert!(said.contains(&format!("{host} -> {host} (2)")), "{said}");
}

#[test]
fn slips_are_said() {
    let home = Home::new();
    home.file("not.json", b"[{");
    home.file("other.json", b"{\"ts\": 1}");
    for (words, status, says) in [
        ("a b", 3, "no transfer at all"),
        ("a b --perfsonar none.json", 3, "none.json"),
        ("a b --perfsonar not.json", 2, "not JSON"),
        ("a b --perfsonar other.json", 2, "no throughput in it"),
        ("a", 2, "required"),
    ] {
        let mut line = vec!["forecast"];
        line.extend(words.split(' '));
        let output = home.run(&line);
        assert_eq!(code(&output), status, "{words}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{words}: {}", stderr(&output));
    }
}
