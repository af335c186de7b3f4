//! Paths that change: outages, new addresses, smaller packets, dead lanes.

use super::*;
use crate::CloseReason;

fn setup() -> Setup {
    Setup::new("fixed:50mbit", DataRate::from_mbps(100), Duration::from_millis(30))
}

fn raised(pair: &Pair, what: &Event) -> bool {
    pair.events.iter().any(|(_, _, e)| e == what)
}

#[test]
fn an_outage_of_twenty_seconds_is_survived() {
    for controller in ["fixed:50mbit", "native"] {
        let mut pair = Setup { controller, ..setup() }.pair();
        let len = 60_000_000;
        pair.assign(len);
        pair.run(Duration::from_secs(2), |_| false);
        (pair.forward.down, pair.back.down) = (true, true);
        let before = pair.sender.stats().sent_packets;
        pair.run(Duration::from_secs(20), |_| false);
        let during = pair.sender.stats().sent_packets - before;
        assert!(during < 6000, "it kept sending into the void: {during} packets");
        (pair.forward.down, pair.back.down) = (false, false);
        assert!(raised(&pair, &Event::Stalled));
        assert!(pair.run(Duration::from_secs(30), Pair::idle), "{:?}", pair.sender.stats());
        assert!(raised(&pair, &Event::Recovered));
        assert!(pair.sink.is_whole(len));
    }
}

/// What `cwnd` and pace are just before and after an outage of four seconds.
fn around_an_outage(controller: &'static str) -> [crate::FlowStats; 2] {
    let mut pair = Setup { controller, ..setup() }.pair();
    pair.assign(1 << 40);
    pair.run(Duration::from_secs(4), |_| false);
    let before = pair.sender.stats();
    (pair.forward.down, pair.back.down) = (true, true);
    pair.run(Duration::from_secs(4), |_| false);
    (pair.forward.down, pair.back.down) = (false, false);
    let acked = pair.sender.stats().acked_bytes;
    assert!(pair.run(Duration::from_secs(4), |p| p.sender.stats().acked_bytes > acked));
    let after = pair.sender.stats();
    let (at, bytes) = (pair.now, pair.sink.bytes());
    pair.run(Duration::from_secs(4), |_| false);
    let goodput = pair.goodput(at, pair.sink.bytes() - bytes);
    assert!(goodput > DataRate::from_mbps(50), "{controller} came back to {goodput}");
    [before, after]
}

#[test]
fn after_an_outage_the_controllers_of_tcp_begin_with_the_loss_window() {
    for controller in ["reno", "cubic", "highspeed", "scalable"] {
        let [before, after] = around_an_outage(controller);
        assert!(before.cwnd > ByteCount(200 * 1472), "{controller} {before:?}");
        // One packet, and one for each that was acknowledged since.
        assert!(after.cwnd < ByteCount(24 * 1472), "{controller} {after:?}");
    }
}

#[test]
fn after_an_outage_native_resumes_at_half_its_rate() {
    let [before, after] = around_an_outage("native");
    let [before, after] = [before, after].map(|stats| stats.pacing_rate.unwrap().as_bps());
    assert!(after > before * 4 / 10 && after < before * 6 / 10, "{before} {after}");
}

#[test]
fn silence_for_half_a_minute_ends_the_flow_at_both_ends() {
    let mut pair = setup().pair();
    pair.assign(60_000_000);
    pair.run(Duration::from_secs(1), |_| false);
    (pair.forward.down, pair.back.down) = (true, true);
    pair.run(Duration::from_secs(40), |_| false);
    assert!(matches!(pair.closed(true), Some(CloseReason::Silent(_))));
    assert!(matches!(pair.closed(false), Some(CloseReason::Silent(_))));
}

/// When the first data arrives after both ends have begun, in milliseconds, and the final sender.
fn first_data(setup: &Setup) -> (f64, Pair) {
    let mut pair = setup.pair();
    pair.assign(10_000_000);
    let begun = pair.now;
    assert!(pair.run(Duration::from_secs(5), |pair| pair.sink.bytes() > 0));
    let first = pair.now.since(begun).as_secs_f64() * 1e3;
    assert!(pair.run(Duration::from_secs(20), Pair::idle), "{:?}", pair.sender.stats());
    (first, pair)
}

#[test]
fn data_follows_the_first_packet_of_a_peer_that_is_known_to_be_there() {
    let stranger = Setup { controller: "native", ..setup() };
    // The round trip of the control connection is what this path has, or more.
    for known in [30, 45] {
        let friend = Setup { known: Some(Duration::from_millis(known)), ..stranger.clone() };
        let (first, pair) = first_data(&friend);
        assert!((30.0..32.0).contains(&first), "half a round trip each way: {first} ms");
        let (rtt, min) = (pair.sender.stats().rtt.unwrap(), pair.sender.stats().min_rtt.unwrap());
        assert!(min < Duration::from_millis(31) && rtt < Duration::from_millis(45), "{rtt} {min}");
    }
    let (first, _) = first_data(&stranger);
    assert!((45.0..47.0).contains(&first), "the probe's round trip comes first: {first} ms");
}

