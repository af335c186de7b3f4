//! The control connection to a server: TLS 1.3, with the server's key pinned by `known_hosts` or a
//! ticket.

use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use packtrain_net::tcp::tls::{any_name, client_config, is_key_refused};
use packtrain_net::tcp::{ConnectError, ConnectOptions, connect, describe, tune};
use packtrain_session::{Host, Place};
use packtrain_transfer::FailureKind;
use packtrain_units::Duration;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::control::{self, Control};
use packtrain_hops::Carrier;
use packtrain_hops::route::{DialError, Route};
use packtrain_identity::config::Dirs;
use packtrain_identity::keys;
use packtrain_identity::knownhosts::{Known, KnownHosts};
use packtrain_identity::pubkey::PublicKey;
use packtrain_identity::tickets::Ticket;
use packtrain_service::{Notice, NoticeLevel, RequestError, STOPPED, StopHandle, executor};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for the connection to the first depot; the direct path remains as an alternative.
const FIRST_HOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without acknowledgements after which the kernel closes the connection.
const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// The trusted keys.
pub struct Trust {
    /// A ticket that names the server's key.
    pub ticket: Option<Ticket>,
    /// Trust a server whose key is unknown, and save the key.
    pub accept_new_host: bool,
}

/// A connection to a server.
pub struct Tunnel {
    /// The control connection.
    pub control: Control,
    /// Addresses of the server, as this machine sees them.
    pub peer: Vec<IpAddr>,
    /// Address of this machine, as the server sees it; none over depots.
    pub local: Option<IpAddr>,
    /// The token of the ticket, to present to the server.
    pub token: Option<[u8; 16]>,
}

/// Connects to a server and checks its key. A request to stop ends the attempt.
pub fn open(
    host: &str,
    port: u16,
    trust: &Trust,
    route: Option<&Route>,
    stop: &StopHandle,
    notice: &dyn Fn(Notice),
) -> Result<Tunnel, RequestError> {
    let ticket = trust.ticket.as_ref();
    let identity = keys::identity()?;
    let seen: Arc<Mutex<Option<PublicKey>>> = Arc::default();
    let shown = Arc::clone(&seen);
    // The key is checked after the handshake, where an error can state the remedy. Only the
    // handshake is sent before.
    let decide = Arc::new(move |key: &packtrain_net::tcp::PublicKey| {
        *shown.lock() = Some(PublicKey(key.0));
        true
    });
    let config = client_config(&identity, decide)
        .map_err(|e| RequestError::new(FailureKind::Fatal, e.to_string()))?;
    let away = |text: String| RequestError::new(FailureKind::Temporary, text);
    let connector = TlsConnector::from(config);
    let through = match route.filter(|route| !route.is_direct()) {
        Some(route) => {
            let through = over_depots(host, port, route, &connector, stop);
            route.said().into_iter().for_each(notice);
            through?
        }
        None => None,
    };
    let relayed = through.is_some();
    let direct = async {
        let options = ConnectOptions { timeout: CONNECT_TIMEOUT, ..ConnectOptions::default() };
        let unreachable = |error: ConnectError| {
            let kind = if error.is_final() { FailureKind::Fatal } else { FailureKind::Temporary };
            RequestError::new(kind, error.to_string())
        };
        let socket = connect(host, port, &options).await.map_err(unreachable)?;
        // These settings are optional: errors of systems without them are ignored.
        let _ = tune::set_nodelay(&socket);
        let _ = tune::set_dead_after(&socket, DEAD_PEER_TIMEOUT);
        let shake = connector.connect(any_name(), Carrier::Tcp(socket));
        let limit = tokio::time::timeout(CONNECT_TIMEOUT.to_std(), shake).await;
        let shaken = limit.map_err(|_| away(format!("{host}:{port} does not answer")))?;
        shaken.map_err(|e| refused(host, port, &e))
    };
    let stream = match through {
        Some(stream) => stream,
        None => executor::handle().block_on(stop.unless_stopped(direct)).ok_or_else(stopped)??,
    };
    let key = (*seen.lock()).ok_or_else(|| {
        RequestError::new(FailureKind::NotAuthorised, format!("{host}:{port} showed no key"))
    })?;
    check_host_key(host, port, &key, ticket, trust.accept_new_host, notice)?;
    let socket = stream.get_ref().0;
    let address = |a: std::io::Result<SocketAddr>| a.map_err(|e| away(e.to_string()));
    // On a connection over depots the peer address of the socket is that of the first depot.
    let (peer, local) = match socket {
        Carrier::Tcp(socket) if !relayed => {
            let (peer, local) = (address(socket.peer_addr())?, address(socket.local_addr())?);
            (vec![peer.ip()], Some(local.ip()))
        }
        _ => (packtrain_service::host::lookup(host.trim_matches(['[', ']'])), None),
    };
    let _runtime = executor::handle().enter();
    let token = ticket.map(|t| t.token());
    let line = stream.get_ref().0.line();
    Ok(Tunnel { control: control::over_async(stream, line), peer, local, token })
}

