//! Files with an older version at the target: only changed pieces of 4 MiB travel.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use crate::rig::{Ended, Rig};
use crate::server::{serve, ticket};
use crate::tree::{self, MIB};

const PIECE: u64 = 4 * MIB;

/// Overwrites a byte and gives the file another time, also if the clock is coarse.
fn change(path: &Path, at: u64) {
    let file = File::options().write(true).open(path).expect("a file");
    file.write_all_at(b"\xa5", at).expect("written");
    let modified = file.metadata().expect("its state").modified().expect("a time");
    file.set_modified(modified + std::time::Duration::from_secs(2)).expect("a new time");
}

struct Place {
    rig: Rig,
    _server: crate::rig::Running,
    place: String,
}

impl Place {
    fn new() -> Self {
        let rig = Rig::local();
        let (server, port) = serve(&rig, &[]);
        Self { rig, _server: server, place: format!("pt://127.0.0.1:{port}") }
    }

    /// A copy with `--json` to or from the server. The target has the content of `from` then.
    fn cp(&self, more: &[&str], from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Ended {
        let mut command = self.rig.cp();
        command.args(["--ticket", &ticket(&self.rig), "--json"]).args(more);
        self.rig.ok(command.arg(from).arg(to))
    }

    fn put(&self, more: &[&str]) -> [u64; 2] {
        let ended = self.cp(more, self.rig.path("f"), format!("{}/f", self.place));
        assert_equal(&self.rig.path("f"), &self.rig.path("root/f"));
        moved(&ended)
    }
}

fn assert_equal(one: &Path, other: &Path) {
    assert!(fs::read(one).expect("a file") == fs::read(other).expect("a file"), "{one:?}");
    let time = |path| fs::metadata(path).expect("a file").mtime();
    assert_eq!(time(one), time(other));
}

/// Bytes that were moved, and bytes that were the same.
fn moved(ended: &Ended) -> [u64; 2] {
    ["bytes_moved", "bytes_same"].map(|name| ended.number(name))
}

#[test]
fn only_changed_pieces_go_to_a_server() {
    let here = Place::new();
    let file = here.rig.path("f");
    let size = 3 * PIECE + 5;
    tree::file(&file, size, 1);
    assert_eq!(here.put(&[]), [size, 0]);
    change(&file, PIECE + 7);
    // The short piece at the end always travels.
    assert_eq!(here.put(&[]), [PIECE + 5, 2 * PIECE]);
    change(&file, size - 1);
    assert_eq!(here.put(&["--inplace"]), [5, 3 * PIECE]);
    // A new time, and the same content.
    change(&file, size - 1);
    assert_eq!(here.put(&[]), [5, 3 * PIECE]);
    // It grows: the old last piece was shorter.
    let more = vec![7; PIECE as usize];
    File::options()
        .write(true)
        .open(&file)
        .expect("a file")
        .write_all_at(&more, size)
        .expect("grown");
    change(&file, size + PIECE - 1);
    assert_eq!(here.put(&[]), [PIECE + 5, 3 * PIECE]);
    // It shrinks.
    File::options().write(true).open(&file).expect("a file").set_len(2 * PIECE + 9).expect("cut");
    change(&file, 0);
    assert_eq!(here.put(&["--inplace"]), [PIECE + 9, PIECE]);
    change(&file, PIECE);
    assert_eq!(here.put(&["-W"]), [2 * PIECE + 9, 0]);
    // The content decides, whatever the time says.
    change(&file, 3);
    let time = fs::metadata(&file).expect("a file").modified().expect("a time");
    let there = File::options().write(true).open(here.rig.path("root/f")).expect("a file");
    there.set_modified(time).expect("a new time");
    assert_eq!(here.put(&["--checksum"]), [PIECE + 9, PIECE]);
}

#[test]
fn only_changed_pieces_come_from_a_server() {
    let here = Place::new();
    let (there, file) = (here.rig.path("root/f"), here.rig.path("back"));
    tree::file(&there, 2 * PIECE + 5, 1);
    let get = |more: &[&str]| {
        let ended = here.cp(more, format!("{}/f", here.place), &file);
        assert_equal(&there, &file);
        moved(&ended)
    };
    assert_eq!(get(&[]), [2 * PIECE + 5, 0]);
    change(&there, 0);
    let mut command = here.rig.cp();
    command
        .args(["-v", "--ticket", &ticket(&here.rig)])
        .arg(format!("{}/f", here.place))
        .arg(&file);
    let said = here.rig.ok(&mut command).stderr;
    assert!(said.contains("unchanged pieces not sent: 4.0 MiB"), "{said}");
    assert_equal(&there, &file);
    change(&there, 0);
    assert_eq!(get(&["--whole-file"]), [2 * PIECE + 5, 0]);
    // A backup keeps the old version.
    change(&there, PIECE);
    let old = fs::read(&file).expect("a file");
    change(&there, PIECE + 1);
    assert_eq!(get(&["--backup"]), [PIECE + 5, PIECE]);
    assert!(fs::read(here.rig.path("back~")).expect("a backup") == old);
}

#[test]
fn what_is_no_file_of_this_user_is_not_compared() {
    let here = Place::new();
    let file = here.rig.path("f");
    tree::file(&file, 2 * PIECE, 1);
    assert_eq!(here.put(&[]), [2 * PIECE, 0]);
    // A link in its place leads to the same content, and is replaced.
    let (there, aside) = (here.rig.path("root/f"), here.rig.path("root/aside"));
    fs::rename(&there, &aside).expect("moved");
    symlink("aside", &there).expect("a link");
    assert_eq!(here.put(&[]), [2 * PIECE, 0]);
    assert!(fs::symlink_metadata(&there).expect("there").is_file());
    // Nor is it worth it within one machine.
    change(&file, 1);
    let ended = here.rig.ok(here.rig.cp().arg("--json").arg(&file).arg(&there));
    assert_eq!(moved(&ended), [2 * PIECE, 0]);
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn between_two_other_places_only_changed_pieces_travel() {
    let Some(rig) = Rig::ssh() else { return };
    let (from, to) = (rig.path("f"), rig.path("there"));
    tree::file(&from, 2 * PIECE + 5, 1);
    let copy = || {
        let ended = rig.ok(rig.cp().arg("--json").arg(rig.far("f")).arg(rig.far("there")));
        assert_equal(&from, &to);
        ended.number("bytes_moved")
    };
    assert_eq!(copy(), 2 * PIECE + 5);
    change(&from, PIECE);
    assert_eq!(copy(), PIECE + 5);
}
