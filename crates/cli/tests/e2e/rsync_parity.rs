//! Copies random trees with `rsync -rlpt` and with `packtrain cp -r`. The results must be equal,
//! apart from the differences that `docs/guide/reference/rsync-differences.md` lists.
//!
//! `PACKTRAIN_SEED` repeats a run and `PACKTRAIN_TREES` sets the number of trees. A failing case is
//! reduced to what the failure needs, and printed with its own seed.

mod case;
mod flags;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rig::{Rig, seed, skipped};
use case::{Case, build, without};

const TREES: u64 = 500;
const THREADS: u64 = 3;
/// Later than the modification times of all trees and earlier than the time of any test.
const BEGUN: i64 = 1_750_000_000;
/// Maximum number of runs for the reduction of a failing case.
const SHRINKING: u32 = 400;

#[test]
#[ignore = "runs rsync and takes a minute; `cargo xtask test` runs it"]
fn random_trees_end_as_rsync_leaves_them() {
    if Command::new("rsync").arg("--version").output().is_err() {
        return skipped("no rsync");
    }
    let first = seed("random_trees_end_as_rsync_leaves_them");
    let trees = std::env::var("PACKTRAIN_TREES").ok().and_then(|n| n.parse().ok());
    let trees: u64 = trees.unwrap_or(TREES);
    let next = AtomicU64::new(0);
    let worker = || {
        let rig = Rig::local();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= trees {
                return;
            }
            let seed = first.wrapping_add(n);
            let case = Case::random(seed);
            let Err(why) = compare(&rig, &case) else { continue };
            next.store(trees, Ordering::Relaxed);
            let (case, why) = shrink(&rig, case, why);
            panic!("PACKTRAIN_SEED={seed} differs from rsync:\n{case}{why}");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(worker);
        }
    });
}

/// Removes from a failing case what the failure does not need.
fn shrink(rig: &Rig, mut case: Case, mut why: String) -> (Case, String) {
    let mut runs = SHRINKING;
    loop {
        let smaller = candidates(&case).into_iter().find_map(|candidate| {
            runs = runs.checked_sub(1)?;
            compare(rig, &candidate).err().map(|why| (candidate, why))
        });
        match smaller {
            Some(found) => (case, why) = found,
            None => return (case, why),
        }
    }
}

fn candidates(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let changed = |change: &dyn Fn(&mut Case)| {
        let mut smaller = case.clone();
        change(&mut smaller);
        smaller
    };
    if case.sources.len() > 1 {
        all.push(changed(&|c| drop(c.sources.pop())));
    }
    for at in 0..case.rules.len() {
        all.push(changed(&|c| drop(c.rules.remove(at))));
    }
    for (nth, source) in case.sources.iter().enumerate() {
        for at in 1..source.tree.len() {
            all.push(changed(&|c| c.sources[nth].tree = without(&source.tree, at)));
        }
    }
    for at in 1..case.target.len() {
        all.push(changed(&|c| c.target = without(&case.target, at)));
    }
    if case.listed.is_some() {
        all.push(changed(&|c| c.listed = None));
    }
    if case.delete {
        all.push(changed(&|c| c.delete = false));
    }
    if case.target_slash {
        all.push(changed(&|c| c.target_slash = false));
    }
    all
}

/// Runs both programs on the case; the error lists the differences.
fn compare(rig: &Rig, case: &Case) -> Result<(), String> {
    let dir = tempfile::Builder::new().prefix("tree-").tempdir_in(rig.path("")).expect("a folder");
    let dir = dir.path();
    for source in &case.sources {
        build(&source.tree, &dir.join(source.name));
    }
    for target in ["theirs", "ours"] {
        build(&case.target, &dir.join(target));
    }
    let mut rsync = Command::new("rsync");
    rsync.args(["-rlpt", "--modify-window=-1"]);
    arguments(&mut rsync, case, dir, "theirs");
    let theirs = rsync.output().expect("rsync");
    let mut command = rig.packtrain();
    command.args(["cp", "-r", "--history", "none"]);
    if case.delete {
        command.arg("--force-delete");
    }
    arguments(&mut command, case, dir, "ours");
    let ours = rig.run(&mut command);

    let said = || {
        let rsync = String::from_utf8_lossy(&theirs.stderr).into_owned();
        format!(
            "rsync ends with {}\n{rsync}packtrain ends with {}\n{}",
            theirs.status, ours.code, ours.stderr
        )
    };
    let failed = !theirs.status.success();
    if failed != (ours.code != 0) {
        return Err(said());
    }
    let (mut theirs, mut ours) = (survey(&dir.join("theirs")), survey(&dir.join("ours")));
    if failed && case.delete {
        // `cp` deletes nothing after a failure, rsync goes on after those of the receiving end.
        let source = wanted(case);
        // A name that a filter excludes at the source does not come from the source, so what rsync
        // deleted under that name is not compared either.
        let before = |path: &Vec<u8>| case.target.iter().any(|node| node.path == *path);
        let deleted = |path: &Vec<u8>| before(path) && !theirs.contains_key(path);
        ours.retain(|path, _| source.contains(path) && !deleted(path));
        theirs.retain(|path, _| source.contains(path));
    }
    if case.listed.is_some() || case.sources.iter().all(|source| !source.slash) {
        // The lock file is created and removed in this directory.
        for survey in [&mut theirs, &mut ours] {
            if let Some(root) = survey.get_mut(&b""[..]).filter(|root| root.starts_with("dir ")) {
                root.truncate(root.rfind(' ').unwrap_or_default());
            }
        }
    }
    let differ = differences(&theirs, &ours);
    if differ.is_empty() { Ok(()) } else { Err(format!("{}\n{}", differ.join("\n"), said())) }
}

