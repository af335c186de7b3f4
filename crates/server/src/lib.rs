//! The called end: started by ssh on its standard input and output, or listening as a server.

mod access;
mod clients;
mod perf;
mod reports;
mod request;
mod session;

pub use perf::perf;
pub use request::ServeRequest;
#[cfg(test)]
mod ceilings_tests;
#[cfg(test)]
mod round_trips_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use packtrain_net::tcp::tls::{peer_key, server_config};
use packtrain_net::tcp::{Identity, listen, tcp_info, tune};
use packtrain_os::process::raise_open_files;
use packtrain_os::{clock, entropy};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::Duration;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use packtrain_hops::RouteConnection;
use packtrain_identity::authorized::AuthorizedKeys;
use packtrain_identity::config::Dirs;
use packtrain_identity::keys;
use packtrain_identity::pubkey::PublicKey;
use packtrain_identity::tickets::{ServerInstance, Ticket, TicketBook};
use packtrain_runtime::called::{self, Called};
use packtrain_runtime::control::{self, Control};
use packtrain_runtime::handshake::SessionRequest;
use packtrain_runtime::marker::MARKER;
use packtrain_runtime::permissions::Permissions;
use packtrain_runtime::session::Stop;
use packtrain_runtime::transports::{Caller, Hints, Moved};
use packtrain_service::address_policy::DialPolicy;
use packtrain_service::history::{self, Role, Row};
use packtrain_service::unauthenticated::{Eviction, Unauthenticated, UnauthenticatedPeer};
use packtrain_service::{
    Direction, HistoryConfig, Notice, NoticeLevel, Outcome, RequestError, ServeReporter,
    ServedTransfer, StopHandle, executor, host,
};

use access::AccessPolicy;
use clients::{ClientPermit, Clients};
use reports::Reports;

pub(crate) use access::AccessRules;
pub use clients::ClientLimits;

/// Maximum connections whose client is not authenticated yet, in total and per network.
const MAX_UNAUTHENTICATED: usize = 256;
const MAX_UNAUTHENTICATED_PER_NETWORK: usize = 64;
/// Timeout for the TLS handshake. The messages up to the request have a timeout of their own
/// (`handshake`).
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of an earlier try of the same command may take.
const EARLIER_TRY_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection ends when the network is unreachable for this long.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the last messages to the clients may take when the server ends.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves one caller over standard input and output. ssh starts packtrain so.
///
/// # Errors
/// The error that ended the session; the caller got it too.
pub fn stdio(stop: StopHandle) -> Result<(), RequestError> {
    let failed =
        |e: std::io::Error| RequestError::new(FailureKind::Fatal, format!("standard input: {e}"));
    let input: File = rustix::io::dup(rustix::stdio::stdin()).map_err(|e| failed(e.into()))?.into();
    let mut output: File =
        rustix::io::dup(rustix::stdio::stdout()).map_err(|e| failed(e.into()))?.into();
    output.write_all(MARKER).map_err(failed)?;
    let control = control::over_streams("ssh", input, output);
    // The caller is the user of this account, as ssh has verified. It may choose addresses to
    // connect to, and has all permissions of this account.
    let dial = DialPolicy::CallersChoice;
    let site = Permissions { dial, owners: true, ..Permissions::by_policy()? };
    let admit = move |_: &SessionRequest| Ok(site);
    let tx = control.tx.clone();
    let (called, begun) = (Called::new(HistoryConfig::default()), clock::now());
    let ended = session::serve(control, ssh_hints(), admit, &called, Stop::of_called_end(stop));
    // Queued messages to the caller are sent before the process ends.
    tx.close();
    tx.wait_closed(std::time::Duration::from_secs(5));
    let caller = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let caller = caller.split(' ').next().unwrap_or_default();
    if let Some(row) = called.row(caller, clock::now().since(begun), &ended) {
        // The caller is not informed about errors of this account's history.
        let _ = history::keep(&HistoryConfig::default(), &row);
    }
    ended?;
    Ok(())
}

/// The addresses of the caller and this machine, from sshd's environment.
fn ssh_hints() -> Hints {
    let text = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let ip = |n: usize| words.get(n).and_then(|w| w.parse::<IpAddr>().ok());
    Hints {
        peer: ip(0).into_iter().collect(),
        caller: ip(0).map(|host| Caller { host, rtt: None }),
        own: ip(2).into_iter().collect(),
        ..Hints::default()
    }
}

/// A client's address and key, its duration and result, and its row if it was admitted.
pub(crate) type Served = (String, Duration, Ended, Option<Row>);

/// The result of a client's request.
type Ended = Result<(packtrain_transfer::Outcome, Moved), Failure>;

