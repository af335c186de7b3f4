//! TCP streams: killed and resumed, their congestion control, their number.

use std::fs;
use std::time::Duration;

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
    // One that is not there is refused at the end that sends.
    let ended = rig.run(&mut tcp(&rig, &["--tcp-cc", "no-such"]));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("modprobe tcp_no-such"), "{}", ended.stderr);
    let mut pull = rig.cp();
    pull.args(["--transport", "tcp", "--tcp-cc", "no-such"]);
    let ended = rig.run(pull.arg(rig.far("src")).arg(rig.path("none")));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("reno"), "{}", ended.stderr);
}
