//! `packtrain diagnose`: every cause, provoked for real, and what it says.
//!
//! Networks are `packtrain emulate`'s; what is slow in a system (disks, file servers) is made slow
//! by strace, which lets a process's system calls wait; processors are taken away by others that
//! spin beside, or by a cgroup. One test at a time, so that they do not measure each other.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::rig::{Rig, is_root, skipped};

static ALONE: Mutex<()> = Mutex::new(());

/// These tests measure a machine, so they want it for themselves: they run when
/// `PACKTRAIN_E2E_CAUSES=1`, as `cargo xtask nightly` sets it.
fn alone() -> Option<MutexGuard<'static, ()>> {
    let wanted = std::env::var("PACKTRAIN_E2E_CAUSES").as_deref() == Ok("1");
    if !wanted {
        eprintln!("not run: PACKTRAIN_E2E_CAUSES=1 and a quiet machine are for this");
    }
    wanted.then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A transfer that is to be slow.
struct Case {
    rig: Rig,
    /// Options of `emulate`.
    path: &'static str,
    /// Shell commands on the far host before its server, such as `sysctl`; with `exec` before the
    /// server's own command come wrappers.
    far: String,
    far_wrap: String,
    /// The same on the near host.
    near: String,
    near_wrap: String,
    /// Arguments of `cp`.
    cp: &'static str,
    /// Mebibytes of the one file, or that many small files.
    size: u64,
    files: u64,
}

