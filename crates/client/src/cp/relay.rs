//! A transfer between two other machines: this one passes their control messages on, and listens
//! for how far they are. Data goes directly between them unless nothing but this works.

use std::sync::Arc;

use crossbeam_channel::{never, select};
use packtrain_object::EntryId;
use packtrain_object::manifest::decode_segment;
use packtrain_os::clock;
use packtrain_transfer::message::{Message, Progress, Summary};
use packtrain_transfer::{Failure, FailureKind, Outcome, SinkTotals, removal_unknown};
use packtrain_units::{ByteCount, Duration, Offset};

use super::watch::Watch;
use packtrain_runtime::control::{Control, ControlSender, Incoming, PayloadSink};
use packtrain_runtime::reader::Slice;
use packtrain_runtime::session::{Observer, Stop};
use packtrain_runtime::sink::Leftovers;
use packtrain_runtime::skipped::Skipped;
use packtrain_runtime::target_failures::TargetFailures;
use packtrain_runtime::transports::Moved;
use packtrain_runtime::transports::offer::ControlMessage;
use packtrain_service::{StreamsReport, evidence};

/// Payload that goes through here is passed on.
struct Forward(ControlSender);

impl PayloadSink for Forward {
    fn payload(&self, at: Offset, bytes: &[u8]) -> Result<(), Failure> {
        self.0.send_payload(at, Slice::owned(at, bytes.to_vec()));
        Ok(())
    }
}

/// What the messages that pass say of the transfer's size and progress. True or not, it is only
/// shown: the ends check each other.
fn note(totals: &mut SinkTotals, message: &Message) -> bool {
    match message {
        Message::Manifest(segment) => {
            let Ok((_, entries)) = decode_segment(segment) else { return false };
            for entry in &entries {
                totals.known += ByteCount(entry.size().unwrap_or_default());
                totals.files_known += u64::from(entry.is_file());
            }
        }
        Message::ManifestEnd { .. } => totals.manifest_done = true,
        Message::Need { present, .. } => totals.present += ByteCount(*present),
        Message::Progress(progress) => {
            totals.verified = ByteCount(progress.verified);
            totals.durable = ByteCount(progress.durable);
            totals.files = progress.files;
        }
        _ => return false,
    }
    true
}

/// Maximum failures that are listed.
const MAX_FAILED: usize = 100;
/// Maximum bytes of segments that are kept for the names of entries that fail.
const MAX_NAMES_BYTES: usize = 64 << 20;

/// The segments of the manifest that passed, in their order, for the names of entries that fail.
#[derive(Default)]
struct Segments {
    all: Vec<Vec<u8>>,
    bytes: usize,
}

impl Segments {
    fn add(&mut self, segment: &[u8]) {
        if self.bytes + segment.len() <= MAX_NAMES_BYTES {
            self.bytes += segment.len();
            self.all.push(segment.to_vec());
        }
    }

    /// The path of an entry; empty if it is not known.
    fn path(&self, id: EntryId) -> Vec<u8> {
        let begins = |segment: &Vec<u8>| decode_segment(segment).is_ok_and(|(at, _)| at <= id);
        let until = self.all.partition_point(begins);
        let path = || {
            let (first, mut entries) = decode_segment(self.all.get(until.checked_sub(1)?)?).ok()?;
            let index = id.0.checked_sub(first.0)? as usize;
            (index < entries.len()).then(|| entries.swap_remove(index).path.into_bytes())
        };
        path().unwrap_or_default()
    }
}

