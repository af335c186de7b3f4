//! Samples of the path, taken by the sending end from the transport in use.

use std::collections::{BTreeMap, VecDeque};

use packtrain_proto::Limit;
use packtrain_units::{ByteCount, Duration, Time};

use super::mover::Waiting;
use packtrain_service::evidence::{PathPart, Race, Sample, Waits};

/// How often it is seen what a sender waits for.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest and the longest interval of a path.
const SHORTEST: Duration = Duration::from_millis(100);
const MAX_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Intervals kept.
const SAMPLES: usize = 160;

/// How long nothing arrived.
#[derive(Debug, Default)]
struct Arrivals {
    /// Bytes arrived in all, by transport.
    arrived: BTreeMap<&'static str, ByteCount>,
    /// The last arrival, or the last time that nothing was waited for.
    last: Option<Time>,
    longest: Duration,
}

impl Arrivals {
    fn look(&mut self, now: &Counters) {
        let before = self.arrived.insert(now.transport, now.arrived).unwrap_or_default();
        match self.last {
            // What nothing ever came through is blocked, or takes no packets of this size.
            None if now.arrived == ByteCount::ZERO => {}
            Some(last) if now.arrived <= before && now.waits_for_path => {
                self.longest = self.longest.max(now.at.since(last));
            }
            _ => self.last = Some(now.at),
        }
    }
}

/// Counters of a transport at one time.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    /// Whose they are.
    pub transport: &'static str,
    /// When they were read.
    pub at: Time,
    /// Payload bytes sent, repeated ones included.
    pub sent: ByteCount,
    /// Bytes that the peer acknowledged.
    pub arrived: ByteCount,
    /// Bytes lost on the path.
    pub lost: ByteCount,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Time in queues: the round trip beyond the least.
    pub queue: Duration,
    /// Whether the transport has something to send and waits for the path.
    pub waits_for_path: bool,
}

/// Samples of the transport in use.
#[derive(Default)]
pub struct PathSamples {
    sampled: Time,
    waits: Waits,
    mover: Waits,
    samples: VecDeque<Sample>,
    mark: Option<Counters>,
    arrivals: Arrivals,
    race_began: Option<Time>,
    race_length: Duration,
}

impl PathSamples {
    /// The race of the transports begins.
    pub(super) fn begin(&mut self, now: Time) {
        self.race_began = Some(now);
    }

    /// True every 50 ms.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        let due = now.since(self.sampled) >= SAMPLE_INTERVAL;
        if due {
            self.sampled = now;
            self.race_length = self.race_began.map_or(Duration::ZERO, |began| now.since(began));
        }
        due
    }

    /// What holds a datagram sender up.
    pub fn add_limit(&mut self, limit: Limit) {
        let count = match limit {
            Limit::Idle => &mut self.waits.work,
            Limit::Payload => &mut self.waits.bytes,
            Limit::Window => &mut self.waits.window,
            Limit::Pacing => &mut self.waits.pace,
            Limit::Credit => &mut self.waits.room,
            Limit::Silence => &mut self.waits.word,
        };
        *count += 1;
    }

    /// What the thread of an ordered transport waits for.
    pub(super) fn add_waiting(&mut self, waiting: Waiting) {
        let count = match waiting {
            Waiting::Work => &mut self.mover.work,
            Waiting::Bytes => &mut self.mover.bytes,
            Waiting::Pace => &mut self.mover.pace,
            Waiting::Out => &mut self.mover.window,
        };
        *count += 1;
    }

    /// The counters of the transport in use. An interval ends when it lasted a round trip, within
    /// limits.
    pub fn add(&mut self, counters: Counters) {
        self.arrivals.look(&counters);
        let before = match self.mark {
            Some(mark) if mark.transport == counters.transport => mark,
            _ => {
                self.mark = Some(counters);
                return;
            }
        };
        let span = counters.at.since(before.at);
        if span < counters.rtt.max(SHORTEST).min(MAX_SAMPLE_INTERVAL) {
            return;
        }
        self.mark = Some(counters);
        let sent = counters.sent.saturating_sub(before.sent);
        if sent == ByteCount::ZERO {
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            span,
            sent,
            arrived: counters.arrived.saturating_sub(before.arrived),
            lost: counters.lost.saturating_sub(before.lost),
            queue: counters.queue,
        });
    }

    /// The evidence of these samples, to which each transport adds its own.
    pub(super) fn part(&self) -> PathPart {
        PathPart {
            race: Race { on_for: self.race_length, ..Race::default() },
            waits: self.waits,
            mover: self.mover,
            samples: self.samples.iter().copied().collect(),
            outage: self.arrivals.longest,
            ..PathPart::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_the_longest_time_without_an_arrival() {
        let mut arrivals = Arrivals::default();
        let mut look = |seconds: u64, transport, arrived, waits_for_path| {
            arrivals.look(&Counters {
                transport,
                at: Time::from_nanos(seconds * 1_000_000_000),
                sent: ByteCount::ZERO,
                arrived: ByteCount(arrived),
                lost: ByteCount::ZERO,
                rtt: Duration::ZERO,
                queue: Duration::ZERO,
                waits_for_path,
            });
            arrivals.longest
        };
        look(1, "native", 0, true);
        assert_eq!(look(9, "native", 0, true), Duration::ZERO, "nothing ever arrived");
        look(10, "native", 500, true);
        look(20, "native", 500, true);
        // Another transport is tried, in vain too.
        look(40, "tcp", 0, true);
        assert_eq!(look(90, "native", 500, true), Duration::from_secs(80));
        look(91, "native", 900, true);
        look(92, "native", 900, false);
        look(200, "native", 900, false);
        let longest = look(201, "native", 900, true);
        assert_eq!(longest, Duration::from_secs(80), "there was nothing to send");
    }
}
