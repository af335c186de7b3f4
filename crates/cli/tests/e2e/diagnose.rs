//! `packtrain diagnose`: its arguments, and every cause, provoked with real programs.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::rig::Rig;

mod case;
mod ends;
mod path;

#[test]
fn the_last_one_by_id_and_by_process() {
    let rig = Rig::local();
    let none = rig.run(rig.packtrain().args(["diagnose", "last"]));
    assert_eq!(none.code, 3, "{}", none.stderr);
    fs::write(rig.path("a"), vec![7; 3 << 20]).expect("a file");
    let mut copy = rig.start(rig.cp().arg("--json").arg(rig.path("a")).arg(rig.path("b")));
    let pid = copy.pid();
    while !copy.ended() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = copy.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let done: Value = serde_json::from_slice(&ended.stdout[..]).expect("a line of JSON");
    let id = done["id"].as_str().expect("an id").to_owned();
    for what in ["last", &id, &pid.to_string()] {
        let said = rig.ok(rig.packtrain().args(["diagnose", what, "--json"]));
        let said: Value = serde_json::from_slice(&said.stdout).expect("JSON");
        assert_eq!((&said["id"], &said["pid"]), (&done["id"], &pid.into()), "{what}");
        assert_eq!((&said["over"], &said["event"]), (&true.into(), &"diagnosis".into()));
        assert!(said["cause"].is_string() && said["findings"][0]["says"].is_string());
    }
    let words = rig.ok(rig.packtrain().args(["diagnose", "last"]));
    assert!(String::from_utf8_lossy(&words.stdout).contains(&id));
}

#[test]
fn what_there_is_not_is_told() {
    let rig = Rig::local();
    let asked = |what: &str| rig.run(rig.packtrain().args(["diagnose", what]));
    // An unknown transfer and an unknown process.
    for what in ["last", "00c0ffee", "0", "4194304"] {
        let ended = asked(what);
        assert_eq!(ended.code, 3, "{what}: {}", ended.stderr);
        assert!(ended.stderr.contains("no transfer is remembered"), "{}", ended.stderr);
    }
    // An invalid argument.
    for what in ["nosuch", "yesterday", "", "pt://host:7/x", "udt://host:7/x"] {
        let ended = asked(what);
        assert_eq!(ended.code, 2, "{what}: {}", ended.stderr);
        assert!(ended.stderr.contains("last"), "{what}: {}", ended.stderr);
    }
    // A host that ssh cannot reach.
    let mut command = rig.packtrain();
    command.args(["diagnose", "nobody@nowhere.invalid", "-e", "ssh -o BatchMode=yes"]);
    let ended = rig.run(&mut command);
    assert!(ended.code != 0 && ended.stderr.contains("ssh"), "{}", ended.stderr);
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_running_transfer_is_asked_by_its_process() {
    let _alone = case::alone();
    let mut case = case::Case::new("--rate 20mbit --rtt 20ms", "", 20);
    // The process of cp is diagnosed while it runs.
    case.near = format!(
        "(sleep 4; for p in $(pidof packtrain); do {} diagnose $p --json 2>/dev/null; done \
         >{}) &",
        env!("CARGO_BIN_EXE_packtrain"),
        case.rig.path("asked").display()
    );
    if case.run().is_none() {
        return;
    }
    let asked = fs::read_to_string(case.rig.path("asked")).expect("what was said");
    let said: Vec<Value> =
        asked.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(said.len(), 1, "{asked}");
    assert_eq!((&said[0]["over"], &said[0]["cause"]), (&false.into(), &"path-rate".into()));
}

/// Before any transfer, over ssh: every stage is measured, and no file remains.
#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn a_host_is_tried() {
    let _alone = case::alone();
    let Some(rig) = Rig::ssh() else { return };
    let (there, here) = (rig.path("there"), rig.path("here"));
    fs::create_dir(&there).expect("a folder");
    fs::create_dir(&here).expect("a folder");
    let ask = |more: &[&str]| {
        let mut command = rig.packtrain();
        command.arg("diagnose").arg(rig.far("there")).args(more).env("TMPDIR", &here);
        rig.reach(&mut command);
        rig.ok(&mut command)
    };
    let said: Value = serde_json::from_slice(&ask(&["--json"]).stdout).expect("JSON");
    let stages: Vec<&str> = said["ceilings"]
        .as_array()
        .expect("ceilings")
        .iter()
        .filter_map(|ceiling| ceiling["stage"].as_str())
        .collect();
    assert_eq!(stages, ["read", "encrypt", "path", "decrypt", "write"], "{said}");
    assert!(said["lowest"].is_string() && said["cause"].is_string(), "{said}");
    assert_eq!(said["evidence"]["probed"], true, "{said}");
    // A ceiling that is certainly the lowest.
    let slow = ask(&["--json", "--rate", "30mbit"]);
    let slow: Value = serde_json::from_slice(&slow.stdout).expect("JSON");
    assert_eq!(slow["cause"], "rate-asked", "{slow}");
    let words = String::from_utf8_lossy(&ask(&["--rate", "50mbit"]).stdout).into_owned();
    assert!(words.contains("<- the lowest") && words.contains("remedy"), "{words}");
    let left = |dir| fs::read_dir(dir).expect("a folder").count();
    assert_eq!((left(&there), left(&here)), (0, 0), "a probe's file stays");
}
