//! Processing of reports and of the loss timer.

use packtrain_cc::{Feedback, LossRange, RttSample};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::{LOST_TRAIN_RETENTION, Outcome, Sender};
use crate::codec::frame::{Mark, Report};
use crate::codec::header::DATA_OVERHEAD;
use crate::config::limits::LANES;
use crate::core::backlog::Backlog;
use crate::core::bunch;
use crate::core::credit::Credit;
use crate::core::delivery::RateSample;
use crate::core::lane::Lane;
use crate::core::ledger::{Impossible, Part, Sent};
use crate::core::receiver::report_interval;
use crate::core::receiver_rate_cap::Arrived;
use crate::core::rtt::Rtt;
use crate::core::spread::Marked;
use crate::stats::FlowStats;

/// Granularity of timers (RFC 9002 section 6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);

impl Sender {
    /// Handles a report.
    pub(crate) fn on_report(
        &mut self,
        now: Time,
        report: &Report,
        lanes: &mut [Lane],
        rtt: &mut Rtt,
        stats: &mut FlowStats,
    ) -> Result<Outcome, Impossible> {
        // The last mark of the report before is of its newest packet.
        let before =
            self.last_mark.filter(|_| Some(report.number) == self.newest_report.checked_add(1));
        let bunch = bunch::longest(report, before, lanes, self.capacity.estimate());
        self.bunched = self.bunched.max(bunch);
        let oldest = report.marks.iter().map(|mark| mark.at).min();
        self.held = oldest.map(|at| report.at.since(at));
        let measured = self.on_marks(now, &report.marks, report.at, lanes, rtt);
        let lane = report.marks.last().and_then(|mark| lanes.get(usize::from(mark.lane)));
        let data = lane.map(|lane| &lane.delay);
        self.reverse_queue = Some(self.report_delay.sample(report.at, now, data));
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
        self.ecn.on_acked(acked.packets);
        let srtt = rtt.smoothed_or_guess();
        let mut silence = Silence::new(self.acked_sent_at, acked.sent_after);
        let mtu_changed = self.detect(now, lanes, rtt, &mut silence, stats);
        self.acked_sent_at = self.acked_sent_at.max(acked.newest_sent);
        let persistent = silence.is_persistent(rtt);
        let newer = report.number > self.newest_report;
        if newer {
            self.newest_report = report.number;
            self.last_mark = report.marks.last().copied();
            self.credit = Credit { room: report.room, drain: report.drain };
            self.arrival.on_report(report.at, report.received, srtt);
        }
        (self.reported_at, self.answered) = (now, true);
        let deltas = Deltas {
            host_drops: take(&mut self.host_drops, report.host_drops, newer),
            refused: take(&mut self.refused, report.refused, newer),
            ecn_ce: if newer { self.ecn.on_report(report.ecn) } else { 0 },
        };
        self.ecn_ce += deltas.ecn_ce;
        stats.spurious_packets += acked.spurious;
        stats.acked_bytes += ByteCount(acked.payload);
        self.reordering.on_report(now, srtt, acked.spurious);
        stats.loss_rounds += u64::from(self.begins_loss_round());
        self.ecn.on_lost(self.lost.iter().map(|l| u64::from(l.count)).sum());
        // After a silence the controller has just lost what it had; the breaker halves what it was.
        let before = self.capped_rate().filter(|_| self.breaker.is_silent());
        let lost = self.feed(now, rtt, measured, &acked, deltas, persistent);
        let wanted = self.controller.pacing_rate();
        let arrived = Arrived {
            bytes: ByteCount(acked.bytes),
            packets: acked.packets,
            lost,
            dropped: deltas.host_drops,
        };
        self.receiver_rate_cap.on_report(now, srtt, arrived, wanted);
        self.pacer.set_rate(now, self.pacing_rate());
        // The breaker counts all losses, also those attributed to the receiving host.
        let wire = before.or(self.capped_rate());
        let verdict = self.breaker.on_report(now, srtt, acked.packets, lost, wire);
        for lane in lanes.iter_mut() {
            lane.ledger.forget(now, (srtt * 2).max(LOST_TRAIN_RETENTION));
        }
        Ok(Outcome { verdict, mtu_changed, host_drops: deltas.host_drops, drain: report.drain })
    }

