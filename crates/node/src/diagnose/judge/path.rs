//! The rules about what is between the ends.

use packtrain_units::{ByteCount, DataRate, Duration};

use super::super::evidence::{Evidence, PathPart, Sample, Work};
use super::ends::Held;
use super::{Finding, Limiter, goodput, percent, ramp, seconds};

/// So many losses have a pattern.
const ENOUGH_LOST: u64 = 20;
/// Losses below this share are nobody's limit.
const LOSS: f64 = 2e-4;
/// Buffers that hold less than this are overrun by an ordinary scheduler's latency.
const LATENCY: Duration = Duration::from_millis(8);
/// Sockets that a flow uses where it may.
const PORTS: u64 = 8;
/// The least length of intervals in which a policer shows.
const MERGED: Duration = Duration::from_millis(500);

/// The share of the lost datagrams that the receiving host dropped or refused, by its own count;
/// where it counts fewer, by the pattern of what was lost.
pub(super) fn host_share(path: &PathPart) -> f64 {
    let host = path.host_drops.saturating_add(path.refused_packets) as f64;
    if path.lost_packets == 0 {
        return 0.0;
    }
    let counted = host / path.lost_packets as f64;
    let word = path.loss.as_ref().filter(|word| word.lost >= ENOUGH_LOST);
    let judged = word.map_or(0.0, |word| match word.cause.as_str() {
        "cpu" => word.share * word.p_cpu,
        // Both had a part in it.
        "hybrid" => word.share * 0.5,
        _ => 0.0,
    });
    counted.max(judged).clamp(0.0, 1.0)
}

/// Looks at the path.
pub(super) fn look(evidence: &Evidence, path: &PathPart, found: &mut Vec<Finding>) {
    let held = Held::of(evidence);
    let all = path.by_udp + path.by_tcp + path.by_pipe;
    let by = |bytes: ByteCount| bytes.get() as f64 / all.get().max(1) as f64;
    let series = Series::of(path);
    asked(path, &series, found);
    pipe(path, by(path.by_pipe), found);
    blocked(path, found);
    black_hole(path, found);
    buffer(evidence, path, found);
    window(evidence, path, by(path.by_tcp), (&series, &held), found);
    losses(path, &series, &held, found);
    full(path, &series, &held, by(path.by_pipe), found);
}

/// The intervals of a path, added up.
struct Series {
    busy: Vec<Sample>,
    /// Bits a second that arrived on the whole.
    arrived: f64,
    /// Share of what was sent that was lost on the way.
    loss: f64,
    /// The largest queue but for the odd one, and the mean, in seconds.
    most: f64,
    mean: f64,
    /// The mean queue where something was lost.
    at_loss: f64,
    /// Less than this is noise.
    floor: f64,
    /// The least round trip.
    rtt: Duration,
}

fn bps(bytes: ByteCount, span: Duration) -> f64 {
    bytes.get() as f64 * 8.0 / span.as_secs_f64().max(1e-6)
}

impl Series {
    fn of(path: &PathPart) -> Self {
        let busy: Vec<Sample> = path.samples.iter().copied().filter(|s| s.sent.get() > 0).collect();
        let sum = |of: fn(&Sample) -> ByteCount| busy.iter().map(of).sum::<ByteCount>();
        let span: Duration = busy.iter().fold(Duration::ZERO, |all, s| all + s.span);
        let (sent, lost) = (sum(|s| s.sent), sum(|s| s.lost));
        let mut queues: Vec<f64> = busy.iter().map(|s| s.queue.as_secs_f64()).collect();
        queues.sort_by(f64::total_cmp);
        let most = queues.get(queues.len() * 19 / 20).copied().unwrap_or(0.0);
        let mean = queues.iter().sum::<f64>() / queues.len().max(1) as f64;
        // A loss is known a round trip later: the queue that made it is that of now or before.
        let lossy: Vec<f64> = (0..busy.len())
            .filter(|n| busy[*n].lost.get() > 0)
            .map(|n| busy[n].queue.max(busy[n.saturating_sub(1)].queue).as_secs_f64())
            .collect();
        let at_loss = lossy.iter().sum::<f64>() / lossy.len().max(1) as f64;
        let rtt = path.min_rtt.map_or(0.0, Duration::as_secs_f64);
        Self {
            arrived: bps(sum(|s| s.arrived), span),
            loss: lost.get() as f64 / sent.get().max(1) as f64,
            most,
            mean,
            at_loss,
            floor: (rtt * 0.05).max(3e-3),
            rtt: path.min_rtt.unwrap_or_default(),
            busy,
        }
    }

