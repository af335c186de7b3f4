use packtrain_units::Time;

use super::*;
use crate::bottleneck::{MSS, config, silence};
use crate::interface::LossRange;

fn loss(first: u64) -> LossRange {
    LossRange { first, count: 1, bytes: ByteCount(MSS), sent_at: Time::ZERO }
}

fn sent(window: &mut Window, first: u64, count: u32) {
    window.on_sent(&Sent {
        now: Time::ZERO,
        first,
        count,
        bytes: ByteCount(u64::from(count) * MSS),
        in_flight: ByteCount(u64::from(count) * MSS),
        retransmission: false,
        app_limited: false,
    });
}

fn acked(largest: u64, packets: u64) -> Feedback<'static> {
    Feedback {
        largest_acked: Some(largest),
        acked: ByteCount(packets * MSS),
        acked_packets: packets,
        ..silence(Time::ZERO)
    }
}

#[test]
fn one_cut_a_round_and_no_growth_before_the_next() {
    let mut window = Window::new(&config(), &Start::default());
    sent(&mut window, 0, 10);
    assert_eq!(window.on_feedback(&acked(0, 1)), Action::Grow(1.0));
    assert_eq!(window.on_feedback(&Feedback { lost: &[loss(1)], ..acked(4, 3) }), Action::Cut);
    window.cut(0.5);
    assert_eq!((window.cwnd, window.ssthresh), (5.0, 5.0));
    assert_eq!(window.on_feedback(&Feedback { lost: &[loss(9)], ..acked(8, 1) }), Action::Hold);
    assert_eq!(window.on_feedback(&acked(9, 1)), Action::Hold, "sent before the cut");
    sent(&mut window, 10, 5);
    assert_eq!(window.on_feedback(&Feedback { ecn_ce: 1, ..acked(9, 0) }), Action::Hold);
    assert_eq!(window.on_feedback(&acked(10, 1)), Action::Grow(1.0));
    assert_eq!(window.on_feedback(&Feedback { ecn_ce: 1, ..acked(11, 1) }), Action::Cut);
    assert_eq!(window.on_feedback(&Feedback { lost: &[loss(12)], ..acked(14, 1) }), Action::Hold);
}

#[test]
fn a_window_keeps_its_bytes_when_packets_change() {
    let mut window = Window::new(&config(), &Start::default());
    sent(&mut window, 0, 10);
    window.on_feedback(&acked(0, 1));
    window.cut(0.5);
    let factor = window.set_mtu(ByteCount(MSS / 2));
    assert_eq!((factor, window.cwnd, window.ssthresh), (2.0, 10.0, 10.0));
    assert_eq!(window.bytes(), ByteCount(5 * MSS));
}

#[test]
fn a_timer_that_runs_out_again_and_again_halves_the_threshold_once() {
    let mut window = Window::new(&config(), &Start::default());
    sent(&mut window, 0, 10);
    let timeout = Feedback { timeout: true, ..silence(Time::ZERO) };
    assert_eq!(window.on_feedback(&timeout), Action::Collapse);
    window.collapse(0.5);
    window.collapse(0.5);
    assert_eq!((window.cwnd, window.ssthresh), (1.0, 5.0));
    sent(&mut window, 10, 1);
    assert_eq!(window.on_feedback(&acked(10, 1)), Action::Grow(1.0));
    window.collapse(0.5);
    assert_eq!(window.ssthresh, 2.0);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut window = Window::new(&config(), &Start::default());
    window.cwnd = 1_000.0;
    sent(&mut window, 0, 400);
    assert_eq!(window.on_feedback(&acked(0, 1)), Action::Unused);
    sent(&mut window, 400, 500);
    assert_eq!(window.on_feedback(&acked(1, 1)), Action::Grow(1.0));
    window.ssthresh = 100.0;
    sent(&mut window, 900, 700);
    assert_eq!(window.on_feedback(&acked(2, 1)), Action::Unused);
    sent(&mut window, 1_600, 750);
    assert_eq!(window.on_feedback(&acked(3, 1)), Action::Grow(1.0));
}

