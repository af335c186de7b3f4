//! Names of one file, from any source.

use packtrain_object::HardLink;

use super::*;
use crate::action::{Found, Linked};
use crate::message::ExtraOptions;

fn options() -> Options {
    let extra = ExtraOptions { hard_links: true, ..ExtraOptions::default() };
    Options { extra: Box::new(extra), ..Options::default() }
}

/// Files of 100 bytes with these names.
fn files(links: &[HardLink]) -> Vec<Entry> {
    let named = |(n, &hard_link): (usize, &HardLink)| {
        let mut entry = entry(&format!("f{n}"), EntryKind::File { size: 100 });
        entry.extras.hard_link = hard_link;
        entry
    };
    links.iter().enumerate().map(named).collect()
}

fn first(further: u32) -> HardLink {
    HardLink::First { further }
}

fn to(id: u32) -> HardLink {
    HardLink::To(EntryId(id))
}

fn sink_with(options: Options, files: &[Entry], states: Vec<TargetState>) -> Sink {
    let requested = Requested::anything(&options);
    let mut sink = Sink::new(options, requested, &[], [1; 16], now()).unwrap();
    sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), files))).unwrap();
    sink.on_message(now(), manifest_end(files.len() as u64)).unwrap();
    sink.on_examined(now(), EntryId(0), states);
    sink
}

fn nothing() -> TargetState {
    TargetState { target: None, temporary: None }
}

/// The ids that are moved and linked by these actions.
fn work(actions: &[SinkAction]) -> (Vec<u32>, Vec<u32>) {
    let (mut moved, mut linked) = (Vec::new(), Vec::new());
    for action in actions {
        match action {
            SinkAction::Expect(plan) => {
                moved.extend(plan.pieces.iter().map(|(piece, _)| piece.entry.0));
            }
            SinkAction::Link(plan) => linked.push(plan.id.0),
            _ => {}
        }
    }
    (moved, linked)
}

/// Verifies a file of the first chunk and gives it its name.
fn name(sink: &mut Sink, id: u32) -> Vec<SinkAction> {
    verify(sink, 0, id, true);
    let token = actions(sink).into_iter().find_map(|action| match action {
        SinkAction::Sync(token) => Some(token),
        _ => None,
    });
    sink.on_synced(token.expect("a sync, because nothing else is under way"));
    actions(sink);
    sink.on_committed(EntryId(id), Ok(()));
    actions(sink)
}

#[test]
fn only_a_file_of_the_manifest_that_said_so_gets_further_names() {
    let refused = |files: &[Entry]| {
        let options = options();
        let requested = Requested::anything(&options);
        let mut sink = Sink::new(options, requested, &[], [1; 16], now()).unwrap();
        let segment = Message::Manifest(encode_segment(EntryId(0), files));
        let refused = sink.on_message(now(), segment).err().map(|failure| failure.kind);
        assert!(refused.is_none() || work(&actions(&mut sink)).1.is_empty());
        refused
    };
    let protocol = Some(FailureKind::Protocol);
    assert_eq!(refused(&files(&[first(2), to(0), to(0)])), None);
    for bad in [
        &[HardLink::None, to(0)][..],
        &[first(1), to(0), to(1)],
        &[first(1), to(0), to(0)],
        &[first(0), to(0)],
    ] {
        assert_eq!(refused(&files(bad)), protocol, "{bad:?}");
    }
    for kind in [EntryKind::Directory, EntryKind::Symlink { target: b"/etc/passwd".to_vec() }] {
        let mut with = files(&[HardLink::None, to(0)]);
        with[0].kind = kind;
        assert_eq!(refused(&with), protocol);
    }
    // Without the option the references are dropped, and each name is moved.
    let mut sink = sink_with(Options::default(), &files(&[first(1), to(0)]), vec![nothing(); 2]);
    assert_eq!(work(&actions(&mut sink)), (vec![0, 1], vec![]));
}

#[test]
fn a_name_is_linked_when_the_first_has_its_own_and_moved_if_that_is_not_possible() {
    let files = files(&[first(2), to(0), to(0)]);
    for linked in [Linked::Made, Linked::Impossible, Linked::TooMany] {
        let mut sink = sink_with(options(), &files, vec![nothing(); 3]);
        assert_eq!(work(&actions(&mut sink)), (vec![0], vec![]));
        let named = name(&mut sink, 0);
        assert_eq!(work(&named), (vec![], vec![1, 2]));
        sink.on_linked(EntryId(1), Ok(linked));
        sink.on_linked(EntryId(2), Ok(linked));
        let (moved, _) = work(&actions(&mut sink));
        let wanted = match linked {
            Linked::Made => vec![],
            Linked::Impossible => vec![1, 2],
            // The other one becomes a name of this one.
            _ => vec![1],
        };
        assert_eq!(moved, wanted, "{linked:?}");
    }
}

