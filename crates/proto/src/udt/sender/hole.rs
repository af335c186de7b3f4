//! What the flow window allows while a loss is repaired.
//!
//! W is what leaves in a round trip and a SYN. Acknowledgements are cumulative, so when one packet
//! is lost they stand still for the round trip that its repetition takes, and a window counted from
//! there is used up a SYN after the report: each loss would stop the flow for nearly a round trip,
//! though all behind the hole arrives. (It stops the stock library so.) The paper's window is about
//! what is sent with no word of how the network does; here there is word, the report. So while the
//! acknowledgement stands at a reported loss, the window grows by what the rate allows, for one
//! window at most. The simulator's sender of single packets keeps to the letter.

use packtrain_units::{ByteCount, DataRate, Time};

/// A reported loss that is not acknowledged yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hole {
    /// Units below this include a reported loss.
    end: u64,
    /// When it was reported, or when the acknowledgement last moved.
    since: Time,
}

impl Hole {
    pub(super) fn on_nak(&mut self, now: Time, acked: u64, end: u64) {
        if !self.is_open(acked) {
            self.since = now;
        }
        self.end = self.end.max(end);
    }

    pub(super) fn on_ack(&mut self, now: Time) {
        self.since = now;
    }

    /// Units beyond the window `window`, acknowledgements standing at `acked`.
    pub(super) fn room(
        &self,
        now: Time,
        acked: u64,
        window: u64,
        rate: Option<DataRate>,
        datagram: ByteCount,
    ) -> u64 {
        let Some(rate) = rate.filter(|_| self.is_open(acked)) else { return 0 };
        (rate.bytes_in(now.since(self.since)).get() / datagram.get().max(1)).min(window)
    }

    fn is_open(&self, acked: u64) -> bool {
        acked < self.end
    }
}

#[cfg(test)]
mod tests {
    use packtrain_units::Duration;

    use super::*;

    #[test]
    fn a_repair_lets_the_rate_go_on_for_one_window() {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        // 1,000 packets a second.
        let (rate, datagram) = (Some(DataRate::from_bps(8_000_000)), ByteCount(1_000));
        let mut hole = Hole::default();
        let room = |hole: &Hole, ms, acked| hole.room(at(ms), acked, 50, rate, datagram);
        assert_eq!(room(&hole, 100, 0), 0, "no loss");
        hole.on_nak(at(100), 10, 12);
        assert_eq!(room(&hole, 130, 11), 30);
        assert_eq!(room(&hole, 400, 11), 50, "at most a window");
        assert_eq!(hole.room(at(400), 11, 50, None, datagram), 0, "slow start");
        hole.on_nak(at(120), 11, 40);
        assert_eq!(room(&hole, 130, 11), 30, "the same repair");
        hole.on_ack(at(150));
        assert_eq!(room(&hole, 160, 13), 10, "the window moved");
        assert_eq!(room(&hole, 160, 40), 0, "all is repaired");
    }
}