    /// Whether losses came with a full queue (1) or an empty one (0).
    fn queue_at_loss(&self) -> f64 {
        if self.most < 2.0 * self.floor {
            return 0.0;
        }
        // Full at any rate, or fuller than at other times.
        let full = ramp(self.at_loss / self.most, 0.7, 0.9);
        let fuller = ramp(self.at_loss / self.mean.max(1e-6), 1.1, 1.4);
        full.max(ramp(self.at_loss / self.most, 0.25, 0.5) * fuller)
    }

    /// How much of the capacity arrived while a queue stood, if one stood for long.
    fn share_of_queue(&self, capacity: DataRate) -> Option<f64> {
        let queued = || self.busy.iter().filter(|s| s.queue.as_secs_f64() > 2.5 * self.floor);
        let span = queued().fold(Duration::ZERO, |all, s| all + s.span);
        let arrived = queued().map(|s| s.arrived).sum::<ByteCount>();
        let long = queued().count() >= 6 && span >= self.rtt * 6;
        long.then(|| bps(arrived, span) / capacity.as_bps().max(1) as f64)
    }

    /// Longer intervals: what a loss has to do with what was sent shows when the round trip
    /// between the two matters less. The begin is a search, and a policer lets a burst pass
    /// before it drops anything; the end is a rest.
    fn merged(&self) -> Vec<Sample> {
        let lossy = self.busy.iter().position(|sample| sample.lost.get() > 0);
        let begin = lossy.map_or(4, |first| (first + 2).max(4));
        let middle = self.busy.get(begin..self.busy.len().saturating_sub(2)).unwrap_or_default();
        let long = MERGED.max(self.rtt * 4);
        let mut merged = Vec::new();
        let mut sum = Sample::default();
        for sample in middle {
            sum.span += sample.span;
            sum.sent += sample.sent;
            sum.arrived += sample.arrived;
            sum.lost += sample.lost;
            if sum.span >= long {
                merged.push(std::mem::take(&mut sum));
            }
        }
        merged
    }

    /// How much it looks like a policer: whatever is sent, the same arrives, so that what is sent
    /// beyond it is lost. A link with errors takes the same share of whatever is sent.
    fn policed(&self, capacity: Option<DataRate>) -> f64 {
        let merged = self.merged();
        if merged.len() < 4 || self.loss < 0.004 {
            return 0.0;
        }
        let mut rates: Vec<f64> = merged.iter().map(|s| bps(s.arrived, s.span)).collect();
        rates.sort_by(f64::total_cmp);
        let of = |share: usize| rates[(rates.len() * share / 10).min(rates.len() - 1)];
        let flat = 1.0 - ramp((of(8) - of(2)) / of(5).max(1.0), 0.2, 0.5);
        // Of each byte that was sent more, so much was lost more.
        let sent: Vec<f64> = merged.iter().map(|s| bps(s.sent, s.span)).collect();
        let lost: Vec<f64> = merged.iter().map(|s| bps(s.lost, s.span)).collect();
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let (middle, losses) = (mean(&sent), mean(&lost));
        let spread: f64 = sent.iter().map(|s| (s - middle).powi(2)).sum();
        let both: f64 = sent.iter().zip(&lost).map(|(s, l)| (s - middle) * (l - losses)).sum();
        let varied = (spread / sent.len() as f64).sqrt() / middle.max(1.0);
        let slope = if spread > 0.0 { both / spread } else { 0.0 };
        let share = losses / middle.max(1.0);
        // Errors make it the share that is lost on the whole, a policer one.
        let beyond = ramp((slope - share) / (1.0 - share).max(0.1), 0.15, 0.4);
        // Who sends at an even pace shows none of it; but who bears losses would send more, were
        // it not for the policer.
        let room = capacity.map_or(0.0, |capacity| capacity.as_bps() as f64 / of(5).max(1.0));
        let capped = 0.85 * ramp(room, 1.3, 2.0) * ramp(self.loss, 0.01, 0.04);
        let known = ramp(varied, 0.04, 0.1);
        flat * (known * beyond + (1.0 - known) * capped)
    }
}

