//! One direction of a session: its share of the pool and of the kernel's memory, and its byte
//! count.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use packtrain_net::relay::{FairScheduler, RelayMemory};
use packtrain_units::ByteCount;

use super::Depot;
use super::session::Flow;

/// The memory of one direction.
pub(super) struct Lane<'a> {
    pub(super) depot: &'a Depot,
    pub(super) flow: &'a Flow,
    pub(super) back: bool,
}

impl RelayMemory for Lane<'_> {
    fn take(&self) -> usize {
        self.depot.pool.take() as usize
    }

    fn give_back(&self, lent: usize, moved: usize) {
        self.depot.pool.give_back(lent as u64);
        self.count(moved);
    }

    fn lend_block(&self, kept: usize) -> bool {
        self.depot.pool.lend_block(kept)
    }

    fn return_block(&self, moved: usize) {
        self.depot.pool.return_block();
        self.count(moved);
    }

    fn progress(&self) {
        self.flow.touch();
    }

    fn kernel_limit(&self) -> Option<ByteCount> {
        // With `--tcp-buffer` the user determines the size.
        self.depot.connect.buffers.is_none().then(|| self.depot.pool.kernel_limit())
    }

    fn scheduler(&self) -> &Arc<FairScheduler> {
        &self.depot.scheduler
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
