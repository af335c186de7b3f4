//! The signature of a window: which of its packets arrived.

use std::ops::Range;
use std::str::FromStr;

use thiserror::Error;

/// Which packets of a window arrived: one bit per packet in the order of sending, set if received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signature {
    /// Packet `i` is bit `i % 64` of word `i / 64`; bits from `len` on are clear.
    words: Vec<u64>,
    len: usize,
    lost: usize,
}

/// Why input is not a valid signature.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SignatureError {
    /// More packets than [`Signature::MAX_PACKETS`].
    #[error("more than {} packets in one window", Signature::MAX_PACKETS)]
    TooLong,
    /// A character other than `0` and `1`.
    #[error("character {0:?} at packet {1} is neither 1 (received) nor 0 (lost)")]
    Character(char, usize),
    /// Fewer words than the packets need.
    #[error("{packets} packets do not fit {words} words")]
    Words {
        /// Words given.
        words: usize,
        /// Packets expected.
        packets: usize,
    },
    /// A lost range exceeds the window.
    #[error("lost packets {from} to {to} are outside of the window's {packets}")]
    Outside {
        /// First lost packet of the range.
        from: usize,
        /// First packet after it.
        to: usize,
        /// Length of the window.
        packets: usize,
    },
}

impl Signature {
    /// Maximum packets of a window: 8 MiB of bitmap.
    pub const MAX_PACKETS: usize = 1 << 26;

    /// From a bitmap: packet `i` is bit `i % 64` of word `i / 64`, set if received.
    ///
    /// # Errors
    /// `len` packets need more words than given, or are too many.
    pub fn from_words(mut words: Vec<u64>, len: usize) -> Result<Self, SignatureError> {
        if len > Self::MAX_PACKETS {
            return Err(SignatureError::TooLong);
        }
        let needed = len.div_ceil(64);
        if words.len() < needed {
            return Err(SignatureError::Words { words: words.len(), packets: len });
        }
        words.truncate(needed);
        if let (Some(last), rest @ 1..) = (words.last_mut(), len % 64) {
            *last &= (1 << rest) - 1;
        }
        let received: usize = words.iter().map(|word| word.count_ones() as usize).sum();
        Ok(Self { words, len, lost: len - received })
    }

    /// A window of `len` packets of which those in `lost` were lost.
    ///
    /// # Errors
    /// The window is too long, or a range exceeds it.
    pub fn from_lost(
        len: usize,
        lost: impl IntoIterator<Item = Range<usize>>,
    ) -> Result<Self, SignatureError> {
        if len > Self::MAX_PACKETS {
            return Err(SignatureError::TooLong);
        }
        let mut words = vec![u64::MAX; len.div_ceil(64)];
        for Range { start, end } in lost {
            if start > end || end > len {
                return Err(SignatureError::Outside { from: start, to: end, packets: len });
            }
            clear(&mut words, start..end);
        }
        Self::from_words(words, len)
    }

    /// From alternating run lengths: received, lost, received, ... The first may be 0.
    ///
    /// # Errors
    /// The total number of packets is too large.
    pub fn from_runs(runs: impl IntoIterator<Item = usize>) -> Result<Self, SignatureError> {
        let mut signature = Self::default();
        let mut received = true;
        for run in runs {
            let end = signature.len.checked_add(run).filter(|end| *end <= Self::MAX_PACKETS);
            let end = end.ok_or(SignatureError::TooLong)?;
            signature.words.resize(end.div_ceil(64), 0);
            if received {
                set(&mut signature.words, signature.len..end);
            } else {
                signature.lost += run;
            }
            signature.len = end;
            received = !received;
        }
        Ok(signature)
    }

    /// Packets in the window.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the window has no packets.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Packets lost.
    pub fn lost(&self) -> usize {
        self.lost
    }

    /// Share of lost packets; 0 for an empty window.
    pub fn loss_rate(&self) -> f64 {
        if self.len == 0 { 0.0 } else { self.lost as f64 / self.len as f64 }
    }

