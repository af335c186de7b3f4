//! Results of runs as JSON lines and as CSV columns.

use packtrain_units::Duration;
use serde::Serialize;

use crate::file::Setting;
use crate::outcome::{FlowOutcome, LinkOutcome, Outcome, Sample};

/// One run of a scenario: the line `{"event":"run",...}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRow {
    /// `run`, or `done` in the last line of a single run.
    pub event: &'static str,
    /// Name of the scenario.
    pub scenario: String,
    /// Number of the run within its sweep, from zero.
    pub run: u64,
    /// The seed it ran with.
    pub seed: u64,
    /// The values that this run sets.
    pub settings: Vec<Setting>,
    /// Digest of all events.
    pub trace_hash: String,
    /// Virtual seconds.
    pub seconds: f64,
    /// Packets offered to links, counted at each hop.
    pub packet_hops: u64,
    /// One row per flow.
    pub flows: Vec<FlowRow>,
    /// One row per link and direction.
    pub links: Vec<LinkRow>,
}

/// Results of a flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowRow {
    /// The run, in the last line of a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// Its name.
    pub name: String,
    /// Its controller, or the kind of cross traffic.
    pub cc: String,
    /// Useful bits delivered per second.
    pub goodput_bps: u64,
    /// Useful bytes delivered.
    pub delivered_bytes: u64,
    /// Packets sent, retransmissions included.
    pub sent_packets: u64,
    /// Engines: packets with payload that arrived, retransmissions included.
    #[serde(skip_serializing_if = "is_zero")]
    pub received_packets: u64,
    /// Engines: bits of those packets per second, with all headers.
    #[serde(skip_serializing_if = "is_zero")]
    pub throughput_bps: u64,
    /// Payload bytes retransmitted.
    pub retransmitted_bytes: u64,
    /// Packets dropped by the network.
    pub dropped_packets: u64,
    /// Packets dropped by the receiving host.
    pub host_dropped_packets: u64,
    /// Rounds in which a loss was reported to the controller.
    pub loss_events: u64,
    /// Timeouts of the sender.
    pub timeouts: u64,
    /// Mean time in queues on the forward path, in milliseconds.
    pub queueing_delay_mean_ms: f64,
    /// 99th percentile of the time in the queue with the longest mean, in milliseconds.
    pub queueing_delay_p99_ms: f64,
    /// Mean round trip, in milliseconds.
    pub rtt_mean_ms: f64,
    /// Time from its start until all data was delivered.
    pub completed_seconds: Option<f64>,
    /// Short connections that completed.
    pub connections_completed: Option<u64>,
    /// Mean of their times.
    pub connection_mean_ms: Option<f64>,
    /// 99th percentile of their times.
    pub connection_p99_ms: Option<f64>,
}

/// Omitted from the output when zero.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires a reference
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Results of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkRow {
    /// Its name; the reverse direction has a `'` appended.
    pub name: String,
    /// Packets offered.
    pub offered_packets: u64,
    /// Bytes transmitted.
    pub transmitted_bytes: u64,
    /// Share of what it could have transmitted after the warm-up.
    pub utilisation: f64,
    /// Packets dropped.
    pub dropped: DropRow,
}

/// Packets dropped by cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DropRow {
    /// The queue was full.
    pub overflow: u64,
    /// Active queue management.
    pub early: u64,
    /// The loss model.
    pub random: u64,
    /// Anything else: too big, link down.
    pub other: u64,
}

/// A sample of the curves of a flow: the line `{"event":"sample",...}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleRow<'a> {
    /// `sample`.
    pub event: &'static str,
    /// Virtual seconds.
    pub at: f64,
    /// Name of the flow.
    pub flow: &'a str,
    /// Congestion window; none: the flow has none, as cross traffic.
    pub cwnd_bytes: Option<u64>,
    /// Bytes in flight, of a flow with a window.
    pub in_flight_bytes: Option<u64>,
    /// TCP: payload bytes acknowledged in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acked_bytes: Option<u64>,
    /// Pacing rate, if it paces.
    pub pacing_bps: Option<u64>,
    /// Useful bits per second since the last sample.
    pub goodput_bps: u64,
    /// The newest round trip, after the first.
    pub rtt_ms: Option<f64>,
}

/// A packet at the recorded link: the line `{"event":"packet",...}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PacketRow<'a> {
    /// `packet`.
    pub event: &'static str,
    /// When it was offered, in nanoseconds.
    pub offered_ns: u64,
    /// Its bytes.
    pub bytes: u32,
    /// Name of its flow.
    pub flow: &'a str,
    /// When it left the other end, in nanoseconds; none if dropped.
    pub left_ns: Option<u64>,
}

