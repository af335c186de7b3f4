//! A flow with its codec and a bare flow behave the same, packet for packet.

use std::collections::VecDeque;

use super::*;
use crate::FlowStats;
use crate::bare::{BareConfig, BareFlow, BarePacket, NullPayload, Pool, Room};
use crate::codec::header::Header;

/// The observed record of a packet: time, direction, number, offset, size.
type Line = (Time, bool, u32, Option<u64>, usize);

const DELAY: Duration = Duration::from_millis(8);
const COALESCE: Duration = Duration::from_micros(50);

/// A packet in flight: sealed, or in the core's form.
trait Packet: Sized {
    fn size(&self) -> usize;
    fn line(&self) -> (u32, Option<u64>);
}

/// One end of a flow with packets of one type.
trait End {
    type Packet: Packet;
    fn send(&mut self, now: Time) -> Vec<Self::Packet>;
    fn take(&mut self, now: Time, received_at: Time, batch: Vec<Self::Packet>);
    fn timeout(&mut self, now: Time);
    fn due(&self) -> Option<Time>;
    fn delivered(&self) -> u64;
    fn finish(&mut self) -> (FlowStats, Vec<Event>);
}

struct Sealed(Vec<u8>);

impl Packet for Sealed {
    fn size(&self) -> usize {
        self.0.len()
    }

    fn line(&self) -> (u32, Option<u64>) {
        let (header, _) = Header::parse(&self.0).unwrap();
        (header.low, header.offset)
    }
}

struct Product {
    flow: Flow,
    pool: Pool,
    from: SocketAddr,
}

impl End for Product {
    type Packet = Sealed;

    fn send(&mut self, now: Time) -> Vec<Sealed> {
        let (mut slab, mut out) = (vec![0; BATCH_BYTES], Vec::new());
        while let Some(transmit) = self.flow.poll_transmit(now, &mut NullPayload, &mut slab) {
            let datagrams = slab[..transmit.len].chunks(transmit.segment);
            out.extend(datagrams.map(|d| Sealed(d.to_vec())));
        }
        out
    }

    fn take(&mut self, now: Time, received_at: Time, batch: Vec<Sealed>) {
        self.pool.advance(now);
        // The batch as one system call returns it: equal sizes except the last; others are split
        // off.
        let stride = batch[0].0.len();
        let mut bytes: Vec<u8> = batch.iter().flat_map(|p| p.0.iter().copied()).collect();
        let input = Datagrams {
            lane: 0,
            from: self.from,
            bytes: &mut bytes,
            stride,
            ecn: None,
            received_at,
        };
        let good = self.flow.handle(now, input, &mut self.pool);
        assert_eq!(good, batch.len());
    }

    fn timeout(&mut self, now: Time) {
        if self.pool.poll_timeout().is_some_and(|at| at <= now) {
            self.pool.advance(now);
            self.flow.set_room(now, self.pool.room_now());
        }
        self.flow.handle_timeout(now);
    }

    fn due(&self) -> Option<Time> {
        self.flow.poll_timeout().into_iter().chain(self.pool.poll_timeout()).min()
    }

    fn delivered(&self) -> u64 {
        self.pool.delivered().get()
    }

    fn finish(&mut self) -> (FlowStats, Vec<Event>) {
        let events = std::iter::from_fn(|| self.flow.poll_event()).collect();
        (self.flow.stats(), neutral(events))
    }
}

impl Packet for BarePacket {
    fn size(&self) -> usize {
        self.datagram(0).get() as usize
    }

    fn line(&self) -> (u32, Option<u64>) {
        let offset = match self {
            Self::Train(train) => Some(train.offset().get()),
            Self::Control(_) => None,
        };
        (self.first() as u32, offset)
    }
}

struct Bare {
    flow: BareFlow,
    /// Whether trains are handed over instead of packets.
    joins: bool,
}

impl End for Bare {
    type Packet = BarePacket;

