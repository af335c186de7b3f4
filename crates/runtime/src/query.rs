//! Queries about the files of the other end, over a control connection.
//!
//! The responder reads its own files, with the permissions that a transfer of the same caller would
//! have, and answers with digests. No contents travel, and no transport is set up. A query follows the
//! options of a [`SessionRequest`] on the wire, and needs protocol version
//! [`QUERIES`](packtrain_transfer::Versions::QUERIES) at both ends ([ADR
//! 0059](../../../docs/adr/0059-remote-lists-are-queries.md)).

use std::cell::RefCell;
use std::time::Duration as StdDuration;

use crossbeam_channel::RecvTimeoutError;
use packtrain_object::RelPath;
use packtrain_os::clock;
use packtrain_transfer::message::{Message, Open, Options, Role};
use packtrain_transfer::{Failure, FailureKind, protocol};
use packtrain_units::ByteCount;
use serde::{Deserialize, Serialize};

use crate::checksum_list::{self, HashKind, OnDigest, Sum};
use crate::confinement::Confinement;
use crate::control::{Control, Incoming};
pub use crate::handshake::Query;
use crate::handshake::{Call, SessionRequest};
use crate::session::{Pulse, Stop};

/// Bytes of answers that are collected before they are sent.
const BATCH: usize = 64 << 10;
/// Digests that are collected before they are sent, so that the caller sees progress.
const MAX_BATCH: usize = 512;
/// What the paths and failures of an answer may take in total, in bytes, at the caller.
const MAX_PATHS: ByteCount = ByteCount(1 << 30);
/// What else a digest or a failure of an answer may take, in bytes, at the caller.
const ANSWER_BYTES: usize = size_of::<Sum>() + size_of::<Failure>();
/// How often an end that waits looks for a request to stop, and at the other end's pulse.
const CHECK_INTERVAL: StdDuration = StdDuration::from_millis(50);
/// How often a responder looks whether the caller reads on.
const ROOM_INTERVAL: StdDuration = StdDuration::from_millis(5);

/// A part of the answer.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum QueryAnswer {
    /// Files with their digests, or why they could not be read.
    Digests(Vec<(Vec<u8>, Result<Sum, Failure>)>),
    /// The answer is complete, or why it is not.
    End(Result<(), Failure>),
}

impl QueryAnswer {
    fn message(&self) -> Message {
        // Serialising plain values into memory cannot fail.
        Message::Channel(postcard::to_stdvec(self).unwrap_or_default())
    }
}

/// Parses and writes a part of an answer, for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn rewrite_answer(bytes: &[u8]) -> Option<Vec<u8>> {
    let answer: QueryAnswer = postcard::from_bytes(bytes).ok()?;
    postcard::to_stdvec(&answer).ok()
}

/// Parts of answers, for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn sample_answers() -> Vec<Vec<u8>> {
    let failure = Failure::new(FailureKind::Unreadable, "no permission");
    let files = vec![
        (b"a/b".to_vec(), Ok([7; 32])),
        (b"c".to_vec(), Err(failure.clone())),
        (b"../up".to_vec(), Ok([0; 32])),
    ];
    let answers =
        [QueryAnswer::Digests(files), QueryAnswer::End(Ok(())), QueryAnswer::End(Err(failure))];
    answers.iter().map(|answer| postcard::to_stdvec(answer).unwrap_or_default()).collect()
}

/// One end of a query: finds out that the other end is gone or that the user stops.
struct QueryEnd<'a> {
    control: &'a Control,
    stop: Stop,
    pulse: Pulse,
    /// Why it is over; told again to whoever goes on.
    over: Option<Failure>,
}

impl<'a> QueryEnd<'a> {
    fn new(control: &'a Control, stop: Stop) -> Self {
        Self { control, stop, pulse: Pulse::new(clock::now(), false), over: None }
    }

