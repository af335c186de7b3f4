//! Statistics of the TCP streams of a transfer.

use packtrain_units::{ByteCount, DataRate, Duration};
use serde::{Deserialize, Serialize};

/// Maximum number of streams in a report.
const MAX_STREAMS: usize = 128;
/// Maximum number of intervals in a report.
pub(crate) const MAX_MOMENTS: usize = 600;
/// Maximum length of a text from the other end.
const TEXT: usize = 400;
/// Maximum size of a report from the other end, in bytes.
const MAX_REPORT_BYTES: usize = 256 << 10;

/// The streams of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamsReport {
    /// The requested number; `None` if it was chosen while they ran.
    pub asked: Option<u32>,
    /// Number of streams at the end.
    pub last: u32,
    /// Maximum number of streams.
    pub most: u32,
    /// Streams that failed while they had data to move.
    pub broken: u32,
    /// The sender's congestion control.
    pub congestion: String,
    /// Bytes that the kernel retransmitted.
    pub retransmitted: ByteCount,
    /// Payload that was assigned to a second stream.
    pub moved_twice: ByteCount,
    /// Each stream.
    pub streams: Vec<StreamReport>,
    /// All streams together over time.
    pub moments: Vec<StreamsMoment>,
    /// The reasons for the number of streams.
    pub reasons: Vec<String>,
    /// The candidate paths, the direct one first; empty if there was no choice.
    pub ways: Vec<PathReport>,
    /// The reasons for the choices of paths.
    pub way_reasons: Vec<String>,
}

/// One candidate path of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathReport {
    /// `direct`, or the names of its depots.
    pub way: String,
    /// Payload that the other end received over it.
    pub bytes: ByteCount,
    /// Its rate in the steady state, if it was used long enough.
    pub rate: Option<DataRate>,
    /// Duration of the steady state.
    pub steady: Duration,
}

/// One stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamReport {
    /// How long the stream existed.
    pub age: Duration,
    /// Bytes on the wire that the peer acknowledged.
    pub acked: ByteCount,
    /// Its mean rate while it had something to send.
    pub rate: DataRate,
    /// Final smoothed round-trip time.
    pub srtt: Duration,
    /// Minimum round-trip time.
    pub min_rtt: Option<Duration>,
    /// Bytes that the kernel retransmitted.
    pub retransmitted: ByteCount,
    /// Final congestion window.
    pub cwnd: ByteCount,
    /// Share of its busy time in which the receiver's window limited it.
    pub receiver_limited: f64,
    /// Share of its busy time in which the send buffer limited it.
    pub buffer_limited: f64,
    /// How it ended.
    pub end: StreamEnd,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamEnd {
    /// At the end of the transfer.
    #[default]
    Done,
    /// Closed, because there were too many streams.
    Retired,
    /// With a failure.
    Broken,
}

/// All streams together in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamsMoment {
    /// Time since the start of the first stream.
    pub at: Duration,
    /// Number of streams.
    pub streams: u32,
    /// Their rate.
    pub rate: DataRate,
    /// Share of the sent bytes that was retransmitted.
    pub lost: f64,
    /// Round-trip time above the minimum.
    pub queue: Duration,
}

impl StreamsReport {
    /// Decodes a report of the other end; `None` if it is malformed.
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

    /// Encodes the report for the other end, as JSON.
    pub fn encode(&self) -> Vec<u8> {
        // Serialising plain values cannot fail.
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
