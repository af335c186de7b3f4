//! The loop that moves packets from the hosts into the links and from the links into the hosts.
//!
//! The arrival time is the time of the read, the departure time is the result of the link's
//! arithmetic. A late delivery therefore shifts no other. One thread does it all, without locks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packtrain_link::{DropCause, Element, Histogram, Link, Observer, Pace, QueueConfig, Segments};
use packtrain_os::clock;
use packtrain_units::{Duration, Time};

use crate::counters::WireCounters;
use crate::device::{Device, Read};
use crate::egress::{Egress, Timed, fit};
use crate::error::EmuError;
use crate::merge::Batch;
use crate::packet::Piece;
use crate::record::Recorder;
use crate::store::Store;
use crate::ticker::Ticker;
use crate::topology::{Topology, host_number};

/// Maximum packets read from one host before the other hosts and due deliveries are served.
const MAX_READS_PER_TURN: usize = 64;
/// Maximum time that a segment waits for those behind it in the same super-packet.
const MAX_HOLD: Duration = Duration::from_micros(200);
/// Delay before a link is polled again that had a decision due and released nothing.
const RETRY_DELAY: Duration = Duration::from_micros(1);

/// The state of a running emulation.
pub(crate) struct Engine {
    epoch: Time,
    lanes: Vec<Lane>,
    ports: Vec<Port>,
    routes: Vec<Vec<Option<usize>>>,
    /// Node of each address in 10.77.0.0/24, and of those in fd00:77::/64 with the same number.
    owners: Vec<Option<usize>>,
    /// The batch being written.
    batch: Batch,
    store: Store,
    recorder: Option<Recorder>,
    /// Counts the packets that arrived at routers: the order among equal times.
    order: u64,
}

/// The result of reading all hosts once.
struct ReadResult {
    /// Packets; a super-packet counts once.
    packets: u64,
    /// Whether no packet was left waiting.
    all: bool,
}

/// One direction of a link.
struct Lane {
    link: Link<Piece>,
    to: usize,
    /// The time of the next decision, only for queues that decide after the offer.
    decides: Option<Time>,
    /// Whether the queue decides after the offer.
    decides_after_offer: bool,
    counters: WireCounters,
    lateness: Histogram,
}

/// A node.
struct Port {
    device: Option<Device>,
    /// Packets for this host.
    egress: Egress,
    /// Packets to be forwarded.
    transit: BinaryHeap<Reverse<Timed<(Pace, Piece)>>>,
    write_failures: u64,
    unroutable: u64,
}

/// The counters of an engine.
pub(crate) struct Counts {
    /// For each wire its counters and the lateness of its deliveries to hosts.
    pub(crate) wires: Vec<(WireCounters, Histogram)>,
    /// For each node the packets whose write failed and the unroutable packets.
    pub(crate) nodes: Vec<(u64, u64)>,
    /// Running time.
    pub(crate) ran: Duration,
    /// Processor time of the engine's thread.
    pub(crate) cpu: Duration,
    /// Why the record is missing or incomplete.
    pub(crate) record_error: Option<std::io::Error>,
}

impl Engine {
    /// An engine for this network, with the device of each host in `devices`. `record` is the path
    /// prefix of the record.
    pub(crate) fn new(
        topology: &Topology,
        devices: Vec<Option<Device>>,
        record: Option<&std::path::Path>,
    ) -> Result<Self, EmuError> {
        let lane = |wire: &crate::topology::Wire| Lane {
            link: Link::new(wire.config.clone()),
            to: wire.to,
            decides: None,
            decides_after_offer: matches!(wire.config.queue, QueueConfig::CoDel(_)),
            counters: WireCounters::default(),
            lateness: Histogram::default(),
        };
        let port = |device| Port {
            device,
            egress: Egress::new(MAX_HOLD),
            transit: BinaryHeap::new(),
            write_failures: 0,
            unroutable: 0,
        };
        let mut owners = vec![None; 256];
        for host in topology.hosts() {
            if let Some(address) = topology.address(host) {
                owners[usize::from(address.octets()[3])] = Some(host);
            }
        }
        let epoch = clock::now();
        let recorder = record.map(|prefix| Recorder::create(prefix, clock::wall())).transpose()?;
        Ok(Self {
            epoch,
            lanes: topology.wires.iter().map(lane).collect(),
            ports: devices.into_iter().map(port).collect(),
            routes: topology.routes(),
            owners,
            batch: Batch::default(),
            store: Store::new(),
            recorder,
            order: 0,
        })
    }