/// The listening address of a server, its limits and its reporter.
pub(crate) struct Listening<'a> {
    pub(crate) address: &'a str,
    pub(crate) ticket: Option<(PathBuf, Duration)>,
    pub(crate) stop: StopHandle,
    /// End after this many clients.
    pub(crate) clients: Option<u64>,
    pub(crate) limits: ClientLimits,
    /// How long clients may continue after the request to stop.
    pub(crate) drain: Duration,
    pub(crate) ready: &'a dyn Fn(SocketAddr, &str),
    pub(crate) notice: &'a dyn Fn(Notice),
    pub(crate) done: Arc<dyn Fn(Served) + Send + Sync>,
    /// Warns the owner of the server.
    pub(crate) warn: Arc<dyn Fn(String) + Send + Sync>,
    /// Where rows are stored.
    pub(crate) history: HistoryConfig,
}

/// The state that all clients of a server share.
struct Server {
    access: AccessPolicy,
    acceptor: TlsAcceptor,
    unauthenticated: Arc<Unauthenticated>,
    clients: Arc<Clients>,
    runs: Runs,
    /// Ends running transfers; their callers are asked to try again.
    cut: StopHandle,
    served: AtomicU64,
    done: Arc<dyn Fn(Served) + Send + Sync>,
    warn: Arc<dyn Fn(String) + Send + Sync>,
    history: HistoryConfig,
}

/// Listens and serves until the request to stop, then lets clients finish within the limit.
pub(crate) fn run_server(
    identity: &Identity,
    rules: AccessRules,
    listening: &Listening<'_>,
) -> Result<(), RequestError> {
    let usage = |text: String| RequestError::new(FailureKind::Usage, text);
    let address: SocketAddr = host::listen_address(listening.address).map_err(usage)?;
    let fingerprint = keys::public(identity).fingerprint();
    let config = server_config(identity, Arc::new(|_| true))
        .map_err(|e| RequestError::new(FailureKind::Fatal, e.to_string()))?;
    raise_open_files();
    let _runtime = executor::handle().enter();
    let listener = listen(address).map_err(|e| {
        let text = format!("cannot listen on {address}: {e}; choose another with --listen");
        RequestError::new(FailureKind::Fatal, text)
    })?;
    let bound = listener.local_addr().unwrap_or(address);
    let instance = ServerInstance::new(rules.kind, fingerprint, bound, rules.root.as_deref());
    if let Some((path, lifetime)) = &listening.ticket {
        issue(&rules, instance, path, *lifetime, fingerprint)?;
    }
    (listening.ready)(bound, &fingerprint.to_string());
    let server = Arc::new(Server {
        access: AccessPolicy { rules, instance },
        acceptor: TlsAcceptor::from(config),
        unauthenticated: Unauthenticated::new(MAX_UNAUTHENTICATED, MAX_UNAUTHENTICATED_PER_NETWORK),
        clients: Clients::new(listening.limits),
        runs: Runs::default(),
        cut: StopHandle::new(),
        served: AtomicU64::new(0),
        done: Arc::clone(&listening.done),
        warn: Arc::clone(&listening.warn),
        history: listening.history.clone(),
    });
    executor::handle().block_on(async {
        server.accept_until_stopped(listener, listening).await;
        if let Some(signal) = listening.stop.requested() {
            server.drain(signal, listening).await;
        }
    });
    Ok(())
}

impl Server {
    async fn accept_until_stopped(
        self: &Arc<Self>,
        listener: TcpListener,
        listening: &Listening<'_>,
    ) {
        loop {
            let tick = tokio::time::sleep(std::time::Duration::from_millis(100));
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = listening.stop.stopped() => return,
                () = tick => {
                    let served = self.served.load(Ordering::Acquire);
                    if listening.clients.is_some_and(|n| served >= n) { return } else { continue }
                }
            };
            let Ok((socket, peer)) = accepted else {
                // Probably the limit of open files: wait until some are closed.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            let (pending, eviction) = self.unauthenticated.register(peer.ip());
            tokio::spawn(Arc::clone(self).connection(socket, peer, pending, eviction));
        }
    }

    /// Lets clients finish, until the limit or a request to stop at once; then asks the remaining
    /// ones to try again.
    async fn drain(&self, signal: i32, listening: &Listening<'_>) {
        let left = self.clients.drain();
        if left > 0 {
            let text = format!(
                "no new clients; {left} under way have {} to end, then they are told to come \
                 again: a second signal does that at once",
                listening.drain.to_readable()
            );
            (listening.notice)(Notice::new(NoticeLevel::Warning, text));
        }
        tokio::select! {
            () = self.clients.wait_empty() => return,
            () = listening.stop.stopped_at_once() => {}
            () = tokio::time::sleep(listening.drain.to_std()) => {}
        }
        self.cut.request(signal);
        let _ =
            tokio::time::timeout(LAST_MESSAGE_TIMEOUT.to_std(), self.clients.wait_empty()).await;
    }

