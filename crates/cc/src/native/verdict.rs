//! What a round's losses were: the host's, random, or our own doing.

use crate::native::signals::Round;

/// Host drops must explain this share of the losses.
const HOST_SHARE: f64 = 0.8;
/// A host that joins datagrams counts the buffers that it drops, of up to so many each. That they
/// might explain the losses is believed only while no queue speaks for another cause.
const JOINED: f64 = 44.0;
/// Loss this far above what we see when not pushing is congestion.
const EXCESS: f64 = 0.01;
/// Loss above this for two rounds is congestion whatever else speaks against it.
const BACKSTOP: f64 = 0.2;
/// A queue in this upper part of the range seen is full.
const FULL: f64 = 0.8;
/// The range of the queue fades by this a round, so that an old peak is forgotten.
const FADE: f64 = 0.999;

/// The cause of a round's losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cause {
    /// None were lost.
    #[default]
    None,
    /// The receiving host dropped or refused them: no cut.
    Host,
    /// The path loses them whatever we do: repair only.
    Random,
    /// We, or others, filled the queue: cut.
    Congestion,
    /// Too many to argue: back to what was delivered.
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

/// Judges rounds, and learns what loss is when we do not push.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// Loss in rounds with an empty queue.
    idle_loss: f64,
    highest_queue: f64,
    /// The queue a round ago, when what is now known as lost was sent.
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
        self.highest_queue = (self.highest_queue * FADE).max(round.queue);
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
        if round.host > 0.0 && round.host >= HOST_SHARE * round.lost {
            return Cause::Host;
        }
        if round.refused > 0.0 && round.lost < round.refused / 4.0 {
            return Cause::Host;
        }
        if loss <= 0.0 {
            return Cause::None;
        }
        // A queue counts as full only where one could be seen at all.
        let seen = self.highest_queue > 2e-3_f64.max(round.base / 16.0);
        let full = seen && queue > FULL * self.highest_queue;
        if round.host > 0.0 && round.host * JOINED >= HOST_SHARE * round.lost && !full {
            return Cause::Host;
        }
        let beyond_doubt = loss - self.idle_loss > EXCESS.max(round.doubt());
        if (full && loss > self.idle_loss + round.doubt()) || (beyond_doubt && !empty) {
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
