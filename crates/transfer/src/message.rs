//! Control messages between the two ends of a transfer.
//!
//! A frame is a little-endian u32 length (of what follows, at most [`MAX_FRAME`]), one type byte
//! and the body. The body of [`Message::Data`] is an offset and the payload, so that the pipe
//! transport copies nothing. Every other body is encoded with postcard.

mod codec;
mod extra;
#[cfg(test)]
pub(crate) mod samples;

use std::ops::Range;

use packtrain_object::{ChunkIndex, Digest, Entry, EntryId, EntryKind, MAX_PATH, SourceName};
use packtrain_units::Offset;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, protocol};

pub use codec::{DATA_HEADER, Decoder, MessageError, data_header, encode};
pub use extra::{Backup, ExtraOptions, ModeChange, ModeError};

/// The largest frame that a peer may send. A longer frame ends the connection.
pub const MAX_FRAME: usize = 1 << 20;
/// Maximum payload in one [`Message::Data`].
pub const MAX_DATA: usize = 256 << 10;

/// One control message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The first message of both ends.
    Hello(Hello),
    /// Initiator: the request. The responder answers with `Opened` or `Refused`.
    Open(Open),
    /// Responder: accepts the request.
    Opened(Opened),
    /// Responder, or either end at any time: ends the session.
    Refused(Failure),
    /// Source: entries, in the encoding of a segment of `packtrain_object::manifest`.
    Manifest(Vec<u8>),
    /// Source: the walk is over; no entries follow.
    ManifestEnd {
        /// Number of entries in the manifest.
        entries: u64,
        /// Number of files and directories that the walk could not read.
        failed: u64,
        /// Of those, how many had vanished when the walk reached them.
        vanished: u64,
        /// The first hundred of them.
        failures: Vec<(Vec<u8>, Failure)>,
        /// The sources without a file, by their paths at the target; an empty path is a source
        /// whose contents are copied. The sink deletes nothing below these paths.
        empty: Vec<Vec<u8>>,
    },
    /// Sink: it examined the entries of a segment, or requests `ranges`, or both.
    Need {
        /// First entry of the segment that this answers, if it answers one. The ranges of a segment
        /// follow in later messages, limited by the window of the sink.
        segment: Option<EntryId>,
        /// Ranges to move, ascending; each consists of whole pieces.
        ranges: Vec<Range<Offset>>,
        /// Bytes found at the sink since the last `Need`.
        present: u64,
        /// Whether these ranges were moved before and failed verification.
        again: bool,
    },
    /// Source: digests of the pieces of one chunk, in offset order.
    Digests {
        /// The index of the chunk.
        chunk: ChunkIndex,
        /// A digest for each piece of the chunk that the sink requested.
        pieces: Vec<PieceDigest>,
    },
    /// Source: this range is a hole in the file and reads as zeros; it counts as placed.
    Hole(Range<Offset>),
    /// Source: this entry failed; no more data of it follows.
    SourceFailed {
        /// The entry.
        entry: EntryId,
        /// The cause.
        failure: Failure,
    },
    /// Source: the stream entry ended at this size.
    StreamEnd {
        /// The stream's entry.
        entry: EntryId,
        /// Its size in bytes.
        size: u64,
    },
    /// Sink to source (`--checksum`, `verify`): requests the root digests of these files.
    AskRoot(Vec<EntryId>),
    /// Source: root digest of a whole file; none if the file could not be read.
    Root {
        /// The entry.
        entry: EntryId,
        /// Its BLAKE3 digest, as `b3sum` prints it.
        digest: Option<Digest>,
    },
    /// Sink: these ranges are verified; the source may release them.
    Verified(Vec<Range<Offset>>),
    /// Sink: its progress, at least once a second while it changes.
    Progress(Progress),
    /// Sink: it failed to write this entry; the source stops sending it.
    SinkFailed {
        /// The entry.
        entry: EntryId,
        /// The cause.
        failure: Failure,
    },
    /// Sink: all data that could be moved is durable. The source answers with `Bye`.
    Finished(Summary),
    /// Either end: negotiation of transports; opaque to this crate.
    Channel(Vec<u8>),
    /// Source, pipe transport: payload.
    Data {
        /// Where the bytes belong in the object.
        offset: Offset,
        /// The payload, at most [`MAX_DATA`] bytes.
        bytes: Vec<u8>,
    },
    /// Sink, pipe transport: total of payload bytes that it has read from the pipe.
    DataTaken(u64),
    /// Either end: requests a `Pong` with the same number.
    Ping(u64),
    /// Answer to `Ping`.
    Pong(u64),
    /// Either end cancels the transfer. Durable data stays durable.
    Cancel(Failure),
    /// The last message.
    Bye,
    /// Sink: requests the piece that starts here, of which it has an older version with this digest.
    /// The source answers with `Same`, or moves the piece as for `Need`. Sent only if both ends have
    /// [`CHANGED_PIECES`](crate::Versions::CHANGED_PIECES).
    NeedChanged {
        /// Where the piece starts. It is a piece of a file of several chunks.
        start: Offset,
        /// `packtrain_object::digest::piece` of the bytes at its place in the old file.
        digest: Digest,
    },
    /// Source: the bytes of this piece have the digest that the sink stated. They do not travel.
    Same(Offset),
    /// Sink, with `remove_source_files`: `entries` are verified and durable under their final names,
    /// and the source removes its files. It keeps those in `left`, which the sink leaves alone. Each
    /// file and link occurs once, unless it failed.
    Stored {
        /// The entries that are durable.
        entries: Vec<EntryId>,
        /// The entries that need not match the source.
        left: Vec<EntryId>,
    },
    /// Source, with `remove_source_files`, between `Finished` and `Bye`: what it removed.
    Removed {
        /// Number of files and links that it removed.
        files: u64,
        /// Number of those that it kept, although the sink has them.
        failed: u64,
        /// The first hundred of these, by their paths at the target.
        failures: Vec<(Vec<u8>, Failure)>,
    },
    /// Source, before the entries in the directory: the content of a file of
    /// rules in a directory ([`packtrain_object::filter::per_directory`]), if the sink deletes or
    /// compares.
    Rules {
        /// The number of its rule among those of such files.
        number: u32,
        /// The path of the directory at the target.
        dir: Vec<u8>,
        /// The content.
        text: Vec<u8>,
    },
}

