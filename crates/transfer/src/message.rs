//! Control messages: what the two ends of a transfer say to each other.
//!
//! A frame is a little-endian u32 length (of what follows, at most [`MAX_FRAME`]), one type
//! byte and the body. [`Message::Data`] has a body of its own (offset, bytes) so that the pipe
//! transport copies nothing; every other body is postcard.

mod codec;
#[cfg(test)]
pub(crate) mod samples;

use std::ops::Range;

use packtrain_object::{ChunkIndex, Digest, Entry, EntryId, EntryKind, SourceName};
use packtrain_units::Offset;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, protocol};

pub use codec::{DATA_HEADER, Decoder, MessageError, data_header, encode};

/// The largest frame a peer may send; a longer one ends the connection.
pub const MAX_FRAME: usize = 1 << 20;
/// The most payload in one [`Message::Data`].
pub const MAX_DATA: usize = 256 << 10;
/// Protocol versions this build speaks, lowest and highest.
pub const VERSIONS: (u16, u16) = (1, 1);

/// One control message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// First from both ends.
    Hello(Hello),
    /// From the end that called: what is to be done. The answer is `Opened` or `Refused`.
    Open(Open),
    /// The called end agrees.
    Opened(Opened),
    /// The called end, or at any time either end, will not go on.
    Refused(Failure),
    /// Source: entries, as `packtrain_object::manifest` encodes a segment.
    Manifest(Vec<u8>),
    /// Source: the walk is over; nothing follows `entries` entries.
    ManifestEnd {
        /// How many entries there were.
        entries: u64,
        /// What the walk could not read at all, how many.
        failed: u64,
        /// Of those, what was gone when the walk came to it.
        vanished: u64,
        /// The first hundred of them.
        failures: Vec<(Vec<u8>, Failure)>,
        /// The sources that brought no file, by the path that they have at the target: nothing
        /// for one that stands for its contents. The sink deletes nothing below these.
        empty: Vec<Vec<u8>>,
    },
    /// Sink: it looked at the entries of a segment, or `ranges` are needed, or both.
    Need {
        /// First entry of the segment that this answers, if it answers one. The ranges a segment
        /// needs follow in further messages, no more of them than the sink wants on the way.
        segment: Option<EntryId>,
        /// Ranges to move, ascending, each whole pieces of chunks.
        ranges: Vec<Range<Offset>>,
        /// Bytes found, since the last `Need`, to be at the sink already.
        present: u64,
        /// Whether these were moved before and failed verification.
        again: bool,
    },
    /// Source: digests of the pieces of one chunk, in offset order.
    Digests {
        /// The chunk.
        chunk: ChunkIndex,
        /// A digest for each piece of the chunk that the sink needs or asked for.
        pieces: Vec<PieceDigest>,
    },
    /// Source: this range reads as zeros and is a hole in the source's file; it counts as placed.
    Hole(Range<Offset>),
    /// Source: nothing (more) comes of this entry.
    SourceFailed {
        /// The entry.
        entry: EntryId,
        /// Why.
        failure: Failure,
    },
    /// Source: the stream entry ended at this size.
    StreamEnd {
        /// The stream's entry.
        entry: EntryId,
        /// Its size in bytes.
        size: u64,
    },
    /// Sink to source (`--checksum`, `verify`): tell the root digest of this file.
    AskRoot(Vec<EntryId>),
    /// Source: root digest of a whole file; none if it could not be read.
    Root {
        /// The entry.
        entry: EntryId,
        /// Its BLAKE3 digest, as `b3sum` prints it.
        digest: Option<Digest>,
    },
    /// Sink: these ranges are verified; the source may forget them.
    Verified(Vec<Range<Offset>>),
    /// Sink: how far it is, at least once a second while anything changes.
    Progress(Progress),
    /// Sink: it could not write this entry; the source stops sending it.
    SinkFailed {
        /// The entry.
        entry: EntryId,
        /// Why.
        failure: Failure,
    },
    /// Sink: everything that could be done is durable. The source answers with `Bye`.
    Finished(Summary),
    /// Either end, opaque to the transfer: setting up transports.
    Channel(Vec<u8>),
    /// Source, pipe transport: payload.
    Data {
        /// Where it goes.
        offset: Offset,
        /// The bytes, at most [`MAX_DATA`].
        bytes: Vec<u8>,
    },
    /// Sink, pipe transport: it took this many payload bytes so far off the pipe.
    DataTaken(u64),
    /// Either end: answered by `Pong` with the same number.
    Ping(u64),
    /// The answer.
    Pong(u64),
    /// Either end gives up; what is safe stays safe.
    Cancel(Failure),
    /// The end of the conversation.
    Bye,
}

impl Message {
    /// Its name in the description of the wire format.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "Hello",
            Self::Open(_) => "Open",
            Self::Opened(_) => "Opened",
            Self::Refused(_) => "Refused",
            Self::Manifest(_) => "Manifest",
            Self::ManifestEnd { .. } => "ManifestEnd",
            Self::Need { .. } => "Need",
            Self::Digests { .. } => "Digests",
            Self::Hole(_) => "Hole",
            Self::SourceFailed { .. } => "SourceFailed",
            Self::StreamEnd { .. } => "StreamEnd",
            Self::AskRoot(_) => "AskRoot",
            Self::Root { .. } => "Root",
            Self::Verified(_) => "Verified",
            Self::Progress(_) => "Progress",
            Self::SinkFailed { .. } => "SinkFailed",
            Self::Finished(_) => "Finished",
            Self::Channel(_) => "Channel",
            Self::Data { .. } => "Data",
            Self::DataTaken(_) => "DataTaken",
            Self::Ping(_) => "Ping",
            Self::Pong(_) => "Pong",
            Self::Cancel(_) => "Cancel",
            Self::Bye => "Bye",
        }
    }
}