fn asked(path: &PathPart, series: &Series, found: &mut Vec<Finding>) {
    let Some(asked) = path.asked_rate else { return };
    let reached = series.arrived / asked.as_bps().max(1) as f64;
    let says = format!("the rate asked for ({asked}) was the limit");
    let remedy = "leave --rate out, or ask for more; `packtrain config show` tells where it comes \
                  from, the site's policy included";
    found.push(
        Finding::new(Limiter::RateAsked, 0.95 * ramp(reached, 0.6, 0.85), says, remedy)
            .fact("asked for", asked)
            .fact("arrived", DataRate::from_bps(series.arrived as u64)),
    );
}

fn pipe(path: &PathPart, share: f64, found: &mut Vec<Finding>) {
    let (what, remedy) = if path.ssh {
        (
            "the pipe through ssh",
            "open UDP or TCP ports between the two ends (--ports A-B), or name \
          the address where they meet (--data-addr)",
        )
    } else {
        ("the control connection", "open UDP or TCP ports between the two ends (--ports A-B)")
    };
    let tried = path.race.udp_tried || path.race.tcp_tried;
    let why = if tried { ": neither UDP nor TCP got through" } else { "" };
    let remedy = if tried { remedy } else { "leave --transport pipe out" };
    found.push(
        Finding::new(
            Limiter::SshPipe,
            0.96 * ramp(share, 0.3, 0.6),
            format!("the data went through {what}, which was the limit{why}"),
            remedy,
        )
        .fact("moved through it", percent(share))
        .fact("UDP tried", if path.race.udp_tried { "yes" } else { "no" })
        .fact("TCP tried", if path.race.tcp_tried { "yes" } else { "no" }),
    );
}

fn blocked(path: &PathPart, found: &mut Vec<Finding>) {
    let race = &path.race;
    let other = race.tcp_up.or(race.piped);
    if !race.udp_tried || race.udp_up.is_some() || other.is_none() {
        return;
    }
    let sure = 0.93 * ramp(race.on_for.as_secs_f64(), 0.3, 1.5);
    let mut finding = Finding::new(
        Limiter::UdpBlocked,
        sure,
        "UDP does not get through between the two ends",
        "let UDP through the firewalls (--ports A-B names which ports to open), or choose \
         --transport tcp with more --streams",
    )
    .fact("without an answer for", seconds(race.on_for));
    if let Some(up) = race.tcp_up {
        finding = finding.fact("TCP was up after", seconds(up));
    }
    if path.refused_sends > 0 {
        finding = finding.fact("refused by this system", path.refused_sends);
    }
    found.push(finding);
}

fn black_hole(path: &PathPart, found: &mut Vec<Finding>) {
    // Where the system knew, it was told.
    let small = path.mtu.get() > 0 && path.mtu < path.mtu_begun;
    if !small || path.by_udp == ByteCount::ZERO {
        return;
    }
    // A system that knows refuses such datagrams; larger ones are only tried.
    let known = path.smallest_refused.is_some_and(|size| size <= path.mtu_begun);
    found.push(
        Finding::new(
            Limiter::MtuBlackHole,
            if known { 0.3 } else { 0.85 },
            format!(
                "large packets vanish on the path and nobody says so (an MTU black hole): \
                 datagrams are down to {} bytes",
                path.mtu.get()
            ),
            "set the MTU of the interface to what the path carries (`ip link set dev DEV mtu N`), \
             or let ICMP `fragmentation needed` through the firewalls; TCP needs \
             net.ipv4.tcp_mtu_probing=1",
        )
        .fact("datagrams began with", format!("{} bytes", path.mtu_begun.get()))
        .fact("are now", format!("{} bytes", path.mtu.get()))
        .fact("falls", path.mtu_falls),
    );
}

