use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use proptest::prelude::*;

use packtrain_units::ByteCount;

use super::super::address::tests::any_place;
use super::super::deposit::ClaimPurpose;
use super::super::measure::Epoch;
use super::*;

fn key(seed: u8) -> (Ed25519KeyPair, [u8; 32]) {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("any seed makes a key");
    let public = pair.public_key().as_ref().try_into().expect("32 bytes");
    (pair, public)
}

fn seal(session: &Session) -> Result<Header, HeaderError> {
    let (pair, public) = key(1);
    session.seal(public, |text| pair.sign(text).as_ref().try_into().expect("64 bytes"))
}

fn hop(text: &str) -> Hop {
    Hop::tcp(text.parse().expect("a place"))
}

fn plain() -> Session {
    Session {
        kind: Kind::Synchronous,
        id: SessionId(*b"0123456789abcdef"),
        sent: Duration::from_millis(1_763_800_000_123),
        hop_limit: 4,
        source: None,
        destination: hop("192.0.2.7:7876"),
        route: vec![hop("depot.example:7879"), hop("[2001:db8::1]:7879")],
        by_destination: false,
        tree: Vec::new(),
        spool: None,
    }
}

fn any_hop() -> impl Strategy<Value = Hop> {
    (any::<u8>().prop_map(HopTransport::of), any_place())
        .prop_map(|(transport, place)| Hop { transport, place })
}

fn any_spool() -> impl Strategy<Value = Option<Spool>> {
    let (id, size, keep) = (any::<[u8; 16]>(), 0..u64::MAX, any::<u32>());
    let deposit = (id, any::<[u8; 32]>(), prop::option::of(size), keep);
    let deposit = deposit.prop_map(|(session, capability, size, keep)| {
        let (session, keep) = (SessionId(session), Duration::from_secs(keep.into()));
        Spool::Deposit(Deposit { session, capability, size: size.map(ByteCount), keep })
    });
    let purpose = prop_oneof![Just(ClaimPurpose::Read), Just(ClaimPurpose::Release)];
    let claim = (id, purpose).prop_map(|(id, purpose)| Claim { session: SessionId(id), purpose });
    prop::option::of(prop_oneof![deposit, claim.prop_map(Spool::Claim)])
}

fn any_session() -> impl Strategy<Value = Session> {
    let ends = (prop::option::of(any_place()), any_hop());
    let route = prop::collection::vec(any_hop(), 0..=MAX_HOPS);
    let tree = prop::collection::vec((any::<u8>(), 0u8..3, any_hop()), 0..5);
    let fixed = (any::<u16>(), any::<[u8; 16]>(), 0..u64::MAX / 1_000_000, any::<u8>());
    (fixed, ends, route, tree, any_spool()).prop_map(|(fixed, ends, route, tree, spool)| {
        let (source, destination) = ends;
        let tree = tree.into_iter().enumerate().map(|(n, (parent, policy, hop))| {
            let parent = (usize::from(parent) < n).then_some(parent);
            Branch { parent, policy, hop }
        });
        Session {
            kind: match fixed.0 % 9 {
                4 => Kind::Measure(Measure::Token(Epoch { number: fixed.2, author: 7 }, 3)),
                _ if fixed.0 == 4 => Kind::Measure(Measure::Ask),
                _ => Kind::of(fixed.0),
            },
            id: SessionId(fixed.1),
            sent: Duration::from_millis(fixed.2),
            hop_limit: fixed.3,
            source,
            destination,
            route,
            by_destination: fixed.1[0] % 2 == 1,
            tree: tree.collect(),
            spool,
        }
    })
}

/// The documented bytes of a header.
#[test]
fn a_header_is_as_documented() {
    let session = Session { route: vec![hop("10.0.0.9:7879")], ..plain() };
    let bytes = seal(&session).expect("it fits").forwarded_by(DepotId([9; 16])).write();
    let public = key(1).1;
    let mut want = b"PKTS\x00\x01\x00\x01".to_vec();
    want.extend([0, 70 + 11 + 11 + 64 + 16, 0, 70 + 11 + 11, 4, 0]);
    want.extend(b"0123456789abcdef");
    want.extend(1_763_800_000_123u64.to_be_bytes());
    want.extend(public);
    want.extend([2, 0, 8, 1, 4, 0x1e, 0xc4, 192, 0, 2, 7]);
    want.extend([3, 0, 8, 1, 4, 0x1e, 0xc7, 10, 0, 0, 9]);
    assert_eq!(&bytes[..want.len()], want);
    assert_eq!(&bytes[bytes.len() - 16..], [9; 16]);
}

