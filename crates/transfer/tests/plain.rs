//! Complete copies without a crash.

mod sim;

use packtrain_object::{CHUNK, EntryKind};
use packtrain_transfer::message::Summary;
use packtrain_transfer::{FileReport, Options};
use packtrain_units::Rng;
use sim::disk::Disk;
use sim::run::{Faults, Run};
use sim::tree;

fn options() -> Options {
    Options { recursive: true, ..Options::default() }
}

#[test]
fn a_tree_arrives() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let tree = tree::random(&mut rng, 1 + seed % 40);
        let mut disk = Disk::default();
        let mut run = Run::new(seed, &tree, &options(), &Faults::default(), &mut disk);
        eprintln!("seed {seed}");
        run.finish();
        run.assert_identical();
        let outcome = run.sink_outcome.clone().expect("finished");
        assert_eq!(outcome.failure, None);
        assert_eq!(outcome.summary.entries, tree.len() as u64);
        assert_eq!(outcome.summary.chunks_again, 0);
        let seen = run.source_outcome.clone().expect("finished");
        // Each end counts for itself what is durable, and the sink alone what changed.
        let common = |summary: Summary| Summary { changed: 0, bytes_durable: 0, ..summary };
        assert_eq!(common(seen.summary), common(outcome.summary));
        assert_eq!(disk.journal.len(), 0);
    }
}

#[test]
fn a_second_run_moves_nothing() {
    for seed in 0..100 {
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        let tree = tree::random(&mut rng, 20);
        let mut disk = Disk::default();
        Run::new(seed, &tree, &options(), &Faults::default(), &mut disk).finish();
        for checksum in [false, true] {
            let options = Options { checksum, ..options() };
            let mut run = Run::new(seed + 1, &tree, &options, &Faults::default(), &mut disk);
            run.finish();
            run.assert_identical();
            assert_eq!(run.crossed, 0);
            let summary = run.sink_outcome.clone().expect("finished").summary;
            assert_eq!(summary.files_moved, 0);
            assert_eq!(summary.entries, tree.len() as u64);
        }
    }
}

#[test]
fn faults_of_transports_and_writes_are_survived() {
    for seed in 0..300 {
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        let tree = tree::random(&mut rng, 25);
        let mut disk = Disk::default();
        let faults = Faults { transport: 0.3, garble: 0.01, ..Faults::default() };
        let mut run = Run::new(seed, &tree, &options(), &faults, &mut disk);
        run.finish();
        let outcome = run.sink_outcome.clone().expect("finished");
        assert_eq!(outcome.failure, None);
        if outcome.summary.failed == 0 {
            run.assert_identical();
        }
    }
}

#[test]
fn one_entry_fails_and_the_rest_goes_on() {
    for seed in 0..300 {
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        let tree = tree::random(&mut rng, 25);
        let mut disk = Disk::default();
        let faults = Faults { source: 0.03, sink: 0.03, transport: 0.05, ..Faults::default() };
        let mut run = Run::new(seed, &tree, &options(), &faults, &mut disk);
        run.finish();
        let outcome = run.sink_outcome.clone().expect("finished");
        assert_eq!(outcome.failure, None);
        assert_eq!(outcome.summary.entries + outcome.summary.failed, tree.len() as u64);
        assert_eq!(outcome.failed.len() as u64, outcome.summary.failed);
        // The next run completes the failed entries.
        let mut run = Run::new(seed, &tree, &options(), &Faults::default(), &mut disk);
        run.finish();
        run.assert_identical();
    }
}

#[test]
fn a_full_target_ends_it_with_one_failure() {
    for seed in 0..100 {
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        let tree = tree::random(&mut rng, 25);
        let mut disk = Disk::default();
        let faults = Faults { full: 0.05, ..Faults::default() };
        let mut run = Run::new(seed, &tree, &options(), &faults, &mut disk);
        run.finish();
        let outcome = run.sink_outcome.clone().expect("finished");
        assert_eq!(outcome.failed, [], "the transfer failed, once; its files did not");
        let seen = run.source_outcome.clone().expect("finished").failure;
        assert_eq!(seen.map(|f| f.kind), outcome.failure.map(|f| f.kind));
        let mut run = Run::new(seed, &tree, &options(), &Faults::default(), &mut disk);
        run.finish();
        run.assert_identical();
    }
}

#[test]
fn a_stream_of_unknown_length_arrives() {
    for seed in 0..200 {
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut tree = tree::random(&mut rng, seed % 5);
        tree.push(tree::entry(&mut rng, "zz-stream", EntryKind::Stream));
        let mut disk = Disk::default();
        let faults = Faults { transport: 0.05, ..Faults::default() };
        let mut run = Run::new(seed, &tree, &options(), &faults, &mut disk);
        run.finish();
        run.assert_identical();
        assert_eq!(run.sink_outcome.clone().expect("finished").failure, None);
    }
}

