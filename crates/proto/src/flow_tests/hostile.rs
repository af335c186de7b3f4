//! Hostile input causes a counted drop or closes the flow; it never causes a panic or a wrong byte.

use proptest::prelude::*;

use super::*;
use crate::CloseReason;
use crate::bare::NullPayload;
use crate::codec::frame::{Ack, Frame, Report};
use crate::core::edge::Edge;
use crate::core::{Control, Envelope};
use crate::sealing::Sealing;

fn pair() -> Pair {
    let mut pair =
        Setup::new("fixed:80mbit", DataRate::from_mbps(100), Duration::from_millis(10)).pair();
    pair.captured = Some(Vec::new());
    pair.assign(300_000);
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    pair
}

/// Forges a sealed report of the receiver with the given acknowledgement.
fn forge(pair: &mut Pair, ack: Ack) {
    let report = Report { number: 1 << 20, at: pair.now, acks: vec![ack], ..Report::default() };
    forge_frame(pair, Frame::Report(report));
}

/// Forges a sealed frame of the receiver.
pub(super) fn forge_frame(pair: &mut Pair, frame: Frame) {
    let to = addr(1000, 0);
    let control = Control { lane: 0, to, frame, pad: None, tracked: false };
    let mut slab = vec![0; BATCH_BYTES];
    let Flow { sealer, flow_id, text, .. } = &mut pair.receiver;
    let (flow_id, payload, out) = (*flow_id, &mut NullPayload, &mut slab[..]);
    let mut sealing = Sealing { sealer, flow_id, text, payload, out, len: 0 };
    assert!(sealing.control(&control, 5000));
    let len = sealing.len;
    let (now, from) = (pair.now, addr(RECEIVER_PORT, 0));
    pair.give(false, (0, 0), from, &mut slab[..len], len, now);
    pair.collect();
}

#[test]
fn acknowledging_what_was_never_sent_ends_the_flow() {
    let mut pair = pair();
    let end = pair.sender.core.lanes[0].ledger.next() + 10;
    forge(&mut pair, Ack { lane: 0, start: 0, end, runs: vec![(0, end)] });
    assert_eq!(pair.closed(true), Some(&CloseReason::OptimisticAck));
}

#[test]
fn acknowledging_a_skipped_number_ends_the_flow() {
    let mut pair = pair();
    pair.sender.core.lanes[0].ledger.skip();
    pair.sender.assign(Offset(300_000)..Offset(400_000));
    pair.events.clear();
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    assert_eq!(pair.closed(true), None, "an honest receiver does not fall for it");
    let end = pair.sender.core.lanes[0].ledger.next();
    forge(&mut pair, Ack { lane: 0, start: 0, end, runs: vec![(0, end)] });
    assert_eq!(pair.closed(true), Some(&CloseReason::OptimisticAck));
}

#[test]
fn a_lane_that_does_not_exist_ends_the_flow() {
    let mut pair = pair();
    forge(&mut pair, Ack { lane: 9, start: 0, end: 1, runs: vec![(0, 1)] });
    assert_eq!(pair.closed(true), Some(&CloseReason::OptimisticAck));
}

#[test]
fn replays_are_refused() {
    let mut pair = pair();
    let before = pair.receiver.stats();
    let (now, from) = (pair.now, addr(9999, 0));
    for mut datagram in pair.captured.take().unwrap() {
        let stride = datagram.len();
        assert_eq!(pair.give(true, (0, 0), from, &mut datagram, stride, now), 0);
    }
    let after = pair.receiver.stats();
    assert_eq!(after.received_packets, before.received_packets);
    assert!(after.replayed_datagrams > 200);
    pair.run(Duration::from_secs(1), |_| false);
    assert!(!pair.events.iter().any(|(_, _, e)| matches!(e, Event::PathChanged { .. })));
}

#[test]
fn another_flow_or_lane_is_not_ours() {
    let mut pair = pair();
    let mut datagram = pair.captured.as_ref().unwrap()[5].clone();
    let (flow, lane) = crate::peek(&datagram).unwrap();
    assert_eq!((flow, lane), (7, 0));
    let (now, from, stride) = (pair.now, addr(1000, 0), datagram.len());
    assert_eq!(pair.give(true, (1, 0), from, &mut datagram.clone(), stride, now), 0);
    assert_eq!(pair.give(true, (200, 0), from, &mut datagram.clone(), stride, now), 0);
    datagram[2] ^= 1;
    assert_eq!(pair.give(true, (0, 0), from, &mut datagram, stride, now), 0);
}

