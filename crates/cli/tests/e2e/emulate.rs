//! `packtrain emulate` from end to end.

use std::fs;

use crate::rig::{Ended, Rig, skipped};
use crate::tree::{self, MIB, assert_same};

/// Whether this machine allows namespaces. Without them the command reports this and ends with 7.
pub(crate) fn allowed(rig: &Rig) -> bool {
    let ended = rig
        .run(rig.packtrain().args(["emulate", "--rate", "10mbit", "--rtt", "2ms", "--", "true"]));
    if ended.code == 7 {
        assert!(ended.stderr.contains("namespaces"), "{}", ended.stderr);
        skipped(&format!("no namespaces: {}", ended.stderr));
        return false;
    }
    // 5 means that the machine is too busy for an exact emulation, which does not matter here.
    assert!(matches!(ended.code, 0 | 5), "{}", ended.stderr);
    true
}

fn last(ended: &Ended) -> serde_json::Value {
    let text = String::from_utf8_lossy(&ended.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default()).expect("a last line of JSON")
}

#[test]
fn the_exit_code_is_the_commands() {
    let rig = Rig::local();
    if !allowed(&rig) {
        return;
    }
    let path = ["emulate", "--rate", "100mbit", "--rtt", "4ms", "--json"];
    let ended = rig.run(rig.packtrain().args(path).args(["--", "sh", "-c", "exit 7"]));
    assert_eq!(ended.code, 7, "{}", ended.stderr);
    let line = last(&ended);
    assert_eq!((&line["event"], &line["command_exit_code"]), (&"done".into(), &7.into()));
    assert_eq!(line["links"][0]["name"], "near>far");
    let none = rig.run(rig.packtrain().args(path).args(["--", "no-such-program-here"]));
    assert_eq!(none.code, 127, "{}", none.stderr);
}

#[test]
fn a_transfer_crosses_the_path() {
    let rig = Rig::local();
    if !allowed(&rig) {
        return;
    }
    let served = rig.path("served");
    fs::create_dir(&served).expect("a folder");
    let program = env!("CARGO_BIN_EXE_packtrain");
    let ticket = rig.path("ticket");
    let far = format!(
        "exec {program} perf server --listen 10.77.0.2:7876 --tests 1 --ticket-file {}",
        ticket.display()
    );
    let near = format!(
        "{program} perf client 10.77.0.2:7876 --ticket @{} --bytes 4000000",
        ticket.display()
    );
    let path = ["emulate", "--rate", "200mbit", "--rtt", "10ms", "--best-effort", "--json"];
    let command = ["--far", &far, "--", "sh", "-c", &near];
    let ended = rig.ok(rig.packtrain().args(path).args(command));
    let bytes = last(&ended)["links"][0]["delivered_bytes"].as_u64();
    assert!(bytes.is_some_and(|bytes| bytes > 4_000_000), "{bytes:?}");
}

