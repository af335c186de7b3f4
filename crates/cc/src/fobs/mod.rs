//! FOBS (Dickens, "A Lightweight, High Performance Communication Protocol for Grid Computing"): a
//! constant rate that changes only when the network has lost packets.
//!
//! Packets are sent in windows. The signature of a window with losses is passed to a classifier
//! (`poll_signature`), which the owner runs anywhere while the flow continues. If the receiving
//! host's processor was the cause, the rate does not change (section 4.1.1: the long-term loss rate
//! is updated as if no packet were lost). Otherwise the loss enters the long-term rate p, the
//! window is w(p) of HighSpeed TCP or, below Low_Window, of standard TCP, and the rate is w / RTT.
//!
//! With `packets`, p counts lost packets, as in the paper. By default it counts loss events, for
//! which the response functions were derived.
//!
//! | file | contents |
//! |---|---|
//! | `options` | window or rate mode, choice of the classifier, sizes |
//! | `launch` | the first rate, where none is requested |
//! | `windows` | effects of a window and its verdict |
//! | `capacity` | the measured capacity of the path, and its changes |

mod capacity;
mod launch;
mod options;
mod response;
mod windows;

use std::collections::VecDeque;

use packtrain_loss::Verdict;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use self::capacity::{CapacityEstimate, MIN_STEP};
use self::launch::{LANDING, Launch, bytes};
pub use self::options::{Count, Judge, Mode, Options};
use self::response::LongTerm;
pub use self::response::window;
use self::windows::{Lossy, UNEXPLAINED_SLACK};
use crate::collector::Collector;
use crate::config::ControllerConfig;
use crate::interface::{CongestionController, Feedback, LossWindow, Sent, Signal, Signals};
use crate::pacing::quantum;

/// Packets of a window: 100 MB of the paper's 1024-byte packets, and two shorter windows for which
/// classifiers have models, for slow paths.
pub const WINDOW_PACKETS: [u64; 3] = [97_656, 24_414, 6_104];
/// Maximum duration of a window.
pub(crate) const MAX_WINDOW_SPAN: Duration = Duration::from_secs(5);
/// How often a launch that went too far is corrected before its losses count.
const LANDINGS: u32 = 3;
/// A loss that the host's counter does not explain ends a window of this many packets, for which
/// classifiers have models, or of this age.
const SHORT_WINDOW: (u64, Duration) = (WINDOW_PACKETS[2], Duration::from_secs(1));
/// After clean windows the launch is repeated. A launch that raised the rate by less than a tenth
/// doubles the number of windows to wait, up to this.
const MAX_RELAUNCH_WAIT: u32 = 16;
const MIN_RELAUNCH_GAIN: f64 = 1.1;
/// Minimum rate, in bytes per second: 100 kbit/s. It is also the rate before the launch.
const MIN_RATE_BYTES_PER_SECOND: f64 = 12_500.0;
/// Maximum rate, in bytes per second: 1 Tbit/s.
const MAX_RATE_BYTES_PER_SECOND: f64 = 1.25e11;
/// Minimum and maximum of the round trip, in seconds.
const RTT_LIMITS: (f64, f64) = (20e-6, 10.0);

/// The longest window that ends in time at this many packets per second.
pub(crate) fn packets_at(rate: f64) -> u64 {
    let fits = |packets: &u64| *packets as f64 <= rate * MAX_WINDOW_SPAN.as_secs_f64() / 2.0;
    WINDOW_PACKETS.into_iter().find(fits).unwrap_or(WINDOW_PACKETS[2])
}

/// The controller.
#[derive(Debug)]
pub struct Fobs {
    options: Options,
    mtu: f64,
    collector: Collector,
    launch: Option<Launch>,
    loss: LongTerm,
    /// Bytes per second.
    rate: f64,
    /// The requested rate.
    requested: Option<f64>,
    /// The measured capacity of the path.
    capacity: CapacityEstimate,
    /// Corrections left before the first window after the launch ends: until then a queue that
    /// loses packets is a result of the launch.
    landing: u32,
    /// The rate was measured while the host dropped packets, and may be below the path's capacity.
    host_limited: bool,
    /// Clean windows to wait until the launch is repeated, and until the next repetition.
    relaunch_wait: (u32, u32),
    /// A queue stood in this window.
    queued: bool,
    /// Maximum rate.
    ceiling: f64,
    rtt: Option<Duration>,
    least_rtt: Duration,
    delivered: f64,
    /// The application limited the flow in this window.
    app_limited: bool,
    /// When the first loss was reported that ends the window.
    event: Option<Time>,
    /// Windows to classify, and the records of those handed out.
    out: VecDeque<LossWindow>,
    waiting: VecDeque<Lossy>,
    verdicts: [u64; 2],
}

