//! The minimax path tree of appendix A.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroUsize;

use super::matrix::{Cost, HostId, Matrix};

/// How much better an edge must be to replace another: by the factor 1 + epsilon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Epsilon {
    /// The same for all edges.
    Fixed(f64),
    /// From the errors of the forecasts on the two paths compared, assumed independent: this many
    /// standard deviations of their ratio, and at least `min_epsilon`. The paper suggests this in 4.1.
    FromErrors {
        /// Number of standard deviations.
        deviations: f64,
        /// Minimum, used where the errors are small or unknown.
        min_epsilon: f64,
    },
}

impl Epsilon {
    /// The paper's: 10 % (section 4.2).
    pub const PAPER: Self = Self::Fixed(0.1);
    /// An edge that is judged better is better with probability 5/6.
    pub const AUTOMATIC: Self = Self::FromErrors { deviations: 1.0, min_epsilon: 0.1 };
}

impl Epsilon {
    /// Minimum factor by which another edge must be better.
    fn min_factor(self) -> f64 {
        let (Self::Fixed(epsilon) | Self::FromErrors { min_epsilon: epsilon, .. }) = self;
        1.0 + epsilon.max(0.0)
    }
}

impl Default for Epsilon {
    fn default() -> Self {
        Self::PAPER
    }
}

/// Best paths from one host to all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    source: HostId,
    parent: Vec<u32>,
    cost: Vec<f64>,
}

/// A row of a route table: the next hop for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The destination of a session.
    pub destination: HostId,
    /// The next hop.
    pub next: HostId,
}

/// No parent yet.
const NONE: u32 = u32::MAX;

/// The minimax path tree from `source`: for each host the path whose worst edge is best. Where an
/// edge is not better by `epsilon`, the path found first stays, which is the direct one or comes
/// from the better-connected depot. Ties go to the host named first. An epsilon that is negative or
/// NaN counts as 0.
pub fn tree(matrix: &Matrix, source: HostId, epsilon: Epsilon) -> Tree {
    Growing::default().grow(matrix, None, source, epsilon)
}

/// The trees of all hosts, in their order, computed by `threads` threads: the tables of all depots.
pub fn trees(matrix: &Matrix, epsilon: Epsilon, threads: NonZeroUsize) -> Vec<Tree> {
    let hosts: Vec<HostId> = matrix.hosts().collect();
    let rows = shared(&hosts, threads, |&host| sorted(matrix, host));
    let mut min = vec![f64::INFINITY; hosts.len()];
    for &(edge, at) in rows.iter().flatten() {
        min[at as usize] = min[at as usize].min(edge);
    }
    let sorted = Sorted { rows, min };
    let grow = |growing: &mut Growing, source| growing.grow(matrix, Some(&sorted), source, epsilon);
    shared_with(&hosts, threads, |growing, &source| grow(growing, source))
}

/// Edges sorted by cost.
struct Sorted {
    /// From each host, the best first: costs and destinations.
    rows: Vec<Vec<(f64, u32)>>,
    /// The best edge to each host.
    min: Vec<f64>,
}

fn sorted(matrix: &Matrix, host: HostId) -> Vec<(f64, u32)> {
    let edges = matrix.row(host).iter().copied().zip(0..);
    let own = |&(edge, at): &(f64, u32)| edge.is_finite() && at != host.0;
    let mut row: Vec<(f64, u32)> = edges.filter(own).collect();
    row.sort_unstable_by_key(|(edge, _)| edge.to_bits());
    row
}

/// Applies `work` to all `items`, divided among `threads` threads.
fn shared<T: Sync, R: Send>(
    items: &[T],
    threads: NonZeroUsize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    shared_with(items, threads, |(), item| work(item))
}

