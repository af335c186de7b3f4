//! The other end, however it is reached.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use packtrain_transfer::FailureKind;

use super::depots::{via, ways};
use super::watch::Watch;
use crate::ssh::{self, Remote};
use packtrain_hops::route::Route;
use packtrain_runtime::control::{Control, ControlSender};
use packtrain_runtime::handshake::SessionRequest;
use packtrain_runtime::permissions::Permissions;
use packtrain_runtime::transports::{Hints, TransportConfig};
use packtrain_runtime::tunnel;
use packtrain_service::ceilings::Ceilings;
use packtrain_service::{CpRequest, Location, Notice, NoticeLevel, RequestError};

/// The other end.
pub(super) enum RemoteEnd {
    Ssh(Remote),
    Server(tunnel::Tunnel),
}

/// What stays when the control connection is taken out.
pub(super) enum Rest {
    Ssh(ssh::Waiter),
    Server(ControlSender),
}

impl RemoteEnd {
    pub(super) fn connect(
        request: &CpRequest,
        location: &Location,
        route: Option<&Route>,
        watch: &Watch<'_>,
    ) -> Result<Self, RequestError> {
        match location {
            Location::Ssh { user, host, .. } => {
                let user = user.as_deref();
                let stop = &request.stop;
                Ok(Self::Ssh(ssh::start(&request.ssh, user, host, watch.reporter, stop)?))
            }
            Location::Server { host, port, .. } => {
                let trust = tunnel::Trust {
                    ticket: request.ticket.clone(),
                    accept_new_host: request.accept_new_host,
                };
                let notice = |n| watch.say(n);
                Ok(Self::Server(tunnel::open(host, *port, &trust, route, &request.stop, &notice)?))
            }
            // Fetched before anybody asks for an end.
            Location::Local(_)
            | Location::Stdio
            | Location::Udt4 { .. }
            | Location::Http { .. }
            | Location::S3 { .. } => {
                Err(RequestError::new(FailureKind::Fatal, "a local place is not far: a bug"))
            }
        }
    }

    pub(super) fn control(&self) -> &Control {
        match self {
            Self::Ssh(remote) => &remote.control,
            Self::Server(tunnel) => &tunnel.control,
        }
    }

    /// The token of the ticket that opens it, if there is one.
    pub(super) fn token(&self) -> Option<[u8; 16]> {
        match self {
            Self::Ssh(_) => None,
            Self::Server(tunnel) => tunnel.token,
        }
    }

    /// Where it is.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        match self {
            Self::Ssh(remote) => remote.addresses.clone(),
            Self::Server(tunnel) => tunnel.peer.clone(),
        }
    }

    fn hints(&self, request: &CpRequest, watch: &Watch<'_>) -> Hints {
        let own = match self {
            Self::Ssh(_) => Vec::new(),
            Self::Server(tunnel) => tunnel.local.into_iter().collect(),
        };
        let named = request.data_addr.as_deref().map(|name| named(name, |n| watch.say(n)));
        Hints { peer: named.unwrap_or_else(|| self.addresses()), own, ..Hints::default() }
    }

    /// The control connection, the configuration of the transports without the limits of the other
    /// end, and what stays.
    pub(super) fn ready(
        self,
        request: &CpRequest,
        ask: &SessionRequest,
        limits: &Permissions,
        route: Option<Arc<Route>>,
        watch: &Watch<'_>,
    ) -> Result<(Control, TransportConfig, Rest), RequestError> {
        let unknown = Ceilings::default();
        let mut plan =
            ask.plan(self.hints(request, watch), limits, &unknown, request.options.rate_bps);
        plan.via = via(request, &self, route);
        plan.ways = ways(request, &self)?;
        let (control, rest) = self.split();
        Ok((control, plan, rest))
    }

    pub(super) fn split(self) -> (Control, Rest) {
        match self {
            Self::Ssh(remote) => {
                let (control, waiter) = remote.split();
                (control, Rest::Ssh(waiter))
            }
            Self::Server(tunnel) => {
                let tx = tunnel.control.tx.clone();
                (tunnel.control, Rest::Server(tx))
            }
        }
    }
}

/// The addresses of `--data-addr`. Without any the user is told, because the copy continues.
fn named(name: &str, say: impl FnOnce(Notice)) -> Vec<IpAddr> {
    let found = packtrain_service::host::lookup(name);
    if found.is_empty() {
        let text = format!(
            "--data-addr {name}: no address is known for this name, so this end makes no data \
             connections, and data may have to go through the control connection, which is slower"
        );
        say(Notice::new(NoticeLevel::Warning, text));
    }
    found
}

/// How long the last messages may take to leave this process.
const LAST_MESSAGES: Duration = Duration::from_secs(2);

impl Rest {
    /// Lets the other end finish. Once all is durable (`done`) nobody waits for it: its last
    /// messages, and the end of ssh, would cost a round trip.
    pub(super) fn finish(self, done: bool) {
        match self {
            Self::Ssh(waiter) => waiter.finish(done),
            Self::Server(tx) => {
                tx.close();
                tx.wait_closed(LAST_MESSAGES);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_an_address_is_told() {
        let mut told = Vec::new();
        assert!(named("no..name", |notice| told.push(notice.text)).is_empty());
        assert!(told.len() == 1 && told[0].starts_with("--data-addr no..name: "), "{told:?}");
        let known = named("127.0.0.1", |notice| panic!("{notice:?}"));
        assert_eq!(known, [IpAddr::from([127, 0, 0, 1])]);
    }
}
