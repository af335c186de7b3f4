//! The sending half: what to send, how much of it, and what reports make of it.

use std::ops::Range;

use packtrain_cc::{
    CongestionController, Feedback, LossRange, RttSample, Sent as SentInfo, Signal, Signals,
};
use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};

use crate::breaker::{Breaker, Verdict};
use crate::codec::frame::{Mark, Report};
use crate::codec::header::DATA_OVERHEAD;
use crate::core::backlog::{Backlog, Piece};
use crate::core::credit::Credit;
use crate::core::delay::{Capacity, Delay};
use crate::core::delivery::{Delivery, RateSample};
use crate::core::lane::Lane;
use crate::core::ledger::{Impossible, Part, Sent, Train};
use crate::core::loss::Reordering;
use crate::core::receiver::report_interval;
use crate::core::rtt::Rtt;
use crate::mtu::Mtu;
use crate::pacer::Pacer;
use crate::seam::TRAIN_PACKETS;
use crate::stats::{FlowStats, Limit};

/// Settled trains with losses are remembered this long at least, to recognise late arrivals.
const REMEMBER: Duration = Duration::from_millis(50);
/// Bytes that a tail probe repeats at most.
const TAIL_BYTES: u64 = 8 * 1_439;

/// The signals that the native feedback provides.
pub(crate) fn signals() -> Signals {
    Signals::of(&[
        Signal::Rtt,
        Signal::QueueingDelay,
        Signal::DeliveryRate,
        Signal::ArrivalRate,
        Signal::Capacity,
        Signal::Losses,
        Signal::HostDrops,
        Signal::Ecn,
    ])
}

/// The sender's side of one flow.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) backlog: Backlog,
    pub(crate) mtu: Mtu,
    pub(crate) breaker: Breaker,
    pub(crate) limit: Limit,
    /// Acknowledged ranges that payload and owner are still to be told.
    pub(crate) released: Vec<Range<Offset>>,
    controller: Box<dyn CongestionController>,
    ceiling: Option<DataRate>,
    pacer: Pacer,
    credit: Credit,
    delay: Delay,
    capacity: Capacity,
    delivery: Delivery,
    reordering: Reordering,
    in_flight: u64,
    index: u64,
    newest_report: u64,
    pub(crate) reported_at: Time,
    arrival: Arrival,
    host_drops: u64,
    refused: u64,
    ecn_ce: u64,
    lost: Vec<LossRange>,
    queueing: Option<Duration>,
    delivery_rate: Option<DataRate>,
    probe_due: Option<Time>,
}

/// What one report did besides feeding the controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) mtu_changed: bool,
    pub(crate) host_drops: u64,
    pub(crate) drain: DataRate,
}

impl Sender {
    pub(crate) fn new(
        controller: Box<dyn CongestionController>,
        ceiling: Option<DataRate>,
        mtu: Mtu,
        now: Time,
    ) -> Self {
        Self {
            backlog: Backlog::default(),
            mtu,
            breaker: Breaker::default(),
            limit: Limit::Idle,
            released: Vec::new(),
            controller,
            ceiling,
            pacer: Pacer::default(),
            credit: Credit::new(),
            delay: Delay::default(),
            capacity: Capacity::default(),
            delivery: Delivery::default(),
            reordering: Reordering::default(),
            in_flight: 0,
            index: 0,
            newest_report: 0,
            reported_at: now,
            arrival: Arrival::default(),
            host_drops: 0,
            refused: 0,
            ecn_ce: 0,
            lost: Vec::new(),
            queueing: None,
            delivery_rate: None,
            probe_due: None,
        }
    }

