use packtrain_object::{Entry, EntryKind, Mtime, RelPath};

use super::*;

fn entry(kind: EntryKind) -> Entry {
    let path = RelPath::new(b"a/b".to_vec()).unwrap();
    let mtime = Mtime { secs: 1000, nanos: 123_456_789 };
    Entry { path, kind, mode: 0o644, mtime, uid: 1, gid: 1, extras: Default::default() }
}

fn file(size: u64) -> Entry {
    entry(EntryKind::File { size })
}

fn found(size: u64) -> Found {
    let mtime = Mtime { secs: 1000, nanos: 123_456_789 };
    Found {
        kind: FoundKind::File,
        size,
        mtime,
        mode: 0o644,
        same_link: false,
        same_attributes: true,
        makes_way: false,
    }
}

fn decided(options: &Options, entry: &Entry, found: Option<Found>) -> Decision {
    decide(options, entry, false, found.as_ref())
}

#[test]
fn same_size_and_time_is_unchanged() {
    let options = Options::default();
    let keep = Decision::Keep { settle: false };
    assert_eq!(decided(&options, &file(5), Some(found(5))), keep);
    assert_eq!(decided(&options, &file(5), Some(found(6))), Decision::Move);
    assert_eq!(decided(&options, &file(5), None), Decision::Move);
    assert_eq!(decided(&options, &file(0), None), Decision::Make);
    let other_mode = Found { mode: 0o600, ..found(5) };
    assert_eq!(decided(&options, &file(5), Some(other_mode)), Decision::Keep { settle: true });
    for nanos in [123_456_000, 0] {
        let coarse = Found { mtime: Mtime { secs: 1000, nanos }, ..found(5) };
        assert_eq!(decided(&options, &file(5), Some(coarse)), Decision::Move);
    }
    let later = Found { mtime: Mtime { secs: 1001, nanos: 123_456_789 }, ..found(5) };
    assert_eq!(decided(&options, &file(5), Some(later)), Decision::Move);
}

#[test]
fn options_leave_entries_alone() {
    use crate::message::ExtraOptions;
    let with = |extra: ExtraOptions| Options { extra: Box::new(extra), ..Options::default() };
    let plain = ExtraOptions::default();
    let directory = entry(EntryKind::Directory);
    let there = Found { kind: FoundKind::Directory, ..found(0) };
    let ignore = with(ExtraOptions { ignore_existing: true, ..plain.clone() });
    assert_eq!(decided(&ignore, &file(6), Some(found(5))), Decision::Skip);
    assert_eq!(decided(&ignore, &file(6), None), Decision::Move);
    assert_eq!(decided(&ignore, &directory, Some(there)), Decision::Keep { settle: false });
    assert_eq!(decided(&ignore, &directory, Some(found(5))), Decision::Skip);
    let only = with(ExtraOptions { existing_only: true, ..plain.clone() });
    assert_eq!(decided(&only, &file(6), None), Decision::Skip);
    assert_eq!(decided(&only, &directory, None), Decision::Skip);
    assert_eq!(decided(&only, &file(6), Some(found(5))), Decision::Move);
    let size = with(ExtraOptions { size_only: true, ..plain.clone() });
    let later = Found { mtime: Mtime { secs: 2000, nanos: 0 }, ..found(5) };
    assert_eq!(decided(&size, &file(5), Some(later)), Decision::Keep { settle: true });
    assert_eq!(decided(&size, &file(6), Some(later)), Decision::Move);
    let sizes = with(ExtraOptions { min_size: Some(2), max_size: Some(4), ..plain });
    for (size, skipped) in [(1, true), (2, false), (4, false), (5, true)] {
        assert_eq!(decided(&sizes, &file(size), None) == Decision::Skip, skipped, "{size}");
    }
    assert_eq!(decided(&sizes, &directory, None), Decision::Make);
}

