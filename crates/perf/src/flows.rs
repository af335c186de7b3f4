//! The flows of a test: the sender repeats a pattern from memory, the receiver discards it.

use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use packtrain_net::flow::{FlowEvent, FlowHandle};
use packtrain_net::limit::RateLimiter;
use packtrain_net::udp::UdpSocket;
use packtrain_proto::{CloseReason, Event, Fill, Payload, Placed, Placement};
use packtrain_transfer::message::Role;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, DataRate, Duration, Offset, RangeSet};

use packtrain_runtime::transports::beside::Channels;
use packtrain_runtime::transports::offer::{FlowOffer, Offer};
use packtrain_runtime::transports::perf_parts::PerfTcp;
use packtrain_runtime::transports::qlog::QlogFile;
use packtrain_runtime::transports::{TransportConfig, causes, udp};
use packtrain_service::ceilings::HeldBy;
use packtrain_service::{LossCause, TransportChoice};

/// Length of the range that every flow gets, practically unlimited.
const ENDLESS: u64 = 1 << 60;
/// Size of the pattern in bytes, small enough for the cache.
const PATTERN_BYTES: usize = 1 << 16;
/// The free buffer that the receiver announces; it stores nothing.
const ANNOUNCED_BUFFER: ByteCount = ByteCount(256 << 20);
/// The sender connects first; the receiver also tries to connect after this time.
const HEAD_START: Duration = Duration::from_millis(300);

fn fatal(text: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Fatal, text)
}

/// The flows of the sending end.
pub(super) struct Sending {
    plan: TransportConfig,
    /// The rate limit of all flows together.
    limiter: Option<RateLimiter>,
    bound: Vec<(Vec<UdpSocket>, FlowOffer)>,
    flows: Vec<FlowHandle>,
    tcp: Option<PerfTcp>,
    /// The feedback channels of the flows, if they have any.
    channels: Option<Channels>,
    parallel: u32,
    share: u64,
    up: Arc<AtomicU64>,
    /// Number of connected feedback channels.
    beside: Arc<AtomicU64>,
    failure: Arc<Mutex<Option<Failure>>>,
}

impl Sending {
    pub(super) fn new(
        plan: &TransportConfig,
        parallel: u32,
        bytes: Option<u64>,
    ) -> Result<Self, Failure> {
        let native = plan.choice != TransportChoice::Tcp;
        let mut this = Self {
            plan: plan.clone(),
            limiter: plan.send_limiter(),
            bound: Vec::new(),
            flows: Vec::new(),
            tcp: None,
            channels: channels(plan, Role::Source)?,
            parallel,
            share: bytes.map_or(ENDLESS, |b| b.div_ceil(u64::from(parallel))),
            up: Arc::default(),
            beside: Arc::default(),
            failure: Arc::default(),
        };
        for _ in 0..if native { parallel } else { 0 } {
            this.bound.push((udp::bind(plan).map_err(fatal)?, udp::offer()));
        }
        if !native {
            this.tcp = Some(
                PerfTcp::new(plan, None, this.limiter.clone()).map_err(|e| fatal(e.to_string()))?,
            );
        }
        Ok(this)
    }

    pub(super) fn offers(&self) -> Vec<Vec<u8>> {
        match &self.tcp {
            Some(tcp) => vec![tcp.offer().encode()],
            None => self
                .bound
                .iter()
                .map(|(sockets, flow)| {
                    offer(&self.plan, sockets, Some(flow), self.channels.as_ref()).encode()
                })
                .collect(),
        }
    }

    pub(super) fn start(&mut self, offers: &[Vec<u8>]) -> Result<(), Failure> {
        let peers: Vec<Offer> = offers.iter().filter_map(|bytes| Offer::decode(bytes)).collect();
        if let Some(tcp) = &self.tcp {
            let peer = peers.first().ok_or_else(|| fatal("the receiver offers nothing"))?;
            tcp.send(&self.plan, peer, self.parallel, self.share, &self.up);
            return Ok(());
        }
        for ((sockets, flow), peer) in self.bound.drain(..).zip(&peers) {
            peer.check(&self.plan)?;
            let (up, failure) = (Arc::clone(&self.up), Arc::clone(&self.failure));
            let closing = AtomicBool::new(false);
            let log = QlogFile::from_environment(flow.id).map_err(fatal)?;
            let events = move |event: FlowEvent| match event {
                FlowEvent::Flow(Event::Established { .. }) => {
                    up.fetch_add(1, Ordering::Relaxed);
                }
                FlowEvent::Flow(Event::Closed(CloseReason::Done)) => {
                    closing.store(true, Ordering::Relaxed);
                }
                FlowEvent::Flow(Event::Closed(reason)) if !closing.load(Ordering::Relaxed) => {
                    let why = Failure::new(FailureKind::Temporary, format!("UDP: {reason}"));
                    *failure.lock() = Some(why);
                }
                _ => {}
            };
            let go = Arc::new(AtomicBool::new(self.channels.is_none()));
            let pattern = Pattern::new(Arc::clone(&go));
            let keys = (&flow, self.limiter.clone());
            let mut handle =
                udp::start_sender(&self.plan, sockets, keys, peer, pattern, log, events)
                    .map_err(fatal)?;
            handle.assign(Offset(0)..Offset(self.share));
            if let (Some(channels), Some(beside)) = (&self.channels, handle.channel()) {
                let (count, waker) = (Arc::clone(&self.beside), handle.waker());
                channels.add(flow.id, beside, move || {
                    count.fetch_add(1, Ordering::Relaxed);
                    go.store(true, Ordering::Release);
                    waker.wake();
                });
            }
            self.flows.push(handle);
        }
        if let (Some(channels), Some(peer)) = (&self.channels, peers.first()) {
            channels.connect(&self.plan, peer, Duration::ZERO);
        }
        if self.flows.len() < self.parallel as usize {
            return Err(fatal("the receiver offers too few flows"));
        }
        Ok(())
    }

