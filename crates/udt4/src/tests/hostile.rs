//! Hostile packets of unknown senders and of a peer.

use packtrain_proto::{BATCH_BYTES, Datagrams};
use packtrain_units::{ByteCount, Duration, SeqNo, Time};
use proptest::prelude::*;

use super::pair::{Net, Pair, Stream};
use crate::wire::{Ack, AckDetail, Control, Handshake, Message, Packet, Request};
use crate::*;

fn feed(endpoint: &mut Endpoint, now: Time, from: &str, bytes: &[u8]) {
    let (mut bytes, from) = (bytes.to_vec(), from.parse().unwrap());
    let stride = bytes.len().max(1);
    let bytes = &mut bytes[..];
    endpoint.handle(now, Datagrams { lane: 0, from, bytes, stride, ecn: None, received_at: now });
}

fn control(control: Control<'_>, to: u32) -> Vec<u8> {
    let mut out = [0; 2000];
    let len = control.write(to, &mut out).unwrap();
    out[..len].to_vec()
}

fn call(request: Request, socket: u32) -> Handshake {
    Handshake {
        version: 4,
        kind_code: 1,
        isn: SeqNo::new(5),
        mss: 1500,
        flow_window: 8192,
        request,
        socket,
        cookie: 0,
        peer: "127.0.0.1".parse().unwrap(),
    }
}

#[test]
fn a_flood_of_calls_keeps_nothing_and_is_not_amplified() {
    let mut server = Endpoint::new(&Secret([1; 32]));
    server.listen(Options::default(), 4).unwrap();
    let now = Time::ZERO;
    let mut asked = 0;
    for socket in 1..5000 {
        for request in [Request::Induction, Request::Conclusion] {
            let bytes = control(Control::Handshake(call(request, socket)), 0);
            asked += bytes.len();
            feed(&mut server, now, "203.0.113.9:9", &bytes);
        }
    }
    assert_eq!(server.ids().count(), 0);
    let (mut out, mut answered) = (vec![0; BATCH_BYTES], 0);
    while let Some(sent) = server.poll_transmit(now, &mut out) {
        answered += sent.len;
    }
    assert!(answered > 0 && answered <= 64 * 256 && answered < asked, "{answered}");
}

#[test]
fn a_stranger_cannot_touch_a_connection() {
    let (mut pair, client, server) = Pair::connected(Net::clean(), 1, &Options::default());
    let now = pair.now;
    for forged in [
        control(Control::Shutdown, server.get()),
        control(Control::Error { code: 4000 }, server.get()),
    ] {
        feed(&mut pair.ends[1], now, "127.0.0.1:666", &forged);
    }
    assert_eq!(pair.at(1, server).status(), Status::Open);
    assert_eq!(pair.ends[1].bad_datagrams(), 2);
    let mut up = Stream::of(50_000);
    let done = pair.run(Duration::from_secs(10), |p| up.step(p, (0, client), (1, server)));
    assert!(done);
}

#[test]
fn lies_about_what_arrived_are_counted_not_believed() {
    let (mut pair, client, _) = Pair::connected(Net::clean(), 2, &Options::default());
    pair.at(0, client).send(&[1; 100_000]).unwrap();
    pair.deaf = [true, true];
    pair.run(Duration::from_millis(30), |_| false);
    let (now, next) = (pair.now, 1 << 30);
    let sizes = [None, Some(AckDetail::NONE)];
    for (step, detail) in (1..).zip(sizes.into_iter().cycle().take(20)) {
        let next = SeqNo::new(next / 20 * step);
        let lie = control(Control::Ack(Ack { number: step, next, detail }), client.get());
        feed(&mut pair.ends[0], now, "127.0.0.1:2", &lie);
    }
    let mut lie = [0; 64];
    let ranges = [(SeqNo::new(7), SeqNo::new(1 << 29)), (SeqNo::new(1), SeqNo::new(2))];
    let (len, 2) = Control::write_nak(&ranges, client.get(), &mut lie).unwrap() else { panic!() };
    feed(&mut pair.ends[0], now, "127.0.0.1:2", &lie[..len]);
    assert_eq!(pair.at(0, client).unacknowledged(), ByteCount(100_000));
    let perf = pair.at(0, client).perf(now);
    assert!(perf.bad_datagrams >= 15, "{perf:?}");
    assert_eq!(perf.sender_lost_packets, 0);
}