    /// How many full packets may leave now in one batch; zero, with the reason in `limit`.
    pub(crate) fn budget(&mut self, now: Time, srtt: Duration) -> u32 {
        let wire = u64::from(self.mtu.current());
        self.limit = Limit::Idle;
        if self.backlog.sendable() == 0 {
            self.delivery.app_limited(self.in_flight);
            return 0;
        }
        if self.breaker.is_silent() {
            self.limit = Limit::Silence;
            return 0;
        }
        let cwnd = self.controller.cwnd().get().max(2 * wire);
        let credit = self.credit.limit(srtt).get();
        let room = cwnd.min(credit).saturating_sub(self.in_flight) / wire;
        if room == 0 {
            self.limit = if credit < cwnd { Limit::Credit } else { Limit::Window };
            return 0;
        }
        let probe = self.controller.probe();
        self.probe_due = probe.map(|p| p.at);
        let (at, quantum) = match probe {
            Some(probe) => (probe.at, u64::from(probe.packets)),
            None => (self.pacer.next(), self.controller.send_quantum().get() / wire),
        };
        if now < at {
            self.limit = Limit::Pacing;
            return 0;
        }
        quantum.max(1).min(room).min(u64::from(TRAIN_PACKETS)) as u32
    }

    /// When `budget` may allow something, time alone passing.
    pub(crate) fn paced_until(&self) -> Option<Time> {
        (self.limit == Limit::Pacing).then(|| self.probe_due.unwrap_or(self.pacer.next()))
    }

    /// The next piece to send.
    pub(crate) fn piece(&self, skip_lost: bool) -> Option<Piece> {
        self.backlog.next(skip_lost)
    }

    /// A train left by `lane`.
    pub(crate) fn on_sent(
        &mut self,
        now: Time,
        lane: &mut Lane,
        train: Train,
        repeat: bool,
        stats: &mut FlowStats,
    ) {
        let (bytes, packets) = (train.bytes(), u64::from(train.count));
        let wire = bytes + packets * DATA_OVERHEAD as u64;
        let mut sent = Sent::new(train, self.index, now);
        self.delivery.stamp(&mut sent, self.in_flight);
        let app_limited = sent.app_limited;
        lane.ledger.push(sent);
        lane.active_at = now;
        self.backlog.advance(repeat, bytes);
        if self.in_flight == 0 {
            // The wait for feedback starts now, not when the last report came.
            self.reported_at = now;
        }
        self.in_flight += wire;
        self.controller.on_sent(&SentInfo {
            now,
            first: self.index,
            count: train.count,
            bytes: ByteCount(wire),
            in_flight: ByteCount(self.in_flight),
            retransmission: repeat,
            app_limited,
        });
        self.index += packets;
        self.pacer.sent(now, ByteCount(wire), self.pacing_rate());
        stats.sent_packets += packets;
        stats.sent_bytes += ByteCount(bytes);
        if repeat {
            stats.retransmitted_packets += packets;
            stats.retransmitted_bytes += ByteCount(bytes);
        }
    }

    /// The rate in force: the controller's, below the owner's ceiling and the breaker's.
    pub(crate) fn pacing_rate(&self) -> Option<DataRate> {
        let rates = [self.controller.pacing_rate(), self.ceiling, self.breaker.ceiling()];
        rates.into_iter().flatten().min()
    }

