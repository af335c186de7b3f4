//! Flows with the feedback SABUL: datagrams, and a reliable feedback channel.

use proptest::prelude::*;

use super::*;
use crate::CloseReason;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn setup(controller: &'static str) -> Setup {
    Setup {
        feedback: FeedbackKind::Sabul,
        ..Setup::new(controller, DataRate::from_mbps(100), ms(40))
    }
}

fn lengths(pair: &Pair, of: impl Fn(&Event) -> Option<&std::ops::Range<Offset>>) -> u64 {
    pair.events.iter().filter_map(|(_, _, e)| of(e)).map(|r| r.end.since(r.start).get()).sum()
}

fn placed(pair: &Pair) -> u64 {
    lengths(pair, |e| if let Event::Placed(r) = e { Some(r) } else { None })
}

fn returned(pair: &Pair) -> u64 {
    lengths(pair, |e| if let Event::Returned(r) = e { Some(r) } else { None })
}

/// The goodput until everything was acknowledged.
fn goodput(pair: &Pair, start: Time, bytes: u64) -> DataRate {
    let idle = |(_, at, e): &(bool, Time, Event)| (*e == Event::Idle).then_some(*at);
    let end = pair.events.iter().find_map(idle).unwrap();
    DataRate::from_bytes_over(ByteCount(bytes), end.since(start))
}

#[test]
fn every_variant_moves_everything_once_and_loses_little() {
    for controller in ["sabul", "sabul:multiplicative", "sabul:proportional", "sabul:reduce"] {
        let mut pair = setup(controller).pair();
        let len = 40_000_000;
        pair.assign(len);
        let start = pair.now;
        assert!(pair.run(Duration::from_secs(20), Pair::idle), "{:?}", pair.sender.stats());
        assert!(pair.sink.is_whole(len));
        assert_eq!(pair.source.released.len_bytes().get(), len);
        assert_eq!(placed(&pair), len);
        let stats = pair.sender.stats();
        assert!(stats.rtt.is_some_and(|rtt| rtt >= ms(40)), "{stats:?}");
        let loss = stats.lost_packets as f64 / stats.sent_packets as f64;
        // The first rate is above the path's, and falls in small steps.
        assert!(loss < 0.04, "{controller}: {loss}");
        let goodput = goodput(&pair, start, len);
        assert!(goodput > DataRate::from_mbps(85), "{controller}: {goodput}");
    }
}

#[test]
fn it_keeps_its_rate_through_losses_below_the_limit() {
    let mut pair = setup("sabul:90mbit").pair();
    pair.forward.loss = 0.004;
    let len = 60_000_000;
    pair.assign(len);
    let start = pair.now;
    assert!(pair.run(Duration::from_secs(20), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
    let goodput = goodput(&pair, start, len);
    assert!(goodput > DataRate::from_mbps(78), "{goodput}");
}

#[test]
fn what_is_revoked_comes_back_and_the_rest_arrives() {
    let mut pair = setup("sabul:50mbit").pair();
    pair.forward.loss = 0.01;
    pair.assign(8_000_000);
    pair.run(ms(700), |_| false);
    let (a, b) = (1_000_001, 5_000_123);
    pair.sender.revoke(Offset(a)..Offset(b));
    assert!(pair.run(Duration::from_secs(10), Pair::idle), "{:?}", pair.sender.stats());
    assert_eq!(placed(&pair) + returned(&pair), 8_000_000);
    assert!(returned(&pair) > 0 && returned(&pair) <= b - a);
    pair.events.clear();
    pair.sender.assign(Offset(a)..Offset(b));
    assert!(pair.run(Duration::from_secs(10), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(8_000_000));
}

#[test]
fn a_slow_receiver_is_no_loss() {
    let mut pair = setup("sabul:50mbit").pair();
    (pair.sink.room, pair.sink.drain) = (2_000_000, Some(DataRate::from_mbps(20)));
    let len = 10_000_000;
    pair.assign(len);
    assert!(pair.run(Duration::from_secs(20), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
}

#[test]
fn a_path_that_carries_nothing_stops_it_and_comes_back() {
    let mut pair = setup("sabul:50mbit").pair();
    let len = 20_000_000;
    pair.assign(len);
    pair.run(Duration::from_secs(1), |_| false);
    (pair.forward.down, pair.back.down) = (true, true);
    pair.channel_delay = Duration::from_secs(4);
    let before = pair.sender.stats().sent_packets;
    pair.run(Duration::from_secs(4), |_| false);
    let during = pair.sender.stats().sent_packets - before;
    assert!(during < 8_000, "{during}");
    (pair.forward.down, pair.back.down) = (false, false);
    pair.channel_delay = ms(20);
    // Messages sent meanwhile keep their order in the channel.
    let now = pair.now;
    pair.channel.iter_mut().for_each(|(at, ..)| *at = (*at).min(now));
    assert!(pair.run(Duration::from_secs(60), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
}

#[test]
fn senseless_bytes_on_the_channel_end_the_flow() {
    let mut pair = setup("sabul").pair();
    pair.assign(5_000_000);
    pair.run(ms(200), |_| false);
    pair.sender.handle_reliable(pair.now, &[0xff; 64]);
    pair.run(ms(200), |_| false);
    assert!(matches!(pair.closed(true), Some(CloseReason::Protocol(_))));
    assert_eq!(placed(&pair) + returned(&pair), 5_000_000);
}

#[test]
fn both_ends_learn_of_a_close() {
    let mut pair = setup("sabul").pair();
    pair.assign(1_000_000);
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    pair.sender.close(pair.now, CloseReason::Done);
    assert!(pair.run(Duration::from_secs(2), |p| p.sender.is_closed() && p.receiver.is_closed()));
    assert_eq!(pair.closed(false), Some(&CloseReason::Done));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_byte_exactly_once(
        loss in prop_oneof![Just(0.0), 0.0..0.3],
        duplicate in 0.0..0.1,
        reorder in 0.0..0.2,
        lanes in prop::sample::select(vec![1u8, 3]),
        late in 0..300u64,
        len in 1..2_000_000u64,
        seed in any::<u64>(),
    ) {
        let mut pair = Setup { lanes, seed, ..setup("sabul:60mbit") }.pair();
        (pair.forward.loss, pair.forward.duplicate) = (loss, duplicate);
        (pair.forward.reorder, pair.forward.detour) = (reorder, ms(20));
        pair.back.loss = loss;
        pair.channel_delay = ms(20 + late);
        pair.assign(len);
        prop_assert!(pair.run(Duration::from_secs(120), Pair::idle), "{:?}", pair.sender.stats());
        prop_assert!(pair.sink.is_whole(len));
        prop_assert_eq!(placed(&pair), len);
    }
}
