//! Headers of packets from a device: the virtio header, perhaps Ethernet, IPv4, TCP or UDP.
//!
//! A super-packet has the headers of its first segment and says how large segments are. What is
//! left of one after a drop gets headers of its own, by the rules by which the kernel cuts: IP
//! length and identification, TCP sequence number and flags, UDP length, and the checksum, of
//! which the pseudo-header's part stands in the packet until the receiving side (or nobody) fills
//! in the rest.

use std::net::Ipv4Addr;

/// `struct virtio_net_hdr` before every packet.
pub(crate) const VIRTIO: usize = 10;
/// An Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// The most that all headers take.
pub(crate) const MAX_HEADER_BYTES: usize = VIRTIO + ETHERNET + 60 + 60;

const NEEDS_CSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A packet that is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strange;

/// What carries the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One packet, whatever it is.
    Single,
    /// A TCP super-packet.
    Tcp,
    /// A UDP super-packet.
    Udp,
}

/// Where everything in a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    kind: Kind,
    /// Where the IP header starts in what was read.
    ip: usize,
    /// Where TCP or UDP starts.
    l4: usize,
    /// Bytes of headers of each segment, from IP on.
    pub(crate) headers: u32,
    /// Bytes of payload in all.
    payload: u32,
    /// Bytes of payload of each segment but the last.
    segment: u32,
    /// How many segments.
    pub(crate) count: u32,
    /// To whom.
    pub(crate) target: Ipv4Addr,
}

impl Layout {
    /// Reads the headers of a packet of `len` bytes that begins with `head`, with a link header
    /// of `l2` bytes.
    pub(crate) fn of(head: &[u8], len: usize, l2: usize) -> Result<Self, Strange> {
        let ip = VIRTIO + l2;
        let head = &head[..head.len().min(len)];
        if len < ip + 20 || head.len() < ip + 20 || head[ip] >> 4 != 4 {
            return Err(Strange);
        }
        if l2 == ETHERNET && head[VIRTIO + 12..VIRTIO + 14] != [8, 0] {
            return Err(Strange);
        }
        let ip_header = usize::from(head[ip] & 15) * 4;
        let l4 = ip + ip_header;
        // Short frames may be padded: what counts is what IP says, unless it says nothing.
        let total = match usize::from(read16(head, ip + 2)) {
            0 => len - ip,
            total => total,
        };
        if ip_header < 20 || total < ip_header || ip + total > len {
            return Err(Strange);
        }
        let target = Ipv4Addr::new(head[ip + 16], head[ip + 17], head[ip + 18], head[ip + 19]);
        let single = Self {
            kind: Kind::Single,
            ip,
            l4,
            headers: ip_header as u32,
            payload: (total - ip_header) as u32,
            segment: (total - ip_header) as u32,
            count: 1,
            target,
        };
        let segment = u32::from(u16::from_ne_bytes([head[4], head[5]]));
        let (kind, l4_header) = match (head[1] & !GSO_ECN, head[ip + 9]) {
            (0, _) => return Ok(single),
            (GSO_TCP4, TCP) if head.len() >= l4 + 20 => {
                (Kind::Tcp, usize::from(head[l4 + 12] >> 4) * 4)
            }
            (GSO_UDP_L4, UDP) if head.len() >= l4 + 8 => (Kind::Udp, 8),
            _ => return Err(Strange),
        };
        let headers = ip_header + l4_header;
        let least = if kind == Kind::Tcp { 20 } else { 8 };
        if segment == 0 || l4_header < least || total <= headers || head.len() < ip + headers {
            return Err(Strange);
        }
        let payload = (total - headers) as u32;
        let count = payload.div_ceil(segment);
        if count == 1 {
            return Ok(single);
        }
        Ok(Self { kind, headers: headers as u32, payload, segment, count, ..single })
    }

    /// Bytes of payload before segment `from` and before segment `to`.
    pub(crate) fn payload(&self, from: u32, to: u32) -> (u32, u32) {
        let at = |i: u32| if i >= self.count { self.payload } else { i * self.segment };
        (at(from), at(to))
    }

    /// The same, as places in what was read.
    pub(crate) fn places(&self, from: u32, to: u32) -> (usize, usize) {
        let (a, b) = self.payload(from, to);
        let start = self.ip + self.headers as usize;
        (start + a as usize, start + b as usize)
    }

