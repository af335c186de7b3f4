//! A hostile peer against the real program: names that were not requested, messages out of order,
//! wrong sizes, floods. In every case only the requested files exist afterwards, no existing file
//! has changed, memory stays bounded, and the program ends with a reason.

mod peer;
mod script;
mod victim;

use std::fs;
use std::time::Duration;

use packtrain_object::{
    ChunkIndex, Entry, EntryId, EntryKind, Mtime, RelPath, SourceName, digest, encode_segment,
};
use packtrain_transfer::message::{Message, Open, Options, PieceDigest, Role};
use packtrain_units::Offset;

use crate::rig::Dice;
use peer::Peer;
use script::{ASKED, Choices};
use victim::{Served, Victim};

/// Number of random sessions of each kind.
const SESSIONS: u64 = 20;

fn entry(path: &str, kind: EntryKind) -> Entry {
    let path = RelPath::try_from(path.as_bytes().to_vec()).expect("a path");
    Entry {
        path,
        kind,
        mode: 0o644,
        mtime: Mtime { secs: 1, nanos: 0 },
        uid: 0,
        gid: 0,
        extras: Default::default(),
    }
}

fn file(path: &str, size: u64) -> Entry {
    entry(path, EntryKind::File { size })
}

/// All messages of a manifest.
fn announce(peer: &mut Peer, entries: &[Entry]) {
    peer.send(&Message::Manifest(encode_segment(EntryId(0), entries)));
    let entries = entries.len() as u64;
    peer.send(&Message::ManifestEnd {
        entries,
        failed: 0,
        vanished: 0,
        failures: Vec::new(),
        empty: Vec::new(),
    });
}

/// Sends small files with the content `hello`, as an honest source does, and ends with Goodbye.
fn send_all(peer: &mut Peer, entries: &[Entry]) {
    announce(peer, entries);
    let needed = peer.wait_for(|message| match message {
        Message::Need { ranges, .. } if !ranges.is_empty() => Some(()),
        _ => None,
    });
    if needed.is_none() {
        return;
    }
    let (mut at, mut pieces) = (0, Vec::new());
    for (n, entry) in entries.iter().enumerate() {
        if let EntryKind::File { size } = entry.kind {
            peer.send(&Message::Data { offset: Offset(at), bytes: b"hello".to_vec() });
            let digest = digest::piece(0, true, b"hello");
            pieces.push(PieceDigest { entry: EntryId(n as u32), digest });
            at += size;
        }
    }
    peer.send(&Message::Digests { chunk: ChunkIndex(0), pieces });
    peer.wait_for(|message| matches!(message, Message::Finished(_)).then_some(()));
    peer.send(&Message::Bye);
    peer.drain();
}

/// A called source that sends this.
fn source(entries: Vec<Entry>) -> impl FnOnce(&mut Peer) + Send {
    move |peer| {
        if peer.be_called().is_some() {
            send_all(peer, &entries);
        }
    }
}

#[test]
fn an_honest_source_is_taken_over_every_way() {
    let victim = Victim::new();
    for tls in [false, true] {
        let fallen = match tls {
            false => victim.over_ssh(&["user@evil:asked", "."], source(vec![file(ASKED, 5)])),
            true => victim.over_tls(&["pt://HOST/asked", "."], source(vec![file(ASKED, 5)])),
        };
        fallen.check("honest");
        assert_eq!(fallen.ended.code, 0, "{}", fallen.ended.stderr);
        assert_eq!(fs::read(victim.home().join(ASKED)).expect("it arrived"), b"hello");
        victim.check("honest");
        victim.clean();
    }
}

