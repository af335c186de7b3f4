//! Reads signatures from files.
//!
//! The first bytes determine the format; each may be compressed with gzip:
//!
//! - text: one signature per line, `1` received, `0` lost, `#` begins a comment;
//! - labelled records: one JSON object per line, see [`Labelled`];
//! - qlog: the log of a QUIC connection, as JSON, JSON-SEQ or one event per line (`qlog`);
//! - a capture of UDT packets, pcap or pcapng (`pcap`).
//!
//! Files are read once, front to back. Memory holds about one window, except for a qlog, whose
//! packets are stored as bits.

mod board;
mod pcap;
mod qlog;
mod records;
mod text;
mod udt;

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read};
use std::rc::Rc;

use thiserror::Error;

use crate::{Delay, HostDrops, Labelled, Signature, paper};

/// Options for reading files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Packets per window. `None`: captures and logs are cut into windows of [`paper::WINDOW`],
    /// signatures on a line of their own are not cut.
    pub window: Option<usize>,
}

/// A signature with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The line, or the flow and window, for people.
    pub place: String,
    /// Which packets arrived.
    pub signature: Signature,
    /// The receiving host's drop counter, if the file has it.
    pub host_drops: Option<HostDrops>,
    /// The delay around the losses, if the file has it.
    pub delay: Option<Delay>,
}

/// Why a file could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// An I/O error.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// Its format is unknown.
    #[error(
        "neither signatures (lines of 1 and 0), labelled records, a qlog nor a capture: \
         it begins with {0:?}"
    )]
    Unknown(String),
    /// An invalid line.
    #[error("line {line}: {what}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// The error.
        what: String,
    },
    /// An invalid qlog.
    #[error("qlog: {0}")]
    Qlog(String),
    /// An invalid capture.
    #[error("capture: {0}")]
    Capture(String),
}

impl ReadError {
    fn line(line: u64, what: impl ToString) -> Self {
        Self::Line { line, what: what.to_string() }
    }
}

/// The signatures of a file, in order. It ends after an error.
pub struct Signatures<'a> {
    inner: Box<dyn Iterator<Item = Result<Found, ReadError>> + 'a>,
    failed: bool,
}

impl<'a> Signatures<'a> {
    /// Opens a file.
    ///
    /// # Errors
    /// Its beginning cannot be read or has an unknown format.
    pub fn open(file: impl Read + Send + 'a, options: Options) -> Result<Self, ReadError> {
        let mut file = unpacked(file)?;
        let window = options.window.unwrap_or(paper::WINDOW).clamp(1, Signature::MAX_PACKETS);
        let inner: Box<dyn Iterator<Item = _> + 'a> = match kind(&mut file)? {
            Kind::Text => Box::new(text::Lines::new(file, options.window)),
            Kind::Records => Box::new(records::Records::new(file).flat_map(move |record| {
                let cut = options.window;
                match record {
                    Ok((line, labelled)) => Found::of_record(line, labelled, cut),
                    Err(error) => vec![Err(error)],
                }
            })),
            Kind::Qlog => Box::new(qlog::read(file, window)?),
            Kind::Pcap => Box::new(pcap::Capture::open(file, window)?),
        };
        Ok(Self { inner, failed: false })
    }
}

impl Iterator for Signatures<'_> {
    type Item = Result<Found, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.inner.next();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

impl std::fmt::Debug for Signatures<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signatures").field("failed", &self.failed).finish_non_exhaustive()
    }
}

/// The labelled records of a file, in order, with the numbers of their lines.
///
/// # Errors
/// If the beginning cannot be read.
pub fn labelled<'a>(
    file: impl Read + Send + 'a,
) -> Result<impl Iterator<Item = Result<(u64, Labelled), ReadError>> + 'a, ReadError> {
    Ok(records::Records::new(unpacked(file)?))
}

