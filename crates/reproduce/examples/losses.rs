//! Measures real loss signatures. A paced sender, and a receiver that records which datagrams
//! arrived, when, and how many the kernel dropped at its socket (`SO_RXQ_OVFL`, which counts the
//! kernel's buffers: one for several datagrams if they arrive joined). `data/loss-causes/real.py`
//! runs both over `packtrain emulate` beside real competitors.
//!
//!     losses recv --at 10.9.0.2:7000 --packets 976560 --windows 97656 --buffer 425984 --out F
//!     losses send --at 10.9.0.2:7000 --packets 976560 --rate 1gbit --size 1024 --train 4
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::ops::Range;

use packtrain_net::udp::{RecvSlab, UdpSocket};
use packtrain_os::clock;
use packtrain_reproduce::signatures::{Delay, Lost, Record, rise, runs};
use packtrain_units::{ByteCount, DataRate, Duration, Time, parse_duration, parse_rate};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

type Failure = Box<dyn std::error::Error>;

/// Bytes of the header: the datagram's number and its time of sending.
const HEADER: usize = 16;
/// Bytes of IP and UDP headers.
const OVERHEAD: u64 = 28;
/// Silence after which the receiver stops.
const SILENCE: Duration = Duration::from_secs(2);

struct Args {
    at: SocketAddr,
    packets: u64,
    windows: Vec<usize>,
    warm: usize,
    buffer: usize,
    rate: DataRate,
    size: usize,
    train: usize,
    /// Maximum delay after which the sender still catches up.
    late: Duration,
    family: String,
    /// Whether windows without a loss are recorded too.
    all: bool,
    out: String,
}

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let role = words.next().ok_or("say send or recv")?;
    let mut args = Args {
        at: "127.0.0.1:7000".parse()?,
        packets: 1_000_000,
        windows: vec![97_656],
        warm: 2_000,
        buffer: 212_992,
        rate: DataRate::from_mbps(500),
        size: 1_024,
        train: 1,
        late: Duration::from_micros(500),
        family: "real".to_owned(),
        all: false,
        out: "/dev/stdout".to_owned(),
    };
    while let Some(flag) = words.next() {
        let value = words.next().ok_or("a flag needs a value")?;
        match flag.as_str() {
            "--at" => args.at = value.parse()?,
            "--packets" => args.packets = value.parse()?,
            "--windows" => {
                args.windows = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            "--warm" => args.warm = value.parse()?,
            "--buffer" => args.buffer = value.parse()?,
            "--rate" => args.rate = parse_rate(&value)?,
            "--size" => args.size = value.parse()?,
            "--train" => args.train = value.parse()?,
            "--all" => args.all = value.parse()?,
            "--late" => args.late = parse_duration(&value)?,
            "--family" => args.family = value,
            "--out" => args.out = value,
            other => return Err(format!("unknown flag {other}").into()),
        }
    }
    if role == "send" { send(&args) } else { recv(&args) }
}

fn send(args: &Args) -> Result<(), Failure> {
    let any: SocketAddr = (std::net::Ipv4Addr::UNSPECIFIED, 0).into();
    let mut socket = UdpSocket::bind(any)?;
    let mut bytes = vec![7_u8; args.size.max(HEADER) * args.train];
    let each = args.rate.time_for(ByteCount(args.size as u64 + OVERHEAD));
    let (mut due, mut number) = (clock::now(), 0);
    while number < args.packets {
        let now = clock::now();
        if now < due {
            std::thread::sleep(due.since(now).to_std());
        }
        let now = clock::now();
        if now.since(due) > args.late {
            due = now - args.late;
        }
        for packet in bytes.chunks_exact_mut(args.size) {
            packet[..8].copy_from_slice(&number.to_be_bytes());
            packet[8..16].copy_from_slice(&now.as_nanos().to_be_bytes());
            number += 1;
        }
        while socket.send(args.at, &bytes, args.size, None).is_err() {
            std::thread::yield_now();
        }
        due += each * args.train as u64;
    }
    Ok(())
}

/// The record of the received datagrams.
struct Taken {
    /// One-way delays, to the kernel and to the process; zero: lost.
    arrival: Vec<u64>,
    read: Vec<u64>,
    /// The number after the last one of each batch, and the kernel's drop counter then.
    batches: Vec<(usize, u32)>,
    first: Time,
    last: Time,
    /// The number after the last one received.
    end: usize,
}

