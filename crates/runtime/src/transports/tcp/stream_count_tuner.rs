//! How many streams are best, found out with the transfer's own data while it runs.
//!
//! Nothing is sent to measure; the number changes while bytes move, and each number that was held
//! long enough is a sample. What the kernel says of each stream tells more than the sum of their
//! rates: whether windows are cut by losses on an empty path (more streams help), by a queue that
//! the path is full of (they take from others), or by a buffer that ends (they help). See
//! `docs/adr/0020-the-stream-count-follows-tcp-info.md`. No clock, no I/O.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;

use packtrain_plan::streams::{Options, Prediction, Sample, predict};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::group::Reading;
use super::stripe_scheduler::StreamId;

mod words;

use words::told;

/// Streams to begin with, where nothing is known of the path: it takes two round trips less until
/// they fill it than one would, and is what a browser opens.
pub(super) const FIRST: u32 = 4;
/// A rate is measured over so many round trips, and no less and no more than this.
const SPAN_RTTS: u64 = 4;
const SPAN_LEAST: Duration = Duration::from_millis(250);
const SPAN_MOST: Duration = Duration::from_secs(2);
/// A rate that grew less than this within a span is out of slow start.
const SETTLED: f64 = 1.15;
/// So many round trips after a change it is measured even if it still grows.
const PATIENCE_RTTS: u64 = 16;
/// How many round trips new streams take until they carry their share: three for the handshakes,
/// and slow start from 10 segments to about a thousand.
const RISE_RTTS: u64 = 11;
/// What a loss takes from a window (CUBIC, RFC 9438 section 4.6; Reno takes 0.5).
const CUT: f64 = 0.3;
/// A path whose round trip is longer by this share of the least, and by this at least, is full.
const FULL: f64 = 0.10;
const FULL_LEAST: Duration = Duration::from_millis(1);
/// A cut while the queue was above this share of the longest seen is put down to the queue.
const QUEUED: f64 = 0.75;
/// Streams are added at once when this share of them is missing.
const MISSING: f64 = 0.25;
/// A change is by this factor at most; by two until the path was seen full or a loss on it while
/// it was empty.
const STEP: u32 = 4;
/// Fewer streams than these are never less than doubled, and the first ones trebled.
const DOUBLED: u32 = 16;
/// A loss that nothing but chance made is sent again once, or twice.
const ALONE: u64 = 2;
/// Losses that grew by this factor, and by so many segments, with the number of streams are the
/// doing of the streams.
const WORSE: f64 = 2.5;
const WORSE_SEGMENTS: u64 = 12;
/// Cuts are counted over this, or over so many round trips if that is longer; what was
/// acknowledged meanwhile must be enough to lose one of ten thousand segments now and then.
const CUTS_SPAN: Duration = Duration::from_secs(3);
const CUTS_RTTS: u64 = 20;
const CALM_LEAST: u64 = 2000 * SEGMENT;
/// Twice the streams must move so much more, or they do not pay (less for less than twice).
const PAYS: f64 = 0.10;
/// How long the number stays once more did not pay; doubles each time.
const HOLD: Duration = Duration::from_secs(8);
const HOLD_MOST: Duration = Duration::from_secs(120);
/// A rate that fell to this share of what it was is another path.
const CHANGED: f64 = 0.6;
/// A path that was full for so long may do with fewer streams.
const FULL_FOR: Duration = Duration::from_secs(4);
/// A rate that fell by more than this without some streams misses them.
const MISSED: f64 = 0.04;
/// Without losses, queue and limits windows grow by themselves; this long they are left to.
const FLAT_FOR: Duration = Duration::from_secs(5);
/// Payload of a segment, nearly everywhere.
const SEGMENT: u64 = 1448;
/// Reasons kept.
const MAX_REASONS: usize = 60;

/// The state of all streams at one time.
#[derive(Clone, Debug)]
struct Look {
    at: Time,
    acked: u64,
    sent: u64,
    again: u64,
    queue: Duration,
    /// What was acknowledged while no queue explained a cut, and such cuts.
    calm: u64,
    cuts: u32,
    /// Windows of all streams.
    windows: u64,
    busy: Duration,
    limited: Duration,
}

/// What one stream was like when last looked at.
#[derive(Clone, Debug)]
struct Was {
    ssthresh: Option<u32>,
    again: u64,
    acked: u64,
}