    pub(super) fn established(&self) -> bool {
        let all = |count: &AtomicU64| count.load(Ordering::Relaxed) >= u64::from(self.parallel);
        all(&self.up) && (self.channels.is_none() || all(&self.beside))
    }

    /// The reason for the error message if the flows do not connect.
    pub(super) fn missing(&self) -> &'static str {
        let datagrams = self.up.load(Ordering::Relaxed) >= u64::from(self.parallel);
        if datagrams && self.channels.is_some() {
            "UDP gets through, but not the TCP connection that sabul needs beside it: open TCP \
             ports too (--ports)"
        } else {
            "no flow came up"
        }
    }

    /// What limited the rate, if anything did.
    pub(super) fn held(&self) -> Option<HeldBy> {
        self.plan.held_by(self.limiter.as_ref())
    }

    pub(super) fn failed(&self) -> Option<Failure> {
        self.failure.lock().clone()
    }

    /// Retransmitted payload in bytes, minimum round-trip time, and the sum of the congestion
    /// windows.
    pub(super) fn state(&self) -> (u64, Option<Duration>, Option<ByteCount>) {
        if let Some(tcp) = &self.tcp {
            return tcp.state();
        }
        let stats: Vec<_> = self.flows.iter().map(|flow| flow.stats().flow).collect();
        let again = stats.iter().map(|s| s.retransmitted_bytes.get()).sum();
        let rtt = stats.iter().filter_map(|s| s.min_rtt).min();
        let cwnd = (!stats.is_empty()).then(|| stats.iter().map(|s| s.cwnd).sum());
        (again, rtt, cwnd)
    }

    /// The loss causes of the flow that lost most.
    pub(super) fn losses(&self) -> LossCause {
        let stats = self.flows.iter().map(|flow| flow.stats().flow);
        stats.max_by_key(|flow| flow.lost_packets).map(|flow| causes(&flow)).unwrap_or_default()
    }

    /// Capacity of the path and arrival rate from the feedback: the highest capacity of a flow, and
    /// the sum of the arrival rates.
    pub(super) fn estimates(&self) -> (Option<DataRate>, Option<DataRate>) {
        let stats: Vec<_> = self.flows.iter().map(|flow| flow.stats().flow).collect();
        let capacity = stats.iter().filter_map(|s| s.capacity).max();
        let arrival: u64 = stats.iter().filter_map(|s| s.arrival_rate).map(DataRate::as_bps).sum();
        (capacity, (arrival > 0).then(|| DataRate::from_bps(arrival)))
    }

    pub(super) fn close(&mut self) {
        for flow in &self.flows {
            flow.close(CloseReason::Done);
        }
        if let Some(tcp) = &self.tcp {
            tcp.close();
        }
    }
}

/// The flows of the receiving end.
pub(super) struct Receiving {
    plan: TransportConfig,
    limiter: Option<RateLimiter>,
    bound: Vec<Vec<UdpSocket>>,
    flows: Vec<FlowHandle>,
    tcp: Option<PerfTcp>,
    channels: Option<Channels>,
    bytes: Arc<AtomicU64>,
}

impl Receiving {
    pub(super) fn new(
        plan: &TransportConfig,
        parallel: u32,
        bytes: Arc<AtomicU64>,
    ) -> Result<Self, Failure> {
        let mut this = Self {
            plan: plan.clone(),
            limiter: plan.receive_limiter(),
            bound: Vec::new(),
            flows: Vec::new(),
            tcp: None,
            channels: channels(plan, Role::Sink)?,
            bytes,
        };
        if plan.choice == TransportChoice::Tcp {
            let into = Arc::clone(&this.bytes);
            this.tcp = Some(
                PerfTcp::new(plan, Some((into, parallel)), this.limiter.clone())
                    .map_err(|e| fatal(e.to_string()))?,
            );
        } else {
            for _ in 0..parallel {
                this.bound.push(udp::bind(plan).map_err(fatal)?);
            }
        }
        Ok(this)
    }

    pub(super) fn offers(&self) -> Vec<Vec<u8>> {
        match &self.tcp {
            Some(tcp) => vec![tcp.offer().encode()],
            None => {
                let offer = |s: &Vec<_>| offer(&self.plan, s, None, self.channels.as_ref());
                self.bound.iter().map(|s| offer(s).encode()).collect()
            }
        }
    }

