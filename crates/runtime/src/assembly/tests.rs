//! Tests of the assembly over files in memory.

use std::collections::HashMap;

use crossbeam_channel::{Receiver, unbounded};
use packtrain_object::{CHUNK, EntryKind, Mtime, RelPath, digest};
use packtrain_units::Rng;

use super::*;

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<HashMap<EntryId, Vec<u8>>>>);

impl Memory {
    fn bytes(&self, id: EntryId) -> Vec<u8> {
        self.0.lock().get(&id).cloned().unwrap_or_default()
    }
}

impl PieceTarget for Memory {
    fn write(&self, id: EntryId, _: &Entry, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        let mut files = self.0.lock();
        let file = files.entry(id).or_default();
        let end = at as usize + bytes.len();
        if file.len() < end {
            file.resize(end, 0xee);
        }
        file[at as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn zero(&self, id: EntryId, entry: &Entry, at: u64, len: u64) -> Result<(), Failure> {
        self.write(id, entry, at, &vec![0; len as usize])
    }

    fn read(&self, id: EntryId, _: &Entry, at: u64, out: &mut [u8]) -> bool {
        let files = self.0.lock();
        let held = files.get(&id).and_then(|file| file.get(at as usize..at as usize + out.len()));
        held.is_some_and(|held| {
            out.copy_from_slice(held);
            true
        })
    }

    fn write_small(&self, id: EntryId, entry: &Entry, bytes: &[u8]) -> Result<(), Failure> {
        self.write(id, entry, 0, bytes)
    }
}

fn entry(size: u64) -> Entry {
    Entry {
        path: RelPath::new(b"f".to_vec()).unwrap(),
        kind: EntryKind::File { size },
        mode: 0o644,
        mtime: Mtime { secs: 0, nanos: 0 },
        uid: 0,
        gid: 0,
        extras: Default::default(),
    }
}

fn assembly() -> (Assembly, Memory, Receiver<WriteEvent>) {
    let memory = Memory::default();
    let (tell, told) = unbounded();
    let assembly = Assembly::new(memory.clone(), Arc::default(), move |event| {
        let _ = tell.send(event);
    });
    (assembly, memory, told)
}

fn plan(pieces: &[(u32, u64, u64, bool)]) -> ChunkPlan {
    let pieces = pieces.iter().map(|&(id, start, size, whole)| {
        let range = Offset(start)..Offset(start + size);
        (Piece { entry: EntryId(id), file_offset: 0, range, whole }, entry(size))
    });
    ChunkPlan { chunk: ChunkIndex(0), pieces: pieces.collect() }
}

fn written(told: &Receiver<WriteEvent>, count: usize) -> HashMap<EntryId, Digest> {
    let mut found = HashMap::new();
    while found.len() < count {
        match told.recv_timeout(std::time::Duration::from_secs(20)).expect("an answer") {
            WriteEvent::Written(_, hashes) => found.extend(hashes),
            other => panic!("{other:?}"),
        }
    }
    found
}

#[test]
fn every_byte_arrives_in_any_order_with_repeats() {
    let seed = 0x5eed_u64;
    let mut rng = Rng::new(seed);
    for round in 0..6 {
        let (assembly, memory, told) = assembly();
        let big = 2 * BLOCK.get() + 1 + rng.below(3 * BLOCK.get());
        let sizes = [700, 1 + rng.below(90_000), SMALL_FILE_BYTES + big];
        let mut start = 0;
        let mut specs = Vec::new();
        for (id, size) in sizes.iter().enumerate() {
            specs.push((id as u32, start, *size, true));
            start += size;
        }
        let object: Vec<u8> = (0..start).map(|n| (n * 7 + n / 251) as u8).collect();
        assembly.expect(plan(&specs));
        let mut packets: Vec<(u64, u64)> = Vec::new();
        let mut at = 0;
        while at < start {
            let end = (at + 1 + rng.below(3_000)).min(start);
            packets.push((at, end));
            if rng.chance(0.1) {
                packets.push((at, end));
            }
            at = end;
        }
        for n in (1..packets.len()).rev() {
            packets.swap(n, rng.below(n as u64 + 1) as usize);
        }
        for (from, to) in packets {
            assembly.place_waiting(Offset(from), &object[from as usize..to as usize]);
        }
        let found = written(&told, sizes.len());
        for (id, start, size, _) in specs {
            let bytes = &object[start as usize..(start + size) as usize];
            assert_eq!(memory.bytes(EntryId(id)), bytes, "seed {seed} round {round} file {id}");
            assert_eq!(found[&EntryId(id)], digest::piece(0, true, bytes), "seed {seed} {id}");
        }
        assembly.close();
    }
}

#[test]
fn bytes_past_the_end_of_the_space_are_dropped() {
    let (mut assembly, _, _) = assembly();
    for at in [SPACE_END, Offset(u64::MAX - 3), Offset(SPACE_END.get() - 1)] {
        assembly.place_waiting(at, &[1; 100]);
        assert_eq!(assembly.place(at, &[1; 100]), Placed::Duplicate);
    }
}

#[test]
fn holes_count_as_arrived_and_read_as_zeros() {
    let (assembly, memory, told) = assembly();
    let size = SMALL_FILE_BYTES + 3 * BLOCK.get();
    assembly.expect(plan(&[(0, 0, size, true)]));
    let (from, to) = (BLOCK.get() / 2, size - 10);
    assembly.place_waiting(Offset(0), &vec![7; from as usize]);
    assembly.zero(Offset(from)..Offset(to));
    assembly.place_waiting(Offset(to), &[9; 10]);
    let found = written(&told, 1);
    let mut whole = vec![0; size as usize];
    whole[..from as usize].fill(7);
    whole[to as usize..].fill(9);
    assert_eq!(memory.bytes(EntryId(0)), whole);
    assert_eq!(found[&EntryId(0)], digest::piece(0, true, &whole));
}

#[test]
fn the_rest_is_done_when_a_neighbour_is_given_up() {
    let (assembly, memory, told) = assembly();
    assembly.expect(plan(&[(0, 0, 100, true), (1, 100, 100, true)]));
    assembly.place_waiting(Offset(0), &[1; 100]);
    assembly.unexpect(&(Offset(100)..Offset(200)));
    assert_eq!(written(&told, 1)[&EntryId(0)], digest::piece(0, true, &[1; 100]));
    assert!(memory.bytes(EntryId(1)).is_empty());
}

#[test]
fn one_range_may_end_several_parts_of_a_chunk() {
    let (assembly, _, told) = assembly();
    for id in 0..3 {
        assembly.expect(plan(&[(id, u64::from(id) * 100, 100, true)]));
    }
    assembly.place_waiting(Offset(0), &[1; 300]);
    assert_eq!(written(&told, 3).len(), 3);
    // The same if the rest of each part is given up.
    assembly.expect(plan(&[(0, 0, 100, true), (3, 100, 10, true)]));
    assembly.expect(plan(&[(4, 110, 10, true), (1, 120, 100, true)]));
    assembly.place_waiting(Offset(0), &[1; 100]);
    assembly.place_waiting(Offset(120), &[1; 100]);
    assembly.unexpect(&(Offset(100)..Offset(120)));
    assert_eq!(written(&told, 2).len(), 2);
}

#[test]
fn a_stream_that_ends_inside_a_block_is_whole() {
    let (assembly, memory, told) = assembly();
    assembly.expect(plan(&[(0, 0, CHUNK.get(), false)]));
    let size = BLOCK.get() + 1_000;
    assembly.place_waiting(Offset(0), &vec![5; size as usize]);
    assembly.end_stream(EntryId(0), ByteCount(size));
    let found = written(&told, 1);
    let bytes = vec![5; size as usize];
    assert_eq!(found[&EntryId(0)], digest::piece(0, false, &bytes));
    assert_eq!(memory.bytes(EntryId(0)), bytes);
}

#[test]
fn buffers_of_small_files_are_used_again_and_few_are_kept() {
    let (assembly, memory, told) = assembly();
    let place = |range: Range<u64>, value: u8| {
        let bytes = vec![value; (range.end - range.start) as usize];
        assembly.place_waiting(Offset(range.start), &bytes);
    };
    assembly.expect(plan(&[(0, 0, 1_000, true), (1, 1_000, 2_000, true)]));
    place(0..3_000, 1);
    written(&told, 2);
    let kept = || {
        let state = assembly.state();
        (state.spare_small.len(), state.small_memory)
    };
    assert_eq!(kept(), (1, 0));

    // Nobody needs what is between the two, so the old bytes stay there.
    assembly.expect(plan(&[(2, 0, 500, true), (3, 700, 4_000, true)]));
    place(0..500, 2);
    assert_eq!(kept().0, 0, "it is in use");
    place(700..4_700, 3);
    written(&told, 2);
    assert_eq!(memory.bytes(EntryId(2)), vec![2; 500]);
    assert_eq!(memory.bytes(EntryId(3)), vec![3; 4_000]);
    assert_eq!(kept(), (1, 0));

    let count = 2 * SPARE_SMALL as u32;
    let start = |n: u32| u64::from(n) * 100;
    for n in 0..count {
        assembly.expect(plan(&[(10 + n, start(n), 100, true)]));
        place(start(n)..start(n) + 1, n as u8);
    }
    for n in 0..count {
        place(start(n) + 1..start(n) + 100, n as u8);
    }
    written(&told, count as usize);
    for n in 0..count {
        assert_eq!(memory.bytes(EntryId(10 + n)), vec![n as u8; 100]);
    }
    assert_eq!(kept(), (SPARE_SMALL, 0));
    assembly.close();
}

/// A target whose first files are slow. The next two are written by two threads at once, or never.
#[derive(Clone)]
struct Slow(Memory, Arc<std::sync::Barrier>);

/// More files than a writer takes before it looks whether they are slow.
const SLOW_FILES: u32 = 64;

impl PieceTarget for Slow {
    fn write(&self, id: EntryId, entry: &Entry, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write(id, entry, at, bytes)
    }

    fn zero(&self, id: EntryId, entry: &Entry, at: u64, len: u64) -> Result<(), Failure> {
        self.0.zero(id, entry, at, len)
    }

    fn read(&self, id: EntryId, entry: &Entry, at: u64, out: &mut [u8]) -> bool {
        self.0.read(id, entry, at, out)
    }

    fn write_small(&self, id: EntryId, entry: &Entry, bytes: &[u8]) -> Result<(), Failure> {
        match id.0 {
            0..SLOW_FILES => std::thread::sleep(std::time::Duration::from_millis(1)),
            // The last one is the first of the other writer's half.
            SLOW_FILES | 66 => {
                self.1.wait();
            }
            _ => {}
        }
        self.0.write_small(id, entry, bytes)
    }
}

#[test]
fn two_writers_share_a_chunk_of_slow_files() {
    let memory = Memory::default();
    let (tell, told) = unbounded();
    let slow = Slow(memory.clone(), Arc::new(std::sync::Barrier::new(2)));
    let assembly = Assembly::new(slow, Arc::default(), move |event| {
        let _ = tell.send(event);
    });
    let count = SLOW_FILES + 4;
    let specs: Vec<_> = (0..count).map(|n| (n, u64::from(n) * 10, 10, true)).collect();
    assembly.expect(plan(&specs));
    let object: Vec<u8> = (0..count * 10).map(|n| n as u8).collect();
    assembly.place_waiting(Offset(0), &object);
    let found = written(&told, count as usize);
    for (id, bytes) in (0..count).map(EntryId).zip(object.chunks(10)) {
        assert_eq!(memory.bytes(id), bytes, "{id:?}");
        assert_eq!(found[&id], digest::piece(0, true, bytes), "{id:?}");
    }
    let state = assembly.state();
    assert_eq!((state.spare_small.len(), state.small_memory), (1, 0), "the memory is free again");
}