    /// Whether packet `index` arrived; `None` outside the window.
    pub fn received(&self, index: usize) -> Option<bool> {
        (index < self.len).then(|| self.words[index / 64] >> (index % 64) & 1 == 1)
    }

    /// The bitmap, see [`Signature::from_words`].
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The packets in order, `true` for received.
    pub fn bits(&self) -> impl Iterator<Item = bool> + '_ {
        (0..self.len).map(|i| self.words[i / 64] >> (i % 64) & 1 == 1)
    }

    /// The maximal runs of lost packets, in order.
    pub fn losses(&self) -> Runs<'_> {
        Runs { signature: self, at: 0 }
    }

    /// Alternating run lengths: received, lost, received, ...; the first may be 0.
    pub fn runs(&self) -> Vec<usize> {
        let mut runs = Vec::new();
        let mut at = 0;
        for lost in self.losses() {
            runs.extend([lost.start - at, lost.len()]);
            at = lost.end;
        }
        if at < self.len {
            runs.push(self.len - at);
        }
        runs
    }

    /// Consecutive windows of `packets` each; the last may be shorter. `packets` of 0 is 1.
    pub fn windows(&self, packets: usize) -> impl Iterator<Item = Self> + '_ {
        let step = packets.max(1);
        (0..self.len).step_by(step).map(move |from| {
            let to = (from + step).min(self.len);
            (from..to).map(|i| self.words[i / 64] >> (i % 64) & 1 == 1).collect()
        })
    }

    /// First packet at or after `from` that was received (or lost); `len` if there is none.
    fn next(&self, from: usize, received: bool) -> usize {
        let mut at = from;
        while at < self.len {
            let word = if received { self.words[at / 64] } else { !self.words[at / 64] };
            let rest = word >> (at % 64);
            if rest != 0 {
                return (at + rest.trailing_zeros() as usize).min(self.len);
            }
            at = (at / 64 + 1) * 64;
        }
        self.len
    }
}

/// Sets the bits of `range`.
fn set(words: &mut [u64], range: Range<usize>) {
    apply(words, range, |word, mask| *word |= mask);
}

/// Clears the bits of `range`.
fn clear(words: &mut [u64], range: Range<usize>) {
    apply(words, range, |word, mask| *word &= !mask);
}

fn apply(words: &mut [u64], range: Range<usize>, change: impl Fn(&mut u64, u64)) {
    let mut at = range.start;
    while at < range.end {
        let bits = (64 - at % 64).min(range.end - at);
        let ones = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        change(&mut words[at / 64], ones << (at % 64));
        at += bits;
    }
}

/// `true` for received. Packets beyond [`Signature::MAX_PACKETS`] are ignored.
impl FromIterator<bool> for Signature {
    fn from_iter<I: IntoIterator<Item = bool>>(bits: I) -> Self {
        let mut signature = Self::default();
        for received in bits.into_iter().take(Self::MAX_PACKETS) {
            let (word, bit) = (signature.len / 64, signature.len % 64);
            if bit == 0 {
                signature.words.push(0);
            }
            signature.words[word] |= u64::from(received) << bit;
            signature.lost += usize::from(!received);
            signature.len += 1;
        }
        signature
    }
}

/// The paper's notation: `1000100` is a window whose packets 0 and 4 arrived.
impl FromStr for Signature {
    type Err = SignatureError;

    fn from_str(text: &str) -> Result<Self, SignatureError> {
        if text.len() > Self::MAX_PACKETS {
            return Err(SignatureError::TooLong);
        }
        text.chars()
            .enumerate()
            .map(|(index, c)| match c {
                '1' => Ok(true),
                '0' => Ok(false),
                other => Err(SignatureError::Character(other, index)),
            })
            .collect()
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::fmt::Write as _;
        self.bits().try_for_each(|received| f.write_char(if received { '1' } else { '0' }))
    }
}

/// The runs of lost packets of a [`Signature`].
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    signature: &'a Signature,
    at: usize,
}

impl Iterator for Runs<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.signature.next(self.at, false);
        if start == self.signature.len {
            return None;
        }
        self.at = self.signature.next(start, true);
        Some(start..self.at)
    }
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
