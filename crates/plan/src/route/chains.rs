//! Chains of depots for a running transfer, from the round trips between them.

use std::collections::BTreeMap;

use packtrain_units::{DataRate, Duration};

use super::candidate_paths::MAX_DEPOTS;
use super::{Epsilon, HostId, Matrix, tree};

/// Maximum number of chains of a transfer. Each may cost a trial.
pub const MAX_CHAINS: usize = 4;
/// How many times as long the longest hop of the best path over at most one depot must be as that of
/// a chain: the paper's epsilon of 10 %.
const MIN_GAIN: f64 = 1.1;
/// The round trip that stands for 1 Mbit/s.
const UNIT: Duration = Duration::from_secs(1);
/// The shortest round trip that counts.
const MIN_RTT: Duration = Duration::from_micros(10);

/// The known round trips between this end, depots, and the other end. Depots are numbered from 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundTrips {
    /// Without depots.
    pub direct: Option<Duration>,
    /// To each depot, by its number.
    pub near: BTreeMap<usize, Duration>,
    /// From one depot to another.
    pub between: BTreeMap<(usize, usize), Duration>,
    /// From each depot to the other end.
    pub beyond: BTreeMap<usize, Duration>,
}

impl RoundTrips {
    /// The hops of a path over these depots; `None` if one of them is unknown.
    pub fn hops(&self, depots: &[usize]) -> Option<Vec<Duration>> {
        let (first, last) = (depots.first()?, depots.last()?);
        let between = depots.windows(2).map(|pair| self.between.get(&(pair[0], pair[1])));
        let inner = std::iter::once(self.near.get(first)).chain(between);
        inner.chain(std::iter::once(self.beyond.get(last))).map(|hop| hop.copied()).collect()
    }

    /// Chains of two to three depots whose longest hop is clearly shorter (by `MIN_GAIN`) than that
    /// of the best path over at most one depot, best first, at most [`MAX_CHAINS`].
    ///
    /// They are paths of the minimax tree of the LSL paper. An edge costs its round trip, because
    /// the rate of a stream that losses or a buffer limit falls with it ([`super::Limit::gain`]);
    /// rates of these hops are not needed. After each path, the tree grows again without the
    /// longest hop of that path, so that the next chain differs where the first is weakest.
    pub fn chains(&self) -> Vec<Vec<usize>> {
        let depots = self.near.keys().chain(self.beyond.keys()).max().map_or(0, |last| last + 1);
        let mut matrix = Matrix::new(vec![String::new(); depots + 2]);
        let hosts: Vec<HostId> = matrix.hosts().collect();
        let (here, there) = (hosts[depots], hosts[depots + 1]);
        let mut connect = |from: HostId, to: HostId, rtt: Duration| {
            let part = UNIT.as_secs_f64() / rtt.max(MIN_RTT).as_secs_f64();
            matrix.set_edge(from, to, DataRate::from_mbps(1).mul_f64(part));
        };
        for (depot, rtt) in &self.near {
            connect(here, hosts[*depot], *rtt);
        }
        for (depot, rtt) in &self.beyond {
            connect(hosts[*depot], there, *rtt);
        }
        for ((from, to), rtt) in &self.between {
            if let (Some(from), Some(to)) = (hosts[..depots].get(*from), hosts[..depots].get(*to)) {
                connect(*from, *to, *rtt);
            }
        }
        if let Some(rtt) = self.direct {
            connect(here, there, rtt);
        }
        let short = self.best_short();
        let gains = |chain: &[usize]| {
            let longest = self.hops(chain).and_then(|hops| hops.into_iter().max());
            longest.is_some_and(|longest| longest.mul_f64(MIN_GAIN) < short)
        };
        let mut found: Vec<Vec<usize>> = Vec::new();
        // Each round removes an edge; where few edges are known, most rounds find no chain.
        for _ in 0..2 * MAX_CHAINS {
            let path = tree(&matrix, here, Epsilon::PAPER).path(there);
            let longest =
                |a: &&[HostId], b: &&[HostId]| cost(&matrix, a).total_cmp(&cost(&matrix, b));
            let Some(worst) = path.windows(2).max_by(longest) else { break };
            let (from, to) = (worst[0], worst[1]);
            let path = shortened(&matrix, path);
            let chain: Vec<usize> =
                path.iter().map(|host| host.index()).filter(|n| *n < depots).collect();
            let long = (2..=MAX_DEPOTS).contains(&chain.len());
            if long && gains(&chain) && !found.contains(&chain) {
                found.push(chain);
            }
            if found.len() == MAX_CHAINS {
                break;
            }
            matrix.set_edge(from, to, DataRate::ZERO);
        }
        found
    }

