use std::collections::VecDeque;

use packtrain_units::{ByteCount, DataRate, Rng};
use proptest::prelude::*;

use super::*;
use crate::config::{Limit, LinkConfig, QueueConfig};
use crate::element::{Count, DropCause, Element, Observer, Pace, Segments};
use crate::link::Link;

/// The procedure of RFC 8289 section 5, packet by packet, as a reference.
struct Plain {
    target: u64,
    interval: u64,
    queue: VecDeque<(u64, u64)>,
    bytes: u64,
    maxpacket: u64,
    first_above: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
    dropped: Vec<(u64, u64)>,
}

impl Plain {
    fn pull(&mut self, now: u64) -> (Option<u64>, bool) {
        let Some((arrived, number)) = self.queue.pop_front() else {
            self.first_above = 0;
            return (None, false);
        };
        self.bytes -= SIZE;
        if now - arrived < self.target || self.bytes <= self.maxpacket {
            self.first_above = 0;
            return (Some(number), false);
        }
        if self.first_above == 0 {
            self.first_above = now + self.interval;
            return (Some(number), false);
        }
        (Some(number), now >= self.first_above)
    }

    fn law(&self, from: u64) -> u64 {
        from + (self.interval as f64 / f64::from(self.count).sqrt()) as u64
    }

