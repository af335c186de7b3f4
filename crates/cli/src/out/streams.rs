//! TCP streams as part of the last line of `--json`.

use packtrain_service::{PathReport, StreamReport, StreamsMoment, StreamsReport};
use packtrain_units::DataRate;

use super::done::{millis, rounded, seconds};
use super::object::Object;

/// The field `streams`. `asked` is null if the number was chosen while they ran; `ways` and
/// `way_reasons` are there only if there were several candidate paths.
pub(crate) fn streams(report: &StreamsReport) -> Object {
    let ways: Vec<_> = report.ways.iter().map(path).collect();
    let way_reasons = (!report.way_reasons.is_empty()).then_some(&report.way_reasons);
    Object::default()
        .with("asked", report.asked)
        .with("last", report.last)
        .with("most", report.most)
        .with("broken", report.broken)
        .with("congestion", &report.congestion)
        .with("retransmitted_bytes", report.retransmitted.get())
        .with("moved_twice_bytes", report.moved_twice.get())
        .with("each", report.streams.iter().map(stream).collect::<Vec<_>>())
        .with("over_time", report.moments.iter().map(moment).collect::<Vec<_>>())
        .with("reasons", &report.reasons)
        .with_some("ways", (!ways.is_empty()).then_some(ways))
        .with_some("way_reasons", way_reasons)
}

fn path(path: &PathReport) -> Object {
    Object::default()
        .with("way", &path.way)
        .with("bytes", path.bytes.get())
        .with("rate_bps", path.rate.map(DataRate::as_bps))
        .with("steady_seconds", seconds(path.steady))
}

/// The rate; none of a time that was too short to measure one.
fn measured(rate: DataRate) -> Option<u64> {
    (rate < DataRate::MAX).then(|| rate.as_bps())
}

fn stream(stream: &StreamReport) -> Object {
    Object::default()
        .with("seconds", seconds(stream.age))
        .with("acked_bytes", stream.acked.get())
        .with("rate_bps", measured(stream.rate))
        .with("rtt_ms", millis(stream.srtt))
        .with("min_rtt_ms", stream.min_rtt.map(millis))
        .with("retransmitted_bytes", stream.retransmitted.get())
        .with("cwnd_bytes", stream.cwnd.get())
        .with("receiver_limited", rounded(stream.receiver_limited, 1e3))
        .with("buffer_limited", rounded(stream.buffer_limited, 1e3))
        .with("end", stream.end)
}

fn moment(moment: &StreamsMoment) -> Object {
    Object::default()
        .with("seconds", seconds(moment.at))
        .with("streams", moment.streams)
        .with("rate_bps", measured(moment.rate))
        .with("lost", rounded(moment.lost, 1e6))
        .with("queue_ms", millis(moment.queue))
}
