use packtrain_units::Rng;
use proptest::prelude::{
    ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

use super::super::gain::Response;
use super::*;

const STEP: Duration = Duration::from_millis(50);

/// The true properties of a path.
#[derive(Clone, Copy, Debug)]
struct Nature {
    /// The rate of one stream under losses, in bit/s.
    each: f64,
    /// The maximum rate of all streams.
    capacity: f64,
}

/// The outcome of opening a stream over a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Behaviour {
    #[default]
    Works,
    /// Refused at once.
    Refuses,
    /// No answer.
    Silent,
}

#[derive(Clone, Debug)]
struct World {
    paths: Vec<Nature>,
    /// The outcome for each path; the others work.
    behaviours: Vec<Behaviour>,
    /// Whether depots share the direct path's slowest link.
    shared: bool,
    wanted: u32,
    rtt: Duration,
    size: u64,
    /// Amplitude of the rates' variation, and its period in steps.
    swing: f64,
    seed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Came {
    seconds: f64,
    /// Share of the bytes that went over depots.
    over: f64,
}

impl World {
    /// Simulates a transfer; without a selector on the direct path.
    fn play(&self, mut selector: Option<&mut PathSelector>) -> Came {
        let count = self.paths.len();
        let mut rng = Rng::new(self.seed);
        let mut noise = vec![0.0f64; count];
        // Ages of each path's streams, for their start-up.
        let mut ages: Vec<Vec<f64>> = vec![Vec::new(); count];
        let mut delivered = vec![0.0f64; count];
        let (mut now, mut steps) = (Time::from_nanos(1), 0u64);
        let step = STEP.as_secs_f64();
        let rise = (self.rtt * 8).as_secs_f64();
        loop {
            let moved: f64 = delivered.iter().sum();
            if moved * 8.0 >= self.size as f64 * 8.0 {
                let over = 1.0 - delivered[0] / moved;
                return Came { seconds: steps as f64 * step, over };
            }
            assert!(steps < 400_000, "it does not end");
            for (n, ages) in ages.iter_mut().enumerate() {
                let id = PathId::numbered(n as u8);
                let wanted = match &selector {
                    Some(selector) => selector.target(id, self.wanted) as usize,
                    None if n == 0 => self.wanted as usize,
                    None => 0,
                };
                let behaviour = self.behaviours.get(n).copied().unwrap_or_default();
                match (&mut selector, behaviour) {
                    (Some(selector), Behaviour::Refuses) if wanted > 0 => {
                        selector.failed(now, id, "refuses")
                    }
                    _ => {}
                }
                let wanted = if behaviour == Behaviour::Works { wanted } else { 0 };
                ages.truncate(wanted.max(ages.len().saturating_sub(1)));
                ages.resize(wanted.max(ages.len()), 0.0);
            }
            let mut asked: Vec<f64> = (0..count)
                .map(|n| {
                    noise[n] = noise[n] * 0.98 + (rng.unit() - 0.5) * self.swing;
                    let swing = noise[n].exp();
                    let streams = ages[n].iter().map(|age| (age / rise).min(1.0)).sum::<f64>();
                    (streams * self.paths[n].each * swing).min(self.paths[n].capacity)
                })
                .collect();
            if self.shared {
                let all: f64 = asked.iter().sum();
                let max = self.paths[0].capacity;
                if all > max {
                    asked.iter_mut().for_each(|rate| *rate *= max / all);
                }
            }
            for (n, rate) in asked.iter().enumerate() {
                delivered[n] += rate * step / 8.0;
                ages[n].iter_mut().for_each(|age| *age += step);
            }
            (now, steps) = (now + STEP, steps + 1);
            let Some(selector) = selector.as_deref_mut() else { continue };
            let seen: Vec<Seen> = (0..count)
                .map(|n| Seen {
                    streams: ages[n].len() as u32,
                    delivered: ByteCount(delivered[n] as u64),
                    frozen: false,
                })
                .collect();
            let nature = self.paths[0];
            let full = nature.each * f64::from(self.wanted) >= nature.capacity;
            let limit = if full { Limit::Path } else { Limit::Losses(Response::Reno) };
            let left = (self.size as f64 - delivered.iter().sum::<f64>()).max(0.0);
            selector.update(&PathReadings {
                now,
                paths: &seen,
                wanted: self.wanted,
                rtt: self.rtt,
                limit,
                left: Some(ByteCount(left as u64)),
                busy: true,
            });
        }
    }

