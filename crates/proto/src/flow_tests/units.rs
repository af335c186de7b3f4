//! Flows whose feedback counts in data units.

use proptest::prelude::*;

use super::hostile::forge_frame;
use super::*;
use crate::CloseReason;
use crate::codec::frame::{Frame, Host, Report};
use crate::udt::{Ack, Message};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn setup(controller: &'static str) -> Setup {
    Setup::new(controller, DataRate::from_mbps(100), ms(20))
}

fn lengths(pair: &Pair, of: impl Fn(&Event) -> Option<&std::ops::Range<Offset>>) -> u64 {
    pair.events.iter().filter_map(|(_, _, e)| of(e)).map(|r| r.end.since(r.start).get()).sum()
}

#[test]
fn every_variant_moves_everything_once() {
    for controller in ["udt:paper", "udt:grid", "udt:ns2-2003", "udt:udt4"] {
        let mut pair = setup(controller).pair();
        let len = 20_000_000;
        pair.assign(len);
        assert!(pair.run(Duration::from_secs(20), Pair::idle), "{:?}", pair.sender.stats());
        assert!(pair.sink.is_whole(len));
        assert_eq!(pair.source.released.len_bytes().get(), len);
        let stats = pair.sender.stats();
        assert_eq!(lengths(&pair, |e| if let Event::Placed(r) = e { Some(r) } else { None }), len);
        assert!(stats.rtt.is_some_and(|rtt| rtt >= ms(20)), "{stats:?}");
        assert!(stats.controller.starts_with(controller), "{stats:?}");
    }
}

#[test]
fn both_ends_learn_of_a_close() {
    let mut pair = setup("udt:grid").pair();
    pair.assign(1_000_000);
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    pair.sender.close(pair.now, CloseReason::Done);
    assert!(pair.run(Duration::from_secs(2), |p| p.sender.is_closed() && p.receiver.is_closed()));
    assert_eq!(pair.closed(true), Some(&CloseReason::Done));
    assert_eq!(pair.closed(false), Some(&CloseReason::Done));
}

#[test]
fn a_close_returns_what_is_open() {
    let mut pair = setup("udt:grid").pair();
    pair.assign(50_000_000);
    pair.run(ms(500), |_| false);
    pair.sender.close(pair.now, CloseReason::Abandoned);
    pair.run(Duration::from_secs(1), |_| false);
    let placed = lengths(&pair, |e| if let Event::Placed(r) = e { Some(r) } else { None });
    let returned = lengths(&pair, |e| if let Event::Returned(r) = e { Some(r) } else { None });
    assert!(placed > 100_000 && returned > 1_000_000, "{placed} {returned}");
    assert_eq!(placed + returned, 50_000_000);
}