/// What was measured over a span.
#[derive(Clone, Copy, Debug)]
struct Measured {
    rate: DataRate,
    lost: f64,
    /// What was sent again, in segments.
    segments: u64,
    queue: Duration,
    windows: f64,
    /// Share of the streams' time in which a buffer held them back.
    limited: f64,
}

/// What the last change is to be judged by.
#[derive(Clone, Copy, Debug)]
enum Trial {
    /// Cuts a second and stream went on at `cuts`.
    More {
        at: Time,
        from: u32,
        rate: DataRate,
        lost: f64,
        cuts: f64,
    },
    Fewer {
        from: u32,
        rate: DataRate,
    },
}

/// The chooser.
#[derive(Debug)]
pub struct StreamCountTuner {
    most: u32,
    first: u32,
    target: u32,
    looks: VecDeque<Look>,
    was: BTreeMap<StreamId, Was>,
    began: Option<Time>,
    changed: Time,
    calm: u64,
    cuts: u32,
    /// Cuts while there was no queue at all.
    empty_cuts: u32,
    min_rtt: Option<Duration>,
    longest_queue: Duration,
    /// The highest rate seen over a span.
    peak: DataRate,
    trial: Option<Trial>,
    held_until: Time,
    hold: Duration,
    kept_until: Time,
    full_since: Option<Time>,
    flat: (Time, DataRate),
    decided: Time,
    samples: BTreeMap<u32, DataRate>,
    earlier: Vec<Sample>,
    last: &'static str,
    reasons: Vec<String>,
}

impl StreamCountTuner {
    /// A chooser of at most `most` streams. `earlier` are samples of earlier transfers over the
    /// same path, if there are any.
    pub fn new(most: u32, earlier: Vec<Sample>) -> Self {
        let most = most.max(1);
        let mut reasons = Vec::new();
        let known = predict(&earlier, options(most)).ok();
        let first = match &known {
            Some(known) => {
                reasons.push(format!(
                    "earlier transfers over this path: {} streams are best ({} expected)",
                    known.streams, known.throughput
                ));
                known.streams.get()
            }
            None => FIRST,
        };
        let first = first.min(most);
        Self {
            most,
            first,
            target: first,
            looks: VecDeque::new(),
            was: BTreeMap::new(),
            began: None,
            changed: Time::ZERO,
            calm: 0,
            cuts: 0,
            empty_cuts: 0,
            min_rtt: None,
            longest_queue: Duration::ZERO,
            peak: DataRate::ZERO,
            trial: None,
            held_until: Time::ZERO,
            hold: HOLD,
            kept_until: Time::ZERO,
            full_since: None,
            flat: (Time::ZERO, DataRate::ZERO),
            decided: Time::ZERO,
            samples: BTreeMap::new(),
            earlier,
            last: "",
            reasons,
        }
    }

    /// How many there are to be.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Looks at all streams; `busy` if they are what the transfer waits for.
    pub fn look(&mut self, now: Time, readings: &[Reading], busy: bool) {
        if readings.is_empty() {
            return;
        }
        let began = *self.began.get_or_insert(now);
        if self.changed == Time::ZERO {
            self.changed = now;
        }
        self.note(now, readings);
        if !busy {
            // A rate that the disk or the pace makes says nothing of the path.
            self.looks.clear();
            self.changed = now;
            self.trial = None;
            return;
        }
        let there = readings.len() as u32;
        let rtt = rtt(readings);
        let span = (rtt * SPAN_RTTS).clamp(SPAN_LEAST, SPAN_MOST);
        let since = now.since(self.changed);
        let rising = matches!(self.trial, Some(Trial::More { .. })) || there < self.target;
        if rising && since < rtt * RISE_RTTS + span {
            return;
        }
        if there > self.target && since < rtt * RISE_RTTS {
            return;
        }
        let Some(measured) = self.measure(now, span) else { return };
        let at = now.since(began);
        if self.trial.is_none() && self.foresee(now, there, rtt, &measured, at) {
            return;
        }
        if since < span * 2 || now.since(self.decided) < span {
            return;
        }
        let before = self.measure(now - span, span);
        let grew = before.is_none_or(|b| measured.rate > b.rate.mul_f64(SETTLED));
        if grew && since < rtt * PATIENCE_RTTS {
            return;
        }
        self.decided = now;
        self.samples.insert(there, measured.rate);
        self.decide(now, there, rtt, &measured, at);
    }

