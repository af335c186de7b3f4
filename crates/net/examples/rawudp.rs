//! The rate of the sockets and the cipher without any protocol: encrypted datagrams are sent at a
//! given rate, decrypted and counted. It is the upper limit for `rawflow` on the same machine.
//!
//!     rawudp recv --bind 10.9.0.2 --lanes 8
//!     rawudp send --bind 10.9.0.1 --peer 10.9.0.2 --lanes 8 --rate 20gbit --seconds 5
#![allow(clippy::print_stdout)]

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use packtrain_net::udp::{RecvSlab, UdpSocket};
use packtrain_os::clock;
use packtrain_units::{ByteCount, DataRate, Duration, parse_rate};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

type Failure = Box<dyn std::error::Error>;

const DATAGRAM: usize = 1_472;
const HEADER: usize = 17;
const TAG: usize = 16;
const BATCH: usize = 44;

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let role = words.next().ok_or("say send or recv")?;
    let (mut bind, mut peer): (IpAddr, IpAddr) = ("127.0.0.1".parse()?, "127.0.0.1".parse()?);
    let (mut lanes, mut seconds, mut rate) = (8_u16, 5, DataRate::from_mbps(20_000));
    while let Some(flag) = words.next() {
        let value = words.next().ok_or("a flag needs a value")?;
        match flag.as_str() {
            "--bind" => bind = value.parse()?,
            "--peer" => peer = value.parse()?,
            "--lanes" => lanes = value.parse()?,
            "--seconds" => seconds = value.parse()?,
            "--rate" => rate = parse_rate(&value)?,
            other => return Err(format!("unknown flag {other}").into()),
        }
    }
    let sockets = (0..lanes)
        .map(|i| UdpSocket::bind(SocketAddr::new(bind, 7_000 + i)))
        .collect::<Result<Vec<_>, _>>()?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).map_err(|_| "key")?);
    let to = (0..lanes).map(|i| SocketAddr::new(peer, 7_000 + i)).collect();
    if role == "send" {
        send(sockets, to, &key, rate, Duration::from_secs(seconds))
    } else {
        recv(sockets, &key)
    }
}

fn send(
    mut sockets: Vec<UdpSocket>,
    to: Vec<SocketAddr>,
    key: &LessSafeKey,
    rate: DataRate,
    span: Duration,
) -> Result<(), Failure> {
    let source = vec![1_u8; 8 << 20];
    let mut out = vec![0; BATCH * DATAGRAM];
    let (start, mut sent, mut number, mut at) = (clock::now(), 0_u64, 0_u64, 0_usize);
    while clock::now() < start + span {
        let due = start + rate.time_for(ByteCount(sent));
        let wait = due.since(clock::now());
        if wait > Duration::from_micros(20) {
            std::thread::sleep(wait.to_std());
        }
        for packet in out.chunks_exact_mut(DATAGRAM) {
            let (head, rest) = packet.split_at_mut(HEADER);
            let (body, tag) = rest.split_at_mut(DATAGRAM - HEADER - TAG);
            number += 1;
            head[..8].copy_from_slice(&number.to_be_bytes());
            at = (at + body.len()) % (source.len() - DATAGRAM);
            body.copy_from_slice(&source[at..at + body.len()]);
            let sealed = key.seal_in_place_separate_tag(nonce(number), Aad::from(&*head), body);
            tag.copy_from_slice(sealed.map_err(|_| "seal")?.as_ref());
        }
        let lane = (number as usize / BATCH / 2) % sockets.len();
        while sockets[lane].send(to[lane], &out, DATAGRAM, None).is_err() {}
        sent += out.len() as u64;
    }
    println!("sent {}", DataRate::from_bytes_over(ByteCount(sent), clock::now().since(start)));
    Ok(())
}

fn recv(mut sockets: Vec<UdpSocket>, key: &LessSafeKey) -> Result<(), Failure> {
    let mut slab = RecvSlab::new();
    let mut sink = vec![0_u8; 8 << 20];
    let (mut got, mut bytes, mut at, mut since) = (0_u64, 0_u64, 0_usize, clock::now());
    loop {
        let mut fds: Vec<_> = sockets.iter().map(|s| PollFd::new(s, PollFlags::IN)).collect();
        poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }))?;
        let ready: Vec<_> = fds.iter().map(|f| !f.revents().is_empty()).collect();
        for (socket, _) in sockets.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            socket.recv(&mut slab)?;
            for message in slab.messages() {
                for packet in message.bytes.chunks_mut(message.stride) {
                    let (head, rest) = packet.split_at_mut(HEADER);
                    let number = u64::from_be_bytes(head[..8].try_into()?);
                    let open = key.open_in_place(nonce(number), Aad::from(&*head), rest);
                    let body = open.map_err(|_| "open")?;
                    at = (at + body.len()) % (sink.len() - DATAGRAM);
                    sink[at..at + body.len()].copy_from_slice(body);
                    (got, bytes) = (got + 1, bytes + body.len() as u64);
                }
            }
        }
        let span = clock::now().since(since);
        if span > Duration::from_secs(1) {
            let drops: u32 = sockets.iter_mut().map(|s| s.drops().0).sum();
            println!("{} {got} drops {drops}", DataRate::from_bytes_over(ByteCount(bytes), span));
            (bytes, since) = (0, clock::now());
        }
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}