#[test]
fn a_dry_run_and_a_verification_change_nothing() {
    for seed in 0..60 {
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        let tree = tree::random(&mut rng, 25);
        let mut disk = Disk::default();
        let dry = Options { dry_run: true, delete: true, ..options() };
        let mut run = Run::new(seed, &tree, &dry, &Faults::default(), &mut disk);
        run.finish();
        assert_eq!(run.reports.len(), tree.len());
        assert_eq!(run.crossed, 0);
        assert!(disk.places.is_empty());

        Run::new(seed, &tree, &options(), &Faults::default(), &mut disk).finish();
        let verify = Options { verify: true, dry_run: true, ..options() };
        let mut run = Run::new(seed, &tree, &verify, &Faults::default(), &mut disk);
        run.finish();
        assert_eq!(run.sink_outcome.clone().expect("finished").summary.failed, 0);
        let mut other = tree.clone();
        let mut differ = 0;
        for entry in &mut other {
            if entry.entry.size().is_some_and(|size| size > 0) && rng.chance(0.3) {
                entry.content ^= 1 << 10;
                differ += 1;
            }
        }
        let mut run = Run::new(seed, &other, &verify, &Faults::default(), &mut disk);
        run.finish();
        let outcome = run.sink_outcome.clone().expect("finished");
        assert_eq!(outcome.summary.failed, differ);
        let differing = run.reports.iter().filter(|(_, r)| *r == FileReport::Differs).count();
        assert_eq!(differing as u64, differ);
        // Checksums find changes that size and time do not show.
        let checksum = Options { checksum: true, ..options() };
        let mut run = Run::new(seed, &other, &checksum, &Faults::default(), &mut disk);
        run.finish();
        run.assert_identical();
    }
}

#[test]
fn deletion_spares_what_the_source_has() {
    for seed in 0..60 {
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        let tree = tree::random(&mut rng, 25);
        let mut disk = Disk::default();
        Run::new(seed, &tree, &options(), &Faults::default(), &mut disk).finish();
        let fewer: Vec<_> = tree
            .iter()
            .filter(|e| {
                e.entry.path.is_root()
                    || !e.entry.path.components().any(|name| name.ends_with(b"3"))
            })
            .cloned()
            .collect();
        let delete = Options { delete: true, ..options() };
        let mut run = Run::new(seed, &fewer, &delete, &Faults::default(), &mut disk);
        run.finish();
        run.assert_identical();
        let deleted = run.sink_outcome.clone().expect("finished").summary.deleted;
        assert_eq!(deleted as usize, tree.len() - fewer.len());

        let mut run = Run::new(seed, &tree[..1], &delete, &Faults::default(), &mut disk);
        run.finish();
        let failure = run.sink_outcome.clone().expect("finished").failure.expect("refused");
        assert!(failure.text.contains("--force-delete"), "{failure}");
        let force = Options { force_delete: true, ..delete };
        let mut run = Run::new(seed, &tree[..1], &force, &Faults::default(), &mut disk);
        run.finish();
        assert_eq!(run.sink_outcome.clone().expect("finished").failure, None);
        assert_eq!(disk.places.values().filter(|p| p.target.is_some()).count(), 1);
    }
}

#[test]
fn only_changed_pieces_of_old_versions_move() {
    let mut copied = 0;
    for seed in 0..120 {
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut tree = tree::random(&mut rng, 12);
        let mut disk = Disk::default();
        Run::new(seed, &tree, &options(), &Faults::default(), &mut disk).finish();
        // Of each file one chunk in eight changes, and some grow or shrink.
        let mut may_move = 0;
        for entry in &mut tree {
            let Some(old) = entry.entry.size().filter(|size| *size > 0) else { continue };
            let bit = rng.below(8);
            entry.content ^= 1 << bit;
            entry.entry.mtime.secs += 1;
            // Bytes of holes count neither as moved nor as the same.
            entry.sparse = false;
            let size = if rng.chance(0.3) { 1 + rng.below(6 * CHUNK.get()) } else { old };
            entry.entry.kind = EntryKind::File { size };
            for (index, start) in (0..size).step_by(CHUNK.get() as usize).enumerate() {
                let end = size.min(start + CHUNK.get());
                if size <= CHUNK.get()
                    || index as u64 % 8 == bit
                    || end > old
                    || end - start < CHUNK.get()
                {
                    may_move += end - start;
                }
            }
        }
        let run = Run::new(seed, &tree, &options(), &Faults::default(), &mut disk);
        let mut run = run.with_changed_pieces();
        run.finish();
        run.assert_identical();
        let summary = run.sink_outcome.clone().expect("finished").summary;
        assert_eq!(summary.failed, 0);
        // The driver's faults with old versions: what cannot be read or changes is moved.
        assert_eq!(summary.bytes_moved + summary.bytes_same, summary.bytes, "{summary:?}");
        let seen = run.source_outcome.clone().expect("finished").summary;
        assert_eq!(seen.bytes_moved, summary.bytes_moved);
        if run.old_faults == 0 {
            assert_eq!(seen.bytes_same, summary.bytes_same);
            assert!(summary.bytes_moved <= may_move, "{summary:?}: {may_move} changed");
            assert!(run.crossed <= 2 * may_move, "some is moved twice");
        }
        copied += run.copied;
    }
    assert!(copied > 0);
}
