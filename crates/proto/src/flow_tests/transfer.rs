//! Every byte arrives, whatever the network does to packets.

use proptest::prelude::*;

use super::*;

#[test]
fn a_clean_path_moves_everything_once() {
    let mut pair =
        Setup::new("fixed:400mbit", DataRate::from_mbps(1000), Duration::from_millis(20)).pair();
    let len = 20_000_000;
    pair.assign(len);
    assert!(pair.run(Duration::from_secs(5), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
    let stats = pair.sender.stats();
    assert_eq!(stats.retransmitted_packets, 0, "{stats:?}");
    assert_eq!(stats.sent_bytes, ByteCount(len));
    assert_eq!(pair.source.released.len_bytes().get(), len);
    let placed: u64 = pair
        .events
        .iter()
        .filter_map(|(_, _, e)| match e {
            Event::Placed(r) => Some(r.end.since(r.start).get()),
            _ => None,
        })
        .sum();
    assert_eq!(placed, len);
}

#[test]
fn both_ends_learn_of_a_close() {
    let mut pair =
        Setup::new("fixed:400mbit", DataRate::from_mbps(1000), Duration::from_millis(20)).pair();
    pair.assign(1_000_000);
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    pair.sender.close(pair.now, crate::CloseReason::Done);
    assert!(pair.run(Duration::from_secs(2), |p| p.sender.is_closed() && p.receiver.is_closed()));
    assert_eq!(pair.closed(true), Some(&crate::CloseReason::Done));
    assert_eq!(pair.closed(false), Some(&crate::CloseReason::Done));
}

#[test]
fn a_close_returns_what_is_open() {
    let mut pair =
        Setup::new("fixed:10mbit", DataRate::from_mbps(1000), Duration::from_millis(20)).pair();
    pair.assign(10_000_000);
    pair.run(Duration::from_millis(500), |_| false);
    pair.sender.close(pair.now, crate::CloseReason::Abandoned);
    pair.run(Duration::from_secs(1), |_| false);
    let (mut placed, mut returned) = (0, 0);
    for (_, _, event) in &pair.events {
        match event {
            Event::Placed(r) => placed += r.end.since(r.start).get(),
            Event::Returned(r) => returned += r.end.since(r.start).get(),
            _ => {}
        }
    }
    assert!(placed > 100_000 && returned > 1_000_000, "{placed} {returned}");
    assert_eq!(placed + returned, 10_000_000);
}

#[test]
fn revoked_ranges_come_back() {
    let mut pair =
        Setup::new("fixed:100mbit", DataRate::from_mbps(1000), Duration::from_millis(20)).pair();
    pair.assign(4_000_000);
    pair.run(Duration::from_millis(150), |_| false);
    pair.sender.revoke(Offset(2_000_000)..Offset(4_000_000));
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    let returned = Event::Returned(Offset(2_000_000)..Offset(4_000_000));
    assert!(pair.events.iter().any(|(_, _, e)| *e == returned), "{:?}", pair.events);
    assert!(pair.sink.is_whole(2_000_000));
}

#[test]
fn what_cannot_be_read_is_given_up() {
    let mut pair =
        Setup::new("fixed:100mbit", DataRate::from_mbps(1000), Duration::from_millis(20)).pair();
    pair.source.unreadable = 500_000..700_000;
    pair.assign(1_000_000);
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    let given_up: u64 = pair
        .events
        .iter()
        .filter_map(|(_, _, e)| match e {
            Event::Unreadable(r) => Some(r.end.since(r.start).get()),
            _ => None,
        })
        .sum();
    assert!((200_000..204_000).contains(&given_up), "{given_up}");
    assert!(pair.sink.is_whole(1_000_000 - given_up));
}

#[test]
fn a_payload_that_is_not_ready_is_asked_again() {
    let mut pair =
        Setup::new("fixed:100mbit", DataRate::from_mbps(1000), Duration::from_millis(20)).pair();
    pair.source.pending_below = u64::MAX;
    pair.assign(1_000_000);
    pair.run(Duration::from_secs(1), |_| false);
    assert_eq!(pair.sink.bytes(), 0);
    assert_eq!(pair.sender.stats().limit, crate::Limit::Payload);
    pair.source.pending_below = 0;
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    assert!(pair.sink.is_whole(1_000_000));
}

#[test]
fn a_slow_application_limits_the_flow_and_loses_little() {
    let mut pair =
        Setup::new("fixed:900mbit", DataRate::from_mbps(1000), Duration::from_millis(40)).pair();
    pair.sink.drain = Some(DataRate::from_mbps(200));
    pair.sink.room = 4 << 20;
    let (start, len) = (pair.now, 100_000_000);
    pair.assign(len);
    assert!(pair.run(Duration::from_secs(20), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
    let (goodput, stats) = (pair.goodput(start, len), pair.sender.stats());
    assert!(goodput > DataRate::from_mbps(150), "{goodput} {stats:?}");
    assert!(stats.retransmitted_bytes.get() < len / 5, "{stats:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = |seed| {
        let mut setup = Setup::new("native", DataRate::from_mbps(200), Duration::from_millis(30));
        setup.seed = seed;
        let mut pair = setup.pair();
        pair.forward.loss = 0.01;
        pair.assign(5_000_000);
        assert!(pair.run(Duration::from_secs(20), Pair::idle));
        (pair.digest, pair.now)
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_under_loss_duplication_and_reordering(
        seed in any::<u64>(),
        controller in prop_oneof![Just("fixed:80mbit"), Just("native")],
        lanes in 1u8..5,
        rtt_ms in 1u64..150,
        loss in 0.0f64..0.15,
        back_loss in 0.0f64..0.15,
        duplicate in 0.0f64..0.1,
        reorder in 0.0f64..0.3,
        len in 1u64..3_000_000,
    ) {
        let rtt = Duration::from_millis(rtt_ms);
        let mut setup = Setup::new(controller, DataRate::from_mbps(100), rtt);
        (setup.lanes, setup.seed) = (lanes, seed);
        let mut pair = setup.pair();
        pair.forward.loss = loss;
        pair.forward.duplicate = duplicate;
        pair.forward.reorder = reorder;
        pair.forward.detour = rtt;
        pair.back.loss = back_loss;
        pair.back.reorder = reorder;
        pair.back.detour = rtt;
        pair.assign(len);
        let done = pair.run(Duration::from_secs(60), Pair::idle);
        prop_assert!(done, "not done: {:?}", pair.sender.stats());
        prop_assert!(pair.sink.is_whole(len));
        let released: u64 = pair.source.released.len_bytes().get();
        prop_assert_eq!(released, len);
    }
}
