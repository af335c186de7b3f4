use proptest::prelude::*;

use super::*;
use crate::chunk::CHUNK_LEN;
use crate::digest::Digest;

fn key(path: &str, chunks: u64) -> FileKey {
    FileKey {
        path: RelPath::new(path.as_bytes().to_vec()).unwrap(),
        size: chunks * CHUNK_LEN,
        mtime: Mtime { secs: 1_700_000_000, nanos: 7 },
    }
}

fn begin() -> Record {
    Record::Begin { format: FORMAT, transfer: [7; 16], note: "cp a b".to_owned() }
}

fn chunk(file: u32, index: u32) -> Record {
    Record::Chunk { file, index, digest: Digest([index as u8; 32]) }
}

fn bytes(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    records.iter().for_each(|r| encode(r, &mut out));
    out
}

fn state(records: &[Record]) -> JournalState {
    let replay = replay(&bytes(records)).unwrap();
    assert!(!replay.torn);
    replay.state
}

/// The known chunks of a file, and whether each is durable.
fn known(state: &JournalState, key: &FileKey) -> Vec<(u32, bool)> {
    let file = state.lookup(key);
    file.map_or(Vec::new(), |f| f.chunks.iter().map(|(i, c)| (*i, c.durable)).collect())
}

fn record() -> impl Strategy<Value = Record> {
    let id = 0..4u32;
    let index = 0..6u32;
    prop_oneof![
        1 => (any::<[u8; 16]>(), "[a-zé]{0,9}")
            .prop_map(|(transfer, note)| Record::Begin { format: FORMAT, transfer, note }),
        3 => (id.clone(), 0..4u8, 1..6u64)
            .prop_map(|(id, name, n)| Record::File { id, key: key(&format!("f{name}"), n) }),
        9 => (id.clone(), index.clone(), any::<[u8; 32]>())
            .prop_map(|(file, index, d)| Record::Chunk { file, index, digest: Digest(d) }),
        2 => Just(Record::Durable),
        1 => id.clone().prop_map(|file| Record::Forget { file }),
        1 => (id, index).prop_map(|(file, index)| Record::Bad { file, index }),
    ]
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec(record(), 0..60).prop_map(|mut records| {
        records.insert(0, begin());
        records
    })
}

/// The state after each number of records.
fn states(records: &[Record]) -> Vec<JournalState> {
    let mut state = JournalState::default();
    let mut all = vec![state.clone()];
    for record in records {
        state.apply(record);
        all.push(state.clone());
    }
    all
}