/// What a hostile source sends in addition to, or instead of, the requested files, and the name in
/// the error.
fn attacks() -> Vec<(&'static str, Vec<Entry>)> {
    let directory = |path| entry(path, EntryKind::Directory);
    let link =
        |path, target: &str| entry(path, EntryKind::Symlink { target: target.as_bytes().to_vec() });
    vec![
        (".bashrc", vec![file(".bashrc", 5)]),
        (".bashrc", vec![file(ASKED, 5), file(".bashrc", 5)]),
        (".ssh", vec![directory(".ssh"), file(".ssh/authorized_keys", 5)]),
        (".ssh/authorized_keys", vec![file(".ssh/authorized_keys", 5)]),
        ("su", vec![Entry { mode: 0o4755, ..file("su", 5) }]),
        ("passwd", vec![link("passwd", "/etc/passwd")]),
        ("bystander", vec![file("bystander", 5)]),
        ("kept", vec![directory("kept"), file("kept/file", 5)]),
        (".", vec![directory(""), file(ASKED, 5)]),
        (
            "asked/l/.bashrc",
            vec![directory(ASKED), link("asked/l", ".."), file("asked/l/.bashrc", 5)],
        ),
        (
            "asked/l",
            vec![
                directory(ASKED),
                link("asked/l", "../kept"),
                directory("asked/l"),
                file("asked/l/file", 5),
            ],
        ),
        ("asked/x", vec![file(ASKED, 5), file("asked/x", 5)]),
    ]
}

#[test]
fn what_was_not_asked_for_is_refused_by_name_over_ssh_and_tls() {
    let victim = Victim::new();
    for (name, entries) in attacks() {
        for options in [&[][..], &["-r"]] {
            // Without -r the error names the first entry that is a directory or lies in one.
            let plain = options.is_empty();
            let named = entries.iter().find(|e| plain && e.kind == EntryKind::Directory);
            let named = named.map_or_else(|| name.to_owned(), |e| e.path.to_string());
            let what = format!("{name} {options:?}");
            let args = [options, &["user@evil:asked", "."]].concat();
            victim.over_ssh(&args, source(entries.clone())).check_refused(&what, &named);
            let args = [options, &["pt://HOST/asked", "."]].concat();
            victim.over_tls(&args, source(entries.clone())).check_refused(&what, &named);
            victim.check(&what);
            victim.clean();
        }
    }
}

#[test]
fn the_options_of_the_copy_are_enforced_by_its_receiving_end() {
    let victim = Victim::new();
    let list = victim.rig.path("list");
    fs::write(&list, "a/b\nc\n").expect("a list");
    let list = list.to_str().expect("text");
    let directory = |path| entry(path, EntryKind::Directory);
    let log = || vec![directory(ASKED), file("asked/a.log", 5)];
    let cases: [(&[&str], &str, Vec<Entry>); 6] = [
        (&["user@evil:asked"], ASKED, vec![directory(ASKED)]),
        (&["-r", "--exclude", "*.log", "user@evil:asked"], "asked/a.log", log()),
        (&["--files-from", list, "user@evil:src"], "a/x", vec![directory("a"), file("a/x", 5)]),
        (&["--files-from", list, "user@evil:src"], "c/x", vec![directory("c"), file("c/x", 5)]),
        (&["--files-from", list, "user@evil:src"], "src", vec![file("src", 5)]),
        (&["user@evil:asked", "user@evil:other"], "third", vec![file(ASKED, 5), file("third", 5)]),
    ];
    for (args, name, entries) in cases {
        let args = [args, &["."]].concat();
        victim.over_ssh(&args, source(entries)).check_refused(&format!("{args:?}"), name);
        victim.check(&format!("{args:?}"));
        victim.clean();
    }
    // A file under a new name is one file.
    let two = vec![file(ASKED, 5), file("more", 5)];
    let fallen = victim.over_ssh(&["user@evil:asked", "asked"], source(two));
    fallen.check_refused("a new name", "more");
    victim.check("a new name");
}

/// A journal or temporary file of a hostile source would vouch for content of a later copy.
#[test]
fn files_named_like_our_own_are_not_taken() {
    let victim = Victim::new();
    let tag = "01234567";
    let names = [
        format!("asked/.big.packtrain-{tag}"),
        format!("asked/.packtrain-{tag}.journal"),
        format!("asked/.packtrain-{tag}.lock"),
    ];
    for name in names {
        let entries = vec![entry(ASKED, EntryKind::Directory), file(&name, 5)];
        let fallen = victim.over_ssh(&["-r", "user@evil:asked", "."], source(entries));
        assert_ne!(fallen.ended.code, 0, "{name}: {}", fallen.ended.stderr);
        assert!(!victim.home().join(&name).exists(), "{name}");
        victim.check(&name);
        victim.clean();
    }
}

