//! The sending endpoint of the native feedback: what to send, how much, and the processing of
//! reports.

mod feedback;

use std::ops::Range;

use packtrain_cc::{CongestionController, LossRange, ReverseQueue, Sent as SentInfo};
use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};

use crate::breaker::{Breaker, Verdict};
use crate::codec::frame::Mark;
use crate::codec::header::DATA_OVERHEAD;
use crate::core::backlog::{Backlog, Piece};
use crate::core::credit::Credit;
use crate::core::delay::{LearnedQueue, ReportDelay, Rising};
use crate::core::delivery::Delivery;
use crate::core::lane::Lane;
use crate::core::ledger::{Sent, Train};
use crate::core::loss::Reordering;
use crate::core::probe_train::Shown;
use crate::core::receiver_rate_cap::ReceiverRateCap;
use crate::core::sender::feedback::Arrival;
use crate::core::spread::{Bursts, Capacity};
use crate::ecn::Ecn;
use crate::mtu::Mtu;
use crate::pacer::Pacer;
use crate::seam::TRAIN_PACKETS;
use crate::stats::{FlowStats, Limit};

/// Minimum time for which settled trains with losses are kept, to recognise late arrivals.
const LOST_TRAIN_RETENTION: Duration = Duration::from_millis(50);
/// Data of more packets than this waits for the answers to a train of pings. Less data would not
/// make a burst.
const MIN_AWAITING: u64 = 20;
/// Maximum bytes that a tail probe retransmits.
const MAX_TAIL_BYTES: u64 = 8 * 1_439;

/// The sender of one flow.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) backlog: Backlog,
    pub(crate) mtu: Mtu,
    pub(crate) breaker: Breaker,
    pub(crate) limit: Limit,
    /// Acknowledged ranges not yet reported to payload and owner.
    pub(crate) released: Vec<Range<Offset>>,
    controller: Box<dyn CongestionController>,
    ceiling: Option<DataRate>,
    receiver_rate_cap: ReceiverRateCap,
    pacer: Pacer,
    credit: Credit,
    rising: Rising,
    /// The delay grew; the controller has not been notified yet.
    warning: bool,
    /// The longest time between packets that arrived together; not passed on yet.
    bunched: Duration,
    report_delay: ReportDelay,
    /// The queue that a report met; not passed on yet.
    reverse_queue: Option<ReverseQueue>,
    /// How long the newest report was held back.
    held: Option<Duration>,
    bursts: Bursts,
    capacity: Capacity,
    delivery: Delivery,
    reordering: Reordering,
    in_flight: u64,
    index: u64,
    newest_report: u64,
    /// The last mark of that report.
    last_mark: Option<Mark>,
    /// Start of the wait for feedback: when the last report came, or the first packet left after it.
    pub(crate) reported_at: Time,
    /// A report came since that packet. Without one, the next packet does not begin the wait anew,
    /// even where dead lanes gave up all that was in flight: else a path that carries nothing back
    /// would get the same data on one lane after another.
    answered: bool,
    arrival: Arrival,
    host_drops: u64,
    refused: u64,
    pub(crate) ecn: Ecn,
    ecn_ce: u64,
    lost: Vec<LossRange>,
    /// Losses from this send index on begin a new round of losses.
    loss_round: u64,
    queueing: Option<Duration>,
    delivery_rate: Option<DataRate>,
    probe_due: Option<Time>,
    /// When the newest acknowledged packet was sent.
    acked_sent_at: Time,
    learned_queue: LearnedQueue,
    /// Data of more than `MIN_AWAITING` packets waits until then for answers to a train of pings.
    awaits_train_until: Time,
}

