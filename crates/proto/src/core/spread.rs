//! Capacity of the narrowest link: sends bursts of packets back to back, and measures from arrival
//! marks how far the path spread them.
//!
//! One train gives little information where the host or the network card coalesces its packets: it
//! arrives as one batch with one timestamp. Several trains are therefore sent back to back, and the
//! bursts grow until their spread can be measured.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::dispersion::{MIN_COARSE_SPAN, MIN_SPAN, Run, Spread};

/// Minimum and maximum length of a burst, in packets: what a path of 300 Mbit/s spreads enough; and
/// what one of 5 Gbit/s spreads over several ticks of a host.
const BURST: (u64, u64) = (20, 512);
/// Maximum length of the first burst, in packets, and packets of it per second of round trip. It
/// may meet a queue of a few packets. It is a fifth of what a path of 38 Mbit/s and
/// 100 ms or of 120 Mbit/s and 10 ms holds. 64 packets show a path of up to 1.4 Gbit/s at once.
const FIRST_BURST: (u64, f64) = (64, 640.0);
/// Where the first burst has this length, it is measured coarsely, and then repeated. Where the round
/// trip is shorter, a wrong capacity costs little time, and a short queue drops the end of each burst.
pub(super) const LONG_BURST: u64 = FIRST_BURST.0;
/// Growth after a burst without a measurable spread, below `FIRST_BURST` and above.
const BLIND_GROWTH: (u64, u64) = (4, 2);
/// Time over which a burst should arrive: ticks at its ends are not measured.
const WANTED_SPAN: Duration = Duration::from_micros(800);
/// Maximum growth from one burst to the next.
const MAX_BURST_GROWTH: u64 = 16;
/// Maximum number of bursts.
const MAX_BURSTS: u32 = 64;
/// Bursts are repeated until they have arrived over this time in all: the ends of one that takes a
/// few ticks of a host are uncertain by a quarter of its length.
const SETTLED_SPAN: Duration = Duration::from_micros(1_500);
/// They are not repeated if a report shows the loss of this share of one.
const OVERFLOW_SHARE: u64 = 8;
/// Age at which a capacity is measured again.
const MAX_CAPACITY_AGE: Duration = Duration::from_secs(10);
/// Minimum packets between bursts once a capacity was measured.
const REMEASURE_PACKETS: u64 = 16_384;
/// Maximum time between trains that count as back to back: a busy processor needs as much.
const BACK_TO_BACK: Duration = Duration::from_micros(200);
/// Samples kept.
const SAMPLES: usize = 16;

/// Packets of the first burst at a round trip of `rtt`, at most 64.
pub(super) fn first_burst(rtt: Duration) -> u64 {
    let packets = (FIRST_BURST.1 * rtt.as_secs_f64()) as u64;
    packets.clamp(BURST.0, FIRST_BURST.0)
}

/// Decides when packets are sent back to back.
#[derive(Debug)]
pub(super) struct Bursts {
    /// Send index of the first packet of the current run.
    run: u64,
    /// Whether the sender has not waited since the last train.
    streak: bool,
    sent_at: Time,
    /// Packets left of the burst.
    left: u64,
    /// The send index from which the next burst may begin.
    next: u64,
    length: u64,
    tried: u32,
    /// The last burst was too short: the next one does not wait for the pacer.
    due: bool,
    /// Pings before the data have determined the length of the first burst.
    is_fitted: bool,
    /// The round trip allows a first burst of `LONG_BURST`.
    starts_long: bool,
}

impl Default for Bursts {
    fn default() -> Self {
        Self {
            run: 0,
            streak: false,
            sent_at: Time::ZERO,
            left: 0,
            next: 0,
            length: BURST.0,
            tried: 0,
            due: false,
            is_fitted: false,
            starts_long: false,
        }
    }
}

impl Bursts {
    /// Packets left of the burst. They are sent at once, without pacing.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Whether a burst may begin now, without pacing.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// Packets of the burst that is being sent; zero outside of one.
    pub(super) fn packets(&self) -> u64 {
        if self.left > 0 { self.length } else { 0 }
    }

