//! Processing of the receiver's messages, and the controller's feedback.

use packtrain_cc::{Feedback, LossRange, RttSample};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::{Ack, Impossible, Message, Sender};
use crate::udt::SYN;

/// Minimum span of a delivery-rate measurement, which lasts at least a round trip.
const DELIVERY_SPAN: Duration = Duration::from_millis(20);

/// A queue stands when the round trip exceeds its minimum by a 16th and two milliseconds.
const QUEUE_SHARE: u64 = 16;
const QUEUE_SPAN: Duration = Duration::from_millis(2);

impl Sender {
    /// Handles a message of the receiver.
    ///
    /// # Errors
    /// The message names impossible units, or only a sender sends it; nothing has changed.
    pub fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        match message {
            Message::Ack(ack) => self.on_ack(now, ack),
            Message::Nak { ranges } => self.on_nak(now, ranges),
            Message::Warning => {
                self.feed(
                    now,
                    MessageContents { delay_rising: true, ..MessageContents::default() },
                );
                Ok(())
            }
            // A sender gets none of these.
            Message::Ack2 { .. } | Message::Drop { .. } => Err(Impossible),
        }
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) -> Result<(), Impossible> {
        if ack.next > self.flight.next() {
            return Err(Impossible);
        }
        let (count, last) = self.flight.ack(ack.next);
        if count > 0 {
            self.silence_timer.on_progress(now);
            self.hole.on_ack(now, self.flight.acked());
        }
        if let Some(last) = last {
            self.largest_acked = self.largest_acked.max(Some(last.index));
        }
        let mut contents = MessageContents {
            acked: count,
            newest: last.map(|unit| unit.sent_at),
            ..MessageContents::default()
        };
        if !ack.light {
            if !self.config.bitmaps && self.answers(now, ack) {
                self.queue_message(Message::Ack2 { number: ack.number });
            }
            if self.is_newest(ack.number) {
                self.read(ack, &mut contents);
            }
        }
        (contents.delivery, contents.round_ended) = self.delivery.on_ack(
            now,
            &self.flight,
            self.received,
            self.rtt(),
            self.config.datagram,
        );
        if contents.told {
            let limited = std::mem::take(&mut self.window_limited);
            if self.config.train > 1 && contents.arrival.is_none() && !self.config.bitmaps {
                contents.arrival = self.guess_arrival(limited);
            }
            contents.delay_rising = contents.arrival.is_some() && self.overshoots();
        }
        self.feed(now, contents);
        Ok(())
    }

    /// Whether an ACK gets an ACK2. Of early ACKs one in each SYN is answered, as by the stock library.
    fn answers(&mut self, now: Time, ack: &Ack) -> bool {
        if ack.early && self.answered_at.is_some_and(|at| now < at + SYN) {
            return false;
        }
        self.answered_at = Some(now);
        true
    }

    /// Substitutes for AS. A receiver that estimates packet by packet often cannot measure the
    /// speed of trains. The substitute is the delivery rate, unless the window caused pauses, which
    /// AS excludes: then packets between the pauses arrive at the pace, or at the speed of the
    /// path.
    fn guess_arrival(&self, window_limited: bool) -> Option<DataRate> {
        let delivered = self.delivery.rate();
        if !window_limited {
            return delivered;
        }
        let capacity = self.capacity.map(|rate| rate.times(self.config.datagram));
        let pace = self.pacing_rate()?;
        Some(capacity.map_or(pace, |capacity| capacity.min(pace)).max(delivered?))
    }

    /// Whether a sender of trains fills the queue in slow start. Its bursts have measured the
    /// path's speed by then. Without this check the window doubles once more before the receiver's
    /// 16 round trips give a warning or the first loss is reported; at 1 Gbit/s and 100 ms, 20 MiB
    /// are then lost and the rate is halved. The sender therefore treats its own round trip as a
    /// warning.
    fn overshoots(&self) -> bool {
        let slow_start = self.controller.pacing_rate().is_none();
        let (Some((rtt, _)), Some(min)) = (self.rtt, self.min_rtt) else { return false };
        let queued = rtt > min + min / QUEUE_SHARE + QUEUE_SPAN;
        self.config.train > 1 && slow_start && queued
    }

    fn is_newest(&mut self, number: u32) -> bool {
        let newest = self.newest_ack.is_none_or(|newest| number.wrapping_sub(newest) as i32 > 0);
        if newest {
            self.newest_ack = Some(number);
        }
        newest
    }

    /// Reads the fields of an ACK other than `next`.
    fn read(&mut self, ack: &Ack, contents: &mut MessageContents) {
        self.room = ack.next.saturating_add(ack.room);
        if !ack.rtt.is_zero() {
            self.rtt = Some((ack.rtt, ack.rtt_var));
            let min = self.min_rtt.map_or(ack.rtt, |min| min.min(ack.rtt));
            self.min_rtt = Some(min);
            let latest = self.latest.take().unwrap_or(ack.rtt);
            let (smoothed, variation) = (ack.rtt, ack.rtt_var);
            contents.rtt = Some(RttSample { latest, smoothed, variation, min });
        }
        contents.told = true;
        self.arrival = ack.arrival;
        self.capacity = ack.capacity.or(self.capacity);
        contents.arrival = ack.arrival.map(|rate| rate.times(self.config.datagram));
        contents.capacity = ack.capacity.map(|rate| rate.times(self.config.datagram));
    }

    fn on_nak(&mut self, now: Time, ranges: &[(u64, u64)]) -> Result<(), Impossible> {
        if ranges.iter().any(|(first, end)| first >= end || *end > self.flight.next()) {
            return Err(Impossible);
        }
        let mut lost = Vec::with_capacity(ranges.len());
        let mut dropped = Vec::new();
        for &(first, end) in ranges {
            // Units that an acknowledgement covers are not lost: the two messages crossed.
            let first = first.max(self.flight.acked());
            let Some(unit) = self.flight.unit(first).filter(|_| first < end) else { continue };
            self.hole.on_nak(now, end);
            self.lost_units += self.flight.mark_lost(first, end, |a, b| dropped.push((a, b)));
            lost.push(LossRange {
                first: unit.index,
                count: u32::try_from(end - first).unwrap_or(u32::MAX),
                bytes: ByteCount((end - first) * self.config.datagram.get()),
                sent_at: unit.sent_at,
            });
        }
        for (first, end) in dropped {
            self.queue_message(Message::Drop { first, end });
        }
        if !lost.is_empty() {
            self.silence_timer.on_progress(now);
            self.feed(now, MessageContents { lost, ..MessageContents::default() });
        }
        Ok(())
    }

    /// Passes the feedback to the controller.
    pub(super) fn feed(&mut self, now: Time, contents: MessageContents) {
        let datagram = self.config.datagram.get();
        let host = std::mem::take(&mut self.host);
        self.controller.on_feedback(&Feedback {
            now,
            largest_acked: self.largest_acked,
            newest_acked_sent_at: contents.newest,
            acked: ByteCount(contents.acked * datagram),
            acked_packets: contents.acked,
            in_flight: self.in_flight(),
            rtt: contents.rtt,
            queueing_delay: None,
            reverse_queue: None,
            delivery_rate: contents.delivery,
            arrival_rate: contents.arrival,
            capacity: contents.capacity,
            lost: &contents.lost,
            spurious: 0,
            ecn_ce: host.ecn_ce,
            host_drops: host.drops,
            refused: host.refused,
            drain_rate: host.drain,
            app_limited: self.app_limited,
            round_ended: contents.round_ended,
            timeout: contents.timeout,
            delay_rising: contents.delay_rising,
            bunched: Duration::ZERO,
            held: None,
        });
    }
}

