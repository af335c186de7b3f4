//! Families with losses of the network, and with losses of the wire.

use packtrain_link::{CrossConfig, CrossKind, HostConfig, LossConfig};
use packtrain_units::{ByteCount, DataRate, Duration, Rng};

use super::Region;
use super::draft::{
    Brief, Draft, Flow, Kind, Meta, Room, at_rate, bps, competitor_size, note, paced, some, span,
};
use super::play::Setup;
use super::random::{even, pick, scale};
use super::source::{Growth, Sending};

/// The competing traffic at the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    Paced,
    Poisson,
    Pareto,
    Bursts,
    SlowStart,
}

/// A host that loses nothing.
pub(super) fn idle() -> HostConfig {
    HostConfig { buffer: ByteCount(1 << 40), ..HostConfig::default() }
}

type Makes = Box<dyn Fn(f64) -> Vec<(u32, Sending)>>;

/// Competitors whose mean rate is set later.
pub(super) fn others(
    rng: &mut Rng,
    traffic: Traffic,
    brief: &Brief,
    capacity: f64,
    time: f64,
    meta: &mut Meta,
) -> Makes {
    let size = competitor_size(rng);
    note(meta, "others_packet_bytes", size);
    let cross = move |kind| {
        let packet = ByteCount(u64::from(size));
        vec![(size, Sending::Cross(CrossConfig { packet, kind }))]
    };
    match traffic {
        Traffic::Paced => {
            let drawn = some(rng, 1, 12);
            note(meta, "others", drawn);
            let drawn = paced(rng, drawn, size, capacity);
            Box::new(move |mean| at_rate(&drawn, mean))
        }
        Traffic::Poisson => Box::new(move |mean| cross(CrossKind::Poisson(bps(mean)))),
        Traffic::Pareto => {
            let (count, shape) = (some(rng, 3, 20), even(rng, 1.2, 1.9));
            let share = scale(rng, 1.5, 8.0);
            let on = span(rng, 2e-4, (time / 20.0).min(0.02));
            note(meta, "others", count);
            note(meta, "shape", shape);
            note(meta, "on_ms", on.as_secs_f64() * 1e3);
            Box::new(move |mean| {
                let each = mean / count as f64;
                let off = on.mul_f64(share - 1.0);
                let kind = CrossKind::ParetoOnOff { rate: bps(each * share), on, off, shape };
                (0..count).flat_map(|_| cross(kind.clone())).collect()
            })
        }
        Traffic::Bursts => {
            let bytes = brief.region.of(
                pick(rng, &[65_536, 65_536, 131_072, 262_144]),
                pick(rng, &[65_536, 524_288, 1 << 20]),
            );
            let line = capacity * pick(rng, &[1.5, 2.0, 4.0, 10.0]);
            note(meta, "burst_bytes", bytes);
            note(meta, "burst_line_bps", line.round());
            let packets = (bytes / size).max(1);
            Box::new(move |mean| {
                let mean = mean.min(0.9 * line);
                cross(CrossKind::Bursts { packets, line: bps(line), mean: bps(mean) })
            })
        }
        Traffic::SlowStart => {
            let (count, rtt) = (some(rng, 1, 6), span(rng, 1e-3, (time / 8.0).min(0.1)));
            let packets = scale(rng, 100.0, 2e4) as u64;
            let idle = rtt.mul_f64(scale(rng, 0.3, 10.0));
            note(meta, "others", count);
            note(meta, "rtt_ms", rtt.as_secs_f64() * 1e3);
            note(meta, "tcp_packets", packets);
            let line = bps(2.0 * capacity);
            Box::new(move |mean| {
                let mut all = cross(CrossKind::Poisson(bps(mean)));
                let flow = Sending::Tcp { rtt, line, packets, idle };
                all.extend((0..count).map(|_| (1_500, flow.clone())));
                all
            })
        }
    }
}