    fn selector(&self) -> PathSelector {
        let mut selector = PathSelector::new();
        for n in 1..self.paths.len() {
            let path = selector.add(format!("d{n}:1"));
            selector.set_hops(path, vec![self.rtt.mul_f64(0.5); 2]);
        }
        selector
    }
}

fn lossy(gain: f64) -> World {
    World {
        paths: vec![
            Nature { each: 14e6, capacity: 1e9 },
            Nature { each: 14e6 * gain, capacity: 1e9 },
        ],
        behaviours: Vec::new(),
        shared: false,
        wanted: 1,
        rtt: Duration::from_millis(100),
        size: 100_000_000,
        swing: 0.05,
        seed: 1,
    }
}

#[test]
fn a_lossy_path_with_a_depot_half_way_is_left_for_it() {
    let world = lossy(2.83);
    let mut selector = world.selector();
    let (auto, direct) = (world.play(Some(&mut selector)), world.play(None));
    assert!(auto.over > 0.7, "{auto:?} {:#?}", selector.reasons());
    assert!(auto.seconds < direct.seconds * 0.55, "{auto:?} {direct:?}");
    assert!(
        selector.steady(PathId::numbered(1)).is_some() && selector.steady(PathId::DIRECT).is_some()
    );
}

#[test]
fn a_clean_path_and_a_short_transfer_stay_direct() {
    let clean = World {
        paths: vec![Nature { each: 1e9, capacity: 1e8 }, Nature { each: 1e9, capacity: 1e8 }],
        ..lossy(1.0)
    };
    let mut selector = clean.selector();
    assert!(clean.play(Some(&mut selector)).over < 1e-9, "{:#?}", selector.reasons());
    let short = World { size: 2_000_000, ..lossy(2.83) };
    let mut selector = short.selector();
    assert!(short.play(Some(&mut selector)).over < 1e-9, "{:#?}", selector.reasons());
}

#[test]
fn a_model_that_promised_too_much_costs_a_trial() {
    for gain in [0.2, 0.6, 0.9, 1.0] {
        let world = World { size: 300_000_000, wanted: 4, ..lossy(gain) };
        let mut selector = world.selector();
        let (auto, direct) = (world.play(Some(&mut selector)), world.play(None));
        assert!(auto.seconds <= direct.seconds / 0.95, "{auto:?} {direct:?} {selector:?}");
    }
}

#[test]
fn sure_forecasts_are_followed_at_once_and_corrected() {
    let sure = |rate: u64| Forecasted { rate: DataRate::from_mbps(rate), error: 0.1 };
    for (gain, over) in [(3.0, true), (0.5, false)] {
        let world = World { size: 300_000_000, ..lossy(gain) };
        let mut selector = world.selector();
        selector.set_forecast(PathId::DIRECT, sure(14));
        selector.set_forecast(PathId::numbered(1), sure(40));
        let (auto, direct) = (world.play(Some(&mut selector)), world.play(None));
        assert!(selector.reasons()[0].contains("taken"), "{:?}", selector.reasons());
        assert_eq!(auto.over > 0.7, over, "{auto:?} {:#?}", selector.reasons());
        if !over {
            assert!(auto.seconds < direct.seconds * 1.10, "{auto:?} {direct:?}");
        }
    }
}

/// Depots that relay at a hundredth of the speed, refuse, or never answer, whatever losses, history
/// and hops promise: they slow a transfer by at most a part of a trial.
#[test]
fn a_bad_depot_costs_no_more_than_a_part_of_a_trial() {
    let sure = |mbps: u64| Forecasted { rate: DataRate::from_mbps(mbps), error: 0.1 };
    for (seed, wanted) in [(1, 1), (2, 4), (3, 8), (4, 32)] {
        for known in [false, true] {
            for behaviour in [Behaviour::Works, Behaviour::Refuses, Behaviour::Silent] {
                let mut world = World { seed, wanted, ..lossy(0.01) };
                world.size = 60_000_000 * u64::from(wanted);
                world.behaviours = vec![Behaviour::Works, behaviour];
                let mut selector = world.selector();
                if known {
                    selector.set_forecast(PathId::DIRECT, sure(14 * u64::from(wanted)));
                    selector.set_forecast(PathId::numbered(1), sure(40 * u64::from(wanted)));
                }
                let (auto, direct) = (world.play(Some(&mut selector)), world.play(None));
                let told = format!("{behaviour:?} {auto:?} {direct:?} {:#?}", selector.reasons());
                assert!(selector.reasons().len() > 1, "it was never tried: {told}");
                assert!(auto.seconds <= direct.seconds * 1.01, "{told}");
                assert!(auto.over < 0.02, "{told}");
            }
        }
    }
}

/// The rule's goal, in random networks that do not follow the model: fewer than one transfer in
/// twenty is slower than 0.95 of direct, and most of the possible gain is reached.
#[test]
fn few_transfers_are_slower_than_direct() {
    let mut rng = Rng::new(7);
    let (mut slower, mut had, mut could) = (0, 0, 0);
    let worlds = 2000;
    for n in 0..worlds {
        let wanted = [1, 2, 4, 8][rng.below(4) as usize];
        let each = 1e6 * 10f64.powf(rng.unit() * 2.0);
        let capacity = each * f64::from(wanted) * (0.4 + rng.unit() * 4.0);
        let depots = 1 + rng.below(3);
        let mut paths = vec![Nature { each, capacity }];
        for _ in 0..depots {
            let each = each * 10f64.powf(rng.unit() - 0.5);
            paths.push(Nature { each, capacity: capacity * 10f64.powf(rng.unit() - 0.5) });
        }
        let seconds = 0.5 * 10f64.powf(rng.unit() * 2.2);
        let rate = (each * f64::from(wanted)).min(capacity);
        let world = World {
            shared: rng.chance(0.5),
            wanted,
            rtt: Duration::from_millis(5 + rng.below(150)),
            size: (rate / 8.0 * seconds) as u64,
            swing: 0.02 + rng.unit() * 0.1,
            seed: n,
            behaviours: Vec::new(),
            paths,
        };
        let mut selector = world.selector();
        let (auto, direct) = (world.play(Some(&mut selector)), world.play(None));
        slower += u32::from(auto.seconds > direct.seconds / 0.95);
        let total = |nature: &Nature| (nature.each * f64::from(wanted)).min(nature.capacity);
        let best = world.paths[1..].iter().map(total).fold(0.0, f64::max);
        let full = world.paths[0].each * f64::from(wanted) >= world.paths[0].capacity;
        if !world.shared && !full && best > total(&world.paths[0]) * 1.8 && seconds > 25.0 {
            could += 1;
            had += u32::from(auto.seconds < direct.seconds * 0.85);
        }
    }
    assert!(f64::from(slower) < 0.05 * f64::from(worlds as u32), "{slower} of {worlds} are slower");
    assert!(could > 40 && had * 10 >= could * 8, "{had} of {could}");
}

#[derive(Clone, Debug)]
enum Event {
    PathReadings { delivered: Vec<u32>, frozen: u8, busy: bool, limit: u8 },
    Failed(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (proptest::collection::vec(any::<u32>(), 4), any::<u8>(), any::<bool>(), 0u8..4)
            .prop_map(|(delivered, frozen, busy, limit)| Event::PathReadings {
                delivered, frozen: frozen & (frozen >> 4), busy, limit
            }),
        1 => (0u8..5).prop_map(Event::Failed),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever happens, some path has streams, at most one path too many, and state stays bounded.
    #[test]
    fn there_is_always_a_way(
        events in proptest::collection::vec((event(), 1u64..4_000), 1..300),
        wanted in 1u32..65,
    ) {
        let mut selector = PathSelector::new();
        for n in 0..3 {
            let path = selector.add(format!("d{n}:1"));
            selector.set_hops(path, vec![Duration::from_millis(20 * n); 2]);
        }
        let (mut now, mut sums) = (Time::from_nanos(1), [0u64; 4]);
        for (event, ms) in events {
            now += Duration::from_millis(ms);
            match event {
                Event::PathReadings { delivered, frozen, busy, limit } => {
                    let paths: Vec<Seen> = (0..4)
                        .map(|n| {
                            sums[n] += u64::from(delivered[n]);
                            let path = PathId::numbered(n as u8);
                            let streams = selector.target(path, wanted);
                            let frozen = frozen >> n & 1 == 1;
                            Seen { streams, delivered: ByteCount(sums[n]), frozen }
                        })
                        .collect();
                    let limit = match limit {
                        0 => Limit::Unknown,
                        1 => Limit::Path,
                        2 => Limit::Losses(Response::Reno),
                        _ => Limit::Window,
                    };
                    let rtt = Duration::from_millis(60);
                    let left = Some(ByteCount(1 << 40));
                    let readings = PathReadings { now, paths: &paths, wanted, rtt, limit, left, busy };
                    selector.update(&readings);
                }
                Event::Failed(path) => selector.failed(now, PathId::numbered(path), "broke"),
            }
            while selector.poll_cut().is_some() {}
            let targets: Vec<u32> =
                (0..4).map(|n| selector.target(PathId::numbered(n), wanted)).collect();
            prop_assert_eq!(targets[selector.current().index()], wanted);
            prop_assert!(targets.iter().sum::<u32>() <= 3 * wanted, "{:?}", targets);
            prop_assert!(targets.iter().filter(|n| **n > 0).count() <= 3);
            prop_assert!(selector.reasons().len() <= MAX_REASONS);
        }
    }
}

#[test]
fn a_way_that_fails_is_left_for_a_while_and_longer_each_time() {
    let mut selector = PathSelector::new();
    let path = selector.add("d:1".to_owned());
    let at = |s: u64| Time::from_nanos(1) + Duration::from_secs(s);
    selector.failed(at(1), path, "broke");
    assert_eq!(selector.poll_cut(), Some(path));
    assert_eq!(selector.candidates(at(5)).count(), 0);
    assert_eq!(selector.candidates(at(12)).count(), 1);
    selector.failed(at(12), path, "broke");
    assert_eq!(selector.candidates(at(25)).count(), 0);
    // The direct path does not work at all: any depot is better.
    selector.failed(at(40), PathId::DIRECT, "refused");
    assert_eq!(selector.current(), path);
    assert_eq!(selector.target(PathId::DIRECT, 4), 4, "until the others are there");
    selector.failed(at(60), path, "broke");
    assert_eq!(selector.current(), PathId::DIRECT);
}
