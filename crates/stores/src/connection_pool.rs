//! The number of streams of a fetch or an upload, and their TCP statistics.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use packtrain_net::tcp::tcp_info;
use packtrain_os::clock;
use packtrain_plan::route::PathId;
use packtrain_units::{ByteCount, Duration, Time};

use super::http::Connection;
use super::receiver::Receiver;
use packtrain_runtime::transports::{Reading, StreamCount, StreamId, StreamPool};
use packtrain_service::{StreamEnd, StreamsReport};

/// The sockets of the streams and the time at which each was opened.
#[derive(Clone, Default)]
pub(super) struct Sockets(Arc<Mutex<BTreeMap<StreamId, Socket>>>);

type Socket = (Arc<OwnedFd>, Time);

impl Sockets {
    /// The stream uses this connection from now on.
    pub(super) fn has(&self, id: StreamId, connection: &Connection) {
        let socket = (connection.socket(), clock::now());
        self.0.lock().insert(id, socket);
    }

    /// The stream ended.
    pub(super) fn forget(&self, id: StreamId) {
        self.0.lock().remove(&id);
    }

    fn all(&self) -> BTreeMap<StreamId, Socket> {
        self.0.lock().clone()
    }
}

/// The streams: their target number and their statistics.
pub(super) struct ConnectionPool {
    sockets: Sockets,
    pool: StreamPool,
    most: u32,
    /// Converts the statistics of streams that receive.
    receiver: Option<Receiver>,
}

impl ConnectionPool {
    /// A pool of at most `most` streams; `bring`: they receive data.
    pub(super) fn new(count: StreamCount, most: u32, bring: bool) -> Self {
        Self {
            sockets: Sockets::default(),
            pool: StreamPool::new(count),
            most,
            receiver: bring.then(Receiver::default),
        }
    }

    pub(super) fn sockets(&self) -> Sockets {
        self.sockets.clone()
    }

    /// The target number, limited by `cap` and `most`. If the number is tuned, it is at most `fed`,
    /// and at least `least`.
    pub(super) fn wanted(&mut self, least: u32, fed: u32, cap: u32) -> u32 {
        let target = self.pool.target();
        let target = if self.pool.is_tuned() { target.min(fed).max(least) } else { target };
        target.min(cap).clamp(1, self.most)
    }

    /// Samples the kernel's statistics when a sample is due. `busy` gets the interval and the
    /// number of streams, and returns whether the streams are the bottleneck of the transfer.
    pub(super) fn look(&mut self, now: Time, busy: impl FnOnce(Duration, u64) -> bool) {
        let Self { sockets, pool, receiver, .. } = self;
        let read = || {
            let sockets = sockets.all().into_iter();
            let readings = sockets.filter_map(|(stream, (socket, since))| {
                let info = tcp_info(&socket).ok()?;
                let info = match receiver {
                    Some(receiver) => receiver.as_sender(now, stream, info, true),
                    None => info,
                };
                Some(Reading { stream, path: PathId::DIRECT, age: now.since(since), info })
            });
            readings.collect()
        };
        if let Some((span, readings)) = pool.sample(now, read) {
            pool.tune(now, &readings, busy(span, readings.len() as u64));
        }
    }

    /// The number of streams is now `count`.
    pub(super) fn came(&mut self, count: u32) {
        self.pool.came(count, None);
    }

    /// The stream ended.
    pub(super) fn gone(&mut self, id: StreamId) {
        if let Some(receiver) = &mut self.receiver {
            receiver.forget(id);
        }
        self.pool.ended(None, StreamEnd::Retired);
    }

    /// The minimum round-trip time of the streams.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.pool.record().min_rtt()
    }

    /// The report about the streams; `twice` is the number of bytes moved a second time.
    pub(super) fn report(&self, twice: ByteCount) -> Option<StreamsReport> {
        self.pool.report(twice)
    }
}
