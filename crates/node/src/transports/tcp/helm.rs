//! Which way the streams take, where there is a choice: what the kernel and the other end say of
//! them is brought to the chooser in `plan`, and what it wants is carried out by `streams`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use packtrain_io::tcp::TcpInfo;
use packtrain_plan::route::{Limit, Look, Pilot, Response, Seen, Symptoms, WayId};
use packtrain_units::{ByteCount, Duration, Time};

use super::book::LineId;
use super::group::{Group, Reading};
use crate::api::WayReport;
use crate::ways::Ways;

/// A loss is a sign of the path for so long.
const LOSSES: Duration = Duration::from_secs(20);
/// Queues and limits are taken over so long.
const RECENT: Duration = Duration::from_secs(2);
/// A queue of this part of the round trip explains a loss.
const QUEUED: f64 = 0.10;

/// What a look at the direct streams found.
struct Sign {
    at: Time,
    queue: Duration,
    lost: u64,
    busy: Duration,
    limited: Duration,
}

/// The chooser at work.
pub(super) struct Helm {
    ways: Arc<Ways>,
    pilot: Pilot,
    signs: VecDeque<Sign>,
    was: BTreeMap<LineId, TcpInfo>,
    min_rtt: Option<Duration>,
    congestion: String,
    left: Option<ByteCount>,
}

impl Helm {
    pub(super) fn new(ways: Arc<Ways>) -> Self {
        let mut pilot = Pilot::new();
        for name in ways.names() {
            pilot.add(name.clone());
        }
        Self {
            ways,
            pilot,
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

    /// All ways, the direct one first.
    pub(super) fn each(&self) -> impl Iterator<Item = WayId> + use<> {
        (0..self.pilot.len() as u8).map(WayId::numbered)
    }

    /// How many streams a way is to have.
    pub(super) fn target(&self, way: WayId, wanted: u32) -> u32 {
        self.pilot.target(way, wanted)
    }

    /// Whether all streams are on the direct way and none is tried elsewhere.
    pub(super) fn is_plain(&self) -> bool {
        self.each().skip(1).all(|way| self.pilot.target(way, 1) == 0)
    }

    pub(super) fn failed(&mut self, now: Time, way: WayId, why: &str) {
        self.pilot.failed(now, way, why);
    }

    /// A way whose streams are to be given up.
    pub(super) fn poll_cut(&mut self) -> Option<WayId> {
        self.pilot.poll_cut()
    }

    /// Looks at everything. `wanted` are the streams there are to be; they are what the transfer
    /// waits for if it is `busy`.
    pub(super) fn look(
        &mut self,
        now: Time,
        group: &Group,
        readings: &[Reading],
        (wanted, busy): (u32, bool),
    ) {
        self.note(now, readings);
        self.ways.inform(&mut self.pilot, self.min_rtt);
        let seen: Vec<Seen> = self.each().map(|way| group.seen(now, way)).collect();
        self.pilot.look(&Look {
            now,
            ways: &seen,
            wanted,
            rtt: self.min_rtt.unwrap_or_default(),
            limit: self.limit(now),
            left: self.left,
            busy,
        });
    }

    /// Keeps what the kernel says of the direct streams.
    fn note(&mut self, now: Time, readings: &[Reading]) {
        let direct = readings.iter().filter(|reading| reading.way == WayId::DIRECT);
        let mut was = std::mem::take(&mut self.was);
        let mut sign = Sign {
            at: now,
            queue: Duration::ZERO,
            lost: 0,
            busy: Duration::ZERO,
            limited: Duration::ZERO,
        };
        let mut count = 0u64;
        for Reading { line, info, .. } in direct {
            self.min_rtt = self.min_rtt.into_iter().chain(info.min_rtt).min();
            self.congestion.clone_from(&info.congestion);
            let queue = info.srtt - info.min_rtt.unwrap_or(info.srtt);
            sign.queue += queue;
            count += 1;
            if let Some(before) = was.remove(line) {
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
                if !queued {
                    sign.lost += again(info).saturating_sub(again(&before));
                }
                sign.busy += info.busy.unwrap_or_default() - before.busy.unwrap_or_default();
                sign.limited += held(info) - held(&before);
            }
            self.was.insert(*line, info.clone());
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

    /// What holds the direct streams back.
    fn limit(&self, now: Time) -> Limit {
        let lost = self.signs.iter().map(|sign| sign.lost).sum();
        let recent = || self.signs.iter().filter(|sign| now.since(sign.at) <= RECENT);
        let count = recent().count().max(1) as u64;
        let sum = |of: fn(&Sign) -> Duration| recent().fold(Duration::ZERO, |all, s| all + of(s));
        let (busy, limited) = (sum(|sign| sign.busy), sum(|sign| sign.limited));
        let symptoms = Symptoms {
            queue: sum(|sign| sign.queue) / count,
            min_rtt: self.min_rtt.unwrap_or_default(),
            lost: ByteCount(lost),
            limited: if busy.is_zero() { 0.0 } else { limited.as_secs_f64() / busy.as_secs_f64() },
        };
        Limit::of(&symptoms, Response::of(&self.congestion))
    }

    /// What each way did.
    pub(super) fn report(&self, group: &Group, now: Time) -> (Vec<WayReport>, Vec<String>) {
        let ways = self.each().map(|way| {
            let steady = self.pilot.steady(way);
            WayReport {
                way: self.pilot.name(way).to_owned(),
                bytes: group.seen(now, way).delivered,
                rate: steady.map(|(rate, _)| rate),
                steady: steady.map(|(_, span)| span).unwrap_or_default(),
            }
        });
        let mut reasons = self.ways.told();
        reasons.extend(self.pilot.reasons().iter().cloned());
        (ways.collect(), reasons)
    }
}
