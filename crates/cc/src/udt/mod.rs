//! UDT: Gu and Grossman, "End-to-End Congestion Control for High Performance Data Transfer" (2003).
//! A timer raises the rate by the capacity that packet pairs show as free; losses and a growing
//! delay cut it by a ninth (DAIMD). The window is what arrives in a round trip.
//!
//! Files: `rate` the formulas of the increase, `gate` the loss rate that forbids one, `decrease`
//! the epochs of losses, `path` the receiver's measurements, `window` formula (1), `start` slow
//! start, `average` the moving average, `variant` the variants of the algorithm, `printed` the
//! departures from the printed text. Section numbers are the paper's; `udt4` follows
//! draft-gg-udt-03 where the paper differs.
//!
//! Units: packets, packets per second and seconds, as `f64`. Rates at the interface count wire
//! bytes of a datagram; formulas (3) and (4) need the packet with its IP and UDP headers.

mod average;
mod decrease;
mod gate;
mod path;
mod printed;
mod rate;
mod start;
mod variant;
mod window;

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::config::ControllerConfig;
use crate::interface::{CongestionController, Feedback, ProbeTrain, Sent, Signal, Signals};
use crate::pacing::quantum;
use decrease::{CUT, Cut, Epochs};
use gate::Gate;
use path::Path;
pub use printed::AsPrinted;
use rate::{Increase, raised};
use start::{SlowStart, exit_rate};
pub use variant::Variant;
use window::Window;

/// The constant interval of control and of acknowledgements (III.A).
pub const SYN: Duration = Duration::from_millis(10);
const SYN_SECONDS: f64 = 0.01;
/// Bytes of IPv4 and UDP headers before a datagram's payload.
const HEADERS: f64 = 28.0;
/// The author's agent without formula (3), which made the paper's table 3.
pub(crate) const NS2_WITHOUT_FORMULA_3: &str = "udt:ns2-2003-grid";
/// Minimum rate, in packets per second: far below any use, and not zero.
const MIN_RATE: f64 = 1.0;
/// Maximum rate and window, in bits per second and bytes: beyond any path, and far from overflow.
const MAX_RATE: f64 = 1e13;
const MAX_WINDOW_BYTES: f64 = (1u64 << 44) as f64;
/// The feedback `udt` itself sends a packet pair every 16 packets (III.C, N1). Under a feedback
/// that measures capacity with trains, a train of as many packets is requested for one packet in
/// 16, at most every 100 ms, and only while the capacity is unknown.
const TRAIN: u32 = 16;
const TRAIN_SPACING: f64 = 0.1;

/// The controller `udt`.
#[derive(Debug)]
pub struct Udt {
    variant: Variant,
    /// Whether (3) is left out, as in table 3 of the paper.
    without_formula_3: bool,
    /// What is taken as printed.
    printed: AsPrinted,
    /// Wire bytes of a datagram.
    datagram: f64,
    /// Packets per second.
    ceiling: f64,
    slow_start: Option<SlowStart>,
    /// C = 1 / I, after slow start.
    rate: f64,
    /// D: the rate before the last cut.
    before_cut: f64,
    path: Path,
    increase: Increase,
    gate: Gate,
    epochs: Epochs,
    window: Window,
    /// When the SYN ends; none while the flow is idle.
    syn_ends: Option<Time>,
    frozen_until: Option<Time>,
    /// Whether the application had no more data when the last packet was sent.
    app_limited: bool,
    in_flight: ByteCount,
    /// Timeouts since the last acknowledgement.
    silence: u32,
    probe: Option<Time>,
    probed_at: Time,
}

impl Udt {
    /// A controller in slow start.
    pub fn new(config: &ControllerConfig, variant: Variant) -> Self {
        let datagram = config.mtu.get().clamp(1, 1 << 16) as f64;
        let packets = |rate: DataRate| rate.as_bps() as f64 / 8.0 / datagram;
        let ceiling = config.ceiling.map_or(f64::INFINITY, packets);
        let rtt = config.rtt.map(Duration::as_secs_f64).filter(|rtt| *rtt > 0.0);
        let slow_start = SlowStart::new(variant);
        let mut window = Window::new(variant, MAX_WINDOW_BYTES / datagram, rtt);
        window.set(slow_start.window());
        Self {
            variant,
            without_formula_3: false,
            printed: AsPrinted::default(),
            datagram,
            ceiling: ceiling.clamp(MIN_RATE, MAX_RATE / 8.0 / datagram),
            slow_start: Some(slow_start),
            rate: MIN_RATE,
            before_cut: 0.0,
            path: Path::new(variant),
            increase: Increase { variant, mtu: datagram + HEADERS },
            gate: Gate::new(variant),
            epochs: Epochs::new(variant, config.seed),
            window,
            syn_ends: Some(config.now + SYN),
            frozen_until: None,
            app_limited: true,
            in_flight: ByteCount::ZERO,
            silence: 0,
            probe: None,
            probed_at: config.now,
        }
    }

    /// The same without formula (3): after a cut the rate increases as if there had been none.
    pub fn without_formula_3(self) -> Self {
        Self { without_formula_3: true, ..self }
    }

