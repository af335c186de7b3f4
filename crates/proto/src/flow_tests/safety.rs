//! Disturbances that are not the path's: slow disks, late threads, writers that take blocks, packets
//! that were only late; and queues of single lanes.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn path(controller: &'static str, mbit: u64, rtt: u64) -> Setup {
    Setup::new(controller, DataRate::from_mbps(mbit), MS * rtt)
}

/// A disk of 20 Mbit/s for ten seconds says nothing about a path of 100 Mbit/s.
#[test]
fn a_slow_disk_is_not_taken_for_a_slow_path() {
    for controller in ["bbr", "native"] {
        let mut pair = path(controller, 100, 40).pair();
        pair.assign(1 << 40);
        pair.run(seconds(4), |_| false);
        let before = pair.sender.stats().pacing_rate.unwrap();
        assert!(before > DataRate::from_mbps(75), "{controller} {before}");
        pair.source.read_to = pair.sender.stats().sent_bytes.get();
        pair.source.disk = Some((DataRate::from_mbps(20), pair.now));
        pair.run(seconds(10), |_| false);
        pair.source.disk = None;
        let (at, bytes) = (pair.now, pair.sink.bytes());
        pair.run(MS * 400, |_| false);
        let goodput = pair.goodput(at, pair.sink.bytes() - bytes);
        assert!(goodput > DataRate::from_mbps(65), "{controller}: {goodput}");
    }
}

#[test]
fn a_sender_that_gets_a_processor_late_keeps_its_rate() {
    for turns in [0, 2, 5] {
        let mut pair = path("fixed:80mbit", 1_000, 40).pair();
        pair.turns = MS * turns;
        pair.assign(1 << 40);
        pair.run(seconds(1), |_| false);
        let (at, bytes) = (pair.now, pair.sink.bytes());
        pair.run(seconds(4), |_| false);
        // The rate counts headers and tags too.
        let mbps = pair.goodput(at, pair.sink.bytes() - bytes).as_bps() as f64 / 1e6;
        assert!(mbps > 77.0 && mbps < 80.0, "turns of {turns} ms: {mbps} Mbit/s");
        assert_eq!(pair.sender.stats().lost_packets, 0);
    }
}

/// The queue holds 4 ms, the thread runs every 6 ms: one quarter of what was lost is made up, not
/// more, and the losses end.
#[test]
fn lateness_does_not_overflow_a_short_queue() {
    let mut pair = path("fixed:80mbit", 90, 40).pair();
    pair.forward.queue = MS * 4;
    pair.turns = MS * 6;
    pair.assign(1 << 40);
    pair.run(seconds(2), |_| false);
    let before = pair.sender.stats().lost_packets;
    pair.run(seconds(4), |_| false);
    let lost = pair.sender.stats().lost_packets - before;
    assert!(lost < 40, "{lost} lost: {:?}", pair.sender.stats());
}

#[test]
fn packets_that_were_only_late_cost_no_window() {
    for controller in ["reno", "cubic", "highspeed", "scalable"] {
        let mut pair = path(controller, 100, 40).pair();
        pair.assign(1 << 40);
        // Beyond slow start, half a second after a loss: the queue is not full, and no packet of an
        // earlier loss can still arrive.
        pair.run(seconds(6), |_| false);
        let (mut lost, mut calm) = (pair.forward.dropped, 0);
        while calm < 5 {
            pair.run(MS * 100, |_| false);
            calm = if pair.forward.dropped == lost { calm + 1 } else { 0 };
            lost = pair.forward.dropped;
        }
        let before = pair.sender.stats();
        (pair.forward.reorder, pair.forward.detour) = (0.3, MS * 30);
        pair.run(MS * 10, |_| false);
        pair.forward.reorder = 0.0;
        pair.run(MS * 200, |_| false);
        let after = pair.sender.stats();
        assert!(after.spurious_packets > before.spurious_packets, "{controller} {after:?}");
        assert_eq!(pair.forward.dropped, lost, "{controller}: a loss of the queue disturbs");
        assert!(
            after.cwnd.get() * 100 > before.cwnd.get() * 95,
            "{controller}: {:?} to {:?}",
            before.cwnd,
            after.cwnd
        );
    }
}

/// The lanes that packets with data take.
fn lanes_used(pair: &Pair) -> std::collections::BTreeSet<u8> {
    let headers = pair.captured.iter().flatten();
    headers
        .filter_map(|d| crate::codec::header::Header::parse(d))
        .filter(|(header, _)| header.offset.is_some())
        .map(|(header, _)| header.lane)
        .collect()
}

#[test]
fn a_flow_uses_as_many_lanes_as_its_rate_needs() {
    // On the slower link no burst to measure its capacity is longer than one lane takes.
    for (controller, link, lanes) in
        [("fixed:8mbit", 1_000, 1), ("fixed:300mbit", 1_000, 3), ("fixed:2gbit", 10_000, 8)]
    {
        let mut pair = Setup { lanes: 8, ..path(controller, link, 10) }.pair();
        pair.captured = Some(Vec::new());
        pair.assign(1 << 40);
        pair.run(MS * 200, |_| false);
        assert_eq!(lanes_used(&pair).len(), lanes, "{controller}");
    }
}

