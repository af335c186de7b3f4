//! Sessions that depots keep: the sender ends, the receiver starts later, and depots are killed in
//! between.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::rig::{Rig, Running, contents, free_port, listens, send};
use crate::tree::{self, MIB, assert_same};

/// A depot that keeps sessions in a directory of its own.
pub(crate) struct Depot {
    pub(crate) running: Running,
    pub(crate) place: String,
    pub(crate) spool: PathBuf,
}

fn start(rig: &Rig, place: &str, spool: &Path, more: &[&str]) -> Running {
    let mut command = rig.packtrain();
    command.args([
        "depot",
        "--json",
        "--listen",
        place,
        "--interval",
        "1s",
        "--allow",
        "127.0.0.1",
    ]);
    let free: &[&str] =
        if more.contains(&"--spool-free") { &[] } else { &["--spool-free", "1MiB"] };
    command.args(free).args(more).arg("--spool").arg(spool);
    command.arg("--authorized-keys").arg(rig.own_key("depot-keys"));
    rig.start(&mut command).when_up(|_| listens(place))
}

impl Depot {
    pub(crate) fn new(rig: &Rig, name: &str, more: &[&str]) -> Self {
        let place = format!("127.0.0.1:{}", free_port());
        let spool = rig.path(name);
        Self { running: start(rig, &place, &spool, more), place, spool }
    }

    /// Kills the depot and restarts it.
    pub(crate) fn kill_and_restart(&mut self, rig: &Rig, more: &[&str]) {
        send("KILL", self.running.pid());
        while !self.running.ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.running = start(rig, &self.place, &self.spool, more);
    }

    /// Bytes of the records on its disk.
    pub(crate) fn stored(&self) -> u64 {
        let Ok(sessions) = fs::read_dir(&self.spool) else { return 0 };
        let len = |entry: fs::DirEntry| fs::metadata(entry.path().join("records")).ok();
        sessions.flatten().filter_map(len).map(|meta| meta.len()).sum()
    }

    /// The last counters that it printed.
    pub(crate) fn figures(self) -> serde_json::Value {
        send("TERM", self.running.pid());
        let ended = self.running.wait();
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        let last = text
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .rfind(|line| line["event"] == "stats");
        last.unwrap_or_else(|| panic!("no figures: {text}\n{}", ended.stderr))["spool"].clone()
    }
}

pub(crate) fn sending(rig: &Rig, via: &str, ticket: &str) -> Command {
    let mut command = rig.packtrain();
    command.args(["send", "-r", "--via", via, "--ticket"]).arg(rig.path(ticket));
    command
}

pub(crate) fn claiming(rig: &Rig, ticket: &str, to: &Path) -> Command {
    let mut command = rig.packtrain();
    command.arg("claim").arg(format!("@{}", rig.path(ticket).display())).arg(to);
    command
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < crate::rig::TIMEOUT, "{what} never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn source(rig: &Rig, big: u64) -> PathBuf {
    let path = rig.path("src");
    fs::create_dir(&path).expect("a folder");
    tree::odd(&path.join("odd"));
    tree::file(&path.join("big"), big, 1);
    path
}

