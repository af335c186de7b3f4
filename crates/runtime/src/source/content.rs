//! Where the entries and the bytes of a source come from.

use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use packtrain_object::{ChunkIndex, Digest, Entry, EntryId};
use packtrain_transfer::message::PieceDigest;
use packtrain_transfer::{Failure, Source, TransportId};
use packtrain_units::Offset;

use super::News;
use crate::meters::Meters;
use crate::reader::{ReadEvent, Reader};

/// What a source reads: files of this machine, standard input, a session that depots keep, or
/// objects of a store.
pub trait Content {
    /// Begins to list the entries.
    fn start(&mut self);

    /// Entries that may be listed beyond those that were.
    fn set_credit(&mut self, _entries: usize) {}

    /// What the transports read from; none if the transport brings the bytes by itself.
    fn reader(&self) -> Option<Reader>;

    /// A range is about to be assigned. Gives the parts that the content examines first, because
    /// they may be holes: it reports each of them later ([`ContentReports::hole`]).
    fn prepare(
        &mut self,
        source: &Source,
        transport: TransportId,
        range: &Range<Offset>,
    ) -> Vec<Range<Offset>>;

    /// A range failed verification at the sink: its bytes are read and hashed again.
    fn reread(&mut self, range: &Range<Offset>);

    /// The digest of this whole file is wanted ([`ContentReports::root`]).
    fn hash(&mut self, entry: EntryId);

    /// The sink has this range verified.
    fn forget(&mut self, source: &Source, range: &Range<Offset>);

    /// What the user is to be told, each once.
    fn notices(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// What reading took.
    fn meters(&self) -> Arc<Meters>;

    /// Ends it.
    fn close(&mut self);
}

/// Tells the driver what the content found and read. Clones are the same.
#[derive(Clone)]
pub struct ContentReports(pub(super) Sender<News>);

/// What reads the reports: the driver of a source.
pub struct ContentInbox {
    pub(super) news: Sender<News>,
    pub(super) inbox: Receiver<News>,
}

/// Where a content reports to, and what the driver is given to read it.
pub fn content_reports() -> (ContentReports, ContentInbox) {
    let (news, inbox) = unbounded();
    (ContentReports(news.clone()), ContentInbox { news, inbox })
}

impl ContentReports {
    pub(super) fn send(&self, news: News) {
        // Nobody reads once the transfer is over.
        let _ = self.0.send(news);
    }

    /// Entries in manifest order.
    pub fn entries(&self, entries: Vec<Entry>) {
        self.send(News::Entries(entries));
    }

    /// All entries are listed: which paths could not be, and the targets of the sources that have
    /// no file.
    pub fn listed(&self, failed: Vec<(Vec<u8>, Failure)>, empty: Vec<Vec<u8>>) {
        self.send(News::WalkEnd(failed, empty));
    }

    /// The transfer cannot go on.
    pub fn fail(&self, failure: Failure) {
        self.send(News::Refuse(failure));
    }

    /// Pieces of a chunk are read.
    pub fn read(&self, chunk: ChunkIndex, digests: Vec<PieceDigest>) {
        self.send(News::Read(ReadEvent::Read(chunk, digests)));
    }

    /// Nothing more can be read of an entry.
    pub fn entry_failed(&self, entry: EntryId, failure: Failure) {
        self.send(News::Read(ReadEvent::Failed(entry, failure)));
    }

    /// The digest of a whole file; none if it cannot be had.
    pub fn root(&self, entry: EntryId, digest: Option<Digest>) {
        self.send(News::Root(entry, digest));
    }

    /// The stream of unknown length has so many bytes.
    pub fn stream_end(&self, entry: EntryId, size: u64) {
        self.send(News::StreamEnd(entry, size));
    }

    /// A warning for the user.
    pub fn warn(&self, text: String) {
        self.send(News::Warn(text));
    }

    /// Whether a part that [`Content::prepare`] gave is all zeros.
    pub(super) fn hole(&self, transport: TransportId, range: Range<Offset>, zeros: bool) {
        self.send(News::Hole(transport, range, zeros));
    }
}
