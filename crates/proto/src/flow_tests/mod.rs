//! Two flows and a small network between them, in virtual time.

mod ecn;
mod fobs;
mod host;
mod hostile;
mod network;
mod sabul;
mod safety;
mod speed;
mod trace;
mod transfer;
mod units;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use packtrain_cc::{ControllerConfig, build};
use packtrain_units::{ByteCount, DataRate, Duration, Offset, RangeSet, Rng, Time};

use crate::{
    BATCH_BYTES, Datagrams, Event, FeedbackKind, Fill, Flow, FlowConfig, FlowKeys, Payload, Placed,
    Placement, Role, Suite, TrainTarget, Variant,
};

/// One direction of the network.
#[derive(Clone, Debug)]
struct Link {
    rate: DataRate,
    delay: Duration,
    queue: Duration,
    loss: f64,
    duplicate: f64,
    /// Share of packets delayed by up to `detour`.
    reorder: f64,
    detour: Duration,
    mtu: usize,
    down: bool,
    free_at: Time,
    dropped: u64,
    marking: Marking,
}

/// What a link does to ECN bits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Marking {
    /// Leaves them.
    Keep,
    /// Clears them.
    Clear,
    /// Turns ECT(0) into CE.
    All,
    /// Drops what is ECT.
    Drop,
    /// Turns ECT(0) into CE where the queue is longer.
    Above(Duration),
}

impl Link {
    fn new(rate: DataRate, rtt: Duration) -> Self {
        Self {
            rate,
            delay: rtt / 2,
            queue: rtt.max(Duration::from_millis(2)),
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            detour: Duration::ZERO,
            mtu: 9000,
            down: false,
            free_at: Time::ZERO,
            dropped: 0,
            marking: Marking::Keep,
        }
    }

    /// The ECN bits that arrive of a datagram sent with `ecn`; none if it is dropped for them.
    fn mark(&self, now: Time, ecn: u8) -> Option<u8> {
        match self.marking {
            _ if ecn == 0 => Some(0),
            Marking::Keep => Some(ecn),
            Marking::Clear => Some(0),
            Marking::All => Some(3),
            Marking::Drop => None,
            Marking::Above(queue) => Some(if self.free_at.since(now) > queue { 3 } else { ecn }),
        }
    }

    /// The arrival times of a datagram of `size` sent at `now`: none, one or several.
    fn offer(&mut self, now: Time, size: usize, rng: &mut Rng) -> Vec<Time> {
        if self.down || size > self.mtu || rng.chance(self.loss) {
            self.dropped += 1;
            return Vec::new();
        }
        let start = self.free_at.max(now);
        if start.since(now) > self.queue {
            self.dropped += 1;
            return Vec::new();
        }
        self.free_at = start + self.rate.time_for(ByteCount(size as u64 + 42));
        let mut at = self.free_at + self.delay;
        if rng.chance(self.reorder) {
            at += self.detour.mul_f64(rng.unit());
        }
        let mut arrivals = vec![at];
        if rng.chance(self.duplicate) {
            arrivals.push(at + self.detour.mul_f64(rng.unit()));
        }
        arrivals
    }
}

/// The object: each byte is a function of its offset.
#[derive(Debug, Default)]
struct Source {
    released: RangeSet,
    pending_below: u64,
    unreadable: std::ops::Range<u64>,
    /// The disk reads at this rate since then; bytes that it has not reached are pending.
    disk: Option<(DataRate, Time)>,
    read_to: u64,
}

impl Source {
    fn read(&mut self, now: Time) {
        if let Some((rate, since)) = self.disk {
            let more = rate.bytes_in(now.since(since)).get();
            // Whole blocks, as readers deliver them.
            if more >= 64 << 10 {
                (self.read_to, self.disk) = (self.read_to + more, Some((rate, now)));
            }
        }
    }
}

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

