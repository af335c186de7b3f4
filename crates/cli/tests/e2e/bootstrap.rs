//! Copies to machines where packtrain is not installed.
//!
//! A script replaces ssh. It passes its arguments to a login shell, as sshd does. Each test has a
//! home directory of its own there, which is also its directory of temporary files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::faults::in_namespace;
use crate::rig::{Ended, Rig, send, skipped, wait_until};
use crate::tree;

/// A name under which no program is installed.
const NOWHERE: &str = "packtrain-not-installed";

/// Writes a replacement for ssh whose login shell is `shell`. It also copies its input to `wire`, and
/// counts its sessions.
fn stand_in(rig: &Rig, shell: &str, prelude: &str) {
    let at = rig.path("");
    let at = at.display();
    let text = format!(
        "#!/bin/sh\n{prelude}\n\
         HOME={at}tmp TMPDIR={at}tmp; export HOME TMPDIR; unset XDG_CACHE_HOME\n\
         for last; do :; done\n\
         case \" $* \" in *' -G '*) exit 1;; esac\n\
         echo session >>{at}/sessions\n\
         mkfifo {at}/fifo.$$ && exec 3<&0\n\
         tee -a {at}/wire <&3 >{at}/fifo.$$ &\n\
         {shell} -c \"$last\" <{at}/fifo.$$; s=$?\n\
         kill $! 2>/dev/null; rm -f {at}/fifo.$$; exit $s\n"
    );
    script(&rig.path("login"), &text);
}

fn copy(rig: &Rig) -> Command {
    copy_by(rig, Path::new(NOWHERE))
}

fn copy_by(rig: &Rig, remote: &Path) -> Command {
    copy_to(rig, remote, "g")
}

fn copy_to(rig: &Rig, remote: &Path, name: &str) -> Command {
    let mut command = rig.packtrain();
    command.args(["cp", "--transport", "pipe", "--retries", "0", "-e"]).arg(rig.path("login"));
    command.arg("--remote-path").arg(remote).arg(rig.path("f"));
    command.arg(format!("host:{}", rig.path(name).display()));
    command
}

fn rig() -> Rig {
    let rig = Rig::local();
    fs::create_dir(rig.path("tmp")).expect("a folder");
    tree::file(&rig.path("f"), 3, 1);
    rig
}

/// The program was sent and stays in the cache, and nothing else does.
fn assert_copied(rig: &Rig, ended: &Ended, what: &str) {
    assert_eq!(ended.code, 0, "{what}: {}", ended.stderr);
    assert!(fs::read(rig.path("f")).ok() == fs::read(rig.path("g")).ok(), "{what}");
    assert_eq!(files(rig).len(), 1, "{what}: {:?}", files(rig));
    assert_eq!(sessions(rig), 1, "{what}");
    assert!(ended.stderr.contains("sent it once"), "{what}: {}", ended.stderr);
}

fn sessions(rig: &Rig) -> usize {
    fs::read_to_string(rig.path("sessions")).unwrap_or_default().lines().count()
}

/// Bytes that this end has sent over all sessions.
fn sent(rig: &Rig) -> u64 {
    fs::metadata(rig.path("wire")).map_or(0, |meta| meta.len())
}

/// All files below the home directory there.
fn files(rig: &Rig) -> Vec<PathBuf> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for item in fs::read_dir(dir).into_iter().flatten().flatten() {
            match item.file_type() {
                Ok(kind) if kind.is_dir() => walk(&item.path(), found),
                _ => found.push(item.path()),
            }
        }
    }
    let mut found = Vec::new();
    walk(&rig.path("tmp"), &mut found);
    found
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).expect("a script");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("mode");
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
    let (program, first) = (program_size(), sent(&rig));
    assert!(first * 2 < program, "{first} bytes of {program}");
    // The second copy finds the program there.
    fs::remove_file(rig.path("g")).expect("it is there");
    let ended = rig.run(&mut copy(&rig));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(rig.path("g").exists() && !ended.stderr.contains("not installed"), "{}", ended.stderr);
    assert_eq!((sessions(&rig), files(&rig).len()), (2, 1));
    let second = sent(&rig) - first;
    assert!(second < 100_000, "{second} bytes");
}

/// What the sent program creates is as open as the account of the other end wants: at the first copy,
/// and at the second one, by the program in the cache.
#[test]
fn a_sent_program_creates_files_with_the_umask_of_the_account() {
    let rig = rig();
    stand_in(&rig, "sh", "umask 027");
    fs::create_dir(rig.path("d")).expect("a folder");
    tree::file(&rig.path("d/f"), 3, 1);
    for (path, mode) in [("d", 0o755), ("d/f", 0o644)] {
        fs::set_permissions(rig.path(path), fs::Permissions::from_mode(mode)).expect("mode");
    }
    for to in ["first", "second"] {
        let mut command = rig.packtrain();
        command.args(["cp", "-r", "--preserve=none", "--transport", "pipe", "--retries", "0"]);
        command
            .arg("-e")
            .arg(rig.path("login"))
            .args(["--remote-path", NOWHERE])
            .arg(rig.path("d"));
        let ended = rig.run(command.arg(format!("host:{}", rig.path(to).display())));
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(ended.stderr.contains("sent it once"), to == "first", "{}", ended.stderr);
        let mode = |name: &str| {
            let meta = fs::metadata(rig.path(to).join(name)).expect("it was copied");
            meta.permissions().mode() & 0o777
        };
        assert_eq!((mode(""), mode("d"), mode("d/f")), (0o750, 0o750, 0o640), "{to}");
    }
}

fn program_size() -> u64 {
    fs::metadata(env!("CARGO_BIN_EXE_packtrain")).expect("the command").len()
}

