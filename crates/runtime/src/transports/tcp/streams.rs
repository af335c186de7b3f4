//! How many streams there are, and over which way: connected, replaced when they are lost, let go.

use std::collections::BTreeMap;
use std::sync::Arc;

use packtrain_net::limit::RateLimiter;
use packtrain_os::clock;
use packtrain_plan::route::PathId;
use packtrain_transfer::TransportEvent;
use packtrain_transfer::message::Message;
use packtrain_units::{Backoff, ByteCount, Duration, Time};

use super::group::{Group, Reading};
use super::path_feed::PathFeed;
use super::record::Record;
use super::source::StreamNews;
use super::stream_count::StreamCount;
use super::stream_pool::StreamPool;
use super::{Connector, MAX_STREAMS, Tasks, TcpStream};
use crate::candidate_paths::CandidatePaths;
use crate::control::ControlSender;
use crate::reader::Reader;
use crate::transports::offer::ControlMessage;
use crate::transports::transport::{Outbox, temporary};
use packtrain_service::{StreamEnd, StreamsReport};

/// After datagrams, before the pipe.
const RANK: u8 = 10;
/// How often streams are looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The waits after connections that failed in a row.
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(8));
/// After so many failures in a row the peer is asked to connect instead, if it could.
const TURN: u32 = 2;
/// What the other end was asked to bring and never spoke of is asked for anew.
const FORGOTTEN: Duration = Duration::from_secs(30);
/// Looks in a row without anything ready after which the streams are not what is waited for.
const STARVED: u32 = 4;
/// Ends of streams within a transfer after which no more are replaced at once.
const BREAKS: u32 = 256;

/// Connections to be made on one way.
#[derive(Clone, Copy, Default)]
struct DialState {
    /// Under way.
    connecting: u32,
    /// Failures in a row, and when it is tried again.
    failed: u32,
    retry_at: Time,
    /// Whether one ever came through.
    reached: bool,
    /// When the other end was last asked for some.
    asked: Time,
}

/// The streams of a transfer at its sending end.
pub(in crate::transports) struct Streams {
    group: Group,
    pool: StreamPool,
    tasks: Tasks,
    outbox: Outbox<StreamNews>,
    control: ControlSender,
    connector: Option<Connector>,
    dials: BTreeMap<PathId, DialState>,
    /// The most streams that either end allows.
    most: u32,
    /// Where there are ways to choose from.
    path_feed: Option<PathFeed>,
    /// How many the peer was asked to have.
    invited: u32,
    broken: u32,
    up: bool,
    looked: Time,
    /// How often in a row nothing was ready for the streams.
    starved: u32,
    /// Until it is used one stream is enough.
    modest: bool,
}

/// What a group of streams is made of.
pub(in crate::transports) struct Parts {
    pub(in crate::transports) count: StreamCount,
    /// Others are preferred: until it is used one stream is enough.
    pub(in crate::transports) modest: bool,
    pub(in crate::transports) tasks: Tasks,
    pub(super) outbox: Outbox<StreamNews>,
    pub(in crate::transports) control: ControlSender,
    pub(in crate::transports) reader: Reader,
    pub(in crate::transports) limiter: Option<RateLimiter>,
    /// The most streams that either end allows.
    pub(in crate::transports) most: u32,
    /// The ways to choose from.
    pub(in crate::transports) ways: Option<Arc<CandidatePaths>>,
}

impl Streams {
    pub(in crate::transports) fn new(parts: Parts) -> Self {
        let Parts { count, modest, tasks, outbox, control, reader, limiter, most, ways } = parts;
        Self {
            group: Group::start(reader, outbox.clone(), limiter),
            pool: StreamPool::new(count),
            tasks,
            outbox,
            control,
            connector: None,
            dials: BTreeMap::from([(PathId::DIRECT, DialState::default())]),
            most,
            path_feed: ways.filter(|_| most > 1).map(PathFeed::new),
            invited: 1,
            broken: 0,
            up: false,
            looked: Time::ZERO,
            starved: 0,
            modest,
        }
    }

    /// There are ways to choose from.
    pub(in crate::transports) fn choose_from(&mut self, ways: Arc<CandidatePaths>) {
        if self.most > 1 {
            self.path_feed = Some(PathFeed::new(ways));
        }
    }

