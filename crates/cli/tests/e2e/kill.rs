//! `kill -9` of either end at random moments: the final tree is always the same.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::rig::{Dice, Rig, contents, send, slash};
use crate::tree::{self, MIB, assert_same};

/// Number of kills at a random moment.
const KILLS: u32 = 50;
/// Number of kills while a copy renames files.
const RENAME_KILLS: u32 = 10;

/// The number of kills that `PACKTRAIN_KILLS` sets, as the nightly run does.
fn kills(by_day: u32) -> u32 {
    match std::env::var("PACKTRAIN_KILLS") {
        Ok(text) => text.parse().expect("PACKTRAIN_KILLS is a number"),
        Err(_) => by_day,
    }
}

#[test]
#[ignore = "needs an ssh server and some minutes; `cargo xtask test` runs it"]
fn fifty_kills_of_either_end() {
    let wanted = kills(KILLS);
    let Some(rig) = Rig::ssh() else { return };
    let mut dice = Dice::new("fifty_kills_of_either_end");
    let src = rig.path("src");
    fs::create_dir(&src).expect("a folder");
    tree::odd(&src.join("odd"));
    tree::file(&src.join("big"), 48 * MIB + 4321, 1);
    fs::create_dir(src.join("many")).expect("a folder");
    for index in 0..300 {
        tree::file(&src.join(format!("many/{index}")), index * 37, index);
    }
    // An undisturbed run shows roughly how long a copy takes. If kills come too late, the span from
    // which they are drawn shrinks.
    let start = Instant::now();
    rig.ok(rig.cp().arg(contents(&src)).arg(rig.far("dst")));
    let mut span = u64::try_from(start.elapsed().as_millis()).expect("short") + 50;
    wipe(&rig.path("dst"));

    let (mut landed, mut late) = (0, 0);
    while landed < wanted {
        let push = dice.below(2) == 0;
        for _ in 0..=dice.below(3) {
            let mut running = rig.start(&mut copy(&rig, push));
            std::thread::sleep(Duration::from_millis(dice.below(span)));
            if running.ended() {
                late += 1;
                span = (span * 9 / 10).max(50);
            } else {
                landed += 1;
            }
            if dice.below(2) == 0 {
                rig.signal_far("KILL");
            } else {
                send("KILL", running.pid());
            }
            let ended = running.wait();
            assert_ne!(ended.code, 2, "{}", ended.stderr);
        }
        let ended = rig.run(&mut copy(&rig, push));
        assert_eq!(ended.code, 0, "after kill {landed} (push {push}): {}", ended.stderr);
        assert_same(&src, &rig.path("dst"));
        wipe(&rig.path("dst"));
    }
    eprintln!("{landed} kills in mid-transfer, {late} too late: always the same tree");
}

