//! `depot`: a server in the middle of a path that relays sessions.
//!
//! A session is a header and an end-to-end encrypted byte stream. The depot reads only the header
//! (`packtrain_session`). `address_policy` limits the destinations, `admission` the number of
//! sessions and their bytes. `relay` relays one session, `metrics` has the counters, and `spool`
//! keeps sessions on a disk for later receivers.

mod admission;
mod echo;
mod events;
mod framed;
mod lane;
mod measure;
mod metrics;
mod relay;
mod request;
mod routes;
mod session;
mod spool;

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Sender, bounded};
use packtrain_net::relay::{FairScheduler, RelayMode};
use packtrain_net::tcp::tune::{self, check_congestion};
use packtrain_net::tcp::{ConnectOptions, listen};
use packtrain_net::udp::PortRange;
use packtrain_os::process::raise_open_files;
use packtrain_os::{clock, entropy};
use packtrain_session::{DepotId, MAX_HOPS, ReplayGuard};
use packtrain_transfer::FailureKind;
use packtrain_units::{ByteCount, DataRate, Duration, Time};
use tokio::net::TcpListener;
use tokio::sync::watch;

use packtrain_hops::{Hops, Pool};
use packtrain_identity::authorized::{AuthorizedError, AuthorizedKeys};
use packtrain_identity::config::Dirs;
use packtrain_identity::keys;
use packtrain_service::address_policy::AllowRule;
use packtrain_service::unauthenticated::Unauthenticated;
use packtrain_service::{Notice, NoticeLevel, RequestError, StopHandle, executor, host};

pub use admission::DepotLimits;
pub use events::{DepotClique, DepotSession, DepotSpoolEvent};
pub use metrics::DepotStats;
pub use request::{DepotReporter, DepotRequest};
pub use routes::{RouteTable, RouteTableError};
pub use spool::{DepotSpool, SpoolStats};

use admission::Admission;
use measure::{ProbeTurns, Sensors};
use metrics::Counters;
use spool::Spool;

/// Maximum number of headers that are remembered, for four minutes, against replays.
const MAX_REMEMBERED_HEADERS: usize = 100_000;
/// Maximum number of connections that are not authenticated yet.
const MAX_UNAUTHENTICATED: usize = 1024;
/// Maximum number of them per network: as many streams as one client opens at once.
const MAX_UNAUTHENTICATED_PER_NETWORK: usize = 256;
/// Maximum number of queued events; further events are dropped.
const MAX_QUEUED_EVENTS: usize = 4096;
/// How often the depot measures its rate and load.
const TICK: Duration = Duration::from_secs(1);
/// How often measurements are written to the file.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// Pause after a failed `accept`.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Time for the events of sessions that the end of a drain cuts.
const LAST_EVENTS_TIME: Duration = Duration::from_millis(500);

/// An event for the reporter.
enum Event {
    Session(DepotSession),
    Stats(DepotStats),
    Kept(DepotSpoolEvent),
    Notice(Notice),
    /// Ends the reports, even if tasks that forward records still hold the depot.
    End,
}

/// The state that all sessions share.
struct Depot {
    id: DepotId,
    allow: Vec<AllowRule>,
    /// Where sessions by destination go next.
    routes: RouteTable,
    hop_limit: usize,
    idle: Duration,
    relay_mode: RelayMode,
    connect: ConnectOptions,
    keys: KeyFile,
    admission: Mutex<Admission>,
    pool: Arc<Pool>,
    /// The sessions that currently move bytes.
    scheduler: Arc<FairScheduler>,
    hops: Hops,
    /// When datagrams last failed to reach a next depot; 0 for never.
    fell_back: AtomicU64,
    guard: Mutex<ReplayGuard>,
    counters: Counters,
    spool: Option<Arc<Spool>>,
    sensors: Sensors,
    turns: Option<ProbeTurns>,
    measured: Mutex<(DataRate, f64)>,
    report: Sender<Event>,
}

