use packtrain_object::{CHUNK, EntryKind, Layout};
use packtrain_units::RangeSet;
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

/// Files of these sizes, all of whose bytes are to be fetched.
fn assigned(run_scheduler: &mut RunScheduler, sizes: &[u64], serial: bool) -> Vec<Piece> {
    let mut layout = Layout::new();
    let mut pieces = Vec::new();
    for (n, size) in sizes.iter().enumerate() {
        let range = layout.push(EntryId(n as u32), &EntryKind::File { size: *size });
        let Some(range) = range else { continue };
        for chunk in ChunkIndex::covering(&range) {
            for piece in layout.pieces(chunk) {
                if piece.entry == EntryId(n as u32) {
                    run_scheduler.add(&piece, &piece.range, serial.then_some(ByteCount(*size)));
                    pieces.push(piece);
                }
            }
        }
    }
    pieces
}

fn bytes_of(run: &Run, from: u64, len: u64) -> Vec<u8> {
    (from..from + len).map(|at| (at as u8).wrapping_mul(31) ^ run.entry.0 as u8).collect()
}

/// Plays a stream for one block; what became of it.
fn step(
    run_scheduler: &mut RunScheduler,
    now: Time,
    id: StreamId,
    run: &Run,
    size: u64,
    done: &mut u64,
) -> Block {
    let start = run.range.start + ByteCount(*done);
    let end = run.range.end.min(start + BLOCK);
    let len = end.since(start).get();
    let file_at = run.file_at + *done;
    let bytes = bytes_of(run, file_at, len);
    let digest = if size <= BLOCK.get() {
        digest::only_block(&bytes)
    } else {
        digest::block(file_at, &bytes)
    };
    *done += len;
    run_scheduler.block(now, id, &(start..end), digest)
}

#[test]
fn an_idle_stream_takes_the_second_half_and_all_of_one_that_stands_still() {
    let mut run_scheduler = RunScheduler::default();
    assigned(&mut run_scheduler, &[16 * MIB], false);
    let first = run_scheduler.join();
    let Take::Run(run) = run_scheduler.take(at(0), first) else { panic!("there is work") };
    assert_eq!((run.file_at, run.range.end.get()), (0, 16 * MIB), "one stream gets all");
    let mut done = 0;
    for _ in 0..16 {
        assert!(step(&mut run_scheduler, at(1000), first, &run, 16 * MIB, &mut done).goes_on);
    }
    let second = run_scheduler.join();
    assert_eq!(run_scheduler.take(at(1000), second), Take::Wait, "it is too early");
    // At the rate until now the rest takes six seconds.
    let Take::Run(stolen) = run_scheduler.take(at(2000), second) else { panic!("half of it") };
    assert_eq!((stolen.file_at, stolen.range.end.get()), (10 * MIB, 16 * MIB));
    // The first one stands still: the third gets all that it has.
    let third = run_scheduler.join();
    let mut ahead = 0;
    step(&mut run_scheduler, at(5100), second, &stolen, 16 * MIB, &mut ahead);
    let Take::Run(relief) = run_scheduler.take(at(5100), third) else { panic!("all of it") };
    assert_eq!((relief.file_at, relief.range.end.get()), (4 * MIB, 10 * MIB));
    // It wakes up: what it brings is taken once, and it is told to stop.
    let late = step(&mut run_scheduler, at(5200), first, &run, 16 * MIB, &mut done);
    assert!(late.is_new && !late.goes_on);
    let mut again = 0;
    assert!(!step(&mut run_scheduler, at(5300), third, &relief, 16 * MIB, &mut again).is_new);
    assert_eq!(run_scheduler.twice(), BLOCK);
}

#[test]
fn a_new_stream_finds_something_that_waits() {
    let mut run_scheduler = RunScheduler::default();
    assigned(&mut run_scheduler, &[64 * MIB], false);
    let first = run_scheduler.join();
    let Take::Run(run) = run_scheduler.take(at(0), first) else { panic!("there is work") };
    assert_eq!(run.range.end.get(), RUN_FIRST, "its rate is unknown");
    let second = run_scheduler.join();
    let Take::Run(other) = run_scheduler.take(at(100), second) else { panic!("there is work") };
    assert_eq!((other.file_at, other.range.end.get()), (16 * MIB, 28 * MIB), "half of its share");
    let mut done = 0;
    while step(&mut run_scheduler, at(4000), first, &run, 64 * MIB, &mut done).goes_on {}
    run_scheduler.ran(first);
    let Take::Run(next) = run_scheduler.take(at(4000), first) else { panic!("there is work") };
    assert_eq!(next.file_at, 28 * MIB);
    assert_eq!(size(&next.range), 8 * MIB, "what it moves in two seconds");
}

