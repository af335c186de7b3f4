//! End-to-end tests of emulations. This executable is also the programs in them and the emulator.
//!
//! A test that this machine does not allow is reported as skipped, or fails with
//! `PACKTRAIN_TEST_STRICT=1` or `CI=true`.
#![allow(clippy::print_stdout, reason = "it has no harness to print for it")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use packtrain_emu::{
    DeviceKind, EmuError, Ended, Node, Plan, Topology, Wire, arrivals, child, drops, enter, replay,
    supervise,
};
use packtrain_link::{Limit, LinkConfig, LossConfig, QueueConfig};
use packtrain_units::{ByteCount, DataRate, Duration as Span};

const PORT: u16 = 4_000;
const NOBODY: u32 = 65_534;

type Case = (&'static str, fn() -> Result<(), EmuError>);

const CASES: &[Case] = &[
    ("exit codes are the command's", exit_codes),
    ("a lossy path carries every byte", bytes_arrive),
    ("the same over packet sockets without root", without_root),
    ("the same over IPv6", bytes_arrive_over_v6),
    ("arrivals give the same drops again", replayed),
    ("hosts in the middle pass on", over_a_router),
    ("another process goes in", goes_in),
    ("nothing stays behind after kill -9", nothing_stays),
];

fn main() {
    let role = std::env::args().nth(1).unwrap_or_default();
    let rest: Vec<String> = std::env::args().skip(2).collect();
    match role.as_str() {
        "emulation" => emulation(),
        "serve" => serve(),
        "send" => send(&rest[0], rest[1].parse().expect("a number")),
        "outer" => drop(run("sleeper", None)),
        "inside" => inside(rest[0].parse().expect("a number")),
        // Requests of test runners.
        "--list" => {}
        _ => tests(),
    }
}

fn tests() {
    for (name, case) in CASES {
        match case() {
            Ok(()) => println!("test {name} ... ok"),
            Err(error @ EmuError::Forbidden(_)) => {
                packtrain_testkit::skip_test(name, &error.to_string());
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

fn me() -> PathBuf {
    std::env::current_exe().expect("this program")
}

/// Runs the plan of this name, as another user if one is given.
fn run(plan: &str, user: Option<u32>) -> Result<Ended, EmuError> {
    let mut command = Command::new(me());
    command.arg("emulation");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    supervise(command, plan)
}

/// The emulator's process.
fn emulation() {
    let child = child().expect("a channel").expect("an emulation");
    let plan = plan(child.payload());
    child.run(&plan);
}

fn link(mbit: u64, ms: u64) -> LinkConfig {
    let mut link = LinkConfig::new(DataRate::from_mbps(mbit), Span::from_millis(ms), 1);
    link.mtu = ByteCount(1_500);
    link.queue = QueueConfig::DropTail(Limit::Bytes(ByteCount(200_000)));
    link
}

fn shell(line: &str) -> Vec<std::ffi::OsString> {
    ["/bin/sh", "-c", line].map(Into::into).to_vec()
}

fn plan(text: &str) -> Plan {
    let (name, argument) = text.split_once(' ').unwrap_or((text, ""));
    let mut lossy = link(200, 5);
    lossy.loss = LossConfig::Independent(1e-3);
    let program = me().display().to_string();
    let mut plan = Plan {
        topology: Topology::pair(lossy.clone(), lossy),
        per_packet: false,
        device: None,
        tick: None,
        buffers: None,
        record: None,
        command: shell(&format!("exec {program} send $PACKTRAIN_FAR 8000000")),
        on: "near".to_owned(),
        others: vec![("far".to_owned(), format!("exec {program} serve"))],
    };
    match name {
        "code" => {
            plan.command = shell(argument);
            plan.others.clear();
        }
        "bytes" => {}
        "packets" => plan.device = Some(DeviceKind::Packet),
        "v6" | "packets-v6" => {
            plan.command = shell(&format!("exec {program} send $PACKTRAIN_FAR6 8000000"));
            plan.device = (name == "packets-v6").then_some(DeviceKind::Packet);
        }
        "record" => {
            plan.record = Some(argument.into());
            plan.topology = recorded();
        }
        "router" => {
            plan.topology = line();
            plan.command = shell(&format!("exec {program} send $PACKTRAIN_HOST_C 2000000"));
            (plan.on, plan.others[0].0) = ("a".to_owned(), "c".to_owned());
        }
        "sleeper" => {
            plan.others.clear();
            plan.command = shell("sleep 977 & sleep 977");
        }
        other => panic!("no plan {other}"),
    }
    plan
}

/// A path with random loss and overflow.
fn recorded() -> Topology {
    let mut forward = link(50, 5);
    forward.loss = LossConfig::Independent(3e-3);
    forward.queue = QueueConfig::DropTail(Limit::Packets(20));
    forward.seed = 11;
    Topology::pair(forward, link(50, 5))
}

fn line() -> Topology {
    let node = |name: &str| Node { name: name.to_owned(), host: true };
    let wire = |from, to| Wire { name: format!("{from}>{to}"), from, to, config: link(100, 2) };
    Topology {
        nodes: ["a", "b", "c"].map(node).to_vec(),
        wires: vec![wire(0, 1), wire(1, 0), wire(1, 2), wire(2, 1)],
    }
}

fn exit_codes() -> Result<(), EmuError> {
    assert_eq!(run("code exit 7", None)?.code, 7);
    assert_eq!(run("code kill -TERM $$", None)?.code, 128 + 15);
    assert_eq!(run("code true", None)?.code, 0);
    let addresses = "code test $PACKTRAIN_NEAR = 10.77.0.1 && test $PACKTRAIN_FAR = 10.77.0.2";
    assert_eq!(run(addresses, None)?.code, 0);
    let shared = "code test $(wc -l </proc/net/dev) = 4";
    assert_eq!(run(shared, None)?.code, 0, "the hosts have lo and one device");
    Ok(())
}

fn bytes_arrive() -> Result<(), EmuError> {
    check_bytes(&run("bytes", None)?);
    Ok(())
}

fn bytes_arrive_over_v6() -> Result<(), EmuError> {
    if !Path::new("/proc/net/if_inet6").exists() {
        return Err(EmuError::Forbidden("this kernel has no IPv6".to_owned()));
    }
    let ended = run("v6", None)?;
    check_bytes(&ended);
    // Nothing was sent that was for no host, such as searches for neighbours or routers.
    let lost = ended.report.hosts.iter().map(|host| host.unroutable).sum::<u64>();
    assert_eq!(lost, 0, "{:?}", ended.report.hosts);
    let ended = run("packets-v6", None)?;
    assert_eq!(ended.report.device, "packet");
    check_bytes(&ended);
    let small = "code test $PACKTRAIN_HOST6_FAR = fd00:77::2 && test $PACKTRAIN_NEAR6 = fd00:77::1";
    assert_eq!(run(small, None)?.code, 0);
    Ok(())
}

fn without_root() -> Result<(), EmuError> {
    let root = std::fs::metadata("/proc/self").is_ok_and(|me| {
        use std::os::unix::fs::MetadataExt;
        me.uid() == 0
    });
    let ended = run("packets", root.then_some(NOBODY))?;
    assert_eq!(ended.report.device, "packet");
    check_bytes(&ended);
    Ok(())
}

fn check_bytes(ended: &Ended) {
    assert_eq!(ended.code, 0, "{:?}", ended.report);
    let forward = &ended.report.links[0];
    assert!(forward.delivered_bytes > 8_000_000, "{forward:?}");
    let died: u64 = forward.dropped.values().sum();
    // The last packets may still be in flight when the program ends.
    let gone = forward.delivered + died;
    assert!(gone <= forward.offered && forward.offered - gone < 20, "{forward:?}");
    assert!(forward.dropped["random"] > 0, "{forward:?}");
    assert!(forward.offered > 8_000_000 / 1_500, "segments are counted: {forward:?}");
}

fn replayed() -> Result<(), EmuError> {
    let dir = tempfile::tempdir().expect("a folder");
    let prefix = dir.path().join("run");
    let ended = run(&format!("record {}", prefix.display()), None)?;
    assert_eq!(ended.code, 0);
    assert_eq!(ended.report.record_error, None);
    let file = |end: &str| PathBuf::from(format!("{}.{end}", prefix.display()));
    let came = arrivals(&file("arrivals")).expect("arrivals");
    let mut died = drops(&file("drops")).expect("drops");
    died.sort_unstable();
    for (i, wire) in recorded().wires.iter().enumerate() {
        let offered = came.iter().filter(|arrival| arrival.link == i).count() as u64;
        assert_eq!(offered, ended.report.links[i].offered);
        let own: Vec<_> = died.iter().copied().filter(|dropped| dropped.link == i).collect();
        assert_eq!(replay(&wire.config, i, &came), own, "link {i}");
    }
    for cause in ["random", "overflow"] {
        assert!(died.iter().any(|dropped| dropped.cause == cause), "nothing died of {cause}");
    }
    check_capture(&file("pcap"), ended.report.links.iter().map(|link| link.offered).sum());
    Ok(())
}

/// The capture has `packets` packets, and each length is consistent.
fn check_capture(path: &Path, packets: u64) {
    let bytes = std::fs::read(path).expect("a capture");
    let word = |at: usize| {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
    };
    assert_eq!(word(0), 0xa1b2_3c4d);
    let (mut at, mut seen) = (24, 0);
    while at < bytes.len() {
        assert_eq!(bytes[at + 16] >> 4, 4, "IPv4");
        at += 16 + word(at + 8);
        seen += 1;
    }
    assert_eq!((at, seen), (bytes.len(), packets));
}

fn over_a_router() -> Result<(), EmuError> {
    let ended = run("router", None)?;
    assert_eq!(ended.code, 0, "{:?}", ended.report);
    for link in [0, 2] {
        assert!(ended.report.links[link].delivered_bytes > 2_000_000, "{:?}", ended.report);
    }
    Ok(())
}

/// Starts an emulation in another process, and waits until it can be entered.
#[allow(clippy::zombie_processes, reason = "the callers kill it and wait for it")]
fn sleeper() -> Result<std::process::Child, EmuError> {
    // Check that emulation is allowed at all.
    run("code true", None)?;
    let outer = Command::new(me()).arg("outer").spawn().expect("this program");
    for _ in 0..2_000 {
        if packtrain_emu::running().contains(&outer.id()) {
            return Ok(outer);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the emulation never ran");
}

fn goes_in() -> Result<(), EmuError> {
    let mut outer = sleeper()?;
    let inside = Command::new(me()).args(["inside", &outer.id().to_string()]).status();
    let _ = outer.kill();
    let _ = outer.wait();
    assert!(inside.expect("this program").success());
    Ok(())
}

/// A separate process, because only one with a single thread can enter.
fn inside(pid: u32) {
    assert!(matches!(enter("nowhere", Some(pid)), Err(EmuError::NotFound(_))));
    let environment = enter("far", Some(pid)).expect("a way in");
    assert!(environment.contains(&("PACKTRAIN_EMU_HOST".to_owned(), "far".to_owned())));
    TcpListener::bind("10.77.0.2:0").expect("the address of far is ours");
}

fn nothing_stays() -> Result<(), EmuError> {
    let mut outer = sleeper()?;
    let others = || {
        let all = std::fs::read_dir("/proc").expect("/proc").flatten();
        let of = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
        all.filter_map(of).filter(|line| line.starts_with(b"sleep\x00977")).count()
    };
    let patiently = |good: &dyn Fn() -> bool, what: &str| {
        let waited = (0..2_000).find(|_| {
            std::thread::sleep(Duration::from_millis(5));
            good()
        });
        assert!(waited.is_some(), "{what}");
    };
    patiently(&|| others() == 2, "the programs never ran");
    outer.kill().expect("SIGKILL");
    let _ = outer.wait();
    patiently(&|| others() == 0, "programs stayed");
    patiently(&|| !packtrain_emu::running().contains(&outer.id()), "the emulation stayed");
    Ok(())
}

/// Receives bytes, checks them, and returns their number.
fn serve() {
    // Both families where there are two.
    let listener =
        TcpListener::bind(("::", PORT)).or_else(|_| TcpListener::bind(("0.0.0.0", PORT)));
    let listener = listener.expect("a port");
    let (mut stream, _) = listener.accept().expect("a caller");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("bytes");
    let good = bytes.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8);
    let count = if good { bytes.len() } else { 0 };
    stream.write_all(&(count as u64).to_be_bytes()).expect("an answer");
}

fn send(to: &str, count: usize) {
    let mut stream = TcpStream::connect((to, PORT)).expect("somebody");
    let bytes: Vec<u8> = (0..count).map(|i| (i % 251) as u8).collect();
    stream.write_all(&bytes).expect("bytes");
    stream.shutdown(std::net::Shutdown::Write).expect("an end");
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(u64::from_be_bytes(answer), count as u64);
}
