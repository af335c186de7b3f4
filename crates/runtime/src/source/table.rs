//! The locations of the entries' data: files of the source, and standard input.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use packtrain_disk::{Kind, ReadError, Root, SmallSource, SourceFile, Trouble};
use packtrain_object::{CHUNK, ChunkIndex, Digest, Entry, EntryId, Mtime, Piece, RelPath, digest};
use packtrain_transfer::message::PieceDigest;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, Offset};

use super::SourceEvent;
use crate::assembly::SMALL_FILE_BYTES;
use crate::meters::Meters;
use crate::pack::Unpacked;
use crate::reader::{PieceSource, ReadEvent, Reader, part_of};
use crate::sink::hash_file;
use packtrain_service::executor::spawn;
use packtrain_service::paths::show;

/// Files kept open between reads.
const OPEN_FILES: usize = 16;

/// The location of each entry at the source, in manifest order.
#[derive(Default)]
pub(crate) struct Table {
    state: Mutex<State>,
    hasher: Hasher,
}

#[derive(Default)]
struct State {
    roots: Vec<Arc<Root>>,
    /// The entry of the first place.
    first: u32,
    places: VecDeque<Option<Place>>,
}

#[derive(Clone)]
struct Place {
    root: u32,
    path: RelPath,
    size: u64,
    mtime: Mtime,
    /// Device and inode at the walk.
    identity: (u64, u64),
}

impl Table {
    pub(super) fn set_roots(&self, roots: Vec<Arc<Root>>) {
        self.state.lock().roots = roots;
    }

    pub(super) fn push(&self, root: usize, path: RelPath, entry: &Entry, identity: (u64, u64)) {
        let (size, mtime) = (entry.size().unwrap_or(0), entry.mtime);
        let place = Place { root: root as u32, path, size, mtime, identity };
        self.state.lock().places.push_back(Some(place));
    }

    pub(super) fn push_nothing(&self) {
        self.state.lock().places.push_back(None);
    }

    /// Removes the oldest entries while `done` returns true.
    pub(super) fn forget_while(&self, done: impl Fn(EntryId) -> bool) {
        let mut state = self.state.lock();
        while !state.places.is_empty() && done(EntryId(state.first)) {
            state.places.pop_front();
            state.first += 1;
        }
    }

    fn find(&self, id: EntryId) -> Option<(Arc<Root>, Place)> {
        let state = self.state.lock();
        let index = id.0.checked_sub(state.first)? as usize;
        let place = state.places.get(index)?.clone()?;
        let root = Arc::clone(state.roots.get(place.root as usize)?);
        Some((root, place))
    }

    /// Opens the file of an entry and checks that it matches the manifest.
    pub(super) fn open(&self, id: EntryId) -> Result<SourceFile, Failure> {
        let gone = || Failure::new(FailureKind::Fatal, "an entry that is no longer known");
        let (root, place) = self.find(id).ok_or_else(gone)?;
        let path = show(place.path.as_bytes());
        let file = SourceFile::open(&root, &place.path).map_err(|e| failed(&path, &e))?;
        if file.matches(place.size, place.mtime) { Ok(file) } else { Err(changed(&path)) }
    }

    /// Opens the file of an entry that is read as a whole, and gives its time in the manifest.
    fn open_small(&self, id: EntryId) -> Result<(SmallSource, Mtime), Failure> {
        let gone = || Failure::new(FailureKind::Fatal, "an entry that is no longer known");
        let (root, place) = self.find(id).ok_or_else(gone)?;
        let opened = SmallSource::open(&root, &place.path);
        let opened = opened.map_err(|e| failed(&show(place.path.as_bytes()), &e))?;
        Ok((opened, place.mtime))
    }

    fn name(&self, id: EntryId) -> String {
        self.find(id).map_or_else(String::new, |(_, place)| show(place.path.as_bytes()))
    }

    /// The root digest of a file; none if it cannot be read or changes meanwhile.
    pub(super) fn root_of(&self, id: EntryId) -> Option<Digest> {
        let file = self.open(id).ok()?;
        let digest = hash_file(file.file())?;
        file.check_unchanged().ok()?;
        Some(digest)
    }

