use super::*;
use crate::element::{Count, Element, Pace};
use crate::{Link, LinkConfig};

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn mbit(rate: u64) -> DataRate {
    DataRate::from_mbps(rate)
}

#[test]
fn a_delivery_a_millisecond_is_twelve_megabits() {
    let every = RateSchedule::from_trace("1\n2\n3\n4\n").unwrap();
    assert_eq!(every.steps, [(at(0), mbit(12))]);
    assert_eq!((every.period, every.mean()), (Some(Duration::from_millis(4)), mbit(12)));
    // Blanks and line ends of another system are no content.
    assert_eq!(RateSchedule::from_trace(" 1\r\n2 \r\n3\r\n4"), Ok(every));
}

#[test]
fn deliveries_end_their_millisecond_and_gaps_have_no_rate() {
    let schedule = RateSchedule::from_trace("0\n2\n2\n2\n5\n10\n").unwrap();
    // The delivery at zero is that of the end, in every round.
    let steps = [(0, 0), (1, 36), (2, 0), (4, 12), (5, 0), (9, 24)];
    assert_eq!(schedule.steps, steps.map(|(ms, rate)| (at(ms), mbit(rate))));
    assert_eq!(schedule.period, Some(Duration::from_millis(10)));
    assert_eq!(schedule.mean(), DataRate::from_bps(6 * 1_500 * 8 * 100));
    schedule.check().unwrap();
}

#[test]
fn packets_leave_at_the_times_of_the_trace_and_of_its_repetitions() {
    let mut config = LinkConfig::new(mbit(1), Duration::ZERO, 100);
    config.rate = RateSchedule::from_trace("3\n7\n7\n10\n").unwrap();
    let mut link = Link::new(config);
    link.offer(Pace::at(Time::ZERO), Count { count: 10, size: 1_500, first: 0 }, &mut ());
    let mut left = Vec::new();
    while let Some((pace, train)) = link.poll_departure(Time::MAX, &mut ()) {
        left.extend((0..train.count).map(|i| pace.time(i).as_nanos()));
    }
    let wanted = [3_000, 6_500, 7_000, 10_000, 13_000, 16_500, 17_000, 20_000, 23_000, 26_500];
    assert_eq!(left, wanted.map(|micros| micros * 1_000));
}

#[test]
fn hostile_traces_are_refused_with_the_line() {
    for (text, line) in [
        ("1\n2\nthree\n", 3),
        ("1\n\n2\n", 2),
        ("5\n4\n", 2),
        ("-1\n", 1),
        ("+1\n", 1),
        ("1.5\n", 1),
        ("1\n2 3\n", 2),
        ("1\n99999999999999999999999\n", 2),
        ("1\n86400001\n", 2),
        ("\u{0}\n", 1),
        ("\u{661}\n", 1),
    ] {
        match RateSchedule::from_trace(text) {
            Err(TraceError::Line { line: found, .. }) => assert_eq!(found, line, "{text:?}"),
            other => panic!("{text:?}: {other:?}"),
        }
    }
    for empty in ["", "0\n0\n"] {
        assert_eq!(RateSchedule::from_trace(empty), Err(TraceError::Empty), "{empty:?}");
    }
    let long = "1\n".repeat(RateSchedule::MAX_TRACE_BYTES / 2) + "1";
    assert_eq!(RateSchedule::from_trace(&long), Err(TraceError::Size(long.len())));
    // The most deliveries that fit are no overflow, and one step.
    let most = RateSchedule::from_trace(&long[..RateSchedule::MAX_TRACE_BYTES]).unwrap();
    assert_eq!(most.steps.len(), 1);
    most.check().unwrap();
    // An error names no more of a line than a user can read.
    let error = RateSchedule::from_trace(&"x".repeat(1_000_000)).unwrap_err().to_string();
    assert!(error.len() < 200, "{error}");
}
