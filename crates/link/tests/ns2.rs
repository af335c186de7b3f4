//! A drop-tail queue against ns-2.35: the same packets die.

use packtrain_link::{Count, DropCause, Element, Link, LinkConfig, Observer, Pace};
use packtrain_units::{DataRate, Duration, Time};

/// Made by `ns2/queue.tcl` with seed 3.
const ARRIVALS: &str = include_str!("ns2/droptail.txt");

#[derive(Default)]
struct Dropped(Vec<u64>);

impl Observer<Count> for Dropped {
    fn dropped(&mut self, _: Pace, train: Count, cause: DropCause) {
        assert_eq!(cause, DropCause::Overflow);
        self.0.extend((0..u64::from(train.count)).map(|i| train.first + i));
    }
}

#[test]
fn the_same_packets_die_as_in_ns2() {
    // ns-2's limit is 20, of which one is never used: it compares `length + 1 >= limit`.
    let config = LinkConfig::new(DataRate::from_mbps(10), Duration::from_millis(1), 19);
    let (mut link, mut observed) = (Link::new(config), Dropped::default());
    let (mut now, mut expected) = (Time::ZERO, Vec::new());
    for (word, number) in ARRIVALS.split_whitespace().zip(0..) {
        let gap = word.trim_end_matches('!');
        if gap.len() < word.len() {
            expected.push(number);
        }
        now += Duration::from_micros(gap.parse().unwrap());
        link.offer(Pace::at(now), Count { count: 1, size: 1_000, first: number }, &mut observed);
    }
    assert_eq!(expected.len(), 271);
    assert_eq!(observed.0, expected);
}
