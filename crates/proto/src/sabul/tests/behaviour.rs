//! The behaviour of the two ends that the paper describes.

use packtrain_units::{Duration, Time};

use super::network::Pair;
use crate::sabul::{Message, State};
use crate::test_network::Path;

const RTT: Duration = Duration::from_millis(40);

fn pair(total: u64, buffer: u64) -> Pair {
    let path = Path::clean(RTT / 2);
    Pair::new("fixed:100mbit", (total, 1 << 20, buffer), 1, path, 1)
}

fn states(pair: &Pair) -> Vec<(Time, State)> {
    let state = |(at, said): &(Time, Message)| match said {
        Message::State(state) => Some((*at, state.clone())),
        _ => None,
    };
    pair.messages.iter().filter_map(state).collect()
}

#[test]
fn a_jump_is_told_at_once_and_all_every_500_packets() {
    let mut pair = pair(4_000, 10_000);
    pair.lose = Box::new(|_, unit| unit == 1_234);
    pair.run(RTT * 6);
    let states = states(&pair);
    let jump: Vec<&(Time, State)> = states.iter().filter(|(_, s)| s.whole.is_none()).collect();
    let &[(at, state)] = &jump[..] else { panic!("{jump:?}") };
    let sent = pair.left.iter().find(|(_, unit)| *unit == 1_235).unwrap().0;
    assert_eq!((state.lost.as_slice(), *at), (&[(1_234, 1_235)][..], sent + RTT / 2));
    let whole = states.iter().filter(|(_, s)| s.whole.is_some());
    let received: Vec<u64> = whole.map(|(_, s)| s.received).collect();
    assert!(received.starts_with(&[500, 1_000, 1_500]), "{received:?}");
}

#[test]
fn what_is_lost_leaves_again_when_the_buffer_has_left_once() {
    let mut pair = pair(4_000, 10_000);
    let mut left = 0;
    pair.lose = Box::new(move |_, _| {
        left += 1;
        left <= 4_000 && left % 100 == 0
    });
    pair.run(Duration::from_secs(9));
    assert!(pair.is_done());
    let order: Vec<u64> = pair.left.iter().map(|(_, unit)| *unit).collect();
    let first: Vec<u64> = (0..4_000).collect();
    assert_eq!(order[..4_000], first, "phase 1");
    let lost: Vec<u64> = (1..=40).map(|i| i * 100 - 1).collect();
    assert_eq!(order[4_000..], lost, "phase 2, each once");
    let (last, again) = (pair.left[3_999].0, pair.left[4_000].0);
    assert!(again.since(last) < Duration::from_millis(1), "no round trip in between");
}

#[test]
fn repeats_and_new_packets_leave_in_turn() {
    let mut pair = pair(4_000, 2_000);
    let mut left = 0;
    pair.lose = Box::new(move |_, _| {
        left += 1;
        left <= 1_000 && left % 10 == 0
    });
    pair.run(Duration::from_secs(9));
    assert!(pair.is_done());
    let order: Vec<u64> = pair.left.iter().map(|(_, unit)| *unit).collect();
    let turn: Vec<bool> = order[2_000..2_200].iter().map(|unit| *unit < 2_000).collect();
    assert!(turn.chunks(2).all(|pair| pair == [true, false]), "{turn:?}");
    assert!(order[2_200..].iter().all(|unit| *unit >= 2_100), "then the new ones alone");
}

#[test]
fn more_units_cannot_be_missing_than_were_sent() {
    let mut pair = pair(4_000, 10_000);
    pair.run(RTT * 2);
    let next = pair.sender.next();
    for (missing, honest) in [(next, true), (next + 1, false), (u64::MAX, false)] {
        let state = Message::State(State { missing, room: 100, ..State::default() });
        assert_eq!(pair.sender.on_message(pair.now, &state).is_ok(), honest, "{missing} of {next}");
    }
}

#[test]
fn a_lost_repeat_leaves_again_within_few_round_trips() {
    let mut pair = pair(2_000, 10_000);
    let mut times = 0;
    pair.lose = Box::new(move |_, unit| {
        times += u32::from(unit == 700);
        unit == 700 && times <= 4
    });
    pair.run(Duration::from_secs(9));
    assert!(pair.is_done());
    assert_eq!(pair.repeats(), 4, "no more often than needed");
    let again: Vec<Time> =
        pair.left.iter().filter(|(_, unit)| *unit == 700).map(|(at, _)| *at).collect();
    for two in again.windows(2).skip(1) {
        assert!(two[1].since(two[0]) < RTT * 2 + Duration::from_millis(50), "{again:?}");
    }
}

#[test]
fn a_lost_end_is_found() {
    let mut pair = pair(1_000, 10_000);
    let mut left = 0;
    pair.lose = Box::new(move |_, _| {
        left += 1;
        (900..=1_000).contains(&left)
    });
    pair.run(Duration::from_secs(9));
    assert!(pair.is_done());
    assert_eq!(pair.repeats(), 101);
    let took = pair.now.since(pair.left[999].0);
    assert!(took < RTT * 3 + Duration::from_millis(60), "{took}");
}

#[test]
fn nothing_that_came_leaves_again_however_late_the_channel() {
    let path = Path { loss: 10, late: Duration::from_millis(400), ..Path::clean(RTT / 2) };
    let mut pair = Pair::new("fixed:100mbit", (20_000, 1 << 20, 5_000), 1, path, 7);
    pair.run(Duration::from_secs(99));
    assert!(pair.is_done());
    // One packet in a hundred is lost, and one in a hundred of those once more.
    assert!((150..260).contains(&pair.repeats()), "{}", pair.repeats());
}

#[test]
fn at_thirty_per_cent_loss_little_is_sent_for_nothing() {
    let path = Path { loss: 300, ..Path::clean(RTT / 2) };
    let mut pair = Pair::new("fixed:100mbit", (20_000, 1 << 20, 5_000), 1, path, 3);
    pair.run(Duration::from_secs(100));
    assert!(pair.is_done());
    let (needed, sent) = (20_000.0 * 0.3 / 0.7, pair.repeats() as f64);
    assert!(sent < needed * 1.1, "{sent} for {needed}");
}
