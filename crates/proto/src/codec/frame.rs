//! Frames of control packets, and their encoding.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::codec::bitmap;
use crate::codec::message;
pub(crate) use crate::codec::message::{Host, nak_pieces};
use crate::codec::varint::{self, Reader, put};
use crate::ecn::EcnCounts;
use crate::fobs::Bitmap;
use crate::udt::{self, Message};

const PADDING: u8 = 0;
const PING: u8 = 1;
const PONG: u8 = 2;
const REPORT: u8 = 3;
const CLOSE: u8 = 4;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Requests a `Pong`: path probe, challenge, size probe, keepalive, tail probe.
    Ping {
        /// Echoed in the pong.
        token: u64,
        /// The sender's minimum round trip, zero if unknown: sets the interval of reports.
        rtt: Duration,
    },
    /// Answers a `Ping`.
    Pong {
        /// Token of the ping.
        token: u64,
        /// Size of the datagram that carried the ping.
        size: u16,
    },
    /// A report of the receiver.
    Report(Report),
    /// The flow is over.
    Close {
        /// The reason: see `code_of`.
        code: u8,
    },
    /// Unit feedback: an acknowledgement with the host's counters.
    Ack {
        /// The acknowledgement.
        ack: udt::Ack,
        /// The receiving host's counters.
        host: Host,
    },
    /// Unit feedback: any other message.
    Unit(Message),
    /// FOBS: the units that arrived, with the host's counters.
    Bitmap {
        /// The units.
        bitmap: Bitmap,
        /// The receiving host's counters.
        host: Host,
    },
    /// FOBS, sender: requests a complete acknowledgement.
    BitmapRequest {
        /// The sender's round trip; zero if unknown.
        rtt: Duration,
    },
}

/// One report of the feedback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Its number, from one.
    pub(crate) number: u64,
    /// When it was made, on the receiver's clock.
    pub(crate) at: Time,
    /// Wire bytes of authentic new data packets so far.
    pub(crate) received: ByteCount,
    /// Packets refused so far because there was no room.
    pub(crate) refused: u64,
    /// Datagrams dropped by the host so far.
    pub(crate) host_drops: u64,
    /// Packets that came with congestion marks so far.
    pub(crate) ecn: EcnCounts,
    /// Room of the receiver's pool.
    pub(crate) room: ByteCount,
    /// The drain rate of its application.
    pub(crate) drain: DataRate,
    /// Arrival times of some packets, oldest first.
    pub(crate) marks: Vec<Mark>,
    /// What arrived.
    pub(crate) acks: Vec<Ack>,
}

/// The arrival of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) lane: u8,
    pub(crate) pn: u64,
    /// On the receiver's clock.
    pub(crate) at: Time,
}

/// The packets that arrived of one interval of a lane's packet numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) lane: u8,
    /// First number of the interval.
    pub(crate) start: u64,
    /// One past the last.
    pub(crate) end: u64,
    /// The numbers received, as ascending, disjoint, non-adjacent ranges within the interval.
    pub(crate) runs: Vec<(u64, u64)>,
}

/// Parses the frames of a control packet; `None` if any is malformed. A report's vectors grow with
/// the bytes that are read, not by a number in the report.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<Frame>> {
    let mut frames = Vec::with_capacity(2);
    let mut reader = Reader(text);
    while let Some(kind) = reader.byte() {
        match kind {
            // Padding reaches to the end of the packet.
            PADDING => break,
            PING => {
                let token = reader.fixed()?;
                let rtt = Duration::from_micros(reader.varint()?);
                frames.push(Frame::Ping { token, rtt });
            }
            PONG => {
                let token = reader.fixed()?;
                let size = u16::try_from(reader.varint()?).ok()?;
                frames.push(Frame::Pong { token, size });
            }
            REPORT => frames.push(Frame::Report(parse_report(&mut reader)?)),
            CLOSE => frames.push(Frame::Close { code: reader.byte()? }),
            message::ACK => {
                let (ack, host) = message::parse_ack(&mut reader)?;
                frames.push(Frame::Ack { ack, host });
            }
            bitmap::BITMAP => {
                let (bitmap, host) = bitmap::parse(&mut reader)?;
                frames.push(Frame::Bitmap { bitmap, host });
            }
            bitmap::ASK => {
                frames.push(Frame::BitmapRequest { rtt: Duration::from_nanos(reader.varint()?) });
            }
            kind => frames.push(Frame::Unit(message::parse(kind, &mut reader)?)),
        }
    }
    Some(frames)
}

/// Appends a frame.
pub(crate) fn write(frame: &Frame, out: &mut Vec<u8>) {
    match frame {
        Frame::Ping { token, rtt } => {
            out.push(PING);
            out.extend_from_slice(&token.to_be_bytes());
            put(out, rtt.as_micros());
        }
        Frame::Pong { token, size } => {
            out.push(PONG);
            out.extend_from_slice(&token.to_be_bytes());
            put(out, u64::from(*size));
        }
        Frame::Report(report) => {
            out.push(REPORT);
            write_report(report, out);
        }
        Frame::Close { code } => out.extend_from_slice(&[CLOSE, *code]),
        Frame::Ack { ack, host } => message::write_ack(ack, host, out),
        Frame::Unit(message) => message::write(message, out),
        Frame::Bitmap { bitmap, host } => bitmap::write(bitmap, host, out),
        Frame::BitmapRequest { rtt } => {
            out.push(bitmap::ASK);
            put(out, rtt.as_nanos());
        }
    }
}

