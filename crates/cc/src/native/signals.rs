//! The measurements of one round, from the feedback in it.

use packtrain_units::Time;

use crate::interface::{Feedback, Sent};
use crate::native::reverse::ReverseDelay;

/// Minimum length of a round. Reports and threads run in steps of half a millisecond, which must
/// not look like changes of rate.
const MIN_ROUND: f64 = 4e-3;
/// A queueing delay below this, in seconds, is noise of threads and batches.
pub(super) const QUEUE_NOISE: f64 = 3e-4;
/// The longest queue that an error of the skew can show, in seconds: 200 millionths of ten seconds,
/// and noise.
const MAX_SKEW_ERROR: f64 = 2e-3 + QUEUE_NOISE;

/// The queue of a round is the minimum over its last one to two spans of this many seconds, so that
/// flows with long rounds do not see a shorter queue than those with short ones. It is not longer
/// than the shortest rounds have.
const QUEUE_SPAN: f64 = 6e-3;
/// A time without feedback that exceeds the round trip by more than `MIN_STALL`, in a round of more
/// than `MIN_STALLED_PACKETS`, is a host that waits for a processor. The window covers up to
/// `MAX_STALL` of it. What was seen fades by `STALL_DECAY` in each round.
const MIN_STALL: f64 = 6e-3;
const MAX_STALL: f64 = 64e-3;
const MIN_STALLED_PACKETS: f64 = 32.0;
const STALL_DECAY: f64 = 0.9;
/// A minimum round trip within this, in seconds, and a fiftieth of the base is the base.
const BASE_NOISE: f64 = 5e-4;
/// A minimum round trip that was not met again for this time, in seconds, is given up: the path has
/// become longer.
const BASE_AGE: f64 = 60.0;

/// Packets that arrive together were bunched by the path, not by a host or a network card, if they
/// were sent so far apart, in seconds.
const BUNCH: f64 = 5e-4;

/// The sums of one round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// When it ended, in seconds.
    pub(super) at: f64,
    /// Arrival rate, in bytes per second.
    pub(super) delivered: f64,
    /// Sending rate, in bytes per second.
    pub(super) sent: f64,
    /// The rate that was in force, in bytes per second.
    pub(super) rate: f64,
    /// Minimum queueing delay at its end, without noise, in seconds.
    pub(super) queue: f64,
    /// Number of reports in it that show bunched packets.
    pub(super) bunches: u32,
    /// Minimum round trip of ten seconds, in seconds.
    pub(super) base: f64,
    /// How much longer than usual feedback is held back at most, in seconds.
    pub(super) stall: f64,
    /// Queueing delay of the reverse direction beyond what the base contains, in seconds.
    pub(super) reverse: f64,
    /// Mean round trip, with all queues, in seconds.
    pub(super) rtt: f64,
    /// Packets that arrived, and packets lost without refused ones and spurious losses.
    pub(super) arrived: f64,
    pub(super) lost: f64,
    /// Lost packets that the receiving host dropped.
    pub(super) host: f64,
    /// Packets refused by the receiver for lack of room.
    pub(super) refused: f64,
    /// Packets marked congestion-experienced.
    pub(super) marked: f64,
    /// Capacity from dispersion, in bytes per second.
    pub(super) capacity: Option<f64>,
    /// The application, not the controller, limited the sender.
    pub(super) app_limited: bool,
}

impl Round {
    /// The round trip with its lateness, without a queue of the data: the time base of the window.
    pub(super) fn span(&self) -> f64 {
        span(self.base, self.stall) + self.reverse
    }

    /// The span, and by how much the mean queue of the data exceeds the least. Where feedback waits in a
    /// queue of the reverse direction, data comes in bursts, and the two differ.
    pub(super) fn mean_span(&self) -> f64 {
        let excess = self.rtt - self.round_trip();
        if self.reverse > 0.0 { self.span() + excess.max(0.0) } else { self.span() }
    }