    /// The digest of a piece of a large file; none if it cannot be read or changes meanwhile.
    pub(super) fn digest_of(&self, piece: &Piece, meters: &Meters) -> Option<Digest> {
        let file = self.open(piece.entry).ok()?;
        let size = piece.size().get();
        let mut bytes = vec![0; size as usize];
        let read = || file.read_exact_at(piece.file_offset, &mut bytes);
        meters.data.run(size, read).ok()?;
        file.check_unchanged().ok()?;
        let digest = || digest::piece(piece.file_offset, piece.whole, &bytes);
        Some(meters.hash.run(size, digest))
    }

    /// Removes the file or link of an entry, if it is still the one that the walk found.
    pub(super) fn remove(&self, id: EntryId) -> Result<(), Failure> {
        let gone = || Failure::new(FailureKind::Fatal, "an entry that is no longer known");
        let (root, place) = self.find(id).ok_or_else(gone)?;
        let path = show(place.path.as_bytes());
        let kept = |why: &str| format!("{path}: was copied, and not removed: {why}");
        let unread = |e: &std::io::Error| {
            Failure::new(FailureKind::Unreadable, kept(packtrain_disk::classify(e).sentence()))
        };
        let stat = match root.stat(&place.path) {
            Ok(Some(stat)) => stat,
            // Somebody else removed it.
            Ok(None) => return Ok(()),
            Err(e) => return Err(unread(&e)),
        };
        let is_same = match stat.kind {
            Kind::File => stat.size == place.size,
            Kind::Symlink => true,
            Kind::Directory | Kind::Special => false,
        };
        if !is_same || (stat.dev, stat.ino) != place.identity || stat.mtime != place.mtime {
            let text = kept("it changed since it was read, or is the target itself");
            return Err(Failure::new(FailureKind::Changed, text));
        }
        if !root.has_stable_identities(&place.path).map_err(|e| unread(&e))? {
            let text = kept("on this file system it cannot be told from its own copy");
            return Err(Failure::new(FailureKind::Unreadable, text));
        }
        match root.remove(&place.path) {
            Err(e) if packtrain_disk::classify(&e) != Trouble::NotFound => Err(unread(&e)),
            _ => Ok(()),
        }
    }

    pub(super) fn hasher(&self) -> &Hasher {
        &self.hasher
    }
}

fn failed(path: &str, error: &std::io::Error) -> Failure {
    match packtrain_disk::classify(error) {
        Trouble::NotFound => {
            Failure::new(FailureKind::Vanished, format!("{path}: vanished before it was read"))
        }
        Trouble::Denied => {
            Failure::new(FailureKind::Unreadable, format!("{path}: may not be read by this user"))
        }
        _ => Failure::new(FailureKind::Unreadable, format!("{path}: {error}")),
    }
}

fn changed(path: &str) -> Failure {
    let text = format!("{path}: changed while it was read; run the same command again");
    Failure::new(FailureKind::Changed, text)
}

/// Open files, and the time of their last use.
#[derive(Default)]
struct OpenFiles {
    files: HashMap<EntryId, (Arc<SourceFile>, u64)>,
    clock: u64,
}

/// Reads pieces of files.
pub(super) struct Files {
    table: Arc<Table>,
    meters: Arc<Meters>,
    open: Mutex<OpenFiles>,
}

impl Files {
    pub(super) fn new(table: Arc<Table>, meters: Arc<Meters>) -> Self {
        Self { table, meters, open: Mutex::default() }
    }

    fn opened(&self, piece: &Piece) -> Result<SourceFile, Failure> {
        self.meters.names.run(0, || self.table.open(piece.entry))
    }

    fn file(&self, piece: &Piece) -> Result<Arc<SourceFile>, Failure> {
        // A file of one piece is read once, so it is not kept open.
        if piece.whole {
            return self.opened(piece).map(Arc::new);
        }
        let mut open = self.open.lock();
        open.clock += 1;
        let clock = open.clock;
        if let Some((file, used)) = open.files.get_mut(&piece.entry) {
            *used = clock;
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.opened(piece)?);
        if open.files.len() >= OPEN_FILES {
            let oldest = open.files.iter().min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                open.files.remove(&oldest);
            }
        }
        open.files.insert(piece.entry, (Arc::clone(&file), clock));
        Ok(file)
    }
}

impl Files {
    fn unread(&self, id: EntryId, error: &ReadError) -> Failure {
        let path = self.table.name(id);
        match error {
            ReadError::Changed => changed(&path),
            ReadError::Io(e) => failed(&path, e),
        }
    }
}

