//! The sink's disk, and its state after a crash.

use std::collections::BTreeMap;
use std::ops::Range;

use packtrain_object::{CHUNK, Digest, Entry, EntryKind, Piece, RelPath};
use packtrain_transfer::{Found, FoundKind, TargetState};
use packtrain_units::{Offset, RangeSet, Rng};

use super::tree::SourceEntry;
use super::{chunk_contents, digest, root};

/// The content of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Directory {
        entry: Option<Entry>,
    },
    Symlink(Vec<u8>),
    /// A file and the numbers of its chunks.
    File {
        contents: Vec<u64>,
        size: u64,
        entry: Entry,
        /// Names with the same number are names of one file.
        inode: u64,
    },
}

/// A chunk of a temporary: the parts written since its content last changed.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Chunk {
    pub content: u64,
    pub written: RangeSet,
}

/// A temporary.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Temporary {
    pub size: u64,
    pub chunks: BTreeMap<u64, Chunk>,
}

/// One path. A rename changes its target and its temporary together.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Place {
    pub target: Option<Node>,
    pub temporary: Option<Temporary>,
}

#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub places: BTreeMap<Vec<u8>, Place>,
    stable: BTreeMap<Vec<u8>, Place>,
    pub journal: Vec<u8>,
    journal_stable: usize,
    last_inode: u64,
    /// Snapshots that become stable when their sync is answered.
    syncing: BTreeMap<u64, BTreeMap<Vec<u8>, Temporary>>,
    naming: BTreeMap<u64, (BTreeMap<Vec<u8>, Place>, usize)>,
    /// Whether this run made a name since the last sync of names.
    pub made: bool,
}

impl Disk {
    pub fn place(&mut self, entry: &Entry) -> &mut Place {
        self.places.entry(entry.path.as_bytes().to_vec()).or_default()
    }

    pub fn examine(&self, entry: &Entry) -> TargetState {
        let Some(place) = self.places.get(entry.path.as_bytes()) else {
            return TargetState { target: None, temporary: None };
        };
        let target = place.target.as_ref().map(|node| match node {
            Node::Directory { entry: meta } => {
                found(FoundKind::Directory, 0, meta.as_ref(), false, entry)
            }
            Node::Symlink(target) => {
                let same = matches!(&entry.kind, EntryKind::Symlink { target: t } if t == target);
                found(FoundKind::Symlink, 0, None, same, entry)
            }
            Node::File { size, entry: meta, .. } => {
                found(FoundKind::File, *size, Some(meta), false, entry)
            }
        });
        TargetState { target, temporary: place.temporary.as_ref().map(|t| t.size) }
    }

    pub fn write(&mut self, entry: &Entry, piece: &Piece, range: Range<Offset>, content: u64) {
        let size = entry.size().unwrap_or_default();
        let temporary = self.temporary(entry, size);
        let chunk = temporary.chunks.entry(piece.file_offset / CHUNK.get()).or_default();
        if chunk.content != content {
            *chunk = Chunk { content, written: RangeSet::new() };
        }
        let at = |offset: Offset| Offset(offset.0 - piece.range.start.0);
        chunk.written.insert(at(range.start)..at(range.end));
    }

    pub fn temporary(&mut self, entry: &Entry, size: u64) -> &mut Temporary {
        let place = self.place(entry);
        let temporary = place.temporary.get_or_insert_with(Temporary::default);
        temporary.size = size;
        temporary
    }

    /// The digest of a piece of a temporary.
    pub fn hash(&self, entry: &Entry, piece: &Piece) -> Option<Digest> {
        let temporary = self.places.get(entry.path.as_bytes())?.temporary.as_ref()?;
        let chunk = temporary.chunks.get(&(piece.file_offset / CHUNK.get()));
        let len = piece.range.end.0 - piece.range.start.0;
        let whole = |c: &&Chunk| c.written.contains_range(&(Offset(0)..Offset(len)));
        let content = chunk.filter(whole).map_or(0, |c| c.content);
        Some(digest(content, piece.file_offset, len))
    }

    pub fn target_root(&self, entry: &Entry) -> Option<Digest> {
        match self.places.get(entry.path.as_bytes())?.target.as_ref()? {
            Node::File { contents, size, .. } => Some(root(contents, *size)),
            _ => None,
        }
    }

