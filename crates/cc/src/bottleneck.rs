//! A packet-level bottleneck for the curves of controllers in tests: one link with a drop-tail
//! queue, one acknowledgement per packet; a packet is lost when three later ones have arrived.
//! There are no retransmissions; each packet is new. Whole senders are tested in `sim`. With `syn`
//! the receiver reports as UDT's does.

mod syn;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use packtrain_units::{ByteCount, DataRate, Duration, Rng, Time};

use crate::config::ControllerConfig;
use crate::interface::{CongestionController, Feedback, LossRange, RttSample, Sent};
pub(crate) use syn::Receiver;

/// Bytes of a packet.
pub(crate) const MSS: u64 = 1_448;

/// The configuration of controllers in tests.
pub(crate) fn config() -> ControllerConfig {
    ControllerConfig { mtu: ByteCount(MSS), seed: 1, now: Time::ZERO, ceiling: None, rtt: None }
}

/// An empty feedback.
pub(crate) fn silence(now: Time) -> Feedback<'static> {
    Feedback {
        now,
        largest_acked: None,
        newest_acked_sent_at: None,
        acked: ByteCount::ZERO,
        acked_packets: 0,
        in_flight: ByteCount::ZERO,
        rtt: None,
        queueing_delay: None,
        reverse_queue: None,
        delivery_rate: None,
        arrival_rate: None,
        capacity: None,
        lost: &[],
        spurious: 0,
        ecn_ce: 0,
        host_drops: 0,
        refused: 0,
        drain_rate: None,
        app_limited: false,
        round_ended: false,
        timeout: false,
        delay_rising: false,
        bunched: Duration::ZERO,
        held: None,
    }
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    sent_at: Time,
    /// When its acknowledgement arrives; none if it was dropped.
    acked_at: Option<Time>,
    /// Bytes delivered when it was sent, and when that was.
    delivered: u64,
    delivered_at: Time,
}

/// The path and its sender.
#[derive(Debug)]
pub(crate) struct Bottleneck {
    pub(crate) rate: DataRate,
    pub(crate) rtt: Duration,
    /// Capacity of the queue in packets.
    pub(crate) queue: u64,
    pub(crate) loss: f64,
    /// One packet per this many is lost, at regular intervals.
    pub(crate) every: u64,
    pub(crate) paced: bool,
    /// UDT's receiver: a report each 10 ms, losses at once, warnings.
    pub(crate) syn: Option<Receiver>,
    rng: Rng,
    now: Time,
    /// When the link becomes idle.
    idle_at: Time,
    next_send: Time,
    next: u64,
    flying: BTreeMap<u64, Packet>,
    acks: VecDeque<(Time, u64)>,
    pub(crate) delivered: u64,
    delivered_at: Time,
    srtt: Option<(Duration, Duration)>,
    pub(crate) lost: u64,
}

impl Bottleneck {
    pub(crate) fn new(rate: DataRate, rtt: Duration, queue: u64) -> Self {
        Self {
            rate,
            rtt,
            queue,
            loss: 0.0,
            every: u64::MAX,
            paced: false,
            syn: None,
            rng: Rng::new(7),
            now: Time::ZERO,
            idle_at: Time::ZERO,
            next_send: Time::ZERO,
            next: 0,
            flying: BTreeMap::new(),
            acks: VecDeque::new(),
            delivered: 0,
            delivered_at: Time::ZERO,
            srtt: None,
            lost: 0,
        }
    }

    fn in_flight(&self) -> u64 {
        self.flying.len() as u64 * MSS
    }

    /// Runs for `span`, and returns a line with time, window and queue every `step`.
    pub(crate) fn curve(
        &mut self,
        controller: &mut dyn CongestionController,
        span: Duration,
        step: Duration,
    ) -> String {
        let mut out = String::from("   time  cwnd  queue  state\n");
        let end = self.now + span;
        while self.now < end {
            self.run(controller, step);
            let queue = self.idle_at.since(self.now);
            let queue = self.rate.bytes_in(queue).get() / MSS;
            let cwnd = controller.cwnd().get() / MSS;
            let at = Duration::from_nanos(self.now.as_nanos()).as_secs_f64();
            let state = controller.state();
            writeln!(out, "{at:7.2} {cwnd:5} {queue:6}  {state}").unwrap();
        }
        out
    }

