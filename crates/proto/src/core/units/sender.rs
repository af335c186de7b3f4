//! The sending endpoint: ranges of the object as numbered units, with the feedback of UDT, FOBS or
//! SABUL.

use std::ops::Range;

use packtrain_cc::CongestionController;
use packtrain_cc::udt::Variant;
use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};

use super::feedback_sender::FeedbackSender;
use super::map::UnitMap;
use crate::breaker::{Breaker, Verdict};
use crate::codec::frame::Host;
use crate::codec::header::UNIT_OVERHEAD;
use crate::codec::unit::Unit;
use crate::config::limits::WINDOW_UNITS;
use crate::config::{CoreConfig, FeedbackKind};
use crate::core::Load;
use crate::core::backlog::Backlog;
use crate::core::lane::Lane;
use crate::core::ledger::Train;
use crate::core::receiver_rate_cap::{Arrived, ReceiverRateCap};
use crate::core::sender::Outcome;
use crate::fobs::{self, Bitmap};
use crate::mtu::Mtu;
use crate::sabul;
use crate::seam::TRAIN_PACKETS;
use crate::stats::{FlowStats, Limit};
use crate::udt::{self, HostUpdate, Impossible, Message, Permit};

/// Minimum time without progress after which lost units may be a black hole: acknowledgements are
/// cumulative, so a unit that is lost twice holds them up although later units arrive.
const HOLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The sender of one flow.
#[derive(Debug)]
pub(crate) struct UnitSender {
    pub(crate) backlog: Backlog,
    pub(crate) mtu: Mtu,
    pub(crate) breaker: Breaker,
    /// Acknowledged ranges not yet reported to payload and owner.
    pub(crate) released: Vec<Range<Offset>>,
    /// When the peer last sent feedback.
    pub(crate) reported_at: Time,
    feedback: FeedbackSender,
    /// FOBS: converts bitmaps to messages.
    fobs: Option<Box<fobs::Reader>>,
    /// FOBS: a request with this round trip is to be sent.
    bitmap_request: Option<Duration>,
    map: UnitMap,
    /// The owner's ceiling.
    ceiling: Option<DataRate>,
    limit: Limit,
    /// The host's counters so far, and its drops not yet passed to the rate cap.
    host: Host,
    dropped: u64,
    /// The cap for the receiving host, and the units that had arrived at its last update.
    receiver_rate_cap: ReceiverRateCap,
    seen_received: u64,
    /// Losses and silences of the feedback that have been processed.
    seen_lost: u64,
    seen_silences: u64,
    /// Losses of units from this one on begin a new round of losses.
    loss_round: u64,
    /// The path has answered since the last silence.
    alive: bool,
    /// When units were last known to have arrived, or the lane was last left.
    arrived_at: Time,
}

impl UnitSender {
    pub(crate) fn new(
        config: &CoreConfig,
        controller: Box<dyn CongestionController>,
        mtu: Mtu,
        now: Time,
    ) -> Self {
        let bitmaps = config.feedback == FeedbackKind::Fobs;
        // The arithmetic of these feedbacks counts full datagrams of one size, which is that of the
        // controller.
        let datagram = config.max_mtu;
        let train = config.train.clamp(1, TRAIN_PACKETS);
        let window = WINDOW_UNITS;
        let mut feedback = if config.feedback == FeedbackKind::Sabul {
            let unit = datagram.get() - UNIT_OVERHEAD as u64;
            let buffer = config.buffer.get() / unit;
            let sabul = sabul::SenderConfig { datagram, train, window, buffer };
            FeedbackSender::Sabul(Box::new(sabul::Sender::new(sabul, controller, now)))
        } else {
            let variant = match config.feedback {
                FeedbackKind::Udt(variant) => variant,
                _ => Variant::default(),
            };
            let udt = udt::SenderConfig { variant, first: 0, datagram, train, window, bitmaps };
            FeedbackSender::Udt(Box::new(udt::Sender::new(udt, controller, now)))
        };
        feedback.set_ceiling(config.rate_ceiling);
        Self {
            backlog: Backlog::default(),
            mtu,
            breaker: Breaker::default(),
            released: Vec::new(),
            reported_at: now,
            feedback,
            fobs: bitmaps.then(|| Box::new(fobs::Reader::new(WINDOW_UNITS))),
            bitmap_request: None,
            map: UnitMap::default(),
            ceiling: config.rate_ceiling,
            limit: Limit::Idle,
            host: Host::default(),
            dropped: 0,
            receiver_rate_cap: ReceiverRateCap::new(now),
            seen_received: 0,
            seen_lost: 0,
            seen_silences: 0,
            loss_round: 0,
            alive: true,
            arrived_at: now,
        }
    }