impl RunRow {
    /// The row of an outcome.
    pub fn new(outcome: &Outcome, run: u64, settings: Vec<Setting>) -> Self {
        Self {
            event: "run",
            scenario: outcome.scenario.clone(),
            run,
            seed: outcome.seed,
            settings,
            trace_hash: outcome.trace_hash.clone(),
            seconds: outcome.duration.as_secs_f64(),
            packet_hops: outcome.packet_hops,
            flows: outcome.flows.iter().map(FlowRow::from).collect(),
            links: outcome.links.iter().map(LinkRow::from).collect(),
        }
    }

    /// The value of a setting as a number: plain, or a quantity in bit/s, bytes or seconds.
    pub fn setting(&self, path: &str) -> Option<f64> {
        let setting = self.settings.iter().find(|setting| setting.path == path)?;
        value_of(&setting.value)
    }
}

/// Parses a number in the notation of scenarios: `1e-3`, `0.1%`, `10gbit`, `64KiB` or `250ms` (as
/// seconds).
pub fn value_of(text: &str) -> Option<f64> {
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number);
    }
    if let Some(percent) = text.strip_suffix('%') {
        return percent.trim().parse::<f64>().ok().map(|number| number / 100.0);
    }
    if let Ok(rate) = packtrain_units::parse_rate(text) {
        return Some(rate.as_bps() as f64);
    }
    if let Ok(span) = packtrain_units::parse_duration(text) {
        return Some(span.as_secs_f64());
    }
    if let Ok(bytes) = packtrain_units::parse_bytes(text) {
        return Some(bytes.get() as f64);
    }
    let number = text.strip_suffix("packets").or(text.strip_suffix("bdp"))?;
    number.trim().parse().ok()
}

impl From<&FlowOutcome> for FlowRow {
    fn from(flow: &FlowOutcome) -> Self {
        Self {
            run: None,
            name: flow.name.clone(),
            cc: flow.cc.clone(),
            goodput_bps: flow.goodput.as_bps(),
            delivered_bytes: flow.delivered.get(),
            sent_packets: flow.sent_packets,
            received_packets: flow.received_packets,
            throughput_bps: flow.throughput.as_bps(),
            retransmitted_bytes: flow.retransmitted.get(),
            dropped_packets: flow.dropped_packets,
            host_dropped_packets: flow.host_dropped_packets,
            loss_events: flow.loss_events,
            timeouts: flow.timeouts,
            queueing_delay_mean_ms: millis(flow.queueing_mean),
            queueing_delay_p99_ms: millis(flow.queueing_p99),
            rtt_mean_ms: millis(flow.rtt_mean),
            completed_seconds: flow.completed_in.map(Duration::as_secs_f64),
            connections_completed: flow.completed.map(|completed| completed.0),
            connection_mean_ms: flow.completed.map(|completed| millis(completed.1)),
            connection_p99_ms: flow.completed.map(|completed| millis(completed.2)),
        }
    }
}

impl From<&LinkOutcome> for LinkRow {
    fn from(link: &LinkOutcome) -> Self {
        let [overflow, early, random, other] = link.dropped;
        Self {
            name: link.name.clone(),
            offered_packets: link.offered,
            transmitted_bytes: link.transmitted.get(),
            utilisation: link.utilisation,
            dropped: DropRow { overflow, early, random, other },
        }
    }
}

impl FlowRow {
    /// A number of the row by its JSON name.
    pub fn field(&self, name: &str) -> Option<f64> {
        let value = serde_json::to_value(self).ok()?;
        value.get(name)?.as_f64()
    }
}

/// The curves of an outcome.
pub fn samples(outcome: &Outcome) -> impl Iterator<Item = SampleRow<'_>> {
    outcome.samples.iter().map(|sample: &Sample| SampleRow {
        event: "sample",
        at: sample.at.as_nanos() as f64 / 1e9,
        flow: name_of(outcome, sample.flow),
        cwnd_bytes: sample.cwnd.map(packtrain_units::ByteCount::get),
        acked_bytes: sample.acked.map(packtrain_units::ByteCount::get),
        in_flight_bytes: sample.cwnd.map(|_| sample.in_flight.get()),
        pacing_bps: sample.pacing_rate.map(|rate| rate.as_bps()),
        goodput_bps: sample.goodput.as_bps(),
        rtt_ms: sample.rtt.map(millis),
    })
}

/// The packets at the recorded link.
pub fn packets(outcome: &Outcome) -> impl Iterator<Item = PacketRow<'_>> {
    outcome.record.iter().map(|packet| PacketRow {
        event: "packet",
        offered_ns: packet.offered.as_nanos(),
        bytes: packet.size,
        flow: name_of(outcome, packet.flow),
        left_ns: packet.left.map(packtrain_units::Time::as_nanos),
    })
}

fn name_of(outcome: &Outcome, flow: usize) -> &str {
    outcome.flows.get(flow).map_or("", |flow| flow.name.as_str())
}

