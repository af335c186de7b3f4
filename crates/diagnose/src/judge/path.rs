//! Rules about the path: its losses, and the traffic that fills it.

use packtrain_units::{ByteCount, DataRate, Duration};

use super::ends::WaitShares;
use super::series::Series;
use super::transport::{asked, black_hole, blocked, buffer, outage, pipe, window};
use super::{Finding, Limiter, percent, ramp, seconds};
use packtrain_service::evidence::{Evidence, PathPart};

/// Number of losses from which their pattern counts.
const MIN_LOST: u64 = 20;
/// A smaller share of losses does not limit a transfer.
const MIN_LOSS_SHARE: f64 = 2e-4;

/// The share of the lost datagrams that the receiving host dropped or refused, according to its
/// counters, or according to the pattern of the losses if that gives more.
pub(super) fn host_share(path: &PathPart) -> f64 {
    let host = path.host_drops.saturating_add(path.refused_packets) as f64;
    if path.lost_packets == 0 {
        return 0.0;
    }
    let counted = host / path.lost_packets as f64;
    let word = path.loss.as_ref().filter(|word| word.lost >= MIN_LOST);
    let judged = word.map_or(0.0, |word| match word.cause.as_str() {
        "cpu" => word.share * word.p_cpu,
        // Host and path both lost packets.
        "hybrid" => word.share * 0.5,
        _ => 0.0,
    });
    counted.max(judged).clamp(0.0, 1.0)
}

/// Unused capacity of the path: 0 if datagrams used all of it.
pub(super) fn spare(path: &PathPart) -> f64 {
    let Some(capacity) = path.capacity.filter(|_| path.by_udp > path.by_tcp) else { return 1.0 };
    let used = Series::of(path).arrived / capacity.as_bps().max(1) as f64;
    1.0 - ramp(used, 0.7, 0.9)
}

/// Applies the rules to the path.
pub(super) fn apply(evidence: &Evidence, path: &PathPart, found: &mut Vec<Finding>) {
    let held = WaitShares::of(evidence);
    let all = path.by_udp + path.by_tcp + path.by_pipe;
    let by = |bytes: ByteCount| bytes.get() as f64 / all.get().max(1) as f64;
    let series = Series::of(path);
    asked(path, &series, found);
    pipe(path, by(path.by_pipe), found);
    blocked(path, found);
    outage(evidence, path, found);
    black_hole(path, found);
    buffer(evidence, path, found);
    window(evidence, path, by(path.by_tcp), (&series, &held), found);
    losses(path, &series, &held, found);
    full(path, &series, &held, by(path.by_pipe), found);
}

fn losses(path: &PathPart, series: &Series, held: &WaitShares, found: &mut Vec<Finding>) {
    let host = host_share(path);
    let loss = match (&path.tcp, path.lost_packets) {
        (_, lost) if path.by_udp > path.by_tcp => lost as f64 / path.sent_packets.max(1) as f64,
        (Some(tcp), _) => tcp.retransmitted.get() as f64 / tcp.sent.get().max(1) as f64,
        _ => series.loss,
    };
    let on_path = loss * (1.0 - host);
    if on_path < MIN_LOSS_SHARE || series.busy.len() < 4 {
        return;
    }
    // The classifier's verdict `network` only excludes the receiving host: random losses have the
    // same pattern as those of a shared queue. The verdict `link` is specific.
    let word = path.loss.as_ref().filter(|word| word.lost >= MIN_LOST);
    let link = word.filter(|word| word.cause == "link").map_or(0.0, |word| word.share);
    let full = series.queue_at_loss() * (1.0 - 0.9 * link.clamp(0.0, 1.0));
    let weight = 0.5 + 0.5 * ramp(held.path, 0.2, 0.5);
    let facts = |finding: Finding| {
        let mut finding = finding
            .fact("lost on the path", percent(on_path))
            .fact("queue when it was lost", seconds(Duration::from_secs_f64(series.at_loss)))
            .fact("largest queue", seconds(Duration::from_secs_f64(series.largest)))
            .fact("arrived", DataRate::from_bps(series.arrived as u64));
        if let Some(capacity) = path.capacity {
            finding = finding.fact("capacity", capacity);
        }
        if let Some(loss) = &path.loss {
            let text = format!(
                "{} for {} of {} lost; the receiving host with {}",
                loss.cause,
                percent(loss.share),
                loss.lost,
                percent(loss.p_cpu)
            );
            finding = finding.fact("loss classifier", text);
        }
        finding
    };
    // The rate that a sender could have reached which does not reduce its rate after losses.
    let most = path.capacity.into_iter().chain(path.asked_rate).min();
    let most = most.filter(|_| path.transport == "native");
    let policed = if path.by_udp > path.by_tcp { series.policed(most) } else { 0.0 };
    let policed = policed * (1.0 - full);
    found.push(facts(Finding::new(
        Limiter::UdpPoliced,
        0.92 * policed * weight,
        "something on the path polices UDP: what exceeds a rate is dropped, without a queue",
        format!(
            "ask the network's operator; meanwhile `--transport tcp --streams 4`, or `--rate \
             {:.0}mbit`, a little below what arrives",
            (series.arrived * 0.95e-6).max(1.0)
        ),
    )));
    // A sender that ignores losses is not limited by them.
    let model = path.tcp.as_ref().is_some_and(|t| t.congestion.starts_with("bbr"));
    let by_udp = path.by_udp > path.by_tcp;
    let steady = if by_udp { path.transport == "native" } else { model };
    let steadiness = if steady { 0.7 } else { 1.0 };
    let strength = ramp(on_path.log10(), -3.7, -2.7);
    // If the host lost most of the packets, it may have lost the others too.
    let ours = 1.0 - ramp(host, 0.5, 0.9);
    // On a short path a full queue is within the noise of the measurement, and a sender that fills
    // it overflows it.
    let unseen = 1.0 - ramp(series.rtt.as_secs_f64(), 5e-3, 15e-3);
    let used = path.capacity.map_or(0.0, |c| series.arrived / c.as_bps().max(1) as f64);
    let ours = ours * (1.0 - 0.5 * unseen * ramp(used, 0.3, 0.6));
    found.push(facts(Finding::new(
        Limiter::LinkErrors,
        0.9 * (1.0 - full)
            * (1.0 - 0.7 * policed)
            * weight
            * (0.6 + 0.4 * strength)
            * steadiness
            * ours,
        "the path loses packets without being full: link errors",
        "look for a bad cable, optic, radio link or duplex (`ethtool -S DEV`, `ip -s link`); \
         --transport native bears such losses best",
    )));
}

