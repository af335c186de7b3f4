//! Headers of packets from a device: the virtio header, perhaps Ethernet, IPv4 or IPv6, TCP or
//! UDP.
//!
//! A super-packet has the headers of its first segment and the size of its segments. The rest after
//! a drop gets its own headers by the kernel's rules for segmentation: IP length and (IPv4)
//! identification, TCP sequence number and flags, UDP length, and the checksum. Of the checksum the
//! packet contains only the pseudo-header's part until the receiving side completes it, if it does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of `struct virtio_net_hdr`, which precedes every packet.
pub(crate) const VIRTIO: usize = 10;
/// Length of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// Maximum length of all headers.
pub(crate) const MAX_HEADER_BYTES: usize = VIRTIO + ETHERNET + 60 + 60;

const NEEDS_CSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;
/// Congestion experienced, and the mask of the ECN bits (RFC 3168).
const CE: u8 = 3;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Ethernet types.
const ETHERTYPE_V4: [u8; 2] = [8, 0];
const ETHERTYPE_V6: [u8; 2] = [0x86, 0xdd];
/// Length of an IPv6 header without extensions (RFC 8200).
const V6_HEADER: usize = 40;

/// A packet that the emulator does not carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnsupportedPacket;

/// The kind of segmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One packet of any protocol.
    Single,
    /// A TCP super-packet.
    Tcp,
    /// A UDP super-packet.
    Udp,
}

/// The positions of the parts of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    kind: Kind,
    v6: bool,
    /// Offset of the IP header in the read data.
    ip: usize,
    /// Offset of the TCP or UDP header.
    l4: usize,
    /// Bytes of headers of each segment, from IP on.
    pub(crate) headers: u32,
    /// Bytes of payload of all segments.
    payload: u32,
    /// Bytes of payload of each segment but the last.
    segment: u32,
    /// Number of segments.
    pub(crate) count: u32,
    /// Destination address.
    pub(crate) target: IpAddr,
}

impl Layout {
    /// Parses the headers of a packet of `len` bytes that begins with `head`, with a link header of
    /// `l2` bytes.
    pub(crate) fn of(head: &[u8], len: usize, l2: usize) -> Result<Self, UnsupportedPacket> {
        let ip = VIRTIO + l2;
        let head = &head[..head.len().min(len)];
        if head.len() < ip + 20 {
            return Err(UnsupportedPacket);
        }
        let v6 = match head[ip] >> 4 {
            4 => false,
            6 if head.len() >= ip + V6_HEADER => true,
            _ => return Err(UnsupportedPacket),
        };
        let ethertype = if v6 { ETHERTYPE_V6 } else { ETHERTYPE_V4 };
        if l2 == ETHERNET && head[VIRTIO + 12..VIRTIO + 14] != ethertype {
            return Err(UnsupportedPacket);
        }
        // IPv6 counts what follows its header. Extension headers are payload of a single packet:
        // the kernel builds no super-packets with them.
        let ip_header = if v6 { V6_HEADER } else { usize::from(head[ip] & 15) * 4 };
        let (counted, protocol) = match v6 {
            true => (usize::from(read16(head, ip + 4)), head[ip + 6]),
            false => (usize::from(read16(head, ip + 2)), head[ip + 9]),
        };
        let l4 = ip + ip_header;
        // Short frames may be padded, so the length is that of IP, unless that is zero.
        let total = match counted {
            0 => len - ip,
            counted if v6 => V6_HEADER + counted,
            counted => counted,
        };
        if ip_header < 20 || total < ip_header || ip + total > len {
            return Err(UnsupportedPacket);
        }
        let target = match head[ip + 24..].first_chunk::<16>() {
            Some(octets) if v6 => Ipv6Addr::from(*octets).into(),
            _ => Ipv4Addr::new(head[ip + 16], head[ip + 17], head[ip + 18], head[ip + 19]).into(),
        };
        let single = Self {
            kind: Kind::Single,
            v6,
            ip,
            l4,
            headers: ip_header as u32,
            payload: (total - ip_header) as u32,
            segment: (total - ip_header) as u32,
            count: 1,
            target,
        };
        let segment = u32::from(u16::from_ne_bytes([head[4], head[5]]));
        let tcp = if v6 { GSO_TCP6 } else { GSO_TCP4 };
        let (kind, l4_header) = match (head[1] & !GSO_ECN, protocol) {
            (0, _) => return Ok(single),
            (gso, TCP) if gso == tcp && head.len() >= l4 + 20 => {
                (Kind::Tcp, usize::from(head[l4 + 12] >> 4) * 4)
            }
            (GSO_UDP_L4, UDP) if head.len() >= l4 + 8 => (Kind::Udp, 8),
            _ => return Err(UnsupportedPacket),
        };
        let headers = ip_header + l4_header;
        let min_header = if kind == Kind::Tcp { 20 } else { 8 };
        if segment == 0 || l4_header < min_header || total <= headers || head.len() < ip + headers {
            return Err(UnsupportedPacket);
        }
        let payload = (total - headers) as u32;
        let count = payload.div_ceil(segment);
        if count == 1 {
            return Ok(single);
        }
        Ok(Self { kind, headers: headers as u32, payload, segment, count, ..single })
    }