impl Depot {
    fn report(&self, told: Event) {
        // If the reporter is too slow, events are dropped; sessions do not wait for it.
        let _ = self.report.try_send(told);
    }

    fn warn(&self, text: String) {
        self.report(Event::Notice(Notice::new(NoticeLevel::Warning, text)));
    }

    fn stats(&self) -> DepotStats {
        let (rate, load) = *self.measured.lock();
        let sessions = self.admission.lock().sessions();
        let spool = self.spool.as_ref().map(|spool| spool.stats());
        let held = self.pool.lent();
        DepotStats { sessions, rate, held, load, spool, ..self.counters.stats() }
    }

    /// Measures rate and load, and reports the counters at intervals. Never returns.
    async fn watch(self: Arc<Self>, interval: Duration) {
        let (mut looked, mut told, mut before) = (clock::now(), clock::now(), ByteCount::ZERO);
        let (mut sensed, mut kept) = (clock::now(), clock::now());
        loop {
            tokio::time::sleep(TICK.to_std()).await;
            let now = clock::now();
            let load = metrics::load();
            let bytes = self.counters.stats().bytes;
            let bytes = bytes.0 + bytes.1;
            let rate = DataRate::from_bytes_over(bytes.saturating_sub(before), now.since(looked));
            (looked, before) = (now, bytes);
            *self.measured.lock() = (rate, load);
            self.admission.lock().measured(now, rate, load);
            if let Some(spool) = &self.spool {
                spool::sweep(&self, spool);
            }
            if now.since(sensed) >= measure::SAMPLE {
                sensed = now;
                self.sensors.sample(now);
            }
            if now.since(kept) >= SAVE_INTERVAL {
                kept = now;
                tokio::task::block_in_place(|| self.sensors.keep());
            }
            if now.since(told) >= interval {
                told = now;
                self.report(Event::Stats(self.stats()));
            }
        }
    }
}

/// The admitted keys. The file is read again at a new session if the last read is more than a
/// second ago, so that a removed key is refused. A failure to read it is not remembered: it may be a
/// want of file descriptors, and over by the next session.
struct KeyFile {
    path: PathBuf,
    read: Mutex<Option<(Time, ReadKeys)>>,
}

type ReadKeys = Result<Arc<AuthorizedKeys>, Arc<AuthorizedError>>;

impl KeyFile {
    fn keys(&self) -> ReadKeys {
        let mut read = self.read.lock();
        let now = clock::now();
        match &*read {
            Some((at, keys)) if now.since(*at) < TICK => keys.clone(),
            _ => {
                let keys = tokio::task::block_in_place(|| AuthorizedKeys::load(&self.path));
                let keys = keys.map(Arc::new).map_err(Arc::new);
                let failed = keys.as_ref().is_err_and(|error| is_failure(error));
                *read = (!failed).then(|| (now, keys.clone()));
                keys
            }
        }
    }
}

/// Whether the file could not be read, which says nothing about a key.
fn is_failure(error: &AuthorizedError) -> bool {
    matches!(error, AuthorizedError::Io { .. })
}

fn usage(text: impl Into<String>) -> RequestError {
    RequestError::new(FailureKind::Usage, text)
}

fn check(request: &DepotRequest) -> Result<(), RequestError> {
    if request.limits.room() == 0 {
        return Err(usage("the pool has no room for one session: set 1MiB or more"));
    }
    if request.hop_limit == 0 || usize::from(request.hop_limit) > MAX_HOPS {
        return Err(usage(format!("a route has 1 to {MAX_HOPS} depots")));
    }
    if let Some(clique) = &request.clique {
        if clique.peers.len() >= packtrain_plan::forecast::clique::MAX_MEMBERS {
            return Err(usage("a clique has 64 depots at most"));
        }
        if clique.peers.contains(&clique.name) {
            return Err(usage(format!("--name {} is --peer too: that is the others", clique.name)));
        }
    }
    if let Some(name) = &request.tcp_cc {
        check_congestion(name).map_err(|e| usage(e.to_string()))?;
    }
    Ok(())
}