    /// Payload bytes of a full unit.
    fn size(&self) -> u16 {
        self.mtu.current() - UNIT_OVERHEAD as u16
    }

    /// How many units could be planned now.
    fn fresh(&self) -> u64 {
        self.backlog.fresh().div_ceil(u64::from(self.size()))
    }

    /// Maximum packets that may be sent now in one batch.
    pub(crate) fn budget(&mut self, now: Time) -> u32 {
        if self.breaker.is_silent() {
            self.limit = Limit::Silence;
            return 0;
        }
        let leave = self.feedback.poll(now, self.fresh());
        self.limit = self.feedback.limit();
        if leave.is_some() { TRAIN_PACKETS } else { 0 }
    }

    /// The next train of units to send, numbered from `pn` on, with at most `size` bytes each.
    /// `skip_lost` if the units to retransmit are not in memory.
    pub(crate) fn next_train(
        &mut self,
        now: Time,
        pn: u64,
        size: u16,
        packets: u32,
        skip_lost: bool,
    ) -> Option<Load> {
        loop {
            match self.feedback.poll(now, self.fresh())? {
                Permit::Retransmit { .. } if skip_lost => {
                    self.limit = Limit::Payload;
                    return None;
                }
                Permit::Retransmit { first, count } => {
                    if let Some(load) = self.retransmission(pn, first, count.min(packets), size) {
                        return Some(load);
                    }
                    // The unit cannot be sent unchanged, so it is dropped and the receiver
                    // notified.
                    self.feedback.drop_units(first, first + 1);
                }
                Permit::Fresh { count, joined } => {
                    return self.plan(pn, count.min(packets), size, joined);
                }
            }
        }
    }

    /// Units sent before, unchanged. A unit of another size than the batch's is sent alone.
    fn retransmission(&self, pn: u64, first: u64, max: u32, size: u16) -> Option<Load> {
        let (offset, each, last, count) = self.map.find(first, max)?;
        let (count, last) =
            if each == size { (count, last) } else { (1, if count == 1 { last } else { each }) };
        if last > size {
            return None;
        }
        let train = Train { first: pn, count, size, last, offset };
        let unit = Some(Unit { first, joined: false });
        Some(Load { train, repeat: true, unit })
    }

    /// Units not sent before.
    fn plan(&self, pn: u64, max: u32, size: u16, joined: bool) -> Option<Load> {
        let piece = self.backlog.next(true)?;
        let full = u64::from(size);
        let count = piece.len.div_ceil(full).min(u64::from(max));
        let bytes = piece.len.min(count * full);
        let last = (bytes - (count - 1) * full) as u16;
        let train = Train { first: pn, count: count as u32, size, last, offset: piece.offset };
        let unit = Some(Unit { first: self.map.next(), joined });
        Some(Load { train, repeat: false, unit })
    }

    /// A train was sent on `lane`.
    pub(crate) fn on_sent(
        &mut self,
        now: Time,
        lane: &mut Lane,
        load: &Load,
        stats: &mut FlowStats,
    ) {
        let Load { train, repeat, unit: Some(unit) } = load else { return };
        let (bytes, packets) = (train.bytes(), u64::from(train.count));
        let wire = bytes + packets * UNIT_OVERHEAD as u64;
        lane.ledger.take_many(train.count);
        lane.on_sending(now);
        if self.in_flight() == 0 {
            // The wait for feedback starts now, not at the last message.
            (self.reported_at, self.arrived_at) = (now, now);
        }
        if !repeat {
            self.map.plan(train);
            self.backlog.advance(false, bytes);
        }
        self.feedback.on_sent(now, unit.first, train.count, ByteCount(wire), *repeat);
        if let Some(fobs) = &mut self.fobs {
            if *repeat {
                let under_way = (self.feedback.acked(), self.feedback.next());
                fobs.on_retransmitted(now, under_way, unit.first, unit.first + packets);
            }
            self.bitmap_request = fobs.poll_request(now).or(self.bitmap_request);
        }
        stats.sent_packets += packets;
        stats.sent_bytes += ByteCount(bytes);
        if *repeat {
            stats.retransmitted_packets += packets;
            stats.retransmitted_bytes += ByteCount(bytes);
        }
    }