    /// Adds streams before the path runs empty: losses will have cut so much by the time new ones
    /// carry data.
    fn foresee(&mut self, now: Time, n: u32, rtt: Duration, m: &Measured, at: Duration) -> bool {
        if now < self.held_until {
            return false;
        }
        if !self.was_full() {
            // A loss in slow start, with no queue that it could come from: others will follow, and
            // streams added now still rise together with the first. A short queue that ran over
            // loses many at once.
            let again = self.looks.back().map_or(0, |look| look.again / SEGMENT);
            let few = again <= u64::from(self.empty_cuts) * ALONE;
            if self.empty_cuts == 0 || !few || n >= self.most {
                return false;
            }
            self.peak = self.peak.max(m.rate);
            let to = (n * STEP).min(self.most);
            self.grow(now, at, n, rtt, m, to, "a loss although the path is empty");
            return true;
        }
        if self.cuts_per_second(rtt, m.rate) == 0.0 {
            return false;
        }
        self.peak = self.peak.max(m.rate);
        let missing = self.missing(n, rtt, m);
        if f64::from(missing) < f64::from(n) * MISSING {
            return false;
        }
        self.more(now, at, n, rtt, m, missing, "losses will have cut the windows below the path");
        true
    }

    /// Keeps what this look says.
    fn note(&mut self, now: Time, readings: &[Reading]) {
        let least = readings.iter().filter_map(|r| r.info.min_rtt).min();
        self.min_rtt = self.min_rtt.into_iter().chain(least).min();
        let min_rtt = self.min_rtt.unwrap_or_default();
        let mut queues: Vec<_> = readings.iter().map(|r| r.info.srtt - min_rtt).collect();
        queues.sort_unstable();
        let queue = queues[queues.len() / 2];
        self.longest_queue = self.longest_queue.max(queue);
        let queued = self.is_full(queue) && queue >= times(self.longest_queue, QUEUED);
        let mut look = Look {
            at: now,
            acked: 0,
            sent: 0,
            again: 0,
            queue,
            calm: 0,
            cuts: 0,
            windows: 0,
            busy: Duration::ZERO,
            limited: Duration::ZERO,
        };
        let mut was = BTreeMap::new();
        for reading in readings {
            let info = &reading.info;
            let bytes = |count: Option<ByteCount>| count.map_or(0, ByteCount::get);
            let cwnd = u64::from(info.cwnd_segments) * info.mss.get();
            let again = bytes(info.retransmitted);
            let ssthresh = info.ssthresh_segments;
            look.acked += bytes(info.acked);
            look.sent += bytes(info.sent);
            look.again += again;
            look.windows += cwnd;
            look.busy += info.busy.unwrap_or_default();
            look.limited += info.receiver_limited.unwrap_or_default();
            look.limited += info.send_buffer_limited.unwrap_or_default();
            let before = self.was.get(&reading.stream);
            // The threshold is set anew once for each cut; without a loss it is slow start's end.
            let cut = before.is_some_and(|b| again > b.again && ssthresh != b.ssthresh);
            if cut && !queued {
                self.cuts += 1;
                self.empty_cuts += u32::from(!self.is_full(queue));
            }
            if !queued {
                self.calm += bytes(info.acked).saturating_sub(before.map_or(0, |b| b.acked));
            }
            let acked = bytes(info.acked);
            was.insert(reading.stream, Was { ssthresh, again, acked });
        }
        // A sum over other streams than before is no measure of change.
        if self.was.keys().any(|stream| !was.contains_key(stream)) {
            self.looks.clear();
        }
        self.was = was;
        (look.calm, look.cuts) = (self.calm, self.cuts);
        self.looks.push_back(look);
        while self.looks.front().is_some_and(|l| now.since(l.at) > SPAN_MOST * 4) {
            self.looks.pop_front();
        }
    }

    fn is_full(&self, queue: Duration) -> bool {
        let min_rtt = self.min_rtt.unwrap_or_default();
        queue >= times(min_rtt, FULL).max(FULL_LEAST)
    }

