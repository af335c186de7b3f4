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
use packtrain_runtime::transports::{Reading, Record, StreamCount, StreamId};
use packtrain_service::{StreamEnd, StreamsReport};

/// How often the kernel is asked about the streams.
const SAMPLE: Duration = Duration::from_millis(50);

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
    count: StreamCount,
    most: u32,
    sampled: Time,
    /// Translates, where the streams bring data.
    receiver: Option<Receiver>,
    record: Record,
}

impl ConnectionPool {
    /// At most so many streams, which bring data or take it away.
    pub(super) fn new(count: StreamCount, most: u32, bring: bool) -> Self {
        Self {
            sockets: Sockets::default(),
            count,
            most,
            sampled: Time::ZERO,
            receiver: bring.then(Receiver::default),
            record: Record::new(clock::now()),
        }
    }

    pub(super) fn sockets(&self) -> Sockets {
        self.sockets.clone()
    }

    /// How many there are to be, at least `least` of them where the number is chosen.
    pub(super) fn wanted(&self, least: u32, cap: u32) -> u32 {
        let least = if self.count.is_tuned() { least } else { 0 };
        self.count.target().max(least).min(cap).clamp(1, self.most)
    }

    /// Asks the kernel, if it is time. `busy` tells, of a span and a number of streams, whether the
    /// streams are what the transfer waits for.
    pub(super) fn look(&mut self, now: Time, busy: impl FnOnce(Duration, u64) -> bool) {
        let span = now.since(self.sampled);
        if span < SAMPLE {
            return;
        }
        self.sampled = now;
        let mut readings = Vec::new();
        for (line, (socket, since)) in self.sockets.all() {
            let Ok(info) = tcp_info(&socket) else { continue };
            let info = match &mut self.receiver {
                Some(receiver) => receiver.see(now, line, info, true),
                None => info,
            };
            readings.push(Reading { line, way: PathId::DIRECT, age: now.since(since), info });
        }
        self.record.look(now, &readings);
        let busy = busy(span, readings.len() as u64);
        self.count.sample(now, &readings, busy);
    }

    /// There are so many now.
    pub(super) fn came(&mut self, count: u32) {
        self.record.came(count, None);
    }

    /// A stream is over.
    pub(super) fn gone(&mut self, id: StreamId) {
        if let Some(receiver) = &mut self.receiver {
            receiver.forget(id);
        }
        self.record.ended(None, StreamEnd::Retired);
    }

    /// The least round trip.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.record.min_rtt()
    }

    /// What the streams did; `twice` is what was moved a second time.
    pub(super) fn report(&self, twice: ByteCount) -> Option<StreamsReport> {
        let mut report = self.record.report()?;
        report.moved_twice = twice;
        self.count.explain(&mut report);
        Some(report)
    }
}
