//! One end of a transfer, watched by itself.

use std::sync::Arc;

use packtrain_os::clock;
use packtrain_proto::Suite;
use packtrain_units::{DataRate, Duration, Time};

use super::meter::Meters;
use super::system::{self, CpuWatch};
use packtrain_service::evidence::{Buffers, End, Net};

/// How often an end tells of itself.
pub(crate) const TELL: Duration = Duration::from_secs(1);
/// A transfer shorter than this is not worth measuring the processor for.
const WORTH: Duration = Duration::from_millis(300);

/// Watches this end from its making on.
pub(crate) struct EndWatch {
    begun: Time,
    told: Time,
    cpu: CpuWatch,
    meters: Arc<Meters>,
    threads: u64,
    suite: Suite,
    sealing: Option<DataRate>,
    looks: u64,
    full: u64,
    wrote: (u64, Time),
}

impl EndWatch {
    /// Watches an end whose `threads` read or write.
    pub(crate) fn new(meters: Arc<Meters>, threads: usize, suite: Suite) -> Self {
        let now = clock::now();
        Self {
            begun: now,
            told: now,
            cpu: CpuWatch::new(),
            meters,
            threads: threads as u64,
            suite,
            sealing: None,
            looks: 0,
            full: 0,
            wrote: (0, now),
        }
    }

    /// Whether it is time to tell; it counts as told.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        let due = now.since(self.told) >= TELL;
        if due {
            self.told = now;
        }
        due
    }

    /// The memory for what arrives was looked at.
    pub(crate) fn look(&mut self, full: bool) {
        self.looks += 1;
        self.full += u64::from(full);
        self.note();
    }

    /// Notes when something was written last.
    fn note(&mut self) {
        let (data, small) = (self.meters.data.read(), self.meters.small.read());
        let wrote = data.count + small.count;
        if wrote != self.wrote.0 {
            self.wrote = (wrote, clock::now());
        }
    }

    /// What was seen so far.
    pub(crate) fn read(&mut self, net: Option<Net>, buffers: Option<Buffers>) -> End {
        self.note();
        let now = clock::now();
        let elapsed = now.since(self.begun);
        if self.sealing.is_none() && elapsed >= WORTH {
            self.sealing = system::sealing(self.suite);
        }
        let mut end = End {
            elapsed,
            threads: self.threads,
            cpu: self.cpu.read(),
            net,
            sealing: self.sealing,
            buffers,
            looks: self.looks,
            full: self.full,
            rest: now.since(self.wrote.1),
            ..End::default()
        };
        self.meters.fill(&mut end);
        end
    }
}
