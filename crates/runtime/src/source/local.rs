//! Content that this end reads through its reader: files, standard input, a stored session.

use std::ops::Range;
use std::sync::Arc;

use packtrain_object::{ChunkIndex, EntryId, Piece};
use packtrain_transfer::message::Options;
use packtrain_transfer::{Source, TransportId};
use packtrain_units::Offset;

use super::content::{Content, ContentReports};
use super::table::{self, Table};
use super::walk::{self, Credit, SourceSpec};
use super::{SourceEvent, holes};
use crate::meters::Meters;
use crate::reader::Reader;
use packtrain_service::executor::spawn;

/// See the [module](self).
pub(super) struct LocalContent {
    spec: SourceSpec,
    options: Options,
    reports: ContentReports,
    reader: Reader,
    table: Arc<Table>,
    credit: Arc<Credit>,
    meters: Arc<Meters>,
    streaming: bool,
}

impl LocalContent {
    pub(super) fn new(spec: SourceSpec, options: Options, reports: ContentReports) -> Self {
        let (table, meters) = (Arc::new(Table::default()), Arc::<Meters>::default());
        let tell = {
            let reports = reports.clone();
            move |event| reports.send(SourceEvent::Read(event))
        };
        let reader = match &spec {
            SourceSpec::Kept(kept) => {
                let pieces = table::KeptPieces(kept.clone(), Arc::clone(&meters));
                Reader::new(pieces, Arc::clone(&meters), tell)
            }
            _ => {
                let files = table::Files::new(Arc::clone(&table), Arc::clone(&meters));
                Reader::new(files, Arc::clone(&meters), tell)
            }
        };
        let credit = Arc::default();
        Self { spec, options, reports, reader, table, credit, meters, streaming: false }
    }

    /// Whether it is files of this machine, which can be read again and removed.
    fn has_files(&self) -> bool {
        !self.spec.is_stream() && !matches!(self.spec, SourceSpec::Kept(_))
    }

    /// Starts to read standard input, once.
    fn stream(&mut self, id: EntryId, start: Offset) {
        if std::mem::replace(&mut self.streaming, true) {
            return;
        }
        self.reader.expect_stream();
        let (reader, news) = (self.reader.clone(), self.reports.0.clone());
        spawn("stdin", move || {
            table::read_stream(id, start, &reader, &news);
            reader.end_stream();
        });
    }
}

impl Content for LocalContent {
    fn start(&mut self) {
        walk::start(
            self.spec.clone(),
            self.options.clone(),
            Arc::clone(&self.table),
            Arc::clone(&self.credit),
            Arc::clone(&self.meters),
            self.reports.0.clone(),
        );
    }

    fn set_credit(&mut self, entries: usize) {
        self.credit.set(entries);
    }

    fn reader(&self) -> Option<Reader> {
        Some(self.reader.clone())
    }

    /// Announces the chunks to the reader. A hole that the file system reports counts only after it
    /// was read as zeros.
    fn prepare(
        &mut self,
        source: &Source,
        transport: TransportId,
        range: &Range<Offset>,
    ) -> Vec<Range<Offset>> {
        if self.spec.is_stream()
            && let Some(piece) = source.layout().piece_at(range.start)
        {
            if let Some(whole) = source.layout().range_of(piece.entry) {
                self.stream(piece.entry, whole.start);
            }
            return Vec::new();
        }
        let mut suspects = Vec::new();
        for chunk in ChunkIndex::covering(range) {
            let pieces = source.pieces_needed(chunk);
            for piece in &pieces {
                suspects.extend(holes::reported(&self.table, piece, range));
            }
            self.reader.announce(chunk, pieces);
        }
        if !suspects.is_empty() {
            holes::verify(&self.reader, transport, suspects.clone(), self.reports.clone());
        }
        suspects
    }

    fn reread(&mut self, range: &Range<Offset>) {
        ChunkIndex::covering(range).for_each(|chunk| self.reader.invalidate(chunk));
    }

    fn hash(&mut self, id: EntryId) {
        let (table, reports) = (Arc::clone(&self.table), self.reports.clone());
        self.table.hasher().run(move || reports.root(id, table.root_of(id)));
    }

    fn compare(&mut self, piece: &Piece) -> bool {
        if !self.has_files() {
            return false;
        }
        let (table, meters) = (Arc::clone(&self.table), Arc::clone(&self.meters));
        let (reports, piece) = (self.reports.clone(), piece.clone());
        self.table.hasher().run(move || {
            let digest = table.digest_of(&piece, &meters);
            reports.send(SourceEvent::Compared(piece.range.start, digest));
        });
        true
    }

    fn remove(&mut self, id: EntryId) -> bool {
        if !self.has_files() {
            return false;
        }
        let (table, reports) = (Arc::clone(&self.table), self.reports.clone());
        self.table.hasher().run(move || reports.send(SourceEvent::Removed(id, table.remove(id))));
        true
    }

    fn forget(&mut self, source: &Source, range: &Range<Offset>) {
        for chunk in self.reader.known(range) {
            if range.start <= chunk.range().start && chunk.range().end <= range.end
                || source.pieces_needed(chunk).is_empty()
            {
                self.reader.forget(chunk);
            }
        }
        self.table.forget_while(|id| source.entry(id).is_none());
    }

    fn notices(&mut self) -> Vec<String> {
        match &self.spec {
            SourceSpec::Kept(kept) => kept.said(),
            _ => Vec::new(),
        }
    }

    fn meters(&self) -> Arc<Meters> {
        Arc::clone(&self.meters)
    }

    fn close(&mut self) {
        self.credit.close();
        self.reader.close();
    }
}
