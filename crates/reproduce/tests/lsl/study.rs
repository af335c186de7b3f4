//! Compares the rules: the paper's, this project's, always direct, and an oracle.

use packtrain_plan::route::{
    Epsilon, HostId, Leg, Matrix, PathQuery, Pipeline, Tree, best_of, candidate_paths, tree,
};
use packtrain_units::{ByteCount, Rng};

use super::fluid::{expected, transfer};
use super::world::{Kind, Observer, Sensors, World, span};

/// Number of measurements of each path before routes are used.
pub(crate) const HISTORY: usize = 24;

/// A network with the forecasts of both kinds of sensors.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) probes: Observer,
    pub(crate) transfers: Observer,
}

impl Scene {
    pub(crate) fn new(kind: Kind, seed: u64) -> Self {
        let world = World::new(kind, seed);
        let (probes, transfers) = (Observer::new(&world), Observer::new(&world));
        let mut scene = Self { world, probes, transfers };
        for _ in 0..HISTORY {
            scene.step();
        }
        scene
    }

    /// Advances five minutes, then measures every path.
    pub(crate) fn step(&mut self) {
        self.world.step();
        self.probes.measure(&mut self.world, Sensors::Probes);
        self.transfers.measure(&mut self.world, Sensors::Transfers);
    }

    /// The current forecasts for both rules.
    pub(crate) fn tables(&self) -> Tables {
        let matrix = self.transfers.matrix(true);
        let trees = |matrix: &Matrix, epsilon| -> Vec<Tree> {
            matrix.hosts().map(|host| tree(matrix, host, epsilon)).collect()
        };
        Tables {
            paper: trees(&self.probes.matrix(false), Epsilon::PAPER),
            automatic: trees(&matrix, Epsilon::AUTOMATIC),
            plain: trees(&matrix, Epsilon::PAPER),
            matrix,
        }
    }

    /// The forecast of a connection.
    fn leg(&self, from: usize, to: usize) -> Leg {
        let forecast = self.transfers.edge(from, to);
        Leg { forecast, rtt: span(self.world.path(from, to).rtt) }
    }

    /// This project's route from end to end: two hosts are a direct route.
    pub(crate) fn ours(&self, tables: &Tables, from: usize, to: usize, bytes: f64) -> Vec<usize> {
        let (ids, [first, last]) = (host_ids(&tables.matrix), [from, to]);
        let trees = [&tables.automatic[first], &tables.plain[first]];
        let rtt = |a: HostId, b: HostId| span(self.world.path(a.index(), b.index()).rtt);
        let (matrix, bytes) = (&tables.matrix, ByteCount(bytes as u64));
        let task = PathQuery { matrix, rtt: &rtt, from: ids[first], to: ids[last], bytes };
        let found: Vec<Vec<usize>> = candidate_paths(&task, &trees)
            .iter()
            .map(|way| way.iter().map(|host| host.index()).collect())
            .collect();
        let pipelines: Vec<Pipeline> = found
            .iter()
            .map(|way| Pipeline {
                legs: way.windows(2).map(|pair| self.leg(pair[0], pair[1])).collect(),
                through: way[1..way.len() - 1].iter().map(|&h| self.transfers.host(h)).collect(),
            })
            .collect();
        let best = best_of(&self.leg(from, to), &pipelines, bytes).and_then(|best| best.path);
        best.map_or_else(|| vec![from, to], |way| found[way].clone())
    }

    /// The best route of at most three depots, with knowledge of the actual paths.
    pub(crate) fn oracle(&self, from: usize, to: usize, bytes: f64) -> Vec<usize> {
        let world = &self.world;
        let others: Vec<usize> = (0..world.len()).filter(|h| *h != from && *h != to).collect();
        let mut best = (expected(world, &[from, to], bytes), vec![from, to]);
        let mut consider = |route: &[usize]| {
            let time = expected(world, route, bytes);
            if time < best.0 {
                best = (time, route.to_vec());
            }
        };
        // With many hosts, combinations of two and three use only the best hosts at each end.
        let few = |rate: &dyn Fn(usize) -> f64| {
            let mut few = others.clone();
            few.sort_by(|a, b| rate(*b).total_cmp(&rate(*a)));
            few.truncate(24);
            few
        };
        let near = few(&|host| world.rate(from, host).min(world.through(host)));
        let far = few(&|host| world.rate(host, to).min(world.through(host)));
        others.iter().for_each(|&a| consider(&[from, a, to]));
        for &a in &near {
            for &b in far.iter().filter(|b| **b != a) {
                consider(&[from, a, b, to]);
                for &c in near.iter().filter(|c| **c != a && **c != b) {
                    consider(&[from, a, c, b, to]);
                }
            }
        }
        best.1
    }
}

