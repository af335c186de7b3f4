//! Ten thousand crashes at random points, each followed by a resume.
//!
//! After every crash the next run must not request chunks that were reported durable, nor chunks
//! that are in the surviving journal and intact on the disk. After the last run the trees must be
//! identical. Some bytes are flipped without the journal's knowledge, and some source files change
//! between runs.

mod sim;

use std::collections::BTreeSet;

use packtrain_object::{CHUNK, journal};
use packtrain_transfer::{Options, Resume};
use packtrain_units::Rng;
use sim::digest;
use sim::disk::Disk;
use sim::run::{Faults, Key, Run};
use sim::tree::{self, SourceEntry};

const CRASHES: u64 = 10_000;

/// How a run ends early.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Crash {
    /// The sink's process is killed.
    Kill,
    /// The sink's machine loses power.
    Power,
    /// The source is killed; the sink shuts down cleanly if it has enough time.
    Source,
    /// The source is killed, and the sink's machine loses power soon after.
    Both,
}

#[test]
fn every_crash_is_survived() {
    let mut crashes = 0;
    let (mut moved, mut same) = (0, 0);
    let mut seed = 0;
    while crashes < CRASHES {
        seed += 1;
        // The seed of a failure is the last one printed.
        eprintln!("seed {seed}");
        let (more, [crossed, copied]) = survive(seed);
        crashes += more;
        moved += crossed;
        same += copied;
    }
    let [moved, same] = [moved, same].map(|bytes| bytes >> 20);
    eprintln!(
        "{crashes} crashes over {seed} trees, {moved} MiB of symbols crossed, {same} did not"
    );
    assert!(same > 0, "no piece of an old version was used");
}

/// Crashes and resumes one tree until it is complete. Returns the number of crashes, the bytes
/// moved and the bytes copied from old versions.
fn survive(seed: u64) -> (u64, [u64; 2]) {
    let mut rng = Rng::new(seed);
    let count = 1 + rng.below(18);
    let mut tree = tree::random(&mut rng, count);
    let resume = if rng.chance(0.25) { Resume::Trust } else { Resume::On };
    let options = Options { recursive: true, resume, ..Options::default() };
    let transport = if rng.chance(0.3) { 0.05 } else { 0.0 };
    let changed_pieces = rng.chance(0.7);
    let faults = Faults { transport, ..Faults::default() };
    let mut disk = Disk::default();
    // Chunks that must not be requested again: `durable` were reported durable, for all later runs;
    // `left` were intact and journalled after a crash, until the next one.
    let mut durable: BTreeSet<Key> = BTreeSet::new();
    let mut left: BTreeSet<Key> = BTreeSet::new();
    let (mut crashes, mut crossed, mut copied) = (0, 0, 0);
    for _ in 0..rng.below(14) {
        let mut run = Run::new(rng.next_u64(), &tree, &options, &faults, &mut disk);
        if changed_pieces {
            run = run.with_changed_pieces();
        }
        let steps = 1 + rng.below(20 + 12 * count);
        while run.steps < steps && !run.is_over() {
            run.step();
        }
        if run.is_over() {
            break;
        }
        let crash = [Crash::Kill, Crash::Power, Crash::Source, Crash::Both][rng.below(4) as usize];
        crashes += 1;
        let mut ended_well = false;
        if matches!(crash, Crash::Source | Crash::Both) {
            let left = if crash == Crash::Source { 100_000 } else { rng.below(40) };
            run.lose_source(left);
            ended_well = run.sink_outcome.is_some();
        }
        check(&durable, &left, &run.expected_keys);
        crossed += run.crossed;
        copied += run.copied;
        durable.extend(std::mem::take(&mut run.durable));
        if ended_well {
            // After a clean shutdown all verified data is durable.
            durable.extend(std::mem::take(&mut run.verified));
        }
        match crash {
            Crash::Kill | Crash::Source => disk.killed(),
            Crash::Power | Crash::Both => disk.power_failed(&mut rng),
        }
        if resume == Resume::On && rng.chance(0.3) {
            for _ in 0..1 + rng.below(3) {
                if let Some(key) = disk.flip(&mut rng) {
                    durable.remove(&key);
                }
            }
        }
        left = journalled_and_good(&disk, &tree);
        if rng.chance(0.15) {
            change_some(&mut tree, &mut rng, [&mut durable, &mut left]);
        }
    }
    let mut run = Run::new(rng.next_u64(), &tree, &options, &faults, &mut disk);
    if changed_pieces {
        run = run.with_changed_pieces();
    }
    run.finish();
    check(&durable, &left, &run.expected_keys);
    run.assert_identical();
    let outcome = run.sink_outcome.clone().expect("finished");
    assert_eq!((outcome.failure, outcome.summary.failed), (None, 0));
    assert_eq!(outcome.summary.entries, tree.len() as u64);
    crossed += run.crossed;
    copied += run.copied;
    assert!(disk.journal.is_empty());
    (crashes, [crossed, copied])
}

fn check(durable: &BTreeSet<Key>, left: &BTreeSet<Key>, asked: &[Key]) {
    for key in asked {
        assert!(!durable.contains(key), "{key:?} was durable and moves again");
        assert!(!left.contains(key), "{key:?} was durable by the journal and good and moves again");
    }
}

/// Chunks that are durable by the journal and intact on the disk: a resume must not request them.
/// Others may be intact in memory only.
fn journalled_and_good(disk: &Disk, tree: &[SourceEntry]) -> BTreeSet<Key> {
    if disk.journal.is_empty() {
        return BTreeSet::new();
    }
    let replay = journal::replay(&disk.journal).expect("our journal");
    let mut good = BTreeSet::new();
    for file in replay.state.files() {
        let Some(source) = tree.iter().find(|e| e.entry.path == file.key.path) else { continue };
        let entry = &source.entry;
        if entry.mtime != file.key.mtime || entry.size() != Some(file.key.size) {
            continue;
        }
        let place = disk.places.get(entry.path.as_bytes());
        let Some(temporary) = place.and_then(|place| place.temporary.as_ref()) else { continue };
        for (&index, chunk) in &file.chunks {
            let at = u64::from(index) * CHUNK.get();
            let len = CHUNK.get().min(file.key.size - at);
            let held = temporary.chunks.get(&u64::from(index));
            let whole = held.is_some_and(|held| held.written.len_bytes().get() >= len);
            let content = held.map_or(0, |held| held.content);
            if whole && chunk.durable && digest(content, at, len) == chunk.digest {
                good.insert((entry.path.as_bytes().to_vec(), u64::from(index)));
            }
        }
    }
    good
}

/// Changes some files at the source: content, time, perhaps size.
fn change_some(tree: &mut [SourceEntry], rng: &mut Rng, safe: [&mut BTreeSet<Key>; 2]) {
    let [durable, left] = safe;
    for entry in tree.iter_mut() {
        if entry.entry.size().is_none() || !rng.chance(0.3) {
            continue;
        }
        // Every eighth chunk, or all of them.
        entry.content =
            if rng.chance(0.5) { entry.content ^ 1 << rng.below(8) } else { rng.next_u64() };
        entry.entry.mtime.secs += 1;
        if rng.chance(0.5) {
            let size = rng.below(3 * CHUNK.get());
            entry.entry.kind = packtrain_object::EntryKind::File { size };
        }
        let path = entry.entry.path.as_bytes();
        durable.retain(|key| key.0 != path);
        left.retain(|key| key.0 != path);
    }
}
