//! Samples of the path, taken at the sending end from the transport in use.

use std::collections::{BTreeMap, VecDeque};

use packtrain_proto::Limit;
use packtrain_units::{ByteCount, Duration, Time};

use super::mover::Waiting;
use packtrain_service::evidence::{PathPart, Race, Sample, Waits};

/// Interval at which the state of the sender is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// Minimum and maximum length of an interval of the path's samples.
const MIN_SAMPLE_SPAN: Duration = Duration::from_millis(100);
const MAX_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum intervals kept.
const SAMPLES: usize = 160;

/// Measures the longest time without an arrival.
#[derive(Debug, Default)]
struct Arrivals {
    /// Total bytes arrived, by transport.
    arrived: BTreeMap<&'static str, ByteCount>,
    /// The last arrival, or the last time at which the sender did not wait for the path.
    last: Option<Time>,
    longest: Duration,
}

impl Arrivals {
    fn on_counters(&mut self, now: &Counters) {
        let before = self.arrived.insert(now.transport, now.arrived).unwrap_or_default();
        match self.last {
            // A transport over which nothing ever arrived is blocked, or its packets are too large.
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
    /// Name of the transport.
    pub transport: &'static str,
    /// Time at which they were read.
    pub at: Time,
    /// Payload bytes sent, retransmissions included.
    pub sent: ByteCount,
    /// Bytes acknowledged by the peer.
    pub arrived: ByteCount,
    /// Bytes lost on the path.
    pub lost: ByteCount,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Time in queues: the round-trip time above its minimum.
    pub queue: Duration,
    /// Whether the transport has data to send and waits for the path.
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
    /// The race of the transports starts.
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

    /// Counts what limits a datagram sender.
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

    /// Counts what the thread of an ordered transport waits for.
    pub(super) fn add_waiting(&mut self, waiting: Waiting) {
        let count = match waiting {
            Waiting::Work => &mut self.mover.work,
            Waiting::Bytes => &mut self.mover.bytes,
            Waiting::Pace => &mut self.mover.pace,
            Waiting::Out => &mut self.mover.window,
        };
        *count += 1;
    }

    /// Adds counters of the transport in use. An interval lasts one round-trip time, within the
    /// limits.
    pub fn add(&mut self, counters: Counters) {
        self.arrivals.on_counters(&counters);
        let before = match self.mark {
            Some(mark) if mark.transport == counters.transport => mark,
            _ => {
                self.mark = Some(counters);
                return;
            }
        };
        let span = counters.at.since(before.at);
        if span < counters.rtt.max(MIN_SAMPLE_SPAN).min(MAX_SAMPLE_INTERVAL) {
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

    /// The evidence of these samples; each transport adds its own.
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
            arrivals.on_counters(&Counters {
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
        // Another transport is tried, and nothing arrives over it either.
        look(40, "tcp", 0, true);
        assert_eq!(look(90, "native", 500, true), Duration::from_secs(80));
        look(91, "native", 900, true);
        look(92, "native", 900, false);
        look(200, "native", 900, false);
        let longest = look(201, "native", 900, true);
        assert_eq!(longest, Duration::from_secs(80), "there was nothing to send");
    }
}