impl Payload for Source {
    fn fill(&mut self, at: Offset, out: &mut [u8]) -> Fill {
        let at = at.get();
        let end = at + out.len() as u64;
        if at < self.unreadable.end && end > self.unreadable.start {
            return Fill::Failed;
        }
        if at < self.pending_below || self.disk.is_some() && end > self.read_to {
            return Fill::Pending;
        }
        // Only the edges have the pattern: filling all bytes would take most of the test's time.
        for i in (0..out.len().min(4)).chain(out.len().saturating_sub(4)..out.len()) {
            out[i] = byte_at(at + i as u64);
        }
        Fill::Ready
    }

    fn release(&mut self, range: std::ops::Range<Offset>) {
        assert!(!self.released.overlaps(&range), "released twice: {range:?}");
        self.released.insert(range);
    }
}

/// The destination of the bytes. It checks them, and that each is new or a duplicate.
#[derive(Debug)]
struct Sink {
    have: RangeSet<u64>,
    room: u64,
    /// The rate at which room returns; `None` means at once.
    drain: Option<DataRate>,
    used: u64,
    drained_at: Time,
}

impl Sink {
    fn new() -> Self {
        Self { have: RangeSet::new(), room: 16 << 20, drain: None, used: 0, drained_at: Time::ZERO }
    }

    fn drain(&mut self, now: Time) {
        if let Some(rate) = self.drain {
            let gone = rate.bytes_in(now.since(self.drained_at)).get();
            if gone > 0 {
                self.used = self.used.saturating_sub(gone);
                self.drained_at = now;
            }
        }
    }

    /// Bytes that came, each counted once.
    fn bytes(&self) -> u64 {
        self.have.count()
    }

    fn is_whole(&self, len: u64) -> bool {
        self.bytes() == len
    }
}

impl Placement for Sink {
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed {
        let (a, b) = (at.get(), at.get() + bytes.len() as u64);
        for i in (0..bytes.len().min(4)).chain(bytes.len().saturating_sub(4)..bytes.len()) {
            assert_eq!(bytes[i], byte_at(a + i as u64), "byte {} is wrong", a + i as u64);
        }
        if self.used + bytes.len() as u64 > self.room {
            return Placed::NoRoom;
        }
        let new = self.have.insert(a..b);
        if self.drain.is_some() {
            self.used += new;
        }
        if new == 0 { Placed::Duplicate } else { Placed::New }
    }

    fn room(&self) -> ByteCount {
        ByteCount(self.room - self.used)
    }
}

#[derive(Debug)]
struct Flying {
    to_receiver: bool,
    lane: u8,
    from: SocketAddr,
    bytes: Vec<u8>,
    ecn: u8,
}

/// A sender, a receiver, and the network.
#[derive(Debug)]
struct Pair {
    now: Time,
    sender: Flow,
    receiver: Flow,
    forward: Link,
    back: Link,
    rng: Rng,
    flying: BTreeMap<(Time, u64), Flying>,
    sent: u64,
    source: Source,
    sink: Sink,
    events: Vec<(bool, Time, Event)>,
    /// The sender's address as the receiver sees it; a NAT may change it.
    sender_port: u16,
    /// Bytes on the wire to the receiver, in order, if captured.
    captured: Option<Vec<Vec<u8>>>,
    slab: Vec<u8>,
    digest: u64,
    /// A lane whose packets are lost.
    dead_lane: Option<u8>,
    /// A lane on which the sender's packets are lost.
    deaf_lane: Option<u8>,
    /// A lane on which the sender's small packets are lost: pings, and answers to pings.
    mute_lane: Option<u8>,
    /// The reliable channel: arrival times, receiving end, bytes.
    channel: VecDeque<(Time, bool, Vec<u8>)>,
    channel_delay: Duration,
    /// Additional delay with which each lane of the receiver is read after the one before.
    lane_lag: Duration,
    /// The sender's thread runs only this often, and when.
    turns: Duration,
    turn_at: Time,
    /// How late the sender's thread may wake.
    late: Option<Lateness>,
    /// How late it wakes this time, and what has arrived in the meantime.
    oversleep: Duration,
    held: VecDeque<(Time, Flying)>,
}

