//! Random numbers that the peer must not foresee: the tokens of pings, and which packet numbers are
//! skipped.

use aws_lc_rs::hmac;
use packtrain_units::Rng;

/// The random numbers of one flow; the same seed gives the same ones. A seed of the kernel's has 64
/// bits, and nothing that is sent tells a later number.
#[derive(Debug)]
pub(crate) struct Secrets {
    rng: Rng,
    key: hmac::Key,
}

impl Secrets {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), key: hmac::Key::new(hmac::HMAC_SHA256, &seed.to_be_bytes()) }
    }

    /// A token.
    pub(crate) fn token(&mut self) -> u64 {
        let drawn = self.rng.next_u64();
        self.sealed(drawn, 0)
    }

    /// So many tokens, of which none tells another.
    pub(crate) fn tokens(&mut self, count: usize) -> Vec<u64> {
        let drawn = self.rng.next_u64();
        (0..count as u64).map(|i| self.sealed(drawn, i)).collect()
    }

    /// A number below `bound`. It is not sent.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    /// The numbers of the generator itself would tell the next ones.
    fn sealed(&self, drawn: u64, i: u64) -> u64 {
        let mut input = [0; 16];
        input[..8].copy_from_slice(&drawn.to_be_bytes());
        input[8..].copy_from_slice(&i.to_be_bytes());
        let tag = hmac::sign(&self.key, &input);
        let mut token = [0; 8];
        token.copy_from_slice(&tag.as_ref()[..8]);
        u64::from_be_bytes(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_follow_from_the_seed_and_not_from_each_other() {
        let draw = |seed| {
            let mut secrets = Secrets::new(seed);
            let mut tokens = secrets.tokens(3);
            tokens.push(secrets.token());
            tokens
        };
        let tokens = draw(1);
        assert_eq!(tokens, draw(1));
        let mut all = [tokens.clone(), draw(2)].concat();
        all.push(Rng::new(1).next_u64());
        for (i, one) in all.iter().enumerate() {
            let near =
                |other: &u64| one.wrapping_sub(*other).min(other.wrapping_sub(*one)) < 1 << 20;
            assert!(!all[..i].iter().any(near), "{all:?}");
        }
    }
}
