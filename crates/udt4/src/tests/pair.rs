//! Two endpoints and a network between them, in virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

use packtrain_proto::{BATCH_BYTES, Datagrams, Transmit};
use packtrain_units::{ByteCount, DataRate, Duration, Rng, Time};

use crate::*;

/// Impairments of the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Net {
    pub(super) delay: Duration,
    pub(super) rate: DataRate,
    pub(super) loss: f64,
    /// Share of datagrams that arrive 3 ms late, behind others.
    pub(super) late: f64,
    pub(super) twice: f64,
    /// Capacity of the queue.
    pub(super) queue: ByteCount,
}

impl Net {
    /// 100 Mbit/s, a round trip of 20 ms, no impairments.
    pub(super) fn clean() -> Self {
        Self {
            delay: Duration::from_millis(10),
            rate: DataRate::from_mbps(100),
            loss: 0.0,
            late: 0.0,
            twice: 0.0,
            queue: ByteCount(500_000),
        }
    }

    pub(super) fn faulty(loss: f64) -> Self {
        Self { loss, late: 0.01, twice: 0.01, ..Self::clean() }
    }
}

type Flight = Reverse<(Time, u64, usize, Vec<u8>)>;

/// Both ends.
pub(super) struct Pair {
    pub(super) now: Time,
    pub(super) ends: [Endpoint; 2],
    pub(super) addresses: [SocketAddr; 2],
    pub(super) events: [VecDeque<(SocketId, Event)>; 2],
    pub(super) net: Net,
    pub(super) rng: Rng,
    /// Whether nothing arrives at this end.
    pub(super) deaf: [bool; 2],
    /// Whether the process at this end has exited, and its socket with it.
    pub(super) gone: [bool; 2],
    free: [Time; 2],
    flights: BinaryHeap<Flight>,
    /// Datagrams sent and not lost, by both ends.
    pub(super) sent: u64,
    slab: Vec<u8>,
}

impl Pair {
    pub(super) fn new(net: Net, seed: u64) -> Self {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            now: Time::ZERO + Duration::from_secs(1),
            ends: [1, 2].map(|byte| Endpoint::new(&Secret([byte ^ seed as u8; 32]))),
            addresses: [address(1), address(2)],
            events: Default::default(),
            net,
            rng: Rng::new(seed),
            deaf: [false; 2],
            gone: [false; 2],
            free: [Time::ZERO; 2],
            flights: BinaryHeap::new(),
            sent: 0,
            slab: vec![0; BATCH_BYTES],
        }
    }

    /// A client at end 0 connected to a listener at end 1.
    pub(super) fn connected(net: Net, seed: u64, options: &Options) -> (Self, SocketId, SocketId) {
        let mut pair = Self::new(net, seed);
        pair.ends[1].listen(options.clone(), 8).unwrap();
        let to = pair.addresses[1];
        let client = pair.ends[0].connect(pair.now, to, options).unwrap();
        let mut server = None;
        pair.run(Duration::from_secs(3), |pair| {
            server = server.or_else(|| pair.ends[1].accept());
            server.is_some() && pair.at(0, client).status() == Status::Open
        });
        (pair, client, server.expect("a connection"))
    }

    pub(super) fn at(&mut self, end: usize, id: SocketId) -> &mut Connection {
        self.ends[end].get_mut(id).expect("a connection")
    }

    /// Runs until `done` returns true, which is called after every step, or until `limit` has
    /// passed; returns which.
    pub(super) fn run(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            self.flush();
            if done(self) {
                return true;
            }
            self.flush();
            let alive = (0..2).filter(|end| !self.gone[*end]);
            let timers = alive.filter_map(|end| self.ends[end].poll_timeout()).min();
            let arrival = self.flights.peek().map(|Reverse((at, ..))| *at);
            let Some(next) = timers.into_iter().chain(arrival).min() else { return done(self) };
            if next > end {
                self.now = end;
                return done(self);
            }
            self.now = self.now.max(next);
            self.deliver();
            for (end, gone) in self.ends.iter_mut().zip(self.gone) {
                if !gone && end.poll_timeout().is_some_and(|at| at <= self.now) {
                    end.handle_timeout(self.now);
                }
            }
        }
    }

    fn flush(&mut self) {
        let gone = self.gone;
        for end in (0..2).filter(|end| !gone[*end]) {
            let mut slab = std::mem::take(&mut self.slab);
            while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut slab) {
                self.send(end, &transmit, &slab);
            }
            self.slab = slab;
            while let Some(event) = self.ends[end].poll_event() {
                self.events[end].push_back(event);
            }
        }
    }

    fn send(&mut self, end: usize, transmit: &Transmit, slab: &[u8]) {
        assert!(transmit.segment > 0 && transmit.len <= slab.len());
        let other = 1 - end;
        assert_eq!(transmit.to, self.addresses[other]);
        for datagram in slab[..transmit.len].chunks(transmit.segment) {
            let size = ByteCount(datagram.len() as u64);
            let waiting = self.free[end].since(self.now);
            let full = waiting > self.net.rate.time_for(self.net.queue);
            if self.rng.chance(self.net.loss) || full {
                continue;
            }
            self.free[end] = self.free[end].max(self.now) + self.net.rate.time_for(size);
            let copies = 1 + u64::from(self.rng.chance(self.net.twice));
            for _ in 0..copies {
                let mut at = self.free[end] + self.net.delay;
                if self.rng.chance(self.net.late) {
                    at += Duration::from_millis(3);
                }
                self.sent += 1;
                self.flights.push(Reverse((at, self.sent, other, datagram.to_vec())));
            }
        }
    }

    fn deliver(&mut self) {
        while self.flights.peek().is_some_and(|Reverse((at, ..))| *at <= self.now) {
            let Some(Reverse((at, _, end, mut bytes))) = self.flights.pop() else { break };
            if self.deaf[end] || self.gone[end] {
                continue;
            }
            let stride = bytes.len();
            let from = self.addresses[1 - end];
            let input =
                Datagrams { lane: 0, from, bytes: &mut bytes, stride, ecn: None, received_at: at };
            self.ends[end].handle(self.now, input);
        }
    }

    /// Datagrams in flight.
    pub(super) fn flying(&self) -> usize {
        self.flights.len()
    }
}

/// Byte `at` of the stream that the tests send.
pub(super) fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

/// Sends `total` bytes from one end to the other and checks each.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) total: u64,
    pub(super) given: u64,
    pub(super) got: u64,
}

impl Stream {
    pub(super) fn of(total: u64) -> Self {
        Self { total, ..Self::default() }
    }

    /// Sends what the sender takes and reads what the receiver has; returns whether all data
    /// arrived.
    pub(super) fn step(
        &mut self,
        pair: &mut Pair,
        from: (usize, SocketId),
        to: (usize, SocketId),
    ) -> bool {
        while self.given < self.total {
            let end = self.total.min(self.given + 5000);
            let chunk: Vec<u8> = (self.given..end).map(byte).collect();
            let taken = pair.at(from.0, from.1).send(&chunk).unwrap();
            self.given += taken as u64;
            if taken < chunk.len() {
                break;
            }
        }
        let (now, mut out) = (pair.now, [0; 7001]);
        loop {
            let got = pair.at(to.0, to.1).recv(now, &mut out).unwrap();
            for got in &out[..got] {
                assert_eq!(*got, byte(self.got), "at {}", self.got);
                self.got += 1;
            }
            if got == 0 {
                return self.got >= self.total;
            }
        }
    }
}
