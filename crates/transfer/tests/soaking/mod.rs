//! Source and sink of a mirror, the path between them, and the faults.

mod session;

use std::collections::BTreeMap;

use packtrain_object::{CHUNK, Entry, EntryKind, Mtime, RelPath};
use packtrain_units::{Duration, Rng, Time};

pub(crate) use session::Session;

/// Number of files in the tree.
const FILES: u32 = 1500;
/// One in this many files is large.
const LARGE: u32 = 30;
/// Duration of a tick.
const TICK: Duration = Duration::from_millis(250);
/// The modification time of the first version of a file, in seconds.
const FIRST_VERSION: i64 = 1_000_000;

/// Files at both ends, and statistics.
pub(crate) struct Mirror {
    pub(crate) rng: Rng,
    pub(crate) now: Time,
    /// The version of each file at the source.
    versions: Vec<u32>,
    pub(crate) disk: Disk,
    pub(crate) seen: Seen,
}

/// The sink's disk. Programs are killed but machines do not crash, so written data is kept.
#[derive(Default)]
pub(crate) struct Disk {
    /// The version of each file at its final name.
    named: BTreeMap<u32, u32>,
    /// The content of each chunk of each temporary.
    temporaries: BTreeMap<u32, BTreeMap<u64, u64>>,
    pub(crate) journal: Vec<u8>,
}

/// Counts of events, and the maximum number of items held in each hour.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) completed: u32,
    pub(crate) restarts: u32,
    pub(crate) outages: u32,
    pub(crate) sleeps: u32,
    pub(crate) garbled: u32,
    pub(crate) moved: u64,
    held: BTreeMap<u64, usize>,
}

impl Mirror {
    pub(crate) fn new(seed: u64) -> Self {
        let versions = vec![0; FILES as usize];
        let now = Time::from_nanos(1);
        Self { rng: Rng::new(seed), now, versions, disk: Disk::default(), seen: Seen::default() }
    }

    /// Mirrors for `span`.
    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let mut session = Session::new(self);
            while !session.is_over() && session.now() < end {
                session.tick(true);
            }
            if session.is_complete() {
                self.seen.completed += 1;
                self.change_some();
            }
        }
    }

    /// Makes one copy without faults.
    pub(crate) fn finish(&mut self) {
        let begun = self.now;
        let mut session = Session::new(self);
        while !session.is_over() {
            session.tick(false);
            let late = session.now().since(begun) > Duration::from_secs(24 * 3600);
            assert!(!late, "it never ends: {}", session.describe());
        }
        assert!(session.is_complete(), "{}", session.describe());
    }

    /// Users change files between copies.
    fn change_some(&mut self) {
        for n in 0..FILES as usize {
            if self.rng.chance(0.2) {
                self.versions[n] += 1;
            }
        }
    }

    /// The current version of a file at the source.
    pub(crate) fn file(&self, n: u32) -> Entry {
        let path = RelPath::new(format!("f{n:05}").into_bytes()).expect("a path");
        let version = self.versions[n as usize];
        let mtime = Mtime { secs: FIRST_VERSION + i64::from(version), nanos: 0 };
        Entry {
            path,
            kind: EntryKind::File { size: size(n) },
            mode: 0o644,
            mtime,
            uid: 0,
            gid: 0,
            extras: Default::default(),
        }
    }

    /// Records the number of items held now.
    pub(crate) fn note_held(&mut self, held: usize) {
        let hour = self.now.as_nanos() / 3_600_000_000_000;
        let most = self.seen.held.entry(hour).or_default();
        *most = (*most).max(held);
    }

    pub(crate) fn describe(&self) -> String {
        let Seen { completed, restarts, outages, sleeps, garbled, moved, held } = &self.seen;
        format!(
            "{completed} copies, {restarts} restarts, {outages} outages, {sleeps} sleeps, {garbled} \
             damaged pieces, {} GiB moved, held at most by the hour: {:?}",
            moved >> 30,
            held.values().collect::<Vec<_>>()
        )
    }

    /// Later hours must not hold more than the first ones.
    pub(crate) fn assert_nothing_grew(&self) {
        let held: Vec<usize> = self.seen.held.values().copied().collect();
        let first = held.iter().take(held.len().div_ceil(3)).copied().max().unwrap_or(0);
        let last = held.iter().rev().take(held.len() / 3).copied().max().unwrap_or(0);
        assert!(last <= first + first / 2 + 500, "{}", self.describe());
        // The entries of one tree at both ends, with room for the ranges under way.
        let bound = 6 * FILES as usize;
        assert!(held.iter().all(|&held| held < bound), "{}", self.describe());
    }

    pub(crate) fn assert_identical(&self) {
        for n in 0..FILES {
            assert_eq!(self.disk.named.get(&n), Some(&self.versions[n as usize]), "file {n}");
        }
        assert!(self.disk.temporaries.is_empty(), "{:?}", self.disk.temporaries.keys());
        assert!(self.disk.journal.is_empty(), "a journal of {} bytes", self.disk.journal.len());
    }

    /// The faults must have happened often enough.
    pub(crate) fn assert_eventful(&self, span: Duration) {
        let hours = (span.as_nanos() / 3_600_000_000_000) as u32;
        let Seen { completed, restarts, outages, sleeps, garbled, .. } = self.seen;
        let enough = completed >= hours / 3 && restarts >= hours && outages >= hours;
        assert!(enough && sleeps >= hours / 6 && garbled > 0, "{}", self.describe());
    }
}

impl Disk {
    pub(crate) fn version(&self, n: u32) -> Option<u32> {
        self.named.get(&n).copied()
    }

    pub(crate) fn has_temporary(&self, n: u32) -> bool {
        self.temporaries.contains_key(&n)
    }

    pub(crate) fn write(&mut self, n: u32, chunk: u64, content: u64) {
        self.temporaries.entry(n).or_default().insert(chunk, content);
    }

    pub(crate) fn read(&self, n: u32, chunk: u64) -> Option<u64> {
        self.temporaries.get(&n)?.get(&chunk).copied()
    }

    /// Renames a temporary. All its chunks must be of this version.
    pub(crate) fn commit(&mut self, n: u32, version: u32) {
        let chunks = self.temporaries.remove(&n).expect("a temporary to name");
        for chunk in 0..size(n).div_ceil(CHUNK.get()) {
            assert_eq!(chunks.get(&chunk), Some(&content(n, version)), "chunk {chunk} of file {n}");
        }
        self.named.insert(n, version);
    }

    pub(crate) fn discard(&mut self, n: u32) {
        self.temporaries.remove(&n);
    }
}

/// The size of a file, the same for all versions.
fn size(n: u32) -> u64 {
    let noise = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    match n % LARGE {
        0 => (8 << 20) + noise % (184 << 20),
        _ => 1 + noise % 60_000,
    }
}

/// The content of a version of a file.
pub(crate) fn content(n: u32, version: u32) -> u64 {
    1 + (u64::from(n) << 32 | u64::from(version))
}

/// The number and the version of a file.
pub(crate) fn named(entry: &Entry) -> (u32, u32) {
    let name = std::str::from_utf8(entry.path.as_bytes()).expect("a name of ours");
    let n = name.strip_prefix('f').and_then(|n| n.parse().ok()).expect("a number");
    (n, (entry.mtime.secs - FIRST_VERSION) as u32)
}