/// How late a thread wakes that shares its processor with others: mostly at once, and otherwise
/// after some ticks of the scheduler, of 4 ms each.
#[derive(Clone, Copy, Debug)]
struct Lateness {
    share: f64,
    most_ticks: u64,
}

impl Lateness {
    fn draw(self, rng: &mut Rng) -> Duration {
        if !rng.chance(self.share) {
            return Duration::ZERO;
        }
        let ticks = 1 + rng.below(self.most_ticks);
        Duration::from_millis(4) * ticks
    }
}

const SENDER_PORT: u16 = 1000;
const RECEIVER_PORT: u16 = 2000;
/// Datagrams below this size carry no data in these tests, in bytes.
const SMALL: usize = 64;

fn addr(port: u16, lane: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port + u16::from(lane)))
}

fn keys() -> FlowKeys {
    FlowKeys { suite: Suite::Aes128Gcm, secret: [42; 32] }
}

#[derive(Clone, Debug)]
struct Setup {
    controller: &'static str,
    rate: DataRate,
    rtt: Duration,
    lanes: u8,
    seed: u64,
    max_mtu: u64,
    feedback: FeedbackKind,
    ecn: bool,
    /// What the sender knows of the round trip; the receiver then probes it too.
    known: Option<Duration>,
}

impl Setup {
    fn new(controller: &'static str, rate: DataRate, rtt: Duration) -> Self {
        let feedback = if controller.starts_with("udt") {
            FeedbackKind::Udt(Variant::of_controller(controller))
        } else if controller.starts_with("sabul") {
            FeedbackKind::Sabul
        } else {
            FeedbackKind::Native
        };
        Self {
            controller,
            rate,
            rtt,
            lanes: 1,
            seed: 1,
            max_mtu: 1472,
            feedback,
            ecn: false,
            known: None,
        }
    }

    /// Any controller over UDT's feedback.
    fn over_udt(controller: &'static str, rate: DataRate, rtt: Duration) -> Self {
        Self { feedback: FeedbackKind::Udt(Variant::Grid), ..Self::new(controller, rate, rtt) }
    }

    fn pair(&self) -> Pair {
        let now = Time::ZERO + Duration::from_secs(1);
        let peers = |port| (0..self.lanes).map(|lane| vec![addr(port, lane)]).collect();
        let mut config = FlowConfig::new(Role::Sender, keys(), 7, peers(RECEIVER_PORT));
        config.max_mtu = ByteCount(self.max_mtu);
        (config.seed, config.feedback, config.ecn) = (self.seed, self.feedback, self.ecn);
        config.known_rtt = self.known;
        let controller = build(
            self.controller,
            &ControllerConfig {
                mtu: config.first_mtu(),
                seed: self.seed,
                now,
                ceiling: None,
                rtt: None,
            },
        );
        let sender = Flow::new(config, Some(controller.unwrap()), now).unwrap();
        let told = if self.known.is_some() {
            peers(SENDER_PORT)
        } else {
            (0..self.lanes).map(|_| Vec::new()).collect()
        };
        let mut config = FlowConfig::new(Role::Receiver, keys(), 7, told);
        config.feedback = self.feedback;
        let receiver = Flow::new(config, None, now).unwrap();
        Pair {
            now,
            sender,
            receiver,
            forward: Link::new(self.rate, self.rtt),
            back: Link::new(self.rate, self.rtt),
            rng: Rng::new(self.seed),
            flying: BTreeMap::new(),
            sent: 0,
            source: Source::default(),
            sink: Sink::new(),
            events: Vec::new(),
            sender_port: SENDER_PORT,
            captured: None,
            slab: vec![0; BATCH_BYTES],
            digest: 0,
            dead_lane: None,
            deaf_lane: None,
            mute_lane: None,
            channel: VecDeque::new(),
            channel_delay: self.rtt / 2,
            lane_lag: Duration::ZERO,
            turns: Duration::ZERO,
            turn_at: Time::ZERO,
            late: None,
            oversleep: Duration::ZERO,
            held: VecDeque::new(),
        }
    }
}