    /// What was measured over the span that ended at `end`.
    fn measure(&self, end: Time, span: Duration) -> Option<Measured> {
        let last = self.looks.iter().rev().find(|l| l.at <= end)?;
        let first = self.looks.iter().rev().find(|l| l.at + span <= last.at)?;
        let over = last.at.since(first.at);
        let acked = last.acked.saturating_sub(first.acked);
        let sent = last.sent.saturating_sub(first.sent).max(1);
        let within: Vec<&Look> =
            self.looks.iter().filter(|l| l.at > first.at && l.at <= last.at).collect();
        let count = within.len().max(1) as u64;
        let queue = within.iter().fold(Duration::ZERO, |all, l| all + l.queue) / count;
        let windows = within.iter().map(|l| l.windows as f64).sum::<f64>() / count as f64;
        let busy = (last.busy - first.busy).as_secs_f64();
        let limited = (last.limited - first.limited).as_secs_f64();
        Some(Measured {
            rate: DataRate::from_bytes_over(ByteCount(acked), over),
            lost: last.again.saturating_sub(first.again) as f64 / sent as f64,
            segments: last.again.saturating_sub(first.again) / SEGMENT,
            queue,
            windows,
            limited: if busy > 0.0 { (limited / busy).min(1.0) } else { 0.0 },
        })
    }

    fn decide(&mut self, now: Time, n: u32, rtt: Duration, m: &Measured, at: Duration) {
        let rate = m.rate;
        let full = self.is_full(m.queue);
        let cut = self.cuts_per_second(rtt, rate) > 0.0;
        self.full_since = if full { self.full_since.or(Some(now)) } else { None };
        if rate < self.peak.mul_f64(CHANGED) {
            // Another path, or another load of it.
            self.held_until = now;
        }
        // What the path carried once it may not carry for ever: a percent less each span.
        self.peak = self.peak.mul_f64(0.99).max(rate);
        if rate > self.flat.1.mul_f64(1.05) || rate < self.flat.1.mul_f64(0.9) {
            self.flat = (now, rate);
        }
        match self.trial.take() {
            Some(Trial::More { at: then, from, rate: before, lost, cuts }) if n > from => {
                let wanted = 1.0 + PAYS * (f64::from(n) / f64::from(from) - 1.0).min(1.0);
                // Without more streams losses would have gone on cutting.
                let fallen = (-CUT * cuts * now.since(then).as_secs_f64()).exp();
                let worse = m.lost > lost * WORSE && m.segments >= WORSE_SEGMENTS;
                let fallen = if worse { 1.0 } else { fallen };
                if rate < before.mul_f64(wanted * fallen) {
                    self.held_until = now + self.hold;
                    self.hold = (self.hold * 2).min(HOLD_MOST);
                    let to = self.predicted().map_or(from, |p| p.streams.get().clamp(from, n));
                    return self.change(now, at, n, to, m, "more did not pay");
                }
                self.hold = HOLD;
            }
            Some(Trial::Fewer { from, rate: before }) if rate < before.mul_f64(1.0 - MISSED) => {
                self.kept_until = now + HOLD_MOST;
                return self.change(now, at, n, from, m, "those let go are missed");
            }
            _ => {}
        }
        if full {
            if self.full_since.is_some_and(|since| now.since(since) >= FULL_FOR)
                && n > self.first
                && !cut
                && now >= self.kept_until
            {
                self.trial = Some(Trial::Fewer { from: n, rate });
                let fewer = (n - (n / 8).max(1)).max(self.first);
                return self.change(now, at, n, fewer, m, "the path is full, fewer may do");
            }
            return self.stay(at, n, m, "the path is full");
        }
        if now < self.held_until {
            return self.stay(at, n, m, "more did not pay");
        }
        let (more, why) = if m.limited > 0.5 {
            (n, "a socket buffer ends before the path does")
        } else if cut {
            match self.missing(n, rtt, m) {
                0 => {
                    return self.stay(
                        at,
                        n,
                        m,
                        "losses cut the windows, which fill the path still",
                    );
                }
                more => (more, "losses cut the windows while the path has room"),
            }
        } else if now.since(self.flat.0) >= FLAT_FOR {
            (n, "the rate does not grow although nothing is seen to hold it")
        } else {
            return self.stay(at, n, m, "no losses, no queue: the windows grow by themselves");
        };
        self.more(now, at, n, rtt, m, more, why);
    }

    #[allow(clippy::too_many_arguments)]
    fn more(
        &mut self,
        now: Time,
        at: Duration,
        n: u32,
        rtt: Duration,
        m: &Measured,
        more: u32,
        why: &'static str,
    ) {
        let step = if self.was_full() { STEP } else { 2 };
        // Too few cost more than too many, which go again: few are doubled at least.
        let least = match n {
            0..=FIRST => n * (step - 1).min(2),
            _ if n < DOUBLED => n,
            _ => 1,
        };
        let to = (n + more.clamp(least, n * (step - 1))).min(self.most);
        self.grow(now, at, n, rtt, m, to, why);
    }

