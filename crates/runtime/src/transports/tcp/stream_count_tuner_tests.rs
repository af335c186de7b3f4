use std::num::NonZeroU32;

use packtrain_net::tcp::TcpInfo;
use packtrain_plan::route::PathId;
use packtrain_units::Rng;

use super::*;

const MSS: f64 = 1448.0;

/// A simulated path with its streams, in rounds: windows follow CUBIC, with one queue and random
/// loss.
struct Path {
    rate: f64,
    rtt: f64,
    loss: f64,
    /// Queue length in packets.
    queue: f64,
    /// Packets of other traffic, constantly present.
    others: f64,
    /// Maximum window of a stream, in packets.
    cap: f64,
    rng: Rng,
    now: f64,
    waiting: f64,
    streams: BTreeMap<u32, Stream>,
    next: u32,
}

#[derive(Clone, Debug)]
struct Stream {
    cwnd: f64,
    ssthresh: f64,
    top: f64,
    since: f64,
    acked: f64,
    sent: f64,
    again: f64,
    busy: f64,
    limited: f64,
}

impl Path {
    fn new(rate: f64, rtt: f64, loss: f64) -> Self {
        let bdp = rate * rtt / 8.0 / MSS;
        let (waiting, streams) = (0.0, BTreeMap::new());
        let rng = Rng::new(7);
        let (others, cap) = (0.0, f64::INFINITY);
        Self { rate, rtt, loss, queue: bdp, others, cap, rng, now: 1.0, waiting, streams, next: 0 }
    }

    /// One round trip of all streams, with a target of `n`.
    fn round(&mut self, n: u32) -> f64 {
        while self.streams.len() < n as usize {
            let stream = Stream {
                cwnd: 10.0,
                ssthresh: f64::INFINITY,
                top: 0.0,
                since: 0.0,
                acked: 0.0,
                sent: 0.0,
                again: 0.0,
                busy: 0.0,
                limited: 0.0,
            };
            self.streams.insert(self.next, stream);
            self.next += 1;
        }
        while self.streams.len() > n as usize {
            self.streams.pop_first();
        }
        let bdp = self.rate * self.rtt / 8.0 / MSS;
        let all: f64 = self.streams.values().map(|s| s.cwnd).sum::<f64>() + self.others;
        self.waiting = (all - bdp).clamp(0.0, self.queue);
        let over = (all - bdp - self.queue).max(0.0);
        let took = self.rtt + self.waiting / (self.rate / 8.0 / MSS);
        // Packets that do not fit in the queue are lost.
        let dropped = over / all.max(1.0);
        self.now += took;
        let ids: Vec<u32> = self.streams.keys().copied().collect();
        for id in ids {
            let now = self.now;
            let one = self.streams[&id].cwnd;
            let clean = (1.0 - self.loss).powf(one);
            let overflow = dropped > 0.0 && self.rng.chance(0.7);
            let random = self.rng.chance(1.0 - clean);
            let stream = self.streams.get_mut(&id).unwrap();
            stream.sent += one * MSS;
            stream.acked += one * (1.0 - dropped) * MSS;
            stream.busy += took;
            if overflow || random {
                stream.again += (one * dropped).max(1.0) * MSS;
                stream.top = stream.cwnd;
                stream.cwnd = (stream.cwnd * 0.7).max(2.0);
                stream.ssthresh = stream.cwnd;
                stream.since = now;
            } else if stream.cwnd < stream.ssthresh {
                stream.cwnd *= 2.0;
                // HyStart: a queue ends slow start.
                if took > self.rtt * 1.125 {
                    stream.ssthresh = stream.cwnd;
                    (stream.top, stream.since) = (stream.cwnd, now);
                }
            } else {
                let k = (stream.top * 0.3 / 0.4).cbrt();
                let t = now - stream.since;
                stream.cwnd = stream.cwnd.max(0.4 * (t - k).powi(3) + stream.top);
            }
            if stream.cwnd > self.cap {
                stream.cwnd = self.cap;
                stream.limited += took;
            }
        }
        took
    }

    fn readings(&self) -> Vec<Reading> {
        let micros = |s: f64| Duration::from_micros((s * 1e6) as u64);
        let wait = self.waiting / (self.rate / 8.0 / MSS);
        let reading = |(id, s): (&u32, &Stream)| {
            let count = |x: f64| ByteCount(x as u64);
            let info = TcpInfo {
                srtt: micros(self.rtt + wait),
                rttvar: Duration::ZERO,
                min_rtt: Some(micros(self.rtt)),
                rto: Duration::from_millis(200),
                mss: ByteCount(MSS as u64),
                pmtu: ByteCount(1500),
                cwnd_segments: s.cwnd as u32,
                ssthresh_segments: s.ssthresh.is_finite().then_some(s.ssthresh as u32),
                in_flight_segments: s.cwnd as u32,
                retransmitted_segments: (s.again / MSS) as u32,
                retransmitted: Some(count(s.again)),
                sent: Some(count(s.sent)),
                acked: Some(count(s.acked)),
                received: None,
                receiver_window: None,
                not_sent: None,
                delivery_rate: None,
                app_limited: false,
                pacing_rate: None,
                busy: Some(micros(s.busy)),
                receiver_limited: Some(Duration::ZERO),
                send_buffer_limited: Some(micros(s.limited)),
                congestion: "cubic".to_owned(),
                ..TcpInfo::default()
            };
            Reading {
                stream: StreamId::numbered(*id),
                path: PathId::DIRECT,
                age: Duration::ZERO,
                info,
            }
        };
        self.streams.iter().map(reading).collect()
    }