/// How long both ends may take to end in order once the user wished the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Passes everything on until both are done, and the source has said what it removed if it
/// `removes` files.
pub(super) fn run(
    source: Control,
    sink: Control,
    removes: bool,
    watch: &Watch<'_>,
    mut stop: Stop,
) -> (Outcome, Moved) {
    let mut moved = Moved::default();
    let _ = source.payload.set(Arc::new(Forward(sink.tx.clone())));
    let mut summary = Summary::default();
    let mut failure = None;
    let mut failed = Vec::new();
    let mut target_failures = TargetFailures::default();
    let (mut streams, mut changed) = (None, 0);
    let (mut leftovers_told, mut skipped_told) = (false, false);
    let mut not_kept_told = [false; 2];
    let mut totals = SinkTotals::default();
    let mut segments = Segments::default();
    // All is durable, and the source has said goodbye, and before that what it removed.
    let (mut finished, mut done, mut removed_told) = (false, false, !removes);
    let mut wished = None;
    let tick = std::time::Duration::from_millis(200);
    loop {
        // Looked at every time: while data moves there is always a message.
        if let Some(wish) = stop.take() {
            source.tx.send(&Message::Cancel(wish.clone()));
            sink.tx.send(&Message::Cancel(wish.clone()));
            failure.get_or_insert(wish);
            wished = Some(clock::now());
        }
        if wished.is_some_and(|at| clock::now().since(at) >= FAREWELL) {
            break;
        }
        // An end that does not read is not written to: its messages wait at who sends them.
        let from_source = if sink.tx.has_room() { source.rx.clone() } else { never() };
        let from_sink = if source.tx.has_room() { sink.rx.clone() } else { never() };
        let (from, incoming) = select! {
            recv(from_source) -> incoming => (&source, incoming.ok()),
            recv(from_sink) -> incoming => (&sink, incoming.ok()),
            default(tick) => {
                watch.relayed(&totals);
                continue;
            }
        };
        let to = if std::ptr::eq(from, &source) { &sink } else { &source };
        match incoming {
            Some(Incoming::Message(message)) => {
                if note(&mut totals, &message) {
                    watch.relayed(&totals);
                }
                match &message {
                    // Payload is taken hop by hop: this end has answered for itself.
                    Message::DataTaken(_) => continue,
                    Message::Channel(bytes) => match ControlMessage::decode(bytes) {
                        Some(ControlMessage::Moved(told)) => moved = told,
                        Some(ControlMessage::Reports(reports)) => {
                            for (path, report) in &reports {
                                watch.file(path, report);
                            }
                        }
                        Some(ControlMessage::TargetFailures(failures)) => {
                            target_failures.add(failures);
                        }
                        Some(ControlMessage::Part(bytes)) => {
                            if let Some(part) = evidence::decode(&bytes) {
                                watch.part(part);
                            }
                        }
                        Some(ControlMessage::Tcp(bytes)) => streams = StreamsReport::decode(&bytes),
                        Some(ControlMessage::Leftovers(files, bytes)) => {
                            if !std::mem::replace(&mut leftovers_told, true) {
                                watch.say(Leftovers { files, bytes }.notice());
                            }
                        }
                        Some(ControlMessage::NotKept(left)) => {
                            // Once from each end.
                            let told = &mut not_kept_told[usize::from(std::ptr::eq(from, &sink))];
                            if !std::mem::replace(told, true) {
                                left.notices().into_iter().for_each(|notice| watch.say(notice));
                            }
                        }
                        Some(ControlMessage::Changed(entries)) => changed = entries,
                        Some(ControlMessage::Skipped(count, first)) => {
                            if !std::mem::replace(&mut skipped_told, true) {
                                watch.say(Skipped { count, first }.notice());
                            }
                        }
                        Some(
                            ControlMessage::Offer(_)
                            | ControlMessage::OfferBy(..)
                            | ControlMessage::Streams(_),
                        )
                        | Some(
                            ControlMessage::CandidatePaths(_)
                            | ControlMessage::Dial(..)
                            | ControlMessage::NoWay(..),
                        )
                        | None => {}
                    },
                    Message::Finished(told) => (summary, finished) = (*told, true),
                    Message::Removed { files, failed: kept, failures } => {
                        summary.removed = *files;
                        summary.failed = summary.failed.saturating_add(*kept);
                        removed_told = true;
                        target_failures.add(failures.clone());
                    }
                    Message::Cancel(why) | Message::Refused(why) => {
                        failure.get_or_insert(why.clone());
                    }
                    Message::Manifest(segment) => segments.add(segment),
                    Message::ManifestEnd { failures, .. } => {
                        target_failures.add(failures.clone());
                    }
                    Message::SourceFailed { entry, failure }
                    | Message::SinkFailed { entry, failure }
                        if failed.len() < MAX_FAILED =>
                    {
                        failed.push((segments.path(*entry), failure.clone()));
                    }
                    Message::Bye => done = true,
                    _ => {}
                }
                to.tx.send(&message);
            }
            Some(Incoming::Closed(why)) => {
                // A sink that knows all ends without the source's goodbye.
                if !done && !finished {
                    failure.get_or_insert(why.clone());
                    to.tx.send(&Message::Cancel(why));
                }
                to.tx.close();
                break;
            }
            None => break,
        }
    }
    done |= finished;
    if !done && failure.is_none() {
        failure = Some(Failure::new(FailureKind::Temporary, "an end went away"));
    }
    // The sink has counted for the last time: whatever came before is in there.
    if done && summary != Summary::default() {
        failure = if removed_told { None } else { Some(removal_unknown(failure)) };
    }
    summary.changed = changed;
    moved.streams = streams;
    let (verified, durable) = (totals.verified.get(), totals.durable.get());
    let progress = Progress { verified, durable, ..Progress::default() };
    summary.bytes_durable = progress.moved_durable(totals.present.get());
    let mut outcome = Outcome { summary, failure, failed };
    target_failures.append_to(&mut outcome);
    (outcome, moved)
}

