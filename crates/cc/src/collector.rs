//! Loss signatures from what a controller is told.
//!
//! Every feedback tells which send indices were lost, so the signature of consecutive
//! transmissions can be collected under any of them. Retransmissions are packets like others.

use packtrain_loss::Signature;
use packtrain_units::{Duration, Time};

use crate::interface::{Feedback, LossWindow, Sent};

/// Most loss ranges kept of one window. More than every other packet of one of 97,656 packets;
/// what is beyond counts as received.
const MAX_LOSS_RANGES: usize = 1 << 16;
/// How long after the last packet of a window was acknowledged, or one after it, losses of the
/// window and the receiving host's drops may still be told: a quarter of a round trip, at least.
const SETTLE: Duration = Duration::from_millis(20);
/// The smoothed round trip is not believed to be longer.
const MAX_RTT: Duration = Duration::from_secs(10);

/// Collects the windows of one flow.
#[derive(Debug)]
pub struct Collector {
    number: u64,
    /// Send index of the window's first packet.
    first: u64,
    /// Behind the last that was sent.
    next: u64,
    packets: u64,
    longest: Duration,
    started: Time,
    /// Lost ranges from `first` on, behind the window's end too.
    lost: Vec<(u64, u64)>,
    /// How many packets these are.
    told: u64,
    host_drops: u64,
    /// Those of them that were told while the window waited for its end.
    late_drops: u64,
    closing: Option<Closing>,
}

/// A window of which everything was sent.
#[derive(Clone, Copy, Debug)]
struct Closing {
    end: u64,
    /// Everything is told by then.
    settled: Option<Time>,
}

impl Collector {
    /// Windows of so many packets, or of what was sent in `longest`.
    pub fn new(now: Time, packets: u64, longest: Duration) -> Self {
        Self {
            number: 0,
            first: 0,
            next: 0,
            packets: packets.clamp(1, Signature::MAX_PACKETS as u64),
            longest,
            started: now,
            lost: Vec::new(),
            told: 0,
            host_drops: 0,
            late_drops: 0,
            closing: None,
        }
    }

    /// How many packets the next window has, and this one if it is not full.
    pub fn set_packets(&mut self, packets: u64) {
        self.packets = packets.clamp(1, Signature::MAX_PACKETS as u64);
    }

    /// Forgets everything that was sent so far.
    pub fn restart(&mut self, now: Time) {
        self.begin(now, self.next);
    }

    /// Ends the window with what was sent so far.
    pub fn cut(&mut self) {
        if self.closing.is_none() && self.next > self.first {
            let end = self.next.min(self.first + self.packets);
            self.closing = Some(Closing { end, settled: None });
        }
    }

    /// Whether the window is ended, and only waits for the last news of it.
    pub fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether a loss told here lies in this window or behind it.
    pub fn concerns(&self, feedback: &Feedback<'_>) -> bool {
        feedback.lost.iter().any(|l| l.first.saturating_add(u64::from(l.count)) > self.first)
    }

    /// Losses told so far from the window's first packet on.
    pub fn lost(&self) -> u64 {
        self.told
    }

    /// Those of them that the receiving host has not counted.
    pub fn unexplained(&self) -> u64 {
        self.told.saturating_sub(self.host_drops)
    }

    /// Packets sent from the window's first on.
    pub fn sent(&self) -> u64 {
        self.next - self.first
    }

    /// When the window's first packet left.
    pub fn started(&self) -> Time {
        self.started
    }

    /// Packets left.
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

    /// Takes what is told; gives the window that this ends.
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
            closing.settled = Some(now + (rtt / 4).max(SETTLE));
        }
        let end = closing.end;
        closing.settled.is_some_and(|at| now >= at).then(|| self.close(now, end))
    }

    fn lose(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let count = self.lost.len();
        self.told += end - first;
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
        // Drops are told before the losses that they made. Of those told last, what this window did
        // not lose is of packets behind it.
        let excess = self.host_drops.saturating_sub(signature.lost() as u64).min(self.late_drops);
        let host_drops = Some(self.host_drops - excess);
        let behind: Vec<_> =
            self.lost.iter().filter(|(_, b)| *b > end).map(|(a, b)| ((*a).max(end), *b)).collect();
        self.begin(now, end);
        self.told = behind.iter().map(|(a, b)| b - a).sum();
        (self.lost, self.host_drops) = (behind, excess);
        LossWindow { number, signature, host_drops }
    }

    fn begin(&mut self, now: Time, first: u64) {
        (self.number, self.first, self.started) = (self.number + 1, first, now);
        self.lost.clear();
        self.told = 0;
        (self.host_drops, self.late_drops) = (0, 0);
        self.closing = None;
    }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
