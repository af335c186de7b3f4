use super::*;
use crate::config::{RedMode, ReorderConfig};

type Change = fn(&mut LinkConfig);

fn good() -> LinkConfig {
    LinkConfig::new(DataRate::from_mbps(1_000), Duration::from_millis(50), 100)
}

fn red() -> RedConfig {
    RedConfig {
        limit: Limit::Packets(50),
        min_threshold: 5.0,
        max_threshold: 15.0,
        linterm: 10.0,
        weight: 0.002,
        mean_packet: ByteCount(500),
        mode: RedMode::Classic,
    }
}

fn refused(change: impl FnOnce(&mut LinkConfig)) -> &'static str {
    let mut config = good();
    change(&mut config);
    let error = config.check().unwrap_err();
    assert!(error.what.len() > 10, "{error}");
    error.field
}

#[test]
fn what_can_be_is_taken() {
    let mut config = good();
    assert_eq!(config.check(), Ok(()));
    config.queue = QueueConfig::Red(red());
    config.loss = LossConfig::Trace(vec![true]);
    config.rate.steps.push((Time::from_nanos(5), DataRate::ZERO));
    config.rate.period = Some(Duration::from_nanos(6));
    config.jitter = Some(DelayVariation::Pareto { mean: Duration::from_millis(1), shape: 2.0 });
    config.duplicate = 1.0;
    assert_eq!(config.check(), Ok(()));
}

#[test]
fn what_cannot_be_is_refused_by_field() {
    let cases: [(&str, Change); 21] = [
        ("rate", |c| c.rate.steps.clear()),
        ("rate", |c| c.rate.steps[0].0 = Time::from_nanos(1)),
        ("rate", |c| c.rate.steps.push((Time::ZERO, DataRate::MAX))),
        ("rate", |c| c.rate = RateSchedule::constant(DataRate::ZERO)),
        ("period", |c| c.rate.period = Some(Duration::ZERO)),
        ("delay", |c| c.delay = Duration::MAX),
        ("mtu", |c| c.mtu = ByteCount::ZERO),
        ("mtu", |c| c.mtu = ByteCount(65_536)),
        ("overhead", |c| c.overhead = ByteCount(u64::MAX)),
        ("queue.limit", |c| c.queue = QueueConfig::DropTail(Limit::Packets(0))),
        ("queue.limit", |c| {
            c.mtu = ByteCount(1_500);
            c.queue = QueueConfig::DropTail(Limit::Bytes(ByteCount(1_499)));
        }),
        ("loss", |c| c.loss = LossConfig::Independent(-0.1)),
        ("loss", |c| c.loss = LossConfig::Independent(f64::NAN)),
        ("loss.bit_error", |c| c.loss = LossConfig::BitError(1.5)),
        ("loss.trace", |c| c.loss = LossConfig::Trace(Vec::new())),
        ("loss.loss_bad", |c| {
            c.loss = LossConfig::GilbertElliott {
                to_bad: 0.1,
                to_good: 0.1,
                loss_good: 0.0,
                loss_bad: 2.0,
            };
        }),
        ("jitter.shape", |c| {
            c.jitter = Some(DelayVariation::Pareto { mean: Duration::ZERO, shape: 1.0 });
        }),
        ("jitter", |c| c.jitter = Some(DelayVariation::Uniform(Duration::MAX))),
        ("reorder.probability", |c| {
            c.reorder = Some(ReorderConfig { probability: 1.1, extra: Duration::from_millis(1) });
        }),
        ("reorder.extra", |c| {
            c.reorder = Some(ReorderConfig { probability: 0.1, extra: Duration::ZERO });
        }),
        ("duplicate", |c| c.duplicate = f64::INFINITY),
    ];
    for (field, change) in cases {
        assert_eq!(refused(change), field);
    }
}

#[test]
fn impossible_queues_are_refused_by_field() {
    let with = |change: fn(&mut RedConfig)| {
        refused(|c| {
            let mut red = red();
            change(&mut red);
            c.queue = QueueConfig::Red(red);
        })
    };
    assert_eq!(with(|red| red.limit = Limit::Packets(0)), "queue.limit");
    assert_eq!(with(|red| red.min_threshold = -1.0), "queue.min_threshold");
    assert_eq!(with(|red| red.max_threshold = 5.0), "queue.max_threshold");
    assert_eq!(with(|red| red.max_threshold = f64::NAN), "queue.max_threshold");
    assert_eq!(with(|red| red.linterm = 0.5), "queue.linterm");
    assert_eq!(with(|red| red.weight = 0.0), "queue.weight");
    assert_eq!(with(|red| red.mean_packet = ByteCount::ZERO), "queue.mean_packet");
    let codel = |target, interval| {
        let limit = Limit::Packets(10);
        let (target, interval) = (Duration::from_millis(target), Duration::from_millis(interval));
        refused(|c| c.queue = QueueConfig::CoDel(CoDelConfig { limit, target, interval }))
    };
    assert_eq!(codel(0, 100), "queue.target");
    assert_eq!(codel(100, 100), "queue.interval");
}
