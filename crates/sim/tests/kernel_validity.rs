//! TCP here against the TCP of Linux over the emulator, over the cells of
//! `experiments/kernel-validity`. The kernel's numbers are kept in git, so that neither root nor an
//! emulator is needed; `measure.py` there measures them anew.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};

use packtrain_link::{Count, DropCause, Element, Link, LinkConfig, LossConfig, Observer, Pace};
use packtrain_sim::outcome::Outcome;
use packtrain_sim::run;
use packtrain_sim::spec::{FlowKind, FlowSpec, LinkSpec, NodeSpec, Scenario, TcpSpec};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// Throughput may differ by this share.
const TOLERANCE: f64 = 0.05;

/// One line of `cells.csv`.
#[derive(Clone, Debug)]
struct Cell {
    key: String,
    cc: String,
    rate: DataRate,
    rtt: Duration,
    queue: u64,
    loss: f64,
    duration: Duration,
    warm_up: Duration,
    quick: bool,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/kernel-validity")
}

fn rows(file: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn cells() -> Vec<Cell> {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let cell = |row: Vec<String>| Cell {
        key: row[0].clone(),
        cc: row[1].clone(),
        rate: DataRate::from_mbps(number(&row[2])),
        rtt: Duration::from_millis(number(&row[3])),
        queue: number(&row[4]),
        loss: row[5].parse().unwrap(),
        duration: Duration::from_secs(number(&row[6])),
        warm_up: Duration::from_secs(number(&row[7])),
        quick: row[8] == "yes",
    };
    rows("cells.csv").into_iter().map(cell).collect()
}

/// The same two links as in the emulator: packets of at most 1,500 bytes, a queue that never
/// fills on the way back.
fn scenario(cell: &Cell) -> Scenario {
    let node = |name: &str| NodeSpec { name: name.to_owned(), host: None };
    let mut there = LinkConfig::new(cell.rate, cell.rtt / 2, cell.queue);
    there.mtu = ByteCount(1_500);
    if cell.loss > 0.0 {
        there.loss = LossConfig::Independent(cell.loss);
    }
    let back = LinkConfig::new(cell.rate, cell.rtt / 2, 1_000_000);
    Scenario {
        name: "kernel-validity".to_owned(),
        title: cell.key.clone(),
        duration: cell.duration,
        warm_up: cell.warm_up,
        seed: std::env::var("PACKTRAIN_SEED").map_or(1, |s| s.parse().unwrap()),
        sample: None,
        nodes: vec![node("near"), node("far")],
        links: vec![
            LinkSpec { name: "near>far".to_owned(), from: 0, to: 1, config: there },
            LinkSpec { name: "far>near".to_owned(), from: 1, to: 0, config: back },
        ],
        flows: vec![FlowSpec {
            name: "tcp".to_owned(),
            from: 0,
            to: 1,
            start: Time::ZERO,
            stop: None,
            kind: FlowKind::Tcp(TcpSpec::linux(&cell.cc)),
        }],
        train: 64,
        record: None,
    }
}

fn play(scenario: &Scenario) -> Outcome {
    run(scenario, &mut |_| {}).unwrap_or_else(|error| panic!("{}: {error}", scenario.title))
}

/// Our goodput over the kernel's, and a line of `ours.csv`.
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
    (ratio, line)
}

fn compare_all(wanted: impl Fn(&Cell) -> bool) {
    let kernel = rows("kernel.csv");
    let (mut lines, mut wrong) = (Vec::new(), Vec::new());
    for cell in cells().iter().filter(|cell| wanted(cell)) {
        let row = kernel.iter().find(|row| row[0] == cell.key);
        let row = row.unwrap_or_else(|| panic!("kernel.csv has no row {}", cell.key));
        let (ratio, line) = compare(cell, row);
        if (ratio - 1.0).abs() > TOLERANCE {
            wrong.push(format!("{}: {ratio:.3} of the kernel's throughput", cell.key));
        }
        lines.push(line);
        if let Ok(dir) = std::env::var("PACKTRAIN_CURVES") {
            let lines = curve(cell).into_iter().map(|(at, cwnd, flight)| {
                format!("{:.3} {cwnd:.2} {flight:.2}\n", at.as_secs_f64())
            });
            let file = format!("{dir}/{}.txt", cell.key.replace('/', "-"));
            std::fs::write(file, lines.collect::<String>()).unwrap();
        }
    }
    assert!(!lines.is_empty());
    if let Ok(file) = std::env::var("PACKTRAIN_OURS") {
        let head = "key,goodput_bps,loss_events,timeouts,repeated_packets,sent_packets,mean_rtt_us,\
                    overflow,random,ratio\n";
        std::fs::write(file, format!("{head}{}\n", lines.join("\n"))).unwrap();
    }
    assert!(wrong.is_empty(), "beyond 5 %:\n{}", wrong.join("\n"));
}

#[test]
fn throughput_is_the_kernels_where_it_is_quick() {
    compare_all(|cell| cell.quick);
}

/// Writes what it found to the file named in `PACKTRAIN_OURS`, window curves to the folder in
/// `PACKTRAIN_CURVES`. `PACKTRAIN_CELLS` picks the cells whose key contains it.
#[test]
#[ignore = "writes ours.csv"]
fn throughput_is_the_kernels_everywhere() {
    let pattern = std::env::var("PACKTRAIN_CELLS").unwrap_or_default();
    compare_all(|cell| cell.key.contains(&pattern));
}

/// A window over time, in segments, a sample every 10 ms.
struct Saw(Vec<f64>);

/// Places along a tooth where its shape is compared.
const PLACES: usize = 9;
/// A window below this share of the highest since the last fall has fallen.
const FALL: f64 = 0.85;
/// A fall takes at most so many samples: the repair of a loss.
const REPAIR: usize = 8;

impl Saw {
    /// The mean tooth: its length in samples, and the window from its bottom to its top.
    fn tooth(&self) -> (f64, [f64; PLACES]) {
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
        // The first is what was cut off by the beginning.
        let teeth = &teeth[1..];
        assert!(teeth.len() >= 10, "{}", teeth.len());
        let many = teeth.len() as f64;
        let at = |tooth: &[f64], place: usize| tooth[place * (tooth.len() - 1) / (PLACES - 1)];
        let length = teeth.iter().map(|tooth| tooth.len() as f64).sum::<f64>() / many;
        let mean = |place| teeth.iter().map(|tooth| at(tooth, place)).sum::<f64>() / many;
        (length, std::array::from_fn(mean))
    }

    /// Every tenth of the distribution.
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
    samples.map(|s| (s.at.since(Time::ZERO), segments(s.cwnd), segments(s.in_flight))).collect()
}

fn saws(key: &str) -> (Saw, Saw) {
    let cell = cells().into_iter().find(|cell| cell.key == key).unwrap();
    let file = folder().join("curves").join(format!("{}.txt", key.replace('/', "-")));
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

/// What the kernel's CUBIC sent over the emulator for five seconds, at 10 Mbit/s and 20 ms, with
/// a queue of 8 packets and a loss of 5e-3, meets the same fate on the simulator's link, packet by
/// packet.
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
    for row in rows("replay/arrivals.csv") {
        let number = |at: usize| row[at].parse::<u64>().unwrap();
        let packet = Count { count: 1, size: number(3) as u32, first: number(2) };
        link.offer(Pace::at(Time::from_nanos(number(0))), packet, &mut dead);
        while link.poll_departure(Time::MAX, &mut dead).is_some() {}
    }
    dead.0.sort_unstable();
    let theirs = rows("replay/drops.csv");
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