fn arguments(command: &mut Command, case: &Case, dir: &Path, target: &str) {
    if case.delete {
        command.arg("--delete");
    }
    for (option, pattern) in &case.rules {
        let mut argument = OsString::from(option);
        argument.push("=");
        argument.push(OsStr::from_bytes(pattern));
        command.arg(argument);
    }
    if let Some(listed) = &case.listed {
        let file = dir.join("listed");
        let ended = |name: &Vec<u8>| [&name[..], b"\0"].concat();
        fs::write(&file, listed.iter().flat_map(ended).collect::<Vec<u8>>()).expect("a list");
        command.arg("--from0").arg("--files-from").arg(file);
    }
    let slashed = |name: &str, slash: bool| {
        let mut path = dir.join(name).into_os_string();
        path.push(if slash { "/" } else { "" });
        path
    };
    for source in &case.sources {
        command.arg(slashed(source.name, source.slash));
    }
    command.arg(slashed(target, case.target_slash));
}

/// Every path at the destination that the sources contain.
fn wanted(case: &Case) -> std::collections::BTreeSet<Vec<u8>> {
    let mut all = std::collections::BTreeSet::new();
    for source in &case.sources {
        let contents = source.slash || case.listed.is_some();
        let base: &[u8] = if contents { b"" } else { source.name.as_bytes() };
        for node in &source.tree {
            let parts: Vec<&[u8]> =
                [base, &node.path].into_iter().filter(|p| !p.is_empty()).collect();
            all.insert(parts.join(&b'/'));
        }
    }
    all
}

/// Names, kinds, modes, times, links and contents.
fn survey(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(rel) = waiting.pop() {
        let at = if rel.as_os_str().is_empty() { root.to_path_buf() } else { root.join(&rel) };
        let Ok(meta) = fs::symlink_metadata(&at) else { continue };
        let kind = meta.file_type();
        let mode = meta.mode() & 0o777;
        let sticky = if kind.is_dir() { meta.mode() & 0o1000 } else { 0 };
        let what = if kind.is_dir() {
            for item in fs::read_dir(&at).expect("a listing") {
                waiting.push(rel.join(item.expect("a name").file_name()));
            }
            format!("dir {:o}", mode | sticky)
        } else if kind.is_symlink() {
            let target = fs::read_link(&at).expect("a link").into_os_string().into_vec();
            format!("link to '{}'", target.escape_ascii())
        } else if kind.is_fifo() {
            "pipe".to_owned()
        } else {
            let bytes = fs::read(&at).expect("contents");
            let sum: u64 = bytes.iter().fold(bytes.len() as u64, |sum, b| {
                (sum ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
            });
            format!("file {mode:o} of {} ({sum:016x})", bytes.len())
        };
        let time = match meta.mtime() {
            // The time is from before the run, or set by it; other times depend on the moment of
            // the run.
            secs @ ..BEGUN => format!("{secs}.{:09}", meta.mtime_nsec()),
            _ => "now".to_owned(),
        };
        found.insert(rel.into_os_string().into_vec(), format!("{what} {time}"));
    }
    found
}

fn differences(
    theirs: &BTreeMap<Vec<u8>, String>,
    ours: &BTreeMap<Vec<u8>, String>,
) -> Vec<String> {
    let mut all: Vec<&Vec<u8>> = theirs.keys().chain(ours.keys()).collect();
    all.sort();
    all.dedup();
    let none = "nothing".to_owned();
    all.into_iter()
        .filter_map(|path| {
            let (theirs, ours) =
                (theirs.get(path).unwrap_or(&none), ours.get(path).unwrap_or(&none));
            let name = if path.is_empty() { &b"."[..] } else { path };
            (theirs != ours)
                .then(|| format!("'{}': rsync {theirs}, packtrain {ours}", name.escape_ascii()))
        })
        .collect()
}