/// Otherwise a small packet that names another's address sends it many, and a peer fills the memory.
#[test]
fn a_packet_of_pings_has_one_answer_and_few_answers_wait() {
    let mut pair = pair();
    let ping = |token| Frame::Ping { token, rtt: Duration::ZERO };
    let from = addr(RECEIVER_PORT, 0);
    let envelope = |pn| Envelope { lane: 0, from, pn, size: 80 };
    let core = &mut pair.sender.core;
    let before = core.controls.len();
    core.on_control(pair.now, &envelope(7_000), (0..140).map(ping).collect());
    assert_eq!(core.controls.len(), before + 1);
    for i in 0..1_000 {
        core.on_control(pair.now, &envelope(7_001 + i), vec![ping(i)]);
    }
    assert_eq!(core.controls.len(), 128);
}

/// A sender that leaves out every other number makes each report long.
#[test]
fn reports_on_a_sparse_window_wait_for_those_before_them() {
    let mut pair = pair();
    let (from, room) = (addr(1000, 0), ByteCount(1 << 20));
    let core = &mut pair.receiver.core;
    let envelope = |pn| Envelope { lane: 0, from, pn, size: 80 };
    let (start, count) = (core.lanes[0].window.next() + 10, 60_000);
    for n in 0..count {
        core.on_control(pair.now, &envelope(start + 2 * n), vec![]);
    }
    let (mut now, mut told) = (pair.now, 0);
    for i in 0..200 {
        now += Duration::from_millis(1);
        core.on_control(now, &envelope(start + 1 + 2 * i), vec![]);
        let last = envelope(start + 2 * count + 2 * i);
        core.on_control(now, &last, vec![]);
        core.on_batch(now, now, &last, room);
        core.tick(now);
        assert!(core.controls.len() <= 256, "{} at {i}", core.controls.len());
        told += u32::from(
            matches!(core.controls.pop_front(), Some(c) if matches!(c.frame, Frame::Report(_))),
        );
    }
    assert!(told > 190, "{told}");
}

/// An acknowledgement of UDT is answered, and many of them fit into a packet.
#[test]
fn answers_to_acknowledgements_wait_for_those_before_them() {
    let mut pair =
        Setup::new("udt:grid", DataRate::from_mbps(100), Duration::from_millis(20)).pair();
    pair.assign(300_000);
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    let (from, now) = (addr(RECEIVER_PORT, 0), pair.now);
    let core = &mut pair.sender.core;
    let mut number = 1 << 20;
    for pn in 7_000..7_100 {
        let acks = (0..100).map(|_| {
            number += 1;
            let ack = crate::udt::Ack {
                number,
                next: 0,
                light: false,
                early: false,
                rtt: Duration::from_millis(20),
                rtt_var: Duration::ZERO,
                room: 1_000,
                arrival: None,
                capacity: None,
            };
            Frame::Ack { ack, host: crate::codec::frame::Host::default() }
        });
        core.on_control(now, &Envelope { lane: 0, from, pn, size: 1_400 }, acks.collect());
        core.tick(now);
        assert!(core.controls.len() <= 128, "{}", core.controls.len());
        core.controls.pop_front();
    }
    assert_eq!(pair.closed(true), None, "all of it may be said");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_dropped(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..4000),
        stride in 0usize..2000,
        ours in any::<bool>(),
    ) {
        let mut pair = pair();
        if ours && bytes.len() > 9 {
            bytes[0] &= 0x0f;
            bytes[1..5].copy_from_slice(&7u32.to_be_bytes());
        }
        let (now, from) = (pair.now, addr(1000, 0));
        for to_receiver in [true, false] {
            prop_assert_eq!(pair.give(to_receiver, (0, 0), from, &mut bytes.clone(), stride, now), 0);
        }
        prop_assert!(pair.sink.is_whole(300_000));
    }

    #[test]
    fn a_bent_packet_is_dropped(which in any::<proptest::sample::Index>(), bit in any::<proptest::sample::Index>()) {
        let mut pair = Setup::new("fixed:80mbit", DataRate::from_mbps(100), Duration::from_millis(10)).pair();
        pair.captured = Some(Vec::new());
        pair.forward.down = false;
        pair.assign(50_000);
        assert!(pair.run(Duration::from_secs(5), Pair::idle));
        let captured = pair.captured.take().unwrap();
        let mut datagram = captured[which.index(captured.len())].clone();
        let at = bit.index(datagram.len() * 8);
        datagram[at / 8] ^= 1 << (at % 8);
        let stride = datagram.len();
        let (now, from) = (pair.now, addr(1000, 0));
        prop_assert_eq!(pair.give(true, (0, 0), from, &mut datagram, stride, now), 0);
    }
}
