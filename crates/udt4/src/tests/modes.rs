//! Streams and messages, client and server, rendezvous, small and large windows.

use packtrain_units::{ByteCount, Duration};
use proptest::prelude::*;

use super::pair::{Net, Pair, Stream};
use crate::*;

const LONG: Duration = Duration::from_secs(600);

fn stream(net: Net, seed: u64, options: &Options, bytes: u64) -> Perf {
    let (mut pair, client, server) = Pair::connected(net, seed, options);
    let mut up = Stream::of(bytes);
    let done = pair.run(LONG, |pair| up.step(pair, (0, client), (1, server)));
    assert!(done, "{} of {bytes} bytes, seed {seed}", up.got);
    let now = pair.now;
    pair.at(0, client).perf(now)
}

#[test]
fn a_stream_arrives_whole() {
    let perf = stream(Net::clean(), 1, &Options::default(), 3_000_000);
    assert_eq!(perf.bad_datagrams, 0);
    assert!(perf.sent_packets >= 2061 && perf.received_acks > 0, "{perf:?}");
}

#[test]
fn a_stream_survives_loss_reordering_and_copies() {
    for (seed, loss) in [(2, 0.01), (3, 0.1), (4, 0.3)] {
        let perf = stream(Net::faulty(loss), seed, &Options::default(), 400_000);
        assert!(perf.retransmitted_packets > 0, "{perf:?}");
    }
}

#[test]
fn small_windows_and_buffers_do() {
    let options = Options {
        flow_window: 32,
        send_buffer: ByteCount(32 << 10),
        recv_buffer: ByteCount(32 << 10),
        ..Options::default()
    };
    stream(Net::clean(), 5, &options, 300_000);
    stream(Net::faulty(0.02), 6, &options, 300_000);
}

#[test]
fn other_packet_sizes_do() {
    for mss in [100, 576, 9000, 65_535] {
        let options = Options { mss: ByteCount(mss), ..Options::default() };
        stream(Net::faulty(0.01), 7, &options, 200_000);
    }
}

#[test]
fn every_algorithm_does() {
    for cc in ["udt:grid", "udt:paper", "udt:ns2-2003", "fixed:50mbit", "reno"] {
        let options = Options { cc: cc.to_owned(), ..Options::default() };
        stream(Net::faulty(0.001), 8, &options, 500_000);
    }
}

#[test]
fn both_directions_at_once() {
    let (mut pair, client, server) = Pair::connected(Net::faulty(0.01), 9, &Options::default());
    let (mut up, mut down) = (Stream::of(300_000), Stream::of(200_000));
    assert!(pair.run(LONG, |pair| {
        let up = up.step(pair, (0, client), (1, server));
        down.step(pair, (1, server), (0, client)) && up
    }));
}

#[test]
fn a_reader_that_stops_stops_the_sender_and_resumes() {
    let options = Options { recv_buffer: ByteCount(64 * 1456), ..Options::default() };
    let (mut pair, client, server) = Pair::connected(Net::clean(), 10, &options);
    let chunk = vec![7; 500_000];
    let given = pair.at(0, client).send(&chunk).unwrap();
    assert_eq!(given, chunk.len());
    pair.run(Duration::from_secs(20), |_| false);
    assert_eq!(pair.at(1, server).status(), Status::Open);
    let held = pair.at(1, server).received().get();
    assert!(held <= 64 * 1456, "{held} bytes held");
    let (mut got, mut out) = (0, vec![0; 10_000]);
    assert!(pair.run(LONG, |pair| {
        let now = pair.now;
        got += pair.at(1, server).recv(now, &mut out).unwrap();
        got == chunk.len()
    }));
}

#[test]
fn a_rendezvous_is_made_through_losses() {
    let options = Options { rendezvous: true, ..Options::default() };
    let net = Net { loss: 0.3, ..Net::clean() };
    let mut made = 0;
    for seed in 0..20 {
        let mut pair = Pair::new(net, seed);
        let [a, b] = pair.addresses;
        let first = pair.ends[0].connect(pair.now, b, &options).unwrap();
        pair.run(Duration::from_millis(400), |_| false);
        let second = pair.ends[1].connect(pair.now, a, &options).unwrap();
        let open = pair.run(Duration::from_millis(2500), |pair| {
            pair.at(0, first).status() == Status::Open
                && pair.at(1, second).status() == Status::Open
        });
        if !open {
            continue;
        }
        made += 1;
        let mut down = Stream::of(20_000);
        assert!(pair.run(LONG, |pair| down.step(pair, (1, second), (0, first))), "seed {seed}");
    }
    assert!(made >= 17, "{made} of 20");
}

/// Message `index` of a run; its length and bytes derive from the index.
fn message(index: u32, longest: usize) -> Vec<u8> {
    let len = 4 + (index as usize * 7919) % longest;
    let mut bytes = vec![index as u8; len];
    bytes[..4].copy_from_slice(&index.to_be_bytes());
    bytes
}

