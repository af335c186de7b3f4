//! Entries that have the path of an earlier one.

use super::*;

const FILE: EntryKind = EntryKind::File { size: 100 };

fn link() -> EntryKind {
    EntryKind::Symlink { target: b"elsewhere".to_vec() }
}

/// A sink that received each list as one segment, and found nothing at the target.
fn sink_with(options: Options, segments: &[Vec<Entry>]) -> Sink {
    let requested = Requested::anything(&options);
    let mut sink = Sink::new(options, requested, &[], [1; 16], now()).unwrap();
    let mut first = 0;
    for entries in segments {
        let segment = encode_segment(EntryId(first), entries);
        sink.on_message(now(), Message::Manifest(segment)).unwrap();
        let nothing = TargetState { target: None, temporary: None };
        sink.on_examined(now(), EntryId(first), vec![nothing; entries.len()]);
        first += entries.len() as u32;
    }
    sink.on_message(now(), manifest_end(u64::from(first))).unwrap();
    sink
}

/// The entries of which the source was told that they failed here.
fn failed(actions: &[SinkAction]) -> Vec<(u32, FailureKind)> {
    let mut failed = Vec::new();
    for action in actions {
        if let SinkAction::Send(Message::SinkFailed { entry, failure }) = action {
            failed.push((entry.0, failure.kind));
        }
    }
    failed
}

/// The files whose bytes are expected.
fn expected(actions: &[SinkAction]) -> Vec<u32> {
    plans(actions).iter().flat_map(|plan| &plan.pieces).map(|(piece, _)| piece.entry.0).collect()
}

#[test]
fn a_second_file_of_one_path_is_refused_while_the_first_is_under_way() {
    let big = EntryKind::File { size: 3 * CHUNK.get() };
    for inplace in [false, true] {
        for kind in [FILE, big.clone(), link(), EntryKind::File { size: 0 }, EntryKind::Directory] {
            for segments in [
                vec![vec![entry("x", FILE), entry("x", kind.clone())]],
                vec![vec![entry("x", FILE)], vec![entry("x", kind.clone())]],
            ] {
                let options = Options { inplace, ..Options::default() };
                let mut sink = sink_with(options, &segments);
                let all = actions(&mut sink);
                assert_eq!(failed(&all), [(1, FailureKind::TargetRefused)], "{kind:?}");
                assert_eq!(expected(&all), [0], "{kind:?}");
                let makes = |action: &SinkAction| {
                    use SinkAction::{Discard, MakeDirectory, MakeEmpty, MakeSymlink};
                    matches!(
                        action,
                        Discard(..) | MakeDirectory(..) | MakeEmpty(..) | MakeSymlink(..)
                    )
                };
                assert!(!all.iter().any(makes), "{all:?}");
            }
        }
    }
}

#[test]
fn a_file_is_refused_where_a_directory_or_a_link_was_announced() {
    for kind in [EntryKind::Directory, link()] {
        let segments = [vec![entry("x", kind.clone()), entry("y", FILE)], vec![entry("x", FILE)]];
        let mut sink = sink_with(Options::default(), &segments);
        sink.on_made(EntryId(0), Ok(()));
        let all = actions(&mut sink);
        assert_eq!(failed(&all), [(2, FailureKind::TargetRefused)], "{kind:?}");
        assert_eq!(expected(&all), [1], "{kind:?}");
    }
}

#[test]
fn a_directory_may_be_announced_by_several_sources() {
    let segments = vec![vec![entry("d", EntryKind::Directory)]; 2];
    let mut sink = sink_with(Options::default(), &segments);
    assert_eq!(failed(&actions(&mut sink)), []);
}

#[test]
fn a_path_is_free_again_when_its_entry_failed() {
    let mut sink = sink();
    for id in 0..3 {
        let segment = encode_segment(EntryId(id), &[entry("x", FILE)]);
        sink.on_message(now(), Message::Manifest(segment)).unwrap();
        if id == 1 {
            for id in 0..2 {
                let failure = Failure::new(FailureKind::Vanished, "gone");
                sink.on_message(now(), Message::SourceFailed { entry: EntryId(id), failure })
                    .unwrap();
            }
        }
    }
    sink.on_message(now(), manifest_end(3)).unwrap();
    let nothing = TargetState { target: None, temporary: None };
    (0..3).for_each(|id| sink.on_examined(now(), EntryId(id), vec![nothing]));
    let all = actions(&mut sink);
    assert_eq!((failed(&all), expected(&all)), (vec![], vec![2]));
}
