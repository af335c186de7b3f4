//! Random trees at the source.

use packtrain_object::{CHUNK, Entry, EntryId, EntryKind, HardLink, Mtime, RelPath};
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

/// Gives some of the files further names, beside them and at the end of the tree.
pub fn with_links(rng: &mut Rng, tree: Vec<SourceEntry>) -> Vec<SourceEntry> {
    let mut linked: Vec<SourceEntry> = Vec::new();
    let mut late = Vec::new();
    for source in tree {
        let at = linked.len();
        let is_file = matches!(source.entry.kind, EntryKind::File { .. });
        linked.push(source.clone());
        if !is_file || rng.chance(0.4) {
            continue;
        }
        let named = |suffix: &str| {
            let mut further = source.clone();
            let path = [source.entry.path.as_bytes(), suffix.as_bytes()].concat();
            further.entry.path = RelPath::new(path).expect("a good path");
            further.entry.extras.hard_link = HardLink::To(EntryId(at as u32));
            further
        };
        let beside = rng.below(3);
        linked.extend((0..beside).map(|n| named(&format!("-{n}"))));
        let behind = rng.below(2);
        late.extend((0..behind).map(|n| named(&format!("-late-{n}"))));
        // Some names of the file may lie outside of the tree.
        let further = (beside + behind + rng.below(2)) as u32;
        if further > 0 {
            linked[at].entry.extras.hard_link = HardLink::First { further };
        }
    }
    linked.extend(late);
    linked
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
