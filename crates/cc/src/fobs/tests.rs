use proptest::prelude::*;

use packtrain_loss::{Cause, Classifier, Evidence, Model};

use super::*;
use crate::bottleneck::silence;
use crate::hostile;
use crate::interface::{LossRange, RttSample};
use crate::registry::build;

const MTU: u64 = 1_472;

/// A path in steps of a millisecond: a rate, a round trip, drops without a queue.
struct Path {
    fobs: Fobs,
    now: Time,
    capacity: f64,
    rtt: Duration,
    next: u64,
    owed: f64,
    /// Sending time, first, count, and how many of them arrived.
    under_way: VecDeque<(Time, u64, u64, u64)>,
    acked: f64,
    since: Time,
    delivered: Option<DataRate>,
    /// Selects additional losses.
    lose: Box<dyn FnMut(u64) -> bool>,
}

impl Path {
    fn new(name: &str, capacity: DataRate, lose: impl FnMut(u64) -> bool + 'static) -> Self {
        let config = config(None);
        let options =
            name.split_once(':').map_or(Some(Options::default()), |n| Options::parse(n.1));
        Self {
            fobs: Fobs::new(&config, options.unwrap()),
            now: Time::ZERO,
            capacity: bytes(capacity),
            rtt: Duration::from_millis(40),
            next: 0,
            owed: 0.0,
            under_way: VecDeque::new(),
            acked: 0.0,
            since: Time::ZERO,
            delivered: None,
            lose: Box::new(lose),
        }
    }

    /// Runs for `span`; `judge` classifies the losses of a window.
    fn run(&mut self, span: Duration, judge: &mut impl FnMut(&LossWindow) -> Option<Verdict>) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_millis(1);
            self.send();
            self.deliver_reports();
            while let Some(window) = self.fobs.poll_signature() {
                if let Some(verdict) = judge(&window) {
                    self.fobs.on_verdict(self.now, window.number, &verdict);
                }
            }
        }
    }

    fn send(&mut self) {
        let rate = bytes(self.fobs.pacing_rate().unwrap());
        self.owed += rate / 1e3 / MTU as f64;
        let count = self.owed as u64;
        self.owed -= count as f64;
        if count == 0 {
            return;
        }
        let room = (self.capacity / 1e3 / MTU as f64).max(1.0);
        let arrived = (count as f64).min(room.round()) as u64;
        self.fobs.on_sent(&Sent {
            now: self.now,
            first: self.next,
            count: count as u32,
            bytes: ByteCount(count * MTU),
            in_flight: ByteCount(0),
            retransmission: false,
            app_limited: false,
        });
        self.under_way.push_back((self.now, self.next, count, arrived));
        self.next += count;
    }

    fn deliver_reports(&mut self) {
        while let Some((at, first, count, arrived)) = self.under_way.front().copied() {
            if self.now < at + self.rtt {
                break;
            }
            self.under_way.pop_front();
            let mut lost = Vec::new();
            let mut lose = |first: u64, count: u64| {
                let bytes = ByteCount(count * MTU);
                lost.push(LossRange { first, count: count as u32, bytes, sent_at: at });
            };
            let mut came = 0;
            for packet in first..first + arrived {
                if (self.lose)(packet) {
                    lose(packet, 1);
                } else {
                    came += 1;
                }
            }
            if arrived < count {
                lose(first + arrived, count - arrived);
            }
            self.acked += (came * MTU) as f64;
            let span = self.now.since(self.since);
            let mut delivery_rate = None;
            if span >= self.rtt {
                let acked = ByteCount(self.acked as u64);
                self.delivered = Some(DataRate::from_bytes_over(acked, span));
                delivery_rate = self.delivered;
                (self.acked, self.since) = (0.0, self.now);
            }
            let rtt = Some(RttSample {
                latest: self.rtt,
                smoothed: self.rtt,
                variation: Duration::ZERO,
                min: self.rtt,
            });
            self.fobs.on_feedback(&Feedback {
                largest_acked: Some(first + count - 1),
                acked_packets: came,
                rtt,
                delivery_rate,
                lost: &lost,
                ..silence(self.now)
            });
        }
    }

    fn mbps(&self) -> f64 {
        self.fobs.pacing_rate().unwrap().as_bps() as f64 / 1e6
    }
}

fn config(ceiling: Option<DataRate>) -> ControllerConfig {
    let (mtu, now) = (ByteCount(MTU), Time::ZERO);
    ControllerConfig { mtu, seed: 1, now, ceiling, rtt: None }
}

fn verdict(window: &LossWindow, cpu: bool) -> Verdict {
    let mut verdict = Classifier::new(Model::builtin()).classify(&Evidence::new(&window.signature));
    let (cause, p_cpu) = if cpu { (Cause::Cpu, 0.99) } else { (Cause::Network, 0.01) };
    (verdict.cause, verdict.p_cpu) = (cause, p_cpu);
    verdict
}

