//! Simulated TCP compared with the TCP of Linux over the emulator, over the cells of
//! `experiments/kernel-validity`. The kernel's numbers are kept in git, so that neither root nor an
//! emulator is needed; `measure.py` there measures them again.
#![allow(clippy::print_stdout)]

mod validity;

use packtrain_link::{Count, DropCause, Element, Link, Observer, Pace};
use packtrain_sim::outcome::Outcome;
use packtrain_sim::run;
use packtrain_sim::spec::{FlowKind, Scenario, TcpSpec};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use validity::{Cell, Experiment, picked};

const KERNEL: Experiment = Experiment {
    name: "kernel-validity",
    peer: "kernel.csv",
    heading: "key,goodput_bps,loss_events,timeouts,repeated_packets,sent_packets,mean_rtt_us,overflow,\
              random,ratio",
};

fn scenario(cell: &Cell) -> Scenario {
    let seed = std::env::var("PACKTRAIN_SEED").map_or(1, |s| s.parse().unwrap());
    KERNEL.scenario(cell, seed, FlowKind::Tcp(TcpSpec::linux(&cell.cc)))
}

fn play(scenario: &Scenario) -> Outcome {
    run(scenario, &mut |_| {}).unwrap_or_else(|error| panic!("{}: {error}", scenario.title))
}

/// Our goodput divided by the kernel's, and a line of `ours.csv`.
fn compare(cell: &Cell, kernel: &[String]) -> (f64, String) {
    let outcome = play(&scenario(cell));
    let flow = &outcome.flows[0];
    let ratio = flow.goodput.as_bps() as f64 / kernel[1].parse::<f64>().unwrap();
    let line = format!(
        "{},{},{},{},{},{},{},{},{},{ratio:.4}",
        cell.key,
        flow.goodput.as_bps(),
        flow.loss_events,
        flow.timeouts,
        flow.retransmitted.get() / 1_448,
        flow.sent_packets,
        flow.rtt_mean.as_nanos() / 1_000,
        outcome.links[0].dropped[0],
        outcome.links[0].dropped[2],
    );
    println!("{line}\n    kernel {}", kernel[1..9].join(","));
    write_curve(cell);
    (ratio, line)
}

/// Writes the window over time to the folder in `PACKTRAIN_CURVES`, if there is one.
fn write_curve(cell: &Cell) {
    let Ok(dir) = std::env::var("PACKTRAIN_CURVES") else { return };
    let lines = curve(cell)
        .into_iter()
        .map(|(at, cwnd, flight)| format!("{:.3} {cwnd:.2} {flight:.2}\n", at.as_secs_f64()));
    let file = format!("{dir}/{}.txt", cell.key.replace('/', "-"));
    std::fs::write(file, lines.collect::<String>()).unwrap();
}

#[test]
fn throughput_is_the_kernels_where_it_is_quick() {
    KERNEL.compare_all(|cell| cell.quick, compare);
}

/// Writes its results to the file named in `PACKTRAIN_OURS`, window curves to the folder in
/// `PACKTRAIN_CURVES`. `PACKTRAIN_CELLS` selects the cells whose key contains it.
#[test]
#[ignore = "takes minutes and writes ours.csv; `cargo xtask nightly` runs it"]
fn throughput_is_the_kernels_everywhere() {
    KERNEL.compare_all(picked, compare);
}

/// A window over time, in segments, a sample every 10 ms.
struct Saw(Vec<f64>);

/// Points along a tooth where its shape is compared.
const POINTS: usize = 9;
/// A window below this share of the maximum since the last fall has fallen.
const FALL: f64 = 0.85;
/// Maximum samples of a fall: the repair of a loss.
const REPAIR: usize = 8;

impl Saw {
    /// The mean tooth: its length in samples, and the window from its bottom to its top.
    fn tooth(&self) -> (f64, [f64; POINTS]) {
        let mut teeth: Vec<&[f64]> = Vec::new();
        let (mut start, mut top, mut i) = (0, 0, 0);
        while i < self.0.len() {
            if self.0[i] > self.0[top] {
                top = i;
            }
            if self.0[i] < FALL * self.0[top] {
                let end = (i + REPAIR).min(self.0.len());
                let bottom = (i..end).fold(i, |a, b| if self.0[b] <= self.0[a] { b } else { a });
                if top > start + REPAIR {
                    teeth.push(&self.0[start..=top]);
                }
                (start, top, i) = (bottom, bottom, bottom);
            }
            i += 1;
        }
        // The first tooth is cut off by the beginning.
        let teeth = &teeth[1..];
        assert!(teeth.len() >= 10, "{}", teeth.len());
        let many = teeth.len() as f64;
        let at = |tooth: &[f64], place: usize| tooth[place * (tooth.len() - 1) / (POINTS - 1)];
        let length = teeth.iter().map(|tooth| tooth.len() as f64).sum::<f64>() / many;
        let mean = |place| teeth.iter().map(|tooth| at(tooth, place)).sum::<f64>() / many;
        (length, std::array::from_fn(mean))
    }