#[test]
fn a_packet_from_elsewhere_opens_nothing_even_to_a_known_peer() {
    let mut pair = Setup { known: Some(Duration::from_millis(30)), ..setup() }.pair();
    pair.assign(1_000_000);
    pair.back.down = true;
    pair.run(Duration::from_millis(20), |_| false);
    // The receiver's ping as somebody on the path could send it on from another address.
    let mut slab = vec![0; BATCH_BYTES];
    pair.run(Duration::from_millis(500), |_| false);
    let ping = std::iter::from_fn(|| {
        pair.now += Duration::from_millis(500);
        pair.receiver.poll_transmit(pair.now, &mut pair.source, &mut slab)
    });
    let size = ping.map(|transmit| transmit.len).next().expect("it still probes");
    let mut ping = slab[..size].to_vec();
    let mut sink = Sink::new();
    let elsewhere = Datagrams {
        lane: 0,
        from: addr(RECEIVER_PORT + 7, 0),
        bytes: &mut ping,
        stride: size,
        ecn: None,
        received_at: pair.now,
    };
    assert_eq!(pair.sender.handle(pair.now, elsewhere, &mut sink), 1, "it is authentic");
    pair.run(Duration::from_secs(1), |_| false);
    assert_eq!(pair.sender.stats().sent_bytes, ByteCount(0));
    assert!(!pair.events.iter().any(|(sender, ..)| *sender), "{:?}", pair.events);
}

#[test]
fn nobody_there_is_said_so() {
    let mut pair = setup().pair();
    pair.forward.down = true;
    pair.run(Duration::from_secs(40), |_| false);
    assert_eq!(pair.closed(true), Some(&CloseReason::Unreachable));
}

#[test]
fn an_idle_flow_stays_up() {
    let mut pair = setup().pair();
    pair.assign(1_000_000);
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    pair.run(Duration::from_secs(120), |_| false);
    assert_eq!((pair.closed(true), pair.closed(false)), (None, None));
    pair.events.clear();
    pair.sender.assign(Offset(1_000_000)..Offset(2_000_000));
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    assert!(pair.sink.is_whole(2_000_000));
}

