//! Passive measurements from `TCP_INFO` of the sessions' connections.
//!
//! A measurement counts only if the hop was the bottleneck: there was unsent data at both ends of
//! the interval, and no buffer of the other side limited it.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use packtrain_net::tcp::{TcpInfo, tcp_info};
use packtrain_os::clock;
use packtrain_session::measure::{Point, Series as HopSeries};
use packtrain_session::{Host, Place};
use packtrain_units::{ByteCount, DataRate, Duration, Time};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use super::series::{KEPT, Sample, Series};
use packtrain_identity::statefile;

/// How often connections are sampled.
pub(crate) const SAMPLE: Duration = Duration::from_secs(2);
/// Maximum number of neighbours; above it, the one with the oldest measurement is removed.
const MAX_SENSORS: usize = 256;
/// Maximum number of sampled connections.
const MAX_WATCHED: usize = 4096;
/// An interval with fewer bytes does not measure the hop.
const MIN_SAMPLE_BYTES: ByteCount = ByteCount(256 << 10);
/// If the other side limited the connection for this share of the time, the hop was not the
/// bottleneck.
const MAX_LIMITED_SHARE: f64 = 0.5;
/// Maximum size of a measurement file, in bytes.
const MAX_PROBE_BYTES: usize = 16 << 20;
/// A port that stands for all ports of a host.
const ANY_PORT: u16 = 1;

/// The measurements of all neighbours.
#[derive(Debug)]
pub(crate) struct Sensors {
    inner: Mutex<Inner>,
    path: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Inner {
    series: BTreeMap<Place, Series>,
    watched: BTreeMap<u64, Watched>,
    next: u64,
    looked: Option<Time>,
    changed: bool,
}

#[derive(Debug)]
struct Watched {
    socket: OwnedFd,
    to: Place,
    before: Option<TcpInfo>,
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    to: String,
    samples: Vec<Sample>,
}

/// Samples a connection until it is dropped.
pub(crate) struct Watch<'a> {
    sensors: &'a Sensors,
    number: u64,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.sensors.lock().watched.remove(&self.number);
    }
}

impl Sensors {
    /// Loads the measurements of an earlier run. An unreadable file counts as empty.
    pub(crate) fn load(path: Option<PathBuf>) -> Self {
        let text = path.as_deref().and_then(|path| statefile::read(path).ok().flatten());
        let text = text.filter(|text| text.len() <= MAX_PROBE_BYTES).unwrap_or_default();
        let stored: Vec<Stored> = serde_json::from_str(&text).unwrap_or_default();
        let series = stored.into_iter().take(MAX_SENSORS).filter_map(|one| {
            let old = one.samples.len().saturating_sub(KEPT);
            Some((one.to.parse().ok()?, Series::of(one.samples.into_iter().skip(old))))
        });
        let inner = Inner { series: series.collect(), ..Inner::default() };
        Self { inner: Mutex::new(inner), path }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Samples the connection to the next hop, until the returned value is dropped. `last` says
    /// that the next hop is the destination, not a depot.
    pub(crate) fn towards(
        &self,
        next: &Place,
        last: bool,
        socket: &impl AsFd,
    ) -> Option<Watch<'_>> {
        // The streams of a transfer have different ports.
        let port = if last { ANY_PORT } else { next.port };
        self.watch(Place { host: next.host.clone(), port }, socket)
    }

