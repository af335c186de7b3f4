//! The two experiments of the paper's section 4.2, on random networks.

use packtrain_units::Rng;

use super::fluid::{expected, transfer};
use super::study::{Scene, paper};
use super::world::{Kind, normal};

/// Standard deviation of one transfer's rate from its path's current rate.
const NOISE: f64 = 0.1;

/// A number of a table.
#[derive(Clone, Debug)]
pub(crate) struct Number {
    pub(crate) key: String,
    pub(crate) value: f64,
}

/// Speed-ups of cases (source, destination, size), and the share of slower cases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Speedups {
    /// Average scheduled by average direct bandwidth, each case once.
    pub(crate) all: Vec<f64>,
}

impl Speedups {
    pub(crate) fn mean(&self) -> f64 {
        self.all.iter().sum::<f64>() / self.all.len() as f64
    }

    /// Per cent of cases whose speed-up is at most `than`.
    pub(crate) fn not_above(&self, than: f64) -> f64 {
        let slow = self.all.iter().filter(|speedup| **speedup <= than).count();
        100.0 * slow as f64 / self.all.len() as f64
    }

    /// The quantile of this part.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.all.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * part).round() as usize]
    }
}

/// The rule that chooses routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Paper,
    Ours,
}

fn route(scene: &Scene, tables: &super::study::Tables, rule: Rule, case: &Case) -> Vec<usize> {
    match rule {
        Rule::Paper => paper(tables, case.from, case.to),
        Rule::Ours => scene.ours(tables, case.from, case.to, case.bytes),
    }
}

struct Case {
    from: usize,
    to: usize,
    bytes: f64,
    direct: f64,
    scheduled: f64,
    count: f64,
}

impl Case {
    fn new(from: usize, to: usize, bytes: f64) -> Self {
        Self { from, to, bytes, direct: 0.0, scheduled: 0.0, count: 0.0 }
    }

    fn measure(&mut self, scene: &Scene, route: &[usize], rng: &mut Rng) {
        let mut noise = || (NOISE * normal(rng)).exp();
        let straight = [self.from, self.to];
        self.direct += self.bytes / transfer(&scene.world, &straight, self.bytes, &mut noise);
        self.scheduled += self.bytes / transfer(&scene.world, route, self.bytes, &mut noise);
        self.count += 1.0;
    }
}

fn speedups(cases: &[Case]) -> Speedups {
    let done = cases.iter().filter(|case| case.count > 0.0);
    Speedups { all: done.map(|case| case.scheduled / case.direct).collect() }
}

/// Experiment 1: sizes of 2^n MB, new routes every five minutes, measured for pairs with depots.
/// Returns the speed-ups by size; the share of paths over depots; and for random pairs the share of
/// the rule's transfers slower than 0.95 of direct by path rates, and their throughput relative to
/// the oracle's.
pub(crate) fn hosts(kind: Kind, seed: u64, rule: Rule, cases: usize) -> (Vec<Speedups>, [f64; 3]) {
    let mut scene = Scene::new(kind, seed);
    let mut rng = Rng::new(seed ^ 0x0142);
    let n = kind.hosts as u64;
    let mut pair = || loop {
        let (from, to) = (rng.below(n) as usize, rng.below(n) as usize);
        if from != to {
            return (from, to);
        }
    };
    // First for all paths, with 16 MB.
    let tables = scene.tables();
    let (mut over, mut seen) = (0.0, 0.0);
    let mut by_size: Vec<Vec<Case>> = (0..7).map(|_| Vec::new()).collect();
    while by_size.iter().any(|all| all.len() < cases) {
        let (from, to) = pair();
        let probe = Case::new(from, to, 16e6);
        seen += 1.0;
        if route(&scene, &tables, rule, &probe).len() > 2 {
            over += 1.0;
            for (n, all) in by_size.iter_mut().enumerate().filter(|(_, all)| all.len() < cases) {
                all.push(Case::new(from, to, 1e6 * (1_u64 << n) as f64));
            }
        }
    }
    let (mut slower, mut of_oracle, mut all) = (0.0, 0.0, 0.0);
    let mut rng = Rng::new(seed ^ 0x70_1142);
    for _ in 0..5 {
        scene.step();
        let tables = scene.tables();
        for case in by_size.iter_mut().flatten() {
            let way = route(&scene, &tables, rule, case);
            if way.len() > 2 {
                case.measure(&scene, &way, &mut rng);
            }
        }
        for _ in 0..40 {
            let (from, to) = (rng.below(n) as usize, rng.below(n) as usize);
            if from == to {
                continue;
            }
            let case = Case::new(from, to, 1e6 * (1_u64 << rng.below(7)) as f64);
            let time = expected(&scene.world, &route(&scene, &tables, rule, &case), case.bytes);
            let direct = expected(&scene.world, &[from, to], case.bytes);
            let best = expected(&scene.world, &scene.oracle(from, to, case.bytes), case.bytes);
            all += 1.0;
            of_oracle += best / time;
            slower += f64::from(u8::from(direct / time < 0.95));
        }
    }
    let shares = [over / seen, slower / all, of_oracle / all];
    (by_size.iter().map(|cases| speedups(cases)).collect(), shares)
}

/// Experiment 2: constant routes; ten transfers of 16 MB and five of 128 MB for each pair with
/// depots, over `sets` networks.
pub(crate) fn sites(kind: Kind, sets: u64, rule: Rule) -> [Speedups; 2] {
    let mut found = [Speedups::default(), Speedups::default()];
    for seed in 1..=sets {
        let mut scene = Scene::new(kind, seed);
        let mut rng = Rng::new(seed ^ 0x0010);
        let tables = scene.tables();
        let mut cases: [Vec<(Case, Vec<usize>)>; 2] = [Vec::new(), Vec::new()];
        for from in kind.core..kind.hosts {
            for to in (kind.core..kind.hosts).filter(|to| *to != from) {
                for (cases, bytes) in cases.iter_mut().zip([16e6, 128e6]) {
                    let case = Case::new(from, to, bytes);
                    let way = route(&scene, &tables, rule, &case);
                    if way.len() > 2 {
                        cases.push((case, way));
                    }
                }
            }
        }
        for round in 0..10 {
            scene.world.step();
            for (size, cases) in cases.iter_mut().enumerate() {
                for (case, way) in cases.iter_mut().filter(|_| size == 0 || round < 5) {
                    case.measure(&scene, way, &mut rng);
                }
            }
        }
        for (found, cases) in found.iter_mut().zip(cases) {
            let cases: Vec<Case> = cases.into_iter().map(|(case, _)| case).collect();
            found.all.extend(speedups(&cases).all);
        }
    }
    found
}