impl Fobs {
    /// Creates a controller.
    pub fn new(config: &ControllerConfig, options: Options) -> Self {
        let mtu = config.mtu.get().max(1) as f64;
        let ceiling = config
            .ceiling
            .map_or(MAX_RATE_BYTES_PER_SECOND, bytes)
            .clamp(1.0, MAX_RATE_BYTES_PER_SECOND);
        let requested = options.rate.map(|rate| bytes(rate).min(ceiling));
        let launch = if requested.is_some() { None } else { Some(Launch::new()) };
        let mut controller = Self {
            options,
            mtu,
            collector: Collector::new(config.now, WINDOW_PACKETS[0], MAX_WINDOW_SPAN),
            launch,
            loss: LongTerm::new(options.count),
            rate: requested.unwrap_or(MIN_RATE_BYTES_PER_SECOND),
            requested,
            capacity: CapacityEstimate::new(config.now, Duration::ZERO, ceiling),
            landing: LANDINGS,
            host_limited: false,
            relaunch_wait: (1, 1),
            queued: false,
            ceiling,
            rtt: config.rtt,
            least_rtt: config.rtt.unwrap_or(Duration::MAX),
            delivered: 0.0,
            app_limited: false,
            event: None,
            out: VecDeque::new(),
            waiting: VecDeque::new(),
            verdicts: [0; 2],
        };
        controller.fit_window();
        controller
    }

    fn bytes_a_second(&self) -> f64 {
        let rate = self.launch.as_ref().map_or(self.rate, Launch::rate);
        rate.clamp(MIN_RATE_BYTES_PER_SECOND.min(self.ceiling), self.ceiling)
    }

    fn rtt_secs(&self) -> f64 {
        self.rtt
            .unwrap_or(Duration::from_millis(100))
            .as_secs_f64()
            .clamp(RTT_LIMITS.0, RTT_LIMITS.1)
    }

    /// Sets the length of the next window.
    fn fit_window(&mut self) {
        let packets = match self.options.window {
            Some(window) => window.get() / self.mtu as u64,
            None => packets_at(self.bytes_a_second() / self.mtu),
        };
        self.collector.set_packets(packets);
    }

    /// The maximum rate, whatever the losses.
    fn max_rate(&self) -> f64 {
        self.requested.unwrap_or(self.capacity.rate())
    }

    fn on_launched(&mut self, now: Time, rate: f64) {
        let Some(launch) = self.launch.take() else { return };
        self.host_limited = launch.reached_host_limit() && !launch.reached_path_limit();
        let mut rate = rate.clamp(MIN_RATE_BYTES_PER_SECOND, self.ceiling);
        if let Some(from) = launch.start_rate() {
            // A measurement while a host stalled does not count.
            rate = if launch.reached_path_limit() { rate } else { rate.max(from) };
            self.relaunch_wait.1 = if rate > MIN_RELAUNCH_GAIN * from {
                1
            } else {
                (self.relaunch_wait.1 * 2).min(MAX_RELAUNCH_WAIT)
            };
        }
        self.relaunch_wait.0 = self.relaunch_wait.1;
        let rtt = Duration::from_secs_f64(self.rtt_secs());
        self.capacity = CapacityEstimate::new(now, rtt, rate);
        self.rate = rate;
        self.loss.restart();
        self.set_rate(true);
        self.collector.restart(now);
        self.event = None;
        self.queued = false;
        self.fit_window();
    }

    /// Checks for a queue caused by this flow, and reacts to it.
    fn check_queue(&mut self, feedback: &Feedback<'_>) {
        let Some(rtt) = feedback.rtt.filter(|_| self.requested.is_none()) else { return };
        let delivered = feedback.delivery_rate.map(bytes);
        let rtts = (rtt.latest, self.least_rtt);
        self.queued |= CapacityEstimate::queued(rtt.smoothed, self.least_rtt);
        if self.capacity.on_feedback(feedback.now, rtts, delivered) {
            if self.landing > 0 {
                self.landing -= 1;
                self.launch = Some(Launch::retreat(feedback.now, rtt.latest, self.capacity.rate()));
            }
            self.set_rate_down();
            return;
        }
        let all = self.rate >= self.capacity.rate();
        self.capacity.climb(feedback.now, self.rtt_secs(), self.mtu, self.ceiling);
        if all {
            self.set_rate(false);
        }
    }

