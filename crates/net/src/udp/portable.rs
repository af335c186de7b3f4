//! The socket implementation for other systems: one datagram per call, no counters, and the time of
//! the receive call as the time of arrival.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use packtrain_os::clock;
use packtrain_units::ByteCount;

use super::slab::{RecvSlab, SLOT, Slot};
use super::socket::{Drops, Ecn, Offloads, canonical};

pub(super) struct Socket {
    fd: socket2::Socket,
    std: std::net::UdpSocket,
    v6: bool,
}

impl Socket {
    pub(super) fn new(fd: socket2::Socket, v6: bool) -> io::Result<Self> {
        fd.set_nonblocking(true)?;
        let std = fd.try_clone()?.into();
        Ok(Self { fd, std, v6 })
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn fd(&self) -> &socket2::Socket {
        &self.fd
    }

    pub(super) fn borrow(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn offloads(&self) -> Offloads {
        Offloads::default()
    }

    /// The system's default permits fragments.
    pub(super) fn allow_fragments(&mut self) {}

    /// Marks are not supported.
    pub(super) fn set_class(&mut self, _: u8) {}

    pub(super) fn send(
        &mut self,
        to: SocketAddr,
        bytes: &[u8],
        segment: usize,
        _ecn: Option<Ecn>,
    ) -> io::Result<usize> {
        let to = match to {
            SocketAddr::V4(v4) if self.v6 => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
            other => other,
        };
        let mut sent = 0;
        for datagram in bytes.chunks(segment.max(1)) {
            match self.std.send_to(datagram, to) {
                Ok(_) => sent += datagram.len(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => break,
                Err(e) if sent > 0 && e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(sent)
    }

    pub(super) fn recv(&mut self, slab: &mut RecvSlab) -> io::Result<usize> {
        slab.slots.clear();
        for bytes in slab.bytes.chunks_exact_mut(SLOT).take(slab.ask) {
            match self.std.recv_from(bytes) {
                Ok((len, from)) => slab.slots.push(Slot {
                    len,
                    stride: len.max(1),
                    from: canonical(from),
                    ecn: None,
                    received_at: clock::now(),
                    drops: Drops(0),
                }),
                Err(_) if !slab.slots.is_empty() => break,
                Err(e) => return Err(e),
            }
        }
        slab.adapt();
        Ok(slab.slots.len())
    }

    pub(super) fn seen_drops(&self) -> Drops {
        Drops::default()
    }

    pub(super) fn drops(&mut self) -> Drops {
        Drops::default()
    }

    pub(super) fn buffer_sizes(&self) -> io::Result<(ByteCount, ByteCount)> {
        Ok((
            ByteCount(self.fd.recv_buffer_size()? as u64),
            ByteCount(self.fd.send_buffer_size()? as u64),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Protocol, Type};

    fn socket() -> (Socket, SocketAddr) {
        let fd = socket2::Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        fd.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let addr = fd.local_addr().unwrap().as_socket().unwrap();
        (Socket::new(fd, false).unwrap(), addr)
    }

    #[test]
    fn plain_sockets_carry_a_batch() {
        let ((mut tx, from), (mut rx, to)) = (socket(), socket());
        tx.set_class(4);
        tx.allow_fragments();
        let batch: Vec<u8> = (0..2_500).map(|i| i as u8).collect();
        assert_eq!(tx.send(to, &batch, 1_000, None).unwrap(), batch.len());
        let mut slab = RecvSlab::new();
        let mut got = Vec::new();
        while got.len() < batch.len() {
            match rx.recv(&mut slab) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) => panic!("{e}"),
            }
            for message in slab.messages() {
                assert_eq!((message.from, message.ecn), (from, None));
                got.extend_from_slice(message.bytes);
            }
        }
        assert_eq!(got, batch);
        assert!(rx.borrow().try_clone_to_owned().is_ok());
        assert_eq!((rx.drops(), rx.seen_drops()), (Drops(0), Drops(0)));
        assert!(rx.buffer_sizes().unwrap().0.get() > 0);
        assert_eq!(rx.offloads(), Offloads::default());
        assert!(rx.recv(&mut slab).is_err());
    }
}
