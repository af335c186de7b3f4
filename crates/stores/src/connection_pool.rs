//! How many streams there are and what the kernel says of them, whichever way their bytes go.

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

/// The sockets of the streams and since when each is there.
#[derive(Clone, Default)]
pub(super) struct Sockets(Arc<Mutex<BTreeMap<StreamId, Socket>>>);

type Socket = (Arc<OwnedFd>, Time);

impl Sockets {
    /// A stream has this connection now.
    pub(super) fn has(&self, id: StreamId, connection: &Connection) {
        let socket = (connection.socket(), clock::now());
        self.0.lock().insert(id, socket);
    }

    /// A stream is over.
    pub(super) fn forget(&self, id: StreamId) {
        self.0.lock().remove(&id);
    }

    fn all(&self) -> BTreeMap<StreamId, Socket> {
        self.0.lock().clone()
    }
}

/// The streams as a number and a record.
pub(super) struct ConnectionPool {
    sockets: Sockets,
    pool: StreamPool,
    most: u32,
    /// Translates, where the streams bring data.
    receiver: Option<Receiver>,
}

impl ConnectionPool {
    /// At most so many streams, which bring data or take it away.
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

    /// How many there are to be, at least `least` of them where the number is chosen.
    pub(super) fn wanted(&self, least: u32, cap: u32) -> u32 {
        let least = if self.pool.is_tuned() { least } else { 0 };
        self.pool.target().max(least).min(cap).clamp(1, self.most)
    }

    /// Asks the kernel, if it is time. `busy` tells, of a span and a number of streams, whether the
    /// streams are what the transfer waits for.
    pub(super) fn look(&mut self, now: Time, busy: impl FnOnce(Duration, u64) -> bool) {
        let Self { sockets, pool, receiver, .. } = self;
        let read = || {
            let sockets = sockets.all().into_iter();
            let readings = sockets.filter_map(|(stream, (socket, since))| {
                let info = tcp_info(&socket).ok()?;
                let info = match receiver {
                    Some(receiver) => receiver.see(now, stream, info, true),
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

    /// There are so many now.
    pub(super) fn came(&mut self, count: u32) {
        self.pool.came(count, None);
    }

    /// A stream is over.
    pub(super) fn gone(&mut self, id: StreamId) {
        if let Some(receiver) = &mut self.receiver {
            receiver.forget(id);
        }
        self.pool.ended(None, StreamEnd::Retired);
    }

    /// The least round trip.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.pool.record().min_rtt()
    }

    /// What the streams did; `twice` is what was moved a second time.
    pub(super) fn report(&self, twice: ByteCount) -> Option<StreamsReport> {
        self.pool.report(twice)
    }
}
