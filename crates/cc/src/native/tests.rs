//! Curves on a fluid model of one bottleneck; packets and reports are tested in `proto`.

use packtrain_units::Time;

use super::*;
use crate::interface::{LossRange, RttSample};

/// A bottleneck with one flow, and a report every millisecond or RTT/16.
struct Fluid {
    rate: f64,
    rtt: f64,
    buffer: f64,
    loss: f64,
    queue: f64,
    now: f64,
    sent: u64,
    steps: u64,
    /// Bytes dropped, and bytes sent.
    dropped: (f64, f64),
    /// Data in flight.
    pipe: std::collections::VecDeque<Served>,
}

/// What left the bottleneck in one step.
#[derive(Clone, Copy, Default)]
struct Served {
    bytes: f64,
    lost: f64,
    /// The queue at that time, in seconds.
    queue: f64,
    /// The newest packet, and when it was sent.
    newest: Option<(u64, Time)>,
}

impl Fluid {
    fn new(mbit: f64, rtt_ms: f64, buffer_ms: f64) -> Self {
        let rate = mbit * 1e6 / 8.0;
        let (rtt, buffer) = (rtt_ms / 1e3, rate * buffer_ms / 1e3);
        Self {
            rate,
            rtt,
            buffer,
            loss: 0.0,
            queue: 0.0,
            now: 1.0,
            sent: 0,
            steps: 0,
            dropped: (0.0, 0.0),
            pipe: Default::default(),
        }
    }

    fn time(&self) -> Time {
        Time::from_nanos((self.now * 1e9) as u64)
    }

    /// Runs for `seconds`; returns goodput in bytes per second and the mean queue in seconds.
    fn run(&mut self, native: &mut Native, seconds: f64) -> (f64, f64) {
        let step = (self.rtt / 16.0).clamp(5e-4, 1e-2);
        let steps = (seconds / step) as u64;
        let (mut total, mut queues) = (0.0, 0.0);
        let lag = ((self.rtt / step) as usize).max(1);
        self.pipe.resize(lag, Served::default());
        for _ in 0..steps {
            let flying: f64 = self.pipe.iter().map(|served| served.bytes + served.lost).sum();
            let window = native.cwnd().get() as f64 - flying - self.queue;
            let sent = (native.rate * step).min(window.max(0.0));
            let passed = sent * (1.0 - self.loss);
            self.queue += passed;
            let served = self.queue.min(self.rate * step);
            self.queue -= served;
            let dropped = (self.queue - self.buffer).max(0.0);
            self.queue -= dropped;
            self.now += step;
            self.dropped = (self.dropped.0 + dropped, self.dropped.1 + sent);
            native.on_sent(&self.sent_info(sent));
            self.pipe.push_back(Served {
                bytes: served,
                lost: sent - passed + dropped,
                queue: self.queue / self.rate,
                newest: (served > 0.0).then(|| (self.sent, self.time())),
            });
            let report = self.pipe.pop_front().unwrap();
            self.steps += 1;
            self.report(native, report, self.steps.is_multiple_of(lag as u64));
            total += report.bytes;
            queues += report.queue;
        }
        (total / seconds, queues / steps as f64)
    }

    fn sent_info(&mut self, bytes: f64) -> Sent {
        self.sent += 1;
        Sent {
            now: self.time(),
            first: self.sent,
            count: 1,
            bytes: ByteCount(bytes as u64),
            in_flight: ByteCount(0),
            retransmission: false,
            app_limited: false,
        }
    }

    fn report(&self, native: &mut Native, arrived: Served, ended: bool) {
        let Served { bytes: served, lost, queue, newest } = arrived;
        let packets = |bytes: f64| (bytes / 1472.0).round();
        let rtt = Duration::from_secs_f64(self.rtt + queue);
        let lost = [LossRange {
            first: 0,
            count: packets(lost) as u32,
            bytes: ByteCount(lost as u64),
            sent_at: self.time(),
        }];
        native.on_feedback(&Feedback {
            now: self.time(),
            largest_acked: newest.map(|(index, _)| index),
            newest_acked_sent_at: newest.map(|(_, at)| at),
            acked: ByteCount(served as u64),
            acked_packets: packets(served) as u64,
            in_flight: ByteCount(0),
            rtt: Some(RttSample {
                latest: rtt,
                smoothed: rtt,
                variation: Duration::ZERO,
                min: Duration::from_secs_f64(self.rtt),
            }),
            queueing_delay: Some(Duration::from_secs_f64(queue)),
            reverse_queue: None,
            delivery_rate: None,
            arrival_rate: None,
            capacity: None,
            lost: &lost[..usize::from(lost[0].count > 0)],
            spurious: 0,
            ecn_ce: 0,
            host_drops: 0,
            refused: 0,
            drain_rate: None,
            app_limited: false,
            round_ended: ended,
            timeout: false,
            delay_rising: false,
            bunched: Duration::ZERO,
            held: None,
        });
    }
}