#[test]
fn tables_may_lead_on_after_the_route() {
    let session = Session { by_destination: true, ..plain() };
    let mut header = seal(&session).expect("it fits");
    let destination = &session.destination;
    assert_eq!((header.next(), header.depots_left()), (Some(Next::Depot(&session.route[1])), 4));
    for left in [3, 2, 1, 1, 1, 1, 1] {
        header = header.forwarded_by(DepotId([left as u8; 16]));
        header = Header::read(&header.write()).expect("it reads back");
        assert!(header.is_signed() && header.session.by_destination);
        assert_eq!(
            (header.next(), header.depots_left()),
            (Some(Next::Destination(destination)), left)
        );
    }
    // The trail has an end even if a depot does not keep to the limit.
    let header = header.forwarded_by(DepotId([9; 16])).forwarded_by(DepotId([10; 16]));
    assert_eq!(Header::read(&header.write()), Err(HeaderError::Broken));
    // Without the option nothing is behind the route, and the option has no value.
    let mut header = seal(&plain()).expect("it fits");
    for depot in 0..2 {
        header = header.forwarded_by(DepotId([depot; 16]));
    }
    assert_eq!((header.next(), header.depots_left()), (None, 1));
    assert_eq!(
        Header::read(&header.forwarded_by(DepotId([3; 16])).write()),
        Err(HeaderError::Broken)
    );
    let nobody = seal(&Session { route: Vec::new(), ..session }).expect("it fits");
    assert_eq!(nobody.next(), None, "a session names its first depot");
}

#[test]
fn each_depot_learns_its_place_and_the_next() {
    let header = seal(&plain()).expect("it fits");
    let Session { route, destination, .. } = plain();
    assert_eq!((header.position(), header.next()), (0, Some(Next::Depot(&route[1]))));
    let header = header.forwarded_by(DepotId([1; 16]));
    assert!(header.is_signed(), "the trail is not signed");
    let header = Header::read(&header.write()).expect("it reads back");
    assert_eq!((header.position(), header.next()), (1, Some(Next::Destination(&destination))));
    let header = header.forwarded_by(DepotId([2; 16]));
    assert_eq!(header.next(), None);
    let bytes = header.forwarded_by(DepotId([3; 16])).write();
    assert_eq!(Header::read(&bytes), Err(HeaderError::Broken), "a trail longer than the route");
}

#[test]
fn what_is_no_header_is_told_apart() {
    let good = seal(&plain()).expect("it fits").write();
    assert_eq!(Header::read(b"GET / HTTP/1.1\r\n\r\n"), Err(HeaderError::NoSession));
    assert_eq!(Header::read(&good[..9]), Err(HeaderError::Broken));
    assert_eq!(Header::read(&good[..good.len() - 1]), Err(HeaderError::Broken));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Header::read(&bytes)
    };
    assert_eq!(with(5, 2), Err(HeaderError::Version(2)));
    assert_eq!(with(70, 99), Err(HeaderError::Option(99)));
    assert!(with(70, 200).is_err(), "without a destination");
    assert_eq!(with(11, 3), Err(HeaderError::Broken));
    let long = Session { route: vec![hop("a:1"); MAX_HOPS + 1], ..plain() };
    assert_eq!(seal(&long), Err(HeaderError::TooLong));
    let name = "a".repeat(253);
    let wide = Session { route: vec![hop(&format!("{name}:1")); MAX_HOPS], ..plain() };
    assert!(seal(&wide).is_ok(), "the longest route of names fits");
    let tree = vec![Branch { parent: Some(0), policy: 0, hop: hop("a:1") }];
    assert_eq!(seal(&Session { tree, ..plain() }), Err(HeaderError::Broken));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_header_reads_back_and_stays_signed(
        session in any_session(),
        trail in prop::collection::vec(any::<[u8; 16]>(), 0..4),
    ) {
        let mut header = seal(&session).expect("it fits");
        for depot in trail.into_iter().take(session.route.len()) {
            header = header.forwarded_by(DepotId(depot));
        }
        let read = Header::read(&header.write()).expect("it reads back");
        prop_assert_eq!(&read, &header);
        prop_assert_eq!(&read.session, &session);
        prop_assert!(read.is_signed());
    }

    /// No signed bit can be changed: not in the key, the route or the time.
    #[test]
    fn one_changed_bit_breaks_the_signature(session in any_session(), at: prop::sample::Index, bit in 0u8..8) {
        let header = seal(&session).expect("it fits");
        let mut bytes = header.write();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(read) = Header::read(&bytes) {
            prop_assert!(!read.is_signed());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Header::read(&bytes);
        let mut forged = seal(&plain()).expect("it fits").write();
        let len = forged.len().min(bytes.len() + 10);
        forged[10..len].copy_from_slice(&bytes[..len - 10]);
        let _ = Header::read(&forged);
    }
}
