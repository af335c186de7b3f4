//! Processing of the receiver's state, and the controller's feedback.

use packtrain_cc::{Feedback, LossRange, RttSample};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::{Resent, Sender};
use crate::sabul::message::{Message, State};
use crate::stats::FlowStats;
use crate::udt::Impossible;

/// Packets may overtake each other by this much, or by a quarter of the round trip if that is
/// longer.
const MIN_REORDER: Duration = Duration::from_millis(5);
/// While no unit at all has arrived, a retransmission counts as lost after this.
const BLIND_TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum span of a delivery-rate measurement, which lasts at least a round trip.
const DELIVERY_SPAN: Duration = Duration::from_millis(100);

impl Sender {
    /// Handles a message of the receiver.
    pub(crate) fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        match message {
            Message::State(state) => self.on_state(now, state),
            // A sender gets none of these.
            Message::Buffer { .. } | Message::Drop { .. } => Err(Impossible),
        }
    }

    fn on_state(&mut self, now: Time, state: &State) -> Result<(), Impossible> {
        self.check(state)?;
        let sample = self.update_progress(now, state);
        let lost = match state.whole {
            Some(below) => self.lost_again(now, state, below),
            None => self.lost_first(state),
        };
        let acked = state.received.saturating_sub(self.received);
        self.received += acked;
        self.flight.ack(state.next);
        let known = state.top.map_or(0, |(top, _)| top + 1).max(state.next);
        let known = known.max(state.lost.last().map_or(0, |(_, end)| *end));
        (self.known, self.missing) = (self.known.max(known), state.missing);
        self.room = state.next.saturating_add(state.room);
        self.requested = state.requested;
        while self.resent.front().is_some_and(|resent| resent.end <= state.next) {
            self.resent.pop_front();
        }
        let (delivery, round_ended) =
            self.delivery.on_state(now, acked, sample.is_some(), &self.trip, self.config.datagram);
        self.feed(now, acked, sample, lost, delivery, round_ended);
        Ok(())
    }

    /// Rejects a state that cannot be true.
    fn check(&self, state: &State) -> Result<(), Impossible> {
        let next = self.flight.next();
        let mut at = 0;
        for &(first, end) in &state.lost {
            if first < at || first >= end || end > next {
                return Err(Impossible);
            }
            at = end;
        }
        let top = state.top.is_none_or(|(top, _)| top < next);
        let counts = [state.next, state.received, state.missing];
        if top && counts.into_iter().all(|count| count <= next) { Ok(()) } else { Err(Impossible) }
    }

    /// Updates up to which sending time the receiver has seen packets. Returns a round-trip sample
    /// if the state gives one.
    fn update_progress(&mut self, now: Time, state: &State) -> Option<RttSample> {
        let (top, ago) = state.top?;
        if self.trip.top.is_none_or(|(known, _)| known < top)
            && let Some(unit) = self.flight.unit(top)
        {
            self.trip.top = Some((top, unit.sent_at));
            self.largest_acked = self.largest_acked.max(Some(unit.index));
        }
        let (known, sent_at) = self.trip.top?;
        self.trip.seen = self.trip.seen.max(sent_at + ago);
        // For a retransmitted unit it is unknown which transmission arrived.
        (known == top && top >= self.resent_below).then(|| self.trip.sample(now, sent_at + ago))
    }

    /// Gaps reported for the first time.
    fn lost_first(&mut self, state: &State) -> Vec<LossRange> {
        let mut lost = Vec::with_capacity(state.lost.len());
        for &(first, end) in &state.lost {
            let first = first.max(self.flight.acked());
            if let Some(unit) = self.flight.unit(first).filter(|_| first < end) {
                self.lose(first, end, unit.index, unit.sent_at, &mut lost);
            }
        }
        lost
    }

    /// Units retransmitted long enough before this state was sent that are still missing.
    fn lost_again(&mut self, now: Time, state: &State, below: u64) -> Vec<LossRange> {
        let mut lost = Vec::new();
        let reorder = self.trip.smoothed().map_or(MIN_REORDER, |rtt| MIN_REORDER.max(rtt / 4));
        while let Some(&resent) = self.resent.front() {
            let Resent { at, first, end, index } = resent;
            let seen = at + reorder < self.trip.seen;
            let blind = self.trip.top.is_none() && at + BLIND_TIMEOUT < now;
            if !(seen || blind) || end > below {
                break;
            }
            self.resent.pop_front();
            let from = state.lost.partition_point(|(_, b)| *b <= first);
            for &(a, b) in state.lost[from..].iter().take_while(|(a, _)| *a < end) {
                let (a, b) = (a.max(first), b.min(end));
                self.lose(a, b, index + (a - first), at, &mut lost);
            }
        }
        lost
    }

    fn lose(&mut self, first: u64, end: u64, index: u64, at: Time, lost: &mut Vec<LossRange>) {
        let mut dropped = Vec::new();
        let count = self.flight.mark_lost(first, end, |a, b| dropped.push((a, b)));
        self.lost_units += count;
        for (first, end) in dropped {
            self.queue_message(Message::Drop { first, end });
        }
        if count > 0 {
            lost.push(LossRange {
                first: index,
                count: u32::try_from(count).unwrap_or(u32::MAX),
                bytes: ByteCount(count * self.config.datagram.get()),
                sent_at: at,
            });
        }
    }

    /// Passes the feedback to the controller.
    fn feed(
        &mut self,
        now: Time,
        acked: u64,
        rtt: Option<RttSample>,
        lost: Vec<LossRange>,
        delivery_rate: Option<DataRate>,
        round_ended: bool,
    ) {
        let host = std::mem::take(&mut self.host);
        self.controller.on_feedback(&Feedback {
            now,
            largest_acked: self.largest_acked,
            newest_acked_sent_at: self.trip.top.map(|(_, sent_at)| sent_at),
            acked: ByteCount(acked * self.config.datagram.get()),
            acked_packets: acked,
            in_flight: self.in_flight(),
            rtt,
            queueing_delay: None,
            reverse_queue: None,
            delivery_rate,
            arrival_rate: None,
            capacity: None,
            lost: &lost,
            spurious: 0,
            ecn_ce: host.ecn_ce,
            host_drops: host.drops,
            refused: host.refused,
            drain_rate: host.drain,
            app_limited: self.app_limited,
            round_ended,
            timeout: false,
            delay_rising: false,
            bunched: Duration::ZERO,
            held: None,
        });
    }
}

