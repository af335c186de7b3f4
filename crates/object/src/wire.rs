//! Bounded reading and writing of the primitive encodings of manifest and journal.

/// Appends `value` as LEB128: seven bits a byte, low ones first.
pub(crate) fn put_uint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number, zigzag-encoded so that small values of either sign are short.
pub(crate) fn put_int(value: i64, out: &mut Vec<u8>) {
    put_uint(((value << 1) ^ (value >> 63)) as u64, out);
}

/// Appends a length and the bytes.
pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_uint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// The unread bytes. Every method returns `None` when the bytes run out or are not in the form that
/// the writer produces; nothing is copied or allocated.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn uint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // Numbers are in their shortest form: no zero byte at the end.
                return (byte != 0 || shift == 0).then_some(value);
            }
        }
        None
    }

    pub(crate) fn uint32(&mut self) -> Option<u32> {
        self.uint()?.try_into().ok()
    }

    pub(crate) fn int(&mut self) -> Option<i64> {
        let folded = self.uint()?;
        Some((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    /// A length of at most `max` and that many bytes.
    pub(crate) fn bytes(&mut self, max: usize) -> Option<&'a [u8]> {
        let n = usize::try_from(self.uint()?).ok().filter(|&n| n <= max)?;
        self.take(n)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_round_trip(a: u64, shift in 0u32..64, b: i64) {
            let mut out = Vec::new();
            put_uint(a >> shift, &mut out);
            put_int(b >> shift, &mut out);
            put_bytes(&a.to_le_bytes(), &mut out);
            let mut reader = Reader(&out);
            prop_assert_eq!(reader.uint(), Some(a >> shift));
            prop_assert_eq!(reader.int(), Some(b >> shift));
            prop_assert_eq!(reader.bytes(8), Some(&a.to_le_bytes()[..]));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn numbers_have_one_spelling(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut reader = Reader(&bytes);
            if let Some(value) = reader.uint() {
                let mut out = Vec::new();
                put_uint(value, &mut out);
                prop_assert_eq!(&out[..], &bytes[..bytes.len() - reader.0.len()]);
            }
        }
    }

    #[test]
    fn too_long_and_too_large_are_refused() {
        assert_eq!(Reader(&[0xff; 10]).uint(), None);
        assert_eq!(Reader(&[0x80, 0x00]).uint(), None);
        assert_eq!(Reader(&[0x80]).uint(), None);
        assert_eq!(Reader(&[5, 1, 2, 3, 4, 5]).bytes(4), None);
        assert_eq!(Reader(&[5, 1, 2, 3, 4]).bytes(5), None);
        let max = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Reader(&max).uint(), Some(u64::MAX));
    }
}