    /// The number of the chunk of an old version that has this piece; none if that is too short.
    pub fn old(&self, entry: &Entry, piece: &Piece) -> Option<u64> {
        let end = piece.file_offset + (piece.range.end.0 - piece.range.start.0);
        match self.places.get(entry.path.as_bytes())?.target.as_ref()? {
            Node::File { contents, size, .. } if *size >= end => {
                contents.get((piece.file_offset / CHUNK.get()) as usize).copied()
            }
            _ => None,
        }
    }

    /// Renames a temporary to its final name.
    pub fn commit(&mut self, entry: &Entry) {
        if let EntryKind::Symlink { target } = &entry.kind {
            let place = self.place(entry);
            assert!(matches!(&place.target, Some(Node::Symlink(made)) if made == target));
            return;
        }
        self.made = true;
        let size = entry.size().expect("only files and links are committed");
        self.last_inode += 1;
        let inode = self.last_inode;
        let place = self.place(entry);
        let temporary = place.temporary.take().expect("a temporary to commit");
        let contents = (0..size.div_ceil(CHUNK.get()))
            .map(|index| {
                let len = CHUNK.get().min(size - index * CHUNK.get());
                let chunk = temporary.chunks.get(&index);
                let whole = |c: &&Chunk| c.written.contains_range(&(Offset(0)..Offset(len)));
                chunk.filter(whole).map_or(0, |c| c.content)
            })
            .collect();
        place.target = Some(Node::File { contents, size, entry: entry.clone(), inode });
    }

    /// Sets the metadata of a file, under all its names.
    pub fn settle_file(&mut self, file: u64, entry: &Entry) {
        for place in self.places.values_mut() {
            if let Some(Node::File { inode, entry: meta, .. }) = &mut place.target
                && *inode == file
            {
                *meta = entry.clone();
            }
        }
    }

    /// Whether this file or link survives a power failure under its name.
    pub fn is_stable(&self, source: &SourceEntry) -> bool {
        let place = self.stable.get(source.entry.path.as_bytes());
        match (&source.entry.kind, place.and_then(|place| place.target.as_ref())) {
            (EntryKind::Symlink { target }, Some(Node::Symlink(found))) => target == found,
            (EntryKind::File { size }, Some(Node::File { contents, size: found, .. })) => {
                size == found && *contents == chunk_contents(source.content, *size)
            }
            _ => false,
        }
    }

    pub fn begin_sync(&mut self, token: u64) {
        let temporaries = self
            .places
            .iter()
            .filter_map(|(path, place)| Some((path.clone(), place.temporary.clone()?)))
            .collect();
        self.syncing.insert(token, temporaries);
    }

    pub fn synced(&mut self, token: u64) {
        for (path, temporary) in self.syncing.remove(&token).expect("a sync") {
            self.stable.entry(path).or_default().temporary = Some(temporary);
        }
    }

    /// Like the product's: names are synced if this run made any since the last time, or if all are
    /// asked for.
    pub fn begin_journal_sync(&mut self, token: u64, names: bool) {
        let made = std::mem::take(&mut self.made);
        let places = if names || made { self.places.clone() } else { BTreeMap::new() };
        self.naming.insert(token, (places, self.journal.len()));
    }

    pub fn journal_synced(&mut self, token: u64) {
        let (places, len) = self.naming.remove(&token).expect("a journal sync");
        for (path, place) in places {
            let stable = self.stable.entry(path).or_default();
            if stable.target != place.target {
                stable.target = place.target;
                if place.temporary.is_none() {
                    stable.temporary = None;
                }
            }
        }
        self.journal_stable = self.journal_stable.max(len.min(self.journal.len()));
    }

    pub fn rewrite_journal(&mut self, bytes: Vec<u8>) {
        self.journal_stable = bytes.len();
        self.journal = bytes;
        for (_, len) in self.naming.values_mut() {
            *len = 0;
        }
    }

    /// An earlier run began these files.
    pub fn abandon(&mut self, paths: &[RelPath]) {
        for path in paths {
            if let Some(place) = self.places.get_mut(path.as_bytes()) {
                place.temporary = None;
            }
        }
    }