/// An upper bound on the encoded bytes of an interval in a report.
pub(crate) fn ack_len(ack: &Ack) -> usize {
    24 + ranges_len(ack).min(bitmap_len(ack))
}

fn write_report(report: &Report, out: &mut Vec<u8>) {
    put(out, report.number);
    put(out, report.at.as_nanos());
    put(out, report.received.get());
    put(out, report.refused);
    put(out, report.host_drops);
    put(out, report.ecn.ect0);
    put(out, report.ecn.ce);
    put(out, report.room.get());
    put(out, report.drain.as_bps());
    put(out, report.marks.len() as u64);
    for mark in &report.marks {
        out.push(mark.lane);
        put(out, mark.pn);
        put(out, report.at.since(mark.at).as_nanos());
    }
    put(out, report.acks.len() as u64);
    for ack in &report.acks {
        write_ack(ack, out);
    }
}

fn parse_report(reader: &mut Reader<'_>) -> Option<Report> {
    let mut report = Report {
        number: reader.varint()?,
        at: Time::from_nanos(reader.varint()?),
        received: ByteCount(reader.varint()?),
        refused: reader.varint()?,
        host_drops: reader.varint()?,
        ecn: EcnCounts { ect0: reader.varint()?, ce: reader.varint()? },
        room: ByteCount(reader.varint()?),
        drain: DataRate::from_bps(reader.varint()?),
        ..Report::default()
    };
    for _ in 0..reader.varint()? {
        let (lane, pn) = (reader.byte()?, reader.varint()?);
        let at = report.at - Duration::from_nanos(reader.varint()?);
        report.marks.push(Mark { lane, pn, at });
    }
    for _ in 0..reader.varint()? {
        report.acks.push(parse_ack(reader)?);
    }
    Some(report)
}

const BITMAP: u8 = 0x80;

/// Encodes alternating lengths, missing then received, or a bitmap, whichever is shorter.
pub(super) fn write_ack(ack: &Ack, out: &mut Vec<u8>) {
    let bitmap = bitmap_len(ack) < ranges_len(ack);
    out.push(ack.lane | if bitmap { BITMAP } else { 0 });
    put(out, ack.start);
    put(out, ack.end - ack.start);
    if bitmap {
        let base = out.len();
        out.resize(base + bitmap_len(ack), 0);
        for pn in ack.runs.iter().flat_map(|&(a, b)| a..b) {
            let bit = pn - ack.start;
            out[base + (bit / 8) as usize] |= 1 << (bit % 8);
        }
        return;
    }
    put(out, ack.runs.len() as u64);
    let mut at = ack.start;
    for &(a, b) in &ack.runs {
        put(out, a - at);
        put(out, b - a);
        at = b;
    }
}

pub(super) fn parse_ack(reader: &mut Reader<'_>) -> Option<Ack> {
    let head = reader.byte()?;
    let start = reader.varint()?;
    let end = start.checked_add(reader.varint()?)?;
    let mut ack = Ack { lane: head & !BITMAP, start, end, runs: Vec::new() };
    if head & BITMAP != 0 {
        let bytes = reader.take(usize::try_from((end - start).div_ceil(8)).ok()?)?;
        runs_of_bitmap(bytes, &mut ack);
        return Some(ack);
    }
    let mut at = start;
    for _ in 0..reader.varint()? {
        let a = at.checked_add(reader.varint()?)?;
        let b = a.checked_add(reader.varint()?)?;
        if b <= a || b > end || (a == at && at != start) {
            return None;
        }
        ack.runs.push((a, b));
        at = b;
    }
    Some(ack)
}

fn runs_of_bitmap(bytes: &[u8], ack: &mut Ack) {
    let mut open: Option<u64> = None;
    for pn in ack.start..ack.end {
        let bit = pn - ack.start;
        let set = bytes[(bit / 8) as usize] >> (bit % 8) & 1 == 1;
        match (set, open) {
            (true, None) => open = Some(pn),
            (false, Some(a)) => {
                ack.runs.push((a, pn));
                open = None;
            }
            _ => {}
        }
    }
    if let Some(a) = open {
        ack.runs.push((a, ack.end));
    }
}

fn bitmap_len(ack: &Ack) -> usize {
    (ack.end - ack.start).div_ceil(8) as usize
}

fn ranges_len(ack: &Ack) -> usize {
    let mut at = ack.start;
    let mut total = varint::len(ack.runs.len() as u64);
    for &(a, b) in &ack.runs {
        total += varint::len(a - at) + varint::len(b - a);
        at = b;
    }
    total
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