    /// The round trip with the queues of both directions, in seconds.
    pub(super) fn round_trip(&self) -> f64 {
        self.base + self.reverse + self.queue
    }

    /// Share of packets lost in the network.
    pub(super) fn loss(&self) -> f64 {
        let lost = (self.lost - self.host).max(0.0);
        lost / (self.arrived + self.lost).max(1.0)
    }

    /// Three standard deviations of that share.
    pub(super) fn loss_uncertainty(&self) -> f64 {
        let n = (self.arrived + self.lost).max(1.0);
        let p = self.loss().max(1.0 / n);
        3.0 * (p * (1.0 - p).max(0.0) / n).sqrt()
    }
}

/// Sums feedback into rounds.
#[derive(Debug)]
pub(super) struct Rounds {
    sum: Round,
    /// Whether anything was sent.
    begun: bool,
    started: Time,
    sent: f64,
    acked: f64,
    least_queue: Option<f64>,
    /// The minimum of the span before, and when this one began.
    least_before: Option<f64>,
    least_from: f64,
    /// When packets were last acknowledged, the longest time without in this round, and by how much
    /// feedback is held back at most; all in seconds.
    acked_at: Option<f64>,
    longest_gap: f64,
    stall: f64,
    /// The shortest and the longest time for which feedback was held back in this round, in seconds.
    held: Option<(f64, f64)>,
    /// The newest queueing delay, in seconds.
    newest_queue: f64,
    srtt: f64,
    base: f64,
    /// Whether `base` was measured with data.
    measured: bool,
    /// When the minimum round trip was last near `base`, in seconds.
    base_met_at: f64,
    /// By how much the minimum of the last seconds exceeds `base`: standing queues of both directions.
    raised: f64,
    /// The least queue of the reverse direction of the last seconds, and what it was when the base was
    /// met, in seconds.
    reverse_least: f64,
    reverse_in_base: f64,
    reverse: ReverseDelay,
    /// The sum of the round trips of this round, in seconds, and their number.
    rtts: (f64, u32),
    queue: f64,
    base_seen_at: f64,
    over: bool,
    limited: u32,
    reports: u32,
}

impl Rounds {
    pub(super) fn new(now: Time, rtt: f64) -> Self {
        Self {
            sum: Round::default(),
            begun: false,
            started: now,
            sent: 0.0,
            acked: 0.0,
            least_queue: None,
            least_before: None,
            least_from: seconds(now),
            acked_at: None,
            longest_gap: 0.0,
            stall: 0.0,
            held: None,
            newest_queue: 0.0,
            srtt: rtt,
            base: rtt,
            measured: false,
            base_met_at: seconds(now),
            raised: 0.0,
            reverse_least: 0.0,
            reverse_in_base: 0.0,
            reverse: ReverseDelay::default(),
            rtts: (0.0, 0),
            queue: 0.0,
            base_seen_at: seconds(now),
            over: false,
            limited: 0,
            reports: 0,
        }
    }

    /// The round trip of the path, before anything was acknowledged.
    pub(super) fn on_path(&mut self, rtt: f64) {
        (self.srtt, self.base) = (rtt, rtt);
    }

    pub(super) fn on_sent(&mut self, sent: &Sent) {
        if !self.begun {
            // The first round begins with the first packet, not with the flow.
            self.begun = true;
            self.started = sent.now;
            self.base_seen_at = seconds(sent.now);
        }
        self.sent += sent.bytes.get() as f64;
    }

    /// Begins a round now, without the one that goes on.
    pub(super) fn restart(&mut self, now: Time) {
        self.sum = Round::default();
        (self.least_queue, self.least_before) = (None, None);
        self.reverse.restart();
        self.rtts = (0.0, 0);
        self.begin(now);
    }