impl PieceSource for Files {
    fn read(&self, piece: &Piece, out: &mut [u8]) -> Result<Option<Arc<SourceFile>>, Failure> {
        let file = self.file(piece)?;
        let bytes = out.len() as u64;
        let read = || file.read_exact_at(piece.file_offset, out);
        let read = self.meters.data.run(bytes, read).and_then(|()| file.check_unchanged());
        // Small files are not shared: a chunk of them would keep thousands of files open.
        let shared = (bytes > SMALL_FILE_BYTES).then(|| Arc::clone(&file));
        read.map(|()| shared).map_err(|error| self.unread(piece.entry, &error))
    }

    fn read_small(&self, pieces: &[Piece], out: &mut [u8]) -> Vec<Result<(), Failure>> {
        let count = pieces.len() as u64;
        let open = || pieces.iter().map(|piece| self.table.open_small(piece.entry));
        let opened: Vec<_> = self.meters.names.run_many(count, 0, || open().collect());
        let bytes = pieces.iter().map(|piece| piece.size().get()).sum();
        self.meters.data.run_many(count, bytes, || {
            let read = |(piece, opened): (&Piece, Result<(SmallSource, Mtime), Failure>)| {
                let (file, mtime) = opened?;
                let read = file.read(mtime, part_of(pieces, piece, out));
                read.map_err(|error| self.unread(piece.entry, &error))
            };
            pieces.iter().zip(opened).map(read).collect()
        })
    }
}

/// Reads pieces of a session that depots store.
pub(super) struct KeptPieces(pub(super) Unpacked, pub(super) Arc<Meters>);

impl PieceSource for KeptPieces {
    fn read(&self, piece: &Piece, out: &mut [u8]) -> Result<Option<Arc<SourceFile>>, Failure> {
        let bytes = out.len() as u64;
        self.1.data.run(bytes, || self.0.read(piece, out)).map(|()| None)
    }
}

/// Whether standard input was read.
static STDIN_TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether this process has begun to read standard input: what was read cannot be read again.
pub fn stdin_is_taken() -> bool {
    STDIN_TAKEN.load(Ordering::Acquire)
}

/// Reads standard input to its end, in chunks.
pub(super) fn read_stream(id: EntryId, start: Offset, reader: &Reader, news: &Sender<SourceEvent>) {
    if STDIN_TAKEN.swap(true, Ordering::AcqRel) {
        let text = "standard input was read in part before, and cannot be read again";
        let failure = Failure::new(FailureKind::Unreadable, text);
        let _ = news.send(SourceEvent::Read(ReadEvent::Failed(id, failure)));
        return;
    }
    let mut input = std::io::stdin().lock();
    let mut size = 0u64;
    loop {
        let mut bytes = Vec::with_capacity(CHUNK.get() as usize);
        if let Err(e) = (&mut input).take(CHUNK.get()).read_to_end(&mut bytes) {
            let failure = Failure::new(FailureKind::Unreadable, format!("standard input: {e}"));
            let _ = news.send(SourceEvent::Read(ReadEvent::Failed(id, failure)));
            return;
        }
        let len = bytes.len() as u64;
        if len > 0 {
            let range = start + ByteCount(size)..start + ByteCount(size + len);
            let chunk = ChunkIndex::of(range.start);
            let piece = Piece { entry: id, file_offset: size, range, whole: false };
            let digest = digest::piece(size, false, &bytes);
            if !reader.put_stream(&piece, bytes) {
                return;
            }
            size += len;
            let last = len < CHUNK.get();
            if last {
                // The end must be reported first, so that the last digest belongs to a piece of the
                // right length.
                let _ = news.send(SourceEvent::StreamEnd(id, size));
            }
            let digests = vec![PieceDigest { entry: id, digest }];
            let _ = news.send(SourceEvent::Read(ReadEvent::Read(chunk, digests)));
            if last {
                return;
            }
        } else {
            let _ = news.send(SourceEvent::StreamEnd(id, size));
            return;
        }
    }
}

/// One thread that hashes whole files, started at its first use.
#[derive(Default)]
pub(super) struct Hasher(std::sync::OnceLock<Sender<Box<dyn FnOnce() + Send>>>);

impl Hasher {
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let queue = self.0.get_or_init(|| {
            let (jobs, queue) = crossbeam_channel::unbounded::<Box<dyn FnOnce() + Send>>();
            spawn("hash", move || {
                for job in &queue {
                    job();
                }
            });
            jobs
        });
        let _ = queue.send(Box::new(job));
    }
}
