//! The streams of one transport as a number and a record, whichever way their bytes go.

use packtrain_os::clock;
use packtrain_units::{ByteCount, Duration, Time};

use super::group::Reading;
use super::record::Record;
use super::stream_count::StreamCount;
use packtrain_service::{StreamEnd, StreamsReport};

/// How often the kernel is asked about the streams.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// How many streams there are to be, and what the kernel said of those there were.
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

    /// Whether the number is found while the transfer runs.
    pub fn is_tuned(&self) -> bool {
        self.count.is_tuned()
    }

    /// How many streams there are to be now.
    pub fn target(&self) -> u32 {
        self.count.target()
    }

    /// Asks the kernel by `read` if it is time, and records what it says. Gives the time since the
    /// last sample with the readings.
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

    /// Adapts the number; `busy` if the streams are what the transfer waits for.
    pub fn tune(&mut self, now: Time, readings: &[Reading], busy: bool) {
        self.count.sample(now, readings, busy);
    }

    /// A stream came; now there are so many.
    pub fn came(&mut self, count: u32, first: Option<Reading>) {
        self.record.came(count, first);
    }

    /// A stream is over, with what the kernel said of it last.
    pub fn ended(&mut self, last: Option<Reading>, end: StreamEnd) {
        self.record.ended(last, end);
    }

    /// What the kernel said.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// What the streams did, and why there were as many; `twice` is what was moved a second time.
    /// None if there never was a stream.
    pub fn report(&self, twice: ByteCount) -> Option<StreamsReport> {
        let mut report = self.record.report()?;
        report.moved_twice = twice;
        self.count.explain(&mut report);
        Some(report)
    }
}