#[test]
fn the_sender_leaves_and_the_receiver_comes_later() {
    let rig = Rig::local();
    let src = source(&rig, 24 * MIB + 17);
    let last = Depot::new(&rig, "spool-2", &[]);
    let first = Depot::new(&rig, "spool-1", &[]);
    let via = format!("{},{}", first.place, last.place);
    rig.ok(sending(&rig, &via, "ticket").arg(contents(&src)));
    // The receiver has no key that a depot knows: the ticket is sufficient.
    let mut claim = claiming(&rig, "ticket", &rig.path("dst"));
    claim.env("XDG_CONFIG_HOME", rig.path("nobody")).args(["--json"]);
    let ended = rig.ok(&mut claim);
    assert_same(&src, &rig.path("dst"));
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(text.contains(r#""transport":"depots""#), "{text}");
    // The same claim finds everything at the target; with --release the depots remove the session.
    fs::create_dir(rig.path("into")).expect("a folder");
    let mut dry = claiming(&rig, "ticket", &rig.path("into"));
    let refused = rig.run(dry.args(["--release", "--dry-run"]));
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    rig.ok(claiming(&rig, "ticket", &rig.path("into")).arg("--release"));
    assert_same(&src, &rig.path("into"));
    until("the end of the records", || first.stored() + last.stored() == 0);
    let gone = rig.run(&mut claiming(&rig, "ticket", &rig.path("again")));
    assert_eq!(gone.code, 3, "{}", gone.stderr);
    let (one, two) = (first.figures(), last.figures());
    assert_eq!((&one["forwarded"], &two["deposited"]), (&1.into(), &1.into()), "{one} {two}");
    assert_eq!((&one["released"], &two["released"]), (&1.into(), &1.into()), "{one} {two}");
}

#[test]
fn pipes_go_in_and_out_and_the_ticket_is_printed() {
    let rig = Rig::local();
    let depot = Depot::new(&rig, "spool", &[]);
    tree::file(&rig.path("in"), 9 * MIB + 5, 2);
    let mut put = rig.packtrain();
    put.args(["send", "--via", &depot.place, "--name", "data", "-"]);
    put.stdin(fs::File::open(rig.path("in")).expect("it is there"));
    let ticket = rig.ok(&mut put).stdout;
    assert!(ticket.starts_with(b"pc1-") && ticket.ends_with(b"\n"));
    fs::write(rig.path("ticket"), &ticket).expect("a file");
    let mut get = rig.packtrain();
    get.args(["claim", "-", "-"]).stdin(fs::File::open(rig.path("ticket")).expect("there"));
    let out = rig.ok(&mut get).stdout;
    assert!(out == fs::read(rig.path("in")).expect("readable"), "{} bytes", out.len());
    fs::create_dir(rig.path("dir")).expect("a folder");
    rig.ok(&mut claiming(&rig, "ticket", &rig.path("dir")));
    assert_eq!(fs::read(rig.path("dir/data")).ok(), fs::read(rig.path("in")).ok());
}

#[test]
fn who_has_no_ticket_gets_nothing_and_who_has_no_key_leaves_nothing() {
    let rig = Rig::local();
    let src = rig.path("src");
    fs::create_dir(&src).expect("a folder");
    tree::file(&src.join("big"), MIB, 1);
    let depot = Depot::new(&rig, "spool", &[]);
    rig.ok(sending(&rig, &depot.place, "one").arg(contents(&src)));
    rig.ok(sending(&rig, &depot.place, "two").arg(contents(&src)));
    // A deposit with an unknown key.
    let mut stranger = sending(&rig, &depot.place, "three");
    let denied = rig.run(stranger.env("XDG_CONFIG_HOME", rig.path("other")).arg(contents(&src)));
    assert_eq!(denied.code, 12, "{}", denied.stderr);
    assert!(denied.stderr.contains("authorized_keys"), "{}", denied.stderr);
    // A ticket on the command line, a damaged one, and none.
    let text = fs::read_to_string(rig.path("one")).expect("a ticket");
    let mut shown = rig.packtrain();
    let refused = rig.run(shown.args(["claim", text.trim()]).arg(rig.path("dst")));
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(!refused.stderr.contains(text.trim()), "{}", refused.stderr);
    let other = |c: char| if c == 'x' { 'y' } else { 'x' };
    let flipped: String =
        text.chars().enumerate().map(|(n, c)| if n == 40 { other(c) } else { c }).collect();
    fs::write(rig.path("bad"), flipped).expect("a file");
    fs::write(rig.path("cut"), &text[..text.len() / 2]).expect("a file");
    for bad in ["bad", "cut", "nothing"] {
        let refused = rig.run(&mut claiming(&rig, bad, &rig.path("dst")));
        assert_eq!(refused.code, 2, "{bad}: {}", refused.stderr);
    }
    assert!(!rig.path("dst").exists());
    // Changed records are detected, and no file gets its name.
    for entry in fs::read_dir(&depot.spool).expect("a spool").flatten() {
        let path = entry.path().join("records");
        if let Ok(mut bytes) = fs::read(&path) {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&path, bytes).expect("a file");
        }
    }
    let spoilt = rig.run(claiming(&rig, "two", &rig.path("dst")).args(["--retries", "0"]));
    assert!([13, 23].contains(&spoilt.code), "{}: {}", spoilt.code, spoilt.stderr);
    assert!(spoilt.stderr.contains("not what the sender signed"), "{}", spoilt.stderr);
    assert!(!rig.path("dst/big").exists());
}

#[test]
fn there_is_room_for_so_much_and_time_for_so_long() {
    let rig = Rig::local();
    let src = rig.path("src");
    fs::create_dir(&src).expect("a folder");
    tree::file(&src.join("big"), 3 * MIB, 1);
    let quotas = ["--spool-quota", "12MiB", "--spool-key-quota", "8MiB", "--spool-ttl", "1h"];
    let depot = Depot::new(&rig, "spool", &quotas);
    let mut first = sending(&rig, &depot.place, "one");
    rig.ok(first.args(["--keep", "6s"]).arg(contents(&src)));
    rig.ok(sending(&rig, &depot.place, "short").args(["--keep", "1h"]).arg(contents(&src)));
    // Refused before payload, with the time when space may be available.
    let mut full = sending(&rig, &depot.place, "two");
    let refused = rig.run(full.args(["--keep", "1h", "--retries", "0"]).arg(contents(&src)));
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    let told =
        refused.stderr.contains("space in the spool") && refused.stderr.contains("come again");
    assert!(told, "{}", refused.stderr);
    let mut long = sending(&rig, &depot.place, "three");
    let refused = rig.run(long.args(["--keep", "2h"]).arg(contents(&src)));
    assert_eq!(refused.code, 12, "{}", refused.stderr);
    tree::file(&rig.path("huge"), 20 * MIB, 3);
    let mut huge = sending(&rig, &depot.place, "four");
    let refused = rig.run(huge.args(["--keep", "1h"]).arg(rig.path("huge")));
    assert_eq!(refused.code, 12, "{}", refused.stderr);
    // A pipe has no known length: it is stopped when the space is used up.
    let mut pipe = rig.packtrain();
    pipe.args(["send", "--via", &depot.place, "--keep", "1h", "--retries", "0", "-"]);
    pipe.stdin(fs::File::open(rig.path("huge")).expect("it is there"));
    let refused = rig.run(&mut pipe);
    assert!([5, 12].contains(&refused.code), "{}: {}", refused.code, refused.stderr);
    // After the first session expires, there is space again.
    let mut again = sending(&rig, &depot.place, "five");
    rig.ok(again.args(["--keep", "1h", "--retries", "20"]).arg(contents(&src)));
    let gone = rig.run(&mut claiming(&rig, "one", &rig.path("dst")));
    assert_eq!(gone.code, 3, "{}", gone.stderr);
    rig.ok(&mut claiming(&rig, "five", &rig.path("dst")));
    assert_same(&src, &rig.path("dst"));
    let figures = depot.figures();
    assert!(figures["expired"].as_u64() >= Some(1), "{figures}");
    assert!(figures["refused"].as_u64() >= Some(3), "{figures}");
}

#[test]
fn a_full_disk_refuses_and_harms_nothing() {
    let rig = Rig::local();
    let src = source(&rig, 3 * MIB);
    let depot = Depot::new(&rig, "spool", &["--spool-free", "1000000TiB"]);
    let refused =
        rig.run(sending(&rig, &depot.place, "one").args(["--retries", "0"]).arg(contents(&src)));
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("disk has"), "{}", refused.stderr);
    assert_eq!(depot.stored(), 0);
}

