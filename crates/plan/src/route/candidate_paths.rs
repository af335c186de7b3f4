//! Selects the candidate paths to compare.

use packtrain_units::{ByteCount, DataRate, Duration};

use super::{HostId, Matrix, Tree, lasts};

/// Maximum depots of a path: each is one more machine that can fail.
pub(super) const MAX_DEPOTS: usize = 3;

/// A transfer and its network.
#[derive(Clone, Copy)]
pub struct PathQuery<'a> {
    /// Forecasts of all edges, with their errors.
    pub matrix: &'a Matrix,
    /// Round trips, zero where unknown.
    pub rtt: &'a dyn Fn(HostId, HostId) -> Duration,
    /// The source.
    pub from: HostId,
    /// The destination.
    pub to: HostId,
    /// Bytes to send.
    pub bytes: ByteCount,
}

/// Candidate paths for [`super::best_of`], as lists of hosts with both ends: those of the trees
/// from the source, which are best for long transfers; and the fastest for `bytes` over one depot,
/// then with a second and a third one inserted. This search counts each edge as slow as its error
/// allows, because the best of many forecasts is likely too optimistic.
pub fn candidate_paths(query: &PathQuery<'_>, trees: &[&Tree]) -> Vec<Vec<HostId>> {
    let mut found: Vec<Vec<HostId>> = Vec::new();
    for tree in trees.iter().filter(|tree| tree.source() == query.from) {
        let path = tree.path(query.to);
        if (3..=MAX_DEPOTS + 2).contains(&path.len()) && !found.contains(&path) {
            found.push(path);
        }
    }
    let mut path = vec![query.from, query.to];
    for _ in 0..MAX_DEPOTS {
        let Some(longer) = query.best_longer(&path) else { break };
        path.clone_from(&longer);
        if !found.contains(&longer) {
            found.push(longer);
        }
    }
    found
}

impl PathQuery<'_> {
    /// The fastest path with one more depot.
    fn best_longer(&self, path: &[HostId]) -> Option<Vec<HostId>> {
        let mut best: Option<(Duration, Vec<HostId>)> = None;
        for depot in self.matrix.hosts().filter(|host| !path.contains(host)) {
            for at in 1..path.len() {
                let mut longer = path.to_vec();
                longer.insert(at, depot);
                let time = self.doubtful_time(&longer);
                if time < best.as_ref().map_or(Duration::MAX, |best| best.0) {
                    best = Some((time, longer));
                }
            }
        }
        best.map(|best| best.1)
    }

    /// Duration when every edge is slower than forecast by its error.
    fn doubtful_time(&self, path: &[HostId]) -> Duration {
        let cost = |pair: &[HostId]| {
            let error = self.matrix.error(pair[0], pair[1]);
            self.matrix.edge(pair[0], pair[1]).seconds_per_megabit() * (1.0 + error)
        };
        let inner = path[1..path.len() - 1].iter();
        let through = inner.map(|&host| self.matrix.through(host).seconds_per_megabit());
        let min = through.fold(0.0, f64::max);
        let (mut begins, mut longest) = (Duration::ZERO, Duration::ZERO);
        for pair in path.windows(2) {
            let worst = cost(pair).max(min);
            if !worst.is_finite() {
                return Duration::MAX;
            }
            let rate = DataRate::from_bps((1e6 / worst) as u64);
            let rtt = (self.rtt)(pair[0], pair[1]);
            longest = longest.max(begins + lasts(rate, rtt, self.bytes));
            begins += rtt + rtt / 2;
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{Epsilon, tree};

    #[test]
    fn a_sure_depot_comes_before_a_lucky_one() {
        let table = ",a,b,c,d\na,,10,50,60\nb,,,,\nc,,50,,\nd,,60,,\n";
        let mut matrix = Matrix::from_csv(table).unwrap();
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| matrix.host(name).unwrap());
        let rtt = |_: HostId, _: HostId| Duration::from_millis(50);
        let all = |matrix: &Matrix, trees: &[&Tree]| {
            let bytes = ByteCount(100_000_000);
            candidate_paths(&PathQuery { matrix, rtt: &rtt, from: a, to: b, bytes }, trees)
        };
        let found = tree(&matrix, a, Epsilon::PAPER);
        assert_eq!(all(&matrix, &[&found]), [vec![a, d, b]]);
        matrix.set_error(a, d, 0.5);
        assert_eq!(all(&matrix, &[]), [vec![a, c, b]]);
        assert_eq!(all(&matrix, &[&found]), [vec![a, d, b], vec![a, c, b]]);
    }
}
