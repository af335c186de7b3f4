//! The control connection to a server: TLS 1.3, the server's key pinned by `known_hosts` or by a
//! ticket.

use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use packtrain_net::tcp::tls::{any_name, client_config, is_key_refused};
use packtrain_net::tcp::{ConnectOptions, connect, tune};
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
use packtrain_service::{Notice, NoticeLevel, RequestError, executor};

const CONNECT: Duration = Duration::from_secs(20);
/// How long the first depot has to be connected; after that there is still the direct way.
const HOP: Duration = Duration::from_secs(5);
/// A network that is gone this long ends the connection.
const DEAD: Duration = Duration::from_secs(60);

/// Whom to trust.
pub struct Trust {
    /// A ticket that names the server's key.
    pub ticket: Option<Ticket>,
    /// Trusts a server whose key is not known, and remembers it.
    pub accept_new_host: bool,
}

/// A connection to a server.
pub struct Tunnel {
    /// The control connection.
    pub control: Control,
    /// Where the server is, as far as this machine knows.
    pub peer: Vec<IpAddr>,
    /// Where this machine is, as the server sees it; none over depots.
    pub local: Option<IpAddr>,
    /// The ticket's token, to be shown.
    pub token: Option<[u8; 16]>,
}

/// Connects to a server and makes sure of its key.
pub fn open(
    host: &str,
    port: u16,
    trust: &Trust,
    route: Option<&Route>,
    notice: &dyn Fn(Notice),
) -> Result<Tunnel, RequestError> {
    let ticket = trust.ticket.as_ref();
    let identity = keys::identity()?;
    let seen: Arc<Mutex<Option<PublicKey>>> = Arc::default();
    let shown = Arc::clone(&seen);
    // The key is judged after the handshake, where an error can say what to do; nothing but
    // the handshake passes before.
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
            let through = over_depots(host, port, route, &connector);
            route.said().into_iter().for_each(notice);
            through?
        }
        None => None,
    };
    let relayed = through.is_some();
    let direct = async {
        let options = ConnectOptions { timeout: CONNECT, ..ConnectOptions::default() };
        let socket = connect(host, port, &options).await.map_err(|e| away(e.to_string()))?;
        // What a system lacks of these, it does without.
        let _ = tune::set_nodelay(&socket);
        let _ = tune::set_dead_after(&socket, DEAD);
        let shake = connector.connect(any_name(), Carrier::Tcp(socket));
        let limit = tokio::time::timeout(CONNECT.to_std(), shake).await;
        let shaken = limit.map_err(|_| away(format!("{host}:{port} does not answer")))?;
        shaken.map_err(|e| refused(host, port, &e))
    };
    let stream = match through {
        Some(stream) => stream,
        None => executor::handle().block_on(direct)?,
    };
    let key = (*seen.lock()).ok_or_else(|| {
        RequestError::new(FailureKind::NotAuthorised, format!("{host}:{port} showed no key"))
    })?;
    judge(host, port, &key, ticket, trust.accept_new_host, notice)?;
    let socket = stream.get_ref().0;
    let address = |a: std::io::Result<SocketAddr>| a.map_err(|e| away(e.to_string()));
    // Seen from here, the other end of a connection over depots is the first of them.
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

fn refused(host: &str, port: u16, error: &std::io::Error) -> RequestError {
    if is_key_refused(error) {
        let text = format!("{host}:{port} does not accept this user's key");
        return RequestError::new(FailureKind::NotAuthorised, text);
    }
    let text = format!("{host}:{port}: {error}; is it a packtrain server?");
    RequestError::new(FailureKind::Temporary, text)
}

/// Connects over depots; none if they failed and it is to be tried directly.
fn over_depots(
    host: &str,
    port: u16,
    route: &Route,
    connector: &TlsConnector,
) -> Result<Option<TlsStream<Carrier>>, RequestError> {
    let wrong = |_| RequestError::new(FailureKind::Usage, format!("{host} is no name or address"));
    let place = Place { host: Host::parse(host).map_err(wrong)?, port };
    let options = ConnectOptions { timeout: HOP, ..ConnectOptions::default() };
    let dialled = executor::handle().block_on(route.dial_long(&place, connector, &options));
    dialled.map_err(|error| match error {
        DialError::Handshake(error) => refused(host, port, &error),
        error if error.is_denied() => {
            RequestError::new(FailureKind::NotAuthorised, error.to_string())
        }
        error => RequestError::new(FailureKind::Usage, error.to_string()),
    })
}

fn judge(
    host: &str,
    port: u16,
    key: &PublicKey,
    ticket: Option<&Ticket>,
    accept: bool,
    notice: &dyn Fn(Notice),
) -> Result<(), RequestError> {
    let denied = |text: String| Err(RequestError::new(FailureKind::NotAuthorised, text));
    let print = key.fingerprint();
    let book = KnownHosts::new(Dirs::from_env()?.known_hosts());
    let failed = |e: std::io::Error| {
        RequestError::new(FailureKind::Fatal, format!("{}: {e}", book.path().display()))
    };
    let known = book.check(host, port, key).map_err(failed)?;
    // Before all else: a ticket may be older than the revocation of the key that it names.
    if let Known::Revoked { line } = known {
        return denied(format!(
            "the key of {host}:{port} is revoked (line {line} of {})",
            book.path().display()
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
        Known::New if accept => match book.remember(host, port, key).map_err(failed)? {
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
            "the key of {host}:{port} has changed to {print}: somebody may be in between; if the \
             server was really set up anew, remove line {line} of {}",
            book.path().display()
        )),
        Known::Revoked { .. } => denied(format!("the key of {host}:{port} is revoked")),
    }
}