    /// The offsets in the payload of segments `from` and `to`.
    pub(crate) fn payload(&self, from: u32, to: u32) -> (u32, u32) {
        let at = |i: u32| if i >= self.count { self.payload } else { i * self.segment };
        (at(from), at(to))
    }

    /// The same, as offsets in the read data.
    pub(crate) fn offsets(&self, from: u32, to: u32) -> (usize, usize) {
        let (a, b) = self.payload(from, to);
        let start = self.ip + self.headers as usize;
        (start + a as usize, start + b as usize)
    }

    /// Offset of the IP header.
    pub(crate) const fn ip(&self) -> usize {
        self.ip
    }

    /// Whether it is for a group of hosts, as a kernel's reports of its own memberships are.
    pub(crate) fn is_multicast(&self) -> bool {
        self.target.is_multicast()
    }

    /// Whether the sender understands congestion marks (RFC 3168 section 5).
    pub(crate) fn is_ect(&self, head: &[u8]) -> bool {
        head.get(self.ip + 1).is_some_and(|service| service & self.congestion() != 0)
    }

    /// Marks composed headers as congestion-experienced.
    pub(crate) fn mark(&self, out: &mut [u8]) {
        out[self.ip + 1] |= self.congestion();
        if !self.v6 {
            write_ip_checksum(out, self.ip, self.l4);
        }
    }

    /// The ECN bits in the second byte of the IP header: IPv6 has its traffic class four bits
    /// later.
    const fn congestion(&self) -> u8 {
        if self.v6 { CE << 4 } else { CE }
    }

    /// Writes to `out` the headers of segments `from` to `to` as one packet, derived from the
    /// headers that were read, and returns their length.
    pub(crate) fn compose(
        &self,
        head: &[u8],
        from: u32,
        to: u32,
        out: &mut [u8; MAX_HEADER_BYTES],
    ) -> usize {
        let len = self.ip + self.headers as usize;
        out[..len].copy_from_slice(&head[..len]);
        if self.kind != Kind::Single && (from > 0 || to < self.count) {
            self.rewrite(&mut out[..len], from, to);
        }
        len
    }

    fn rewrite(&self, out: &mut [u8], from: u32, to: u32) {
        let (ip, l4) = (self.ip, self.l4);
        let (a, b) = self.payload(from, to);
        if to - from == 1 {
            (out[1], out[4], out[5]) = (0, 0, 0);
        } else if from > 0 {
            out[1] &= !GSO_ECN;
        }
        let total = self.headers + (b - a);
        if !self.v6 {
            let id = read16(out, ip + 4).wrapping_add(from as u16);
            write16(out, ip + 4, id);
        }
        write_ip_length(out, self, total);
        let l4_len = total - (l4 - ip) as u32;
        let check = if self.kind == Kind::Tcp {
            let sequence = [out[l4 + 4], out[l4 + 5], out[l4 + 6], out[l4 + 7]];
            let sequence = u32::from_be_bytes(sequence).wrapping_add(a);
            out[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
            const FIN_PSH: u8 = 0x01 | 0x08;
            const CWR: u8 = 0x80;
            if to < self.count {
                out[l4 + 13] &= !FIN_PSH;
            }
            if from > 0 {
                out[l4 + 13] &= !CWR;
            }
            l4 + 16
        } else {
            write16(out, l4 + 4, l4_len as u16);
            l4 + 6
        };
        if out[0] & NEEDS_CSUM != 0 {
            let sum = pseudo(&out[ip..], l4_len);
            write16(out, check, fold(sum));
        }
    }
}

/// A single TCP packet with data, to which others of its connection may be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tcp {
    v6: bool,
    ip: usize,
    l4: usize,
    /// Offset of the data.
    data: usize,
    /// Sequence number of its first byte.
    pub(crate) sequence: u32,
    /// Bytes of data.
    pub(crate) payload: u32,
    /// Whether PSH is set.
    pub(crate) pushed: bool,
}

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

impl Tcp {
    /// The packet with this head, if it qualifies: data, no flags but ACK and PSH, an incomplete
    /// checksum, no fragment.
    pub(crate) fn of(layout: &Layout, head: &[u8]) -> Option<Self> {
        let Layout { kind, v6, ip, l4, payload, .. } = *layout;
        let protocol = if v6 { ip + 6 } else { ip + 9 };
        let plain = kind == Kind::Single && head.len() >= l4 + 20 && head[protocol] == TCP;
        // A fragment of IPv6 has a header between IP and TCP.
        let fragment = !v6 && read16(head, ip + 6) & 0x3fff != 0;
        if !plain || head[0] & NEEDS_CSUM == 0 || fragment {
            return None;
        }
        let header = usize::from(head[l4 + 12] >> 4) * 4;
        let payload = payload.checked_sub(header as u32).filter(|payload| *payload > 0)?;
        if header < 20 || head.len() < l4 + header || head[l4 + 13] & !PSH != ACK {
            return None;
        }
        let sequence = [head[l4 + 4], head[l4 + 5], head[l4 + 6], head[l4 + 7]];
        Some(Self {
            v6,
            ip,
            l4,
            data: l4 + header,
            sequence: u32::from_be_bytes(sequence),
            payload,
            pushed: head[l4 + 13] & PSH != 0,
        })
    }

