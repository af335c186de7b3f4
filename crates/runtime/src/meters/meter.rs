//! Counts and times work. Each call costs four atomic additions, no lock, and two system calls for the
//! processor time: work on small files is measured in batches.

use std::sync::atomic::{AtomicU64, Ordering};

use packtrain_os::{clock, thread};
use packtrain_units::{ByteCount, Duration};

use packtrain_service::evidence::{End, Work};

/// Counts work of one kind, from any thread.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    count: AtomicU64,
    bytes: AtomicU64,
    wall: AtomicU64,
    busy: AtomicU64,
}

impl Meter {
    /// Runs one unit of work on `bytes` bytes.
    pub(crate) fn run<T>(&self, bytes: u64, work: impl FnOnce() -> T) -> T {
        self.run_many(1, bytes, work)
    }

    /// Runs `count` units of work on `bytes` bytes in total.
    pub(crate) fn run_many<T>(&self, count: u64, bytes: u64, work: impl FnOnce() -> T) -> T {
        self.run_counted(bytes, work, |_| count)
    }

    /// Runs work on `bytes` bytes of which `count` says afterwards how many units it was.
    pub(crate) fn run_counted<T>(
        &self,
        bytes: u64,
        work: impl FnOnce() -> T,
        count: impl FnOnce(&T) -> u64,
    ) -> T {
        let (begun, used) = (clock::now(), thread::cpu());
        let done = work();
        let (wall, busy) = (clock::now().since(begun), thread::cpu() - used);
        self.count.fetch_add(count(&done), Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.wall.fetch_add(wall.as_nanos(), Ordering::Relaxed);
        self.busy.fetch_add(busy.as_nanos().min(wall.as_nanos()), Ordering::Relaxed);
        done
    }

    /// The counts so far.
    pub(crate) fn read(&self) -> Work {
        Work {
            count: self.count.load(Ordering::Relaxed),
            bytes: ByteCount(self.bytes.load(Ordering::Relaxed)),
            wall: Duration::from_nanos(self.wall.load(Ordering::Relaxed)),
            busy: Duration::from_nanos(self.busy.load(Ordering::Relaxed)),
        }
    }
}

/// The meters of one end.
#[derive(Debug, Default)]
pub struct Meters {
    /// Reads or writes of data.
    pub(crate) data: Meter,
    /// Hashing.
    pub(crate) hash: Meter,
    /// Writes of whole small files.
    pub(crate) small: Meter,
    /// Operations on names.
    pub(crate) names: Meter,
    /// Syncs.
    pub(crate) sync: Meter,
}

impl Meters {
    /// Copies the counts into `end`.
    pub(crate) fn fill(&self, end: &mut End) {
        end.data = self.data.read();
        end.hash = self.hash.read();
        end.small = self.small.read();
        end.names = self.names.read();
        end.sync = self.sync.read();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_and_waiting_is_not_busy() {
        let meter = Meter::default();
        let answer = meter.run(100, || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            7
        });
        meter.run_many(3, 10, || {});
        let work = meter.read();
        assert_eq!((answer, work.count, work.bytes), (7, 4, ByteCount(110)));
        assert!(work.wall >= Duration::from_millis(20));
        assert!(work.busy <= work.wall && work.idle() > Duration::ZERO);
    }
}
