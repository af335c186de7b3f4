//! Window curves: teeth of the same height, length and shape.

use packtrain_sim::spec::Scenario;
use packtrain_units::Duration;

use crate::cells::{cells, folder, play};

/// Points along a tooth where its shape is compared.
const POINTS: usize = 16;
/// Maximum relative difference, as for throughput.
const TOLERANCE: f64 = 0.05;
/// A fall by this share between two samples ends a tooth.
const FALL: f64 = 0.05;
/// Falls closer than this, in samples, are one: some controllers cut gradually.
const ONE_FALL: usize = 10;
/// Bytes of a segment.
const SEGMENT: u64 = 1_000;

/// The mean tooth of a sawtooth curve.
#[derive(Debug)]
struct Tooth {
    /// In samples.
    length: f64,
    /// In packets, from the bottom to the top.
    shape: [f64; POINTS],
}

/// The mean tooth, without those of the start.
fn tooth(curve: &[f64]) -> Tooth {
    // First and last sample of each fall.
    let mut falls: Vec<(usize, usize)> = Vec::new();
    for i in (1..curve.len()).filter(|i| curve[*i] < (1.0 - FALL) * curve[*i - 1]) {
        match falls.last_mut() {
            Some((_, last)) if i - *last < ONE_FALL => *last = i,
            _ => falls.push((i, i)),
        }
    }
    falls.retain(|(first, _)| *first > curve.len() / 8);
    // With fast convergence long and short teeth alternate: use an even number of them.
    let skip = usize::from(falls.len().is_multiple_of(2));
    let ends = falls.get(skip..).unwrap_or_default();
    let teeth: Vec<&[f64]> = ends.windows(2).map(|ends| &curve[ends[0].1..ends[1].0]).collect();
    assert!(teeth.len() >= 2, "{falls:?}");
    let many = teeth.len() as f64;
    let at = |tooth: &[f64], place: usize| tooth[place * (tooth.len() - 1) / (POINTS - 1)];
    Tooth {
        length: teeth.iter().map(|t| t.len() as f64).sum::<f64>() / many,
        shape: std::array::from_fn(|place| {
            teeth.iter().map(|tooth| at(tooth, place)).sum::<f64>() / many
        }),
    }
}

fn ours(mut scenario: Scenario, step: Duration, samples: usize) -> Vec<f64> {
    scenario.sample = Some(step);
    scenario.duration = step * samples as u64;
    scenario.warm_up = Duration::ZERO;
    let outcome = play(&scenario);
    outcome.samples.iter().map(|s| (s.cwnd.unwrap_or_default().get() / SEGMENT) as f64).collect()
}

fn compare(key: &str) {
    let file = folder().join("curves").join(format!("{}.txt", key.replace('/', "-")));
    let text = std::fs::read_to_string(file).unwrap();
    let number = |text: &str| text.parse::<f64>().unwrap();
    let points: Vec<(f64, f64)> = text
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(at, cwnd)| (number(at), number(cwnd).floor()))
        .collect();
    let theirs: Vec<f64> = points.iter().map(|(_, cwnd)| *cwnd).collect();
    let step = Duration::from_secs_f64(points[1].0);
    let cell = cells().into_iter().find(|cell| cell.key == key).unwrap();
    let ours = tooth(&ours(cell.scenario, step, theirs.len()));
    let theirs = tooth(&theirs);
    println!("{key}\nours  {ours:.1?}\nns-2  {theirs:.1?}");
    let close = |a: f64, b: f64| (a / b - 1.0).abs() < TOLERANCE;
    assert!(close(ours.length, theirs.length), "{key}: {ours:?} {theirs:?}");
    for (ours, theirs) in ours.shape.iter().zip(&theirs.shape) {
        assert!(close(*ours, *theirs), "{key}: {ours} {theirs}");
    }
}

#[test]
fn reno_by_sack() {
    compare("sack1/10mbit/100ms/queue1");
}

#[test]
fn reno_without_sack() {
    compare("newreno/10mbit/100ms/queue1");
}

#[test]
fn cubic() {
    compare("linux-cubic/10mbit/100ms/queue1");
}

#[test]
fn highspeed() {
    compare("sack1-highspeed/100mbit/10ms/queue1");
}

#[test]
fn scalable() {
    compare("sack1-scalable/100mbit/10ms/queue1");
}