#[cfg(test)]
mod tests {
    use packtrain_hops::route::Routes;
    use packtrain_object::manifest::encode_segment;
    use packtrain_object::{Entry, EntryKind, Mtime, RelPath};
    use packtrain_runtime::control;
    use packtrain_service::{Notice, ProgressSnapshot, Reporter};
    use packtrain_transfer::FileReport;
    use packtrain_transfer::message::Progress;

    use super::*;

    struct Silent;

    impl Reporter for Silent {
        fn progress(&self, _: &ProgressSnapshot) {}
        fn file(&self, _: &[u8], _: &FileReport) {}
        fn notice(&self, _: &Notice) {}
    }

    /// The outcome of a relay whose source removes files, whose sink has finished, and whose source
    /// then says this before its connection is closed. With `wish` the user stops it meanwhile.
    fn removal(said: &[Message], wish: bool) -> Outcome {
        let (source, source_end) = control::pair().expect("sockets");
        let (sink, sink_end) = control::pair().expect("sockets");
        let request = crate::cp::tries::tests::request();
        let watch = Watch::new(&Silent, &request, Routes::default());
        let stop = Stop::new(request.stop.clone());
        let summary = Summary { files_moved: 2, bytes_moved: 9, ..Summary::default() };
        sink_end.tx.send(&Message::Finished(summary));
        std::thread::scope(|scope| {
            let relay = scope.spawn(|| run(source, sink, true, &watch, stop).0);
            // When the source hears it, the relay knows it.
            let finished = Message::Finished(summary);
            loop {
                let incoming = source_end.rx.recv().expect("the relay passes it on");
                if matches!(incoming, Incoming::Message(message) if message == finished) {
                    break;
                }
            }
            said.iter().for_each(|message| source_end.tx.send(message));
            if wish {
                request.stop.request(15);
            } else {
                source_end.tx.close();
            }
            relay.join().expect("it ends")
        })
    }

    #[test]
    fn a_source_that_did_not_say_what_it_removed_is_a_failure() {
        let kind = |outcome: &Outcome| outcome.failure.as_ref().map(|failure| failure.kind);
        let lost = removal(&[], false);
        assert_eq!(kind(&lost), Some(FailureKind::Fatal));
        assert_eq!((lost.summary.files_moved, lost.summary.removed), (2, 0));
        assert_eq!(kind(&removal(&[], true)), Some(FailureKind::Cancelled));
        let why = Failure::new(FailureKind::Changed, "a: was copied, and not removed: it changed");
        let failures = vec![(b"a".to_vec(), why)];
        let told = Message::Removed { files: 1, failed: 1, failures: failures.clone() };
        let outcome = removal(&[told, Message::Bye], false);
        assert_eq!(kind(&outcome), None);
        assert_eq!((outcome.summary.removed, outcome.summary.failed), (1, 1));
        assert_eq!(outcome.failed, failures);
    }

    #[test]
    fn totals_come_from_the_messages_that_pass() {
        let entry = |path: &str, kind| Entry {
            path: RelPath::new(path.as_bytes().to_vec()).unwrap(),
            kind,
            mode: 0o644,
            mtime: Mtime::default(),
            uid: 0,
            gid: 0,
            extras: Default::default(),
        };
        let file = |path, size| entry(path, EntryKind::File { size });
        let entries = [file("a", 70), entry("d", EntryKind::Directory), file("d/b", 30)];
        let segment = encode_segment(EntryId(0), &entries);
        let mut totals = SinkTotals::default();
        let mut names = Segments::default();
        names.add(&segment);
        assert_eq!((names.path(EntryId(2)), names.path(EntryId(3))), (b"d/b".to_vec(), Vec::new()));
        assert!(note(&mut totals, &Message::Manifest(segment)));
        assert_eq!((totals.known, totals.files_known), (ByteCount(100), 2));
        assert!(!totals.manifest_done);
        let (failures, empty) = (Vec::new(), Vec::new());
        let end = Message::ManifestEnd { entries: 3, failed: 0, vanished: 0, failures, empty };
        assert!(note(&mut totals, &end));
        let need = Message::Need { segment: None, ranges: Vec::new(), present: 60, again: false };
        assert!(note(&mut totals, &need));
        let progress = Progress { verified: 7, durable: 3, files: 1, again: 0 };
        assert!(note(&mut totals, &Message::Progress(progress)));
        assert!(totals.manifest_done);
        assert_eq!((totals.present, totals.verified), (ByteCount(60), ByteCount(7)));
        for hostile in [&b""[..], b"\xff\xff\xff\xff", &[0; 64]] {
            names.add(hostile);
            assert!(!note(&mut totals, &Message::Manifest(hostile.to_vec())), "{hostile:?}");
        }
        let most =
            Message::Need { segment: None, ranges: Vec::new(), present: u64::MAX, again: false };
        note(&mut totals, &most);
        note(&mut totals, &most);
        assert_eq!(totals.known, ByteCount(100));
    }
}
