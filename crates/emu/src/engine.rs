//! The loop that moves packets: from the hosts into the links, from the links into the hosts.
//!
//! Arrival is when a packet was read, departure what the link's arithmetic gives; being late
//! with a delivery changes no other. One thread does it all, without locks.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packtrain_io::clock;
use packtrain_link::{DropCause, Element, Link, Observer, Pace, Segments};
use packtrain_units::{Duration, Time};

use crate::bed::Bed;
use crate::device::{Device, Read};
use crate::egress::{Egress, Run};
use crate::error::EmuError;
use crate::late::Late;
use crate::packet::Piece;
use crate::record::Recorder;
use crate::store::Store;
use crate::tally::Tally;
use crate::topology::Topology;

/// Packets read of one host before the others and what is due get their turn.
const TURN: usize = 64;
/// How long a segment may wait for those behind it in the same super-packet.
const HOLD: Duration = Duration::from_micros(200);
/// When to look again at a link that had something due and gave nothing.
const AGAIN: Duration = Duration::from_micros(1);

/// What runs an emulation.
pub(crate) struct Engine {
    epoch: Time,
    lanes: Vec<Lane>,
    ports: Vec<Port>,
    routes: Vec<Vec<Option<usize>>>,
    /// Node of each address in 10.77.0.0/24.
    owners: Vec<Option<usize>>,
    store: Store,
    recorder: Option<Recorder>,
    late: Late,
}

/// One direction of a link.
struct Lane {
    link: Link<Piece>,
    to: usize,
    due: Option<Time>,
    /// What has left the link and may not go on yet: only at routers.
    held: Option<(Pace, Piece)>,
    tally: Tally,
}

/// A node.
struct Port {
    device: Option<Device>,
    egress: Egress,
    write_failures: u64,
    unroutable: u64,
}

/// What it counted.
pub(crate) struct Counts {
    /// Of each wire.
    pub(crate) wires: Vec<Tally>,
    /// Of each node: packets that could not be written, and packets for nobody.
    pub(crate) nodes: Vec<(u64, u64)>,
    /// How late deliveries were.
    pub(crate) late: Late,
    /// How long it ran.
    pub(crate) ran: Duration,
    /// Processor time of the thread that did it.
    pub(crate) cpu: Duration,
    /// Why there is no record, or only a part.
    pub(crate) record_error: Option<std::io::Error>,
}

