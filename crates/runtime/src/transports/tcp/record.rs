//! TCP statistics of the streams of a transfer, including streams that have ended.

use packtrain_net::tcp::TcpInfo;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::group::Reading;
use packtrain_service::evidence::TcpPart;
use packtrain_service::{StreamEnd, StreamReport, StreamsMoment, StreamsReport};

/// Maximum ended streams that are reported individually.
const MAX_GONE: usize = 64;
/// Minimum length of a moment; it doubles when a transfer has too many moments.
const MOMENT: Duration = Duration::from_millis(250);
/// Number of moments above which every second one is dropped.
const MAX_MOMENTS: usize = 512;

/// Sums over streams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) sent: u64,
    pub(super) acked: u64,
    pub(super) again: u64,
    busy: Duration,
    receiver_limited: Duration,
    buffer_limited: Duration,
}

/// All streams at one time, for the samples of the path.
pub(in crate::transports) struct Seen {
    pub(in crate::transports) part: TcpPart,
    pub(in crate::transports) arrived: u64,
    pub(in crate::transports) srtt: Duration,
    pub(in crate::transports) queue: Duration,
    pub(in crate::transports) min_rtt: Option<Duration>,
}

/// The recorded statistics.
pub struct Record {
    began: Time,
    live: Vec<Reading>,
    gone: Sums,
    ended: Vec<StreamReport>,
    most: u32,
    broken: u32,
    congestion: String,
    min_rtt: Option<Duration>,
    best: Option<DataRate>,
    moments: Vec<StreamsMoment>,
    moment: Duration,
    mark: (Time, Sums),
}

impl Record {
    /// A record that starts at `now`.
    pub fn new(now: Time) -> Self {
        Self {
            began: now,
            live: Vec::new(),
            gone: Sums::default(),
            ended: Vec::new(),
            most: 0,
            broken: 0,
            congestion: String::new(),
            min_rtt: None,
            best: None,
            moments: Vec::new(),
            moment: MOMENT,
            mark: (now, Sums::default()),
        }
    }

    /// A stream opened; there are `count` now.
    pub fn came(&mut self, count: u32, first: Option<Reading>) {
        self.most = self.most.max(count);
        // A short copy ends before the next sample.
        if let Some(first) = first {
            self.note(&first.info);
            self.live.push(first);
        }
    }

    /// A stream ended.
    pub fn ended(&mut self, last: Option<Reading>, end: StreamEnd) {
        self.broken += u32::from(end == StreamEnd::Broken);
        let Some(last) = last else { return };
        self.live.retain(|reading| reading.stream != last.stream);
        self.note(&last.info);
        self.gone = self.gone.and(&last.info);
        if self.ended.len() < MAX_GONE {
            self.ended.push(stream_report(&last, end));
        }
    }

    fn note(&mut self, info: &TcpInfo) {
        self.min_rtt = self.min_rtt.into_iter().chain(info.min_rtt).min();
        self.best = self.best.max(info.delivery_rate);
        self.congestion.clone_from(&info.congestion);
    }

    /// Adds a sample of all streams.
    pub fn look(&mut self, now: Time, readings: &[Reading]) {
        for reading in readings {
            self.note(&reading.info);
        }
        self.live = readings.to_vec();
        let span = now.since(self.mark.0);
        if span < self.moment || readings.is_empty() {
            return;
        }
        let sums = self.sums();
        let (_, before) = std::mem::replace(&mut self.mark, (now, sums));
        let acked = sums.acked.saturating_sub(before.acked);
        let sent = sums.sent.saturating_sub(before.sent);
        if sent == 0 && acked == 0 {
            return;
        }
        if self.moments.len() >= MAX_MOMENTS {
            let mut keep = false;
            self.moments.retain(|_| {
                keep = !keep;
                keep
            });
            self.moment = self.moment * 2;
        }
        let lost = sums.again.saturating_sub(before.again) as f64 / sent.max(1) as f64;
        self.moments.push(StreamsMoment {
            at: now.since(self.began),
            streams: readings.len() as u32,
            rate: DataRate::from_bytes_over(ByteCount(acked), span),
            lost: lost.min(1.0),
            queue: queue(readings),
        });
    }

