//! Tunes the number of streams with the data of the transfer itself.
//!
//! The tuner sends nothing to measure. It changes the number of streams during the transfer, and
//! each number that was held long enough gives a sample. The kernel's statistics of each stream
//! show more than the sum of their rates. They distinguish losses that cut windows on an empty path
//! (more streams help), losses from a full queue (more streams take rate from others), and windows
//! that reach a buffer limit (more streams help). See
//! `docs/adr/0020-the-stream-count-follows-tcp-info.md`. No clock, no I/O.

use std::collections::{BTreeMap, VecDeque};

use packtrain_plan::streams::Sample;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::group::Reading;
use super::stripe_scheduler::StreamId;

mod prediction;
mod words;

use words::describe;

/// Initial number of streams on an unknown path: four fill it two round trips before one does.
pub(super) const INITIAL_STREAMS: u32 = 4;
/// A rate is measured over this number of round trips, within the limits below.
const SPAN_RTTS: u64 = 4;
const MIN_SPAN: Duration = Duration::from_millis(250);
const MAX_SPAN: Duration = Duration::from_secs(2);
/// A rate that grew by less than this factor within a span has left slow start.
const SETTLED: f64 = 1.15;
/// Number of round trips after a change after which a rate counts even if it still grows.
const MAX_GROWTH_RTTS: u64 = 16;
/// Number of round trips until new streams carry their share: three for the handshakes, and slow
/// start from 10 segments to about a thousand.
const RISE_RTTS: u64 = 11;
/// Fraction by which a loss reduces a window (CUBIC, RFC 9438 section 4.6; Reno 0.5).
const LOSS_CUT: f64 = 0.3;
/// A path is full if its round-trip time exceeds the minimum by this fraction, and by at least the
/// minimum below.
const FULL: f64 = 0.10;
const MIN_FULL_QUEUE: Duration = Duration::from_millis(1);
/// A cut while the queue exceeds this fraction of the longest one seen is attributed to the queue.
const QUEUED: f64 = 0.75;
/// Streams are added early if at least this fraction of them is missing.
const MISSING: f64 = 0.25;
/// Maximum factor of a change; two until the path was full, or lost a segment while empty.
const MAX_STEP: u32 = 4;
/// Below this number streams are at least doubled, and the initial ones tripled.
const DOUBLE_BELOW: u32 = 16;
/// Maximum segments retransmitted for a single random loss.
const MAX_RANDOM_SEGMENTS: u64 = 2;
/// If losses grew by this factor, and are at least this number of segments, after streams were
/// added, the streams caused them.
const WORSE: f64 = 2.5;
const WORSE_SEGMENTS: u64 = 12;
/// Cuts are counted over this time, or over this number of round trips if that is longer. The
/// acknowledged bytes must suffice to show a loss rate of one segment in ten thousand.
const CUTS_SPAN: Duration = Duration::from_secs(3);
const CUTS_RTTS: u64 = 20;
const MIN_CALM_BYTES: u64 = 2000 * SEGMENT;
/// Doubling the streams must increase the rate by at least this fraction (proportionally less for
/// smaller factors).
const MIN_GAIN: f64 = 0.10;
/// Time for which the number is kept after more streams did not help; doubles each time.
const HOLD: Duration = Duration::from_secs(8);
const MAX_HOLD: Duration = Duration::from_secs(120);
/// A rate below this fraction of the peak indicates another path.
const CHANGED: f64 = 0.6;
/// Time after which a full path is tried with fewer streams.
const FULL_FOR: Duration = Duration::from_secs(4);
/// If a rate fell by more than this fraction after streams were removed, they are added again.
const MAX_RATE_DROP: f64 = 0.04;
/// Without losses, queue or limits, windows grow by themselves. They are left to for this time.
const FLAT_FOR: Duration = Duration::from_secs(5);
/// Typical payload of a segment in bytes.
const SEGMENT: u64 = 1448;
/// Maximum reasons kept.
const MAX_REASONS: usize = 60;

/// A sample of all streams at one time.
#[derive(Clone, Debug)]
struct Snapshot {
    at: Time,
    acked: u64,
    sent: u64,
    again: u64,
    queue: Duration,
    /// Bytes acknowledged while no queue explained a cut, and the number of such cuts.
    calm: u64,
    cuts: u32,
    /// Sum of the windows of all streams.
    windows: u64,
    busy: Duration,
    limited: Duration,
}

/// One stream at the last sample.
#[derive(Clone, Debug)]
struct StreamState {
    ssthresh: Option<u32>,
    again: u64,
    acked: u64,
}

/// Measurements over a span.
#[derive(Clone, Copy, Debug)]
struct Measured {
    rate: DataRate,
    lost: f64,
    /// Retransmitted segments.
    segments: u64,
    queue: Duration,
    windows: f64,
    /// Fraction of the streams' time in which a buffer limited them.
    limited: f64,
}

