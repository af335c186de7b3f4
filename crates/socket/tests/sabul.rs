//! SABUL's four calls, over loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use packtrain_net::tcp::Identity;
use packtrain_os::entropy;
use packtrain_proto::CloseReason;
use packtrain_socket::sabul::{Agreed, Error, Listener, Options, Receiver, Sender};
use packtrain_units::{ByteCount, DataRate, Duration};

fn local() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Options of two ends that know each other's keys.
fn ends() -> (Options, Options) {
    let (a, b) = (Identity::generate(entropy::bytes()), Identity::generate(entropy::bytes()));
    let (of_a, of_b) = (a.public(), b.public());
    (Options::trusting(a, of_b), Options::trusting(b, of_a))
}

fn byte(at: usize) -> u8 {
    (at ^ (at >> 8).wrapping_mul(31) ^ (at >> 16)) as u8
}

/// Sends `size` bytes in pieces; returns the agreed values and the received bytes.
fn moved(sends: &Options, receives: &Options, size: usize, piece: usize) -> (Agreed, Vec<u8>) {
    let listener = Listener::bind(local(), receives).unwrap();
    let at = listener.local_addr().unwrap();
    let sends = sends.clone();
    let sending = thread::spawn(move || {
        let mut sender = Sender::open(at, &sends).unwrap();
        let bytes: Vec<u8> = (0..size).map(byte).collect();
        bytes.chunks(piece).for_each(|piece| sender.send(piece).unwrap());
        let agreed = sender.agreed();
        sender.close().unwrap();
        agreed
    });
    let mut receiver = Receiver::open(&listener).unwrap();
    let (mut all, mut bytes) = (Vec::new(), vec![0; 100_003]);
    while let count @ 1.. = receiver.recv(&mut bytes).unwrap() {
        all.extend_from_slice(&bytes[..count]);
    }
    let agreed = receiver.agreed();
    receiver.close();
    assert_eq!(sending.join().unwrap(), agreed);
    (agreed, all)
}

#[test]
fn the_smaller_of_both_offers_holds_and_everything_comes_in_order() {
    let (mut sends, mut receives) = ends();
    (sends.buffer, receives.buffer) = (ByteCount(64 << 20), ByteCount(1 << 20));
    (sends.rate, receives.rate) = (DataRate::from_mbps(400), DataRate::from_mbps(900));
    (sends.mtu, receives.mtu) = (ByteCount(1_472), ByteCount(1_300));
    // Many times the size of the buffer.
    let (agreed, all) = moved(&sends, &receives, 9_000_001, 70_001);
    let buffer = ByteCount(1 << 20);
    let rate = DataRate::from_mbps(400);
    assert_eq!(agreed, Agreed { buffer, rate, mtu: ByteCount(1_300) });
    assert!(all.len() == 9_000_001 && all.iter().enumerate().all(|(at, b)| *b == byte(at)));
}

#[test]
fn little_and_nothing_may_be_sent() {
    let (sends, receives) = ends();
    for size in [0, 1, 5_000] {
        assert_eq!(moved(&sends, &receives, size, 1_000).1.len(), size);
    }
}

#[test]
fn a_stranger_is_refused_and_the_next_is_heard() {
    let (_, receives) = ends();
    let listener = Listener::bind(local(), &receives).unwrap();
    let at = listener.local_addr().unwrap();
    let stranger = Options::new(Identity::generate(entropy::bytes()), Arc::new(|_| true));
    let calling = thread::spawn(move || Sender::open(at, &stranger).err());
    assert!(matches!(Receiver::open(&listener), Err(Error::Open(_))));
    assert!(matches!(calling.join().unwrap(), Some(Error::Open(_))));
}

#[test]
fn who_says_nothing_is_given_up() {
    let (_, mut receives) = ends();
    receives.open_timeout = Duration::from_millis(100);
    let listener = Listener::bind(local(), &receives).unwrap();
    let _mute = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert!(matches!(Receiver::open(&listener), Err(Error::Silent)));
}

#[test]
fn an_end_that_leaves_is_told() {
    let (sends, receives) = ends();
    let listener = Listener::bind(local(), &receives).unwrap();
    let at = listener.local_addr().unwrap();
    let sending = thread::spawn(move || {
        let mut sender = Sender::open(at, &sends).unwrap();
        sender.send(&[7; 1_000]).unwrap();
        sender
    });
    let mut receiver = Receiver::open(&listener).unwrap();
    let mut bytes = [0; 2_000];
    assert_eq!(receiver.recv(&mut bytes).unwrap(), 1_000);
    drop(sending.join().unwrap());
    let told = receiver.recv(&mut bytes);
    let reasons = [CloseReason::Abandoned, CloseReason::Channel];
    assert!(matches!(&told, Err(Error::Broken(why)) if reasons.contains(why)), "{told:?}");
}

#[test]
fn options_that_cannot_be_had_are_refused() {
    let (good, _) = ends();
    for change in [
        |o: &mut Options| o.buffer = ByteCount(1_000),
        |o: &mut Options| o.mtu = ByteCount(500),
        |o: &mut Options| o.rate = DataRate::ZERO,
    ] {
        let mut options = good.clone();
        change(&mut options);
        assert!(matches!(Listener::bind(local(), &options), Err(Error::Options)));
        assert!(matches!(Sender::open(local(), &options), Err(Error::Options)));
    }
}
