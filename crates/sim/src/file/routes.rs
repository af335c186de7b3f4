//! Shortest paths by delay, then by hops, then by the order of the links.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use packtrain_units::Duration;

/// One direction of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) delay: Duration,
}

/// Paths over a graph, computed once per source.
pub(super) struct Routes<'a> {
    edges: &'a [Edge],
    out: Vec<Vec<usize>>,
    found: HashMap<usize, Vec<Option<usize>>>,
}

impl<'a> Routes<'a> {
    pub(super) fn new(nodes: usize, edges: &'a [Edge]) -> Self {
        let mut out = vec![Vec::new(); nodes];
        for (index, edge) in edges.iter().enumerate() {
            out[edge.from].push(index);
        }
        Self { edges, out, found: HashMap::new() }
    }

    /// The links from one node to another, last first; `None` if there is no path.
    pub(super) fn path(&mut self, from: usize, to: usize) -> Option<Vec<usize>> {
        if !self.found.contains_key(&from) {
            let tree = self.tree(from);
            self.found.insert(from, tree);
        }
        let tree = &self.found[&from];
        let (mut path, mut at) = (Vec::new(), to);
        while at != from {
            let edge = tree[at]?;
            path.push(edge);
            at = self.edges[edge].from;
        }
        Some(path)
    }

    /// The one-way delay.
    pub(super) fn delay(&self, path: &[usize]) -> Duration {
        let total = path.iter().map(|&edge| self.edges[edge].delay.as_nanos());
        Duration::from_nanos(total.fold(0, u64::saturating_add))
    }

    /// The last link of the path to each node (Dijkstra 1959).
    fn tree(&self, from: usize) -> Vec<Option<usize>> {
        let mut best = vec![(u64::MAX, u64::MAX, usize::MAX); self.out.len()];
        let mut last = vec![None; self.out.len()];
        best[from] = (0, 0, 0);
        let mut heap = BinaryHeap::from([Reverse((0, 0, 0, from))]);
        while let Some(Reverse((delay, hops, by, at))) = heap.pop() {
            if best[at] != (delay, hops, by) {
                continue;
            }
            for &index in &self.out[at] {
                let edge = &self.edges[index];
                let next = (delay.saturating_add(edge.delay.as_nanos()), hops + 1, index);
                if edge.to != from && next < best[edge.to] {
                    best[edge.to] = next;
                    last[edge.to] = Some(index);
                    heap.push(Reverse((next.0, next.1, next.2, edge.to)));
                }
            }
        }
        last
    }
}
