//! How many streams there are: connected, replaced when they are lost, let go.

use std::sync::Arc;

use packtrain_io::clock;
use packtrain_plan::streams::Sample;
use packtrain_transfer::message::Message;
use packtrain_transfer::{TransportEvent, TransportId};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::auto::Auto;
use super::group::{Group, Reading};
use super::record::Record;
use super::{Connector, MOST_STREAMS, Tasks, TcpStream};
use crate::api::{StreamEnd, StreamsReport};
use crate::control::ControlSender;
use crate::reader::Reader;
use crate::transports::mover::Tell;
use crate::transports::offer::Word;
use crate::transports::sources::Internal;
use crate::transports::{TransportNews, temporary};

/// How often streams are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How often the kernel is asked about them.
const SAMPLE: Duration = Duration::from_millis(50);
/// The wait after a connection that failed; doubles with each in a row, up to the longest.
const RETRY: Duration = Duration::from_millis(250);
const RETRY_MOST: Duration = Duration::from_secs(8);
/// After so many failures in a row the peer is asked to connect instead, if it could.
const TURN: u32 = 2;
/// Looks in a row without anything ready after which the streams are not what is waited for.
const STARVED: u32 = 4;
/// Ends of streams within a transfer after which no more are replaced at once.
const BREAKS: u32 = 256;

/// How many streams there are to be.
#[derive(Debug)]
pub(in crate::transports) enum Count {
    /// As many as were asked for.
    Fixed(u32),
    /// As many as turn out to be best.
    Auto(Box<Auto>),
}

impl Count {
    /// As many as turn out to be best, at most `most`; `earlier` is what is known of the path.
    pub(in crate::transports) fn auto(most: u32, earlier: Vec<Sample>) -> Self {
        Self::Auto(Box::new(Auto::new(most.min(MOST_STREAMS), earlier)))
    }

    fn wanted(&self) -> u32 {
        match self {
            Self::Fixed(n) => *n,
            Self::Auto(auto) => auto.target(),
        }
    }
}

/// The streams of a transfer at its sending end.
pub(in crate::transports) struct Streams {
    id: TransportId,
    rank: u8,
    group: Group,
    count: Count,
    tasks: Tasks,
    tell: Tell,
    control: ControlSender,
    connector: Option<Connector>,
    /// Connections of ours under way.
    connecting: u32,
    /// Failures in a row, and when it is tried again.
    failed: u32,
    retry_at: Time,
    /// Whether one of ours ever came through.
    reached: bool,
    /// How many the peer was asked to have.
    invited: u32,
    broken: u32,
    up: bool,
    looked: Time,
    sampled: Time,
    /// How often in a row nothing was ready for the streams.
    starved: u32,
    /// Until it is used one stream is enough.
    modest: bool,
    record: Record,
}

/// What a group of streams is made of.
pub(in crate::transports) struct Parts {
    pub(in crate::transports) id: TransportId,
    pub(in crate::transports) rank: u8,
    pub(in crate::transports) count: Count,
    /// Others are preferred: until it is used one stream is enough.
    pub(in crate::transports) modest: bool,
    pub(in crate::transports) tasks: Tasks,
    pub(in crate::transports) tell: Tell,
    pub(in crate::transports) control: ControlSender,
    pub(in crate::transports) reader: Reader,
    pub(in crate::transports) rate: Option<DataRate>,
}

impl Streams {
    pub(in crate::transports) fn new(parts: Parts) -> Self {
        let Parts { id, rank, count, modest, tasks, tell, control, reader, rate } = parts;
        Self {
            id,
            rank,
            group: Group::start(id, reader, Arc::clone(&tell), rate),
            count,
            tasks,
            tell,
            control,
            connector: None,
            connecting: 0,
            failed: 0,
            retry_at: Time::ZERO,
            reached: false,
            invited: 1,
            broken: 0,
            up: false,
            looked: Time::ZERO,
            sampled: Time::ZERO,
            starved: 0,
            modest,
            record: Record::new(clock::now()),
        }
    }

    /// The streams that are up, as a transport.
    pub(in crate::transports) fn group(&self) -> &Group {
        &self.group
    }

    /// Whether there is one.
    pub(in crate::transports) fn is_up(&self) -> bool {
        self.up
    }

    /// The peer can be reached, or not.
    pub(in crate::transports) fn begin(&mut self, connector: Option<Connector>) {
        self.connector = connector;
        self.fill(clock::now());
    }