    /// Whether all headers equal those of another packet, except for lengths, numbers, checksums
    /// and PSH.
    pub(crate) fn alike(&self, head: &[u8], other: &Self, other_head: &[u8]) -> bool {
        let Self { v6, ip, l4, data, .. } = *self;
        let same = |from: usize, to: usize| head[from..to] == other_head[from..to];
        // Version, length and service; flags, time to live and protocol; addresses, IP's options
        // and ports. In IPv6 all but the length.
        let alike_ip = match v6 {
            true => same(ip, ip + 4) && same(ip + 6, l4 + 4),
            false => same(ip, ip + 2) && same(ip + 6, ip + 10) && same(ip + 12, l4 + 4),
        };
        // Acknowledgement and data offset; window; TCP's options.
        (v6, ip, l4, data) == (other.v6, other.ip, other.l4, other.data)
            && alike_ip
            && same(l4 + 8, l4 + 13)
            && same(l4 + 14, l4 + 16)
            && same(l4 + 20, data)
    }
}

/// Writes to `out` the headers of one packet that has the data of several consecutive ones,
/// `payload` bytes in all: the headers of the first, with PSH of the last. Both are [`Tcp`].
/// Returns their length.
pub(crate) fn join(
    first: &Layout,
    head: &[u8],
    payload: u32,
    (last, tail): (&Layout, &[u8]),
    out: &mut [u8; MAX_HEADER_BYTES],
) -> usize {
    let (ip, l4) = (first.ip, first.l4);
    let header = usize::from(head[l4 + 12] >> 4) * 4;
    let data = l4 + header;
    out[..data].copy_from_slice(&head[..data]);
    out[1] = if first.v6 { GSO_TCP6 } else { GSO_TCP4 };
    out[2..4].copy_from_slice(&((data - ip) as u16).to_ne_bytes());
    let segment = first.payload - header as u32;
    out[4..6].copy_from_slice(&(segment as u16).to_ne_bytes());
    out[l4 + 13] |= tail[last.l4 + 13] & PSH;
    write_ip_length(&mut out[..], first, (data - ip) as u32 + payload);
    let sum = pseudo(&out[ip..], header as u32 + payload);
    write16(out, l4 + 16, fold(sum));
    data
}

/// Completes an incomplete checksum, for records. `packet` is one segment with all its headers.
pub(crate) fn seal(packet: &mut [u8]) {
    let field = |at: usize| usize::from(u16::from_ne_bytes([packet[at], packet[at + 1]]));
    if packet.len() < VIRTIO || packet[0] & NEEDS_CSUM == 0 {
        return;
    }
    let start = VIRTIO + field(6);
    let place = start + field(8);
    if place + 2 > packet.len() {
        return;
    }
    // In UDP a checksum of zero means none (RFC 768); in TCP both values are equivalent.
    let sum = match !fold(add(0, &packet[start..])) {
        0 => 0xffff,
        sum => sum,
    };
    write16(packet, place, sum);
}

/// The pseudo-header's sum (RFC 9293 section 3.1, RFC 768; IPv6: RFC 8200 section 8.1).
fn pseudo(ip: &[u8], l4_len: u32) -> u64 {
    let (protocol, addresses) =
        if ip[0] >> 4 == 6 { (ip[6], &ip[8..40]) } else { (ip[9], &ip[12..20]) };
    add(u64::from(protocol) + u64::from(l4_len), addresses)
}

/// Writes the length of an IP packet of `total` bytes, and the checksum of an IPv4 header.
fn write_ip_length(out: &mut [u8], layout: &Layout, total: u32) {
    let ip = layout.ip;
    if layout.v6 {
        write16(out, ip + 4, (total - V6_HEADER as u32) as u16);
    } else {
        write16(out, ip + 2, total as u16);
        write_ip_checksum(out, ip, layout.l4);
    }
}

/// Writes the checksum of the IPv4 header from `ip` to `l4`.
fn write_ip_checksum(out: &mut [u8], ip: usize, l4: usize) {
    write16(out, ip + 10, 0);
    let sum = !fold(add(0, &out[ip..l4]));
    write16(out, ip + 10, sum);
}

/// Sets the type of the Ethernet frame of a packet.
pub(crate) fn set_ethertype(head: &mut [u8], layout: &Layout) {
    let ethertype = if layout.v6 { ETHERTYPE_V6 } else { ETHERTYPE_V4 };
    head[VIRTIO + 12..VIRTIO + 14].copy_from_slice(&ethertype);
}

fn add(sum: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(*w.get(1).unwrap_or(&0)));
    sum + words.sum::<u64>()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn read16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn write16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