    /// Simulates `seconds`. Returns the mean rate.
    fn play(&mut self, auto: &mut StreamCountTuner, seconds: f64) -> f64 {
        let acked = |path: &Self| path.streams.values().map(|s| s.acked).sum::<f64>();
        let (end, begin) = (self.now + seconds, self.now);
        let mut moved = 0.0;
        while self.now < end {
            let before = acked(self);
            let gone: f64 = {
                let spare = self.streams.len().saturating_sub(auto.target() as usize);
                self.streams.values().take(spare).map(|s| s.acked).sum()
            };
            self.round(auto.target());
            moved += acked(self) - before + gone;
            auto.look(Time::from_nanos((self.now * 1e9) as u64), &self.readings(), true);
        }
        moved * 8.0 / (self.now - begin)
    }
}

fn plain() -> StreamCountTuner {
    StreamCountTuner::new(64, Vec::new())
}

#[test]
fn a_clean_path_gets_no_more_than_the_first_streams() {
    for (rate, rtt) in [(1e9, 0.1), (1e9, 0.02), (1e8, 0.2), (1e10, 0.01)] {
        let mut auto = plain();
        let mut path = Path::new(rate, rtt, 0.0);
        let moved = path.play(&mut auto, 20.0);
        let why = auto.reasons();
        assert_eq!(auto.target(), INITIAL_STREAMS, "{rate} bit/s, {rtt} s: {why:#?}");
        assert!(moved > 0.85 * rate, "{moved} of {rate}: {why:#?}");
    }
}

#[test]
fn random_losses_get_as_many_as_fill_the_path() {
    for (loss, least, share) in [(1e-4, 12, 0.85), (1e-5, 4, 0.85), (1e-3, 40, 0.3)] {
        let mut auto = plain();
        let mut path = Path::new(1e9, 0.1, loss);
        let moved = path.play(&mut auto, 15.0);
        let why = auto.reasons();
        assert!(auto.target() >= least, "loss {loss}: {} of {least}: {why:#?}", auto.target());
        assert!(moved > share * 1e9, "loss {loss}: {moved}: {why:#?}");
    }
}

#[test]
fn small_buffers_get_as_many_as_fill_the_path() {
    let mut auto = plain();
    let mut path = Path::new(1e9, 0.1, 0.0);
    // 64 KiB per round trip: 5 Mbit/s each.
    path.cap = 512.0;
    path.play(&mut auto, 20.0);
    let why = auto.reasons();
    assert!((15..=32).contains(&auto.target()), "{}: {why:#?}", auto.target());
}

#[test]
fn a_path_that_others_fill_gets_no_more_than_the_first_streams() {
    let mut auto = plain();
    let mut path = Path::new(2e8, 0.05, 1e-4);
    path.others = 2e8 * 0.05 / 8.0 / MSS * 1.4;
    path.play(&mut auto, 30.0);
    assert_eq!(auto.target(), INITIAL_STREAMS, "{:#?}", auto.reasons());
}

#[test]
fn it_adapts_when_the_path_changes() {
    let mut auto = plain();
    let mut path = Path::new(1e9, 0.1, 0.0);
    path.play(&mut auto, 10.0);
    assert_eq!(auto.target(), INITIAL_STREAMS);
    path.loss = 1e-4;
    path.play(&mut auto, 20.0);
    assert!(auto.target() >= 12, "{:#?}", auto.reasons());
    // The losses end: surplus streams are removed, a few at a time.
    path.loss = 0.0;
    path.play(&mut auto, 120.0);
    assert!(auto.target() <= 16, "{}: {:#?}", auto.target(), auto.reasons());
}

#[test]
fn a_disk_that_is_slower_than_the_path_says_nothing() {
    let mut auto = plain();
    let mut path = Path::new(1e9, 0.1, 1e-3);
    for _ in 0..200 {
        path.round(auto.target());
        auto.look(Time::from_nanos((path.now * 1e9) as u64), &path.readings(), false);
    }
    assert_eq!((auto.target(), auto.reasons()), (INITIAL_STREAMS, Vec::new()));
}

#[test]
fn what_is_known_of_the_path_is_used_at_once() {
    let sample = |n: u32, mbps| Sample {
        streams: NonZeroU32::new(n).unwrap(),
        throughput: DataRate::from_mbps(mbps),
    };
    let known: Vec<_> =
        [(1, 20), (2, 40), (4, 80), (8, 150), (16, 270)].map(|(n, mbps)| sample(n, mbps)).into();
    let mut auto = StreamCountTuner::new(64, known.clone());
    assert_eq!(auto.reasons(), [""; 0], "nothing is predicted before the number is needed");
    assert!(auto.target() >= 16, "{:?}", auto.reasons());
    assert!(auto.reasons()[0].starts_with("earlier transfers"), "{:?}", auto.reasons());
    assert_eq!(StreamCountTuner::new(2, known.clone()).target(), 2, "a ceiling holds");

    // A busy stream tunes from the same number, although nobody asked for it.
    let mut auto = StreamCountTuner::new(64, known);
    let mut path = Path::new(1e9, 0.1, 1e-3);
    path.round(1);
    auto.look(Time::from_nanos((path.now * 1e9) as u64), &path.readings(), true);
    assert!(auto.reasons().iter().any(|why| why.starts_with("earlier transfers")));
}

#[test]
fn a_short_queue_that_runs_over_is_no_random_loss() {
    let mut auto = plain();
    let mut path = Path::new(1e9, 0.1, 0.0);
    // 5 ms: a queue too short to be visible in the round-trip time.
    path.queue /= 20.0;
    path.play(&mut auto, 3.0);
    let why = auto.reasons();
    assert!(auto.target() <= 2 * INITIAL_STREAMS, "{}: {why:#?}", auto.target());
}