#[test]
fn what_is_revoked_comes_back_and_the_rest_arrives() {
    let mut pair = setup("udt:grid").pair();
    pair.forward.loss = 0.001;
    pair.assign(8_000_000);
    pair.run(ms(300), |_| false);
    // Neither end lies on a unit boundary; some of it is in flight.
    let (a, b) = (1_000_001, 5_000_123);
    pair.sender.revoke(Offset(a)..Offset(b));
    assert!(pair.run(Duration::from_secs(10), Pair::idle), "{:?}", pair.sender.stats());
    let placed = lengths(&pair, |e| if let Event::Placed(r) = e { Some(r) } else { None });
    let returned = lengths(&pair, |e| if let Event::Returned(r) = e { Some(r) } else { None });
    assert_eq!(placed + returned, 8_000_000);
    assert!(returned > 0 && returned <= b - a);
    // The range may be assigned again.
    pair.events.clear();
    pair.sender.assign(Offset(a)..Offset(b));
    assert!(pair.run(Duration::from_secs(10), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(8_000_000));
}

#[test]
fn what_cannot_be_read_is_given_up() {
    for again in [false, true] {
        let mut pair = setup("udt:grid").pair();
        pair.forward.loss = 0.05;
        if again {
            // Readable only the first time.
            pair.assign(1_000_000);
            pair.run(ms(120), |_| false);
        }
        pair.source.unreadable = 200_000..700_000;
        if !again {
            pair.assign(1_000_000);
        }
        assert!(pair.run(Duration::from_secs(10), Pair::idle), "{:?}", pair.sender.stats());
        let given_up =
            lengths(&pair, |e| if let Event::Unreadable(r) = e { Some(r) } else { None });
        assert!(given_up <= 504_000 && (again || given_up >= 500_000), "{given_up}");
        assert!(pair.sink.bytes() >= 1_000_000 - given_up);
    }
}

#[test]
fn a_payload_that_is_not_ready_is_asked_again() {
    let mut pair = setup("udt:grid").pair();
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
fn an_outage_of_twenty_seconds_is_survived() {
    let mut pair = setup("udt:grid").pair();
    let len = 60_000_000;
    pair.assign(len);
    pair.run(Duration::from_secs(2), |_| false);
    (pair.forward.down, pair.back.down) = (true, true);
    let before = pair.sender.stats().sent_packets;
    pair.run(Duration::from_secs(20), |_| false);
    let during = pair.sender.stats().sent_packets - before;
    assert!(during < 20_000, "it kept sending into the void: {during} packets");
    (pair.forward.down, pair.back.down) = (false, false);
    assert!(pair.events.iter().any(|(_, _, e)| *e == Event::Stalled));
    assert!(pair.run(Duration::from_secs(40), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.events.iter().any(|(_, _, e)| *e == Event::Recovered));
    assert!(pair.sink.is_whole(len));
}

#[test]
fn a_path_that_shrinks_gets_smaller_units() {
    let mut pair = setup("udt:grid").pair();
    let len = 30_000_000;
    pair.assign(len);
    pair.run(Duration::from_secs(1), |_| false);
    assert_eq!(pair.sender.stats().mtu, ByteCount(1472));
    pair.forward.mtu = 1300;
    assert!(pair.run(Duration::from_secs(60), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
    assert!(pair.sender.stats().mtu <= ByteCount(1300));
    let mut pair = setup("udt:grid").pair();
    pair.assign(len);
    pair.run(Duration::from_secs(1), |_| false);
    let now = pair.now;
    pair.forward.mtu = 1400;
    pair.sender.too_large(now, ByteCount(1472));
    assert!(pair.run(Duration::from_secs(60), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
}

#[test]
fn a_tunnel_smaller_than_ethernet_is_found_out() {
    let mut pair = setup("udt:grid").pair();
    pair.forward.mtu = 1380;
    let len = 10_000_000;
    pair.assign(len);
    assert!(pair.run(Duration::from_secs(30), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
}

#[test]
fn a_slow_application_limits_the_flow_and_loses_little() {
    let mut pair = Setup::new("udt:grid", DataRate::from_mbps(1000), ms(40)).pair();
    pair.sink.drain = Some(DataRate::from_mbps(200));
    pair.sink.room = 4 << 20;
    let (start, len) = (pair.now, 100_000_000);
    pair.assign(len);
    assert!(pair.run(Duration::from_secs(20), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
    let (goodput, stats) = (pair.goodput(start, len), pair.sender.stats());
    assert!(goodput > DataRate::from_mbps(120), "{goodput} {stats:?}");
    assert!(stats.retransmitted_bytes.get() < len / 5, "{stats:?}");
}

/// A flow of each feedback that counts in units, at 50 Mbit/s.
fn each_feedback() -> [Setup; 3] {
    let fixed = setup("fixed:50mbit");
    [
        Setup { feedback: FeedbackKind::Udt(Variant::Grid), ..fixed.clone() },
        Setup { feedback: FeedbackKind::Fobs, ..fixed },
        setup("sabul:50mbit"),
    ]
}

/// The disk stands still until the pool is full. What is in flight then fits, because the receiver
/// counts units of their size: nothing is refused, and nothing is left in flight.
#[test]
fn room_that_returns_after_a_standstill_is_announced() {
    let sizes = [1200, 1472, 8972];
    for (setup, max_mtu) in each_feedback().into_iter().flat_map(|s| sizes.map(|n| (s.clone(), n)))
    {
        let feedback = setup.feedback;
        let mut pair = Setup { max_mtu, ..setup }.pair();
        (pair.sink.room, pair.sink.drain) = (4 << 20, Some(DataRate::ZERO));
        let len = 10_000_000;
        pair.assign(len);
        pair.run(Duration::from_secs(5), |_| false);
        let stats = pair.sender.stats();
        assert_eq!(stats.limit, crate::Limit::Credit, "{feedback:?} {max_mtu} {stats:?}");
        assert_eq!(stats.refused_packets, 0, "{feedback:?} {max_mtu} {stats:?}");
        (pair.sink.drain, pair.sink.drained_at) = (Some(DataRate::from_mbps(20)), pair.now);
        assert!(pair.run(Duration::from_secs(10), Pair::idle), "{feedback:?} {max_mtu} {stats:?}");
        assert!(pair.sink.is_whole(len));
    }
}

/// One of three lanes fails while data moves, as `fail` says; each feedback, and each lane in turn.
fn lane_fails(fail: impl Fn(&mut Pair, u8)) {
    for setup in each_feedback() {
        for lane in 0..3 {
            let feedback = setup.feedback;
            let mut pair = Setup { lanes: 3, ..setup.clone() }.pair();
            let len = 20_000_000;
            pair.assign(len);
            pair.run(Duration::from_secs(1), |_| false);
            fail(&mut pair, lane);
            let done = pair.run(Duration::from_secs(20), Pair::idle);
            assert!(done, "{feedback:?} {lane} {:?}", pair.sender.stats());
            assert!(pair.sink.is_whole(len));
        }
    }
}

#[test]
fn a_lane_that_dies_hands_its_data_to_the_others() {
    lane_fails(|pair, lane| pair.dead_lane = Some(lane));
}

/// What the receiver sends still comes: feedback without progress, and answers to no ping.
#[test]
fn a_lane_that_dies_in_one_direction_is_left_too() {
    lane_fails(|pair, lane| pair.deaf_lane = Some(lane));
}

/// A path that shrinks while pieces of data come that end with a short packet, which still arrives.
#[test]
fn short_packets_hide_no_black_hole() {
    for setup in each_feedback() {
        let feedback = setup.feedback;
        let mut pair = setup.pair();
        pair.assign(1_000_000);
        pair.run(Duration::from_secs(1), |_| false);
        pair.forward.mtu = 1400;
        super::network::drip(&mut pair, 20_000_000, Duration::from_secs(3));
        let mtu = pair.sender.stats().mtu;
        assert!(mtu <= ByteCount(1400), "{feedback:?} {:?}", pair.sender.stats());
    }
}

#[test]
fn the_breaker_stops_a_rate_far_above_the_path() {
    let mut pair = Setup::over_udt("fixed:2gbit", DataRate::from_mbps(100), ms(20)).pair();
    pair.assign(4_000_000_000);
    pair.run(Duration::from_secs(20), |_| false);
    let braked = pair.events.iter().any(|(_, _, e)| matches!(e, Event::Braked { .. }));
    assert!(braked, "{:?}", pair.sender.stats());
    let rate = pair.sender.stats().pacing_rate.unwrap();
    assert!(rate < DataRate::from_mbps(500), "{rate}");
}

#[test]
fn what_the_host_drops_is_told() {
    let mut pair = setup("udt:grid").pair();
    pair.receiver.host_drops(0, 77);
    pair.assign(1_000_000);
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    assert_eq!(pair.sender.stats().host_drops, 77);
    let told = |e: &Event| matches!(e, Event::HostLimited { drops: 77, .. });
    assert!(pair.events.iter().any(|(sender, _, e)| *sender && told(e)));
}

#[test]
fn a_mismatch_is_refused_at_start() {
    let controller = |name: &str| {
        let config = ControllerConfig {
            mtu: ByteCount(1472),
            seed: 1,
            now: Time::ZERO,
            ceiling: None,
            rtt: None,
        };
        Some(build(name, &config).unwrap())
    };
    let flow = |name, lanes: u16, feedback| {
        let peers = (0..lanes).map(|lane| vec![addr(lane, 0)]).collect();
        let mut config = FlowConfig::new(Role::Sender, keys(), 7, peers);
        config.feedback = feedback;
        Flow::new(config, controller(name), Time::ZERO).map(drop)
    };
    let udt = FeedbackKind::Udt;
    assert_eq!(flow("udt:grid", 1, udt(Variant::Grid)), Ok(()));
    assert_eq!(flow("udt:grid", 8, udt(Variant::Grid)), Ok(()));
    let lacks = |name: &'static str, of| Err(crate::FlowError::Signals(name, of));
    assert_eq!(flow("native", 1, udt(Variant::Grid)), lacks("native", "udt"));
    assert_eq!(flow("udt:grid", 8, FeedbackKind::Native), Ok(()), "it knows the delay's trend");
    assert!(flow("udt:paper", 1, udt(Variant::Udt4)).is_err(), "no warnings, no trend");
    assert_eq!(flow("fixed:1gbit", 1, udt(Variant::Udt4)), Ok(()));
}

#[test]
fn acknowledging_what_was_never_sent_ends_the_flow() {
    let ack = |next| Ack {
        number: 9_999,
        next,
        light: false,
        early: false,
        rtt: ms(20),
        rtt_var: ms(1),
        room: 100,
        arrival: None,
        capacity: None,
    };
    let frames = [
        Frame::Ack { ack: ack(1 << 30), host: Host::default() },
        Frame::Unit(Message::Nak { ranges: vec![(5, 1 << 40)] }),
    ];
    for frame in frames {
        let mut pair = setup("udt:grid").pair();
        pair.assign(300_000);
        assert!(pair.run(Duration::from_secs(5), Pair::idle));
        forge_frame(&mut pair, frame);
        assert_eq!(pair.closed(true), Some(&CloseReason::OptimisticAck));
    }
}

#[test]
fn feedback_of_another_kind_ends_the_flow() {
    let mut pair = setup("udt:grid").pair();
    pair.assign(300_000);
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    forge_frame(&mut pair, Frame::Report(Report::default()));
    assert!(matches!(pair.closed(true), Some(CloseReason::Protocol(_))));
    let mut pair = Setup { feedback: FeedbackKind::Native, ..setup("fixed:50mbit") }.pair();
    pair.assign(300_000);
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    forge_frame(&mut pair, Frame::Unit(Message::Warning));
    assert!(matches!(pair.closed(true), Some(CloseReason::Protocol(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_under_loss_duplication_and_reordering(
        seed in any::<u64>(),
        rtt_ms in 1u64..150,
        loss in 0.0f64..0.15,
        back_loss in 0.0f64..0.15,
        duplicate in 0.0f64..0.1,
        reorder in 0.0f64..0.3,
        len in 1u64..2_000_000,
        revoked in proptest::option::of((0u64..1_000_000, 1u64..500_000, 10u64..400)),
    ) {
        let rtt = ms(rtt_ms);
        let mut setup = Setup::over_udt("fixed:80mbit", DataRate::from_mbps(100), rtt);
        setup.seed = seed;
        let mut pair = setup.pair();
        pair.forward.loss = loss;
        pair.forward.duplicate = duplicate;
        pair.forward.reorder = reorder;
        pair.forward.detour = rtt;
        pair.back.loss = back_loss;
        pair.back.reorder = reorder;
        pair.back.detour = rtt;
        pair.assign(len);
        if let Some((at, n, after)) = revoked {
            pair.run(ms(after), |_| false);
            pair.sender.revoke(Offset(at)..Offset(at + n));
            let back: Vec<_> = std::iter::from_fn(|| pair.sender.poll_event()).collect();
            pair.events.retain(|(_, _, e)| *e != Event::Idle);
            for event in back {
                match event {
                    Event::Returned(range) => pair.sender.assign(range),
                    event => pair.events.push((true, pair.now, event)),
                }
            }
        }
        let done = pair.run(Duration::from_secs(300), |p| p.sender.backlog() == ByteCount::ZERO);
        prop_assert!(done, "not done: {:?}", pair.sender.stats());
        prop_assert!(pair.sink.is_whole(len));
        pair.send(true);
        let released: u64 = pair.source.released.len_bytes().get();
        prop_assert_eq!(released, len);
    }
}

#[test]
fn a_window_that_loss_left_small_grows_again() {
    for controller in ["udt:paper", "udt:grid", "udt:udt4"] {
        let mut pair = setup(controller).pair();
        pair.forward.loss = 0.02;
        pair.assign(1 << 40);
        pair.run(Duration::from_secs(3), |_| false);
        let (start, before) = (pair.now, pair.sink.bytes());
        let mut paces = 0;
        for _ in 0..30 {
            pair.run(ms(100), |_| false);
            paces += pair.sender.stats().pacing_rate.unwrap().as_bps();
        }
        let goodput = pair.goodput(start, pair.sink.bytes() - before);
        let stats = pair.sender.stats();
        // The limit is the rate that the law allows at this loss, not the window.
        assert!(goodput > DataRate::from_mbps(2), "{controller} {goodput} {stats:?}");
        let pace = paces / 30;
        assert!(goodput.as_bps() * 2 > pace, "{controller} {goodput} {pace} {stats:?}");
    }
}

/// The rates that docs/guide/background/udt-under-random-loss.md gives for the controller, in
/// Mbit/s. The window must not reduce the rate below what the law allows. The first 12 s contain
/// slow start and the descent from it.
#[test]
fn random_loss_leaves_what_the_law_allows() {
    for (loss, law) in [(1e-3, 206.0), (1e-2, 47.0)] {
        let (mut first, mut later) = (0.0, 0.0);
        for seed in 1..=3 {
            let mut pair =
                Setup { seed, ..Setup::new("udt:grid", DataRate::from_mbps(1000), ms(100)) }.pair();
            pair.forward.loss = loss;
            pair.assign(1 << 40);
            let mut mbps = |seconds| {
                let (start, before) = (pair.now, pair.sink.bytes());
                pair.run(Duration::from_secs(seconds), |_| false);
                pair.goodput(start, pair.sink.bytes() - before).as_bps() as f64 / 3e6
            };
            first += mbps(12);
            later += mbps(12);
        }
        assert!(first > law, "{loss}: {first}");
        assert!((later / law - 1.0).abs() < 0.15, "{loss}: {later} {law}");
    }
}

#[test]
fn lanes_read_one_after_the_other_are_no_losses() {
    for seed in 1..=3 {
        let fast = DataRate::from_mbps(40_000);
        let mut setup = Setup::new("fixed:4gbit", fast, ms(2));
        (setup.lanes, setup.seed) = (8, seed);
        setup.feedback = FeedbackKind::Udt(Variant::Grid);
        let mut pair = setup.pair();
        pair.lane_lag = Duration::from_micros(40);
        let len = 200_000_000;
        pair.assign(len);
        pair.run(ms(100), |_| false);
        // A pause, after which no lane is in use.
        pair.forward.down = true;
        pair.run(ms(12), |_| false);
        pair.forward.down = false;
        let lost = pair.sender.stats().retransmitted_packets;
        assert_eq!(lost, 0, "seed {seed}: {:?}", pair.sender.stats());
        assert!(pair.run(Duration::from_secs(20), Pair::idle), "{:?}", pair.sender.stats());
        assert!(pair.sink.is_whole(len));
        assert_eq!(pair.receiver.stats().lanes, 8);
        // Packets lost in the pause were reported and retransmitted, but not packets that were read
        // late.
        let (again, dropped) = (pair.sender.stats().retransmitted_packets, pair.forward.dropped);
        assert!(dropped > 1_000 && again <= dropped * 2, "{again} {dropped}");
    }
}
