//! The called end: started by ssh on its standard input and output, or listening as a server.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use packtrain_io::tcp::tls::{peer_key, server_config};
use packtrain_io::tcp::{listen, tune};
use packtrain_io::{clock, entropy};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::Duration;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::api::{NodeError, Notice, NoticeLevel, ServeReporter, ServeRequest, StopHandle};
use crate::authorized::AuthorizedKeys;
use crate::control;
use crate::end::{self, Allowed};
use crate::handshake::Ask;
use crate::history::{self, Called, Keep, Row};
use crate::hop::Line;
use crate::keys;
use crate::pubkey::PublicKey;
use crate::runtime;
use crate::session::Stop;
use crate::ssh::MARKER;
use crate::tickets::{Ticket, TicketBook};
use crate::transports::{Hints, Moved};

/// Clients served at a time; more are told to come again.
const MOST_CLIENTS: usize = 64;
/// Connections that have not been let in yet; more are dropped.
const MOST_STRANGERS: usize = 128;
/// How long a stranger has for the TLS handshake.
const SHAKE: Duration = Duration::from_secs(10);
/// How long what an earlier try left here may take to end.
const LEAVE: Duration = Duration::from_secs(5);
/// A network that is gone this long ends a connection.
const DEAD: Duration = Duration::from_secs(60);

/// Serves the one caller at the other end of standard input and output, as ssh starts it.
///
/// # Errors
/// What ended the conversation; the caller was told too.
pub fn stdio(stop: StopHandle) -> Result<(), NodeError> {
    let failed =
        |e: std::io::Error| NodeError::new(FailureKind::Fatal, format!("standard input: {e}"));
    let input: File = rustix::io::dup(rustix::stdio::stdin()).map_err(|e| failed(e.into()))?.into();
    let mut output: File =
        rustix::io::dup(rustix::stdio::stdout()).map_err(|e| failed(e.into()))?.into();
    output.write_all(MARKER).map_err(failed)?;
    let control = control::over_streams("ssh", input, output);
    let site = Allowed::by_policy()?;
    let admit = move |_: &Ask| Ok(site);
    let tx = control.tx.clone();
    let (called, begun) = (Called::new(Keep::default()), clock::now());
    let ended = end::serve(control, ssh_hints(), admit, &called, Stop::new(stop));
    // What is still queued for the caller leaves before the process does.
    tx.close();
    tx.wait_closed(std::time::Duration::from_secs(5));
    let caller = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let caller = caller.split(' ').next().unwrap_or_default();
    if let Some(row) = called.row(caller, clock::now().since(begun), &ended) {
        // Whoever called is not told of this account's history.
        let _ = history::keep(&Keep::default(), &row);
    }
    ended?;
    Ok(())
}

/// Where the caller and this machine are, as sshd says.
fn ssh_hints() -> Hints {
    let text = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let ip = |n: usize| words.get(n).and_then(|w| w.parse::<IpAddr>().ok());
    Hints { peer: ip(0).into_iter().collect(), own: ip(2).into_iter().collect() }
}

/// Who may do what at a listening server.
pub(crate) struct Door {
    pub(crate) scope: String,
    pub(crate) authorized: PathBuf,
    pub(crate) tickets: TicketBook,
    pub(crate) base: Allowed,
}

impl Door {
    /// What a client with this key, and perhaps a ticket, may do.
    fn admit(&self, key: &PublicKey, ask: &Ask) -> Result<Allowed, Failure> {
        let keys = AuthorizedKeys::load(&self.authorized)
            .map_err(|e| Failure::new(FailureKind::NotAuthorised, format!("the server's {e}")))?;
        if let Some(grant) = keys.grant(key) {
            let mut allowed = self.base.clone();
            allowed.read_only |= grant.read_only;
            if let (Some(base), Some(own)) = (&allowed.root, &grant.root) {
                // An absolute one replaces the base, as the file's owner meant it; a relative one
                // stays below it whatever links clients have put there.
                let found = std::fs::canonicalize(base.join(own)).map_err(|e| {
                    Failure::new(FailureKind::NotAuthorised, format!("this key's directory: {e}"))
                })?;
                if own.is_relative() && !found.starts_with(base) {
                    let text = "this key's directory leads out of the served one";
                    return Err(Failure::new(FailureKind::NotAuthorised, text));
                }
                allowed.root = Some(found);
            }
            return Ok(allowed);
        }
        let Some(token) = &ask.ticket else {
            return Err(Failure::new(
                FailureKind::NotAuthorised,
                format!(
                    "this user's key ({}) is not in the server's authorized_keys: have it added \
                     (packtrain key show prints it), or use a ticket",
                    key.fingerprint()
                ),
            ));
        };
        let wall = std::time::UNIX_EPOCH + packtrain_io::clock::wall().to_std();
        match self.tickets.redeem(token, &self.scope, key, wall) {
            Ok(Ok(())) => Ok(self.base.clone()),
            Ok(Err(refused)) => Err(Failure::new(FailureKind::NotAuthorised, refused.to_string())),
            Err(e) => {
                Err(Failure::new(FailureKind::Temporary, format!("the server's tickets: {e}")))
            }
        }
    }
}