    /// Handles a message of the receiver.
    pub(crate) fn on_message(
        &mut self,
        now: Time,
        message: &Message,
        stats: &mut FlowStats,
    ) -> Result<Outcome, Impossible> {
        let before = self.feedback.arrived();
        self.feedback.on_message(now, message)?;
        let lost: &[(u64, u64)] = match message {
            Message::Nak { ranges } => ranges,
            _ => &[],
        };
        Ok(self.on_feedback(now, before, lost, stats))
    }

    /// Handles a message of the reliable channel.
    pub(crate) fn on_reliable_message(
        &mut self,
        now: Time,
        word: &sabul::Message,
        stats: &mut FlowStats,
    ) -> Result<Outcome, Impossible> {
        let before = self.feedback.arrived();
        self.feedback.on_reliable_message(now, word)?;
        let sabul::Message::State(state) = word else { return Err(Impossible) };
        // Units beyond a gap are acknowledged late, but show what the path carries.
        let top = state.top.filter(|_| self.feedback.arrived() > before);
        if let Some((_, _, size, _)) = top.and_then(|(top, _)| self.map.find(top, 1)) {
            self.mtu.on_acked(now, size + UNIT_OVERHEAD as u16);
        }
        Ok(self.on_feedback(now, before, &state.lost, stats))
    }

    /// The next message for the reliable channel.
    pub(crate) fn poll_reliable_message(&mut self) -> Option<sabul::Message> {
        self.feedback.poll_reliable_message()
    }

    /// Processing that all feedbacks share: `before` units had arrived before this message, and
    /// `missing` are missing.
    fn on_feedback(
        &mut self,
        now: Time,
        before: u64,
        missing: &[(u64, u64)],
        stats: &mut FlowStats,
    ) -> Outcome {
        self.alive = true;
        let acked = self.feedback.arrived().saturating_sub(before);
        let full = self.mtu.current();
        let Self { map, backlog, released, mtu, .. } = self;
        map.forget(self.feedback.acked(), |a, b, size| {
            stats.acked_bytes += ByteCount(b - a);
            backlog.release(a, b, released);
            mtu.on_acked(now, size + UNIT_OVERHEAD as u16);
        });
        let lost = self.new_losses();
        let mut mtu_changed = false;
        if lost > 0 {
            if missing.last().is_some_and(|(_, end)| *end > self.loss_round) {
                self.loss_round = self.feedback.next();
                stats.loss_rounds += 1;
            }
            let size = missing.first().and_then(|(first, _)| self.map.find(*first, 1));
            if size.is_some_and(|(_, _, size, _)| size + UNIT_OVERHEAD as u16 == full) {
                let timeout = (self.rtt() * 4).max(HOLE_TIMEOUT);
                mtu_changed = self.mtu.on_lost(now, full, lost as u32, timeout);
            }
        }
        let verdict = self.judge(now, acked, lost);
        Outcome { verdict, mtu_changed, host_drops: 0, drain: DataRate::ZERO }
    }

