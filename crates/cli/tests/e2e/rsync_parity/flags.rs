//! Options that `cp` and rsync share, given to both in the same words: the results must be equal.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use super::{differences, survey};
use crate::rig::{Rig, skipped};

const SECONDS: u64 = 1_500_000_000;

fn file(path: &Path, bytes: &str, seconds: u64) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(path, bytes).expect("a file");
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    File::open(path).and_then(|file| file.set_modified(time)).expect("a time");
}

/// Gives directories a time that does not depend on when the test runs.
fn settle(dir: &Path) {
    let time = UNIX_EPOCH + Duration::from_secs(SECONDS);
    for item in fs::read_dir(dir).expect("a listing").flatten() {
        if item.file_type().is_ok_and(|kind| kind.is_dir()) {
            settle(&item.path());
        }
    }
    File::open(dir).and_then(|file| file.set_modified(time)).expect("a time");
}

/// The source: files of several sizes, modes and ages, links, and a script.
fn source(dir: &Path) {
    file(&dir.join("same"), "same", SECONDS);
    file(&dir.join("other time"), "four", SECONDS);
    file(&dir.join("other size"), "longer than before", SECONDS);
    file(&dir.join("newer there"), "older", SECONDS);
    file(&dir.join("new"), "new", SECONDS);
    file(&dir.join("empty"), "", SECONDS);
    file(&dir.join("sub/inner.o"), &"x".repeat(3000), SECONDS);
    file(&dir.join("sub/inner.c"), &"y".repeat(1024), SECONDS);
    file(&dir.join("new sub/deep"), &"z".repeat(2000), SECONDS);
    fs::set_permissions(dir.join("sub/inner.c"), Permissions::from_mode(0o640)).expect("a mode");
    fs::set_permissions(dir.join("new"), Permissions::from_mode(0o755)).expect("a mode");
    symlink("sub/inner.c", dir.join("link")).expect("a link");
    symlink("sub", dir.join("dir link")).expect("a link");
    settle(dir);
}

/// An older copy of it, with names of its own.
fn target(dir: &Path) {
    file(&dir.join("same"), "same", SECONDS);
    file(&dir.join("other time"), "FOUR", SECONDS - 100);
    file(&dir.join("other size"), "short", SECONDS - 100);
    file(&dir.join("newer there"), "newer", SECONDS + 100);
    file(&dir.join("sub/inner.o"), "x", SECONDS - 100);
    file(&dir.join("sub/extra"), "extra", SECONDS - 100);
    file(&dir.join("extra"), "extra", SECONDS - 100);
    symlink("elsewhere", dir.join("link")).expect("a link");
    settle(dir);
}

#[test]
fn options_of_the_same_name_do_what_rsync_does() {
    if Command::new("rsync").arg("--version").output().is_err() {
        return skipped("no rsync");
    }
    let rig = Rig::local();
    let patterns = rig.path("patterns");
    fs::write(&patterns, "# objects\n*.o\n\n+ /sub/\nnew*\n").expect("a file");
    let exclude_from = format!("--exclude-from={}", patterns.display());
    let include_from = format!("--include-from={}", patterns.display());
    let mut failed = Vec::new();
    for (nth, flags) in [
        &["-r", "-l", "-p", "-t"][..],
        &["-a"],
        &["-a", "--delete"],
        &["-a", "-u"],
        &["-a", "--ignore-existing"],
        &["-a", "--existing"],
        &["-a", "--existing", "--ignore-existing"],
        &["-a", "--size-only"],
        &["-a", "--max-size=1K"],
        &["-a", "--max-size=2KB", "--min-size=1K+1"],
        &["-a", "--min-size=1"],
        &["-a", "--max-size=1024", "--delete"],
        &["-rptL"],
        &["-rpt", "--copy-links", "--delete"],
        &["-ax"],
        &["-ab"],
        &["-ab", "--suffix=.old"],
        &["-ab", "--delete"],
        &["-ab", "--backup-dir=kept/here"],
        &["-ab", "--backup-dir=kept", "--suffix=.1"],
        &["-a", "--chmod=D750,F640"],
        &["-a", "--chmod=go-rwx,F+X"],
        &["-a", "--chmod=a+rX,Dg+s,o="],
        &["-a", &exclude_from],
        &["-a", &include_from, "--exclude=*.c"],
        &["-a", "--exclude=*.c", &exclude_from, "--delete"],
        &["-an", "--delete"],
        &["-aW"],
        &["-a", "--remove-source-files"],
        &["-au", "--remove-source-files"],
        &["-a", "--remove-source-files", "--ignore-existing"],
        &["-a", "--remove-source-files", "--existing"],
        &["-a", "--remove-source-files", "--max-size=1K"],
        &["-a", "--remove-source-files", "--exclude=*.c"],
        &["-an", "--remove-source-files"],
    ]
    .into_iter()
    .enumerate()
    {
        let dir = rig.path(&format!("case-{nth}"));
        for side in ["theirs", "ours"] {
            source(&dir.join("src").join(side));
            target(&dir.join(side));
        }
        let from = |side| format!("{}/", dir.join("src").join(side).display());
        let mut rsync = Command::new("rsync");
        let rsync = rsync.args(flags).arg(from("theirs")).arg(dir.join("theirs")).output();
        let rsync = rsync.expect("rsync");
        assert!(rsync.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&rsync.stderr));
        let mut cp = rig.packtrain();
        cp.args(["cp", "--history", "none"]).args(flags).arg(from("ours")).arg(dir.join("ours"));
        rig.ok(&mut cp);
        let (mut theirs, mut ours) = (survey(&dir.join("theirs")), survey(&dir.join("ours")));
        if flags[0] == "-ab" && !flags.iter().any(|flag| flag.starts_with("--backup-dir")) {
            // rsync leaves the times of directories alone then.
            for what in theirs.values_mut().chain(ours.values_mut()) {
                if what.starts_with("dir ") {
                    what.truncate(what.rfind(' ').unwrap_or_default());
                }
            }
        }
        let mut differ = differences(&theirs, &ours);
        // What is left of the sources; the times of directories there are those of the removals.
        let names = |side| survey(&dir.join("src").join(side)).into_keys().collect::<Vec<_>>();
        if names("theirs") != names("ours") {
            differ.push(format!("rsync left {:?}, cp {:?}", names("theirs"), names("ours")));
        }
        if !differ.is_empty() {
            failed.push(format!("{flags:?}:\n  {}", differ.join("\n  ")));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