/// A new version replaces a tree of many files, and the copy is killed while it renames them. Each
/// file is whole, old or new, and the next run completes the tree.
#[test]
#[ignore = "takes a minute; `cargo xtask test` runs it"]
fn killed_between_the_renames_of_a_tree() {
    const FILES: u64 = 800;
    let rig = Rig::local();
    let mut dice = Dice::new("killed_between_the_renames_of_a_tree");
    let wanted = kills(RENAME_KILLS);
    for (name, seed) in [("old", 1), ("new", 2)] {
        fs::create_dir(rig.path(name)).expect("a folder");
        for index in 0..FILES {
            let dir = rig.path(name).join(format!("d{}", index % 7));
            fs::create_dir_all(&dir).expect("a folder");
            // A few files are large, because their renames follow another code path.
            let size = if index % 200 == 3 { 5 * MIB + index } else { 100 + index };
            tree::file(&dir.join(format!("{index}")), size, seed * FILES + index);
        }
    }
    // Duration of the renames of an undisturbed copy, from the first to the last.
    let mut span = {
        reset(&rig);
        let mut running = rig.start(&mut replace_tree(&rig));
        let begun = first_rename(&rig, &mut running).expect("a copy that renames");
        assert_eq!(running.wait().code, 0);
        u64::try_from(begun.elapsed().as_micros()).expect("short") + 1000
    };
    let (mut landed, mut between, mut late) = (0, 0, 0);
    while landed < wanted {
        reset(&rig);
        let mut running = rig.start(&mut replace_tree(&rig));
        if first_rename(&rig, &mut running).is_some() {
            // The renames are a small part of the span, at its beginning.
            std::thread::sleep(Duration::from_micros(dice.below(span) >> dice.below(8)));
        }
        if running.ended() {
            late += 1;
            span = (span * 9 / 10).max(1000);
            continue;
        }
        send("KILL", running.pid());
        running.wait();
        landed += 1;
        let (mut old, mut new) = (0, 0);
        for index in 0..FILES {
            let name = format!("d{}/{index}", index % 7);
            let there = fs::read(rig.path("dst").join(&name)).expect("every name stays");
            if fs::read(rig.path("new").join(&name)).expect("a file") == there {
                new += 1;
            } else {
                assert!(fs::read(rig.path("old").join(&name)).expect("a file") == there, "{name}");
                old += 1;
            }
        }
        between += u32::from(old > 0 && new > 0);
        let ended = rig.run(&mut replace_tree(&rig));
        assert_eq!(ended.code, 0, "after kill {landed}: {}", ended.stderr);
        assert_same(&rig.path("new"), &rig.path("dst"));
    }
    eprintln!("{landed} kills, {between} of them between two renames, {late} too late");
    assert!(between > 0, "no kill came between two renames");
}

/// A tree that the destination does not have is copied, and the copy is killed. Each file under its
/// name is whole, and the next run completes the tree and leaves nothing hidden.
#[test]
#[ignore = "takes a minute; `cargo xtask test` runs it"]
fn killed_while_new_directories_are_filled() {
    const FILES: u64 = 6000;
    let rig = Rig::local();
    let mut dice = Dice::new("killed_while_new_directories_are_filled");
    let wanted = kills(RENAME_KILLS);
    let src = rig.path("src");
    for index in 0..FILES {
        let dir = src.join(format!("d{}/sub{}", index % 7, index % 3));
        fs::create_dir_all(&dir).expect("a folder");
        // A few files are large, because they are resumed from their temporaries.
        let size = if index % 2000 == 3 { 5 * MIB + index } else { 100 + index };
        tree::file(&dir.join(format!("{index}")), size, index);
    }
    let copy = || {
        let mut command = rig.cp();
        command.arg(&src).arg(rig.path("dst"));
        command
    };
    fs::create_dir(rig.path("dst")).expect("a folder");
    let start = Instant::now();
    rig.ok(&mut copy());
    let mut span = u64::try_from(start.elapsed().as_millis()).expect("short") + 20;
    let (mut landed, mut inside, mut late) = (0, 0, 0);
    while landed < wanted || inside == 0 {
        assert!(landed < 20 * wanted, "no kill came while a directory was hidden");
        wipe(&rig.path("dst"));
        fs::create_dir(rig.path("dst")).expect("a folder");
        let mut running = rig.start(&mut copy());
        if landed % 2 == 0 {
            // From the moment at which the tree exists, for the kill to come while it is filled.
            while names(&rig.path("dst")).iter().all(|name| !is_hidden_tree(name)) {
                if running.ended() {
                    break;
                }
                std::thread::sleep(Duration::from_micros(300));
            }
            std::thread::sleep(Duration::from_micros(dice.below(span * 100)));
        } else {
            std::thread::sleep(Duration::from_millis(dice.below(span)));
        }
        if running.ended() {
            late += 1;
            span = (span * 9 / 10).max(20);
            running.wait();
            continue;
        }
        send("KILL", running.pid());
        running.wait();
        landed += 1;
        let mut waiting = vec![std::path::PathBuf::new()];
        let mut is_inside = false;
        while let Some(at) = waiting.pop() {
            for name in names(&rig.path("dst").join(&at)) {
                let path = at.join(&name);
                is_inside |= is_hidden_tree(&name);
                if name.contains(".packtrain-") {
                    continue;
                }
                if rig.path("dst").join(&path).is_dir() {
                    waiting.push(path);
                    continue;
                }
                let there = fs::read(rig.path("dst").join(&path)).expect("a file");
                let wanted = fs::read(rig.path("").join(&path)).expect("a file of the source");
                assert!(there == wanted, "{} is under its name and not whole", path.display());
            }
        }
        inside += u32::from(is_inside);
        let ended = rig.run(&mut copy());
        assert_eq!(ended.code, 0, "after kill {landed}: {}", ended.stderr);
        assert_same(&src, &rig.path("dst/src"));
        assert_eq!(names(&rig.path("dst")), ["src"], "after kill {landed}");
    }
    eprintln!("{landed} kills, {inside} of them while a directory was hidden, {late} too late");
}

