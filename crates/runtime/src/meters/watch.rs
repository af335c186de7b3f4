//! Measures one end of a transfer, within its own process.

use std::sync::Arc;

use packtrain_os::clock;
use packtrain_proto::Suite;
use packtrain_units::{DataRate, Duration, Time};

use super::meter::Meters;
use super::system::{self, CpuWatch};
use packtrain_service::evidence::{Buffers, End, Net};

/// Interval of the evidence reports.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum duration of a transfer for the measurement of the sealing rate.
const MIN_MEASURED: Duration = Duration::from_millis(300);

/// Measures this end from its creation on.
pub(crate) struct EndWatch {
    begun: Time,
    reported_at: Time,
    cpu: CpuWatch,
    meters: Arc<Meters>,
    threads: u64,
    /// The cipher of the data, if Packtrain encrypts it.
    suite: Option<Suite>,
    sealing: Option<DataRate>,
    samples: u64,
    full: u64,
    wrote: (u64, Time),
}

impl EndWatch {
    /// Measures an end with this number of `threads` that read or write.
    pub(crate) fn new(meters: Arc<Meters>, threads: usize, suite: Option<Suite>) -> Self {
        let now = clock::now();
        Self {
            begun: now,
            reported_at: now,
            cpu: CpuWatch::new(),
            meters,
            threads: threads as u64,
            suite,
            sealing: None,
            samples: 0,
            full: 0,
            wrote: (0, now),
        }
    }

    /// Whether a report is due; if so, the next one is scheduled.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        let due = now.since(self.reported_at) >= REPORT_INTERVAL;
        if due {
            self.reported_at = now;
        }
        due
    }

    /// Adds a sample of the receive memory.
    pub(crate) fn add_memory_sample(&mut self, full: bool) {
        self.samples += 1;
        self.full += u64::from(full);
        self.note();
    }

    /// Records the time of the last write.
    fn note(&mut self) {
        let (data, small) = (self.meters.data.read(), self.meters.small.read());
        let wrote = data.count + small.count;
        if wrote != self.wrote.0 {
            self.wrote = (wrote, clock::now());
        }
    }

    /// The measurements so far.
    pub(crate) fn read(&mut self, net: Option<Net>, buffers: Option<Buffers>) -> End {
        self.note();
        let now = clock::now();
        let elapsed = now.since(self.begun);
        if self.sealing.is_none() && elapsed >= MIN_MEASURED {
            self.sealing = self.suite.and_then(system::sealing);
        }
        let mut end = End {
            elapsed,
            threads: self.threads,
            cpu: self.cpu.read(),
            net,
            sealing: self.sealing,
            buffers,
            looks: self.samples,
            full: self.full,
            rest: now.since(self.wrote.1),
            ..End::default()
        };
        self.meters.fill(&mut end);
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealing_is_measured_only_where_data_is_sealed() {
        for suite in [None, Some(Suite::Aes128Gcm)] {
            let mut watch = EndWatch::new(Arc::default(), 1, suite);
            watch.begun = clock::now() - MIN_MEASURED;
            assert_eq!(watch.read(None, None).sealing.is_some(), suite.is_some());
        }
    }
}
