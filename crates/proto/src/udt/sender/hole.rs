//! What the flow window allows while a loss is repaired.
//!
//! W is what leaves in a round trip and a SYN. Acknowledgements are cumulative, so when one packet
//! is lost they stand still for the round trip that its repetition takes, and a window counted from
//! there is used up a SYN after the report: each loss would stop the flow for nearly a round trip,
//! though all behind the hole arrives. (It stops the stock library so.) The paper's window is about
//! what is sent with no word of how the network does; here there is word, the report: what it ends
//! in has arrived. So while the acknowledgement stands at a reported loss, the window is counted
//! from the last unit that there was word of, and grows by what the rate allows since, for one
//! window at most. Losses come in while others are repaired; that one of them is repaired says
//! nothing of those behind it and takes nothing back. The simulator's sender of single packets
//! keeps to the letter.

use packtrain_units::{ByteCount, DataRate, Time};

/// A reported loss that is not acknowledged yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hole {
    /// Units below this include a reported loss.
    end: u64,
    /// There was word of units up to here: they were acknowledged, or reported with what is
    /// missing among them.
    heard: u64,
    /// When that word came.
    since: Time,
}

impl Hole {
    /// `..end` ends in a reported loss, behind which something has arrived.
    pub(super) fn on_nak(&mut self, now: Time, end: u64) {
        self.end = self.end.max(end);
        self.hear(now, end + 1);
    }

    pub(super) fn on_ack(&mut self, now: Time, acked: u64) {
        self.hear(now, acked);
    }

    fn hear(&mut self, now: Time, heard: u64) {
        if heard > self.heard {
            (self.heard, self.since) = (heard, now);
        }
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
        let Some(rate) = rate.filter(|_| acked < self.end) else { return 0 };
        let unheard = rate.bytes_in(now.since(self.since)).get() / datagram.get().max(1);
        self.heard.saturating_sub(acked) + unheard.min(window)
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
        hole.on_ack(at(90), 11);
        hole.on_nak(at(100), 12);
        assert_eq!(room(&hole, 130, 11), 2 + 30);
        assert_eq!(room(&hole, 400, 11), 2 + 50, "at most a window without a word");
        assert_eq!(hole.room(at(400), 11, 50, None, datagram), 0, "slow start");
        hole.on_nak(at(120), 40);
        assert_eq!(room(&hole, 130, 11), 30 + 10, "word of what is behind");
        hole.on_nak(at(125), 12);
        hole.on_ack(at(125), 39);
        assert_eq!(room(&hole, 130, 39), 2 + 10, "the repair of one is no news of the other");
        assert_eq!(room(&hole, 160, 40), 0, "all is repaired");
    }
}
