//! `--explain`: what was settled before the transfer and what it turned out to be. Why a
//! transport was chosen on the way is told by those who chose it.

use packtrain_service::{
    CpRequest, Location, LossCause, Outcome, Resume, StreamsReport, TransportChoice,
};
use packtrain_units::DataRate;

use super::stores;
use crate::out::summary::time;

/// What holds before the first byte moves.
pub(crate) fn before(request: &CpRequest, asked: Option<DataRate>) -> Vec<String> {
    let mut lines = vec![ends(request), transport(request)];
    lines.extend(request.options.rate_bps.map(|bps| {
        let rate = DataRate::from_bps(bps);
        match asked {
            Some(asked) if asked > rate => {
                format!("rate: at most {rate}, this site's ceiling, where {asked} was asked for")
            }
            None => format!("rate: at most {rate}, this site's ceiling"),
            Some(_) => format!("rate: at most {rate}, as asked for"),
        }
    }));
    if !request.depots.is_empty() {
        let depots: Vec<String> = request.depots.iter().map(ToString::to_string).collect();
        let depots = depots.join(", ");
        lines.push(format!("way: directly at first; over one of {depots} if that likely pays"));
    }
    if !request.options.verify {
        lines.push(match request.options.resume {
            Resume::On => "resume: what an earlier run left is read again before it counts".into(),
            Resume::Trust => "resume: what an earlier run left counts without being read".into(),
            Resume::Off => "resume: off, an interrupted run leaves nothing to go on from".into(),
        });
    }
    lines
}

/// What it turned out to be.
pub(crate) fn after(outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    let shares = outcome.shares.iter().filter(|share| share.bytes.get() > 0);
    lines.extend(shares.map(|share| format!("{} moved {}", share.name, share.bytes)));
    lines.extend(outcome.streams.iter().flat_map(streams));
    lines.extend(outcome.rtt.map(|rtt| format!("the shortest round trip was {}", time(rtt))));
    let causes = outcome.loss_cause.bytes.iter().filter(|(_, bytes)| bytes.get() > 0);
    lines.extend(causes.map(|(cause, bytes)| format!("sent again because of {cause}: {bytes}")));
    lines.extend(judged(&outcome.loss_cause));
    lines
}

/// How many TCP streams there were, and why.
fn streams(report: &StreamsReport) -> Vec<String> {
    let mut lines = numbers(report);
    lines.extend(report.way_reasons.iter().map(|reason| format!("way: {reason}")));
    lines.extend(report.ways.iter().filter(|way| way.bytes.get() > 0).map(|way| {
        let rate = way.rate.map_or_else(String::new, |rate| format!(", {rate} once risen"));
        format!("way: {} moved {}{rate}", way.way, way.bytes)
    }));
    lines
}

fn numbers(report: &StreamsReport) -> Vec<String> {
    let StreamsReport { last, most, congestion, .. } = report;
    let mut line = match report.asked {
        Some(n) => format!("tcp streams: {n}, as asked for, {congestion}"),
        None => format!("tcp streams: {last} at the end, {most} at most, {congestion}"),
    };
    if report.broken > 0 {
        line.push_str(&format!("; {} broke and were replaced", report.broken));
    }
    let reasons = report.reasons.iter().map(|reason| format!("tcp streams: {reason}"));
    std::iter::once(line).chain(reasons).collect()
}

/// What the classifier says of the losses.
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
    let steer = if far { "; the two talk to each other, this machine only steers" } else { "" };
    format!("from {from} to {to}{steer}")
}

fn transport(request: &CpRequest) -> String {
    let far = request.dest.is_remote() || request.sources.iter().any(Location::is_remote);
    match request.transport {
        _ if request.sources.iter().any(|s| matches!(s, Location::Udt4 { .. })) => {
            "transport: udt4, in clear, since the place is one of the stock UDT library".to_owned()
        }
        _ if request.sources.iter().chain([&request.dest]).any(stores::is_store) => {
            let many = request.streams.map_or("as many as pay".to_owned(), |n| n.to_string());
            format!("transport: requests of ranges over several connections: {many}")
        }
        _ if !far => "transport: none is needed, both ends are here".to_owned(),
        TransportChoice::Auto => {
            "transport: auto; the best that works moves the bytes, the others stand by".to_owned()
        }
        other => format!("transport: {}, as asked for, and no other", other.name()),
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
