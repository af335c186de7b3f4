//! Amounts of bytes and positions in an object.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ByteCount(pub u64);

/// A byte position in the object's one offset space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Offset(pub u64);

impl ByteCount {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Offset {
    /// The object's first byte.
    pub const ZERO: Self = Self(0);

    /// The position itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Bytes from `earlier` to here, or zero.
    pub const fn since(self, earlier: Self) -> ByteCount {
        ByteCount(self.0.saturating_sub(earlier.0))
    }
}

impl Add for ByteCount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for ByteCount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl SubAssign for ByteCount {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for ByteCount {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl Add<ByteCount> for Offset {
    type Output = Self;
    fn add(self, n: ByteCount) -> Self {
        Self(self.0.saturating_add(n.0))
    }
}

impl AddAssign<ByteCount> for Offset {
    fn add_assign(&mut self, n: ByteCount) {
        *self = *self + n;
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

impl fmt::Debug for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let n = self.0;
        let Some((unit, name)) = UNITS.into_iter().find(|(unit, _)| n >= *unit) else {
            return write!(f, "{n} B");
        };
        let number = n as f64 / unit as f64;
        // Three digits.
        if number >= 100.0 {
            write!(f, "{number:.0} {name}")
        } else {
            write!(f, "{number:.1} {name}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_saturate() {
        let max = ByteCount(u64::MAX);
        assert_eq!(max + ByteCount(1), max);
        assert_eq!(ByteCount(1) - max, ByteCount::ZERO);
        assert_eq!(Offset(u64::MAX) + ByteCount(1), Offset(u64::MAX));
        assert_eq!(Offset(3).since(Offset(5)), ByteCount::ZERO);
        assert_eq!([max, max].into_iter().sum::<ByteCount>(), max);
        let mut n = ByteCount(5);
        n -= ByteCount(7);
        n += ByteCount(2);
        assert_eq!(n, ByteCount(2));
    }

    #[test]
    fn prints_in_the_unit_that_fits() {
        let text = |n| ByteCount(n).to_string();
        assert_eq!(text(0), "0 B");
        assert_eq!(text(1023), "1023 B");
        assert_eq!(text(1536), "1.5 KiB");
        assert_eq!(text(200 << 20), "200 MiB");
        assert_eq!(text(1 << 30), "1.0 GiB");
        assert_eq!(text(5 << 40), "5.0 TiB");
        assert_eq!(format!("{:?} {:?}", Offset(7), ByteCount(9)), "@7 9B");
    }
}