impl Engine {
    /// An engine for this network; `devices` has one for each host. `record` is where to keep
    /// what happens.
    pub(crate) fn new(
        topology: &Topology,
        devices: Vec<Option<Device>>,
        record: Option<&std::path::Path>,
    ) -> Result<Self, EmuError> {
        let lane = |wire: &crate::topology::Wire| Lane {
            link: Link::new(wire.config.clone()),
            to: wire.to,
            due: None,
            held: None,
            tally: Tally::default(),
        };
        let port = |device| Port {
            device,
            egress: Egress::new(HOLD),
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
            store: Store::new(),
            recorder,
            late: Late::new(),
        })
    }

    /// Runs until `stop` is set (and `wake` is readable).
    pub(crate) fn run(mut self, stop: &Arc<AtomicBool>, wake: &std::os::fd::OwnedFd) -> Counts {
        let bed = Bed::new();
        while !stop.load(Ordering::Acquire) {
            self.depart();
            self.deliver();
            if self.read() {
                continue;
            }
            let until = self.next().map(|time| self.epoch + time.since(Time::ZERO));
            bed.sleep(self.ports.iter().filter_map(|port| port.device.as_ref()), wake, until);
        }
        self.finish()
    }

    fn finish(self) -> Counts {
        let ran = self.now().since(Time::ZERO);
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Counts {
            cpu: Duration::from_secs(cpu.tv_sec as u64) + Duration::from_nanos(cpu.tv_nsec as u64),
            wires: self.lanes.into_iter().map(|lane| lane.tally).collect(),
            nodes: self.ports.iter().map(|p| (p.write_failures, p.unroutable)).collect(),
            late: self.late,
            ran,
            record_error: self.recorder.and_then(|recorder| recorder.finish().err()),
        }
    }

    /// Time since the start: what links count.
    fn now(&self) -> Time {
        Time::ZERO + clock::now().since(self.epoch)
    }

    /// Moves what has left its link, in the order of time.
    fn depart(&mut self) {
        let now = self.now();
        loop {
            let dues = self.lanes.iter().enumerate().filter_map(|(i, lane)| Some((lane.due?, i)));
            let Some((_, wire)) = dues.min().filter(|(due, _)| *due <= now) else { break };
            let Some((pace, piece)) = self.next_of(wire, now) else { continue };
            self.arrive(wire, pace, piece, now);
        }
    }

    /// What leaves a link next, if it is time.
    fn next_of(&mut self, wire: usize, now: Time) -> Option<(Pace, Piece)> {
        let lane = &mut self.lanes[wire];
        if let Some(held) = lane.held.take_if(|(pace, _)| pace.first <= now) {
            lane.due = lane.link.poll_timeout();
            return Some(held);
        }
        let (store, recorder) = (&mut self.store, self.recorder.as_mut());
        let mut watch = Watch { wire, tally: &mut lane.tally, store, recorder };
        let departure = lane.link.poll_departure(now, &mut watch);
        lane.due = lane.next();
        match &departure {
            None => lane.due = lane.due.map(|due| due.max(now + AGAIN)),
            Some((pace, piece)) => {
                let last = pace.time(piece.count() - 1);
                let bytes = bytes_of(piece);
                lane.tally.deliver(pace.first, last, piece.count(), bytes);
            }
        }
        departure
    }

    /// Packets are at the end of a wire: they go to its host or on to the next wire.
    fn arrive(&mut self, wire: usize, pace: Pace, mut piece: Piece, now: Time) {
        let node = self.lanes[wire].to;
        let target = self.owner(&piece);
        if target == Some(node) {
            let due = self.lanes[wire].due;
            let egress = &mut self.ports[node].egress;
            egress.push(pace, &piece);
            egress.expect(due);
            self.reclaim(piece);
            return;
        }
        // A router sees each packet when it comes, and not before.
        let come = (1..piece.count()).find(|i| pace.time(*i) > now);
        if let Some(i) = come {
            let rest = piece.split_off(i);
            let lane = &mut self.lanes[wire];
            lane.held = Some((pace.from(i), rest));
            lane.due = lane.next();
        }
        self.forward(node, target, pace, piece);
    }

    /// Offers packets to the next wire on their way.
    fn forward(&mut self, node: usize, target: Option<usize>, pace: Pace, mut piece: Piece) {
        let Some(wire) = target.and_then(|target| self.routes[node][target]) else {
            self.ports[node].unroutable += u64::from(piece.count());
            return self.reclaim(piece);
        };
        let lane = &mut self.lanes[wire];
        piece.number = lane.tally.offered;
        lane.tally.offer(piece.count(), bytes_of(&piece));
        if let Some(recorder) = &mut self.recorder {
            recorder.arrival(wire, pace, &piece);
        }
        let (store, recorder) = (&mut self.store, self.recorder.as_mut());
        let mut watch = Watch { wire, tally: &mut lane.tally, store, recorder };
        lane.link.offer(pace, piece, &mut watch);
        lane.due = lane.next();
    }

    /// Hands to the hosts what is due.
    fn deliver(&mut self) {
        let mut now = self.now();
        for node in 0..self.ports.len() {
            while let Some(run) = self.ports[node].egress.due(now) {
                self.write(node, &run);
                now = self.now();
                self.late.add(now.since(run.last), u64::from(run.to - run.from));
                if let Ok(packet) = Rc::try_unwrap(run.packet) {
                    self.store.give_back(packet.into_parts());
                }
            }
        }
    }

    fn write(&mut self, node: usize, run: &Run) {
        let port = &mut self.ports[node];
        let Some(device) = &port.device else { return };
        if device.write(&run.packet, run.from, run.to).is_err() {
            port.write_failures += u64::from(run.to - run.from);
        }
    }

    /// Reads what hosts send; says whether there was anything.
    fn read(&mut self) -> bool {
        let mut any = false;
        for node in 0..self.ports.len() {
            for _ in 0..TURN {
                let Some(device) = &self.ports[node].device else { break };
                match device.read(&mut self.store) {
                    Ok(Read::Packet(packet)) => {
                        let now = self.now();
                        if let Some(recorder) = &mut self.recorder {
                            recorder.sent(now, &packet);
                        }
                        let count = packet.layout.count;
                        let piece = Piece { packet: Rc::new(packet), from: 0, count, number: 0 };
                        let target = self.owner(&piece);
                        self.forward(node, target, Pace::at(now), piece);
                    }
                    Ok(Read::Other) => self.ports[node].unroutable += 1,
                    Ok(Read::Empty) | Err(_) => break,
                }
                any = true;
            }
        }
        any
    }

    /// When there is something to do without anybody sending.
    fn next(&self) -> Option<Time> {
        let lanes = self.lanes.iter().filter_map(|lane| lane.due);
        lanes.chain(self.ports.iter().filter_map(|port| port.egress.next())).min()
    }

    fn owner(&self, piece: &Piece) -> Option<usize> {
        let [10, 77, 0, last] = piece.packet.layout.target.octets() else { return None };
        self.owners[usize::from(last)]
    }

    fn reclaim(&mut self, piece: Piece) {
        if let Ok(packet) = Rc::try_unwrap(piece.packet) {
            self.store.give_back(packet.into_parts());
        }
    }
}

impl Lane {
    /// When it has something next.
    fn next(&self) -> Option<Time> {
        let held = self.held.as_ref().map(|(pace, _)| pace.first);
        self.link.poll_timeout().into_iter().chain(held).min()
    }
}

/// Notes what a link does to packets.
struct Watch<'a> {
    wire: usize,
    tally: &'a mut Tally,
    store: &'a mut Store,
    recorder: Option<&'a mut Recorder>,
}

impl Observer<Piece> for Watch<'_> {
    fn dropped(&mut self, at: Pace, piece: Piece, cause: DropCause) {
        self.tally.drop(cause, piece.count());
        if let Some(recorder) = &mut self.recorder {
            recorder.dropped(self.wire, at, &piece, cause);
        }
        for i in piece.from..piece.from + piece.count {
            piece.packet.bury(i);
        }
        if let Ok(packet) = Rc::try_unwrap(piece.packet) {
            self.store.give_back(packet.into_parts());
        }
    }

    fn queued(&mut self, _: &Piece, first: Duration, last: Duration) {
        self.tally.longest_queue = self.tally.longest_queue.max(first).max(last);
    }
}

fn bytes_of(piece: &Piece) -> u64 {
    let (from, to) = piece.packet.layout.payload(piece.from, piece.from + piece.count);
    u64::from(to - from) + u64::from(piece.packet.layout.headers) * u64::from(piece.count)
}