#[test]
fn depots_killed_in_the_middle_of_everything_lose_nothing() {
    let rig = Rig::local();
    let src = source(&rig, 40 * MIB + 17);
    let mut last = Depot::new(&rig, "spool-2", &[]);
    let mut first = Depot::new(&rig, "spool-1", &[]);
    let via = format!("{},{}", first.place, last.place);
    let mut upload = sending(&rig, &via, "ticket");
    let mut upload =
        rig.start(upload.args(["--rate", "60mbit", "--retries", "30"]).arg(contents(&src)));
    // Each depot is killed during the upload, twice.
    for n in 1..4 {
        until("an upload", || first.stored() > n * 8 * MIB);
        assert!(!upload.ended(), "{}", upload.stderr());
        first.kill_and_restart(&rig, &[]);
        last.kill_and_restart(&rig, &[]);
    }
    // The sender is killed too: the same command resumes.
    send("KILL", upload.pid());
    let killed = upload.wait();
    assert_ne!(killed.code, 0);
    let sent = rig.ok(sending(&rig, &via, "ticket").args(["--json"]).arg(contents(&src)));
    let text = String::from_utf8_lossy(&sent.stdout).into_owned();
    let done: serde_json::Value =
        serde_json::from_str(text.lines().last().unwrap_or_default()).expect("a line");
    let resumed = done["bytes_resumed"].as_u64().unwrap_or(0);
    assert!(resumed > 16 * MIB, "went on from {resumed}: {text}");
    // Depots are killed while they forward and during the claim.
    last.kill_and_restart(&rig, &[]);
    first.kill_and_restart(&rig, &[]);
    let mut claim = claiming(&rig, "ticket", &rig.path("dst"));
    let claim = rig.start(claim.args(["--retries", "30"]));
    last.kill_and_restart(&rig, &[]);
    let ended = claim.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_same(&src, &rig.path("dst"));
}

