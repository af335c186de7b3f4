//! Processing of acknowledgements.

use packtrain_cc::{Feedback, LossRange};
use packtrain_units::{ByteCount, Time};

use super::log::Transmission;
use super::prr::Prr;
use super::sender::{Life, Phase, Sender};
use crate::agent::Ctx;
use crate::spec::Recovery;
use crate::train::{ROOM, Sack};

/// The data that one acknowledgement delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivered {
    /// Segments newly delivered, and their bytes.
    pub(super) segments: u64,
    pub(super) bytes: u64,
    /// How far the cumulative number advanced.
    pub(super) advanced: u64,
    /// The newest transmission among them.
    pub(super) newest: Option<Transmission>,
    /// Whether the number ends or continues a recovery without SACK.
    pub(super) repaired: bool,
    /// Whether it revealed a loss.
    pub(super) lost: bool,
}

impl Delivered {
    pub(super) fn add(&mut self, segments: u64, bytes: u64, by: Option<Transmission>) {
        self.segments += segments;
        self.bytes += bytes;
        if let Some(by) = by
            && self.newest.is_none_or(|newest| newest.index < by.index)
        {
            self.newest = Some(by);
        }
    }
}

impl Sender {
    /// The answer to the SYN arrived.
    pub(super) fn on_opened(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        let Life::Opening(tries) = self.life else { return };
        self.life = Life::Open;
        self.timers.deadline = Time::MAX;
        if tries == 1 {
            self.rto.measured(now.since(self.timers.opened_at));
        }
        self.rto.reset_backoff();
        self.output(now, ctx);
        self.arm(now);
    }

