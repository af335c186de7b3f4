//! Rates from a recorded trace, in the format of mahimahi's `mm-link`.
//!
//! Each line of the file is a time in whole milliseconds at which the link could deliver one packet
//! of 1,500 bytes. Times do not decrease; equal times are several packets. The trace restarts at the
//! last time.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::config::RateSchedule;

/// Bytes of one delivery. Mahimahi writes 1,504: 1,500 and four of its TUN device.
const DELIVERY: ByteCount = ByteCount(1_500);
/// Longest trace, in milliseconds: a day.
const MAX_MILLIS: u64 = 24 * 3_600 * 1_000;
/// A resolution of one millisecond.
const STEP: Duration = Duration::from_millis(1);

/// Why a trace was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The file is too big.
    #[error("the trace has {0} bytes; at most {max} are read", max = RateSchedule::MAX_TRACE_BYTES)]
    Size(usize),
    /// A line is wrong; lines count from one.
    #[error("line {line} of the trace: {what}")]
    Line {
        /// Its number.
        line: usize,
        /// The error and its correction.
        what: String,
    },
    /// It has no delivery after time zero.
    #[error("the trace has no delivery after time zero: write a millisecond a line, such as 12")]
    Empty,
}

impl RateSchedule {
    /// Largest trace, in bytes.
    pub const MAX_TRACE_BYTES: usize = 16 << 20;

    /// Parses a trace in mahimahi's format into a schedule that repeats. The rate of a millisecond
    /// carries as many packets of 1,500 bytes, counted from the network header on, as the trace has
    /// deliveries at its end. A millisecond without a delivery has no rate: packets wait.
    ///
    /// A packet arrives up to a millisecond off its time in mahimahi, and an opportunity of which a
    /// small packet uses a part leaves the rest to the next packet.
    ///
    /// # Errors
    ///
    /// Refuses a text of more than 16 MiB, a line that is not a whole number of milliseconds up to
    /// a day, a time before that of the line above it, and a trace that ends at zero.
    pub fn from_trace(text: &str) -> Result<Self, TraceError> {
        if text.len() > Self::MAX_TRACE_BYTES {
            return Err(TraceError::Size(text.len()));
        }
        // Deliveries by millisecond, in order; those at zero belong to the end of the round before.
        let mut deliveries: Vec<(u64, u64)> = Vec::new();
        let (mut at_zero, mut last) = (0, 0);
        for (index, line) in text.lines().enumerate() {
            let wrong = |what: String| TraceError::Line { line: index + 1, what };
            let at = millisecond(line).map_err(wrong)?;
            if at < last {
                let what = format!("{at} is before {last}, the line above: sort the times");
                return Err(wrong(what));
            }
            last = at;
            match deliveries.last_mut() {
                _ if at == 0 => at_zero += 1,
                Some((before, count)) if *before == at => *count += 1,
                _ => deliveries.push((at, 1)),
            }
        }
        let Some((_, count)) = deliveries.last_mut() else { return Err(TraceError::Empty) };
        *count += at_zero;
        let mut steps = Vec::new();
        let mut until = 0;
        for (at, count) in deliveries {
            if until < at - 1 {
                push(&mut steps, until, DataRate::ZERO);
            }
            push(&mut steps, at - 1, rate(count));
            until = at;
        }
        Ok(Self { steps, period: Some(Duration::from_millis(last)) })
    }

    /// The mean rate over a period, or the last rate of a schedule that does not repeat.
    /// `DataRate::MAX` if a rate has no limit.
    pub fn mean(&self) -> DataRate {
        let Some(period) = self.period.filter(|period| !period.is_zero()) else {
            return self.steps.last().map_or(DataRate::ZERO, |step| step.1);
        };
        let ends = self.steps.iter().skip(1).map(|step| step.0);
        let mut bits = 0;
        for ((from, rate), to) in self.steps.iter().zip(ends.chain([Time::ZERO + period])) {
            if *rate == DataRate::MAX {
                return DataRate::MAX;
            }
            bits += u128::from(rate.as_bps()) * u128::from(to.since(*from).as_nanos());
        }
        DataRate::from_bps(u64::try_from(bits / u128::from(period.as_nanos())).unwrap_or(u64::MAX))
    }
}

/// The rate of a millisecond with `count` deliveries.
fn rate(count: u64) -> DataRate {
    let millis_per_second = 1_000;
    DataRate::from_bps(count * DELIVERY.get() * 8 * millis_per_second)
}

/// Adds a step, unless the rate stays.
fn push(steps: &mut Vec<(Time, DataRate)>, millis: u64, rate: DataRate) {
    if steps.last().is_none_or(|step| step.1 != rate) {
        steps.push((Time::ZERO + STEP * millis, rate));
    }
}

/// A line of a trace.
fn millisecond(line: &str) -> Result<u64, String> {
    let word = line.trim();
    let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    match word.parse() {
        Ok(at @ 0..=MAX_MILLIS) if digits => Ok(at),
        Ok(_) if digits => Err(format!("a trace has at most {MAX_MILLIS} ms, a day")),
        _ => {
            let shown: String = word.chars().take(20).collect();
            let shown = shown.escape_debug();
            Err(format!("`{shown}` is not a whole number of milliseconds, such as 12"))
        }
    }
}

#[cfg(test)]
#[path = "rate_trace_tests.rs"]
mod tests;