/// A bottleneck shared with competitors; the free parameter is their load.
pub(super) fn shared(rng: &mut Rng, brief: &Brief, kind: Kind, traffic: Traffic) -> Draft {
    let mut meta = Meta::new();
    let flow = Flow::draw(rng, brief.region);
    let capacity = flow.rate / scale(rng, 0.15, 0.9);
    let room = Room::draw(rng, kind, capacity, brief.region);
    let time = flow.span(brief.window as f64);
    let make = others(rng, traffic, brief, capacity, time, &mut meta);
    flow.write(&mut meta);
    room.write(&mut meta);
    note(&mut meta, "capacity_bps", capacity.round());
    let min = flow.rate / capacity + 0.02;
    let parameter = match traffic {
        Traffic::SlowStart => (min, 1.1_f64.max(min + 0.1), 0.7_f64.max(min)),
        Traffic::Bursts | Traffic::Pareto => (min, 2.0, 0.9_f64.max(min)),
        _ => (min.min(0.6), 1.3, 1.0 + brief.target),
    };
    let setup = move |load: f64| {
        let mut others = vec![room.fill()];
        others.extend(make((capacity * load - flow.rate).max(0.01 * capacity)));
        let link = room.link(capacity);
        Setup { ours: flow.sending(), others, link, host: idle() }
    };
    let setup = Box::new(setup);
    Draft { setup, parameter, steady: false, warm: 0.125, policed: false, flow, meta }
}

/// The flow alone exceeds its bottleneck: losses are at regular distances. The free parameter is
/// the share that exceeds the rate.
pub(super) fn own(rng: &mut Rng, brief: &Brief, kind: Kind) -> Draft {
    let mut meta = Meta::new();
    let flow = Flow::draw(rng, brief.region);
    let room = Room::draw(rng, kind, flow.rate, brief.region);
    let beside = if rng.chance(0.5) { scale(rng, 1e-4, 3e-2) } else { 0.0 };
    flow.write(&mut meta);
    room.write(&mut meta);
    note(&mut meta, "beside", beside);
    let setup = move |excess: f64| {
        let mut others = vec![room.fill()];
        let more = flow.rate * beside;
        if beside > 0.0 {
            let kind = CrossKind::Poisson(bps(more));
            let packet = ByteCount(1_500);
            others.push((1_500, Sending::Cross(CrossConfig { packet, kind })));
        }
        let link = room.link((flow.rate + more) * (1.0 - excess));
        Setup { ours: flow.sending(), others, link, host: idle() }
    };
    let parameter = (-0.05, 0.2, brief.target);
    let setup = Box::new(setup);
    Draft { setup, parameter, steady: false, warm: 0.25, policed: false, flow, meta }
}

/// The same at a policer: packets above the rate and its burst are dropped, and nothing queues.
pub(super) fn policed(rng: &mut Rng, brief: &Brief) -> Draft {
    Draft { policed: true, ..own(rng, brief, Kind::DropTail) }
}

/// The flow probes for its bottleneck's rate, exceeds it and reduces its rate, as congestion
/// controllers do.
pub(super) fn probing(rng: &mut Rng, brief: &Brief) -> Draft {
    let mut meta = Meta::new();
    let flow = Flow::draw(rng, brief.region);
    let capacity = flow.rate;
    let room = Room::draw(rng, Kind::DropTail, capacity, brief.region);
    let rtt = span(rng, 5e-4, (flow.span(brief.window as f64) / 6.0).min(0.1));
    let (doubles, beta) = (rng.chance(0.3), pick(rng, &[0.5, 0.7, 0.875]));
    flow.write(&mut meta);
    room.write(&mut meta);
    note(&mut meta, "rtt_ms", rtt.as_secs_f64() * 1e3);
    note(&mut meta, "grows", if doubles { "by factor" } else { "by rate" });
    note(&mut meta, "beta", beta);
    let start = scale(rng, 0.3, 0.95);
    let setup = move |growth: f64| {
        let (factor, add) = match doubles {
            true => (1.0 + growth, DataRate::ZERO),
            false => (1.0, bps(capacity * growth)),
        };
        let (min, max) = (bps(capacity * 0.05), bps(capacity * 4.0));
        let growth = Growth { rtt, factor, add, beta, min, max };
        let rate = bps(capacity * start);
        let ours = Sending::Probing { rate, quantum: flow.quantum, line: bps(flow.line), growth };
        let link = room.link(capacity);
        Setup { ours: (flow.size, ours), others: Vec::new(), link, host: idle() }
    };
    let parameter = (1e-4, 1.0, brief.target.max(1e-3));
    let warm = if doubles { 0.0 } else { 0.25 };
    let setup = Box::new(setup);
    Draft { setup, parameter, steady: false, warm, policed: false, flow, meta }
}

