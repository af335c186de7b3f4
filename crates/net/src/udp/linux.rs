//! The socket implementation for Linux.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use libc::c_int;
use packtrain_os::clock;
use packtrain_units::{ByteCount, Duration, Time};
use rustix::time::{ClockId, clock_gettime};
use socket2::SockAddr;

use super::control::{self, Control};
use super::slab::{RecvSlab, SLOT, Slot};
use super::socket::{Drops, Ecn, Offloads, canonical};
use super::sys;

/// Maximum segments per call. This is the limit before Linux 6.9, and no kernel has a lower one.
const MAX_SEGMENTS: usize = 64;
/// An older receive timestamp is the result of a step of the wall clock, not of a queue.
const OLDEST_ARRIVAL: Duration = Duration::from_secs(2);
/// Two clock readings within this time count as simultaneous.
const SAME_MOMENT: Duration = Duration::from_micros(2);
/// Index of the drop counter in `SO_MEMINFO` (linux/sock_diag.h).
const MEMINFO_DROPS: usize = 8;

pub(super) struct Socket {
    fd: socket2::Socket,
    v6: bool,
    offloads: Offloads,
    drops: u32,
    /// The upper six bits of the traffic class, at their position in the byte.
    class: u8,
    received: sys::Received,
}

impl Socket {
    pub(super) fn new(fd: socket2::Socket, v6: bool) -> io::Result<Self> {
        fd.set_nonblocking(true)?;
        let set = |level, name, value| sys::set_option(fd.as_fd(), level, name, value);
        // Offloads and counters are optional: without one the socket is slower, or a diagnosis is
        // missing.
        let _ = set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
        let timestamps = set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).is_ok();
        let gro = set(libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        // Segment size 0 has no effect, and fails if the option is unknown.
        let gso = set(libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        // A dual-stack socket has IPv4 traffic too, so the options of both families are set. Those
        // of IPv4 fail harmlessly without IPv4.
        let mut ecn = set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1).is_ok();
        let mut df = set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE).is_ok();
        if v6 {
            ecn = set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1).is_ok();
            let probe = libc::IPV6_PMTUDISC_PROBE;
            df = set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe).is_ok();
        }
        let offloads =
            Offloads { segmentation: gso, coalescing: gro, timestamps, ecn, dont_fragment: df };
        Ok(Self { fd, v6, offloads, drops: 0, class: 0, received: sys::Received::new() })
    }

    pub(super) fn fd(&self) -> &socket2::Socket {
        &self.fd
    }

    pub(super) fn borrow(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn offloads(&self) -> Offloads {
        self.offloads
    }

    #[cfg(test)]
    pub(super) fn refuse_segmentation(&mut self) {
        self.offloads.segmentation = false;
    }

    /// Sends as many of the datagrams in `bytes` as the kernel accepts now; returns their bytes.
    pub(super) fn send(
        &mut self,
        to: SocketAddr,
        bytes: &[u8],
        segment: usize,
        ecn: Option<Ecn>,
    ) -> io::Result<usize> {
        let name = SockAddr::from(self.native(to));
        let mut sent = 0;
        while sent < bytes.len() {
            let batch = &bytes[sent..][..self.at_once(bytes.len() - sent, segment)];
            match self.send_once(&name, to, batch, segment, ecn) {
                Ok(()) => sent += batch.len(),
                Err(e) if batch.len() > segment && refuses_segmentation(&e) => {
                    self.offloads.segmentation = false;
                }
                Err(e) if sent > 0 && e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(sent)
    }

    /// How many of the `left` bytes to send with one call.
    fn at_once(&self, left: usize, segment: usize) -> usize {
        if !self.offloads.segmentation || left <= segment {
            return left.min(segment);
        }
        // Below 64 KiB including the largest headers.
        let most = MAX_SEGMENTS.min((SLOT - 64) / segment).max(1) * segment;
        left.min(most)
    }

    /// Marks everything sent from now on with a DSCP (RFC 2474), which is given at its position in
    /// the traffic class.
    pub(super) fn set_class(&mut self, class: u8) {
        self.class = class;
        let value = c_int::from(class);
        // The mark is optional.
        let _ = sys::set_option(self.fd.as_fd(), libc::IPPROTO_IP, libc::IP_TOS, value);
        if self.v6 {
            let _ = sys::set_option(self.fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_TCLASS, value);
        }
    }

    /// Clears the don't-fragment bit of everything sent from now on.
    pub(super) fn allow_fragments(&mut self) {
        // If this fails, the socket keeps the default, which permits fragments too.
        let dont = libc::IP_PMTUDISC_DONT;
        let fd = self.fd.as_fd();
        let _ = sys::set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, dont);
        if self.v6 {
            let dont = libc::IPV6_PMTUDISC_DONT;
            let _ = sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, dont);
        }
        self.offloads.dont_fragment = false;
    }

    fn send_once(
        &self,
        name: &SockAddr,
        to: SocketAddr,
        batch: &[u8],
        segment: usize,
        ecn: Option<Ecn>,
    ) -> io::Result<()> {
        let mut control = Control::new();
        let mut used = 0;
        if batch.len() > segment {
            let size = u16::try_from(segment).map_err(|_| io::ErrorKind::InvalidInput)?;
            used = control.push(used, libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
        }
        if let Some(ecn) = ecn {
            let bits = c_int::from(self.class | ecn.bits()).to_ne_bytes();
            used = if to.is_ipv4() {
                control.push(used, libc::IPPROTO_IP, libc::IP_TOS, &bits)
            } else {
                control.push(used, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &bits)
            };
        }
        sys::send(self.fd.as_fd(), name, batch, &mut control, used).map(drop)
    }

    /// Receives pending datagrams into the slab; returns the number of messages.
    pub(super) fn recv(&mut self, slab: &mut RecvSlab) -> io::Result<usize> {
        slab.slots.clear();
        let fd = self.fd.as_fd();
        let count = sys::receive(fd, &mut slab.bytes, slab.ask, &mut self.received)?;
        let clocks = both_clocks();
        for i in 0..count {
            let slot = self.slot(i, clocks);
            slab.slots.push(slot);
        }
        slab.adapt();
        Ok(count)
    }

    /// The metadata of message `i`.
    fn slot(&mut self, i: usize, (now, wall): (Time, i64)) -> Slot {
        let len = self.received.len(i);
        let from = self.received.name(i).as_socket().map_or_else(unknown, canonical);
        let (ecn, drops) = (None, Drops(self.drops));
        let mut slot = Slot { len, stride: len, from, ecn, received_at: now, drops };
        for (level, kind, data) in self.received.control(i) {
            match (level, kind) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    slot.stride = control::int(data).and_then(|n| n.try_into().ok()).unwrap_or(len);
                }
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                    if let Some((seconds, nanos)) = control::timespec(data) {
                        let stamp = seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos);
                        let age = u64::try_from(wall.saturating_sub(stamp)).unwrap_or(0);
                        let age = Duration::from_nanos(age);
                        slot.received_at = if age < OLDEST_ARRIVAL { now - age } else { now };
                    }
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    if let Some(total) = control::int(data) {
                        self.drops = total as u32;
                        slot.drops = Drops(self.drops);
                    }
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => slot.ecn = data.first().map(Ecn::from_tos),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    slot.ecn = control::int(data).map(|n| Ecn::from_tos(&(n as u8)));
                }
                _ => {}
            }
        }
        slot.stride = slot.stride.clamp(1, len.max(1));
        slot
    }

    /// The counter at the last receive call.
    pub(super) fn seen_drops(&self) -> Drops {
        Drops(self.drops)
    }

    /// The current counter, at the cost of a system call.
    pub(super) fn drops(&mut self) -> Drops {
        // Drops before messages that are still queued are also reported with those messages.
        let now = sys::memory_info(self.fd.as_fd()).map(|words| words[MEMINFO_DROPS]);
        Drops(now.unwrap_or(self.drops))
    }

    pub(super) fn buffer_sizes(&self) -> io::Result<(ByteCount, ByteCount)> {
        Ok((
            ByteCount(self.fd.recv_buffer_size()? as u64),
            ByteCount(self.fd.send_buffer_size()? as u64),
        ))
    }

    /// The address in the format of this socket's family.
    fn native(&self, to: SocketAddr) -> SocketAddr {
        match to {
            SocketAddr::V4(v4) if self.v6 => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
            other => other,
        }
    }
}