    /// Handles a bitmap.
    pub(crate) fn on_bitmap(
        &mut self,
        now: Time,
        bitmap: &Bitmap,
        stats: &mut FlowStats,
    ) -> Result<Outcome, Impossible> {
        let fobs = self.fobs.as_mut().ok_or(Impossible)?;
        let (ack, lost) = fobs.read(now, bitmap, self.feedback.udt().ok_or(Impossible)?)?;
        let latest = fobs.take_latest();
        if let Some(udt) = self.feedback.udt_mut() {
            bitmap.runs.iter().for_each(|(first, end)| udt.on_received(*first, *end));
            udt.set_received(bitmap.next + bitmap.held);
            udt.set_latest(latest);
        }
        let outcome = self.on_message(now, &Message::Ack(ack), stats)?;
        if lost.is_empty() {
            return Ok(outcome);
        }
        let nak = Message::Nak { ranges: lost };
        let more = self.on_message(now, &nak, stats)?;
        if let (Message::Nak { ranges }, Some(fobs)) = (&nak, &mut self.fobs) {
            for &(first, end) in ranges {
                let udt = self.feedback.udt();
                if udt.is_some_and(|udt| udt.first_pending(first, end).is_none()) {
                    // Dropped: notifying the receiver takes as long as sending again.
                    fobs.on_retransmitted(
                        now,
                        (self.feedback.acked(), self.feedback.next()),
                        first,
                        end,
                    );
                }
            }
        }
        let verdict = if outcome.verdict == Verdict::Fine { more.verdict } else { outcome.verdict };
        let mtu_changed = outcome.mtu_changed | more.mtu_changed;
        Ok(Outcome { verdict, mtu_changed, ..outcome })
    }

    /// The request for a complete acknowledgement that is due, with the round trip.
    pub(crate) fn poll_bitmap_request(&mut self) -> Option<Duration> {
        self.bitmap_request.take()
    }

    /// The controller, for calls other than feedback.
    pub(crate) fn controller_mut(&mut self) -> &mut dyn CongestionController {
        self.feedback.controller_mut()
    }

    /// Takes the receiving host's counters of an acknowledgement; returns how many more datagrams
    /// it dropped.
    pub(crate) fn on_host(&mut self, host: &Host) -> u64 {
        let more = host.drops.saturating_sub(self.host.drops);
        self.feedback.on_host(HostUpdate {
            drops: more,
            refused: host.refused.saturating_sub(self.host.refused),
            ecn_ce: host.ecn_ce.saturating_sub(self.host.ecn_ce),
            drain: Some(host.drain).filter(|drain| *drain > DataRate::ZERO),
        });
        self.host = Host {
            drops: host.drops.max(self.host.drops),
            refused: host.refused.max(self.host.refused),
            ecn_ce: host.ecn_ce.max(self.host.ecn_ce),
            drain: host.drain,
        };
        self.dropped = self.dropped.saturating_add(more);
        more
    }

    /// The controller's pace, if it has one, limited by the receiver's rate cap.
    pub(crate) fn rate(&self) -> Option<DataRate> {
        self.feedback.controller_rate().into_iter().chain(self.receiver_rate_cap.rate()).min()
    }

    /// The path answered a ping: data that the breaker held back for lack of feedback may be sent.
    /// Returns true if there was such data.
    pub(crate) fn on_alive(&mut self, now: Time) -> bool {
        self.alive = true;
        let silent = self.breaker.is_silent();
        if silent {
            self.judge(now, 0, 0);
            self.arrived_at = now;
        }
        silent
    }

    /// Whether data is to leave on another lane: nothing of what is in flight has arrived for as long
    /// as a silent path gets. The next lane then gets as long.
    pub(crate) fn leaves_lane(&mut self, now: Time) -> bool {
        let timeout = Breaker::silence_timeout(self.rtt());
        let leaves = self.in_flight() > 0 && now >= self.arrived_at + timeout;
        if leaves {
            self.arrived_at = now;
        }
        leaves
    }

    fn judge(&mut self, now: Time, acked: u64, lost: u64) -> Verdict {
        self.reported_at = now;
        self.cap(now, lost);
        // The breaker counts all losses, also those attributed to the receiving host.
        let verdict = self.breaker.on_report(now, self.rtt(), acked, lost, self.rate());
        let ceilings = [self.ceiling, self.receiver_rate_cap.rate(), self.breaker.ceiling()];
        self.feedback.set_ceiling(ceilings.into_iter().flatten().min());
        verdict
    }

    /// Passes the arrivals to the rate cap.
    fn cap(&mut self, now: Time, lost: u64) {
        let received = self.feedback.received();
        let packets = received.saturating_sub(std::mem::replace(&mut self.seen_received, received));
        if packets > 0 {
            self.arrived_at = now;
        }
        let bytes = ByteCount(packets * u64::from(self.mtu.current()));
        let dropped = std::mem::take(&mut self.dropped);
        let arrived = Arrived { bytes, packets, lost, dropped };
        self.receiver_rate_cap.on_report(now, self.rtt(), arrived, self.feedback.controller_rate());
    }

