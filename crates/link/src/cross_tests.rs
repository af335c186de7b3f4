use proptest::prelude::*;

use super::*;

fn mbit(n: u64) -> DataRate {
    DataRate::from_mbps(n)
}

fn kinds() -> Vec<CrossKind> {
    let ms = Duration::from_millis;
    vec![
        CrossKind::Cbr(vec![
            (Time::ZERO, mbit(100)),
            (Time::from_nanos(50_123_456), DataRate::ZERO),
            (Time::from_nanos(70_000_000), mbit(777)),
        ]),
        CrossKind::Poisson(mbit(200)),
        CrossKind::ParetoOnOff { rate: mbit(500), on: ms(10), off: ms(15), shape: 1.5 },
        CrossKind::Bursts { packets: 44, line: mbit(10_000), mean: mbit(100) },
    ]
}

/// Times of the first packets, requested in trains of at most `max_count`.
fn times(kind: &CrossKind, seed: u64, n: usize, max_count: u32) -> Vec<Time> {
    let config = CrossConfig { packet: ByteCount(1_500), kind: kind.clone() };
    config.check().unwrap();
    let (mut cross, mut times) = (Cross::new(&config, seed), Vec::new());
    while times.len() < n {
        let (pace, train) = cross.next_train(max_count).unwrap();
        assert_eq!(train.first, times.len() as u64);
        assert!(train.count >= 1 && train.count <= max_count);
        times.extend((0..train.count).map(|i| pace.time(i)));
    }
    times.truncate(n);
    times
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn packets_do_not_depend_on_the_length_of_trains(seed: u64, max_count in 2..100u32) {
        for kind in kinds() {
            let single = times(&kind, seed, 3_000, 1);
            prop_assert!(single.is_sorted());
            prop_assert_eq!(times(&kind, seed, 3_000, max_count), single);
        }
    }
}

fn rate(times: &[Time]) -> f64 {
    let span = times[times.len() - 1].since(Time::ZERO).as_secs_f64();
    times.len() as f64 * 12_000.0 / span / 1e6
}

#[test]
fn mean_rates_are_what_they_are_said_to_be() {
    let [_, poisson, _, bursts] = &kinds()[..] else { panic!("four kinds") };
    let poisson = rate(&times(poisson, 1, 200_000, 64));
    assert!((poisson - 200.0).abs() < 2.0, "{poisson}");
    let bursts = rate(&times(bursts, 1, 400_000, 64));
    assert!((bursts - 100.0).abs() < 2.0, "{bursts}");
    // Light tails, so that a mean can be measured: 500 Mbit/s two fifths of the time.
    let ms = Duration::from_millis;
    let onoff = CrossKind::ParetoOnOff { rate: mbit(500), on: ms(10), off: ms(15), shape: 4.0 };
    let onoff = rate(&times(&onoff, 1, 1_000_000, 64));
    assert!((onoff - 200.0).abs() < 4.0, "{onoff}");
}

#[test]
fn a_constant_rate_does_not_drift() {
    // 1500 bytes at 777 Mbit/s are 15444.0154 ns.
    let times = times(&CrossKind::Cbr(vec![(Time::ZERO, mbit(777))]), 1, 6_400_001, 64);
    assert_eq!(times[6_400_000], Time::from_nanos(98_841_698_842));
}

#[test]
fn steps_change_the_rate_when_they_say() {
    let times = times(&kinds()[0], 1, 1_000, 64);
    let silence = Time::from_nanos(50_123_456)..Time::from_nanos(70_000_000);
    assert!(!times.iter().any(|at| silence.contains(at)));
    // One packet per 120 us, the last one before the silence.
    assert_eq!(times.iter().filter(|at| **at < silence.start).count(), 418);
    assert!(times.contains(&silence.end));
    let mut ended = Cross::new(
        &CrossConfig {
            packet: ByteCount(100),
            kind: CrossKind::Cbr(vec![
                (Time::ZERO, mbit(1)),
                (Time::from_nanos(2_000_000), DataRate::ZERO),
            ]),
        },
        1,
    );
    assert_eq!(ended.next_train(64).map(|(_, train)| train.count), Some(3));
    assert_eq!(ended.next_train(64), None);
}

#[test]
fn impossible_traffic_is_refused_by_field() {
    let field =
        |packet, kind| CrossConfig { packet: ByteCount(packet), kind }.check().unwrap_err().field;
    let ms = Duration::from_millis;
    assert_eq!(field(0, CrossKind::Poisson(mbit(1))), "packet");
    assert_eq!(field(70_000, CrossKind::Poisson(mbit(1))), "packet");
    assert_eq!(field(100, CrossKind::Poisson(DataRate::ZERO)), "rate");
    assert_eq!(field(100, CrossKind::Cbr(Vec::new())), "steps");
    let back = vec![(Time::from_nanos(5), mbit(1)), (Time::ZERO, mbit(2))];
    assert_eq!(field(100, CrossKind::Cbr(back)), "steps");
    assert_eq!(field(100, CrossKind::Cbr(vec![(Time::ZERO, DataRate::MAX)])), "steps");
    let onoff = |on, off, shape| CrossKind::ParetoOnOff { rate: mbit(1), on, off, shape };
    assert_eq!(field(100, onoff(ms(0), ms(1), 1.5)), "on");
    assert_eq!(field(100, onoff(ms(1), ms(0), 1.5)), "off");
    assert_eq!(field(100, onoff(ms(1), ms(1), 1.0)), "shape");
    assert_eq!(field(100, onoff(ms(1), ms(1), f64::NAN)), "shape");
    let bursts = |packets, line, mean| CrossKind::Bursts { packets, line, mean };
    assert_eq!(field(100, bursts(0, mbit(2), mbit(1))), "packets");
    assert_eq!(field(100, bursts(2, mbit(1), mbit(1))), "line");
}