    /// The deciles of the distribution.
    fn deciles(&self) -> [f64; 9] {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        std::array::from_fn(|i| sorted[sorted.len() * (i + 1) / 10])
    }
}

/// Time, window and flight in segments, every 10 ms.
fn curve(cell: &Cell) -> Vec<(Duration, f64, f64)> {
    let mut scenario = scenario(cell);
    scenario.sample = Some(Duration::from_millis(10));
    let segments = |bytes: ByteCount| bytes.get() as f64 / 1_448.0;
    let outcome = play(&scenario);
    let samples = outcome.samples.iter();
    samples
        .map(|s| {
            (s.at.since(Time::ZERO), segments(s.cwnd.unwrap_or_default()), segments(s.in_flight))
        })
        .collect()
}

fn saws(key: &str) -> (Saw, Saw) {
    let cell = KERNEL.cells().into_iter().find(|cell| cell.key == key).unwrap();
    let file = KERNEL.folder().join("curves").join(format!("{}.txt", key.replace('/', "-")));
    let text = std::fs::read_to_string(file).unwrap();
    let window = |line: &str| line.split(' ').nth(1).unwrap().parse().unwrap();
    let kernel = Saw(text.lines().map(window).collect());
    let points = curve(&cell).into_iter().filter(|(at, ..)| *at >= cell.warm_up);
    let ours = Saw(points.map(|(_, cwnd, _)| cwnd.floor()).collect());
    (ours, kernel)
}

fn close(key: &str, ours: &[f64], kernel: &[f64], tolerance: f64) {
    println!("{key}\nours   {ours:.1?}\nkernel {kernel:.1?}");
    for (ours, kernel) in ours.iter().zip(kernel) {
        assert!((ours / kernel - 1.0).abs() < tolerance, "{key}: {ours} {kernel}");
    }
}

/// Teeth of the same height, length and shape.
fn same_teeth(key: &str) {
    let (ours, kernel) = saws(key);
    let (ours, kernel) = (ours.tooth(), kernel.tooth());
    close(key, &[ours.0], &[kernel.0], 0.10);
    close(key, &ours.1, &kernel.1, 0.10);
}

#[derive(Default)]
struct Dead(Vec<(u64, &'static str)>);

impl Observer<Count> for Dead {
    fn dropped(&mut self, _: Pace, packet: Count, cause: DropCause) {
        let cause = match cause {
            DropCause::Overflow => "overflow",
            DropCause::Random => "random",
            _ => "other",
        };
        let numbers = packet.first..packet.first + u64::from(packet.count);
        self.0.extend(numbers.map(|number| (number, cause)));
    }
}

/// The packets that the kernel's CUBIC sent over the emulator for five seconds, at 10 Mbit/s and 20
/// ms, with a queue of 8 packets and a loss of 5e-3, have the same outcome on the simulator's link,
/// packet by packet.
#[test]
fn recorded_arrivals_lose_the_same_packets() {
    let cell = Cell {
        key: String::new(),
        cc: "cubic".to_owned(),
        rate: DataRate::from_mbps(10),
        rtt: Duration::from_millis(20),
        queue: 8,
        loss: 0.005,
        duration: Duration::from_secs(5),
        warm_up: Duration::ZERO,
        quick: true,
    };
    // The record was made with the seed 1.
    let config = Scenario { seed: 1, ..scenario(&cell) }.link_config(0);
    let (mut link, mut dead) = (Link::<Count>::new(config), Dead::default());
    for row in KERNEL.rows("replay/arrivals.csv") {
        let number = |at: usize| row[at].parse::<u64>().unwrap();
        let packet = Count { count: 1, size: number(3) as u32, first: number(2) };
        link.offer(Pace::at(Time::from_nanos(number(0))), packet, &mut dead);
        while link.poll_departure(Time::MAX, &mut dead).is_some() {}
    }
    dead.0.sort_unstable();
    let theirs = KERNEL.rows("replay/drops.csv");
    let theirs: Vec<(u64, &str)> =
        theirs.iter().map(|row| (row[2].parse().unwrap(), row[4].as_str())).collect();
    assert!(theirs.len() > 10);
    assert_eq!(dead.0, theirs);
}

#[test]
fn teeth_of_reno_are_the_kernels() {
    same_teeth("reno/20mbit/20ms/queue0.5");
}

#[test]
fn teeth_of_cubic_are_the_kernels() {
    same_teeth("cubic/20mbit/20ms/queue0.5");
}

/// Random losses make teeth of every height: their distribution is the same.
#[test]
fn windows_of_reno_under_random_loss_are_the_kernels() {
    let key = "reno/20mbit/20ms/loss0.005";
    let (ours, kernel) = saws(key);
    close(key, &ours.deciles(), &kernel.deciles(), 0.15);
}

/// BBR's window and its eight phases leave the same distribution.
#[test]
fn windows_of_bbr_are_the_kernels() {
    let key = "bbr/20mbit/20ms/queue1";
    let (ours, kernel) = saws(key);
    close(key, &ours.deciles(), &kernel.deciles(), 0.15);
}
