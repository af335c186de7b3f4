//! The other end, however it is reached.

use std::net::IpAddr;

use packtrain_transfer::FailureKind;

use super::watch::Watch;
use crate::ssh::{self, Remote};
use packtrain_hops::route::Route;
use packtrain_runtime::control::Control;
use packtrain_runtime::transports::Hints;
use packtrain_runtime::tunnel;
use packtrain_service::{CpRequest, Location, RequestError};

/// The other end.
pub(super) enum RemoteEnd {
    Ssh(Remote),
    Server(tunnel::Tunnel),
}

/// What stays when the control connection is taken out.
pub(super) enum Rest {
    Ssh(ssh::Waiter),
    Server,
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
                Ok(Self::Ssh(ssh::start(&request.ssh, user.as_deref(), host, &request.stop)?))
            }
            Location::Server { host, port, .. } => {
                let trust = tunnel::Trust {
                    ticket: request.ticket.clone(),
                    accept_new_host: request.accept_new_host,
                };
                let notice = |n| watch.say(n);
                Ok(Self::Server(tunnel::open(host, *port, &trust, route, &notice)?))
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

    pub(super) fn hints(&self) -> Hints {
        let own = match self {
            Self::Ssh(_) => Vec::new(),
            Self::Server(tunnel) => tunnel.local.into_iter().collect(),
        };
        Hints { peer: self.addresses(), own, ..Hints::default() }
    }

    pub(super) fn split(self) -> (Control, Rest) {
        match self {
            Self::Ssh(remote) => {
                let (control, waiter) = remote.split();
                (control, Rest::Ssh(waiter))
            }
            Self::Server(tunnel) => (tunnel.control, Rest::Server),
        }
    }
}

impl Rest {
    /// Lets the other end finish.
    pub(super) fn finish(self) {
        match self {
            Self::Ssh(waiter) => waiter.finish(),
            Self::Server => {}
        }
    }
}
