//! Collects loss windows for a controller that does not use them, because the flow's statistics do.

use std::collections::VecDeque;

use packtrain_loss::Verdict;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::collector::Collector;
use crate::fobs::{MAX_WINDOW_SPAN, WINDOW_PACKETS};
use crate::interface::{
    CongestionController, Feedback, LossWindow, ProbeTrain, SavedPath, Sent, Signals,
};

/// Maximum windows that wait for classification; the oldest is dropped first.
const MAX_WAITING_WINDOWS: usize = 4;

/// A controller together with the windows of its flow.
#[derive(Debug)]
pub struct Watched {
    controller: Box<dyn CongestionController>,
    collector: Collector,
    waiting: VecDeque<LossWindow>,
    /// When the window length was last adapted to the rate.
    fitted: (Time, u64),
}

impl Watched {
    /// Wraps the controller unless it collects windows itself.
    pub fn wrap(
        controller: Box<dyn CongestionController>,
        now: Time,
    ) -> Box<dyn CongestionController> {
        if controller.collects() {
            return controller;
        }
        let collector = Collector::new(now, WINDOW_PACKETS[0], MAX_WINDOW_SPAN * 2);
        Box::new(Self { controller, collector, waiting: VecDeque::new(), fitted: (now, 0) })
    }

    /// Chooses a length that classifiers have models for and that lasts at most a few seconds.
    fn fit(&mut self, sent: &Sent) {
        let (since, first) = self.fitted;
        let span = sent.now.since(since);
        if span >= Duration::from_secs(1) {
            let rate = sent.first.saturating_sub(first) as f64 / span.as_secs_f64();
            self.collector.set_packets(crate::fobs::packets_at(rate));
            self.fitted = (sent.now, sent.first);
        }
    }
}

impl CongestionController for Watched {
    fn name(&self) -> &'static str {
        self.controller.name()
    }

    fn needs(&self) -> Signals {
        self.controller.needs()
    }

    fn on_saved_path(&mut self, saved: SavedPath) {
        self.controller.on_saved_path(saved);
    }

    fn on_path(&mut self, rtt: Duration) {
        self.controller.on_path(rtt);
    }

    fn launches_at_capacity(&self) -> bool {
        self.controller.launches_at_capacity()
    }

    fn on_capacity(&mut self, capacity: DataRate) {
        self.controller.on_capacity(capacity);
    }

    fn answers_marks(&self) -> bool {
        self.controller.answers_marks()
    }

    fn set_mtu(&mut self, mtu: ByteCount) {
        self.controller.set_mtu(mtu);
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.fit(sent);
        self.collector.on_sent(sent);
        self.controller.on_sent(sent);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let window = self.collector.on_feedback(feedback);
        if let Some(window) = window.filter(|window| window.signature.lost() > 0) {
            if self.waiting.len() == MAX_WAITING_WINDOWS {
                self.waiting.pop_front();
            }
            self.waiting.push_back(window);
        }
        self.controller.on_feedback(feedback);
    }

    fn on_timeout(&mut self, now: Time) {
        self.controller.on_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.controller.poll_timeout()
    }

    fn cwnd(&self) -> ByteCount {
        self.controller.cwnd()
    }

    fn ssthresh(&self) -> Option<ByteCount> {
        self.controller.ssthresh()
    }

    fn paces_itself(&self) -> bool {
        self.controller.paces_itself()
    }

    fn pacing_rate(&self) -> Option<DataRate> {
        self.controller.pacing_rate()
    }

    fn frozen_until(&self) -> Option<Time> {
        self.controller.frozen_until()
    }

    fn send_quantum(&self) -> ByteCount {
        self.controller.send_quantum()
    }

    fn probe(&self) -> Option<ProbeTrain> {
        self.controller.probe()
    }

    fn collects(&self) -> bool {
        true
    }

    fn poll_signature(&mut self) -> Option<LossWindow> {
        self.waiting.pop_front()
    }

    fn on_verdict(&mut self, now: Time, window: u64, verdict: &Verdict) {
        self.controller.on_verdict(now, window, verdict);
    }

    fn state(&self) -> String {
        self.controller.state()
    }
}
