//! FOBS (Dickens, "A Lightweight, High Performance Communication Protocol for Grid Computing"): a
//! constant rate, and a new one only when the network has lost something.
//!
//! Packets are sent in windows. Of a window with losses the signature is given to a classifier
//! (`poll_signature`), which runs where its owner likes, and the flow goes on meanwhile. If the
//! receiving host's processor was the cause, nothing happens (section 4.1.1: the long-term loss
//! rate is updated as if nothing were lost). Otherwise the loss enters the long-term rate p, the
//! window is w(p) of HighSpeed TCP or, below Low_Window, of standard TCP, and the rate is w / RTT.
//!
//! With `packets` p counts lost packets, as in the paper. Else it counts loss events, for which
//! the response functions were derived.
//!
//! | file | what |
//! |---|---|
//! | `options` | window or rate mode, whose verdict counts, sizes |
//! | `response` | w(p), and p |
//! | `launch` | the first rate, where none is asked for |
//! | `windows` | what a window and its verdict lead to |
//! | `found` | the most that the path was found to have, and how that changes |

mod found;
mod launch;
mod options;
mod response;
mod windows;

use std::collections::VecDeque;

use packtrain_loss::Verdict;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use self::found::{Found, LEAST_STEP};
use self::launch::{LANDING, Launch, bytes};
pub use self::options::{Count, Judge, Mode, Options};
use self::response::LongTerm;
pub use self::response::window;
use self::windows::{Lossy, SLACK};
use crate::collector::Collector;
use crate::config::ControllerConfig;
use crate::interface::{CongestionController, Feedback, LossWindow, Sent, Signal, Signals};
use crate::pacing::quantum;

/// Packets of a window: 100 MB of the paper's 1024-byte packets, and the shorter ones that
/// classifiers have models for, for paths on which the long one would take too long.
pub const WINDOW_PACKETS: [u64; 3] = [97_656, 24_414, 6_104];
/// A window that takes longer is ended.
pub const MAX_WINDOW_SPAN: Duration = Duration::from_secs(5);
/// A launch that turns out to have gone too far is corrected so often before its losses count.
const LANDINGS: u32 = 3;
/// A loss that the host's counter does not explain ends a window when it has so many packets,
/// for which classifiers have models, or is so old.
const SHORT_WINDOW: (u64, Duration) = (WINDOW_PACKETS[2], Duration::from_secs(1));
/// After windows that say that there is more a launch is repeated; one that found a tenth more
/// or less lets twice as many windows pass, up to this.
const MAX_REST_WINDOWS: u32 = 16;
const NEWS: f64 = 1.1;
/// The rate before anything is known, in bytes a second: a packet in about a millisecond.
const MIN_RATE_BYTES_PER_SECOND: f64 = 12_500.0;
/// Never faster than this, in bytes a second: 1 Tbit/s.
const MAX_RATE_BYTES_PER_SECOND: f64 = 1.25e11;
/// A round trip is at least this long, in seconds, and at most that.
const RTT: (f64, f64) = (20e-6, 10.0);

/// The longest window that ends in time at this many packets a second.
pub fn packets_at(rate: f64) -> u64 {
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
    /// Bytes a second.
    rate: f64,
    /// What is asked for.
    asked: Option<f64>,
    /// What the path was found to have.
    found: Found,
    /// No window has passed since the launch, so what is lost to a queue is its doing still; so
    /// often it may be repeated.
    landing: u32,
    /// What was found is what a host had that dropped, and maybe not what the path has.
    host_found: bool,
    /// Good windows to pass before the launch is repeated, and before the next repetition.
    rest: (u32, u32),
    /// A queue stood in this window.
    queued: bool,
    /// Nothing may be faster.
    ceiling: f64,
    rtt: Option<Duration>,
    least_rtt: Duration,
    delivered: f64,
    /// The application had too little to send in this window.
    app_limited: bool,
    /// When the first loss was told that ends the window.
    event: Option<Time>,
    /// Windows to be judged, and what is known of those given out.
    out: VecDeque<LossWindow>,
    waiting: VecDeque<Lossy>,
    verdicts: [u64; 2],
}