    /// Takes feedback; returns the round, if one ended. `rate` is the rate in force.
    pub(super) fn on_feedback(&mut self, feedback: &Feedback<'_>, rate: f64) -> Option<Round> {
        let lost: u64 = feedback.lost.iter().map(|l| u64::from(l.count)).sum();
        let sum = &mut self.sum;
        sum.lost += lost as f64 - feedback.spurious as f64;
        sum.arrived += feedback.acked_packets as f64;
        sum.host += feedback.host_drops as f64;
        sum.refused += feedback.refused as f64;
        sum.marked += feedback.ecn_ce as f64;
        sum.bunches += u32::from(feedback.bunched.as_secs_f64() > BUNCH);
        sum.capacity = feedback.capacity.map(|c| c.as_bps() as f64 / 8.0);
        self.acked += feedback.acked.get() as f64;
        self.reports += u32::from(feedback.acked_packets > 0);
        self.limited += u32::from(feedback.acked_packets > 0 && feedback.app_limited);
        if let Some(reverse) = feedback.reverse_queue {
            self.reverse_least = reverse.least.as_secs_f64();
            self.reverse.sample(reverse.newest.as_secs_f64() - self.reverse_in_base);
        }
        if let Some(rtt) = feedback.rtt {
            self.srtt = rtt.smoothed.as_secs_f64();
            self.rtts = (self.rtts.0 + rtt.latest.as_secs_f64(), self.rtts.1 + 1);
            self.on_min_rtt(feedback.now, rtt.min.as_secs_f64());
        }
        if let Some(q) = feedback.queueing_delay {
            let q = q.as_secs_f64();
            let q = self.without_skew(feedback, q + self.standing(feedback, q));
            self.newest_queue = q;
            let now = seconds(feedback.now);
            if now - self.least_from > QUEUE_SPAN {
                (self.least_before, self.least_queue) = (self.least_queue, None);
                self.least_from = now;
            }
            self.least_queue = Some(self.least_queue.map_or(q, |l| l.min(q)));
        }
        if feedback.acked_packets > 0 {
            let now = seconds(feedback.now);
            let gap = self.acked_at.replace(now).map_or(0.0, |at| now - at);
            self.longest_gap = self.longest_gap.max(gap);
        }
        if let Some(held) = feedback.held {
            let held = held.as_secs_f64();
            let (least, most) = self.held.unwrap_or((held, held));
            self.held = Some((least.min(held), most.max(held)));
        }
        self.over |= feedback.round_ended;
        let span = seconds(feedback.now) - seconds(self.started);
        // The flag may be set early in a short round; a stopped flow still ends its rounds.
        let complete = self.over && span >= MIN_ROUND.max(self.base * 0.9);
        (complete || span > 4.0 * self.srtt + 0.5).then(|| self.finish(feedback.now, span, rate))
    }

    fn finish(&mut self, now: Time, span: f64, rate: f64) -> Round {
        let least = self.least_queue.take().into_iter().chain(self.least_before.take());
        let queue = least.reduce(f64::min).unwrap_or(self.queue + QUEUE_NOISE);
        self.least_from = seconds(now);
        self.queue = (queue - QUEUE_NOISE).max(0.0);
        if self.queue < 5e-4 + self.base / 50.0 {
            self.base_seen_at = seconds(now);
        }
        let mut round = std::mem::take(&mut self.sum);
        self.measure_stall(&round);
        round.stall = self.stall;
        let (sum, samples) = std::mem::take(&mut self.rtts);
        round.rtt = if samples > 0 { sum / f64::from(samples) } else { self.srtt };
        self.reverse.on_round(self.base, round.rtt);
        round.reverse = self.reverse.delay();
        round.at = seconds(now);
        round.delivered = self.acked / span;
        round.sent = self.sent / span;
        round.rate = rate;
        round.queue = self.queue;
        round.base = self.base;
        round.lost = (round.lost - round.refused).max(0.0);
        // The pace is for the least queue of the round.
        let paced = rate * round.span() / round.mean_span();
        round.app_limited = self.limited * 2 > self.reports || round.sent < 0.7 * paced;
        self.begin(now);
        round
    }

