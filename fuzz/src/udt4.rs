//! Stock UDT packets: parsed separately, from unknown peers, and within established connections.

use std::net::SocketAddr;

use packtrain_proto::{BATCH_BYTES, Datagrams};
use packtrain_udt4::wire::{Ack, AckDetail, Control, Handshake, Message, Packet, Rates, Request};
use packtrain_udt4::{Endpoint, Event, Kind, Options, Secret, SocketId};
use packtrain_units::{ByteCount, Duration, SeqNo, Time};

/// Maximum bytes that the receiver may hold.
const BUFFER: u64 = 64 * 1456;

/// Datagrams, each with a byte of options, a byte of length and its content: no input causes a
/// panic or unbounded memory, and no unknown peer gets a larger answer than its request.
pub fn udt4(data: &[u8]) {
    alone(data);
    let Some((&mode, mut rest)) = data.split_first() else { return };
    let mut pair = Pair::new(if mode & 1 == 0 { Kind::Stream } else { Kind::Datagram });
    while let [how, len, bytes @ ..] = rest {
        let (bytes, behind) = bytes.split_at(usize::from(*len).min(bytes.len()));
        rest = behind;
        pair.feed(*how, bytes);
    }
    pair.now += Duration::from_secs(1);
    pair.settle();
}

/// A parsed packet has the same meaning after writing and reading.
fn alone(data: &[u8]) {
    let Ok(packet) = Packet::new_checked(data) else { return };
    let Ok(control) = Control::parse(&packet) else { return };
    let mut out = vec![0; data.len() + 64];
    let len = control.write(packet.destination(), &mut out).expect("room");
    let again = Packet::new_checked(&out[..len]).expect("a header");
    assert_eq!(Control::parse(&again), Ok(control));
}

/// A connected client and server, and the client's initial sequence number.
struct Pair {
    now: Time,
    ends: [Endpoint; 2],
    ids: [SocketId; 2],
    isn: SeqNo,
}

impl Pair {
    fn new(kind: Kind) -> Self {
        let options = Options { kind, recv_buffer: ByteCount(BUFFER), ..Options::default() };
        let now = Time::ZERO + Duration::from_secs(1);
        let mut ends = [Endpoint::new(&Secret([1; 32])), Endpoint::new(&Secret([2; 32]))];
        ends[1].listen(options.clone(), 4).expect("a listener");
        let client = ends[0].connect(now, address(1), &options).expect("a call");
        let mut pair = Self { now, ends, ids: [client; 2], isn: SeqNo::new(0) };
        let first = pair.pass(0).expect("a question");
        pair.isn = SeqNo::new(u32::from_be_bytes(first[24..28].try_into().expect("four bytes")));
        for from in [1, 0, 1] {
            pair.pass(from);
        }
        pair.ids[1] = pair.ends[1].accept().expect("a connection");
        pair.now += Duration::from_millis(20);
        let server = pair.ends[1].get_mut(pair.ids[1]).expect("the same");
        let _ = server.send(&[1; 20_000]);
        let _ = server.send_message(pair.now, &[1; 20_000], Some(Duration::from_millis(5)), true);
        pair
    }

