//! Causes at the ends: processors, disks, names, buffers.

use std::fs;
use std::path::PathBuf;

use super::case::{Case, alone, has};
use crate::rig::{is_root, skipped};

/// A process whose system calls of this kind are delayed by this time.
fn slowed(calls: &str, micros: u64) -> String {
    format!(
        "strace -f --seccomp-bpf -o /dev/null -e trace={calls} -e \
         inject={calls}:delay_enter={micros}"
    )
}

/// Processes that spin on core 0 while this shell, or the program that it executes, runs. They have
/// a higher priority where that is allowed. They begin after the server.
fn spinning(case: &Case, count: u32) -> String {
    format!(
        "me=$$; (while [ ! -s {} ]; do sleep 0.05; done; for n in $(seq {count}); do nice -n -5 \
         taskset -c 0 sh -c \"while kill -0 $me; do :; done\" & done) 2>/dev/null & ",
        case.rig.path("ticket").display()
    )
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_slow_disk_to_read_from() {
    let _alone = alone();
    if !has("strace") {
        return;
    }
    let mut source = Case::new("--rate 500mbit --rtt 4ms", "", 40);
    source.near_wrap = slowed("pread64", 1_000_000);
    source.is("source-disk");
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_slow_disk_to_write_to() {
    let _alone = alone();
    if !has("strace") {
        return;
    }
    let mut target = Case::new("--rate 500mbit --rtt 4ms", "", 60);
    target.far_wrap = slowed("pwrite64,fdatasync,fsync,syncfs", 40_000);
    target.is("target-disk");
}

/// The data arrives in one second; the sync takes three times as long.
#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn syncs_that_take_long_at_the_end() {
    let _alone = alone();
    if !has("strace") {
        return;
    }
    let mut target = Case::new("--rate 500mbit --rtt 4ms", "", 50);
    target.far_wrap = slowed("fdatasync,fsync,syncfs", 800_000);
    target.is("target-disk");
}

/// The same syncs, with a path that is slow itself.
#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn syncs_that_go_on_beside_a_full_path() {
    let _alone = alone();
    if !has("strace") {
        return;
    }
    let mut path = Case::new("--rate 50mbit --rtt 20ms", "", 50);
    path.far_wrap = slowed("fdatasync,fsync,syncfs", 700_000);
    if let Some(said) = path.is("path-rate") {
        assert!(said.before.contains("\"verdict\":null"), "{}", said.before);
    }
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_slow_file_server_to_read_from() {
    let _alone = alone();
    if !has("strace") {
        return;
    }
    let mut source = Case::new("--rate 200mbit --rtt 4ms", "", 0);
    source.files = 800;
    source.near_wrap = slowed("openat2,openat", 8_000);
    source.is("source-metadata");
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_slow_file_server_to_write_to() {
    let _alone = alone();
    if !has("strace") {
        return;
    }
    let mut target = Case::new("--rate 200mbit --rtt 4ms", "", 0);
    target.files = 800;
    target.far_wrap = slowed("openat2,openat,renameat,renameat2", 8_000);
    target.is("target-metadata");
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn many_small_files() {
    let _alone = alone();
    let mut case = Case::new("--rate 1gbit --rtt 2ms", "", 0);
    case.files = 16_000;
    case.is("small-files");
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn others_use_the_receivers_processor() {
    let _alone = alone();
    let mut receiver = Case::new("--rate 400mbit --rtt 10ms", "", 60);
    // So many processes that the network thread needs more than its share for this path.
    receiver.far = spinning(&receiver, 24);
    receiver.far_wrap = "taskset -c 0".to_owned();
    receiver.near_wrap = "taskset -c 1".to_owned();
    receiver.is("receiver-cpu");
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn others_use_the_senders_processor() {
    let _alone = alone();
    let mut sender = Case::new("--rate 400mbit --rtt 10ms", "", 60);
    sender.near = spinning(&sender, 4);
    sender.near_wrap = "taskset -c 0".to_owned();
    sender.far_wrap = "taskset -c 1".to_owned();
    sender.is("sender-cpu");
}

/// A cgroup of either version with a quota of processor time. It is removed at the end.
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

    fn enter(&self) -> String {
        format!("echo $$ >{}/cgroup.procs;", self.0.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The cgroup is empty when its last process has ended.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_processor_quota_of_the_receiver() {
    let _alone = alone();
    let Some(group) = is_root().then(|| Group::new(0.06)).flatten() else {
        return skipped("no cgroup to be made");
    };
    let mut case = Case::new("--rate 400mbit --rtt 10ms", "", 30);
    case.far = group.enter();
    case.is("cgroup-quota");
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_processor_quota_of_the_sender() {
    let _alone = alone();
    let Some(group) = is_root().then(|| Group::new(0.06)).flatten() else {
        return skipped("no cgroup to be made");
    };
    let mut case = Case::new("--rate 400mbit --rtt 10ms", "", 30);
    case.near = group.enter();
    case.is("cgroup-quota");
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_processor_that_encrypts_slowly() {
    let _alone = alone();
    // The library is told not to use the AES instructions of the processor.
    let slow = "env OPENSSL_ia32cap=~0xffffffff00000000:~0xffffffffffffffff";
    let mut case = Case::new("--rate 2gbit --rtt 1ms", "", 300);
    (case.near_wrap, case.far_wrap) = (slow.to_owned(), slow.to_owned());
    case.is("encryption");
}

/// A seccomp filter, as containers have one, that makes `setsockopt(SO_RCVBUF)` return 0 without
/// effect (`prctl(PR_SET_SECCOMP)`).
const SMALL_BUFFERS: &str = r#"
import ctypes, os, struct, sys
def bpf(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
LD, JEQ, RET = 0x20, 0x15, 0x06
ALLOW, ERRNO_0 = 0x7fff0000, 0x00050000
rules = [
    bpf(LD, 0, 0, 0), bpf(JEQ, 0, 5, 54),    # setsockopt
    bpf(LD, 0, 0, 24), bpf(JEQ, 0, 3, 1),    # SOL_SOCKET
    bpf(LD, 0, 0, 32), bpf(JEQ, 0, 1, 8),    # SO_RCVBUF
    bpf(RET, 0, 0, ERRNO_0), bpf(RET, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(rules))
prog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, prog, 0, 0): sys.exit("no seccomp")
os.execvp(sys.argv[1], sys.argv[1:])
"#;

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn buffers_that_do_not_last_a_pause() {
    let _alone = alone();
    if !has("python3") {
        return;
    }
    let mut case = Case::new("--rate 300mbit --rtt 10ms", "--transport native", 60);
    let script = case.rig.path("small-buffers.py");
    fs::write(&script, SMALL_BUFFERS).expect("a file");
    // One open port means one socket, and strace stops it for 30 ms now and then.
    case.serve = "--ports 7880-7880";
    case.far = "me=$$; (while kill -STOP $me; do sleep 0.03; kill -CONT $me; sleep 0.2; done) \
                2>/dev/null &"
        .to_owned();
    case.far_wrap = format!("python3 {}", script.display());
    if let Some(said) = case.is("socket-buffer") {
        assert!(said.before.contains("receive buffers"), "{}", said.before);
    }
}