    /// A path that delivers is silent for no longer than its round trip; a host causes the rest. A
    /// receiver that holds some reports back for much longer than others waits for a processor,
    /// also for less than the round trip. If it holds all of them back, it is too slow.
    fn measure_stall(&mut self, round: &Round) {
        let usual = self.srtt.max(self.base + self.queue);
        let excess = std::mem::take(&mut self.longest_gap) - usual;
        let covered = self.base + self.reverse.delay();
        let silent = if excess > MIN_STALL { (excess + usual - covered).max(0.0) } else { 0.0 };
        let held = self.held.take().map_or(0.0, |(least, most)| most - least);
        let held = if held > self.usual_hold() + MIN_STALL { held } else { 0.0 };
        let stalled = round.arrived > MIN_STALLED_PACKETS;
        let stall = if stalled { silent.max(held).min(MAX_STALL) } else { 0.0 };
        self.stall = stall.max(STALL_DECAY * self.stall);
        if self.stall < MIN_STALL {
            self.stall = 0.0;
        }
    }

    /// For how long a receiver that is never late holds a report back, in seconds: by the round trip,
    /// with the queue of other flows.
    fn usual_hold(&self) -> f64 {
        super::lateness(self.srtt.max(self.base + self.raised)) - super::THREAD_LATENESS
    }

    fn begin(&mut self, now: Time) {
        (self.started, self.sent, self.acked, self.over) = (now, 0.0, 0.0, false);
        (self.limited, self.reports) = (0, 0);
    }

    /// Takes the minimum round trip of the last seconds. Beside flows that never empty their queue
    /// it contains their queue, so it raises the base only after `BASE_AGE`.
    fn on_min_rtt(&mut self, now: Time, min: f64) {
        if !std::mem::replace(&mut self.measured, true)
            || seconds(now) - self.base_met_at > BASE_AGE
        {
            self.set_base(min);
        }
        let near = min < self.base + self.noise();
        if near {
            self.base_met_at = seconds(now);
            self.set_base(self.base.min(min));
        } else {
            self.raised = min - self.base;
        }
    }

    /// Sets the base, and counts the least queue of the reverse direction as part of it.
    fn set_base(&mut self, base: f64) {
        let more =
            self.reverse_least - std::mem::replace(&mut self.reverse_in_base, self.reverse_least);
        self.reverse.on_longer_base(more);
        (self.base, self.raised) = (base, 0.0);
    }

    /// The standing queue of the data, in seconds, beside what its delay `q` shows of ten seconds. The
    /// minimum round trip contains the queues of both directions, which seldom are empty at the same
    /// time. So where one of the reverse direction counts, a report tells how long it waited there.
    fn standing(&self, feedback: &Feedback<'_>, q: f64) -> f64 {
        let standing = match feedback.rtt.zip(feedback.reverse_queue) {
            Some((rtt, reverse)) if self.reverse.delay() > 0.0 => {
                let waited = reverse.newest.as_secs_f64() - self.reverse_in_base;
                (rtt.latest.as_secs_f64() - waited - self.base - q).min(self.raised)
            }
            _ => {
                let least = self.reverse_least - self.reverse_in_base;
                if least < self.noise() {
                    return self.raised;
                }
                self.raised - least
            }
        };
        if standing < self.noise() { 0.0 } else { standing }
    }

    /// The queue `q` without an error of the clocks' skew, in seconds. The skew is estimated from the
    /// delay of the data, so a queue that changes slowly is taken for one, and later shows a queue that
    /// is none. A short queue is therefore no longer than the round trip has room for.
    fn without_skew(&self, feedback: &Feedback<'_>, q: f64) -> f64 {
        let Some(rtt) = feedback.rtt.filter(|_| q < MAX_SKEW_ERROR) else { return q };
        q.min(rtt.latest.as_secs_f64() - self.base + QUEUE_NOISE)
    }

    /// A minimum round trip that exceeds the base by less is the base, in seconds.
    fn noise(&self) -> f64 {
        BASE_NOISE + self.base / 50.0
    }

