//! Runs every fuzz body on random and mutated input, without cargo-fuzz.
//!
//! `PACKTRAIN_FUZZ_SECONDS` (default 1) applies to each body; `PACKTRAIN_SEED` repeats a run, and
//! `PACKTRAIN_FUZZ_TARGET` selects the targets whose names contain it.
#![allow(clippy::disallowed_methods, reason = "runs for a given time")]

#[path = "../../fuzz/src/lib.rs"]
#[allow(missing_docs, unreachable_pub)]
mod bodies;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maximum length of inputs; longer ones take time without further findings.
const MAX_INPUT_BYTES: usize = 4096;

#[test]
fn every_body_survives() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let time = Duration::from_secs(number("PACKTRAIN_FUZZ_SECONDS").unwrap_or(1));
    let seed = number("PACKTRAIN_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs() << 20 ^ u64::from(now.subsec_nanos())
    });
    eprintln!("PACKTRAIN_SEED={seed}");
    let only = std::env::var("PACKTRAIN_FUZZ_TARGET").unwrap_or_default();
    let mut failures = Vec::new();
    for target in bodies::TARGETS.iter().filter(|target| target.name.contains(&only)) {
        let mut random = Random(seed | 1);
        let mut corpus = (target.seeds)();
        let start = Instant::now();
        let mut runs = 0u64;
        let mut failed = corpus.iter().find_map(|seed| failure(target, seed));
        while failed.is_none() && start.elapsed() < time {
            for _ in 0..64 {
                let input = random.input(&corpus);
                failed = failed.or(failure(target, &input));
                runs += 1;
                // Some inputs are added to the corpus, so that mutations accumulate.
                if random.below(50) == 0 && corpus.len() < 400 {
                    corpus.push(input);
                }
            }
        }
        eprintln!("fuzz {}: {runs} inputs", target.name);
        failures.extend(failed);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The message for a body that does not return.
fn failure(target: &bodies::Target, input: &[u8]) -> Option<String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.body)(input)));
    outcome.is_err().then(|| {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("fuzz target {} fails on {hex}", target.name)
    })
}

/// xorshift64: the inputs of a seed are the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end.max(1)
    }

    fn byte(&mut self) -> u8 {
        // Limits of the number formats are more frequent than uniform draws would give.
        match self.below(4) {
            0 => [0, 1, 0x7f, 0x80, 0xff, b'/', b'.', b'\n'][self.below(8)],
            _ => self.below(256) as u8,
        }
    }

    fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        if corpus.is_empty() || self.below(8) == 0 {
            let len = self.below(300);
            return (0..len).map(|_| self.byte()).collect();
        }
        let mut input = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(4) {
            self.mutate(&mut input, corpus);
        }
        input.truncate(MAX_INPUT_BYTES);
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(input.len());
        match self.below(6) {
            0 if !input.is_empty() => input[at] ^= 1 << self.below(8),
            1 if !input.is_empty() => input[at] = self.byte(),
            2 => input.insert(at, self.byte()),
            3 if !input.is_empty() => {
                input.remove(at);
            }
            4 => input.truncate(at),
            _ => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len());
                let len = self.below(other.len() - from + 1);
                let tail = input.split_off(at);
                input.extend(&other[from..from + len]);
                input.extend(tail);
            }
        }
    }
}
