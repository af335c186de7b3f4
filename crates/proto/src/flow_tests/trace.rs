//! The core alone and the core with its codec do the same, packet for packet.

use super::*;
use crate::codec::header::{CONTROL_HEAD, DATA_OVERHEAD, Header, TAG};
use crate::codec::{frame, header};
use crate::config::FlowConfig;
use crate::core::{Control, Core, Envelope};

/// What an observer of the wire notes of each packet: when, which way, number, offset, size.
type Line = (Time, bool, u32, Option<u64>, usize);

const DELAY: Duration = Duration::from_millis(8);
const LEN: u64 = 3_000_000;

/// Something under way: sealed, or as the core means it.
trait Packet: Sized {
    fn size(&self) -> usize;
    fn line(&self) -> (u32, Option<u64>);
}

/// One end of a flow that speaks packets of some kind.
trait End {
    type Packet: Packet;
    fn send(&mut self, now: Time, source: &mut Source) -> Vec<Self::Packet>;
    fn take(&mut self, now: Time, from: SocketAddr, packet: Self::Packet, sink: &mut Sink);
    fn due(&self) -> Option<Time>;
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

impl End for Flow {
    type Packet = Sealed;

    fn send(&mut self, now: Time, source: &mut Source) -> Vec<Sealed> {
        let (mut slab, mut out) = (vec![0; BATCH_BYTES], Vec::new());
        while let Some(transmit) = self.poll_transmit(now, source, &mut slab) {
            let datagrams = slab[..transmit.len].chunks(transmit.segment);
            out.extend(datagrams.map(|d| Sealed(d.to_vec())));
        }
        out
    }

    fn take(&mut self, now: Time, from: SocketAddr, mut packet: Sealed, sink: &mut Sink) {
        let stride = packet.0.len();
        let bytes = &mut packet.0[..];
        let input = Datagrams { lane: 0, from, bytes, stride, ecn: None, received_at: now };
        assert_eq!(self.handle(now, input, sink), 1);
    }

    fn due(&self) -> Option<Time> {
        self.poll_timeout()
    }
}

enum Meant {
    Data { pn: u64, offset: u64, bytes: Vec<u8> },
    Control(Control, u64),
}

impl Packet for Meant {
    fn size(&self) -> usize {
        match self {
            Self::Data { bytes, .. } => bytes.len() + DATA_OVERHEAD,
            Self::Control(control, _) => {
                let mut text = Vec::new();
                frame::write(&control.frame, &mut text);
                (CONTROL_HEAD + text.len() + TAG).max(control.pad.map_or(0, usize::from))
            }
        }
    }

    fn line(&self) -> (u32, Option<u64>) {
        match self {
            Self::Data { pn, offset, .. } => (*pn as u32, Some(*offset)),
            Self::Control(_, pn) => (*pn as u32, None),
        }
    }
}

impl End for Core {
    type Packet = Meant;

    fn send(&mut self, now: Time, source: &mut Source) -> Vec<Meant> {
        let mut out = Vec::new();
        loop {
            self.release(source);
            if let Some((control, pn)) = self.poll_control(now) {
                out.push(Meant::Control(control, pn));
                continue;
            }
            let Some(burst) = self.begin(now) else { return out };
            let mut packets = 0;
            while packets < burst.packets {
                let next = self.next_train(&burst, burst.packets - packets, false);
                let Some((train, repeat)) = next else { break };
                for i in 0..train.count {
                    let (a, b) = train.span(i, i + 1);
                    let mut bytes = vec![0; (b - a) as usize];
                    source.fill(Offset(a), &mut bytes);
                    out.push(Meant::Data { pn: train.first + u64::from(i), offset: a, bytes });
                }
                self.sent(now, &burst, train, repeat);
                packets += train.count;
                if train.last < train.size {
                    break;
                }
            }
        }
    }

    fn take(&mut self, now: Time, from: SocketAddr, packet: Meant, sink: &mut Sink) {
        let size = packet.size();
        let expected = self.lanes[0].window.next();
        let pn = header::expand(packet.line().0, expected);
        assert!(self.lanes[0].window.is_new(pn));
        let envelope = Envelope { lane: 0, pn, from, size };
        match packet {
            Meant::Data { offset, bytes, .. } => {
                assert!(self.on_data(&envelope, offset, &bytes, sink));
            }
            Meant::Control(control, _) => self.on_control(now, &envelope, vec![control.frame]),
        }
        let room = sink.room();
        self.on_batch(now, now, &envelope, room);
    }

    fn due(&self) -> Option<Time> {
        self.poll_timeout()
    }
}

/// Moves `LEN` bytes over a link that drops every 61st packet; returns what passed the wire.
fn run<E: End>(mut ends: [E; 2]) -> Vec<Line> {
    let mut now = Time::ZERO + Duration::from_secs(1);
    let (mut source, mut sink) = (Source::default(), Sink::new());
    let (mut lines, mut flying) = (Vec::new(), BTreeMap::new());
    while !sink.is_whole(LEN) {
        for (i, end) in ends.iter_mut().enumerate() {
            for packet in end.send(now, &mut source) {
                let (low, offset) = packet.line();
                lines.push((now, i == 0, low, offset, packet.size()));
                if lines.len() % 61 != 0 {
                    flying.insert((now + DELAY, lines.len()), (1 - i, packet));
                }
            }
        }
        let arrival = flying.first_key_value().map(|((at, _), _)| *at);
        let next = ends.iter().filter_map(End::due).chain(arrival).min().unwrap();
        now = now.max(next);
        assert!(now < Time::ZERO + Duration::from_secs(30), "too slow");
        while let Some(entry) = flying.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (to, packet) = entry.remove();
            let from = if to == 1 { addr(1000, 0) } else { addr(RECEIVER_PORT, 0) };
            ends[to].take(now, from, packet, &mut sink);
        }
    }
    lines
}

#[test]
fn the_codec_changes_nothing() {
    let now = Time::ZERO + Duration::from_secs(1);
    let sender = FlowConfig::new(Role::Sender, keys(), 7, vec![vec![addr(RECEIVER_PORT, 0)]]);
    let receiver = FlowConfig::new(Role::Receiver, keys(), 7, vec![Vec::new()]);
    let config = ControllerConfig { mtu: ByteCount(1472), seed: 3, now, ceiling: None, rtt: None };
    let controller = || Some(build("native", &config).unwrap());
    let mut flow = Flow::new(sender.clone(), controller(), now).unwrap();
    flow.assign(Offset(0)..Offset(LEN));
    let sealed = run([flow, Flow::new(receiver.clone(), None, now).unwrap()]);
    let mut core = Core::new(&sender, controller(), now).unwrap();
    core.assign(Offset(0)..Offset(LEN));
    let meant = run([core, Core::new(&receiver, None, now).unwrap()]);
    assert!(sealed.len() > 2000);
    assert_eq!(sealed, meant);
}