    /// Takes the minimum round trip of the last seconds for the base: no other flow is there.
    pub(super) fn forget_base(&mut self) {
        self.set_base(self.base + self.raised);
    }

    /// The newest queueing delay, in seconds.
    pub(super) fn newest_queue(&self) -> f64 {
        self.newest_queue
    }

    pub(super) fn srtt(&self) -> f64 {
        self.srtt
    }

    pub(super) fn base(&self) -> f64 {
        self.base
    }

    /// The queueing delay of the reverse direction, in seconds.
    pub(super) fn reverse(&self) -> f64 {
        self.reverse.delay()
    }

    /// When the queue was last empty, in seconds.
    pub(super) fn base_seen_at(&self) -> f64 {
        self.base_seen_at
    }

    /// The round trip that converts a window to a rate: base, lateness and queue.
    pub(super) fn effective_rtt(&self) -> f64 {
        self.empty_rtt() + self.queue
    }

    /// That without a queue.
    pub(super) fn empty_rtt(&self) -> f64 {
        span(self.base, self.stall) + self.reverse.delay()
    }
}

/// A round trip with the lateness of its feedback, in seconds.
fn span(base: f64, stall: f64) -> f64 {
    base + super::lateness(base) + stall
}

pub(super) fn seconds(t: Time) -> f64 {
    t.as_nanos() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use packtrain_units::{ByteCount, Duration};

    use super::*;
    use crate::bottleneck::silence;
    use crate::interface::{ReverseQueue, RttSample};

    /// The last round of some seconds on a path of 100 ms, after one second without queues. `queues`
    /// are those of the data and of the reverse direction each 10 ms, in milliseconds.
    fn round_after(seconds: u64, queues: impl Fn(u64) -> (u64, u64)) -> Round {
        let ms = Duration::from_millis;
        let mut rounds = Rounds::new(Time::ZERO, 0.1);
        let mut past = Vec::new();
        let mut round = Round::default();
        for i in 0..100 * (seconds + 1) {
            let (data, reverse) = if i < 100 { (0, 0) } else { queues(i) };
            past.push((data, reverse));
            let recent = &past[past.len().saturating_sub(1_000)..];
            let least = |queue: fn(&(u64, u64)) -> u64| recent.iter().map(queue).min().unwrap_or(0);
            let rtt = ms(100 + data + reverse);
            let least_rtt = ms(100 + least(|(data, reverse)| data + reverse));
            let feedback = Feedback {
                acked: ByteCount(10_000),
                acked_packets: 10,
                rtt: Some(RttSample {
                    latest: rtt,
                    smoothed: rtt,
                    variation: ms(1),
                    min: least_rtt,
                }),
                queueing_delay: Some(ms(data - least(|(data, _)| *data))),
                reverse_queue: Some(ReverseQueue {
                    newest: ms(reverse),
                    least: ms(least(|(_, reverse)| *reverse)),
                }),
                round_ended: i % 10 == 9,
                ..silence(Time::ZERO + ms(i * 10))
            };
            if let Some(ended) = rounds.on_feedback(&feedback, 1e6) {
                round = ended;
            }
        }
        round
    }

    fn assert_near(measured: f64, ms: f64) {
        assert!((measured - ms / 1e3).abs() < 5e-4, "{measured} for {ms} ms");
    }

    #[test]
    fn a_queue_of_the_reverse_direction_is_no_queue_of_the_data() {
        for seconds in [5, 30] {
            let round = round_after(seconds, |_| (0, 50));
            assert_near(round.queue, 0.0);
            assert_near(round.reverse, 50.0);
            assert_near(round.span() - round.base, 50.0 + 1e3 * super::super::lateness(0.1));
        }
        // Of both directions: first shown by the one-way delay, then only by the round trip.
        for seconds in [5, 30] {
            let round = round_after(seconds, |_| (30, 50));
            assert_near(round.queue, 30.0);
            assert_near(round.reverse, 50.0);
        }
        let round = round_after(30, |_| (30, 0));
        assert_near(round.queue, 30.0);
        assert_near(round.reverse, 0.0);
        // They are never empty together, so the minimum round trip has risen by more than the data's.
        let round = round_after(30, |i| if i / 100 % 2 == 0 { (0, 60) } else { (60, 0) });
        assert_near(round.queue, 0.0);
        // One that is too short to count is no standing queue of the data either.
        let round = round_after(30, |_| (0, 7));
        assert_near(round.queue, 0.0);
        assert_near(round.reverse, 0.0);
    }

    #[test]
    fn a_short_queue_that_no_round_trip_contains_is_an_error_of_the_clocks() {
        // The queue for a delay of the data and a round trip above the base, in milliseconds.
        let queue = |delay: u64, round_trip: u64| {
            let ms = Duration::from_millis;
            let mut rounds = Rounds::new(Time::ZERO, 0.1);
            let of = |i: u64| {
                let feedback = Feedback {
                    acked: ByteCount(10_000),
                    acked_packets: 10,
                    rtt: Some(RttSample {
                        latest: ms(100 + round_trip),
                        smoothed: ms(100 + round_trip),
                        variation: ms(1),
                        min: ms(100),
                    }),
                    queueing_delay: Some(ms(delay)),
                    round_ended: i % 10 == 9,
                    ..silence(Time::ZERO + ms(i * 10))
                };
                rounds.on_feedback(&feedback, 1e6)
            };
            (0..100).filter_map(of).last().expect("a round").queue
        };
        assert_near(queue(2, 0), 0.0);
        assert_near(queue(2, 1), 1.0);
        assert_near(queue(2, 9), 2.0);
        assert_near(queue(20, 9), 20.0);
    }

    #[test]
    fn a_base_that_is_given_up_contains_the_queue_of_the_reverse_direction() {
        let round = round_after(80, |_| (0, 50));
        assert_near(round.base, 150.0);
        assert_near(round.reverse, 0.0);
        let round = round_after(80, |i| (0, if i % 100 < 50 { 50 } else { 90 }));
        assert_near(round.base, 150.0);
        assert!(round.reverse > 0.01, "what comes and goes is none of it: {}", round.reverse);
    }

    /// What is taken for a stall in a round of `packets` with a base of 20 ms, after `gap` seconds
    /// without feedback.
    fn stall(gap: f64, packets: f64) -> f64 {
        let mut rounds = Rounds::new(Time::ZERO, 0.02);
        rounds.longest_gap = gap;
        rounds.measure_stall(&Round { arrived: packets, ..Round::default() });
        rounds.stall
    }

    #[test]
    fn a_long_time_without_feedback_is_a_stall_and_fades() {
        assert!((stall(0.036, 100.0) - 0.016).abs() < 1e-9);
        assert_eq!(stall(1.0, 100.0), MAX_STALL);
        assert_eq!(stall(0.024, 100.0), 0.0, "a pause of the sender");
        assert_eq!(stall(0.036, 8.0), 0.0, "too few packets");
        // Also one shorter than the round trip, if reports show that the receiver held them back.
        let held = |least: f64, most: f64| {
            let mut rounds = Rounds::new(Time::ZERO, 0.02);
            rounds.held = Some((least, most));
            rounds.measure_stall(&Round { arrived: 100.0, ..Round::default() });
            rounds.stall
        };
        assert!((held(0.001, 0.016) - 0.015).abs() < 1e-9);
        assert_eq!(held(0.0, 0.007), 0.0, "the interval of reports");
        assert_eq!(held(0.016, 0.02), 0.0, "a slow receiver");
        let mut rounds = Rounds::new(Time::ZERO, 0.02);
        rounds.longest_gap = 0.036;
        let round = Round { arrived: 100.0, ..Round::default() };
        let stalls = [(); 3].map(|()| {
            rounds.measure_stall(&round);
            rounds.stall
        });
        assert!(stalls[0] > stalls[1] && stalls[1] > stalls[2], "{stalls:?}");
    }
}