    /// Samples the connection to the previous hop, in the same way.
    pub(crate) fn back(&self, socket: &TcpStream) -> Option<Watch<'_>> {
        let from = socket.peer_addr().ok()?;
        self.watch(Place { host: Host::Ip(from.ip().to_canonical()), port: ANY_PORT }, socket)
    }

    fn watch(&self, to: Place, socket: &impl AsFd) -> Option<Watch<'_>> {
        let socket = socket.as_fd().try_clone_to_owned().ok()?;
        let mut inner = self.lock();
        if inner.watched.len() >= MAX_WATCHED {
            return None;
        }
        let number = inner.next;
        inner.next += 1;
        inner.watched.insert(number, Watched { socket, to, before: None });
        Some(Watch { sensors: self, number })
    }

    /// Samples all connections.
    pub(crate) fn sample(&self, now: Time) {
        let mut inner = self.lock();
        let over = inner.looked.replace(now).map(|looked| now.since(looked)).unwrap_or_default();
        let mut sums: BTreeMap<Place, Sum> = BTreeMap::new();
        for watched in inner.watched.values_mut() {
            let Ok(info) = tcp_info(&watched.socket) else { continue };
            let before = watched.before.replace(info.clone());
            let Some(before) = before.filter(|_| !over.is_zero()) else { continue };
            sums.entry(watched.to.clone()).or_default().add(&before, &info);
        }
        for (to, sum) in sums {
            if let Some(sample) = sum.sample(over) {
                inner.learn(to, sample);
            }
        }
    }

    /// Adds a measurement of a probe.
    pub(crate) fn learn(&self, to: &Place, sample: Sample) {
        self.lock().learn(to.clone(), sample);
    }

    /// Whether data moves to a place.
    pub(crate) fn is_busy(&self, to: &Place) -> bool {
        let own = |watched: &&Watched| watched.to.host == to.host;
        self.lock().watched.values().any(|watched| own(&watched))
    }

    /// Time of the newest measurement of a place, since 1970.
    pub(crate) fn newest(&self, to: &Place) -> Option<Duration> {
        self.lock().series.get(to).and_then(Series::newest).map(|sample| sample.at)
    }

    /// The forecasts for other depots, and for `to`.
    pub(crate) fn report(&self, now: Duration, to: &Host) -> Vec<HopSeries> {
        let inner = self.lock();
        let wanted = inner.series.iter().filter(|(place, _)| {
            // Other destinations are not reported, because a user may not be allowed to relay
            // there. A destination is reported only by its name.
            place.port != ANY_PORT || place.host == *to
        });
        wanted.filter_map(|(place, series)| series.report(now, place.clone())).collect()
    }

    /// The measurements of a host, the oldest first.
    pub(crate) fn points(&self, to: &Host) -> Vec<Point> {
        let inner = self.lock();
        let own = inner.series.iter().filter(|(place, _)| place.host == *to);
        let mut points: Vec<Point> =
            own.flat_map(|(_, series)| series.samples()).map(Sample::report).collect();
        points.sort_by_key(|point| point.at);
        points
    }

    /// Writes new measurements to the file.
    pub(crate) fn keep(&self) {
        let Some(path) = &self.path else { return };
        let text = {
            let mut inner = self.lock();
            if !std::mem::take(&mut inner.changed) {
                return;
            }
            let stored = |(to, series): (&Place, &Series)| Stored {
                to: to.to_string(),
                samples: series.samples().copied().collect(),
            };
            let all: Vec<Stored> = inner.series.iter().map(stored).collect();
            serde_json::to_vec(&all).unwrap_or_default()
        };
        // If the write fails, the hops are measured again.
        let _ = keep(path, &text);
    }
}

fn keep(path: &Path, text: &[u8]) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    statefile::replace(path, text)
}

impl Inner {
    fn learn(&mut self, to: Place, sample: Sample) {
        self.changed = true;
        self.series.entry(to).or_default().learn(sample);
        if self.series.len() > MAX_SENSORS {
            let newest = |series: &Series| series.newest().map(|sample| sample.at);
            let oldest = self.series.iter().min_by_key(|(_, series)| newest(series));
            if let Some(oldest) = oldest.map(|(place, _)| place.clone()) {
                self.series.remove(&oldest);
            }
        }
    }
}

/// The sum of all connections to one place in an interval.
#[derive(Default)]
struct Sum {
    acked: u64,
    sent: u64,
    again: u64,
    streams: u32,
    /// Connections that the hop did not limit.
    idle: u32,
    min_rtt: Option<Duration>,
}

impl Sum {
    fn add(&mut self, before: &TcpInfo, info: &TcpInfo) {
        let more = |of: fn(&TcpInfo) -> Option<ByteCount>| {
            let bytes = |info: &TcpInfo| of(info).map_or(0, ByteCount::get);
            bytes(info).saturating_sub(bytes(before))
        };
        let held = |info: &TcpInfo| info.receiver_limited.unwrap_or_default();
        let busy = info.busy.unwrap_or_default() - before.busy.unwrap_or_default();
        let limited = (held(info) - held(before)).as_secs_f64();
        let unsent = |info: &TcpInfo| info.not_sent.is_some_and(|bytes| bytes > ByteCount::ZERO);
        let hop =
            unsent(before) && unsent(info) && limited < busy.as_secs_f64() * MAX_LIMITED_SHARE;
        let acked = more(|info| info.acked);
        if acked == 0 {
            return;
        }
        self.acked += acked;
        self.sent += more(|info| info.sent);
        self.again += more(|info| info.retransmitted);
        self.streams += 1;
        self.idle += u32::from(!hop);
        self.min_rtt = self.min_rtt.into_iter().chain(info.min_rtt).min();
    }

