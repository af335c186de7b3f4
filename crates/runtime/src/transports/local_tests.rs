//! A source's files through reader, transport and assembly into files in memory.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crossbeam_channel::unbounded;
use packtrain_disk::{Root, SourceFile};
use packtrain_object::{
    ChunkIndex, Digest, Entry, EntryId, EntryKind, Layout, Mtime, Piece, RelPath, digest,
};
use packtrain_transfer::{ChunkPlan, Failure, Transport, TransportEvent};
use packtrain_units::{ByteCount, Rng, Time};
use parking_lot::Mutex;

use super::*;
use crate::assembly::{PieceTarget, WriteEvent};
use crate::control;
use crate::reader::{PieceSource, Reader, Slice};
use crate::transports::Moved;
use crate::transports::offer::Offer;
use crate::transports::transport::{SourceContext, SourceTransport, Wake};

const LONG: std::time::Duration = std::time::Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// Files of a directory, by their numbers.
struct Files(Root);

impl PieceSource for Files {
    fn read(&self, piece: &Piece, out: &mut [u8]) -> Result<Option<Arc<SourceFile>>, Failure> {
        let name = RelPath::new(piece.entry.0.to_string().into_bytes()).unwrap();
        let file = SourceFile::open(&self.0, &name).unwrap();
        file.read_exact_at(piece.file_offset, out).unwrap();
        Ok(Some(Arc::new(file)))
    }
}

/// Whether the target's file system shares blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Share {
    Never,
    Always,
    /// For some pieces, as between files of several file systems.
    Sometimes,
    /// It says so, and then what was shared cannot be read.
    Unreadable,
}

struct Memory {
    files: Arc<Mutex<HashMap<EntryId, Vec<u8>>>>,
    share: Share,
    /// What the next read fails for.
    unreadable: Mutex<HashSet<(EntryId, u64)>>,
}

impl Memory {
    fn new(files: &Arc<Mutex<HashMap<EntryId, Vec<u8>>>>, share: Share) -> Self {
        Self { files: Arc::clone(files), share, unreadable: Mutex::default() }
    }

    fn put(&self, id: EntryId, entry: &Entry, at: u64, bytes: &[u8]) {
        let mut files = self.files.lock();
        let file = files.entry(id).or_insert_with(|| vec![0xee; entry.size().unwrap() as usize]);
        file[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }
}

impl PieceTarget for Memory {
    fn write(&self, id: EntryId, entry: &Entry, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.put(id, entry, at, bytes);
        Ok(())
    }

    fn zero(&self, id: EntryId, entry: &Entry, at: u64, len: u64) -> Result<(), Failure> {
        self.put(id, entry, at, &vec![0; len as usize]);
        Ok(())
    }

    fn read(&self, id: EntryId, _: &Entry, at: u64, out: &mut [u8]) -> bool {
        let files = self.files.lock();
        let held = files.get(&id).and_then(|file| file.get(at as usize..at as usize + out.len()));
        held.is_some_and(|held| {
            out.copy_from_slice(held);
            !self.unreadable.lock().remove(&(id, at))
        })
    }

    fn write_small(&self, id: EntryId, entry: &Entry, bytes: &[u8]) -> Result<(), Failure> {
        self.write(id, entry, 0, bytes)
    }

