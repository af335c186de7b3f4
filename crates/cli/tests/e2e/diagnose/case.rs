//! A deliberately slow transfer: its hosts, its path, and its diagnosis.
//!
//! `packtrain emulate` provides the networks. strace slows disks and file servers by delaying the
//! system calls of a process. Other processes that spin, or a cgroup, take processor time. Only one
//! case runs at a time, so that they do not disturb each other.

use parking_lot::{Mutex, MutexGuard};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::rig::{Rig, skipped};

/// Runs a command with priority over others: in a session of its own, because the kernel shares
/// processors among sessions first (`autogroup`).
const FIRST: &[&str] = &[
    "setsid",
    "sh",
    "-c",
    "{ echo -10 >/proc/self/autogroup; } 2>/dev/null; exec nice -n -10 \"$@\"",
    "sh",
];

static ALONE: Mutex<()> = Mutex::new(());

/// Held while a case runs.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

/// Whether a program is installed.
pub(super) fn has(program: &str) -> bool {
    let there = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let there = there.is_ok_and(|out| out.status.success());
    if !there {
        skipped(&format!("no {program}"));
    }
    there
}

/// A deliberately slow transfer.
pub(super) struct Case {
    pub(super) rig: Rig,
    /// Options of `emulate`.
    path: &'static str,
    /// Shell commands on the remote host before its server, such as `sysctl`. A wrapper precedes
    /// the server's own command.
    pub(super) far: String,
    pub(super) far_wrap: String,
    /// Options of the server.
    pub(super) serve: &'static str,
    /// The same on the local host.
    pub(super) near: String,
    pub(super) near_wrap: String,
    /// Arguments of `cp`.
    cp: &'static str,
    /// Size of the one file, in MiB.
    size: u64,
    /// Number of small files of 2000 bytes.
    pub(super) files: u64,
}

/// The diagnosis of a transfer.
pub(super) struct Diagnosis {
    /// The object of `diagnose last --json`.
    pub(super) json: Value,
    /// The output of `cp --json` and of all other programs before it.
    pub(super) before: String,
}

impl Case {
    pub(super) fn new(path: &'static str, cp: &'static str, size: u64) -> Self {
        let none = String::new;
        let rig = Rig::local();
        let (far, far_wrap, near, near_wrap) = (none(), none(), none(), none());
        Self { rig, path, far, far_wrap, serve: "", near, near_wrap, cp, size, files: 0 }
    }

    fn fill(&self) -> PathBuf {
        let source = self.rig.path("source");
        fs::create_dir(&source).expect("a folder");
        for n in 0..self.files {
            fs::write(source.join(format!("{n:06}")), [n as u8; 2000]).expect("a small file");
        }
        if self.size > 0 {
            let mut file = File::create(source.join("big")).expect("a file");
            let mut block = vec![0; 1 << 20];
            for n in 0..self.size {
                for (at, byte) in block.iter_mut().enumerate() {
                    *byte = (at as u64 * 131 + n * 7 + (at as u64 >> 8)) as u8;
                }
                file.write_all(&block).expect("room");
            }
        }
        source
    }

    /// Runs the case; `None` if this machine has no namespaces.
    pub(super) fn run(&self) -> Option<Diagnosis> {
        let source = self.fill();
        let program = env!("CARGO_BIN_EXE_packtrain");
        let (ticket, out) = (self.rig.path("ticket"), self.rig.path("served"));
        fs::create_dir(&out).expect("a folder");
        let (ticket, out) = (ticket.display(), out.display());
        let Self { far, far_wrap, serve, near, near_wrap, cp, .. } = self;
        // Each end has its own history, because a slow disk at one end would delay the rows of the
        // other.
        let state = self.rig.path("far-state");
        let state = state.display();
        let far = format!(
            "export XDG_STATE_HOME={state}; {far} exec {far_wrap} {program} serve --listen 10.77.0.2:7876 --root {out} \
             --ticket-file {ticket} {serve}"
        );
        let near = format!(
            "while [ ! -s {ticket} ]; do sleep 0.05; done; {near} {near_wrap} {program} cp -r \
             --retries 0 --json --ticket @{ticket} {cp} {} pt://10.77.0.2:7876/out && {program} \
             diagnose last --json",
            source.display()
        );
        // Hosts and network get priority over other processes, where that is allowed, so that only
        // one cause slows the transfer.
        let mut command = self.rig.packtrain_by(FIRST);
        command.arg("emulate").args(self.path.split_whitespace()).arg("--best-effort");
        let ended = self.rig.run(command.args(["--far", &far, "--", "sh", "-c", &near]));
        if ended.code == 7 && ended.stderr.contains("namespaces") {
            skipped(&format!("no namespaces: {}", ended.stderr));
            return None;
        }
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let text = String::from_utf8_lossy(&ended.stdout);
        let last = text.lines().last().unwrap_or_default();
        let before = format!("{text}\n{}", ended.stderr);
        Some(Diagnosis { json: serde_json::from_str(last).expect("a line of JSON"), before })
    }

    /// Runs it and checks the cause.
    #[track_caller]
    pub(super) fn is(&self, cause: &str) -> Option<Diagnosis> {
        let said = self.run()?;
        said.check(cause);
        Some(said)
    }
}

impl Diagnosis {
    /// Asserts that the first finding is `cause`, and likely, with evidence, a remedy and ceilings.
    #[track_caller]
    pub(super) fn check(&self, cause: &str) {
        let Self { json, before } = self;
        let none = Vec::new();
        let findings = json["findings"].as_array().unwrap_or(&none);
        let list: Vec<String> = findings
            .iter()
            .map(|f| format!("{} {}", f["cause"].as_str().unwrap_or("?"), f["sure"]))
            .collect();
        // A row of the table of causes and verdicts.
        eprintln!("provoked {cause}: {}", list.join(", "));
        keep(cause, json);
        let pretty = serde_json::to_string_pretty(&json["findings"]).unwrap_or_default();
        let whole = format!("{pretty}\n{}\n{before}", json["evidence"]);
        assert_eq!(json["cause"], cause, "{whole}");
        assert_eq!(json["how_sure"], "likely", "{whole}");
        let first = &findings[0];
        assert!(first["evidence"].as_array().is_some_and(|facts| !facts.is_empty()), "{whole}");
        assert!(first["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{whole}");
        assert!(json["ceilings"].as_array().is_some_and(|c| !c.is_empty()), "{whole}");
    }
}

/// Writes the evidence to the folder `PACKTRAIN_E2E_KEEP`, in the format of the recorded runs of
/// `diagnose`.
fn keep(cause: &str, json: &Value) {
    let Some(dir) = std::env::var_os("PACKTRAIN_E2E_KEEP") else { return };
    let mut evidence = json["evidence"].clone();
    if let Some(samples) = evidence["path"]["samples"].as_array_mut() {
        for sample in samples {
            let fields = ["span", "sent", "arrived", "lost", "queue"];
            *sample = fields.iter().map(|field| sample[field].clone()).collect();
        }
    }
    let thread = std::thread::current();
    let test = thread.name().and_then(|name| name.rsplit(':').next()).unwrap_or("test").to_owned();
    let kept = serde_json::json!({ "provoked": cause, "test": test, "evidence": evidence });
    let name = format!("{test}-{}.json", json["id"].as_str().unwrap_or("?"));
    fs::write(PathBuf::from(dir).join(name), format!("{kept}\n")).expect("a place to keep it");
}
