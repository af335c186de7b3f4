//! The minimax path tree of appendix A.

use super::matrix::{Cost, HostId, Matrix};

/// How much better an edge must be to replace another: by a factor of 1 + epsilon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Epsilon {
    /// The same for all edges.
    Fixed(f64),
    /// From the errors of the forecasts on the two paths compared, taken as independent: so many
    /// standard deviations of their ratio, and never less than `least`. The paper asks for this
    /// in 4.1.
    FromErrors {
        /// How many standard deviations.
        deviations: f64,
        /// Where the errors are small or unknown.
        least: f64,
    },
}

impl Epsilon {
    /// The paper's: 10 % (section 4.2).
    pub const PAPER: Self = Self::Fixed(0.1);
    /// An edge that is called better is better five times in six.
    pub const AUTOMATIC: Self = Self::FromErrors { deviations: 1.0, least: 0.1 };
}

impl Epsilon {
    /// By what factor another edge must be better, at least.
    fn least_factor(self) -> f64 {
        let (Self::Fixed(epsilon) | Self::FromErrors { least: epsilon, .. }) = self;
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

/// A line of a route table: where to hand on what goes to `destination`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Where a session goes.
    pub destination: HostId,
    /// To whom it is handed next.
    pub next: HostId,
}

/// No parent yet.
const NONE: u32 = u32::MAX;

/// The minimax path tree from `source`: for each host the path whose worst edge is best, but
/// where an edge is not better by `epsilon`, the one that was found first, which is the direct one
/// or comes from the better-connected depot. Among equals the host named first is taken. An
/// epsilon that is negative or not a number counts as 0.
pub fn tree(matrix: &Matrix, source: HostId, epsilon: Epsilon) -> Tree {
    let hosts = matrix.len();
    let mut grown = Growing {
        tree: Tree { source, parent: vec![NONE; hosts], cost: vec![f64::INFINITY; hosts] },
        doubtful: vec![0.0; hosts],
        // Cost of hosts that are not in the tree yet: what the next host is taken from.
        open: vec![f64::INFINITY; hosts],
    };
    grown.tree.cost[source.index()] = 0.0;
    grown.tree.parent[source.index()] = source.0;
    let mut next = Some(source);
    while let Some(host) = next {
        grown.settle(host);
        grown.relax(matrix, host, epsilon);
        next = grown.nearest(epsilon);
    }
    grown.tree
}

struct Growing {
    tree: Tree,
    /// What each host costs when every edge of its path is worse than forecast by its deviations.
    doubtful: Vec<f64>,
    open: Vec<f64>,
}

impl Growing {
    /// Nothing changes at `host` any more.
    fn settle(&mut self, host: HostId) {
        self.open[host.index()] = f64::NAN;
    }

    /// Looks whether others are reached better over `host`. Hosts in the tree stay as they are,
    /// without asking: they were taken in the order of their costs, so theirs is not above that of
    /// `host`, and no path over `host` is below that.
    fn relax(&mut self, matrix: &Matrix, host: HostId, epsilon: Epsilon) {
        let mut so_far = self.tree.cost[host.index()];
        if host != self.tree.source {
            so_far = so_far.max(matrix.through(host).0);
        }
        match (epsilon, matrix.error_row(host)) {
            (Epsilon::FromErrors { deviations, least }, Some(errors)) => {
                let doubt = self.doubtful[host.index()].max(so_far);
                let edges = matrix.row(host).iter().zip(errors);
                for (at, (&edge, &error)) in edges.enumerate() {
                    let cost = edge.max(so_far);
                    let doubtful = doubt.max(edge * (1.0 + error * deviations));
                    let spread = libm::hypot(part(doubtful, cost), self.doubt(at));
                    if cost * (1.0 + spread.max(least).max(0.0)) < self.tree.cost[at] {
                        self.tree.cost[at] = cost;
                        self.tree.parent[at] = host.0;
                        self.doubtful[at] = doubtful;
                        self.open[at] = cost;
                    }
                }
            }
            _ => self.relax_by(matrix.row(host), host, so_far, epsilon.least_factor()),
        }
    }

    /// By how much the path to a host may be worse than its forecast, as a part of it. An edge
    /// that is fast but unsure counts as far as it may become the worst one.
    fn doubt(&self, at: usize) -> f64 {
        part(self.doubtful[at], self.tree.cost[at])
    }

    /// `factor` is 1 + epsilon. No branch, so that the compiler takes several hosts at a time.
    fn relax_by(&mut self, edges: &[f64], host: HostId, so_far: f64, factor: f64) {
        let costs = self.tree.cost.iter_mut().zip(&mut self.tree.parent).zip(&mut self.open);
        for (((cost, parent), open), &edge) in costs.zip(edges) {
            let over = if edge > so_far { edge } else { so_far };
            let better = over * factor < *cost;
            *cost = if better { over } else { *cost };
            *parent = if better { host.0 } else { *parent };
            *open = if better { over } else { *open };
        }
    }

    /// The host outside the tree that costs least, if any is left whose edges may change something:
    /// no path over it is below its own cost, so once that is within epsilon of the worst cost
    /// outside the tree, all costs are final.
    fn nearest(&self, epsilon: Epsilon) -> Option<HostId> {
        let (mut least, mut most) = (f64::INFINITY, 0.0);
        for &cost in &self.open {
            // A comparison with what is settled (not a number) is false.
            least = if cost < least { cost } else { least };
            most = if cost > most { cost } else { most };
        }
        if least == f64::INFINITY || least * epsilon.least_factor() >= most {
            return None;
        }
        let at = self.open.iter().position(|&cost| cost == least)?;
        Some(HostId(at as u32))
    }
}

/// How much more `doubtful` is than `cost`, as a part of it; nothing if there is no cost.
fn part(doubtful: f64, cost: f64) -> f64 {
    let part = doubtful / cost - 1.0;
    if part > 0.0 && part.is_finite() { part } else { 0.0 }
}

impl Tree {
    /// Where it begins.
    pub fn source(&self) -> HostId {
        self.source
    }

    /// The worst edge on the way to a host; [`Cost::INFINITE`] if there is none.
    pub fn cost(&self, to: HostId) -> Cost {
        Cost(self.tree_cost(to))
    }

    fn tree_cost(&self, to: HostId) -> f64 {
        self.cost[to.index()]
    }

    /// The host before `to` on its path; the source is its own.
    pub fn parent(&self, to: HostId) -> Option<HostId> {
        Some(self.parent[to.index()]).filter(|&parent| parent != NONE).map(HostId)
    }

    /// All hosts from the source to `to`, both included; empty if there is no way.
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

    /// To whom the source hands what goes to `to`; nothing for itself and where there is no way.
    pub fn next_hop(&self, to: HostId) -> Option<HostId> {
        self.path(to).get(1).copied()
    }

    /// What the source's depot needs to forward sessions: a line a host that it reaches.
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
