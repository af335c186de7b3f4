//! Queries about the files of the other end, over a control connection.
//!
//! The responder reads its own files, with the permissions that a transfer of the same caller would
//! have, and answers with digests. No contents travel, and no transport is set up. A query follows the
//! options of a [`SessionRequest`] on the wire, and needs protocol version
//! [`QUERIES`](packtrain_transfer::Versions::QUERIES) at both ends ([ADR
//! 0059](../../../docs/adr/0059-remote-lists-are-queries.md)).

mod names;

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
use names::MAX_NAMES;
pub use names::Name;

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
    /// All names, and which of them are directories.
    Names(Vec<Name>),
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
    let answers = [
        QueryAnswer::Digests(files),
        QueryAnswer::End(Ok(())),
        QueryAnswer::End(Err(failure)),
        QueryAnswer::Names(vec![(b"data".to_vec(), true), (b"a.nc".to_vec(), false)]),
    ];
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
                    Message::Cancel(failure) | Message::Refused(failure) => Err(failure),
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

    /// The next part of the other end's answer.
    fn part(&mut self) -> Result<QueryAnswer, Failure> {
        loop {
            match self.next(CHECK_INTERVAL)? {
                Some(Message::Channel(bytes)) => {
                    return postcard::from_bytes(&bytes)
                        .map_err(|_| protocol("its list is unintelligible"));
                }
                Some(_) => return Err(protocol("it answers out of turn")),
                None => {}
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
    let [path] = open.paths.as_slice() else {
        return Err(Failure::new(FailureKind::Protocol, "a query is about one directory"));
    };
    let kind = match *query {
        Query::Digests(kind) => kind,
        Query::Names => return end.send(&QueryAnswer::Names(names::collect(root, path)?)),
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
    let root = root.map(Confinement::served).transpose()?;
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
    let options = Options { recursive: true, verify: true, ..options.clone() };
    let query = (Query::Digests(kind), ticket);
    let mut end = begin(control, path, options, query, stop)?;
    let mut paths = ByteCount::ZERO;
    loop {
        match end.part()? {
            QueryAnswer::Digests(files) => {
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
            QueryAnswer::End(done) => return done.map_err(Failure::bounded),
            QueryAnswer::Names(_) => return Err(protocol("it answers another question")),
        }
    }
}

/// Asks a server for the names in a directory that begin as the last name of `path` does. The server
/// may send any bytes for names.
///
/// # Errors
/// The server refuses, is older, or cannot read the directory; or the user stops.
pub fn names(control: &Control, path: &[u8], stop: Stop) -> Result<Vec<Name>, Failure> {
    let mut end = begin(control, path, Options::default(), (Query::Names, None), stop)?;
    let mut found = Vec::new();
    loop {
        match end.part()? {
            QueryAnswer::Names(names) if found.is_empty() && names.len() <= MAX_NAMES => {
                found = names;
            }
            QueryAnswer::End(done) => return done.map(|()| found).map_err(Failure::bounded),
            _ => return Err(protocol("it answers another question")),
        }
    }
}

/// Sends a query, and waits until the other end accepts it.
fn begin<'a>(
    control: &'a Control,
    path: &[u8],
    options: Options,
    (query, ticket): (Query, Option<[u8; 16]>),
    stop: Stop,
) -> Result<QueryEnd<'a>, Failure> {
    let request = SessionRequest { ticket, query: Some(query), ..SessionRequest::default() };
    let channel = request.encode();
    let paths = vec![path.to_vec()];
    let open = Open { role: Role::Source, paths, sources: None, options, channel };
    Call::begin_query(control, open).wait(control, &stop)?;
    Ok(QueryEnd::new(control, stop))
}

#[cfg(test)]
#[path = "query_tests.rs"]
mod tests;