fn recv(args: &Args) -> Result<(), Failure> {
    let mut socket = UdpSocket::bind(args.at)?;
    // The kernel doubles the requested size.
    socket2::SockRef::from(&socket).set_recv_buffer_size(args.buffer / 2)?;
    let buffer = socket.buffer_sizes()?.receive.get();
    let taken = take(&mut socket, args.packets as usize)?;
    let span = taken.last.since(taken.first).as_secs_f64();
    let got = taken.arrival.iter().filter(|d| **d > 0).count();
    let drops = socket.drops().0;
    let mut out = File::options().append(true).create(true).open(&args.out)?;
    for &window in &args.windows {
        let starts = (args.warm..).step_by(window).take_while(|from| from + window <= taken.end);
        for (number, from) in (0..).zip(starts) {
            let record = record(args, &taken, from..from + window, number, buffer);
            if args.all || record.lost.all() > 0 {
                serde_json::to_writer(&mut out, &record)?;
                out.write_all(b"\n")?;
            }
        }
    }
    println!(
        "{}",
        serde_json::json!({"packets": args.packets, "received": got, "host_drops": drops,
            "seconds": span, "buffer": buffer})
    );
    Ok(())
}

fn take(socket: &mut UdpSocket, packets: usize) -> Result<Taken, Failure> {
    // Non-zero values make the system map the pages before the first datagram arrives.
    let mut taken = Taken {
        arrival: vec![1; packets],
        read: vec![1; packets],
        batches: Vec::with_capacity(packets / 4),
        first: Time::ZERO,
        last: Time::ZERO,
        end: 0,
    };
    taken.arrival.fill(0);
    taken.read.fill(0);
    let mut slab = RecvSlab::new();
    while taken.end < packets {
        let now = clock::now();
        if taken.end > 0 && now.since(taken.last) > SILENCE {
            break;
        }
        let mut fds = [PollFd::new(&*socket, PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        poll(&mut fds, Some(&wait))?;
        while socket.recv(&mut slab)? > 0 {
            let now = clock::now();
            for message in slab.messages() {
                let at = message.received_at;
                for packet in message.bytes.chunks(message.stride) {
                    let Some((number, sent)) = header(packet) else { continue };
                    let Some(place) = taken.arrival.get_mut(number) else { continue };
                    *place = at.since(sent).as_nanos().max(1);
                    taken.read[number] = now.since(sent).as_nanos().max(1);
                    taken.end = taken.end.max(number + 1);
                }
            }
            taken.batches.push((taken.end, socket.seen_drops().0));
            taken.last = now;
            if taken.first == Time::ZERO {
                taken.first = now;
            }
        }
    }
    Ok(taken)
}

fn header(packet: &[u8]) -> Option<(usize, Time)> {
    let word = |at: usize| Some(u64::from_be_bytes(packet.get(at..at + 8)?.try_into().ok()?));
    Some((usize::try_from(word(0)?).ok()?, Time::from_nanos(word(8)?)))
}

fn record(args: &Args, taken: &Taken, window: Range<usize>, number: u64, buffer: u64) -> Record {
    let packets = window.len() as u64;
    let received: Vec<bool> = taken.arrival[window.clone()].iter().map(|d| *d > 0).collect();
    let missing = received.iter().filter(|got| !**got).count() as u64;
    let counted = host_drops(taken, window.clone());
    let host = counted.min(missing);
    let lost = Lost { network: missing - host, host, link: 0 };
    let (arrival, read) = (&taken.arrival[window.clone()], &taken.read[window]);
    let delay = Delay { arrival: rise(&received, arrival), read: rise(&received, read) };
    let meta = BTreeMap::from([
        ("buffer".to_owned(), buffer.into()),
        ("quantum".to_owned(), args.train.into()),
    ]);
    Record {
        family: args.family.clone(),
        cause: lost.cause().to_owned(),
        split: "test".to_owned(),
        seed: 0,
        window: number,
        packets,
        runs: runs(received.iter().copied()),
        lost,
        host_drops: Some(counted),
        delay: Some(delay),
        rate_bps: args.rate.as_bps(),
        packet_bytes: args.size as u64 + OVERHEAD,
        meta,
    }
}

/// The kernel's drops within the window, batch by batch; of a batch at the border, as many as are
/// missing on this side.
fn host_drops(taken: &Taken, window: Range<usize>) -> u64 {
    let (mut last, mut counted, mut host) = (0, 0, 0);
    for &(end, drops) in &taken.batches {
        let (new, from) = (u64::from(drops - counted), last);
        (counted, last) = (drops, end);
        let missing =
            |range: Range<usize>| taken.arrival[range].iter().filter(|d| **d == 0).count() as u64;
        let inside = from.max(window.start)..end.min(window.end).max(from.max(window.start));
        if new > 0 && !inside.is_empty() {
            let all = missing(from..end).max(1);
            host += new * missing(inside) / all.max(new);
        }
    }
    host
}
