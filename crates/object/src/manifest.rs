//! The manifest on the wire: a stream of segments, each a run of entries.
//!
//! A segment is: version (1 byte), id of the first entry, number of entries, and the entries. An
//! entry is: length of the path prefix shared with the previous entry, the rest of the path (length
//! and bytes), a head byte (kind in the low two bits; flags: same mode, same owner, same second as
//! the previous entry, names, attributes, lists), then the fields that the head does not cover: mode, owner and group,
//! seconds (as a difference), nanoseconds, and for a file its size, for a link its target. The flag
//! `names` marks a file with several names; two numbers or one follow: zero and the largest number
//! of further names, or how many entries before this one its first name is. With the flag
//! `attributes` the number of extended attributes follows, and the name, without namespace, and the
//! value of each. With the flag `lists` a byte follows that says which access control lists it has (1
//! access, 2 default), and for each list the number of entries and the entries: a byte (kind times 8
//! plus permissions), and the number of a user or group. Numbers are LEB128 in their shortest form. The entry before the first is all zeros
//! with an empty path.

use std::sync::Arc;

use crate::acl::{AclError, Acls};
use crate::attributes::{Attributes, AttributesError};
use crate::chunk::EntryId;
use crate::entry::{Entry, EntryKind, Extras, HardLink, Mtime, NO_MODE};
use crate::path::{MAX_PATH, PathError, RelPath};
use crate::wire::{Reader, put_bytes, put_int, put_uint};

/// Maximum length of a segment in bytes.
pub const MAX_SEGMENT_BYTES: usize = 512 << 10;
/// Maximum entries of a segment.
pub const MAX_SEGMENT_ENTRIES: usize = 4096;
/// Maximum total length of a segment's paths when expanded: front coding must not let a peer make
/// the receiver hold many times the bytes it sent.
pub(crate) const MAX_SEGMENT_PATHS: usize = 4 << 20;

/// The version of the segments that this build reads and writes.
const VERSION: u8 = 1;
/// Maximum length of a symbolic link's target (Linux `PATH_MAX`).
const MAX_TARGET: usize = 4096;
/// Maximum size of a file: the range of a signed 64-bit file offset.
const MAX_SIZE: u64 = i64::MAX as u64;
/// Maximum bytes of the head byte and the numbers of one entry.
const MAX_FIXED: usize = 64;
/// Maximum bytes of version, first id and count.
const MAX_HEADER: usize = 16;

const KIND: u8 = 0b0000_0011;
const SAME_MODE: u8 = 0b0000_0100;
const SAME_OWNER: u8 = 0b0000_1000;
const SAME_SECOND: u8 = 0b0001_0000;
const NAMES: u8 = 0b0010_0000;
const ATTRIBUTES: u8 = 0b0100_0000;
const LISTS: u8 = 0b1000_0000;

