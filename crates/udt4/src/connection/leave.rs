//! Packets that an open connection sends.

use packtrain_proto::TRAIN_PACKETS;
use packtrain_proto::udt::{self, Message, Permit};
use packtrain_units::{ByteCount, SeqNo, Time};

use super::link::Link;
use crate::wire::{Ack, AckDetail, Control, HEADER_BYTES, Packet, Rates};

/// A message to send next.
pub(super) type Waiting = Message;

/// Maximum size of a batch of several datagrams: an IP packet less its headers and UDP's.
const MAX_BATCH_BYTES: usize = 65_535 - 48;

/// Minimum advertised room. The stock library also advertises at least this: a sender that was told
/// 0 would wait for an update that only its data can cause.
const MIN_ROOM: u64 = 2;

/// Maximum reported arrival rate, in packets per second: 47 Gbit/s of full packets. A sender that
/// leaves slow start continues at this rate, so a lower limit would limit the flow.
const MAX_REPORTED_ARRIVAL: f64 = 4e6;

/// Maximum reported capacity, in packets per second: what a stock receiver can report, whose clock
/// counts whole microseconds. Senders increase their rate faster the larger the reported capacity
/// is, and a few packets at once are no sound measurement of a higher one.
const MAX_REPORTED_CAPACITY: f64 = 1e6;

/// Datagrams of one size in a buffer, the last perhaps shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) len: usize,
    pub(crate) segment: usize,
}

impl Written {
    /// Whether a datagram of `size` can follow.
    fn takes(&self, size: usize) -> bool {
        let fits = self.len + size <= MAX_BATCH_BYTES;
        self.len == 0 || fits && size <= self.segment && self.len.is_multiple_of(self.segment)
    }

    fn add(&mut self, size: usize) {
        if self.len == 0 {
            self.segment = size;
        }
        self.len += size;
    }
}

impl Link {
    /// Writes the next datagrams.
    pub(super) fn poll(&mut self, now: Time, out: &mut [u8]) -> Option<Written> {
        self.expire(now);
        let message = self.write_messages(now, out);
        if message.is_some() || now < self.hold {
            return message;
        }
        if self.is_held() && std::mem::take(&mut self.greets) {
            let len = Control::KeepAlive.write(self.peer_id, out)?;
            return Some(Written { len, segment: len });
        }
        self.write_train(now, out)
    }

