//! One direction of a session: its part of the pool and of what the kernel may hold, and what it
//! has moved.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use packtrain_net::relay::{Movers, Room};
use packtrain_units::ByteCount;

use super::Depot;
use super::session::Flow;

/// One direction's share of the pool.
pub(super) struct Lane<'a> {
    pub(super) depot: &'a Depot,
    pub(super) flow: &'a Flow,
    pub(super) back: bool,
}

impl Room for Lane<'_> {
    fn take(&self) -> usize {
        self.depot.pool.take() as usize
    }

    fn give_back(&self, lent: usize, moved: usize) {
        self.depot.pool.give_back(lent as u64);
        self.count(moved);
    }

    fn keep(&self, kept: usize) -> bool {
        self.depot.pool.keep(kept)
    }

    fn unkeep(&self, moved: usize) {
        self.depot.pool.unkeep();
        self.count(moved);
    }

    fn progress(&self) {
        self.flow.touch();
    }

    fn outside(&self) -> Option<ByteCount> {
        // Who fixes buffers knows what he wants.
        self.depot.connect.buffers.is_none().then(|| self.depot.pool.outside())
    }

    fn movers(&self) -> &Arc<Movers> {
        &self.depot.movers
    }
}

impl Lane<'_> {
    fn count(&self, moved: usize) {
        if moved == 0 {
            return;
        }
        let counters = &self.depot.counters;
        let (all, own) = match self.back {
            true => (&counters.down, &self.flow.down),
            false => (&counters.up, &self.flow.up),
        };
        all.fetch_add(moved as u64, Ordering::Relaxed);
        own.fetch_add(moved as u64, Ordering::Relaxed);
        self.flow.touch();
    }
}