    /// Moves one datagram from an end to the other.
    fn pass(&mut self, from: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; BATCH_BYTES];
        let sent = self.ends[from].poll_transmit(self.now, &mut out)?;
        out.truncate(sent.len);
        give(&mut self.ends[1 - from], self.now, address(from), out.clone());
        Some(out)
    }

    /// A forged datagram for the server: from the client or an unknown peer, with a valid
    /// destination and sequence number or not.
    fn feed(&mut self, how: u8, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        if how & 1 != 0
            && let Some(destination) = bytes.get_mut(12..16)
        {
            destination.copy_from_slice(&self.ids[1].get().to_be_bytes());
        }
        // Data: bytes 0 to 3; ACK, NAK, drop request: the words of the body.
        for at in [0, 16, 20].into_iter().skip(usize::from(how >> 1 & 3)) {
            if let Some(word) = bytes.get_mut(at..at + 4)
                && how & 8 != 0
                && (at > 0 || word[0] & 0x80 == 0)
            {
                let near = u32::from(word[3]);
                let number = self.isn.plus(near).get() | u32::from(word[0] & 0x80) << 24;
                word.copy_from_slice(&number.to_be_bytes());
            }
        }
        let from = if how & 16 == 0 { address(0) } else { address(7) };
        give(&mut self.ends[1], self.now, from, bytes);
        self.now += Duration::from_micros(u64::from(how >> 5) * 700);
        self.settle();
    }

    /// Runs the server and reads its received data.
    fn settle(&mut self) {
        let (now, server) = (self.now, self.ids[1]);
        let endpoint = &mut self.ends[1];
        if endpoint.poll_timeout().is_some_and(|at| at <= now) {
            endpoint.handle_timeout(now);
        }
        let mut out = vec![0; BATCH_BYTES];
        for turn in 0.. {
            assert!(turn < 100_000, "it never ends");
            let Some(sent) = endpoint.poll_transmit(now, &mut out) else { break };
            assert!(sent.len > 0 && sent.segment > 0 && sent.len <= out.len());
            assert!(sent.to == address(0) || sent.len <= 64, "a stranger gets one answer");
        }
        while let Some((_, event)) = endpoint.poll_event() {
            assert!(!matches!(event, Event::Connected), "nobody was called");
        }
        if let Some(connection) = endpoint.get_mut(server) {
            assert!(connection.received().get() <= BUFFER);
            let _ = connection.recv(now, &mut out[..100]);
            let _ = connection.recv_message(now, &mut out[..3000]);
        }
        assert!(endpoint.ids().count() <= 5, "more than the backlog");
    }
}

fn address(port: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + port as u16))
}

fn give(to: &mut Endpoint, now: Time, from: SocketAddr, mut bytes: Vec<u8>) {
    let stride = bytes.len().max(1);
    let bytes = &mut bytes[..];
    to.handle(now, Datagrams { lane: 0, from, bytes, stride, ecn: None, received_at: now });
}

/// Packets of every type.
pub fn seeds() -> Vec<Vec<u8>> {
    let number = SeqNo::new;
    let rates = Some(Rates { arrival: 1000, capacity: 2000 });
    let detail = AckDetail { rtt_us: 1000, rtt_var_us: 500, room: 8, rates };
    let ack = |detail| Control::Ack(Ack { number: 1, next: number(4), detail });
    let call = Handshake {
        version: 4,
        kind_code: 1,
        isn: number(77),
        mss: 1500,
        flow_window: 8192,
        request: Request::Induction,
        socket: 9,
        cookie: 0,
        peer: address(0).ip(),
    };
    let controls = [
        ack(None),
        ack(Some(AckDetail { rates: None, ..detail })),
        ack(Some(detail)),
        Control::Ack2 { number: 1 },
        Control::Drop { message: 1, first: number(1), last: number(3) },
        Control::KeepAlive,
        Control::Warning,
        Control::Error { code: 4000 },
        Control::User { kind: 1, info: 2, body: &[1, 2, 3, 4] },
        Control::Handshake(call),
        Control::Handshake(Handshake { request: Request::Conclusion, ..call }),
        Control::Shutdown,
    ];
    let mut packets: Vec<Vec<u8>> = controls.iter().map(|control| written(control)).collect();
    let mut nak = [0; 64];
    let ranges = [(number(2), number(2)), (number(4), number(6))];
    let (len, _) = Control::write_nak(&ranges, 1, &mut nak).expect("room");
    packets.push(nak[..len].to_vec());
    for unit in [0, 1, 3] {
        let mut data = vec![unit as u8; 60];
        let message = Message::new(1).with(unit == 0, unit == 3, unit == 1);
        Packet::new_checked(&mut data[..]).expect("a header").set_data(number(unit), message, 0, 1);
        packets.push(data);
    }
    // Each packet alone, and all of them in one connection of either kind.
    let mut seeds = packets.clone();
    for mode in 0..2 {
        let mut all = vec![mode];
        for packet in &packets {
            all.extend([0b0110_1001, packet.len() as u8]);
            all.extend(packet);
        }
        seeds.push(all);
    }
    seeds
}

fn written(control: &Control<'_>) -> Vec<u8> {
    let mut out = [0; 128];
    let len = control.write(1, &mut out).expect("room");
    out[..len].to_vec()
}