/// Relays sessions until the request to stop, then lets the running sessions end.
///
/// # Errors
/// The depot cannot listen.
pub fn run(request: DepotRequest, reporter: &dyn DepotReporter) -> Result<(), RequestError> {
    check(&request)?;
    // A session needs six files.
    raise_open_files();
    let path = match &request.authorized_keys {
        Some(path) => path.clone(),
        None => Dirs::from_env()?.authorized_keys(),
    };
    let keys = AuthorizedKeys::load(&path).map_err(|e| usage(e.to_string()))?;
    let warn = |text: String| reporter.notice(&Notice::new(NoticeLevel::Warning, text));
    for (line, error) in &keys.refused {
        warn(format!("{} line {line}: {error}", path.display()));
    }
    if keys.is_empty() {
        warn(format!("no key may use this depot yet: add keys to {}", path.display()));
    }
    if request.clique.is_some() && !keys.has_clique() {
        let text = format!(
            "no depot may take turns with this one yet: mark the keys of the peers with the option \
             clique in {}",
            path.display()
        );
        warn(text);
    }
    if request.allow.is_empty() {
        warn("no destination is allowed yet: add rules with --allow".to_owned());
    }
    let (report, told) = bounded(MAX_QUEUED_EVENTS);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for word in told {
                match word {
                    Event::Session(session) => reporter.session(&session),
                    Event::Stats(stats) => reporter.stats(&stats),
                    Event::Kept(kept) => reporter.kept(&kept),
                    Event::Notice(notice) => reporter.notice(&notice),
                    Event::End => return,
                }
            }
        });
        let last = report.clone();
        let ended = listen_and_relay(request, path, report, reporter);
        let _ = last.send(Event::End);
        ended
    })
}

fn bind(address: &str, option: &str) -> Result<(TcpListener, SocketAddr), RequestError> {
    let address: SocketAddr = host::listen_address(address).map_err(usage)?;
    let listener = listen(address).map_err(|e| {
        let text = format!("cannot listen on {address}: {e}; choose another with {option}");
        RequestError::new(FailureKind::Fatal, text)
    })?;
    let bound = listener.local_addr().unwrap_or(address);
    Ok((listener, bound))
}