/// The path is full, with this transfer or with other traffic.
fn full(path: &PathPart, series: &Series, held: &WaitShares, piped: f64, found: &mut Vec<Finding>) {
    if piped > 0.5 || series.busy.len() < 4 {
        return;
    }
    let used = path.capacity.map(|c| series.arrived / c.as_bps().max(1) as f64);
    let by_path = ramp(held.path, 0.25, 0.6);
    let facts = |finding: Finding| {
        let finding = finding
            .fact("sender waited for the path", percent(held.path))
            .fact("arrived", DataRate::from_bps(series.arrived as u64))
            .fact("mean queue", seconds(Duration::from_secs_f64(series.mean)));
        match path.capacity {
            Some(capacity) => finding.fact("capacity", capacity),
            None => finding,
        }
    };
    // A transfer with a small share of the path did not create the queue that it measures.
    let share = path.capacity.and_then(|capacity| series.share_of_queue(capacity));
    let others = match used {
        Some(used) => {
            let queue = ramp(series.mean, series.floor, 3.0 * series.floor);
            let queue = queue.max(share.map_or(0.0, |share| 1.0 - ramp(share, 0.6, 0.85)));
            // A flow that yields to others sees a short queue: its rate has settled at what the
            // others leave, or its controller has detected that the queue is not its own.
            let competes = path.controller.starts_with("native compete");
            let short = ramp(series.mean, 0.4 * series.floor, series.floor);
            let left = series.rests() * short * if competes { 0.9 } else { 0.8 };
            let left = left * (1.0 - ramp(held.blurred, 0.07, 0.2));
            let queue = queue * (1.0 - ramp(held.blurred, 0.15, 0.4));
            (1.0 - ramp(used, 0.55, 0.75)) * queue.max(left)
        }
        None => 0.0,
    };
    let congested = facts(Finding::new(
        Limiter::Congestion,
        0.9 * others * by_path,
        "others fill the path: this transfer had what they left",
        "wait for a quieter hour; `--transport tcp --streams 8` takes a larger share from the \
         others; if nobody else is there, ask the network's operator whether a shaper is",
    ));
    found.push(match share {
        Some(share) => congested.fact("of the capacity while a queue stood", percent(share)),
        None => congested,
    });
    let sure = match used {
        Some(used) => ramp(used, 0.5, 0.8),
        // The capacity is unknown: the path may be full if there is a queue, and if the rate was
        // never much higher.
        None => {
            let queue = ramp(series.mean, 0.5 * series.floor, 1.5 * series.floor);
            (0.55 + 0.25 * queue) * ramp(series.of_best(), 0.3, 0.6)
        }
    };
    found.push(facts(Finding::new(
        Limiter::PathRate,
        0.9 * sure * by_path,
        "the path was full: it can do no more",
        "a faster path, or fewer bytes (`tar -cf - DIR | zstd -T0 | packtrain cp - \
         HOST:DIR.tar.zst`); no setting at the ends does",
    )));
}
