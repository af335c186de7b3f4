//! Which node goes on, and how far.
//!
//! The node whose next event is earliest goes on until the earliest instant at which another
//! node, or what it does now itself, could be felt there: conservative lookahead, as in parallel
//! simulation, though here on one core and for the sake of long trains.

use packtrain_units::{Duration, Time};

use crate::network::Network;
use crate::node::{Ends, Node};

/// Everything that moves.
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

    /// Goes on for some time with what happens before `end`; returns the time reached, none when
    /// nothing is left.
    pub(crate) fn step(&mut self, end: Time) -> Option<Time> {
        let (node, head) = earliest(&self.net.heads);
        if head >= end {
            return None;
        }
        let limit = self.limit(node).min(end);
        self.events += self.nodes[node].run(limit, &mut self.ends, &mut self.net);
        Some(head)
    }

    /// Until when nothing from elsewhere can happen at `node`, nor what it causes itself come
    /// back.
    fn limit(&self, node: usize) -> Time {
        let heads = self.net.heads.iter();
        let least = self.net.routes.least_to(node).iter();
        let felt = |(head, least): (&Time, &u64)| *head + Duration::from_nanos(*least);
        heads.zip(least).map(felt).min().unwrap_or(Time::MAX)
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