impl Case {
    fn new(path: &'static str, cp: &'static str, size: u64) -> Self {
        let none = String::new;
        let rig = Rig::local();
        let (far, far_wrap, near, near_wrap) = (none(), none(), none(), none());
        Self { rig, path, far, far_wrap, near, near_wrap, cp, size, files: 0 }
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

    /// Runs it; what `diagnose last --json` says, and what was said before.
    fn run(&self) -> Option<(serde_json::Value, String)> {
        let source = self.fill();
        let program = env!("CARGO_BIN_EXE_packtrain");
        let (ticket, out) = (self.rig.path("ticket"), self.rig.path("served"));
        fs::create_dir(&out).expect("a folder");
        let (ticket, out) = (ticket.display(), out.display());
        let Self { far, far_wrap, near, near_wrap, cp, .. } = self;
        let far = format!(
            "{far} exec {far_wrap} {program} serve --listen 10.77.0.2:7876 --root {out} \
             --ticket-file {ticket}"
        );
        let near = format!(
            "while [ ! -s {ticket} ]; do sleep 0.05; done; {near} {near_wrap} {program} cp -r \
             --retries 0 --json --ticket @{ticket} {cp} {} pt://10.77.0.2:7876/out && {program} \
             diagnose last --json",
            source.display()
        );
        let mut command = self.rig.packtrain();
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
        Some((serde_json::from_str(last).expect("a line of JSON"), before))
    }

    /// Runs it and checks the cause.
    #[track_caller]
    fn is(&self, cause: &str) -> Option<(serde_json::Value, String)> {
        let (said, stderr) = self.run()?;
        check(&said, cause, &stderr);
        Some((said, stderr))
    }
}

#[track_caller]
fn check(said: &serde_json::Value, cause: &str, stderr: &str) {
    let findings = serde_json::to_string_pretty(&said["findings"]).unwrap_or_default();
    let whole = format!("{findings}\n{}\n{stderr}", said["evidence"]);
    assert_eq!(said["cause"], cause, "{whole}");
    assert_eq!(said["how_sure"], "likely", "{whole}");
    let first = &said["findings"][0];
    assert!(first["evidence"].as_array().is_some_and(|facts| !facts.is_empty()), "{whole}");
    assert!(first["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{whole}");
    assert!(said["ceilings"].as_array().is_some_and(|c| !c.is_empty()), "{whole}");
}

/// Whether a program is there.
fn has(program: &str) -> bool {
    let there = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let there = there.is_ok_and(|out| out.status.success());
    if !there {
        skipped(&format!("no {program}"));
    }
    there
}

/// A process whose system calls of this kind take so much longer.
fn slowed(calls: &str, micros: u64) -> String {
    format!(
        "strace -f --seccomp-bpf -o /dev/null -e trace={calls} -e \
         inject={calls}:delay_enter={micros}"
    )
}

/// Processes that spin on core 0 for 20 seconds, ahead of others where that is allowed.
fn spinning(count: u32) -> String {
    format!(
        "for n in $(seq {count}); do timeout 20 nice -n -15 taskset -c 0 sh -c 'while :; do :; done' & done;"
    )
    .replace('\'', "\"")
}

#[test]
fn the_last_one_by_id_and_by_process() {
    let rig = Rig::local();
    let none = rig.run(rig.packtrain().args(["diagnose", "last"]));
    assert_eq!(none.code, 3, "{}", none.stderr);
    fs::write(rig.path("a"), vec![7; 3 << 20]).expect("a file");
    let mut copy = rig.start(rig.cp().arg("--json").arg(rig.path("a")).arg(rig.path("b")));
    let pid = copy.pid();
    while !copy.ended() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let ended = copy.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let done: serde_json::Value =
        serde_json::from_slice(&ended.stdout[..]).expect("a line of JSON");
    let id = done["id"].as_str().expect("an id").to_owned();
    for what in ["last", &id, &pid.to_string()] {
        let said = rig.ok(rig.packtrain().args(["diagnose", what, "--json"]));
        let said: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
        assert_eq!((&said["id"], &said["pid"]), (&done["id"], &pid.into()), "{what}");
        assert_eq!((&said["over"], &said["event"]), (&true.into(), &"diagnosis".into()));
        assert!(said["cause"].is_string() && said["findings"][0]["says"].is_string());
    }
    let words = rig.ok(rig.packtrain().args(["diagnose", "last"]));
    assert!(String::from_utf8_lossy(&words.stdout).contains(&id));
    assert_eq!(rig.run(rig.packtrain().args(["diagnose", "0"])).code, 3);
    assert_eq!(rig.run(rig.packtrain().args(["diagnose", "yesterday"])).code, 2);
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn a_full_path_and_a_rate_asked_for() {
    let Some(_alone) = alone() else { return };
    let full = Case::new("--rate 50mbit --rtt 40ms", "", 20);
    if let Some((_, said)) = full.is("path-rate") {
        // Nothing is wrong: the last line has no verdict.
        assert!(said.contains("\"verdict\":null"), "{said}");
    }
    Case::new("--rate 200mbit --rtt 20ms", "--rate 20mbit", 10).is("rate-asked");
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn a_running_transfer_is_asked_by_its_process() {
    let Some(_alone) = alone() else { return };
    let mut case = Case::new("--rate 20mbit --rtt 20ms", "", 20);
    // The process of cp is asked while it runs; it ends later.
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
    let said: Vec<serde_json::Value> =
        asked.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(said.len(), 1, "{asked}");
    assert_eq!((&said[0]["over"], &said[0]["cause"]), (&false.into(), &"path-rate".into()));
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn others_fill_the_path() {
    let Some(_alone) = alone() else { return };
    let mut case = Case::new("--rate 50mbit --rtt 40ms --queue 1bdp", "", 12);
    let program = env!("CARGO_BIN_EXE_packtrain");
    let ticket = case.rig.path("other").display().to_string();
    case.far =
        format!("{program} perf server --listen 10.77.0.2:7877 --ticket-file {ticket} >&2 & ");
    case.near = format!(
        "while [ ! -s {ticket} ]; do sleep 0.05; done; {program} perf client 10.77.0.2:7877 \
         --ticket @{ticket} --cc fixed:40mbit --seconds 20 >/dev/null & sleep 2; "
    );
    case.is("congestion");
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn a_link_with_errors() {
    let Some(_alone) = alone() else { return };
    let mut case = Case::new("--rate 100mbit --rtt 60ms --loss 1e-2", "--transport tcp", 4);
    // A control that takes losses for congestion.
    case.near = "echo reno >/proc/sys/net/ipv4/tcp_congestion_control;".to_owned();
    case.is("link-errors");
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn udp_is_blocked_or_policed() {
    let Some(_alone) = alone() else { return };
    if !has("nft") {
        return;
    }
    let mut blocked = Case::new("--rate 50mbit --rtt 20ms", "", 20);
    blocked.far = "nft add table inet t; nft add chain inet t in \
                   \"{ type filter hook input priority 0; }\"; \
                   nft add rule inet t in meta l4proto udp drop;"
        .replace('"', "'");
    if let Some((_, said)) = blocked.is("udp-blocked") {
        assert!(said.contains("\"verdict\":\"UDP does not get through"), "{said}");
    }
    let mut policed = Case::new("--rate 200mbit --rtt 20ms", "--transport native", 20);
    policed.far = "nft add table inet t; nft add chain inet t in \
                   '{ type filter hook input priority 0; }'; nft add rule inet t in meta l4proto \
                   udp limit rate over 2500 kbytes/second burst 64 kbytes drop;"
        .to_owned();
    policed.is("udp-policed");
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn large_packets_vanish() {
    let Some(_alone) = alone() else { return };
    let mut case = Case::new("--rate 50mbit --rtt 20ms --mtu 1300", "--transport native", 16);
    // The hosts believe in 1500 bytes; the link drops what is larger than 1300.
    let mtu = "for d in $(ls /sys/class/net); do [ $d = lo ] || ip link set dev $d mtu 1500; done; \
               ip route show | while read r; do ip route change ${r%% mtu*} 2>/dev/null; done;";
    (case.far, case.near) = (mtu.to_owned(), mtu.to_owned());
    case.is("mtu-black-hole");
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn a_window_too_small_for_the_path() {
    let Some(_alone) = alone() else { return };
    let mut case = Case::new("--rate 200mbit --rtt 100ms --buffers system", "--transport tcp", 6);
    case.far = "echo 4096 65536 131072 >/proc/sys/net/ipv4/tcp_rmem;".to_owned();
    case.is("window");
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn slow_disks() {
    let Some(_alone) = alone() else { return };
    if !has("strace") {
        return;
    }
    let mut source = Case::new("--rate 500mbit --rtt 4ms", "", 60);
    source.near_wrap = slowed("pread64", 300_000);
    source.is("source-disk");
    let mut target = Case::new("--rate 500mbit --rtt 4ms", "", 60);
    target.far_wrap = slowed("pwrite64,fdatasync,fsync,syncfs", 40_000);
    target.is("target-disk");
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn slow_file_servers() {
    let Some(_alone) = alone() else { return };
    if !has("strace") {
        return;
    }
    let mut source = Case::new("--rate 200mbit --rtt 4ms", "", 0);
    source.files = 800;
    source.near_wrap = slowed("openat2,openat", 8_000);
    source.is("source-metadata");
    let mut target = Case::new("--rate 200mbit --rtt 4ms", "", 0);
    target.files = 800;
    target.far_wrap = slowed("openat2,openat,renameat,renameat2", 8_000);
    target.is("target-metadata");
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn many_small_files() {
    let Some(_alone) = alone() else { return };
    let mut case = Case::new("--rate 1gbit --rtt 2ms", "", 0);
    case.files = 6_000;
    case.is("small-files");
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn processors_that_others_use() {
    let Some(_alone) = alone() else { return };
    let mut receiver = Case::new("--rate 400mbit --rtt 10ms", "", 60);
    receiver.far = spinning(4);
    receiver.far_wrap = "taskset -c 0".to_owned();
    receiver.near_wrap = "taskset -c 1".to_owned();
    receiver.is("receiver-cpu");
    let mut sender = Case::new("--rate 400mbit --rtt 10ms", "", 60);
    sender.near = spinning(4);
    sender.near_wrap = "taskset -c 0".to_owned();
    sender.far_wrap = "taskset -c 1".to_owned();
    sender.is("sender-cpu");
}

/// A cgroup with a quota of processor time, of either version; removed at the end.
struct Group(PathBuf);

impl Group {
    fn new(share: f64) -> Option<Self> {
        let name = format!("packtrain-e2e-{}", std::process::id());
        let period = 50_000;
        let quota = (share * f64::from(period)) as u64;
        let first = PathBuf::from("/sys/fs/cgroup/cpu").join(&name);
        if fs::create_dir(&first).is_ok() {
            let group = Self(first);
            fs::write(group.0.join("cpu.cfs_period_us"), period.to_string()).ok()?;
            fs::write(group.0.join("cpu.cfs_quota_us"), quota.to_string()).ok()?;
            return Some(group);
        }
        let second = PathBuf::from("/sys/fs/cgroup").join(&name);
        fs::create_dir(&second).ok()?;
        let group = Self(second);
        fs::write(group.0.join("cpu.max"), format!("{quota} {period}")).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It is empty when the last process in it has gone.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn a_processor_quota() {
    let Some(_alone) = alone() else { return };
    let Some(group) = is_root().then(|| Group::new(0.06)).flatten() else {
        return skipped("no cgroup to be made");
    };
    let enter = format!("echo $$ >{}/cgroup.procs;", group.0.display());
    let mut case = Case::new("--rate 400mbit --rtt 10ms", "", 30);
    case.far = enter;
    case.is("cgroup-quota");
}

#[test]
#[ignore = "namespaces, time and a quiet machine"]
fn a_processor_that_encrypts_slowly() {
    let Some(_alone) = alone() else { return };
    // The library is told not to use the processor's instructions for AES.
    let slow = "env OPENSSL_ia32cap=~0xffffffff00000000:~0xffffffffffffffff";
    let mut case = Case::new("--rate 2gbit --rtt 1ms", "", 300);
    (case.near_wrap, case.far_wrap) = (slow.to_owned(), slow.to_owned());
    case.is("encryption");
}

#[test]
#[ignore = "ssh"]
fn the_pipe_through_ssh() {
    let Some(_alone) = alone() else { return };
    let Some(rig) = Rig::ssh() else { return };
    fs::write(rig.path("a"), vec![9; 300 << 20]).expect("a file");
    let copy = rig.ok(rig
        .cp()
        .args(["--json", "--transport", "pipe"])
        .arg(rig.path("a"))
        .arg(rig.far("b")));
    let said = rig.ok(rig.packtrain().args(["diagnose", "last", "--json"]));
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
    check(&said, "ssh-pipe", &copy.stderr);
    let done = String::from_utf8_lossy(&copy.stdout).into_owned();
    assert!(done.contains("pipe through ssh"), "{done}");
}