    /// The variant `paper` with parts of the text as printed.
    pub fn as_printed(config: &ControllerConfig, printed: AsPrinted) -> Self {
        Self { printed, ..Self::new(config, Variant::Paper) }
    }

    fn set_rate(&mut self, packets: f64) {
        self.rate = packets.clamp(MIN_RATE, self.ceiling);
    }

    /// The reported rate in packets per second, if positive.
    fn packets(&self, rate: Option<DataRate>) -> Option<f64> {
        let packets = (rate?.as_bps() as f64).min(MAX_RATE) / 8.0 / self.datagram;
        (packets > 0.0).then_some(packets)
    }

    fn data_rate(&self, packets: f64) -> DataRate {
        DataRate::from_bps((packets * 8.0 * self.datagram) as u64)
    }

    fn on_acked(&mut self, packets: u64) {
        if packets == 0 {
            return;
        }
        self.silence = 0;
        self.gate.on_acked();
        if let Some(slow_start) = &mut self.slow_start {
            slow_start.on_acked(packets);
            self.window.set(slow_start.window());
        }
    }

    /// Updates window and capacity from the receiver's measurements.
    ///
    /// A window that was full on an empty path is itself the limit, and the arrival rate then only
    /// reflects the window. UDT's receiver avoids this: it excludes the gaps and reports the rate
    /// at which packets follow each other, which is the rate C. With a receiver that reports an
    /// average, the window would stay where it is, or shrink for ever.
    fn on_measured(&mut self, feedback: &Feedback<'_>) {
        let arrival = self.packets(feedback.arrival_rate);
        let capacity = self.packets(feedback.capacity);
        if !self.path.on_report(feedback.now, arrival, capacity) {
            return;
        }
        let before = (feedback.in_flight + feedback.acked).get() as f64;
        let train = self.send_quantum().get() as f64;
        let full = before + train >= self.window.packets() * self.datagram;
        let is_empty = self.path.was_empty(feedback);
        let starved = is_empty && full && !self.printed.has(AsPrinted::Window);
        if let Some(rate) = arrival.filter(|_| self.slow_start.is_none()) {
            self.window.on_arrival(if starved { rate.max(self.rate) } else { rate });
        }
    }

    /// Ends slow start, if it is active.
    fn leave_slow_start(&mut self) -> bool {
        if self.slow_start.take().is_none() {
            return false;
        }
        let rate = exit_rate(self.path.arrival(), self.window.packets(), self.window.passage());
        self.set_rate(rate);
        self.path.on_start_ended(self.rate);
        true
    }

    /// Applies (7) and its side effects.
    fn cut(&mut self, cut: Cut, now: Time, freeze: bool) {
        // UDT4 records the rate at which an epoch began.
        if cut == Cut::Opening || self.variant != Variant::Udt4 {
            self.before_cut = self.rate;
        }
        self.set_rate(self.rate * CUT);
        if cut == Cut::Opening && freeze {
            self.frozen_until = Some(now + SYN);
        }
    }

    /// A delay warning: a cut that begins an epoch. The agent of 2003 does not freeze at one.
    fn on_warning(&mut self, now: Time) {
        if !self.leave_slow_start() || self.printed.has(AsPrinted::ExitCut) {
            let cut = self.epochs.open();
            self.cut(cut, now, matches!(self.variant, Variant::Paper | Variant::Grid));
        }
    }

    fn on_nak(&mut self, feedback: &Feedback<'_>) {
        let packets = feedback.lost.iter().fold(0u64, |n, l| n.saturating_add(l.count.into()));
        let end = feedback.lost.iter().map(|l| l.first.saturating_add(l.count.into())).max();
        let Some(end) = end.filter(|_| packets > 0) else { return };
        self.gate.on_lost(packets);
        self.path.on_lost();
        let ends = |start: SlowStart| start.ends_by_loss(self.path.arrival());
        let any_loss_ends = self.printed.has(AsPrinted::EarlyLoss);
        if self.slow_start.is_some_and(|start| !any_loss_ends && !ends(start)) {
            return;
        }
        if self.leave_slow_start() && !self.printed.has(AsPrinted::ExitCut) {
            return;
        }
        if let Some(cut) = self.epochs.on_nak(packets, end) {
            self.cut(cut, feedback.now, self.variant != Variant::Udt4);
        }
    }

    /// No feedback arrived for long (UDT's EXP timer); the paper does not define this. The first
    /// timeout acts as a warning, because all packets in flight will be sent again. Later ones show
    /// that whole windows were lost at this rate, which is halved until a packet is acknowledged.
    fn on_silence(&mut self, now: Time) {
        self.silence = self.silence.saturating_add(1);
        if self.printed.has(AsPrinted::Silence) || self.leave_slow_start() {
            return;
        }
        let cut = self.epochs.open();
        if self.silence > 1 {
            self.before_cut = self.rate;
            self.set_rate(self.rate / 2.0);
        } else {
            self.cut(cut, now, self.variant != Variant::Udt4);
        }
    }

