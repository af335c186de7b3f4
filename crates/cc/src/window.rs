//! What the loss-based controllers share: a window in packets, one answer to losses a round, and
//! no growth while the window is not what limits the flow.

use packtrain_units::{ByteCount, DataRate, Duration};

use crate::config::{ControllerConfig, Start};
use crate::interface::{Feedback, Sent};

/// The least slow start threshold, in packets (RFC 5681 section 3.1).
const LEAST_SSTHRESH: f64 = 2.0;
/// The widest window, in bytes: beyond any path, and far from overflow.
const WIDEST: f64 = (1u64 << 44) as f64;
/// Pacing in slow start and after, times the window by the round trip (Linux `tcp_pacing_ss_ratio`
/// and `tcp_pacing_ca_ratio`).
const PACE_SLOW_START: f64 = 2.0;
const PACE: f64 = 1.2;

/// What a feedback asks of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ask {
    /// Nothing: nothing new arrived, or repair goes on.
    Hold,
    /// Nothing: the window is not what limits the flow.
    Unused,
    /// So many packets were acknowledged: grow.
    Grow(f64),
    /// A loss or mark newer than the last cut: cut.
    Cut,
    /// The retransmission timer ran out.
    Collapse,
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
    /// Then: acknowledged packets that have not yet made it wider.
    credit: f64,
    /// In packets.
    pub(crate) ssthresh: f64,
    /// Smoothed round trip in seconds, once known.
    srtt: Option<f64>,
    /// One past the highest send index used.
    pub(crate) next: u64,
    /// One past the highest send index acknowledged.
    newest: u64,
    /// Losses below this index were answered by the last cut.
    recover: u64,
    /// The timer ran out and nothing sent since was acknowledged.
    silent: bool,
    /// Most bytes in flight in this round and in the one before, and where this one ends.
    peaks: (u64, u64),
    round_end: u64,
}

impl Window {
    pub(crate) fn new(config: &ControllerConfig, start: &Start) -> Self {
        let mss = config.mtu.get().max(1) as f64;
        Self {
            mss,
            cwnd: f64::from(start.initial_window.max(1)).min(WIDEST / mss),
            whole: start.whole_packets,
            credit: 0.0,
            ssthresh: f64::INFINITY,
            srtt: config.rtt.map(Duration::as_secs_f64).filter(|rtt| *rtt > 0.0),
            next: 0,
            newest: 0,
            recover: 0,
            silent: false,
            peaks: (0, 0),
            round_end: 0,
        }
    }

    pub(crate) fn on_sent(&mut self, sent: &Sent) {
        self.next = self.next.max(sent.first.saturating_add(u64::from(sent.count)));
        self.peaks.0 = self.peaks.0.max(sent.in_flight.get());
    }

    /// Losses and marks of packets sent before the last cut belong to it (RFC 5681 section 3.2,
    /// RFC 6675 section 5: once a window). Until a packet sent after the cut arrives, the window
    /// does not grow.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback<'_>) -> Ask {
        if let Some(rtt) = feedback.rtt {
            self.srtt = Some(rtt.smoothed.as_secs_f64()).filter(|srtt| *srtt > 0.0);
        }
        if let Some(index) = feedback.largest_acked {
            self.newest = self.newest.max(index.saturating_add(1));
        }
        if feedback.timeout {
            self.recover = self.next;
            return Ask::Collapse;
        }
        let lost = feedback
            .lost
            .iter()
            .any(|loss| loss.first.saturating_add(u64::from(loss.count)) > self.recover);
        if lost || (feedback.ecn_ce > 0 && self.newest > self.recover) {
            self.recover = self.next;
            return Ask::Cut;
        }
        if self.newest >= self.round_end {
            self.round_end = self.next.saturating_add(1);
            self.peaks = (feedback.in_flight.get(), self.peaks.0);
        }
        let acked = feedback.acked.get() as f64 / self.mss;
        if acked <= 0.0 || (self.newest <= self.recover && self.recover > 0) {
            return Ask::Hold;
        }
        self.silent = false;
        if self.is_limiting(acked) { Ask::Grow(acked) } else { Ask::Unused }
    }

    /// Whether the window is what holds the flow back (RFC 7661, Linux `tcp_is_cwnd_limited`):
    /// half used is enough in slow start, three quarters after. `acked` packets just left.
    fn is_limiting(&self, acked: f64) -> bool {
        let used = self.peaks.0.max(self.peaks.1) as f64 / self.mss;
        let share = if self.in_slow_start() { 2.0 } else { 4.0 / 3.0 };
        self.cwnd <= share * used.max(acked) + 4.0
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// A packet more for each acknowledged, up to the threshold; returns what is left of `acked`.
    pub(crate) fn slow_start(&mut self, acked: f64) -> f64 {
        let grown = (self.cwnd + acked).min(self.ssthresh);
        let used = grown - self.cwnd;
        self.widen(used);
        acked - used
    }

    /// A packet more for every `count` packets of `acked` (Linux `tcp_cong_avoid_ai`).
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

    /// `packets` more.
    pub(crate) fn widen(&mut self, packets: f64) {
        self.cwnd = (self.cwnd + packets.max(0.0)).min(WIDEST / self.mss);
    }

    /// Threshold and window go to `factor` of the window.
    pub(crate) fn cut(&mut self, factor: f64) {
        self.ssthresh = self.share(factor);
        self.cwnd = self.ssthresh;
        self.credit = 0.0;
    }

    /// Back to one packet. The threshold goes to `factor` of the window, but stays when the timer
    /// runs out again with nothing acknowledged in between (RFC 5681 section 3.1).
    pub(crate) fn collapse(&mut self, factor: f64) {
        if !std::mem::replace(&mut self.silent, true) {
            self.ssthresh = self.share(factor);
        }
        self.cwnd = 1.0;
        self.credit = 0.0;
    }

    fn share(&self, factor: f64) -> f64 {
        self.unit(self.cwnd * factor).max(LEAST_SSTHRESH)
    }

    /// As much of `packets` as counts.
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
    /// not the pace binds; at least a packet a second.
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
