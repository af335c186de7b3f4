//! Explicit congestion notification: whether the path carries the marks (RFC 9000 section 13.4.2).
//!
//! A sender marks its data packets ECT(0). The receiver reports how many packets came with ECT(0)
//! and with CE. A path that clears the marks, changes them or drops marked packets ends the
//! marking. Control packets are never marked, so such a path still carries them.

/// ECT(0), the mark of a sender that understands congestion marks (RFC 3168).
pub(crate) const ECT0: u8 = 2;
/// Congestion experienced.
pub(crate) const CE: u8 = 3;

/// Marked packets after which a path that delivered none of them, or all with CE, does not carry
/// marks (RFC 9000 appendix A.4 tests as many).
const TEST_PACKETS: u64 = 10;

/// The receiver's totals of the two marks, over data packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EcnCounts {
    pub(crate) ect0: u64,
    pub(crate) ce: u64,
}

/// The sender's side of the validation.
#[derive(Debug)]
pub(crate) struct Ecn {
    marks: bool,
    /// Marked packets sent, acknowledged, and lost before any was acknowledged.
    sent: u64,
    acked: u64,
    lost: u64,
    reported: EcnCounts,
}

impl Ecn {
    /// A sender that marks, or not.
    pub(crate) fn new(marks: bool) -> Self {
        Self { marks, sent: 0, acked: 0, lost: 0, reported: EcnCounts::default() }
    }

    /// The bits for data packets.
    pub(crate) fn bits(&self) -> u8 {
        if self.marks { ECT0 } else { 0 }
    }

    /// Data packets were sent with `bits`.
    pub(crate) fn on_sent(&mut self, packets: u64) {
        if self.marks {
            self.sent += packets;
        }
    }

    /// Data packets were acknowledged for the first time.
    pub(crate) fn on_acked(&mut self, packets: u64) {
        self.acked += packets;
    }

    /// Data packets were lost.
    pub(crate) fn on_lost(&mut self, packets: u64) {
        if self.marks && self.acked == 0 {
            self.lost += packets;
            // A path may drop what is marked, and nothing else shows that.
            self.marks = self.lost < TEST_PACKETS;
        }
    }

    /// Takes the totals of the newest report. Returns how many packets newly came with CE, if the
    /// path carries the marks.
    pub(crate) fn on_report(&mut self, counts: EcnCounts) -> u64 {
        let ce = counts.ce.saturating_sub(self.reported.ce);
        self.reported = counts;
        if !self.marks {
            return 0;
        }
        let marked = counts.ect0.saturating_add(counts.ce);
        let cleared = marked < self.acked.min(self.sent);
        let invented = marked > self.sent;
        let all = self.acked >= TEST_PACKETS && counts.ect0 == 0;
        self.marks = !(cleared || invented || all);
        if self.marks { ce } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(acked: u64, ect0: u64, ce: u64) -> (bool, u64) {
        let mut ecn = Ecn::new(true);
        ecn.on_sent(100);
        ecn.on_acked(acked);
        let new = ecn.on_report(EcnCounts { ect0, ce });
        (ecn.bits() == ECT0, new)
    }

    #[test]
    fn marks_that_arrive_are_believed() {
        assert_eq!(report(20, 20, 0), (true, 0));
        assert_eq!(report(20, 15, 5), (true, 5));
        assert_eq!(report(20, 25, 0), (true, 0), "some are not acknowledged yet");
    }

    #[test]
    fn a_path_that_changes_them_ends_the_marking() {
        assert_eq!(report(20, 0, 0), (false, 0), "cleared");
        assert_eq!(report(20, 14, 5), (false, 0), "one cleared");
        assert_eq!(report(20, 101, 0), (false, 0), "more than were sent");
        assert_eq!(report(20, 0, 20), (false, 0), "all of them congested");
    }

    #[test]
    fn a_path_that_drops_marked_packets_ends_the_marking() {
        let mut ecn = Ecn::new(true);
        ecn.on_sent(50);
        ecn.on_lost(9);
        assert_eq!(ecn.bits(), ECT0);
        ecn.on_lost(1);
        assert_eq!(ecn.bits(), 0);
        let mut ecn = Ecn::new(true);
        ecn.on_sent(50);
        ecn.on_acked(1);
        ecn.on_lost(49);
        assert_eq!(ecn.bits(), ECT0, "they get through");
    }

    #[test]
    fn after_the_end_no_mark_counts() {
        let mut ecn = Ecn::new(true);
        ecn.on_sent(100);
        ecn.on_acked(20);
        ecn.on_report(EcnCounts::default());
        assert_eq!(ecn.on_report(EcnCounts { ect0: 10, ce: 10 }), 0);
    }
}