    /// The round trip is `rtt`: determines the length of the first burst.
    pub(super) fn on_path(&mut self, rtt: Duration) {
        if self.tried == 0 && !self.is_fitted {
            self.length = first_burst(rtt);
            self.starts_long = self.length >= LONG_BURST;
        }
    }

    /// A train of pings showed this capacity, in packets of `wire` bytes: the first burst follows at
    /// once and takes 0.8 ms. It is not shorter than the train, whose answers threads may have delayed.
    pub(super) fn on_train(&mut self, capacity: DataRate, wire: ByteCount) {
        if self.tried > 0 {
            return;
        }
        let packets = capacity.bytes_in(WANTED_SPAN).get() / wire.get().max(1);
        self.length = self.length.max(packets).min(BURST.1);
        (self.due, self.is_fitted) = (true, true);
    }

    /// The answers to so many pings, sent back to back before the first data, came within `span`,
    /// which is too short to measure: the next burst is longer, and does not wait.
    pub(super) fn on_short_train(&mut self, pings: u64, span: Duration) {
        if span.is_zero() || span >= WANTED_SPAN || self.tried > 0 {
            return;
        }
        let factor = (WANTED_SPAN.as_nanos() / span.as_nanos()).clamp(2, MAX_BURST_GROWTH);
        self.length = (pings * factor).min(BURST.1);
        (self.due, self.is_fitted) = (true, true);
    }

    /// The sender has to wait.
    pub(super) fn wait(&mut self) {
        (self.streak, self.left) = (false, 0);
    }

    /// Packets from this send index on were sent, `paced` or not; returns the run that they belong
    /// to.
    pub(super) fn on_sent(
        &mut self,
        now: Time,
        index: u64,
        packets: u64,
        paced: bool,
        capacity: &Capacity,
    ) -> u64 {
        if !self.streak || now.since(self.sent_at) > BACK_TO_BACK {
            self.run = index;
        }
        (self.streak, self.sent_at) = (true, now);
        if self.left > 0 {
            self.left = self.left.saturating_sub(packets);
        } else if paced && index >= self.next {
            self.begin(now, index, packets, capacity);
        }
        self.run
    }

    fn begin(&mut self, now: Time, index: u64, packets: u64, capacity: &Capacity) {
        self.due = false;
        let settled = capacity.measured_span >= SETTLED_SPAN;
        let fresh = capacity.measured_at.is_some_and(|at| now.since(at) < MAX_CAPACITY_AGE);
        if (settled && fresh) || self.tried >= MAX_BURSTS {
            return;
        }
        self.left = self.length.saturating_sub(packets);
        // The report on this burst decides how long the next one is, and ends this wait.
        let repeats = capacity.count > 0 && !settled;
        let pause = if settled { REMEASURE_PACKETS } else { 0 };
        self.next = index + self.length * if repeats { 2 } else { 4 } + pause;
        self.tried += 1;
    }

    /// Packets after which a run counts as a whole burst.
    fn long(&self) -> u64 {
        self.length * 3 / 4
    }

    /// A run of this many packets, which arrived within `span`, was too short to measure its
    /// spread. A longer burst may follow at once.
    fn too_short(&mut self, packets: u64, span: Duration) {
        if packets < self.long() || self.length == BURST.1 {
            return;
        }
        if span.is_zero() || span >= WANTED_SPAN {
            // A report was lost, or the path delivers in heaps: the next burst keeps its distance,
            // unless it is short.
            let (fast, slow) = BLIND_GROWTH;
            let is_short = self.length < FIRST_BURST.0;
            self.length = (self.length * if is_short { fast } else { slow }).min(BURST.1);
            if is_short {
                (self.next, self.due) = (0, true);
            }
            return;
        }
        let missing = WANTED_SPAN.as_nanos() / span.as_nanos();
        let factor = missing.clamp(2, MAX_BURST_GROWTH);
        self.length = (self.length * factor).min(BURST.1);
        (self.next, self.due) = (0, true);
    }
}

/// The position of a marked packet in the sending order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marked {
    /// First send index of its run.
    pub(super) run: u64,
    /// Its send index.
    pub(super) index: u64,
    /// When it arrived.
    pub(super) at: Time,
    /// Its size.
    pub(super) wire: ByteCount,
}