/// Forecasts at one time.
pub(crate) struct Tables {
    pub(crate) paper: Vec<Tree>,
    pub(crate) automatic: Vec<Tree>,
    pub(crate) plain: Vec<Tree>,
    pub(crate) matrix: Matrix,
}

pub(crate) fn host_ids(matrix: &Matrix) -> Vec<HostId> {
    matrix.hosts().collect()
}

/// The paper's route.
pub(crate) fn paper(tables: &Tables, from: usize, to: usize) -> Vec<usize> {
    let to = host_ids(&tables.matrix)[to];
    tables.paper[from].path(to).iter().map(|host| host.index()).collect()
}

/// The score of a rule over many transfers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Score {
    pub(crate) transfers: f64,
    /// Number of transfers over depots.
    pub(crate) depots: f64,
    /// Sums of throughputs relative to the oracle's and to direct's, and the minimum.
    pub(crate) of_oracle: f64,
    pub(crate) of_direct: f64,
    /// Number slower than 0.95 of direct: by expectation at that time, and as measured.
    pub(crate) slower: f64,
    pub(crate) unlucky: f64,
}

impl Score {
    fn add(&mut self, depots: bool, of_oracle: f64, of_direct: f64, as_it_came: f64) {
        self.transfers += 1.0;
        self.depots += f64::from(u8::from(depots));
        self.of_oracle += of_oracle;
        self.of_direct += of_direct;
        self.slower += f64::from(u8::from(of_direct < 0.95));
        self.unlucky += f64::from(u8::from(as_it_came < 0.95));
    }

    /// Adds the transfers of another score.
    pub(crate) fn and(&mut self, other: &Self) {
        self.transfers += other.transfers;
        self.depots += other.depots;
        self.of_oracle += other.of_oracle;
        self.of_direct += other.of_direct;
        self.slower += other.slower;
        self.unlucky += other.unlucky;
    }

    pub(crate) fn share(&self, of: f64) -> f64 {
        of / self.transfers
    }
}

/// Standard deviation of one transfer's rate from its path's current rate.
const NOISE: f64 = 0.05;

/// Scores of always direct, the paper's rule and ours, in `cases` transfers of `kind` and `seed`.
pub(crate) fn compare(kind: Kind, seed: u64, cases: usize) -> [Score; 3] {
    let mut scene = Scene::new(kind, seed);
    let mut rng = Rng::new(seed ^ 0xca5e);
    let mut scores = [Score::default(); 3];
    let sources = kind.hosts as u64;
    let mut tables = scene.tables();
    for case in 0..cases {
        if case % 40 == 39 {
            scene.step();
            tables = scene.tables();
        }
        // Depots of the core are no sources.
        let ends = || kind.core as u64;
        let from = (ends() + rng.below(sources - ends())) as usize;
        let to = (ends() + rng.below(sources - ends())) as usize;
        if from == to {
            continue;
        }
        let bytes = 1e6 * (1_u64 << rng.below(7)) as f64;
        let direct = vec![from, to];
        let best = expected(&scene.world, &scene.oracle(from, to, bytes), bytes);
        let straight = expected(&scene.world, &direct, bytes);
        let routes =
            [direct.clone(), paper(&tables, from, to), scene.ours(&tables, from, to, bytes)];
        let mut lucky = || scene_noise(&mut rng);
        let came = transfer(&scene.world, &direct, bytes, &mut lucky);
        for (route, score) in routes.iter().zip(&mut scores) {
            let time = expected(&scene.world, route, bytes);
            let own = match route.len() {
                2 => came,
                _ => transfer(&scene.world, route, bytes, &mut lucky),
            };
            score.add(route.len() > 2, best / time, straight / time, came / own);
        }
    }
    scores
}

fn scene_noise(rng: &mut Rng) -> f64 {
    (NOISE * super::world::normal(rng)).exp()
}