    /// Serves one connection.
    async fn connection(
        self: Arc<Self>,
        socket: TcpStream,
        peer: SocketAddr,
        pending: UnauthenticatedPeer,
        eviction: Eviction,
    ) {
        let local = socket.local_addr();
        // These options are not required.
        let _ = tune::set_nodelay(&socket);
        let _ = tune::set_dead_after(&socket, UNREACHABLE_TIMEOUT);
        let Ok(line) = RouteConnection::new(&socket, &Arc::default()) else { return };
        let evicted = Arc::downgrade(&line);
        let evicting = tokio::spawn(async move {
            eviction.wait().await;
            if let Some(line) = evicted.upgrade() {
                line.cut();
            }
        });
        let shaken = tokio::time::timeout(TLS_TIMEOUT.to_std(), self.acceptor.accept(socket)).await;
        if let Ok(Ok(stream)) = shaken
            && let Some(key) = peer_key(stream.get_ref().1).map(|key| PublicKey(key.0))
        {
            let rtt = tcp_info(stream.get_ref().0).ok().and_then(|info| info.min_rtt);
            let mut control = control::over_async(stream, None);
            let end = control.connection_end();
            let own = local.ok().map(|a| a.ip().to_canonical());
            let host = peer.ip().to_canonical();
            let hints = Hints {
                peer: vec![host],
                caller: Some(Caller { host, rtt }),
                own: own.into_iter().collect(),
                ..Hints::default()
            };
            let work = move || self.client(control, hints, (peer, key), pending, line);
            // The client counts as long as its connection holds a socket, which may be longer than
            // its session: a peer that does not close is among those that are evicted.
            let held = tokio::task::spawn_blocking(work).await;
            end.wait().await;
            drop(held);
        }
        evicting.abort();
    }

    /// Serves an authenticated client, within its permissions. Returns what counts the client.
    fn client(
        &self,
        control: Control,
        hints: Hints,
        (peer, key): (SocketAddr, PublicKey),
        pending: UnauthenticatedPeer,
        line: Arc<RouteConnection>,
    ) -> Held {
        let mut held = Held { pending: Some(pending), permit: None, line };
        let admit = |ask: &SessionRequest| {
            let allowed = self.access.admit(&key, ask, &*self.warn)?;
            if let Some(number) = ask.run.number {
                self.runs.begin_try(&key, number, &held.line);
            }
            let flows = packtrain_perf::datagram_flows(ask, &allowed.ceilings);
            held.permit = Some(self.clients.admit(&key, flows)?);
            held.pending = None;
            Ok(allowed)
        };
        let begun = clock::now();
        let called = Called::new(self.history.clone());
        let stop = Stop::of_called_end(self.cut.clone());
        let tx = control.tx.clone();
        let result = session::serve(control, hints, admit, &called, stop);
        if self.cut.requested().is_some() {
            // The process ends soon, so the last message to the client is sent first.
            tx.close();
            tx.wait_closed(LAST_MESSAGE_TIMEOUT.to_std());
        }
        let took = clock::now().since(begun);
        let peer = format!("{peer} {}", key.fingerprint());
        let row = called.row(&peer, took, &result);
        (self.done)((peer, took, result, row));
        self.served.fetch_add(1, Ordering::AcqRel);
        held
    }
}

/// What counts a client until its connection has ended.
struct Held {
    /// As a connection whose peer was not admitted.
    pending: Option<UnauthenticatedPeer>,
    /// As a client.
    permit: Option<ClientPermit>,
    /// As the latest try of its command.
    line: Arc<RouteConnection>,
}

/// The control connection of the latest try of each command, by the caller's key and the command's
/// number.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Latest>>);

type Latest = BTreeMap<(PublicKey, [u8; 16]), Weak<RouteConnection>>;

