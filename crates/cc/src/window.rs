//! The window of the loss-based controllers: in packets, at most one reduction per round, and no
//! growth while the window is not the limit of the flow. A reduction is undone when all losses that
//! caused it prove spurious.

mod undo;

use packtrain_units::{ByteCount, DataRate, Duration};

use crate::config::{ControllerConfig, Start};
use crate::interface::{Feedback, Sent};
use crate::window::undo::Undo;

/// Minimum slow start threshold, in packets (RFC 5681 section 3.1).
const MIN_SSTHRESH: f64 = 2.0;
/// Maximum window, in bytes: beyond any path, and far from overflow.
const MAX_WINDOW_BYTES: f64 = (1u64 << 44) as f64;
/// Pacing rates in slow start and after, in windows per round trip (Linux `tcp_pacing_ss_ratio` and
/// `tcp_pacing_ca_ratio`).
const PACE_SLOW_START: f64 = 2.0;
const PACE: f64 = 1.2;

/// The action that a feedback requires of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// None: no packet was newly acknowledged, or a recovery continues.
    Hold,
    /// None: the window does not limit the flow.
    Unused,
    /// Grow: this many packets were acknowledged.
    Grow(f64),
    /// Cut: a loss or mark newer than the last cut.
    Cut,
    /// The retransmission timer expired, or congestion persisted.
    Collapse,
    /// All losses of the last cut or collapse were spurious, and the window is again what it was.
    Undo,
}

/// The window and its bookkeeping.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Bytes of a packet.
    mss: f64,
    /// In packets, at least 1.
    pub(crate) cwnd: f64,
    /// Whether it is a whole number after slow start.
    pub(crate) whole: bool,
    /// If so: acknowledged packets that have not increased it yet.
    credit: f64,
    /// In packets.
    pub(crate) ssthresh: f64,
    /// Smoothed round trip in seconds, once known.
    srtt: Option<f64>,
    /// One past the highest send index used.
    pub(crate) next: u64,
    /// One past the highest send index acknowledged.
    newest: u64,
    /// Losses below this index belong to the last cut.
    recover: u64,
    /// Whether the timer expired and no packet sent since was acknowledged.
    timed_out: bool,
    /// Maximum bytes in flight in this round and in the previous one, and the end of this round.
    peaks: (u64, u64),
    round_end: u64,
    /// The state before the last cut or collapse, while it may be undone.
    undo: Option<Undo>,
}

impl Window {
    pub(crate) fn new(config: &ControllerConfig, start: &Start) -> Self {
        let mss = config.mtu.get().max(1) as f64;
        Self {
            mss,
            cwnd: f64::from(start.initial_window.max(1)).min(MAX_WINDOW_BYTES / mss),
            whole: start.whole_packets,
            credit: 0.0,
            ssthresh: f64::INFINITY,
            srtt: config.rtt.map(Duration::as_secs_f64).filter(|rtt| *rtt > 0.0),
            next: 0,
            newest: 0,
            recover: 0,
            timed_out: false,
            peaks: (0, 0),
            round_end: 0,
            undo: None,
        }
    }

    /// Goes on at `packets` after another controller, which answered the losses of what was sent before
    /// the send index `next`.
    pub(crate) fn resume(&mut self, packets: f64, next: u64) {
        self.cwnd = packets.max(1.0);
        self.ssthresh = self.cwnd;
        (self.next, self.recover) = (next, next);
    }

    /// A packet has `mtu` bytes from now on. Returns by which factor the numbers of packets that
    /// stand for the same bytes change.
    pub(crate) fn set_mtu(&mut self, mtu: ByteCount) -> f64 {
        let before = std::mem::replace(&mut self.mss, mtu.get().max(1) as f64);
        if self.newest == 0 {
            return 1.0;
        }
        let factor = before / self.mss;
        self.cwnd = (self.cwnd * factor).max(1.0);
        self.ssthresh = (self.ssthresh * factor).max(MIN_SSTHRESH);
        self.undo = None;
        self.credit = 0.0;
        factor
    }

    pub(crate) fn on_sent(&mut self, sent: &Sent) {
        self.next = self.next.max(sent.first.saturating_add(u64::from(sent.count)));
        self.peaks.0 = self.peaks.0.max(sent.in_flight.get());
    }

