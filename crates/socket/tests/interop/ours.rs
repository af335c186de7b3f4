//! This crate's end of a connection, with the same arguments as `stock.cpp`, and the common test
//! pattern.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use packtrain_socket::{EndReason, Error, Kind, Listener, Options, Socket};
use packtrain_units::ByteCount;

/// Word `n` of the pattern.
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn fill(at: u64, out: &mut [u8]) {
    for (at, byte) in (at..).zip(out) {
        *byte = (mixed(at / 8) >> (at % 8 * 8)) as u8;
    }
}

/// Continues a 64-bit FNV-1a digest with further bytes.
fn digest(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, b| (sum ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

/// Output of a receiver that got no close message and waited for its timeout.
pub(crate) const UNTOLD: &str = " untold";

const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

fn size_of_message(n: u64, largest: usize) -> usize {
    1 + (mixed(!n) % largest as u64) as usize
}

/// The messages of a test, or the pieces of the stream.
fn pieces(message: bool, bytes: u64, largest: usize) -> impl Iterator<Item = Vec<u8>> {
    let (mut at, mut n) = (0, 0);
    std::iter::from_fn(move || {
        let size = if message { size_of_message(n, largest) } else { 1 << 16 };
        let mut piece = vec![0; size.min((bytes - at) as usize)];
        fill(at, &mut piece);
        (at, n) = (at + piece.len() as u64, n + 1);
        (!piece.is_empty()).then_some(piece)
    })
}

fn told(bytes: u64, messages: u64, digest: u64) -> String {
    format!("ok bytes={bytes} messages={messages} digest={digest:016x}")
}

/// The expected output of a receiver.
pub(crate) fn expected(message: bool, bytes: u64, largest: usize) -> String {
    let mut sum = if message { 0 } else { EMPTY };
    let mut count = 0;
    for piece in pieces(message, bytes, largest) {
        if message {
            sum = sum.wrapping_add(digest(EMPTY, &piece));
            count += 1;
        } else {
            sum = digest(sum, &piece);
        }
    }
    told(bytes, count, sum)
}

struct Words(HashMap<String, String>);

impl Words {
    fn word(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.0.get(key).map(|text| text.parse().expect("a number"))
    }

    fn address(&self, port: &str) -> SocketAddr {
        let ip = self.0.get("addr").map_or(Ipv4Addr::LOCALHOST, |a| a.parse().expect("an address"));
        (ip, self.number(port).expect("a port") as u16).into()
    }

    fn any(&self, port: &str) -> SocketAddr {
        (Ipv4Addr::UNSPECIFIED, self.number(port).expect("a port") as u16).into()
    }

    fn is_message(&self) -> bool {
        self.word("mode") == "message"
    }

    fn largest(&self) -> usize {
        self.number("message").unwrap_or(20_000) as usize
    }

    fn options(&self) -> Options {
        let defaults = Options::default();
        let bytes = |key, default| self.number(key).map_or(default, ByteCount);
        Options {
            kind: if self.is_message() { Kind::Datagram } else { Kind::Stream },
            mss: bytes("mss", defaults.mss),
            flow_window: self.number("fc").map_or(defaults.flow_window, |n| n as u32),
            send_buffer: bytes("sndbuf", defaults.send_buffer),
            recv_buffer: bytes("rcvbuf", defaults.recv_buffer),
            ..defaults
        }
    }

    fn open(&self) -> Result<Socket, Error> {
        let options = self.options();
        if self.word("how") == "listen" {
            return Ok(Listener::bind(self.any("port"), &options)?.accept()?.0);
        }
        let mut tries = 0;
        loop {
            let called = match self.word("how") {
                "rendezvous" => {
                    Socket::rendezvous(self.any("local"), self.address("port"), &options)
                }
                _ => Socket::connect(self.address("port"), &options),
            };
            tries += 1;
            match called {
                // The other end may not listen yet.
                Err(Error::Connect(_)) if tries < 5 => {}
                done => return done,
            }
        }
    }
}

/// Runs a role; prints one line with the result.
pub(crate) fn run(line: &[String]) {
    let words = line.iter().skip(1).filter_map(|word| word.split_once('='));
    let words = Words(words.map(|(k, v)| (k.to_owned(), v.to_owned())).collect());
    let done = match line[0].as_str() {
        "source" => source(&words),
        _ => sink(&words),
    };
    println!("{}", done.unwrap_or_else(|error| format!("failed: {error}")));
}

fn source(words: &Words) -> Result<String, Error> {
    let (message, bytes) = (words.is_message(), words.number("bytes").unwrap_or(1_000_000));
    let socket = words.open()?;
    let mut count = 0;
    for piece in pieces(message, bytes, words.largest()) {
        if message {
            socket.send_message(&piece, None, false)?;
            count += 1;
        } else {
            socket.send_all(&piece)?;
        }
    }
    socket.close()?;
    Ok(told(bytes, count, 0))
}

fn sink(words: &Words) -> Result<String, Error> {
    let message = words.is_message();
    let mut block = vec![0; if message { words.largest() } else { 1 << 16 }];
    let socket = words.open()?;
    let (mut bytes, mut count, mut sum) = (0, 0, if message { 0 } else { EMPTY });
    let mut end = "";
    loop {
        let got = match message {
            true => socket.recv_message(&mut block),
            false => socket.recv(&mut block).map(|got| Some(got).filter(|got| *got > 0)),
        };
        let got = match got {
            Ok(Some(got)) => got,
            Ok(None) => break,
            Err(Error::Ended(EndReason::Broken(_))) => {
                end = UNTOLD;
                break;
            }
            Err(error) => return Err(error),
        };
        bytes += got as u64;
        if message {
            sum = sum.wrapping_add(digest(EMPTY, &block[..got]));
            count += 1;
        } else {
            sum = digest(sum, &block[..got]);
        }
    }
    Ok(told(bytes, count, sum) + end)
}