impl Pair {
    fn assign(&mut self, len: u64) {
        self.sender.assign(Offset(0)..Offset(len));
    }

    /// Steps until `done` or until `limit` after now; true if done.
    fn run(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now + limit;
        let mut still = 0;
        while !done(self) {
            if self.now >= self.turn_at && !self.oversleeps() {
                self.send(true);
                self.turn_at = self.now + self.turns;
                self.oversleep = self.late.map_or(Duration::ZERO, |late| late.draw(&mut self.rng));
            }
            self.send(false);
            let turn_at = self.turn_at.max(self.now);
            let sender = self.sender_runs().map(|at| at.max(turn_at));
            let timers = [sender, self.receiver.poll_timeout()];
            let arrival = self.flying.first_key_value().map(|((at, _), _)| *at);
            let word = self.channel.front().map(|(at, ..)| *at);
            let next = timers.into_iter().flatten().chain(arrival).chain(word).min();
            let Some(next) = next.filter(|at| *at <= end) else {
                self.now = end;
                return done(self);
            };
            still = if next > self.now { 0 } else { still + 1 };
            assert!(still < 10_000, "no progress: {timers:?} {:?}", self.sender);
            self.now = self.now.max(next);
            self.sink.drain(self.now);
            self.source.read(self.now);
            self.deliver();
            self.deliver_words();
            if !self.oversleeps() {
                self.oversleep = Duration::ZERO;
                while let Some((at, Flying { lane, from, mut bytes, ecn, .. })) =
                    self.held.pop_front()
                {
                    let stride = bytes.len();
                    self.give(false, (lane, ecn), from, &mut bytes, stride, at);
                }
                self.sender.handle_timeout(self.now);
            }
            self.receiver.handle_timeout(self.now);
            self.collect();
        }
        true
    }

    /// When the sender's thread runs next, if it has a reason.
    fn sender_runs(&self) -> Option<Time> {
        let held = self.held.front().map(|(at, _)| *at);
        let due = self.sender.poll_timeout().into_iter().chain(held).min();
        due.map(|at| at + self.oversleep)
    }

    /// Whether the sender's thread sleeps, although it may have a reason to run.
    fn oversleeps(&self) -> bool {
        self.oversleep > Duration::ZERO && self.sender_runs().is_none_or(|at| self.now < at)
    }

    fn collect(&mut self) {
        while let Some(event) = self.sender.poll_event() {
            self.events.push((true, self.now, event));
        }
        while let Some(event) = self.receiver.poll_event() {
            self.events.push((false, self.now, event));
        }
    }

    fn send(&mut self, by_sender: bool) {
        let mut slab = std::mem::take(&mut self.slab);
        loop {
            let flow = if by_sender { &mut self.sender } else { &mut self.receiver };
            let Some(transmit) = flow.poll_transmit(self.now, &mut self.source, &mut slab) else {
                break;
            };
            let port = if by_sender { self.sender_port } else { RECEIVER_PORT };
            let from = addr(port, transmit.lane);
            for datagram in slab[..transmit.len].chunks(transmit.segment) {
                if let Some(captured) = self.captured.as_mut().filter(|_| by_sender) {
                    captured.push(datagram.to_vec());
                }
                let (lane, ecn) = (transmit.lane, transmit.ecn);
                self.launch(by_sender, from, transmit.to, (lane, ecn), datagram);
            }
        }
        self.slab = slab;
        let flow = if by_sender { &mut self.sender } else { &mut self.receiver };
        while let Some(words) = flow.poll_reliable() {
            self.channel.push_back((self.now + self.channel_delay, by_sender, words));
        }
        self.collect();
    }