fn buffer(evidence: &Evidence, path: &PathPart, found: &mut Vec<Finding>) {
    let Some(end) = &evidence.sink else { return };
    let Some(buffers) = &end.buffers else { return };
    if path.host_drops == 0 || path.sent_packets == 0 {
        return;
    }
    let share = path.host_drops as f64 / path.sent_packets as f64;
    let covers = buffers.covers.unwrap_or(Duration::MAX);
    let tight = 1.0 - ramp(covers.as_secs_f64() / LATENCY.as_secs_f64(), 1.0, 4.0);
    let sure = 0.9 * ramp(share, 1e-5, 1e-3) * ramp(host_share(path), 0.05, 0.4) * tight;
    let want = buffers.each.get().clamp(2 << 20, 64 << 20).next_power_of_two() * 4;
    // A system grants twice its limit; less than the limit was not even asked of it.
    let mut remedy = match buffers.limit {
        Some(limit) if buffers.each < limit => "there something (a seccomp filter?) keeps it from \
                                                setting SO_RCVBUF: let that through"
            .to_owned(),
        _ => format!("there, as root: sysctl -w net.core.rmem_max={want}"),
    };
    if buffers.sockets < PORTS {
        remedy += &format!("; let it use {PORTS} ports (--ports A-B): each brings a buffer");
    }
    found.push(
        Finding::new(
            Limiter::SocketBuffer,
            sure,
            "the UDP receive buffers of the receiving machine are too small for this rate",
            remedy,
        )
        .fact("buffers", format!("{} of {}", buffers.sockets, buffers.each))
        .fact("hold", seconds(covers))
        .fact("datagrams that found them full", path.host_drops)
        .fact("of those sent", percent(share)),
    );
}

fn window(
    evidence: &Evidence,
    path: &PathPart,
    tcp_share: f64,
    (series, held): (&Series, &Held),
    found: &mut Vec<Finding>,
) {
    let tcp = path.tcp.as_ref().filter(|t| tcp_share > 0.5 && !t.busy.is_zero());
    let Some(tcp) = tcp else { return };
    let receiver = Work::share(tcp.receiver_limited, tcp.busy, 1).min(1.0);
    let sender = Work::share(tcp.send_buffer_limited, tcp.busy, 1).min(1.0);
    let rtt = path.min_rtt.unwrap_or_default();
    // A paced sender is not always at the window when the kernel looks; but no more can be
    // under way than it allows.
    let under_way = series.arrived / 8.0 * rtt.as_secs_f64();
    let used = tcp.receiver_window.map_or(0.0, |w| under_way / w.get().max(1) as f64);
    // A receiver that does not take its data closes its window too.
    let slow = ramp(held.full, 0.1, 0.4);
    let full = ramp(receiver, 0.2, 0.5).max(ramp(used, 0.6, 0.85));
    let sure = 0.92 * (full * (1.0 - slow)).max(ramp(sender, 0.2, 0.5));
    let (which, remedy) = if receiver.max(used) >= sender {
        ("the TCP window that the receiving system allows", "net.ipv4.tcp_rmem there")
    } else {
        ("the TCP send buffer that this system allows", "net.ipv4.tcp_wmem here")
    };
    found.push(
        Finding::new(
            Limiter::Window,
            sure,
            format!("{which} was the limit"),
            format!(
                "raise the largest value of {remedy} (`sysctl -w`, as root), use --streams N, or \
                 --transport native, which needs neither"
            ),
        )
        .fact("held back by the receiver's window", percent(receiver))
        .fact("of that window under way", percent(used))
        .fact("held back by the send buffer", percent(sender))
        .fact("round trip", seconds(rtt))
        .fact("goodput", goodput(evidence)),
    );
}