fn check(bytes: &[u8], longest: usize) -> u32 {
    let index = u32::from_be_bytes(bytes[..4].try_into().unwrap());
    assert!(bytes == message(index, longest), "message {index} is damaged");
    index
}

/// Sends `count` messages and returns the numbers of those that arrived.
fn messages(
    (net, seed): (Net, u64),
    count: u32,
    longest: usize,
    ttl: Option<Duration>,
    in_order: impl Fn(u32) -> bool,
) -> Vec<u32> {
    // Under heavy loss UDT's rate lets every message expire, so expiring messages are sent at a
    // fixed rate.
    let cc = if ttl.is_some() { "fixed:20mbit" } else { "udt:udt4" }.to_owned();
    let options = Options { kind: Kind::Datagram, cc, ..Options::default() };
    let (mut pair, client, server) = Pair::connected(net, seed, &options);
    let (mut given, mut got, mut out) = (0, Vec::new(), vec![0; longest + 4]);
    pair.run(LONG, |pair| {
        let now = pair.now;
        while given < count {
            // Messages that wait long expire before they are sent; here they are to expire because
            // of losses.
            let connection = pair.at(0, client);
            if ttl.is_some() && connection.unacknowledged().get() > 20_000 {
                break;
            }
            let bytes = message(given, longest);
            if !connection.send_message(now, &bytes, ttl, in_order(given)).unwrap() {
                break;
            }
            given += 1;
        }
        while let Some(len) = pair.at(1, server).recv_message(now, &mut out).unwrap() {
            got.push(check(&out[..len], longest));
        }
        let all = given == count && pair.at(0, client).unacknowledged() == ByteCount(0);
        got.len() == count as usize || all && pair.flying() == 0
    });
    let now = pair.now;
    let left = pair.at(1, server).perf(now);
    if ttl.is_some() {
        assert_eq!(left.recv_room, ByteCount(8192 * 1456), "nothing sticks in the buffer");
    }
    got
}

#[test]
fn messages_keep_their_boundaries_and_order() {
    for loss in [0.0, 0.02] {
        let got = messages((Net::faulty(loss), 11), 300, 6000, None, |_| true);
        assert_eq!(got, (0..300).collect::<Vec<_>>());
    }
}

#[test]
fn messages_without_order_all_come_once() {
    let mut got = messages((Net::faulty(0.05), 12), 300, 6000, None, |_| false);
    assert!(!got.is_sorted(), "some overtook others");
    got.sort_unstable();
    assert_eq!(got, (0..300).collect::<Vec<_>>());
}

#[test]
fn a_message_that_waits_for_nothing_overtakes() {
    let got = messages((Net::faulty(0.05), 13), 200, 6000, None, |index| index % 2 == 0);
    let even: Vec<_> = got.iter().filter(|index| **index % 2 == 0).collect();
    assert!(even.is_sorted(), "those in order stay in order");
    assert_eq!(got.len(), 200);
}

#[test]
fn messages_expire_and_the_others_come() {
    let ttl = Some(Duration::from_millis(40));
    let got = messages((Net::faulty(0.1), 14), 400, 6000, ttl, |_| true);
    assert!(got.is_sorted() && got.len() < 400 && got.len() > 150, "{} came", got.len());
}

#[test]
fn calls_of_the_wrong_kind_are_refused() {
    let options = Options { kind: Kind::Datagram, ..Options::default() };
    let (mut pair, client, _) = Pair::connected(Net::clean(), 15, &options);
    let now = pair.now;
    let connection = pair.at(0, client);
    assert_eq!(connection.send(&[1]), Err(SocketError::Kind));
    assert_eq!(connection.recv(now, &mut [0]), Err(SocketError::Kind));
    let huge = vec![0; 8192 * 1456 + 1];
    assert_eq!(connection.send_message(now, &huge, None, true), Err(SocketError::TooLarge));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every byte arrives exactly once, whatever the network does.
    #[test]
    fn every_byte_once(
        seed: u64,
        loss in 0.0f64..0.25,
        late in 0.0f64..0.3,
        twice in 0.0f64..0.3,
        window in 16u32..200,
        bytes in 1u64..120_000,
    ) {
        let net = Net { loss, late, twice, ..Net::clean() };
        let options = Options { flow_window: window, ..Options::default() };
        let options = Options { connect_timeout: Duration::from_secs(60), ..options };
        let mut pair = Pair::new(net, seed);
        pair.ends[1].listen(options.clone(), 8).unwrap();
        let to = pair.addresses[1];
        let client = pair.ends[0].connect(pair.now, to, &options).unwrap();
        let (mut up, mut server) = (Stream::of(bytes), None);
        let done = pair.run(LONG, |pair| {
            server = server.or_else(|| pair.ends[1].accept());
            let Some(server) = server else { return false };
            pair.at(0, client).status() == Status::Open
                && up.step(pair, (0, client), (1, server))
        });
        prop_assert!(done, "{} of {} bytes", up.got, bytes);
    }
}