impl Fobs {
    /// A controller that starts.
    pub fn new(config: &ControllerConfig, options: Options) -> Self {
        let mtu = config.mtu.get().max(1) as f64;
        let ceiling = config
            .ceiling
            .map_or(MAX_RATE_BYTES_PER_SECOND, bytes)
            .clamp(1.0, MAX_RATE_BYTES_PER_SECOND);
        let asked = options.rate.map(|rate| bytes(rate).min(ceiling));
        let launch = if asked.is_some() { None } else { Some(Launch::new()) };
        let mut controller = Self {
            options,
            mtu,
            collector: Collector::new(config.now, WINDOW_PACKETS[0], MAX_WINDOW_SPAN),
            launch,
            loss: LongTerm::new(options.count),
            rate: asked.unwrap_or(MIN_RATE_BYTES_PER_SECOND),
            asked,
            found: Found::new(config.now, Duration::ZERO, ceiling),
            landing: LANDINGS,
            host_found: false,
            rest: (1, 1),
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
        self.rtt.unwrap_or(Duration::from_millis(100)).as_secs_f64().clamp(RTT.0, RTT.1)
    }

    /// The next window's length.
    fn fit_window(&mut self) {
        let packets = match self.options.window {
            Some(window) => window.get() / self.mtu as u64,
            None => packets_at(self.bytes_a_second() / self.mtu),
        };
        self.collector.set_packets(packets);
    }

    /// The most that may be sent, whatever the losses.
    fn most(&self) -> f64 {
        self.asked.unwrap_or(self.found.most())
    }

    fn on_launched(&mut self, now: Time, rate: f64) {
        let Some(launch) = self.launch.take() else { return };
        self.host_found = launch.met_host() && !launch.met_path();
        let mut rate = rate.clamp(MIN_RATE_BYTES_PER_SECOND, self.ceiling);
        if let Some(from) = launch.from() {
            // A host that slept just then says nothing.
            rate = if launch.met_path() { rate } else { rate.max(from) };
            self.rest.1 =
                if rate > NEWS * from { 1 } else { (self.rest.1 * 2).min(MAX_REST_WINDOWS) };
        }
        self.rest.0 = self.rest.1;
        let rtt = Duration::from_secs_f64(self.rtt_secs());
        self.found = Found::new(now, rtt, rate);
        self.rate = rate;
        self.loss.restart();
        self.set_rate(true);
        self.collector.restart(now);
        self.event = None;
        self.queued = false;
        self.fit_window();
    }

    /// Whether a queue stands that this flow makes, and what follows.
    fn look_at_queue(&mut self, feedback: &Feedback<'_>) {
        let Some(rtt) = feedback.rtt.filter(|_| self.asked.is_none()) else { return };
        let delivered = feedback.delivery_rate.map(bytes);
        let rtts = (rtt.latest, self.least_rtt);
        self.queued |= Found::queued(rtt.smoothed, self.least_rtt);
        if self.found.on_feedback(feedback.now, rtts, delivered) {
            if self.landing > 0 {
                self.landing -= 1;
                self.launch = Some(Launch::retreat(feedback.now, rtt.latest, self.found.most()));
            }
            self.set_rate_down();
            return;
        }
        let all = self.rate >= self.found.most();
        self.found.climb(feedback.now, self.rtt_secs(), self.mtu, self.ceiling);
        if all {
            self.set_rate(false);
        }
    }

    /// Whether the losses told end the window, a round trip after the first.
    fn look_at_losses(&mut self, feedback: &Feedback<'_>) {
        if self.event.is_none() {
            let ends = match (self.options.mode, self.options.count) {
                (Mode::Rate, _) => self.collector.concerns(feedback),
                (Mode::Window, Count::Packets) => false,
                (Mode::Window, Count::Events) => self.unexplained(),
            };
            self.event = ends.then_some(feedback.now);
        }
        let Some(at) = self.event else { return };
        if self.options.count == Count::Events && self.unexplained() && self.found.ungrow() {
            // What it grew from was grown to before.
            let most = self.found.most();
            self.found.lower((self.delivered * LANDING).max(most * LEAST_STEP));
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
        unexplained > SLACK.0 + lost / SLACK.1
    }

    fn set_rate_down(&mut self) {
        self.rate = self.rate.min(self.most());
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
            // One that goes on does not ask for more than the path once gave.
            let most = match launch.from() {
                Some(_) if !self.host_found => self.found.most(),
                _ => self.ceiling,
            };
            if let Some(rate) = launch.on_feedback(feedback, rtts, self.mtu, most) {
                self.on_launched(now, rate);
            }
            return;
        }
        self.look_at_queue(feedback);
        self.look_at_losses(feedback);
        if let Some(window) = self.collector.on_feedback(feedback) {
            self.on_window(window);
        }
    }

    fn cwnd(&self) -> ByteCount {
        // The rate is what counts; this only bounds what is under way when nothing is heard.
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
            DataRate::from_bps((self.most() * 8.0) as u64),
            self.loss.rate(),
        )
    }
}

#[cfg(test)]
mod tests;
