//! Feeds the path selector of `packtrain-plan` with TCP statistics and reports of the other end.
//! `streams` carries out its decisions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use packtrain_net::tcp::TcpInfo;
use packtrain_plan::route::{Limit, PathId, PathReadings, PathSelector, Response, Seen, Symptoms};
use packtrain_units::{ByteCount, Duration, Time};

use super::group::{Group, Reading};
use super::stripe_scheduler::StreamId;
use crate::candidate_paths::CandidatePaths;
use packtrain_service::PathReport;

/// Time for which a loss counts as a symptom of the path.
const LOSSES: Duration = Duration::from_secs(20);
/// Time over which queues and limits are averaged.
const RECENT: Duration = Duration::from_secs(2);
/// A queue of at least this fraction of the round-trip time explains a loss.
const QUEUED: f64 = 0.10;
/// A path without such a queue for this time, and for this number of round trips, is no longer
/// full. Its windows are then what losses left of them, whatever their cause.
const EMPTY: Duration = Duration::from_secs(2);
const EMPTY_RTTS: u64 = 20;

/// A sample of the direct streams.
#[derive(Clone, Copy, Default)]
struct Sign {
    at: Time,
    queue: Duration,
    lost: u64,
    /// Lost bytes with a queue that explains them.
    queued: u64,
    busy: Duration,
    limited: Duration,
}

/// The path selector with its inputs.
pub(super) struct PathFeed {
    ways: Arc<CandidatePaths>,
    selector: PathSelector,
    signs: VecDeque<Sign>,
    was: BTreeMap<StreamId, TcpInfo>,
    min_rtt: Option<Duration>,
    congestion: String,
    left: Option<ByteCount>,
}

impl PathFeed {
    pub(super) fn new(ways: Arc<CandidatePaths>) -> Self {
        let mut selector = PathSelector::new();
        for name in ways.names() {
            selector.add(name.clone());
        }
        Self {
            ways,
            selector,
            signs: VecDeque::new(),
            was: BTreeMap::new(),
            min_rtt: None,
            congestion: String::new(),
            left: None,
        }
    }

    pub(super) fn is_left(&mut self, left: Option<ByteCount>) {
        self.left = left;
    }

    /// Whether the other end is the one that knows the depots.
    pub(super) fn is_far(&self) -> bool {
        self.ways.is_far()
    }

    /// All paths, the direct one first.
    pub(super) fn each(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.selector.len() as u8).map(PathId::numbered)
    }

    /// The target number of streams on a path.
    pub(super) fn target(&self, way: PathId, wanted: u32) -> u32 {
        self.selector.target(way, wanted)
    }

    /// Whether all streams are on the direct path and no other path is being tried.
    pub(super) fn is_plain(&self) -> bool {
        self.each().skip(1).all(|way| self.selector.target(way, 1) == 0)
    }

    pub(super) fn failed(&mut self, now: Time, way: PathId, why: &str) {
        self.selector.failed(now, way, why);
    }

    /// A path whose streams must be closed.
    pub(super) fn poll_cut(&mut self) -> Option<PathId> {
        self.selector.poll_cut()
    }

    /// Updates the selector. `wanted` is the target number of streams; `busy`: they are the
    /// bottleneck of the transfer.
    pub(super) fn look(
        &mut self,
        now: Time,
        group: &Group,
        readings: &[Reading],
        (wanted, busy): (u32, bool),
    ) {
        self.record(now, readings);
        self.ways.update_selector(&mut self.selector, self.min_rtt);
        let seen: Vec<Seen> = self.each().map(|way| group.seen(now, way)).collect();
        self.selector.update(&PathReadings {
            now,
            paths: &seen,
            wanted,
            rtt: self.min_rtt.unwrap_or_default(),
            limit: self.limit(now),
            left: self.left,
            busy,
        });
    }

    /// Records the TCP statistics of the direct streams.
    fn record(&mut self, now: Time, readings: &[Reading]) {
        let direct = readings.iter().filter(|reading| reading.path == PathId::DIRECT);
        let mut was = std::mem::take(&mut self.was);
        let mut sign = Sign { at: now, ..Sign::default() };
        let mut count = 0u64;
        for Reading { stream, info, .. } in direct {
            self.min_rtt = self.min_rtt.into_iter().chain(info.min_rtt).min();
            self.congestion.clone_from(&info.congestion);
            let queue = info.srtt - info.min_rtt.unwrap_or(info.srtt);
            sign.queue += queue;
            count += 1;
            if let Some(before) = was.remove(stream) {
                let again = |info: &TcpInfo| match info.retransmitted {
                    Some(bytes) => bytes.get(),
                    None => u64::from(info.retransmitted_segments) * info.mss.get(),
                };
                let held = |info: &TcpInfo| {
                    let buffer = info.send_buffer_limited.unwrap_or_default();
                    info.receiver_limited.unwrap_or_default() + buffer
                };
                let min_rtt = self.min_rtt.unwrap_or_default();
                let queued = queue.max(before.srtt - min_rtt) >= min_rtt.mul_f64(QUEUED);
                let more = again(info).saturating_sub(again(&before));
                *(if queued { &mut sign.queued } else { &mut sign.lost }) += more;
                sign.busy += info.busy.unwrap_or_default() - before.busy.unwrap_or_default();
                sign.limited += held(info) - held(&before);
            }
            self.was.insert(*stream, info.clone());
        }
        if count == 0 {
            return;
        }
        sign.queue = sign.queue / count;
        self.signs.push_back(sign);
        while self.signs.front().is_some_and(|sign| now.since(sign.at) > LOSSES) {
            self.signs.pop_front();
        }
    }

    /// The limit of the direct streams.
    fn limit(&self, now: Time) -> Limit {
        let symptoms = symptoms(&self.signs, now, self.min_rtt.unwrap_or_default());
        Limit::of(&symptoms, Response::of(&self.congestion))
    }

    /// The report about each path.
    pub(super) fn report(&self, group: &Group, now: Time) -> (Vec<PathReport>, Vec<String>) {
        let ways = self.each().map(|way| {
            let steady = self.selector.steady(way);
            PathReport {
                way: self.selector.name(way).to_owned(),
                bytes: group.seen(now, way).delivered,
                rate: steady.map(|(rate, _)| rate),
                steady: steady.map(|(_, span)| span).unwrap_or_default(),
            }
        });
        let mut reasons = self.ways.told();
        reasons.extend(self.selector.reasons().iter().cloned());
        (ways.collect(), reasons)
    }
}