#[test]
fn a_launch_finds_the_path_and_the_rate_stays() {
    for packets in [1, 10, 100] {
        // Whole packets per millisecond: the model has no others.
        let capacity = DataRate::from_bps(packets * MTU * 8 * 1_000);
        let mut path = Path::new("fobs", capacity, |_| false);
        // Before it tries a higher rate, at which this path without a queue would lose packets at
        // once.
        path.run(Duration::from_millis(1_800), &mut |_| panic!("the launch is not judged"));
        let rate = path.mbps() * 1e6 / capacity.as_bps() as f64;
        assert!((0.8..1.15).contains(&rate), "{capacity}: {}", path.mbps());
    }
}

#[test]
fn an_asked_rate_is_kept_without_losses() {
    for name in ["fobs:window,50mbit", "fobs:rate,50mbit"] {
        let mut path = Path::new(name, DataRate::from_mbps(1_000), |_| false);
        path.run(Duration::from_secs(30), &mut |_| None);
        assert!((path.mbps() - 50.0).abs() < 0.1, "{}", path.mbps());
    }
}

#[test]
fn losses_of_the_host_change_nothing_those_of_the_network_set_w_over_rtt() {
    for name in ["fobs:window,200mbit,10MB", "fobs:rate,200mbit,10MB"] {
        let every = |n: u64| move |packet: u64| packet % n == n - 1;
        let mut path = Path::new(name, DataRate::from_mbps(1_000), every(2_000));
        path.run(Duration::from_secs(20), &mut |w| Some(verdict(w, true)));
        assert!((path.mbps() - 200.0).abs() < 0.1, "{name} {}", path.mbps());
        let mut path = Path::new(name, DataRate::from_mbps(1_000), every(2_000));
        path.run(Duration::from_secs(90), &mut |w| Some(verdict(w, false)));
        // 0.12 / p^0.835 packets in 40 ms.
        let law = window(1.0 / 2_000.0).unwrap() * MTU as f64 * 8.0 / 0.04 / 1e6;
        assert!((0.7..1.4).contains(&(path.mbps() / law)), "{name} {} law {law}", path.mbps());
        // The rate returns when the losses end: later packets displace them.
        path.lose = Box::new(|_| false);
        let before = path.mbps();
        path.run(Duration::from_secs(60), &mut |w| Some(verdict(w, false)));
        assert!(path.mbps() > before * 2.0, "{name} {} {before}", path.mbps());
    }
}

#[test]
fn events_count_what_overflows_once_as_one() {
    // 500 consecutive packets of 100,000: half a percent of them, but one event.
    let burst = |packet: u64| packet % 100_000 > 99_500;
    let run = |name| {
        let mut path = Path::new(name, DataRate::from_mbps(1_000), burst);
        path.run(Duration::from_secs(60), &mut |w| Some(verdict(w, false)));
        path.mbps()
    };
    let packets = run("fobs:window,200mbit,10MB,packets");
    let events = run("fobs:window,200mbit,10MB");
    assert!(packets < 10.0 && events > 100.0, "{packets} {events}");
}

#[test]
fn nobody_who_judges_is_as_bad_as_the_network_and_blind_asks_nobody() {
    for name in ["fobs:window,100mbit,3MB", "fobs:blind,100mbit,3MB"] {
        let every = |packet: u64| packet.is_multiple_of(500);
        let mut path = Path::new(name, DataRate::from_mbps(1_000), every);
        path.run(Duration::from_secs(30), &mut |_| None);
        assert!(path.mbps() < 20.0, "{name} {}", path.mbps());
    }
}

#[test]
fn a_verdict_on_a_window_nobody_asked_about_is_ignored() {
    let mut fobs = Fobs::new(&config(None), Options::parse("80mbit").unwrap());
    let signature = "1111011111".parse().unwrap();
    let window = LossWindow { number: 7, signature, host_drops: None };
    fobs.on_verdict(Time::ZERO, 7, &verdict(&window, false));
    assert_eq!(fobs.pacing_rate(), Some(DataRate::from_mbps(80)));
}

#[test]
fn the_ceiling_holds_and_names_build() {
    let ceiling = Some(DataRate::from_mbps(30));
    let fobs = Fobs::new(&config(ceiling), Options::parse("80mbit").unwrap());
    assert_eq!(fobs.pacing_rate(), ceiling);
    for name in ["fobs", "fobs:rate", "fobs:blind", "fobs:paper,rate,25MB,1gbit"] {
        assert!(build(name, &config(None)).unwrap().name().starts_with("fobs:"), "{name}");
    }
    assert!(build("fobs:fast", &config(None)).is_err());
}

#[test]
fn windows_fit_the_pace() {
    assert_eq!(packets_at(84_918.0), 97_656, "1 Gbit/s");
    assert_eq!(packets_at(8_491.0), 6_104, "100 Mbit/s");
    assert_eq!(packets_at(0.0), 6_104);
    assert_eq!(packets_at(20_000.0), 24_414);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn survives_what_makes_no_sense(script in hostile::script(), rate in any::<bool>()) {
        hostile::run(if rate { "fobs:rate" } else { "fobs:window,blind,1MB" }, &script)?;
    }
}
