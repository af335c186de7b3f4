//! The receiving endpoint of the native feedback: which packets arrived, and when to report them.

use packtrain_units::{ByteCount, Duration, Time};

use crate::codec::frame::{Ack, Frame, Mark, Report, ack_len};
use crate::config::limits::{LANES, REPORT_MAX, REPORT_MIN};
use crate::core::drain::Drain;
use crate::core::lane::Lane;
use crate::ecn::EcnCounts;
use crate::stats::FlowStats;

/// Number of reports that repeat each interval.
const REPEATS: usize = 3;
/// Maximum arrival marks of one report; more are thinned.
const MAX_MARKS: usize = 16;
/// The first marks are never thinned: two in one train measure how far the path spread it.
pub(crate) const UNTHINNED_MARKS: usize = 6;
/// Batches within one cluster arrive this close together, and a cluster lasts no longer than
/// `CLUSTER_SPAN`.
const CLUSTER_GAP: Duration = Duration::from_micros(10);
pub(crate) const CLUSTER_SPAN: Duration = Duration::from_micros(60);
/// Bytes for intervals in one report packet: the base MTU less headers and marks.
const ACK_BYTES: usize = 800;
/// Room below this fraction of the maximum seen counts as low.
const LOW_ROOM: u64 = 4;

/// Interval of reports at a smoothed round trip.
pub(crate) fn report_interval(srtt: Duration) -> Duration {
    (srtt / 16).clamp(REPORT_MIN, REPORT_MAX)
}

/// The receiver of one flow.
#[derive(Debug)]
pub(crate) struct Receiver {
    number: u64,
    reported_at: Time,
    /// When the oldest unreported packet arrived.
    pending_since: Option<Time>,
    urgent: bool,
    /// Lowest number that arrived in each of the last intervals, newest first, per lane.
    lows: Vec<[u64; REPEATS]>,
    /// Number of the newest data packet of the current batch.
    newest_data: Option<u64>,
    marks: Vec<Mark>,
    /// The newest arrival, if thinning left it out: a report ends with it, because the round trip
    /// and the end of a burst are measured by the last mark.
    newest: Option<Mark>,
    thinning: u32,
    skipped_marks: u32,
    /// When the first batch of the newest mark's cluster arrived.
    cluster_since: Time,
    host_drops: [u32; LANES],
    room: ByteCount,
    drain: Drain,
    repeats_left: usize,
    last_lane: u8,
}

impl Receiver {
    pub(crate) fn new(now: Time, lanes: usize, room: ByteCount) -> Self {
        Self {
            number: 0,
            reported_at: now,
            pending_since: None,
            urgent: false,
            lows: vec![[u64::MAX; REPEATS]; lanes],
            newest_data: None,
            marks: Vec::with_capacity(MAX_MARKS),
            newest: None,
            thinning: 1,
            skipped_marks: 0,
            cluster_since: now,
            host_drops: [0; LANES],
            room,
            drain: Drain::new(now, room),
            repeats_left: 0,
            last_lane: 0,
        }
    }

    /// Consecutive data packets from `first` on were placed, some of them duplicates; `gap` if
    /// numbers before them are missing.
    #[inline]
    pub(crate) fn on_data(
        &mut self,
        lane: u8,
        first: u64,
        gap: bool,
        (packets, duplicates): (u32, u32),
        bytes: u64,
        stats: &mut FlowStats,
    ) {
        stats.received_packets += u64::from(packets);
        stats.received_bytes += ByteCount(bytes);
        stats.duplicate_packets += u64::from(duplicates);
        self.drain.placed += bytes;
        self.newest_data = self.newest_data.max(Some(first + u64::from(packets.max(1)) - 1));
        self.on_arrival(lane, first, gap);
    }

    /// A packet of any kind arrived that reports must contain.
    #[inline]
    pub(crate) fn on_arrival(&mut self, lane: u8, pn: u64, gap: bool) {
        let low = &mut self.lows[usize::from(lane)][0];
        *low = pn.min(*low);
        self.urgent |= gap;
    }

    /// Finishes a batch. Its newest data packet becomes a mark; the sender does not know when it
    /// sent control packets.
    pub(crate) fn on_batch(&mut self, now: Time, received_at: Time, lane: u8) {
        self.pending_since.get_or_insert(now);
        self.repeats_left = REPEATS;
        self.last_lane = lane;
        let Some(last) = self.newest_data.take() else { return };
        if self.joins(received_at, lane) {
            if let Some(mark) = self.marks.last_mut() {
                (mark.pn, mark.at) = (last.max(mark.pn), received_at);
            }
            return;
        }
        self.cluster_since = received_at;
        if self.marks.len() >= UNTHINNED_MARKS {
            self.skipped_marks += 1;
            if self.skipped_marks < self.thinning {
                self.newest = Some(Mark { lane, pn: last, at: received_at });
                return;
            }
            self.skipped_marks = 0;
        }
        self.newest = None;
        if self.marks.len() == MAX_MARKS {
            let mut i = 0;
            self.marks.retain(|_| {
                i += 1;
                i <= UNTHINNED_MARKS || i % 2 == 0
            });
            self.thinning *= 2;
        }
        self.marks.push(Mark { lane, pn: last, at: received_at });
    }

    /// Whether a batch belongs to the cluster of the newest mark. Where packets arrive singly,
    /// those that a tick of the network card or of an emulator released arrive close together, and
    /// only the time of the cluster's end is meaningful.
    fn joins(&self, at: Time, lane: u8) -> bool {
        let near = |mark: &Mark| mark.lane == lane && at.since(mark.at) < CLUSTER_GAP;
        self.skipped_marks == 0
            && self.marks.last().is_some_and(near)
            && at.since(self.cluster_since) < CLUSTER_SPAN
    }