    fn wanted(&mut self) -> u32 {
        self.modest &= !self.group.is_used();
        let modest = self.modest && matches!(self.count, Count::Auto(_));
        if modest { 1 } else { self.count.wanted().clamp(1, MOST_STREAMS) }
    }

    /// Connects until there are, or will be, as many as wanted.
    fn fill(&mut self, now: Time) {
        let wanted = self.wanted();
        let there = self.group.count() as u32;
        if let Some(connector) = self.connector.clone()
            && now >= self.retry_at
            && self.broken < BREAKS
        {
            // After failures one at a time shows whether it works again.
            let most = if self.failed > 0 { 1 } else { MOST_STREAMS };
            let missing = wanted.saturating_sub(there + self.connecting);
            for _ in 0..missing.min(most.saturating_sub(self.connecting)) {
                self.connecting += 1;
                let tell = Arc::clone(&self.tell);
                connector.connect(Duration::ZERO, move || {
                    tell(TransportNews::Internal(Internal::TcpFailed));
                });
            }
        }
        let cannot = self.connector.is_none() || (self.failed >= TURN && !self.reached);
        if cannot && there > 0 && wanted > self.invited {
            self.invited = wanted;
            self.control.send(&Message::Channel(Word::Streams(wanted).encode()));
        }
        for _ in (wanted..there).take(1) {
            self.group.retire_one();
        }
    }

    /// A connection failed.
    pub(in crate::transports) fn failed(&mut self) {
        self.connecting = self.connecting.saturating_sub(1);
        self.failed = self.failed.saturating_add(1);
        let wait = (RETRY * (1 << self.failed.min(5))).min(RETRY_MOST);
        self.retry_at = clock::now() + wait;
    }

    /// A connection is up.
    pub(in crate::transports) fn connected(&mut self, stream: TcpStream) -> Vec<TransportNews> {
        if matches!(stream, TcpStream::Client(_)) {
            self.connecting = self.connecting.saturating_sub(1);
            (self.failed, self.reached) = (0, true);
        }
        if self.group.count() as u32 >= self.wanted() {
            return Vec::new();
        }
        self.group.add(&self.tasks, stream);
        self.record.came(self.group.count() as u32);
        // A short copy is over before the next look.
        let now = clock::now();
        self.record.look(now, &self.group.readings(now));
        if std::mem::replace(&mut self.up, true) {
            return Vec::new();
        }
        vec![TransportNews::Up(self.id, self.rank)]
    }

    /// A stream is over; if it was the last, so is the transport.
    pub(in crate::transports) fn over(
        &mut self,
        why: &str,
        had: bool,
        last: Option<Reading>,
    ) -> Vec<TransportNews> {
        self.record.ended(last, if had { StreamEnd::Broken } else { StreamEnd::Retired });
        if had {
            self.broken += 1;
        }
        if self.group.count() > 0 || !std::mem::take(&mut self.up) {
            return Vec::new();
        }
        self.group.give_up();
        let closed = TransportEvent::Closed(temporary(format!("TCP: {why}")));
        vec![TransportNews::Event(self.id, closed)]
    }

    /// Looks after the streams; gives what the kernel says of them, now and then.
    pub(in crate::transports) fn poll(&mut self, now: Time) {
        if now.since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        if now.since(self.sampled) >= SAMPLE {
            self.sampled = now;
            let readings = self.group.readings(now);
            self.record.look(now, &readings);
            self.starved = if self.group.is_starved() { self.starved + 1 } else { 0 };
            if let Count::Auto(auto) = &mut self.count {
                auto.look(now, &readings, self.starved < STARVED);
            }
        }
        self.group.relieve(now);
        self.fill(now);
    }

    /// What is known of the streams.
    pub(in crate::transports) fn record(&self) -> &Record {
        &self.record
    }

    /// What there is to tell; none if there never was a stream.
    pub(in crate::transports) fn report(&self) -> Option<StreamsReport> {
        let mut report = self.record.report()?;
        report.moved_twice = self.sent_again();
        match &self.count {
            Count::Fixed(n) => report.asked = Some(*n),
            Count::Auto(auto) => report.reasons = auto.reasons(),
        }
        Some(report)
    }

    /// Payload that the peer took, each byte once.
    pub(in crate::transports) fn moved(&self) -> ByteCount {
        self.group.moved().saturating_sub(self.group.sent_again())
    }

    /// Bytes that the kernel sent again.
    pub(in crate::transports) fn retransmitted(&self) -> ByteCount {
        self.record.retransmitted()
    }

    /// Payload handed to a second stream.
    pub(in crate::transports) fn sent_again(&self) -> ByteCount {
        self.group.sent_again()
    }
}