fn names(dir: &Path) -> Vec<String> {
    let items = fs::read_dir(dir).into_iter().flatten().flatten();
    items.map(|item| item.file_name().to_string_lossy().into_owned()).collect()
}

/// Whether it is the name of a directory that a copy fills: the names of directories here begin
/// with these letters, and those of files with digits.
fn is_hidden_tree(name: &str) -> bool {
    name.contains(".packtrain-") && [".s", ".d"].iter().any(|start| name.starts_with(start))
}

/// Whether the old tree is at the destination.
fn reset(rig: &Rig) {
    if rig.path("dst").exists() {
        wipe(&rig.path("dst"));
    }
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([rig.path("old"), rig.path("dst")])
        .status()
        .expect("cp");
    assert!(copied.success());
}

fn replace_tree(rig: &Rig) -> std::process::Command {
    let mut command = rig.cp();
    // The times may differ by less than the resolution of the file system.
    command.arg("--checksum").arg(contents(&rig.path("new"))).arg(rig.path("dst"));
    command
}

/// Waits for the first file with its new content; `None` if the copy ended earlier.
fn first_rename(rig: &Rig, running: &mut crate::rig::Running) -> Option<Instant> {
    use std::os::unix::fs::MetadataExt;
    let watched: Vec<_> = (0..7).map(|n| rig.path("dst").join(format!("d{n}/{n}"))).collect();
    let number = |path: &std::path::PathBuf| fs::metadata(path).map_or(0, |meta| meta.ino());
    let before: Vec<u64> = watched.iter().map(number).collect();
    loop {
        if watched.iter().map(number).ne(before.iter().copied()) {
            return Some(Instant::now());
        }
        if running.ended() {
            return None;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn what_was_safe_is_not_moved_again_and_a_flipped_byte_is() {
    let Some(rig) = Rig::ssh() else { return };
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/big"), 96 * MIB, 1);
    for flip in [false, true] {
        let mut slow = copy(&rig, true);
        let mut running = rig.start(slow.args(["--rate", "150mbit", "--retries", "0"]));
        rig.wait_far();
        // 150 Mbit/s are 18 MiB per second: nearly half has moved, and all but the last second of
        // it is in the journal.
        std::thread::sleep(Duration::from_millis(2500));
        assert!(!running.ended(), "{}", running.stderr());
        assert!(rig.signal_far("KILL"));
        let broken = running.wait();
        assert_ne!(broken.code, 0);
        if flip {
            flip_byte(&hidden(&rig.path("dst")));
        }
        let ended = rig.ok(copy(&rig, true).arg("--json"));
        assert_same(&rig.path("src"), &rig.path("dst"));
        let moved = ended.number("bytes_moved");
        assert!(moved <= 80 * MIB, "{moved} bytes moved again of {}", 96 * MIB);
        if flip {
            assert!(ended.number("chunks_again") >= 1, "the flipped byte went unseen");
        }
        wipe(&rig.path("dst"));
    }
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn interrupted_by_the_user_it_says_how_to_go_on() {
    let Some(rig) = Rig::ssh() else { return };
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/big"), 64 * MIB, 1);
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        // Background jobs of a script ignore this signal, and so do their children.
        if signal == "INT" && interrupts_are_ignored() {
            continue;
        }
        let mut slow = copy(&rig, true);
        let mut running = rig.start(slow.args(["--rate", "100mbit"]));
        rig.wait_far();
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!running.ended(), "{}", running.stderr());
        send(signal, running.pid());
        let ended = running.wait();
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(ended.stderr.contains("packtrain cp"), "no way to resume: {}", ended.stderr);
    }
    rig.ok(&mut copy(&rig, true));
    assert_same(&rig.path("src"), &rig.path("dst"));
}

fn interrupts_are_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0) >> 1 & 1 == 1
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn an_old_version_stays_until_the_new_is_whole() {
    let Some(rig) = Rig::ssh() else { return };
    fs::create_dir_all(rig.path("dst")).expect("a folder");
    tree::file(&rig.path("f"), 8 * MIB, 1);
    tree::file(&rig.path("dst/f"), 3 * MIB, 2);
    let old = fs::read(rig.path("dst/f")).expect("the old version");
    let mut command = rig.cp();
    command.args(["--rate", "8mbit"]).arg(rig.path("f")).arg(rig.far("dst/f"));
    let mut running = rig.start(&mut command);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!running.ended(), "{}", running.stderr());
    send("KILL", running.pid());
    running.wait();
    assert!(fs::read(rig.path("dst/f")).expect("still there") == old);
    rig.ok(rig.cp().arg(rig.path("f")).arg(rig.path("dst/f")));
    assert!(fs::read(rig.path("dst/f")).ok() == fs::read(rig.path("f")).ok());
}

