use packtrain_units::Rng;
use proptest::prelude::*;

use super::*;

/// The paper's binary tree (section 3.1.3), as reference for the bitset.
#[derive(Default)]
struct Tree {
    branches: [Option<Box<Tree>>; 2],
}

impl Tree {
    /// Follows the word and adds missing branches; returns whether any was missing.
    fn insert(&mut self, word: &[bool]) -> bool {
        let Some((first, rest)) = word.split_first() else { return false };
        let branch = &mut self.branches[usize::from(*first)];
        let missing = branch.is_none();
        let below = branch.get_or_insert_default().insert(rest);
        missing || below
    }

    fn distinct_words(signature: &Signature, n: usize) -> usize {
        let bits: Vec<bool> = signature.bits().collect();
        let mut tree = Self::default();
        bits.windows(n).filter(|word| tree.insert(word)).count()
    }
}

fn length(n: u32) -> WordLength {
    WordLength::new(n).expect("1 to 24")
}

fn words(text: &str, n: u32) -> usize {
    distinct_words(&text.parse().expect("bits"), length(n))
}

#[test]
fn the_papers_examples() {
    assert_eq!([1, 2, 3].map(|n| words("0010100", n)), [2, 3, 4]);
    // 0010, 0100, 1001, 0010 again, and 0101, which the paper's example does not reach.
    assert_eq!(words("00100101", 4), 4);
}

#[test]
fn constant_strings_have_none_and_random_ones_have_one() {
    let constant: Signature = (0..1000).map(|_| true).collect();
    assert!(complexity(&constant, WordLength::PAPER).abs() < 1e-12);
    let mut rng = Rng::new(5);
    let random: Signature = (0..4_000_000).map(|_| rng.chance(0.5)).collect();
    let value = complexity(&random, WordLength::PAPER);
    assert!((value - 1.0).abs() < 1e-6, "{value}");
    assert!(complexity(&"1010".parse().expect("bits"), WordLength::PAPER).abs() < 1e-12);
    assert_eq!((WordLength::new(0), WordLength::new(25)), (None, None));
}

/// The minima of C1 at n = 17, as measured for the checklist.
#[test]
fn floors_of_isolated_losses_and_of_long_bursts() {
    let isolated = Signature::from_lost(97_656, (0..40).map(|i| 1000 + i * 2000..1001 + i * 2000));
    let isolated = isolated.expect("fits");
    assert_eq!(distinct_words(&isolated, WordLength::PAPER), 18);
    assert!((complexity(&isolated, WordLength::PAPER) - 0.2453).abs() < 1e-4);
    let bursts = Signature::from_lost(97_656, (0..40).map(|i| 1000 + i * 2000..1050 + i * 2000));
    let bursts = bursts.expect("fits");
    assert_eq!(distinct_words(&bursts, WordLength::PAPER), 34);
    assert!((complexity(&bursts, WordLength::PAPER) - 0.2993).abs() < 1e-4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_bitset_counts_what_the_papers_tree_counts(
        seed in any::<u64>(), len in 0usize..3000, p in 0.0f64..1.0, n in 1u32..=24,
    ) {
        let mut rng = Rng::new(seed);
        // Runs of up to 200 packets on either side, so that whole words are all received.
        let mut bits = Vec::with_capacity(len + 200);
        while bits.len() < len {
            let received = !rng.chance(p);
            let run = if rng.chance(0.5) { 1 } else { rng.below(200) as usize };
            bits.resize(bits.len() + run, received);
        }
        let signature: Signature = bits.into_iter().take(len).collect();
        let tree = Tree::distinct_words(&signature, n as usize);
        prop_assert_eq!(distinct_words(&signature, length(n)), tree, "seed {}", seed);
    }
}