#[test]
fn a_file_is_not_longer_than_was_announced() {
    let victim = Victim::new();
    let lie = |peer: &mut Peer| {
        peer.be_called();
        announce(peer, &[file(ASKED, 10)]);
        let needed = |message: &Message| matches!(message, Message::Need { ranges, .. } if !ranges.is_empty());
        if peer.wait_for(|message| needed(message).then_some(())).is_none() {
            return;
        }
        for offset in [0, 10, 1 << 20, 1 << 40, u64::MAX - 3] {
            peer.send(&Message::Data { offset: Offset(offset), bytes: vec![1; 200_000] });
        }
        peer.send(&Message::Hole(Offset(10)..Offset(1 << 40)));
        peer.drain();
    };
    let fallen = victim.over_ssh(&["user@evil:asked", "."], lie);
    fallen.check("a lie");
    assert_ne!(fallen.ended.code, 0);
    victim.check("a lie");
    let size = fs::metadata(victim.home().join(ASKED)).map_or(0, |meta| meta.len());
    assert!(size <= 10, "{size} bytes");
}

/// A message of the largest size that a frame can hold.
fn fat(name: &str) -> Message {
    let ranges = || (0..150_000).map(|n| Offset(n)..Offset(n + 1)).collect();
    match name {
        "Need" => Message::Need { segment: None, ranges: ranges(), present: 0, again: false },
        "Verified" => Message::Verified(ranges()),
        "Digests" => Message::Digests { chunk: ChunkIndex(0), pieces: Vec::new() },
        "AskRoot" => Message::AskRoot((0..150_000).map(EntryId).collect()),
        "DataTaken" => Message::DataTaken(1),
        "Pong" => Message::Pong(1),
        "Ping" => Message::Ping(1),
        "Channel" => Message::Channel(vec![0xff; 1 << 19]),
        other => panic!("{other}"),
    }
}

#[test]
fn a_flood_before_the_manifest_is_refused_and_takes_no_memory() {
    let victim = Victim::new();
    for name in ["Need", "Verified", "AskRoot", "Digests", "DataTaken", "Pong"] {
        let flood = |peer: &mut Peer| {
            peer.be_called();
            let message = fat(name);
            // Decoded, they need 400 MiB and more.
            for _ in 0..130 {
                if !peer.send(&message) {
                    return;
                }
            }
            peer.drain();
        };
        let fallen = victim.over_ssh(&["-r", "user@evil:asked", "."], flood);
        fallen.check_refused(name, name);
        victim.check(name);
    }
}

#[test]
fn floods_of_what_may_be_said_at_any_time_take_no_memory() {
    let victim = Victim::new();
    for name in ["Channel", "Ping"] {
        let flood = |peer: &mut Peer| {
            peer.be_called();
            let message = fat(name);
            let count = if name == "Ping" { 300_000 } else { 300 };
            for _ in 0..count {
                if !peer.send(&message) {
                    return;
                }
            }
        };
        let fallen = victim.over_ssh(&["-r", "user@evil:asked", "."], flood);
        fallen.check(name);
        assert_ne!(fallen.ended.code, 0, "{name}");
        victim.check(name);
    }
}

/// Bytes that determine the choices.
fn random(dice: &mut Dice) -> Vec<u8> {
    let len = 50 + dice.below(800);
    (0..len).map(|_| dice.below(256) as u8).collect()
}

#[test]
fn random_sources_over_ssh_and_tls() {
    let mut dice = Dice::new("random_sources_over_ssh_and_tls");
    let victim = Victim::new();
    for session in 0..SESSIONS {
        let bytes = random(&mut dice);
        let tls = dice.below(2) == 0;
        let what = format!("session {session}, tls {tls}");
        let play = |peer: &mut Peer| {
            peer.be_called();
            peer.play(&mut Choices::new(&bytes));
        };
        let options: &[&str] = if dice.below(3) == 0 { &[] } else { &["-r"] };
        let place = if tls { "pt://HOST/asked" } else { "user@evil:asked" };
        let args = [options, &[place, "."]].concat();
        let fallen = if tls { victim.over_tls(&args, play) } else { victim.over_ssh(&args, play) };
        fallen.check(&what);
        victim.check(&what);
        victim.clean();
    }
}