/// Aggregates the samples of the last seconds.
fn symptoms(signs: &VecDeque<Sign>, now: Time, min_rtt: Duration) -> Symptoms {
    let recent = || signs.iter().filter(|sign| now.since(sign.at) <= RECENT);
    let count = recent().count().max(1) as u64;
    let sum = |of: fn(&Sign) -> Duration| recent().fold(Duration::ZERO, |all, s| all + of(s));
    let (busy, limited) = (sum(|sign| sign.busy), sum(|sign| sign.limited));
    let stood = signs.iter().rev().find(|sign| sign.queue >= min_rtt.mul_f64(QUEUED));
    let since = stood.or(signs.front()).map_or(now, |sign| sign.at);
    let empty = now.since(since) >= EMPTY.max(min_rtt * EMPTY_RTTS);
    let lost = signs.iter().map(|sign| sign.lost + if empty { sign.queued } else { 0 }).sum();
    Symptoms {
        queue: sum(|sign| sign.queue) / count,
        min_rtt,
        lost: ByteCount(lost),
        limited: if busy.is_zero() { 0.0 } else { limited.as_secs_f64() / busy.as_secs_f64() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One sample per 50 ms: queue in ms, and bytes retransmitted since the last one.
    fn of(looks: &[(u64, u64)]) -> Limit {
        let (mut now, mut signs) = (Time::from_nanos(1), VecDeque::new());
        let min_rtt = Duration::from_millis(100);
        for &(queue, again) in looks {
            now += Duration::from_millis(50);
            let queued = queue >= 10;
            let [lost, queued] = if queued { [0, again] } else { [again, 0] };
            let queue = Duration::from_millis(queue);
            signs.push_back(Sign { at: now, queue, lost, queued, ..Sign::default() });
        }
        Limit::of(&symptoms(&signs, now, min_rtt), Response::Reno)
    }

    #[test]
    fn a_loss_that_a_queue_explains_counts_when_the_path_stays_empty() {
        let losses = Limit::Losses(Response::Reno);
        assert_eq!(of(&[(0, 0), (1, 1448), (0, 0)]), losses);
        // The end of slow start, whose bursts cause a short queue.
        let mut looks = vec![(1, 0), (12, 1448), (1, 0)];
        assert_eq!(of(&looks), Limit::Unknown);
        looks.extend([(1, 0); 41]);
        assert_eq!(of(&looks), losses);
        // A queue now and then means that the path is full now and then.
        looks.extend([(15, 0), (1, 0)]);
        assert_eq!(of(&looks), Limit::Unknown);
        looks.extend([(40, 1448); 60]);
        assert_eq!(of(&looks), Limit::Path);
        assert_eq!(of(&[(0, 0); 99]), Limit::Unknown, "nothing was lost");
    }
}