/// Each sends its own program; neither takes that of the other for one that was left behind.
#[test]
fn two_copies_at_a_time_send_the_program_and_both_succeed() {
    let rig = rig();
    stand_in(&rig, "sh", "");
    let running: Vec<_> = (0..2)
        .map(|n| {
            let mut command = copy_to(&rig, Path::new(NOWHERE), &format!("g{n}"));
            rig.start(&mut command)
        })
        .collect();
    for (n, running) in running.into_iter().enumerate() {
        let ended = running.wait();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let copied = fs::read(rig.path(&format!("g{n}"))).expect("the copy");
        assert!(copied == fs::read(rig.path("f")).expect("the file"));
    }
    assert_eq!((sessions(&rig), files(&rig).len()), (2, 1), "{:?}", files(&rig));
}

#[test]
fn a_copy_that_is_killed_while_it_sends_leaves_nothing() {
    let rig = rig();
    // The other end stops in the middle of the program until the hold is removed.
    let (bin, hold) = (rig.path("bin"), rig.path("hold"));
    fs::create_dir(&bin).expect("a folder");
    fs::write(&hold, "").expect("a file");
    let real = Command::new("sh").args(["-c", "command -v head"]).output().expect("sh").stdout;
    let real = String::from_utf8(real).expect("text");
    let (real, hold_at) = (real.trim(), hold.display());
    script(
        &bin.join("head"),
        &format!(
            "#!/bin/sh\n{real} -c 99999\n: >{hold_at}.reached\n\
                 while [ -e {hold_at} ]; do sleep 0.05; done\n\
                 exec {real} -c $(($2 - 99999))\n"
        ),
    );
    stand_in(&rig, "sh", &format!("PATH={}:$PATH; export PATH", bin.display()));
    let mut running = rig.start(&mut copy(&rig));
    let cache = rig.path("tmp/.cache/packtrain");
    wait_until("an unfinished copy of the program", || {
        assert!(!running.ended(), "{}", running.stderr());
        rig.path("hold.reached").exists()
    });
    assert!(names(&cache).iter().all(|name| name.starts_with(".new-")) && !files(&rig).is_empty());
    send("KILL", running.pid());
    let ended = running.wait();
    assert_ne!(ended.code, 0, "{}", ended.stderr);
    fs::remove_file(&hold).expect("it is there");
    wait_until("the removal of the unfinished copy", || names(&cache).is_empty());
    assert!(files(&rig).is_empty(), "{:?}", files(&rig));
}

fn names(dir: &Path) -> Vec<String> {
    let items = fs::read_dir(dir).into_iter().flatten().flatten();
    items.map(|item| item.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_command_line_is_run_by_the_login_shell() {
    let rig = rig();
    stand_in(&rig, "sh", "");
    let program = rig.path("packtrain-far");
    let line = format!("cd / && {}", program.display());
    let ended = rig.run(&mut copy_by(&rig, Path::new(&line)));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(rig.path("g").exists() && files(&rig).is_empty());
    // One that fails is replaced, in the same session.
    fs::remove_file(rig.path("g")).expect("it is there");
    let ended = rig.run(&mut copy_by(&rig, Path::new("false && packtrain")));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!((sessions(&rig), files(&rig).len()), (2, 1));
}

#[test]
fn a_program_that_fails_or_speaks_another_protocol_is_replaced() {
    for text in ["exit 1", "echo packtrain 99.0 protocol 998 to 999"] {
        let rig = rig();
        stand_in(&rig, "sh", "");
        let program = rig.path("other");
        script(&program, &format!("#!/bin/sh\n{text}\n"));
        let ended = rig.run(&mut copy_by(&rig, &program));
        assert_copied(&rig, &ended, text);
        assert!(ended.stderr.contains("too old or too new"), "{}", ended.stderr);
    }
}

#[test]
fn never_sends_nothing() {
    let rig = rig();
    stand_in(&rig, "sh", "");
    let ended = rig.run(copy(&rig).args(["--bootstrap", "never"]));
    assert_eq!(ended.code, 7, "{}", ended.stderr);
    assert!(ended.stderr.contains("not installed at host"), "{}", ended.stderr);
    assert!(files(&rig).is_empty() && sent(&rig) == 0);
}

/// A PATH with the standard programs, without gzip.
fn without_gzip(rig: &Rig) -> String {
    let dir = rig.path("programs");
    fs::create_dir(&dir).expect("a folder");
    for name in [
        "sh", "uname", "mktemp", "head", "cat", "wc", "chmod", "rm", "mkfifo", "tee", "mkdir",
        "mv", "find", "cut", "tr", "readlink", "touch",
    ] {
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
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_full_disk_there_is_said_and_nothing_is_left() {
    for gzip in [true, false] {
        let rig = rig();
        let prelude = if gzip { String::new() } else { without_gzip(&rig) };
        stand_in(&rig, "sh", &prelude);
        let script = format!(
            "mount -t tmpfs -o size=1m none tmp || exit 99\n\
             \"$0\" cp --transport pipe --retries 0 -e ./login \
             --remote-path {NOWHERE} f host:$PWD/g 2>said; echo $? >code\n\
             find tmp -mindepth 1 -type f >left; echo done >ended\n"
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
         \"$0\" cp --transport pipe --retries 0 -e ./login \
         --remote-path {NOWHERE} f host:$PWD/g 2>said; echo $? >code\n\
         find tmp -mindepth 1 -type f >left; echo done >ended\n"
    );
    let Some(()) = in_namespace(&rig, &script) else { return };
    let read = |name: &str| fs::read_to_string(rig.path(name)).unwrap_or_default();
    let said = read("said");
    assert_eq!(read("code").trim(), "7", "{said}");
    assert!(said.contains("XDG_CACHE_HOME"), "{said}");
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
