use packtrain_units::{Duration, Offset};
use proptest::prelude::*;

use super::*;
use crate::Variant;
use crate::codec::unit::Unit;
use crate::core::ledger::Train;
use crate::seam::Placed;

/// A receiver that has received a ping, so that it reports.
fn receiver(room: Room, feedback: FeedbackKind) -> BareFlow {
    let config = BareConfig { room, feedback, ..BareConfig::new(Role::Receiver) };
    BareFlow::new(config, None, Time::ZERO).unwrap()
}

fn train(first: u64, count: u32, offset: u64, last: u16) -> BareTrain {
    let train = Train { first, count, size: 1439, last, offset };
    BareTrain::new(0, &Load { train, repeat: false, unit: None })
}

#[test]
fn trains_split_and_join() {
    let whole = train(100, 5, 7000, 300);
    let mut head = whole.clone();
    let tail = head.split_off(2);
    assert_eq!((head.count(), head.payload()), (2, ByteCount(2 * 1439)));
    assert_eq!((tail.count(), tail.offset()), (3, Offset(7000 + 2 * 1439)));
    assert_eq!(tail.datagram(2), ByteCount(333));
    assert!(!tail.clone().join(&head), "not in this order");
    assert!(head.join(&tail));
    assert_eq!(head, whole);
    assert!(!head.join(&train(105, 1, 7000 + whole.payload().get(), 9)), "a short one ends it");
    assert!(!train(0, 64, 0, 1439).join(&train(64, 1, 64 * 1439, 1439)), "64 at most");
}

#[test]
fn a_pool_empties_at_its_rate_whenever_it_is_asked() {
    let room = Room::Limited { size: ByteCount(100_000), drain: DataRate::from_mbps(8) };
    let at = |us: u64| Time::ZERO + Duration::from_micros(us);
    let mut pool = Pool::new(room, Time::ZERO);
    pool.put(0, 90_000);
    assert_eq!(pool.poll_timeout(), Some(at(15_000)), "a byte a microsecond, a quarter free");
    (1..=15_000).for_each(|us| pool.advance(at(us)));
    assert_eq!((pool.room_now(), pool.poll_timeout()), (ByteCount(25_000), None));
    assert_eq!(pool.put(90_000, 90_000 + 25_001), Placed::NoRoom);
    pool.advance(at(1_000_000));
    assert_eq!(pool.room_now(), ByteCount(100_000));
    assert_eq!(pool.put(0, 10), Placed::Duplicate);
    assert_eq!(pool.delivered(), ByteCount(90_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Trains in any order, repeated, with repeated bytes, into a small pool.
    #[test]
    fn a_train_is_its_packets(
        trains in proptest::collection::vec(
            (0u64..400, 1u32..=44, 0u64..600, 1u16..=1439), 1..40),
        small in any::<bool>(),
        units in proptest::option::of((0u64..50, any::<bool>())),
    ) {
        let room = if small {
            Room::Limited { size: ByteCount(200_000), drain: DataRate::from_mbps(500) }
        } else {
            Room::Endless
        };
        let feedback = match units {
            Some(_) => FeedbackKind::Udt(Variant::Grid),
            None => FeedbackKind::Native,
        };
        let (mut whole, mut single) = (receiver(room, feedback), receiver(room, feedback));
        for (i, (first, count, offset, last)) in trains.into_iter().enumerate() {
            let now = Time::ZERO + Duration::from_millis(i as u64);
            // Units follow offsets, except for what a hostile sender could do.
            let unit = units.map(|(shift, joined)| Unit { first: offset + shift % (1 + i as u64), joined });
            let mut rest = train(first, count, offset * 1439, last);
            rest = rest.with_unit(unit);
            let good = whole.handle(now, now, None, &[BarePacket::Train(rest.clone())]);
            let mut packets = Vec::new();
            while rest.count() > 1 {
                let next = rest.split_off(1);
                packets.push(BarePacket::Train(std::mem::replace(&mut rest, next)));
            }
            packets.push(BarePacket::Train(rest));
            prop_assert_eq!(single.handle(now, now, None, &packets), good);
            prop_assert_eq!(single.stats(), whole.stats());
            prop_assert_eq!(format!("{:?}", single.core), format!("{:?}", whole.core));
            prop_assert_eq!(format!("{:?}", single.pool), format!("{:?}", whole.pool));
        }
    }
}