fn losses(path: &PathPart, series: &Series, held: &Held, found: &mut Vec<Finding>) {
    let host = host_share(path);
    let loss = match (&path.tcp, path.lost_packets) {
        (_, lost) if path.by_udp > path.by_tcp => lost as f64 / path.sent_packets.max(1) as f64,
        (Some(tcp), _) => tcp.retransmitted.get() as f64 / tcp.sent.get().max(1) as f64,
        _ => series.loss,
    };
    let on_path = loss * (1.0 - host);
    if on_path < LOSS || series.busy.len() < 4 {
        return;
    }
    // The classifier's `network` is the network as against the receiving host: random losses
    // leave the same pattern as a queue that many share. What it calls a link's is one's.
    let word = path.loss.as_ref().filter(|word| word.lost >= ENOUGH_LOST);
    let link = word.filter(|word| word.cause == "link").map_or(0.0, |word| word.share);
    let full = series.queue_at_loss() * (1.0 - 0.9 * link.clamp(0.0, 1.0));
    let weight = 0.5 + 0.5 * ramp(held.path, 0.2, 0.5);
    let facts = |finding: Finding| {
        let mut finding = finding
            .fact("lost on the path", percent(on_path))
            .fact("queue when it was lost", seconds(Duration::from_secs_f64(series.at_loss)))
            .fact("largest queue", seconds(Duration::from_secs_f64(series.most)))
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
    let policed = if path.by_udp > path.by_tcp { series.policed(path.capacity) } else { 0.0 };
    let policed = policed * (1.0 - full);
    found.push(facts(Finding::new(
        Limiter::UdpPoliced,
        0.92 * policed * weight,
        "something on the path polices UDP: what exceeds a rate is dropped, without a queue",
        "ask the network's operator; meanwhile `--transport tcp --streams N`, or `--rate` a \
         little below what arrives",
    )));
    // Who does not slow down for them is not limited by them.
    let model = path.tcp.as_ref().is_some_and(|t| t.congestion.starts_with("bbr"));
    let by_udp = path.by_udp > path.by_tcp;
    let steady = if by_udp { path.transport == "native" } else { model };
    let bears = if steady { 0.7 } else { 1.0 };
    let strength = ramp(on_path.log10(), -3.7, -2.7);
    // Where the host lost most of them, the few others may be its doing too.
    let ours = 1.0 - ramp(host, 0.5, 0.9);
    found.push(facts(Finding::new(
        Limiter::LinkErrors,
        0.9 * (1.0 - full) * (1.0 - 0.7 * policed) * weight * (0.6 + 0.4 * strength) * bears * ours,
        "the path loses packets without being full: link errors",
        "look for a bad cable, optic, radio link or duplex (`ethtool -S DEV`, `ip -s link`); \
         --transport native bears such losses best",
    )));
}

/// The path itself: full with this transfer, or with others'.
fn full(path: &PathPart, series: &Series, held: &Held, piped: f64, found: &mut Vec<Finding>) {
    if piped > 0.5 || series.busy.len() < 4 {
        return;
    }
    let queued = series.most > 2.0 * series.floor;
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
    // Who has little of the path and still meets a queue does not make it.
    let share = path.capacity.and_then(|capacity| series.share_of_queue(capacity));
    let others = match used {
        Some(used) => {
            let queue = ramp(series.mean, series.floor, 3.0 * series.floor);
            let queue = queue.max(share.map_or(0.0, |share| 1.0 - ramp(share, 0.6, 0.85)));
            (1.0 - ramp(used, 0.55, 0.75)) * queue
        }
        None => 0.0,
    };
    let congested = facts(Finding::new(
        Limiter::Congestion,
        0.9 * others * by_path,
        "others fill the path: this transfer had its share",
        "wait for a quieter hour, or ask the network's operator; `--transport tcp --streams 8` takes \
         a larger share from the others",
    ));
    found.push(match share {
        Some(share) => congested.fact("of the capacity while a queue stood", percent(share)),
        None => congested,
    });
    let sure = match used {
        Some(used) => ramp(used, 0.5, 0.8),
        None if queued => 0.75,
        None => 0.55,
    };
    found.push(facts(Finding::new(
        Limiter::PathRate,
        0.9 * sure * by_path,
        "the path was full: it can do no more",
        "nothing at the ends helps: a faster path, or fewer bytes (`tar -cf - DIR | zstd -T0 | \
         packtrain cp - HOST:DIR.tar.zst`)",
    )));
}