    /// All segments below `number` arrived, and those in `sack`.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        number: u64,
        room: u32,
        sack: Option<&Sack>,
        ctx: &mut Ctx<'_>,
    ) {
        if self.life != Life::Open || number < self.una || number > self.nxt {
            return;
        }
        if self.window_opened(number, room) && sack.is_none() && number == self.una {
            // A window update is no duplicate (RFC 5681 section 2).
            return self.output(now, ctx);
        }
        let mut delivered = Delivered { advanced: number - self.una, ..Delivered::default() };
        let clean = sack.is_none() && self.board.is_clean();
        if clean {
            self.advance_clean(number, &mut delivered);
        } else {
            if let Some(sack) = sack {
                self.sacked(sack, number, &mut delivered);
            }
            self.advance(number, &mut delivered);
        }
        self.measure(now, &delivered);
        if self.method == Recovery::NewReno {
            self.newreno_ack(number, &mut delivered);
        } else if !clean || !self.board.is_clean() {
            match self.method {
                Recovery::Sack => self.sack_detect(&mut delivered),
                _ => self.rack_detect(now, sack, &mut delivered),
            }
        } else {
            self.rack.delivered(delivered.newest.as_ref(), now);
            self.timers.probed &= delivered.advanced == 0;
        }
        if self.method == Recovery::NewReno && matches!(self.phase, Phase::Recovery(_)) {
            // Most of the segments it covers arrived before: duplicates showed how many, not which.
            delivered.repaired = true;
        }
        self.leave_phase();
        let entered = self.enter_recovery();
        if delivered.segments > 0 || delivered.lost || !self.losses.is_empty() {
            self.feedback(now, &delivered, false);
        }
        self.reduce(entered, &delivered);
        if self.una == self.shape.segments {
            return self.done(now);
        }
        if delivered.advanced > 0 || entered {
            self.rto.reset_backoff();
            self.output(now, ctx);
            self.arm(now);
        } else {
            self.output(now, ctx);
        }
    }

    /// Whether an acknowledgement opened the receiver's window, so that no window probe is needed.
    #[inline]
    fn window_opened(&mut self, number: u64, room: u32) -> bool {
        if room == ROOM || number + u64::from(room) <= self.edge {
            return false;
        }
        self.edge = number + u64::from(room);
        if self.outstanding() == 0 {
            self.rto.reset_backoff();
            self.timers.deadline = Time::MAX;
        }
        true
    }

    fn done(&mut self, now: Time) {
        self.life = Life::Done(now);
        self.timers.clear();
        self.log.forget_below(self.nxt);
    }

    /// All segments below `number` arrived in order, each by its first transmission.
    #[inline]
    fn advance_clean(&mut self, number: u64, delivered: &mut Delivered) {
        if number == self.una {
            return;
        }
        let bytes = self.shape.bytes(self.una, number - self.una);
        self.log.forget_below(number - 1);
        delivered.add(number - self.una, bytes, self.log.first_of(number - 1));
        self.una = number;
        self.board.judged = self.board.judged.max(number);
        self.board.highest = self.board.highest.max(Some(number - 1));
    }

    /// All segments below `number` arrived; some were known to have arrived, some were
    /// retransmitted.
    fn advance(&mut self, number: u64, delivered: &mut Delivered) {
        if number == self.una {
            return;
        }
        let mut at = self.una;
        while let Some(gap) = self.board.sacked.first_gap(at..number) {
            self.deliver(gap.start, gap.end, delivered);
            at = gap.end;
        }
        // Known ones were counted; their retransmissions are no longer in flight.
        self.board.delivered_again(self.una, number);
        self.una = number;
        self.log.forget_below(number);
        self.board.forget_below(number);
    }

    /// Segments from `from` on were delivered for the first time.
    fn deliver(&mut self, from: u64, to: u64, delivered: &mut Delivered) {
        let count = to - from;
        let newest_first = self.first_not_again(from, to);
        let (newest_again, again) = self.board.delivered_again(from, to);
        let bytes = self.shape.bytes(from, count);
        delivered.add(count, bytes, newest_again);
        if let Some(by) = newest_first.and_then(|segment| self.log.first_of(segment)) {
            delivered.add(0, 0, Some(by));
        }
        // A segment below the highest, sent once, was delivered: the network reordered.
        let reordered = self.board.highest.is_some_and(|highest| from < highest)
            && again < count
            && newest_first.is_some();
        self.rack.reordered |= reordered;
        self.board.highest = self.board.highest.max(Some(to - 1));
    }

    /// The highest segment of a run that was not retransmitted.
    fn first_not_again(&self, from: u64, to: u64) -> Option<u64> {
        (from..to).rev().find(|segment| self.board.again(*segment).is_none())
    }

    fn sacked(&mut self, sack: &Sack, number: u64, delivered: &mut Delivered) {
        for &(from, to) in sack.blocks() {
            let (mut at, to) = (from.max(number), to.min(self.nxt));
            while let Some(gap) = self.board.sacked.first_gap(at..to) {
                self.deliver(gap.start, gap.end, delivered);
                self.board.lost.remove(gap.clone());
                self.board.sacked.insert(gap.clone());
                at = gap.end;
            }
        }
    }

    #[inline]
    fn measure(&mut self, now: Time, delivered: &Delivered) {
        let Some(newest) = &delivered.newest else { return };
        if !newest.again {
            let rtt = now.since(newest.at);
            self.rto.measured(rtt);
            self.counts.rtt_sum += u128::from(rtt.as_nanos());
            self.counts.rtt_count += 1;
        }
        self.rate.on_delivered(now, delivered.bytes, newest);
        self.largest_acked = self.largest_acked.max(Some(newest.index));
    }

    fn leave_phase(&mut self) {
        let until = match self.phase {
            Phase::Open => return,
            Phase::Recovery(until) | Phase::Loss(until) => until,
        };
        if self.una >= until {
            self.phase = Phase::Open;
            self.prr = None;
            self.newreno.leave();
        }
    }

    /// Losses detected outside a recovery start one.
    pub(super) fn enter_recovery(&mut self) -> bool {
        let enters = self.phase == Phase::Open && !self.board.lost.is_empty();
        if enters {
            self.phase = Phase::Recovery(self.nxt);
            self.forced = 1;
        }
        enters
    }

    /// Limits sending during a recovery, after the controller has reduced its window.
    pub(super) fn reduce(&mut self, entered: bool, delivered: &Delivered) {
        if self.method != Recovery::Rack || self.self_governed() {
            return;
        }
        if !matches!(self.phase, Phase::Recovery(_)) {
            return;
        }
        if entered {
            let bytes = self.cc.ssthresh().unwrap_or(self.cc.cwnd());
            let ssthresh = bytes.get() / u64::from(self.shape.mss);
            self.prr = Some(Prr::new(self.outstanding(), ssthresh.max(1)));
        }
        let pipe = self.pipe();
        if let Some(prr) = &mut self.prr {
            prr.acknowledged(delivered.segments, pipe, delivered.advanced > 0 && !delivered.lost);
        }
    }

    /// Records losses for the controller: `count` consecutive transmissions.
    pub(super) fn record_lost(&mut self, first: Transmission, count: u64) {
        if first.index + count > self.loss_round {
            self.counts.loss_events += 1;
            self.loss_round = self.index;
        }
        self.losses.push(LossRange {
            first: first.index,
            count: count as u32,
            bytes: self.shape.segments_as_bytes(count),
            sent_at: first.at,
        });
    }

    /// Passes the feedback to the controller.
    #[inline]
    pub(super) fn feedback(&mut self, now: Time, delivered: &Delivered, timeout: bool) {
        // Window controllers do not grow before the losses of their round are repaired.
        let in_recovery = delivered.repaired || matches!(self.phase, Phase::Recovery(_));
        // Nor do they grow on segments that only SACK reports (RFC 5681 section 3.1), unless
        // reordering makes that the usual case (tcp_may_raise_cwnd in Linux): the first of these
        // indicate a loss, and growth would lose another packet.
        let out_of_order = delivered.advanced == 0 && !self.rack.reordered;
        let repairing = (in_recovery || out_of_order) && !self.self_governed();
        let round_ended = self.largest_acked.is_some_and(|largest| largest >= self.round_end);
        if round_ended {
            self.round_end = self.index;
        }
        let newest = delivered.newest.as_ref();
        let delivery_rate = match newest {
            Some(newest) if self.wants_rate => self.rate.sample(now, newest, self.rto.min()),
            _ => None,
        };
        let feedback = Feedback {
            now,
            largest_acked: self.largest_acked,
            newest_acked_sent_at: newest.map(|newest| newest.at),
            acked: ByteCount(if repairing { 0 } else { delivered.bytes }),
            acked_packets: delivered.segments,
            in_flight: self.shape.segments_as_bytes(self.pipe()),
            rtt: newest.filter(|newest| !newest.again).and_then(|_| self.rto.rtt()),
            queueing_delay: None,
            reverse_queue: None,
            delivery_rate,
            arrival_rate: None,
            capacity: None,
            lost: &self.losses,
            spurious: 0,
            ecn_ce: 0,
            host_drops: 0,
            refused: 0,
            drain_rate: None,
            app_limited: newest.is_some_and(|newest| newest.snapshot.app_limited),
            round_ended,
            timeout,
            delay_rising: false,
            bunched: packtrain_units::Duration::ZERO,
            held: None,
        };
        self.cc.on_feedback(&feedback);
        self.losses.clear();
    }
}