/// Columns of [`columns`], after `run`, `seed` and the paths of the settings.
const COLUMNS: &[&str] = &[
    "goodput_bps",
    "delivered_bytes",
    "sent_packets",
    "retransmitted_bytes",
    "dropped_packets",
    "host_dropped_packets",
    "loss_events",
    "timeouts",
    "queueing_delay_mean_ms",
    "queueing_delay_p99_ms",
    "rtt_mean_ms",
    "completed_seconds",
    "connections_completed",
    "connection_mean_ms",
    "connection_p99_ms",
];

/// The heading of a CSV file with one line per flow and run.
pub fn heading<'a>(axes: impl Iterator<Item = &'a str>) -> String {
    let mut cells = vec!["run".to_owned(), "seed".to_owned()];
    cells.extend(axes.map(cell));
    cells.extend(["flow", "cc"].iter().chain(COLUMNS).map(|&name| name.to_owned()));
    cells.push("trace_hash".to_owned());
    cells.join(",")
}

/// The lines of a run.
pub fn columns(row: &RunRow) -> Vec<String> {
    let line = |flow: &FlowRow| {
        let mut cells = vec![row.run.to_string(), row.seed.to_string()];
        cells.extend(row.settings.iter().map(|setting| cell(&setting.value)));
        cells.extend([cell(&flow.name), cell(&flow.cc)]);
        let value = serde_json::to_value(flow).unwrap_or_default();
        cells.extend(COLUMNS.iter().map(|name| match value.get(*name) {
            None | Some(serde_json::Value::Null) => String::new(),
            Some(number) => number.to_string(),
        }));
        cells.push(row.trace_hash.clone());
        cells.join(",")
    };
    row.flows.iter().map(line).collect()
}

/// The curves as CSV, heading first.
pub fn curves(outcome: &Outcome) -> Vec<String> {
    let head = "seconds,flow,cwnd_bytes,in_flight_bytes,pacing_bps,goodput_bps,rtt_ms,acked_bytes";
    let line = |row: SampleRow<'_>| {
        [
            row.at.to_string(),
            cell(row.flow),
            optional(row.cwnd_bytes),
            optional(row.in_flight_bytes),
            optional(row.pacing_bps),
            row.goodput_bps.to_string(),
            optional(row.rtt_ms),
            optional(row.acked_bytes),
        ]
        .join(",")
    };
    std::iter::once(head.to_owned()).chain(samples(outcome).map(line)).collect()
}

/// A cell that is empty without a value.
fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// A cell of a CSV file (RFC 4180).
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Milliseconds with their fraction.
fn millis(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e6
}

/// Combines the hashes of several runs, in order (FNV-1a, 64 bits).
pub fn together<'a>(hashes: impl Iterator<Item = &'a str>) -> String {
    let mut state = 0xcbf2_9ce4_8422_2325u64;
    for byte in hashes.flat_map(str::bytes) {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{state:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_numbers() {
        for (text, value) in [
            ("1e-3", 1e-3),
            ("0.1%", 1e-3),
            ("10gbit", 1e10),
            ("250ms", 0.25),
            ("64KiB", 65_536.0),
            ("1bdp", 1.0),
            ("100 packets", 100.0),
        ] {
            assert_eq!(value_of(text), Some(value), "{text}");
        }
        assert_eq!(value_of("cubic"), None);
    }

    #[test]
    fn a_flow_without_a_window_has_empty_cells() {
        let flow = |name: &str| FlowOutcome { name: name.into(), ..Default::default() };
        let sample = |flow: usize, cwnd: Option<u64>| Sample {
            at: packtrain_units::Time::from_nanos(500_000_000),
            flow,
            cwnd: cwnd.map(packtrain_units::ByteCount),
            in_flight: packtrain_units::ByteCount(cwnd.unwrap_or(0) / 2),
            acked: None,
            pacing_rate: None,
            goodput: packtrain_units::DataRate::from_bps(8),
            rtt: cwnd.map(|_| Duration::from_millis(20)),
            trend: [0; 2],
        };
        let outcome = Outcome {
            flows: vec![flow("tcp"), flow("noise")],
            samples: vec![sample(0, Some(3_000)), sample(1, None)],
            ..Default::default()
        };
        let lines = curves(&outcome);
        assert_eq!(lines[1..], ["0.5,tcp,3000,1500,,8,20,", "0.5,noise,,,,8,,"]);
    }

    #[test]
    fn a_line_has_as_many_cells_as_the_heading() {
        let flow = FlowOutcome { name: "a".into(), cc: "reno".into(), ..Default::default() };
        let outcome = Outcome { flows: vec![flow], ..Default::default() };
        let settings = vec![Setting { path: "x, y".into(), value: "[1, 2]".into() }];
        let row = RunRow::new(&outcome, 3, settings);
        let heading = heading(["x"].into_iter());
        let line = columns(&row).remove(0).replace("\"[1, 2]\"", "v");
        assert_eq!(line.split(',').count(), heading.split(',').count());
    }
}
