use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use proptest::prelude::*;

use super::*;

const SESSION: SessionId = SessionId([5; 16]);
const CONTENT: [u8; 32] = [6; 32];

fn pair(seed: u8) -> (Ed25519KeyPair, [u8; 32]) {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("any seed makes a key");
    let public = pair.public_key().as_ref().try_into().expect("32 bytes");
    (pair, public)
}

fn sealer(salt: u8) -> Sealer<impl Fn(&[u8]) -> [u8; 64]> {
    let key = pair(1).0;
    let sign = move |text: &[u8]| key.sign(text).as_ref().try_into().expect("64 bytes");
    Sealer::new(SESSION, &CONTENT, [salt; 16], sign)
}

fn opener() -> Opener {
    Opener::new(SESSION, CONTENT, pair(1).1)
}

#[test]
fn lengths_add_up() {
    assert_eq!((RECORD, RECORD_MIN, RECORD_TEXT), (262_144, 96, 262_048));
    for (text, records, sealed) in [
        (0, 1, 96),
        (1, 1, 97),
        (262_048, 1, 262_144),
        (262_049, 2, 262_144 + 97),
        (10 * 262_048, 10, 10 * 262_144),
    ] {
        let text = ByteCount(text);
        assert_eq!(records_for(text), records);
        assert_eq!(sealed_len(text), Some(ByteCount(sealed)));
        let (last, len) = last_record(ByteCount(sealed)).expect("it is one");
        assert_eq!((last, last * 262_144 + len as u64), (records - 1, sealed));
    }
    for none in [0, 95, 262_145, 262_144 + 96] {
        assert_eq!(last_record(ByteCount(none)), None, "{none}");
    }
    assert_eq!(sealed_len(ByteCount(u64::MAX)), None);
}

#[test]
fn nothing_but_the_record_itself_is_taken_for_it() {
    let seal = sealer(1);
    let first = seal.seal(0, false, &[7; RECORD_TEXT]);
    let last = seal.seal(1, true, b"the end");
    assert_eq!((first.len(), last.len()), (RECORD, RECORD_MIN + 7));
    let sender = pair(1).1;
    for (number, end, record) in [
        (0, true, &first),
        (1, false, &first),
        (1, true, &first),
        (1, false, &last),
        (0, true, &last),
    ] {
        assert!(!is_genuine(SESSION, &sender, number, end, record), "{number} {end}");
        let wrong = opener().open(number, end, record.clone());
        assert_eq!(wrong, Err(OpenError::Forged(number)));
    }
    assert!(!is_genuine(SessionId([6; 16]), &sender, 1, true, &last), "another session");
    assert!(!is_genuine(SESSION, &pair(2).1, 1, true, &last), "another sender");
    let mut other = Opener::new(SESSION, [0; 32], sender);
    assert_eq!(other.open(1, true, last.clone()), Err(OpenError::Sealed(1)));
    let mut opener = opener();
    assert_eq!(opener.open(0, false, first), Ok(vec![7; RECORD_TEXT]));
    assert_eq!(opener.open(1, true, last), Ok(b"the end".to_vec()));
    assert!(format!("{opener:?}{seal:?}").contains("Opener(0505"));
}

#[test]
fn without_a_sender_the_seal_binds_a_record_to_its_place() {
    let seal = sealer(1);
    let (first, last) = (seal.seal(0, false, &[7; RECORD_TEXT]), seal.seal(1, true, b"the end"));
    let open = |session, content, number, end, record: &[u8]| {
        Opener::of_any_sender(session, content).open(number, end, record.to_vec())
    };
    assert_eq!(open(SESSION, CONTENT, 1, true, &last), Ok(b"the end".to_vec()));
    for (number, end, record) in [(1, false, &first), (0, true, &last), (2, true, &last)] {
        assert!(open(SESSION, CONTENT, number, end, record).is_err(), "{number} {end}");
    }
    assert_eq!(open(SESSION, [0; 32], 1, true, &last), Err(OpenError::Sealed(1)));
    assert_eq!(open(SessionId([6; 16]), CONTENT, 1, true, &last), Err(OpenError::Sealed(1)));
    let mut changed = last.clone();
    changed[SALT] ^= 1;
    assert_eq!(open(SESSION, CONTENT, 1, true, &changed), Err(OpenError::Sealed(1)));
    // What a hostile depot sends may be as short as it likes.
    for len in 0..RECORD_MIN {
        assert_eq!(
            open(SESSION, CONTENT, 1, true, &last[..len]),
            Err(OpenError::Forged(1)),
            "{len}"
        );
    }
}

#[test]
fn another_try_has_another_key() {
    let (one, two) = (sealer(1).seal(0, true, b"before"), sealer(2).seal(0, true, b"behind"));
    let body = |record: &[u8]| record[SALT..SALT + 6].to_vec();
    let xor = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| a ^ b).collect::<Vec<_>>();
    assert_ne!(xor(&body(&one), &body(&two)), xor(b"before", b"behind"), "one key stream");
    let mut opener = opener();
    assert_eq!(opener.open(0, true, one), Ok(b"before".to_vec()));
    assert_eq!(opener.open(0, true, two), Ok(b"behind".to_vec()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_record_opens_and_a_changed_one_does_not(
        text in prop::collection::vec(any::<u8>(), 0..400),
        number: u64,
        at: prop::sample::Index,
        flip in 1u8..,
        cut: prop::sample::Index,
    ) {
        let record = sealer(3).seal(number, true, &text);
        let sender = pair(1).1;
        prop_assert!(is_genuine(SESSION, &sender, number, true, &record));
        prop_assert_eq!(opener().open(number, true, record.clone()), Ok(text));
        let mut bad = record.clone();
        *at.get_mut(&mut bad) ^= flip;
        prop_assert!(opener().open(number, true, bad).is_err());
        let short = record[..cut.index(record.len())].to_vec();
        prop_assert!(opener().open(number, true, short).is_err());
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), last: bool) {
        prop_assert!(opener().open(0, last, bytes).is_err());
    }

    #[test]
    fn a_sealed_length_says_which_record_is_last(text in 0u64..1 << 40) {
        let sealed = sealed_len(ByteCount(text)).expect("it fits");
        let (last, len) = last_record(sealed).expect("it is one");
        prop_assert_eq!(last + 1, records_for(ByteCount(text)));
        prop_assert!(len <= RECORD);
    }
}