impl Message {
    /// Truncates the texts of its failures, as [`Failure::bounded`] does.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        match &mut self {
            Self::Refused(failure)
            | Self::Cancel(failure)
            | Self::SourceFailed { failure, .. }
            | Self::SinkFailed { failure, .. } => failure.bound_text(),
            Self::ManifestEnd { failures, .. } | Self::Removed { failures, .. } => {
                failures.iter_mut().for_each(|(_, failure)| failure.bound_text());
            }
            _ => {}
        }
        self
    }

    /// The name of the message in the description of the wire format.
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
            Self::NeedChanged { .. } => "NeedChanged",
            Self::Same(_) => "Same",
            Self::Stored { .. } => "Stored",
            Self::Removed { .. } => "Removed",
            Self::Rules { .. } => "Rules",
        }
    }
}

/// The first message of both ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Always `PKTR`.
    pub magic: [u8; 4],
    /// Lowest supported protocol version.
    pub lowest: u16,
    /// Highest supported protocol version.
    pub highest: u16,
    /// Program and version, for texts to the user.
    pub agent: String,
}

/// The request of the initiator to the responder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// The role of the responder.
    pub role: Role,
    /// For a source: the paths to read. For a sink: one path, the destination. The bytes are those
    /// of the remote file system.
    pub paths: Vec<Vec<u8>>,
    /// For a sink: the names of the sources. The sink accepts entries of these names only. None if
    /// the initiator is the source: it then decides itself what it sends.
    pub sources: Option<Vec<SourceName>>,
    /// Options; both ends use the same.
    pub options: Options,
    /// Data from the initiator's driver for the responder's driver; opaque to this crate.
    pub channel: Vec<u8>,
}