    /// A report came in.
    pub(crate) fn on_report(
        &mut self,
        now: Time,
        report: &Report,
        lanes: &mut [Lane],
        rtt: &mut Rtt,
        stats: &mut FlowStats,
    ) -> Result<Outcome, Impossible> {
        let measured = self.on_marks(now, &report.marks, report.at, lanes, rtt);
        let mut acked = Acked::default();
        for ack in &report.acks {
            let lane = lanes.get_mut(usize::from(ack.lane)).ok_or(Impossible)?;
            let before = acked.any;
            for &(start, end) in &ack.runs {
                self.on_ack(now, lane, start, end, &mut acked)?;
            }
            if acked.any > before {
                lane.on_progress(now);
            }
        }
        self.flush(&mut acked);
        let srtt = rtt.smoothed_or_guess();
        let mtu_changed = self.detect(now, lanes, rtt, stats);
        let news = report.number > self.newest_report;
        if news {
            self.newest_report = report.number;
            self.credit = Credit { room: report.room, drain: report.drain };
            self.arrival.on_report(report.at, report.received, srtt);
        }
        self.reported_at = now;
        let deltas = Deltas {
            host_drops: take(&mut self.host_drops, report.host_drops, news),
            refused: take(&mut self.refused, report.refused, news),
            ecn_ce: take(&mut self.ecn_ce, report.ecn_ce, news),
        };
        stats.spurious_packets += acked.spurious;
        stats.acked_bytes += ByteCount(acked.payload);
        self.reordering.on_report(now, srtt, acked.spurious);
        let lost = self.feed(now, rtt, measured, &acked, deltas);
        let wire = self.controller.pacing_rate();
        let verdict = self.breaker.on_report(now, srtt, acked.packets, lost, wire);
        for lane in lanes.iter_mut() {
            lane.ledger.forget(now, (srtt * 2).max(REMEMBER));
        }
        Ok(Outcome { verdict, mtu_changed, host_drops: deltas.host_drops, drain: report.drain })
    }

    /// Arrival marks give the round trip, the queueing delay and the dispersion. True if the
    /// round trip was measured.
    fn on_marks(
        &mut self,
        now: Time,
        marks: &[Mark],
        at: Time,
        lanes: &mut [Lane],
        rtt: &mut Rtt,
    ) -> bool {
        let mut measured = false;
        let mut before: Option<(&Mark, u64)> = None;
        let mut least: Option<Duration> = None;
        for (i, mark) in marks.iter().enumerate() {
            let Some(lane) = lanes.get_mut(usize::from(mark.lane)) else { continue };
            let Some(sent) = lane.ledger.find(mark.pn).filter(|_| mark.pn >= lane.measured_to)
            else {
                continue;
            };
            let train = sent.train;
            let queueing = self.delay.sample(sent.sent_at, mark.at);
            least = Some(least.map_or(queueing, |l| l.min(queueing)));
            if let Some((earlier, first)) = before
                && (earlier.lane, first) == (mark.lane, train.first)
            {
                let wire = ByteCount(u64::from(train.size) + DATA_OVERHEAD as u64);
                let span = mark.at.since(earlier.at);
                self.capacity.sample(mark.pn.saturating_sub(earlier.pn), wire, span);
            }
            before = Some((mark, train.first));
            if i + 1 == marks.len() {
                rtt.sample(now, now.since(sent.sent_at).saturating_sub(at.since(mark.at)));
                measured = true;
            }
            lane.measured_to = mark.pn + 1;
        }
        self.queueing = least.or(self.queueing);
        measured
    }

    fn on_ack(
        &mut self,
        now: Time,
        lane: &mut Lane,
        start: u64,
        end: u64,
        acked: &mut Acked,
    ) -> Result<(), Impossible> {
        let Self { delivery, backlog, mtu, in_flight, released, .. } = self;
        lane.ledger.ack(start, end, |sent, part| {
            acked.any += 1;
            if sent.train.size == 0 {
                return;
            }
            let (a, b) = sent.train.span(part.from, part.to);
            let packets = u64::from(part.to - part.from);
            let wire = b - a + packets * DATA_OVERHEAD as u64;
            if part.spurious {
                acked.spurious += packets;
            } else {
                *in_flight = in_flight.saturating_sub(wire);
            }
            acked.packets += packets;
            acked.bytes += wire;
            acked.payload += b - a;
            acked.largest = acked.largest.max(Some(sent.index + u64::from(part.to) - 1));
            delivery.acked(now, sent, wire);
            mtu.on_acked(sent.train.size + DATA_OVERHEAD as u16);
            match &mut acked.span {
                Some(span) if span.1 == a => span.1 = b,
                span => {
                    if let Some((a, b)) = span.replace((a, b)) {
                        release(backlog, released, a, b);
                    }
                }
            }
        })
    }