#[test]
fn random_sinks_over_ssh_and_tls() {
    let mut dice = Dice::new("random_sinks_over_ssh_and_tls");
    let victim = Victim::new();
    for session in 0..SESSIONS {
        let bytes = random(&mut dice);
        let tls = dice.below(2) == 0;
        let what = format!("session {session}, tls {tls}");
        let play = |peer: &mut Peer| {
            peer.be_called();
            peer.play(&mut Choices::new(&bytes));
        };
        let place = if tls { "pt://HOST/" } else { "user@evil:" };
        let args = ["-r", "kept", place];
        let fallen = if tls { victim.over_tls(&args, play) } else { victim.over_ssh(&args, play) };
        fallen.check(&what);
        victim.check(&what);
    }
}

/// The request of a caller whose called end is the victim.
fn open(role: Role, path: &str, channel: Vec<u8>, recursive: bool) -> Open {
    Open {
        role,
        paths: vec![path.as_bytes().to_vec()],
        sources: Some(vec![SourceName::Named(ASKED.as_bytes().to_vec())]),
        options: Options { recursive, ..Options::default() },
        channel,
    }
}

/// A caller that is the source or the sink of a random session.
fn call_at_random(dice: &mut Dice, channel: Vec<u8>, here: &str) -> impl FnOnce(&mut Peer) + use<> {
    let role = if dice.below(2) == 0 { Role::Source } else { Role::Sink };
    let path = if role == Role::Sink { here.to_owned() } else { format!("{here}/kept") };
    let (bytes, open) = (random(dice), open(role, &path, channel, dice.below(3) > 0));
    move |peer: &mut Peer| {
        if peer.call(open).is_some() {
            peer.play(&mut Choices::new(&bytes));
        }
    }
}

#[test]
fn random_callers_over_stdio() {
    let mut dice = Dice::new("random_callers_over_stdio");
    let victim = Victim::new();
    let channel = packtrain_runtime::sample_request(None);
    for session in 0..SESSIONS {
        let what = format!("session {session}");
        let act = call_at_random(&mut dice, channel.clone(), ".");
        victim.serve_stdio(act).check(&what);
        victim.check(&what);
        victim.clean();
    }
}

#[test]
fn random_callers_at_a_server() {
    let mut dice = Dice::new("random_callers_at_a_server");
    let victim = Victim::new();
    let mut served = Served::new(&victim);
    for session in 0..SESSIONS {
        let what = format!("session {session}");
        let mut peer = served.connect();
        call_at_random(&mut dice, served.channel(), "")(&mut peer);
        drop(peer);
        served.check(&what);
        victim.check(&what);
        victim.clean();
    }
}

#[test]
fn a_called_sink_takes_what_its_caller_asked_of_a_third_machine() {
    let victim = Victim::new();
    let channel = packtrain_runtime::sample_request(None);
    for (name, entries) in attacks() {
        let open = open(Role::Sink, ".", channel.clone(), true);
        let fallen = victim.serve_stdio(|peer| {
            peer.call(open).expect("it agrees");
            announce(peer, &entries);
            let refused = peer.wait_for(|message| match message {
                Message::Cancel(failure) | Message::Refused(failure) => Some(failure.clone()),
                _ => None,
            });
            let text = refused.expect("it refuses").text;
            assert!(text.contains(name), "{name}: {text}");
            peer.receive(Duration::from_millis(1));
        });
        fallen.check(name);
        victim.check(name);
        victim.clean();
    }
}

#[test]
fn a_hostile_machine_writes_nothing_else_at_a_third_one() {
    let victim = Victim::new();
    let served = Served::new(&victim);
    let place = served.place();
    let ticket = crate::server::ticket(&victim.rig);
    for (name, entries) in attacks() {
        let args = ["-r", "--ticket", &ticket, "user@evil:asked", &place];
        victim.over_ssh(&args, source(entries)).check_refused(name, name);
        victim.check(name);
        victim.clean();
    }
}
