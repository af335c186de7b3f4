//! Limits the bytes of probes in any period of one hour.

use std::collections::VecDeque;

use packtrain_units::{ByteCount, Duration, Time};

const HOUR: Duration = Duration::from_secs(3600);

/// The bytes spent in the last hour.
#[derive(Debug)]
pub(super) struct Budget {
    most: ByteCount,
    spent: VecDeque<(Time, ByteCount)>,
    sum: u64,
}

impl Budget {
    pub(super) fn new(most: ByteCount) -> Self {
        Self { most, spent: VecDeque::new(), sum: 0 }
    }

    /// Takes up to `wanted` bytes; `None` if fewer than `least` are left.
    pub(super) fn take(
        &mut self,
        now: Time,
        wanted: ByteCount,
        least: ByteCount,
    ) -> Option<ByteCount> {
        while let Some((at, bytes)) = self.spent.front()
            && now.since(*at) >= HOUR
        {
            self.sum -= bytes.get();
            self.spent.pop_front();
        }
        let left = self.most.saturating_sub(ByteCount(self.sum));
        let granted = wanted.min(left);
        if granted < least || granted == ByteCount::ZERO {
            return None;
        }
        self.sum += granted.get();
        self.spent.push_back((now, granted));
        Some(granted)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_hour_has_more(
            most in 1u64..1 << 30,
            asked in proptest::collection::vec((0u64..1_800, 0u64..1 << 28, 0u64..1 << 20), 1..80),
        ) {
            let mut budget = Budget::new(ByteCount(most));
            let mut now = Time::from_nanos(1);
            let mut granted: Vec<(Time, u64)> = Vec::new();
            for (seconds, wanted, least) in asked {
                now += Duration::from_secs(seconds);
                let got = budget.take(now, ByteCount(wanted), ByteCount(least));
                prop_assert!(got.is_none_or(|got| got.get() >= least && got.get() <= wanted));
                granted.extend(got.map(|got| (now, got.get())));
                let hour = granted.iter().filter(|(at, _)| now.since(*at) < HOUR);
                prop_assert!(hour.map(|(_, bytes)| bytes).sum::<u64>() <= most);
            }
        }
    }
}