    /// Hands the last acknowledged span on.
    fn flush(&mut self, acked: &mut Acked) {
        if let Some((a, b)) = acked.span.take() {
            release(&mut self.backlog, &mut self.released, a, b);
        }
    }

    /// Looks for losses in all lanes. True if they made a black hole and the MTU fell.
    fn detect(&mut self, now: Time, lanes: &mut [Lane], rtt: &Rtt, stats: &mut FlowStats) -> bool {
        let (window, overdue) = (self.loss_window(rtt), self.loss_overdue(rtt));
        let srtt = rtt.smoothed_or_guess();
        let mut fell = false;
        for lane in lanes {
            let Self { backlog, mtu, in_flight, lost, .. } = self;
            lane.ledger.detect(now, window, overdue, |sent, part| {
                fell |= lose(now, srtt, sent, part, backlog, mtu, in_flight, lost, stats);
            });
        }
        fell
    }

    /// Everything open on a dead lane is repeated elsewhere.
    pub(crate) fn abandon(&mut self, now: Time, lane: &mut Lane, stats: &mut FlowStats) {
        let Self { backlog, mtu, in_flight, lost, .. } = self;
        lane.ledger.abandon(|sent, part| {
            lose(now, Duration::ZERO, sent, part, backlog, mtu, in_flight, lost, stats);
        });
    }

    /// The loss timer fired: what was overtaken and is overdue is lost. True if the MTU fell.
    pub(crate) fn on_loss_timer(
        &mut self,
        now: Time,
        lanes: &mut [Lane],
        rtt: &Rtt,
        stats: &mut FlowStats,
    ) -> bool {
        let fell = self.detect(now, lanes, rtt, stats);
        if !self.lost.is_empty() {
            self.feed(now, rtt, false, &Acked::default(), Deltas::default());
        }
        fell
    }

    /// When the loss timer is due.
    pub(crate) fn loss_deadline(&self, lanes: &[Lane], rtt: &Rtt) -> Option<Time> {
        let overdue = self.loss_overdue(rtt);
        lanes.iter().filter_map(|lane| lane.ledger.deadline(overdue)).min()
    }

    fn loss_window(&self, rtt: &Rtt) -> Duration {
        self.reordering.window(rtt.smoothed_or_guess())
    }

    fn loss_overdue(&self, rtt: &Rtt) -> Duration {
        let srtt = rtt.smoothed_or_guess();
        srtt.max(rtt.latest)
            + rtt.variation * 4
            + self.reordering.window(srtt)
            + report_interval(srtt) * 2
    }

    /// Tells the controller; returns how many packets were lost.
    fn feed(&mut self, now: Time, rtt: &Rtt, measured: bool, acked: &Acked, deltas: Deltas) -> u64 {
        let RateSample { rate, app_limited, round_ended, newest_sent_at } =
            self.delivery.sample(now);
        if rate.is_some() && round_ended {
            self.delivery_rate = rate;
        }
        let sample = rtt.smoothed.filter(|_| measured).map(|smoothed| RttSample {
            latest: rtt.latest,
            smoothed,
            variation: rtt.variation,
            min: rtt.min().unwrap_or(smoothed),
        });
        self.controller.on_feedback(&Feedback {
            now,
            largest_acked: acked.largest,
            newest_acked_sent_at: newest_sent_at,
            acked: ByteCount(acked.bytes),
            acked_packets: acked.packets,
            in_flight: ByteCount(self.in_flight),
            rtt: sample,
            queueing_delay: self.queueing.filter(|_| measured),
            delivery_rate: rate,
            arrival_rate: self.arrival.rate,
            capacity: self.capacity.estimate(),
            lost: &self.lost,
            spurious: acked.spurious,
            ecn_ce: deltas.ecn_ce,
            host_drops: deltas.host_drops,
            refused: deltas.refused,
            drain_rate: Some(self.credit.drain).filter(|d| *d != DataRate::ZERO),
            app_limited,
            round_ended,
        });
        let lost = self.lost.iter().map(|l| u64::from(l.count)).sum();
        self.lost.clear();
        lost
    }

