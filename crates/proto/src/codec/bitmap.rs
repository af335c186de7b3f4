//! FOBS's feedback as frames: bitmaps of units with the host's counters, and the sender's requests
//! for them.

use packtrain_units::Duration;

use crate::codec::frame::{self, Ack};
use crate::codec::message::{Host, parse_host, write_host};
use crate::codec::varint::{Reader, put};
use crate::fobs::{Bitmap, PIECE};

pub(super) const BITMAP: u8 = 10;
pub(super) const ASK: u8 = 11;

/// Appends a bitmap with its type. Arrivals are encoded as run lengths where these are shorter.
pub(super) fn write(bitmap: &Bitmap, host: &Host, out: &mut Vec<u8>) {
    out.push(BITMAP);
    put(out, bitmap.number);
    put(out, bitmap.next);
    put(out, bitmap.top.saturating_sub(bitmap.next));
    put(out, bitmap.held);
    put(out, bitmap.room);
    match bitmap.newest {
        None => put(out, 0),
        Some((unit, age)) => {
            put(out, unit.saturating_add(1));
            put(out, age.as_nanos());
        }
    }
    let Bitmap { start, end, .. } = *bitmap;
    frame::write_ack(&Ack { lane: 0, start, end, runs: bitmap.runs.clone() }, out);
    write_host(host, out);
}

/// Parses a bitmap after its type.
pub(super) fn parse(reader: &mut Reader<'_>) -> Option<(Bitmap, Host)> {
    let (number, next) = (reader.varint()?, reader.varint()?);
    let top = next.checked_add(reader.varint()?)?;
    let (held, room) = (reader.varint()?, reader.varint()?);
    let newest = match reader.varint()? {
        0 => None,
        behind => Some((behind - 1, Duration::from_nanos(reader.varint()?))),
    };
    let Ack { lane, start, end, runs } = frame::parse_ack(reader)?;
    if lane != 0 || end - start > PIECE {
        return None;
    }
    let host = parse_host(reader)?;
    Some((Bitmap { number, next, top, held, room, newest, start, end, runs }, host))
}
