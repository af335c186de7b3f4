use super::*;

const WINDOW: usize = 8_000;

#[test]
fn every_family_makes_windows_of_its_cause() {
    for family in FAMILIES {
        for region in [Region::Train, Region::Test] {
            let found = (0..6).filter_map(|n| generate(family, region, 5, n, WINDOW)).next();
            let record = found.unwrap_or_else(|| panic!("{} made none", family.name));
            assert_eq!(record.cause, family.cause);
            assert_eq!(record.runs.iter().sum::<u64>(), WINDOW as u64, "{}", family.name);
            let lost: u64 = record.runs.iter().skip(1).step_by(2).sum();
            assert_eq!(lost, record.lost.all(), "{}", family.name);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_window_and_another_one_another() {
    let family = find("net-poisson").unwrap();
    let of = |seed| generate(family, Region::Train, seed, 3, WINDOW);
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn the_papers_regions_differ_in_their_draws_only() {
    let rate = |region, number| {
        let all =
            generate_all(find("net-paper").unwrap(), region, 1, number, WINDOW, LossRates::ALL);
        let ours = all.first().expect("a window");
        assert!((500_000_000..=1_000_000_000).contains(&ours.rate_bps), "{ours:?}");
        assert_eq!(
            (ours.split.as_str(), &ours.meta["conditions"]),
            (region.name(), &"paper".into())
        );
        ours.rate_bps
    };
    assert_ne!(rate(Region::PaperTrain, 0), rate(Region::PaperTest, 0));
    let host = find("cpu-paper").unwrap();
    let host = generate(host, Region::PaperTrain, 1, 0, WINDOW).expect("a window");
    assert_eq!((host.rate_bps, &host.meta["conditions"]), (1_000_000_000, &"paper".into()));
}

#[test]
fn flows_beside_the_measured_one_lose_as_it_does() {
    let family = find("net-paper").unwrap();
    let all: Vec<Record> = (0..6)
        .flat_map(|n| generate_all(family, Region::PaperTrain, 1, n, WINDOW, LossRates::ALL))
        .collect();
    assert!((30..=66).contains(&all.len()), "{}", all.len());
    for record in &all {
        assert_eq!(record.runs.iter().sum::<u64>(), WINDOW as u64);
        let lost: u64 = record.runs.iter().skip(1).step_by(2).sum();
        assert_eq!((lost, record.lost.network), (record.lost.all(), record.lost.all()));
    }
    // The first of a run is the measured one, with its delays; all have the same load.
    let of = |n| all.iter().filter(move |record| record.window == n);
    for n in 0..6 {
        assert_eq!(of(n).map(|r| r.delay.is_some()).filter(|known| *known).count(), 1);
        let rates: Vec<f64> = of(n).map(|r| r.lost.all() as f64 / WINDOW as f64).collect();
        let (least, most) = rates.iter().fold((1.0f64, 0.0f64), |(a, b), p| (a.min(*p), b.max(*p)));
        assert!(most < least * 8.0 + 0.005, "{n}: {rates:?}");
    }
    // Other families have none.
    let one = generate_all(find("net-paced").unwrap(), Region::Train, 1, 0, WINDOW, LossRates::ALL);
    assert_eq!(one.len(), 1);
}

#[test]
fn only_the_wanted_loss_rates_are_kept() {
    let losses = LossRates::within(1e-3, 5e-3);
    for name in ["net-paper", "cpu-paper"] {
        let family = find(name).unwrap();
        let all: Vec<Record> = (0..6)
            .flat_map(|n| generate_all(family, Region::PaperTrain, 2, n, WINDOW, losses))
            .collect();
        assert!(all.len() >= 4, "{name}: {}", all.len());
        for record in &all {
            let p = record.lost.all() as f64 / WINDOW as f64;
            assert!((1e-3..=5e-3).contains(&p), "{name}: {p}");
        }
    }
}

#[test]
fn a_flow_too_fast_for_its_bottleneck_loses_at_even_distances() {
    let family = find("net-self").unwrap();
    let even = (0..40)
        .filter_map(|n| generate(family, Region::Train, 9, n, WINDOW))
        .find(|r| r.meta["jitter"] == 0.0 && r.meta["quantum"] == 1 && r.meta["beside"] == 0.0);
    let record = even.expect("one of forty has neither jitter nor trains nor others");
    let lost: Vec<u64> = record.runs[1..].iter().copied().step_by(2).collect();
    assert!(lost.iter().all(|n| *n == 1), "{lost:?}");
    let between = &record.runs[2..record.runs.len() - 1];
    let (least, most) =
        between.iter().step_by(2).fold((u64::MAX, 0), |(a, b), n| (a.min(*n), b.max(*n)));
    assert!(most - least <= 1 + most / 50, "{least} {most}");
}

#[test]
fn records_are_what_the_classifier_reads() {
    for family in FAMILIES.iter().filter(|family| family.name.ends_with("self")) {
        let record = (0..9).find_map(|n| generate(family, Region::Test, 1, n, WINDOW)).unwrap();
        let line = serde_json::to_string(&record).unwrap();
        let read: packtrain_loss::Labelled = serde_json::from_str(&line).unwrap();
        assert_eq!(read.cause.name(), record.cause);
        assert_eq!(read.signature.lost() as u64, record.lost.all());
        let runs: Vec<u64> = read.signature.runs().into_iter().map(|n| n as u64).collect();
        assert_eq!(runs, record.runs);
    }
}

#[test]
fn runs_tell_the_window() {
    let told = runs([true, true, false, true, false, false].into_iter());
    assert_eq!(told, [2, 1, 1, 2]);
    assert_eq!(runs([false, true].into_iter()), [0, 1, 1]);
}

#[test]
fn delays_rise_before_losses_of_a_queue_and_not_before_those_of_a_host() {
    let of = |name| {
        let family = find(name).unwrap();
        (0..5).filter_map(|n| generate(family, Region::Train, 2, n, WINDOW)).next().unwrap()
    };
    let network = of("net-bursts").delay.unwrap().arrival;
    assert!(network.before > 0.5 * network.most, "{network:?}");
    let policer = of("net-policer").delay.unwrap();
    assert_eq!(policer.arrival, Rise::default());
}
