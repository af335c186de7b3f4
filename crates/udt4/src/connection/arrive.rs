//! Received packets of an open connection.

use packtrain_proto::udt::{Ack, Message, PacketRate, UnitStatus};
use packtrain_units::{Duration, Time};

use super::link::{Batch, Link};
use crate::options::Kind;
use crate::wire::{self, AckDetail, Control, Packet};

/// A stock receiver reports the median of 64 packet pairs, initially guesses (1000 packets/s):
/// until more than half are measured, it reports the guess.
const GUESSED_PAIRS: u64 = 40;

/// Maximum gap between the packets of a pair at the sender, in microseconds.
const PAIR_GAP_US: u32 = 50;

/// The effect of a control packet on the life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlEffect {
    /// None.
    Nothing,
    /// The peer closed the connection.
    Shutdown,
    /// The peer reported an error.
    Error(u32),
}

impl Link {
    /// Handles a data packet; [`Link::finish_batch`] passes it on.
    #[inline]
    pub(super) fn on_data(&mut self, now: Time, packet: &Packet<&[u8]>) {
        let body = packet.body();
        let Some(unit) = Self::expand(self.receiver.next(), packet.sequence()) else {
            self.counts.bad += 1;
            return;
        };
        if body.is_empty() || body.len() > self.payload {
            self.counts.bad += 1;
            return;
        }
        let seen = self.receiver.check(unit);
        if seen == UnitStatus::Outside || seen == UnitStatus::New && !self.incoming.admits(unit) {
            self.counts.refused += 1;
            return;
        }
        self.counts.received_packets += 1;
        let stamp = packet.timestamp();
        if self.batch.span.is_none() {
            self.batch.stamps.0 = stamp;
        }
        self.batch.stamps.1 = stamp;
        let span = self.batch.span.get_or_insert((unit, unit, 0));
        *span = (span.0, unit, span.2 + 1);
        if seen == UnitStatus::Duplicate {
            self.counts.duplicates += 1;
            return;
        }
        match &mut self.batch.run {
            Some((first, count)) if *first + u64::from(*count) == unit => *count += 1,
            // The receiver does not know the previous run yet, which may contain this unit.
            Some((first, count)) if (*first..*first + u64::from(*count)).contains(&unit) => {
                self.counts.duplicates += 1;
                return;
            }
            Some(_) => {
                self.deliver_batch(now);
                if self.receiver.check(unit) != UnitStatus::New {
                    self.counts.duplicates += 1;
                    return;
                }
                self.batch.run = Some((unit, 1));
            }
            run @ None => *run = Some((unit, 1)),
        }
        self.incoming.put(unit, packet.message(), body);
        self.counts.received_bytes += body.len() as u64;
    }

    /// Passes the stored units to the receiver.
    fn deliver_batch(&mut self, now: Time) {
        let Some((first, count)) = self.batch.run.take() else { return };
        // Units that it skips will be reported missing.
        let highest = self.counts.highest.max(self.receiver.next());
        self.counts.receiver_lost += first.saturating_sub(highest);
        self.counts.highest = highest.max(first + u64::from(count));
        self.receiver.take(now, first, count);
    }

    /// Ends the batch that arrived at `at`.
    pub(super) fn finish_batch(&mut self, now: Time, at: Time) {
        self.deliver_batch(now);
        let Batch { span, stamps, .. } = std::mem::take(&mut self.batch);
        let Some((first, last, packets)) = span else { return };
        let joined = self.is_joined(first, stamps.0);
        self.before = Some((last, stamps.1));
        self.receiver.on_batch(at, first, last, packets, joined);
        let since = self.since_ack.get_or_insert((at, at, 0));
        *since = (since.0, at.max(since.0), since.2 + u64::from(packets));
        self.make_room(now);
    }

    /// Whether this unit was sent right behind the previous one. UDT's senders send the unit after
    /// each multiple of 16 at once; ours also give packets that are sent without a pause the same
    /// time stamp.
    fn is_joined(&self, unit: u64, stamp: u32) -> bool {
        self.before.is_some_and(|(last, before)| {
            let gap = stamp.wrapping_sub(before);
            last + 1 == unit && (gap == 0 || unit % 16 == 1 && gap <= PAIR_GAP_US)
        })
    }

    /// Moves the window and updates the receiver.
    fn make_room(&mut self, now: Time) {
        let next = self.receiver.next();
        self.incoming.advance(next);
        self.receiver.set_room(now, self.incoming.room(next));
    }

    /// Handles a control packet other than a handshake.
    pub(super) fn on_control(&mut self, now: Time, packet: &Packet<&[u8]>) -> ControlEffect {
        let Ok(control) = Control::parse(packet) else {
            self.counts.bad += 1;
            return ControlEffect::Nothing;
        };
        let sane = match control {
            Control::Ack(ack) => self.on_ack(now, ack),
            Control::Nak(ranges) => self.on_nak(now, ranges),
            Control::Warning => self.sender.on_message(now, &Message::Warning).is_ok(),
            Control::Ack2 { number } => {
                self.receiver.on_message(now, &Message::Ack2 { number }).is_ok()
            }
            Control::Drop { message, first, last } => self.on_drop(now, message, first, last),
            Control::Shutdown => return ControlEffect::Shutdown,
            Control::Error { code } => return ControlEffect::Error(code),
            // User-defined packets have no user here.
            Control::KeepAlive | Control::User { .. } | Control::Handshake(_) => true,
        };
        self.counts.bad += u64::from(!sane);
        ControlEffect::Nothing
    }