#[test]
fn the_next_name_is_moved_if_the_first_is_left_alone_or_fails() {
    let files = files(&[first(2), to(0), to(0)]);
    let extra = ExtraOptions { ignore_existing: true, ..*options().extra };
    let ignoring = Options { extra: Box::new(extra), ..options() };
    let found = Found { size: 7, ..found_like(&files[0]) };
    let there = TargetState { target: Some(found), temporary: None };
    let mut sink = sink_with(ignoring, &files, vec![there, nothing(), nothing()]);
    assert_eq!(work(&actions(&mut sink)), (vec![1], vec![]));
    assert_eq!(work(&name(&mut sink, 1)), (vec![], vec![2]));

    let mut sink = sink_with(options(), &files, vec![nothing(); 3]);
    actions(&mut sink);
    let failure = Failure::new(FailureKind::Vanished, "gone");
    sink.on_message(now(), Message::SourceFailed { entry: EntryId(0), failure }).unwrap();
    assert_eq!(work(&actions(&mut sink)), (vec![1], vec![]));
}

#[test]
fn a_name_of_another_size_or_time_is_a_file_of_its_own() {
    let mut files = files(&[first(2), to(0), to(0)]);
    files[1].kind = EntryKind::File { size: 101 };
    files[2].mtime.secs += 1;
    let mut sink = sink_with(options(), &files, vec![nothing(); 3]);
    assert_eq!(work(&actions(&mut sink)), (vec![0, 1, 2], vec![]));
}

#[test]
fn names_that_fail_while_they_wait_do_not_accumulate() {
    let options = options();
    let requested = Requested::anything(&options);
    let mut sink = Sink::new(options, requested, &[], [1; 16], now()).unwrap();
    let segment = |id: u32, entry: Entry| {
        Message::Manifest(encode_segment(EntryId(id), std::slice::from_ref(&entry)))
    };
    sink.on_message(now(), segment(0, files(&[first(u32::MAX)]).remove(0))).unwrap();
    sink.on_examined(now(), EntryId(0), vec![nothing()]);
    for id in 1..3_000 {
        let mut further = files(&[to(0)]).remove(0);
        further.path = RelPath::new(format!("g{id}").into_bytes()).unwrap();
        sink.on_message(now(), segment(id, further)).unwrap();
        sink.on_examined(now(), EntryId(id), vec![nothing()]);
        assert_eq!(sink.links.waiting(), 1);
        let failure = Failure::new(FailureKind::Vanished, "gone");
        sink.on_message(now(), Message::SourceFailed { entry: EntryId(id), failure }).unwrap();
        assert_eq!(sink.links.waiting(), 0);
        assert!(sink.links.stale() < 100, "{} stale names", sink.links.stale());
    }
}

#[test]
fn many_names_of_a_file_that_differs_need_no_deep_stack() {
    const NAMES: u32 = 100_000;
    let mut links = vec![first(NAMES)];
    links.extend((0..NAMES).map(|_| to(0)));
    let files = files(&links);
    let options = Options { dry_run: true, checksum: true, ..options() };
    let mut states = vec![nothing(); files.len()];
    states[0].target = Some(found_like(&files[0]));
    let requested = Requested::anything(&options);
    let mut sink = Sink::new(options, requested, &[], [1; 16], now()).unwrap();
    for (n, (files, states)) in files.chunks(1000).zip(states.chunks(1000)).enumerate() {
        let id = EntryId(1000 * n as u32);
        sink.on_message(now(), Message::Manifest(encode_segment(id, files))).unwrap();
        sink.on_examined(now(), id, states.to_vec());
    }
    assert_eq!(sink.links.waiting(), NAMES as usize);
    sink.on_target_root(EntryId(0), Some(Digest([1; 32])));
    let root = Message::Root { entry: EntryId(0), digest: Some(Digest([2; 32])) };
    sink.on_message(now(), root).unwrap();
    assert_eq!(sink.links.waiting(), 0);
    assert_eq!(sink.links.held(), 0);
}