    /// From `n` to `to` streams, to be judged later.
    #[allow(clippy::too_many_arguments)]
    fn grow(
        &mut self,
        now: Time,
        at: Duration,
        n: u32,
        rtt: Duration,
        m: &Measured,
        to: u32,
        why: &'static str,
    ) {
        self.empty_cuts = 0;
        if to > n {
            let cuts = self.cuts_per_second(rtt, m.rate) / f64::from(n);
            self.trial = Some(Trial::More { at: now, from: n, rate: m.rate, lost: m.lost, cuts });
        }
        self.change(now, at, n, to, m, why);
    }

    /// Whether the path was ever seen full.
    fn was_full(&self) -> bool {
        self.is_full(self.longest_queue)
    }

    /// How often losses that no queue explains cut windows, of all streams together, in a second
    /// at this rate.
    fn cuts_per_second(&self, rtt: Duration, rate: DataRate) -> f64 {
        let Some(last) = self.looks.back() else { return 0.0 };
        let horizon = CUTS_SPAN.max(rtt * CUTS_RTTS);
        let Some(from) = self.looks.iter().find(|l| last.at.since(l.at) <= horizon) else {
            return 0.0;
        };
        let calm = last.calm - from.calm;
        if calm < CALM_LEAST {
            return 0.0;
        }
        // Losses come by the packet.
        f64::from(last.cuts - from.cuts) / calm as f64 * rate.as_bps() as f64 / 8.0
    }

    /// How many streams more would make up for what losses will have taken when they carry data.
    fn missing(&self, n: u32, rtt: Duration, m: &Measured) -> u32 {
        let min_rtt = self.min_rtt.unwrap_or(rtt);
        // These carry data after a rise, and those after them not before a second one.
        let ahead = (min_rtt * (2 * RISE_RTTS)).as_secs_f64();
        let cuts = self.cuts_per_second(rtt, m.rate);
        let left = m.windows * (-CUT * cuts * ahead / f64::from(n)).exp();
        let full = self.peak.bytes_in(min_rtt).get() as f64;
        if !self.was_full() {
            // The path was never full: its rate is not known, and twice as many may find it.
            return n;
        }
        let wanted = f64::from(n) * (full * (1.0 + FULL) / left.max(1.0) - 1.0);
        if wanted < 0.5 { 0 } else { wanted.ceil() as u32 }
    }

    fn change(
        &mut self,
        now: Time,
        at: Duration,
        n: u32,
        to: u32,
        m: &Measured,
        why: &'static str,
    ) {
        if to == n {
            return self.stay(at, n, m, why);
        }
        self.last = "";
        self.say(format!("{}; {why}: {to} from now on", told(at, n, m)));
        self.target = to;
        self.changed = now;
        self.full_since = None;
        self.flat = (now, DataRate::ZERO);
    }

    fn stay(&mut self, at: Duration, n: u32, m: &Measured, why: &'static str) {
        if std::mem::replace(&mut self.last, why) != why {
            self.say(format!("{}; {why}: no change", told(at, n, m)));
        }
    }

    fn say(&mut self, reason: String) {
        if self.reasons.len() < MAX_REASONS {
            self.reasons.push(reason);
        }
    }

    /// What the models make of all samples.
    fn predicted(&self) -> Option<Prediction> {
        let own = self.samples.iter().filter_map(|(n, rate)| {
            let streams = NonZeroU32::new(*n)?;
            Some(Sample { streams, throughput: *rate })
        });
        let all: Vec<Sample> = self.earlier.iter().copied().chain(own).collect();
        predict(&all, options(self.most)).ok()
    }
}

/// The median round trip of all streams.
fn rtt(readings: &[Reading]) -> Duration {
    let mut all: Vec<_> = readings.iter().map(|r| r.info.srtt).collect();
    all.sort_unstable();
    all[all.len() / 2].max(Duration::from_millis(1))
}

fn options(most: u32) -> Options {
    let max_streams = NonZeroU32::new(most).unwrap_or(NonZeroU32::MIN);
    Options { max_streams }
}

fn times(span: Duration, factor: f64) -> Duration {
    Duration::from_nanos((span.as_nanos() as f64 * factor) as u64)
}

#[cfg(test)]
#[path = "stream_count_tuner_tests.rs"]
mod tests;
