//! Classifies the losses of a round: host drops, random loss, or congestion.

use crate::native::signals::Round;

/// Share of the losses that host drops must explain.
const HOST_SHARE: f64 = 0.8;
/// A host that coalesces datagrams counts dropped buffers, of up to this many datagrams each. They
/// are assumed to explain the losses only while no queue indicates another cause.
const MAX_COALESCED: f64 = 44.0;
/// Loss is congestion when it exceeds the loss at an empty queue by this share.
const CONGESTIVE_EXCESS: f64 = 0.01;
/// Loss above this for two rounds is congestion in any case.
const BACKSTOP: f64 = 0.2;
/// The queue is full above this fraction of its observed range.
const FULL_SHARE: f64 = 0.8;
/// The observed range of the queue decays by this factor per round, so that an old peak is
/// forgotten.
const RANGE_DECAY: f64 = 0.999;

/// The cause of a round's losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cause {
    /// No losses.
    #[default]
    None,
    /// The receiving host dropped or refused them: no cut.
    Host,
    /// The path loses them at any rate: repair only.
    Random,
    /// This flow, or others, filled the queue: cut.
    Congestion,
    /// Very heavy loss: fall to the delivered rate.
    Backstop,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Host => "the receiving host",
            Self::Random => "random",
            Self::Congestion => "congestion",
            Self::Backstop => "persistent",
        })
    }
}

/// Classifies rounds, and learns the loss at an empty queue.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// Loss in rounds with an empty queue.
    idle_loss: f64,
    highest_queue: f64,
    /// The queue one round ago, when the packets now known as lost were sent.
    queue_before: f64,
    heavy: u32,
    last: Cause,
}

impl Judge {
    pub(super) fn last(&self) -> Cause {
        self.last
    }

    pub(super) fn judge(&mut self, round: &Round) -> Cause {
        let loss = round.loss();
        self.highest_queue = (self.highest_queue * RANGE_DECAY).max(round.queue);
        let queue = round.queue.max(std::mem::replace(&mut self.queue_before, round.queue));
        let empty = queue < 2e-4 + round.base / 100.0;
        if empty && round.arrived >= 16.0 && round.host <= 0.0 {
            self.idle_loss += (loss - self.idle_loss) / 4.0;
        }
        self.heavy = if loss > BACKSTOP { self.heavy + 1 } else { 0 };
        let cause = self.cause(round, loss, queue, empty);
        if cause != Cause::None {
            self.last = cause;
        }
        cause
    }

    fn cause(&self, round: &Round, loss: f64, queue: f64, empty: bool) -> Cause {
        if self.heavy >= 2 {
            return Cause::Backstop;
        }
        // A queue says so itself: no doubt is possible (RFC 3168).
        if round.marked > 0.0 {
            return Cause::Congestion;
        }
        if round.host > 0.0 && round.host >= HOST_SHARE * round.lost {
            return Cause::Host;
        }
        if round.refused > 0.0 && round.lost < round.refused / 4.0 {
            return Cause::Host;
        }
        if loss <= 0.0 {
            return Cause::None;
        }
        // A queue counts as full only where one was visible at all.
        let seen = self.highest_queue > 2e-3_f64.max(round.base / 16.0);
        let full = seen && queue > FULL_SHARE * self.highest_queue;
        if round.host > 0.0 && round.host * MAX_COALESCED >= HOST_SHARE * round.lost && !full {
            return Cause::Host;
        }
        let beyond_doubt = loss - self.idle_loss > CONGESTIVE_EXCESS.max(round.loss_uncertainty());
        if (full && loss > self.idle_loss + round.loss_uncertainty()) || (beyond_doubt && !empty) {
            Cause::Congestion
        } else {
            Cause::Random
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(queue_ms: f64, lost: f64, host: f64) -> Round {
        Round {
            queue: queue_ms / 1e3,
            base: 0.1,
            arrived: 10_000.0 - lost,
            lost,
            host,
            ..Round::default()
        }
    }

    #[test]
    fn one_in_a_hundred_with_an_empty_queue_is_random() {
        let mut judge = Judge::default();
        for _ in 0..20 {
            assert_eq!(judge.judge(&round(0.0, 100.0, 0.0)), Cause::Random);
        }
    }

    #[test]
    fn a_mark_is_congestion_without_a_loss_and_without_a_visible_queue() {
        let marked = Round { marked: 1.0, ..round(0.0, 0.0, 0.0) };
        assert_eq!(Judge::default().judge(&marked), Cause::Congestion);
    }

    #[test]
    fn losses_at_a_full_queue_are_ours() {
        let mut judge = Judge::default();
        (0..5).for_each(|i| {
            assert_eq!(judge.judge(&round(f64::from(i) * 10.0, 0.0, 0.0)), Cause::None)
        });
        assert_eq!(judge.judge(&round(48.0, 60.0, 0.0)), Cause::Congestion);
    }

    #[test]
    fn a_host_that_counts_joined_buffers_is_believed_where_no_queue_is_full() {
        let mut judge = Judge::default();
        assert_eq!(judge.judge(&round(0.0, 320.0, 20.0)), Cause::Host);
        assert_eq!(judge.judge(&round(0.0, 320.0, 1.0)), Cause::Random, "too few by far");
        (0..5).for_each(|i| {
            judge.judge(&round(f64::from(i) * 10.0, 0.0, 0.0));
        });
        assert_eq!(judge.judge(&round(48.0, 320.0, 20.0)), Cause::Congestion);
    }

    #[test]
    fn the_host_and_the_backstop_are_told_apart() {
        let mut judge = Judge::default();
        assert_eq!(judge.judge(&round(30.0, 100.0, 90.0)), Cause::Host);
        assert_ne!(judge.judge(&round(0.0, 4000.0, 0.0)), Cause::Backstop);
        assert_eq!(judge.judge(&round(0.0, 4000.0, 0.0)), Cause::Backstop);
    }
}