#[test]
#[ignore = "takes a minute and gigabytes; `cargo xtask test` runs it"]
fn the_demo_ends_well() {
    let rig = Rig::local();
    fs::create_dir(rig.path("tmp")).expect("a folder");
    let ended = rig.ok(rig.packtrain().arg("demo").env("TMPDIR", rig.path("tmp")));
    let text = String::from_utf8_lossy(&ended.stdout).into_owned() + &ended.stderr;
    assert!(text.contains("moved again:"), "{text}");
    let last = text.trim_end().lines().last().unwrap_or_default();
    assert!(last.contains("packtrain cp"), "the last line is no command to type: {last}");
}

fn copy(rig: &Rig, push: bool) -> std::process::Command {
    let mut command = rig.cp();
    if push {
        command.arg(contents(&rig.path("src"))).arg(rig.far("dst"));
    } else {
        command.arg(slash(&rig.far("src"))).arg(rig.path("dst"));
    }
    command
}

/// The only hidden temporary file in a folder.
fn hidden(dir: &Path) -> std::path::PathBuf {
    fs::read_dir(dir)
        .expect("a folder")
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with('.'))
        .max_by_key(|entry| entry.metadata().map_or(0, |meta| meta.len()))
        .expect("a temporary beside the target")
        .path()
}

pub(crate) fn flip_byte(path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("the temporary");
    let mut byte = [0];
    file.read_exact_at(&mut byte, MIB + 17).expect("a byte");
    byte[0] ^= 0x10;
    file.write_all_at(&byte, MIB + 17).expect("a byte");
}

/// Removes a tree with folders whose modes forbid that.
fn wipe(dir: &Path) {
    let status = std::process::Command::new("sh")
        .args(["-c", "chmod -R u+rwX \"$0\" && rm -rf \"$0\""])
        .arg(dir)
        .status()
        .expect("sh");
    assert!(status.success());
}
