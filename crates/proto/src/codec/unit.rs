//! The number of a data unit, in front of the sealed payload: 31 low bits, and above them a bit for
//! "sent right behind the unit before it".

use crate::codec::header::{UNIT, nearest};

/// Bits of the number that are sent.
const BITS: u32 = 31;
const JOINED: u32 = 1 << BITS;

/// Data units with consecutive numbers, as encoded in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Number of the first.
    pub(crate) first: u64,
    /// Whether the first unit is sent right behind the unit before it. All others are.
    pub(crate) joined: bool,
}

impl Unit {
    /// The units from the `i`th on.
    pub(crate) fn from(self, i: u32) -> Self {
        Self { first: self.first + u64::from(i), joined: self.joined || i > 0 }
    }
}

/// The bytes of one unit.
pub(crate) fn write(unit: Unit) -> [u8; UNIT] {
    let low = unit.first as u32 & !JOINED;
    (low | if unit.joined { JOINED } else { 0 }).to_be_bytes()
}

/// The unit nearest to `expected` with these bytes, and the remaining bytes.
pub(crate) fn split(text: &[u8], expected: u64) -> Option<(Unit, &[u8])> {
    let (head, rest) = text.split_first_chunk::<UNIT>()?;
    let head = u32::from_be_bytes(*head);
    let first = nearest(head & !JOINED, BITS, expected);
    Some((Unit { first, joined: head & JOINED != 0 }, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn golden_units() {
        let unit = |first, joined| write(Unit { first, joined });
        assert_eq!(unit(0x1_2345_6789, false), [0x23, 0x45, 0x67, 0x89]);
        assert_eq!(unit(0x1_2345_6789, true), [0xa3, 0x45, 0x67, 0x89]);
        assert_eq!(unit((1 << 31) + 5, false), [0, 0, 0, 5]);
        assert_eq!(split(&[0, 0, 1], 0), None);
    }

    proptest! {
        #[test]
        fn near_units_are_read(
            expected in 0u64..1 << 60, ahead in -(1i64 << 29)..1 << 29, joined in any::<bool>()
        ) {
            let unit = Unit { first: expected.saturating_add_signed(ahead), joined };
            let text = [&write(unit)[..], b"rest"].concat();
            prop_assert_eq!(split(&text, expected), Some((unit, &b"rest"[..])));
        }
    }
}
