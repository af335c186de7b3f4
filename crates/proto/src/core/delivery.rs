//! Delivery rate (draft-cheng-iccrg-delivery-rate-estimation) and rounds.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::core::ledger::Sent;

/// Counts delivered bytes and samples their rate.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    /// Wire bytes delivered so far.
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    app_limited_until: u64,
    round_at: u64,
    newest: Option<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    sent_at: Time,
    delivered: u64,
    delivered_at: Time,
    send_elapsed: Duration,
    app_limited: bool,
}

/// The delivery sample of a report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateSample {
    pub(crate) rate: Option<DataRate>,
    pub(crate) app_limited: bool,
    pub(crate) round_ended: bool,
    pub(crate) newest_sent_at: Option<Time>,
}

impl Delivery {
    /// Writes the delivery state into a train that is being sent.
    pub(crate) fn stamp(&mut self, sent: &mut Sent, in_flight: u64) {
        if in_flight == 0 {
            self.first_sent_at = sent.sent_at;
            self.delivered_at = sent.sent_at;
            if self.delivered == 0 {
                // Until now nothing was assigned. That says nothing of the first flight.
                self.app_limited_until = 0;
            }
        }
        sent.delivered = self.delivered;
        sent.delivered_at = self.delivered_at;
        sent.first_sent_at = self.first_sent_at;
        sent.app_limited = self.app_limited_until > self.delivered;
    }

    /// The sender ran out of data with `in_flight` wire bytes in flight.
    pub(crate) fn app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// `bytes` of a train arrived.
    pub(crate) fn acked(&mut self, now: Time, sent: &Sent, bytes: u64) {
        self.delivered += bytes;
        self.delivered_at = now;
        if self.newest.is_none_or(|n| sent.sent_at >= n.sent_at) {
            self.newest = Some(Sample {
                sent_at: sent.sent_at,
                delivered: sent.delivered,
                delivered_at: sent.delivered_at,
                send_elapsed: sent.sent_at.since(sent.first_sent_at),
                app_limited: sent.app_limited,
            });
        }
    }

    /// The sample of the report that was just processed.
    pub(crate) fn sample(&mut self, now: Time) -> RateSample {
        let Some(newest) = self.newest.take() else { return RateSample::default() };
        self.first_sent_at = self.first_sent_at.max(newest.sent_at);
        if self.app_limited_until != 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let round_ended = newest.delivered >= self.round_at;
        if round_ended {
            self.round_at = self.delivered;
        }
        let span = newest.send_elapsed.max(now.since(newest.delivered_at));
        let bytes = ByteCount(self.delivered - newest.delivered);
        let rate = (!span.is_zero()).then(|| DataRate::from_bytes_over(bytes, span));
        RateSample {
            rate,
            app_limited: newest.app_limited,
            round_ended,
            newest_sent_at: Some(newest.sent_at),
        }
    }
}