    /// Measures round trip, queueing delay and dispersion from arrival marks. Returns true if the
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
        let mut marked = Vec::with_capacity(marks.len());
        let mut minima = [None; LANES];
        for (i, mark) in marks.iter().enumerate() {
            let Some(lane) = lanes.get_mut(usize::from(mark.lane)) else { continue };
            let Some(sent) = lane.ledger.find(mark.pn).filter(|_| mark.pn >= lane.measured_to)
            else {
                continue;
            };
            let train = sent.train;
            let queueing = lane.delay.sample(sent.sent_at, mark.at);
            self.learned_queue.on_delay(queueing);
            let min = &mut minima[usize::from(mark.lane)];
            *min = Some(min.map_or(queueing, |l: Duration| l.min(queueing)));
            marked.push(Marked {
                run: sent.run,
                index: sent.index + (mark.pn - train.first),
                at: mark.at,
                wire: ByteCount(u64::from(train.size) + DATA_OVERHEAD as u64),
            });
            if i + 1 == marks.len() {
                rtt.sample(now, now.since(sent.sent_at).saturating_sub(at.since(mark.at)));
                measured = true;
            }
            lane.measured_to = mark.pn + 1;
        }
        self.capacity.on_marks(now, &mut marked, &mut self.bursts);
        if let Some(queueing) = self.most_queued(now, &minima, lanes, rtt.smoothed_or_guess()) {
            self.queueing = Some(queueing);
            self.warning |= self.rising.sample(now, queueing, rtt.smoothed_or_guess());
        }
        measured
    }

    /// Takes the minima of a report. The delay that counts is that of the lane with the longest
    /// queue: where lanes take several paths of equal cost, an empty one must not hide a full one.
    fn most_queued(
        &self,
        now: Time,
        minima: &[Option<Duration>; LANES],
        lanes: &mut [Lane],
        srtt: Duration,
    ) -> Option<Duration> {
        let mut newest = None;
        for (lane, min) in lanes.iter_mut().zip(minima) {
            if let Some(min) = *min {
                lane.delay.on_report(now, min);
                newest = Some(min);
            }
        }
        let newest = newest?;
        let since = now - srtt.max(report_interval(srtt) * 2);
        let recent = lanes.iter().filter_map(|lane| lane.delay.recent(since));
        // A single lane needs no help against single late packets: its report is the measurement.
        if recent.clone().count() == 1 { Some(newest) } else { recent.max() }
    }

    fn on_ack(
        &mut self,
        now: Time,
        lane: &mut Lane,
        start: u64,
        end: u64,
        acked: &mut Acked,
    ) -> Result<(), Impossible> {
        let Self { delivery, backlog, mtu, in_flight, released, acked_sent_at, .. } = self;
        lane.ledger.ack(start, end, |sent, part| {
            acked.any += 1;
            acked.newest_sent = acked.newest_sent.max(sent.sent_at);
            if sent.sent_at > *acked_sent_at {
                let first = acked.sent_after.get_or_insert(sent.sent_at);
                *first = sent.sent_at.min(*first);
            }
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
            mtu.on_acked(now, sent.train.largest(part.from) + DATA_OVERHEAD as u16);
            match &mut acked.span {
                Some(span) if span.1 == a => span.1 = b,
                span => {
                    if let Some((a, b)) = span.replace((a, b)) {
                        backlog.release(a, b, released);
                    }
                }
            }
        })
    }

    /// Releases the last acknowledged span.
    fn flush(&mut self, acked: &mut Acked) {
        if let Some((a, b)) = acked.span.take() {
            self.backlog.release(a, b, &mut self.released);
        }
    }

    /// Detects losses in all lanes. Returns true if they are a black hole and the MTU fell.
    fn detect(
        &mut self,
        now: Time,
        lanes: &mut [Lane],
        rtt: &Rtt,
        silence: &mut Silence,
        stats: &mut FlowStats,
    ) -> bool {
        let (window, overdue) = (self.loss_window(rtt), self.loss_overdue(rtt));
        let probe_timeout = rtt.overdue(report_interval(rtt.smoothed_or_guess()));
        let mut fell = false;
        for lane in lanes {
            let Self { backlog, mtu, in_flight, lost, .. } = self;
            lane.ledger.detect(now, window, overdue, |sent, part| {
                silence.add(sent.sent_at);
                if lose(sent, part, backlog, in_flight, lost, stats) {
                    let size = sent.train.largest(part.from) + DATA_OVERHEAD as u16;
                    let count = part.to - part.from;
                    fell |= mtu.on_lost(now, size, count, probe_timeout);
                }
            });
        }
        fell
    }

    /// Marks all open packets of a dead lane lost, so that other lanes retransmit them.
    pub(crate) fn abandon(&mut self, lane: &mut Lane, stats: &mut FlowStats) {
        let Self { backlog, in_flight, lost, .. } = self;
        lane.ledger.abandon(|sent, part| {
            lose(sent, part, backlog, in_flight, lost, stats);
        });
    }

    /// The loss timer fired: overtaken packets that are overdue are lost. Returns true if the MTU
    /// fell.
    pub(crate) fn on_loss_timer(
        &mut self,
        now: Time,
        lanes: &mut [Lane],
        rtt: &Rtt,
        stats: &mut FlowStats,
    ) -> bool {
        let mut silence = Silence::new(self.acked_sent_at, None);
        let fell = self.detect(now, lanes, rtt, &mut silence, stats);
        if !self.lost.is_empty() {
            stats.loss_rounds += u64::from(self.begins_loss_round());
            self.feed(now, rtt, false, &Acked::default(), Deltas::default(), false);
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

    /// Whether a packet just declared lost was sent after the last round of losses began.
    fn begins_loss_round(&mut self) -> bool {
        let begins = self.lost.iter().any(|l| l.first + u64::from(l.count) > self.loss_round);
        if begins {
            self.learned_queue.on_loss_round();
            self.loss_round = self.index;
        }
        begins
    }

    /// Passes the feedback to the controller; returns how many packets were lost.
    fn feed(
        &mut self,
        now: Time,
        rtt: &Rtt,
        measured: bool,
        acked: &Acked,
        deltas: Deltas,
        persistent: bool,
    ) -> u64 {
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
            reverse_queue: self.reverse_queue.take(),
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
            timeout: persistent,
            delay_rising: std::mem::take(&mut self.warning),
            bunched: std::mem::take(&mut self.bunched),
            held: self.held.take(),
        });
        let lost = self.lost.iter().map(|l| u64::from(l.count)).sum();
        self.lost.clear();
        self.capacity.on_lost(lost, &self.bursts);
        lost
    }
}