/// The last change, whose effect is still to be judged.
#[derive(Clone, Copy, Debug)]
enum Trial {
    /// `cuts`: rate of cuts per second and stream at the time of the change.
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

/// Tunes the number of streams.
#[derive(Debug)]
pub struct StreamCountTuner {
    most: u32,
    /// None until it is needed.
    first: Option<u32>,
    target: u32,
    looks: VecDeque<Snapshot>,
    was: BTreeMap<StreamId, StreamState>,
    began: Option<Time>,
    changed: Time,
    calm: u64,
    cuts: u32,
    /// Cuts while there was no queue.
    empty_cuts: u32,
    min_rtt: Option<Duration>,
    longest_queue: Duration,
    /// The highest rate over a span.
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
    /// A tuner for at most `most` streams. `earlier` are samples of earlier transfers over the same
    /// path, if any.
    pub fn new(most: u32, earlier: Vec<Sample>) -> Self {
        Self {
            most: most.max(1),
            first: None,
            target: INITIAL_STREAMS,
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
            reasons: Vec::new(),
        }
    }

    /// The target number of streams.
    pub fn target(&mut self) -> u32 {
        self.first();
        self.target
    }

    /// Adds a sample of all streams; `busy`: they are the bottleneck of the transfer.
    pub fn look(&mut self, now: Time, readings: &[Reading], busy: bool) {
        if readings.is_empty() {
            return;
        }
        let began = *self.began.get_or_insert(now);
        if self.changed == Time::ZERO {
            self.changed = now;
        }
        self.record(now, readings);
        if !busy {
            // A rate that the disk or the rate limit determines shows nothing about the path.
            self.looks.clear();
            self.changed = now;
            self.trial = None;
            return;
        }
        self.first();
        let there = readings.len() as u32;
        let rtt = rtt(readings);
        let span = (rtt * SPAN_RTTS).clamp(MIN_SPAN, MAX_SPAN);
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
        if self.trial.is_none() && self.add_early(now, there, rtt, &measured, at) {
            return;
        }
        if since < span * 2 || now.since(self.decided) < span {
            return;
        }
        let before = self.measure(now - span, span);
        let grew = before.is_none_or(|b| measured.rate > b.rate.mul_f64(SETTLED));
        if grew && since < rtt * MAX_GROWTH_RTTS {
            return;
        }
        self.decided = now;
        self.samples.insert(there, measured.rate);
        self.decide(now, there, rtt, &measured, at);
    }

