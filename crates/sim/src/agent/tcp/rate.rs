//! Delivery rate (draft-cheng-iccrg-delivery-rate-estimation section 3).

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::log::Transmission;

/// The state stored with each sent packet: P.delivered and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    pub(super) app_limited: bool,
}

/// The state of the connection: C.delivered and so on.
#[derive(Clone, Debug, Default)]
pub(super) struct RateSampler {
    /// Bytes delivered so far.
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    /// Samples are application-limited until this many bytes are delivered.
    app_limited_until: u64,
}

impl RateSampler {
    /// A packet is sent at `now`, with `in_flight` bytes before it.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Time, in_flight: u64) -> Snapshot {
        if in_flight == 0 {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            app_limited: self.app_limited_until > 0,
        }
    }

    /// The sender has no more data although it could send.
    pub(super) fn app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// `bytes` were delivered, the newest of them by `newest`.
    #[inline]
    pub(super) fn on_delivered(&mut self, now: Time, bytes: u64, newest: &Transmission) {
        self.delivered += bytes;
        self.delivered_at = now;
        self.first_sent_at = newest.at;
        if self.app_limited_until > 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
    }

    /// The rate over the flight that `newest` ends; none for spans shorter than the minimum round
    /// trip, which only reflect acknowledgements that arrived together.
    pub(super) fn sample(
        &self,
        now: Time,
        newest: &Transmission,
        min: Duration,
    ) -> Option<DataRate> {
        let then = &newest.snapshot;
        let sending = newest.at.since(then.first_sent_at);
        let acking = now.since(then.delivered_at);
        let span = sending.max(acking);
        let bytes = ByteCount(self.delivered - then.delivered);
        (span >= min && !span.is_zero()).then(|| DataRate::from_bytes_over(bytes, span))
    }
}