    fn send(&mut self, now: Time) -> Vec<BarePacket> {
        let mut out = Vec::new();
        while let Some(mut packet) = self.flow.poll_transmit(now) {
            while let BarePacket::Train(train) = &mut packet
                && train.count() > 1
            {
                let rest = train.split_off(1);
                out.push(std::mem::replace(&mut packet, BarePacket::Train(rest)));
            }
            out.push(packet);
        }
        out
    }

    fn take(&mut self, now: Time, received_at: Time, batch: Vec<BarePacket>) {
        let packets = batch.len();
        let mut joined: Vec<BarePacket> = Vec::new();
        for packet in batch {
            if let (Some(BarePacket::Train(a)), BarePacket::Train(b)) = (joined.last_mut(), &packet)
                && self.joins
                && a.join(b)
            {
                continue;
            }
            joined.push(packet);
        }
        assert_eq!(self.flow.handle(now, received_at, None, &joined), packets);
    }

    fn timeout(&mut self, now: Time) {
        self.flow.handle_timeout(now);
    }

    fn due(&self) -> Option<Time> {
        self.flow.poll_timeout()
    }

    fn delivered(&self) -> u64 {
        self.flow.delivered().get()
    }

    fn finish(&mut self) -> (FlowStats, Vec<Event>) {
        let events = std::iter::from_fn(|| self.flow.poll_event()).collect();
        (self.flow.stats(), neutral(events))
    }
}

fn neutral(events: Vec<Event>) -> Vec<Event> {
    assert!(!events.iter().any(|e| matches!(e, Event::PathChanged { .. })));
    events
}

/// One direction: rate, delay, loss, and the packets in flight with their arrival times.
struct Way<P> {
    link: Link,
    rng: Rng,
    flying: VecDeque<(Time, P)>,
}

impl<P: Packet> Way<P> {
    /// The packets that arrived by `now` as one batch: equal sizes, ended by a shorter one; with
    /// the time of the first.
    fn batch(&mut self, now: Time) -> Option<(Time, Vec<P>)> {
        let (first, size) = self.flying.front().map(|(at, p)| (*at, p.size()))?;
        if first + COALESCE > now {
            return None;
        }
        let mut batch = Vec::new();
        while let Some((at, packet)) = self.flying.front()
            && *at <= now
            && packet.size() <= size
            && batch.len() < 44
        {
            let ends = packet.size() < size;
            batch.extend(self.flying.pop_front().map(|(_, p)| p));
            if ends {
                break;
            }
        }
        Some((first, batch))
    }
}

/// Runs `LEN` bytes or 20 s; returns the packets on the wire, and the statistics and events of both
/// ends.
fn play<E: End>(
    mut ends: [E; 2],
    link: &Link,
    len: u64,
) -> (Vec<Line>, Vec<(FlowStats, Vec<Event>)>) {
    let mut now = Time::ZERO + Duration::from_secs(1);
    let end = now + Duration::from_secs(20);
    let way = |seed| Way { link: link.clone(), rng: Rng::new(seed), flying: VecDeque::new() };
    let mut ways = [way(1), way(2)];
    let mut lines = Vec::new();
    while ends[1].delivered() < len && now < end {
        for i in 0..2 {
            for packet in ends[i].send(now) {
                let (low, offset) = packet.line();
                lines.push((now, i == 0, low, offset, packet.size()));
                let Way { link, rng, flying } = &mut ways[i];
                if let Some(at) = link.offer(now, packet.size(), rng).first() {
                    flying.push_back((*at, packet));
                }
            }
        }
        let arrivals = ways.iter().filter_map(|w| w.flying.front()).map(|(at, _)| *at + COALESCE);
        let next = ends.iter().filter_map(End::due).chain(arrivals).min().unwrap();
        now = now.max(next);
        for i in 0..2 {
            while let Some((received_at, batch)) = ways[i].batch(now) {
                ends[1 - i].take(now, received_at, batch);
            }
        }
        ends.iter_mut().for_each(|end| end.timeout(now));
    }
    let finish = |end: &mut E| {
        let (stats, events) = end.finish();
        // Bare flows classify their losses themselves; the flow leaves it to its owner.
        (FlowStats { loss: Default::default(), ..stats }, events)
    };
    (lines, ends.iter_mut().map(finish).collect())
}

