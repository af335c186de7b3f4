use proptest::prelude::*;

use super::*;

#[test]
fn a_signature_says_what_was_put_in() {
    let signature: Signature = "1000100".parse().expect("bits");
    assert_eq!((signature.len(), signature.lost()), (7, 5));
    assert_eq!(signature.losses().collect::<Vec<_>>(), [1..4, 5..7]);
    assert_eq!(signature.runs(), [1, 3, 1, 2]);
    assert_eq!(signature.received(4), Some(true));
    assert_eq!(signature.received(7), None);
    assert_eq!(signature.to_string(), "1000100");
    assert!((signature.loss_rate() - 5.0 / 7.0).abs() < 1e-12);
}

#[test]
fn what_is_no_signature_is_refused() {
    assert_eq!("10x".parse::<Signature>(), Err(SignatureError::Character('x', 2)));
    assert!(Signature::from_words(vec![0], 65).is_err());
    assert!(Signature::from_lost(10, std::iter::once(8..11)).is_err());
    assert!(Signature::from_lost(usize::MAX, []).is_err());
    assert!(Signature::from_runs([5, usize::MAX]).is_err());
    assert!(Signature::from_runs([Signature::MAX_PACKETS, 1]).is_err());
}

#[test]
fn bits_behind_the_end_do_not_count() {
    let signature = Signature::from_words(vec![u64::MAX, u64::MAX], 70).expect("fits");
    assert_eq!(signature.lost(), 0);
    assert_eq!(signature, Signature::from_lost(70, []).expect("fits"));
    assert_eq!(signature.losses().count(), 0);
    assert!(Signature::default().is_empty());
    assert!(Signature::default().loss_rate().abs() < 1e-12);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_way_of_making_one_gives_the_same(bits in prop::collection::vec(any::<bool>(), 0..400)) {
        let signature: Signature = bits.iter().copied().collect();
        prop_assert_eq!(signature.bits().collect::<Vec<_>>(), bits.clone());
        prop_assert_eq!(signature.lost(), bits.iter().filter(|bit| !**bit).count());
        let lost = signature.losses().collect::<Vec<_>>();
        prop_assert_eq!(&Signature::from_lost(bits.len(), lost.clone()).expect("fits"), &signature);
        prop_assert_eq!(&Signature::from_runs(signature.runs()).expect("fits"), &signature);
        prop_assert_eq!(&signature.to_string().parse::<Signature>().expect("bits"), &signature);
        let words = signature.words().to_vec();
        prop_assert_eq!(&Signature::from_words(words, bits.len()).expect("fits"), &signature);
        // Runs are maximal and apart.
        prop_assert!(lost.windows(2).all(|pair| pair[0].end < pair[1].start));
        let joined: Vec<bool> = signature.windows(37).flat_map(|w| w.bits().collect::<Vec<_>>()).collect();
        prop_assert_eq!(joined, bits);
    }
}