    fn launch(
        &mut self,
        by_sender: bool,
        from: SocketAddr,
        to: SocketAddr,
        (lane, ecn): (u8, u8),
        bytes: &[u8],
    ) {
        for byte in &bytes[..9] {
            self.digest = self.digest.wrapping_mul(31).wrapping_add(u64::from(*byte));
        }
        // A packet to an address that the NAT no longer maps is lost.
        let known = if by_sender { RECEIVER_PORT } else { self.sender_port };
        let mute = by_sender && self.mute_lane == Some(lane) && bytes.len() < SMALL;
        let dead = self.dead_lane == Some(lane) || by_sender && self.deaf_lane == Some(lane);
        if to != addr(known, lane) || dead || mute {
            return;
        }
        let link = if by_sender { &mut self.forward } else { &mut self.back };
        let Some(ecn) = link.mark(self.now, ecn) else { return };
        for at in link.offer(self.now, bytes.len(), &mut self.rng) {
            self.sent += 1;
            let at = if by_sender { at + self.lane_lag * u64::from(lane) } else { at };
            let bytes = bytes.to_vec();
            let flying = Flying { to_receiver: by_sender, lane, from, bytes, ecn };
            self.flying.insert((at, self.sent), flying);
        }
    }

    /// Delivers the arrived datagrams, in batches as receive coalescing makes them.
    fn deliver(&mut self) {
        while let Some(entry) = self.flying.first_entry() {
            let ((at, _), first) = (*entry.key(), entry.get());
            if at > self.now {
                break;
            }
            let (to_receiver, lane, from) = (first.to_receiver, first.lane, first.from);
            if !to_receiver && self.oversleep > Duration::ZERO {
                self.held.push_back((at, entry.remove()));
                continue;
            }
            let (stride, ecn) = (first.bytes.len(), first.ecn);
            let mut bytes = Vec::new();
            while let Some(entry) = self.flying.first_entry() {
                let next = entry.get();
                let same = (next.to_receiver, next.lane, next.from, next.ecn)
                    == (to_receiver, lane, from, ecn);
                if entry.key().0 > self.now || !same || next.bytes.len() > stride {
                    break;
                }
                let last = next.bytes.len() < stride;
                bytes.extend_from_slice(&entry.remove().bytes);
                if last {
                    break;
                }
            }
            self.give(to_receiver, (lane, ecn), from, &mut bytes, stride, at);
        }
    }

    fn deliver_words(&mut self) {
        while let Some((_, to_receiver, words)) =
            self.channel.pop_front_if(|(at, ..)| *at <= self.now)
        {
            let flow = if to_receiver { &mut self.receiver } else { &mut self.sender };
            flow.handle_reliable(self.now, &words);
        }
    }

    fn give(
        &mut self,
        to_receiver: bool,
        (lane, ecn): (u8, u8),
        from: SocketAddr,
        bytes: &mut [u8],
        stride: usize,
        received_at: Time,
    ) -> usize {
        let input = Datagrams { lane, from, bytes, stride, ecn: Some(ecn), received_at };
        let flow = if to_receiver { &mut self.receiver } else { &mut self.sender };
        flow.handle(self.now, input, &mut self.sink)
    }

    /// Whether the sender has reported that everything is acknowledged.
    fn idle(&self) -> bool {
        self.events.iter().any(|(sender, _, e)| *sender && *e == Event::Idle)
    }

    /// Payload bits per second since `since`.
    fn goodput(&self, since: Time, bytes: u64) -> DataRate {
        DataRate::from_bytes_over(ByteCount(bytes), self.now.since(since))
    }

    fn closed(&self, by_sender: bool) -> Option<&crate::CloseReason> {
        self.events.iter().find_map(|(sender, _, e)| match e {
            Event::Closed(reason) if *sender == by_sender => Some(reason),
            _ => None,
        })
    }
}
