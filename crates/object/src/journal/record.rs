//! Encoding of single records.

use super::{FORMAT, FileKey};
use crate::digest::Digest;
use crate::entry::Mtime;
use crate::path::RelPath;
use crate::wire::{Reader, put_bytes, put_int, put_uint};

/// The start of a journal. Its first byte is not a tag of a record.
pub(super) const MAGIC: &[u8; 8] = b"PKTRJNL\n";
/// Maximum length of a note in bytes; a longer one is cut.
pub(crate) const MAX_NOTE: usize = 1024;
/// Maximum length of a record's body.
const MAX_BODY: usize = 8192;
/// Bytes of the digest at the end of each record.
const CHECK: usize = 6;

/// A journal record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A run starts.
    Begin {
        /// The format of the following records.
        format: u16,
        /// The run's transfer id.
        transfer: [u8; 16],
        /// A description for people: what is copied where. At most 1,024 bytes are kept.
        note: String,
    },
    /// From here on `id` refers to this file.
    File {
        /// A number not in use for another file of this journal.
        id: u32,
        /// The file.
        key: FileKey,
    },
    /// A chunk of a file is written, and its bytes have this digest.
    Chunk {
        /// The file.
        file: u32,
        /// The chunk of the file: offset in the file divided by [`crate::CHUNK`].
        index: u32,
        /// Its piece's digest.
        digest: Digest,
    },
    /// The data of all earlier records of this run is on stable storage. A chunk that was verified
    /// only after the sync began must therefore be journalled after this record, not before it.
    Durable,
    /// A file is complete under its name, or its state is no longer valid.
    Forget {
        /// The file.
        file: u32,
    },
    /// A chunk does not have the journalled digest.
    Bad {
        /// The file.
        file: u32,
        /// The chunk of the file.
        index: u32,
    },
}

const BEGIN: u8 = 1;
const FILE: u8 = 2;
const CHUNK: u8 = 3;
const DURABLE: u8 = 4;
const FORGET: u8 = 5;
const BAD: u8 = 6;

/// Appends a record.
pub fn encode(record: &Record, out: &mut Vec<u8>) {
    let mut body = Vec::with_capacity(64);
    let tag = put_body(record, &mut body);
    let start = out.len();
    if tag == BEGIN {
        out.extend_from_slice(MAGIC);
    }
    out.push(tag);
    put_bytes(&body, out);
    let check = checksum(&out[start..]);
    out.extend_from_slice(&check);
}

/// The record at the start of `bytes`, and the rest; `None` if there is no valid one.
pub(super) fn next(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let mut reader = Reader(bytes);
    let magic = bytes.starts_with(MAGIC);
    if magic {
        reader.take(MAGIC.len())?;
    }
    let tag = reader.byte()?;
    if magic != (tag == BEGIN) {
        return None;
    }
    let body = reader.bytes(MAX_BODY)?;
    let checked = &bytes[..bytes.len() - reader.0.len()];
    if reader.array::<CHECK>()? != checksum(checked) {
        return None;
    }
    let mut body = Reader(body);
    let record = read_body(tag, &mut body)?;
    body.is_empty().then_some((record, reader.0))
}

fn checksum(bytes: &[u8]) -> [u8; CHECK] {
    let mut check = [0; CHECK];
    check.copy_from_slice(&blake3::hash(bytes).as_bytes()[..CHECK]);
    check
}

fn put_body(record: &Record, out: &mut Vec<u8>) -> u8 {
    match record {
        Record::Begin { format, transfer, note } => {
            put_uint(u64::from(*format), out);
            out.extend_from_slice(transfer);
            put_bytes(&note.as_bytes()[..note.floor_char_boundary(MAX_NOTE)], out);
            BEGIN
        }
        Record::File { id, key } => {
            put_uint(u64::from(*id), out);
            put_uint(key.size, out);
            put_int(key.mtime.secs, out);
            put_uint(u64::from(key.mtime.nanos), out);
            put_bytes(key.path.as_bytes(), out);
            FILE
        }
        Record::Chunk { file, index, digest } => {
            put_uint(u64::from(*file), out);
            put_uint(u64::from(*index), out);
            out.extend_from_slice(&digest.0);
            CHUNK
        }
        Record::Durable => DURABLE,
        Record::Forget { file } => {
            put_uint(u64::from(*file), out);
            FORGET
        }
        Record::Bad { file, index } => {
            put_uint(u64::from(*file), out);
            put_uint(u64::from(*index), out);
            BAD
        }
    }
}

fn read_body(tag: u8, body: &mut Reader<'_>) -> Option<Record> {
    Some(match tag {
        BEGIN => {
            let format = u16::try_from(body.uint()?).ok()?;
            if format > FORMAT {
                // Whatever a newer format has here, `replay` must report that it is newer.
                *body = Reader(&[]);
                return Some(Record::Begin { format, transfer: [0; 16], note: String::new() });
            }
            let transfer = body.array()?;
            let note = String::from_utf8(body.bytes(MAX_NOTE)?.to_vec()).ok()?;
            Record::Begin { format, transfer, note }
        }
        FILE => {
            let id = body.uint32()?;
            let size = body.uint()?;
            let mtime = Mtime { secs: body.int()?, nanos: body.uint32()? };
            let path = RelPath::new(body.bytes(MAX_BODY)?.to_vec()).ok()?;
            Record::File { id, key: FileKey { path, size, mtime } }
        }
        CHUNK => Record::Chunk {
            file: body.uint32()?,
            index: body.uint32()?,
            digest: Digest(body.array()?),
        },
        DURABLE => Record::Durable,
        FORGET => Record::Forget { file: body.uint32()? },
        BAD => Record::Bad { file: body.uint32()?, index: body.uint32()? },
        _ => return None,
    })
}
