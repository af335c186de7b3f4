//! What the sending end sees of its transports, looked at while they run.

use std::collections::VecDeque;

use packtrain_net::flow::FlowSnapshot;
use packtrain_proto::{Limit, LossTally};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::mover::Waiting;
use super::tcp::record::Seen;
use packtrain_service::evidence::{LossWord, Net, PathPart, Race, Sample, TcpPart, Waits};

/// How often it is seen what a sender waits for.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest and the longest interval of a path.
const SHORTEST: Duration = Duration::from_millis(100);
const MAX_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Intervals kept.
const SAMPLES: usize = 160;

/// Counters at the begin of an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at: Time,
    sent: u64,
    arrived: u64,
    lost: u64,
}

/// How long nothing arrived.
#[derive(Debug, Default)]
struct Arrivals {
    /// Arrived in all, by datagrams and by TCP.
    seen: [u64; 2],
    /// The last arrival, or the last time that nothing was waited for.
    last: Option<Time>,
    longest: Duration,
}

impl Arrivals {
    /// `waits`: the sender has something and waits for the path.
    fn look(&mut self, now: Time, tcp: bool, arrived: u64, waits: bool) {
        let before = std::mem::replace(&mut self.seen[usize::from(tcp)], arrived);
        match self.last {
            // What nothing ever came through is blocked, or takes no packets of this size.
            None if arrived == 0 => {}
            Some(last) if arrived <= before && waits => {
                self.longest = self.longest.max(now.since(last));
            }
            _ => self.last = Some(now),
        }
    }
}

/// What is seen.
#[derive(Default)]
pub(super) struct Look {
    looked: Time,
    waits: Waits,
    mover: Waits,
    samples: VecDeque<Sample>,
    mark: Mark,
    /// The interval under way is one of TCP's.
    of_tcp: bool,
    arrivals: Arrivals,
    pub(super) race: Race,
    began: Option<Time>,
    mtu_begun: ByteCount,
    mtu_last: ByteCount,
    mtu_falls: u64,
    pub(super) braked: u64,
    tcp: Option<TcpPart>,
    tcp_rtt: Option<Duration>,
    net_up: Option<Time>,
    net_last: Option<Time>,
}

impl Look {
    /// The race begins.
    pub(super) fn begin(&mut self, now: Time, udp: bool, tcp: bool, mtu: Option<ByteCount>) {
        self.mtu_begun = mtu.unwrap_or_default();
        self.began = Some(now);
        (self.race.udp_tried, self.race.tcp_tried) = (udp, tcp);
    }

    fn since(&self, now: Time) -> Duration {
        self.began.map_or(Duration::ZERO, |began| now.since(began))
    }

    /// The datagram flow is up.
    pub(super) fn udp_up(&mut self, now: Time) {
        let after = self.since(now);
        self.race.udp_up.get_or_insert(after);
        self.net_up.get_or_insert(now);
    }

    /// A TCP stream is up.
    pub(super) fn tcp_up(&mut self, now: Time) {
        let after = self.since(now);
        self.race.tcp_up.get_or_insert(after);
    }

    /// The pipe carries data.
    pub(super) fn piped(&mut self, now: Time) {
        let after = self.since(now);
        self.race.piped.get_or_insert(after);
    }