/// The same with a state that each thread keeps between items.
fn shared_with<K: Default, T: Sync, R: Send>(
    items: &[T],
    threads: NonZeroUsize,
    work: impl Fn(&mut K, &T) -> R + Sync,
) -> Vec<R> {
    let some = |items: &[T]| -> Vec<R> {
        let mut kept = K::default();
        items.iter().map(|item| work(&mut kept, item)).collect()
    };
    let some = &some;
    let each = items.len().div_ceil(threads.get()).max(1);
    std::thread::scope(|scope| {
        let mut shares = items.chunks(each);
        let own = shares.next().unwrap_or_default();
        let others: Vec<_> = shares.map(|share| scope.spawn(move || some(share))).collect();
        let mut all = some(own);
        for other in others {
            match other.join() {
                Ok(found) => all.extend(found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

/// The construction of a tree.
///
/// Hosts are settled in the order of their costs. Nothing found later costs less than the host
/// being settled, nor less than the best edge to its destination. A host whose cost is within
/// epsilon of either bound is final: it cannot be reached better, but still has to be settled. The
/// worst cost of the others bounds the edges that can matter. Where edges are sorted, the scan of a
/// host's edges ends there, so the trees of all hosts take far fewer steps than hosts times edges.
#[derive(Default)]
struct Growing {
    cost: Vec<f64>,
    parent: Vec<u32>,
    /// The cost of each host when every edge of its path is worse than forecast by its deviation.
    doubtful: Vec<f64>,
    /// Hosts that may still be reached better, in order, and the worst cost among them.
    left: Vec<u32>,
    worst: f64,
    /// Hosts that were reached, by cost, then by index; contains outdated costs.
    reached: BinaryHeap<Reverse<(Key, u32)>>,
}

/// A cost as bits: non-negative numbers have the order of their bits.
type Key = u64;

/// The host whose edges are relaxed.
struct From<'a> {
    host: HostId,
    /// The worst cost on the path to it and through it.
    so_far: f64,
    errors: Option<&'a [f64]>,
}

impl Growing {
    fn grow(
        &mut self,
        matrix: &Matrix,
        sorted: Option<&Sorted>,
        source: HostId,
        epsilon: Epsilon,
    ) -> Tree {
        self.begin(matrix.len(), source);
        let factor = epsilon.min_factor();
        let (mut settled, mut look) = (0_u32, 0_u32);
        while let Some(Reverse((key, host))) = self.reached.pop() {
            let (cost, host) = (self.cost[host as usize], HostId(host));
            // An outdated cost.
            if key != cost.to_bits() {
                continue;
            }
            settled += 1;
            // The worst cost only falls, so an old one is a bound too.
            if sorted.is_none() || settled > look {
                self.forget(cost, factor, sorted);
                look = settled + settled / 4;
            }
            if cost * factor >= self.worst {
                break;
            }
            let through = if host == source { 0.0 } else { matrix.through(host).0 };
            let errors = matrix.error_row(host);
            let from = From { host, so_far: cost.max(through), errors };
            match sorted {
                Some(sorted) => {
                    let worst = self.worst;
                    let row = sorted.rows[host.index()].iter();
                    let matter = row.take_while(|(edge, _)| edge * factor < worst);
                    self.relax(&from, matter.copied(), epsilon);
                }
                None => {
                    let left = std::mem::take(&mut self.left);
                    let row = matrix.row(host);
                    let edges = left.iter().map(|&at| (row[at as usize], at));
                    self.relax(&from, edges, epsilon);
                    self.left = left;
                }
            }
        }
        let (cost, parent) = (std::mem::take(&mut self.cost), std::mem::take(&mut self.parent));
        Tree { source, parent, cost }
    }

    fn begin(&mut self, hosts: usize, source: HostId) {
        self.cost = vec![f64::INFINITY; hosts];
        self.parent = vec![NONE; hosts];
        self.doubtful.clear();
        self.doubtful.resize(hosts, 0.0);
        self.left.clear();
        self.left.extend(0..hosts as u32);
        self.worst = f64::INFINITY;
        self.reached.clear();
        self.cost[source.index()] = 0.0;
        self.parent[source.index()] = source.0;
        self.reached.push(Reverse((0.0_f64.to_bits(), source.0)));
    }

    /// Removes hosts that are final, now that a host with the cost `min` is settled.
    fn forget(&mut self, min: f64, factor: f64, sorted: Option<&Sorted>) {
        let (cost, mut worst) = (&self.cost, 0.0);
        self.left.retain(|&at| {
            let at = at as usize;
            let bound = sorted.map_or(min, |sorted| min.max(sorted.min[at]));
            let left = cost[at] > bound * factor;
            if left && cost[at] > worst {
                worst = cost[at];
            }
            left
        });
        self.worst = worst;
    }

    /// Relaxes edges. Hosts in the tree need no check: they were settled in the order of their
    /// costs, and no path over a later host costs less.
    fn relax(
        &mut self,
        from: &From<'_>,
        edges: impl Iterator<Item = (f64, u32)>,
        epsilon: Epsilon,
    ) {
        let so_far = from.so_far;
        let reach = |growing: &mut Self, at: usize, cost: f64| {
            growing.cost[at] = cost;
            growing.parent[at] = from.host.0;
            growing.reached.push(Reverse((cost.to_bits(), at as u32)));
        };
        match (epsilon, from.errors) {
            (Epsilon::FromErrors { deviations, min_epsilon }, Some(errors)) => {
                let doubt = self.doubtful[from.host.index()].max(so_far);
                for (edge, at) in edges {
                    let at = at as usize;
                    let cost = edge.max(so_far);
                    let doubtful = doubt.max(edge * (1.0 + errors[at] * deviations));
                    // How far either path may be worse than its forecast. A fast edge with a large
                    // error counts as far as it may become the worst edge.
                    let own = part(self.doubtful[at], self.cost[at]);
                    let spread = libm::hypot(part(doubtful, cost), own);
                    if cost * (1.0 + spread.max(min_epsilon).max(0.0)) < self.cost[at] {
                        reach(self, at, cost);
                        self.doubtful[at] = doubtful;
                    }
                }
            }
            _ => {
                let factor = epsilon.min_factor();
                for (edge, at) in edges {
                    let over = if edge > so_far { edge } else { so_far };
                    if over * factor < self.cost[at as usize] {
                        reach(self, at as usize, over);
                    }
                }
            }
        }
    }
}

/// The relative excess of `doubtful` over `cost`; zero if the cost is zero.
fn part(doubtful: f64, cost: f64) -> f64 {
    let part = doubtful / cost - 1.0;
    if part > 0.0 && part.is_finite() { part } else { 0.0 }
}

impl Tree {
    /// The source of the tree.
    pub fn source(&self) -> HostId {
        self.source
    }

    /// The cost of the path to a host; infinite if there is none.
    pub fn cost(&self, to: HostId) -> Cost {
        Cost(self.tree_cost(to))
    }

    fn tree_cost(&self, to: HostId) -> f64 {
        self.cost[to.index()]
    }

    /// The host before `to` on its path; the source is its own parent.
    pub fn parent(&self, to: HostId) -> Option<HostId> {
        Some(self.parent[to.index()]).filter(|&parent| parent != NONE).map(HostId)
    }

    /// All hosts from the source to `to`, both included; empty if there is no path.
    pub fn path(&self, to: HostId) -> Vec<HostId> {
        let mut path = Vec::new();
        let mut at = to;
        while let Some(parent) = self.parent(at) {
            path.push(at);
            if at == self.source {
                break;
            }
            at = parent;
        }
        path.reverse();
        path
    }

    /// The next hop of the source for `to`; none for the source itself and without a path.
    pub fn next_hop(&self, to: HostId) -> Option<HostId> {
        self.path(to).get(1).copied()
    }

    /// The forwarding table of the source's depot: one row per reachable host.
    pub fn table(&self) -> Vec<Hop> {
        let mut next: Vec<Option<u32>> = vec![None; self.parent.len()];
        let mut walked = Vec::new();
        for destination in 0..self.parent.len() as u32 {
            let mut at = destination;
            while next[at as usize].is_none() {
                let parent = self.parent[at as usize];
                if parent == NONE || at == self.source.0 {
                    break;
                }
                walked.push(at);
                if parent == self.source.0 {
                    next[at as usize] = Some(at);
                }
                at = parent;
            }
            let found = walked.last().and_then(|&last| next[last as usize]).or(next[at as usize]);
            for host in walked.drain(..) {
                next[host as usize] = found;
            }
        }
        let hops = next.iter().enumerate().filter_map(|(at, next)| {
            next.map(|next| Hop { destination: HostId(at as u32), next: HostId(next) })
        });
        hops.collect()
    }
}
