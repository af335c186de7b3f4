//! Fills a row from the requests and results of a transfer.

use packtrain_history::{Ended, Kind, Role, Row, Side, StreamSample, TransportBytes};
use packtrain_os::{clock, entropy};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, DataRate, Duration};

use crate::evidence::Evidence;
use crate::{
    CpRequest, Location, Outcome, PerfOutcome, StreamsReport, TransportChoice, failure_word,
};

/// A row of a transfer that starts now.
pub fn begin(kind: Kind, side: Side) -> Row {
    let id = format!("{:08x}", entropy::seed() as u32);
    let began = clock::wall();
    let host = here();
    Row {
        key: format!("{id}-{:x}-{host}", began.as_nanos()),
        id,
        began,
        kind,
        side,
        ended: Ended::Running,
        host,
        login: login(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        transport: "none".to_owned(),
        ..Row::default()
    }
}

/// The name of this machine.
pub(crate) fn here() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The user name of this process.
pub(crate) fn login() -> String {
    let named = ["USER", "LOGNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
    named.unwrap_or_else(|| format!("uid {}", rustix::process::geteuid().as_raw()))
}

impl CpRequest {
    /// The name of the remote machine in the history. A path over depots has another name than the
    /// direct path.
    pub fn remote_name(&self, host: &str) -> String {
        let depots: Vec<String> = self.via.iter().map(ToString::to_string).collect();
        if depots.is_empty() { host.to_owned() } else { format!("{host} via {}", depots.join(",")) }
    }

    /// The first version of the row for this request.
    pub fn row(&self) -> Row {
        let kind = if self.options.verify { Kind::Verify } else { Kind::Cp };
        let mut row = begin(kind, Side::Caller);
        let far = |place: &Location| place.host().is_some();
        let (from, to) = (self.sources.iter().any(far), far(&self.dest));
        row.role = match (from, to) {
            (false, false) => Role::Both,
            (false, true) => Role::Source,
            (true, false) => Role::Sink,
            (true, true) => Role::Relay,
        };
        let host = |place: Option<&Location>| {
            place.and_then(Location::host).map_or_else(|| row.host.clone(), str::to_owned)
        };
        let (from_host, to_host) = (host(self.sources.first()), host(Some(&self.dest)));
        (row.from_host, row.to_host) = (from_host, self.remote_name(&to_host));
        row.source = match self.sources.as_slice() {
            [] => String::new(),
            [one] => one.to_string(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        };
        row.target = self.dest.to_string();
        row.controller = self.cc.clone().unwrap_or_default();
        row.streams = match self.transport {
            TransportChoice::Tcp => self.streams,
            _ => None,
        };
        row
    }
}

/// Adds the measurements of both ends.
pub fn of_evidence(row: &mut Row, evidence: &Evidence) {
    let busy = |end: &Option<crate::evidence::End>| end.as_ref().map(|end| end.cpu.machine);
    row.source_busy = busy(&evidence.source);
    row.target_busy = busy(&evidence.sink);
    let Some(path) = &evidence.path else { return };
    row.rtt = path.min_rtt.or(row.rtt);
    row.srtt = path.srtt;
    if !path.controller.is_empty() {
        row.controller.clone_from(&path.controller);
    }
    if path.sent_packets > 0 {
        row.packets_sent = Some(path.sent_packets);
        row.packets_lost = Some(path.lost_packets);
        row.host_drops = Some(path.host_drops);
    }
    if let Some(loss) = &path.loss {
        row.loss_cause = Some(loss.cause.clone());
        row.p_cpu = Some(loss.p_cpu);
    }
    if let Some(tcp) = &path.tcp {
        row.tcp_cc = Some(tcp.congestion.clone()).filter(|name| !name.is_empty());
        row.tcp_info = serde_json::to_string(tcp).ok();
        if tcp.streams > 0 {
            row.streams = u32::try_from(tcp.streams).ok().max(row.streams);
        }
    }
}

/// Adds how a copy ended.
pub fn finish_cp(row: &mut Row, outcome: &Outcome) {
    let summary = &outcome.summary;
    row.bytes = ByteCount(summary.bytes);
    row.bytes_moved = ByteCount(summary.bytes_moved);
    row.files = summary.files_moved;
    row.failed_files = summary.failed;
    row.elapsed = outcome.elapsed;
    row.throughput = outcome.goodput();
    row.transport.clone_from(&outcome.transport);
    row.transports = outcome
        .shares
        .iter()
        .map(|share| TransportBytes { transport: share.name.clone(), bytes: share.bytes })
        .collect();
    row.retransmitted = outcome.retransmitted;
    row.rtt = outcome.rtt.or(row.rtt);
    row.loss_cause = outcome.loss_cause.cause.clone().or_else(|| row.loss_cause.take());
    row.p_cpu = outcome.loss_cause.p_cpu.or(row.p_cpu);
    row.verdict.clone_from(&outcome.verdict);
    row.held_by.clone_from(&outcome.held_by);
    row.exit_code = Some(outcome.exit_code().into());
    if let Some(report) = &outcome.streams {
        of_streams(row, report);
    }
    end(row, outcome.failure.as_ref(), summary.failed > 0 || outcome.differing > 0);
}

/// Adds the statistics of the TCP streams.
fn of_streams(row: &mut Row, report: &StreamsReport) {
    row.streams = Some(report.asked.unwrap_or(report.last)).filter(|n| *n > 0).or(row.streams);
    if !report.congestion.is_empty() {
        row.tcp_cc = Some(report.congestion.clone());
    }
    // Statistics of all streams together, and of each.
    let together = row.tcp_info.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let mut info: serde_json::Map<String, serde_json::Value> = together.unwrap_or_default();
    if let Ok(each) = serde_json::to_value(&report.streams) {
        info.insert("each".to_owned(), each);
        if let Some(ways) =
            serde_json::to_value(&report.ways).ok().filter(|_| !report.ways.is_empty())
        {
            info.insert("ways".to_owned(), ways);
        }
        row.tcp_info = serde_json::to_string(&info).ok();
    }
    row.stream_samples = samples(report, row.began);
    super::paths::of_ways(row, report);
}

/// Maximum number of samples per transfer, which bounds the size of a row.
const SAMPLES: usize = 32;
/// Shorter samples depend more on slow start than on the path.
const LONG_ENOUGH: Duration = Duration::from_millis(500);

/// The rate of each period with a constant number of streams. Its first interval is not counted,
/// because streams start or end in it.
fn samples(report: &StreamsReport, began: Duration) -> Vec<StreamSample> {
    let mut samples = Vec::new();
    let mut before = Duration::ZERO;
    for run in report.moments.chunk_by(|a, b| a.streams == b.streams) {
        let (mut span, mut bits) = (0.0, 0.0);
        for (n, moment) in run.iter().enumerate() {
            let length = moment.at.saturating_sub(before).as_secs_f64();
            before = moment.at;
            if n > 0 {
                span += length;
                bits += moment.rate.as_bps() as f64 * length;
            }
        }
        if span >= LONG_ENOUGH.as_secs_f64() && run[0].streams > 0 {
            let throughput = DataRate::from_bps((bits / span) as u64);
            samples.push(StreamSample { streams: run[0].streams, throughput, began });
        }
    }
    let extra = samples.len().saturating_sub(SAMPLES);
    samples.drain(..extra);
    samples
}

/// Adds how a measurement ended.
pub(crate) fn finish_perf(row: &mut Row, outcome: &PerfOutcome) {
    (row.bytes, row.bytes_moved) = (outcome.bytes, outcome.bytes);
    row.elapsed = outcome.elapsed;
    row.throughput = outcome.goodput();
    row.transport.clone_from(&outcome.transport);
    if outcome.bytes > ByteCount::ZERO {
        let moved = TransportBytes { transport: outcome.transport.clone(), bytes: outcome.bytes };
        row.transports = vec![moved];
    }
    row.retransmitted = outcome.retransmitted;
    row.rtt = outcome.rtt;
    row.loss_cause.clone_from(&outcome.loss_cause.cause);
    row.p_cpu = outcome.loss_cause.p_cpu;
    row.held_by.clone_from(&outcome.held_by);
    row.exit_code = Some(outcome.exit_code().into());
    end(row, outcome.failure.as_ref(), false);
}

/// Adds a failure that came before any outcome.
pub fn finish_failed(row: &mut Row, kind: FailureKind, text: &str) {
    row.elapsed = clock::wall().saturating_sub(row.began);
    row.exit_code = Some(crate::exit_code(kind).into());
    end(row, Some(&Failure::new(kind, text)), false);
}

fn end(row: &mut Row, failure: Option<&Failure>, partly: bool) {
    row.load = load();
    row.ended = match failure {
        Some(failure) if failure.kind == FailureKind::Cancelled => Ended::Cancelled,
        Some(_) => Ended::Failed,
        None if partly => Ended::Partial,
        None => Ended::Done,
    };
    row.error_kind = failure.map(|failure| failure_word(failure.kind).to_owned());
    row.error = failure.map(|failure| failure.text.clone());
}

/// The load average of the last minute.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StreamsMoment;

    #[test]
    fn samples_are_times_in_which_the_number_of_streams_stayed() {
        let moment = |ms, streams, mbps| StreamsMoment {
            at: Duration::from_millis(ms),
            streams,
            rate: DataRate::from_mbps(mbps),
            ..StreamsMoment::default()
        };
        let moments = vec![
            moment(500, 1, 1),
            moment(1_000, 1, 90),
            moment(1_500, 1, 110),
            moment(2_000, 2, 100),
            moment(2_100, 2, 200),
            moment(2_600, 4, 5),
            moment(3_600, 4, 400),
        ];
        let report = StreamsReport { moments, last: 4, ..StreamsReport::default() };
        let mut row = Row::default();
        of_streams(&mut row, &report);
        let found: Vec<(u32, DataRate)> =
            row.stream_samples.iter().map(|s| (s.streams, s.throughput)).collect();
        // The period with two streams was too short.
        assert_eq!(found, [(1, DataRate::from_mbps(100)), (4, DataRate::from_mbps(400))]);
        assert_eq!(row.streams, Some(4));
    }
}