#[test]
fn whole_packets_add_up_and_a_cut_forgets_what_was_added() {
    let start = Start { whole_packets: true, ..Start::default() };
    let mut window = Window::new(&config(), &start);
    window.cut(0.5);
    assert_eq!(window.cwnd, 5.0);
    for _ in 0..2 {
        window.climb(2.0, 5.0);
    }
    assert_eq!(window.cwnd, 5.0);
    window.climb(2.0, 5.0);
    assert_eq!(window.cwnd, 6.0);
    // One of the six is left; with four more the window would grow.
    window.climb(4.0, 6.0);
    window.cut(0.5);
    assert_eq!(window.cwnd, 3.0);
    window.climb(2.0, 3.0);
    assert_eq!(window.cwnd, 3.0);
    window.cut(0.7);
    assert_eq!(window.cwnd, 2.0);
}

#[test]
fn losses_that_all_arrive_undo_the_cut() {
    let mut window = Window::new(&config(), &Start::default());
    sent(&mut window, 0, 10);
    window.on_feedback(&acked(0, 1));
    let (cwnd, ssthresh) = (window.cwnd, window.ssthresh);
    let lost = Feedback { lost: &[loss(1)], ..acked(4, 1) };
    assert_eq!(window.on_feedback(&lost), Action::Cut);
    window.cut(0.5);
    let more = Feedback { lost: &[loss(2)], ..acked(5, 1) };
    assert_eq!(window.on_feedback(&more), Action::Hold);
    assert_eq!(window.on_feedback(&Feedback { spurious: 1, ..acked(6, 1) }), Action::Hold);
    assert_eq!(window.on_feedback(&Feedback { spurious: 1, ..acked(7, 1) }), Action::Undo);
    assert_eq!((window.cwnd, window.ssthresh), (cwnd, ssthresh));
    // A further loss of the same window is a new event, and its packets are others.
    assert_eq!(window.on_feedback(&Feedback { lost: &[loss(3)], ..acked(8, 1) }), Action::Cut);
    window.cut(0.5);
    assert_eq!(window.on_feedback(&Feedback { spurious: 0, ..acked(9, 1) }), Action::Hold);
    assert!(window.cwnd < cwnd);
}

#[test]
fn what_a_mark_or_an_earlier_loss_explains_is_not_undone() {
    let mut window = Window::new(&config(), &Start::default());
    sent(&mut window, 0, 10);
    let marked = Feedback { lost: &[loss(1)], ecn_ce: 1, ..acked(4, 1) };
    assert_eq!(window.on_feedback(&marked), Action::Cut);
    assert_eq!(window.on_feedback(&Feedback { spurious: 1, ..acked(5, 1) }), Action::Hold);
    sent(&mut window, 10, 10);
    assert_eq!(window.on_feedback(&Feedback { lost: &[loss(11)], ..acked(14, 1) }), Action::Cut);
    sent(&mut window, 20, 10);
    assert_eq!(window.on_feedback(&Feedback { lost: &[loss(21)], ..acked(24, 1) }), Action::Cut);
    let late = Feedback { spurious: 1, ..acked(25, 1) };
    assert_ne!(window.on_feedback(&late), Action::Undo, "it may be the one of the cut before");
    assert_eq!(window.on_feedback(&late), Action::Undo);
}

#[test]
fn a_collapse_is_undone_as_well() {
    let mut window = Window::new(&config(), &Start::default());
    sent(&mut window, 0, 10);
    let lost = LossRange { count: 9, ..loss(0) };
    let timeout = Feedback { timeout: true, lost: &[lost], ..acked(9, 1) };
    assert_eq!(window.on_feedback(&timeout), Action::Collapse);
    window.collapse(0.5);
    assert_eq!(window.on_feedback(&Feedback { spurious: 9, ..acked(8, 9) }), Action::Undo);
    assert_eq!(window.cwnd, 10.0);
}