/// The newly acknowledged part of a report.
#[derive(Debug, Default)]
struct Acked {
    any: u64,
    packets: u64,
    bytes: u64,
    payload: u64,
    spurious: u64,
    largest: Option<u64>,
    /// When the newest of them was sent, and the oldest of those that were sent after all packets
    /// acknowledged before.
    newest_sent: Time,
    sent_after: Option<Time>,
    /// The span that is still growing.
    span: Option<(u64, u64)>,
}

/// The time in which everything that was sent is lost: between the newest packet acknowledged
/// before and the oldest acknowledged after it.
#[derive(Debug)]
struct Silence {
    after: Time,
    before: Option<Time>,
    /// The sending times of the first and of the last packet lost in it.
    lost: Option<(Time, Time)>,
}

impl Silence {
    fn new(after: Time, before: Option<Time>) -> Self {
        Self { after, before, lost: None }
    }

    /// A packet sent at `at` is lost.
    fn add(&mut self, at: Time) {
        if at > self.after && self.before.is_some_and(|before| at < before) {
            let (first, last) = self.lost.unwrap_or((at, at));
            self.lost = Some((first.min(at), last.max(at)));
        }
    }

    /// Persistent congestion (RFC 9002 section 7.6): the packets lost span three probe timeouts.
    /// Nothing is acknowledged before the first round trip is known.
    fn is_persistent(&self, rtt: &Rtt) -> bool {
        let delay = report_interval(rtt.smoothed_or_guess()) * 2;
        let timeout = rtt.smoothed_or_guess() + (rtt.variation * 4).max(GRANULARITY) + delay;
        self.after > Time::ZERO
            && self.lost.is_some_and(|(first, last)| last.since(first) >= timeout * 3)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Deltas {
    host_drops: u64,
    refused: u64,
    ecn_ce: u64,
}

/// The growth of a reported counter; zero for a report that is not the newest.
fn take(have: &mut u64, reported: u64, newer: bool) -> u64 {
    let grown = if newer { reported.saturating_sub(*have) } else { 0 };
    *have += grown;
    grown
}

/// Records a loss. Returns false if the train is a control packet.
fn lose(
    sent: &Sent,
    part: Part,
    backlog: &mut Backlog,
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
    true
}

/// The arrival rate by the receiver's counter and clock.
#[derive(Debug, Default)]
pub(super) struct Arrival {
    pub(super) rate: Option<DataRate>,
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
