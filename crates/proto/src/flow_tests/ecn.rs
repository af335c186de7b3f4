//! Congestion marks, and paths that do not carry them.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn setup(controller: &'static str) -> Setup {
    Setup { ecn: true, ..Setup::new(controller, DataRate::from_mbps(100), MS * 40) }
}

/// A flow over a link that marks above a tenth of its queue: how many packets were lost, how many
/// were marked, and the goodput of the second half in Mbit/s.
fn marked(controller: &'static str) -> (u64, u64, f64) {
    let mut pair = setup(controller).pair();
    pair.forward.queue = MS * 100;
    pair.forward.marking = Marking::Above(MS * 10);
    pair.assign(1 << 40);
    pair.run(MS * 10_000, |_| false);
    let (at, bytes) = (pair.now, pair.sink.bytes());
    pair.run(MS * 10_000, |_| false);
    let goodput = pair.goodput(at, pair.sink.bytes() - bytes).as_bps() as f64 / 1e6;
    let stats = pair.sender.stats();
    assert!(stats.ecn, "{controller}: the path carries marks");
    (stats.lost_packets, stats.ecn_ce, goodput)
}

#[test]
fn a_mark_slows_a_flow_down_before_it_loses_anything() {
    for controller in ["reno", "cubic", "highspeed", "scalable", "native"] {
        let (lost, marks, goodput) = marked(controller);
        assert_eq!(lost, 0, "{controller}");
        assert!(goodput > 70.0, "{controller}: {goodput} Mbit/s");
        if controller != "native" {
            assert!(marks > 0, "{controller}");
        }
    }
}

#[test]
fn a_path_that_does_not_carry_marks_is_found_out() {
    for marking in [Marking::Clear, Marking::All, Marking::Drop] {
        let mut pair = setup("cubic").pair();
        pair.forward.marking = marking;
        let len = 20_000_000;
        pair.assign(len);
        assert!(pair.run(MS * 10_000, Pair::idle), "{marking:?} {:?}", pair.sender.stats());
        let stats = pair.sender.stats();
        assert!(!stats.ecn && stats.ecn_ce == 0, "{marking:?} {stats:?}");
        assert!(pair.sink.is_whole(len));
    }
}

#[test]
fn a_controller_that_ignores_marks_does_not_ask_for_them() {
    for controller in ["fixed:50mbit", "bbr", "udt:grid"] {
        let mut pair = Setup { feedback: FeedbackKind::Native, ..setup(controller) }.pair();
        pair.assign(1_000_000);
        assert!(pair.run(MS * 5_000, Pair::idle), "{controller}");
        assert!(!pair.sender.stats().ecn, "{controller}");
        assert_eq!(pair.receiver.stats().ecn_ect0, 0, "{controller}");
    }
}

#[test]
fn only_data_is_marked_and_only_on_request() {
    let mut pair = Setup { ecn: false, ..setup("cubic") }.pair();
    pair.forward.marking = Marking::Drop;
    pair.assign(1_000_000);
    assert!(pair.run(MS * 5_000, Pair::idle), "nothing is marked");
    assert_eq!(pair.receiver.stats().ecn_ect0, 0);
    let mut pair = setup("cubic").pair();
    pair.assign(1_000_000);
    assert!(pair.run(MS * 5_000, Pair::idle));
    let stats = pair.receiver.stats();
    assert_eq!(stats.ecn_ect0, stats.received_packets, "and no ping");
}