    /// Where the IP header starts.
    pub(crate) const fn ip(&self) -> usize {
        self.ip
    }

    /// Writes the headers of segments `from` to `to` as one packet, from those that were read,
    /// to `out`; returns their length.
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
        write16(out, ip + 2, total as u16);
        let id = read16(out, ip + 4).wrapping_add(from as u16);
        write16(out, ip + 4, id);
        write16(out, ip + 10, 0);
        let sum = !fold(add(0, &out[ip..l4]));
        write16(out, ip + 10, sum);
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

/// A single TCP packet with data that others of its connection may follow in one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tcp {
    ip: usize,
    l4: usize,
    /// Where the data starts.
    data: usize,
    /// The number of its first byte.
    pub(crate) sequence: u32,
    /// Bytes of data.
    pub(crate) payload: u32,
    /// Whether the sender wants it handed on at once.
    pub(crate) pushed: bool,
}

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

impl Tcp {
    /// The packet with this head, if it is one: data, no flags but ACK and PSH, its checksum
    /// still open, no fragment.
    pub(crate) fn of(layout: &Layout, head: &[u8]) -> Option<Self> {
        let Layout { kind, ip, l4, payload, .. } = *layout;
        let plain = kind == Kind::Single && head.len() >= l4 + 20 && head[ip + 9] == TCP;
        if !plain || head[0] & NEEDS_CSUM == 0 || read16(head, ip + 6) & 0x3fff != 0 {
            return None;
        }
        let header = usize::from(head[l4 + 12] >> 4) * 4;
        let payload = payload.checked_sub(header as u32).filter(|payload| *payload > 0)?;
        if header < 20 || head.len() < l4 + header || head[l4 + 13] & !PSH != ACK {
            return None;
        }
        let sequence = [head[l4 + 4], head[l4 + 5], head[l4 + 6], head[l4 + 7]];
        Some(Self {
            ip,
            l4,
            data: l4 + header,
            sequence: u32::from_be_bytes(sequence),
            payload,
            pushed: head[l4 + 13] & PSH != 0,
        })
    }

    /// Whether all headers are as those of another packet, but for lengths, numbers, checksums
    /// and PSH.
    pub(crate) fn alike(&self, head: &[u8], other: &Self, theirs: &[u8]) -> bool {
        let Self { ip, l4, data, .. } = *self;
        let same = |from: usize, to: usize| head[from..to] == theirs[from..to];
        (ip, l4, data) == (other.ip, other.l4, other.data)
            // Version, length and service; flags, time to live and protocol; addresses, IP's
            // options and ports; acknowledgement and data offset; window; TCP's options.
            && same(ip, ip + 2)
            && same(ip + 6, ip + 10)
            && same(ip + 12, l4 + 4)
            && same(l4 + 8, l4 + 13)
            && same(l4 + 14, l4 + 16)
            && same(l4 + 20, data)
    }
}

/// Writes to `out` the headers of one packet with the data of several that follow each other, in
/// all `payload` bytes: those of the first, and whether to push from the last. Both are
/// [`Tcp`]. Returns their length.
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
    out[1] = GSO_TCP4;
    out[2..4].copy_from_slice(&((data - ip) as u16).to_ne_bytes());
    let segment = first.payload - header as u32;
    out[4..6].copy_from_slice(&(segment as u16).to_ne_bytes());
    out[l4 + 13] |= tail[last.l4 + 13] & PSH;
    write16(out, ip + 2, ((data - ip) as u32 + payload) as u16);
    write16(out, ip + 10, 0);
    let sum = !fold(add(0, &out[ip..l4]));
    write16(out, ip + 10, sum);
    let sum = pseudo(&out[ip..], header as u32 + payload);
    write16(out, l4 + 16, fold(sum));
    data
}

/// Fills in the checksum that was left open, for records. `packet` is one segment with all its
/// headers.
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
    // A sum of zero would say that there is none in UDP (RFC 768); in TCP both mean the same.
    let sum = match !fold(add(0, &packet[start..])) {
        0 => 0xffff,
        sum => sum,
    };
    write16(packet, place, sum);
}

/// The pseudo-header's sum (RFC 9293 section 3.1, RFC 768).
fn pseudo(ip: &[u8], l4_len: u32) -> u64 {
    add(u64::from(ip[9]) + u64::from(l4_len), &ip[12..20])
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