fn stopped() -> RequestError {
    RequestError::new(FailureKind::Cancelled, STOPPED)
}

fn refused(host: &str, port: u16, error: &std::io::Error) -> RequestError {
    if is_key_refused(error) {
        let text = format!("{host}:{port} does not accept this user's key");
        return RequestError::new(FailureKind::NotAuthorised, text);
    }
    // What is no TLS is something else that listens there, also at the next try.
    if error.kind() == std::io::ErrorKind::InvalidData {
        let text = format!("what answers at {host}:{port} is no packtrain server: check the port");
        return RequestError::new(FailureKind::Fatal, text);
    }
    let text = format!("{host}:{port}: {}; is it a packtrain server?", describe(error));
    RequestError::new(FailureKind::Temporary, text)
}

/// Connects over depots; none if they failed and the direct path is to be used.
fn over_depots(
    host: &str,
    port: u16,
    route: &Route,
    connector: &TlsConnector,
    stop: &StopHandle,
) -> Result<Option<TlsStream<Carrier>>, RequestError> {
    let wrong = |_| RequestError::new(FailureKind::Usage, format!("{host} is no name or address"));
    let place = Place { host: Host::parse(host).map_err(wrong)?, port };
    let options = ConnectOptions { timeout: FIRST_HOP_TIMEOUT, ..ConnectOptions::default() };
    let dial = stop.unless_stopped(route.dial_long(&place, connector, &options));
    let dialled = executor::handle().block_on(dial).ok_or_else(stopped)?;
    dialled.map_err(|error| match error {
        DialError::Handshake(error) => refused(host, port, &error),
        error if error.is_denied() => {
            RequestError::new(FailureKind::NotAuthorised, error.to_string())
        }
        error => RequestError::new(FailureKind::Usage, error.to_string()),
    })
}

fn check_host_key(
    host: &str,
    port: u16,
    key: &PublicKey,
    ticket: Option<&Ticket>,
    accept: bool,
    notice: &dyn Fn(Notice),
) -> Result<(), RequestError> {
    let denied = |text: String| Err(RequestError::new(FailureKind::NotAuthorised, text));
    let print = key.fingerprint();
    let known_hosts = KnownHosts::new(Dirs::from_env()?.known_hosts());
    let failed = |e: std::io::Error| {
        RequestError::new(FailureKind::Fatal, format!("{}: {e}", known_hosts.path().display()))
    };
    let known = known_hosts.check(host, port, key).map_err(failed)?;
    // First, because the ticket may be older than the revocation of its key.
    if let Known::Revoked { line } = known {
        return denied(format!(
            "the key of {host}:{port} is revoked (line {line} of {})",
            known_hosts.path().display()
        ));
    }
    if let Some(ticket) = ticket {
        if ticket.host() == print {
            return Ok(());
        }
        return denied(format!(
            "{host}:{port} shows the key {print}, but the ticket is for {}: somebody may be in \
             between, or the ticket is for another server",
            ticket.host()
        ));
    }
    match known {
        Known::Yes => Ok(()),
        Known::New if accept => match known_hosts.remember(host, port, key).map_err(failed)? {
            Known::Yes => {
                let text = format!("remembered the key {print} for {host}:{port}");
                notice(Notice::new(NoticeLevel::Info, text));
                Ok(())
            }
            _ => denied(format!("{host}:{port}: its key became known otherwise meanwhile")),
        },
        Known::New => denied(format!(
            "the key of {host}:{port} is not known: it is {print}; compare it with what the \
             server printed, then use --accept-new-host once"
        )),
        Known::Changed { line, .. } => denied(format!(
            "the key of {host}:{port} has changed to {print} (it differs from line {line} of {}): \
             somebody may be in between; if the server was really set up anew, run packtrain key \
             forget {host}:{port}",
            known_hosts.path().display()
        )),
        Known::Revoked { .. } => denied(format!("the key of {host}:{port} is revoked")),
    }
}
