//! Random trees at the source.

use packtrain_object::{CHUNK, Entry, EntryKind, Mtime, RelPath};
use packtrain_units::Rng;

/// One entry of the source and its content.
#[derive(Clone, Debug)]
pub struct SourceEntry {
    pub entry: Entry,
    pub content: u64,
    /// Whether its second chunk, if it has one, is a hole.
    pub sparse: bool,
}

/// A random tree with directories, links, and empty, small and large files.
pub fn random(rng: &mut Rng, entries: u64) -> Vec<SourceEntry> {
    let mut tree = vec![entry(rng, "", EntryKind::Directory)];
    let mut directory = String::new();
    for n in 0..entries {
        let name = format!("{directory}{n:03}");
        let kind = match rng.below(12) {
            0 => EntryKind::Directory,
            1 => EntryKind::Symlink { target: format!("to-{n}").into_bytes() },
            2 => EntryKind::File { size: 0 },
            3..=6 => EntryKind::File { size: 1 + rng.below(3000) },
            7 => EntryKind::File { size: CHUNK.get() - rng.below(3) },
            8 => EntryKind::File { size: 1 + rng.below(CHUNK.get()) },
            _ => EntryKind::File { size: CHUNK.get() + rng.below(6 * CHUNK.get()) },
        };
        if kind == EntryKind::Directory {
            directory = format!("{name}/");
        }
        tree.push(entry(rng, &name, kind));
    }
    tree
}

/// An entry with this path and kind.
pub fn entry(rng: &mut Rng, path: &str, kind: EntryKind) -> SourceEntry {
    let path = if path.is_empty() {
        RelPath::root()
    } else {
        RelPath::new(path.as_bytes().to_vec()).expect("a good path")
    };
    let mtime = Mtime { secs: 1_000_000 + rng.below(1 << 30) as i64, nanos: 5 };
    let mode = 0o600 + rng.below(0o100) as u32;
    SourceEntry {
        entry: Entry { path, kind, mode, mtime, uid: 0, gid: 0, extras: Default::default() },
        content: rng.next_u64(),
        sparse: rng.chance(0.2),
    }
}
