//! `--explain`: the choices before the transfer, and the results after it. The reasons for a change
//! of transport during the transfer come from the code that chooses.

use packtrain_service::{
    CpRequest, Location, LossCause, Outcome, Resume, StreamsReport, TransportChoice,
};
use packtrain_units::DataRate;

use super::stores;
use crate::out::summary::time;

/// The choices that are known before the first byte moves.
pub(crate) fn before(request: &CpRequest, asked: Option<DataRate>) -> Vec<String> {
    let mut lines = vec![ends(request), transport(request)];
    lines.extend(request.options.rate_bps.map(|bps| {
        let rate = DataRate::from_bps(bps);
        match asked {
            Some(asked) if asked > rate => {
                format!("rate: at most {rate}, this site's ceiling, below the requested {asked}")
            }
            None => format!("rate: at most {rate}, this site's ceiling"),
            Some(_) => format!("rate: at most {rate}, as requested"),
        }
    }));
    if !request.depots.is_empty() {
        let depots: Vec<String> = request.depots.iter().map(ToString::to_string).collect();
        let depots = depots.join(", ");
        lines.push(format!("path: direct at first; over one of {depots} if that is likely faster"));
    }
    if !request.options.verify {
        lines.push(match request.options.resume {
            Resume::On => "resume: data of an earlier run is read again before it is used".into(),
            Resume::Trust => "resume: data of an earlier run is used without reading it".into(),
            Resume::Off => "resume: off; an interrupted run keeps nothing".into(),
        });
    }
    lines
}

/// The results after the transfer.
pub(crate) fn after(outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    let shares = outcome.shares.iter().filter(|share| share.bytes.get() > 0);
    lines.extend(shares.map(|share| format!("{} moved {}", share.name, share.bytes)));
    lines.extend(outcome.streams.iter().flat_map(streams));
    lines.extend(outcome.rtt.map(|rtt| format!("shortest round-trip time: {}", time(rtt))));
    let causes = outcome.loss_cause.bytes.iter().filter(|(_, bytes)| bytes.get() > 0);
    lines.extend(
        causes.map(|(cause, bytes)| format!("retransmitted after losses at {cause}: {bytes}")),
    );
    lines.extend(judged(&outcome.loss_cause));
    lines
}

/// The number of TCP streams, and the reasons for it.
fn streams(report: &StreamsReport) -> Vec<String> {
    let mut lines = numbers(report);
    lines.extend(report.way_reasons.iter().map(|reason| format!("path: {reason}")));
    lines.extend(report.ways.iter().filter(|way| way.bytes.get() > 0).map(|way| {
        let rate = way.rate.map_or_else(String::new, |rate| format!(", {rate} after the start"));
        format!("path: {} moved {}{rate}", way.way, way.bytes)
    }));
    lines
}

fn numbers(report: &StreamsReport) -> Vec<String> {
    let StreamsReport { last, most, congestion, .. } = report;
    let mut line = match report.asked {
        Some(n) => format!("tcp streams: {n}, as requested, {congestion}"),
        None => format!("tcp streams: {last} at the end, {most} at most, {congestion}"),
    };
    if report.broken > 0 {
        line.push_str(&format!("; {} broke and were replaced", report.broken));
    }
    let reasons = report.reasons.iter().map(|reason| format!("tcp streams: {reason}"));
    std::iter::once(line).chain(reasons).collect()
}

/// The cause of the losses that the classifier found.
fn judged(loss: &LossCause) -> Option<String> {
    let (cause, p) = (loss.cause.as_deref()?, loss.p_cpu?);
    let host = loss.host_share.filter(|share| *share > 0.0);
    let host = host.map_or_else(String::new, |share| {
        format!("; the receiving host counted {:.0} % of them itself", share * 100.0)
    });
    let percent = p * 100.0;
    Some(format!("losses look like: {cause} (receiver's processor {percent:.0} % likely){host}"))
}

fn ends(request: &CpRequest) -> String {
    let reach = |place: &Location| match place {
        Location::Ssh { host, .. } => format!("{host} by `{}`", request.ssh.command.join(" ")),
        Location::Server { host, port, .. } => format!("the server {host}, port {port}"),
        Location::Udt4 { host, port, .. } => format!("the UDT server {host}, port {port}"),
        Location::Http { url, .. } => url.to_string(),
        Location::S3 { bucket, .. } => format!("the bucket {bucket}"),
        Location::Local(_) | Location::Stdio => "this machine".to_owned(),
    };
    let from = request.sources.first().map(reach).unwrap_or_default();
    let to = reach(&request.dest);
    let far = request.dest.is_remote() && request.sources.iter().any(Location::is_remote);
    let steer =
        if far { "; they connect to each other, this machine only controls them" } else { "" };
    format!("from {from} to {to}{steer}")
}

fn transport(request: &CpRequest) -> String {
    let far = request.dest.is_remote() || request.sources.iter().any(Location::is_remote);
    match request.transport {
        _ if request.sources.iter().any(|s| matches!(s, Location::Udt4 { .. })) => {
            "transport: udt4, unencrypted: the place is a stock UDT server".to_owned()
        }
        _ if request.sources.iter().chain([&request.dest]).any(stores::is_store) => {
            let many = request.streams.map_or("auto".to_owned(), |n| n.to_string());
            format!("transport: range requests over parallel connections: {many}")
        }
        _ if !far => "transport: none, both ends are on this machine".to_owned(),
        TransportChoice::Auto => {
            "transport: auto: the best one that works moves the data, the others are in reserve"
                .to_owned()
        }
        other => format!("transport: only {}, as requested", other.name()),
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