    /// When the next timer is due.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let feedback = [self.sender.poll_timeout(), self.receiver.poll_timeout()];
        // After the keepalive to the peer, other timers apply.
        let held = (self.greets && self.is_held()).then_some(self.hold);
        let own = [self.outgoing.expires(), self.stall_repair_at(), held];
        feedback.into_iter().chain(own).flatten().min()
    }

    /// When the acknowledgement has stood still for too long.
    fn stall_repair_at(&self) -> Option<Time> {
        let open =
            self.sender.next() > self.sender.acked() && self.sender.pending_retransmissions() == 0;
        open.then(|| self.stall_repair.due(self.sender.turnaround()))
    }

    /// Whether data waits for the connection to be established at the other end.
    fn is_held(&self) -> bool {
        self.sender.next() == self.first && self.outgoing.end() > self.first
    }

    /// Runs the timers that are due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.stall_repair_at().is_some_and(|at| at <= now) {
            let (turnaround, next) = (self.sender.turnaround(), self.sender.next());
            for (first, end) in self.stall_repair.fire(now, turnaround, next) {
                self.sender.repeat(first, end);
            }
        }
        self.sender.handle_timeout(now);
        self.receiver.handle_timeout(now);
    }

    /// Drops the messages that have expired: units already sent are not sent again, others not at
    /// all.
    fn expire(&mut self, now: Time) {
        while let Some((first, end)) = self.outgoing.expired(now) {
            self.counts.expired += 1;
            let (acked, next) = (self.sender.acked(), self.sender.next());
            let (sent_first, sent_end) = (first.max(acked), end.min(next));
            if sent_first < sent_end {
                self.sender.drop_units(sent_first, sent_end);
            }
            if end > next {
                self.dead.insert(first.max(next), end);
            }
        }
    }

    fn write_messages(&mut self, now: Time, out: &mut [u8]) -> Option<Written> {
        let mut written = Written::default();
        loop {
            let message = self.waiting.take();
            let message = message.or_else(|| self.receiver.poll_message(now));
            let Some(message) = message.or_else(|| self.sender.poll_message(now)) else { break };
            let mut scratch = [0; 1536];
            let max = scratch.len().min(self.payload + HEADER_BYTES);
            let Some((len, rest)) = self.encode(&message, &mut scratch[..max]) else { continue };
            if !written.takes(len) || written.len + len > out.len() {
                self.waiting = Some(message);
                break;
            }
            out[written.len..written.len + len].copy_from_slice(&scratch[..len]);
            written.add(len);
            self.waiting = rest;
            self.count(&message);
        }
        (written.len > 0).then_some(written)
    }

    fn count(&mut self, message: &Message) {
        match message {
            Message::Ack(ack) => {
                self.counts.sent_acks += 1;
                if !ack.light {
                    self.since_ack = None;
                }
            }
            Message::Nak { .. } => self.counts.sent_naks += 1,
            _ => {}
        }
    }

    /// Writes one message; returns its length and the rest for another datagram.
    fn encode(&self, message: &Message, out: &mut [u8]) -> Option<(usize, Option<Message>)> {
        let peer = self.peer_id;
        match message {
            Message::Ack(ack) => {
                let ack = udt::Ack { arrival: ack.arrival.or(self.first_rate()), ..*ack };
                Some((Control::Ack(ack_on_wire(&ack)).write(peer, out)?, None))
            }
            Message::Ack2 { number } => {
                Some((Control::Ack2 { number: *number }.write(peer, out)?, None))
            }
            Message::Warning => Some((Control::Warning.write(peer, out)?, None)),
            Message::Nak { ranges } => {
                let on_wire = |&(first, end): &(u64, u64)| {
                    (Self::wire_number(first), Self::wire_number(end - 1))
                };
                let pairs: Vec<(SeqNo, SeqNo)> = ranges.iter().map(on_wire).collect();
                let (len, taken) = Control::write_nak(&pairs, peer, out)?;
                let rest = &ranges[taken..];
                let rest = (!rest.is_empty()).then(|| Message::Nak { ranges: rest.to_vec() });
                Some((len, rest))
            }
            Message::Drop { first, end } => self.encode_drop(*first, *end, out),
        }
    }

    /// A drop request for units of one message. Its last unit follows alone, because a peer may
    /// take the end of a range for the number after it.
    fn encode_drop(
        &self,
        first: u64,
        end: u64,
        out: &mut [u8],
    ) -> Option<(usize, Option<Message>)> {
        let number = |unit| self.outgoing.get(unit).map_or(0, |(message, _)| message.number());
        let message = number(first);
        let stop = (first..end).find(|unit| number(*unit) != message).unwrap_or(end);
        let (first, last) = (first, stop.saturating_sub(1).max(first));
        let next = if last > first { last } else { stop };
        let drop = Control::Drop {
            message,
            first: Self::wire_number(first),
            last: Self::wire_number(last),
        };
        let len = drop.write(self.peer_id, out)?;
        Some((len, (next < end).then_some(Message::Drop { first: next, end })))
    }

    fn write_train(&mut self, now: Time, out: &mut [u8]) -> Option<Written> {
        loop {
            let next = self.sender.next();
            let leave = self.sender.poll(now, self.outgoing.fresh(next))?;
            let (first, count, again) = match leave {
                Permit::Retransmit { first, count } => (first, count, true),
                Permit::Fresh { count, .. } => (next, count, false),
            };
            if !again && let Some(end) = self.dead.remove(&first) {
                // Never sent: its numbers are used up, and the receiver is notified.
                let dropped = (end - first).min(u64::from(count)).max(1);
                self.sender.on_sent(now, first, dropped as u32, ByteCount(0), false);
                self.sender.drop_units(first, first + dropped);
                if first + dropped < end {
                    self.dead.insert(first + dropped, end);
                }
                if let Some(written) = self.write_messages(now, out) {
                    return Some(written);
                }
                continue;
            }
            let stop = self.dead.range(first..).next().map_or(u64::MAX, |(dead, _)| *dead);
            let max = u64::from(count.min(TRAIN_PACKETS)).min(stop - first);
            let stamp = self.stamp_of(now, &leave);
            let written = self.write_units(stamp, first, max, out);
            let units = written.len.div_ceil(written.segment.max(1)) as u32;
            if units == 0 {
                // A unit that is no longer stored: the receiver will not get it.
                self.sender.drop_units(first, first + 1);
                return self.write_messages(now, out);
            }
            self.sender.on_sent(now, first, units, ByteCount(written.len as u64), again);
            self.stall_repair.on_sent(now, first, first + u64::from(units), again);
            self.counts.sent_packets += u64::from(units);
            self.counts.sent_bytes += written.len as u64 - u64::from(units) * 16;
            self.counts.retransmitted += u64::from(units) * u64::from(again);
            self.note_busy(now);
            return Some(written);
        }
    }

    /// The time stamp of packets: microseconds that wrap after 71 minutes, as in the stock library,
    /// which does not read them. New packets that are sent right behind the previous ones have the
    /// same stamp, and others a different one, so that our receivers can identify packets sent back
    /// to back.
    fn stamp_of(&mut self, now: Time, leave: &Permit) -> u32 {
        let time = now.since(self.start).as_micros() as u32;
        match leave {
            Permit::Retransmit { .. } => time,
            Permit::Fresh { joined: true, .. } => self.stamp,
            Permit::Fresh { joined: false, .. } => {
                self.stamp = if time == self.stamp { time.wrapping_add(1) } else { time };
                self.stamp
            }
        }
    }

    fn write_units(&self, time: u32, first: u64, max: u64, out: &mut [u8]) -> Written {
        let mut written = Written::default();
        for unit in first..first + max {
            let Some((message, bytes)) = self.outgoing.get(unit) else { break };
            let size = HEADER_BYTES + bytes.len();
            if !written.takes(size) {
                break;
            }
            let Some(room) = out.get_mut(written.len..written.len + size) else { break };
            let (head, body) = room.split_at_mut(HEADER_BYTES);
            body.copy_from_slice(bytes);
            if let Ok(mut packet) = Packet::new_checked(head) {
                packet.set_data(Self::wire_number(unit), message, time, self.peer_id);
            }
            written.add(size);
        }
        written
    }
}