/// A client's address and key, what came of it, and its row if it was let in.
pub(crate) type Served = (String, Duration, Ended, Option<Row>);

/// How a client's request ended.
type Ended = Result<(packtrain_transfer::Outcome, Moved), Failure>;

/// Where a server listens and what it tells.
pub(crate) struct Listening<'a> {
    pub(crate) address: &'a str,
    pub(crate) ticket: Option<(PathBuf, Duration)>,
    pub(crate) stop: StopHandle,
    /// End after this many clients.
    pub(crate) clients: Option<u64>,
    pub(crate) ready: &'a dyn Fn(SocketAddr, &str),
    pub(crate) done: Arc<dyn Fn(Served) + Send + Sync>,
    /// Where rows are.
    pub(crate) history: Keep,
}

/// Listens and serves until asked to stop.
pub(crate) fn run_server(door: Door, listening: &Listening<'_>) -> Result<(), NodeError> {
    let usage = |text: String| NodeError::new(FailureKind::Usage, text);
    let address: SocketAddr = resolve(listening.address).map_err(usage)?;
    let identity = keys::identity()?;
    let fingerprint = keys::public(&identity).fingerprint();
    let config = server_config(&identity, Arc::new(|_| true))
        .map_err(|e| NodeError::new(FailureKind::Fatal, e.to_string()))?;
    let acceptor = TlsAcceptor::from(config);
    let _runtime = runtime::handle().enter();
    let listener = listen(address).map_err(|e| {
        let text = format!("cannot listen on {address}: {e}; choose another with --listen");
        NodeError::new(FailureKind::Fatal, text)
    })?;
    let bound = listener.local_addr().unwrap_or(address);
    if let Some((path, lifetime)) = &listening.ticket {
        issue(&door, path, *lifetime, fingerprint)?;
    }
    (listening.ready)(bound, &fingerprint.to_string());
    let door = Arc::new(door);
    let served = Arc::new(AtomicU64::new(0));
    let room = Arc::new(Semaphore::new(MOST_CLIENTS));
    let strangers = Arc::new(Semaphore::new(MOST_STRANGERS));
    let runs = Runs::default();
    runtime::handle().block_on(async {
        loop {
            let tick = tokio::time::sleep(std::time::Duration::from_millis(100));
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = listening.stop.stopped() => return,
                () = tick => {
                    let enough = listening.clients.is_some_and(|n| served.load(Ordering::Acquire) >= n);
                    if enough { return } else { continue }
                }
            };
            let Ok((socket, peer)) = accepted else {
                // Out of files, most likely: wait for some to close.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            let Ok(stranger) = Arc::clone(&strangers).try_acquire_owned() else {
                // Too many who have not said who they are: this one may come again.
                continue;
            };
            let room = Arc::clone(&room);
            let (acceptor, door, served) = (acceptor.clone(), Arc::clone(&door), Arc::clone(&served));
            let runs = runs.clone();
            let (done, stop) = (Arc::clone(&listening.done), listening.stop.clone());
            let keep = listening.history.clone();
            tokio::spawn(async move {
                let local = socket.local_addr();
                // What a system lacks of these, it does without.
                let _ = tune::set_nodelay(&socket);
                let _ = tune::set_dead_after(&socket, DEAD);
                let shaken = tokio::time::timeout(SHAKE.to_std(), acceptor.accept(socket)).await;
                let Ok(Ok(stream)) = shaken else { return };
                let Some(key) = peer_key(stream.get_ref().1).map(|key| PublicKey(key.0)) else {
                    return;
                };
                let line = Line::new(&stream.get_ref().0, &Arc::default());
                let control = control::over_async(stream, None);
                let own = local.ok().map(|a| a.ip().to_canonical());
                let hints = Hints {
                    peer: vec![peer.ip().to_canonical()],
                    own: own.into_iter().collect(),
                };
                let work = move || {
                    let mut permit = None;
                    let admit = |ask: &Ask| {
                        let allowed = door.admit(&key, ask)?;
                        if let (Some(number), Ok(line)) = (ask.run.number, &line) {
                            runs.begins(&key, number, line);
                        }
                        let busy = "the server has as many clients as it takes: try again later";
                        let taken = room.try_acquire_owned();
                        permit =
                            Some(taken.map_err(|_| Failure::new(FailureKind::Temporary, busy))?);
                        drop(stranger);
                        Ok(allowed)
                    };
                    let begun = clock::now();
                    let called = Called::new(keep);
                    let result = end::serve(control, hints, admit, &called, Stop::new(stop));
                    served.fetch_add(1, Ordering::AcqRel);
                    let took = clock::now().since(begun);
                    let peer = format!("{peer} {}", key.fingerprint());
                    let row = called.row(&peer, took, &result);
                    done((peer, took, result, row));
                    drop((permit, line));
                };
                let _ = tokio::task::spawn_blocking(work).await;
            });
        }
    });
    Ok(())
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