    pub(super) fn start(&mut self, offers: &[Vec<u8>]) -> Result<(), Failure> {
        let peers: Vec<Offer> = offers.iter().filter_map(|bytes| Offer::decode(bytes)).collect();
        if let (Some(tcp), Some(peer)) = (&self.tcp, peers.first()) {
            tcp.expect(peer);
            return Ok(());
        }
        for (sockets, peer) in self.bound.drain(..).zip(&peers) {
            peer.check(&self.plan)?;
            let Some(flow) = &peer.flow else {
                return Err(fatal("the sender offers no keys"));
            };
            let count = Count::new(Arc::clone(&self.bytes));
            let keys = (flow, self.limiter.clone());
            let mut handle =
                udp::start_receiver(&self.plan, sockets, keys, peer, count, |_: FlowEvent| {})
                    .map_err(fatal)?;
            if let (Some(channels), Some(beside)) = (&self.channels, handle.channel()) {
                channels.add(flow.id, beside, || {});
            }
            self.flows.push(handle);
        }
        if let (Some(channels), Some(peer)) = (&self.channels, peers.first()) {
            channels.connect(&self.plan, peer, HEAD_START);
        }
        Ok(())
    }

    /// What limited the rate, if anything did.
    pub(super) fn held(&self) -> Option<HeldBy> {
        self.plan.held_by(self.limiter.as_ref())
    }

    pub(super) fn close(&mut self) {
        for flow in &self.flows {
            flow.close(CloseReason::Done);
        }
    }
}

/// The feedback channels, if the flows of this configuration need them.
fn channels(plan: &TransportConfig, role: Role) -> Result<Option<Channels>, Failure> {
    let channels = plan.beside().then(|| Channels::listen(plan, role));
    channels.transpose().map_err(|e| fatal(e.to_string()))
}

fn offer(
    plan: &TransportConfig,
    sockets: &[UdpSocket],
    flow: Option<&FlowOffer>,
    channels: Option<&Channels>,
) -> Offer {
    let mut offer = Offer { udp: udp::ports(sockets), flow: flow.cloned(), ..Offer::new(plan) };
    if let Some(channels) = channels {
        channels.fill(&mut offer);
    }
    offer
}

/// An unlimited payload. It is pending until everything that a flow needs is connected.
struct Pattern {
    bytes: Vec<u8>,
    go: Arc<AtomicBool>,
}

impl Pattern {
    fn new(go: Arc<AtomicBool>) -> Self {
        Self { bytes: (0..2 * PATTERN_BYTES).map(|n| ((n * 31) >> 3) as u8).collect(), go }
    }
}

impl Payload for Pattern {
    fn fill(&mut self, at: Offset, out: &mut [u8]) -> Fill {
        if !self.go.load(Ordering::Acquire) {
            return Fill::Pending;
        }
        let start = at.get() as usize % PATTERN_BYTES;
        out.copy_from_slice(&self.bytes[start..start + out.len()]);
        Fill::Ready
    }

    fn release(&mut self, _: Range<Offset>) {}
}

/// Counts received bytes, each once.
struct Count {
    bytes: Arc<AtomicU64>,
    /// All bytes below this offset have arrived.
    edge: Offset,
    /// Ranges that arrived beyond the edge.
    ahead: RangeSet,
}

impl Count {
    fn new(bytes: Arc<AtomicU64>) -> Self {
        Self { bytes, edge: Offset(0), ahead: RangeSet::new() }
    }

    /// Adds `range`; returns the number of new bytes.
    fn add(&mut self, range: Range<Offset>) -> u64 {
        let start = range.start.max(self.edge);
        if start >= range.end {
            return 0;
        }
        if start > self.edge || !self.ahead.is_empty() {
            let new = self.ahead.insert(start..range.end).get();
            if let Some(first) = self.ahead.first().filter(|first| first.start <= self.edge) {
                self.edge = first.end;
                self.ahead.remove(first);
            }
            return new;
        }
        self.edge = range.end;
        range.end.since(start).get()
    }
}

impl Placement for Count {
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed {
        let new = self.add(at..at + ByteCount(bytes.len() as u64));
        if new == 0 {
            return Placed::Duplicate;
        }
        // There is only one writer, so a load and a store are sufficient.
        let have = self.bytes.load(Ordering::Relaxed);
        self.bytes.store(have + new, Ordering::Relaxed);
        Placed::New
    }

    fn room(&self) -> ByteCount {
        ANNOUNCED_BUFFER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_counts_once_in_any_order() {
        let mut count = Count::new(Arc::default());
        let mut add = |from: u64, to: u64| count.add(Offset(from)..Offset(to));
        assert_eq!(
            [add(0, 10), add(20, 30), add(5, 15), add(10, 25), add(0, 30)],
            [10, 10, 5, 5, 0]
        );
        assert_eq!(add(30, 31), 1);
        assert_eq!(count.edge, Offset(31));
        assert!(count.ahead.is_empty());
    }
}