    /// Checks whether the reported losses end the window, a round trip after the first.
    fn check_losses(&mut self, feedback: &Feedback<'_>) {
        if self.event.is_none() {
            let ends = match (self.options.mode, self.options.count) {
                (Mode::Rate, _) => self.collector.concerns(feedback),
                (Mode::Window, Count::Packets) => false,
                (Mode::Window, Count::Events) => self.unexplained(),
            };
            self.event = ends.then_some(feedback.now);
        }
        let Some(at) = self.event else { return };
        if self.options.count == Count::Events
            && self.unexplained()
            && self.capacity.revert_growth()
        {
            // The value before the growth had been reached before.
            let max_rate = self.capacity.rate();
            self.capacity.lower((self.delivered * LANDING).max(max_rate * MIN_STEP));
            self.set_rate_down();
        }
        let (packets, age) = SHORT_WINDOW;
        let long = self.collector.sent() >= packets
            || feedback.now.since(self.collector.started()) >= age
            || self.options.mode == Mode::Rate;
        if long && feedback.now >= at + Duration::from_secs_f64(self.rtt_secs()) {
            self.collector.cut();
        }
    }

    fn unexplained(&self) -> bool {
        let (lost, unexplained) = (self.collector.lost(), self.collector.unexplained());
        unexplained > UNEXPLAINED_SLACK.0 + lost / UNEXPLAINED_SLACK.1
    }

    fn set_rate_down(&mut self) {
        self.rate = self.rate.min(self.max_rate());
    }
}

impl CongestionController for Fobs {
    fn name(&self) -> &'static str {
        match (self.options.mode, self.options.judge) {
            (Mode::Window, Judge::Ours) => "fobs:window",
            (Mode::Rate, Judge::Ours) => "fobs:rate",
            (Mode::Window, Judge::Paper) => "fobs:window,paper",
            (Mode::Rate, Judge::Paper) => "fobs:rate,paper",
            (Mode::Window, Judge::Blind) => "fobs:window,blind",
            (Mode::Rate, Judge::Blind) => "fobs:rate,blind",
        }
    }

    fn needs(&self) -> Signals {
        Signals::of(&[Signal::Rtt, Signal::DeliveryRate, Signal::Losses])
    }

    fn set_mtu(&mut self, mtu: ByteCount) {
        self.mtu = mtu.get().max(1) as f64;
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.collector.on_sent(sent);
        self.app_limited |= sent.app_limited;
        if let Some(launch) = &mut self.launch {
            launch.on_sent(sent.count);
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let now = feedback.now;
        if let Some(rtt) = feedback.rtt {
            self.rtt = Some(rtt.smoothed);
            self.least_rtt = self.least_rtt.min(rtt.min);
        }
        if let Some(rate) = feedback.delivery_rate {
            self.delivered = bytes(rate);
        }
        if let Some(launch) = &mut self.launch {
            let Some(rtt) = self.rtt else { return };
            let rtts = (rtt, self.least_rtt);
            // A continued launch does not exceed what the path once delivered.
            let max_rate = match launch.start_rate() {
                Some(_) if !self.host_limited => self.capacity.rate(),
                _ => self.ceiling,
            };
            if let Some(rate) = launch.on_feedback(feedback, rtts, self.mtu, max_rate) {
                self.on_launched(now, rate);
            }
            return;
        }
        self.check_queue(feedback);
        self.check_losses(feedback);
        if let Some(window) = self.collector.on_feedback(feedback) {
            self.on_window(window);
        }
    }

    fn cwnd(&self) -> ByteCount {
        // The rate governs; the window only bounds the data in flight when no feedback arrives.
        let span = 4.0 * self.rtt_secs() + 0.1;
        ByteCount((self.bytes_a_second() * span).max(64.0 * self.mtu).min(1e13) as u64)
    }

    fn paces_itself(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<DataRate> {
        Some(DataRate::from_bps(((self.bytes_a_second() * 8.0) as u64).max(1)))
    }

    fn send_quantum(&self) -> ByteCount {
        quantum(
            DataRate::from_bps((self.bytes_a_second() * 8.0) as u64),
            ByteCount(self.mtu as u64),
        )
    }

    fn collects(&self) -> bool {
        true
    }

    fn poll_signature(&mut self) -> Option<LossWindow> {
        self.out.pop_front()
    }

    fn on_verdict(&mut self, _now: Time, number: u64, verdict: &Verdict) {
        self.judged(number, verdict);
    }

    fn state(&self) -> String {
        let what = if self.launch.is_some() { "launch" } else { "cruise" };
        let [network, host] = self.verdicts;
        format!(
            "{what} at most {} p {:.2e} events {network} host {host}",
            DataRate::from_bps((self.max_rate() * 8.0) as u64),
            self.loss.rate(),
        )
    }
}

#[cfg(test)]
mod tests;
