//! The interface to the entries and data of a source.

use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use packtrain_object::{ChunkIndex, Digest, Entry, EntryId, Piece};
use packtrain_transfer::message::PieceDigest;
use packtrain_transfer::{Failure, Source, TransportId};
use packtrain_units::Offset;

use super::SourceEvent;
use crate::meters::Meters;
use crate::reader::{ReadEvent, Reader};

/// The content of a source: local files, standard input, a session stored at depots, or objects of
/// a store.
pub trait Content {
    /// Starts to list the entries.
    fn start(&mut self);

    /// Sets how many more entries may be listed.
    fn set_credit(&mut self, _entries: usize) {}

    /// The reader for the transports; none if the transport fetches the data itself.
    fn reader(&self) -> Option<Reader>;

    /// Prepares a range that is about to be assigned. Returns the parts that the content examines
    /// first, because they may be holes. It reports each of them later.
    fn prepare(
        &mut self,
        source: &Source,
        transport: TransportId,
        range: &Range<Offset>,
    ) -> Vec<Range<Offset>>;

    /// A range failed verification at the sink: read and hash it again.
    fn reread(&mut self, range: &Range<Offset>);

    /// Requests the root digest of this file ([`ContentReports::root`]).
    fn hash(&mut self, entry: EntryId);

    /// Requests the digest of this piece, once. False if this content is not read for that: the piece
    /// is then moved.
    fn compare(&mut self, _piece: &Piece) -> bool {
        false
    }

    /// Removes the file or link of this entry, which the sink has, and reports the result once. False
    /// if nothing of this content is removed.
    fn remove(&mut self, _entry: EntryId) -> bool {
        false
    }

    /// The sink verified this range.
    fn forget(&mut self, source: &Source, range: &Range<Offset>);

    /// Notices for the user, each returned once.
    fn notices(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Measurements of the reads.
    fn meters(&self) -> Arc<Meters>;

    /// Stops all threads.
    fn close(&mut self);
}

/// Reports to the driver. Clones report to the same driver.
#[derive(Clone)]
pub struct ContentReports(pub(super) Sender<SourceEvent>);

/// The receiving side of the reports, for the driver of a source.
pub struct ContentInbox {
    pub(super) news: Sender<SourceEvent>,
    pub(super) inbox: Receiver<SourceEvent>,
}

/// A connected pair of both sides.
pub fn content_reports() -> (ContentReports, ContentInbox) {
    let (news, inbox) = unbounded();
    (ContentReports(news.clone()), ContentInbox { news, inbox })
}

impl ContentReports {
    pub(super) fn send(&self, news: SourceEvent) {
        // The driver does not read after the end of the transfer.
        let _ = self.0.send(news);
    }

    /// Entries in manifest order.
    pub fn entries(&self, entries: Vec<Entry>) {
        self.send(SourceEvent::Entries(entries));
    }

    /// All entries are listed. `failed`: paths that could not be; `empty`: target paths of the
    /// sources without a file.
    pub fn listed(&self, failed: Vec<(Vec<u8>, Failure)>, empty: Vec<Vec<u8>>) {
        self.send(SourceEvent::WalkEnd(failed, empty));
    }

    /// The transfer failed.
    pub fn fail(&self, failure: Failure) {
        self.send(SourceEvent::Refuse(failure));
    }

    /// Pieces of a chunk were read.
    pub fn read(&self, chunk: ChunkIndex, digests: Vec<PieceDigest>) {
        self.send(SourceEvent::Read(ReadEvent::Read(chunk, digests)));
    }

    /// An entry failed; no more of it can be read.
    pub fn entry_failed(&self, entry: EntryId, failure: Failure) {
        self.send(SourceEvent::Read(ReadEvent::Failed(entry, failure)));
    }

    /// The root digest of a file; none if it could not be read.
    pub fn root(&self, entry: EntryId, digest: Option<Digest>) {
        self.send(SourceEvent::Root(entry, digest));
    }

    /// The stream ended at this size in bytes.
    pub fn stream_end(&self, entry: EntryId, size: u64) {
        self.send(SourceEvent::StreamEnd(entry, size));
    }

    /// A warning for the user.
    pub fn warn(&self, text: String) {
        self.send(SourceEvent::Warn(text));
    }

    /// Whether a part that [`Content::prepare`] returned is all zeros.
    pub(super) fn hole(&self, transport: TransportId, range: Range<Offset>, zeros: bool) {
        self.send(SourceEvent::Hole(transport, range, zeros));
    }
}