    fn deque(&mut self, now: u64) -> Option<u64> {
        let (mut packet, mut ok) = self.pull(now);
        if self.dropping {
            self.dropping &= ok;
            while self.dropping && now >= self.drop_next {
                self.dropped.extend(packet.map(|n| (now, n)));
                self.count += 1;
                (packet, ok) = self.pull(now);
                if ok {
                    self.drop_next = self.law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok {
            self.dropped.extend(packet.map(|n| (now, n)));
            packet = self.pull(now).0;
            self.dropping = true;
            let delta = self.count.wrapping_sub(self.lastcount);
            let recent = now.saturating_sub(self.drop_next) < 16 * self.interval;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = self.law(now);
            self.lastcount = self.count;
        }
        packet
    }
}

const SIZE: u64 = 1_000;
/// At 100 Mbit/s.
const TRANSMISSION_NS: u64 = 80_000;

/// Departures from the transmitter and drops at the head.
type Outcomes = (Vec<(u64, u64)>, Vec<(u64, u64)>);

fn plain(config: &CoDelConfig, arrivals: &[u64]) -> Outcomes {
    let (target, interval) = (config.target.as_nanos(), config.interval.as_nanos());
    let mut plain = Plain {
        target,
        interval,
        queue: VecDeque::new(),
        bytes: 0,
        maxpacket: SIZE,
        first_above: 0,
        drop_next: 0,
        count: 0,
        lastcount: 0,
        dropping: false,
        dropped: Vec::new(),
    };
    let (mut left, mut free, mut next) = (Vec::new(), 0, 0);
    loop {
        let start = plain.queue.front().map(|(arrived, _)| free.max(*arrived));
        match (start, arrivals.get(next)) {
            (Some(start), arrival) if arrival.is_none_or(|at| start <= *at) => {
                if let Some(number) = plain.deque(start) {
                    free = start + TRANSMISSION_NS;
                    left.push((free, number));
                }
            }
            (_, Some(at)) => {
                plain.queue.push_back((*at, next as u64));
                plain.bytes += SIZE;
                next += 1;
            }
            (_, None) => return (left, plain.dropped),
        }
    }
}

#[derive(Default)]
struct Drops(Vec<(u64, u64)>);

impl Observer<Count> for Drops {
    fn dropped(&mut self, at: Pace, train: Count, cause: DropCause) {
        assert_eq!((train.count(), cause), (1, DropCause::Early));
        self.0.push((at.first.as_nanos(), train.first));
    }
}

fn with_link(config: &CoDelConfig, arrivals: &[u64]) -> Outcomes {
    let link = LinkConfig::new(DataRate::from_mbps(100), Duration::ZERO, 1);
    let mut link = Link::new(LinkConfig { queue: QueueConfig::CoDel(*config), ..link });
    let (mut drops, mut left) = (Drops::default(), Vec::new());
    for (at, first) in arrivals.iter().zip(0..) {
        let packet = Count { count: 1, size: SIZE as u32, first };
        link.offer(Pace::at(Time::from_nanos(*at)), packet, &mut drops);
    }
    let end = Time::from_nanos(u64::MAX - 1);
    while let Some((pace, train)) = link.poll_departure(end, &mut drops) {
        let each = 0..train.count;
        left.extend(each.map(|i| (pace.time(i).as_nanos(), train.first + u64::from(i))));
    }
    (left, drops.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn it_does_what_the_rfc_says(seed: u64, target in 1..5u64, busy in 50_000..90_000u64) {
        let limit = Limit::Bytes(ByteCount(u64::MAX));
        let (target, interval) = (Duration::from_millis(target), Duration::from_millis(20));
        let config = CoDelConfig { limit, target, interval };
        let (mut rng, mut now) = (Rng::new(seed), 0);
        // Alternating periods of overload and underload.
        let arrivals: Vec<u64> = (0..6_000u64).map(|i| {
            now += rng.below(if i / 1_500 % 2 == 0 { 2 * busy } else { 200_000 });
            now
        }).collect();
        prop_assert_eq!(with_link(&config, &arrivals), plain(&config, &arrivals));
    }
}

/// As `Count`, with marks.
#[derive(Clone, Copy, Debug)]
struct Marking(Count, bool);

impl Segments for Marking {
    fn count(&self) -> u32 {
        self.0.count
    }

    fn size(&self, i: u32) -> u32 {
        self.0.size(i)
    }

    fn split_off(&mut self, at: u32) -> Self {
        Self(self.0.split_off(at), self.1)
    }

    fn duplicate(&self) -> Self {
        *self
    }

    fn is_ect(&self) -> bool {
        true
    }

    fn mark(&mut self) {
        self.1 = true;
    }
}

/// Marks come at the times of Linux (`codel_dequeue` with `ecn`): the first after an interval above
/// the target, the next ones ever sooner, and no packet is lost.
#[test]
fn marks_follow_the_control_law() {
    let limit = Limit::Packets(100_000);
    let (target, interval) = (Duration::from_millis(5), Duration::from_millis(100));
    let queue = QueueConfig::CoDel(CoDelConfig { limit, target, interval });
    let link = LinkConfig::new(DataRate::from_mbps(100), Duration::ZERO, 1);
    let mut link = Link::new(LinkConfig { queue, ..link });
    // Twice what the link carries, for half a second.
    for i in 0..12_500 {
        let packet = Count { count: 1, size: SIZE as u32, first: i };
        link.offer(Pace::at(Time::from_nanos(i * 40_000)), Marking(packet, false), &mut ());
    }
    let (mut marks, mut left) = (Vec::new(), 0);
    while let Some((pace, Marking(train, ce))) =
        link.poll_departure(Time::ZERO + Duration::from_millis(500), &mut ())
    {
        left += train.count;
        if ce {
            marks.push(pace.first.as_nanos() / 1_000_000);
        }
    }
    assert_eq!(left, 6_250);
    // The target is passed after 10 ms; then intervals of 100, 100 / sqrt 2, 100 / sqrt 3 and so on.
    assert_eq!(marks, [110, 210, 280, 338, 388, 433, 474]);
}

#[test]
fn a_standing_queue_is_brought_down() {
    let limit = Limit::Packets(100_000);
    let (target, interval) = (Duration::from_millis(5), Duration::from_millis(100));
    let config = CoDelConfig { limit, target, interval };
    // One packet in a hundred too many, from senders that do not slow down: the drop rate rises
    // until it suffices.
    let arrivals: Vec<u64> = (0..400_000).map(|i| i * 79_200).collect();
    let (left, dropped) = with_link(&config, &arrivals);
    assert!((3_700..4_300).contains(&dropped.len()), "{}", dropped.len());
    let waits = left.iter().map(|(at, n)| at - arrivals[*n as usize]);
    let (longest, last) = (waits.clone().max(), waits.clone().next_back());
    assert!(longest < Some(60_000_000), "{longest:?}");
    assert!(last < Some(10_000_000), "{last:?}");
}