    fn new_losses(&mut self) -> u64 {
        let lost = self.feedback.lost();
        lost - std::mem::replace(&mut self.seen_lost, lost)
    }

    /// Runs the timers that are due. Returns true if silences are a black hole and the MTU fell:
    /// all units in flight are lost while the path answers pings.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> bool {
        let under_way =
            (self.feedback.next() - self.feedback.acked()).min(u64::from(u32::MAX)) as u32;
        self.feedback.handle_timeout(now);
        self.new_losses();
        let (silences, _) = self.feedback.silences();
        let fell_silent = silences != std::mem::replace(&mut self.seen_silences, silences);
        if !fell_silent || !std::mem::replace(&mut self.alive, false) {
            return false;
        }
        let full = self.mtu.current();
        self.mtu.on_lost(now, full, under_way, self.rtt() * 2)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        match self.limit {
            // The pace does not matter: the payload or the path has to answer first.
            Limit::Payload | Limit::Silence => self.feedback.timers(),
            _ => self.feedback.poll_timeout(),
        }
    }

    /// The next message to the receiver.
    pub(crate) fn poll_message(&mut self, now: Time) -> Option<Message> {
        self.feedback.poll_message(now)
    }

    /// The datagram size changed: units that are now too large are planned again.
    pub(crate) fn on_mtu(&mut self) {
        let size = self.size();
        let Self { map, feedback, backlog, .. } = self;
        let mut parts = Vec::new();
        map.drop_larger(size, |first, end, a, b| {
            feedback.drop_units(first, end);
            parts.push((a, b));
        });
        // Each is put before all others, so the last is inserted first.
        parts.into_iter().rev().for_each(|(a, b)| backlog.send_first(a, b));
    }

    /// Takes back the unacknowledged part of `a..b`. Other bytes of its units are planned again.
    pub(crate) fn revoke(&mut self, a: u64, b: u64, mut returned: impl FnMut(u64, u64)) {
        let Self { map, feedback, backlog, .. } = self;
        let mut taken = Vec::new();
        backlog.revoke(a, b, |a, b| {
            taken.push((a, b));
            returned(a, b);
        });
        let mut parts = Vec::new();
        for (a, b) in taken {
            map.drop_bytes(a, b, |first, end, a, b| {
                feedback.drop_units(first, end);
                parts.push((a, b));
            });
        }
        parts.into_iter().rev().for_each(|(a, b)| backlog.send_first(a, b));
    }

    /// The data is held back.
    pub(crate) fn hold(&mut self) {
        self.limit = Limit::Payload;
    }

    /// The payload did not have the bytes that are needed next.
    pub(crate) fn payload_pending(&mut self) {
        self.limit = Limit::Payload;
        self.feedback.app_limited();
    }

    pub(crate) fn limit(&self) -> Limit {
        self.limit
    }

    /// Unacknowledged wire bytes, as if every unit were full.
    pub(crate) fn in_flight(&self) -> u64 {
        (self.feedback.next() - self.feedback.acked()) * u64::from(self.mtu.current())
    }

    /// The smoothed round trip, once measured.
    pub(crate) fn rtt_known(&self) -> Option<Duration> {
        self.feedback.rtt()
    }

    fn rtt(&self) -> Duration {
        self.feedback.rtt().unwrap_or(Duration::from_millis(100))
    }

    /// Writes its gauges.
    pub(crate) fn gauges(&self, stats: &mut FlowStats) {
        let rtt = stats.rtt;
        self.feedback.gauges(stats);
        stats.rtt = stats.rtt.or(rtt);
        stats.silences += self.feedback.silences().1;
        stats.mtu = ByteCount(u64::from(self.mtu.reported()));
        stats.host_drops = self.host.drops;
        stats.receiver_rate_cap = self.receiver_rate_cap.rate();
        stats.refused_packets = self.host.refused;
        stats.ecn_ce = self.host.ecn_ce;
        stats.limit = self.limit;
    }
}
