//! A sender and a receiver over a network that loses, reorders and duplicates.

mod behaviour;
mod network;
mod whole;

use packtrain_cc::{CongestionController, Feedback, Sent};
use packtrain_units::{ByteCount, DataRate, Time};

/// Size of datagrams.
const DATAGRAM: ByteCount = ByteCount(1_472);

/// The answers of a test's controller, and its inputs.
#[derive(Debug, Default)]
struct Knobs {
    window: u64,
    rate: Option<DataRate>,
    frozen: Option<Time>,
    quantum: u64,
    warnings: u64,
    timeouts: u64,
    naks: Vec<(u64, u32)>,
    acked: u64,
    last_index: Option<u64>,
}

/// A controller that a test controls.
#[expect(clippy::disallowed_types, reason = "one thread, and a test that panics is over")]
#[derive(Clone, Debug)]
struct Puppet(std::sync::Arc<std::sync::Mutex<Knobs>>);

#[expect(clippy::disallowed_types, reason = "one thread, and a test that panics is over")]
impl Puppet {
    fn new(window: u64, rate: Option<DataRate>, quantum: u64) -> Self {
        Self(std::sync::Arc::new(std::sync::Mutex::new(Knobs {
            window,
            rate,
            quantum,
            ..Knobs::default()
        })))
    }

    fn knobs(&self) -> std::sync::MutexGuard<'_, Knobs> {
        self.0.lock().unwrap()
    }
}

impl CongestionController for Puppet {
    fn name(&self) -> &'static str {
        "puppet"
    }

    fn set_mtu(&mut self, _: ByteCount) {}

    fn on_sent(&mut self, sent: &Sent) {
        let mut knobs = self.knobs();
        let next = knobs.last_index.map_or(0, |last| last + 1);
        assert_eq!(sent.first, next, "send indices are dense");
        knobs.last_index = Some(sent.first + u64::from(sent.count) - 1);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let mut knobs = self.knobs();
        knobs.acked += feedback.acked_packets;
        knobs.warnings += u64::from(feedback.delay_rising);
        knobs.timeouts += u64::from(feedback.timeout);
        if !feedback.timeout {
            knobs.naks.extend(feedback.lost.iter().map(|lost| (lost.first, lost.count)));
        }
    }

    fn cwnd(&self) -> ByteCount {
        ByteCount(self.knobs().window * DATAGRAM.get())
    }

    fn pacing_rate(&self) -> Option<DataRate> {
        self.knobs().rate
    }

    fn frozen_until(&self) -> Option<Time> {
        self.knobs().frozen
    }

    fn send_quantum(&self) -> ByteCount {
        ByteCount(self.knobs().quantum * DATAGRAM.get())
    }
}