/// Eight packets a second and lane do not make a loss wait for the next one of its lane.
#[test]
fn a_loss_of_a_slow_flow_is_repaired_in_a_round_trip() {
    let mut pair = Setup { lanes: 8, ..path("fixed:1mbit", 100, 40) }.pair();
    pair.assign(1 << 40);
    pair.run(seconds(2), |_| false);
    pair.forward.loss = 0.05;
    let mut waits = Vec::new();
    let (mut hole, mut since) = (pair.sink.bytes(), None);
    pair.run(seconds(20), |p| {
        let contiguous = p.sink.have.iter().next().map_or(0, |first| first.end);
        if contiguous > hole {
            hole = contiguous;
            waits.extend(since.take().map(|at| p.now.since(at)));
        }
        if p.sink.bytes() > contiguous {
            since.get_or_insert(p.now);
        }
        false
    });
    waits.sort();
    let median = waits[waits.len() / 2];
    assert!(waits.len() > 20 && median < MS * 75, "{median} of {}", waits.len());
}

#[test]
fn one_full_lane_is_not_hidden_by_empty_ones() {
    let mut pair = Setup { lanes: 8, ..path("fixed:2gbit", 10_000, 10) }.pair();
    pair.assign(1 << 40);
    pair.run(MS * 500, |_| false);
    let idle = pair.sender.stats().queueing_delay.unwrap();
    assert!(idle < MS, "{idle}");
    // Lane 7 is delayed by 14 ms, lane 0 not at all.
    pair.lane_lag = MS * 2;
    pair.run(MS * 200, |_| false);
    let full = pair.sender.stats().queueing_delay.unwrap();
    assert!(full > MS * 12, "{full}");
}

#[test]
fn lanes_over_paths_of_different_length_are_no_queue() {
    let mut pair = Setup { lanes: 8, ..path("fixed:2gbit", 10_000, 10) }.pair();
    pair.lane_lag = MS * 2;
    pair.assign(1 << 40);
    pair.run(seconds(1), |_| false);
    let queueing = pair.sender.stats().queueing_delay.unwrap();
    assert!(queueing < MS, "{queueing}");
}

/// Datagrams that a sender sends to each address within five seconds in which nobody answers.
fn sent_unanswered(
    peers: &[SocketAddr],
    change: impl FnOnce(&mut FlowConfig),
) -> BTreeMap<SocketAddr, usize> {
    let mut now = Time::ZERO + Duration::from_secs(1);
    let mut config = FlowConfig::new(Role::Sender, keys(), 7, vec![peers.to_vec()]);
    let rtt = Duration::from_millis(100);
    config.train_to = Some(TrainTarget { host: peers[0].ip(), rtt });
    change(&mut config);
    let mtu = config.first_mtu();
    let controller = ControllerConfig { mtu, seed: 1, now, ceiling: None, rtt: None };
    let controller = build("native", &controller).expect("a controller");
    let mut flow = Flow::new(config, Some(controller), now).expect("a valid configuration");
    flow.assign(Offset(0)..Offset(1 << 20));
    let (mut source, mut slab) = (Source::default(), vec![0; BATCH_BYTES]);
    let mut sent = BTreeMap::new();
    while now < Time::ZERO + Duration::from_secs(6) {
        while let Some(transmit) = flow.poll_transmit(now, &mut source, &mut slab) {
            assert!(transmit.len <= 1_472, "one datagram at a time");
            *sent.entry(transmit.to).or_insert(0) += 1;
        }
        now = flow.poll_timeout().expect("it goes on").max(now + Duration::from_millis(1));
        flow.handle_timeout(now);
    }
    sent
}

#[test]
fn one_train_leaves_for_the_host_that_asked_and_none_for_others() {
    let place = |host, port| SocketAddr::from(([192, 0, 2, host], port));
    // 64 pings, then two in each round; the other port of the host gets no train.
    let peers = [place(1, 9), place(2, 9), place(1, 10)];
    let sent = sent_unanswered(&peers, |_| ());
    let rounds = sent[&peers[1]];
    assert!(rounds < 40, "{sent:?}");
    assert_eq!((sent[&peers[0]], sent[&peers[2]]), (rounds + 63, rounds), "{sent:?}");
    // No train without a host, nor below a low ceiling.
    let none = sent_unanswered(&peers, |config| config.train_to = None);
    let slow = sent_unanswered(&peers, |config| {
        config.rate_ceiling = Some(DataRate::from_mbps(10));
    });
    assert!(none.values().chain(slow.values()).all(|n| *n == rounds), "{none:?}, {slow:?}");
}
