//! A source that removes its files, with crashes of both ends: no file is ever at neither end.

mod sim;

use std::collections::BTreeMap;

use packtrain_object::EntryKind;
use packtrain_transfer::message::ExtraOptions;
use packtrain_transfer::{Options, Resume};
use packtrain_units::Rng;
use sim::disk::Disk;
use sim::run::{Faults, Run};
use sim::tree;

fn options(rng: &mut Rng) -> Options {
    let extra = ExtraOptions { remove_source_files: true, ..ExtraOptions::default() };
    let resume = if rng.chance(0.3) { Resume::Off } else { Resume::On };
    Options { recursive: true, resume, extra: Box::new(extra), ..Options::default() }
}

#[test]
fn a_file_is_removed_when_it_survives_a_power_failure_at_the_sink() {
    let mut removed_before_the_end = 0;
    for seed in 0..1_500 {
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut tree = tree::random(&mut rng, 1 + seed % 18);
        let all: BTreeMap<_, _> = tree.iter().map(|e| (e.entry.path.clone(), e.clone())).collect();
        let mut disk = Disk::default();
        let faults = Faults { transport: 0.02, garble: 0.005, ..Faults::default() };
        for _ in 0..rng.below(6) {
            let options = options(&mut rng);
            let mut run = Run::new(rng.next_u64(), &tree, &options, &faults, &mut disk);
            let steps = 1 + rng.below(400);
            while run.steps < steps && !run.is_over() {
                run.step();
            }
            let crash = rng.below(3);
            if crash == 0 && !run.is_over() {
                run.lose_source(rng.below(200));
            }
            // A power failure keeps what was removed: `Run` checks that before it removes a file.
            let removed = std::mem::take(&mut run.removed);
            removed_before_the_end += removed.len();
            tree.retain(|e| !removed.contains(&e.entry.path));
            match crash {
                2 => disk.power_failed(&mut rng),
                _ => disk.killed(),
            }
        }
        let options = options(&mut rng);
        let mut run = Run::new(rng.next_u64(), &tree, &options, &Faults::default(), &mut disk);
        run.finish();
        let outcome = run.sink_outcome.clone().expect("finished");
        assert_eq!((outcome.failure, outcome.summary.failed), (None, run.kept));
        assert_eq!(outcome.summary.removed, run.removed.len() as u64);
        let seen = run.source_outcome.clone().expect("finished").summary;
        assert_eq!((seen.removed, seen.failed), (outcome.summary.removed, run.kept));
        // Each file and link was removed, unless it changed.
        let files = tree.iter().filter(|e| e.entry.kind != EntryKind::Directory).count() as u64;
        assert_eq!(run.removed.len() as u64 + run.kept, files);
        for entry in all.values().filter(|e| e.entry.kind != EntryKind::Directory) {
            assert!(disk.is_stable(entry), "{:?} is lost", entry.entry.path);
        }
    }
    assert!(removed_before_the_end > 0);
}

#[test]
fn what_the_sink_leaves_alone_stays() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let tree = tree::random(&mut rng, 12);
        let mut options = options(&mut rng);
        options.extra.max_size = Some(1000);
        let mut disk = Disk::default();
        let mut run = Run::new(seed, &tree, &options, &Faults::default(), &mut disk);
        run.finish();
        let kept = |e: &&tree::SourceEntry| e.entry.size().is_some_and(|size| size > 1000);
        assert!(tree.iter().filter(kept).all(|e| !run.removed.contains(&e.entry.path)));
        let directories = tree.iter().filter(|e| e.entry.kind == EntryKind::Directory).count();
        let gone = tree.len() - directories - tree.iter().filter(kept).count();
        assert_eq!(run.removed.len() as u64 + run.kept, gone as u64);
        // Nothing is removed in a run that changes nothing.
        let dry = Options { dry_run: true, ..options };
        let mut run = Run::new(seed, &tree, &dry, &Faults::default(), &mut disk);
        run.finish();
        assert!(run.removed.is_empty());
    }
}
