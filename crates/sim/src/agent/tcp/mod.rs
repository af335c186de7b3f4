//! TCP: a sender on the controllers of `packtrain-cc`, and a receiver.
//!
//! All quantities are counted in segments of one size, dense from zero; windows and rates are in
//! payload bytes. The sender keeps its records per burst, not per segment, and its scoreboard as
//! ranges, so a window of a hundred thousand segments is cheap while no loss occurs.
//!
//! Not modelled: the urgent pointer, keep-alives, window scaling (the window has no 16-bit limit),
//! undoing of a spurious reduction, explicit congestion notification, and the closing handshake.

use packtrain_units::{ByteCount, Time};

use super::build::Place;
use crate::spec::TcpSpec;
use crate::train::{Body, ROOM, Toward, Train};

mod ack;
mod input;
mod log;
mod output;
mod prr;
mod rate;
mod receiver;
mod recovery_newreno;
mod recovery_rack;
mod recovery_sack;
mod rto;
mod scoreboard;
mod sender;
mod space;
mod timers;

pub(crate) use receiver::Receiver;
pub(crate) use sender::Sender;
pub(crate) use space::Space;

/// The parameters of a connection that both ends know.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    flow: u32,
    conn: u32,
    from: u32,
    to: u32,
    /// Payload bytes of a full segment.
    mss: u32,
    /// Bytes of headers.
    header: u32,
    /// Number of segments; the maximum for an endless connection.
    segments: u64,
    /// Payload bytes of the last one.
    last: u32,
    /// When it starts, and when it stops sending new data.
    start: Time,
    stop: Time,
}

impl Shape {
    /// Connection `conn` of a flow, from `start` on.
    pub(crate) fn new(spec: &TcpSpec, place: &Place, conn: u32, start: Time) -> Self {
        let mss = spec.mss.get().max(1);
        let bytes = spec.bytes.map(|bytes| bytes.get().max(1));
        Self {
            flow: place.flow,
            conn,
            from: place.from,
            to: place.to,
            mss: mss as u32,
            header: spec.header.get() as u32,
            segments: bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(mss)),
            last: bytes.map_or(mss, |bytes| (bytes - 1) % mss + 1) as u32,
            start,
            stop: place.stop,
        }
    }

    /// Payload bytes of `count` segments from `first` on.
    #[inline]
    fn bytes(&self, first: u64, count: u64) -> u64 {
        let full = count * u64::from(self.mss);
        if first + count == self.segments { full - u64::from(self.mss - self.last) } else { full }
    }

    /// As bytes, for the controller.
    #[inline]
    fn segments_as_bytes(&self, segments: u64) -> ByteCount {
        ByteCount(segments * u64::from(self.mss))
    }

    /// Segments that go to the receiver: all of one size.
    fn data(&self, first: u64, count: u32, again: bool) -> Train {
        let last = first + u64::from(count) == self.segments;
        let payload = if last && count == 1 { self.last } else { self.mss };
        self.forward(first, count, payload, Body::Data { again })
    }

    fn forward(&self, first: u64, count: u32, payload: u32, body: Body) -> Train {
        Train {
            flow: self.flow,
            conn: self.conn,
            to: self.to,
            size: payload + self.header,
            count,
            toward: Toward::Receiver,
            first,
            ecn: 0,
            body,
        }
    }

    /// The answer to any packet after everything has arrived.
    pub(crate) fn acknowledge_all(&self) -> Train {
        self.back(self.segments, 1, Body::Ack { step: 0, room: ROOM })
    }

    /// Packets of headers alone that go to the sender.
    fn back(&self, first: u64, count: u32, body: Body) -> Train {
        Train {
            flow: self.flow,
            conn: self.conn,
            to: self.from,
            size: self.header,
            count,
            toward: Toward::Sender,
            first,
            ecn: 0,
            body,
        }
    }
}