/// The first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Always `PKTR`.
    pub magic: [u8; 4],
    /// Lowest protocol version spoken.
    pub lowest: u16,
    /// Highest protocol version spoken.
    pub highest: u16,
    /// Program and version, for messages to people.
    pub agent: String,
}

/// What the caller asks of the called end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// The part that the called end plays.
    pub role: Role,
    /// For a source: the paths to read. For a sink: one path, the destination. Bytes, as the
    /// remote system spells them.
    pub paths: Vec<Vec<u8>>,
    /// For a sink: the names of the sources, so that it takes nothing else from them. None if the
    /// caller sends them itself and answers for what it sends.
    pub sources: Option<Vec<SourceName>>,
    /// How to go about it; both ends get the same.
    pub options: Options,
    /// Opaque to the transfer: what the caller's driver tells the called end's.
    pub channel: Vec<u8>,
}

/// The called end's agreement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Opaque to the transfer.
    pub channel: Vec<u8>,
}

/// The part an end plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// It reads files and sends.
    Source,
    /// It receives and writes files.
    Sink,
}

/// How a transfer is to be done. Defaults are those of the command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Descend into directories.
    pub recursive: bool,
    /// Use and keep a journal.
    pub resume: Resume,
    /// Compare contents instead of size and mtime.
    pub checksum: bool,
    /// Skip files that are newer at the target.
    pub update: bool,
    /// Delete what is at the target and not in the source, at the end, if nothing failed.
    pub delete: bool,
    /// Let `delete` act even if the source was empty.
    pub force_delete: bool,
    /// The most names that `delete` removes, if there is a limit.
    pub max_delete: Option<u64>,
    /// Change nothing; say what would be done.
    pub dry_run: bool,
    /// Only compare (the `verify` command): `dry_run` and `checksum`, differences are failures.
    pub verify: bool,
    /// Write into the target file itself instead of a temporary beside it.
    pub inplace: bool,
    /// Keep mode bits.
    pub preserve_mode: bool,
    /// Keep modification times.
    pub preserve_times: bool,
    /// Keep owner and group, and the set-user-id and set-group-id bits with them. What the sink may
    /// not set it leaves, and counts.
    pub preserve_owner: bool,
    /// Filter rules in order, in rsync's spelling: `+ pattern` or `- pattern`.
    pub filters: Vec<String>,
    /// Copy only these paths below the sources (`--files-from`), if any.
    pub files_from: Option<Vec<Vec<u8>>>,
    /// Ceiling of the sending rate in bits a second, if any.
    pub rate_bps: Option<u64>,
    /// Report each file as it is done.
    pub report_files: bool,
}

impl Options {
    /// The mode that an entry is to get, 07777; none where the source has none. Without its owner it
    /// gets neither the set-user-id nor the set-group-id bit, which would act for somebody else; a
    /// file no sticky bit either.
    pub fn mode_of(&self, entry: &Entry) -> Option<u32> {
        let kept = match entry.kind {
            _ if self.preserve_owner => 0o7777,
            EntryKind::Directory => 0o1777,
            _ => 0o777,
        };
        entry.permissions().map(|mode| mode & kept)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            recursive: false,
            resume: Resume::On,
            checksum: false,
            update: false,
            delete: false,
            force_delete: false,
            max_delete: None,
            dry_run: false,
            verify: false,
            inplace: false,
            preserve_mode: true,
            preserve_times: true,
            preserve_owner: false,
            filters: Vec::new(),
            files_from: None,
            rate_bps: None,
            report_files: false,
        }
    }
}

/// Whether earlier work counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resume {
    /// Resume; journalled chunks are read and hashed again.
    On,
    /// Resume; chunks journalled as durable are believed.
    Trust,
    /// Start anew and keep no journal.
    Off,
}

/// The digest of one piece of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceDigest {
    /// Whose bytes.
    pub entry: EntryId,
    /// `packtrain_object::digest::piece` of them.
    pub digest: Digest,
}

/// How far the sink is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes verified in this run, moved bytes only.
    pub verified: u64,
    /// Bytes durable in this run, those found safe from earlier runs included.
    pub durable: u64,
    /// Files complete under their names.
    pub files: u64,
    /// Chunks moved a second time because their digest did not fit.
    pub again: u64,
}

/// What came of the transfer, as the sink counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Bytes of all files that are now as the source has them.
    pub bytes: u64,
    /// Bytes that crossed in this run to make it so (holes and repeats not counted).
    pub bytes_moved: u64,
    /// Files, directories and symbolic links that are now right.
    pub entries: u64,
    /// Files whose content moved.
    pub files_moved: u64,
    /// Files found unchanged.
    pub unchanged: u64,
    /// Bytes that an earlier run had left safe.
    pub bytes_resumed: u64,
    /// Chunks journalled by an earlier run that did not hash right and moved again, and chunks
    /// that failed verification in this run.
    pub chunks_again: u64,
    /// Entries deleted at the target.
    pub deleted: u64,
    /// Entries that failed at either end.
    pub failed: u64,
    /// Of those, entries that vanished at the source.
    pub vanished: u64,
    /// Entries whose owner or group was asked for and could not be set.
    pub not_owned: u64,
}

/// The failure of a peer that sent what nothing in this state answers.
pub fn unexpected(message: &Message) -> Failure {
    protocol(&format!("{} was not expected now", message.name()))
}
