//! Rules about the transport, its window and its buffers.

use packtrain_units::{ByteCount, DataRate, Duration};

use super::ends::WaitShares;
use super::path::host_share;
use super::series::Series;
use super::{Finding, Limiter, goodput, percent, ramp, seconds};
use packtrain_service::evidence::{Buffers, Evidence, PathPart, Work};

/// Smaller buffers overflow during the latency of an ordinary scheduler.
const SCHEDULING_LATENCY: Duration = Duration::from_millis(8);
/// Number of sockets of a flow, if enough ports are available.
const MAX_PORTS: u64 = 8;
/// The size of a UDP buffer that a flow requests, whatever the system's limit is.
const REQUESTED_BUFFER: ByteCount = ByteCount(8 << 20);

pub(super) fn asked(path: &PathPart, series: &Series, found: &mut Vec<Finding>) {
    let Some(asked) = path.asked_rate else { return };
    let reached = series.arrived / asked.as_bps().max(1) as f64;
    let says = format!("the rate asked for ({asked}) was the limit");
    let remedy = "leave --rate out, or ask for more; `packtrain config show` tells where it comes \
                  from, the site's policy included; that of the other end is told at the beginning";
    found.push(
        Finding::new(Limiter::RateAsked, 0.95 * ramp(reached, 0.6, 0.85), says, remedy)
            .fact("asked for", asked)
            .fact("arrived", DataRate::from_bps(series.arrived as u64)),
    );
}