/// Whether a refused batch may succeed as single datagrams: no checksum offload, or a tunnel
/// without segmentation (`EIO`); a kernel or device without the option (`EINVAL`).
fn refuses_segmentation(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP))
}

fn unknown() -> SocketAddr {
    (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
}

/// Both clocks at nearly the same time. If the thread were preempted between the two readings,
/// every arrival would look older or newer than it is.
fn both_clocks() -> (Time, i64) {
    let mut before = clock::now();
    for _ in 0..3 {
        let wall = clock_gettime(ClockId::Realtime);
        let now = clock::now();
        if now.since(before) < SAME_MOMENT {
            return (now, wall.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(wall.tv_nsec));
        }
        before = now;
    }
    // Then all ages are negative and count as zero.
    (before, i64::MIN)
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
    fn without_segmentation_each_datagram_is_a_call() {
        let ((mut tx, _), (mut rx, to)) = (socket(), socket());
        tx.refuse_segmentation();
        let batch: Vec<u8> = (0..10_500).map(|i| (i / 3) as u8).collect();
        assert_eq!(tx.send(to, &batch, 1_000, Some(Ecn::Ect0)).unwrap(), batch.len());
        let mut slab = RecvSlab::new();
        let mut got = Vec::new();
        while got.len() < batch.len() {
            match rx.recv(&mut slab) {
                Ok(_) => slab.messages().for_each(|m| got.extend_from_slice(m.bytes)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => panic!("{e}"),
            }
        }
        assert_eq!(got, batch);
    }

    #[test]
    fn only_a_refused_batch_turns_segmentation_off() {
        for (code, off) in [(libc::EIO, true), (libc::EINVAL, true), (libc::EPERM, false)] {
            assert_eq!(refuses_segmentation(&io::Error::from_raw_os_error(code)), off);
        }
    }
}