    /// Runs for `span`; returns the used share of the link.
    pub(crate) fn run(&mut self, controller: &mut dyn CongestionController, span: Duration) -> f64 {
        let (end, before) = (self.now + span, self.delivered);
        loop {
            self.send(controller);
            let ack = self.acks.front().map(|(at, _)| *at);
            let tick = self.syn.as_ref().and_then(Receiver::due);
            let room = self.in_flight() + MSS <= controller.cwnd().get();
            let thaw = controller.frozen_until().unwrap_or(Time::ZERO);
            let turn = (room && self.paced).then_some(self.next_send.max(thaw));
            // No event remains: all packets in flight were dropped.
            let Some(at) = [ack, tick, turn].into_iter().flatten().min() else {
                self.time_out(controller);
                continue;
            };
            if let Some(timer) = controller.poll_timeout().filter(|timer| *timer <= at.min(end)) {
                self.now = self.now.max(timer);
                controller.on_timeout(self.now);
                continue;
            }
            if at > end {
                break;
            }
            self.now = self.now.max(at);
            if ack == Some(at) {
                self.on_ack(controller);
            } else if tick == Some(at) {
                self.on_tick(controller);
            }
        }
        self.now = end;
        (self.delivered - before) as f64 / self.rate.bytes_in(span).get() as f64
    }

    fn send(&mut self, controller: &mut dyn CongestionController) {
        while self.in_flight() + MSS <= controller.cwnd().get()
            && (!self.paced || self.next_send <= self.now)
            && controller.frozen_until().is_none_or(|until| until <= self.now)
        {
            let queued = self.rate.bytes_in(self.idle_at.since(self.now)).get() / MSS;
            let dropped = queued > self.queue || self.rng.chance(self.loss);
            let dropped = dropped || self.next % self.every == self.every - 1;
            let (delivered, delivered_at) = (self.delivered, self.delivered_at);
            let mut packet = Packet { sent_at: self.now, acked_at: None, delivered, delivered_at };
            if !dropped {
                self.idle_at = self.idle_at.max(self.now) + self.rate.time_for(ByteCount(MSS));
                packet.acked_at = Some(self.idle_at + self.rtt);
                self.acks.push_back((self.idle_at + self.rtt, self.next));
            }
            if self.flying.is_empty() {
                packet.delivered_at = self.now;
                self.delivered_at = self.now;
            }
            self.flying.insert(self.next, packet);
            controller.on_sent(&Sent {
                now: self.now,
                first: self.next,
                count: 1,
                bytes: ByteCount(MSS),
                in_flight: ByteCount(self.in_flight()),
                retransmission: false,
                app_limited: false,
            });
            self.next += 1;
            if let Some(rate) = controller.pacing_rate().filter(|_| self.paced) {
                self.next_send = self.next_send.max(self.now) + rate.time_for(ByteCount(MSS));
            }
        }
    }

    fn on_ack(&mut self, controller: &mut dyn CongestionController) {
        let (_, index) = self.acks.pop_front().unwrap();
        let Some(packet) = self.flying.remove(&index) else { return };
        self.delivered += MSS;
        let latest = self.now.since(packet.sent_at);
        let (smoothed, min) = self.srtt.map_or((latest, latest), |(s, m)| {
            (s.mul_f64(0.875) + latest.mul_f64(0.125), m.min(latest))
        });
        self.srtt = Some((smoothed, min));
        let span =
            (self.now.since(packet.delivered_at)).max(packet.sent_at.since(packet.delivered_at));
        self.delivered_at = self.now;
        // A packet that three later ones overtook is lost; there is no reordering here.
        let gone: Vec<_> =
            self.flying.range(..index.saturating_sub(2)).map(|(i, p)| (*i, *p)).collect();
        let lost: Vec<_> = gone
            .iter()
            .map(|(i, p)| LossRange {
                first: *i,
                count: 1,
                bytes: ByteCount(MSS),
                sent_at: p.sent_at,
            })
            .collect();
        for (i, _) in &gone {
            self.flying.remove(i);
        }
        self.lost += gone.len() as u64;
        let delivered = ByteCount(self.delivered - packet.delivered);
        let in_flight = ByteCount(self.in_flight());
        if let Some(receiver) = &mut self.syn {
            receiver.arrive(self.now, latest);
            if !lost.is_empty() {
                controller.on_feedback(&Feedback { in_flight, lost: &lost, ..silence(self.now) });
            }
            return;
        }
        controller.on_feedback(&Feedback {
            largest_acked: Some(index),
            newest_acked_sent_at: Some(packet.sent_at),
            acked: ByteCount(MSS),
            acked_packets: 1,
            in_flight,
            rtt: Some(RttSample { latest, smoothed, variation: latest - min, min }),
            delivery_rate: (span >= min).then(|| DataRate::from_bytes_over(delivered, span)),
            lost: &lost,
            ..silence(self.now)
        });
    }

    fn on_tick(&mut self, controller: &mut dyn CongestionController) {
        let (in_flight, rate) = (ByteCount(self.in_flight()), self.rate);
        if let Some(receiver) = &mut self.syn {
            receiver.report(self.now, rate, in_flight, controller);
        }
    }

    fn time_out(&mut self, controller: &mut dyn CongestionController) {
        self.now += Duration::from_millis(200);
        self.lost += self.flying.len() as u64;
        self.flying.clear();
        controller.on_feedback(&Feedback { timeout: true, ..silence(self.now) });
    }
}
