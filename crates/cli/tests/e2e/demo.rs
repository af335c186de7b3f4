//! The demos that need another end: beside an ssh pipe, and over an emulated path.

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
    assert!(said.contains("native moved"), "{said}");
    assert!(said.contains("whole"), "{said}");
}

/// The directories that `demo --to` makes at its far end, which is this machine.
fn places() -> BTreeSet<OsString> {
    let items = std::fs::read_dir(std::env::temp_dir()).expect("the temporary folder");
    let names = items.flatten().map(|item| item.file_name());
    names.filter(|name| name.to_string_lossy().starts_with("packtrain-to-")).collect()
}