/// Why a segment is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It has more bytes, entries or path bytes than allowed.
    #[error("a manifest segment is too large")]
    TooLarge,
    /// Its version is unknown to this build.
    #[error("a manifest segment has version {0}, this build reads version {VERSION}")]
    Version(u8),
    /// It ends early, or a number is not in its shortest form.
    #[error("a manifest segment is cut short or malformed")]
    Malformed,
    /// Bytes follow the last entry.
    #[error("bytes follow the end of a manifest segment")]
    Trailing,
    /// An invalid path.
    #[error("in a manifest segment: {0}")]
    Path(#[from] PathError),
    /// Invalid extended attributes.
    #[error("in a manifest segment: {0}")]
    Attributes(#[from] AttributesError),
    /// Invalid access control lists.
    #[error("in a manifest segment: {0}")]
    Acl(#[from] AclError),
    /// A size, mode, time, target or flag is out of range.
    #[error("in a manifest segment: {0} is out of range")]
    Field(&'static str),
}

/// One segment with `entries`, of which the first has the id `first`. [`fitting`] returns how many
/// entries a segment takes; [`decode_segment`] refuses a segment with more.
pub fn encode_segment(first: EntryId, entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(MAX_HEADER + entries.len() * 32);
    out.push(VERSION);
    put_uint(u64::from(first.0), &mut out);
    put_uint(entries.len() as u64, &mut out);
    let mut before = Before::default();
    for (at, entry) in entries.iter().enumerate() {
        put_entry(entry, u64::from(first.0) + at as u64, &before, &mut out);
        before.set(entry);
    }
    out
}

/// How many of `entries`, from the first, fit in a segment; at least one if there is one.
pub fn fitting(entries: &[Entry]) -> usize {
    let (mut bytes, mut paths) = (MAX_HEADER, 0);
    let mut fit = 0;
    for entry in entries.iter().take(MAX_SEGMENT_ENTRIES) {
        bytes += longest(entry);
        paths += entry.path.as_bytes().len();
        if bytes > MAX_SEGMENT_BYTES || paths > MAX_SEGMENT_PATHS {
            break;
        }
        fit += 1;
    }
    fit.max(usize::from(!entries.is_empty()))
}

/// Checks that [`decode_segment`] at the other end accepts this entry: link target, size and
/// numbers are in range. A walk checks each entry before it sends it.
pub fn check_entry(entry: &Entry) -> Result<(), ManifestError> {
    if entry.path.is_root() && entry.kind != EntryKind::Directory {
        return Err(ManifestError::Path(PathError::Empty));
    }
    match &entry.kind {
        EntryKind::File { size } if *size > MAX_SIZE => return Err(ManifestError::Field("size")),
        EntryKind::Symlink { target }
            if target.is_empty() || target.len() > MAX_TARGET || target.contains(&0) =>
        {
            return Err(ManifestError::Field("link target"));
        }
        _ => {}
    }
    let is_regular = matches!(entry.kind, EntryKind::File { .. });
    if entry.extras.hard_link != HardLink::None && !is_regular {
        return Err(ManifestError::Field("hard link"));
    }
    let is_link = matches!(entry.kind, EntryKind::Symlink { .. });
    if entry.extras.attributes.is_some() && is_link {
        return Err(ManifestError::Field("extended attributes"));
    }
    if let Some(acls) = &entry.extras.acls
        && (is_link || acls.default.is_some() && entry.kind != EntryKind::Directory)
    {
        return Err(ManifestError::Field("access control list"));
    }
    if entry.mode > NO_MODE {
        return Err(ManifestError::Field("mode"));
    }
    if entry.mtime.nanos >= 1_000_000_000 {
        return Err(ManifestError::Field("time"));
    }
    Ok(())
}

/// The entries of a segment and the id of the first. Memory is bounded by the segment's length
/// and by 4 MiB of paths.
pub fn decode_segment(bytes: &[u8]) -> Result<(EntryId, Vec<Entry>), ManifestError> {
    if bytes.len() > MAX_SEGMENT_BYTES {
        return Err(ManifestError::TooLarge);
    }
    let mut reader = Reader(bytes);
    match reader.byte() {
        Some(VERSION) => {}
        Some(other) => return Err(ManifestError::Version(other)),
        None => return Err(ManifestError::Malformed),
    }
    let first = reader.uint32().ok_or(ManifestError::Malformed)?;
    let count = reader.uint().ok_or(ManifestError::Malformed)?;
    if count > MAX_SEGMENT_ENTRIES as u64 {
        return Err(ManifestError::TooLarge);
    }
    if u64::from(first) + count > u64::from(u32::MAX) {
        return Err(ManifestError::Field("entry id"));
    }
    // The shortest entry takes four bytes.
    let mut entries = Vec::with_capacity((count as usize).min(reader.0.len() / 4));
    let mut before = Before::default();
    let mut paths = 0;
    for at in 0..count {
        let id = u64::from(first) + at;
        let entry = read_entry(&mut reader, id, &before)?;
        paths += entry.path.as_bytes().len();
        if paths > MAX_SEGMENT_PATHS {
            return Err(ManifestError::TooLarge);
        }
        before.set(&entry);
        entries.push(entry);
    }
    if reader.is_empty() { Ok((EntryId(first), entries)) } else { Err(ManifestError::Trailing) }
}

/// The fields of the previous entry that an entry may refer to.
#[derive(Default)]
struct Before {
    path: Vec<u8>,
    mode: u32,
    owner: (u32, u32),
    secs: i64,
}

impl Before {
    fn set(&mut self, entry: &Entry) {
        self.path.clear();
        self.path.extend_from_slice(entry.path.as_bytes());
        self.mode = entry.mode;
        self.owner = (entry.uid, entry.gid);
        self.secs = entry.mtime.secs;
    }
}

/// An upper bound of an entry's encoded bytes.
fn longest(entry: &Entry) -> usize {
    let target = match &entry.kind {
        EntryKind::Symlink { target } => target.len(),
        _ => 0,
    };
    let attributes = entry.extras.attributes.as_ref().map_or(0, |list| list.longest());
    let acls = entry.extras.acls.as_ref().map_or(0, |acls| acls.longest());
    entry.path.as_bytes().len() + target + attributes + acls + MAX_FIXED
}

fn put_entry(entry: &Entry, id: u64, before: &Before, out: &mut Vec<u8>) {
    let path = entry.path.as_bytes();
    let shared = path.iter().zip(&before.path).take_while(|(a, b)| a == b).count();
    put_uint(shared as u64, out);
    put_bytes(&path[shared..], out);

    let kind = match entry.kind {
        EntryKind::File { .. } => 0,
        EntryKind::Stream => 1,
        EntryKind::Directory => 2,
        EntryKind::Symlink { .. } => 3,
    };
    let same_mode = entry.mode == before.mode;
    let same_owner = (entry.uid, entry.gid) == before.owner;
    let same_second = entry.mtime.secs == before.secs;
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    out.push(
        kind | flag(same_mode, SAME_MODE)
            | flag(same_owner, SAME_OWNER)
            | flag(same_second, SAME_SECOND)
            | flag(entry.extras.hard_link != HardLink::None, NAMES)
            | flag(entry.extras.attributes.is_some(), ATTRIBUTES)
            | flag(entry.extras.acls.is_some(), LISTS),
    );
    if !same_mode {
        put_uint(u64::from(entry.mode), out);
    }
    if !same_owner {
        put_uint(u64::from(entry.uid), out);
        put_uint(u64::from(entry.gid), out);
    }
    if !same_second {
        put_int(entry.mtime.secs.wrapping_sub(before.secs), out);
    }
    put_uint(u64::from(entry.mtime.nanos), out);
    match &entry.kind {
        EntryKind::File { size } => put_uint(*size, out),
        EntryKind::Symlink { target } => put_bytes(target, out),
        EntryKind::Stream | EntryKind::Directory => {}
    }
    match entry.extras.hard_link {
        HardLink::None => {}
        HardLink::First { further } => {
            put_uint(0, out);
            put_uint(u64::from(further), out);
        }
        HardLink::To(earlier) => put_uint(id.saturating_sub(u64::from(earlier.0)), out),
    }
    if let Some(attributes) = &entry.extras.attributes {
        attributes.put(out);
    }
    if let Some(acls) = &entry.extras.acls {
        acls.put(out);
    }
}

fn read_entry(reader: &mut Reader<'_>, id: u64, before: &Before) -> Result<Entry, ManifestError> {
    const SHORT: ManifestError = ManifestError::Malformed;
    let path = read_path(reader, before)?;
    let head = reader.byte().ok_or(SHORT)?;
    let mode = match head & SAME_MODE {
        0 => reader.uint32().ok_or(SHORT)?,
        _ => before.mode,
    };
    let (uid, gid) = match head & SAME_OWNER {
        0 => (reader.uint32().ok_or(SHORT)?, reader.uint32().ok_or(SHORT)?),
        _ => before.owner,
    };
    let secs = match head & SAME_SECOND {
        0 => before.secs.wrapping_add(reader.int().ok_or(SHORT)?),
        _ => before.secs,
    };
    let nanos = reader.uint32().ok_or(SHORT)?;
    let kind = match head & KIND {
        0 => EntryKind::File { size: reader.uint().ok_or(SHORT)? },
        1 => EntryKind::Stream,
        2 => EntryKind::Directory,
        _ => EntryKind::Symlink { target: reader.bytes(MAX_TARGET).ok_or(SHORT)?.to_vec() },
    };
    let hard_link = match head & NAMES {
        0 => HardLink::None,
        _ => read_hard_link(reader, id)?,
    };
    let attributes = match head & ATTRIBUTES {
        0 => None,
        _ => Some(Arc::new(Attributes::read(reader).ok_or(SHORT)??)),
    };
    let acls = match head & LISTS {
        0 => None,
        _ => Some(Arc::new(Acls::read(reader).ok_or(SHORT)??)),
    };
    let extras = Extras { hard_link, attributes, acls };
    let entry = Entry { path, kind, mode, mtime: Mtime { secs, nanos }, uid, gid, extras };
    check_entry(&entry)?;
    Ok(entry)
}

fn read_hard_link(reader: &mut Reader<'_>, id: u64) -> Result<HardLink, ManifestError> {
    const SHORT: ManifestError = ManifestError::Malformed;
    match reader.uint().ok_or(SHORT)? {
        0 => Ok(HardLink::First { further: reader.uint32().ok_or(SHORT)? }),
        distance => {
            let earlier = id.checked_sub(distance).and_then(|id| u32::try_from(id).ok());
            let earlier = earlier.ok_or(ManifestError::Field("hard link"))?;
            Ok(HardLink::To(EntryId(earlier)))
        }
    }
}

fn read_path(reader: &mut Reader<'_>, before: &Before) -> Result<RelPath, ManifestError> {
    let shared = reader.uint().ok_or(ManifestError::Malformed)?;
    let shared = usize::try_from(shared).ok().and_then(|n| before.path.get(..n));
    let shared = shared.ok_or(ManifestError::Malformed)?;
    let rest = reader.bytes(MAX_SEGMENT_BYTES).ok_or(ManifestError::Malformed)?;
    if shared.len() + rest.len() > MAX_PATH {
        return Err(PathError::TooLong.into());
    }
    Ok(RelPath::try_from([shared, rest].concat())?)
}

#[cfg(test)]
mod tests;
