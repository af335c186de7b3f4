//! Copies to machines where packtrain is not installed.
//!
//! A script replaces ssh. It passes its arguments to a login shell, as sshd does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::faults::in_namespace;
use crate::rig::{Ended, Rig, skipped};
use crate::tree;

/// A name under which no program is installed.
const NOWHERE: &str = "packtrain-not-installed";

/// Writes a replacement for ssh whose login shell is `shell`. It also copies its input to `wire`.
fn stand_in(rig: &Rig, shell: &str, prelude: &str) {
    let at = rig.path("");
    let at = at.display();
    let text = format!(
        "#!/bin/sh\n{prelude}\n\
         for last; do :; done\n\
         case \" $* \" in *' -G '*) exit 1;; esac\n\
         echo session >>{at}/sessions\n\
         mkfifo {at}/fifo.$$ && exec 3<&0\n\
         tee -a {at}/wire <&3 >{at}/fifo.$$ &\n\
         {shell} -c \"$last\" <{at}/fifo.$$; s=$?\n\
         kill $! 2>/dev/null; rm -f {at}/fifo.$$; exit $s\n"
    );
    fs::write(rig.path("login"), text).expect("a script");
    fs::set_permissions(rig.path("login"), fs::Permissions::from_mode(0o755)).expect("mode");
}

fn copy(rig: &Rig) -> Command {
    copy_by(rig, Path::new(NOWHERE))
}

fn copy_by(rig: &Rig, remote: &Path) -> Command {
    let mut command = rig.packtrain();
    command.args(["cp", "--transport", "pipe", "--retries", "0", "-e"]).arg(rig.path("login"));
    command.arg("--remote-path").arg(remote).arg(rig.path("f"));
    command.arg(format!("host:{}", rig.path("g").display()));
    command.env("TMPDIR", rig.path("tmp"));
    command
}

fn rig() -> Rig {
    let rig = Rig::local();
    fs::create_dir(rig.path("tmp")).expect("a folder");
    tree::file(&rig.path("f"), 3, 1);
    rig
}

fn assert_copied(rig: &Rig, ended: &Ended, what: &str) {
    assert_eq!(ended.code, 0, "{what}: {}", ended.stderr);
    assert!(fs::read(rig.path("f")).ok() == fs::read(rig.path("g")).ok(), "{what}");
    assert_nothing_left(&rig.path("tmp"), what);
    let sessions = fs::read_to_string(rig.path("sessions")).expect("sessions");
    assert_eq!(sessions.lines().count(), 2, "{what}: one that fails and one that sends");
}

fn assert_nothing_left(dir: &Path, what: &str) {
    let left: Vec<_> = fs::read_dir(dir).expect("the folder").flatten().collect();
    assert!(left.is_empty(), "{what}: {left:?}");
}

#[test]
fn by_every_login_shell() {
    for shell in ["sh", "bash", "dash", "tcsh", "csh", "fish"] {
        let there = Command::new(shell).args(["-c", "true"]).stdin(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            skipped(&format!("no {shell}"));
            continue;
        }
        let rig = rig();
        stand_in(&rig, shell, "");
        assert_copied(&rig, &rig.run(&mut copy(&rig)), shell);
    }
}

#[test]
fn what_is_sent_has_no_symbols_and_is_packed() {
    let rig = rig();
    stand_in(&rig, "sh", "");
    assert_copied(&rig, &rig.run(&mut copy(&rig)), "sh");
    let sent = fs::metadata(rig.path("wire")).expect("the wire").len();
    let program = fs::metadata(env!("CARGO_BIN_EXE_packtrain")).expect("the command").len();
    assert!(sent * 2 < program, "{sent} bytes of {program}");
}

/// A PATH with the standard programs, without gzip.
fn without_gzip(rig: &Rig) -> String {
    let dir = rig.path("programs");
    fs::create_dir(&dir).expect("a folder");
    for name in ["sh", "uname", "mktemp", "head", "cat", "wc", "chmod", "rm", "mkfifo", "tee"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output();
        let path = String::from_utf8(found.expect("sh").stdout).expect("text");
        std::os::unix::fs::symlink(path.trim(), dir.join(name)).expect("a link");
    }
    format!("PATH={}; export PATH", dir.display())
}

#[test]
fn without_gzip_it_is_sent_as_it_is() {
    let rig = rig();
    stand_in(&rig, "sh", &without_gzip(&rig));
    assert_copied(&rig, &rig.run(&mut copy(&rig)), "without gzip");
}

#[test]
fn a_program_that_is_there_and_fails_is_not_replaced() {
    let rig = rig();
    stand_in(&rig, "sh", "");
    let program = rig.path("fails");
    fs::write(&program, "#!/bin/sh\nexit 1\n").expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("mode");
    let ended = rig.run(&mut copy_by(&rig, &program));
    // It will fail the next time too.
    assert_eq!(ended.code, 7, "{}", ended.stderr);
    assert!(!rig.path("g").exists());
    assert_nothing_left(&rig.path("tmp"), "it fails");
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_full_disk_there_is_said_and_nothing_is_left() {
    for gzip in [true, false] {
        let rig = rig();
        let prelude = if gzip { String::new() } else { without_gzip(&rig) };
        stand_in(&rig, "sh", &prelude);
        let script = format!(
            "mount -t tmpfs -o size=1m none tmp || exit 99\n\
             TMPDIR=$PWD/tmp \"$0\" cp --transport pipe --retries 0 -e ./login \
             --remote-path {NOWHERE} f host:$PWD/g 2>said; echo $? >code\n\
             find tmp -mindepth 1 >left; echo done >ended\n"
        );
        let Some(()) = in_namespace(&rig, &script) else { return };
        let read = |name: &str| fs::read_to_string(rig.path(name)).unwrap_or_default();
        let said = read("said");
        assert_eq!(read("code").trim(), "7", "{said}");
        assert!(said.contains("no space on host"), "{said}");
        assert!(said.contains("make room"), "{said}");
        assert_eq!((read("left").as_str(), read("ended").trim()), ("", "done"), "{said}");
    }
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_disk_there_that_runs_nothing_is_said_and_nothing_is_left() {
    let rig = rig();
    stand_in(&rig, "sh", "");
    let script = format!(
        "mount -t tmpfs -o size=400m,noexec none tmp || exit 99\n\
         TMPDIR=$PWD/tmp \"$0\" cp --transport pipe --retries 0 -e ./login \
         --remote-path {NOWHERE} f host:$PWD/g 2>said; echo $? >code\n\
         find tmp -mindepth 1 >left; echo done >ended\n"
    );
    let Some(()) = in_namespace(&rig, &script) else { return };
    let read = |name: &str| fs::read_to_string(rig.path(name)).unwrap_or_default();
    let said = read("said");
    assert_eq!(read("code").trim(), "7", "{said}");
    assert!(said.contains("does not run there"), "{said}");
    assert_eq!((read("left").as_str(), read("ended").trim()), ("", "done"), "{said}");
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn over_ssh_itself() {
    let Some(rig) = Rig::ssh() else { return };
    tree::file(&rig.path("f"), 100_000, 1);
    let mut command = rig.packtrain();
    command.args(["cp", "-e", &rig.ssh_command(), "--remote-path", NOWHERE]);
    rig.ok(command.arg(rig.path("f")).arg(rig.far("g")));
    assert!(fs::read(rig.path("f")).ok() == fs::read(rig.path("g")).ok());
}
