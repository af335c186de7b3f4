//! The device on which packets leave a host's kernel and return to it.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::io::Errno;

use crate::egress::Run;
use crate::header::{ETHERNET, Layout, MAX_HEADER_BYTES, VIRTIO, set_ethertype};
use crate::merge::Batch;
use crate::packet::Packet;
use crate::store::Store;

/// A TUN device, or a packet socket at the outer end of a veth pair.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
    /// The Ethernet addresses of written packets, none for a TUN device.
    frame: Option<[u8; ETHERNET]>,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Read {
    /// A packet.
    Packet(Rc<Packet>),
    /// A packet that is neither IPv4 nor IPv6.
    Other,
    /// No packet is waiting.
    Empty,
}

impl Device {
    /// A TUN device.
    pub(crate) fn tun(fd: OwnedFd) -> Self {
        Self { fd, frame: None }
    }

    /// A packet socket on one end of a veth pair whose other end has the address `host`.
    pub(crate) fn packet(fd: OwnedFd, own: [u8; 6], host: [u8; 6]) -> Self {
        let mut frame = [0; ETHERNET];
        frame[..6].copy_from_slice(&host);
        frame[6..12].copy_from_slice(&own);
        Self { fd, frame: Some(frame) }
    }

    /// Reads one packet.
    pub(crate) fn read(&self, store: &mut Store) -> io::Result<Read> {
        let len = match rustix::io::readv(&self.fd, &mut store.room()) {
            Ok(len) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Read::Empty),
            Err(error) => return Err(error.into()),
        };
        let l2 = if self.frame.is_some() { ETHERNET } else { 0 };
        Ok(match Layout::of(store.head(), len, l2) {
            Ok(layout) => Read::Packet(store.packet(len, layout)),
            Err(_) => Read::Other,
        })
    }

    /// Writes the packets of a batch as one packet.
    pub(crate) fn write(&self, batch: &Batch) -> io::Result<()> {
        let mut head = [0; MAX_HEADER_BYTES];
        let len = batch.compose(&mut head);
        if let Some(frame) = &self.frame {
            head[VIRTIO..VIRTIO + ETHERNET].copy_from_slice(frame);
            if let Some(first) = batch.runs().first() {
                set_ethertype(&mut head, &first.piece.packet.layout);
            }
        }
        let mut slices = Vec::with_capacity(1 + 4 * batch.runs().len());
        slices.push(IoSlice::new(&head[..len]));
        for Run { piece, .. } in batch.runs() {
            let packet = &piece.packet;
            let (start, end) = packet.layout.offsets(piece.from, piece.from + piece.count);
            // For a single run `head` has the headers up to TCP; for several it has all headers.
            let start = if batch.runs().len() > 1 { len } else { start };
            slices.extend(packet.slices(start, end));
        }
        loop {
            match rustix::io::writev(&self.fd, &slices) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
