//! The flow window while a loss is repaired.
//!
//! W is the data sent in a round trip and a SYN. Acknowledgements are cumulative, so after a loss
//! they stand still for the round trip of the retransmission. A window counted from there is used
//! up a SYN after the report, and each loss would stop the flow for nearly a round trip although
//! all packets behind the gap arrive. The stock library stops this way. The paper's window bounds
//! what is sent without knowledge of the network; a loss report is such knowledge, because the unit
//! at its end has arrived. While the acknowledgement stands at a reported loss, the window is
//! therefore counted from the last unit known to have arrived, and grows by what the rate allows
//! since then, for at most one window. Further losses occur during the repair; the repair of one
//! gives no information about those behind it and does not reduce the window. The simulator's
//! sender of single packets follows the paper exactly.

use packtrain_units::{ByteCount, DataRate, Time};

/// A reported loss that is not acknowledged yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hole {
    /// Units below this include a reported loss.
    end: u64,
    /// Units up to here are acknowledged, or covered by a report of the missing ones among them.
    heard: u64,
    /// When that was last extended.
    since: Time,
}

impl Hole {
    /// `..end` ends in a reported loss, behind which a unit has arrived.
    pub(super) fn on_nak(&mut self, now: Time, end: u64) {
        self.end = self.end.max(end);
        self.extend(now, end + 1);
    }

    pub(super) fn on_ack(&mut self, now: Time, acked: u64) {
        self.extend(now, acked);
    }

    fn extend(&mut self, now: Time, heard: u64) {
        if heard > self.heard {
            (self.heard, self.since) = (heard, now);
        }
    }

    /// Units that may be sent beyond the window `window`, while acknowledgements stand at `acked`.
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