/// Where each record ends.
fn ends(records: &[Record]) -> Vec<usize> {
    (0..=records.len()).map(|n| bytes(&records[..n]).len()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_replay_gives_the_state_that_was_lived(records in records()) {
        let lived = states(&records).pop().unwrap();
        let replayed = state(&records);
        prop_assert_eq!(&replayed, &lived);
        let paths = lived.files().map(|file| file.key.path.as_bytes().len() as u64);
        prop_assert_eq!((lived.files().count(), paths.sum()), (lived.len(), lived.path_bytes()));
        // A rewritten journal has the same state, and appended records have the same meaning.
        let rewritten = lived.rewrite();
        let short = replay(&rewritten).unwrap();
        prop_assert_eq!(&short.state, &lived);
        prop_assert_eq!(short.valid_len, rewritten.len() as u64);
        let (mut one, mut other) = (lived, short.state);
        one.apply(&Record::Durable);
        other.apply(&Record::Durable);
        prop_assert_eq!(one, other);
    }

    #[test]
    fn a_torn_tail_costs_the_torn_record_only(records in records(), at: prop::sample::Index) {
        let all = bytes(&records);
        let cut = at.index(all.len() + 1);
        let replay = replay(&all[..cut]).unwrap();
        let ends = ends(&records);
        let whole = ends.iter().rposition(|end| *end <= cut).unwrap();
        prop_assert_eq!(replay.valid_len, ends[whole] as u64);
        prop_assert_eq!(replay.torn, ends[whole] < cut);
        prop_assert_eq!(&replay.state, &states(&records)[whole]);
    }

    #[test]
    fn a_flipped_bit_ends_what_is_believed(
        records in records(), at: prop::sample::Index, bit in 0..8u8,
    ) {
        let mut all = bytes(&records);
        let at = at.index(all.len());
        all[at] ^= 1 << bit;
        let hit = ends(&records).iter().rposition(|end| *end <= at).unwrap();
        match replay(&all) {
            Err(error) => prop_assert!(error == JournalError::Foreign && at < 8),
            Ok(replay) => {
                prop_assert_eq!(replay.valid_len, ends(&records)[hit] as u64);
                prop_assert!(replay.torn);
                prop_assert_eq!(&replay.state, &states(&records)[hit]);
            }
        }
    }

    #[test]
    fn lost_pages_end_what_is_believed(records in records(), from: prop::sample::Index) {
        // A file system may return zeros for data not written before the power failed.
        let mut all = bytes(&records);
        let from = from.index(all.len() + 1);
        all[from..].fill(0);
        all.extend_from_slice(&[0; 100]);
        match replay(&all) {
            Err(error) => prop_assert!(error == JournalError::Foreign && from < 8),
            Ok(replay) => {
                prop_assert!(replay.torn);
                let whole = ends(&records).iter().position(|e| *e as u64 == replay.valid_len);
                prop_assert_eq!(&replay.state, &states(&records)[whole.unwrap()]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..300), head in 0..3) {
        let start = match head {
            0 => Vec::new(),
            1 => record::MAGIC.to_vec(),
            _ => bytes(&[begin()]),
        };
        let all = [&start[..], &tail].concat();
        if let Ok(replay) = replay(&all) {
            prop_assert!(replay.valid_len <= all.len() as u64);
            prop_assert_eq!(replay.torn, replay.valid().get() < all.len() as u64);
        }
    }

    #[test]
    fn well_sealed_nonsense_never_panics(
        tag in 0..9u8,
        body in prop::collection::vec(prop_oneof![0..6u8, any::<u8>()], 0..80),
    ) {
        // The checksum is right, the body is arbitrary.
        let mut all = bytes(&[begin()]);
        let start = all.len();
        if tag == 1 {
            all.extend_from_slice(record::MAGIC);
        }
        all.push(tag);
        crate::wire::put_bytes(&body, &mut all);
        let check = blake3::hash(&all[start..]);
        all.extend_from_slice(&check.as_bytes()[..6]);
        if let Ok(replay) = replay(&all) {
            let good = if replay.torn { start } else { all.len() };
            prop_assert_eq!(replay.valid_len, good as u64);
            let mut state = replay.state;
            state.apply(&Record::Durable);
            let _ = state.rewrite();
        }
    }
}

#[test]
fn the_three_steps_of_a_chunk() {
    let key = key("a/b", 3);
    let mut all = vec![begin(), Record::File { id: 0, key: key.clone() }, chunk(0, 0), chunk(0, 2)];
    assert_eq!(known(&state(&all), &key), [(0, false), (2, false)]);
    all.extend([Record::Durable, chunk(0, 1)]);
    assert_eq!(known(&state(&all), &key), [(0, true), (1, false), (2, true)]);
    all.push(Record::Bad { file: 0, index: 2 });
    assert_eq!(known(&state(&all), &key), [(0, true), (1, false)]);
    // A chunk written again is not durable until the next `Durable`.
    all.push(chunk(0, 0));
    assert_eq!(known(&state(&all), &key), [(0, false), (1, false)]);
    all.push(Record::Forget { file: 0 });
    assert!(state(&all).lookup(&key).is_none());
}

#[test]
fn a_later_run_does_not_vouch_for_an_earlier_one() {
    let key = key("a", 4);
    let mut all = vec![begin(), Record::File { id: 0, key: key.clone() }, chunk(0, 0)];
    all.extend([begin(), chunk(0, 1), Record::Durable]);
    assert_eq!(known(&state(&all), &key), [(0, false), (1, true)]);
    let rewritten = replay(&state(&all).rewrite()).unwrap().state;
    assert_eq!(known(&rewritten, &key), [(0, false), (1, true)]);
}

#[test]
fn a_file_that_changed_starts_anew() {
    let old = key("a", 4);
    let mut new = old.clone();
    new.mtime.nanos += 1;
    let file = |id, key: &FileKey| Record::File { id, key: key.clone() };
    let all = [begin(), file(0, &old), chunk(0, 1), file(1, &new), chunk(0, 2), chunk(1, 3)];
    let after = state(&all);
    assert!(after.lookup(&old).is_none());
    assert_eq!(known(&after, &new), [(3, false)]);
    assert_eq!(after.files().count(), 1);
    assert_eq!(after.next_id(), Some(2));
    // The same number for another file: no chunk is carried over, not even by a later `Durable`.
    let reused = [begin(), file(0, &old), chunk(0, 1), file(0, &key("b", 4)), Record::Durable];
    let after = state(&reused);
    assert!(after.lookup(&old).is_none());
    assert_eq!(after.file(0).map(|f| f.chunks.len()), Some(0));
    // The same file with the same number keeps its chunks.
    let again = [begin(), file(0, &old), chunk(0, 1), begin(), file(0, &old)];
    assert_eq!(known(&state(&again), &old), [(1, false)]);
}

#[test]
fn nonsense_records_change_nothing() {
    let key = key("a", 4);
    let file = Record::File { id: u32::MAX, key: key.clone() };
    let all = [begin(), file, chunk(9, 0), chunk(u32::MAX, 4), Record::Bad { file: 8, index: 1 }];
    let after = state(&all);
    assert_eq!(known(&after, &key), []);
    assert_eq!(after.next_id(), None, "numbers are used up");
    assert_eq!(after.transfer(), Some([7; 16]));
    assert_eq!(after.note(), "cp a b");
}

#[test]
fn foreign_and_newer_journals_are_told_apart_from_torn_ones() {
    assert_eq!(replay(b"my thesis, the only copy"), Err(JournalError::Foreign));
    assert_eq!(replay(b"PKTX"), Err(JournalError::Foreign));
    let empty = replay(b"").unwrap();
    assert!(empty.state.is_empty() && !empty.torn && empty.valid_len == 0);
    let torn = replay(b"PKTR").unwrap();
    assert!(torn.torn && torn.valid_len == 0);
    let newer = Record::Begin { format: 2, transfer: [0; 16], note: String::new() };
    assert_eq!(replay(&bytes(&[newer])), Err(JournalError::Newer(2)));
    let headless = replay(&[record::MAGIC, &bytes(&[Record::Durable])[..]].concat()).unwrap();
    assert!(headless.torn && headless.valid_len == 0);
}

#[test]
fn a_long_note_is_cut_at_a_character() {
    let note = format!("x{}", "é".repeat(MAX_NOTE));
    let long = Record::Begin { format: FORMAT, transfer: [0; 16], note };
    let after = state(std::slice::from_ref(&long));
    assert_eq!(after.note().len(), MAX_NOTE - 1);
    let mut lived = JournalState::default();
    lived.apply(&long);
    assert_eq!(after, lived);
}

#[test]
fn a_journal_of_a_tebibyte_takes_less_than_12_mib() {
    let chunks = (1u64 << 40) / CHUNK_LEN;
    let key = key("data/sample-0001/run-2026.h5", chunks);
    let mut all = bytes(&[begin(), Record::File { id: 1000, key: key.clone() }]);
    for index in 0..chunks as u32 {
        encode(&chunk(1000, index), &mut all);
        if index % 16 == 15 {
            encode(&Record::Durable, &mut all);
        }
    }
    assert!(all.len() <= 12 << 20, "{} bytes", all.len());
    let replay = replay(&all).unwrap();
    let file = replay.state.lookup(&key).unwrap();
    assert_eq!(file.chunks.len() as u64, chunks);
    assert!(file.chunks.values().all(|c| c.durable));
    assert!(replay.state.rewrite().len() <= all.len());
}

#[test]
fn the_bytes_of_records_are_fixed() {
    let all = bytes(&[begin(), chunk(300, 2), Record::Durable]);
    let head = [&b"PKTRJNL\n"[..], &[1, 24, 1], &[7; 16], &[6], b"cp a b"].concat();
    assert_eq!(all[..head.len()], head);
    let rest = &all[head.len() + 6..];
    assert_eq!(rest[..5], [3, 35, 0xac, 0x02, 2]);
    assert_eq!(rest[5..37], [2; 32]);
    let durable = &rest[43..];
    assert_eq!(durable[..2], [4, 0]);
    assert_eq!(durable[2..], blake3::hash(&[4, 0]).as_bytes()[..6]);
}