    /// The next message within `wait`, if one comes.
    fn next(&mut self, wait: StdDuration) -> Result<Option<Message>, Failure> {
        if let Some(failure) = &self.over {
            return Err(failure.clone());
        }
        self.receive(wait).map_err(|failure| self.over.insert(failure).clone())
    }

    fn receive(&mut self, wait: StdDuration) -> Result<Option<Message>, Failure> {
        let now = clock::now();
        if let Some(failure) = self.stop.take().or_else(|| self.pulse.check(now, &self.control.tx))
        {
            self.control.tx.send(&Message::Cancel(failure.clone()));
            return Err(failure);
        }
        match self.control.rx.recv_timeout(wait) {
            Ok(Incoming::Message(message)) => {
                self.pulse.on_message(clock::now());
                match message {
                    Message::Cancel(failure) | Message::Refused(failure) => Err(failure.bounded()),
                    Message::Pong(_) => {
                        self.pulse.on_pong();
                        Ok(None)
                    }
                    message => Ok(Some(message)),
                }
            }
            Ok(Incoming::Closed(failure)) => Err(failure),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Failure::new(FailureKind::Temporary, "the connection is gone"))
            }
        }
    }

    /// Sends a part of the answer once the other end has read most of the parts before.
    fn send(&mut self, answer: &QueryAnswer) -> Result<(), Failure> {
        while !self.control.tx.has_room() {
            self.next(ROOM_INTERVAL)?;
        }
        self.control.tx.send(&answer.message());
        Ok(())
    }
}

/// Carries out a query of a caller, and sends the answer.
///
/// # Errors
/// Why the answer is not complete; the caller is told.
pub fn answer(
    control: &Control,
    query: &Query,
    open: &Open,
    root: Option<&Confinement>,
    stop: Stop,
) -> Result<(), Failure> {
    let mut end = QueryEnd::new(control, stop);
    let done = collect(&mut end, query, open, root);
    control.tx.send(&QueryAnswer::End(done.clone()).message());
    done
}

fn collect(
    end: &mut QueryEnd<'_>,
    query: &Query,
    open: &Open,
    root: Option<&Confinement>,
) -> Result<(), Failure> {
    let Query::Digests(kind) = *query;
    let [path] = open.paths.as_slice() else {
        return Err(Failure::new(FailureKind::Protocol, "a query is about one directory"));
    };
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let end = RefCell::new(end);
    let mut on_digest = |path: &[u8], sum: Result<Sum, Failure>| {
        bytes += path.len() + size_of::<Sum>();
        batch.push((path.to_vec(), sum));
        if bytes >= BATCH || batch.len() >= MAX_BATCH {
            bytes = 0;
            // An error of this end stays, and `check` ends the walk.
            let _ = end.borrow_mut().send(&QueryAnswer::Digests(std::mem::take(&mut batch)));
        }
    };
    let check = || end.borrow_mut().next(StdDuration::ZERO).map(|_| ());
    let opened = |root: &Confinement| {
        root.root().map_err(|e| Failure::new(FailureKind::Fatal, format!("{root}: {e}")))
    };
    let root = root.map(opened).transpose()?;
    let path = match root {
        Some(_) => path.clone(),
        None => crate::sink::expand_home(path),
    };
    let options = &open.options;
    checksum_list::of_asked(root.as_ref(), &path, options, kind, check, &mut on_digest)?;
    end.into_inner().send(&QueryAnswer::Digests(batch))
}

