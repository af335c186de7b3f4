//! The demos with a second end: compared with an ssh pipe, and over an emulated path.

use std::collections::BTreeSet;
use std::ffi::OsString;

use crate::rig::{Rig, skipped};

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn beside_an_ssh_pipe_and_nothing_left_behind() {
    let Some(rig) = Rig::ssh() else { return };
    let before = places();
    let mut command = rig.packtrain();
    command.args(["demo", "--to", crate::sshd::HOST, "-e", &rig.ssh_command()]);
    command.arg("--remote-path").arg(rig.path("packtrain-far"));
    let ended = rig.ok(&mut command);
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(said.contains("times as fast as the ssh pipe"), "{said}");
    assert_eq!(places(), before, "its directory is still there");
}

#[test]
#[ignore = "needs namespaces and a minute; `cargo xtask test` runs it"]
fn movers_side_by_side_over_an_emulated_path() {
    let rig = Rig::local();
    let ended = rig.run(rig.packtrain().args(["demo", "--wan"]));
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    if ended.code == 7 && ended.stderr.contains("cannot run here") {
        return skipped(&ended.stderr);
    }
    assert_eq!(ended.code, 0, "{said}\n{}", ended.stderr);
    assert!(said.contains("native was"), "{said}");
    assert!(said.contains("whole"), "{said}");
}

#[test]
fn a_host_that_ssh_would_take_for_an_option_is_refused() {
    let rig = Rig::local();
    let planted = "-oProxyCommand=touch planted";
    let place = format!("{planted}:x");
    let file = rig.path("f");
    std::fs::write(&file, "x").expect("a file");
    let file = file.to_str().expect("text");
    let calls: [&[&str]; 7] = [
        &["demo", &format!("--to={planted}")],
        &["demo", &format!("--to=user@{planted}")],
        &["cp", "--", file, &place],
        &["cp", "--", file, &format!("user@{place}")],
        &["cp", "--", &place, file],
        &["verify", "--", file, &place],
        &["diagnose", "--", &format!("a@{planted}")],
    ];
    for words in calls {
        let ended = rig.run(rig.packtrain().args(words).current_dir(rig.path("")));
        assert_eq!(ended.code, 2, "{words:?}: {}", ended.stderr);
        assert!(!rig.path("planted").exists(), "{words:?}");
    }
    let mut named = rig.packtrain();
    named.args(["cp", &format!("--remote-path={planted}"), file, "localhost:x"]);
    named.current_dir(rig.path(""));
    let ended = rig.run(&mut named);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(!rig.path("planted").exists());
}

#[test]
fn variables_for_other_commands_do_not_keep_it_from_running() {
    let rig = Rig::local();
    let mut command = rig.packtrain();
    command.arg("demo").env("PACKTRAIN_SSH", "ssh -p 2222").env("PACKTRAIN_SEED", "7");
    command.env("PACKTRAIN_REMOTE_PATH", "elsewhere").env("TMPDIR", rig.path("no such place"));
    let ended = rig.run(&mut command);
    // Without space for its files the demo runs as far as possible.
    assert_eq!(ended.code, 7, "{}", ended.stderr);
    assert!(ended.stderr.contains("no such place"), "{}", ended.stderr);
    let ended = rig.run(rig.packtrain().args(["demo", "-e", "ssh -p 2222"]));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("--to"), "{}", ended.stderr);
}

/// The directories of `demo --to` at the remote end, which is this machine.
fn places() -> BTreeSet<OsString> {
    let items = std::fs::read_dir(std::env::temp_dir()).expect("the temporary folder");
    let names = items.flatten().map(|item| item.file_name());
    names.filter(|name| name.to_string_lossy().starts_with("packtrain-to-")).collect()
}
