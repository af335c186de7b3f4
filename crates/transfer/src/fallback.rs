//! When a transport is no longer trusted with ranges: it stalls, is policed, or refuses.
//!
//! *Stall*: nothing placed for [`STALL_AFTER`] (longer for a transport so slow that this is how it
//! moves; [`FIRST_WITHIN`] for one that never placed anything) although it has ranges. *Policed*: for [`POLICED_AFTER`] under half the rate that another
//! transport showed. *Refusal*: it gave ranges back unasked; asked again at once it would do so
//! again. Each has a penalty that grows with repetition and ends by itself, since networks heal.

use packtrain_units::{Backoff, ByteCount, DataRate, Duration, Time};

use crate::limits::{
    FIRST_WITHIN, POLICED_AFTER, POLICED_PENALTY, STALL_AFTER, STALL_PENALTY, WINDOW_MAX,
    WINDOW_PROBE, WINDOW_SPAN, WINDOW_START,
};

/// Over how long one sample of the rate is taken.
const SAMPLE: Duration = Duration::from_millis(500);
/// A transport so slow that this takes longer than a stall is given that long.
const SLOW_STEP: ByteCount = ByteCount(256 << 10);
/// The pauses after refusals in a row.
const REFUSAL_PAUSE: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(4));

/// How well one transport does.
#[derive(Debug)]
pub(crate) struct Health {
    /// When it last placed something, or got its first range while it had none.
    moved: Time,
    /// Whether it ever placed anything.
    has_placed: bool,
    /// Since when it has had ranges without a break.
    busy: Option<Time>,
    sample_start: Time,
    sample_bytes: u64,
    rate: DataRate,
    /// The rate it showed at its best, slowly forgotten.
    shown: DataRate,
    stalls: u32,
    stalled_until: Time,
    /// Bytes placed since it was last put aside.
    proven: u64,
    polices: u32,
    policed_until: Time,
    refusals: u32,
    refused_until: Time,
}

impl Health {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            moved: now,
            has_placed: false,
            busy: None,
            sample_start: now,
            sample_bytes: 0,
            rate: DataRate::ZERO,
            shown: DataRate::ZERO,
            stalls: 0,
            stalled_until: Time::ZERO,
            proven: 0,
            polices: 0,
            policed_until: Time::ZERO,
            refusals: 0,
            refused_until: Time::ZERO,
        }
    }

    /// The transport got a range.
    pub(crate) fn on_assigned(&mut self, now: Time) {
        if self.busy.is_none() {
            self.busy = Some(now);
            self.moved = now;
            self.sample_start = now;
            self.sample_bytes = 0;
        }
    }

    /// The transport placed `bytes`.
    pub(crate) fn on_placed(&mut self, now: Time, bytes: ByteCount) {
        (self.moved, self.has_placed) = (now, true);
        self.refusals = 0;
        self.sample_bytes += bytes.get();
        if self.stalls > 0 && self.stalled_until <= now {
            self.proven += bytes.get();
            if self.proven >= WINDOW_PROBE {
                self.stalls = 0;
            }
        }
        let span = now.since(self.sample_start);
        if span < SAMPLE {
            return;
        }
        let sample = DataRate::from_bytes_over(ByteCount(self.sample_bytes), span);
        self.rate = if self.rate == DataRate::ZERO {
            sample
        } else {
            DataRate::from_bps(self.rate.mul_f64(0.7).as_bps() + sample.mul_f64(0.3).as_bps())
        };
        self.shown = self.shown.mul_f64(0.99).max(self.rate);
        self.sample_start = now;
        self.sample_bytes = 0;
    }

    /// The transport has no ranges any more.
    pub(crate) fn on_idle(&mut self) {
        self.busy = None;
    }

    /// The transport gave back what nobody asked back.
    pub(crate) fn on_refused(&mut self, now: Time) {
        self.refused_until = now + REFUSAL_PAUSE.after(self.refusals);
        self.refusals = self.refusals.saturating_add(1);
    }

    /// Whether it moves nothing although it could. `replaceable`: another transport works, as far as
    /// known.
    pub(crate) fn is_stalling(&self, now: Time, replaceable: bool) -> bool {
        let step = self.rate.time_for(SLOW_STEP);
        let patience = if replaceable && !self.has_placed {
            FIRST_WITHIN
        } else if self.rate == DataRate::ZERO || step > Duration::from_secs(30) {
            STALL_AFTER
        } else {
            STALL_AFTER.max(step)
        };
        self.busy.is_some() && now.since(self.moved) >= patience
    }

    /// Whether it is slow compared with what another one showed.
    pub(crate) fn is_policed(&self, now: Time, best_other: DataRate) -> bool {
        let busy = self.busy.is_some_and(|since| now.since(since) >= POLICED_AFTER);
        busy && self.rate > DataRate::ZERO && self.rate.as_bps() < best_other.as_bps() / 2
    }

    /// Puts it aside as stalled.
    pub(crate) fn stall(&mut self, now: Time) {
        self.stalled_until = now + STALL_PENALTY.after(self.stalls);
        self.stalls = self.stalls.saturating_add(1);
        self.proven = 0;
        self.busy = None;
    }

    /// Puts it behind the others as policed.
    pub(crate) fn police(&mut self, now: Time) {
        self.policed_until = now + POLICED_PENALTY.after(self.polices);
        self.polices = self.polices.saturating_add(1);
        self.busy = None;
    }

    /// Whether it stalled and has not shown since that it works again.
    pub(crate) fn is_on_trial(&self) -> bool {
        self.stalls > 0
    }

    /// Until when it is aside for stalling.
    pub(crate) fn stalled_until(&self) -> Time {
        self.stalled_until
    }

    /// Whether it is behind the others.
    pub(crate) fn is_behind(&self, now: Time) -> bool {
        self.policed_until > now
    }

    /// Whether it may get nothing at all now.
    pub(crate) fn is_paused(&self, now: Time) -> bool {
        self.refused_until > now
    }

    /// The rate it has now, zero if unknown.
    pub(crate) fn rate(&self) -> DataRate {
        self.rate
    }

    /// The rate it showed at its best.
    pub(crate) fn shown(&self) -> DataRate {
        self.shown
    }

    /// How many bytes it may have assigned.
    pub(crate) fn window(&self) -> u64 {
        if self.stalls > 0 {
            return WINDOW_PROBE;
        }
        let span = self.rate.bytes_in(WINDOW_SPAN);
        span.clamp(WINDOW_START, WINDOW_MAX).get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penalties_double_up_to_sixteen_times_the_first() {
        let waits = |backoff: Backoff| (0..6).map(move |n| backoff.after(n).as_millis());
        assert!(waits(REFUSAL_PAUSE).eq([250, 500, 1000, 2000, 4000, 4000]));
        assert!(waits(STALL_PENALTY).eq([10_000, 20_000, 40_000, 80_000, 80_000, 80_000]));
        let minute = 60_000;
        assert!(waits(POLICED_PENALTY).eq([1, 2, 4, 8, 16, 16].map(|n| n * minute)));
    }
}
