//! A source that removes what is durable at the sink.

use super::*;
use crate::limits::{MAX_OUTSTANDING, MAX_STORED};
use crate::message::ExtraOptions;

fn removing(sizes: &[u64]) -> Source {
    let extra = ExtraOptions { remove_source_files: true, ..ExtraOptions::default() };
    let mut source = Source::new(Options { extra: Box::new(extra), ..Options::default() }, now());
    source.on_entries(now(), entries(sizes));
    source.on_walk_end(now(), Vec::new(), Vec::new());
    actions(&mut source);
    source
}

fn stored(ids: &[u32]) -> Message {
    Message::Stored { entries: ids.iter().copied().map(EntryId).collect(), left: Vec::new() }
}

fn left(ids: &[u32]) -> Message {
    Message::Stored { entries: Vec::new(), left: ids.iter().copied().map(EntryId).collect() }
}

/// The sink examined and verified these entries.
fn verify(source: &mut Source, sizes: u64) {
    source.on_message(now(), need(Some(0), vec![], false)).unwrap();
    source.on_message(now(), Message::Verified(vec![Offset(0)..Offset(sizes)])).unwrap();
    actions(source);
}

#[test]
fn it_removes_what_is_stored_and_then_says_goodbye() {
    let mut source = removing(&[100, 200, 300]);
    verify(&mut source, 600);
    assert!(source.entry(EntryId(0)).is_some(), "held until it is stored");
    source.on_message(now(), stored(&[0, 1])).unwrap();
    source.on_message(now(), stored(&[0])).unwrap();
    source.on_message(now(), left(&[2])).unwrap();
    let remove = |id| SourceAction::Remove(EntryId(id));
    assert_eq!(actions(&mut source), [remove(0), remove(1)]);
    assert!(source.entry(EntryId(2)).is_none(), "it stays");
    source.on_removed(now(), EntryId(1), Err(Failure::new(FailureKind::Changed, "it changed")));
    source.on_message(now(), Message::Finished(Summary::default())).unwrap();
    assert_eq!(actions(&mut source), [], "one is being removed");
    assert!(source.on_message(now(), left(&[1])).is_ok());
    source.on_removed(now(), EntryId(0), Ok(()));
    let last = actions(&mut source);
    let [
        SourceAction::Send(told),
        SourceAction::Send(Message::Bye),
        SourceAction::Finished(outcome),
    ] = &last[..]
    else {
        panic!("{last:?}")
    };
    let failures = vec![(b"f0001".to_vec(), Failure::new(FailureKind::Changed, "it changed"))];
    assert_eq!(*told, Message::Removed { files: 1, failed: 1, failures });
    assert_eq!((outcome.summary.removed, outcome.summary.failed), (1, 1));
    assert_eq!(source.held.len(), 0);
}

#[test]
fn a_sink_cannot_have_removed_what_it_did_not_verify() {
    for message in [stored(&[0]), stored(&[7]), left(&[7]), stored(&vec![0; MAX_STORED + 1])] {
        let mut source = removing(&[100, 200]);
        source.on_message(now(), need(Some(0), vec![], false)).unwrap();
        actions(&mut source);
        let failure = source.on_message(now(), message.clone()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Protocol, "{message:?}");
        let removals = |action: &SourceAction| matches!(action, SourceAction::Remove(_));
        assert!(!actions(&mut source).iter().any(removals));
    }
    // What the sink left alone is not removed later.
    let mut source = removing(&[100, 200]);
    verify(&mut source, 100);
    source.on_message(now(), left(&[0])).unwrap();
    source.on_message(now(), stored(&[0])).unwrap();
    assert_eq!(actions(&mut source), []);
    // Nobody asked for removals.
    let mut plain = super::source(&[100]);
    verify(&mut plain, 100);
    assert!(plain.on_message(now(), stored(&[0])).is_err());
}

#[test]
fn entries_that_failed_are_not_removed_and_not_held() {
    let mut source = removing(&[100, 200]);
    verify(&mut source, 300);
    let failure = Failure::new(FailureKind::TargetRefused, "no");
    source.on_message(now(), Message::SinkFailed { entry: EntryId(0), failure }).unwrap();
    source.on_message(now(), stored(&[0, 1])).unwrap();
    assert_eq!(actions(&mut source), [SourceAction::Remove(EntryId(1))]);
    source.on_removed(now(), EntryId(1), Ok(()));
    assert_eq!((source.held.len(), source.walk_credit()), (0, 0));
    assert!(MAX_OUTSTANDING > source.held.len());
}