fn native(rtt_ms: f64) -> Native {
    Native::new(&ControllerConfig {
        mtu: ByteCount(1472),
        seed: 1,
        now: Time::from_nanos(1_000_000_000),
        ceiling: None,
        rtt: Some(Duration::from_secs_f64(rtt_ms / 1e3)),
    })
}

#[test]
fn fills_links_of_every_size_with_a_small_queue() {
    for (mbit, rtt) in
        [(10.0, 40.0), (1000.0, 0.1), (1000.0, 100.0), (10_000.0, 20.0), (20_000.0, 0.05)]
    {
        let mut fluid = Fluid::new(mbit, rtt, 50.0);
        let mut native = native(rtt);
        fluid.run(&mut native, 4.0);
        let (goodput, queue) = fluid.run(&mut native, 6.0);
        let share = goodput / fluid.rate;
        assert!(share > 0.9, "{mbit} Mbit/s {rtt} ms: {share:.3} {native:?}");
        assert!(queue < 12e-3, "{mbit} Mbit/s {rtt} ms: queue {queue} s");
    }
}

#[test]
fn random_loss_costs_little_more_than_itself() {
    for loss in [1e-4, 1e-3, 1e-2] {
        let mut fluid = Fluid::new(1000.0, 100.0, 100.0);
        fluid.loss = loss;
        let mut native = native(100.0);
        fluid.run(&mut native, 4.0);
        let (goodput, _) = fluid.run(&mut native, 10.0);
        let share = goodput / fluid.rate;
        assert!(share > 0.88, "loss {loss}: {share:.3} {native:?}");
    }
}

#[test]
fn a_slower_link_is_found_again() {
    let mut fluid = Fluid::new(1000.0, 50.0, 50.0);
    let mut native = native(50.0);
    fluid.run(&mut native, 4.0);
    fluid.rate /= 5.0;
    fluid.buffer /= 5.0;
    fluid.run(&mut native, 3.0);
    let (goodput, queue) = fluid.run(&mut native, 4.0);
    assert!(goodput > 0.85 * fluid.rate && queue < 0.03, "{goodput} {queue} {native:?}");
    fluid.rate *= 5.0;
    fluid.run(&mut native, 4.0);
    let (goodput, _) = fluid.run(&mut native, 4.0);
    assert!(goodput > 0.85 * fluid.rate, "and the faster one: {goodput}");
}

#[test]
fn a_batch_of_the_launch_is_short_and_its_window_holds_a_burst_that_measures() {
    let native = native(100.0);
    assert_eq!(native.send_quantum().get() / 1472, 2, "a queue of a few packets takes it");
    assert!(native.cwnd().get() / 1472 >= 512, "the flow's longest burst");
}

#[test]
fn the_ceiling_holds() {
    let mut config = ControllerConfig {
        mtu: ByteCount(1472),
        seed: 1,
        now: Time::from_nanos(1_000_000_000),
        ceiling: Some(DataRate::from_mbps(50)),
        rtt: Some(Duration::from_millis(20)),
    };
    config.seed = 2;
    let mut native = Native::new(&config);
    let mut fluid = Fluid::new(1000.0, 20.0, 20.0);
    let (goodput, _) = fluid.run(&mut native, 3.0);
    assert!(goodput * 8.0 < 51e6, "{goodput}");
}

