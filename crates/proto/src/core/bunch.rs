//! Packets that were sent at different times and arrived together: jitter that keeps their order
//! holds them up behind the slowest. A queue does not do this: it lets packets out one by one, at
//! the rate of its link.

use packtrain_units::{DataRate, Duration, Time};

use crate::codec::frame::{Mark, Report};
use crate::codec::header::DATA_OVERHEAD;
use crate::core::lane::Lane;
use crate::core::receiver::{CLUSTER_SPAN, UNTHINNED_MARKS};

/// By how much the rate within a bunch must exceed the capacity of the path.
const ABOVE_CAPACITY: f64 = 1.5;
/// The capacity that is assumed where none was measured: two full packets make a bunch. Where jitter
/// keeps the rate down, bunches are no longer than that, and the jitter may hide the capacity too.
const UNMEASURED: DataRate = DataRate::from_mbps(200);

/// Packets of several lanes that arrive within this time arrive together: each lane has a call of its
/// own.
const BUNCH_SPAN: Duration = Duration::from_micros(250);

/// A marked packet as it was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Time,
    /// Its number in the order of all lanes.
    index: u64,
    /// Size of the datagram, in bytes.
    size: u64,
}

/// The longest time between the sending of two packets that arrived together, by the marks of a
/// report, which are in the order of arrival. `before` is the last mark of the report before it;
/// `capacity` is that of the narrowest link, if it is known.
pub(super) fn longest(
    report: &Report,
    before: Option<Mark>,
    lanes: &[Lane],
    capacity: Option<DataRate>,
) -> Duration {
    let capacity = capacity.unwrap_or(UNMEASURED);
    // Later marks leave out arrivals between them.
    let unthinned = report.marks.iter().take(UNTHINNED_MARKS);
    let marks: Vec<Mark> = before.iter().chain(unthinned).copied().collect();
    let is_whole = report.acks.iter().all(|ack| ack.runs.len() == 1);
    let pairs = (1..marks.len()).flat_map(|later| (0..later).map(move |early| (early, later)));
    let bunches = pairs.filter_map(|(early, later)| {
        let (before, mark) = (marks[early], marks[later]);
        let span = mark.at.since(before.at).max(CLUSTER_SPAN);
        let last = find(lanes, mark.lane, mark.pn)?;
        let (first, packets, span) = if before.lane == mark.lane {
            // All after the mark before arrived as one cluster, unless some were lost.
            let next = before.pn.checked_add(1)?;
            if early + 1 != later || !arrived(report, mark.lane, next, mark.pn) {
                return None;
            }
            let first = find(lanes, before.lane, next)?;
            (first, mark.pn.checked_sub(before.pn)?, CLUSTER_SPAN)
        } else if is_whole && span < BUNCH_SPAN {
            let first = find(lanes, before.lane, before.pn)?;
            (first, last.index.checked_sub(first.index)?, span)
        } else {
            return None;
        };
        let bits = (packets * last.size * 8) as f64;
        let carried = capacity.as_bps() as f64 * span.as_secs_f64();
        (bits > ABOVE_CAPACITY * carried).then(|| last.at.since(first.at))
    });
    bunches.max().unwrap_or(Duration::ZERO)
}

/// Whether a report acknowledges all packets from `first` to `last`.
fn arrived(report: &Report, lane: u8, first: u64, last: u64) -> bool {
    let runs = report.acks.iter().filter(|ack| ack.lane == lane).flat_map(|ack| &ack.runs);
    runs.into_iter().any(|&(start, end)| start <= first && last < end)
}

