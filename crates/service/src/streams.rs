//! What the TCP streams of a transfer did.

use packtrain_units::{ByteCount, DataRate, Duration};
use serde::{Deserialize, Serialize};

/// Streams told of one by one.
const MAX_STREAMS: usize = 128;
/// Moments kept.
pub(crate) const MAX_MOMENTS: usize = 600;
/// Length of a text from elsewhere.
const TEXT: usize = 400;
/// A report from elsewhere is no longer than this.
const MAX_REPORT_BYTES: usize = 256 << 10;

/// The streams of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamsReport {
    /// How many were asked for; none if the number was chosen while they ran.
    pub asked: Option<u32>,
    /// How many there were at the end.
    pub last: u32,
    /// How many there were at most.
    pub most: u32,
    /// Those that ended before the transfer did although they had something to move.
    pub broken: u32,
    /// The sender's congestion control.
    pub congestion: String,
    /// Sent again by the kernel.
    pub retransmitted: ByteCount,
    /// Payload that was handed to a second stream.
    pub moved_twice: ByteCount,
    /// Each of them.
    pub streams: Vec<StreamReport>,
    /// All together over time.
    pub moments: Vec<StreamsMoment>,
    /// Why there were so many.
    pub reasons: Vec<String>,
    /// The ways that were to choose from, the direct one first; empty if there was no choice.
    pub ways: Vec<WayReport>,
    /// Why they were taken and left.
    pub way_reasons: Vec<String>,
}

/// One way of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WayReport {
    /// `direct`, or its depots.
    pub way: String,
    /// Payload that the other end took of it.
    pub bytes: ByteCount,
    /// What it moved while nothing was rising, if it was used for so long.
    pub rate: Option<DataRate>,
    /// How long that was.
    pub steady: Duration,
}

/// One stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamReport {
    /// How long it was there.
    pub age: Duration,
    /// Bytes on the wire that the peer acknowledged.
    pub acked: ByteCount,
    /// Its mean rate while it had something to send.
    pub rate: DataRate,
    /// Smoothed round trip at its end.
    pub srtt: Duration,
    /// Least round trip.
    pub min_rtt: Option<Duration>,
    /// Sent again by the kernel.
    pub retransmitted: ByteCount,
    /// Congestion window at its end.
    pub cwnd: ByteCount,
    /// Share of its busy time in which the receiver's window held it back.
    pub receiver_limited: f64,
    /// The same of the send buffer.
    pub buffer_limited: f64,
    /// How it ended.
    pub end: StreamEnd,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamEnd {
    /// With the transfer.
    #[default]
    Done,
    /// Let go, as there were too many.
    Retired,
    /// It broke.
    Broken,
}

/// All streams together over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamsMoment {
    /// Since the first stream.
    pub at: Duration,
    /// How many there were.
    pub streams: u32,
    /// What they moved.
    pub rate: DataRate,
    /// Share of what was sent that had to be sent again.
    pub lost: f64,
    /// Round trip beyond the least.
    pub queue: Duration,
}

impl StreamsReport {
    /// Reads a report from another end; none if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_REPORT_BYTES {
            return None;
        }
        let mut report: Self = serde_json::from_slice(bytes).ok()?;
        report.streams.truncate(MAX_STREAMS);
        report.moments.truncate(MAX_MOMENTS);
        report.reasons.truncate(MAX_STREAMS);
        report.way_reasons.truncate(MAX_STREAMS);
        report.ways.truncate(MAX_STREAMS);
        let named = report.ways.iter_mut().map(|way| &mut way.way);
        let texts = report.reasons.iter_mut().chain(&mut report.way_reasons).chain(named);
        for text in texts.chain([&mut report.congestion]) {
            text.retain(|c| !c.is_control());
            let end = text.char_indices().nth(TEXT).map_or(text.len(), |(at, _)| at);
            text.truncate(end);
        }
        Some(report)
    }

    /// As it goes to the other end, in JSON.
    pub fn encode(&self) -> Vec<u8> {
        // Plain values: this cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_from_elsewhere_is_bounded() {
        let own = StreamsReport {
            last: 3,
            congestion: "cubic".to_owned(),
            streams: vec![StreamReport { end: StreamEnd::Broken, ..StreamReport::default() }],
            ..StreamsReport::default()
        };
        assert_eq!(StreamsReport::decode(&own.encode()), Some(own.clone()));
        let odd = StreamsReport {
            congestion: format!("\u{1b}[31m{}", "x".repeat(900)),
            streams: vec![StreamReport::default(); 500],
            ..own
        };
        let read = StreamsReport::decode(&odd.encode()).unwrap();
        assert_eq!((read.streams.len(), read.congestion.len()), (128, 400));
        assert!(read.congestion.starts_with("[31mx"));
        assert_eq!(StreamsReport::decode(&vec![b' '; MAX_REPORT_BYTES + 1]), None);
        assert_eq!(StreamsReport::decode(b"{\"last\":-1}"), None);
    }
}
