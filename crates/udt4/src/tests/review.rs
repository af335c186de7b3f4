//! Invalid batches of a peer, ends that have exited, and wrapping numbers.

use packtrain_proto::{BATCH_BYTES, Datagrams};
use packtrain_units::{ByteCount, Duration, SeqNo};
use proptest::prelude::*;

use super::pair::{Net, Pair, Stream};
use crate::wire::{Ack, AckDetail, Control, Message, Packet};
use crate::*;

fn feed(pair: &mut Pair, end: usize, bytes: &mut [u8], stride: usize) {
    let (from, received_at) = (pair.addresses[1 - end], pair.now);
    let input = Datagrams { lane: 0, from, bytes, stride, ecn: None, received_at };
    pair.ends[end].handle(pair.now, input);
}

fn control(control: Control<'_>, to: SocketId) -> Vec<u8> {
    let mut out = [0; 2000];
    let len = control.write(to.get(), &mut out).unwrap();
    out[..len].to_vec()
}

/// Polls as a driver does, without delivering anything; the engine must then wait for a time in the
/// future, or for nothing.
fn idles(pair: &mut Pair, end: usize) {
    let (now, mut out) = (pair.now, vec![0; BATCH_BYTES]);
    for _ in 0..3 {
        pair.ends[end].handle_timeout(now);
        while pair.ends[end].poll_transmit(now, &mut out).is_some() {}
    }
    let next = pair.ends[end].poll_timeout();
    assert!(next.is_none_or(|at| at > now), "{next:?} at {now:?}");
}

#[test]
fn what_holds_the_first_data_back_makes_no_thread_spin() {
    let told = AckDetail { room: 0, ..AckDetail::NONE };
    for lie in 0..2 {
        let (mut pair, _, server) = Pair::connected(Net::clean(), 4, &Options::default());
        pair.run(Duration::from_millis(30), |_| false);
        let next = pair.at(1, server).first_number();
        let lie = match lie {
            0 => Control::Warning,
            _ => Control::Ack(Ack { number: 1, next, detail: Some(told) }),
        };
        let mut lie = control(lie, server);
        let stride = lie.len();
        feed(&mut pair, 1, &mut lie, stride);
        assert_eq!(pair.at(1, server).send(&[1; 5000]).unwrap(), 5000);
        idles(&mut pair, 1);
    }
}

#[test]
fn two_ends_that_are_gone_do_not_talk_for_ever() {
    let far = Net { delay: Duration::from_millis(300), ..Net::clean() };
    let (mut pair, client, server) = Pair::connected(far, 5, &Options::default());
    pair.run(Duration::from_secs(2), |_| false);
    let now = pair.now;
    pair.ends[0].close(now, client);
    pair.ends[1].close(now, server);
    pair.run(Duration::from_secs(20), |_| false);
    assert_eq!((pair.ends[0].ids().count(), pair.ends[1].ids().count()), (0, 0));
    assert_eq!(pair.flying(), 0);
    // One of them was not notified: it is, once, and no more packets follow.
    let mut word = control(Control::KeepAlive, server);
    let stride = word.len();
    feed(&mut pair, 1, &mut word, stride);
    pair.run(Duration::from_secs(5), |_| false);
    assert_eq!(pair.flying(), 0);
}

#[test]
fn a_transfer_passes_the_end_of_the_numbers() {
    for (kind, net) in [(0, Net::clean()), (1, Net::faulty(0.02)), (2, Net::faulty(0.1))] {
        let options = Options::default();
        let mut pair = Pair::new(net, 40 + kind);
        pair.ends[1].listen(options.clone(), 8).unwrap();
        let (now, to) = (pair.now, pair.addresses[1]);
        let ids = (pair.ends[0].free_id(), SeqNo::new(0x7fff_ffff - 40));
        let client = pair.ends[0].call(now, to, &options, ids);
        let mut server = None;
        assert!(pair.run(Duration::from_secs(3), |pair| {
            server = server.or_else(|| pair.ends[1].accept());
            server.is_some() && pair.at(0, client).status() == Status::Open
        }));
        let server = server.unwrap();
        let (mut up, mut down) = (Stream::of(600_000), Stream::of(600_000));
        assert!(pair.run(Duration::from_secs(300), |p| {
            let up = up.step(p, (0, client), (1, server));
            down.step(p, (1, server), (0, client)) && up
        }));
    }
}

