//! Collects the acknowledgements of any protocol into signatures.

use std::ops::Range;

use thiserror::Error;

use crate::Signature;

/// A window of consecutively numbered packets, filled from acknowledgements.
///
/// Numbers may be packet numbers, sequence numbers unwrapped to 64 bits, or indices; they must be
/// dense and in the order of sending. A packet may be reported more than once and in any order; one
/// that was declared lost and arrives later counts as received.
///
/// ```
/// use packtrain_loss::Window;
///
/// let mut window = Window::new(100, 8)?;
/// window.on_received(100..103);
/// window.on_lost(103..105);
/// window.on_received(105..108);
/// assert!(window.is_complete());
/// assert_eq!(window.finish().to_string(), "11100111");
/// # Ok::<(), packtrain_loss::WindowError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Window {
    first: u64,
    packets: usize,
    received: Vec<u64>,
    known: Vec<u64>,
    decided: usize,
    /// One past the last reported packet, relative to `first`.
    end: usize,
}

/// Why a window is invalid.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WindowError {
    /// No packets, or more than a signature can hold.
    #[error("a window has 1 to {most} packets, not {0}", most = Signature::MAX_PACKETS)]
    Length(usize),
    /// The numbers would exceed 64 bits.
    #[error("a window of {1} packets from {0} leaves 64 bits")]
    Wraps(u64, usize),
}

impl Window {
    /// The window of `packets` packets whose first has the number `first`.
    ///
    /// # Errors
    /// The length is 0 or more than [`Signature::MAX_PACKETS`], or the numbers would wrap.
    pub fn new(first: u64, packets: usize) -> Result<Self, WindowError> {
        if packets == 0 || packets > Signature::MAX_PACKETS {
            return Err(WindowError::Length(packets));
        }
        if first.checked_add(packets as u64).is_none() {
            return Err(WindowError::Wraps(first, packets));
        }
        let words = packets.div_ceil(64);
        let (received, known) = (vec![0; words], vec![0; words]);
        Ok(Self { first, packets, received, known, decided: 0, end: 0 })
    }

    /// Numbers of the window's packets.
    pub fn range(&self) -> Range<u64> {
        self.first..self.first + self.packets as u64
    }

    /// These packets arrived. Numbers outside the window are ignored.
    pub fn on_received(&mut self, packets: Range<u64>) {
        let Some(range) = self.inside(packets) else { return };
        self.mark(range.clone());
        for_words(range, |word, mask| self.received[word] |= mask);
    }

    /// These packets were declared lost. Those that arrived stay received.
    pub fn on_lost(&mut self, packets: Range<u64>) {
        let Some(range) = self.inside(packets) else { return };
        self.mark(range);
    }

    /// Packets reported so far, received or lost.
    pub fn decided(&self) -> usize {
        self.decided
    }

    /// Whether every packet was reported.
    pub fn is_complete(&self) -> bool {
        self.decided == self.packets
    }

    /// The signature up to the last reported packet; packets before it without a report count as
    /// lost.
    pub fn finish(self) -> Signature {
        Signature::from_words(self.received, self.end).expect("the bitmap has all packets")
    }

    /// The same; replaces this window with the next one.
    pub fn finish_and_advance(&mut self) -> Signature {
        let first = self.range().end;
        let next = Self::new(first, self.packets).or_else(|_| Self::new(0, self.packets));
        let next = next.expect("the length did not change");
        std::mem::replace(self, next).finish()
    }

    fn inside(&self, packets: Range<u64>) -> Option<Range<usize>> {
        let own = self.range();
        let (start, end) = (packets.start.max(own.start), packets.end.min(own.end));
        (start < end).then(|| (start - self.first) as usize..(end - self.first) as usize)
    }

    fn mark(&mut self, range: Range<usize>) {
        self.end = self.end.max(range.end);
        for_words(range, |word, mask| {
            self.decided += (mask & !self.known[word]).count_ones() as usize;
            self.known[word] |= mask;
        });
    }
}

/// Calls `visit` for each word of a bitmap that `range` touches, with the bits of the range in it.
fn for_words(range: Range<usize>, mut visit: impl FnMut(usize, u64)) {
    let mut at = range.start;
    while at < range.end {
        let bits = (64 - at % 64).min(range.end - at);
        let ones = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        visit(at / 64, ones << (at % 64));
        at += bits;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn silence_is_loss_and_the_end_is_what_was_heard_of() {
        let mut window = Window::new(10, 100).expect("a window");
        window.on_received(5..12);
        window.on_received(14..15);
        window.on_lost(15..16);
        assert_eq!((window.decided(), window.is_complete()), (4, false));
        assert_eq!(window.finish_and_advance().to_string(), "110010");
        assert_eq!(window.range(), 110..210);
    }

    #[test]
    fn what_arrives_late_was_not_lost() {
        let mut window = Window::new(0, 3).expect("a window");
        window.on_lost(0..3);
        window.on_received(1..2);
        window.on_lost(1..2);
        assert_eq!(window.finish().to_string(), "010");
    }

    #[test]
    fn impossible_windows_are_refused() {
        assert!(Window::new(0, 0).is_err());
        assert!(Window::new(0, Signature::MAX_PACKETS + 1).is_err());
        assert!(Window::new(u64::MAX, 2).is_err());
        let mut last = Window::new(u64::MAX - 4, 4).expect("just fits");
        last.on_received(0..u64::MAX);
        assert_eq!(last.finish_and_advance().len(), 4);
        assert_eq!(last.range(), 0..4);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn any_order_gives_the_same_signature(
            bits in prop::collection::vec(any::<bool>(), 1..300), seed in any::<u64>(),
        ) {
            let mut order: Vec<u64> = (0..bits.len() as u64).collect();
            let mut rng = packtrain_units::Rng::new(seed);
            for i in (1..order.len()).rev() {
                order.swap(i, rng.below(i as u64 + 1) as usize);
            }
            let mut window = Window::new(7, bits.len()).expect("a window");
            for index in order {
                if bits[index as usize] {
                    window.on_received(7 + index..8 + index);
                } else {
                    window.on_lost(7 + index..8 + index);
                }
            }
            prop_assert!(window.is_complete());
            prop_assert_eq!(window.finish(), bits.into_iter().collect::<Signature>());
        }
    }
}
