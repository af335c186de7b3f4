//! The source of a transfer that is a web server or an object store. What arrives goes into the
//! sink's memory at once, and its digests, made of what arrived, to the sink as those of any source.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use packtrain_object::{ChunkIndex, Entry, EntryId, EntryKind};
use packtrain_transfer::message::Options;
use packtrain_transfer::{Outcome, Source, TransportId};
use packtrain_units::Offset;

use super::answer::Trouble;
use super::body::Pace;
use super::comparison::{Comparisons, Expected};
use super::downloader::{Downloader, Parts, Shared};
use super::http::Client;
use super::list::{self, Asked, Found};
use super::remote::Objects;
use packtrain_runtime::control::{Control, PayloadSink};
use packtrain_runtime::meters::Meters;
use packtrain_runtime::reader::Reader;
use packtrain_runtime::session::{Observer, Stop};
use packtrain_runtime::source::{self, Content, ContentReports, SourceSetup};
use packtrain_runtime::transports::{Moved, SourceTransports, StreamCount, TransportConfig};
use packtrain_service::executor;

/// What a fetch is started with.
pub(super) struct Setup<'a> {
    pub(super) control: Control,
    pub(super) options: Options,
    pub(super) asked: Asked,
    pub(super) client: Client,
    pub(super) observer: &'a dyn Observer,
    /// Where bytes go, once there is a place.
    pub(super) payload: Arc<OnceLock<Arc<dyn PayloadSink>>>,
    pub(super) config: TransportConfig,
    pub(super) count: StreamCount,
    pub(super) pace: Pace,
    pub(super) stop: Stop,
    /// What it is called: `https`, `http` or `s3`.
    pub(super) name: &'static str,
    pub(super) comparisons: Arc<Comparisons>,
}

/// Runs a fetch to its end.
pub(super) fn run(setup: Setup<'_>) -> (Outcome, Moved) {
    let Setup { control, options, asked, client, observer, payload, config, .. } = setup;
    let (count, pace, stop, name) = (setup.count, setup.pace, setup.stop, setup.name);
    let comparisons = setup.comparisons;
    let client = Arc::new(client);
    let objects = Objects::default();
    let (reports, inbox) = source::content_reports();
    let downloader = Downloader::new(Parts {
        client: Arc::clone(&client),
        objects: Arc::clone(&objects),
        payload,
        pace,
        count,
        most: config.most_streams,
        reports: reports.clone(),
        comparisons: Arc::clone(&comparisons),
        name,
    });
    let content = StoreContent {
        client,
        asked: Some(asked),
        options: options.clone(),
        objects,
        comparisons,
        shared: downloader.shared(),
        reports,
        listing: None,
    };
    let transports = SourceTransports::of(config, vec![Box::new(downloader)]);
    let setup = SourceSetup { control, options, observer, transports, stop };
    source::run_content(setup, Box::new(content), inbox)
}

/// Objects of a server as the content of a source.
struct StoreContent {
    client: Arc<Client>,
    asked: Option<Asked>,
    options: Options,
    objects: Objects,
    comparisons: Arc<Comparisons>,
    shared: Arc<Shared>,
    reports: ContentReports,
    listing: Option<tokio::task::AbortHandle>,
}

impl Content for StoreContent {
    fn start(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        let (client, options) = (Arc::clone(&self.client), self.options.clone());
        let (objects, comparisons) = (Arc::clone(&self.objects), Arc::clone(&self.comparisons));
        let reports = self.reports.clone();
        let task = executor::handle().spawn(async move {
            match list::find(&client, &asked, &options).await.map_err(Trouble::failure) {
                Ok(found) => report_listing(found, &objects, &comparisons, &reports),
                Err(failure) => reports.fail(failure),
            }
        });
        self.listing = Some(task.abort_handle());
    }

    fn reader(&self) -> Option<Reader> {
        None
    }

    fn prepare(
        &mut self,
        source: &Source,
        _: TransportId,
        range: &Range<Offset>,
    ) -> Vec<Range<Offset>> {
        let layout = source.layout();
        let piece = layout.piece_at(range.start);
        let is_stream = |id| source.entry(id).is_some_and(|entry| entry.kind == EntryKind::Stream);
        let stream = piece.map(|piece| piece.entry).filter(|id| is_stream(*id));
        if let Some(id) = stream
            && let Some(whole) = layout.range_of(id)
        {
            self.shared.prepare_stream(id, whole.start);
        } else {
            let chunks = ChunkIndex::covering(range);
            self.shared.prepare(chunks.flat_map(|chunk| source.pieces_needed(chunk)).collect());
        }
        Vec::new()
    }

    /// What failed verification is requested again, and fetched and hashed again then.
    fn reread(&mut self, _range: &Range<Offset>) {}

    /// Only the server has the whole file.
    fn hash(&mut self, entry: EntryId) {
        self.reports.root(entry, None);
    }

    fn forget(&mut self, _source: &Source, _range: &Range<Offset>) {}

    fn meters(&self) -> Arc<Meters> {
        Arc::default()
    }

    fn close(&mut self) {
        if let Some(listing) = &self.listing {
            listing.abort();
        }
    }
}

fn report_listing(
    found: Found,
    objects: &Objects,
    comparisons: &Comparisons,
    reports: &ContentReports,
) {
    found.say.into_iter().for_each(|text| reports.warn(text));
    let mut entries: Vec<Entry> = Vec::with_capacity(found.entries.len());
    let mut expected = HashMap::new();
    for (id, (entry, object)) in (0..).map(EntryId).zip(found.entries) {
        if let Some(object) = object {
            if let Some(sum) = object.sum.clone() {
                let (path, name) = (entry.path.clone(), object.name.clone());
                expected.insert(id, Expected { path, name, sum, mtime: entry.mtime });
            }
            objects.lock().insert(id, Arc::new(object));
        }
        entries.push(entry);
    }
    comparisons.expect(expected, entries.len() > 1);
    reports.entries(entries);
    reports.listed(found.failed, found.empty);
}
