//! The messages of a hostile peer, chosen by bytes from a seed or a fuzzer. The end-to-end tests
//! and the fuzz targets share this file.

use std::ops::Range;
use std::sync::Arc;

use packtrain_object::{
    Attributes, ChunkIndex, Digest, Entry, EntryId, EntryKind, Extras, HardLink, Mtime, RelPath,
    encode_segment,
};
use packtrain_transfer::message::{Message, PieceDigest, Progress, Summary};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::Offset;

/// The name that the victim requested; entries below it are requested too.
pub(crate) const ASKED: &str = "asked";

/// Names that a hostile source tries.
const NAMES: [&str; 16] = [
    ASKED,
    "asked/file",
    "asked/sub",
    "asked/sub/deep",
    "asked/l",
    "asked/l/.bashrc",
    ".bashrc",
    ".ssh",
    ".ssh/authorized_keys",
    "askedx",
    "bystander",
    "kept",
    "kept/file",
    "kept/new",
    "",
    "asked/l/bystander",
];

/// Bytes that determine the choices.
#[derive(Debug)]
pub(crate) struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Choices from these bytes; after their end all choices are 0.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether no byte is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.byte() % end.max(1)
    }

    fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first)
    }

    /// A number that is often at the limit of a type or a protocol field.
    fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => 1,
            2 => 100,
            3 => 4 << 20,
            4 => (4 << 20) + self.byte() as u64,
            5 => u64::MAX - self.byte() as u64,
            6 => 1 << 62,
            _ => self.byte() as u64,
        }
    }

    fn range(&mut self) -> Range<Offset> {
        Offset(self.number())..Offset(self.number())
    }

    fn ranges(&mut self) -> Vec<Range<Offset>> {
        (0..self.below(5)).map(|_| self.range()).collect()
    }

    fn id(&mut self) -> EntryId {
        match self.below(10) {
            9 => EntryId(u32::MAX),
            small => EntryId(small as u32),
        }
    }

    fn digest(&mut self) -> Digest {
        Digest([self.below(2) as u8; 32])
    }
}

/// An entry with a requested or another name.
pub(crate) fn entry(choices: &mut Choices<'_>) -> Entry {
    let name = NAMES[choices.below(NAMES.len())];
    let path = RelPath::try_from(name.as_bytes().to_vec()).unwrap_or_default();
    let targets = ["..", ".", "/etc/passwd", "../bystander"];
    let kind = match choices.below(8) {
        0..3 => EntryKind::Directory,
        3 => EntryKind::Symlink { target: targets[choices.below(4)].as_bytes().to_vec() },
        4 => EntryKind::Stream,
        _ => EntryKind::File { size: choices.number().min(i64::MAX as u64) },
    };
    let kind = if path.is_root() { EntryKind::Directory } else { kind };
    let mode = [0o644, 0o4755, 0o2777, 0][choices.below(4)];
    let mtime = Mtime { secs: choices.number() as i64, nanos: 0 };
    let extras = extras(choices, &kind);
    Entry { path, kind, mode, mtime, uid: 0, gid: 0, extras }
}

/// Sometimes a name of another file, attributes or an access control list.
fn extras(choices: &mut Choices<'_>, kind: &EntryKind) -> Extras {
    let hard_link = match (choices.below(4), kind) {
        (0, EntryKind::File { .. }) => HardLink::First { further: choices.number() as u32 },
        (1, EntryKind::File { .. }) => HardLink::To(choices.id()),
        _ => HardLink::None,
    };
    let has = !matches!(kind, EntryKind::Symlink { .. }) && choices.below(4) == 0;
    let pair = (b"name".to_vec(), vec![7; choices.byte()]);
    let attributes = has.then(|| Attributes::new(vec![pair]).unwrap_or_default());
    let acls = (has && choices.below(2) == 0).then(Arc::default);
    Extras { hard_link, attributes: attributes.map(Arc::new), acls }
}

/// A message, and the number of entries announced after it.
pub(crate) fn message(choices: &mut Choices<'_>, announced: u32) -> (Message, u32) {
    let failure = Failure::new(FailureKind::Changed, "a text");
    let mut after = announced;
    let message = match choices.below(36) {
        0..8 => {
            let entries: Vec<_> = (0..=choices.below(4)).map(|_| entry(choices)).collect();
            let first = if choices.below(12) == 0 { choices.id() } else { EntryId(announced) };
            after = announced.saturating_add(entries.len() as u32);
            Message::Manifest(encode_segment(first, &entries))
        }
        8 => Message::Manifest((0..choices.below(40)).map(|n| n as u8).collect()),
        9 | 10 => Message::ManifestEnd {
            entries: if choices.below(4) == 0 { choices.number() } else { announced.into() },
            failed: choices.number(),
            vanished: choices.number(),
            failures: Vec::new(),
            empty: Vec::new(),
        },
        11 | 12 => Message::Need {
            segment: (choices.below(2) == 0).then(|| choices.id()),
            ranges: choices.ranges(),
            present: choices.number(),
            again: choices.below(2) == 0,
        },
        13..16 => {
            let pieces = (0..choices.below(4))
                .map(|_| PieceDigest { entry: choices.id(), digest: choices.digest() })
                .collect();
            Message::Digests { chunk: ChunkIndex(choices.number() >> 22), pieces }
        }
        16 => Message::Hole(choices.range()),
        17 => Message::SourceFailed { entry: choices.id(), failure },
        18 => Message::StreamEnd { entry: choices.id(), size: choices.number() },
        19 => Message::AskRoot((0..choices.below(4)).map(|_| choices.id()).collect()),
        20 => {
            let digest = (choices.below(2) == 0).then(|| choices.digest());
            Message::Root { entry: choices.id(), digest }
        }
        21 => Message::Verified(choices.ranges()),
        22 => Message::Progress(Progress { verified: choices.number(), ..Progress::default() }),
        23 => Message::SinkFailed { entry: choices.id(), failure },
        24 => Message::Finished(Summary { bytes: choices.number(), ..Summary::default() }),
        25 => Message::Channel((0..choices.below(60)).map(|n| n as u8).collect()),
        26 | 27 => Message::Data {
            offset: Offset(choices.number()),
            bytes: vec![7; choices.below(256) << choices.below(10)],
        },
        28 => Message::DataTaken(choices.number()),
        29 => Message::Ping(choices.number()),
        30 => Message::Pong(choices.number()),
        31 => Message::NeedChanged { start: Offset(choices.number()), digest: choices.digest() },
        32 => Message::Same(Offset(choices.number())),
        33 => Message::Stored {
            entries: (0..choices.below(3)).map(|_| choices.id()).collect(),
            left: (0..choices.below(3)).map(|_| choices.id()).collect(),
        },
        34 => Message::Removed {
            files: choices.number(),
            failed: choices.number(),
            failures: Vec::new(),
        },
        _ if choices.below(4) == 0 => Message::Bye,
        _ => Message::Cancel(failure),
    };
    (message, after)
}
