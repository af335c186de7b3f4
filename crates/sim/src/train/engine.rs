//! Packets of engines.

use packtrain_proto::bare::BarePacket;
use packtrain_units::ByteCount;

/// Overhead of a segment: IPv4, TCP with timestamps, and a TLS record.
pub(crate) const HEADERS: u64 = 20 + 32 + 22;

/// The datagrams of a train, equal in size.
#[derive(Debug)]
pub(crate) enum EngineBody {
    /// Without a codec.
    Bare(BarePacket),
    /// With the codec: their bytes, and the size of each.
    Sealed(Vec<u8>, usize),
    /// Not a datagram: a segment of the reliable channel.
    Channel(Segment),
}

impl EngineBody {
    /// Splits off and returns the datagrams from `at` on.
    pub(crate) fn split_off(&mut self, at: u32) -> Self {
        match self {
            Self::Bare(BarePacket::Train(train)) => {
                Self::Bare(BarePacket::Train(train.split_off(at)))
            }
            Self::Bare(control) => Self::Bare(control.clone()),
            Self::Channel(segment) => Self::Channel(segment.clone()),
            Self::Sealed(bytes, stride) => {
                Self::Sealed(bytes.split_off(at as usize * *stride), *stride)
            }
        }
    }

    /// A copy, for duplication by a link.
    pub(crate) fn duplicate(&self) -> Self {
        match self {
            Self::Bare(packet) => Self::Bare(packet.clone()),
            Self::Sealed(bytes, stride) => Self::Sealed(bytes.clone(), *stride),
            Self::Channel(segment) => Self::Channel(segment.clone()),
        }
    }
}

/// A segment of the channel.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Position of its bytes in the stream.
    pub(crate) at: u64,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// All bytes of the other direction below this have arrived.
    pub(crate) acked: u64,
}

impl Segment {
    /// Bytes from the network header on.
    pub(crate) fn size(&self) -> ByteCount {
        ByteCount(self.bytes.len() as u64 + HEADERS)
    }
}