pub(crate) fn resolve(text: &str) -> Result<SocketAddr, String> {
    use std::net::ToSocketAddrs;
    let with_host = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
    let found = with_host.to_socket_addrs().map(|mut all| all.next());
    match found {
        Ok(Some(address)) => Ok(address),
        _ => Err(format!("`{text}` is no place to listen: write ADDRESS:PORT, such as [::]:7876")),
    }
}

fn issue(
    door: &Door,
    path: &std::path::Path,
    lifetime: Duration,
    host: crate::pubkey::Fingerprint,
) -> Result<(), NodeError> {
    let token = entropy::bytes();
    let wall = std::time::UNIX_EPOCH + packtrain_io::clock::wall().to_std();
    let failed = |e: std::io::Error| {
        NodeError::new(FailureKind::Fatal, format!("the ticket {}: {e}", path.display()))
    };
    door.tickets.issue(token, &door.scope, wall, lifetime.to_std()).map_err(failed)?;
    Ticket::new(token, host).write(path).map_err(failed)
}

/// Listens for clients that copy to or from below a directory.
///
/// # Errors
/// What keeps it from listening.
pub fn run(request: ServeRequest, reporter: &dyn ServeReporter) -> Result<(), NodeError> {
    let dirs = keys::dirs()?;
    let root = std::fs::canonicalize(&request.root).map_err(|e| {
        let text = format!("--root {}: {e}", request.root.display());
        NodeError::new(FailureKind::TargetMissing, text)
    })?;
    let authorized = request.authorized_keys.unwrap_or_else(|| dirs.authorized_keys());
    let keys = AuthorizedKeys::load(&authorized)
        .map_err(|e| NodeError::new(FailureKind::Usage, e.to_string()))?;
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
    let door = Door {
        scope: format!("serve {}", root.display()),
        authorized,
        tickets: TicketBook::new(dirs.tickets()),
        base: Allowed {
            root: Some(root),
            read_only: request.read_only,
            ports: request.ports,
            ..Allowed::by_policy()?.with_rate(request.rate)
        },
    };
    let (tell, told) = crossbeam_channel::unbounded::<Served>();
    let done = Arc::new(move |served| {
        let _ = tell.send(served);
    });
    let history = request.history;
    let keep = history.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (peer, took, result, row) in told {
                report(reporter, &peer, took, result);
                if let Some(text) = row.and_then(|row| history::keep(&keep, &row)) {
                    reporter.notice(&Notice::new(NoticeLevel::Warning, text));
                }
            }
        });
        run_server(
            door,
            &Listening {
                address: &request.listen,
                ticket: request.ticket_file.map(|path| (path, request.ticket_lifetime)),
                stop: request.stop,
                clients: None,
                ready: &|address, print| reporter.listening(address, Some(print)),
                done,
                history,
            },
        )
    })
}

fn report(reporter: &dyn ServeReporter, peer: &str, elapsed: Duration, result: Ended) {
    match result {
        Ok((outcome, moved)) => {
            reporter.finished(peer, &history::outcome_of(&outcome, &moved, elapsed));
        }
        Err(failure) => {
            reporter.notice(&Notice::new(NoticeLevel::Warning, format!("{peer}: {failure}")));
        }
    }
}
