//! Copies between two ends over ssh, by every transport.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::rig::{Rig, contents, slash};
use crate::tree::{self, MIB, assert_same};

const TRANSPORTS: [&str; 5] = ["auto", "native", "sabul", "tcp", "pipe"];

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn to_the_far_end_by_every_transport() {
    let Some(rig) = Rig::ssh() else { return };
    tree::odd(&rig.path("src"));
    for transport in TRANSPORTS {
        let name = format!("dst-{transport}");
        let mut command = rig.cp();
        command.args(["--json", "--transport", transport]).arg(contents(&rig.path("src")));
        let ended = rig.ok(command.arg(rig.far(&name)));
        assert!(ended.number("bytes_moved") > 20 * MIB);
        assert_same(&rig.path("src"), &rig.path(&name));
    }
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn from_the_far_end_by_every_transport() {
    let Some(rig) = Rig::ssh() else { return };
    tree::odd(&rig.path("src"));
    for transport in TRANSPORTS {
        let name = format!("dst-{transport}");
        let mut command = rig.cp();
        command.args(["--transport", transport]).arg(slash(&rig.far("src")));
        rig.ok(command.arg(rig.path(&name)));
        assert_same(&rig.path("src"), &rig.path(&name));
    }
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn between_two_far_ends() {
    let Some(rig) = Rig::ssh() else { return };
    tree::odd(&rig.path("src"));
    rig.ok(rig.cp().arg(slash(&rig.far("src"))).arg(rig.far("dst")));
    assert_same(&rig.path("src"), &rig.path("dst"));
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn noisy_start_up_files_are_tolerated() {
    let Some(rig) = Rig::ssh() else { return };
    tree::odd(&rig.path("src"));
    let script = rig.path("noisy-ssh");
    let text = format!(
        "#!/bin/sh\nprintf 'Welcome to the machine!\\n\\nYou have mail.\\n'\nexec {} \"$@\"\n",
        rig.ssh_command()
    );
    fs::write(&script, text).expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("mode");
    let mut command = rig.packtrain();
    command.args(["cp", "-r", "-e"]).arg(&script).arg("--remote-path");
    command.arg(rig.path("packtrain-far"));
    rig.ok(command.arg(contents(&rig.path("src"))).arg(rig.far("dst")));
    assert_same(&rig.path("src"), &rig.path("dst"));
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn standard_input_and_output() {
    let Some(rig) = Rig::ssh() else { return };
    tree::file(&rig.path("src"), 9 * MIB + 7, 3);
    let bytes = fs::read(rig.path("src")).expect("the source");
    let mut put = rig.packtrain();
    put.arg("cp");
    rig.reach(&mut put);
    put.arg("-").arg(rig.far("dst")).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = put.spawn().expect("the command");
    child.stdin.take().expect("a pipe").write_all(&bytes).expect("all taken");
    assert!(child.wait().expect("an end").success());
    assert!(fs::read(rig.path("dst")).expect("arrived") == bytes);

    let mut get = rig.packtrain();
    get.arg("cp");
    rig.reach(&mut get);
    let ended = rig.ok(get.arg(rig.far("dst")).arg("-"));
    assert!(ended.stdout == bytes, "{} of {} bytes", ended.stdout.len(), bytes.len());
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn a_far_source_that_is_missing_is_3() {
    let Some(rig) = Rig::ssh() else { return };
    let ended = rig.run(rig.cp().arg(rig.far("not there")).arg(rig.path("dst")));
    assert_eq!(ended.code, 3, "{}", ended.stderr);
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn a_far_end_without_packtrain_is_explained() {
    let Some(rig) = Rig::ssh() else { return };
    tree::file(&rig.path("f"), 10, 1);
    let mut command = rig.packtrain();
    command.args(["cp", "-e", &rig.ssh_command(), "--bootstrap", "never"]);
    command.args(["--remote-path", "/nonexistent/packtrain"]);
    let ended = rig.run(command.arg(rig.path("f")).arg(rig.far("g")));
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("--remote-path"), "{}", ended.stderr);
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn a_peer_stopped_for_twenty_seconds_goes_on() {
    let Some(rig) = Rig::ssh() else { return };
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/big"), 64 * MIB, 1);
    for far_is_target in [true, false] {
        let mut command = rig.cp();
        command.args(["--rate", "160mbit"]);
        if far_is_target {
            command.arg(contents(&rig.path("src"))).arg(rig.far("dst-a"));
        } else {
            command.arg(slash(&rig.far("src"))).arg(rig.path("dst-b"));
        }
        let mut running = rig.start(&mut command);
        rig.wait_far();
        std::thread::sleep(std::time::Duration::from_secs(1));
        assert!(!running.ended(), "{}", running.stderr());
        assert!(rig.signal_far("STOP"));
        std::thread::sleep(std::time::Duration::from_secs(20));
        rig.signal_far("CONT");
        let ended = running.wait();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_same(&rig.path("src"), &rig.path(if far_is_target { "dst-a" } else { "dst-b" }));
    }
}