    /// Sums over all streams, including ended ones.
    pub(super) fn sums(&self) -> Sums {
        self.live.iter().fold(self.gone, |sums, reading| sums.and(&reading.info))
    }

    /// The current state of all streams; none if there was no stream.
    pub(in crate::transports) fn seen(&self) -> Option<Seen> {
        if self.most == 0 {
            return None;
        }
        let sums = self.sums();
        let part = TcpPart {
            streams: self.live.len() as u64,
            busy: sums.busy,
            receiver_limited: sums.receiver_limited,
            send_buffer_limited: sums.buffer_limited,
            receiver_window: self
                .live
                .iter()
                .filter_map(|reading| reading.info.receiver_window)
                .reduce(|a, b| a + b),
            retransmitted: ByteCount(sums.again),
            sent: ByteCount(sums.sent),
            best_rate: self.best,
            congestion: self.congestion.clone(),
        };
        Some(Seen {
            part,
            arrived: sums.acked,
            srtt: self.live.iter().map(|r| r.info.srtt).max().unwrap_or_default(),
            queue: queue(&self.live),
            min_rtt: self.min_rtt,
        })
    }

    /// Bytes retransmitted.
    pub(super) fn retransmitted(&self) -> ByteCount {
        ByteCount(self.sums().again)
    }

    /// Minimum round-trip time of all streams.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// The report; none if there was no stream.
    pub fn report(&self) -> Option<StreamsReport> {
        if self.most == 0 {
            return None;
        }
        let live = self.live.iter().map(|reading| stream_report(reading, StreamEnd::Done));
        Some(StreamsReport {
            last: self.live.len() as u32,
            most: self.most,
            broken: self.broken,
            congestion: self.congestion.clone(),
            retransmitted: ByteCount(self.sums().again),
            streams: self.ended.iter().cloned().chain(live).collect(),
            moments: self.moments.clone(),
            ..StreamsReport::default()
        })
    }
}

impl Sums {
    fn and(self, info: &TcpInfo) -> Self {
        let again = match info.retransmitted {
            Some(bytes) => bytes.get(),
            None => u64::from(info.retransmitted_segments) * info.mss.get(),
        };
        let bytes = |count: Option<ByteCount>| count.map_or(0, ByteCount::get);
        Self {
            sent: self.sent + bytes(info.sent),
            acked: self.acked + bytes(info.acked),
            again: self.again + again,
            busy: self.busy + info.busy.unwrap_or_default(),
            receiver_limited: self.receiver_limited + info.receiver_limited.unwrap_or_default(),
            buffer_limited: self.buffer_limited + info.send_buffer_limited.unwrap_or_default(),
        }
    }
}

/// The largest round-trip time above its minimum.
fn queue(readings: &[Reading]) -> Duration {
    let of = |info: &TcpInfo| info.srtt - info.min_rtt.unwrap_or(info.srtt);
    readings.iter().map(|reading| of(&reading.info)).max().unwrap_or_default()
}

fn stream_report(reading: &Reading, end: StreamEnd) -> StreamReport {
    let info = &reading.info;
    let sums = Sums::default().and(info);
    let busy = sums.busy.as_secs_f64();
    let share =
        |span: Duration| if busy > 0.0 { (span.as_secs_f64() / busy).min(1.0) } else { 0.0 };
    StreamReport {
        age: reading.age,
        acked: ByteCount(sums.acked),
        rate: DataRate::from_bytes_over(ByteCount(sums.acked), sums.busy),
        srtt: info.srtt,
        min_rtt: info.min_rtt,
        retransmitted: ByteCount(sums.again),
        cwnd: ByteCount(u64::from(info.cwnd_segments) * info.mss.get()),
        receiver_limited: share(sums.receiver_limited),
        buffer_limited: share(sums.buffer_limited),
        end,
    }
}
