//! TCP streams: kill and resume, congestion control, the number of streams.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::rig::{Ended, Rig, contents};
use crate::tree::{self, MIB, assert_same};

fn tcp(rig: &Rig, more: &[&str]) -> std::process::Command {
    let mut command = rig.cp();
    command.args(["--transport", "tcp", "--json"]).args(more);
    command.arg(contents(&rig.path("src"))).arg(rig.far("dst"));
    command
}

fn text(ended: &Ended) -> String {
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn a_copy_by_six_streams_goes_on_after_a_kill() {
    let Some(rig) = Rig::ssh() else { return };
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/big"), 96 * MIB, 1);
    let mut running =
        rig.start(&mut tcp(&rig, &["--streams", "6", "--rate", "200mbit", "--retries", "0"]));
    rig.wait_far();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!running.ended(), "{}", running.stderr());
    assert!(rig.signal_far("KILL"));
    assert_ne!(running.wait().code, 0);
    let ended = rig.ok(&mut tcp(&rig, &["--streams", "6"]));
    assert_same(&rig.path("src"), &rig.path("dst"));
    let moved = ended.number("bytes_moved");
    assert!(moved <= 80 * MIB, "{moved} bytes moved again of {}", 96 * MIB);
    assert!(text(&ended).contains(r#""asked":6"#), "{}", text(&ended));
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn the_congestion_control_asked_for_is_in_force_whoever_sends() {
    let Some(rig) = Rig::ssh() else { return };
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/big"), 8 * MIB, 1);
    let ended = rig.ok(&mut tcp(&rig, &["--tcp-cc", "reno", "--streams", "2"]));
    assert!(text(&ended).contains(r#""congestion":"reno""#), "{}", text(&ended));
    let mut pull = rig.cp();
    pull.args(["--transport", "tcp", "--json", "--tcp-cc", "reno"]);
    let ended = rig.ok(pull.arg(rig.far("src")).arg(rig.path("back")));
    assert!(text(&ended).contains(r#""congestion":"reno""#), "{}", text(&ended));
    assert!(text(&ended).contains(r#""asked":null"#), "{}", text(&ended));
    // A congestion control that the kernel does not have is refused at the sending end.
    let ended = rig.run(&mut tcp(&rig, &["--tcp-cc", "no-such"]));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("modprobe tcp_no-such"), "{}", ended.stderr);
    let mut pull = rig.cp();
    pull.args(["--transport", "tcp", "--tcp-cc", "no-such"]);
    let ended = rig.run(pull.arg(rig.far("src")).arg(rig.path("none")));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("reno"), "{}", ended.stderr);
}

/// The reasons for the number of streams, for each copy in turn.
fn reasons(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let copies = lines.filter(|line| line["event"] == "done" && line["streams"].is_object());
    copies
        .map(|line| {
            let all = line["streams"]["reasons"].as_array().cloned().unwrap_or_default();
            all.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
        })
        .collect()
}

#[test]
fn a_second_copy_begins_with_what_the_first_one_measured() {
    let rig = Rig::local();
    if !crate::emulate::allowed(&rig) {
        return;
    }
    tree::file(&rig.path("big"), 40 * MIB, 1);
    fs::create_dir(rig.path("root")).expect("a folder");
    let program = env!("CARGO_BIN_EXE_packtrain");
    let shown = |name: &str| rig.path(name).display().to_string();
    let (keys, at) = (shown("keys"), "10.77.0.2:7879");
    rig.own_key("keys");
    let far = format!(
        "XDG_STATE_HOME={} XDG_CONFIG_HOME={} exec {program} serve --listen {at} --root {} \
         --authorized-keys {keys}",
        shown("far-state"),
        shown("far-config"),
        shown("root")
    );
    let copy = |more: &str, name: &str| {
        let big = shown("big");
        format!(
            "{program} cp --json --accept-new-host --transport tcp {more} {big} pt://{at}/{name}"
        )
    };
    // After several fixed numbers were measured, `auto` uses the stored measurements.
    let near = format!(
        "sleep 1; {} && {} && {}",
        copy("--streams auto", "a"),
        copy("--streams 12", "b"),
        copy("--streams auto", "c")
    );
    let path = ["emulate", "--rate", "100mbit", "--rtt", "40ms", "--loss", "1e-3", "--best-effort"];
    let ended = rig.ok(rig.packtrain().args(path).args(["--far", &far, "--", "sh", "-c", &near]));
    let told = reasons(&text(&ended));
    assert_eq!(told.len(), 3, "{}", text(&ended));
    let known = |lines: &[String]| {
        lines.first().is_some_and(|line| line.starts_with("earlier transfers over this path"))
    };
    assert!(!known(&told[0]), "{:?}", told[0]);
    assert!(known(&told[2]), "{:?}", told[2]);
    for name in ["a", "b", "c"] {
        let same = fs::read(rig.path("root").join(name)).expect("there")
            == fs::read(rig.path("big")).expect("there");
        assert!(same, "{name} differs");
    }
}
