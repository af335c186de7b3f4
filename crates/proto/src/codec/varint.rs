//! Integers of variable length (RFC 9000 section 16), and a reader that never panics.

/// The largest encodable value.
pub(crate) const MAX: u64 = (1 << 62) - 1;

/// Appends `value`, which is cut to 2^62 - 1.
pub(crate) fn put(out: &mut Vec<u8>, value: u64) {
    let value = value.min(MAX);
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => {
            out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes());
        }
        _ => out.extend_from_slice(&(value | 0xC000_0000_0000_0000).to_be_bytes()),
    }
}

/// Number of bytes that `put` appends.
pub(crate) const fn len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Takes values off the front of a slice; `None` once it is too short.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn fixed(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*head))
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let first = *self.0.first()?;
        let size = 1usize << (first >> 6);
        let bytes = self.take(size)?;
        let mut value = u64::from(first & 0x3f);
        for byte in &bytes[1..] {
            value = value << 8 | u64::from(*byte);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_rfc_9000() {
        let mut out = Vec::new();
        for value in [151_288_809_941_952_652, 494_878_333, 15_293, 37] {
            put(&mut out, value);
        }
        let golden = [
            0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c, 0x9d, 0x7f, 0x3e, 0x7d, 0x7b, 0xbd,
            0x25,
        ];
        assert_eq!(out, golden);
    }

    proptest! {
        #[test]
        fn what_is_put_is_read(value in 0..=MAX) {
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(out.len(), len(value));
            let mut reader = Reader(&out);
            prop_assert_eq!(reader.varint(), Some(value));
            prop_assert!(reader.is_empty());
        }
    }
}
