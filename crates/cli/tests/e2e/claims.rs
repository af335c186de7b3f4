//! Claims without the right ticket: the client learns nothing, not even whether the session exists.

use std::fs;

use crate::rig::{Ended, Rig, contents};
use crate::spool::{Depot, claiming, sending};
use crate::tree::{self, MIB};

/// The bytes of a ticket: session, claim key, opening key, and the rest.
struct Forged(Vec<u8>);

const SESSION: std::ops::Range<usize> = 0..16;
const CLAIM: std::ops::Range<usize> = 16..48;
const OPEN: std::ops::Range<usize> = 48..80;

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Forged {
    fn read(rig: &Rig, name: &str) -> Self {
        let text = fs::read_to_string(rig.path(name)).expect("a ticket");
        let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
        for letter in text.trim().strip_prefix("pc1-").expect("a ticket").bytes() {
            let value = LETTERS.iter().position(|l| *l == letter).expect("a letter");
            (bits, count) = (bits << 6 | value as u32, count + 6);
            if count >= 8 {
                count -= 8;
                bytes.push((bits >> count) as u8);
            }
        }
        bytes.truncate(bytes.len() - 4);
        Self(bytes)
    }

    /// Replaces a part with that of another ticket.
    fn with(mut self, part: std::ops::Range<usize>, other: &Self) -> Self {
        self.0[part.clone()].copy_from_slice(&other.0[part]);
        self
    }

    fn write(&self, rig: &Rig, name: &str) {
        let digest = blake3::derive_key("packtrain claim ticket check sum v1", &self.0);
        let mut text = String::from("pc1-");
        for three in [&self.0[..], &digest[..4]].concat().chunks(3) {
            let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
            let bits = bits << (8 * (3 - three.len()));
            for letter in 0..=three.len() {
                text.push(LETTERS[(bits >> (18 - 6 * letter) & 63) as usize].into());
            }
        }
        fs::write(rig.path(name), text).expect("a file");
    }
}

#[test]
fn a_wrong_key_hears_what_a_number_that_never_was_hears() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/a-name-that-is-a-secret"), 3 * MIB, 1);
    let last = Depot::new(&rig, "spool-2", &[]);
    let first = Depot::new(&rig, "spool-1", &[]);
    let via = format!("{},{}", first.place, last.place);
    let src = contents(&rig.path("src"));
    for ticket in ["own", "other"] {
        rig.ok(sending(&rig, &via, ticket).arg(&src));
    }
    rig.ok(sending(&rig, &via, "short").args(["--keep", "1s"]).arg(&src));
    let read = |name| Forged::read(&rig, name);
    let mut unknown = read("own");
    unknown.0[SESSION].iter_mut().for_each(|byte| *byte ^= 0x5a);
    unknown.write(&rig, "unknown");
    read("own").with(CLAIM, &read("other")).write(&rig, "wrong");
    // The parts of a ticket: unchanged it works; with other keys for its own session the records do
    // not open.
    read("own").write(&rig, "same");
    read("own").with(OPEN, &read("other")).write(&rig, "sealed");
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let claim = |ticket: &str, more: &[&str]| -> Ended {
        let mut claim = claiming(&rig, ticket, &rig.path("dst"));
        rig.run(claim.args(["--retries", "0", "--wait", "0s"]).args(more))
    };
    for more in [&[][..], &["--release"]] {
        let heard: Vec<Ended> =
            ["unknown", "wrong", "short"].iter().map(|ticket| claim(ticket, more)).collect();
        for ended in &heard {
            assert_eq!(ended.code, 3, "{}", ended.stderr);
            assert!(ended.stderr.contains("no session"), "{}", ended.stderr);
            assert!(!ended.stderr.contains("a-name"), "{}", ended.stderr);
            assert_eq!(ended.stderr, heard[0].stderr);
            assert!(ended.stdout.is_empty());
        }
        assert!(!rig.path("dst").exists());
    }
    let sealed = claim("sealed", &[]);
    assert_eq!(sealed.code, 13, "{}", sealed.stderr);
    assert!(!sealed.stderr.contains("a-name"), "{}", sealed.stderr);
    assert!(!rig.path("dst").exists());
    // No client released the session of another ticket.
    let same = claim("same", &[]);
    assert_eq!(same.code, 0, "{}", same.stderr);
    crate::tree::assert_same(&rig.path("src"), &rig.path("dst"));
}

#[test]
fn a_code_takes_the_place_of_a_ticket() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/data"), 3 * MIB + 1, 1);
    let last = Depot::new(&rig, "spool-2", &[]);
    let first = Depot::new(&rig, "spool-1", &[]);
    let via = format!("{},{}", first.place, last.place);
    let mut send = rig.packtrain();
    send.args(["send", "-r", "--via", &via, "--code"]).arg(contents(&rig.path("src")));
    let sent = rig.ok(&mut send);
    let code = String::from_utf8_lossy(&sent.stdout).trim().to_owned();
    assert_eq!(code.len(), 20, "{code}");
    let line = format!("packtrain claim - . --at {}", last.place);
    assert!(sent.stderr.contains(&line), "{}", sent.stderr);
    assert!(!sent.stderr.contains(&code), "only stdout has the secret");
    let claim = |code: &str, to: &str| -> Ended {
        fs::write(rig.path("code"), code).expect("a file");
        let mut claim = claiming(&rig, "code", &rig.path(to));
        claim.env("XDG_CONFIG_HOME", rig.path("nobody"));
        rig.run(claim.args(["--retries", "0", "--at", &last.place]))
    };
    // As somebody types it who was told it.
    let typed = claim(&format!(" {}\n", code.to_uppercase().replace('-', " ")), "dst");
    assert_eq!(typed.code, 0, "{}", typed.stderr);
    crate::tree::assert_same(&rig.path("src"), &rig.path("dst"));
    // Another code finds nothing, and a mistyped one is not even asked for.
    let none = claim("000000-000000-000000", "none");
    assert_eq!(none.code, 3, "{}", none.stderr);
    let first = if code.starts_with('7') { "8" } else { "7" };
    let wrong = claim(&format!("{first}{}", &code[1..]), "none");
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("a letter of the code is wrong"), "{}", wrong.stderr);
    assert!(!rig.path("none").exists());
}