/// Estimates the capacity from the runs with marks.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    run: Run,
    last: Option<Marked>,
    /// The burst that was measured without its last packets: its first send index, and the one
    /// after it.
    cut: Option<(u64, u64)>,
    recent: [u64; SAMPLES],
    count: usize,
    measured_at: Option<Time>,
    /// The time over which all samples arrived.
    measured_span: Duration,
}

impl Capacity {
    /// Takes the marks of one report, in any order.
    pub(super) fn on_marks(&mut self, now: Time, marks: &mut [Marked], bursts: &mut Bursts) {
        marks.sort_unstable_by_key(|mark| mark.at);
        for mark in marks {
            if self.cut.is_some_and(|(run, end)| mark.run == run && mark.index < end) {
                continue;
            }
            match self.last.filter(|last| last.run == mark.run && !self.run.is_full()) {
                // It came through another lane or out of order.
                Some(last) if mark.index <= last.index => continue,
                Some(last) => {
                    self.run.push(mark.index - last.index, mark.at.since(last.at));
                }
                None => self.end_run(now, bursts),
            }
            self.last = Some(*mark);
        }
        // A burst whose marks have all arrived need not wait for the next one, and a short queue may
        // have dropped its end.
        let Some(last) = self.last else { return };
        let (packets, length) = (last.index + 1 - last.run, bursts.length);
        let long = packets >= bursts.long() || self.run.span() >= WANTED_SPAN;
        if packets >= length || (long && self.run.is_measured(MIN_SPAN)) {
            self.end_run(now, bursts);
            (self.last, self.cut) = (None, Some((last.run, last.run + length)));
        }
    }

    fn end_run(&mut self, now: Time, bursts: &mut Bursts) {
        let Some(last) = self.last else { return };
        let span = self.run.span();
        let is_coarse = self.count == 0 && bursts.starts_long;
        match self.run.finish(if is_coarse { MIN_COARSE_SPAN } else { MIN_SPAN }) {
            Spread::Measured { packets, span } => {
                let bytes = ByteCount(packets * last.wire.get());
                let rate = DataRate::from_bytes_over(bytes, span);
                self.recent[self.count % SAMPLES] = rate.as_bps();
                self.count += 1;
                self.measured_at = Some(now);
                self.measured_span += span;
                if !bursts.starts_long || span >= WANTED_SPAN {
                    self.settle();
                }
            }
            Spread::AtMost { .. } | Spread::TooShort => {
                bursts.too_short(last.index + 1 - last.run, span);
            }
        }
    }

    /// So many packets were lost since the last report.
    pub(super) fn on_lost(&mut self, packets: u64, bursts: &Bursts) {
        if self.count > 0 && packets > 0 && packets >= bursts.length / OVERFLOW_SHARE {
            self.settle();
        }
    }

    /// Bursts are not repeated.
    fn settle(&mut self) {
        self.measured_span = self.measured_span.max(SETTLED_SPAN);
    }