    /// The measurement of the hop; `None` if most connections were not limited by it.
    fn sample(&self, over: Duration) -> Option<Sample> {
        if self.streams == 0 || self.idle * 2 > self.streams || self.acked < MIN_SAMPLE_BYTES.get()
        {
            return None;
        }
        let lost = self.again as f64 / self.sent.max(1) as f64;
        Some(Sample {
            at: clock::wall(),
            rate: DataRate::from_bytes_over(ByteCount(self.acked), over),
            streams: self.streams,
            lost_ppm: (lost.min(1.0) * 1e6) as u32,
            min_rtt: self.min_rtt,
            probed: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, mbps: u64) -> Sample {
        Sample {
            at: Duration::from_secs(at),
            rate: DataRate::from_mbps(mbps),
            streams: 2,
            lost_ppm: 100,
            min_rtt: Some(Duration::from_millis(20)),
            probed: false,
        }
    }

    fn info(acked: u64, unsent: u64, busy: u64, held: u64) -> TcpInfo {
        TcpInfo {
            acked: Some(ByteCount(acked)),
            sent: Some(ByteCount(acked)),
            not_sent: Some(ByteCount(unsent)),
            busy: Some(Duration::from_millis(busy)),
            receiver_limited: Some(Duration::from_millis(held)),
            ..TcpInfo::default()
        }
    }

    #[test]
    fn only_what_the_hop_held_back_counts() {
        let sum = |pairs: &[(TcpInfo, TcpInfo)]| {
            let mut sum = Sum::default();
            pairs.iter().for_each(|(before, after)| sum.add(before, after));
            sum.sample(Duration::from_secs(1)).map(|sample| (sample.rate, sample.streams))
        };
        let begun = info(0, 9, 0, 0);
        let hop = (begun.clone(), info(1_000_000, 9, 1000, 0));
        let drained = (begun.clone(), info(1_000_000, 0, 1000, 0));
        let held = (begun.clone(), info(1_000_000, 9, 1000, 900));
        let short = (begun.clone(), info(10_000, 9, 1000, 0));
        assert_eq!(sum(std::slice::from_ref(&hop)), Some((DataRate::from_mbps(8), 1)));
        assert_eq!(sum(&[hop.clone(), hop.clone()]), Some((DataRate::from_mbps(16), 2)));
        assert_eq!(sum(std::slice::from_ref(&drained)), None);
        assert_eq!(sum(&[held]), None);
        assert_eq!(sum(&[short]), None);
        assert_eq!(sum(&[(begun.clone(), begun)]), None);
        assert_eq!(sum(&[hop, drained.clone(), drained]), None);
    }

    #[test]
    fn what_was_measured_outlives_a_restart_and_is_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state/depot.json");
        let sensors = Sensors::load(Some(path.clone()));
        let peer: Place = "d2.example:7879".parse().expect("a place");
        for n in 0..300 {
            sensors.learn(&peer, sample(n, 90 + n % 20));
            let other =
                Place { host: Host::parse(&format!("h{n}.example")).unwrap(), port: ANY_PORT };
            sensors.learn(&other, sample(n, 5));
        }
        sensors.keep();
        let again = Sensors::load(Some(path.clone()));
        let now = Duration::from_secs(310);
        let told = again.report(now, &Host::parse("h299.example").unwrap());
        assert_eq!(told.len(), 2, "one peer, and the destination asked for");
        let peer = told.iter().find(|one| one.to == peer).expect("the peer");
        assert!(peer.rate >= DataRate::from_mbps(85) && peer.rate <= DataRate::from_mbps(115));
        assert!(peer.interval.0 <= peer.rate && peer.rate <= peer.interval.1);
        assert_eq!((peer.age, peer.lost_ppm), (Duration::from_secs(11), 100));
        assert!(peer.each < peer.rate);
        assert!(again.lock().series.len() <= MAX_SENSORS);
        assert_eq!(again.report(now, &Host::parse("x.example").unwrap()).len(), 1);
        let points = again.points(&Host::parse("d2.example").unwrap());
        assert_eq!(points.len(), KEPT);
        assert_eq!(points[0].at, Duration::from_secs(300 - KEPT as u64));
        assert_eq!(points[KEPT - 1].rate, DataRate::from_mbps(90 + 299 % 20));
        std::fs::write(&path, "no JSON").expect("a file");
        assert!(Sensors::load(Some(path)).lock().series.is_empty());
    }

    #[test]
    fn a_session_that_panics_under_the_lock_leaves_the_sensors_to_the_others() {
        let sensors = Sensors::load(None);
        let panicked = std::thread::scope(|scope| {
            let session = scope.spawn(|| {
                let _held = sensors.lock();
                panic!("a bug in one session");
            });
            session.join().is_err()
        });
        assert!(panicked);
        let peer: Place = "d2.example:7879".parse().expect("a place");
        sensors.learn(&peer, sample(1, 90));
        assert_eq!(sensors.points(&Host::parse("d2.example").unwrap()).len(), 1);
    }
}
