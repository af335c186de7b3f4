//! Names of one file, and extended attributes, through crashes, failures and targets without hard links.

mod sim;

use std::sync::Arc;

use packtrain_object::{Attributes, EntryKind, HardLink};
use packtrain_transfer::message::ExtraOptions;
use packtrain_transfer::{FileReport, Options};
use packtrain_units::Rng;
use sim::disk::Disk;
use sim::run::{Faults, Run};
use sim::tree::{self, SourceEntry};

fn options() -> Options {
    let extra = ExtraOptions { hard_links: true, xattrs: true, ..ExtraOptions::default() };
    Options { recursive: true, extra: Box::new(extra), ..Options::default() }
}

fn linked_tree(rng: &mut Rng) -> Vec<SourceEntry> {
    let count = 1 + rng.below(14);
    let mut tree = tree::random(rng, count);
    for source in &mut tree {
        if !matches!(source.entry.kind, EntryKind::Symlink { .. }) {
            source.entry.extras.attributes = Some(attributes(rng));
        }
    }
    tree::with_links(rng, tree)
}

fn attributes(rng: &mut Rng) -> Arc<Attributes> {
    let count = rng.below(3);
    let pair = |n: u64, value: u64| (n.to_string().into_bytes(), value.to_le_bytes().to_vec());
    let pairs = (0..count).map(|n| pair(n, rng.next_u64()));
    Arc::new(Attributes::new(pairs.collect()).expect("few"))
}

/// Changes the content of one file, under all its names.
fn change(tree: &mut [SourceEntry], rng: &mut Rng) {
    let at = rng.below(tree.len() as u64) as usize;
    let first = match tree[at].entry.extras.hard_link {
        HardLink::To(first) => first.index(),
        _ => at,
    };
    if !matches!(tree[first].entry.kind, EntryKind::File { size: 1.. }) {
        return;
    }
    // Sometimes only the attributes change, which moves nothing.
    let later = rng.below(2) as i64;
    let content = if later == 1 { rng.next_u64() } else { tree[first].content };
    let (mtime, attributes) = (tree[first].entry.mtime.secs + later, attributes(rng));
    for (n, source) in tree.iter_mut().enumerate() {
        let is_name = match source.entry.extras.hard_link {
            HardLink::To(other) => other.index() == first,
            _ => n == first,
        };
        if is_name {
            (source.content, source.entry.mtime.secs) = (content, mtime);
            source.entry.extras.attributes = Some(Arc::clone(&attributes));
        }
    }
}

#[test]
fn groups_survive_crashes_and_their_content_moves_once() {
    let (mut crashes, mut links) = (0, 0);
    for seed in 1..1500 {
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut tree = linked_tree(&mut rng);
        let options = options();
        // Some targets cannot make some of the links.
        let link = if rng.chance(0.3) { 0.3 } else { 0.0 };
        let transport = if rng.chance(0.3) { 0.05 } else { 0.0 };
        let faults = Faults { link, transport, ..Faults::default() };
        let mut disk = Disk::default();
        for _ in 0..rng.below(6) {
            let mut run = Run::new(rng.next_u64(), &tree, &options, &faults, &mut disk);
            let steps = 1 + rng.below(400);
            while run.steps < steps && !run.is_over() {
                run.step();
            }
            if run.is_over() {
                break;
            }
            crashes += 1;
            if rng.chance(0.5) {
                run.lose_source(100_000);
            }
            match rng.chance(0.5) {
                true => disk.killed(),
                false => disk.power_failed(&mut rng),
            }
            if rng.chance(0.2) {
                change(&mut tree, &mut rng);
            }
        }
        let was_empty = disk.places.values().all(|place| place == &Default::default());
        let mut run = Run::new(rng.next_u64(), &tree, &options, &faults, &mut disk);
        run.finish();
        let outcome = run.sink_outcome.clone().expect("over");
        assert_eq!((outcome.failure, outcome.failed), (None, Vec::new()));
        run.assert_identical();
        links += run.links;
        if link == 0.0 {
            run.assert_linked(&tree);
        }
        if link == 0.0 && was_empty {
            for source in &tree {
                let path = source.entry.path.as_bytes();
                let is_further = matches!(source.entry.extras.hard_link, HardLink::To(_));
                let is_moved = run.expected_keys.iter().any(|(key, _)| key == path);
                assert!(!(is_further && is_moved), "{:?} was moved", source.entry.path);
            }
        }
    }
    assert!(crashes > 500 && links > 500, "{crashes} crashes, {links} links");
}

#[test]
fn a_name_that_fails_does_not_take_the_others_with_it() {
    let mut failed = 0;
    for seed in 1..600 {
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        let tree = linked_tree(&mut rng);
        let faults = Faults { source: 0.05, sink: 0.05, link: 0.1, ..Faults::default() };
        let mut disk = Disk::default();
        let mut run = Run::new(rng.next_u64(), &tree, &options(), &faults, &mut disk);
        run.finish();
        let outcome = run.sink_outcome.clone().expect("over");
        assert_eq!(outcome.failure, None);
        failed += outcome.failed.len();
        let there = disk.places.values().filter(|place| place.target.is_some()).count();
        let lost = outcome.failed.len();
        assert!(there + lost >= tree.len(), "{there} of {} and {lost} failed", tree.len());
    }
    assert!(failed > 100, "{failed} failed");
}

#[test]
fn a_dry_run_and_a_comparison_see_names_that_are_not_linked() {
    let (mut told, mut same) = (0, 0);
    for seed in 1..300 {
        let mut rng = Rng::new(seed);
        let tree = linked_tree(&mut rng);
        let mut disk = Disk::default();
        // Without the option each name is a file of its own.
        let extra = ExtraOptions { xattrs: true, ..ExtraOptions::default() };
        let plain = Options { recursive: true, extra: Box::new(extra), ..Options::default() };
        let with_links = rng.chance(0.5);
        let first = if with_links { options() } else { plain };
        let faults = Faults::default();
        Run::new(rng.next_u64(), &tree, &first, &faults, &mut disk).finish();
        let dry = Options { dry_run: true, report_files: true, ..options() };
        let verify = Options { dry_run: true, verify: true, checksum: true, ..options() };
        let further =
            |source: &&SourceEntry| matches!(source.entry.extras.hard_link, HardLink::To(_));
        let wanted = if with_links { 0 } else { tree.iter().filter(further).count() };
        for options in [dry, verify] {
            let before = disk.places.clone();
            let mut run = Run::new(rng.next_u64(), &tree, &options, &faults, &mut disk);
            run.finish();
            let is_told =
                |report: &FileReport| matches!(report, FileReport::Moved | FileReport::Differs);
            let found = run.reports.iter().filter(|(_, report)| is_told(report)).count();
            assert_eq!(found, wanted, "seed {seed}: {:?}", run.reports);
            assert_eq!(run.crossed, 0);
            assert!(disk.places == before, "nothing changes");
        }
        told += wanted;
        same += usize::from(with_links);
    }
    assert!(told > 100 && same > 100, "{told} names, {same} trees");
}