#[test]
fn in_the_background_it_fills_an_empty_link_and_never_competes() {
    let config = ControllerConfig {
        mtu: ByteCount(1472),
        seed: 1,
        now: Time::from_nanos(1_000_000_000),
        ceiling: None,
        rtt: Some(Duration::from_millis(50)),
    };
    let mut native = Native::background(&config);
    let mut fluid = Fluid::new(1000.0, 50.0, 200.0);
    fluid.run(&mut native, 4.0);
    let (goodput, queue) = fluid.run(&mut native, 4.0);
    assert!(goodput > 0.9 * fluid.rate && queue < 12e-3, "{goodput} {queue}");
    // The rest of the queue belongs to another flow, and grows: it slows down.
    let alone = native.pacing_rate();
    for step in 0..400 {
        let standing = 2e-3 * f64::from(step / 4).min(50.0);
        let served = Served { bytes: 300_000.0, queue: standing, ..Served::default() };
        fluid.report(&mut native, served, step % 4 == 3);
        fluid.now += 0.0125 + standing / 4.0;
        assert!(!native.state().starts_with("compete"), "{}", native.state());
    }
    assert!(native.pacing_rate() < alone, "{:?} of {alone:?}", native.pacing_rate());
}

/// Up to 3 % may be learned as random, and 3 % more are needed to doubt it.
#[test]
fn a_buffer_too_short_to_see_is_not_overrun() {
    for buffer_ms in [0.1, 0.3, 0.5] {
        let mut fluid = Fluid::new(1000.0, 20.0, buffer_ms);
        let mut native = native(20.0);
        fluid.run(&mut native, 4.0);
        fluid.dropped = (0.0, 0.0);
        let (goodput, _) = fluid.run(&mut native, 10.0);
        let lost = fluid.dropped.0 / fluid.dropped.1;
        assert!(
            goodput > 0.85 * fluid.rate && lost < 2.5 * 0.03,
            "{buffer_ms} ms: {goodput} {lost}"
        );
    }
}

#[test]
fn without_losses_the_rate_is_not_stepped() {
    let mut fluid = Fluid::new(1000.0, 50.0, 50.0);
    let mut native = native(50.0);
    fluid.run(&mut native, 4.0);
    for _ in 0..200 {
        fluid.run(&mut native, 0.02);
        assert!((native.cruise.gain() - 1.0).abs() < 1e-9);
    }
}

#[test]
fn the_floor_of_another_flows_queue_is_not_the_base() {
    let mut rounds = Rounds::new(Time::ZERO, 0.05);
    let told = |rounds: &mut Rounds, at: f64, min: f64| {
        let min = Duration::from_secs_f64(min);
        let rtt = RttSample { latest: min, smoothed: min, variation: Duration::ZERO, min };
        rounds.on_feedback(
            &Feedback {
                rtt: Some(rtt),
                queueing_delay: Some(Duration::ZERO),
                ..crate::bottleneck::silence(Time::from_nanos((at * 1e9) as u64))
            },
            1e6,
        )
    };
    told(&mut rounds, 0.1, 0.05);
    // The transport's minimum of ten seconds has risen by another flow's 30 ms.
    let queues: Vec<f64> = (0..400)
        .filter_map(|i| told(&mut rounds, 12.0 + f64::from(i) / 10.0, 0.08))
        .map(|round| round.queue)
        .collect();
    assert!((rounds.base() - 0.05).abs() < 1e-9, "{rounds:?}");
    assert!(queues.iter().skip(1).all(|q| *q > 0.029), "{queues:?}");
    // After a minute the path has become longer.
    told(&mut rounds, 75.0, 0.08);
    assert!((rounds.base() - 0.08).abs() < 1e-9, "{rounds:?}");
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(24))]

    /// Alone on any path it competes for less than a tenth of the time, with losses of the path or
    /// without, and keeps the queue short.
    #[test]
    fn alone_it_does_not_compete(
        mbit in 5.0..2_000.0f64,
        rtt in 2.0..200.0f64,
        buffer in 0.05..4.0f64,
        loss in proptest::prop_oneof![proptest::strategy::Just(0.0), 1e-5..2e-2f64],
    ) {
        let mut fluid = Fluid::new(mbit, rtt, (buffer * rtt).max(2.0));
        fluid.loss = loss;
        let mut native = native(rtt);
        fluid.run(&mut native, 5.0);
        let (mut competing, mut queue) = (0, 0.0);
        for _ in 0..400 {
            queue += fluid.run(&mut native, 0.1).1 / 400.0;
            competing += u32::from(native.competing().is_some());
        }
        proptest::prop_assert!(competing < 40, "competes for {competing} of 400, {native:?}");
        let most = 8e-3_f64.max(rtt / 8e3);
        proptest::prop_assert!(queue < most, "a mean queue of {queue} s, {native:?}");
    }
}
