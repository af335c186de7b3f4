//! The minimax path tree of appendix A.

use super::matrix::{Cost, HostId, Matrix};

/// How much better an edge must be to replace another: by a factor of 1 + epsilon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Epsilon {
    /// The same for all edges.
    Fixed(f64),
    /// From the errors of the two forecasts compared, taken as independent: so many standard
    /// deviations of their ratio, and never less than `least`. The paper asks for this in 4.1.
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
        error: vec![0.0; hosts],
        // Cost of hosts that are not in the tree yet: what the next host is taken from.
        open: vec![f64::INFINITY; hosts],
    };
    grown.tree.cost[source.index()] = 0.0;
    grown.tree.parent[source.index()] = source.0;
    let mut next = Some(source);
    while let Some(host) = next {
        grown.settle(host);
        grown.relax(matrix, host, epsilon);
        next = grown.nearest();
    }
    grown.tree
}

struct Growing {
    tree: Tree,
    /// Relative error of the edge that decides each host's cost.
    error: Vec<f64>,
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
            (Epsilon::Fixed(epsilon), _) => {
                self.relax_by(matrix.row(host), host, so_far, 1.0 + epsilon.max(0.0));
            }
            (Epsilon::FromErrors { least, .. }, None) => {
                self.relax_by(matrix.row(host), host, so_far, 1.0 + least.max(0.0));
            }
            (Epsilon::FromErrors { deviations, least }, Some(errors)) => {
                let before = self.error[host.index()];
                let least = least.max(0.0);
                for (at, (&edge, &error)) in matrix.row(host).iter().zip(errors).enumerate() {
                    let cost = edge.max(so_far);
                    let error = if edge >= so_far { error } else { before };
                    let other = self.error[at];
                    let spread = (error * error + other * other).sqrt() * deviations;
                    if cost * (1.0 + spread.max(least)) < self.tree.cost[at] {
                        self.tree.cost[at] = cost;
                        self.tree.parent[at] = host.0;
                        self.error[at] = error;
                        self.open[at] = cost;
                    }
                }
            }
        }
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

    /// The host outside the tree that costs least, if any can be reached.
    fn nearest(&self) -> Option<HostId> {
        let mut least = f64::INFINITY;
        for &cost in &self.open {
            // A comparison with what is settled (not a number) is false.
            least = if cost < least { cost } else { least };
        }
        if least == f64::INFINITY {
            return None;
        }
        let at = self.open.iter().position(|&cost| cost == least)?;
        Some(HostId(at as u32))
    }
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