    /// Runs until `stop` is set (and `wake` is readable). Under load its wake-ups are one `tick`
    /// apart.
    pub(crate) fn run(
        mut self,
        tick: Duration,
        stop: &Arc<AtomicBool>,
        wake: &std::os::fd::OwnedFd,
    ) -> Counts {
        let mut ticker = Ticker::new(tick);
        let mut done = 0;
        while !stop.load(Ordering::Acquire) {
            self.depart();
            done += self.deliver();
            let ReadResult { packets, all } = self.read();
            done += packets;
            if !all {
                continue;
            }
            let until = self.next().map(|time| self.epoch + time.since(Time::ZERO));
            let devices = self.ports.iter().filter_map(|port| port.device.as_ref());
            ticker.sleep(devices, wake, until, done);
            done = 0;
        }
        self.finish()
    }

    fn finish(self) -> Counts {
        let ran = self.now().since(Time::ZERO);
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Counts {
            cpu: Duration::from_secs(cpu.tv_sec as u64) + Duration::from_nanos(cpu.tv_nsec as u64),
            wires: self.lanes.into_iter().map(|lane| (lane.counters, lane.lateness)).collect(),
            nodes: self.ports.iter().map(|p| (p.write_failures, p.unroutable)).collect(),
            ran,
            record_error: self.recorder.and_then(|recorder| recorder.finish().err()),
        }
    }

    /// Time since the start, the clock of the links.
    fn now(&self) -> Time {
        Time::ZERO + clock::now().since(self.epoch)
    }

    /// Runs the due decisions of links and forwards the packets that have arrived at routers.
    fn depart(&mut self) {
        let now = self.now();
        loop {
            let decisions = self.lanes.iter().enumerate();
            let decision = decisions.filter_map(|(i, lane)| Some((lane.decides?, i))).min();
            let transits = self.ports.iter().enumerate();
            let transit =
                transits.filter_map(|(i, port)| Some((port.transit.peek()?.0.at, i))).min();
            match (decision, transit) {
                (Some((at, wire)), _) if at <= now && transit.is_none_or(|t| at <= t.0) => {
                    self.decide(wire, now);
                }
                (_, Some((at, node))) if at <= now => self.pass_on(node, now),
                _ => break,
            }
        }
    }

    fn decide(&mut self, wire: usize, now: Time) {
        while let Some((pace, piece)) = self.poll(wire, now) {
            self.arrive(wire, pace, piece);
        }
        self.drain(wire);
        let decides = &mut self.lanes[wire].decides;
        *decides = decides.map(|due| due.max(now + RETRY_DELAY));
    }

    /// Offers the first packet in transit at a router to its next link: the segments that have
    /// arrived and that come before the router's other packets.
    fn pass_on(&mut self, node: usize, now: Time) {
        let Some(Reverse(Timed { what: (pace, mut piece), order, .. })) =
            self.ports[node].transit.pop()
        else {
            return;
        };
        let next = self.ports[node].transit.peek().map_or(now, |other| other.0.at.min(now));
        let come = fit(pace, next.max(pace.first), piece.count);
        if come < piece.count {
            let (rest, pace) = (piece.split_off(come), pace.from(come));
            let timed = Timed { at: pace.first, order, what: (pace, rest) };
            self.ports[node].transit.push(Reverse(timed));
        }
        self.account(&piece, pace);
        let target = self.owner(&piece);
        self.forward(node, target, pace, piece);
    }

    /// Takes the packets that a link has released.
    fn drain(&mut self, wire: usize) {
        while let Some((pace, piece)) = self.poll(wire, Time::MAX) {
            self.arrive(wire, pace, piece);
        }
        let lane = &mut self.lanes[wire];
        lane.decides = lane.decides_after_offer.then(|| lane.link.poll_timeout()).flatten();
        self.ports[lane.to].egress.expect(lane.decides);
    }

    fn poll(&mut self, wire: usize, until: Time) -> Option<(Pace, Piece)> {
        let lane = &mut self.lanes[wire];
        let (store, recorder) = (&mut self.store, self.recorder.as_mut());
        let mut watch = Watch { wire, counters: &mut lane.counters, store, recorder };
        lane.link.poll_departure(until, &mut watch)
    }

    /// Queues packets that arrive at the end of a wire, for delivery or for forwarding.
    fn arrive(&mut self, wire: usize, pace: Pace, piece: Piece) {
        let node = self.lanes[wire].to;
        if self.owner(&piece) == Some(node) {
            self.ports[node].egress.push(pace, piece);
        } else {
            self.order += 1;
            let timed = Timed { at: pace.first, order: self.order, what: (pace, piece) };
            self.ports[node].transit.push(Reverse(timed));
        }
    }

