//! Capacity of the narrowest link: packets are made to leave back to back in bursts, and arrival
//! marks tell how far the path spread them.
//!
//! One train says little where the host or the card joins its packets: it arrives as one batch
//! with one stamp. So trains are sent behind each other until the spread shows: while bursts tell
//! nothing they grow.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::dispersion::{Run, Spread};

/// A burst at first, and at most, in packets: two trains of the launch, and what a path of
/// 5 Gbit/s spreads over several of a host's ticks.
const BURST: (u64, u64) = (32, 512);
/// So many bursts that told nothing are enough.
const MAX_UNTOLD_BURSTS: u32 = 64;
/// A capacity older than this is measured again,
const STALE: Duration = Duration::from_secs(10);
/// by a burst now and then, in packets.
const RARELY: u64 = 16_384;
/// Trains leave back to back if no more time passes between them than a busy processor needs.
const TOGETHER: Duration = Duration::from_micros(200);
/// Samples kept.
const SAMPLES: usize = 16;

/// When packets leave back to back.
#[derive(Debug)]
pub(super) struct Bursts {
    /// Send index of the first packet of the run under way.
    run: u64,
    /// No wait since the last train left.
    streak: bool,
    sent_at: Time,
    /// So many packets are to leave at once.
    left: u64,
    /// Not before this send index does the next burst begin.
    next: u64,
    length: u64,
    tried: u32,
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
        }
    }
}

impl Bursts {
    /// Whether the next train leaves at once, whatever the pace.
    pub(super) fn at_once(&self) -> bool {
        self.left > 0
    }

    /// The sender has to wait.
    pub(super) fn wait(&mut self) {
        (self.streak, self.left) = (false, 0);
    }

    /// Packets left from this send index on, `paced` or not; gives the run that they belong to.
    pub(super) fn on_sent(
        &mut self,
        now: Time,
        index: u64,
        packets: u64,
        paced: bool,
        capacity: &Capacity,
    ) -> u64 {
        if !self.streak || now.since(self.sent_at) > TOGETHER {
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
        let known = capacity.measured_at.is_some_and(|at| now.since(at) < STALE);
        if known || self.tried >= MAX_UNTOLD_BURSTS {
            return;
        }
        self.left = self.length.saturating_sub(packets);
        let pause = if capacity.count > 0 { RARELY } else { 0 };
        self.next = index + self.length * 2 + pause;
        self.tried += 1;
    }

    /// A run of so many packets was too short to show its spread.
    fn too_short(&mut self, packets: u64) {
        if packets >= self.length * 3 / 4 {
            self.length = (self.length * 2).min(BURST.1);
        }
    }
}

/// Where a marked packet was in what was sent.
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

/// Capacity, from the runs that marks tell of.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    run: Run,
    last: Option<Marked>,
    recent: [u64; SAMPLES],
    count: usize,
    measured_at: Option<Time>,
}

impl Capacity {
    /// The marks of one report, in any order.
    pub(super) fn on_marks(&mut self, now: Time, marks: &mut [Marked], bursts: &mut Bursts) {
        marks.sort_unstable_by_key(|mark| mark.at);
        for mark in marks {
            match self.last.filter(|last| last.run == mark.run && !self.run.is_full()) {
                // It came by another way, or out of order.
                Some(last) if mark.index <= last.index => continue,
                Some(last) => {
                    self.run.push(mark.index - last.index, mark.at.since(last.at));
                }
                None => self.end_run(now, bursts),
            }
            self.last = Some(*mark);
        }
        // A burst that is all told need not wait for the next one.
        if self.last.is_some_and(|last| last.index + 1 - last.run >= bursts.length) {
            self.end_run(now, bursts);
            self.last = None;
        }
    }

    fn end_run(&mut self, now: Time, bursts: &mut Bursts) {
        let Some(last) = self.last else { return };
        match self.run.finish() {
            Spread::Measured { packets, span } => {
                let bytes = ByteCount(packets * last.wire.get());
                let rate = DataRate::from_bytes_over(bytes, span);
                self.recent[self.count % SAMPLES] = rate.as_bps();
                self.count += 1;
                self.measured_at = Some(now);
            }
            Spread::AtMost { .. } | Spread::TooShort => bursts.too_short(last.index + 1 - last.run),
        }
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

    /// Trains of 16 that leave as `Bursts` lets them, a link of `rate`, and a host that joins all
    /// that comes in `tick`. Gives what is told after `rounds` of 64 packets, paced far below.
    fn told(rate: DataRate, tick: Duration, rounds: u64) -> (Option<DataRate>, u64) {
        let (mut bursts, mut capacity) = (Bursts::default(), Capacity::default());
        let gap = rate.time_for(WIRE);
        let (mut now, mut index, mut idle) = (Time::ZERO, 0, Time::ZERO);
        for _ in 0..rounds {
            let mut marks: Vec<Marked> = Vec::new();
            let end = index + 64;
            while index < end {
                if !bursts.at_once() {
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
        for (mbit, tick, rounds, most) in [
            (100, 200, 2, 32),
            (1_000, 1, 2, 64),
            (1_000, 50, 3, 64),
            (1_000, 200, 8, 128),
            (5_000, 50, 24, 512),
        ] {
            let rate = DataRate::from_mbps(mbit);
            let (got, length) = told(rate, Duration::from_micros(tick), rounds);
            let got = got.unwrap_or_default().as_bps() as f64 / rate.as_bps() as f64;
            assert!((got - 1.0).abs() < 0.1, "{mbit} Mbit/s, {tick} us: {got}");
            assert!(length <= most, "{mbit} Mbit/s, {tick} us: bursts of {length}");
        }
    }

    #[test]
    fn what_no_burst_shows_is_not_told_and_not_tried_for_ever() {
        let mut bursts = Bursts::default();
        let capacity = Capacity::default();
        let mut begun = 0;
        for i in 0..100_000u64 {
            bursts.wait();
            bursts.on_sent(Time::ZERO, i * 16, 16, true, &capacity);
            begun += u32::from(bursts.at_once());
        }
        assert_eq!(begun, MAX_UNTOLD_BURSTS);
        assert_eq!(capacity.estimate(), None);
    }

    #[test]
    fn a_sender_without_a_pace_is_not_made_to_burst() {
        let mut bursts = Bursts::default();
        bursts.on_sent(Time::ZERO, 0, 16, false, &Capacity::default());
        assert!(!bursts.at_once());
    }
}
