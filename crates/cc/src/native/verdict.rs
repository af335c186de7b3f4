//! Classifies the losses of a round: host drops, random loss, or congestion.

use crate::native::signals::Round;

/// Share of the losses that host drops must explain.
const HOST_SHARE: f64 = 0.8;
/// A host that coalesces datagrams counts dropped buffers, of up to this many datagrams each. They
/// are assumed to explain the losses only while no queue indicates another cause.
const MAX_COALESCED: f64 = 44.0;
/// Loss is congestion when it exceeds the loss at an empty queue by this share.
const CONGESTIVE_EXCESS: f64 = 0.01;
/// Loss that exceeds the loss at an empty queue by this share is congestion without a visible queue
/// too, while the flow sends at least `PUSHING` of the highest rate delivered: a buffer of less than
/// half a millisecond, or a policer.
const UNSEEN_EXCESS: f64 = 0.03;
const PUSHING: f64 = 0.97;
/// Loss above this for two rounds is congestion in any case.
const BACKSTOP: f64 = 0.2;
/// The queue is full above this fraction of its observed range.
const FULL_SHARE: f64 = 0.8;
/// A queue above this, in seconds, is more than noise.
const VISIBLE: f64 = 5e-4;
/// Half-life of the highest queue and of the losses by queue, in seconds: an old peak is forgotten.
const HALF_LIFE: f64 = 10.0;
/// Losses depend on the queue when their shares at a long and at a short queue differ by this many
/// standard deviations, and at least this many packets were seen at each.
const DEVIATIONS: f64 = 4.0;
const MIN_CONTRAST_PACKETS: f64 = 100.0;

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
    /// Packets and losses at less than half of the highest queue, and at more.
    contrast: [(f64, f64); 2],
    /// The highest delivery rate, which fades like the queue, in bytes per second.
    fastest: f64,
    judged_at: f64,
    /// The queue one round ago, when the packets now known as lost were sent.
    queue_before: f64,
    heavy: u32,
    last: Cause,
}

impl Judge {
    pub(super) fn last(&self) -> Cause {
        self.last
    }

    /// Whether losses at a queue of `queue` seconds count beside others: it is visible, and more than
    /// half of the highest.
    pub(super) fn is_full(&self, queue: f64) -> bool {
        queue > VISIBLE.max(self.highest_queue / 2.0)
    }

    pub(super) fn judge(&mut self, round: &Round) -> Cause {
        let loss = round.loss();
        let decay = (-(round.at - self.judged_at).max(0.0) / HALF_LIFE).exp2();
        self.judged_at = round.at;
        self.highest_queue = (self.highest_queue * decay).max(round.queue);
        let queue = round.queue.max(std::mem::replace(&mut self.queue_before, round.queue));
        let empty = queue < 2e-4 + round.base / 100.0;
        self.fastest = (self.fastest * decay).max(round.delivered);
        // What is lost while the flow sends as much as was ever delivered may be its own doing.
        let learns = loss < UNSEEN_EXCESS || !self.is_pushing(round);
        if empty && learns && round.arrived >= 16.0 && round.host <= 0.0 {
            self.idle_loss += (loss - self.idle_loss) / 4.0;
        }
        let side = &mut self.contrast[usize::from(queue > self.highest_queue / 2.0)];
        side.0 += round.arrived + round.lost;
        side.1 += (round.lost - round.host).max(0.0);
        self.contrast = self.contrast.map(|(packets, lost)| (packets * decay, lost * decay));
        self.heavy = if loss > BACKSTOP { self.heavy + 1 } else { 0 };
        let cause = self.cause(round, loss, queue, empty);
        if cause != Cause::None {
            self.last = cause;
        }
        cause
    }

    fn is_pushing(&self, round: &Round) -> bool {
        round.sent > PUSHING * self.fastest
    }

    /// Whether losses depend on the queue, however short it is: those at random do not.
    fn depends_on_queue(&self) -> bool {
        let [(few, fewer_lost), (many, more_lost)] = self.contrast;
        if few < MIN_CONTRAST_PACKETS || many < MIN_CONTRAST_PACKETS {
            return false;
        }
        let share = (fewer_lost + more_lost) / (few + many);
        let deviation = (share * (1.0 - share).max(0.0) * (1.0 / few + 1.0 / many)).sqrt();
        more_lost / many - fewer_lost / few > DEVIATIONS * deviation
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
        let unseen = loss - self.idle_loss > UNSEEN_EXCESS.max(round.loss_uncertainty())
            && self.is_pushing(round);
        let dependent = queue > self.highest_queue / 2.0 && self.depends_on_queue();
        if (full && loss > self.idle_loss + round.loss_uncertainty())
            || (beyond_doubt && !empty)
            || dependent
            || unseen
        {
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

    /// Rounds of a tenth of a second with a queue in ms, as (queue, losses of 1,000 packets).
    fn judge_all(judge: &mut Judge, rounds: u32, of: impl Fn(u32) -> (f64, f64)) -> Vec<Cause> {
        let played = (0..rounds).map(|i| {
            let (queue, lost) = of(i);
            let (at, queue) = (f64::from(i) / 10.0, queue / 1e3);
            let arrived = 1_000.0 - lost;
            Round {
                at,
                queue,
                base: 0.01,
                arrived,
                lost,
                sent: 1e7,
                delivered: 1e4 * arrived,
                ..Round::default()
            }
        });
        played.map(|round| judge.judge(&round)).collect()
    }

    #[test]
    fn losses_that_depend_on_a_queue_of_a_millisecond_are_ours() {
        let of = |i: u32| if i % 8 >= 6 { (1.2, 6.0) } else { (0.0, 0.0) };
        let causes = judge_all(&mut Judge::default(), 100, of);
        assert!(causes[60..].contains(&Cause::Congestion));
        let random = judge_all(&mut Judge::default(), 100, |i| (f64::from(i % 8) / 7.0, 6.0));
        assert!(random.iter().all(|cause| *cause == Cause::Random), "at any queue: {random:?}");
    }

    #[test]
    fn an_old_peak_of_the_queue_is_forgotten_within_half_a_minute() {
        let mut judge = Judge::default();
        judge_all(&mut judge, 1, |_| (200.0, 0.0));
        judge_all(&mut judge, 300, |i| (f64::from(i % 8), 0.0));
        assert!(judge.highest_queue < 0.05, "{judge:?}");
    }

    #[test]
    fn heavy_loss_without_a_visible_queue_is_ours_until_less_sent_loses_as_much() {
        let mut judge = Judge::default();
        let causes = judge_all(&mut judge, 40, |_| (0.0, 100.0));
        assert!(causes.iter().all(|cause| *cause == Cause::Congestion), "{causes:?}");
        // Half of it loses the same share.
        for i in 0..20 {
            let at = 4.0 + f64::from(i) / 10.0;
            let round = Round {
                at,
                base: 0.01,
                arrived: 450.0,
                lost: 50.0,
                sent: 5e6,
                delivered: 4.5e6,
                ..Round::default()
            };
            assert_eq!(judge.judge(&round), Cause::Random);
        }
        assert!(judge.idle_loss > 0.09, "{judge:?}");
    }
}