    /// Offers packets to the next wire of their route.
    fn forward(&mut self, node: usize, target: Option<usize>, pace: Pace, mut piece: Piece) {
        let Some(wire) = target.and_then(|target| self.routes[node][target]) else {
            self.ports[node].unroutable += u64::from(piece.count());
            return self.reclaim(piece);
        };
        let lane = &mut self.lanes[wire];
        (piece.wire, piece.number) = (wire, lane.counters.offered);
        lane.counters.offer(piece.count(), piece.bytes());
        if let Some(recorder) = &mut self.recorder {
            recorder.arrival(wire, pace, &piece);
        }
        let (store, recorder) = (&mut self.store, self.recorder.as_mut());
        let mut watch = Watch { wire, counters: &mut lane.counters, store, recorder };
        lane.link.offer(pace, piece, &mut watch);
        self.drain(wire);
    }

    /// Delivers the due packets to the hosts and returns how many; a super-packet counts once.
    fn deliver(&mut self) -> u64 {
        let mut packets = 0;
        let mut now = self.now();
        for node in 0..self.ports.len() {
            while let Some(run) = self.ports[node].egress.due(now) {
                packets += 1;
                if let Err(run) = self.batch.add(run) {
                    now = self.write(node);
                    // An empty batch accepts any run.
                    let _ = self.batch.add(run);
                }
            }
            if !self.batch.runs().is_empty() {
                now = self.write(node);
            }
        }
        packets
    }

    /// Writes the batch and returns the time after the write.
    fn write(&mut self, node: usize) -> Time {
        let port = &mut self.ports[node];
        let written = port.device.as_ref().is_none_or(|device| device.write(&self.batch).is_ok());
        let now = self.now();
        let mut batch = std::mem::take(&mut self.batch);
        for run in batch.clear() {
            if !written {
                self.ports[node].write_failures += u64::from(run.piece.count);
            }
            self.account(&run.piece, Pace { first: run.first, gap: Duration::ZERO });
            let lane = &mut self.lanes[run.piece.wire];
            lane.lateness.add(now.since(run.last), u64::from(run.piece.count));
            self.reclaim(run.piece);
        }
        self.batch = batch;
        now
    }

    /// Counts packets delivered by their wire.
    fn account(&mut self, piece: &Piece, pace: Pace) {
        let last = pace.time(piece.count - 1);
        let counters = &mut self.lanes[piece.wire].counters;
        counters.deliver(pace.first, last, piece.count, piece.bytes());
    }

    /// Reads the packets that hosts send.
    fn read(&mut self) -> ReadResult {
        let mut result = ReadResult { packets: 0, all: true };
        for node in 0..self.ports.len() {
            for turn in 0..MAX_READS_PER_TURN {
                let Some(device) = &self.ports[node].device else { break };
                match device.read(&mut self.store) {
                    // A host reports its memberships to routers that are not there.
                    Ok(Read::Packet(packet)) if packet.layout.is_multicast() => {
                        self.store.reclaim(packet);
                    }
                    Ok(Read::Packet(packet)) => {
                        let now = self.now();
                        if let Some(recorder) = &mut self.recorder {
                            recorder.sent(now, &packet);
                        }
                        let piece = Piece::whole(packet);
                        let target = self.owner(&piece);
                        self.forward(node, target, Pace::at(now), piece);
                    }
                    Ok(Read::Other) => self.ports[node].unroutable += 1,
                    Ok(Read::Empty) | Err(_) => break,
                }
                result.packets += 1;
                result.all &= turn + 1 < MAX_READS_PER_TURN;
            }
        }
        result
    }

    /// The time of the next event that does not depend on a read.
    fn next(&self) -> Option<Time> {
        let decisions = self.lanes.iter().filter_map(|lane| lane.decides);
        let ports = self.ports.iter();
        let transits = ports.clone().filter_map(|port| Some(port.transit.peek()?.0.at));
        decisions.chain(transits).chain(ports.filter_map(|port| port.egress.next())).min()
    }

    fn owner(&self, piece: &Piece) -> Option<usize> {
        self.owners[usize::from(host_number(piece.packet.layout.target)?)]
    }

    fn reclaim(&mut self, piece: Piece) {
        self.store.reclaim(piece.packet);
    }
}

/// Records what a link does with its packets.
struct Watch<'a> {
    wire: usize,
    counters: &'a mut WireCounters,
    store: &'a mut Store,
    recorder: Option<&'a mut Recorder>,
}

impl Observer<Piece> for Watch<'_> {
    fn dropped(&mut self, at: Pace, piece: Piece, cause: DropCause) {
        self.counters.drop(cause, piece.count());
        if let Some(recorder) = &mut self.recorder {
            recorder.dropped(self.wire, at, &piece, cause);
        }
        self.store.reclaim(piece.packet);
    }

    fn queued(&mut self, _: &Piece, first: Duration, last: Duration) {
        self.counters.longest_queue = self.counters.longest_queue.max(first).max(last);
    }
}