impl Found {
    /// A record as evidence. Its counter and delay cover the whole record, so parts of it have
    /// neither.
    fn of_record(
        line: u64,
        labelled: Labelled,
        window: Option<usize>,
    ) -> Vec<Result<Self, ReadError>> {
        let place = format!("line {line}");
        match window.filter(|window| *window < labelled.signature.len()) {
            None => vec![Ok(Self {
                place,
                host_drops: labelled.counted(),
                signature: labelled.signature,
                delay: labelled.delay,
            })],
            Some(window) => labelled
                .signature
                .windows(window)
                .enumerate()
                .map(|(index, signature)| {
                    let place = format!("{place}, window {}", index + 1);
                    Ok(Self { place, signature, host_drops: None, delay: None })
                })
                .collect(),
        }
    }

    /// A window with a signature only.
    fn bare(place: String, signature: Signature) -> Self {
        Self { place, signature, host_drops: None, delay: None }
    }
}

type Input<'a> = Box<dyn BufRead + Send + 'a>;

/// The file, decompressed if necessary.
fn unpacked<'a>(file: impl Read + Send + 'a) -> Result<Input<'a>, ReadError> {
    let mut file = BufReader::with_capacity(1 << 16, file);
    if file.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        let unpacked = flate2::bufread::MultiGzDecoder::new(file);
        return Ok(Box::new(BufReader::with_capacity(1 << 16, unpacked)));
    }
    Ok(Box::new(file))
}

enum Kind {
    Text,
    Records,
    Qlog,
    Pcap,
}

/// Determines the format from the beginning, which remains unread.
fn kind(file: &mut Input<'_>) -> Result<Kind, ReadError> {
    let start = file.fill_buf()?;
    if start.is_empty() {
        return Err(ReadError::Empty);
    }
    if let Some(magic) = start.first_chunk::<4>() {
        // Sections of pcapng; pcap in both byte orders, with micro- and nanoseconds.
        const MAGIC: [u32; 5] = [0x0a0d_0d0a, 0xa1b2_c3d4, 0xd4c3_b2a1, 0xa1b2_3c4d, 0x4d3c_b2a1];
        if MAGIC.contains(&u32::from_be_bytes(*magic)) {
            return Ok(Kind::Pcap);
        }
    }
    let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        None | Some(b'0' | b'1' | b'#') => Ok(Kind::Text),
        Some(0x1e) => Ok(Kind::Qlog),
        Some(b'{') => {
            let shown = String::from_utf8_lossy(&start[..start.len().min(4096)]);
            let record = shown.contains("\"family\"") || shown.contains("\"runs\"");
            Ok(if record { Kind::Records } else { Kind::Qlog })
        }
        Some(_) => {
            let shown = String::from_utf8_lossy(&start[..start.len().min(16)]);
            Err(ReadError::Unknown(shown.into_owned()))
        }
    }
}

/// Reads a line of at most `limit` bytes into `line`, without its end; returns false at the end of
/// the file.
fn read_line(
    file: &mut impl BufRead,
    end: u8,
    limit: usize,
    line: &mut Vec<u8>,
) -> std::io::Result<bool> {
    line.clear();
    let read = file.take(limit as u64 + 1).read_until(end, line)?;
    if line.last() == Some(&end) {
        line.pop();
    } else if read > limit {
        return Err(std::io::Error::other(format!("a line of more than {limit} bytes")));
    }
    Ok(read > 0)
}

/// Ends a file that has too many bytes between two events.
struct Fed<R> {
    inner: R,
    since: Rc<Cell<u64>>,
}

impl<R> Fed<R> {
    /// Maximum bytes without an event.
    const MAX_EVENTLESS_BYTES: u64 = 32 << 20;
}

impl<R: Read> Read for Fed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.since.set(self.since.get() + read as u64);
        if self.since.get() > Self::MAX_EVENTLESS_BYTES {
            return Err(std::io::Error::other("32 MiB without an event"));
        }
        Ok(read)
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