/// The responder's acceptance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Data for the initiator's driver; opaque to this crate.
    pub channel: Vec<u8>,
}

/// The role of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Reads files and sends them.
    Source,
    /// Receives files and writes them.
    Sink,
}

/// Options of a transfer. Defaults are those of the command.
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
    /// Delete files at the target that are not at the source. Runs at the end, if no entry failed.
    pub delete: bool,
    /// Let `delete` run even if the source is empty.
    pub force_delete: bool,
    /// Maximum number of names that `delete` removes, if there is a limit.
    pub max_delete: Option<u64>,
    /// Change nothing; report what would change.
    pub dry_run: bool,
    /// Only compare (the `verify` command): as `dry_run` with `checksum`; differences are failures.
    pub verify: bool,
    /// Write into the target file itself instead of a temporary beside it.
    pub inplace: bool,
    /// Keep mode bits.
    pub preserve_mode: bool,
    /// Keep modification times.
    pub preserve_times: bool,
    /// Keep owner and group, and with them the set-user-id and set-group-id bits. The sink leaves
    /// and counts what it has no permission to set.
    pub preserve_owner: bool,
    /// Filter rules in order, in rsync's syntax: `+ pattern`, `- pattern` or `: file`.
    pub filters: Vec<String>,
    /// Copy only these paths below the sources (`--files-from`), if any.
    pub files_from: Option<Vec<Vec<u8>>>,
    /// Maximum sending rate in bits per second, if any.
    pub rate_bps: Option<u64>,
    /// Report each file when it is complete.
    pub report_files: bool,
    /// Sink of a source in the same process: what is below the seconds of its files' times is no part
    /// of a time, so `update` compares whole seconds.
    #[serde(skip)]
    pub whole_seconds: bool,
    /// Options of protocol version 2, which the channel of `Open` carries.
    #[serde(skip)]
    pub extra: Box<ExtraOptions>,
}

impl Options {
    /// Whether the source removes what is durable at the sink.
    pub fn removes_source(&self) -> bool {
        self.extra.remove_source_files && !self.dry_run && !self.verify
    }

    /// Whether the sink needs the files of rules in the directories of the source.
    pub fn reports_rules(&self) -> bool {
        self.delete || self.verify
    }

    /// Checks options that exclude each other, because a copy with both would lose data: what is
    /// removed at the source must stay at the target, and files must not be written into each other.
    ///
    /// # Errors
    /// Why the options contradict each other.
    pub fn check_combination(&self) -> Result<(), &'static str> {
        if self.extra.hard_links && self.inplace {
            return Err(
                "--hard-links and --inplace exclude each other: two files of the source may be names \
                 of one file at the target",
            );
        }
        // What an interruption leaves has the size of the file, and a new time.
        let by_looks = self.update || self.extra.ignore_existing || self.extra.size_only;
        if self.inplace && by_looks {
            return Err(
                "--inplace excludes --update, --ignore-existing and --size-only: they would take a \
                 file that --inplace left unfinished for a finished one",
            );
        }
        if self.inplace && self.extra.backup.is_some() {
            return Err(
                "--backup and --inplace exclude each other: the old version would be overwritten",
            );
        }
        match self.extra.remove_source_files {
            false => Ok(()),
            // Its file would stay the same one.
            true if self.inplace => Err(
                "--remove-source-files and --inplace exclude each other: the source may be the \
                 target by another path",
            ),
            true if self.delete => Err(
                "--remove-source-files and --delete exclude each other: the next run would delete \
                 at the target what this one removes at the source",
            ),
            // The next try would take the copy of this one for the old version.
            true if self.extra.backup.is_some() => Err(
                "--remove-source-files and --backup exclude each other: after an interruption the \
                 copy would be taken for the old version",
            ),
            // The names would be removed one by one, and an interruption would separate them.
            true if self.extra.hard_links => Err(
                "--remove-source-files and --hard-links exclude each other: an interruption would \
                 separate the names of a file",
            ),
            true => Ok(()),
        }
    }

    /// Checks the length of listed names: a path that no file can have would only take memory.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_names(&self) -> Result<(), String> {
        let too_long = |name: &&Vec<u8>| name.len() > MAX_PATH;
        let Some(name) = self.files_from.iter().flatten().find(too_long) else { return Ok(()) };
        let start = String::from_utf8_lossy(&name[..32]);
        Err(format!("`{start}...` in the list of --files-from is longer than {MAX_PATH} bytes"))
    }

    /// The permission bits (mask 07777) that the target gets, `--chmod` included; none if the source
    /// has none. Without
    /// `preserve_owner` the set-user-id and set-group-id bits are dropped, because they would apply
    /// to another owner. Files then lose the sticky bit too.
    pub fn mode_of(&self, entry: &Entry) -> Option<u32> {
        let kept = match entry.kind {
            _ if self.preserve_owner => 0o7777,
            EntryKind::Directory => 0o1777,
            _ => 0o777,
        };
        entry.permissions().map(|mode| self.extra.change_mode(&entry.kind, mode) & kept)
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
            whole_seconds: false,
            extra: Box::default(),
        }
    }
}

