//! Recovery without SACK (RFC 6582), the slow-but-steady variant: each partial acknowledgement
//! repairs one loss and restarts the retransmission timer.

use super::input::Delivered;
use super::sender::{Phase, Sender};

/// Duplicate acknowledgements after which the first unacknowledged segment is lost.
const DUP_THRESH: u64 = 3;

/// Additional state.
#[derive(Clone, Debug, Default)]
pub(super) struct NewReno {
    duplicates: u64,
    /// Inflation of the window for segments that left the network.
    inflation: u64,
    /// No recovery begins before all segments below are acknowledged.
    recover: u64,
}

impl NewReno {
    /// Number of segments that left the network but are not identified.
    #[inline]
    pub(super) fn duplicates(&self) -> u64 {
        self.duplicates
    }

    pub(super) fn inflation(&self) -> u64 {
        self.inflation
    }

    /// A recovery, or the time after a timeout, is over.
    pub(super) fn leave(&mut self) {
        (self.duplicates, self.inflation) = (0, 0);
    }
}

impl Sender {
    pub(super) fn newreno_ack(&mut self, number: u64, delivered: &mut Delivered) {
        let repairing = match self.phase {
            Phase::Recovery(until) => Some(until),
            Phase::Loss(_) => return,
            Phase::Open => None,
        };
        if delivered.advanced > 0 {
            match repairing {
                Some(until) if number < until => self.newreno_partial(delivered),
                _ => self.newreno.leave(),
            }
        } else if self.outstanding() > 0 {
            self.newreno.duplicates += 1;
            match repairing {
                Some(_) => self.newreno.inflation += 1,
                None if self.newreno.duplicates == DUP_THRESH
                    && self.una >= self.newreno.recover =>
                {
                    self.newreno.inflation = DUP_THRESH;
                    self.newreno.recover = self.nxt;
                    self.lose_una(delivered);
                }
                None => {}
            }
        }
    }

    /// Section 3.2 step 3: the next segment is lost too; the window is deflated by the acknowledged
    /// segments, and inflated by the one to be sent.
    fn newreno_partial(&mut self, delivered: &mut Delivered) {
        let newreno = &mut self.newreno;
        newreno.inflation = (newreno.inflation + 1).saturating_sub(delivered.advanced);
        newreno.duplicates = (newreno.duplicates + 1).saturating_sub(delivered.advanced);
        self.lose_una(delivered);
        self.forced = 1;
    }

    fn lose_una(&mut self, delivered: &mut Delivered) {
        let una = self.una;
        if self.board.again(una).is_none() {
            self.board.judged = self.board.judged.max(una + 1);
            delivered.lost = self.lose_run(una, una + 1) > 0;
        }
    }
}