    fn share(
        &self,
        id: EntryId,
        entry: &Entry,
        at: u64,
        (from, from_at): (&SourceFile, u64),
        len: u64,
    ) -> bool {
        let fails = match self.share {
            Share::Never => true,
            Share::Always | Share::Unreadable => false,
            Share::Sometimes => (at / CHUNK.get() + u64::from(id.0)).is_multiple_of(2),
        };
        if fails {
            return false;
        }
        assert_eq!(at, from_at, "a piece lies elsewhere in the other file");
        let mut bytes = vec![0; len as usize];
        from.file().read_exact_at(&mut bytes, from_at).unwrap();
        if self.share == Share::Unreadable {
            self.unreadable.lock().insert((id, at));
            bytes.fill(0);
        }
        self.put(id, entry, at, &bytes);
        true
    }
}

fn entry(id: u32, size: u64) -> Entry {
    Entry {
        path: RelPath::new(id.to_string().into_bytes()).unwrap(),
        kind: EntryKind::File { size },
        mode: 0o644,
        mtime: Mtime { secs: 0, nanos: 0 },
        uid: 0,
        gid: 0,
        extras: Default::default(),
    }
}

/// Content with a run of zeros in most files.
fn content(rng: &mut Rng, size: u64) -> (Vec<u8>, Range<u64>) {
    let mut bytes = vec![0; size as usize];
    for chunk in bytes.chunks_mut(8) {
        let word = rng.below(u64::MAX).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    let from = rng.below(size);
    let hole = match rng.chance(0.6) {
        true => from..from + rng.below(size - from + 1),
        false => from..from,
    };
    bytes[hole.start as usize..hole.end as usize].fill(0);
    (bytes, hole)
}

/// Copies files of these sizes in the folder, with at most `step` at once.
fn copy(folder: &Path, sizes: &[u64], share: Share, step: ByteCount, rng: &mut Rng) {
    let (mut layout, mut contents) = (Layout::new(), Vec::new());
    for (id, &size) in sizes.iter().enumerate() {
        let (bytes, hole) = content(rng, size);
        fs::write(folder.join(id.to_string()), &bytes).unwrap();
        let range = layout.push(EntryId(id as u32), &EntryKind::File { size }).unwrap();
        contents.push((bytes, hole, range));
    }
    let memory = Arc::<Mutex<HashMap<EntryId, Vec<u8>>>>::default();
    let (tell, written) = unbounded();
    let target = Memory::new(&memory, share);
    let assembly = Assembly::new(target, Arc::default(), move |event| {
        let _ = tell.send(event);
    });
    let (link, (near, _far)) = (LocalLink::default(), control::pair().unwrap());
    let mut offer = Offer::default();
    LocalSink(link.clone()).start(&assembly);
    let reader = Reader::new(Files(Root::open(folder).unwrap()), Arc::default(), |_| {});
    let mut source = OrderedSource::new(link, None, step);
    let (control, wake) = (near.tx.clone(), Wake::unused());
    let context = SourceContext { control, reader: Some(reader.clone()), wake };
    source.start(&context, &mut offer);
    assert_eq!(source.poll_event(Time::ZERO), Some(TransportEvent::Up { rank: LocalLink::RANK }));
    let (mut pieces, mut assigned, mut wanted) = (0, ByteCount::ZERO, HashMap::new());
    for chunk in ChunkIndex::covering(&(Offset(0)..layout.end())) {
        let here = layout.pieces(chunk);
        pieces += here.len();
        let plan = here.iter().map(|p| (p.clone(), entry(p.entry.0, sizes[p.entry.0 as usize])));
        assembly.expect(ChunkPlan { chunk, pieces: plan.collect() });
        for piece in &here {
            let from = piece.file_offset as usize;
            let bytes = &contents[piece.entry.0 as usize].0[from..][..piece.size().get() as usize];
            let digest = digest::piece(piece.file_offset, piece.whole, bytes);
            wanted.insert((chunk, piece.entry), digest);
        }
        reader.announce(chunk, here);
    }
    for (_, hole, range) in &contents {
        let offset = |at: u64| range.start + ByteCount(at);
        // Holes of small files are sent as they are.
        let told = range.end.since(range.start).get() > MIB && rng.chance(0.7);
        let hole =
            if told { offset(hole.start)..offset(hole.end) } else { range.start..range.start };
        if hole.start < hole.end {
            assembly.zero(hole.clone());
        }
        for part in [range.start..hole.start, hole.end..range.end] {
            if part.start < part.end {
                assigned += part.end.since(part.start);
                source.assign(part);
            }
        }
    }
    let mut found: HashMap<(ChunkIndex, EntryId), Digest> = HashMap::new();
    while found.len() < pieces {
        match written.recv_timeout(LONG).expect("an answer") {
            WriteEvent::Written(chunk, digests) => {
                found.extend(digests.into_iter().map(|(id, digest)| ((chunk, id), digest)));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(found == wanted, "other digests");
    for (id, (bytes, ..)) in contents.iter().enumerate() {
        assert!(memory.lock()[&EntryId(id as u32)] == *bytes, "file {id} has other bytes");
    }
    let mut placed = ByteCount::ZERO;
    while placed < assigned {
        match source.poll_event(Time::ZERO) {
            Some(TransportEvent::Placed(range)) => placed += range.end.since(range.start),
            Some(other) => panic!("{other:?}"),
            None => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
    let mut moved = Moved::default();
    source.account(&mut moved);
    assert_eq!((placed, moved.shares), (assigned, vec![("local".to_owned(), assigned)]));
    source.close();
    reader.close();
    assembly.close_and_wait();
}

#[test]
fn files_of_any_size_arrive_however_they_are_handed_over() {
    let seed = 0x5eed_u64;
    let mut rng = Rng::new(seed);
    let chunk = CHUNK.get();
    let edges =
        [1, 4095, 65_537, MIB - 1, MIB, MIB + 1, chunk - 1, chunk, chunk + 1, 2 * chunk + 4];
    for share in [Share::Never, Share::Always, Share::Sometimes, Share::Unreadable] {
        for step in [CHUNK, ByteCount(100_000)] {
            let folder = tempfile::tempdir().unwrap();
            let mut sizes = edges.to_vec();
            sizes.extend((0..3).map(|_| 1 + rng.below(3 * chunk)));
            for n in (1..sizes.len()).rev() {
                sizes.swap(n, rng.below(n as u64 + 1) as usize);
            }
            eprintln!("seed {seed:#x} {share:?} {step:?} {sizes:?}");
            copy(folder.path(), &sizes, share, step, &mut rng);
        }
    }
}

#[test]
fn what_comes_twice_is_taken_once() {
    let bytes = vec![5; (CHUNK.get() + 9) as usize];
    let memory = Arc::<Mutex<HashMap<EntryId, Vec<u8>>>>::default();
    let (tell, written) = unbounded();
    let target = Memory::new(&memory, Share::Never);
    let assembly = Assembly::new(target, Arc::default(), move |event| {
        let _ = tell.send(event);
    });
    let size = bytes.len() as u64;
    let mut layout = Layout::new();
    layout.push(EntryId(0), &EntryKind::File { size });
    for chunk in [ChunkIndex(0), ChunkIndex(1)] {
        let pieces = layout.pieces(chunk).into_iter().map(|p| (p, entry(0, size))).collect();
        assembly.expect(ChunkPlan { chunk, pieces });
    }
    let slice = |from: u64, to: u64| {
        let slice = Slice::owned(Offset(from), bytes[from as usize..to as usize].to_vec());
        assembly.hand_over(&slice);
    };
    // Part of the first chunk came before: the rest of it is copied.
    for _ in 0..2 {
        slice(100, 200);
        slice(0, CHUNK.get());
        slice(CHUNK.get(), size);
    }
    let mut found = HashMap::new();
    while found.len() < 2 {
        match written.recv_timeout(LONG).expect("an answer") {
            WriteEvent::Written(chunk, digests) => {
                assert!(found.insert(chunk, digests).is_none(), "written twice");
            }
            other => panic!("{other:?}"),
        }
    }
    assembly.close_and_wait();
    assert!(written.try_recv().is_err() && memory.lock()[&EntryId(0)] == bytes);
}