#[test]
fn data_beyond_the_window_takes_no_memory() {
    let options = Options { recv_buffer: ByteCount(32 * 1456), ..Options::default() };
    let (mut pair, _, server) = Pair::connected(Net::clean(), 3, &options);
    let now = pair.now;
    for step in 0..2000u32 {
        let mut bytes = [9; 16 + 1456];
        let number = SeqNo::new(step.wrapping_mul(0x0100_0193));
        let message = Message::new(1).with(true, true, false);
        Packet::new_checked(&mut bytes[..]).unwrap().set_data(number, message, 0, server.get());
        feed(&mut pair.ends[1], now, "127.0.0.1:1", &bytes);
    }
    assert!(pair.at(1, server).received().get() <= 32 * 1456);
    let perf = pair.at(1, server).perf(now);
    let refused = perf.refused_packets + perf.bad_datagrams + perf.duplicate_packets;
    assert!(refused >= 1960 && perf.refused_packets > 900, "{perf:?}");
}

/// A packet that may belong to a connection: near its numbers, of any type.
fn packet() -> impl Strategy<Value = (bool, u16, u32, i32, Vec<u32>, usize)> {
    let words = prop::collection::vec(prop_oneof![any::<u32>(), 0u32..100], 0..16);
    (any::<bool>(), 0u16..10, any::<u32>(), -70i32..70, words, 0usize..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Packets of the peer are handled or counted, and the endpoint continues.
    #[test]
    fn any_packets_of_the_peer(
        packets in prop::collection::vec(packet(), 1..60), datagram: bool, seed: u64,
    ) {
        let kind = if datagram { Kind::Datagram } else { Kind::Stream };
        let recv_buffer = ByteCount(64 * 1456);
        let options = Options { kind, recv_buffer, ..Options::default() };
        let (mut pair, client, server) = Pair::connected(Net::clean(), seed, &options);
        let now = pair.now;
        let _ = pair.at(1, server).send(&[1; 20_000]);
        let _ = pair.at(1, server).send_message(now, &[1; 20_000], None, true);
        pair.run(Duration::from_millis(5), |_| false);
        // The client's numbers are those of the server.
        let isn = pair.at(0, client).first_number();
        for (data, kind, info, near, words, cut) in packets {
            let mut bytes = vec![0; 16];
            let at = isn.plus(near.rem_euclid(1 << 30) as u32);
            let mut header = Packet::new_checked(&mut bytes[..]).unwrap();
            if data {
                header.set_data(at, Message::new(info & 7).with(info & 8 > 0, info & 16 > 0, info & 32 > 0), 0, server.get());
            } else {
                header.set_control((kind, 0), info % 50, 0, server.get());
            }
            for word in words {
                let word = if word < 100 { at.plus(word).get() } else { word };
                bytes.extend(word.to_be_bytes());
            }
            bytes.truncate(bytes.len() - cut.min(bytes.len() - 16));
            let now = pair.now;
            feed(&mut pair.ends[1], now, "127.0.0.1:1", &bytes);
            pair.run(Duration::from_millis(2), |_| false);
            if let Some(connection) = pair.ends[1].get_mut(server) {
                let now = pair.now;
                let _ = connection.recv(now, &mut [0; 100]);
                let _ = connection.recv_message(now, &mut [0; 3000]);
                prop_assert!(connection.received().get() <= 64 * 1456);
            }
        }
        pair.run(Duration::from_secs(3), |_| false);
    }

    /// The same for any other sender.
    #[test]
    fn any_bytes_of_anybody(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..20),
        stride in 0usize..80,
    ) {
        let mut server = Endpoint::new(&Secret([1; 32]));
        server.listen(Options::default(), 4).unwrap();
        let _ = server.connect(Time::ZERO, "127.0.0.1:9".parse().unwrap(), &Options {
            rendezvous: true,
            ..Options::default()
        });
        for mut bytes in packets {
            let (from, received_at) = ("127.0.0.1:9".parse().unwrap(), Time::ZERO);
            let bytes = &mut bytes[..];
            server.handle(Time::ZERO, Datagrams { lane: 0, from, bytes, stride, ecn: None, received_at });
        }
        prop_assert_eq!(server.ids().count(), 1);
    }
}
