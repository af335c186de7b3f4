use proptest::prelude::*;

use super::*;
use crate::acl::{Acl, AclTag};

fn path() -> impl Strategy<Value = RelPath> {
    let name = prop_oneof![
        prop::sample::select(vec![
            b"data".to_vec(),
            b"run-0001.h5".to_vec(),
            b"run-0002.h5".to_vec()
        ]),
        prop::collection::vec(prop::sample::select(b"ab\xff \n".to_vec()), 1..20),
    ];
    prop::collection::vec(name, 1..5).prop_map(|names| RelPath::new(names.join(&b'/')).unwrap())
}

fn entry() -> impl Strategy<Value = Entry> {
    let kind = prop_oneof![
        4 => (0..=MAX_SIZE).prop_map(|size| EntryKind::File { size }),
        1 => Just(EntryKind::Stream),
        1 => Just(EntryKind::Directory),
        1 => prop::collection::vec(1..=255u8, 1..40).prop_map(|target| EntryKind::Symlink { target }),
    ];
    let mtime = (prop_oneof![Just(1_700_000_000i64), any::<i64>()], 0..1_000_000_000u32);
    let owner = prop_oneof![Just((1000, 1000)), any::<(u32, u32)>()];
    let hard_link = prop_oneof![
        4 => Just(HardLink::None),
        1 => any::<u32>().prop_map(|further| HardLink::First { further }),
        1 => (0..7u32).prop_map(|id| HardLink::To(EntryId(id))),
    ];
    let pair = (prop::collection::vec(1..=255u8, 1..9), prop::collection::vec(any::<u8>(), 0..40));
    let list = prop::collection::btree_map(pair.0, pair.1, 0..4);
    let attributes = prop::option::weighted(
        0.3,
        list.prop_map(|list| Arc::new(Attributes::new(list.into_iter().collect()).unwrap())),
    );
    let permissions = prop::collection::vec(0..8u8, 5);
    let list = (permissions, any::<u32>()).prop_map(|(bits, user)| {
        let tags =
            [AclTag::Owner, AclTag::User(user), AclTag::OwningGroup, AclTag::Mask, AclTag::Other];
        Acl::new(tags.into_iter().zip(bits).collect()).unwrap()
    });
    let lists = (prop::option::of(list.clone()), prop::option::of(list));
    let lists = lists.prop_map(|(access, default)| Acls { access, default });
    let extras = (hard_link, attributes, prop::option::weighted(0.3, lists));
    (path(), kind, 0..=NO_MODE, mtime, owner, extras).prop_map(
        |(path, kind, mode, (secs, nanos), (uid, gid), (hard_link, attributes, acls))| {
            let is_link = matches!(kind, EntryKind::Symlink { .. });
            let attributes = attributes.filter(|_| !is_link);
            let is_regular = matches!(kind, EntryKind::File { .. });
            let hard_link = if is_regular { hard_link } else { HardLink::None };
            let mut acls = acls.filter(|_| !is_link);
            if let (Some(acls), false) = (&mut acls, kind == EntryKind::Directory) {
                acls.default = None;
            }
            let acls = acls.map(Arc::new);
            let extras = Extras { hard_link, attributes, acls };
            Entry { path, kind, mode, mtime: Mtime { secs, nanos }, uid, gid, extras }
        },
    )
}

fn plain(path: &[u8]) -> Entry {
    Entry {
        path: RelPath::new(path.to_vec()).unwrap(),
        kind: EntryKind::File { size: 4096 },
        mode: 0o644,
        mtime: Mtime { secs: 1_700_000_000, nanos: 123_456_789 },
        uid: 1000,
        gid: 1000,
        extras: Extras::default(),
    }
}