#[test]
fn a_serial_file_has_one_stream_from_its_begin() {
    let mut run_scheduler = RunScheduler::default();
    let pieces = assigned(&mut run_scheduler, &[10 * MIB], true);
    let (one, two) = (run_scheduler.join(), run_scheduler.join());
    let Take::Run(run) = run_scheduler.take(at(0), one) else { panic!("there is work") };
    assert_eq!((run.file_at, run.range.end), (0, pieces[2].range.end), "all of it");
    assert_eq!(run_scheduler.take(at(9000), two), Take::Wait, "it cannot be shared");
    let mut done = 0;
    step(&mut run_scheduler, at(10), one, &run, 10 * MIB, &mut done);
    // Cut off: it begins anew, and what was there is not wanted any more.
    assert!(run_scheduler.ran(one));
    let Take::Run(run) = run_scheduler.take(at(20), two) else { panic!("again") };
    assert_eq!((run.file_at, run.range.end), (0, pieces[2].range.end));
    assert_eq!(run_scheduler.wants(&(Offset(0)..Offset(BLOCK.get()))), Some(false));
    assert_eq!(run_scheduler.wants(&(Offset(BLOCK.get())..Offset(2 * BLOCK.get()))), Some(true));
    assert_eq!(run_scheduler.wants(&(Offset(12 * MIB)..Offset(13 * MIB))), None);
}

#[test]
fn what_is_taken_back_is_not_fetched() {
    let mut run_scheduler = RunScheduler::default();
    assigned(&mut run_scheduler, &[12 * MIB], false);
    let one = run_scheduler.join();
    let middle = Offset(4 * MIB)..Offset(8 * MIB);
    assert_eq!(run_scheduler.revoke(&middle), std::slice::from_ref(&middle));
    let Take::Run(run) = run_scheduler.take(at(0), one) else { panic!("the front") };
    assert_eq!((run.file_at, run.range.end.get()), (0, 4 * MIB));
    run_scheduler.ran(one);
    assert_eq!(run_scheduler.revoke(&(Offset(0)..Offset(12 * MIB))).len(), 2);
    assert_eq!(run_scheduler.take(at(0), one), Take::Wait);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever streams come, go, break and steal: each byte counts once, and each piece gets the
    /// digest of its bytes.
    #[test]
    fn every_byte_once_and_the_right_digests(
        sizes in prop::collection::vec(1u64..9 * MIB, 1..5),
        serial in prop::bool::weighted(0.2),
        steps in prop::collection::vec((0usize..6, 0u8..12), 1..400),
    ) {
        let mut run_scheduler = RunScheduler::default();
        let pieces = assigned(&mut run_scheduler, &sizes, serial);
        let mut streams: Vec<(StreamId, Option<(Run, u64)>)> =
            (0..6).map(|_| (run_scheduler.join(), None)).collect();
        let (mut placed, mut found) = (RangeSet::new(), Vec::new());
        let mut now = 0;
        let endless = steps.into_iter().chain((0..).map(|n| (n % 6, 0)));
        for (who, what) in endless {
            if found.len() == pieces.len() {
                break;
            }
            now += 350;
            prop_assert!(now < 350 * 20_000, "it comes to an end");
            let (id, run) = &mut streams[who];
            let Some((running, done)) = run else {
                if let Take::Run(taken) = run_scheduler.take(at(now), *id) {
                    *run = Some((taken, 0));
                }
                continue;
            };
            match what {
                // It breaks, or is replaced.
                10 => {
                    run_scheduler.ran(*id);
                    *run = None;
                }
                11 => {
                    run_scheduler.leave(*id);
                    (*id, *run) = (run_scheduler.join(), None);
                }
                _ => {
                    let size = sizes[running.entry.0 as usize];
                    let before = running.range.start + ByteCount(*done);
                    let block = step(&mut run_scheduler, at(now), *id, running, size, done);
                    let after = running.range.start + ByteCount(*done);
                    if block.is_new {
                        prop_assert_eq!(placed.insert(before..after), after.since(before));
                    }
                    found.extend(block.piece);
                    if !block.goes_on {
                        run_scheduler.ran(*id);
                        *run = None;
                    }
                }
            }
        }
        for piece in &pieces {
            let run = Run { entry: piece.entry, file_at: 0, range: piece.range.clone() };
            let bytes = bytes_of(&run, piece.file_offset, piece.size().get());
            let wanted = digest::piece(piece.file_offset, piece.whole, &bytes);
            let chunk = ChunkIndex::of(piece.range.start);
            let told = PieceDigest { entry: piece.entry, digest: wanted };
            prop_assert!(found.contains(&(chunk, told)));
            prop_assert!(placed.contains_range(&piece.range));
        }
        prop_assert!(pieces.iter().all(|piece| piece.size() <= CHUNK));
        prop_assert_eq!(run_scheduler.moved().get(), sizes.iter().sum::<u64>());
    }
}