    /// Losses and marks of packets sent before the last cut belong to it (RFC 5681 section 3.2, RFC
    /// 6675 section 5: once per window). The window does not grow until a packet sent after the cut
    /// arrives.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback<'_>) -> Action {
        if let Some(rtt) = feedback.rtt {
            self.srtt = Some(rtt.smoothed.as_secs_f64()).filter(|srtt| *srtt > 0.0);
        }
        if let Some(index) = feedback.largest_acked {
            self.newest = self.newest.max(index.saturating_add(1));
        }
        if feedback.timeout {
            self.begin_event(feedback);
            return Action::Collapse;
        }
        let lost = feedback.lost.iter().any(|loss| self.is_new(loss));
        if lost || (feedback.ecn_ce > 0 && self.newest > self.recover) {
            self.begin_event(feedback);
            return Action::Cut;
        }
        if self.is_undone(feedback) {
            return Action::Undo;
        }
        if self.newest >= self.round_end {
            self.round_end = self.next.saturating_add(1);
            self.peaks = (feedback.in_flight.get(), self.peaks.0);
        }
        let acked = feedback.acked.get() as f64 / self.mss;
        if acked <= 0.0 || (self.newest <= self.recover && self.recover > 0) {
            return Action::Hold;
        }
        self.timed_out = false;
        if self.is_limiting(acked) { Action::Grow(acked) } else { Action::Unused }
    }

    /// Whether the window limits the flow (RFC 7661, Linux `tcp_is_cwnd_limited`): half used
    /// suffices in slow start, three quarters afterwards. `acked` packets were just acknowledged.
    fn is_limiting(&self, acked: f64) -> bool {
        let used = self.peaks.0.max(self.peaks.1) as f64 / self.mss;
        let share = if self.in_slow_start() { 2.0 } else { 4.0 / 3.0 };
        self.cwnd <= share * used.max(acked) + 4.0
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Adds one packet for each acknowledged one, up to the threshold; returns the rest of `acked`.
    pub(crate) fn slow_start(&mut self, acked: f64) -> f64 {
        let grown = (self.cwnd + acked).min(self.ssthresh);
        let used = grown - self.cwnd;
        self.widen(used);
        acked - used
    }

    /// Adds one packet for every `count` packets of `acked` (Linux `tcp_cong_avoid_ai`).
    pub(crate) fn climb(&mut self, acked: f64, count: f64) {
        if !self.whole {
            return self.widen(acked / count);
        }
        if self.credit >= count {
            self.credit = 0.0;
            self.widen(1.0);
        }
        self.credit += acked;
        if self.credit >= count {
            let more = (self.credit / count).floor();
            self.credit -= more * count;
            self.widen(more);
        }
    }

    /// Adds `packets`.
    pub(crate) fn widen(&mut self, packets: f64) {
        self.cwnd = (self.cwnd + packets.max(0.0)).min(MAX_WINDOW_BYTES / self.mss);
    }

    /// Sets threshold and window to `factor` of the window.
    pub(crate) fn cut(&mut self, factor: f64) {
        self.ssthresh = self.share(factor);
        self.cwnd = self.ssthresh;
        self.credit = 0.0;
    }

    /// Falls to one packet. The threshold becomes `factor` of the window, but stays when the timer
    /// expires again without an acknowledgement in between (RFC 5681 section 3.1).
    pub(crate) fn collapse(&mut self, factor: f64) {
        if !std::mem::replace(&mut self.timed_out, true) {
            self.ssthresh = self.share(factor);
        }
        self.cwnd = 1.0;
        self.credit = 0.0;
    }

    fn share(&self, factor: f64) -> f64 {
        self.unit(self.cwnd * factor).max(MIN_SSTHRESH)
    }

    /// The part of `packets` that counts.
    pub(crate) fn unit(&self, packets: f64) -> f64 {
        if self.whole { packets.floor() } else { packets }
    }

    pub(crate) fn bytes(&self) -> ByteCount {
        ByteCount((self.cwnd * self.mss) as u64)
    }

    pub(crate) fn ssthresh_bytes(&self) -> Option<ByteCount> {
        self.ssthresh.is_finite().then_some(ByteCount((self.ssthresh * self.mss) as u64))
    }

    /// The pace of Linux (`tcp_update_pacing_rate`), which leads the window so that the window and
    /// not the pace limits; at least one packet per second.
    pub(crate) fn pace(&self) -> Option<DataRate> {
        let srtt = self.srtt?;
        let lead = if self.cwnd < self.ssthresh / 2.0 { PACE_SLOW_START } else { PACE };
        let packets = (lead * self.cwnd / srtt).max(1.0);
        Some(DataRate::from_bps((8.0 * packets * self.mss) as u64))
    }

    pub(crate) fn quantum(&self) -> ByteCount {
        let mss = ByteCount(self.mss as u64);
        self.pace().map_or(self.bytes(), |rate| crate::pacing::quantum(rate, mss))
    }

    pub(crate) fn state(&self) -> String {
        let phase = if self.in_slow_start() { "slow start" } else { "avoidance" };
        format!("{phase}, {:.0} packets", self.cwnd)
    }
}

#[cfg(test)]
mod tests;