    /// The controller's own timer.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        if self.controller.poll_timeout().is_some_and(|at| at <= now) {
            self.controller.on_timeout(now);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.controller.poll_timeout()
    }

    /// Repeats the oldest bytes that are open, as a tail probe; only when nothing else waits.
    pub(crate) fn repeat_oldest(&mut self) {
        if self.backlog.sendable() == 0
            && let Some((a, b)) = self.backlog.oldest(TAIL_BYTES)
        {
            self.backlog.lost(a, b);
        }
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Writes its gauges.
    pub(crate) fn gauges(&self, srtt: Duration, stats: &mut FlowStats) {
        stats.queueing_delay = self.delay.newest();
        stats.cwnd = self.controller.cwnd().min(self.credit.limit(srtt));
        stats.in_flight = ByteCount(self.in_flight);
        stats.pacing_rate = self.pacing_rate();
        stats.delivery_rate = self.delivery_rate;
        stats.capacity = self.capacity.estimate();
        stats.mtu = ByteCount(u64::from(self.mtu.current()));
        stats.host_drops = self.host_drops;
        stats.refused_packets = self.refused;
        stats.ecn_ce = self.ecn_ce;
        stats.limit = self.limit;
        let state = self.controller.state();
        stats.controller = format!("{} {state}", self.controller.name());
    }
}

/// What a report newly acknowledged.
#[derive(Debug, Default)]
struct Acked {
    any: u64,
    packets: u64,
    bytes: u64,
    payload: u64,
    spurious: u64,
    largest: Option<u64>,
    /// The span that is still growing.
    span: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Deltas {
    host_drops: u64,
    refused: u64,
    ecn_ce: u64,
}

/// The growth of a counter that a report tells, if the report is news.
fn take(have: &mut u64, told: u64, news: bool) -> u64 {
    let grown = if news { told.saturating_sub(*have) } else { 0 };
    *have += grown;
    grown
}

fn release(backlog: &mut Backlog, released: &mut Vec<Range<Offset>>, a: u64, b: u64) {
    backlog.acked(a, b, |a, b| match released.last_mut() {
        Some(last) if last.end.get() == a => last.end = Offset(b),
        _ => released.push(Offset(a)..Offset(b)),
    });
}

#[expect(clippy::too_many_arguments, reason = "the parts of a sender that a loss touches")]
fn lose(
    now: Time,
    srtt: Duration,
    sent: &Sent,
    part: Part,
    backlog: &mut Backlog,
    mtu: &mut Mtu,
    in_flight: &mut u64,
    lost: &mut Vec<LossRange>,
    stats: &mut FlowStats,
) -> bool {
    if sent.train.size == 0 {
        return false;
    }
    let (a, b) = sent.train.span(part.from, part.to);
    let count = part.to - part.from;
    let wire = b - a + u64::from(count) * DATA_OVERHEAD as u64;
    *in_flight = in_flight.saturating_sub(wire);
    backlog.lost(a, b);
    stats.lost_packets += u64::from(count);
    lost.push(LossRange {
        first: sent.index + u64::from(part.from),
        count,
        bytes: ByteCount(wire),
        sent_at: sent.sent_at,
    });
    mtu.on_lost(now, sent.train.size + DATA_OVERHEAD as u16, count, srtt)
}

/// Rate of arrival by the receiver's counter and clock.
#[derive(Debug, Default)]
struct Arrival {
    rate: Option<DataRate>,
    at: Time,
    received: ByteCount,
}

impl Arrival {
    fn on_report(&mut self, at: Time, received: ByteCount, srtt: Duration) {
        let span = at.since(self.at);
        if self.received == ByteCount::ZERO {
            (self.at, self.received) = (at, received);
        } else if span >= (srtt / 2).max(Duration::from_millis(5)) {
            self.rate = Some(DataRate::from_bytes_over(received - self.received, span));
            (self.at, self.received) = (at, received);
        }
    }
}
