//! The depots of a request: whether they can serve it, and the paths over them.

use std::sync::Arc;

use packtrain_session::Host;

use super::remote::RemoteEnd;
use super::{transport, usage};
use packtrain_hops::route::{Route, Via};
use packtrain_runtime::candidate_paths::{CandidatePaths, Task};
use packtrain_service::history::{self, PathFilter};
use packtrain_service::{CpRequest, Location, RequestError, TransportChoice};

/// What depots cannot do is refused before anything begins.
pub(super) fn check_via(
    request: &CpRequest,
    store: bool,
    here: bool,
    far: bool,
) -> Result<(), RequestError> {
    if !request.via.is_empty() && !request.depots.is_empty() {
        return Err(usage("the depots are either named or chosen: not both"));
    }
    if request.via.is_empty() {
        return Ok(());
    }
    if transport(request) != TransportChoice::Tcp {
        let name = request.transport.name();
        return Err(usage(&format!(
            "the ends of a path over depots speak TCP: leave out --transport {name} or --via"
        )));
    }
    if store {
        return Err(usage("--via leads to other ends of ours, not to other people's servers"));
    }
    if here {
        return Err(usage("--via is about the way to another machine: both places are here"));
    }
    if far {
        return Err(usage(
            "--via needs one of the two places here: run the command at one of them",
        ));
    }
    Ok(())
}

/// How the bytes go to the other end, which `far` is.
pub(super) fn via(request: &CpRequest, far: &RemoteEnd, route: Option<Arc<Route>>) -> Option<Via> {
    Some(Via { route: route?, host: seen_from_depots(request, far)? })
}

/// The ways there are to choose from.
pub(super) fn ways(
    request: &CpRequest,
    far: &RemoteEnd,
) -> Result<Option<Arc<CandidatePaths>>, RequestError> {
    let Some(host) = seen_from_depots(request, far) else { return Ok(None) };
    let tcp = matches!(request.transport, TransportChoice::Auto | TransportChoice::Tcp);
    if request.depots.is_empty() || !tcp || request.options.verify || request.options.dry_run {
        return Ok(None);
    }
    let alike = PathFilter { streams: request.streams, congestion: request.tcp_cc.clone() };
    let here = history::this_machine();
    let name = |place: Option<&Location>| {
        place.and_then(Location::host).map_or_else(|| here.clone(), str::to_owned)
    };
    let task = Task {
        host,
        fetch: request.dest.host().is_none(),
        ends: [name(request.sources.first()), name(Some(&request.dest))],
        alike,
    };
    CandidatePaths::over(&request.depots, task, &request.history).map(Some)
}

/// The other end, as depots are to find it.
fn seen_from_depots(request: &CpRequest, far: &RemoteEnd) -> Option<Host> {
    let place = if matches!(request.dest, Location::Local(_) | Location::Stdio) {
        request.sources.first()
    } else {
        Some(&request.dest)
    };
    match (place, &request.data_addr) {
        (_, Some(address)) => Host::parse(address).ok(),
        (Some(Location::Server { host, .. }), None) => Host::parse(host).ok(),
        // A name of ssh's configuration means nothing elsewhere.
        _ => far.addresses().first().map(|ip| Host::Ip(*ip)),
    }
}