    /// Requests a measuring train, where the feedback reports no capacity.
    fn request_train(&mut self, now: Time) {
        let spacing = TRAIN_SPACING.max(f64::from(TRAIN * TRAIN) / self.rate);
        let due = now.since(self.probed_at).as_secs_f64() >= spacing;
        if due && self.path.capacity().is_none() && self.slow_start.is_none() {
            self.probe = Some(now);
            self.probed_at = now;
        }
    }
}

impl CongestionController for Udt {
    fn name(&self) -> &'static str {
        match self.variant {
            Variant::Paper => self.printed.name(),
            Variant::Grid => "udt:grid",
            Variant::Ns2 if self.without_formula_3 => NS2_WITHOUT_FORMULA_3,
            Variant::Ns2 => "udt:ns2-2003",
            Variant::Udt4 => "udt:udt4",
        }
    }

    fn needs(&self) -> Signals {
        let common = [Signal::Rtt, Signal::ArrivalRate, Signal::Capacity, Signal::Losses];
        match self.variant {
            Variant::Udt4 => Signals::of(&common),
            _ => Signals::of(&[&common[..], &[Signal::DelayTrend]].concat()),
        }
    }

    fn set_mtu(&mut self, mtu: ByteCount) {
        let datagram = mtu.get().clamp(1, 1 << 16) as f64;
        let factor = std::mem::replace(&mut self.datagram, datagram) / datagram;
        self.increase.mtu = datagram + HEADERS;
        for packets in [&mut self.ceiling, &mut self.rate, &mut self.before_cut] {
            *packets *= factor;
        }
        self.ceiling = self.ceiling.clamp(MIN_RATE, MAX_RATE / 8.0 / datagram);
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.gate.on_sent(sent.count.into());
        self.epochs.on_sent(sent.first.saturating_add(sent.count.into()));
        self.app_limited = sent.app_limited;
        self.in_flight = sent.in_flight;
        self.probe = None;
        if self.syn_ends.is_none() {
            self.syn_ends = Some(sent.now + SYN);
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.in_flight = feedback.in_flight;
        self.on_acked(feedback.acked_packets);
        if let Some(rtt) = feedback.rtt.filter(|rtt| !rtt.smoothed.is_zero()) {
            self.window.on_rtt(rtt.smoothed.as_secs_f64());
        }
        self.on_measured(feedback);
        if feedback.timeout {
            return self.on_silence(feedback.now);
        }
        if feedback.delay_rising {
            self.on_warning(feedback.now);
        }
        self.on_nak(feedback);
    }

    fn on_timeout(&mut self, now: Time) {
        let Some(end) = self.syn_ends.filter(|end| *end <= now) else { return };
        if self.app_limited && self.in_flight == ByteCount::ZERO {
            // Idle: no timer runs and nothing grows until a packet is sent.
            self.syn_ends = None;
            return;
        }
        // If this is more than a SYN late, the thread slept: missed intervals are not made up for.
        let next = end + SYN;
        self.syn_ends = Some(if next > now { next } else { now + SYN });
        let clean = self.gate.is_clean();
        let may_grow = self.gate.end_of_syn();
        if self.slow_start.is_some() || !may_grow {
            return;
        }
        // A rate that the window does not let out says nothing about the path.
        let passing = self.window.packets() / self.window.passage();
        let used = self.rate.min(self.path.arrival().unwrap_or(passing));
        let capacity = match self.path.capacity() {
            None if self.printed.has(AsPrinted::Capacity) => 0.0,
            _ => self.path.presumed_capacity(used, clean),
        };
        let before_cut = if self.without_formula_3 { 0.0 } else { self.before_cut };
        let more = self.increase.packets(capacity, self.rate, before_cut);
        self.set_rate(raised(self.rate, more));
        self.request_train(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.syn_ends
    }

    fn cwnd(&self) -> ByteCount {
        ByteCount((self.window.packets() * self.datagram) as u64)
    }

    fn paces_itself(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<DataRate> {
        match self.slow_start {
            Some(_) if self.ceiling * 8.0 * self.datagram >= MAX_RATE => None,
            Some(_) => Some(self.data_rate(self.ceiling)),
            None => Some(self.data_rate(self.rate)),
        }
    }

    fn frozen_until(&self) -> Option<Time> {
        self.frozen_until
    }

    fn send_quantum(&self) -> ByteCount {
        let mtu = ByteCount(self.datagram as u64);
        quantum(self.pacing_rate().unwrap_or(DataRate::MAX), mtu)
    }

    fn probe(&self) -> Option<ProbeTrain> {
        self.probe.map(|at| ProbeTrain { packets: TRAIN, at })
    }

    fn state(&self) -> String {
        let phase = match self.slow_start {
            Some(_) => "slow start",
            None if self.gate.is_open() => "rising",
            None => "held",
        };
        let show = |rate: Option<DataRate>, none: &str| rate.map_or(none.into(), |r| r.to_string());
        let rate = show(self.pacing_rate(), "unpaced");
        let capacity = show(self.path.capacity().map(|b| self.data_rate(b)), "unknown");
        format!("{phase}, {rate}, B {capacity}, W {:.0}", self.window.packets())
    }
}

#[cfg(test)]
mod tests;
