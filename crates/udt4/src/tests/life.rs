//! How connections end, and how they are kept alive.

use packtrain_units::{ByteCount, Duration};

use super::pair::{Net, Pair, Stream};
use crate::*;

const LONG: Duration = Duration::from_secs(600);

fn ended(pair: &Pair, end: usize, id: SocketId) -> Option<EndReason> {
    pair.events[end].iter().find_map(|(of, event)| match event {
        Event::Ended(reason) if *of == id => Some(reason.clone()),
        _ => None,
    })
}

#[test]
fn what_was_given_is_delivered_before_the_end() {
    let (mut pair, client, server) = Pair::connected(Net::faulty(0.02), 1, &Options::default());
    let bytes = vec![5; 200_000];
    assert_eq!(pair.at(0, client).send(&bytes).unwrap(), bytes.len());
    let now = pair.now;
    pair.ends[0].close(now, client);
    assert_eq!(pair.at(0, client).send(&[1]), Err(SocketError::Closing));
    let ends = |p: &mut Pair| ended(p, 0, client).is_some() && ended(p, 1, server).is_some();
    assert!(pair.run(LONG, ends));
    assert_eq!(ended(&pair, 0, client), Some(EndReason::Closed));
    assert_eq!(ended(&pair, 1, server), Some(EndReason::ByPeer));
    assert!(pair.ends[0].get(client).is_none(), "gone with its event");
    let (now, mut out, mut got) = (pair.now, [0; 4096], 0);
    let end = loop {
        match pair.at(1, server).recv(now, &mut out) {
            Ok(len) => got += len,
            Err(error) => break error,
        }
    };
    assert_eq!((got, end), (200_000, SocketError::Ended(EndReason::ByPeer)));
    pair.ends[1].close(now, server);
    assert!(pair.ends[1].get(server).is_none());
}

#[test]
fn lingering_has_an_end() {
    let options = Options { linger: Duration::from_secs(2), ..Options::default() };
    let (mut pair, client, _) = Pair::connected(Net::clean(), 2, &options);
    pair.deaf = [false, true];
    pair.at(0, client).send(&[1; 5000]).unwrap();
    let start = pair.now;
    pair.ends[0].close(start, client);
    assert!(pair.run(LONG, |pair| ended(pair, 0, client).is_some()));
    assert_eq!(ended(&pair, 0, client), Some(EndReason::Unfinished));
    let farewells = Duration::from_millis(70);
    assert_eq!(pair.now.since(start), Duration::from_secs(2) + farewells);
}

#[test]
fn an_idle_connection_stays() {
    let (mut pair, client, server) = Pair::connected(Net::faulty(0.1), 3, &Options::default());
    pair.run(Duration::from_secs(120), |_| false);
    let mut up = Stream::of(10_000);
    assert!(pair.run(LONG, |pair| up.step(pair, (0, client), (1, server))));
}

#[test]
fn a_peer_that_vanished_is_noticed() {
    for busy in [false, true] {
        let (mut pair, client, server) = Pair::connected(Net::clean(), 4, &Options::default());
        if busy {
            pair.at(0, client).send(&[1; 500_000]).unwrap();
        }
        pair.deaf = [true, true];
        let start = pair.now;
        assert!(pair.run(LONG, |pair| ended(pair, 0, client).is_some()), "busy: {busy}");
        assert!(matches!(ended(&pair, 0, client), Some(EndReason::Broken(_))));
        let took = pair.now.since(start);
        assert!(took >= Duration::from_secs(9) && took <= Duration::from_secs(12), "{took}");
        pair.run(Duration::from_secs(5), |_| false);
        assert!(matches!(ended(&pair, 1, server), Some(EndReason::Broken(_))));
    }
}