/// Whether results of earlier runs are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resume {
    /// Resume; journalled chunks are read and hashed again.
    On,
    /// Resume; chunks that the journal records as durable are not read again.
    Trust,
    /// Start from the beginning and keep no journal.
    Off,
}

/// The digest of one piece of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceDigest {
    /// The entry that the piece belongs to.
    pub entry: EntryId,
    /// `packtrain_object::digest::piece` of its bytes.
    pub digest: Digest,
}

/// Progress of the sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Moved bytes that were verified in this run.
    pub verified: u64,
    /// Bytes durable in this run, including those found durable from earlier runs.
    pub durable: u64,
    /// Files complete under their final names.
    pub files: u64,
    /// Chunks moved again because their digest did not match.
    pub again: u64,
}

impl Progress {
    /// Moved bytes that are durable: a lower bound, because some of the `present` bytes that the sink
    /// found may not be synced yet.
    pub fn moved_durable(&self, present: u64) -> u64 {
        self.durable.saturating_sub(present).min(self.verified)
    }
}

/// Result of the transfer, as counted by the sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Bytes of all files that now match the source.
    pub bytes: u64,
    /// Bytes moved in this run (without holes and repeats), or that a dry run would move.
    pub bytes_moved: u64,
    /// Files, directories and symbolic links that now match the source.
    pub entries: u64,
    /// Files whose content was moved.
    pub files_moved: u64,
    /// Files found unchanged.
    pub unchanged: u64,
    /// Verified bytes of earlier runs that were used again.
    pub bytes_resumed: u64,
    /// Bytes of changed files that were taken from their old versions. Each end counts them itself.
    #[serde(skip)]
    pub bytes_same: u64,
    /// Entries that were made, replaced or linked, and those whose mode, time or attributes differed.
    /// The sink counts them.
    #[serde(skip)]
    pub changed: u64,
    /// Of the moved bytes, those that were durable when the transfer ended
    /// ([`Progress::moved_durable`]). Each end counts them itself.
    #[serde(skip)]
    pub bytes_durable: u64,
    /// Files and links that the source removed. The source counts them.
    #[serde(skip)]
    pub removed: u64,
    /// Chunks journalled by an earlier run whose digest did not match and that were moved again,
    /// and chunks that failed verification in this run.
    pub chunks_again: u64,
    /// Entries deleted at the target; with `verify`: entries that the source does not have.
    pub deleted: u64,
    /// Entries that failed at either end.
    pub failed: u64,
    /// Of those, entries that vanished at the source.
    pub vanished: u64,
    /// Entries whose requested owner or group could not be set.
    pub not_owned: u64,
}

/// The failure of a peer that sent a message that is invalid in the current state.
pub fn unexpected(message: &Message) -> Failure {
    protocol(&format!("{} was not expected now", message.name()))
}