/// Properties of all decoded segments, from any sender.
fn check_bounds(bytes: &[u8], decoded: Result<(EntryId, Vec<Entry>), ManifestError>) {
    let Ok((first, entries)) = decoded else { return };
    assert!(entries.len() <= MAX_SEGMENT_ENTRIES && entries.capacity() <= bytes.len() / 4 + 1);
    assert!(first.0.checked_add(entries.len() as u32).is_some());
    let paths: usize = entries.iter().map(|e| e.path.as_bytes().len()).sum();
    assert!(paths <= MAX_SEGMENT_PATHS);
    assert!(entries.iter().all(|e| check_entry(e).is_ok()));
    let again = encode_segment(first, &entries);
    assert_eq!(decode_segment(&again), Ok((first, entries)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn segments_round_trip(first in 7..1_000_000u32, entries in prop::collection::vec(entry(), 0..40)) {
        let bytes = encode_segment(EntryId(first), &entries);
        prop_assert_eq!(fitting(&entries), entries.len());
        prop_assert_eq!(decode_segment(&bytes), Ok((EntryId(first), entries)));
    }

    #[test]
    fn cut_segments_are_refused(entries in prop::collection::vec(entry(), 1..10), at: prop::sample::Index) {
        let bytes = encode_segment(EntryId(7), &entries);
        let cut = at.index(bytes.len());
        prop_assert!(decode_segment(&bytes[..cut]).is_err());
        let longer = [&bytes[..], &[0]].concat();
        prop_assert_eq!(decode_segment(&longer), Err(ManifestError::Trailing));
    }

    #[test]
    fn flipped_bits_never_panic(
        entries in prop::collection::vec(entry(), 1..20),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..6),
    ) {
        let mut bytes = encode_segment(EntryId(7), &entries);
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        check_bounds(&bytes, decode_segment(&bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), ours: bool) {
        if let (true, Some(version)) = (ours, bytes.first_mut()) {
            *version = VERSION;
        }
        check_bounds(&bytes, decode_segment(&bytes));
    }

    #[test]
    fn random_small_numbers_never_panic(tail in prop::collection::vec(0..40u8, 0..200)) {
        let bytes = [&[VERSION, 0, 3][..], &tail].concat();
        check_bounds(&bytes, decode_segment(&bytes));
    }
}

#[test]
fn the_bytes_of_a_segment_are_fixed() {
    let mut second = plain(b"a/bd");
    second.kind = EntryKind::Symlink { target: b"x".to_vec() };
    let root =
        Entry { path: RelPath::root(), kind: EntryKind::Directory, mode: 0o755, ..plain(b"-") };
    let bytes = encode_segment(EntryId(300), &[root, plain(b"a/bc"), second]);
    let expected: &[u8] = &[
        1, 0xac, 0x02, 3, // version, first id, count
        0, 0, 0b0_0010, 0xed, 0x03, 0xe8, 0x07, 0xe8, 0x07, // root: mode, uid, gid,
        0x80, 0xc4, 0x9f, 0xd5, 0x0c, 0x95, 0x9a, 0xef, 0x3a, // seconds, nanoseconds
        0, 4, b'a', b'/', b'b', b'c', 0b1_1000, 0xa4, 0x03, 0x95, 0x9a, 0xef, 0x3a, 0x80, 0x20, 3,
        1, b'd', 0b1_1111, 0x95, 0x9a, 0xef, 0x3a, 1, b'x',
    ];
    assert_eq!(bytes, expected);
}

#[test]
fn neighbours_cost_little() {
    let entries: Vec<Entry> = (0..4096)
        .map(|i| plain(format!("project/data/run-2026/sample-{i:06}.dat").as_bytes()))
        .collect();
    assert_eq!(fitting(&entries), 4096);
    let bytes = encode_segment(EntryId(0), &entries);
    assert!(bytes.len() < 4096 * 16, "{} bytes an entry", bytes.len() / 4096);
}

#[test]
fn a_segment_of_the_longest_entries_is_taken() {
    let long = |i: usize| {
        let mut path = b"d/".repeat(1940);
        path.extend_from_slice(format!("{i:0>200}").as_bytes());
        Entry { kind: EntryKind::Symlink { target: vec![b't'; 4096] }, ..plain(&path) }
    };
    let entries: Vec<Entry> = (0..300).map(long).collect();
    let fit = fitting(&entries);
    assert!((50..100).contains(&fit), "{fit}");
    let bytes = encode_segment(EntryId(0), &entries[..fit]);
    assert!(bytes.len() <= MAX_SEGMENT_BYTES);
    assert_eq!(decode_segment(&bytes), Ok((EntryId(0), entries[..fit].to_vec())));
    assert_eq!(fitting(&[]), 0);
}

#[test]
fn a_segment_of_the_largest_attributes_is_taken() {
    let with = |i: usize| {
        let mut entry = plain(format!("{i}").as_bytes());
        let value = vec![b'v'; crate::attributes::MAX_BYTES - 1];
        let attributes = Attributes::new(vec![(b"n".to_vec(), value)]).unwrap();
        entry.extras.attributes = Some(Arc::new(attributes));
        entry
    };
    let entries: Vec<Entry> = (0..20).map(with).collect();
    let fit = fitting(&entries);
    assert_eq!(fit, 7);
    let bytes = encode_segment(EntryId(0), &entries[..fit]);
    assert!(bytes.len() <= MAX_SEGMENT_BYTES);
    assert_eq!(decode_segment(&bytes), Ok((EntryId(0), entries[..fit].to_vec())));
}

#[test]
fn front_coding_does_not_blow_up_memory() {
    let mut path = b"d/".repeat(2047);
    path.push(b'x');
    let same = vec![plain(&path); 2000];
    assert!(fitting(&same) < 1100);
    let bytes = encode_segment(EntryId(0), &same);
    assert!(bytes.len() < 100_000);
    assert_eq!(decode_segment(&bytes), Err(ManifestError::TooLarge));
}

#[test]
fn what_is_out_of_range_is_refused() {
    let refuse = |change: fn(&mut Entry)| {
        let mut entry = plain(b"x");
        change(&mut entry);
        let error = check_entry(&entry).unwrap_err();
        assert_eq!(decode_segment(&encode_segment(EntryId(0), &[entry])), Err(error));
    };
    refuse(|e| e.mode = NO_MODE + 1);
    refuse(|e| e.mtime.nanos = 1_000_000_000);
    refuse(|e| e.kind = EntryKind::File { size: 1 << 63 });
    refuse(|e| e.kind = EntryKind::Symlink { target: Vec::new() });
    refuse(|e| e.kind = EntryKind::Symlink { target: b"a\0b".to_vec() });
    refuse(|e| e.path = RelPath::root());
    refuse(|e| {
        e.kind = EntryKind::Directory;
        e.extras.hard_link = HardLink::First { further: 1 };
    });
    refuse(|e| {
        e.kind = EntryKind::Symlink { target: b"x".to_vec() };
        e.extras.attributes = Some(Arc::default());
    });
    refuse(|e| {
        let tags = [AclTag::Owner, AclTag::OwningGroup, AclTag::Other].map(|tag| (tag, 7));
        let default = Some(Acl::new(tags.to_vec()).unwrap());
        e.extras.acls = Some(Arc::new(Acls { access: None, default }));
    });

    assert_eq!(decode_segment(&[]), Err(ManifestError::Malformed));
    assert_eq!(decode_segment(&[9, 0, 0]), Err(ManifestError::Version(9)));
    assert_eq!(decode_segment(&vec![1; MAX_SEGMENT_BYTES + 1]), Err(ManifestError::TooLarge));
    let mut many = vec![VERSION, 0];
    put_uint(MAX_SEGMENT_ENTRIES as u64 + 1, &mut many);
    assert_eq!(decode_segment(&many), Err(ManifestError::TooLarge));
    let last = encode_segment(EntryId(u32::MAX), &[plain(b"x")]);
    assert_eq!(decode_segment(&last), Err(ManifestError::Field("entry id")));
    // A name of the file of an entry before the first one, encoded by hand.
    let mut linked = vec![VERSION, 5, 1, 0];
    put_bytes(b"x", &mut linked);
    linked.extend_from_slice(&[NAMES | SAME_MODE | SAME_OWNER | SAME_SECOND, 0, 1]);
    let with = |distance| [&linked[..], &[distance]].concat();
    let (_, decoded) = decode_segment(&with(5)).expect("the first entry of all");
    assert_eq!(decoded[0].extras.hard_link, HardLink::To(EntryId(0)));
    assert_eq!(decode_segment(&with(6)), Err(ManifestError::Field("hard link")));
    // A path that leaves the destination, encoded by hand.
    let mut escape = vec![VERSION, 0, 1, 0];
    put_bytes(b"../x", &mut escape);
    escape.extend_from_slice(&[2, 0, 0, 0, 0, 0]);
    assert_eq!(decode_segment(&escape), Err(ManifestError::Path(PathError::Dots)));
}