    fn on_ack(&mut self, now: Time, ack: wire::Ack) -> bool {
        let Some(next) = Self::expand(self.sender.acked(), ack.next) else { return false };
        let detail = ack.detail.unwrap_or(AckDetail::NONE);
        let rates = detail.rates.unwrap_or(AckDetail::NO_RATES);
        let (rtt, rtt_var) = self.validated_rtt(now, next, &detail);
        // A stock receiver counts its initial guesses among the samples.
        let guess = next < self.first + GUESSED_PAIRS * 16;
        let capacity = Some(rates.capacity).filter(|_| !guess).unwrap_or(0);
        let message = Message::Ack(Ack {
            number: ack.number,
            next,
            light: ack.detail.is_none(),
            early: ack.detail.is_some_and(|detail| detail.rates.is_none()),
            rtt,
            rtt_var,
            room: u64::from(detail.room),
            arrival: PacketRate::per_second(f64::from(rates.arrival)),
            capacity: PacketRate::per_second(f64::from(capacity)),
        });
        if self.sender.on_message(now, &message).is_err() {
            return false;
        }
        self.counts.received_acks += 1;
        if ack.detail.is_some() {
            self.peer_room = u64::from(detail.room);
            self.acked_to = self.acked_to.max(next);
        }
        self.outgoing.release(self.sender.acked());
        self.stall_repair.on_ack(now, self.sender.acked());
        self.note_busy(now);
        true
    }

    /// The round trip. A stock receiver averages its samples with an initial guess of 100 ms, so
    /// our own samples are used as long as they are less. They include its waiting time, up to 10
    /// ms.
    fn validated_rtt(&mut self, now: Time, next: u64, detail: &AckDetail) -> (Duration, Duration) {
        let newest = next.checked_sub(1).filter(|unit| self.stall_repair.sent_once(*unit));
        if let Some(sent_at) = newest.and_then(|unit| self.sender.sent_at(unit)) {
            let sample = now.since(sent_at);
            self.own_rtt = Some(self.own_rtt.map_or(sample, |rtt| (rtt * 7 + sample) / 8));
        }
        let micros = |us: u32| Duration::from_micros(u64::from(us));
        let (rtt, var) = (micros(detail.rtt_us), micros(detail.rtt_var_us));
        match self.own_rtt {
            Some(own) if own < rtt => (own, var.min(own / 2)),
            _ => (rtt, var),
        }
    }

    fn on_nak(&mut self, now: Time, reported: wire::NakRanges<'_>) -> bool {
        let (acked, next) = (self.sender.acked(), self.sender.next());
        let mut ranges = Vec::new();
        let mut lost = 0;
        for (first, last) in reported.iter() {
            let (Some(first), Some(last)) = (Self::expand(acked, first), Self::expand(acked, last))
            else {
                return false;
            };
            if first > last || last >= next {
                return false;
            }
            // Units that were acknowledged since the report was sent are not missing.
            if last >= acked {
                ranges.push((first.max(acked), last + 1));
                lost += last + 1 - first.max(acked);
            }
        }
        // The stock library lists its losses in order, but other peers may not.
        if !ranges.is_sorted_by(|a, b| a.1 <= b.0) {
            ranges = merged(ranges);
        }
        self.counts.received_naks += 1;
        self.counts.sender_lost += lost;
        ranges.is_empty() || self.sender.on_message(now, &Message::Nak { ranges }).is_ok()
    }

    fn on_drop(
        &mut self,
        now: Time,
        message: u32,
        first: packtrain_units::SeqNo,
        last: packtrain_units::SeqNo,
    ) -> bool {
        if self.kind != Kind::Datagram {
            return false;
        }
        let expected = self.receiver.next();
        let (Some(first), Some(last)) =
            (Self::expand(expected, first), Self::expand(expected, last))
        else {
            return false;
        };
        // The stock library sends the number after the last, which may belong to another message.
        // Of a range, the last unit is therefore not dropped (our own implementation sends the last
        // unit once more, alone).
        let end = if first == last { first + 1 } else { last };
        if end <= first || end > expected.saturating_add(self.incoming.room(expected)) {
            return false;
        }
        if self.receiver.on_message(now, &Message::Drop { first, end }).is_err() {
            return false;
        }
        self.incoming.give_up(message);
        self.make_room(now);
        true
    }
}

/// Sorted, disjoint ranges.
fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (first, end) in ranges {
        match out.last_mut() {
            Some(last) if first <= last.1 => last.1 = last.1.max(end),
            _ => out.push((first, end)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn ranges_out_of_order_are_put_in_order() {
        assert_eq!(merged(vec![(5, 7), (1, 2), (6, 9)]), [(1, 2), (5, 9)]);
    }
}