    /// The median of the newest samples.
    pub(super) fn estimate(&self) -> Option<DataRate> {
        let mut recent = self.recent;
        let known = &mut recent[..self.count.min(SAMPLES)];
        known.sort_unstable();
        known.get(known.len() / 2).map(|bps| DataRate::from_bps(*bps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: ByteCount = ByteCount(1_472);

    /// Sends trains of 16 as `Bursts` allows over a link of `rate` to a host that coalesces
    /// everything that arrives within `tick`. Returns the estimate and the packets sent after
    /// `rounds` of 64 packets, paced far below the link rate.
    fn simulate(rate: DataRate, tick: Duration, rounds: u64) -> (Option<DataRate>, u64) {
        let (mut bursts, mut capacity) = (Bursts::default(), Capacity::default());
        let gap = rate.time_for(WIRE);
        let (mut now, mut index, mut idle) = (Time::ZERO, 0, Time::ZERO);
        for _ in 0..rounds {
            let mut marks: Vec<Marked> = Vec::new();
            let end = index + 64;
            while index < end {
                if bursts.left() == 0 {
                    now += Duration::from_millis(20);
                    bursts.wait();
                }
                let run = bursts.on_sent(now, index, 16, true, &capacity);
                for i in index..index + 16 {
                    idle = idle.max(now) + gap;
                    let ticks = idle.as_nanos().div_ceil(tick.as_nanos().max(1));
                    let at = Time::from_nanos(ticks * tick.as_nanos().max(1));
                    let mark = Marked { run, index: i, at, wire: WIRE };
                    match marks.last_mut() {
                        Some(last) if last.at == at => *last = mark,
                        _ => marks.push(mark),
                    }
                }
                index += 16;
            }
            capacity.on_marks(now, &mut marks, &mut bursts);
        }
        (capacity.estimate(), bursts.length)
    }

    #[test]
    fn bursts_grow_until_the_spread_shows() {
        for (mbit, tick, rounds, max) in [
            (100, 200, 2, 32),
            (1_000, 1, 4, 128),
            (1_000, 50, 4, 128),
            (1_000, 200, 8, 256),
            (5_000, 50, 16, 512),
        ] {
            let rate = DataRate::from_mbps(mbit);
            let (got, length) = simulate(rate, Duration::from_micros(tick), rounds);
            let got = got.unwrap_or_default().as_bps() as f64 / rate.as_bps() as f64;
            assert!((got - 1.0).abs() < 0.1, "{mbit} Mbit/s, {tick} us: {got}");
            assert!(length <= max, "{mbit} Mbit/s, {tick} us: bursts of {length}");
        }
    }

    #[test]
    fn the_first_burst_is_as_long_as_the_round_trip_allows() {
        for (ms, packets) in [(1, 20), (10, 20), (40, 25), (100, 64), (300, 64)] {
            let mut bursts = Bursts::default();
            bursts.on_path(Duration::from_millis(ms));
            bursts.on_sent(Time::ZERO, 0, 2, true, &Capacity::default());
            assert_eq!((bursts.packets(), bursts.left()), (packets, packets - 2), "{ms} ms");
            // Later ones follow what was measured.
            bursts.on_path(Duration::from_millis(1));
            assert_eq!(bursts.packets(), packets);
        }
    }

    /// Marks of packets of one run, one every 12 us: 1 Gbit/s.
    fn marks(packets: std::ops::Range<u64>) -> Vec<Marked> {
        let at = |index| Time::ZERO + Duration::from_micros(1_000 + 12 * index);
        packets.map(|index| Marked { run: 0, index, at: at(index), wire: WIRE }).collect()
    }

    #[test]
    fn a_burst_without_its_end_is_measured_once() {
        let (mut bursts, mut capacity) = (Bursts::default(), Capacity::default());
        bursts.on_path(Duration::from_millis(100));
        bursts.on_sent(Time::ZERO, 0, 64, true, &capacity);
        capacity.on_marks(Time::ZERO, &mut marks(0..40), &mut bursts);
        assert_eq!(capacity.estimate(), None, "too much may be missing");
        capacity.on_marks(Time::ZERO, &mut marks(40..56), &mut bursts);
        let mbps = capacity.estimate().unwrap_or_default().as_bps() as f64 / 1e6;
        assert!((mbps - 981.0).abs() < 2.0, "{mbps}");
        // The end was not lost but came later: it is no run of its own.
        capacity.on_marks(Time::ZERO, &mut marks(56..64), &mut bursts);
        assert_eq!((capacity.count, bursts.length), (1, 64));
    }

    #[test]
    fn what_no_burst_shows_is_not_told_and_not_tried_for_ever() {
        let mut bursts = Bursts::default();
        bursts.on_path(Duration::from_millis(100));
        let capacity = Capacity::default();
        let mut begun = 0;
        for i in 0..100_000u64 {
            bursts.wait();
            bursts.on_sent(Time::ZERO, i * 16, 16, true, &capacity);
            begun += u32::from(bursts.left() > 0);
        }
        assert_eq!(begun, MAX_BURSTS);
        assert_eq!(capacity.estimate(), None);
    }

    #[test]
    fn a_sender_without_a_pace_is_not_made_to_burst() {
        let mut bursts = Bursts::default();
        bursts.on_sent(Time::ZERO, 0, 16, false, &Capacity::default());
        assert_eq!(bursts.left(), 0);
    }
}
