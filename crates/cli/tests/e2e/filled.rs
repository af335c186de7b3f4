//! Depots that reach a limit during a transfer: a spool, a pool, the bytes of a key in an hour. The
//! transfer pauses or fails with a reason, and no byte is lost.

use parking_lot::Mutex;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::depots::{cp, depot, passed_on};
use crate::faults::in_namespace;
use crate::rig::{Rig, contents, free_port, send};
use crate::server::serve;
use crate::spool::{Depot, claiming, sending, until};
use crate::tree::{self, MIB, assert_same};

/// Sends a file through standard input, so that its length is unknown.
fn piping(rig: &Rig, via: &str, ticket: &str, file: &str) -> Command {
    let mut put = rig.packtrain();
    put.args(["send", "--via", via, "--name", "data", "--ticket"]).arg(rig.path(ticket)).arg("-");
    put.stdin(fs::File::open(rig.path(file)).expect("it is there"));
    put
}

#[test]
fn a_pipe_fills_a_spool_and_is_told_so() {
    let rig = Rig::local();
    tree::file(&rig.path("small"), 6 * MIB + 5, 2);
    tree::file(&rig.path("large"), 20 * MIB + 5, 3);
    let depot = Depot::new(&rig, "spool", &["--spool-quota", "12MiB"]);
    // The session fails before its end, is not tried again, and its space is free for others.
    let ended = rig.run(&mut piping(&rig, &depot.place, "one", "large"));
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    assert!(ended.stderr.contains("keeps at most 12.0 MiB for one key"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("trying again"), "{}", ended.stderr);
    until("room again", || depot.stored() == 0);
    // A session that fits is accepted although its length was unknown, and so is a second one.
    for ticket in ["two", "three"] {
        if ticket == "three" {
            rig.ok(claiming(&rig, "two", &rig.path("two-dst")).arg("--release"));
        }
        rig.ok(&mut piping(&rig, &depot.place, ticket, "small"));
    }
    for ticket in ["two", "three"] {
        if ticket == "three" {
            rig.ok(&mut claiming(&rig, ticket, &rig.path("three-dst")));
        }
        let got = fs::read(rig.path(&format!("{ticket}-dst")));
        assert!(got.ok() == fs::read(rig.path("small")).ok(), "{ticket}");
    }
}

#[test]
fn the_last_spool_fills_in_the_middle_and_the_one_before_has_the_rest() {
    let rig = Rig::local();
    tree::file(&rig.path("large"), 20 * MIB + 5, 3);
    let last = Depot::new(&rig, "spool-2", &["--spool-quota", "12MiB"]);
    let first = Depot::new(&rig, "spool-1", &[]);
    let via = format!("{},{}", first.place, last.place);
    rig.ok(&mut piping(&rig, &via, "ticket", "large"));
    until("what the last one says", || first.running.stderr().contains("keeps at most"));
    assert!(last.stored() > 8 * MIB, "{} of 12 MiB are used", last.stored());
    rig.ok(&mut claiming(&rig, "ticket", &rig.path("dst")));
    assert!(fs::read(rig.path("dst")).ok() == fs::read(rig.path("large")).ok());
}

#[test]
fn a_full_spool_behind_is_waited_for() {
    let rig = Rig::local();
    let src = rig.path("src");
    fs::create_dir(&src).expect("a folder");
    tree::file(&src.join("big"), 16 * MIB + 17, 1);
    tree::file(&rig.path("early"), 8 * MIB, 3);
    let last = Depot::new(&rig, "spool-2", &["--spool-quota", "20MiB"]);
    let first = Depot::new(&rig, "spool-1", &[]);
    rig.ok(sending(&rig, &last.place, "early-ticket").arg(rig.path("early")));
    let via = format!("{},{}", first.place, last.place);
    rig.ok(sending(&rig, &via, "ticket").arg(contents(&src)));
    until("what the last one says", || first.running.stderr().contains("has less than"));
    // All of it can be claimed meanwhile.
    rig.ok(&mut claiming(&rig, "ticket", &rig.path("dst")));
    assert_same(&src, &rig.path("dst"));
    // There is space, and a first depot that restarts need not wait for the announced time.
    rig.ok(claiming(&rig, "early-ticket", &rig.path("early-dst")).arg("--release"));
    let mut first = first;
    first.kill_and_restart(&rig, &[]);
    until("all of it at the last one", || last.stored() == first.stored());
    let mut claim = claiming(&rig, "ticket", &rig.path("again"));
    send("STOP", first.running.pid());
    rig.ok(claim.args(["--at", &last.place]));
    assert_same(&src, &rig.path("again"));
    send("CONT", first.running.pid());
}

/// Another process fills the disk of a spool while records arrive, at the first depot of a chain or
/// at the last one.
fn a_disk_fills(at_the_first: bool) {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/big"), 40 * MIB + 17, 1);
    rig.own_key("keys");
    let spools = if at_the_first { ["mnt/spool", "spool"] } else { ["spool", "mnt/spool"] };
    // `dd` fills the disk; 40 of 90 MiB have arrived by then.
    let script = format!(
        r#"
        ip link set lo up && mkdir mnt && mount -t tmpfs -o size=100m none mnt || exit 99
        depot() {{
            mkdir -p $2
            "$0" depot --listen 127.0.0.1:$1 --allow 127.0.0.1 --authorized-keys keys \
                --spool $2 --spool-free 1MiB 2>>depot-$1 &
        }}
        size() {{ cat $1/*/records 2>/dev/null | wc -c; }}
        trap 'kill $first $last 2>/dev/null' EXIT
        depot 7001 {one}; first=$!
        depot 7002 {two}; last=$!
        sleep 0.5
        send() {{ "$0" send -r --via 127.0.0.1:7001,127.0.0.1:7002 --ticket ticket "$@" src/; }}
        (send --rate 60mbit --retries 0 2>first; echo $? >first.code) &
        sending=$!
        soon() {{ i=0; until eval "$1"; do i=$((i+1)); [ $i -gt 600 ] && break; sleep 0.05; done; }}
        soon '[ $(size mnt/spool) -gt 8000000 ]'
        [ -e first.code ] && echo early >early
        dd if=/dev/zero of=mnt/filler bs=64k 2>/dev/null
        wait $sending
        soon 'grep -q "disk is full" first depot-7001'
        size mnt/spool >had
        {when_full}
        rm mnt/filler
        # Who starts again need not wait for the time that was told.
        kill -9 $first; wait $first
        depot 7001 {one}; first=$!
        sleep 0.5
        send --json >second.out 2>second; echo $? >second.code
        soon '[ $(size {two}) = $(size {one}) ]'
        kill -STOP $first
        "$0" claim --at 127.0.0.1:7002 @ticket dst 2>claim; echo $? >claim.code
        kill -CONT $first
        kill $first $last
        wait
        "#,
        one = spools[0],
        two = spools[1],
        when_full = if at_the_first {
            ":"
        } else {
            r#""$0" claim @ticket meanwhile 2>early-claim; echo $? >early-claim.code"#
        },
    );
    let Some(()) = in_namespace(&rig, &script) else { return };
    let read = |name: &str| fs::read_to_string(rig.path(name)).unwrap_or_default();
    let all = ["first", "second", "early-claim", "claim", "depot-7001", "depot-7002"];
    let told: String = all.map(|name| format!("--- {name}\n{}", read(name))).concat();
    assert!(!rig.path("early").exists(), "it ended before the disk was full: {told}");
    let codes =
        ["first.code", "second.code", "claim.code"].map(|name| read(name).trim().to_owned());
    let first = if at_the_first { "5" } else { "0" };
    assert_eq!(codes, [first, "0", "0"], "{told}");
    assert_same(&rig.path("src"), &rig.path("dst"));
    if at_the_first {
        assert!(read("first").contains("disk is full"), "{told}");
        assert!(read("first").contains("to resume, run:"), "{told}");
        let out = read("second.out");
        let done: serde_json::Value =
            serde_json::from_str(out.lines().last().unwrap_or_default()).expect("a line");
        assert!(done["bytes_resumed"].as_u64() > Some(4 * MIB), "{out}");
    } else {
        assert_eq!(read("early-claim.code").trim(), "0", "{told}");
        assert_same(&rig.path("src"), &rig.path("meanwhile"));
    }
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_disk_that_fills_under_a_deposit_is_told_and_it_goes_on() {
    a_disk_fills(true);
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_disk_that_fills_in_the_middle_of_a_chain_holds_nobody_up() {
    a_disk_fills(false);
}

#[test]
fn a_server_that_takes_nothing_for_a_time_fills_a_pool_and_costs_that_time() {
    for hops in ["tcp", "native"] {
        let rig = Rig::local();
        tree::file(&rig.path("src"), 24 * MIB + 17, 1);
        let (server, port) = serve(&rig, &[]);
        // Hardly more than the reserve of each session.
        let (depot, via) = depot(&rig, &["--pool", "1MiB", "--tcp-buffer", "64KiB"]);
        let place = format!("pt://127.0.0.1:{port}/dst");
        let words = ["--hops", hops, "--streams", "3", "--rate", "100mbit"];
        let mut running = rig.start(cp(&rig, &via, &words).arg(rig.path("src")).arg(&place));
        until("some of it", || moved(&rig.path("root")) > 4 * MIB);
        assert!(!running.ended(), "{}", running.stderr());
        send("STOP", server.pid());
        std::thread::sleep(std::time::Duration::from_secs(5));
        assert!(!running.ended(), "{}", running.stderr());
        send("CONT", server.pid());
        let ended = running.wait();
        assert_eq!(ended.code, 0, "{hops}: {}", ended.stderr);
        assert!(fs::read(rig.path("src")).ok() == fs::read(rig.path("root/dst")).ok(), "{hops}");
        assert!(!ended.stderr.contains("without depots"), "{hops}: {}", ended.stderr);
        send("TERM", depot.pid());
        let told = String::from_utf8_lossy(&depot.wait().stdout).into_owned();
        let mut lines = told.lines().filter_map(|l| serde_json::from_str(l).ok());
        let last = lines.rfind(|line: &serde_json::Value| line["event"] == "stats");
        let most = last.as_ref().and_then(|last| last["held_bytes_max"].as_u64());
        assert!(most.is_some_and(|most| most <= MIB), "{hops}: {last:?}");
    }
}

/// Bytes below a folder, hidden temporary files included.
fn moved(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let blocks = entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.blocks() * 512);
    blocks.sum()
}

/// Relays connections to an address, and cuts them on request.
pub(crate) struct Cutter {
    pub(crate) place: String,
    pairs: Arc<Mutex<Vec<Pair>>>,
}

/// The two sockets of a connection, and the bytes that it carried.
type Pair = (TcpStream, TcpStream, Arc<AtomicU64>);

impl Cutter {
    pub(crate) fn new(to: &str) -> Self {
        let place = format!("127.0.0.1:{}", free_port());
        let listener = TcpListener::bind(&place).expect("a port");
        let pairs: Arc<Mutex<Vec<Pair>>> = Arc::default();
        let (kept, to) = (Arc::clone(&pairs), to.to_owned());
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(&to)) else { continue };
                let count = Arc::<AtomicU64>::default();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let from = from.try_clone().expect("a socket");
                    let to = to.try_clone().expect("a socket");
                    let count = Arc::clone(&count);
                    std::thread::spawn(move || pass(from, to, &count));
                }
                kept.lock().push((near, far, count));
            }
        });
        Self { place, pairs }
    }

    /// The largest byte count of a connection.
    fn most(&self) -> u64 {
        let pairs = self.pairs.lock();
        pairs.iter().map(|(_, _, count)| count.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Cuts connections that carried more than this many bytes.
    fn cut(&self, beyond: u64) {
        let mut pairs = self.pairs.lock();
        pairs.retain(|(near, far, count)| {
            let keep = count.load(Ordering::Relaxed) < beyond;
            if !keep {
                let _ = near.shutdown(Shutdown::Both);
                let _ = far.shutdown(Shutdown::Both);
            }
            keep
        });
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, count: &AtomicU64) {
    let mut room = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut room) {
        count.fetch_add(n as u64, Ordering::Relaxed);
        if to.write_all(&room[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn a_key_that_had_its_bytes_goes_on_without_the_depot_and_is_told_why() {
    // First only the streams break, then all connections.
    for (beyond, push) in [(MIB, true), (MIB, false), (0, true)] {
        let rig = Rig::local();
        tree::file(&rig.path("src"), 24 * MIB + 17, 1);
        let (_server, port) = serve(&rig, &["--rate", "60mbit"]);
        let (_depot, depot) = depot(&rig, &["--key-bytes", "4MiB"]);
        let cutter = Cutter::new(&depot);
        let mut copy = cp(&rig, &cutter.place, &["--streams", "2", "--rate", "60mbit"]);
        let (from, to) = (rig.path("src"), format!("pt://127.0.0.1:{port}/dst"));
        let target = if push {
            copy.arg(&from).arg(&to);
            rig.path("root/dst")
        } else {
            fs::copy(&from, rig.path("root/dst")).expect("a copy");
            copy.arg(&to).arg(rig.path("back"));
            rig.path("back")
        };
        let mut running = rig.start(&mut copy);
        // The session exceeded the quota; sessions in progress may continue.
        until("more than the quota", || cutter.most() > 5 * MIB);
        assert!(!running.ended(), "{}", running.stderr());
        // The depot counts moved bytes every second.
        std::thread::sleep(std::time::Duration::from_millis(1200));
        cutter.cut(beyond);
        let ended = running.wait();
        assert_eq!(ended.code, 0, "{beyond} {push}: {}", ended.stderr);
        assert!(fs::read(&from).ok() == fs::read(&target).ok(), "{beyond} {push}");
        let told: Vec<&str> =
            ended.stderr.lines().filter(|l| l.contains("without depots")).collect();
        let [told] = told[..] else { panic!("{beyond} {push}: {}", ended.stderr) };
        // The hour is rounded to minutes.
        let why = "this key has used its 4.0 MiB of this hour; come again in ";
        let (_, wait) = told.split_once(why).unwrap_or_else(|| panic!("{beyond} {push}: {told}"));
        assert!(
            ["60 min", "59 min"].iter().any(|m| wait.starts_with(m)),
            "{beyond} {push}: {told}"
        );
        assert!(!ended.stderr.contains("hour; trying again"), "{beyond} {push}: {}", ended.stderr);
    }
}

#[test]
fn a_depot_that_takes_no_more_connections_carries_what_it_has() {
    let rig = Rig::local();
    tree::file(&rig.path("src"), 24 * MIB + 17, 1);
    let (_server, port) = serve(&rig, &[]);
    let (depot, via) = depot(&rig, &["--key-sessions", "3"]);
    let place = format!("pt://127.0.0.1:{port}/dst");
    let mut copy = cp(&rig, &via, &["--streams", "6", "--rate", "60mbit"]);
    let ended = rig.ok(copy.arg(rig.path("src")).arg(&place));
    assert!(fs::read(rig.path("src")).ok() == fs::read(rig.path("root/dst")).ok());
    let why = "this key has 3 sessions, its limit";
    assert!(ended.stderr.matches(why).count() <= 1, "{}", ended.stderr);
    assert!(!ended.stderr.contains("without depots"), "{}", ended.stderr);
    let (there, _) = passed_on(depot);
    assert!(there > 24 * MIB, "{there} of it over the depot: {}", ended.stderr);
}

#[test]
fn a_pipe_goes_on_when_its_depot_starts_again() {
    let rig = Rig::local();
    tree::file(&rig.path("large"), 24 * MIB + 5, 3);
    let mut depot = Depot::new(&rig, "spool", &[]);
    let mut put = piping(&rig, &depot.place, "ticket", "large");
    let mut put = rig.start(put.args(["--rate", "60mbit", "--retries", "30"]));
    for n in 1..3 {
        until("an upload", || depot.stored() > n * 6 * MIB);
        assert!(!put.ended(), "{}", put.stderr());
        depot.kill_and_restart(&rig, &[]);
    }
    let ended = put.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    rig.ok(&mut claiming(&rig, "ticket", &rig.path("dst")));
    assert!(fs::read(rig.path("dst")).ok() == fs::read(rig.path("large")).ok());
}