/// The same transfer with the product's flow, with bare packets and with bare trains.
fn compare(controller: &str, rate: DataRate, loss: f64, room: Room, len: u64) {
    let now = Time::ZERO + Duration::from_secs(1);
    let config = ControllerConfig { mtu: ByteCount(1472), seed: 3, now, ceiling: None, rtt: None };
    let feedback = if controller.starts_with("udt") {
        FeedbackKind::Udt(Variant::of_controller(controller))
    } else if controller.starts_with("fobs") {
        FeedbackKind::Fobs
    } else {
        FeedbackKind::Native
    };
    let controller = |role| (role == Role::Sender).then(|| build(controller, &config).unwrap());
    let mut link = Link::new(rate, DELAY * 2);
    link.loss = loss;
    let roles = [Role::Sender, Role::Receiver];
    let product = roles.map(|role| {
        let known = if role == Role::Sender { vec![addr(RECEIVER_PORT, 0)] } else { Vec::new() };
        let mut config = FlowConfig::new(role, keys(), 7, vec![known]);
        let pool = Pool::new(room, now);
        config.room = pool.room_now();
        config.feedback = feedback;
        let mut flow = Flow::new(config, controller(role), now).unwrap();
        flow.assign(Offset(0)..Offset(len));
        let port = if role == Role::Sender { RECEIVER_PORT } else { 1000 };
        Product { flow, pool, from: addr(port, 0) }
    });
    let bare = |joins| {
        roles.map(|role| {
            let config = BareConfig { seed: 7, room, feedback, ..BareConfig::new(role) };
            let mut flow = BareFlow::new(config, controller(role), now).unwrap();
            flow.assign(Offset(0)..Offset(len));
            Bare { flow, joins }
        })
    };
    let sealed = play(product, &link, len);
    assert!(sealed.0.len() as u64 > len / 1500, "{:?}", sealed.1);
    let lost = sealed.1[0].0.lost_packets;
    assert!(lost > 0 || loss == 0.0, "{:?}", sealed.1[0].0);
    assert!(sealed == play(bare(false), &link, len), "packets differ from the product");
    assert!(sealed == play(bare(true), &link, len), "trains differ from the product");
}

#[test]
fn the_codec_changes_nothing() {
    compare("native", DataRate::from_mbps(800), 0.0, Room::Endless, 20_000_000);
    compare("native", DataRate::from_mbps(200), 0.01, Room::Endless, 6_000_000);
    compare("fixed:90mbit", DataRate::from_mbps(100), 0.1, Room::Endless, 6_000_000);
}

#[test]
fn nor_over_the_feedback_udt() {
    compare("udt:grid", DataRate::from_mbps(400), 0.0, Room::Endless, 20_000_000);
    compare("udt:paper", DataRate::from_mbps(200), 0.01, Room::Endless, 6_000_000);
    compare("udt:udt4", DataRate::from_mbps(100), 0.05, Room::Endless, 6_000_000);
    let room = Room::Limited { size: ByteCount(400_000), drain: DataRate::from_mbps(40) };
    compare("udt:grid", DataRate::from_mbps(100), 0.02, room, 6_000_000);
}

#[test]
fn nor_over_the_feedback_fobs() {
    // Verdicts have no effect here: bare flows classify at once, the product's owner later.
    compare("fobs:blind,150mbit,1MB", DataRate::from_mbps(200), 0.01, Room::Endless, 6_000_000);
    compare("fobs:blind,rate,events", DataRate::from_mbps(100), 0.002, Room::Endless, 6_000_000);
    let room = Room::Limited { size: ByteCount(400_000), drain: DataRate::from_mbps(40) };
    compare("fobs:blind,90mbit", DataRate::from_mbps(100), 0.02, room, 6_000_000);
}

#[test]
fn nor_when_the_receiver_is_slow() {
    let room = Room::Limited { size: ByteCount(400_000), drain: DataRate::from_mbps(40) };
    compare("fixed:90mbit", DataRate::from_mbps(100), 0.02, room, 6_000_000);
}