#[test]
fn options_change_what_is_unchanged() {
    let later = Found { mtime: Mtime { secs: 2000, nanos: 0 }, ..found(5) };
    let earlier = Found { mtime: Mtime { secs: 1, nanos: 0 }, ..found(5) };
    let update = Options { update: true, ..Options::default() };
    assert_eq!(decided(&update, &file(7), Some(later)), Decision::Keep { settle: false });
    assert_eq!(decided(&update, &file(7), Some(earlier)), Decision::Move);
    let same_second = Found { mtime: Mtime { secs: 1000, nanos: 999_999_999 }, ..found(5) };
    let coarse = Options { whole_seconds: true, ..update.clone() };
    assert_eq!(decided(&update, &file(7), Some(same_second)), Decision::Keep { settle: false });
    assert_eq!(decided(&coarse, &file(5), Some(same_second)), Decision::Move);
    assert_eq!(decided(&coarse, &file(7), Some(later)), Decision::Keep { settle: false });
    let checksum = Options { checksum: true, ..Options::default() };
    assert_eq!(decided(&checksum, &file(5), Some(found(5))), Decision::Compare);
    assert_eq!(decided(&checksum, &file(5), Some(later)), Decision::Compare);
    assert_eq!(decided(&checksum, &file(6), Some(found(5))), Decision::Move);
    let dry = Options { dry_run: true, ..Options::default() };
    assert_eq!(decided(&dry, &file(6), Some(found(5))), Decision::ReportOnly(FileReport::Moved));
    let verify = Options { verify: true, dry_run: true, ..Options::default() };
    assert_eq!(
        decided(&verify, &file(6), Some(found(5))),
        Decision::ReportOnly(FileReport::Differs)
    );
    assert_eq!(decided(&verify, &file(6), None), Decision::ReportOnly(FileReport::Missing));
    assert_eq!(decided(&verify, &file(6), Some(found(6))), Decision::Compare);
}

#[test]
fn an_unfinished_file_in_place_is_not_trusted_by_its_digest() {
    let later = Found { mtime: Mtime { secs: 2000, nanos: 0 }, ..found(5) };
    let checksum = Options { checksum: true, inplace: true, ..Options::default() };
    assert_eq!(decided(&checksum, &file(5), Some(later)), Decision::Move);
    assert_eq!(decided(&checksum, &file(5), Some(found(5))), Decision::Compare);
    let verify = Options { verify: true, ..checksum };
    assert_eq!(decided(&verify, &file(5), Some(later)), Decision::Compare, "it changes nothing");
}

#[test]
fn kinds_that_are_in_the_way() {
    let options = Options::default();
    let kind = |kind| Some(Found { kind, ..found(5) });
    let link = entry(EntryKind::Symlink { target: b"t".to_vec() });
    let directory = entry(EntryKind::Directory);
    let is_refused =
        |decision| matches!(decision, Decision::Fail(f) if f.kind == FailureKind::TargetRefused);
    assert!(is_refused(decided(&options, &file(5), kind(FoundKind::Directory))));
    assert!(is_refused(decided(&options, &file(5), kind(FoundKind::Other))));
    assert!(is_refused(decided(&options, &link, kind(FoundKind::Directory))));
    assert_eq!(decided(&options, &file(5), kind(FoundKind::Symlink)), Decision::Move);
    assert_eq!(decided(&options, &link, kind(FoundKind::File)), Decision::Make);
    assert_eq!(decided(&options, &directory, kind(FoundKind::File)), Decision::Make);
    let here = decided(&options, &directory, kind(FoundKind::Directory));
    assert_eq!(here, Decision::Keep { settle: false });
    let same = Found { kind: FoundKind::Symlink, same_link: true, ..found(5) };
    assert_eq!(decided(&options, &link, Some(same)), Decision::Keep { settle: false });
}

#[test]
fn a_stream_always_moves() {
    let checksum = Options { checksum: true, ..Options::default() };
    for options in [Options::default(), checksum] {
        let ended = decide(&options, &file(5), true, Some(&found(5)));
        assert_eq!(ended, Decision::Move);
        let open = decide(&options, &entry(EntryKind::Stream), true, Some(&found(5)));
        assert_eq!(open, Decision::Move);
    }
}
