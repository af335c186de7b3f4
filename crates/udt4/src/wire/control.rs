//! Control packets and their bodies.

use packtrain_units::SeqNo;

use super::{HEADER_BYTES, Handshake, Packet, WireError};

const HANDSHAKE: u16 = 0;
const KEEPALIVE: u16 = 1;
const ACK: u16 = 2;
const NAK: u16 = 3;
const WARNING: u16 = 4;
const SHUTDOWN: u16 = 5;
const ACK2: u16 = 6;
const DROP: u16 = 7;
const ERROR: u16 = 8;
const USER: u16 = 0x7fff;

/// The body of packets without one: the stock library cannot send an empty body.
const PAD: [u8; 4] = [0; 4];

const RANGE_BIT: u32 = 1 << 31;

/// A decoded control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// Type 0.
    Handshake(Handshake),
    /// Type 1.
    KeepAlive,
    /// Type 2.
    Ack(Ack),
    /// Type 3: missing packets.
    Nak(NakRanges<'a>),
    /// Type 4: the delay rises.
    Warning,
    /// Type 5.
    Shutdown,
    /// Type 6: the acknowledgement of this number arrived.
    Ack2 {
        /// The acknowledgement's number.
        number: u32,
    },
    /// Type 7: these packets will not be sent again.
    Drop {
        /// The message they belong to.
        message: u32,
        /// The first of them.
        first: SeqNo,
        /// The last of them; the stock library sends the number after it.
        last: SeqNo,
    },
    /// Type 8: the peer's application failed.
    Error {
        /// Its code.
        code: u32,
    },
    /// Type 0x7fff: user-defined.
    User {
        /// The user's type.
        kind: u16,
        /// The information word.
        info: u32,
        /// The body.
        body: &'a [u8],
    },
}

/// An acknowledgement: all packets before `next` arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Its number, which the ACK2 repeats; a light one (a body of 4 bytes) has 0 and no ACK2.
    pub number: u32,
    /// The first sequence number that has not arrived.
    pub next: SeqNo,
    /// The additional fields of a full acknowledgement.
    pub detail: Option<AckDetail>,
}

/// The measurements of a full acknowledgement (16 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckDetail {
    /// Round trip in microseconds.
    pub rtt_us: u32,
    /// Its mean deviation in microseconds.
    pub rtt_var_us: u32,
    /// Packets that fit in the receive buffer.
    pub room: u32,
    /// In at most one acknowledgement per 10 ms (24 bytes).
    pub rates: Option<Rates>,
}

impl AckDetail {
    /// The detail of a light acknowledgement.
    pub(crate) const NONE: Self = Self { rtt_us: 0, rtt_var_us: 0, room: 0, rates: None };
    /// The rates of an acknowledgement without rates.
    pub(crate) const NO_RATES: Rates = Rates { arrival: 0, capacity: 0 };
}

/// The receiver's estimates, zero while unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Arrival rate in packets per second.
    pub arrival: u32,
    /// Capacity of the path in packets per second.
    pub capacity: u32,
}

/// The checked body of a loss report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NakRanges<'a>(&'a [u8]);

impl<'a> NakRanges<'a> {
    /// Checks that each range has an end that is not before its start.
    fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let (words, []) = body.as_chunks::<4>() else { return Err(WireError::Length) };
        let mut words = words.iter().map(|word| u32::from_be_bytes(*word));
        if body.is_empty() {
            return Err(WireError::Length);
        }
        while let Some(word) = words.next() {
            if word & RANGE_BIT != 0 {
                let last = words.next().ok_or(WireError::Length)?;
                let span = SeqNo::new(last).distance_from(SeqNo::new(word));
                if last & RANGE_BIT != 0 || span < 0 {
                    return Err(WireError::Value);
                }
            }
        }
        Ok(Self(body))
    }

    /// The ranges, first and last.
    pub fn iter(&self) -> Ranges<'a> {
        Ranges(self.0.as_chunks::<4>().0.iter())
    }
}

/// Iterator of [`NakRanges`].
#[derive(Clone, Debug)]
pub struct Ranges<'a>(std::slice::Iter<'a, [u8; 4]>);

impl Iterator for Ranges<'_> {
    type Item = (SeqNo, SeqNo);

    fn next(&mut self) -> Option<Self::Item> {
        let first = u32::from_be_bytes(*self.0.next()?);
        let mut last = first;
        if first & RANGE_BIT != 0 {
            last = u32::from_be_bytes(*self.0.next()?);
        }
        Some((SeqNo::new(first), SeqNo::new(last)))
    }
}

/// Writes as many ranges (first and last) as fit into `out`; returns the bytes written and the
/// number of ranges taken.
pub(crate) fn write_ranges(ranges: &[(SeqNo, SeqNo)], out: &mut [u8]) -> (usize, usize) {
    let (mut len, mut taken) = (0, 0);
    for (first, last) in ranges {
        let single = first == last;
        let need = if single { 4 } else { 8 };
        let Some(room) = out.get_mut(len..len + need) else { break };
        if single {
            room.copy_from_slice(&first.get().to_be_bytes());
        } else {
            room[..4].copy_from_slice(&(RANGE_BIT | first.get()).to_be_bytes());
            room[4..].copy_from_slice(&last.get().to_be_bytes());
        }
        len += need;
        taken += 1;
    }
    (len, taken)
}

