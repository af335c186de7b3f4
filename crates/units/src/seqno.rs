//! Sequence numbers that wrap.

/// A sequence number modulo 2^31, as UDT's data packets carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SeqNo(u32);

const MODULUS: u32 = 1 << 31;

impl SeqNo {
    /// The number `n` modulo 2^31.
    pub const fn new(n: u32) -> Self {
        Self(n % MODULUS)
    }

    /// The number itself, below 2^31.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// `n` numbers further on, wrapping.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n) % MODULUS)
    }

    /// The signed distance from `earlier` to this number: from -2^30 up to but not including 2^30.
    pub const fn distance_from(self, earlier: Self) -> i32 {
        let forward = self.0.wrapping_sub(earlier.0) % MODULUS;
        // 2^31 itself does not fit i32: subtract it before conversion.
        if forward < MODULUS / 2 { forward as i32 } else { forward.wrapping_sub(MODULUS) as i32 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_wrap_at_two_to_the_31() {
        let last = SeqNo::new(MODULUS - 1);
        assert_eq!(last.plus(1), SeqNo::new(0));
        assert_eq!(SeqNo::new(MODULUS), SeqNo::new(0));
        assert_eq!(SeqNo::new(0).distance_from(last), 1);
        assert_eq!(last.distance_from(SeqNo::new(0)), -1);
        assert_eq!(SeqNo::new(u32::MAX).get(), MODULUS - 1);
        assert_eq!(SeqNo::new(5).plus(u32::MAX), SeqNo::new(4));
    }

    proptest! {
        #[test]
        fn distance_undoes_plus(start: u32, ahead in 0..MODULUS / 2) {
            let start = SeqNo::new(start);
            let end = start.plus(ahead);
            prop_assert!(end.get() < MODULUS);
            prop_assert_eq!(end.distance_from(start), ahead as i32);
            prop_assert_eq!(start.distance_from(end), -(ahead as i32));
        }

        #[test]
        fn steps_add_up(start: u32, a: u32, b: u32) {
            let start = SeqNo::new(start);
            let sum = (u64::from(a) + u64::from(b)) % u64::from(MODULUS);
            prop_assert_eq!(start.plus(a).plus(b), start.plus(sum as u32));
        }

        #[test]
        fn every_distance_leads_there(a: u32, b: u32) {
            let (a, b) = (SeqNo::new(a), SeqNo::new(b));
            let step = i64::from(a.distance_from(b)).rem_euclid(i64::from(MODULUS)) as u32;
            prop_assert_eq!(b.plus(step), a);
        }
    }
}