/// The round-trip estimator of RFC 9002 section 5, and the progress of the receiver.
#[derive(Debug, Default)]
pub(super) struct Trip {
    /// The highest unit that arrived, and when it was sent.
    top: Option<(u64, Time)>,
    /// Packets sent before this time had arrived or were lost when the receiver sent its state.
    seen: Time,
    rtt: Option<RttSample>,
    samples: u64,
    total: Duration,
}

impl Trip {
    fn sample(&mut self, now: Time, from: Time) -> RttSample {
        let latest = now.since(from).max(Duration::from_micros(1));
        self.samples += 1;
        self.total += latest;
        let sample = match self.rtt {
            None => RttSample { latest, smoothed: latest, variation: latest / 2, min: latest },
            Some(old) => {
                let off = latest.max(old.smoothed) - latest.min(old.smoothed);
                RttSample {
                    latest,
                    smoothed: (old.smoothed * 7 + latest) / 8,
                    variation: (old.variation * 3 + off) / 4,
                    min: old.min.min(latest),
                }
            }
        };
        *self.rtt.insert(sample)
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.rtt.map(|rtt| rtt.smoothed)
    }

    pub(super) fn gauges(&self, stats: &mut FlowStats) {
        stats.rtt = self.smoothed();
        stats.min_rtt = self.rtt.map(|rtt| rtt.min);
        stats.rtt_latest = self.rtt.map(|rtt| rtt.latest);
        (stats.rtt_samples, stats.rtt_total) = (self.samples, self.total);
    }
}

/// The delivery rate of units.
#[derive(Debug)]
pub(super) struct Delivery {
    since: Time,
    units: u64,
    rate: Option<DataRate>,
}

impl Delivery {
    pub(super) fn new(now: Time) -> Self {
        Self { since: now, units: 0, rate: None }
    }

    /// The rate of the last span.
    pub(super) fn rate(&self) -> Option<DataRate> {
        self.rate
    }

    /// Returns a rate if a span ended, which lasts at least a round trip.
    fn on_state(
        &mut self,
        now: Time,
        acked: u64,
        measured: bool,
        trip: &Trip,
        datagram: ByteCount,
    ) -> (Option<DataRate>, bool) {
        self.units += acked;
        let span = now.since(self.since);
        if span < trip.smoothed().unwrap_or(DELIVERY_SPAN).max(DELIVERY_SPAN) {
            return (None, false);
        }
        let bytes = ByteCount(self.units * datagram.get());
        (self.since, self.units) = (now, 0);
        self.rate = Some(DataRate::from_bytes_over(bytes, span));
        (self.rate, measured)
    }
}
