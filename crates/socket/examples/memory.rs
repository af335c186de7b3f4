//! Memory to memory over one connection on the stock UDT4 wire, as `packtrain perf --transport
//! udt4` measures it: measures the engine, the sockets and the threads without the rest of the
//! program.
//!
//!     memory recv 10.9.0.2:7000
//!     memory send 10.9.0.2:7000 udt:grid 10
//!
//! The sender prints the goodput and the retransmitted packets, the receiver the datagrams that its
//! socket dropped.
#![allow(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;

use packtrain_os::clock;
use packtrain_socket::{Listener, Options, Socket};
use packtrain_units::{ByteCount, DataRate, Duration};

/// Bytes per send call.
const BLOCK_BYTES: usize = 256 << 10;
/// Packets that the sender may have in flight: more than the buffer holds.
const FLOW_WINDOW: u32 = 102_400;

fn options() -> Options {
    let buffer = ByteCount(64 << 20);
    Options {
        send_buffer: buffer,
        recv_buffer: buffer,
        flow_window: FLOW_WINDOW,
        linger: Duration::ZERO,
        ..Options::default()
    }
}

fn recv(at: &str) -> Result<(), Box<dyn Error>> {
    let (socket, _) = Listener::bind(at.parse()?, &options())?.accept()?;
    let mut bytes = 0_u64;
    while let Ok(count @ 1..) = socket.skip(usize::MAX) {
        bytes += count as u64;
    }
    println!("received {bytes} drops {}", socket.host_drops());
    Ok(())
}

fn send(to: &str, cc: &str, seconds: &str) -> Result<(), Box<dyn Error>> {
    let socket = Socket::connect(to.parse()?, &Options { cc: cc.to_owned(), ..options() })?;
    let block = vec![0; BLOCK_BYTES];
    let start = clock::now();
    let until = start + Duration::from_secs(seconds.parse()?);
    while clock::now() < until {
        socket.send(&block)?;
    }
    let (bytes, stats) = (socket.acknowledged(), socket.stats());
    let goodput = DataRate::from_bytes_over(bytes, clock::now().since(start));
    let again = stats.retransmitted_packets;
    println!("goodput {goodput} acknowledged {} retransmitted {again}", bytes.get());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["recv", at] => recv(at),
        ["send", to, cc, seconds] => send(to, cc, seconds),
        _ => Err("usage: memory recv ADDR:PORT | memory send ADDR:PORT CONTROLLER SECONDS".into()),
    }
}
