//! The called end: started by ssh on its standard input and output, or listening as a server.

mod access;
mod clients;
mod perf;
mod request;
mod session;

pub use perf::perf;
pub use request::ServeRequest;
#[cfg(test)]
mod ceilings_tests;
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
use packtrain_net::tcp::{Identity, listen, tune};
use packtrain_os::{clock, entropy};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::Duration;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use packtrain_hops::Line;
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
use packtrain_runtime::transports::{Hints, Moved};
use packtrain_service::address_policy::DialPolicy;
use packtrain_service::history::{self, Role, Row};
use packtrain_service::unauthenticated::{Eviction, Unauthenticated, UnauthenticatedPeer};
use packtrain_service::{
    Direction, HistoryConfig, Notice, NoticeLevel, Outcome, RequestError, ServeReporter,
    ServedTransfer, StopHandle, executor, host,
};

use access::AccessPolicy;
use clients::Clients;

pub(crate) use access::AccessRules;
pub use clients::ClientLimits;

/// Connections whose client has not been let in yet, in all and of one network.
const MAX_UNAUTHENTICATED: usize = 256;
const MAX_UNAUTHENTICATED_PER_NETWORK: usize = 64;
/// How long a client has for the TLS handshake. What follows, up to its request, has a limit of its
/// own (`handshake`).
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long what an earlier try left here may take to end.
const LEAVE: Duration = Duration::from_secs(5);
/// A network that is gone this long ends a connection.
const DEAD: Duration = Duration::from_secs(60);
/// How long clients that are told of the server's end have to hear it.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Serves the one caller at the other end of standard input and output, as ssh starts it.
///
/// # Errors
/// What ended the conversation; the caller was told too.
pub fn stdio(stop: StopHandle) -> Result<(), RequestError> {
    let failed =
        |e: std::io::Error| RequestError::new(FailureKind::Fatal, format!("standard input: {e}"));
    let input: File = rustix::io::dup(rustix::stdio::stdin()).map_err(|e| failed(e.into()))?.into();
    let mut output: File =
        rustix::io::dup(rustix::stdio::stdout()).map_err(|e| failed(e.into()))?.into();
    output.write_all(MARKER).map_err(failed)?;
    let control = control::over_streams("ssh", input, output);
    // The caller is this account's own user, as ssh has made sure: it may say who is dialled, and
    // sets what this account may set.
    let dial = DialPolicy::CallersChoice;
    let site = Permissions { dial, owners: true, ..Permissions::by_policy()? };
    let admit = move |_: &SessionRequest| Ok(site);
    let tx = control.tx.clone();
    let (called, begun) = (Called::new(HistoryConfig::default()), clock::now());
    let ended = session::serve(control, ssh_hints(), admit, &called, Stop::of_called_end(stop));
    // What is still queued for the caller leaves before the process does.
    tx.close();
    tx.wait_closed(std::time::Duration::from_secs(5));
    let caller = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let caller = caller.split(' ').next().unwrap_or_default();
    if let Some(row) = called.row(caller, clock::now().since(begun), &ended) {
        // Whoever called is not told of this account's history.
        let _ = history::keep(&HistoryConfig::default(), &row);
    }
    ended?;
    Ok(())
}

/// Where the caller and this machine are, as sshd says.
fn ssh_hints() -> Hints {
    let text = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let ip = |n: usize| words.get(n).and_then(|w| w.parse::<IpAddr>().ok());
    Hints {
        peer: ip(0).into_iter().collect(),
        own: ip(2).into_iter().collect(),
        ..Hints::default()
    }
}

/// A client's address and key, what came of it, and its row if it was let in.
pub(crate) type Served = (String, Duration, Ended, Option<Row>);

/// How a client's request ended.
type Ended = Result<(packtrain_transfer::Outcome, Moved), Failure>;

/// Where a server listens, how much it takes on, and what it tells.
pub(crate) struct Listening<'a> {
    pub(crate) address: &'a str,
    pub(crate) ticket: Option<(PathBuf, Duration)>,
    pub(crate) stop: StopHandle,
    /// End after this many clients.
    pub(crate) clients: Option<u64>,
    pub(crate) limits: ClientLimits,
    /// How long clients have to end once the server was asked to.
    pub(crate) drain: Duration,
    pub(crate) ready: &'a dyn Fn(SocketAddr, &str),
    pub(crate) notice: &'a dyn Fn(Notice),
    pub(crate) done: Arc<dyn Fn(Served) + Send + Sync>,
    /// Where rows are.
    pub(crate) history: HistoryConfig,
}

/// What all clients of a server share.
struct Server {
    access: AccessPolicy,
    acceptor: TlsAcceptor,
    unauthenticated: Arc<Unauthenticated>,
    clients: Arc<Clients>,
    runs: Runs,
    /// Ends what is under way; the callers are told to try again.
    cut: StopHandle,
    served: AtomicU64,
    done: Arc<dyn Fn(Served) + Send + Sync>,
    history: HistoryConfig,
}

