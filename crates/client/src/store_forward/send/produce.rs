//! The thread that reads, hashes and encrypts.

use parking_lot::Mutex;
use std::io::Read as _;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use packtrain_object::{CHUNK, digest};
use packtrain_session::spool::{RECORD_TEXT, Sealer};
use packtrain_transfer::{Failure, FailureKind};

use packtrain_runtime::pack::{DIGEST, Packed, pieces};
use packtrain_runtime::source::Collected;
use packtrain_service::executor::spawn;

/// Records that are prepared ahead.
const MAX_PREPARED: usize = 8;

/// One sealed record.
pub(super) struct Record {
    pub(super) last: bool,
    pub(super) bytes: Vec<u8>,
}

/// The result of reading.
#[derive(Clone, Debug, Default)]
pub(super) struct Produced {
    /// Files that could not be read.
    pub(super) failed: Vec<Unread>,
    /// Bytes of standard input.
    pub(super) stream: u64,
    /// The failure that ended the production of records.
    pub(super) hopeless: Option<Failure>,
}

/// A file that could not be read, or only in part.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    pub(super) path: Vec<u8>,
    pub(super) failure: Failure,
    /// The record in which its zeros begin.
    record: u64,
}

/// Produces the records from number `from` on.
pub(super) fn produce(
    collected: Arc<Collected>,
    packed: Arc<Packed>,
    produced: Arc<Mutex<Produced>>,
    sealer: Sealer<impl Fn(&[u8]) -> [u8; 64] + Send + 'static>,
    from: u64,
) -> Receiver<Record> {
    let (out, records) = bounded(MAX_PREPARED);
    // Data that was sent as zeros stays so; the rest is read again.
    produced.lock().failed.retain(|unread| unread.record < from);
    spawn("seal", move || {
        let text = Vec::with_capacity(RECORD_TEXT);
        let skip = from * RECORD_TEXT as u64;
        let mut writer = Writer { sealer, out, text, number: from, skip };
        let made = make(&collected, &packed, &produced, &mut writer);
        if let Err(Stopped::Hopeless(failure)) = made {
            produced.lock().hopeless = Some(failure);
        }
    });
    records
}

enum Stopped {
    /// The receiver of the records is gone.
    Unwanted,
    Hopeless(Failure),
}

struct Writer<S> {
    sealer: Sealer<S>,
    out: Sender<Record>,
    text: Vec<u8>,
    number: u64,
    /// Bytes that the depot has already.
    skip: u64,
}

impl<S: Fn(&[u8]) -> [u8; 64]> Writer<S> {
    /// Whether the depot has the next `len` bytes, so that they need not be produced.
    fn has(&mut self, len: u64) -> bool {
        let has = self.skip >= len;
        if has {
            self.skip -= len;
        }
        has
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Stopped> {
        let there = self.skip.min(bytes.len() as u64);
        self.skip -= there;
        bytes = &bytes[there as usize..];
        while !bytes.is_empty() {
            // A full record is passed on only when more data follows, because the last one is
            // marked.
            if self.text.len() == RECORD_TEXT {
                self.record(false)?;
            }
            let now = bytes.len().min(RECORD_TEXT - self.text.len());
            self.text.extend_from_slice(&bytes[..now]);
            bytes = &bytes[now..];
        }
        Ok(())
    }

    fn record(&mut self, last: bool) -> Result<(), Stopped> {
        let bytes = self.sealer.seal(self.number, last, &self.text);
        self.text.clear();
        self.number += 1;
        self.out.send(Record { last, bytes }).map_err(|_| Stopped::Unwanted)
    }
}

fn make<S: Fn(&[u8]) -> [u8; 64]>(
    collected: &Collected,
    packed: &Packed,
    produced: &Mutex<Produced>,
    writer: &mut Writer<S>,
) -> Result<(), Stopped> {
    writer.write(&packed.front)?;
    let mut room = Vec::new();
    for (entry, size) in &packed.files {
        let (mut failed, mut skipped) = (None, None);
        for (at, len) in pieces(*size) {
            if writer.has(len + DIGEST) {
                skipped = Some(at);
                continue;
            }
            room.resize(len as usize, 0);
            if failed.is_none() {
                let record = writer.number;
                let read = collected.read(*entry, (at, *size), &mut room);
                failed = read.err().map(|failure| (failure, record));
            }
            if failed.is_some() {
                room.fill(0);
                writer.write(&room)?;
                writer.write(&[0; DIGEST as usize])?;
            } else {
                let sum = digest::piece(at, len == *size, &room);
                writer.write(&room)?;
                writer.write(&sum.0)?;
            }
        }
        // Data of an earlier run is not produced again, but the file is checked for changes.
        if let Some(at) = skipped.filter(|_| failed.is_none()) {
            let read = collected.read(*entry, (at, *size), &mut [0]);
            failed = read.err().map(|failure| (failure, 0));
        }
        if let Some((failure, record)) = failed {
            let path = collected.entries[entry.index()].path.as_bytes().to_vec();
            let mut produced = produced.lock();
            if !produced.failed.iter().any(|unread| unread.path == path) {
                produced.failed.push(Unread { path, failure, record });
            }
        }
    }
    if packed.stream.is_some() {
        stream(produced, writer)?;
    }
    writer.record(true)
}

/// Reads standard input to its end.
fn stream<S: Fn(&[u8]) -> [u8; 64]>(
    produced: &Mutex<Produced>,
    writer: &mut Writer<S>,
) -> Result<(), Stopped> {
    let mut input = std::io::stdin().lock();
    let mut at = 0;
    let mut room = Vec::with_capacity(CHUNK.get() as usize);
    loop {
        room.clear();
        if let Err(e) = (&mut input).take(CHUNK.get()).read_to_end(&mut room) {
            let text = format!("standard input: {e}");
            return Err(Stopped::Hopeless(Failure::new(FailureKind::Unreadable, text)));
        }
        if room.is_empty() {
            return Ok(());
        }
        let sum = digest::piece(at, false, &room);
        writer.write(&room)?;
        writer.write(&sum.0)?;
        at += room.len() as u64;
        produced.lock().stream = at;
        if (room.len() as u64) < CHUNK.get() {
            return Ok(());
        }
    }
}