    /// The streams that are up, as a transport.
    pub(in crate::transports) fn group(&self) -> &Group {
        &self.group
    }

    /// The peer can be reached, or not.
    pub(in crate::transports) fn begin(&mut self, connector: Option<Connector>) {
        self.connector = connector;
        self.fill(clock::now());
    }

    fn wanted(&mut self) -> u32 {
        self.modest &= !self.group.is_used();
        let modest = self.modest && self.pool.is_tuned();
        // While it changes from one way to another both have streams.
        let most = match &self.path_feed {
            Some(_) if self.most < MAX_STREAMS => self.most / 2,
            _ => self.most,
        };
        if modest { 1 } else { self.pool.target().clamp(1, most.clamp(1, MAX_STREAMS)) }
    }

    /// How many there are to be on each way.
    fn targets(&mut self) -> Vec<(PathId, u32)> {
        let wanted = self.wanted();
        match &self.path_feed {
            None => vec![(PathId::DIRECT, wanted)],
            Some(path_feed) => {
                path_feed.each().map(|way| (way, path_feed.target(way, wanted))).collect()
            }
        }
    }

    /// Connects until there are, or will be, as many as wanted.
    fn fill(&mut self, now: Time) {
        for (way, wanted) in self.targets() {
            let there = self.group.count_on(way) as u32;
            self.dial_missing(now, way, wanted.saturating_sub(there));
            if way == PathId::DIRECT {
                self.invite(wanted, there);
            }
            for _ in (wanted..there).take(1) {
                self.group.retire_one(way);
            }
        }
    }

    /// Connects on a way where so many are missing.
    fn dial_missing(&mut self, now: Time, way: PathId, missing: u32) {
        // The other end brings streams over depots where it is the one that knows them.
        let far = way != PathId::DIRECT && self.path_feed.as_ref().is_some_and(PathFeed::is_far);
        let dial = self.dials.entry(way).or_default();
        if now < dial.retry_at || self.broken >= BREAKS {
            return;
        }
        if far && now.since(dial.asked) >= FORGOTTEN {
            dial.connecting = 0;
        }
        // After failures one at a time shows whether it works again.
        let most = if dial.failed > 0 { 1 } else { MAX_STREAMS };
        let missing = missing.saturating_sub(dial.connecting);
        let missing = missing.min(most.saturating_sub(dial.connecting));
        if far {
            if missing > 0 {
                (dial.connecting, dial.asked) = (dial.connecting + missing, now);
                let word = ControlMessage::Dial(way.index() as u8, missing);
                self.control.send(&Message::Channel(word.encode()));
            }
            return;
        }
        let Some(connector) = self.connector.clone() else { return };
        for _ in 0..missing {
            dial.connecting += 1;
            let outbox = self.outbox.clone();
            let failed = move |why| outbox.send(StreamNews::Failed(way, why));
            if way == PathId::DIRECT {
                connector.connect(Duration::ZERO, move || failed(String::new()));
            } else {
                let outbox = self.outbox.clone();
                let up = move |stream| outbox.send(StreamNews::Up(Box::new(stream), way));
                connector.connect_over(way, up, failed);
            }
        }
    }

    /// Asks the peer to connect where this end cannot.
    fn invite(&mut self, wanted: u32, there: u32) {
        let dial = self.dials.entry(PathId::DIRECT).or_default();
        let cannot = self.connector.is_none() || (dial.failed >= TURN && !dial.reached);
        if cannot && there > 0 && wanted > self.invited {
            self.invited = wanted;
            self.control.send(&Message::Channel(ControlMessage::Streams(wanted).encode()));
        }
    }

    /// A connection on a way failed.
    pub(in crate::transports) fn failed(&mut self, way: PathId, why: &str) {
        let now = clock::now();
        let there = self.group.count_on(way);
        let dial = self.dials.entry(way).or_default();
        dial.connecting = dial.connecting.saturating_sub(1);
        dial.retry_at = now + RETRY.after(dial.failed);
        dial.failed = dial.failed.saturating_add(1);
        let hopeless = there == 0 && dial.failed >= TURN && !dial.reached;
        if let Some(path_feed) = &mut self.path_feed
            && (way != PathId::DIRECT || hopeless)
        {
            let why = if why.is_empty() { "no connection comes about" } else { why };
            path_feed.failed(now, way, why);
        }
    }

