//! Routes and minimum delays over the graph of a scenario.

use packtrain_link::DelayVariation;
use packtrain_units::Duration;

use crate::spec::{LinkSpec, Scenario};

/// No link leads there.
pub(crate) const NONE: u32 = u32::MAX;

/// Static routes, and the minimum time until one node can affect another.
#[derive(Debug)]
pub(crate) struct Routes {
    nodes: usize,
    /// At `node * nodes + destination`: index of the link to take.
    next: Vec<u32>,
    /// At `to * nodes + from`: minimum time in nanoseconds from `from` to `to` over any path; the
    /// maximum if there is none. On the diagonal: minimum time out and back.
    min_times: Vec<u64>,
}

/// Minimum time from the offer of a packet to its arrival on a link, at least one nanosecond: a
/// delay of zero counts as one.
pub(crate) fn min_delay(link: &LinkSpec) -> Duration {
    match link.config.jitter {
        Some(DelayVariation::Normal(_)) => Duration::from_nanos(1),
        _ => link.config.delay.max(Duration::from_nanos(1)),
    }
}

impl Routes {
    /// Shortest paths by delay, then hops, then the order of the links.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let nodes = scenario.nodes.len();
        let mut routes = Self {
            nodes,
            next: vec![NONE; nodes * nodes],
            min_times: vec![u64::MAX; nodes * nodes],
        };
        let cost = |link: &LinkSpec| link.config.delay.as_nanos();
        let min = |link: &LinkSpec| min_delay(link).as_nanos();
        let into = incoming(&scenario.links, nodes);
        for to in 0..nodes {
            let (_, next) = toward(&scenario.links, &into, to, &cost);
            let (near, _) = toward(&scenario.links, &into, to, &min);
            for node in (0..nodes).filter(|node| *node != to) {
                routes.next[node * nodes + to] = next[node];
                routes.min_times[to * nodes + node] = near[node].0;
            }
            let back = scenario.links.iter().filter(|link| link.from == to);
            let cycle = back.map(|link| min(link).saturating_add(near[link.to].0)).min();
            routes.min_times[to * nodes + to] = cycle.unwrap_or(u64::MAX);
        }
        routes
    }

    /// The link from `node` towards `to`.
    #[inline]
    pub(crate) fn next(&self, node: usize, to: u32) -> u32 {
        self.next[node * self.nodes + to as usize]
    }

    /// Whether there is a path from `from` to `to`.
    pub(crate) fn reaches(&self, from: usize, to: usize) -> bool {
        self.next(from, to as u32) != NONE
    }

    /// The minimum times to `node`, by source.
    #[inline]
    pub(crate) fn min_to(&self, node: usize) -> &[u64] {
        &self.min_times[node * self.nodes..][..self.nodes]
    }
}

fn incoming(links: &[LinkSpec], nodes: usize) -> Vec<Vec<usize>> {
    let mut into = vec![Vec::new(); nodes];
    links.iter().enumerate().for_each(|(i, link)| into[link.to].push(i));
    into
}

type Distance = (u64, u32);

/// Distances of all nodes to `to`, with the first link of the path (Dijkstra).
fn toward(
    links: &[LinkSpec],
    into: &[Vec<usize>],
    to: usize,
    cost: &dyn Fn(&LinkSpec) -> u64,
) -> (Vec<Distance>, Vec<u32>) {
    let mut near = vec![(u64::MAX, u32::MAX); into.len()];
    let mut next = vec![NONE; into.len()];
    let mut heap = std::collections::BinaryHeap::new();
    near[to] = (0, 0);
    heap.push(std::cmp::Reverse(((0, 0), to)));
    while let Some(std::cmp::Reverse((distance, node))) = heap.pop() {
        if distance > near[node] {
            continue;
        }
        for &i in &into[node] {
            let link = &links[i];
            let way = (distance.0.saturating_add(cost(link)), distance.1 + 1);
            let old = (near[link.from], next[link.from]);
            // The distance first, then the order of the links.
            if (way, i as u32) < old && link.from != to {
                if way < old.0 {
                    heap.push(std::cmp::Reverse((way, link.from)));
                }
                near[link.from] = way;
                next[link.from] = i as u32;
            }
        }
    }
    (near, next)
}
