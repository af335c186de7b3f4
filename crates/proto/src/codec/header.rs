//! The clear header of a packet.

/// Bytes of a control packet before its frames.
pub(crate) const CONTROL_HEAD: usize = 9;
/// Bytes of a data packet before its payload.
pub(crate) const DATA_HEAD: usize = 17;
/// Bytes of the authentication tag.
pub(crate) const TAG: usize = 16;
/// Bytes of a data packet beside its payload.
pub(crate) const DATA_OVERHEAD: usize = DATA_HEAD + TAG;

/// Bytes of a data unit's number, which is sealed in front of its payload.
pub(crate) const UNIT: usize = 4;
/// Bytes of a data packet with a unit beside its payload.
pub(crate) const UNIT_OVERHEAD: usize = DATA_OVERHEAD + UNIT;

const KIND_DATA: u8 = 1;
const KIND_CONTROL: u8 = 2;
const KIND_UNIT: u8 = 3;

/// A packet's clear header as encoded on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) lane: u8,
    pub(crate) flow_id: u32,
    pub(crate) low: u32,
    /// Present in data packets.
    pub(crate) offset: Option<u64>,
    /// Whether the sealed part of a data packet begins with a unit number.
    pub(crate) unit: bool,
}

impl Header {
    /// Parses a header and returns its length; `None` for a datagram too short for its kind and a
    /// tag, or of an unknown kind.
    pub(crate) fn parse(datagram: &[u8]) -> Option<(Self, usize)> {
        let head = datagram.first_chunk::<CONTROL_HEAD>()?;
        let lane = head[0] >> 4;
        let flow_id = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let low = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let (offset, size) = match head[0] & 0x0f {
            KIND_DATA | KIND_UNIT => {
                let offset = datagram[CONTROL_HEAD..].first_chunk::<8>()?;
                (Some(u64::from_be_bytes(*offset)), DATA_HEAD)
            }
            KIND_CONTROL => (None, CONTROL_HEAD),
            _ => return None,
        };
        let unit = head[0] & 0x0f == KIND_UNIT;
        let min = size + TAG + if unit { UNIT } else { 0 };
        let header = Self { lane, flow_id, low, offset, unit };
        (datagram.len() >= min).then_some((header, size))
    }

    /// Writes the header to the front of `out` and returns its length.
    pub(crate) fn write(&self, out: &mut [u8]) -> usize {
        let kind = match (self.offset, self.unit) {
            (None, _) => KIND_CONTROL,
            (Some(_), false) => KIND_DATA,
            (Some(_), true) => KIND_UNIT,
        };
        out[0] = kind | self.lane << 4;
        out[1..5].copy_from_slice(&self.flow_id.to_be_bytes());
        out[5..9].copy_from_slice(&self.low.to_be_bytes());
        match self.offset {
            Some(offset) => {
                out[CONTROL_HEAD..DATA_HEAD].copy_from_slice(&offset.to_be_bytes());
                DATA_HEAD
            }
            None => CONTROL_HEAD,
        }
    }
}

/// The flow and the lane in a datagram's clear header, not yet authenticated, for a socket that
/// serves several flows. `None` if the datagram is too short for a packet.
pub fn peek(datagram: &[u8]) -> Option<(u32, u8)> {
    Header::parse(datagram).map(|(header, _)| (header.flow_id, header.lane))
}

/// The full packet number whose low 32 bits are `low` and which is nearest to `expected`.
pub(crate) fn expand(low: u32, expected: u64) -> u64 {
    nearest(low, u32::BITS, expected)
}

/// The number whose low `bits` are `low` and which is nearest to `expected` (RFC 9000 appendix
/// A.3).
pub(super) fn nearest(low: u32, bits: u32, expected: u64) -> u64 {
    let window = 1 << bits;
    let candidate = expected & !(window - 1) | u64::from(low);
    if candidate + window / 2 <= expected {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn golden_data_header() {
        let mut out = [0; DATA_HEAD];
        let header = Header {
            lane: 3,
            flow_id: 0x0102_0304,
            low: 0xa0b0_c0d0,
            offset: Some(0x1122_3344),
            unit: false,
        };
        assert_eq!(header.write(&mut out), DATA_HEAD);
        let golden = [0x31, 1, 2, 3, 4, 0xa0, 0xb0, 0xc0, 0xd0, 0, 0, 0, 0, 0x11, 0x22, 0x33, 0x44];
        assert_eq!(out, golden);
        Header { unit: true, ..header }.write(&mut out);
        assert_eq!(out[0], 0x33);
    }

    proptest! {
        #[test]
        fn near_numbers_expand(expected in 0u64..1 << 60, ahead in -(1i64 << 30)..1 << 30) {
            let pn = expected.saturating_add_signed(ahead);
            prop_assert_eq!(expand(pn as u32, expected), pn);
        }

        #[test]
        fn any_bytes_parse_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some((header, size)) = Header::parse(&bytes) {
                let mut out = [0; DATA_HEAD];
                prop_assert_eq!(header.write(&mut out), size);
                prop_assert_eq!(&out[..size], &bytes[..size]);
            }
        }
    }
}