#[test]
fn keepalives_leave_a_silent_peer_time_to_retransmit() {
    let (mut pair, _, server) = Pair::connected(Net::clean(), 12, &Options::default());
    pair.run(Duration::from_secs(1), |_| false);
    pair.gone[0] = true;
    let (mut sent, mut last, mut pauses) = (pair.sent, pair.now, Vec::new());
    let gone = pair.run(LONG, |pair| {
        if pair.sent > sent {
            pauses.push(pair.now.since(last));
            (sent, last) = (pair.sent, pair.now);
        }
        ended(pair, 1, server).is_some()
    });
    assert!(gone);
    // The timer of a stock sender is its round trip and four deviations, at least 300 ms: at most
    // about 2.6 round trips when its first guesses were wrong.
    let long = pauses.iter().filter(|pause| **pause >= Duration::from_secs(2)).count();
    assert_eq!(long, 2, "a retransmission may be lost: {pauses:?}");
}

#[test]
fn a_lost_farewell_is_said_again() {
    let (mut pair, client, server) = Pair::connected(Net::clean(), 5, &Options::default());
    pair.deaf = [false, true];
    let now = pair.now;
    pair.ends[0].close(now, client);
    pair.run(Duration::from_millis(300), |_| false);
    assert!(ended(&pair, 0, client).is_some() && ended(&pair, 1, server).is_none());
    pair.deaf = [false, false];
    assert!(pair.run(Duration::from_secs(2), |pair| ended(pair, 1, server).is_some()));
    assert_eq!(ended(&pair, 1, server), Some(EndReason::ByPeer));
}

/// Sends a little data over a lossy path, closes, and exits as soon as the close is complete;
/// returns whether the other end was notified.
fn tells_and_goes(loss: f64, seed: u64) -> bool {
    let net = Net { loss, ..Net::clean() };
    let (mut pair, client, server) = Pair::connected(net, seed, &Options::default());
    pair.at(0, client).send(&vec![1; 20_000]).unwrap();
    let now = pair.now;
    pair.ends[0].close(now, client);
    assert!(pair.run(LONG, |pair| ended(pair, 0, client).is_some()));
    assert_eq!(ended(&pair, 0, client), Some(EndReason::Closed), "seed {seed}");
    pair.gone[0] = true;
    pair.run(Duration::from_secs(1), |pair| ended(pair, 1, server).is_some());
    ended(&pair, 1, server) == Some(EndReason::ByPeer)
}

#[test]
fn a_process_that_ends_after_its_close_has_told_the_peer() {
    for (loss, seeds, most) in [(0.01, 2000, 0), (0.05, 2000, 1), (0.2, 300, 3)] {
        let untold = (0..seeds).filter(|seed| !tells_and_goes(loss, *seed)).count();
        assert!(untold <= most, "{untold} of {seeds} peers were not told at a loss of {loss}");
    }
}

#[test]
fn a_peer_that_says_farewell_too_ends_the_farewells() {
    let (mut pair, client, server) = Pair::connected(Net::clean(), 11, &Options::default());
    pair.run(Duration::from_secs(1), |_| false);
    let (start, delay) = (pair.now, pair.net.delay);
    pair.ends[0].close(start, client);
    assert!(pair.run(LONG, |pair| ended(pair, 0, client).is_some()));
    let took = pair.now.since(start);
    assert!(took < delay * 2 + Duration::from_millis(1), "a round trip, not all pauses: {took}");
    assert_eq!(ended(&pair, 1, server), Some(EndReason::ByPeer));
    let now = pair.now;
    pair.ends[1].close(now, server);
    pair.run(Duration::from_secs(1), |_| false);
    assert_eq!((pair.ends[0].bad_datagrams(), pair.ends[1].bad_datagrams()), (0, 0));
    assert_eq!(pair.flying(), 0);
}

