//! One message of each kind, for tests that cover all kinds.

use packtrain_object::{ChunkIndex, Digest, EntryId};
use packtrain_units::Offset;

use super::{Hello, Message, Open, Opened, Options, PieceDigest, Progress, Role, Summary};
use crate::failure::{Failure, FailureKind};

/// A message of every kind, in the order of their type numbers, about the entry `id` and the chunk
/// that holds it.
pub(crate) fn every_kind(id: u32, segment: Vec<u8>) -> Vec<Message> {
    let entry = EntryId(id);
    let failure = Failure::new(FailureKind::Changed, "it changed");
    let digest = Digest([1; 32]);
    let range = Offset(0)..Offset(100);
    vec![
        Message::Hello(Hello { magic: *b"PKTR", lowest: 1, highest: 1, agent: String::new() }),
        Message::Open(Open {
            role: Role::Sink,
            paths: Vec::new(),
            sources: None,
            options: Options::default(),
            channel: Vec::new(),
        }),
        Message::Opened(Opened { channel: Vec::new() }),
        Message::Refused(failure.clone()),
        Message::Manifest(segment),
        Message::ManifestEnd {
            entries: 1,
            failed: 0,
            vanished: 0,
            failures: Vec::new(),
            empty: Vec::new(),
        },
        Message::Need { segment: None, ranges: vec![range.clone()], present: 0, again: false },
        Message::Digests { chunk: ChunkIndex(0), pieces: vec![PieceDigest { entry, digest }] },
        Message::Hole(range.clone()),
        Message::SourceFailed { entry, failure: failure.clone() },
        Message::StreamEnd { entry, size: 5 },
        Message::AskRoot(vec![entry]),
        Message::Root { entry, digest: Some(digest) },
        Message::Verified(vec![range]),
        Message::Progress(Progress::default()),
        Message::SinkFailed { entry, failure: failure.clone() },
        Message::Finished(Summary::default()),
        Message::Channel(Vec::new()),
        Message::Data { offset: Offset(0), bytes: vec![0] },
        Message::DataTaken(1),
        Message::Ping(1),
        Message::Pong(1),
        Message::Cancel(failure),
        Message::Bye,
        Message::NeedChanged { start: Offset(0), digest },
        Message::Same(Offset(0)),
        Message::Stored { entries: vec![entry], left: Vec::new() },
        Message::Removed { files: 1, failed: 0, failures: Vec::new() },
        Message::Rules { number: 0, dir: Vec::new(), text: b"- a".to_vec() },
    ]
}
