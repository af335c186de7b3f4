//! Trees of files: unusual ones to copy, and the comparison of two trees.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// One mebibyte.
pub(crate) const MIB: u64 = 1 << 20;

/// A tree with entries that many copying programs get wrong.
pub(crate) fn odd(dir: &Path) {
    fs::create_dir_all(dir).expect("a folder");
    let names: [&[u8]; 8] = [
        b"plain",
        b"with space",
        b"-leading-dash",
        b"new\nline",
        b"not utf8 \xff\xfe\x80",
        b"quote'\"$(date)`",
        b".hidden",
        "ümläut 汉字".as_bytes(),
    ];
    for (index, name) in names.iter().enumerate() {
        let seed = index as u64;
        file(&dir.join(OsStr::from_bytes(name)), 1000 * seed * seed + 1, seed);
        let folder = dir.join(OsStr::from_bytes(&[b"dir ", *name].concat()));
        fs::create_dir(&folder).expect("a folder");
        file(&folder.join("inner"), 10 + seed, 100 + seed);
    }
    file(&dir.join("empty"), 0, 0);
    fs::create_dir(dir.join("empty dir")).expect("a folder");
    for (index, size) in [4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 9 * MIB + 12_345].iter().enumerate() {
        file(&dir.join(format!("chunks-{index}")), *size, 7 + *size);
    }
    file(&dir.join("n".repeat(255)), 77, 5);
    symlink("plain", dir.join("link")).expect("a link");
    symlink("nowhere/at all", dir.join("dangling")).expect("a link");
    symlink(OsStr::from_bytes(b"\xff"), dir.join("odd link")).expect("a link");
    sparse(&dir.join("sparse"), 64 * MIB);
    fs::set_permissions(dir.join("plain"), Permissions::from_mode(0o755)).expect("mode");
    fs::set_permissions(dir.join("empty"), Permissions::from_mode(0o600)).expect("mode");
    let locked = dir.join("read-only dir");
    fs::create_dir(&locked).expect("a folder");
    file(&locked.join("inside"), 5000, 9);
    fs::create_dir(locked.join("deeper")).expect("a folder");
    file(&locked.join("deeper/inside"), 1, 9);
    age(dir);
    fs::set_permissions(locked.join("deeper"), Permissions::from_mode(0o500)).expect("mode");
    fs::set_permissions(&locked, Permissions::from_mode(0o555)).expect("mode");
}

/// A file of `size` bytes that do not repeat.
pub(crate) fn file(path: &Path, size: u64, seed: u64) {
    let mut out = File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut left = size;
    let mut block = Vec::with_capacity(1 << 16);
    while left > 0 {
        block.clear();
        while block.len() < 1 << 16 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block.extend(state.to_le_bytes());
        }
        let now = left.min(block.len() as u64);
        out.write_all(&block[..usize::try_from(now).expect("small")]).expect("written");
        left -= now;
    }
}

/// A sparse file with a little data.
pub(crate) fn sparse(path: &Path, size: u64) {
    let mut out = File::create(path).expect("a file");
    out.set_len(size).expect("a length");
    for at in [0, size / 2 + 5, size - 3] {
        out.seek(SeekFrom::Start(at)).expect("a seek");
        out.write_all(b"xyz").expect("written");
    }
}

/// Sets old, odd times for everything in a tree, so that preserved times can be recognised.
fn age(dir: &Path) {
    let mut nanos = 0;
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            age(&entry.path());
        }
        if !kind.is_symlink() {
            nanos += 123_456_789;
            let time = UNIX_EPOCH + Duration::new(1_000_000_000 + nanos, 987_654_321);
            let file = File::open(entry.path()).expect("a file");
            file.set_modified(time).expect("a time");
        }
    }
}

/// Everything that two equal trees have in common, by path.
fn survey(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        let listing = fs::read_dir(root.join(&dir))
            .unwrap_or_else(|e| panic!("{}: {e}", root.join(&dir).display()));
        for entry in listing {
            let entry = entry.expect("an entry");
            let path = dir.join(entry.file_name());
            // A lock file may vanish between the listing and this call.
            let Ok(meta) = fs::symlink_metadata(entry.path()) else { continue };
            let mode = meta.mode() & 0o7777;
            let time = format!("{}.{:09}", meta.mtime(), meta.mtime_nsec());
            let text = if meta.is_dir() {
                open.push(path.clone());
                format!("dir {mode:o} {time}")
            } else if meta.is_symlink() {
                format!("link {:?}", fs::read_link(entry.path()).expect("a link"))
            } else {
                format!("file {mode:o} {time} {} {:016x}", meta.len(), hash(&entry.path()))
            };
            found.insert(path.into_os_string().into_vec(), text);
        }
    }
    found
}

/// Panics unless two trees are the same in names, kinds, modes, times, links and contents.
pub(crate) fn assert_same(source: &Path, target: &Path) {
    let mut differ = differences(source, target);
    // A server removes its lock shortly after its caller has ended.
    for _ in 0..50 {
        let lock =
            |line: &String| line.starts_with("too much: .packtrain-") && line.ends_with(".lock");
        if differ.is_empty() || !differ.iter().all(lock) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        differ = differences(source, target);
    }
    assert!(differ.is_empty(), "trees differ:\n{}", differ.join("\n"));
}

fn differences(source: &Path, target: &Path) -> Vec<String> {
    let (source, target) = (survey(source), survey(target));
    let mut differ = Vec::new();
    for (path, text) in &source {
        let name = String::from_utf8_lossy(path);
        match target.get(path) {
            None => differ.push(format!("missing: {name}")),
            Some(there) if there != text => differ.push(format!("{name}: {text} -> {there}")),
            Some(_) => {}
        }
    }
    for path in target.keys().filter(|path| !source.contains_key(*path)) {
        differ.push(format!("too much: {}", String::from_utf8_lossy(path)));
    }
    differ
}

/// Bytes on disk.
pub(crate) fn allocated(path: &Path) -> u64 {
    fs::metadata(path).expect("metadata").blocks() * 512
}

/// FNV-1a over words. It is not cryptographic; these tests only compare.
fn hash(path: &Path) -> u64 {
    let mut file = File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut block = vec![0; 1 << 16];
    let mut state = 0xcbf2_9ce4_8422_2325u64;
    loop {
        let mut filled = 0;
        while filled < block.len() {
            match file.read(&mut block[filled..]).expect("read") {
                0 => break,
                n => filled += n,
            }
        }
        for word in block[..filled].chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            state = (state ^ u64::from_le_bytes(bytes)).wrapping_mul(0x0100_0000_01b3);
            state ^= state >> 29;
        }
        if filled < block.len() {
            return state;
        }
    }
}