    /// Sets the room of the pool. A report is due at once when room returns after it was low.
    pub(crate) fn set_room(&mut self, now: Time, room: ByteCount) {
        let low = self.drain.max_room.get() / LOW_ROOM;
        if self.room.get() < low && room.get() >= low {
            self.pending_since.get_or_insert(now);
            self.urgent = true;
        }
        self.room = room;
        self.drain.update(now, room);
    }

    pub(crate) fn host_drops(&mut self, lane: u8, total: u32) {
        if let Some(slot) = self.host_drops.get_mut(usize::from(lane)) {
            *slot = total;
        }
    }

    pub(crate) fn total_host_drops(&self) -> u64 {
        self.host_drops.iter().map(|n| u64::from(*n)).sum()
    }

    /// Makes a report due at once, for a tail probe.
    pub(crate) fn request_report(&mut self, now: Time) {
        self.pending_since.get_or_insert(now);
        self.urgent = true;
    }

    /// When the next report is due.
    pub(crate) fn poll_timeout(&self, srtt: Duration) -> Option<Time> {
        let interval = report_interval(srtt);
        match self.pending_since {
            Some(_) if self.urgent => Some(self.reported_at + REPORT_MIN / 4),
            Some(since) => Some((self.reported_at + interval).max(since)),
            // The last intervals are repeated also when nothing new arrives.
            None => (self.repeats_left > 0).then(|| self.reported_at + interval),
        }
    }

    /// The report due now, in as many frames as its intervals need, one per packet.
    pub(crate) fn poll(
        &mut self,
        now: Time,
        srtt: Duration,
        lanes: &[Lane],
        stats: &FlowStats,
    ) -> Vec<Frame> {
        if self.poll_timeout(srtt).is_none_or(|due| now < due) {
            return Vec::new();
        }
        self.drain.set_rtt(srtt);
        let mut acks = self.intervals(lanes);
        let mut frames = Vec::with_capacity(1);
        loop {
            let mut report = self.head(now, stats);
            let mut used = 0;
            while let Some(ack) = acks.last() {
                used += ack_len(ack);
                if used > ACK_BYTES && !report.acks.is_empty() {
                    break;
                }
                report.acks.extend(acks.pop());
            }
            frames.push(Frame::Report(report));
            if acks.is_empty() {
                break;
            }
        }
        self.next_interval(now);
        frames
    }

    fn head(&mut self, now: Time, stats: &FlowStats) -> Report {
        self.number += 1;
        if let Some(newest) = self.newest.take() {
            self.marks.truncate(MAX_MARKS - 1);
            self.marks.push(newest);
        }
        Report {
            number: self.number,
            at: now,
            received: stats.received_bytes,
            refused: stats.refused_packets,
            host_drops: self.total_host_drops(),
            ecn: EcnCounts { ect0: stats.ecn_ect0, ce: stats.ecn_ce },
            room: self.room,
            drain: self.drain.rate,
            marks: std::mem::take(&mut self.marks),
            acks: Vec::new(),
        }
    }

    /// The packets that arrived since the lowest number of the last intervals, per lane, split so
    /// that each piece fits a packet.
    fn intervals(&self, lanes: &[Lane]) -> Vec<Ack> {
        let mut acks = Vec::with_capacity(lanes.len());
        for (i, lane) in lanes.iter().enumerate() {
            let start = self.lows[i].iter().copied().min().unwrap_or(u64::MAX);
            let start = start.max(lane.window.floor());
            let end = lane.window.next();
            if start < end {
                let runs = lane.window.runs(start, end);
                split(Ack { lane: i as u8, start, end, runs }, &mut acks);
            }
        }
        acks
    }

    fn next_interval(&mut self, now: Time) {
        for low in &mut self.lows {
            low.rotate_right(1);
            low[0] = u64::MAX;
        }
        self.repeats_left = if self.pending_since.is_some() { REPEATS } else { self.repeats_left };
        self.repeats_left = self.repeats_left.saturating_sub(1);
        self.reported_at = now;
        self.pending_since = None;
        self.urgent = false;
        self.thinning = (self.thinning / 2).max(1);
    }

    /// The lane of the last received packet; reports use it.
    pub(crate) fn lane(&self) -> u8 {
        self.last_lane
    }
}

/// Splits an interval into pieces that each fit a packet.
fn split(ack: Ack, out: &mut Vec<Ack>) {
    if ack_len(&ack) <= ACK_BYTES || ack.runs.len() < 2 {
        out.push(ack);
        return;
    }
    let Ack { lane, start, end, mut runs } = ack;
    let upper = runs.split_off(runs.len() / 2);
    let middle = upper[0].0;
    split(Ack { lane, start, end: middle, runs }, out);
    split(Ack { lane, start: middle, end, runs: upper }, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_too_rich_for_a_packet_are_cut() {
        let runs: Vec<_> = (0..9000u64).map(|i| (i * 5, i * 5 + 2)).collect();
        let whole = Ack { lane: 0, start: 0, end: 45_000, runs: runs.clone() };
        let mut pieces = Vec::new();
        split(whole, &mut pieces);
        assert!(pieces.iter().all(|p| ack_len(p) <= ACK_BYTES));
        assert!(pieces.windows(2).all(|w| w[0].end == w[1].start));
        let told: Vec<_> = pieces.into_iter().flat_map(|p| p.runs).collect();
        assert_eq!(told, runs);
    }
}