    /// A connection on a way is up.
    pub(in crate::transports) fn connected(
        &mut self,
        stream: TcpStream,
        way: PathId,
    ) -> Option<TransportEvent> {
        if matches!(stream, TcpStream::Client(_)) || way != PathId::DIRECT {
            let dial = self.dials.entry(way).or_default();
            dial.connecting = dial.connecting.saturating_sub(1);
            (dial.failed, dial.reached) = (0, true);
        }
        let wanted = self.targets().iter().find(|(on, _)| *on == way).map_or(0, |(_, n)| *n);
        if self.group.count_on(way) as u32 >= wanted {
            return None;
        }
        let first = self.group.add(&self.tasks, stream, way);
        self.pool.came(self.group.count() as u32, first);
        if std::mem::replace(&mut self.up, true) {
            return None;
        }
        Some(TransportEvent::Up { rank: RANK })
    }

    /// So much is left to move.
    pub(in crate::transports) fn is_left(&mut self, left: Option<ByteCount>) {
        if let Some(path_feed) = &mut self.path_feed {
            path_feed.is_left(left);
        }
    }

    /// A stream is over; if it was the last, so is the transport.
    pub(in crate::transports) fn over(
        &mut self,
        why: &str,
        had: bool,
        way: PathId,
        last: Option<Reading>,
    ) -> Option<TransportEvent> {
        self.pool.ended(last, if had { StreamEnd::Broken } else { StreamEnd::Retired });
        if had {
            self.broken += 1;
            if let Some(path_feed) = self.path_feed.as_mut().filter(|_| way != PathId::DIRECT) {
                path_feed.failed(clock::now(), way, why);
            }
        }
        if self.group.count() > 0 || !std::mem::take(&mut self.up) {
            return None;
        }
        self.group.give_up();
        Some(TransportEvent::Closed(temporary(format!("TCP: {why}"))))
    }

    /// Looks after the streams; gives what the kernel says of them, now and then.
    pub(in crate::transports) fn poll(&mut self, now: Time) {
        if now.since(self.looked) < CHECK_INTERVAL {
            return;
        }
        self.looked = now;
        if let Some((_, readings)) = self.pool.sample(now, || self.group.readings(now)) {
            self.starved = if self.group.is_starved() { self.starved + 1 } else { 0 };
            let busy = self.starved < STARVED;
            // Between ways their number says nothing.
            let plain = self.path_feed.as_ref().is_none_or(PathFeed::is_plain);
            if plain {
                // A stream that was never used says nothing either.
                self.pool.tune(now, &readings, busy && !self.modest);
            }
            let wanted = self.wanted();
            if let Some(path_feed) = &mut self.path_feed {
                path_feed.look(now, &self.group, &readings, (wanted, busy && !self.modest));
                while let Some(way) = path_feed.poll_cut() {
                    self.group.cut(way);
                }
            }
        }
        self.group.reassign(now);
        self.fill(now);
    }

    /// What is known of the streams.
    pub(in crate::transports) fn record(&self) -> &Record {
        self.pool.record()
    }

    /// What there is to tell; none if there never was a stream.
    pub(in crate::transports) fn report(&self) -> Option<StreamsReport> {
        let mut report = self.pool.report(self.sent_again())?;
        if let Some(path_feed) = &self.path_feed {
            (report.ways, report.way_reasons) = path_feed.report(&self.group, clock::now());
        }
        Some(report)
    }

    /// Payload that the peer took, each byte once.
    pub(in crate::transports) fn moved(&self) -> ByteCount {
        self.group.moved()
    }

    /// Bytes that the kernel sent again.
    pub(in crate::transports) fn retransmitted(&self) -> ByteCount {
        self.pool.record().retransmitted()
    }

    /// Payload handed to a second stream.
    pub(in crate::transports) fn sent_again(&self) -> ByteCount {
        self.group.sent_again()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_between_connections_double_up_to_8_s() {
        let waits = (0..6).map(|n| RETRY.after(n).as_millis());
        assert!(waits.eq([500, 1000, 2000, 4000, 8000, 8000]));
    }
}
