//! TCP streams as part of the last line of `--json`.

use packtrain_service::{PathReport, StreamEnd, StreamReport, StreamsMoment, StreamsReport};
use packtrain_units::DataRate;
use serde::Serialize;

use super::done::{millis, seconds};

/// All streams.
#[derive(Serialize)]
pub(crate) struct Streams<'a> {
    /// None if the number was chosen while they ran.
    asked: Option<u32>,
    last: u32,
    most: u32,
    broken: u32,
    congestion: &'a str,
    retransmitted_bytes: u64,
    moved_twice_bytes: u64,
    each: Vec<Each>,
    over_time: Vec<Moment>,
    reasons: &'a [String],
    /// Present only if there were several candidate paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ways: Vec<OneWay<'a>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    way_reasons: &'a [String],
}

#[derive(Serialize)]
struct OneWay<'a> {
    way: &'a str,
    bytes: u64,
    rate_bps: Option<u64>,
    steady_seconds: f64,
}

#[derive(Serialize)]
struct Each {
    seconds: f64,
    acked_bytes: u64,
    rate_bps: u64,
    rtt_ms: f64,
    min_rtt_ms: Option<f64>,
    retransmitted_bytes: u64,
    cwnd_bytes: u64,
    receiver_limited: f64,
    buffer_limited: f64,
    end: StreamEnd,
}

#[derive(Serialize)]
struct Moment {
    seconds: f64,
    streams: u32,
    rate_bps: u64,
    lost: f64,
    queue_ms: f64,
}

impl<'a> Streams<'a> {
    /// Converts a report.
    pub(crate) fn new(report: &'a StreamsReport) -> Self {
        Self {
            asked: report.asked,
            last: report.last,
            most: report.most,
            broken: report.broken,
            congestion: &report.congestion,
            retransmitted_bytes: report.retransmitted.get(),
            moved_twice_bytes: report.moved_twice.get(),
            each: report.streams.iter().map(Each::new).collect(),
            over_time: report.moments.iter().map(Moment::new).collect(),
            reasons: &report.reasons,
            ways: report.ways.iter().map(OneWay::new).collect(),
            way_reasons: &report.way_reasons,
        }
    }
}

impl<'a> OneWay<'a> {
    fn new(way: &'a PathReport) -> Self {
        Self {
            way: &way.way,
            bytes: way.bytes.get(),
            rate_bps: way.rate.map(DataRate::as_bps),
            steady_seconds: seconds(way.steady),
        }
    }
}

impl Each {
    fn new(stream: &StreamReport) -> Self {
        Self {
            seconds: seconds(stream.age),
            acked_bytes: stream.acked.get(),
            rate_bps: stream.rate.as_bps(),
            rtt_ms: millis(stream.srtt),
            min_rtt_ms: stream.min_rtt.map(millis),
            retransmitted_bytes: stream.retransmitted.get(),
            cwnd_bytes: stream.cwnd.get(),
            receiver_limited: share(stream.receiver_limited),
            buffer_limited: share(stream.buffer_limited),
            end: stream.end,
        }
    }
}

impl Moment {
    fn new(moment: &StreamsMoment) -> Self {
        Self {
            seconds: seconds(moment.at),
            streams: moment.streams,
            rate_bps: moment.rate.as_bps(),
            lost: (moment.lost * 1e6).round() / 1e6,
            queue_ms: millis(moment.queue),
        }
    }
}

fn share(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