#[test]
fn nobody_answers() {
    let mut pair = Pair::new(Net::clean(), 6);
    let to = pair.addresses[1];
    let client = pair.ends[0].connect(pair.now, to, &Options::default()).unwrap();
    let start = pair.now;
    assert!(pair.run(LONG, |pair| ended(pair, 0, client).is_some()));
    let timeout = Duration::from_secs(3);
    let reason = EndReason::NotMade(ConnectError::Timeout(timeout));
    assert_eq!((ended(&pair, 0, client), pair.now.since(start)), (Some(reason), timeout));
    let now = pair.now;
    assert!(pair.at(0, client).recv(now, &mut [0]).is_err());
}

#[test]
fn a_stream_that_calls_messages_is_rejected() {
    let mut pair = Pair::new(Net::clean(), 7);
    pair.ends[1].listen(Options { kind: Kind::Datagram, ..Options::default() }, 1).unwrap();
    let to = pair.addresses[1];
    let client = pair.ends[0].connect(pair.now, to, &Options::default()).unwrap();
    assert!(pair.run(LONG, |pair| ended(pair, 0, client).is_some()));
    let reason = EndReason::NotMade(ConnectError::Rejected(1002));
    assert_eq!(ended(&pair, 0, client), Some(reason));
}

#[test]
fn the_backlog_is_a_bound_and_several_connections_share_a_socket() {
    let mut pair = Pair::new(Net::clean(), 8);
    pair.ends[1].listen(Options::default(), 2).unwrap();
    let to = pair.addresses[1];
    let now = pair.now;
    let clients: Vec<_> =
        (0..3).map(|_| pair.ends[0].connect(now, to, &Options::default()).unwrap()).collect();
    let open = |pair: &mut Pair| {
        clients.iter().filter(|id| pair.at(0, **id).status() == Status::Open).count()
    };
    pair.run(Duration::from_millis(500), |_| false);
    assert_eq!(open(&mut pair), 2);
    assert!(pair.ends[1].refused_calls() > 0);
    let mut servers: Vec<_> = std::iter::from_fn(|| pair.ends[1].accept()).collect();
    assert_eq!(servers.len(), 2);
    pair.run(Duration::from_secs(1), |_| false);
    assert_eq!(open(&mut pair), 3, "the third calls again");
    servers.extend(pair.ends[1].accept());
    let mut got = vec![0; 3];
    for (index, client) in clients.iter().enumerate() {
        pair.at(0, *client).send(&vec![index as u8; 20_000]).unwrap();
    }
    let done = pair.run(LONG, |pair| {
        let (now, mut out) = (pair.now, [0; 2000]);
        for server in &servers {
            let len = pair.at(1, *server).recv(now, &mut out).unwrap();
            if len > 0 {
                assert!(out[..len].iter().all(|byte| *byte == out[0]), "streams do not mix");
                got[usize::from(out[0])] += len;
            }
        }
        got == [20_000; 3]
    });
    assert!(done, "{got:?}");
}

#[test]
fn readiness_is_told_when_it_changes() {
    let options = Options { send_buffer: ByteCount(40 * 1456), ..Options::default() };
    let (mut pair, client, server) = Pair::connected(Net::clean(), 9, &options);
    pair.events = Default::default();
    let taken = pair.at(0, client).send(&vec![1; 100 * 1456]).unwrap();
    assert_eq!(taken, 40 * 1456);
    pair.run(Duration::from_secs(1), |_| false);
    let told = |pair: &Pair, end: usize, event: &Event| {
        pair.events[end].iter().filter(|(_, told)| told == event).count()
    };
    assert_eq!(told(&pair, 0, &Event::Writable), 1);
    assert_eq!(told(&pair, 1, &Event::Readable), 1, "not again while unread");
    // Exactly all of it is read, and then more arrives.
    let (now, mut out) = (pair.now, vec![0; taken]);
    assert_eq!(pair.at(1, server).recv(now, &mut out).unwrap(), taken);
    pair.at(0, client).send(&[2; 10]).unwrap();
    pair.run(Duration::from_secs(1), |_| false);
    assert_eq!(told(&pair, 1, &Event::Readable), 2);
}