fn listen_and_relay(
    request: DepotRequest,
    keys: PathBuf,
    report: Sender<Event>,
    reporter: &dyn DepotReporter,
) -> Result<(), RequestError> {
    // Taken before any connection, so that no later header appears older.
    let begun = (clock::now(), clock::wall());
    let _runtime = executor::handle().enter();
    let (listener, bound) = bind(&request.listen, "--listen")?;
    // Accepted connections inherit the options of their listener.
    if let Some(name) = &request.tcp_cc {
        let _ = tune::set_congestion(&listener, name);
    }
    if let Some(size) = request.buffers {
        let _ = tune::set_buffers(&listener, size);
    }
    let metrics = match &request.metrics {
        Some(address) => {
            let (listener, bound) = bind(address, "--metrics")?;
            if !metrics::is_local(&bound) {
                let text = "counters are served on this machine only: write 127.0.0.1:PORT";
                return Err(usage(text));
            }
            Some((listener, bound))
        }
        None => None,
    };
    let spool = match request.spool.map(Spool::open).transpose()? {
        Some((spool, warnings)) => {
            for text in warnings {
                reporter.notice(&Notice::new(NoticeLevel::Warning, text));
            }
            Some(Arc::new(spool))
        }
        None => None,
    };
    let turns = match request.clique {
        Some(clique) => Some(ProbeTurns::new(clique, keys::identity()?)),
        None => None,
    };
    let pool = Arc::new(request.limits.pool());
    // The command line has checked that the range is not empty.
    let ports = request.ports.and_then(|ports| PortRange::new(ports.first, ports.last).ok());
    let ports = ports.unwrap_or(PortRange::ANY);
    let depot = Arc::new(Depot {
        spool,
        id: DepotId(entropy::bytes()),
        allow: request.allow,
        routes: request.routes,
        hop_limit: usize::from(request.hop_limit),
        idle: request.idle,
        relay_mode: if request.copy { RelayMode::Copy } else { RelayMode::Splice },
        connect: ConnectOptions {
            congestion: request.tcp_cc,
            buffers: request.buffers,
            ..ConnectOptions::default()
        },
        keys: KeyFile { path: keys, read: Mutex::default() },
        hops: Hops::new(Arc::clone(&pool), ports, request.flows as usize),
        fell_back: AtomicU64::new(0),
        pool,
        scheduler: FairScheduler::new(executor::workers()),
        admission: Mutex::new(Admission::new(request.limits)),
        guard: Mutex::new(ReplayGuard::new(begun, MAX_REMEMBERED_HEADERS)),
        counters: Counters::default(),
        sensors: Sensors::load(measurements(bound)),
        turns,
        measured: Mutex::default(),
        report,
    });
    reporter.listening(bound, metrics.as_ref().map(|(_, bound)| *bound));
    if let Some(kept) = &depot.spool {
        spool::resume(&depot, kept);
    }
    let watching = tokio::spawn(Arc::clone(&depot).watch(request.interval));
    let probing = depot.turns.is_some().then(|| {
        let depot = Arc::clone(&depot);
        tokio::spawn(async move {
            if let Some(turns) = &depot.turns {
                turns.run(&depot).await;
            }
        })
    });
    let answering = metrics.map(|(listener, _)| {
        let depot = Arc::clone(&depot);
        tokio::spawn(metrics::answer(listener, move || depot.stats()))
    });
    executor::handle().block_on(serve_until(&depot, listener, &request.stop, request.drain));
    watching.abort();
    if let Some(task) = probing {
        task.abort();
    }
    if let Some(task) = answering {
        task.abort();
    }
    depot.sensors.keep();
    depot.report(Event::Stats(depot.stats()));
    Ok(())
}

/// The file for the measurements of a depot on this port; `None` without a home directory.
fn measurements(bound: SocketAddr) -> Option<PathBuf> {
    let dirs = packtrain_identity::config::Dirs::from_env().ok()?;
    Some(dirs.state.join(format!("depot-{}.json", bound.port())))
}

/// Accepts connections until the request to stop, then waits for the running sessions until the
/// limit or a request to stop at once.
async fn serve_until(
    depot: &Arc<Depot>,
    listener: TcpListener,
    stop: &StopHandle,
    drain: Duration,
) {
    let unauthenticated =
        Unauthenticated::new(MAX_UNAUTHENTICATED, MAX_UNAUTHENTICATED_PER_NETWORK);
    // Sessions hold the receiver; when all have dropped it, no session remains.
    let (over, watched) = watch::channel(false);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.stopped() => break,
        };
        let Ok((socket, peer)) = accepted else {
            // Probably the limit of open files: wait until some are closed.
            tokio::time::sleep(ACCEPT_RETRY_PAUSE.to_std()).await;
            continue;
        };
        let (pending, eviction) = unauthenticated.register(peer.ip());
        let session = relay::serve(Arc::clone(depot), socket, peer, pending, watched.clone());
        let depot = Arc::clone(depot);
        tokio::spawn(async move {
            tokio::select! {
                () = session => {}
                () = eviction.wait() => {
                    depot.counters.unauthenticated.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    drop((listener, watched));
    let left = {
        let mut admission = depot.admission.lock();
        admission.drain();
        admission.sessions()
    };
    if left > 0 {
        depot.warn(format!(
            "no new sessions; {left} running sessions have {} to end: a second signal ends them at \
             once",
            drain.to_readable()
        ));
    }
    tokio::select! {
        () = over.closed() => return,
        () = stop.stopped_at_once() => {}
        () = tokio::time::sleep(drain.to_std()) => {}
    }
    let _ = over.send(true);
    let _ = tokio::time::timeout(LAST_EVENTS_TIME.to_std(), over.closed()).await;
}

#[cfg(test)]
mod tests;
