//! A transport that moves ranges as files in a directory that both ends can access.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use packtrain_object::ChunkIndex;
use packtrain_runtime::control::PayloadSink;
use packtrain_runtime::reader::Reader;
use packtrain_runtime::transports::Moved;
use packtrain_runtime::transports::offer::Offer;
use packtrain_runtime::transports::transport::{
    Assembly, SinkTransport, SourceContext, SourceTransport,
};
use packtrain_transfer::{Transport, TransportEvent};
use packtrain_units::{ByteCount, Offset, RangeSet, Time};

/// The sending end: writes each range to a file named by its start. The other end removes the file
/// after reading it.
pub(crate) struct DirectorySource {
    dir: PathBuf,
    reader: Option<Reader>,
    waiting: RangeSet,
    written: Vec<Range<Offset>>,
    returned: Vec<Range<Offset>>,
    up: bool,
    moved: ByteCount,
}

impl DirectorySource {
    pub(crate) fn new(dir: &Path) -> Self {
        let (dir, reader, waiting) = (dir.to_owned(), None, RangeSet::new());
        let (written, returned) = (Vec::new(), Vec::new());
        Self { dir, reader, waiting, written, returned, up: false, moved: ByteCount::ZERO }
    }

    fn path(&self, range: &Range<Offset>) -> PathBuf {
        self.dir.join(format!("{:020}", range.start.get()))
    }

    /// Writes the waiting ranges of the first chunk that the reader has in memory.
    fn write(&mut self) {
        let Some(reader) = self.reader.clone() else { return };
        let chunks = self.waiting.iter().flat_map(|range| ChunkIndex::covering(&range));
        let Some(chunk) =
            chunks.into_iter().find_map(|chunk| Some((chunk, reader.try_get(chunk)?)))
        else {
            return;
        };
        let (window, chunk) = (chunk.0.range(), chunk.1);
        let parts: Vec<_> = self.waiting.intersect(window).collect();
        for part in parts {
            self.waiting.remove(part.clone());
            // The range belongs to a file that failed: the source takes the range back.
            let Some(bytes) = chunk.get(&part) else {
                self.returned.push(part);
                continue;
            };
            let (path, unfinished) = (self.path(&part), self.dir.join("unfinished"));
            std::fs::write(&unfinished, bytes).expect("the directory can be written to");
            std::fs::rename(unfinished, path).expect("the directory can be written to");
            self.written.push(part);
        }
    }
}

impl Transport for DirectorySource {
    fn name(&self) -> &'static str {
        "directory"
    }

    fn assign(&mut self, range: Range<Offset>) {
        self.waiting.insert(range);
    }

    /// Returns ranges that are not written yet. The other end reads the rest.
    fn revoke(&mut self, range: Range<Offset>) {
        self.returned.extend(self.waiting.intersect(range.clone()));
        self.waiting.remove(range);
    }

    fn poll_event(&mut self, _now: Time) -> Option<TransportEvent> {
        if !std::mem::replace(&mut self.up, true) {
            return Some(TransportEvent::Up { rank: 0 });
        }
        self.write();
        if let Some(range) = self.returned.pop() {
            return Some(TransportEvent::Returned(range));
        }
        let taken = self.written.iter().position(|range| !self.path(range).exists())?;
        let range = self.written.swap_remove(taken);
        self.moved += range.end.since(range.start);
        Some(TransportEvent::Placed(range))
    }

    fn close(&mut self) {}
}

impl SourceTransport for DirectorySource {
    fn start(&mut self, context: &SourceContext, _offer: &mut Offer) {
        self.reader = context.reader.clone();
    }

    fn is_over(&self) -> bool {
        false
    }

    fn account(&mut self, moved: &mut Moved) {
        moved.shares.push((self.name().to_owned(), self.moved));
    }
}

/// The receiving end: a thread that reads the files.
pub(crate) struct DirectorySink {
    dir: PathBuf,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DirectorySink {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), over: Arc::default(), thread: None }
    }
}

impl SinkTransport for DirectorySink {
    fn start(&mut self, assembly: &Assembly) {
        let (dir, over, assembly) = (self.dir.clone(), self.over.clone(), assembly.clone());
        self.thread = Some(std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for file in std::fs::read_dir(&dir).expect("the directory is there").flatten() {
                    let Ok(at) = file.file_name().to_string_lossy().parse() else { continue };
                    let bytes = std::fs::read(file.path()).expect("a file that is there");
                    assembly.payload(Offset(at), &bytes).expect("there is room");
                    std::fs::remove_file(file.path()).expect("only this end removes files");
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
    }

    fn close(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends without a panic");
        }
    }
}
