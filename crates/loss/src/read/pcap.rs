//! Signatures from a capture of UDT, pcap or pcapng (read by the crate `pcap-parser`).

use std::collections::VecDeque;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError};

use super::udt::Flows;
use super::{Found, ReadError};
use crate::Signature;

/// Bytes read at a time; a large block may grow the buffer up to the limit.
const BUFFER_BYTES: usize = 1 << 18;
const LARGEST_BLOCK: usize = 1 << 24;
/// Maximum interfaces of a pcapng.
const MAX_INTERFACES: usize = 1024;

pub(super) struct Capture<'a> {
    blocks: Box<dyn PcapReaderIterator + Send + 'a>,
    /// Link types by interface; a pcap has one.
    links: Vec<Linktype>,
    flows: Flows,
    ready: VecDeque<(String, Signature)>,
    buffer: usize,
    packets: u64,
    found: u64,
    over: bool,
}

impl<'a> Capture<'a> {
    pub(super) fn open(file: impl Read + Send + 'a, window: usize) -> Result<Self, ReadError> {
        let blocks = pcap_parser::create_reader(BUFFER_BYTES, file)
            .map_err(|error| ReadError::Capture(format!("{error:?}")))?;
        Ok(Self {
            blocks,
            links: Vec::new(),
            flows: Flows::new(window),
            ready: VecDeque::new(),
            buffer: BUFFER_BYTES,
            packets: 0,
            found: 0,
            over: false,
        })
    }

    /// Reads one block.
    fn step(&mut self) -> Result<(), ReadError> {
        let fault = match self.blocks.next() {
            Ok((size, block)) => {
                self.packets += 1;
                if let Some((ends, payload)) = packet(&mut self.links, &block) {
                    self.flows.take(ends, payload, &mut self.ready);
                }
                self.blocks.consume(size);
                return Ok(());
            }
            // The latter: truncated in the middle of a packet, as an interrupted capture is.
            Err(PcapError::Eof | PcapError::UnexpectedEof) => None,
            Err(PcapError::Incomplete(needed)) => Some(needed),
            Err(PcapError::BufferTooSmall) => Some(self.buffer + 1),
            Err(error) => {
                let what = match error {
                    PcapError::NomError(_, kind) | PcapError::OwnedNomError(_, kind) => {
                        format!("{kind:?}")
                    }
                    other => format!("{other:?}"),
                };
                return Err(ReadError::Capture(format!("block {}: {what}", self.packets + 1)));
            }
        };
        match fault {
            None => self.end(),
            Some(_) if self.blocks.reader_exhausted() => self.end(),
            Some(needed) => self.more(needed)?,
        }
        Ok(())
    }

    fn more(&mut self, needed: usize) -> Result<(), ReadError> {
        if needed > LARGEST_BLOCK {
            let what = format!("block {} has {needed} bytes", self.packets + 1);
            return Err(ReadError::Capture(what));
        }
        if needed > self.buffer || self.blocks.data().len() >= self.buffer {
            self.buffer = (2 * self.buffer).max(needed).min(2 * LARGEST_BLOCK);
            if !self.blocks.grow(self.buffer) {
                let what = format!("block {} is too large", self.packets + 1);
                return Err(ReadError::Capture(what));
            }
        }
        self.blocks.refill().map_err(|error| ReadError::Capture(format!("{error:?}")))
    }

    fn end(&mut self) {
        self.over = true;
        self.flows.finish(&mut self.ready);
    }
}

impl Iterator for Capture<'_> {
    type Item = Result<Found, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((place, signature)) = self.ready.pop_front() {
                self.found += 1;
                return Some(Ok(Found::bare(place, signature)));
            }
            if self.over {
                let nothing = std::mem::replace(&mut self.found, 1) == 0;
                let what = "no flow of UDT data packets in it".to_owned();
                return nothing.then_some(Err(ReadError::Capture(what)));
            }
            if let Err(error) = self.step() {
                self.over = true;
                self.found = 1;
                return Some(Err(error));
            }
        }
    }
}

/// Addresses and payload of a block that holds a UDP packet.
fn packet<'b>(
    links: &mut Vec<Linktype>,
    block: &'b PcapBlockOwned<'_>,
) -> Option<((SocketAddr, SocketAddr), &'b [u8])> {
    let (interface, data, captured) = match block {
        PcapBlockOwned::LegacyHeader(header) => {
            links.push(header.network);
            return None;
        }
        PcapBlockOwned::Legacy(packet) => (0, packet.data, packet.caplen),
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            links.clear();
            return None;
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            if links.len() < MAX_INTERFACES {
                links.push(interface.linktype);
            }
            return None;
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            (packet.if_id as usize, packet.data, packet.caplen)
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => (0, packet.data, packet.origlen),
        PcapBlockOwned::NG(_) => return None,
    };
    let data = &data[..data.len().min(captured as usize)];
    udp(ip(*links.get(interface)?, data)?)
}

/// The IP packet inside of a frame.
fn ip(link: Linktype, frame: &[u8]) -> Option<&[u8]> {
    match link {
        Linktype::ETHERNET => {
            // One or two VLAN tags may precede the type.
            let mut at = 12;
            while matches!(frame.get(at..at + 2)?, [0x81, 0x00] | [0x88, 0xa8]) {
                at += 4;
            }
            frame.get(at + 2..)
        }
        Linktype::NULL | Linktype::LOOP => frame.get(4..),
        Linktype::LINUX_SLL => frame.get(16..),
        Linktype::LINUX_SLL2 => frame.get(20..),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => Some(frame),
        _ => None,
    }
}

/// Addresses and payload of an unfragmented UDP packet.
fn udp(packet: &[u8]) -> Option<((SocketAddr, SocketAddr), &[u8])> {
    const UDP: u8 = 17;
    let (from, to, rest): (IpAddr, IpAddr, &[u8]) = match packet.first()? >> 4 {
        4 => {
            let header = packet.first_chunk::<20>()?;
            let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
            if header[9] != UDP || fragment != 0 {
                return None;
            }
            let from = Ipv4Addr::from(*header[12..].first_chunk::<4>()?);
            let to = Ipv4Addr::from(*header[16..].first_chunk::<4>()?);
            (from.into(), to.into(), packet.get(usize::from(header[0] & 15) * 4..)?)
        }
        6 => {
            let header = packet.first_chunk::<40>()?;
            if header[6] != UDP {
                return None;
            }
            let from = Ipv6Addr::from(*header[8..].first_chunk::<16>()?);
            let to = Ipv6Addr::from(*header[24..].first_chunk::<16>()?);
            (from.into(), to.into(), packet.get(40..)?)
        }
        _ => return None,
    };
    let ports = rest.first_chunk::<8>()?;
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    Some(((SocketAddr::new(from, port(0)), SocketAddr::new(to, port(2))), &rest[8..]))
}
