//! The handshake (type 0): twelve words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packtrain_units::SeqNo;

use super::WireError;
use crate::options::Kind;

/// Bytes of its body; the stock library accepts no other size.
pub(crate) const HANDSHAKE_BYTES: usize = 48;

/// The version of the stock protocol.
pub(crate) const VERSION: u32 = 4;

/// The request or answer of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// 1: a client requests, or a server sends, a cookie.
    Induction,
    /// -1: a client calls with its cookie, or a server has accepted; in a rendezvous: the sender
    /// knows the peer's socket.
    Conclusion,
    /// 0: a rendezvous call.
    Rendezvous,
    /// -2: a rendezvous is agreed.
    Agreement,
    /// 1000 and above: rejected.
    Reject(i32),
    /// Anything else.
    Other(i32),
}

impl From<i32> for Request {
    fn from(code: i32) -> Self {
        match code {
            1 => Self::Induction,
            0 => Self::Rendezvous,
            -1 => Self::Conclusion,
            -2 => Self::Agreement,
            1000.. => Self::Reject(code),
            _ => Self::Other(code),
        }
    }
}

impl From<Request> for i32 {
    fn from(request: Request) -> Self {
        match request {
            Request::Induction => 1,
            Request::Rendezvous => 0,
            Request::Conclusion => -1,
            Request::Agreement => -2,
            Request::Reject(code) | Request::Other(code) => code,
        }
    }
}

/// The code of a rejection for a different version or kind.
pub(crate) const REJECT_MISMATCH: i32 = 1002;

/// A handshake's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Protocol version, 4; repeated handshakes may have 0.
    pub version: u32,
    /// 1 is a stream, 2 messages; see [`Handshake::kind`].
    pub kind_code: u32,
    /// First sequence number of the sender's data; a server repeats its client's.
    pub isn: SeqNo,
    /// Largest IP packet.
    pub mss: u32,
    /// Maximum unacknowledged packets that its sender accepts.
    pub flow_window: u32,
    /// The request or answer.
    pub request: Request,
    /// The socket id of the sender; in an answer to an induction that of the client.
    pub socket: u32,
    /// Proof that the client receives at its address.
    pub cookie: u32,
    /// The address of its destination.
    pub peer: IpAddr,
}

impl Handshake {
    /// Stream or messages, if the code is known.
    pub fn kind(&self) -> Option<Kind> {
        match self.kind_code {
            1 => Some(Kind::Stream),
            2 => Some(Kind::Datagram),
            _ => None,
        }
    }

    /// The code of a kind.
    pub fn code_of(kind: Kind) -> u32 {
        match kind {
            Kind::Stream => 1,
            Kind::Datagram => 2,
        }
    }

    /// Parses a body.
    ///
    /// # Errors
    /// The body does not have 48 bytes, or a sequence number has more than 31 bits.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let (words, []) = body.as_chunks::<4>() else { return Err(WireError::Length) };
        let words: [[u8; 4]; 12] = words.try_into().map_err(|_| WireError::Length)?;
        let word = |i: usize| u32::from_be_bytes(words[i]);
        if word(2) >> 31 != 0 {
            return Err(WireError::Value);
        }
        Ok(Self {
            version: word(0),
            kind_code: word(1),
            isn: SeqNo::new(word(2)),
            mss: word(3),
            flow_window: word(4),
            request: Request::from(word(5) as i32),
            socket: word(6),
            cookie: word(7),
            peer: read_address([words[8], words[9], words[10], words[11]]),
        })
    }

    /// The body's bytes.
    pub fn bytes(&self) -> [u8; HANDSHAKE_BYTES] {
        let mut out = [0; HANDSHAKE_BYTES];
        let head = [
            self.version,
            self.kind_code,
            self.isn.get(),
            self.mss,
            self.flow_window,
            i32::from(self.request) as u32,
            self.socket,
            self.cookie,
        ];
        let (words, _) = out.as_chunks_mut::<4>();
        for (out, word) in words.iter_mut().zip(head) {
            *out = word.to_be_bytes();
        }
        for (out, word) in words[8..].iter_mut().zip(write_address(self.peer)) {
            *out = word;
        }
        out
    }
}

// The stock library stores an address in memory in network order, and then swaps each word like a
// number: on little-endian machines the four bytes are reversed.

fn read_address(mut words: [[u8; 4]; 4]) -> IpAddr {
    words.iter_mut().for_each(|word| word.reverse());
    if words[1..] == [[0; 4]; 3] {
        return IpAddr::V4(Ipv4Addr::from(words[0]));
    }
    let mut all = [0; 16];
    all.as_chunks_mut::<4>().0.copy_from_slice(&words);
    IpAddr::V6(Ipv6Addr::from(all))
}

fn write_address(address: IpAddr) -> [[u8; 4]; 4] {
    let mut words = [[0; 4]; 4];
    match address {
        IpAddr::V4(address) => words[0] = address.octets(),
        IpAddr::V6(address) => words.copy_from_slice(address.octets().as_chunks::<4>().0),
    }
    words.iter_mut().for_each(|word| word.reverse());
    words
}
