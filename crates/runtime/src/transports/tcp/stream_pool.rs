//! The streams of one transport: target number and statistics, for either direction.

use packtrain_os::clock;
use packtrain_units::{ByteCount, Duration, Time};

use super::group::Reading;
use super::record::Record;
use super::stream_count::StreamCount;
use packtrain_service::{StreamEnd, StreamsReport};

/// Interval of the samples of the TCP statistics.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// The target number of streams, and the statistics of those that exist or existed.
pub struct StreamPool {
    count: StreamCount,
    record: Record,
    sampled: Time,
}

impl StreamPool {
    /// A pool without streams.
    pub fn new(count: StreamCount) -> Self {
        Self { count, record: Record::new(clock::now()), sampled: Time::ZERO }
    }

    /// Whether the number is tuned during the transfer.
    pub fn is_tuned(&self) -> bool {
        self.count.is_tuned()
    }

    /// The target number of streams.
    pub fn target(&mut self) -> u32 {
        self.count.target()
    }

    /// Samples the TCP statistics with `read` when a sample is due, and records them. Returns the
    /// time since the last sample, with the readings.
    pub fn sample(
        &mut self,
        now: Time,
        read: impl FnOnce() -> Vec<Reading>,
    ) -> Option<(Duration, Vec<Reading>)> {
        let span = now.since(self.sampled);
        if span < SAMPLE_INTERVAL {
            return None;
        }
        self.sampled = now;
        let readings = read();
        self.record.look(now, &readings);
        Some((span, readings))
    }

    /// Tunes the number; `busy`: the streams are the bottleneck of the transfer.
    pub fn tune(&mut self, now: Time, readings: &[Reading], busy: bool) {
        self.count.sample(now, readings, busy);
    }

    /// A stream opened; there are `count` now.
    pub fn came(&mut self, count: u32, first: Option<Reading>) {
        self.record.came(count, first);
    }

    /// A stream ended, with its last statistics.
    pub fn ended(&mut self, last: Option<Reading>, end: StreamEnd) {
        self.record.ended(last, end);
    }

    /// The recorded statistics.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The report about the streams and their number; `twice` is the number of bytes moved a second
    /// time. None if there was no stream.
    pub fn report(&self, twice: ByteCount) -> Option<StreamsReport> {
        let mut report = self.record.report()?;
        report.moved_twice = twice;
        self.count.explain(&mut report);
        Some(report)
    }
}