fn ack_on_wire(ack: &udt::Ack) -> Ack {
    let rate =
        |rate: Option<udt::PacketRate>, max: f64| rate.map_or(0, |rate| rate.get().min(max) as u32);
    let rates = Rates {
        arrival: rate(ack.arrival, MAX_REPORTED_ARRIVAL),
        capacity: rate(ack.capacity, MAX_REPORTED_CAPACITY),
    };
    let micros = |span: packtrain_units::Duration| {
        u32::try_from(span.as_micros()).unwrap_or(u32::MAX).min(i32::MAX as u32)
    };
    let detail = AckDetail {
        rtt_us: micros(ack.rtt),
        rtt_var_us: micros(ack.rtt_var),
        room: ack.room.clamp(MIN_ROOM, i32::MAX as u64) as u32,
        // Without rates it is an acknowledgement sent before its time.
        rates: (ack.arrival.is_some() || ack.capacity.is_some()).then_some(rates),
    };
    Ack {
        number: ack.number,
        next: Link::wire_number(ack.next),
        detail: (!ack.light).then_some(detail),
    }
}

#[cfg(test)]
mod tests {
    use packtrain_proto::udt::PacketRate;
    use packtrain_units::Duration;

    use super::*;

    #[test]
    fn an_arrival_rate_above_a_million_packets_is_reported_and_a_capacity_is_not() {
        let rate = PacketRate::per_second(2.5e6);
        let (rtt, rtt_var) = (Duration::from_micros(90), Duration::from_micros(10));
        let ack = udt::Ack {
            number: 1,
            next: 2,
            light: false,
            early: false,
            rtt,
            rtt_var,
            room: 100,
            arrival: rate,
            capacity: rate,
        };
        let rates = ack_on_wire(&ack).detail.and_then(|detail| detail.rates).unwrap();
        assert_eq!((rates.arrival, rates.capacity), (2_500_000, 1_000_000));
        let ack = udt::Ack { arrival: PacketRate::per_second(1e12), ..ack };
        let rates = ack_on_wire(&ack).detail.and_then(|detail| detail.rates).unwrap();
        assert_eq!(rates.arrival, 4_000_000);
    }
}