    /// The longest hop of the best path over at most one depot.
    fn best_short(&self) -> Duration {
        let single =
            |(depot, near): (&usize, &Duration)| Some((*near).max(*self.beyond.get(depot)?));
        let singles = self.near.iter().filter_map(single);
        singles.chain(self.direct).min().unwrap_or(Duration::MAX)
    }
}

/// The cost of an edge, a slice of its two ends.
fn cost(matrix: &Matrix, edge: &[HostId]) -> f64 {
    matrix.edge(edge[0], edge[1]).seconds_per_megabit()
}

/// A path without the depots that shorten its hops least, until it has [`MAX_DEPOTS`]; empty if the
/// hops between the others are unknown.
fn shortened(matrix: &Matrix, mut path: Vec<HostId>) -> Vec<HostId> {
    while path.len() > MAX_DEPOTS + 2 {
        let without = |at: &usize| cost(matrix, &[path[at - 1], path[at + 1]]);
        let least = (1..path.len() - 1).min_by(|a, b| without(a).total_cmp(&without(b)));
        match least.filter(|at| without(at).is_finite()) {
            Some(at) => drop(path.remove(at)),
            None => return Vec::new(),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Depots in a row, `gap` ms apart from each other and from both ends.
    fn row(depots: usize, gap: u64) -> RoundTrips {
        let mut known =
            RoundTrips { direct: Some(ms(gap * (depots as u64 + 1))), ..Default::default() };
        for at in 0..depots {
            known.near.insert(at, ms(gap * (at as u64 + 1)));
            known.beyond.insert(at, ms(gap * (depots - at) as u64));
            for to in (0..depots).filter(|to| *to != at) {
                known.between.insert((at, to), ms(gap * at.abs_diff(to) as u64));
            }
        }
        known
    }

    #[test]
    fn depots_in_a_row_are_a_chain_with_even_hops() {
        let known = row(2, 20);
        assert_eq!(known.chains().first(), Some(&vec![0, 1]));
        assert_eq!(known.hops(&[0, 1]), Some(vec![ms(20); 3]));
        assert_eq!(row(3, 20).chains().first(), Some(&vec![0, 1, 2]));
        // Backwards, every hop is longer.
        assert!(!known.chains().contains(&vec![1, 0]));
    }

    #[test]
    fn a_chain_must_be_clearly_better_than_one_depot() {
        // Two depots side by side half way: the second shortens nothing.
        let mut known = row(1, 50);
        known.near.insert(1, ms(50));
        known.beyond.insert(1, ms(50));
        known.between.extend([((0, 1), ms(1)), ((1, 0), ms(1))]);
        assert_eq!(known.chains(), Vec::<Vec<usize>>::new());
        // 46 instead of 50 ms is less than the paper's epsilon.
        known.beyond.insert(1, ms(46));
        known.near.insert(0, ms(46));
        assert_eq!(known.chains(), Vec::<Vec<usize>>::new());
        known.beyond.insert(1, ms(30));
        known.near.insert(0, ms(30));
        assert_eq!(known.chains().first(), Some(&vec![0, 1]));
    }

    #[test]
    fn chains_need_measured_hops_and_end_at_three_depots() {
        let mut known = row(2, 20);
        known.between.clear();
        assert_eq!(known.chains(), Vec::<Vec<usize>>::new());
        assert_eq!(known.hops(&[0, 1]), None);
        assert_eq!(RoundTrips::default().chains(), Vec::<Vec<usize>>::new());
        let many = row(6, 10).chains();
        assert_eq!(many.first().map(Vec::len), Some(MAX_DEPOTS), "{many:?}");
        assert!(many.iter().all(|chain| (2..=MAX_DEPOTS).contains(&chain.len())), "{many:?}");
        // A depot of which nothing but a hop between depots is known.
        let mut odd = row(2, 20);
        odd.between.insert((7, 9), ms(1));
        assert_eq!(odd.chains().first(), Some(&vec![0, 1]));
        assert!(row(16, 5).chains().len() <= MAX_CHAINS);
    }
}