fn find(lanes: &[Lane], lane: u8, pn: u64) -> Option<Sent> {
    let sent = lanes.get(usize::from(lane))?.ledger.find(pn)?;
    let size = u64::from(sent.train.size) + DATA_OVERHEAD as u64;
    Some(Sent { at: sent.sent_at, index: sent.index + (pn - sent.train.first), size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::frame::Ack;
    use crate::core::ledger::{self, Train};

    const CAPACITY: DataRate = DataRate::from_mbps(100);

    fn at(us: u64) -> Time {
        Time::ZERO + Duration::from_micros(us)
    }

    /// Two lanes that take turns with trains of four packets, one each millisecond.
    fn lanes() -> Vec<Lane> {
        let mut lanes = vec![Lane::new(vec![], false, at(0)), Lane::new(vec![], false, at(0))];
        for i in 0..20u64 {
            let lane = &mut lanes[(i % 2) as usize];
            let first = lane.ledger.next();
            let train = Train { first, count: 4, size: 1_400, last: 1_400, offset: i * 5_600 };
            lane.ledger.push(ledger::Sent::new(train, i * 4, at(i * 1_000)));
        }
        lanes
    }

    /// The result for marks as (lane, number, microseconds), with these packets of lane 0 missing.
    fn longest_of(marks: &[(u8, u64, u64)], missing: std::ops::Range<u64>) -> Duration {
        let runs = [(0, missing.start), (missing.end, 40)];
        let runs = if missing.is_empty() { vec![(0, 40)] } else { runs.to_vec() };
        let acks = vec![
            Ack { lane: 0, start: 0, end: 40, runs },
            Ack { lane: 1, start: 0, end: 40, runs: vec![(0, 40)] },
        ];
        let marks = marks.iter().map(|&(lane, pn, us)| Mark { lane, pn, at: at(us) }).collect();
        longest(&Report { marks, acks, ..Report::default() }, None, &lanes(), Some(CAPACITY))
    }

    #[test]
    fn trains_that_arrive_one_by_one_are_no_bunch() {
        assert_eq!(
            longest_of(&[(0, 3, 20_000), (1, 3, 21_000), (0, 7, 22_000)], 0..0),
            Duration::ZERO
        );
        // A queue lets them out at the rate of its link, 0.12 ms for each packet.
        assert_eq!(
            longest_of(&[(0, 3, 20_000), (1, 3, 20_470), (0, 7, 20_940)], 0..0),
            Duration::ZERO
        );
    }

    #[test]
    fn packets_of_different_times_that_arrive_together_are_one_on_any_lane() {
        let ms = Duration::from_millis;
        assert_eq!(longest_of(&[(0, 3, 20_000), (1, 3, 20_050)], 0..0), ms(1), "two lanes");
        let several = [(0, 3, 20_000), (1, 3, 20_060), (0, 7, 20_110)];
        assert_eq!(longest_of(&several, 0..0), ms(1), "of all pairs of lanes");
        let three = [(0, 3, 20_000), (0, 7, 20_060), (1, 7, 20_110)];
        assert_eq!(longest_of(&three, 0..0), ms(3), "not only of neighbours");
        // The last four packets of lane 0 before, and then twelve at once, sent over 4 ms.
        assert_eq!(longest_of(&[(0, 3, 20_000), (0, 15, 26_000)], 0..0), ms(4), "one lane");
    }

    #[test]
    fn a_slow_flow_has_a_mark_a_report() {
        let acks = [0, 1].map(|lane| Ack { lane, start: 0, end: 40, runs: vec![(0, 40)] });
        let longest_after = |before: Option<(u64, u64)>, capacity| {
            let before = before.map(|(pn, us)| Mark { lane: 0, pn, at: at(us) });
            let marks = vec![Mark { lane: 0, pn: 7, at: at(22_000) }];
            let report = Report { marks, acks: acks.to_vec(), ..Report::default() };
            longest(&report, before, &lanes(), capacity)
        };
        // The packets 2 and 3 were sent 2 ms before 4 to 7, and arrived with them.
        let ms = Duration::from_millis;
        assert_eq!(longest_after(Some((1, 20_000)), Some(CAPACITY)), ms(2));
        assert_eq!(longest_after(Some((1, 20_000)), None), ms(2));
        assert_eq!(longest_after(Some((3, 20_000)), None), ms(0));
        assert_eq!(longest_after(None, None), ms(0), "nobody knows when the others arrived");
    }

    #[test]
    fn packets_that_were_lost_did_not_arrive_together() {
        assert_eq!(longest_of(&[(0, 3, 20_000), (0, 15, 26_000)], 5..14), Duration::ZERO);
        assert_eq!(longest_of(&[(0, 3, 20_000), (1, 3, 20_050)], 5..14), Duration::ZERO);
    }

    #[test]
    fn marks_that_cannot_be_are_ignored() {
        let marks = [(0, u64::MAX, 0), (0, 3, 1), (9, 4, 2), (1, 3, 2), (1, 1, 3), (0, 70, 3)];
        assert_eq!(longest_of(&marks, 0..0), Duration::from_millis(1), "of the others");
        assert_eq!(longest_of(&[], 0..0), Duration::ZERO);
    }
}
