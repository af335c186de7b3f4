//! Decides what may be sent, and sends it.

use packtrain_cc::Sent;
use packtrain_link::Pace;
use packtrain_units::{Duration, Time};

use super::log::{Burst, Transmission};
use super::sender::{Phase, Sender};
use crate::agent::Ctx;
use crate::spec::Recovery;
use crate::train::Train;

/// Maximum length of a train.
const MAX_TRAIN_PACKETS: u64 = 64;
/// Maximum gap between packets, because a small rate may rise before the next packet is due.
const MAX_PACKET_GAP: Duration = Duration::from_secs(10);

impl Sender {
    /// Sends what the window allows at `now`; a paced sender only when it is time.
    #[inline]
    pub(super) fn output(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        if self.paced {
            return self.output_paced(now, ctx);
        }
        let mut room = self.room();
        while room > 0 || self.forced > 0 {
            let Some(first) = self.board.lost.first() else { break };
            let count = (first.end - first.start).min(room.max(1)).min(MAX_TRAIN_PACKETS);
            self.send_again(now, first.start, count, ctx);
            room = room.saturating_sub(count);
            self.forced = self.forced.saturating_sub(count);
        }
        let mut fresh = room.min(self.fresh(now));
        while fresh > 0 {
            let count = self.run_of_fresh(fresh.min(MAX_TRAIN_PACKETS));
            self.send_fresh(now, count, ctx);
            fresh -= count;
        }
        self.forced = 0;
    }

    /// Sends one segment at a time at the pace; without a rate only the window limits.
    fn output_paced(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        self.timers.pace = Time::MAX;
        while self.timers.paced_until <= now && self.has_output(now) {
            let segment = self.shape.segments_as_bytes(1);
            let gap = self.cc.pacing_rate().map_or(Duration::ZERO, |rate| rate.time_for(segment));
            match self.board.lost.first() {
                Some(first) => self.send_again(now, first.start, 1, ctx),
                None => self.send_fresh(now, 1, ctx),
            }
            self.forced = self.forced.saturating_sub(1);
            self.timers.paced_until = now + gap.min(MAX_PACKET_GAP);
        }
        if self.timers.paced_until > now && self.has_output(now) {
            self.timers.pace = self.timers.paced_until;
        }
    }

    fn has_output(&mut self, at: Time) -> bool {
        let room = self.room();
        if !self.board.lost.is_empty() {
            return room > 0 || self.forced > 0;
        }
        room > 0 && self.fresh(at) > 0
    }

    /// Number of segments that may be sent now.
    #[inline]
    fn room(&self) -> u64 {
        let cwnd = || self.cwnd().max(1);
        let repairing = matches!(self.phase, Phase::Recovery(_));
        match (self.method, &self.prr) {
            (Recovery::Rack, Some(prr)) if repairing => prr.allowance,
            (Recovery::Sack, _) if self.phase == Phase::Open => {
                cwnd().saturating_sub(self.outstanding())
            }
            (Recovery::NewReno, _) if repairing => {
                (cwnd() + self.newreno.inflation()).saturating_sub(self.outstanding())
            }
            (Recovery::NewReno, _) if self.phase == Phase::Open => {
                cwnd().saturating_sub(self.outstanding())
            }
            _ => cwnd().saturating_sub(self.pipe()),
        }
    }

    /// Number of segments that were never sent.
    #[inline]
    pub(super) fn fresh(&mut self, now: Time) -> u64 {
        let there = match now < self.shape.stop {
            true => self.shape.segments.min(self.available) - self.nxt,
            false => 0,
        };
        if there == 0 {
            self.rate.app_limited(self.shape.segments_as_bytes(self.pipe()).get());
        }
        let window = self.window.saturating_sub(self.outstanding());
        there.min(window).min(self.edge.saturating_sub(self.nxt))
    }

    /// A last segment that is shorter than the others is sent alone.
    fn run_of_fresh(&self, count: u64) -> u64 {
        let short = self.shape.last != self.shape.mss;
        let reaches_end = self.nxt + count == self.shape.segments;
        if short && reaches_end && count > 1 { count - 1 } else { count }
    }

    pub(super) fn send_fresh(&mut self, now: Time, count: u64, ctx: &mut Ctx<'_>) {
        let in_flight = self.shape.segments_as_bytes(self.pipe()).get();
        let snapshot = self.rate.on_sent(now, in_flight);
        let segment = self.nxt;
        let index = self.index;
        self.log.push(Burst { segment, count, index, at: now, gap: Duration::ZERO, snapshot });
        self.nxt += count;
        self.emit(now, segment, count, false, ctx);
    }

    /// Retransmits `count` segments from the first lost one on.
    fn send_again(&mut self, now: Time, from: u64, count: u64, ctx: &mut Ctx<'_>) {
        let short = self.shape.last != self.shape.mss && from + count == self.shape.segments;
        let count = if short && count > 1 { count - 1 } else { count };
        let in_flight = self.shape.segments_as_bytes(self.pipe()).get();
        let snapshot = self.rate.on_sent(now, in_flight);
        for i in 0..count {
            let by = Transmission { index: self.index + i, at: now, snapshot, again: true };
            self.board.sent_again(from + i, by);
        }
        self.counts.retransmitted += self.shape.bytes(from, count);
        self.emit(now, from, count, true, ctx);
    }

    /// Retransmits one segment that is not known to be lost.
    pub(super) fn probe(&mut self, now: Time, segment: u64, ctx: &mut Ctx<'_>) {
        self.board.lost.insert(segment..segment + 1);
        self.send_again(now, segment, 1, ctx);
    }

    #[inline]
    fn emit(&mut self, now: Time, first: u64, count: u64, again: bool, ctx: &mut Ctx<'_>) {
        let bytes = self.shape.segments_as_bytes(count);
        self.cc.on_sent(&Sent {
            now,
            first: self.index,
            count: count as u32,
            bytes,
            in_flight: self.shape.segments_as_bytes(self.pipe()),
            retransmission: again,
            app_limited: false,
        });
        self.index += count;
        self.counts.sent_packets += count;
        if let Some(prr) = &mut self.prr {
            prr.sent(count);
        }
        if self.timers.deadline == Time::MAX {
            self.arm(now);
        }
        let train = self.shape.data(first, count as u32, again);
        if self.paced {
            self.stage(Pace::at(now), train, ctx)
        } else {
            ctx.send(Pace::at(now), train)
        }
    }

    /// Collects paced packets into trains: no other end acts at this node before the horizon, so
    /// they may be offered together, as long as they are in order.
    fn stage(&mut self, pace: Pace, train: Train, ctx: &mut Ctx<'_>) {
        let train = match &mut self.staged {
            None => train,
            Some((staged_pace, staged)) => {
                match staged.append(staged_pace, train, pace, MAX_TRAIN_PACKETS as u32) {
                    Ok(()) => return,
                    Err(train) => train,
                }
            }
        };
        self.flush(ctx);
        self.staged = Some((pace, train));
    }

    /// Offers the staged packets; call it before the node continues.
    #[inline]
    pub(super) fn flush(&mut self, ctx: &mut Ctx<'_>) {
        if let Some((pace, train)) = self.staged.take() {
            ctx.send(pace, train);
        }
    }
}