#[test]
fn a_claim_goes_to_the_depot_before_for_what_the_last_one_lacks() {
    let rig = Rig::local();
    let src = source(&rig, 12 * MIB);
    let last = Depot::new(&rig, "spool-2", &[]);
    let first = Depot::new(&rig, "spool-1", &[]);
    let via = format!("{},{}", first.place, last.place);
    // The last depot is stopped before the first record: the sender is not affected.
    send("STOP", last.running.pid());
    rig.ok(sending(&rig, &via, "ticket").arg(contents(&src)));
    let ended = rig.ok(&mut claiming(&rig, "ticket", &rig.path("dst")));
    assert_same(&src, &rig.path("dst"));
    assert!(ended.stderr.contains(&last.place), "{}", ended.stderr);
    send("CONT", last.running.pid());
    // The missing records arrive later.
    until("what was missed", || last.stored() == first.stored());
    send("STOP", first.running.pid());
    let mut claim = claiming(&rig, "ticket", &rig.path("late"));
    rig.ok(claim.args(["--at", &last.place]));
    assert_same(&src, &rig.path("late"));
    send("CONT", first.running.pid());
}

/// Relays connections and counts the bytes to `place`.
fn counter(place: String) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let own = listener.local_addr().expect("it has one").to_string();
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let Ok(next) = TcpStream::connect(&place) else { continue };
            let pass = |mut from: TcpStream, mut to: TcpStream, count: Option<Arc<AtomicU64>>| {
                std::thread::spawn(move || {
                    let mut room = vec![0; 64 << 10];
                    while let Ok(n @ 1..) = from.read(&mut room) {
                        if to.write_all(&room[..n]).is_err() {
                            break;
                        }
                        if let Some(count) = &count {
                            count.fetch_add(n as u64, Ordering::Relaxed);
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            };
            let halves = (socket.try_clone(), next.try_clone());
            if let (Ok(one), Ok(two)) = halves {
                pass(socket, next, Some(Arc::clone(&counted)));
                pass(two, one, None);
            }
        }
    });
    (own, count)
}

