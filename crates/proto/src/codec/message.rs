//! Unit feedback as frames: acknowledgements with the host's counters, and the other messages of
//! UDT. Unit numbers are encoded in full.

use packtrain_units::{DataRate, Duration};

use crate::codec::varint::{self, Reader, put};
use crate::udt::{Ack, Message, PacketRate};

pub(super) const ACK: u8 = 5;
pub(super) const ACK2: u8 = 6;
pub(super) const NAK: u8 = 7;
pub(super) const WARNING: u8 = 8;
pub(super) const DROP: u8 = 9;

const LIGHT: u8 = 1;
const ARRIVAL: u8 = 2;
const CAPACITY: u8 = 4;

/// Bytes for ranges in one NAK: the base MTU less headers.
const NAK_BYTES: usize = 1_000;

/// The receiving host's counters, sent with each acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// Datagrams dropped so far.
    pub(crate) drops: u64,
    /// Packets refused so far because there was no room.
    pub(crate) refused: u64,
    /// Packets marked congestion-experienced so far.
    pub(crate) ecn_ce: u64,
    /// The drain rate of its application.
    pub(crate) drain: DataRate,
}

/// Appends an acknowledgement with its type.
pub(super) fn write_ack(ack: &Ack, host: &Host, out: &mut Vec<u8>) {
    let flag = |set, bit| if set { bit } else { 0 };
    let flags = flag(ack.light, LIGHT)
        | flag(ack.arrival.is_some(), ARRIVAL)
        | flag(ack.capacity.is_some(), CAPACITY);
    out.extend_from_slice(&[ACK, flags]);
    put(out, u64::from(ack.number));
    put(out, ack.next);
    put(out, ack.rtt.as_nanos());
    put(out, ack.rtt_var.as_nanos());
    put(out, ack.room);
    for rate in [ack.arrival, ack.capacity].into_iter().flatten() {
        out.extend_from_slice(&rate.get().to_bits().to_be_bytes());
    }
    write_host(host, out);
}

/// Appends the host's counters.
pub(super) fn write_host(host: &Host, out: &mut Vec<u8>) {
    put(out, host.drops);
    put(out, host.refused);
    put(out, host.ecn_ce);
    put(out, host.drain.as_bps());
}

/// Parses the host's counters.
pub(super) fn parse_host(reader: &mut Reader<'_>) -> Option<Host> {
    Some(Host {
        drops: reader.varint()?,
        refused: reader.varint()?,
        ecn_ce: reader.varint()?,
        drain: DataRate::from_bps(reader.varint()?),
    })
}

/// Parses an acknowledgement after its type.
pub(super) fn parse_ack(reader: &mut Reader<'_>) -> Option<(Ack, Host)> {
    let flags = reader.byte()?;
    if flags & !(LIGHT | ARRIVAL | CAPACITY) != 0 {
        return None;
    }
    let mut ack = Ack {
        number: u32::try_from(reader.varint()?).ok()?,
        next: reader.varint()?,
        light: flags & LIGHT != 0,
        early: false,
        rtt: Duration::from_nanos(reader.varint()?),
        rtt_var: Duration::from_nanos(reader.varint()?),
        room: reader.varint()?,
        arrival: None,
        capacity: None,
    };
    for (bit, rate) in [(ARRIVAL, &mut ack.arrival), (CAPACITY, &mut ack.capacity)] {
        if flags & bit != 0 {
            *rate = Some(PacketRate::per_second(f64::from_bits(reader.fixed()?))?);
        }
    }
    Some((ack, parse_host(reader)?))
}

/// Appends a message other than an acknowledgement, with its type.
pub(super) fn write(message: &Message, out: &mut Vec<u8>) {
    match message {
        // Acknowledgements have a frame of their own.
        Message::Ack(ack) => write_ack(ack, &Host::default(), out),
        Message::Ack2 { number } => {
            out.push(ACK2);
            put(out, u64::from(*number));
        }
        Message::Nak { ranges } => {
            out.push(NAK);
            put(out, ranges.len() as u64);
            let mut at = 0;
            for &(first, end) in ranges {
                put(out, first - at);
                put(out, end - first);
                at = end;
            }
        }
        Message::Warning => out.push(WARNING),
        Message::Drop { first, end } => {
            out.push(DROP);
            put(out, *first);
            put(out, end - first);
        }
    }
}

/// Parses a message of this type.
pub(super) fn parse(kind: u8, reader: &mut Reader<'_>) -> Option<Message> {
    let range = |at: u64, reader: &mut Reader<'_>| {
        let first = at.checked_add(reader.varint()?)?;
        let end = first.checked_add(reader.varint()?)?;
        (first < end).then_some((first, end))
    };
    Some(match kind {
        ACK2 => Message::Ack2 { number: u32::try_from(reader.varint()?).ok()? },
        NAK => {
            let (mut ranges, mut at) = (Vec::new(), 0);
            for _ in 0..reader.varint()? {
                let (first, end) = range(at, reader)?;
                ranges.push((first, end));
                at = end;
            }
            if ranges.is_empty() {
                return None;
            }
            Message::Nak { ranges }
        }
        WARNING => Message::Warning,
        DROP => {
            let (first, end) = range(0, reader)?;
            Message::Drop { first, end }
        }
        _ => return None,
    })
}

/// Splits the ranges of a NAK into pieces that each fit a packet.
pub(crate) fn nak_pieces(ranges: &[(u64, u64)]) -> Vec<Vec<(u64, u64)>> {
    let mut pieces: Vec<Vec<(u64, u64)>> = Vec::with_capacity(1);
    let (mut used, mut at) = (usize::MAX, 0);
    for &(first, end) in ranges {
        let mut len = varint::len(first - at) + varint::len(end - first);
        if used.saturating_add(len) > NAK_BYTES {
            len = varint::len(first) + varint::len(end - first);
            pieces.push(Vec::new());
            used = 0;
        }
        used += len;
        at = end;
        if let Some(piece) = pieces.last_mut() {
            piece.push((first, end));
        }
    }
    pieces
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
