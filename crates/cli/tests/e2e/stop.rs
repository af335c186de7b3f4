//! Copies that are stopped: by Ctrl-C on a terminal, by SIGTERM, alone and with their whole
//! process group.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::rig::{Rig, TIMEOUT, contents, send, skipped, slash};
use crate::tree::{self, MIB};

/// The byte of Ctrl-C on a terminal.
const CTRL_C: &[u8] = b"\x03";
const TIMES: u32 = 8;
/// For the copy between two other machines.
const FILES: u64 = 3_000;
/// Time in which data in flight arrives after the remote end was stopped.
const SETTLE: Duration = Duration::from_millis(700);

/// A command in the foreground of its own terminal.
struct OnTerminal(Child);

impl OnTerminal {
    /// `None` if script(1) is not installed.
    fn start(rig: &Rig, command: &Command) -> Option<Self> {
        let words = [command.get_program()].into_iter().chain(command.get_args());
        let quoted = words.map(|word| {
            let word = word.to_str().expect("text").replace('\'', r"'\''");
            format!("'{word}'")
        });
        let line = format!("exec {}", quoted.collect::<Vec<_>>().join(" "));
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        script.env("SHELL", "/bin/sh").env("TERM", "xterm");
        for (name, value) in command.get_envs() {
            script.env(name, value.expect("set"));
        }
        let shown = fs::File::create(rig.path("terminal")).expect("a file");
        let started = script.stdin(Stdio::piped()).stdout(shown).spawn();
        if started.is_err() {
            skipped("no script(1)");
        }
        started.ok().map(Self)
    }

    fn press(&mut self, keys: &[u8]) {
        let keyboard = self.0.stdin.as_mut().expect("a pipe");
        keyboard.write_all(keys).and_then(|()| keyboard.flush()).expect("a key");
    }

    fn wait(&mut self) -> i32 {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("a child") {
                return status.code().unwrap_or(-1);
            }
            assert!(start.elapsed() < TIMEOUT, "it hangs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until some data of `dir` is on the disk; `why` explains a failure.
fn wait_for_bytes(dir: &Path, why: impl Fn() -> String) {
    let start = Instant::now();
    while !fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .any(|item| item.metadata().is_ok_and(|meta| meta.is_file() && meta.blocks() > 0))
    {
        assert!(start.elapsed() < TIMEOUT, "nothing moves\n{}", why());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn slow(rig: &Rig) -> Command {
    let mut command = rig.cp();
    command.args(["--rate", "20mbit", "--retries", "0"]);
    command
}

fn source(rig: &Rig) {
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/big"), 64 * MIB, 1);
}

/// How the newest transfer ended, according to the history.
fn newest(rig: &Rig) -> String {
    let mut command = rig.packtrain();
    let ended = rig.ok(command.args(["history", "--limit", "1", "--export", "jsonl"]));
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let row: serde_json::Value = serde_json::from_str(text.trim()).expect("a row");
    row["ended"].as_str().unwrap_or_default().to_owned()
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn ctrl_c_on_a_terminal_is_130_every_time() {
    let Some(rig) = Rig::ssh() else { return };
    source(&rig);
    for time in 0..TIMES {
        let dst = rig.path(&format!("dst-{time}"));
        let mut command = slow(&rig);
        if time % 2 == 0 {
            command.arg(contents(&rig.path("src"))).arg(rig.far(&format!("dst-{time}")));
        } else {
            command.arg(slash(&rig.far("src"))).arg(&dst);
        }
        let Some(mut running) = OnTerminal::start(&rig, &command) else { return };
        let shown = || fs::read_to_string(rig.path("terminal")).unwrap_or_default();
        wait_for_bytes(&dst, shown);
        // A stopped end sends no message: ssh gets Ctrl-C before this end reacts.
        let still = time >= TIMES / 2;
        if still {
            rig.signal_far("STOP");
            std::thread::sleep(SETTLE);
        }
        running.press(CTRL_C);
        assert_eq!(running.wait(), 130, "time {time}\n{}", shown());
        rig.signal_far("KILL");
        assert_eq!(newest(&rig), "cancelled", "time {time}");
    }
}

#[test]
#[ignore = "needs a terminal; `cargo xtask test` runs it"]
fn ctrl_c_while_ssh_connects_is_130() {
    let rig = Rig::local();
    let script = rig.path("login");
    fs::write(&script, "#!/bin/sh\necho begun >\"$0.begun\"\nexec sleep 600\n").expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("mode");
    tree::file(&rig.path("f"), 10, 1);
    let mut command = rig.packtrain();
    command.args(["cp", "-e"]).arg(&script).arg(rig.path("f")).arg("host:g");
    let Some(mut running) = OnTerminal::start(&rig, &command) else { return };
    let start = Instant::now();
    while !rig.path("login.begun").exists() {
        assert!(start.elapsed() < TIMEOUT, "ssh is not run");
        std::thread::sleep(Duration::from_millis(10));
    }
    running.press(CTRL_C);
    assert_eq!(running.wait(), 130);
    assert_eq!(newest(&rig), "cancelled");
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn sigterm_to_the_whole_group_is_143() {
    let Some(rig) = Rig::ssh() else { return };
    source(&rig);
    for time in 0..4 {
        let dst = format!("dst-{time}");
        let mut command = slow(&rig);
        command.arg(contents(&rig.path("src"))).arg(rig.far(&dst)).process_group(0);
        let running = rig.start(&mut command);
        wait_for_bytes(&rig.path(&dst), || running.stderr());
        rig.signal_far("STOP");
        std::thread::sleep(SETTLE);
        let group = format!("-{}", running.pid());
        let sent = Command::new("kill").args(["-TERM", "--", &group]).status();
        assert!(sent.is_ok_and(|status| status.success()));
        let ended = running.wait();
        assert_eq!(ended.code, 143, "{}", ended.stderr);
        rig.signal_far("KILL");
        assert_eq!(newest(&rig), "cancelled");
    }
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn a_copy_between_two_other_machines_stops_at_both() {
    let Some(rig) = Rig::ssh() else { return };
    // Small files keep both ends exchanging messages.
    fs::create_dir(rig.path("src")).expect("a folder");
    for index in 0..FILES {
        tree::file(&rig.path(&format!("src/{index}")), 16 << 10, index);
    }
    for transport in ["auto", "pipe"] {
        let dst = format!("dst-{transport}");
        let mut command = slow(&rig);
        command.args(["--transport", transport]);
        command.arg(slash(&rig.far("src"))).arg(rig.far(&dst));
        let running = rig.start(&mut command);
        wait_for_bytes(&rig.path(&dst), || running.stderr());
        send("TERM", running.pid());
        let ended = running.wait();
        assert_eq!(ended.code, 143, "{transport}: {}", ended.stderr);
        let start = Instant::now();
        while !rig.far_pids().is_empty() {
            assert!(start.elapsed() < TIMEOUT, "{transport}: an end still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
        let there = fs::read_dir(rig.path(&dst)).expect("the folder").count() as u64;
        assert!(there < FILES, "{transport}: the ends went on");
        assert_eq!(newest(&rig), "cancelled", "{transport}");
    }
}
