//! Proportional rate reduction (RFC 6937 section 3), in segments.

/// The state during one recovery.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prr {
    /// RecoverFS: in flight at the start.
    flight: u64,
    ssthresh: u64,
    delivered: u64,
    out: u64,
    /// Segments that may still be sent for this acknowledgement.
    pub(super) allowance: u64,
}

impl Prr {
    pub(super) fn new(flight: u64, ssthresh: u64) -> Self {
        Self { flight: flight.max(1), ssthresh, delivered: 0, out: 0, allowance: 0 }
    }

    /// An acknowledgement delivered `delivered` segments and left `pipe` in flight. `advanced`
    /// means that the cumulative number rose and no new loss was found: then slow start applies,
    /// else packet conservation.
    pub(super) fn acknowledged(&mut self, delivered: u64, pipe: u64, advanced: bool) {
        self.delivered += delivered;
        let count = if pipe > self.ssthresh {
            (self.delivered * self.ssthresh).div_ceil(self.flight).saturating_sub(self.out)
        } else {
            let conserved = self.delivered.saturating_sub(self.out);
            let limit = if advanced { conserved.max(delivered) + 1 } else { conserved };
            limit.min(self.ssthresh - pipe)
        };
        // The first retransmission is always allowed.
        self.allowance = count.max(u64::from(self.out == 0));
    }

    /// Segments were sent.
    pub(super) fn sent(&mut self, count: u64) {
        self.out += count;
        self.allowance = self.allowance.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loss_of_a_hundred_sends_in_proportion_and_ends_at_the_threshold() {
        let (mut prr, mut pipe, mut sent) = (Prr::new(100, 70), 99u64, 0);
        // 98 segments arrive behind the lost one: one SACK for each.
        for _ in 0..98 {
            pipe -= 1;
            prr.acknowledged(1, pipe, false);
            let now = prr.allowance;
            assert!(now <= 2);
            prr.sent(now);
            pipe += now;
            sent += now;
        }
        assert_eq!(sent, (98 * 70u64).div_ceil(100));
        assert!(pipe.abs_diff(70) <= 1, "{pipe}");
    }

    #[test]
    fn many_losses_grow_back_no_faster_than_slow_start() {
        let mut prr = Prr::new(100, 50);
        prr.acknowledged(1, 10, false);
        assert_eq!(prr.allowance, 1);
        prr.sent(1);
        prr.acknowledged(1, 10, true);
        assert_eq!(prr.allowance, 2);
    }
}