/// The contents of one message.
#[derive(Debug, Default)]
pub(super) struct MessageContents {
    pub(super) acked: u64,
    pub(super) newest: Option<Time>,
    pub(super) rtt: Option<RttSample>,
    /// It was a full ACK, and the newest.
    pub(super) told: bool,
    pub(super) arrival: Option<DataRate>,
    pub(super) capacity: Option<DataRate>,
    pub(super) delivery: Option<DataRate>,
    pub(super) round_ended: bool,
    pub(super) lost: Vec<LossRange>,
    pub(super) timeout: bool,
    pub(super) delay_rising: bool,
}

/// The rate of acknowledgement, and the ends of rounds.
#[derive(Debug)]
pub(super) struct Delivery {
    since: Time,
    acked: u64,
    rate: Option<DataRate>,
    /// A round ends when this unit is acknowledged.
    round: u64,
}

impl Delivery {
    pub(super) fn new(now: Time, first: u64) -> Self {
        Self { since: now, acked: first, rate: None, round: first }
    }

    /// The rate of the last span.
    pub(super) fn rate(&self) -> Option<DataRate> {
        self.rate
    }

    /// Returns a rate if a span ended, and whether a round ended.
    fn on_ack(
        &mut self,
        now: Time,
        flight: &super::Flight,
        came: Option<u64>,
        rtt: Option<Duration>,
        datagram: ByteCount,
    ) -> (Option<DataRate>, bool) {
        let ended = flight.acked() > self.round;
        if ended {
            self.round = flight.next();
        }
        let span = now.since(self.since);
        if span < rtt.unwrap_or(DELIVERY_SPAN).max(DELIVERY_SPAN) {
            return (None, ended);
        }
        let came = came.unwrap_or(0).max(flight.acked());
        let bytes = ByteCount((came - self.acked) * datagram.get());
        (self.since, self.acked) = (now, came);
        self.rate = Some(DataRate::from_bytes_over(bytes, span));
        (self.rate, ended)
    }
}