#[test]
fn a_writer_that_waits_is_told_though_another_sends_what_fits() {
    let options = Options { send_buffer: ByteCount(64 * 1456), ..Options::default() };
    let (mut pair, client, _) = Pair::connected(Net::clean(), 6, &options);
    // Exactly full: a writer that waits for room must be notified.
    assert_eq!(pair.at(0, client).send(&[1; 64 * 1456]).unwrap(), 64 * 1456);
    let told = |pair: &mut Pair| pair.events[0].iter().any(|e| *e == (client, Event::Writable));
    assert!(pair.run(Duration::from_secs(2), told));
    pair.events[0].clear();
    // One waits; another sends a little as soon as it fits.
    let big = vec![1; 100 * 1456];
    let taken = pair.at(0, client).send(&big).unwrap();
    assert!(taken < big.len());
    let mut small = false;
    let done = pair.run(Duration::from_secs(2), |pair| {
        small = small || pair.at(0, client).send(&[2]).unwrap() == 1;
        pair.events[0].iter().any(|e| *e == (client, Event::Writable))
    });
    assert!(done && small);
}

#[test]
fn who_leaves_with_the_last_byte_has_acknowledged_it() {
    for seed in 0..20 {
        let (mut pair, client, server) = Pair::connected(Net::clean(), seed, &Options::default());
        let mut down = Stream::of(50_000 + 777 * seed);
        let (mut closed, mut left) = (false, false);
        let ends = |pair: &Pair, end: usize| {
            pair.events[end].iter().find_map(|(_, event)| match event {
                Event::Ended(reason) => Some(reason.clone()),
                _ => None,
            })
        };
        pair.run(Duration::from_secs(30), |pair| {
            if !left && down.step(pair, (1, server), (0, client)) {
                let now = pair.now;
                pair.ends[0].close(now, client);
                left = true;
            }
            if !closed && down.given == down.total {
                let now = pair.now;
                pair.ends[1].close(now, server);
                closed = true;
            }
            ends(pair, 0).is_some() && ends(pair, 1).is_some()
        });
        let both = (ends(&pair, 0), ends(&pair, 1));
        assert_eq!(both, (Some(EndReason::Closed), Some(EndReason::Closed)), "seed {seed}");
    }
}

/// Packets of one size: data of a few bytes, drops, light acknowledgements.
fn packet() -> impl Strategy<Value = (u8, i32, i32, u32)> {
    (0u8..8, -20i32..90, 0i32..70, any::<u32>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// A host may coalesce any packets of one size into one batch.
    #[test]
    fn any_batches_of_the_peer(
        batches in prop::collection::vec(prop::collection::vec(packet(), 1..44), 1..12),
        datagram: bool, wrap: bool, seed: u64,
    ) {
        let kind = if datagram { Kind::Datagram } else { Kind::Stream };
        let recv_buffer = ByteCount(64 * 1456);
        let options = Options { kind, recv_buffer, ..Options::default() };
        let mut pair = Pair::new(Net::clean(), seed);
        pair.ends[1].listen(options.clone(), 8).unwrap();
        let (now, to) = (pair.now, pair.addresses[1]);
        let isn = SeqNo::new(if wrap { 0x7fff_fff0 } else { 3 });
        let ids = (pair.ends[0].free_id(), isn);
        let client = pair.ends[0].call(now, to, &options, ids);
        let mut server = None;
        pair.run(Duration::from_secs(3), |pair| {
            server = server.or_else(|| pair.ends[1].accept());
            server.is_some() && pair.at(0, client).status() == Status::Open
        });
        let server = server.unwrap();
        for batch in batches {
            let mut bytes = Vec::new();
            for (what, near, more, info) in batch {
                let at = isn.plus(near.rem_euclid(1 << 30) as u32 & 0x7fff_ffff);
                let at = if near < 0 { SeqNo::new(isn.get().wrapping_add_signed(near) & 0x7fff_ffff) } else { at };
                let to = at.plus(more as u32);
                let mut one = match what {
                    0 => control(Control::Drop { message: info & 7, first: at, last: to }, server),
                    1 => {
                        let mut out = [0; 64];
                        let (len, _) = Control::write_nak(&[(at, to)], server.get(), &mut out).unwrap();
                        out[..len].to_vec()
                    }
                    _ => {
                        let mut out = vec![5; 24];
                        let message = Message::new(info & 7);
                        let message = message.with(info & 8 > 0, info & 16 > 0, info & 32 > 0);
                        Packet::new_checked(&mut out[..]).unwrap()
                            .set_data(at, message, 0, server.get());
                        out
                    }
                };
                one.resize(24, 0);
                bytes.extend(one);
            }
            feed(&mut pair, 1, &mut bytes, 24);
            pair.run(Duration::from_millis(3), |_| false);
            let now = pair.now;
            let connection = pair.at(1, server);
            let _ = connection.recv(now, &mut [0; 100]);
            let _ = connection.recv_message(now, &mut [0; 3000]);
            prop_assert!(connection.received().get() <= 64 * 1456);
        }
        pair.run(Duration::from_secs(3), |_| false);
    }
}