#[test]
fn a_tree_carries_each_range_over_each_link_once() {
    let rig = Rig::local();
    let src = source(&rig, 16 * MIB + 3);
    // The root, a depot in the middle, and three leaves: root(middle(a, b), c).
    let depots: Vec<Depot> = (0..5).map(|n| Depot::new(&rig, &format!("spool-{n}"), &[])).collect();
    let links: Vec<_> = depots.iter().map(|depot| counter(depot.place.clone())).collect();
    let at = |n: usize| links[n].0.clone();
    let via = format!("{}({}({},{}),wait:{})", at(0), at(1), at(2), at(3), at(4));
    rig.ok(sending(&rig, &via, "ticket").arg(contents(&src)));
    let size = depots[0].stored();
    assert!(size > 16 * MIB, "{size}");
    for depot in &depots {
        until("a copy at each depot", || depot.stored() == size);
    }
    for (n, link) in links.iter().enumerate() {
        let sent = link.1.load(Ordering::Relaxed);
        // Headers and frames: 16 bytes per record and less than one kilobyte per connection.
        assert!((size..size + size / 1000 + 4096).contains(&sent), "link {n}: {sent} of {size}");
    }
    for n in 2..5 {
        let to = rig.path(&format!("dst-{n}"));
        rig.ok(claiming(&rig, "ticket", &to).args(["--at", &at(n)]));
        assert_same(&src, &to);
    }
    let figures = depots.into_iter().map(Depot::figures).collect::<Vec<_>>();
    let number = |n: usize, name: &str| figures[n][name].as_u64().unwrap_or(0);
    let claimed: Vec<u64> = (0..5).map(|n| number(n, "claimed_bytes")).collect();
    assert!(claimed[0] == 0 && claimed[1] == 0, "{claimed:?}");
    assert!(claimed[2..].iter().all(|bytes| *bytes >= 16 * MIB), "{claimed:?}");
    let forwarded: Vec<u64> = (0..5).map(|n| number(n, "forwarded")).collect();
    assert_eq!(forwarded, [2, 2, 0, 0, 0]);
}

#[test]
fn a_branch_that_is_not_there_is_dropped_or_waited_for_as_was_asked() {
    let rig = Rig::local();
    let src = source(&rig, 2 * MIB);
    let root = Depot::new(&rig, "spool-0", &[]);
    let leaf = Depot::new(&rig, "spool-1", &[]);
    let nobody = format!("127.0.0.1:{}", free_port());
    let via = format!("{}(drop:{nobody},{})", root.place, leaf.place);
    rig.ok(sending(&rig, &via, "ticket").arg(contents(&src)));
    rig.ok(&mut claiming(&rig, "ticket", &rig.path("dst")));
    assert_same(&src, &rig.path("dst"));
    until("a branch dropped", || root.running.stderr().contains("is dropped"));
    // More data than a branch with `wait:` allows is not accepted before that branch has it.
    tree::file(&rig.path("much"), 80 * MIB, 5);
    let via = format!("{}(wait:{nobody})", root.place);
    let before = root.stored();
    let mut waits = sending(&rig, &via, "waits");
    let mut waits = rig.start(waits.arg(rig.path("much")));
    until("what may be ahead", || root.stored() >= before + 64 * MIB);
    std::thread::sleep(Duration::from_millis(700));
    let ahead = root.stored() - before;
    assert!(ahead < 76 * MIB && !waits.ended(), "{ahead}");
    let late = start(&rig, &nobody, &rig.path("spool-2"), &[]);
    let ended = waits.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let mut claim = claiming(&rig, "waits", &rig.path("much-dst"));
    rig.ok(claim.args(["--at", &nobody]));
    assert_eq!(fs::read(rig.path("much-dst")).ok(), fs::read(rig.path("much")).ok());
    drop(late);
    let figures = root.figures();
    assert_eq!(figures["dropped"], 1, "{figures}");
}

#[test]
fn a_killed_receiver_goes_on_near_where_it_was() {
    let rig = Rig::local();
    let src = source(&rig, 64 * MIB + 1);
    let depot = Depot::new(&rig, "spool", &[]);
    let mut put = sending(&rig, &depot.place, "ticket");
    put.stdout(Stdio::null());
    rig.ok(put.arg(contents(&src)));
    let claim = rig.start(&mut claiming(&rig, "ticket", &rig.path("dst")));
    // A temporary file of some size, or already all of it.
    until("some of it", || {
        let names = fs::read_dir(rig.path("dst")).into_iter().flatten().flatten();
        let mut lens = names.filter_map(|entry| Some((entry.file_name(), entry.metadata().ok()?)));
        lens.any(|(name, meta)| name == "big" || meta.len() >= 16 * MIB)
    });
    send("KILL", claim.pid());
    claim.wait();
    let again = rig.ok(claiming(&rig, "ticket", &rig.path("dst")).arg("--json"));
    assert_same(&src, &rig.path("dst"));
    assert!(!again.stdout.is_empty());
}
