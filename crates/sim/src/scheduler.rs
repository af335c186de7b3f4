//! Selects the node to run, and how far.
//!
//! The node with the earliest next event runs until the earliest instant at which another node, or
//! the result of its own actions, could affect it: conservative lookahead, as in parallel
//! simulation, but here on one core and for the sake of long trains.

use packtrain_units::{Duration, Time};

use crate::network::Network;
use crate::node::{Ends, Node};

/// The state of the simulation.
pub(crate) struct Scheduler {
    pub(crate) net: Network,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ends: Ends,
    /// Events so far.
    pub(crate) events: u64,
}

impl Scheduler {
    pub(crate) fn new(mut net: Network, nodes: Vec<Node>, ends: Ends) -> Self {
        for (i, node) in nodes.iter().enumerate() {
            net.heads[i] = node.head(&ends, &net);
        }
        Self { net, nodes, ends, events: 0 }
    }

    /// Runs one node for some time before `end`; returns the time reached, none when no event is
    /// left.
    pub(crate) fn step(&mut self, end: Time) -> Option<Time> {
        let (node, head) = earliest(&self.net.heads);
        if head >= end {
            return None;
        }
        let limit = self.limit(node).min(end);
        self.events += self.nodes[node].run(limit, &mut self.ends, &mut self.net);
        Some(head)
    }

    /// The time before which nothing from elsewhere can happen at `node`, nor anything it causes
    /// itself return.
    fn limit(&self, node: usize) -> Time {
        let heads = self.net.heads.iter();
        let min = self.net.routes.min_to(node).iter();
        let felt = |(head, min): (&Time, &u64)| *head + Duration::from_nanos(*min);
        heads.zip(min).map(felt).min().unwrap_or(Time::MAX)
    }
}

fn earliest(heads: &[Time]) -> (usize, Time) {
    let mut best = (0, Time::MAX);
    for (i, head) in heads.iter().enumerate() {
        if *head < best.1 {
            best = (i, *head);
        }
    }
    best
}