pub(super) fn pipe(path: &PathPart, share: f64, found: &mut Vec<Finding>) {
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

pub(super) fn blocked(path: &PathPart, found: &mut Vec<Finding>) {
    let race = &path.race;
    let other = race.tcp_up.or(race.piped);
    // A firewall that drops the datagrams of one direction lets the sender see those of the receiver.
    let one_way = path.sent_packets > 0
        && path.by_udp == ByteCount::ZERO
        && path.by_tcp + path.by_pipe > ByteCount::ZERO;
    if !race.udp_tried || other.is_none() || (race.udp_up.is_some() && !one_way) {
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

/// A shorter time without an arrival may be a route change, or a reduction of the MTU.
const MIN_OUTAGE: Duration = Duration::from_secs(3);

pub(super) fn outage(evidence: &Evidence, path: &PathPart, found: &mut Vec<Finding>) {
    if path.outage < MIN_OUTAGE {
        return;
    }
    let share = path.outage.as_secs_f64() / evidence.elapsed.as_secs_f64().max(1e-3);
    found.push(
        Finding::new(
            Limiter::Outage,
            0.95 * ramp(share, 0.03, 0.15),
            format!("the network was away: nothing got through for {}", seconds(path.outage)),
            "nothing at the ends: look for what took the link away (a cable, a route, a suspended \
             machine); a transfer goes on by itself when the network is back",
        )
        .fact("longest time without an arrival", seconds(path.outage))
        .fact("of the whole", percent(share.min(1.0))),
    );
}

pub(super) fn black_hole(path: &PathPart, found: &mut Vec<Finding>) {
    // If the system refused the size, the reduction is not a black hole.
    let small = path.mtu.get() > 0 && path.mtu < path.mtu_begun;
    // During an outage datagrams of every size are lost, so the reduction has no meaning.
    let small = small && path.outage < MIN_OUTAGE;
    if !small || path.by_udp == ByteCount::ZERO {
        return;
    }
    // The system refuses datagrams above a known MTU; larger ones are only probes.
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
            format!(
                "set the MTU of the interface to what the path carries (`ip link set dev DEV mtu \
                 {}`; `ip route get ADDRESS` names DEV), or let ICMP `fragmentation needed` \
                 through the firewalls; for TCP: `sysctl -w net.ipv4.tcp_mtu_probing=1`",
                // The headers of UDP and IPv4. IPv6 needs 20 bytes more.
                path.mtu.get().saturating_add(28)
            ),
        )
        .fact("datagrams began with", format!("{} bytes", path.mtu_begun.get()))
        .fact("are now", format!("{} bytes", path.mtu.get()))
        .fact("falls", path.mtu_falls),
    );
}

pub(super) fn buffer(evidence: &Evidence, path: &PathPart, found: &mut Vec<Finding>) {
    let Some(end) = &evidence.sink else { return };
    let Some(buffers) = &end.buffers else { return };
    if path.host_drops == 0 || path.sent_packets == 0 {
        return;
    }
    let share = path.host_drops as f64 / path.sent_packets as f64;
    let covers = buffers.covers.unwrap_or(Duration::MAX);
    let tight = 1.0 - ramp(covers.as_secs_f64() / SCHEDULING_LATENCY.as_secs_f64(), 1.0, 4.0);
    let sure = 0.9 * ramp(share, 1e-5, 1e-3) * ramp(host_share(path), 0.05, 0.4) * tight;
    let remedy = buffer_remedy(buffers);
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

fn buffer_remedy(buffers: &Buffers) -> String {
    // The system grants twice what is requested, or twice its limit if that is less. A smaller
    // buffer means that the request had no effect.
    let effective = buffers.limit.map(|limit| limit.min(REQUESTED_BUFFER));
    let whole = buffers.each >= REQUESTED_BUFFER + REQUESTED_BUFFER;
    let enlarge = match effective {
        _ if whole => None,
        Some(effective) if buffers.each < effective => Some(
            "there something (a seccomp filter?) keeps it from setting SO_RCVBUF: let that through"
                .to_owned(),
        ),
        _ => {
            let want = REQUESTED_BUFFER.get();
            Some(format!("there, as root: `sysctl -w net.core.rmem_max={want}`"))
        }
    };
    let ports = (buffers.sockets < MAX_PORTS)
        .then(|| format!("let it use {MAX_PORTS} ports (--ports A-B): each brings a buffer"));
    let remedies: Vec<String> = enlarge.into_iter().chain(ports).collect();
    if remedies.is_empty() {
        return "a lower rate (--rate): there are no more or larger buffers".to_owned();
    }
    remedies.join("; ")
}

pub(super) fn window(
    evidence: &Evidence,
    path: &PathPart,
    tcp_share: f64,
    (series, held): (&Series, &WaitShares),
    found: &mut Vec<Finding>,
) {
    let tcp = path.tcp.as_ref().filter(|t| tcp_share > 0.5 && !t.busy.is_zero());
    let Some(tcp) = tcp else { return };
    let receiver = Work::share(tcp.receiver_limited, tcp.busy, 1).min(1.0);
    let sender = Work::share(tcp.send_buffer_limited, tcp.busy, 1).min(1.0);
    let rtt = path.min_rtt.unwrap_or_default();
    // A paced sender is not always window-limited when the kernel samples it, but the data in
    // flight cannot exceed the window.
    let under_way = series.arrived / 8.0 * rtt.as_secs_f64();
    let used = tcp.receiver_window.map_or(0.0, |w| under_way / w.get().max(1) as f64);
    // A receiver that does not read its data closes the window too.
    let slow = ramp(held.full, 0.1, 0.4).max(ramp(held.blurred, 0.15, 0.4));
    let full = ramp(receiver, 0.1, 0.35).max(ramp(used, 0.55, 0.8));
    // If there is a queue, a larger window would only lengthen it.
    let queued = ramp(series.mean, 2.0 * series.floor, 5.0 * series.floor);
    let sure = 0.92 * (full * (1.0 - slow)).max(ramp(sender, 0.2, 0.5)) * (1.0 - 0.5 * queued);
    let (which, remedy) = if receiver.max(used) >= sender {
        (
            "the TCP window that the receiving system allows",
            "there, as root: `sysctl -w net.ipv4.tcp_rmem='4096 131072 67108864'`",
        )
    } else {
        (
            "the TCP send buffer that the sending system allows",
            "at the sending end, as root: `sysctl -w net.ipv4.tcp_wmem='4096 65536 67108864'`",
        )
    };
    let more = tcp.streams.clamp(1, 16) * 4;
    found.push(
        Finding::new(
            Limiter::Window,
            sure,
            format!("{which} was the limit"),
            format!(
                "{remedy}; or more streams (--streams {more}), or `--transport native`, which \
                 needs neither"
            ),
        )
        .fact("held back by the receiver's window", percent(receiver))
        .fact("of that window under way", percent(used))
        .fact("held back by the send buffer", percent(sender))
        .fact("round trip", seconds(rtt))
        .fact("goodput", goodput(evidence)),
    );
}
