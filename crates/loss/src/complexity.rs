//! First-order complexity of d'Alessandro and Politi.

use crate::Signature;

/// The length n of the words that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WordLength(u32);

impl WordLength {
    /// The paper's: longer words give little more information.
    pub const PAPER: Self = Self(17);
    /// The maximum; its bitset has 2 MiB.
    pub const MAX: Self = Self(24);

    /// Words of `n` packets, 1 to 24.
    pub fn new(n: u32) -> Option<Self> {
        (1..=Self::MAX.0).contains(&n).then_some(Self(n))
    }

    /// Packets in a word.
    pub fn packets(self) -> usize {
        self.0 as usize
    }
}

impl Default for WordLength {
    fn default() -> Self {
        Self::PAPER
    }
}

/// Counts words with a bitset that is reused between windows.
#[derive(Clone, Debug)]
pub struct ComplexityMeter {
    word: WordLength,
    /// One bit per possible word.
    seen: Vec<u64>,
}

impl ComplexityMeter {
    /// A meter for words of this length.
    pub fn new(word: WordLength) -> Self {
        Self { word, seen: vec![0; (1usize << word.0).div_ceil(64)] }
    }

    /// Na(n): the distinct words of length n in the signature.
    pub fn distinct_words(&mut self, signature: &Signature) -> usize {
        let n = self.word.packets();
        if signature.len() < n {
            return 0;
        }
        self.seen.fill(0);
        let mask = (1u64 << n) - 1;
        let words = signature.words();
        let mut left = signature.len() - n + 1;
        for (index, &low) in words.iter().enumerate() {
            if left == 0 {
                break;
            }
            let high = words.get(index + 1).copied().unwrap_or(0);
            let starts = left.min(64);
            left -= starts;
            // Without losses nearby all words are the same.
            if low == u64::MAX && high & mask == mask && starts == 64 {
                self.mark(mask);
                continue;
            }
            let both = u128::from(low) | u128::from(high) << 64;
            for shift in 0..starts {
                self.mark((both >> shift) as u64 & mask);
            }
        }
        self.seen.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// C1 = log2(Na(n)) / n, equation 4 with n instead of the misprinted 2; 0 for a window shorter
    /// than a word.
    pub fn complexity(&mut self, signature: &Signature) -> f64 {
        match self.distinct_words(signature) {
            0 => 0.0,
            count => (count as f64).log2() / self.word.packets() as f64,
        }
    }

    fn mark(&mut self, word: u64) {
        self.seen[(word / 64) as usize] |= 1 << (word % 64);
    }
}

/// Na(n) of one signature; a [`ComplexityMeter`] avoids the allocation per signature.
pub fn distinct_words(signature: &Signature, word: WordLength) -> usize {
    ComplexityMeter::new(word).distinct_words(signature)
}

/// C1 of one signature; a [`ComplexityMeter`] avoids the allocation per signature.
pub fn complexity(signature: &Signature, word: WordLength) -> f64 {
    ComplexityMeter::new(word).complexity(signature)
}

#[cfg(test)]
#[path = "complexity_tests.rs"]
mod tests;