impl Runs {
    /// Starts a try. An earlier try of the same command may still exist here, if only this end
    /// considers its connection alive. It is ended first, and this function waits for that.
    fn begin_try(&self, key: &PublicKey, number: [u8; 16], line: &Arc<RouteConnection>) {
        let before = {
            let mut runs = self.0.lock();
            runs.retain(|_, line| line.strong_count() > 0);
            runs.insert((*key, number), Arc::downgrade(line))
        };
        let Some(before) = before else { return };
        if let Some(line) = before.upgrade() {
            line.cut();
        }
        let end = clock::now() + EARLIER_TRY_TIMEOUT;
        while before.strong_count() > 0 && clock::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn issue(
    rules: &AccessRules,
    instance: ServerInstance,
    path: &std::path::Path,
    lifetime: Duration,
    host: packtrain_identity::pubkey::Fingerprint,
) -> Result<(), RequestError> {
    let token = entropy::bytes();
    let wall = std::time::UNIX_EPOCH + packtrain_os::clock::wall().to_std();
    let failed = |e: std::io::Error| {
        RequestError::new(FailureKind::Fatal, format!("the ticket {}: {e}", path.display()))
    };
    let rights = rules.base.rights();
    rules.tickets.issue(token, instance, &rights, wall, lifetime.to_std()).map_err(failed)?;
    Ticket::new(token, host).write(path).map_err(failed)
}

/// Listens for clients that copy to or from a directory.
///
/// # Errors
/// The server cannot listen.
pub fn run(request: ServeRequest, reporter: &dyn ServeReporter) -> Result<(), RequestError> {
    let dirs = Dirs::from_env()?;
    let root = std::fs::canonicalize(&request.root).map_err(|e| {
        let text = format!("--root {}: {e}", request.root.display());
        RequestError::new(FailureKind::TargetMissing, text)
    })?;
    let authorized = request.authorized_keys.unwrap_or_else(|| dirs.authorized_keys());
    let keys = AuthorizedKeys::load(&authorized)
        .map_err(|e| RequestError::new(FailureKind::Usage, e.to_string()))?;
    for (line, error) in &keys.refused {
        let text = format!("{} line {line}: {error}", authorized.display());
        reporter.notice(&Notice::new(NoticeLevel::Warning, text));
    }
    if keys.is_empty() && request.ticket_file.is_none() {
        let text = format!(
            "no client may use this server yet: add keys to {} or give a ticket with --ticket-file",
            authorized.display()
        );
        reporter.notice(&Notice::new(NoticeLevel::Warning, text));
    }
    let rules = AccessRules {
        kind: "serve",
        root: Some(root),
        authorized,
        tickets: TicketBook::new(dirs.tickets()),
        base: Permissions {
            read_only: request.read_only,
            ports: request.ports,
            dial: DialPolicy::Rules(request.dial_to.into()),
            owners: request.allow_owner,
            ..Permissions::by_policy()?.with_rate(request.rate)
        },
    };
    let (reports, queued) = Reports::new();
    let (last, warnings) = (reports.clone(), reports.clone());
    let done = Arc::new(move |served| reports.add(served));
    let identity = keys::identity()?;
    let history = request.history;
    let keep = history.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let on_served = |(peer, took, result, row): Served| {
                report(reporter, &peer, took, result, row.as_ref());
                if let Some(text) = row.and_then(|row| history::keep(&keep, &row)) {
                    reporter.notice(&Notice::new(NoticeLevel::Warning, text));
                }
            };
            queued.deliver(on_served, |notice| reporter.notice(notice));
        });
        let ended = run_server(
            &identity,
            rules,
            &Listening {
                address: &request.listen,
                ticket: request.ticket_file.map(|path| (path, request.ticket_lifetime)),
                stop: request.stop,
                clients: None,
                limits: request.limits,
                drain: request.drain,
                ready: &|address, print| reporter.listening(address, Some(print)),
                notice: &|notice| reporter.notice(&notice),
                done,
                warn: Arc::new(move |text| warnings.warn(text)),
                history,
            },
        );
        last.end();
        ended
    })
}

/// Reports a finished session. `row` is that of its transfer; a client that was not admitted has
/// none.
fn report(
    reporter: &dyn ServeReporter,
    peer: &str,
    elapsed: Duration,
    result: Ended,
    row: Option<&Row>,
) {
    let outcome = match &result {
        Ok((outcome, moved)) => called::outcome_of(outcome, moved, elapsed),
        Err(failure) => Outcome { elapsed, failure: Some(failure.clone()), ..Outcome::default() },
    };
    match (row, result) {
        (Some(row), _) => {
            let (direction, path) = match row.role {
                Role::Sink => (Direction::In, row.target.as_str()),
                _ => (Direction::Out, row.source.as_str()),
            };
            reporter.finished(&ServedTransfer { peer, path, direction, outcome: &outcome });
        }
        // A dry run is not a transfer.
        (None, Ok(_)) => {}
        (None, Err(failure)) => {
            reporter.notice(&Notice::new(NoticeLevel::Warning, format!("{peer}: {failure}")));
        }
    }
}