    pub fn remove_journal(&mut self) {
        self.journal.clear();
        self.journal_stable = 0;
    }

    /// The process was killed: written data stays in the page cache.
    pub fn killed(&mut self) {
        self.syncing.clear();
        self.naming.clear();
    }

    /// The power failed: unsynced data is randomly kept, lost or garbled.
    pub fn power_failed(&mut self, rng: &mut Rng) {
        self.killed();
        let mut places = BTreeMap::new();
        for (path, place) in &self.places {
            let stable = self.stable.get(path).cloned().unwrap_or_default();
            places.insert(path.clone(), survive(place, &stable, rng));
        }
        self.places = places.clone();
        self.stable = places;
        let fresh = self.journal.len() - self.journal_stable;
        self.journal.truncate(self.journal_stable + rng.below(fresh as u64 + 1) as usize);
        let garbage = if self.journal.is_empty() { 0 } else { rng.below(20) };
        for _ in 0..garbage {
            self.journal.push(rng.next_u64() as u8);
        }
        self.journal_stable = self.journal.len();
    }

    /// Flips a byte in a random chunk of a temporary. Returns the chunk.
    pub fn flip(&mut self, rng: &mut Rng) -> Option<(Vec<u8>, u64)> {
        let mut all: Vec<(Vec<u8>, u64)> = Vec::new();
        for (path, place) in &self.places {
            let chunks = place.temporary.iter().flat_map(|t| t.chunks.keys());
            all.extend(chunks.map(|&index| (path.clone(), index)));
        }
        let at = rng.below(all.len() as u64) as usize;
        let (path, index) = all.get(at)?.clone();
        for places in [&mut self.places, &mut self.stable] {
            let temporary = places.get_mut(&path).and_then(|p| p.temporary.as_mut());
            if let Some(chunk) = temporary.and_then(|t| t.chunks.get_mut(&index)) {
                chunk.content ^= 1;
            }
        }
        Some((path, index))
    }
}

fn found(
    kind: FoundKind,
    size: u64,
    entry: Option<&Entry>,
    same_link: bool,
    wanted: &Entry,
) -> Found {
    let attributes = entry.and_then(|entry| entry.extras.attributes.as_ref());
    let has = |wanted| attributes == Some(wanted);
    let same_attributes = wanted.extras.attributes.as_ref().is_none_or(has);
    let mtime = entry.map_or(packtrain_object::Mtime { secs: 0, nanos: 0 }, |e| e.mtime);
    Found {
        kind,
        size,
        mtime,
        mode: entry.map_or(0, |e| e.mode),
        same_link,
        same_attributes,
        makes_way: false,
    }
}

fn survive(place: &Place, stable: &Place, rng: &mut Rng) -> Place {
    let renamed = place.target != stable.target;
    if renamed && rng.chance(0.5) || matches!(place.target, Some(Node::Directory { .. })) {
        return place.clone();
    }
    let now = place.temporary.clone().unwrap_or_default();
    let temporary = match &stable.temporary {
        Some(old) => Some(mix(&now, old, renamed, rng)),
        None if place.temporary.is_none() || rng.chance(0.3) => None,
        None => Some(mix(&now, &Temporary { size: now.size, ..Default::default() }, false, rng)),
    };
    // After a durable rename the temporary no longer exists.
    let temporary = if !renamed && place.temporary.is_none() { None } else { temporary };
    Place { target: stable.target.clone(), temporary }
}

fn mix(now: &Temporary, old: &Temporary, renamed: bool, rng: &mut Rng) -> Temporary {
    if renamed && now.chunks.is_empty() {
        return old.clone();
    }
    let mut mixed = old.clone();
    mixed.size = now.size.max(old.size);
    for (index, chunk) in &now.chunks {
        if old.chunks.get(index) == Some(chunk) {
            continue;
        }
        match rng.below(3) {
            0 => {}
            1 => {
                mixed.chunks.insert(*index, chunk.clone());
            }
            _ => {
                let torn = Chunk { content: rng.next_u64(), written: chunk.written.clone() };
                mixed.chunks.insert(*index, torn);
            }
        }
    }
    mixed
}
