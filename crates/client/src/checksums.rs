//! Digests of the files of another machine, for the manifests of `verify`.

use packtrain_identity::tickets::Ticket;
use packtrain_runtime::checksum_list::{HashKind, OnDigest};
use packtrain_runtime::control::Control;
use packtrain_runtime::session::Stop;
use packtrain_runtime::{query, tunnel};
use packtrain_service::{
    FailureKind, Location, Options, Reporter, RequestError, SshSettings, StopHandle,
};

use crate::ssh;

/// How the other end is reached, and who hears of it.
pub struct Reach<'a> {
    /// For a place that ssh reaches.
    pub ssh: SshSettings,
    /// For a server.
    pub ticket: Option<Ticket>,
    /// Trust a server whose key is unknown, and save the key.
    pub accept_new_host: bool,
    /// Is told if a program is sent there.
    pub reporter: &'a dyn Reporter,
    /// Requests to stop.
    pub stop: StopHandle,
}

/// The digests of the files below `place` that the filters of `options` include, in the order in which
/// that machine reads them. Only paths and digests travel.
///
/// # Errors
/// The machine is not reached, it refuses, it is older, or the directory cannot be read.
pub fn digests(
    reach: &Reach<'_>,
    place: &Location,
    options: &Options,
    kind: HashKind,
    on_digest: &mut OnDigest<'_>,
) -> Result<(), RequestError> {
    let ask = |control: &Control, path: &[u8], ticket, on_digest: &mut OnDigest<'_>| {
        let stop = Stop::new(reach.stop.clone());
        query::digests(control, path, options, (kind, ticket), stop, on_digest)
    };
    match place {
        Location::Ssh { user, host, path } => {
            let remote =
                ssh::start(&reach.ssh, user.as_deref(), host, reach.reporter, &reach.stop)?;
            let (control, waiter) = remote.split();
            let done = ask(&control, path, None, on_digest);
            drop(control);
            waiter.finish(done.is_ok());
            Ok(done?)
        }
        Location::Server { host, port, path } => {
            let trust = tunnel::Trust {
                ticket: reach.ticket.clone(),
                accept_new_host: reach.accept_new_host,
            };
            let notice = |notice| reach.reporter.notice(&notice);
            let tunnel = tunnel::open(host, *port, &trust, None, &reach.stop, &notice)?;
            Ok(ask(&tunnel.control, path, tunnel.token, on_digest)?)
        }
        _ => {
            let text = "digests are made by a packtrain at the other end: name a directory of this \
                        machine, user@host:path or pt://host:port/path";
            Err(RequestError::new(FailureKind::Usage, text))
        }
    }
}