#[test]
fn a_nat_that_forgets_costs_a_challenge_only() {
    let mut pair = setup().pair();
    let len = 12_000_000;
    pair.assign(len);
    pair.run(Duration::from_secs(1), |_| false);
    pair.sender_port = 5000;
    assert!(pair.run(Duration::from_secs(10), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
    let moved = Event::PathChanged { lane: 0, to: addr(5000, 0) };
    assert!(raised(&pair, &moved), "{:?}", pair.events.last());
}

#[test]
fn jumbo_datagrams_are_found_and_a_black_hole_is_left() {
    let mut pair = Setup { max_mtu: 8972, ..setup() }.pair();
    let len = 30_000_000;
    pair.assign(len);
    pair.run(Duration::from_secs(1), |_| false);
    assert_eq!(pair.sender.stats().mtu, ByteCount(8972));
    pair.forward.mtu = 1400;
    assert!(pair.run(Duration::from_secs(30), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
    assert!(pair.sender.stats().mtu <= ByteCount(1400));
}

/// The sizes of the captured datagrams with data, in order.
fn data_sizes(pair: &Pair) -> Vec<usize> {
    let captured = pair.captured.iter().flatten();
    captured
        .filter(|d| crate::codec::header::Header::parse(d).is_some_and(|(h, _)| h.offset.is_some()))
        .map(Vec::len)
        .collect()
}

#[test]
fn a_path_that_carries_ethernet_gets_full_datagrams_at_once() {
    for (controller, lanes, rtt) in
        [("fixed:50mbit", 1, 30), ("native", 1, 30), ("cubic", 8, 400), ("udt:grid", 1, 30)]
    {
        let rtt = Duration::from_millis(rtt);
        let mut pair = Setup { lanes, ..Setup::new(controller, setup().rate, rtt) }.pair();
        pair.captured = Some(Vec::new());
        pair.assign(1_000_000);
        assert!(pair.run(Duration::from_secs(5), Pair::idle), "{:?}", pair.sender.stats());
        let small = data_sizes(&pair).iter().filter(|size| **size < 1472).count();
        assert!(small <= 1, "{controller}: {small} datagrams were not full");
        assert_eq!(pair.sender.stats().mtu, ByteCount(1472));
    }
}

#[test]
fn a_peer_that_comes_late_does_not_make_datagrams_small() {
    let mut pair = setup().pair();
    pair.assign(2_000_000);
    pair.forward.down = true;
    pair.run(Duration::from_secs(3), |_| false);
    pair.forward.down = false;
    pair.captured = Some(Vec::new());
    assert!(pair.run(Duration::from_secs(5), Pair::idle), "{:?}", pair.sender.stats());
    assert_eq!(pair.sender.stats().mtu, ByteCount(1472));
    assert!(data_sizes(&pair).iter().filter(|size| **size < 1472).count() <= 1);
}

#[test]
fn a_path_narrower_than_ethernet_carries_data_in_the_first_round_trip() {
    for controller in ["fixed:50mbit", "native", "cubic", "udt:grid", "fobs"] {
        let mut pair = Setup::new(controller, setup().rate, setup().rtt).pair();
        // PPPoE, and a tunnel with little room.
        pair.forward.mtu = if controller == "cubic" { 1464 } else { 1230 };
        pair.assign(10_000_000);
        let established =
            |(by, _, e): &(bool, Time, Event)| *by && matches!(e, Event::Established { .. });
        pair.run(Duration::from_secs(1), |p| p.events.iter().any(established));
        let begun = pair.now;
        assert!(pair.run(Duration::from_secs(1), |p| p.sink.bytes() > 0));
        let first = pair.now.since(begun);
        assert!(first < setup().rtt, "{controller}: the first byte came after {first}");
    }
}

#[test]
fn a_black_hole_is_left_within_a_timeout() {
    for controller in ["fixed:50mbit", "native", "cubic"] {
        let mut pair = Setup { controller, ..setup() }.pair();
        let len = 30_000_000;
        pair.assign(len);
        pair.run(Duration::from_secs(1), |_| false);
        pair.forward.mtu = 1400;
        // What is under way arrives.
        pair.run(setup().rtt * 2, |_| false);
        let (at, before) = (pair.now, pair.sink.bytes());
        assert!(pair.run(Duration::from_secs(5), |p| p.sink.bytes() > before + 100_000));
        let stalled = pair.now.since(at);
        assert!(stalled < setup().rtt * 5, "{controller}: {stalled}");
        assert!(pair.run(Duration::from_secs(30), Pair::idle), "{:?}", pair.sender.stats());
        assert!(pair.sink.is_whole(len));
    }
}

#[test]
fn an_outage_is_no_black_hole() {
    let mut pair = setup().pair();
    pair.assign(60_000_000);
    pair.run(Duration::from_secs(1), |_| false);
    (pair.forward.down, pair.back.down) = (true, true);
    pair.run(Duration::from_secs(5), |_| false);
    (pair.forward.down, pair.back.down) = (false, false);
    let mut least = 1472;
    pair.run(Duration::from_secs(3), |p| {
        least = least.min(p.sender.stats().mtu.get());
        false
    });
    assert_eq!(least, 1472);
    assert!(pair.sink.bytes() > 9_000_000, "{:?}", pair.sender.stats());
}

#[test]
fn a_tunnel_smaller_than_ethernet_is_found_out() {
    let mut pair = setup().pair();
    pair.forward.mtu = 1380;
    let len = 10_000_000;
    pair.assign(len);
    assert!(pair.run(Duration::from_secs(10), Pair::idle), "{:?}", pair.sender.stats());
    let mtu = pair.sender.stats().mtu.get();
    assert!((1200..=1380).contains(&mtu), "{mtu}");
}

#[test]
fn a_lane_that_dies_hands_its_data_to_the_others() {
    let mut pair = Setup { lanes: 3, ..setup() }.pair();
    let len = 20_000_000;
    pair.assign(len);
    pair.run(Duration::from_secs(1), |_| false);
    pair.dead_lane = Some(1);
    assert!(pair.run(Duration::from_secs(15), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
    assert_eq!(pair.closed(true), None);
}

/// The path carries nothing for a while, so that each lane finds all others dead, and one of them
/// stays dead.
#[test]
fn a_lane_that_dies_with_all_others_hands_its_data_over_when_they_come_back() {
    for (controller, dead) in [("reno", 0), ("reno", 1), ("reno", 2), ("cubic", 2)] {
        let rate = DataRate::from_mbps(1000);
        let mut pair = Setup { lanes: 3, controller, rate, ..setup() }.pair();
        let len = 150_000_000;
        pair.assign(len);
        pair.run(Duration::from_secs(1), |_| false);
        pair.forward.down = true;
        pair.run(Duration::from_secs(2), |_| false);
        (pair.forward.down, pair.dead_lane) = (false, Some(dead));
        let done = pair.run(Duration::from_secs(30), Pair::idle);
        assert!(done, "{controller} {dead} {:?}", pair.sender.stats());
        assert!(pair.sink.is_whole(len));
    }
}

/// One lane was never validated. The pool is full for a while.
#[test]
fn a_request_for_room_takes_an_open_lane() {
    let mut pair = Setup { lanes: 2, ..setup() }.pair();
    pair.mute_lane = Some(1);
    (pair.sink.room, pair.sink.drain) = (4 << 20, Some(DataRate::ZERO));
    let len = 8_000_000;
    pair.assign(len);
    pair.run(Duration::from_secs(3), |_| false);
    assert_eq!(pair.sender.stats().limit, crate::Limit::Credit, "{:?}", pair.sender.stats());
    (pair.sink.drain, pair.sink.drained_at) = (Some(DataRate::from_mbps(50)), pair.now);
    assert!(pair.run(Duration::from_secs(2), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
}

/// Assigns a piece of data that ends with a short packet every 50 ms.
pub(super) fn drip(pair: &mut Pair, from: u64, span: Duration) {
    let end = pair.now + span;
    let mut at = from;
    while pair.now < end {
        pair.sender.assign(Offset(at)..Offset(at + 4_500));
        at += 10_000;
        pair.run(Duration::from_millis(50), |_| false);
    }
}

#[test]
fn short_packets_hide_no_black_hole() {
    let mut pair = setup().pair();
    pair.assign(1_000_000);
    pair.run(Duration::from_secs(1), |_| false);
    pair.forward.mtu = 1400;
    drip(&mut pair, 20_000_000, Duration::from_secs(1));
    assert!(pair.sender.stats().mtu <= ByteCount(1400), "{:?}", pair.sender.stats());
}

#[test]
fn the_breaker_stops_a_rate_far_above_the_path() {
    let mut pair = Setup { controller: "fixed:2gbit", ..setup() }.pair();
    pair.assign(4_000_000_000);
    pair.run(Duration::from_secs(20), |_| false);
    let braked = pair.events.iter().any(|(_, _, e)| matches!(e, Event::Braked { .. }));
    assert!(braked, "{:?}", pair.sender.stats());
    let rate = pair.sender.stats().pacing_rate.unwrap();
    assert!(rate < DataRate::from_mbps(500), "{rate}");
}

/// A firewall drops what the sender sends, and lets the receiver's packets through. Their first one
/// opens the sender's path, because the peer is known to be there.
#[test]
fn without_a_first_report_only_probes_leave_after_a_second() {
    let speed = DataRate::from_mbps(100);
    let native = |controller| Setup::new(controller, speed, Duration::from_millis(30));
    let units = |feedback| Setup { feedback, ..native("fixed:50mbit") };
    for setup in [
        native("native"),
        native("fixed:50mbit"),
        native("cubic"),
        units(FeedbackKind::Udt(Variant::Grid)),
        units(FeedbackKind::Fobs),
    ] {
        let mut pair = Setup { lanes: 8, known: Some(Duration::from_millis(30)), ..setup }.pair();
        pair.forward.down = true;
        pair.assign(1 << 40);
        let begun = pair.now;
        pair.run(Duration::from_millis(1_100), |_| false);
        let name = pair.sender.stats().controller;
        let sent = pair.sender.stats().sent_packets;
        assert!(sent > 0, "{name}: the receiver's first ping opens the path");
        pair.run(Duration::from_secs(10), |_| false);
        assert_eq!(pair.sender.stats().sent_packets, sent, "{name}: data left after a second");
        // The firewall is opened: the flow goes on by itself.
        pair.forward.down = false;
        assert!(pair.run(Duration::from_secs(5), |p| p.sink.bytes() > 1 << 20), "{name}");
        assert!(pair.now.since(begun) < Duration::from_secs(17));
    }
}

/// Data comes on a lane that is not open at the receiver, because its pings have no answer there.
#[test]
fn feedback_takes_any_open_lane() {
    for feedback in [
        FeedbackKind::Native,
        FeedbackKind::Udt(Variant::Grid),
        FeedbackKind::Fobs,
        FeedbackKind::Sabul,
    ] {
        let sabul = feedback == FeedbackKind::Sabul;
        let controller = if sabul { "sabul:50mbit" } else { "fixed:50mbit" };
        let known = Some(Duration::from_millis(30));
        let mut pair = Setup { lanes: 2, feedback, controller, known, ..setup() }.pair();
        pair.mute_lane = Some(0);
        // The last datagram is not small either.
        let len = 4_000_600;
        pair.assign(len);
        assert!(
            pair.run(Duration::from_secs(20), Pair::idle),
            "{feedback:?} {:?}",
            pair.sender.stats()
        );
        assert!(pair.sink.is_whole(len));
    }
}