/// Asks the other end for the digests of the files below `path` that the filters of `options`
/// include.
///
/// # Errors
/// The other end refuses, is older, or cannot read the directory; or the user stops.
pub fn digests(
    control: &Control,
    path: &[u8],
    options: &Options,
    (kind, ticket): (HashKind, Option<[u8; 16]>),
    stop: Stop,
    on_digest: &mut OnDigest<'_>,
) -> Result<(), Failure> {
    let query = Some(Query::Digests(kind));
    let request = SessionRequest { ticket, query, ..SessionRequest::default() };
    let options = Options { recursive: true, verify: true, ..options.clone() };
    let channel = request.encode();
    let paths = vec![path.to_vec()];
    let open = Open { role: Role::Source, paths, sources: None, options, channel };
    Call::begin_query(control, open).wait(control, &stop)?;
    let mut end = QueryEnd::new(control, stop);
    let mut paths = ByteCount::ZERO;
    loop {
        let bytes = match end.next(CHECK_INTERVAL)? {
            Some(Message::Channel(bytes)) => bytes,
            Some(_) => return Err(protocol("it answers out of turn")),
            None => continue,
        };
        match postcard::from_bytes(&bytes) {
            Ok(QueryAnswer::Digests(files)) => {
                for (path, sum) in files {
                    let sum = sum.map_err(Failure::bounded);
                    let text = sum.as_ref().err().map_or(0, |failure| failure.text.len());
                    paths += ByteCount((path.len() + text + ANSWER_BYTES) as u64);
                    if paths > MAX_PATHS {
                        return Err(protocol("its list is longer than 1 GiB"));
                    }
                    let Ok(path) = RelPath::try_from(path) else {
                        return Err(protocol("a path in its list leads out of the directory"));
                    };
                    on_digest(path.as_bytes(), sum);
                }
            }
            Ok(QueryAnswer::End(done)) => return done.map_err(Failure::bounded),
            Err(_) => return Err(protocol("its list is unintelligible")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use packtrain_service::StopHandle;
    use packtrain_transfer::Versions;
    use packtrain_transfer::limits::MAX_TEXT;
    use packtrain_transfer::message::Hello;

    use super::*;
    use crate::control::pair;
    use crate::handshake;

    type Files = Vec<(Vec<u8>, Result<Sum, Failure>)>;

    /// A caller that asks `called`, which runs in a thread of its own.
    fn ask(
        path: &[u8],
        options: &Options,
        kind: HashKind,
        called: impl FnOnce(Control) + Send + 'static,
    ) -> (Files, Result<(), Failure>) {
        let (near, far) = pair().expect("sockets");
        let thread = std::thread::spawn(move || called(far));
        let mut files = Files::new();
        let mut note = |path: &[u8], sum: Result<Sum, Failure>| files.push((path.to_vec(), sum));
        let stop = Stop::new(StopHandle::new());
        let done = digests(&near, path, options, (kind, None), stop, &mut note);
        drop(near);
        thread.join().expect("no panic");
        (files, done)
    }

    /// A responder that serves the directory `root`, as a server does.
    fn serving(root: &Path) -> impl FnOnce(Control) + Send + 'static {
        let root = Confinement::open(root).expect("a directory");
        move |far| {
            let stop = || Stop::new(StopHandle::new());
            let mut asked = handshake::answer(&far, &stop()).expect("a request");
            let request = SessionRequest::decode(&asked.open.channel).expect("understood");
            *asked.open.options.extra = request.options;
            let channel = packtrain_service::ceilings::Ceilings::default().encode();
            far.tx.send(&Message::Opened(packtrain_transfer::Opened { channel }));
            let query = request.query.expect("a query");
            let _ = answer(&far, &query, &asked.open, Some(&root), stop());
            far.tx.close();
            far.tx.wait_closed(StdDuration::from_secs(60));
        }
    }

    /// A responder that accepts the query and sends this.
    fn saying(parts: Vec<Message>) -> impl FnOnce(Control) + Send + 'static {
        move |far| {
            handshake::answer(&far, &Stop::new(StopHandle::new())).expect("a request");
            let channel = packtrain_service::ceilings::Ceilings::default().encode();
            far.tx.send(&Message::Opened(packtrain_transfer::Opened { channel }));
            parts.iter().for_each(|part| far.tx.send(part));
            far.tx.close();
            far.tx.wait_closed(StdDuration::from_secs(60));
        }
    }

    #[test]
    fn the_other_end_answers_with_the_digests_of_its_files_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("tree/sub")).expect("fine");
        for name in ["tree/a", "tree/sub/b", "tree/c.log", "beside"] {
            fs::write(root.join(name), name).expect("fine");
        }
        fs::write(dir.path().join("secret"), "no").expect("fine");
        std::os::unix::fs::symlink("../../secret", root.join("tree/link")).expect("fine");
        let options = Options { filters: vec!["- *.log".to_owned()], ..Options::default() };
        let sha = |text: &str| {
            let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
            Sum::try_from(sum.as_ref()).expect("32 bytes")
        };
        let (files, done) = ask(b"tree", &options, HashKind::Sha256, serving(&root));
        assert_eq!(done, Ok(()));
        let wanted = [("a", "tree/a"), ("sub/b", "tree/sub/b")];
        let wanted = wanted.map(|(name, text)| (name.as_bytes().to_vec(), Ok(sha(text))));
        assert_eq!(files, wanted);
        let (files, done) = ask(b"/tree/sub/", &options, HashKind::Blake3, serving(&root));
        assert_eq!(done, Ok(()));
        assert_eq!(files[0].1, Ok(*blake3::hash(b"tree/sub/b").as_bytes()));
        // No path leads out of the directory that is served.
        for (path, kind) in
            [("..", FailureKind::NotAuthorised), ("none", FailureKind::SourceMissing)]
        {
            let (files, done) = ask(path.as_bytes(), &options, HashKind::Blake3, serving(&root));
            assert_eq!((files.len(), done.unwrap_err().kind), (0, kind), "{path}");
        }
    }

    #[test]
    fn more_digests_than_a_message_holds_arrive_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        for index in 0..2 * MAX_BATCH + 1 {
            fs::write(dir.path().join(format!("{index:06}")), "").expect("fine");
        }
        let options = Options::default();
        let (files, done) = ask(b"", &options, HashKind::Blake3, serving(dir.path()));
        assert_eq!(done, Ok(()));
        assert_eq!(files.len(), 2 * MAX_BATCH + 1);
        assert!(files.is_sorted_by(|one, two| one.0 < two.0));
    }

    #[test]
    fn a_hostile_answer_ends_the_query() {
        let file = |path: &[u8]| QueryAnswer::Digests(vec![(path.to_vec(), Ok([1; 32]))]).message();
        let long = Failure::new(FailureKind::Fatal, "x".repeat(500_000));
        for (parts, why) in [
            (vec![file(b"../up")], "leads out"),
            (vec![file(b"/etc/passwd")], "leads out"),
            (vec![file(b"a\0b")], "leads out"),
            (vec![file(b"a"), Message::Channel(vec![9, 9])], "unintelligible"),
            (vec![Message::Bye], "out of turn"),
            // The list is cut off.
            (vec![file(b"a")], "connection"),
            (vec![QueryAnswer::End(Err(long)).message()], "xxx"),
        ] {
            let (_, done) = ask(b"", &Options::default(), HashKind::Blake3, saying(parts));
            let text = done.expect_err(why).text;
            assert!(text.contains(why) && text.len() <= MAX_TEXT, "{why}: {text}");
        }
    }

    #[test]
    fn an_end_that_does_not_know_queries_refuses() {
        let older = |far: Control| {
            far.tx.send(&Message::Hello(Hello {
                magic: *b"PKTR",
                lowest: 1,
                highest: Versions::QUERIES - 1,
                agent: "packtrain 0.1.0".to_owned(),
            }));
            far.tx.close();
            far.tx.wait_closed(StdDuration::from_secs(60));
        };
        let (_, done) = ask(b"", &Options::default(), HashKind::Blake3, older);
        let text = done.expect_err("it is older").text;
        assert!(text.contains("older"), "{text}");
    }
}