    /// True once in a while.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        let due = now.since(self.looked) >= SAMPLE_INTERVAL;
        if due {
            self.looked = now;
            self.race.on_for = self.since(now);
        }
        due
    }

    /// The datagram flow, which is in use.
    pub(super) fn flow(&mut self, now: Time, snapshot: &FlowSnapshot) {
        self.net_last = Some(now);
        let flow = &snapshot.flow;
        let count = match flow.limit {
            Limit::Idle => &mut self.waits.work,
            Limit::Payload => &mut self.waits.bytes,
            Limit::Window => &mut self.waits.window,
            Limit::Pacing => &mut self.waits.pace,
            Limit::Credit => &mut self.waits.room,
            Limit::Silence => &mut self.waits.word,
        };
        *count += 1;
        let waits = matches!(flow.limit, Limit::Window | Limit::Pacing | Limit::Silence);
        self.arrivals.look(now, false, flow.acked_bytes.get(), waits);
        self.mtu_falls += u64::from(flow.mtu < self.mtu_last);
        self.mtu_last = flow.mtu;
        let payload = flow.mtu.get().saturating_sub(33);
        let lost = flow
            .lost_packets
            .saturating_sub(flow.spurious_packets + flow.host_drops + flow.refused_packets);
        let mark = Mark {
            at: now,
            sent: flow.sent_bytes.get(),
            arrived: flow.acked_bytes.get(),
            lost: lost * payload,
        };
        let rtt = flow.rtt.unwrap_or_default();
        let queue = flow.queueing_delay.unwrap_or(rtt - flow.min_rtt.unwrap_or(rtt));
        self.interval(mark, false, rtt, queue);
    }

    /// TCP or the pipe, which are in use, as their threads say, and the kernel of TCP's streams.
    pub(super) fn movers(
        &mut self,
        now: Time,
        waiting: impl Iterator<Item = Waiting>,
        tcp: Option<Seen>,
    ) {
        let mut out = false;
        for one in waiting {
            out |= one == Waiting::Out;
            let count = match one {
                Waiting::Work => &mut self.mover.work,
                Waiting::Bytes => &mut self.mover.bytes,
                Waiting::Pace => &mut self.mover.pace,
                Waiting::Out => &mut self.mover.window,
            };
            *count += 1;
        }
        let Some(seen) = tcp else { return };
        self.arrivals.look(now, true, seen.arrived, out);
        let (sent, lost) = (seen.part.sent.get(), seen.part.retransmitted.get());
        self.tcp_rtt = seen.min_rtt;
        self.tcp = Some(seen.part);
        let mark = Mark { at: now, sent, arrived: seen.arrived, lost };
        self.interval(mark, true, seen.srtt, seen.queue);
    }

    fn interval(&mut self, mark: Mark, of_tcp: bool, rtt: Duration, queue: Duration) {
        if std::mem::replace(&mut self.of_tcp, of_tcp) != of_tcp || self.mark.at == Time::ZERO {
            self.mark = mark;
            return;
        }
        let span = mark.at.since(self.mark.at);
        if span < rtt.max(SHORTEST).min(MAX_SAMPLE_INTERVAL) {
            return;
        }
        let before = std::mem::replace(&mut self.mark, mark);
        let sent = mark.sent.saturating_sub(before.sent);
        if sent == 0 {
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            span,
            sent: ByteCount(sent),
            arrived: ByteCount(mark.arrived.saturating_sub(before.arrived)),
            lost: ByteCount(mark.lost.saturating_sub(before.lost)),
            queue,
        });
    }

    /// The network thread of the flow, if there was one.
    pub(super) fn net(&self, last: Option<&FlowSnapshot>) -> Option<Net> {
        let last = last?;
        let elapsed = self.net_last?.since(self.net_up?);
        Some(Net { cpu: last.cpu, bytes: last.flow.sent_bytes, elapsed })
    }

    /// What is known of the path.
    pub(super) fn part(&self, last: Option<&FlowSnapshot>) -> PathPart {
        let mut part = PathPart {
            race: self.race.clone(),
            waits: self.waits,
            mover: self.mover,
            samples: self.samples.iter().copied().collect(),
            min_rtt: self.tcp_rtt,
            tcp: self.tcp.clone(),
            mtu_begun: self.mtu_begun,
            mtu_falls: self.mtu_falls,
            braked: self.braked,
            outage: self.arrivals.longest,
            ..PathPart::default()
        };
        if let Some(FlowSnapshot { flow, io, .. }) = last {
            part.by_udp = flow.sent_bytes.saturating_sub(flow.retransmitted_bytes);
            part.sent_packets = flow.sent_packets;
            part.lost_packets = flow.lost_packets.saturating_sub(flow.spurious_packets);
            part.host_drops = flow.host_drops;
            part.refused_packets = flow.refused_packets;
            part.marked_packets = flow.ecn_ce;
            part.min_rtt = flow.min_rtt.or(part.min_rtt);
            part.srtt = flow.rtt;
            part.capacity = flow.capacity;
            part.cwnd = flow.cwnd;
            part.controller.clone_from(&flow.controller);
            part.mtu = flow.mtu;
            part.refused_sends = io.refused;
            part.too_big = io.too_big;
            part.smallest_refused = io.smallest_refused;
            part.loss = word(&flow.loss);
        }
        part
    }

    /// The ceiling asked for, as it goes into a part.
    pub(super) fn rate(bps: Option<u64>) -> Option<DataRate> {
        bps.map(DataRate::from_bps)
    }
}

/// What the flow's loss classifier says of most of what was lost.
fn word(tally: &LossTally) -> Option<LossWord> {
    let cause = tally.cause()?;
    Some(LossWord {
        cause: cause.name().to_owned(),
        p_cpu: tally.p_cpu().unwrap_or(0.0),
        share: tally.of(cause) as f64 / tally.lost.max(1) as f64,
        lost: tally.lost,
        windows: tally.windows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_the_longest_time_without_an_arrival() {
        let at = |s: u64| Time::from_nanos(s * 1_000_000_000);
        let mut arrivals = Arrivals::default();
        arrivals.look(at(1), false, 0, true);
        arrivals.look(at(9), false, 0, true);
        assert_eq!(arrivals.longest, Duration::ZERO, "nothing ever arrived");
        arrivals.look(at(10), false, 500, true);
        arrivals.look(at(20), false, 500, true);
        // Another transport is tried, in vain too.
        arrivals.look(at(40), true, 0, true);
        arrivals.look(at(90), false, 500, true);
        assert_eq!(arrivals.longest, Duration::from_secs(80));
        arrivals.look(at(91), false, 900, true);
        arrivals.look(at(92), false, 900, false);
        arrivals.look(at(200), false, 900, false);
        arrivals.look(at(201), false, 900, true);
        assert_eq!(arrivals.longest, Duration::from_secs(80), "there was nothing to send");
    }
}
