//! Copies within one process: what goes on after a kill, and files that share blocks.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::faults::in_namespace;
use crate::kill::flip_byte;
use crate::rig::{Rig, is_root, send, skipped};
use crate::tree::{self, MIB};

/// The largest file in a folder, under whatever name.
fn largest(dir: &Path) -> PathBuf {
    let files = fs::read_dir(dir).expect("a folder").flatten();
    let largest = files.max_by_key(|entry| entry.metadata().map_or(0, |meta| meta.len()));
    largest.expect("a file").path()
}

#[test]
fn a_killed_copy_goes_on_where_it_was() {
    for options in [&["--rate", "150mbit"][..], &["--rate", "150mbit", "--inplace"]] {
        let rig = Rig::local();
        tree::file(&rig.path("big"), 64 * MIB + 12_345, 1);
        fs::create_dir(rig.path("dst")).expect("a folder");
        let copy = || {
            let mut command = rig.cp();
            command.args(options.iter().filter(|o| o.starts_with("--in")));
            command.arg(rig.path("big")).arg(rig.path("dst"));
            command
        };
        let mut running = rig.start(copy().args(options.iter().take(2)));
        // 18 MiB a second: the journal has all but what moved since its last sync.
        std::thread::sleep(Duration::from_millis(2500));
        assert!(!running.ended(), "{}", running.stderr());
        send("KILL", running.pid());
        assert_ne!(running.wait().code, 0);
        flip_byte(&largest(&rig.path("dst")));
        let ended = rig.ok(copy().arg("--json"));
        let same = fs::read(rig.path("big")).ok() == fs::read(rig.path("dst/big")).ok();
        assert!(same, "{options:?}: other bytes");
        let moved = ended.number("bytes_moved");
        assert!(moved <= 56 * MIB, "{options:?}: {moved} bytes moved again of {}", 64 * MIB);
        let done = ended.json_lines().pop().expect("a line");
        assert_eq!(done["transport"], "local", "{done}");
        assert_eq!(done["transports"]["local"].as_u64(), Some(moved), "{done}");
    }
}

#[test]
#[ignore = "needs root and a file system of its own; `cargo xtask test` runs it"]
fn files_share_blocks_where_the_file_system_can() {
    if !is_root() {
        return skipped("not root: no file system can be mounted");
    }
    let rig = Rig::local();
    // The last block is not whole.
    tree::file(&rig.path("big"), 100 * MIB + 777, 1);
    let script = "truncate -s 400m image && mkdir mnt && mkfs.xfs -q -m reflink=1 image || exit 99\n\
                  mount -o loop image mnt || exit 99\n\
                  free() { stat -f -c %a mnt; }\n\
                  \"$0\" cp big mnt/a && sync -f mnt && free >before\n\
                  \"$0\" cp mnt/a mnt/b; echo $? >code; sync -f mnt; free >after\n\
                  \"$0\" cp mnt/a from; echo $? >>code\n\
                  printf changed | dd of=mnt/b bs=1 seek=5000000 conv=notrunc status=none\n\
                  cmp big mnt/a && cmp big from && echo same >same\n";
    let Some(_) = in_namespace(&rig, script) else { return };
    let read = |name: &str| fs::read_to_string(rig.path(name)).unwrap_or_default();
    let blocks = |name: &str| read(name).trim().parse::<u64>().expect("a number of blocks");
    assert_eq!(read("code"), "0\n0\n");
    assert_eq!(read("same"), "same\n", "a source changed with its copy, or another copy is wrong");
    let taken = blocks("before").saturating_sub(blocks("after")) * 4096;
    assert!(taken < 10 * MIB, "the copy took {taken} bytes");
}