/// The paper's own conditions: ten senders at 1 Gbit/s each saturate a link of 10 Gbit/s with a
/// drop-tail queue; the eleventh is the measured one, with 1024-byte packets. The paper varied the
/// eleventh's rate, which an interface of 1 Gbit/s limits, and took the loss rates that came of it:
/// so do its regions, without a search.
pub(super) fn paper(rng: &mut Rng, brief: &Brief) -> Draft {
    let mut meta = Meta::new();
    let (low, high) = match brief.region {
        Region::Train => (2e8, 6e8),
        Region::Test => (6e8, 1e9),
        Region::PaperTrain | Region::PaperTest => (5e8, 1e9),
    };
    let jitter = even(rng, 0.3, 1.0);
    let rate = scale(rng, low, high);
    let flow = Flow { rate, size: 1_052, quantum: 1, line: 1e9, jitter };
    let capacity = 1e10;
    let bytes = capacity / 8.0 * scale(rng, 1e-3, 5e-2);
    let room = Room::of(rng, Kind::DropTail, bytes, brief.region);
    let drawn: Vec<_> =
        paced(rng, 10, 1_052, 1e9).into_iter().map(|d| (d.0, d.1, d.2, jitter)).collect();
    flow.write(&mut meta);
    room.write(&mut meta);
    note(&mut meta, "paper", true);
    note(&mut meta, "capacity_bps", capacity);
    let setup = move |load: f64| {
        let mut others = vec![room.fill()];
        others.extend(at_rate(&drawn, capacity * load - flow.rate));
        let link = room.link(capacity);
        Setup { ours: flow.sending(), others, link, host: idle() }
    };
    let parameter = (0.99, 1.1, 1.0 + brief.target);
    let setup = Box::new(setup);
    let steady = brief.region.is_of_paper();
    Draft { setup, parameter, steady, warm: 0.05, policed: false, flow, meta }
}

/// Errors of the wire: independent bit errors, or bad spells.
pub(super) fn wire(rng: &mut Rng, brief: &Brief, spells: bool) -> Draft {
    let mut meta = Meta::new();
    let flow = Flow::draw(rng, brief.region);
    let (low, high) = brief.region.of((2.0, 30.0), (30.0, 1_000.0));
    let (length, lossy) = (scale(rng, low, high), pick(rng, &[0.3, 0.5, 1.0]));
    let capacity = flow.rate * scale(rng, 1.1, 10.0);
    flow.write(&mut meta);
    note(&mut meta, "capacity_bps", capacity.round());
    if spells {
        note(&mut meta, "spell_packets", length);
        note(&mut meta, "spell_loss", lossy);
    }
    let room = Room::of(rng, Kind::DropTail, 1e9, brief.region);
    let setup = move |p: f64| {
        let mut link = room.link(capacity);
        link.loss = if spells {
            let bad = (p / lossy).min(0.9);
            let to_good = 1.0 / length;
            let to_bad = (to_good * bad / (1.0 - bad)).min(1.0);
            LossConfig::GilbertElliott { to_bad, to_good, loss_good: 0.0, loss_bad: lossy }
        } else {
            let bits = 8.0 * f64::from(flow.size);
            LossConfig::BitError(-libm::expm1(libm::log1p(-p) / bits))
        };
        link.delay = Duration::from_millis(1);
        Setup { ours: flow.sending(), others: Vec::new(), link, host: idle() }
    };
    let parameter = (0.0, 0.3, brief.target);
    let setup = Box::new(setup);
    Draft { setup, parameter, steady: false, warm: 0.0, policed: false, flow, meta }
}
