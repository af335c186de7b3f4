//! Where packets of a host come out of its kernel and go in again.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::io::Errno;

use crate::egress::Run;
use crate::header::{ETHERNET, Layout, MAX_HEADER_BYTES, VIRTIO};
use crate::merge::Batch;
use crate::packet::Packet;
use crate::store::Store;

/// One end of a device, or a packet socket at the other end of a pair.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
    /// Ethernet addresses to put before what is written, none for a TUN.
    frame: Option<[u8; ETHERNET]>,
}

/// What a read gave.
#[derive(Debug)]
pub(crate) enum Read {
    /// A packet.
    Packet(Rc<Packet>),
    /// Something that is not for us: not IPv4.
    Other,
    /// Nothing now.
    Empty,
}

impl Device {
    /// A TUN device.
    pub(crate) fn tun(fd: OwnedFd) -> Self {
        Self { fd, frame: None }
    }

    /// A packet socket on one end of a pair whose other end has the address `host`.
    pub(crate) fn packet(fd: OwnedFd, own: [u8; 6], host: [u8; 6]) -> Self {
        let mut frame = [0; ETHERNET];
        frame[..6].copy_from_slice(&host);
        frame[6..12].copy_from_slice(&own);
        frame[12..].copy_from_slice(&[8, 0]);
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

    /// Writes what is in a batch as one packet.
    pub(crate) fn write(&self, batch: &Batch) -> io::Result<()> {
        let mut head = [0; MAX_HEADER_BYTES];
        let len = batch.compose(&mut head);
        if let Some(frame) = &self.frame {
            head[VIRTIO..VIRTIO + ETHERNET].copy_from_slice(frame);
        }
        let mut slices = Vec::with_capacity(1 + 4 * batch.runs().len());
        slices.push(IoSlice::new(&head[..len]));
        for Run { piece, .. } in batch.runs() {
            let packet = &piece.packet;
            let (start, end) = packet.layout.places(piece.from, piece.from + piece.count);
            // One that is alone has its headers up to TCP in `head`, one of several all of them.
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