    /// Adds streams before losses leave the path empty, because new streams need time until they
    /// carry data.
    fn add_early(&mut self, now: Time, n: u32, rtt: Duration, m: &Measured, at: Duration) -> bool {
        if now < self.held_until {
            return false;
        }
        if !self.was_full() {
            // A loss in slow start without a queue that explains it: more losses will follow, and
            // streams added now still grow together with the first ones. An overflow of a short
            // queue loses many segments at once.
            let again = self.looks.back().map_or(0, |look| look.again / SEGMENT);
            let few = again <= u64::from(self.empty_cuts) * MAX_RANDOM_SEGMENTS;
            if self.empty_cuts == 0 || !few || n >= self.most {
                return false;
            }
            self.peak = self.peak.max(m.rate);
            let to = (n * MAX_STEP).min(self.most);
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

    /// Records a sample.
    fn record(&mut self, now: Time, readings: &[Reading]) {
        let least = readings.iter().filter_map(|r| r.info.min_rtt).min();
        self.min_rtt = self.min_rtt.into_iter().chain(least).min();
        let min_rtt = self.min_rtt.unwrap_or_default();
        let mut queues: Vec<_> = readings.iter().map(|r| r.info.srtt - min_rtt).collect();
        queues.sort_unstable();
        let queue = queues[queues.len() / 2];
        self.longest_queue = self.longest_queue.max(queue);
        let queued = self.is_full(queue) && queue >= times(self.longest_queue, QUEUED);
        let mut look = Snapshot {
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
            was.insert(reading.stream, StreamState { ssthresh, again, acked });
        }
        // A sum over other streams than before is no measure of change.
        if self.was.keys().any(|stream| !was.contains_key(stream)) {
            self.looks.clear();
        }
        self.was = was;
        (look.calm, look.cuts) = (self.calm, self.cuts);
        self.looks.push_back(look);
        while self.looks.front().is_some_and(|l| now.since(l.at) > MAX_SPAN * 4) {
            self.looks.pop_front();
        }
    }

    fn is_full(&self, queue: Duration) -> bool {
        let min_rtt = self.min_rtt.unwrap_or_default();
        queue >= times(min_rtt, FULL).max(MIN_FULL_QUEUE)
    }

    /// The measurements over the span that ends at `end`.
    fn measure(&self, end: Time, span: Duration) -> Option<Measured> {
        let last = self.looks.iter().rev().find(|l| l.at <= end)?;
        let first = self.looks.iter().rev().find(|l| l.at + span <= last.at)?;
        let over = last.at.since(first.at);
        let acked = last.acked.saturating_sub(first.acked);
        let sent = last.sent.saturating_sub(first.sent).max(1);
        let within: Vec<&Snapshot> =
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
            // Another path, or another load on it.
            self.held_until = now;
        }
        // The capacity of the path may decrease, so the peak decays by one percent per span.
        self.peak = self.peak.mul_f64(0.99).max(rate);
        if rate > self.flat.1.mul_f64(1.05) || rate < self.flat.1.mul_f64(0.9) {
            self.flat = (now, rate);
        }
        match self.trial.take() {
            Some(Trial::More { at: then, from, rate: before, lost, cuts }) if n > from => {
                let wanted = 1.0 + MIN_GAIN * (f64::from(n) / f64::from(from) - 1.0).min(1.0);
                // Without more streams, losses would have reduced the rate further.
                let fallen = (-LOSS_CUT * cuts * now.since(then).as_secs_f64()).exp();
                let worse = m.lost > lost * WORSE && m.segments >= WORSE_SEGMENTS;
                let fallen = if worse { 1.0 } else { fallen };
                if rate < before.mul_f64(wanted * fallen) {
                    self.held_until = now + self.hold;
                    self.hold = (self.hold * 2).min(MAX_HOLD);
                    let to = self.predicted().map_or(from, |p| p.streams.get().clamp(from, n));
                    return self.change(now, at, n, to, m, "more did not pay");
                }
                self.hold = HOLD;
            }
            Some(Trial::Fewer { from, rate: before })
                if rate < before.mul_f64(1.0 - MAX_RATE_DROP) =>
            {
                self.kept_until = now + MAX_HOLD;
                return self.change(now, at, n, from, m, "those let go are missed");
            }
            _ => {}
        }
        if full {
            if self.full_since.is_some_and(|since| now.since(since) >= FULL_FOR)
                && n > self.first()
                && !cut
                && now >= self.kept_until
            {
                self.trial = Some(Trial::Fewer { from: n, rate });
                let fewer = (n - (n / 8).max(1)).max(self.first());
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
        let step = if self.was_full() { MAX_STEP } else { 2 };
        // Too few streams cost more than too many, which are removed again: small numbers are at
        // least doubled.
        let least = match n {
            0..=INITIAL_STREAMS => n * (step - 1).min(2),
            _ if n < DOUBLE_BELOW => n,
            _ => 1,
        };
        let to = (n + more.clamp(least, n * (step - 1))).min(self.most);
        self.grow(now, at, n, rtt, m, to, why);
    }

    /// Changes from `n` to `to` streams, and judges the effect later.
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

    /// Whether the path was ever full.
    fn was_full(&self) -> bool {
        self.is_full(self.longest_queue)
    }

    /// Number of cuts per second of all streams at this rate, without cuts that a queue explains.
    fn cuts_per_second(&self, rtt: Duration, rate: DataRate) -> f64 {
        let Some(last) = self.looks.back() else { return 0.0 };
        let horizon = CUTS_SPAN.max(rtt * CUTS_RTTS);
        let Some(from) = self.looks.iter().find(|l| last.at.since(l.at) <= horizon) else {
            return 0.0;
        };
        let calm = last.calm - from.calm;
        if calm < MIN_CALM_BYTES {
            return 0.0;
        }
        // Losses occur per packet, so cuts scale with the rate.
        f64::from(last.cuts - from.cuts) / calm as f64 * rate.as_bps() as f64 / 8.0
    }

    /// Number of additional streams that compensate for the losses until they carry data.
    fn missing(&self, n: u32, rtt: Duration, m: &Measured) -> u32 {
        let min_rtt = self.min_rtt.unwrap_or(rtt);
        // Streams added now carry data after one rise; the next ones after a second rise.
        let ahead = (min_rtt * (2 * RISE_RTTS)).as_secs_f64();
        let cuts = self.cuts_per_second(rtt, m.rate);
        let left = m.windows * (-LOSS_CUT * cuts * ahead / f64::from(n)).exp();
        let full = self.peak.bytes_in(min_rtt).get() as f64;
        if !self.was_full() {
            // The path was never full, so its capacity is unknown, and twice the streams may find
            // it.
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
        self.add_reason(format!("{}; {why}: {to} from now on", describe(at, n, m)));
        self.target = to;
        self.changed = now;
        self.full_since = None;
        self.flat = (now, DataRate::ZERO);
    }

    fn stay(&mut self, at: Duration, n: u32, m: &Measured, why: &'static str) {
        if std::mem::replace(&mut self.last, why) != why {
            self.add_reason(format!("{}; {why}: no change", describe(at, n, m)));
        }
    }

    fn add_reason(&mut self, reason: String) {
        if self.reasons.len() < MAX_REASONS {
            self.reasons.push(reason);
        }
    }
}

/// The median round-trip time of all streams.
fn rtt(readings: &[Reading]) -> Duration {
    let mut all: Vec<_> = readings.iter().map(|r| r.info.srtt).collect();
    all.sort_unstable();
    all[all.len() / 2].max(Duration::from_millis(1))
}

fn times(span: Duration, factor: f64) -> Duration {
    Duration::from_nanos((span.as_nanos() as f64 * factor) as u64)
}

#[cfg(test)]
#[path = "stream_count_tuner_tests.rs"]
mod tests;
