//! The files of a record: a capture, the arrivals at each link, and the drops.
//!
//! - `PREFIX.pcap`: every packet that arrived at its first link, split into its segments, with
//!   nanoseconds, from IP on (LINKTYPE_RAW), the first [`SNAP`] bytes of each.
//! - `PREFIX.arrivals`: a line for each segment that arrived at a link: nanoseconds since the
//!   start, index of the link, number of the packet on this link, bytes.
//! - `PREFIX.drops`: for each segment that was dropped the same numbers and the cause.
//!
//! The emulator's thread only appends to memory; another thread writes.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use packtrain_link::{DropCause, Pace};
use packtrain_units::{Duration, Time};

use crate::counters;
use crate::error::{EmuError, Tried};
use crate::header::{MAX_HEADER_BYTES, VIRTIO, seal};
use crate::packet::{Packet, Piece};

/// Bytes kept of each packet: its headers and a little more.
const SNAP: usize = 128;
/// Size of a block, in bytes, that is passed to the writing thread.
const BLOCK: usize = 256 * 1024;
/// Maximum blocks that wait to be written: 64 MiB.
const BLOCKS: usize = 256;

const FILES: [&str; 3] = ["pcap", "arrivals", "drops"];
const PCAP: usize = 0;
const ARRIVALS: usize = 1;
const DROPS: usize = 2;

/// Writes a record.
#[derive(Debug)]
pub(crate) struct Recorder {
    blocks: [Vec<u8>; 3],
    to_disk: Option<SyncSender<(usize, Vec<u8>)>>,
    writer: Option<JoinHandle<io::Result<()>>>,
    /// Wall-clock time of the start.
    zero: Duration,
    packet: Vec<u8>,
}

impl Recorder {
    /// Creates the three files. `zero` is the wall-clock time of the start.
    pub(crate) fn create(prefix: &Path, zero: Duration) -> Result<Self, EmuError> {
        let open = |end: &&str| {
            let mut name = prefix.as_os_str().to_os_string();
            name.push(".");
            name.push(end);
            File::create(&name).tried(format!("{}", Path::new(&name).display()))
        };
        let files = FILES.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let (to_disk, blocks) = sync_channel(BLOCKS);
        let writer = std::thread::Builder::new()
            .name("record".to_owned())
            .spawn(move || write(files, &blocks))
            .tried("a thread")?;
        let mut recorder = Self {
            blocks: Default::default(),
            to_disk: Some(to_disk),
            writer: Some(writer),
            zero,
            packet: Vec::new(),
        };
        // Magic of nanosecond captures, version 2.4, snap length, LINKTYPE_RAW (101).
        for word in [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, SNAP as u32, 101_u32] {
            recorder.blocks[PCAP].extend_from_slice(&word.to_le_bytes());
        }
        recorder.blocks[ARRIVALS].extend_from_slice(b"time_ns,link,number,bytes\n");
        recorder.blocks[DROPS].extend_from_slice(b"time_ns,link,number,bytes,cause\n");
        Ok(recorder)
    }

    /// Records a packet from a host.
    pub(crate) fn sent(&mut self, at: Time, packet: &Packet) {
        let layout = &packet.layout;
        for i in 0..layout.count {
            let mut head = [0; MAX_HEADER_BYTES];
            let len = layout.compose(packet.head(), i, i + 1, &mut head);
            self.packet.clear();
            self.packet.extend_from_slice(&head[..len]);
            let (from, to) = layout.offsets(i, i + 1);
            for slice in packet.slices(from, to) {
                self.packet.extend_from_slice(&slice);
            }
            seal(&mut self.packet);
            let bytes = &self.packet[layout.ip().max(VIRTIO)..];
            let kept = &bytes[..bytes.len().min(SNAP)];
            let wall = (self.zero + at.since(Time::ZERO)).as_nanos();
            let second = 1_000_000_000;
            let out = &mut self.blocks[PCAP];
            for word in [wall / second, wall % second, kept.len() as u64, bytes.len() as u64] {
                out.extend_from_slice(&(word as u32).to_le_bytes());
            }
            out.extend_from_slice(kept);
        }
        self.pass_on(PCAP);
    }

    /// Records arrivals at a link.
    pub(crate) fn arrival(&mut self, link: usize, pace: Pace, piece: &Piece) {
        for i in 0..piece.count {
            let (at, number) = (pace.time(i).as_nanos(), piece.number + u64::from(i));
            let size = piece.packet.size(piece.from + i);
            let _ = writeln!(self.blocks[ARRIVALS], "{at},{link},{number},{size}");
        }
        self.pass_on(ARRIVALS);
    }

    /// Records drops of a link.
    pub(crate) fn dropped(&mut self, link: usize, pace: Pace, piece: &Piece, cause: DropCause) {
        let word = counters::word(cause);
        for i in 0..piece.count {
            let (at, number) = (pace.time(i).as_nanos(), piece.number + u64::from(i));
            let size = piece.packet.size(piece.from + i);
            let _ = writeln!(self.blocks[DROPS], "{at},{link},{number},{size},{word}");
        }
        self.pass_on(DROPS);
    }

    /// Writes the remaining data.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        for file in 0..FILES.len() {
            self.flush(file);
        }
        self.to_disk = None;
        match self.writer.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(io::Error::other("the writing thread died")),
        }
    }

    fn pass_on(&mut self, file: usize) {
        if self.blocks[file].len() >= BLOCK {
            self.flush(file);
        }
    }

    fn flush(&mut self, file: usize) {
        let full = std::mem::replace(&mut self.blocks[file], Vec::with_capacity(BLOCK + 4_096));
        if let Some(to_disk) = &self.to_disk {
            // The error of a thread that has failed is returned when it is joined.
            let _ = to_disk.send((file, full));
        }
    }
}

fn write(mut files: Vec<File>, blocks: &Receiver<(usize, Vec<u8>)>) -> io::Result<()> {
    for (file, block) in blocks {
        files[file].write_all(&block)?;
    }
    Ok(())
}