#[test]
fn sabul_crosses_a_path_that_loses_and_what_arrives_is_the_same() {
    let rig = Rig::local();
    if !allowed(&rig) {
        return;
    }
    let (served, source) = (rig.path("served"), rig.path("source"));
    fs::create_dir(&served).expect("a folder");
    crate::tree::file(&source, 6 * crate::tree::MIB + 3, 1);
    let program = env!("CARGO_BIN_EXE_packtrain");
    let ticket = rig.path("ticket");
    let (ticket, at) = (ticket.display(), "10.77.0.2:7876");
    // The two ends represent two machines: each has its own state.
    let far = format!(
        "XDG_STATE_HOME={} exec {program} serve --listen {at} --root {} --ticket-file {ticket}",
        rig.path("far-state").display(),
        served.display()
    );
    let near = format!(
        "while [ ! -s {ticket} ]; do sleep 0.05; done; {program} cp --json --ticket @{ticket} \
         --transport sabul --cc sabul:80mbit {} pt://{at}/it",
        source.display()
    );
    // Both directions have queues and losses, which also affect the TCP channel of the feedback.
    let path = ["emulate", "--rate", "60mbit", "--rtt", "30ms", "--loss", "3e-3", "--best-effort"];
    let ended = rig.ok(rig.packtrain().args(path).args(["--far", &far, "--", "sh", "-c", &near]));
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(text.contains(r#""transport":"sabul""#), "{text}");
    let same = fs::read(&source).expect("source") == fs::read(served.join("it")).expect("copy");
    assert!(same, "what arrived differs");
}

#[test]
fn a_copy_over_fobs_and_a_path_that_loses_arrives_whole() {
    let rig = Rig::local();
    if !allowed(&rig) {
        return;
    }
    tree::odd(&rig.path("src"));
    tree::file(&rig.path("src/big"), 12 * MIB + 17, 1);
    fs::create_dir(rig.path("root")).expect("a folder");
    let program = env!("CARGO_BIN_EXE_packtrain");
    let shown = |name: &str| rig.path(name).display().to_string();
    let (ticket, at) = (shown("ticket"), "10.77.0.2:7877");
    let far = format!(
        "XDG_STATE_HOME={} XDG_CONFIG_HOME={} exec {program} serve --listen {at} --root {} \
         --ticket-file {ticket}",
        shown("far-state"),
        shown("far-config"),
        shown("root")
    );
    let near = format!(
        "until test -s {ticket}; do sleep 0.05; done; exec {program} cp -r --transport fobs \
         --json --ticket @{ticket} {}/ pt://{at}/dst",
        shown("src")
    );
    let path = ["emulate", "--rate", "100mbit", "--rtt", "20ms", "--loss", "2e-3"];
    let command = ["--best-effort", "--json", "--far", &far, "--", "sh", "-c", &near];
    let ended = rig.ok(rig.packtrain().args(path).args(command));
    assert_same(&rig.path("src"), &rig.path("root/dst"));
    let text = String::from_utf8_lossy(&ended.stdout);
    let done = text.lines().find(|line| line.contains(r#""transport":"fobs""#)).expect("fobs");
    let done: serde_json::Value = serde_json::from_str(done).expect("JSON");
    assert!(done["retransmitted_bytes"].as_u64() > Some(0), "{done}");
    assert!(done["loss_cause"]["path"].as_u64() > Some(0), "{done}");
}

/// Capacity and arrival rate that the feedback of the flow measured in its last second, with the
/// goodput of that second and the emulator's lateness in microseconds.
fn estimates(rig: &Rig, transport: &str, rate: &str) -> Option<([f64; 3], u64)> {
    let program = env!("CARGO_BIN_EXE_packtrain");
    let ticket = rig.path(&format!("ticket-{transport}-{rate}"));
    let (ticket, at) = (ticket.display(), "10.77.0.2:7876");
    let far = format!("exec {program} perf server --listen {at} --tests 1 --ticket-file {ticket}");
    let near = format!(
        "while [ ! -s {ticket} ]; do sleep 0.05; done; exec {program} perf client {at} \
         --ticket @{ticket} --transport {transport} --seconds 4 --json"
    );
    let path = ["emulate", "--rate", rate, "--rtt", "20ms", "--per-packet", "--best-effort"];
    let command = ["--json", "--far", &far, "--", "sh", "-c", &near];
    let ended = rig.ok(rig.packtrain().args(path).args(command));
    let text = String::from_utf8_lossy(&ended.stdout);
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let lines: Vec<serde_json::Value> = lines.collect();
    let interval = lines.iter().rfind(|line| line["event"] == "interval")?;
    let number = |name: &str| interval[name].as_f64();
    let found = [number("capacity_bps")?, number("arrival_bps")?, number("goodput_bps")?];
    Some((found, last(&ended)["links"][0]["lateness_p99_us"].as_u64()?))
}

#[test]
fn estimates_are_right_over_single_packets() {
    let rig = Rig::local();
    if !allowed(&rig) {
        return;
    }
    for (rate, mbit) in [("100mbit", 100.0), ("500mbit", 500.0)] {
        for transport in ["native", "udt"] {
            // Such a run is discarded: a late emulator changes the spacing of packets. A run is
            // also discarded if the controller cut its rate in the last second, because AS is
            // measured at the end of the second and the goodput over all of it. One of three runs
            // must be right; a wrong estimator has none.
            let mut told = Vec::new();
            let right = (0..3).any(|_| {
                let ([capacity, arrival, goodput], late) =
                    estimates(&rig, transport, rate).expect("estimates in the last second");
                // Links count IP packets, estimates count datagrams, goodput counts payload.
                let capacity = capacity * 1_500.0 / 1_472.0 / (mbit * 1e6);
                let arrival = arrival * 1_436.0 / 1_472.0 / goodput;
                if late <= 500 {
                    told.push(format!("B {capacity:.3} AS {arrival:.3} of the truth"));
                }
                late <= 500 && (capacity - 1.0).abs() < 0.1 && (arrival - 1.0).abs() < 0.1
            });
            if told.len() < 3 && !right {
                eprintln!("{transport} at {rate} says nothing: the machine is too busy");
                continue;
            }
            assert!(right, "{transport} {rate}: {}", told.join("; "));
        }
    }
}

#[test]
fn a_topology_that_is_wrong_is_told_before_anything_runs() {
    let rig = Rig::local();
    let file = rig.path("net.toml");
    fs::write(&file, "[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"-5mbit\"\ndelay = \"1ms\"\n")
        .expect("a file");
    let ended = rig.run(rig.packtrain().args(["emulate", "--topology"]).arg(&file).args([
        "--",
        "touch",
        "/nowhere/at/all",
    ]));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("net.toml:4"), "{}", ended.stderr);
    assert!(ended.stderr.contains("rate"), "{}", ended.stderr);
}

#[test]
fn impossible_values_are_refused() {
    let rig = Rig::local();
    let base = ["--rate", "1gbit", "--rtt", "10ms"];
    for (option, value) in [
        ("--rate", "-1gbit"),
        ("--rate", "5"),
        ("--rtt", "-1ms"),
        ("--loss", "1.5"),
        ("--queue", "10B"),
        ("--queue", "0packets"),
        ("--mtu", "10"),
        ("--jitter", "soon"),
        ("--tick", "2ms"),
    ] {
        let mut words = base.map(str::to_owned).to_vec();
        match words.iter().position(|word| word == option) {
            Some(i) => words[i + 1] = value.to_owned(),
            None => words.extend([option.to_owned(), value.to_owned()]),
        }
        let words = words.chunks(2).map(|pair| pair.join("="));
        let ended = rig.run(rig.packtrain().arg("emulate").args(words).args(["--", "true"]));
        assert_eq!(ended.code, 2, "{option} {value}: {}", ended.stderr);
        assert!(ended.stderr.contains(option), "{option} {value}: {}", ended.stderr);
    }
}