impl<'a> Control<'a> {
    /// Parses a control packet.
    ///
    /// # Errors
    /// An unknown type, a body of invalid length, or a value out of range.
    pub fn parse<T: AsRef<[u8]>>(packet: &'a Packet<T>) -> Result<Self, WireError> {
        let (kind, extension) = packet.kind();
        let (info, body) = (packet.info(), packet.body());
        Ok(match kind {
            HANDSHAKE => Self::Handshake(Handshake::parse(body)?),
            KEEPALIVE => Self::KeepAlive,
            ACK => Self::Ack(Ack::parse(info, body)?),
            NAK => Self::Nak(NakRanges::parse(body)?),
            WARNING => Self::Warning,
            SHUTDOWN => Self::Shutdown,
            ACK2 => Self::Ack2 { number: info },
            DROP => {
                let [first, last] = words(body)?;
                Self::Drop { message: info, first: number(first)?, last: number(last)? }
            }
            ERROR => Self::Error { code: info },
            USER => Self::User { kind: extension, info, body },
            other => return Err(WireError::Type(other)),
        })
    }

    /// Writes it for the socket `destination`; returns its length, or `None` if `out` is too small.
    pub fn write(&self, destination: u32, out: &mut [u8]) -> Option<usize> {
        let len = HEADER_BYTES + self.write_body(out.get_mut(HEADER_BYTES..)?)?;
        let (kind, info) = match *self {
            Self::Handshake(_) => ((HANDSHAKE, 0), 0),
            Self::KeepAlive => ((KEEPALIVE, 0), 0),
            Self::Ack(ack) => ((ACK, 0), ack.number),
            Self::Nak(_) => ((NAK, 0), 0),
            Self::Warning => ((WARNING, 0), 0),
            Self::Shutdown => ((SHUTDOWN, 0), 0),
            Self::Ack2 { number } => ((ACK2, 0), number),
            Self::Drop { message, .. } => ((DROP, 0), message),
            Self::Error { code } => ((ERROR, 0), code),
            Self::User { kind, info, .. } => ((USER, kind), info),
        };
        // The stock library's control packets carry no time stamp either.
        Packet::new_checked(&mut out[..len]).ok()?.set_control(kind, info, 0, destination);
        Some(len)
    }

    fn write_body(&self, out: &mut [u8]) -> Option<usize> {
        match self {
            Self::Handshake(handshake) => put(out, &handshake.bytes()),
            Self::Ack(ack) => ack.write(out),
            Self::Nak(NakRanges(body)) | Self::User { body, .. } => put(out, body),
            Self::Drop { first, last, .. } => {
                let mut body = [0; 8];
                body[..4].copy_from_slice(&first.get().to_be_bytes());
                body[4..].copy_from_slice(&last.get().to_be_bytes());
                put(out, &body)
            }
            _ => put(out, &PAD),
        }
    }

    /// Writes a loss report of as many `ranges` (first and last) as fit into `out`; returns its
    /// length and the number of ranges.
    pub fn write_nak(
        ranges: &[(SeqNo, SeqNo)],
        destination: u32,
        out: &mut [u8],
    ) -> Option<(usize, usize)> {
        let (len, taken) = write_ranges(ranges, out.get_mut(HEADER_BYTES..)?);
        let whole = &mut out[..HEADER_BYTES + len];
        Packet::new_checked(whole).ok()?.set_control((NAK, 0), 0, 0, destination);
        (taken > 0).then_some((HEADER_BYTES + len, taken))
    }
}

impl Ack {
    fn parse(number: u32, body: &[u8]) -> Result<Self, WireError> {
        let next = self::number(first_word(body)?)?;
        let detail = match body.len() {
            4 => None,
            16 => {
                let [_, rtt_us, rtt_var_us, room] = words(body)?;
                Some(AckDetail { rtt_us, rtt_var_us, room, rates: None })
            }
            24 => {
                let [_, rtt_us, rtt_var_us, room, arrival, capacity] = words(body)?;
                let rates = Some(Rates { arrival, capacity });
                Some(AckDetail { rtt_us, rtt_var_us, room, rates })
            }
            _ => return Err(WireError::Length),
        };
        Ok(Self { number, next, detail })
    }

    fn write(&self, out: &mut [u8]) -> Option<usize> {
        let mut body = [self.next.get(), 0, 0, 0, 0, 0];
        let mut count = 1;
        if let Some(detail) = self.detail {
            body[1..4].copy_from_slice(&[detail.rtt_us, detail.rtt_var_us, detail.room]);
            count = 4;
            if let Some(rates) = detail.rates {
                body[4..].copy_from_slice(&[rates.arrival, rates.capacity]);
                count = 6;
            }
        }
        let (out, _) = out.get_mut(..count * 4)?.as_chunks_mut::<4>();
        for (out, word) in out.iter_mut().zip(body) {
            *out = word.to_be_bytes();
        }
        Some(count * 4)
    }
}

fn put(out: &mut [u8], bytes: &[u8]) -> Option<usize> {
    out.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(bytes.len())
}

fn words<const N: usize>(body: &[u8]) -> Result<[u32; N], WireError> {
    let (words, []) = body.as_chunks::<4>() else { return Err(WireError::Length) };
    let words: [[u8; 4]; N] = words.try_into().map_err(|_| WireError::Length)?;
    Ok(words.map(u32::from_be_bytes))
}

fn first_word(body: &[u8]) -> Result<u32, WireError> {
    body.first_chunk::<4>().map(|word| u32::from_be_bytes(*word)).ok_or(WireError::Short)
}

/// A sequence number: 31 bits.
fn number(word: u32) -> Result<SeqNo, WireError> {
    if word >> 31 != 0 { Err(WireError::Value) } else { Ok(SeqNo::new(word)) }
}