/// Effects of a report other than those on the controller.
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
        ecn: bool,
        now: Time,
    ) -> Self {
        let ecn = Ecn::new(ecn && controller.answers_marks());
        Self {
            backlog: Backlog::default(),
            mtu,
            breaker: Breaker::default(),
            limit: Limit::Idle,
            released: Vec::new(),
            controller,
            ceiling,
            receiver_rate_cap: ReceiverRateCap::new(now),
            pacer: Pacer::default(),
            credit: Credit::new(),
            rising: Rising::default(),
            warning: false,
            bunched: Duration::ZERO,
            report_delay: ReportDelay::default(),
            reverse_queue: None,
            held: None,
            bursts: Bursts::default(),
            capacity: Capacity::default(),
            delivery: Delivery::default(),
            reordering: Reordering::default(),
            in_flight: 0,
            index: 0,
            newest_report: 0,
            last_mark: None,
            reported_at: now,
            answered: true,
            arrival: Arrival::default(),
            host_drops: 0,
            refused: 0,
            ecn,
            ecn_ce: 0,
            lost: Vec::new(),
            loss_round: 0,
            queueing: None,
            delivery_rate: None,
            probe_due: None,
            acked_sent_at: Time::ZERO,
            learned_queue: LearnedQueue::default(),
            awaits_train_until: Time::ZERO,
        }
    }

    /// How many full packets may be sent now in one batch; zero, with the reason in `limit`.
    pub(crate) fn budget(&mut self, now: Time, srtt: Duration) -> u32 {
        self.bursts.on_path(srtt);
        self.pacer.on_path(srtt);
        let budget = self.permit(now, srtt);
        if budget == 0 {
            self.bursts.wait();
            self.pacer.wait(self.limit == Limit::Pacing && self.probe_due.is_none());
        }
        budget
    }

    /// Answers to a train of pings are still coming.
    pub(crate) fn await_train(&mut self, until: Time) {
        self.awaits_train_until = until;
    }

    /// The answers to a train of pings before the first data have come.
    pub(crate) fn on_train(&mut self, shown: Shown) {
        self.awaits_train_until = Time::ZERO;
        match shown {
            Shown::Capacity(rate) => {
                self.bursts.on_train(rate, ByteCount(u64::from(self.mtu.current())));
                self.controller.on_capacity(rate);
            }
            Shown::TooShort(pings, span) => self.bursts.on_short_train(pings, span),
        }
    }

    /// Whether the controller uses a capacity that is known before the first data.
    pub(crate) fn launches_at_capacity(&self) -> bool {
        self.controller.launches_at_capacity()
    }

    fn permit(&mut self, now: Time, srtt: Duration) -> u32 {
        let wire = u64::from(self.mtu.current());
        self.limit = Limit::Idle;
        self.probe_due = None;
        if self.backlog.sendable() == 0 {
            self.delivery.app_limited(self.in_flight);
            return 0;
        }
        if self.breaker.is_silent() {
            self.limit = Limit::Silence;
            return 0;
        }
        if now < self.awaits_train_until && self.backlog.sendable() > MIN_AWAITING * wire {
            self.limit = Limit::Pacing;
            self.probe_due = Some(self.awaits_train_until);
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
        let burst = self.bursts.left();
        if now < at && burst == 0 && !self.bursts.is_due() {
            self.limit = Limit::Pacing;
            return 0;
        }
        quantum.max(burst).max(1).min(room).min(u64::from(TRAIN_PACKETS)) as u32
    }

    /// Something outside of the flow holds the data back. That time is not made up.
    pub(crate) fn hold(&mut self) {
        self.limit = Limit::Payload;
        self.pacer.wait(false);
    }

    /// The payload did not have the bytes that are needed next.
    pub(crate) fn payload_pending(&mut self) {
        self.hold();
        self.delivery.app_limited(self.in_flight);
    }

    /// When `budget` may allow packets again if nothing arrives.
    pub(crate) fn paced_until(&self) -> Option<Time> {
        (self.limit == Limit::Pacing).then(|| self.probe_due.unwrap_or(self.pacer.next()))
    }

    /// The next piece to send.
    pub(crate) fn piece(&self, skip_lost: bool) -> Option<Piece> {
        self.backlog.next(skip_lost)
    }

    /// A train was sent on `lane`.
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
        let paced = self.pacing_rate().is_some();
        sent.run = self.bursts.on_sent(now, self.index, packets, paced, &self.capacity);
        lane.on_sending(now);
        lane.ledger.push(sent);
        self.backlog.advance(repeat, bytes);
        if self.in_flight == 0 && std::mem::take(&mut self.answered) {
            // The wait for feedback starts now, not at the last report.
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
        self.ecn.on_sent(packets);
        let burst = self.learned_queue.burst();
        self.pacer.sent(now, ByteCount(wire), self.pacing_rate(), burst);
        stats.sent_packets += packets;
        stats.sent_bytes += ByteCount(bytes);
        if repeat {
            stats.retransmitted_packets += packets;
            stats.retransmitted_bytes += ByteCount(bytes);
        }
    }

    /// The rate in force: the minimum of the controller's rate, the owner's ceiling, the receiver's
    /// rate cap and the breaker's ceiling.
    pub(crate) fn pacing_rate(&self) -> Option<DataRate> {
        let rates = [self.capped_rate(), self.ceiling, self.breaker.ceiling()];
        rates.into_iter().flatten().min()
    }

    /// The pace, or what the window allows in a round trip where there is no pace.
    pub(crate) fn rate(&self, srtt: Duration) -> DataRate {
        let window = || DataRate::from_bytes_over(self.controller.cwnd(), srtt);
        self.pacing_rate().unwrap_or_else(window)
    }

    /// Packets of the burst that is being sent back to back to measure the capacity.
    pub(crate) fn burst(&self) -> u64 {
        self.bursts.packets()
    }

    /// The controller, for calls other than feedback.
    pub(crate) fn controller_mut(&mut self) -> &mut dyn CongestionController {
        &mut *self.controller
    }

    /// The controller's rate, limited by the receiver's rate cap.
    fn capped_rate(&self) -> Option<DataRate> {
        self.controller.pacing_rate().into_iter().chain(self.receiver_rate_cap.rate()).min()
    }

    /// Runs the controller's timer if it is due.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        if self.controller.poll_timeout().is_some_and(|at| at <= now) {
            self.controller.on_timeout(now);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.controller.poll_timeout()
    }

    /// Retransmits the oldest open bytes as a tail probe, if no other data waits.
    pub(crate) fn repeat_oldest(&mut self) {
        if self.backlog.sendable() == 0
            && let Some((a, b)) = self.backlog.oldest(MAX_TAIL_BYTES)
        {
            self.backlog.lost(a, b);
        }
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Writes its gauges.
    pub(crate) fn gauges(&self, srtt: Duration, stats: &mut FlowStats) {
        stats.queueing_delay = self.queueing;
        stats.cwnd = self.controller.cwnd().min(self.credit.limit(srtt));
        stats.in_flight = ByteCount(self.in_flight);
        stats.pacing_rate = self.pacing_rate();
        stats.receiver_rate_cap = self.receiver_rate_cap.rate();
        stats.delivery_rate = self.delivery_rate;
        stats.arrival_rate = self.arrival.rate;
        stats.capacity = self.capacity.estimate();
        stats.mtu = ByteCount(u64::from(self.mtu.reported()));
        stats.host_drops = self.host_drops;
        stats.refused_packets = self.refused;
        stats.ecn_ce = self.ecn_ce;
        stats.ecn = self.ecn.bits() != 0;
        stats.limit = self.limit;
        let state = self.controller.state();
        stats.controller = format!("{} {state}", self.controller.name());
    }
}