/// Listens and serves until asked to stop, and then lets clients end, but not for ever.
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
                // Out of files, most likely: wait for some to close.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            let (pending, eviction) = self.unauthenticated.register(peer.ip());
            tokio::spawn(Arc::clone(self).connection(socket, peer, pending, eviction));
        }
    }

    /// Lets clients end, for a while or until asked to end at once; then tells those that are left to
    /// come again.
    async fn drain(&self, signal: i32, listening: &Listening<'_>) {
        let left = self.clients.drain();
        if left > 0 {
            let text = format!(
                "no new clients; {left} under way have {} to end, then they are told to come \
                 again: a second signal does that at once",
                listening.drain
            );
            (listening.notice)(Notice::new(NoticeLevel::Warning, text));
        }
        tokio::select! {
            () = self.clients.gone() => return,
            () = listening.stop.stopped_at_once() => {}
            () = tokio::time::sleep(listening.drain.to_std()) => {}
        }
        self.cut.request(signal);
        let _ = tokio::time::timeout(LAST_WORD.to_std(), self.clients.gone()).await;
    }

    /// One connection, from its first byte to its end.
    async fn connection(
        self: Arc<Self>,
        socket: TcpStream,
        peer: SocketAddr,
        pending: UnauthenticatedPeer,
        eviction: Eviction,
    ) {
        let local = socket.local_addr();
        // What a system lacks of these, it does without.
        let _ = tune::set_nodelay(&socket);
        let _ = tune::set_dead_after(&socket, DEAD);
        let Ok(line) = Line::new(&socket, &Arc::default()) else { return };
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
            let control = control::over_async(stream, None);
            let own = local.ok().map(|a| a.ip().to_canonical());
            let hints = Hints {
                peer: vec![peer.ip().to_canonical()],
                own: own.into_iter().collect(),
                ..Hints::default()
            };
            let work = move || self.client(control, hints, (peer, key), pending, line);
            let _ = tokio::task::spawn_blocking(work).await;
        }
        evicting.abort();
    }

    /// A client that has shown its key: what it asks for is done if it may.
    fn client(
        &self,
        control: Control,
        hints: Hints,
        (peer, key): (SocketAddr, PublicKey),
        pending: UnauthenticatedPeer,
        line: Arc<Line>,
    ) {
        let mut permit = None;
        let admit = |ask: &SessionRequest| {
            let allowed = self.access.admit(&key, ask)?;
            if let Some(number) = ask.run.number {
                self.runs.begins(&key, number, &line);
            }
            permit = Some(self.clients.admit(&key)?);
            drop(pending);
            Ok(allowed)
        };
        let begun = clock::now();
        let called = Called::new(self.history.clone());
        let stop = Stop::of_called_end(self.cut.clone());
        let tx = control.tx.clone();
        let result = session::serve(control, hints, admit, &called, stop);
        if self.cut.requested().is_some() {
            // The process ends soon: the client's last word leaves before.
            tx.close();
            tx.wait_closed(LAST_WORD.to_std());
        }
        let took = clock::now().since(begun);
        let peer = format!("{peer} {}", key.fingerprint());
        let row = called.row(&peer, took, &result);
        (self.done)((peer, took, result, row));
        self.served.fetch_add(1, Ordering::AcqRel);
        drop((permit, line));
    }
}

/// Callers' commands, by key and number, and the control connection of the latest try of each.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Latest>>);

type Latest = BTreeMap<(PublicKey, [u8; 16]), Weak<Line>>;

impl Runs {
    /// A try begins: what an earlier one of the same command left here, whose connection only this
    /// end takes for alive, ends now. Waits for that.
    fn begins(&self, key: &PublicKey, number: [u8; 16], line: &Arc<Line>) {
        let before = {
            let mut runs = self.0.lock();
            runs.retain(|_, line| line.strong_count() > 0);
            runs.insert((*key, number), Arc::downgrade(line))
        };
        let Some(before) = before else { return };
        if let Some(line) = before.upgrade() {
            line.cut();
        }
        let end = clock::now() + LEAVE;
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

/// Listens for clients that copy to or from below a directory.
///
/// # Errors
/// What keeps it from listening.
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
            "nobody may use this server yet: add keys to {} or give a ticket with --ticket-file",
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
    // None: no more will come, whatever clients that do not end still hold.
    let (tell, told) = crossbeam_channel::unbounded::<Option<Served>>();
    let last = tell.clone();
    let done = Arc::new(move |served| {
        let _ = tell.send(Some(served));
    });
    let identity = keys::identity()?;
    let history = request.history;
    let keep = history.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (peer, took, result, row) in told.into_iter().map_while(|served| served) {
                report(reporter, &peer, took, result, row.as_ref());
                if let Some(text) = row.and_then(|row| history::keep(&keep, &row)) {
                    reporter.notice(&Notice::new(NoticeLevel::Warning, text));
                }
            }
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
                history,
            },
        );
        let _ = last.send(None);
        ended
    })
}

/// Tells of a session that is over. `row` is that of its transfer; who was not let in has none.
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
        // A dry run is no transfer.
        (None, Ok(_)) => {}
        (None, Err(failure)) => {
            reporter.notice(&Notice::new(NoticeLevel::Warning, format!("{peer}: {failure}")));
        }
    }
}
