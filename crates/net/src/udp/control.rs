//! Control messages of a datagram (`cmsg(3)`), read and written as bytes.

#![cfg(target_os = "linux")]

use libc::c_int;

/// Space for all control messages of the enabled options: four of up to 32 bytes each, with a
/// margin.
const ROOM: usize = 256;
const WORD: usize = size_of::<usize>();
const HEADER: usize = WORD + 2 * size_of::<c_int>();

/// A buffer of control messages, aligned as `cmsghdr` must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control([u8; ROOM]);

impl Control {
    pub(super) const fn new() -> Self {
        Self([0; ROOM])
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Appends a message at `used`; returns the new end.
    pub(super) fn push(&mut self, used: usize, level: c_int, kind: c_int, data: &[u8]) -> usize {
        let end = used + HEADER + data.len().next_multiple_of(WORD);
        assert!(end <= ROOM, "control messages fit their buffer");
        let len = (HEADER + data.len()).to_ne_bytes();
        self.0[used..used + WORD].copy_from_slice(&len);
        self.0[used + WORD..used + WORD + 4].copy_from_slice(&level.to_ne_bytes());
        self.0[used + WORD + 4..used + HEADER].copy_from_slice(&kind.to_ne_bytes());
        self.0[used + HEADER..used + HEADER + data.len()].copy_from_slice(data);
        end
    }

    /// The messages in the first `used` bytes: level, type, data.
    pub(super) fn messages(&self, used: usize) -> Messages<'_> {
        Messages { rest: &self.0[..used.min(ROOM)] }
    }
}

/// Iterates over control messages; stops at the first that does not fit.
pub(super) struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = (c_int, c_int, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.rest.get(..HEADER)?;
        let len = usize::from_ne_bytes(header[..WORD].try_into().ok()?);
        let level = c_int::from_ne_bytes(header[WORD..WORD + 4].try_into().ok()?);
        let kind = c_int::from_ne_bytes(header[WORD + 4..].try_into().ok()?);
        let data = self.rest.get(HEADER..len)?;
        self.rest = self.rest.get(len.next_multiple_of(WORD)..).unwrap_or_default();
        Some((level, kind, data))
    }
}

/// The `c_int` at the start of `data`.
pub(super) fn int(data: &[u8]) -> Option<c_int> {
    Some(c_int::from_ne_bytes(data.get(..4)?.try_into().ok()?))
}

/// The two words of a `timespec` at the start of `data`: seconds and nanoseconds.
pub(super) fn timespec(data: &[u8]) -> Option<(i64, i64)> {
    let seconds = isize::from_ne_bytes(data.get(..WORD)?.try_into().ok()?);
    let nanos = isize::from_ne_bytes(data.get(WORD..2 * WORD)?.try_into().ok()?);
    Some((seconds as i64, nanos as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_pushed_is_read(
            list in prop::collection::vec((0..300, 0..300, prop::collection::vec(any::<u8>(), 0..20)), 0..5)
        ) {
            let mut control = Control::new();
            let used = list.iter().fold(0, |used, (l, k, data)| control.push(used, *l, *k, data));
            let read: Vec<_> =
                control.messages(used).map(|(l, k, data)| (l, k, data.to_vec())).collect();
            prop_assert_eq!(read, list);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), ROOM), used in 0..600usize) {
            let mut control = Control::new();
            control.bytes_mut().copy_from_slice(&bytes);
            prop_assert!(control.messages(used).count() <= ROOM / HEADER);
        }
    }

    #[test]
    fn layout_is_that_of_the_c_library() {
        assert_eq!(HEADER, size_of::<libc::cmsghdr>());
    }
}
