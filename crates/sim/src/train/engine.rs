//! What engines send.

use packtrain_proto::bare::BarePacket;
use packtrain_units::ByteCount;

/// What a segment costs beside its bytes: IPv4, TCP with timestamps, and a record of TLS.
pub(crate) const HEADERS: u64 = 20 + 32 + 22;

/// The datagrams of a train, equal in size.
#[derive(Debug)]
pub(crate) enum EngineBody {
    /// As the core means them.
    Bare(BarePacket),
    /// As the codec writes them: their bytes, and of how many each.
    Sealed(Vec<u8>, usize),
    /// Not a datagram: a segment of the channel that loses nothing.
    Channel(Segment),
}

impl EngineBody {
    /// Cuts off and returns the datagrams from `at` on.
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

    /// A second copy, for duplication on the way.
    pub(crate) fn duplicate(&self) -> Self {
        match self {
            Self::Bare(packet) => Self::Bare(packet.clone()),
            Self::Sealed(bytes, stride) => Self::Sealed(bytes.clone(), *stride),
            Self::Channel(segment) => Self::Channel(segment.clone()),
        }
    }
}

/// A segment on its way.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Where in the stream its bytes are.
    pub(crate) at: u64,
    /// They.
    pub(crate) bytes: Vec<u8>,
    /// All below has come the other way.
    pub(crate) acked: u64,
}

impl Segment {
    /// Bytes from the network header on.
    pub(crate) fn size(&self) -> ByteCount {
        ByteCount(self.bytes.len() as u64 + HEADERS)
    }
}
