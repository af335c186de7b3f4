//! Requests that a sink must not make, and entries that a walk must not pass.

use super::*;

fn comparing(checksum: bool, verify: bool) -> Source {
    let options = Options { checksum, verify, ..Options::default() };
    let mut source = Source::new(options, now());
    source.on_entries(now(), entries(&[100, 200]));
    source.on_walk_end(now(), Vec::new(), Vec::new());
    actions(&mut source);
    source
}

fn ask(source: &mut Source, ids: &[u32]) -> Result<(), FailureKind> {
    let ids = ids.iter().copied().map(EntryId).collect();
    source.on_message(now(), Message::AskRoot(ids)).map_err(|failure| failure.kind)
}

#[test]
fn digests_of_files_are_told_only_where_files_are_compared() {
    for (checksum, verify) in [(true, false), (false, true)] {
        let mut source = comparing(checksum, verify);
        assert_eq!(ask(&mut source, &[0, 1]), Ok(()));
        let hash = |id| SourceAction::HashFile(EntryId(id));
        assert_eq!(actions(&mut source), [hash(0), hash(1)]);
    }
    assert_eq!(ask(&mut comparing(false, false), &[0]), Err(FailureKind::Protocol));
}

#[test]
fn a_file_is_hashed_once() {
    assert_eq!(ask(&mut comparing(true, false), &[1, 1]), Err(FailureKind::Protocol));
    let mut source = comparing(true, false);
    assert_eq!(ask(&mut source, &[1]), Ok(()));
    assert_eq!(ask(&mut source, &[0]), Ok(()));
    source.on_root(now(), EntryId(1), None);
    assert_eq!(ask(&mut source, &[1]), Err(FailureKind::Protocol));
}

#[test]
fn long_paths_pause_the_walk_and_their_end_lets_it_go_on() {
    let mut source = Source::new(Options::default(), now());
    let long = format!("{}/", "d".repeat(250)).repeat(15);
    let kind = EntryKind::Symlink { target: vec![b'x'; 4000] };
    let mut held = 0;
    let mut count = 0;
    while source.walk_credit() > 0 {
        let credit = source.walk_credit() as u64;
        assert!(held + credit * MAX_ENTRY_PATHS <= MAX_OUTSTANDING_PATHS.get());
        let mut all = entries(&vec![0; source.walk_credit().min(500)]);
        for entry in &mut all {
            let path = format!("{long}{count:08}").into_bytes();
            entry.path = RelPath::new(path).unwrap();
            entry.kind = kind.clone();
            held += entry.path.as_bytes().len() as u64 + 4000;
            count += 1;
        }
        source.on_entries(now(), all);
        actions(&mut source);
    }
    assert!(held > MAX_OUTSTANDING_PATHS.get() - MAX_ENTRY_PATHS);
    source.on_timeout(now() + Duration::from_secs(1));
    while let Some((first, _)) = source.segments.first_unanswered() {
        source.on_message(now(), need(Some(first.0), vec![], false)).unwrap();
    }
    assert_eq!(source.held.paths(), 0);
    assert!(source.walk_credit() > 0);
}
