//! Collects loss signatures from the feedback of a controller.
//!
//! Every feedback contains the lost send indices, so the signature of consecutive transmissions can
//! be collected under any feedback. Retransmissions count like other packets.

use packtrain_loss::Signature;
use packtrain_units::{Duration, Time};

use crate::interface::{Feedback, LossWindow, Sent};

/// Maximum loss ranges kept per window. This exceeds every other packet of 97,656; packets beyond
/// it count as received.
const MAX_LOSS_RANGES: usize = 1 << 16;
/// Minimum time after the acknowledgement of the last packet of a window, or of a later one, during
/// which losses of the window and drops of the receiving host are still added. It is otherwise a
/// quarter of a round trip.
const MIN_SETTLE: Duration = Duration::from_millis(20);
/// Upper limit of the smoothed round trip.
const MAX_RTT: Duration = Duration::from_secs(10);

/// Collects the windows of one flow.
#[derive(Debug)]
pub struct Collector {
    number: u64,
    /// Send index of the window's first packet.
    first: u64,
    /// One past the last sent index.
    next: u64,
    packets: u64,
    longest: Duration,
    started: Time,
    /// Lost ranges from `first` on, including those behind the window's end.
    lost: Vec<(u64, u64)>,
    /// Number of these packets.
    reported: u64,
    host_drops: u64,
    /// Host drops reported while the window waited for its end.
    late_drops: u64,
    closing: Option<Closing>,
}

/// A window whose packets have all been sent.
#[derive(Clone, Copy, Debug)]
struct Closing {
    end: u64,
    /// When all its losses have been reported.
    settled: Option<Time>,
}

impl Collector {
    /// Windows of `packets` packets, or of the packets sent in `longest`.
    pub fn new(now: Time, packets: u64, longest: Duration) -> Self {
        Self {
            number: 0,
            first: 0,
            next: 0,
            packets: packets.clamp(1, Signature::MAX_PACKETS as u64),
            longest,
            started: now,
            lost: Vec::new(),
            reported: 0,
            host_drops: 0,
            late_drops: 0,
            closing: None,
        }
    }

    /// Sets the length of the next window, and of the current one if it is not full.
    pub(crate) fn set_packets(&mut self, packets: u64) {
        self.packets = packets.clamp(1, Signature::MAX_PACKETS as u64);
    }

    /// Discards everything sent so far.
    pub fn restart(&mut self, now: Time) {
        self.begin(now, self.next);
    }

    /// Ends the window with the packets sent so far.
    pub fn cut(&mut self) {
        if self.closing.is_none() && self.next > self.first {
            let end = self.next.min(self.first + self.packets);
            self.closing = Some(Closing { end, settled: None });
        }
    }

    /// Whether the window has ended and only waits for late reports.
    pub fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether the feedback contains a loss in or behind this window.
    pub(crate) fn concerns(&self, feedback: &Feedback<'_>) -> bool {
        feedback.lost.iter().any(|l| l.first.saturating_add(u64::from(l.count)) > self.first)
    }

    /// Losses reported so far from the window's first packet on.
    pub fn lost(&self) -> u64 {
        self.reported
    }

    /// Losses among them that the receiving host has not counted as its drops.
    pub(crate) fn unexplained(&self) -> u64 {
        self.reported.saturating_sub(self.host_drops)
    }

    /// Packets sent from the window's first on.
    pub fn sent(&self) -> u64 {
        self.next - self.first
    }

    /// When the window's first packet was sent.
    pub fn started(&self) -> Time {
        self.started
    }

    /// Records sent packets.
    pub fn on_sent(&mut self, sent: &Sent) {
        if self.next == self.first {
            self.started = sent.now;
        }
        self.next = self.next.max(sent.first.saturating_add(u64::from(sent.count)));
        let full = self.next - self.first >= self.packets;
        if full || sent.now.since(self.started) >= self.longest {
            self.cut();
        }
    }

    /// Takes a feedback; returns the window that it completes.
    pub fn on_feedback(&mut self, feedback: &Feedback<'_>) -> Option<LossWindow> {
        self.host_drops = self.host_drops.saturating_add(feedback.host_drops);
        if self.closing.is_some() {
            self.late_drops = self.late_drops.saturating_add(feedback.host_drops);
        }
        for loss in feedback.lost {
            let end = loss.first.saturating_add(u64::from(loss.count)).min(self.next);
            self.lose(loss.first.max(self.first), end);
        }
        let now = feedback.now;
        let closing = self.closing.as_mut()?;
        if closing.settled.is_none() && feedback.largest_acked.is_some_and(|a| a >= closing.end - 1)
        {
            let rtt = feedback.rtt.map_or(Duration::ZERO, |rtt| rtt.smoothed.min(MAX_RTT));
            closing.settled = Some(now + (rtt / 4).max(MIN_SETTLE));
        }
        let end = closing.end;
        closing.settled.is_some_and(|at| now >= at).then(|| self.close(now, end))
    }

    fn lose(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let count = self.lost.len();
        self.reported += end - first;
        match self.lost.last_mut() {
            Some(last) if last.1 == first => last.1 = end,
            _ if count < MAX_LOSS_RANGES => self.lost.push((first, end)),
            _ => {}
        }
    }

    fn close(&mut self, now: Time, end: u64) -> LossWindow {
        let (first, number) = (self.first, self.number);
        let inside = self.lost.iter().filter(|(a, _)| *a < end);
        let lost = inside.map(|(a, b)| (a - first) as usize..(b.min(&end) - first) as usize);
        let signature = Signature::from_lost((end - first) as usize, lost).unwrap_or_default();
        // Drops are reported before the losses that they caused. Drops reported last that exceed
        // this window's losses belong to later packets.
        let excess = self.host_drops.saturating_sub(signature.lost() as u64).min(self.late_drops);
        let host_drops = Some(self.host_drops - excess);
        let behind: Vec<_> =
            self.lost.iter().filter(|(_, b)| *b > end).map(|(a, b)| ((*a).max(end), *b)).collect();
        self.begin(now, end);
        self.reported = behind.iter().map(|(a, b)| b - a).sum();
        (self.lost, self.host_drops) = (behind, excess);
        LossWindow { number, signature, host_drops }
    }

    fn begin(&mut self, now: Time, first: u64) {
        (self.number, self.first, self.started) = (self.number + 1, first, now);
        self.lost.clear();
        self.reported = 0;
        (self.host_drops, self.late_drops) = (0, 0);
        self.closing = None;
    }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
