//! Whether the losses of a SYN allow an increase (section III.C).

use super::average::Average;
use super::variant::Variant;

/// The loss rate at and above which the rate does not grow.
const THRESHOLD: f64 = 0.01;

/// The losses and the sent packets of a SYN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    variant: Variant,
    sent: u64,
    /// As counted in NAKs: packets reported twice count twice.
    lost: u64,
    /// Whether any packet was acknowledged.
    any_acked: bool,
    loss_rate: Average,
    /// The decision at the end of the last SYN.
    is_open: bool,
}

impl Gate {
    pub(super) fn new(variant: Variant) -> Self {
        let loss_rate = Average::from(0.0);
        Self { variant, sent: 0, lost: 0, any_acked: false, loss_rate, is_open: true }
    }

    pub(super) fn on_sent(&mut self, packets: u64) {
        self.sent = self.sent.saturating_add(packets);
    }

    pub(super) fn on_lost(&mut self, packets: u64) {
        self.lost = self.lost.saturating_add(packets);
    }

    pub(super) fn on_acked(&mut self) {
        self.any_acked = true;
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether hardly any loss occurred recently: below a tenth of the threshold.
    pub(super) fn is_clean(&self) -> bool {
        self.lost == 0 && self.loss_rate.get().is_none_or(|rate| rate < THRESHOLD / 10.0)
    }

    /// Ends a SYN; returns whether the rate may grow. A SYN in which no packet was sent, such as a
    /// frozen one, has no loss rate; its losses count in the next.
    pub(super) fn end_of_syn(&mut self) -> bool {
        if self.sent > 0 || self.variant == Variant::Udt4 {
            self.is_open = self.judge();
            (self.sent, self.lost, self.any_acked) = (0, 0, false);
        }
        self.is_open
    }

    fn judge(&mut self) -> bool {
        let share = match self.variant {
            // Integer division: nearly always zero.
            Variant::Ns2 => (self.lost / self.sent.max(1)) as f64,
            _ => self.lost as f64 / self.sent.max(1) as f64,
        };
        self.loss_rate.add(share.min(1.0));
        match self.variant {
            // UDT4 has no threshold: it skips the SYN after a NAK, and those without feedback.
            Variant::Udt4 => self.lost == 0 && self.any_acked,
            _ => self.loss_rate.get().is_some_and(|rate| rate < THRESHOLD),
        }
    }
}
