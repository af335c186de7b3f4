//! A caller's route over depots. Connections to the other end use the depots, or are direct after
//! the depots failed.

mod watch;

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use packtrain_net::tcp::tls::{ServerName, any_name};
use packtrain_net::tcp::{ConnectOptions, Identity, connect, describe, tune};
use packtrain_net::udp::PortRange;
use packtrain_os::{clock, entropy};
use packtrain_session::{
    Answer, Hop, HopTransport, Host, Kind, Place, Reason, Refusal, Session, SessionId,
};
use packtrain_units::{ByteCount, Duration};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate as hops;
use crate::{
    Carrier, DatagramStatus, Hops, Pool, RouteActivity, RouteConnection, read_answer, write_all,
};
use packtrain_identity::keys;
use packtrain_service::{Notice, NoticeLevel, RequestError};

/// Maximum number of depots on a route of this program.
const HOP_LIMIT: u8 = 4;
/// Timeout for the connections of all depots together, and then for the handshake with the other
/// end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
/// Consecutive failures after which the direct path is used; a timeout counts twice.
const MAX_FAILURES: u32 = 3;
/// Memory for bytes to and from the first depots.
const MEMORY: ByteCount = ByteCount(64 << 20);
/// Maximum concurrent flows of datagrams.
const MAX_FLOWS: usize = 130;
/// Maximum wait for the search for a corrupting depot.
const AUDIT_WAIT: Duration = Duration::from_secs(30);
/// Pause before an unreachable depot is tried again, because it may be starting.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Maximum wait that a depot's refusal may suggest.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Number of connections without payload.
const CONTROL_CONNECTIONS: usize = 1;
/// A connection over depots ends when the network is unreachable for this long, because another
/// path may work.
pub(crate) const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(20);

/// A route and its state.
pub struct Route {
    depots: Vec<Place>,
    /// How each depot is reached.
    by: Vec<HopTransport>,
    /// Whether depots may forward by their tables after the last of these.
    by_destination: bool,
    /// For a first hop by datagrams.
    hops: Arc<Hops>,
    fates: Mutex<Vec<Arc<DatagramStatus>>>,
    identity: Identity,
    failures: AtomicU32,
    /// Connections that are being made.
    dialling: AtomicU32,
    /// The message of a depot that accepts no further connections, until it is reported, and
    /// whether it was.
    crowded: Mutex<(Option<String>, bool)>,
    direct: AtomicBool,
    notices: Mutex<Vec<Notice>>,
    /// The connections, and their activity.
    lines: Mutex<Vec<Weak<RouteConnection>>>,
    activity: Arc<RouteActivity>,
    watched: AtomicBool,
    auditing: AtomicBool,
    /// The depot that corrupts bytes, once it is found.
    corrupter: Mutex<Option<String>>,
    /// For the task that watches the route.
    own: Weak<Self>,
}

/// The routes of a command. They keep what earlier tries learned.
#[derive(Clone, Default)]
pub struct Routes {
    /// Drawn when it is needed: most commands have no route.
    number: Arc<OnceLock<[u8; 16]>>,
    route: Arc<Mutex<Option<Arc<Route>>>>,
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Routes")
    }
}

impl Routes {
    /// The number of the command.
    pub fn number(&self) -> [u8; 16] {
        *self.number.get_or_init(entropy::bytes)
    }

    /// The route over these depots, the same at each try. `by_destination`: the depots may forward
    /// by their tables to further ones.
    pub fn over(
        &self,
        depots: &[Place],
        by: &[HopTransport],
        by_destination: bool,
    ) -> Result<Option<Arc<Route>>, RequestError> {
        let mut kept = self.route.lock();
        if kept.is_none() {
            *kept = Route::made(depots, by, by_destination)?;
        }
        Ok(kept.clone())
    }

    /// Returns the depot that corrupts bytes, once.
    pub fn corrupter(&self) -> Option<String> {
        let route = self.route.lock().clone()?;
        let mut found = route.corrupter.lock();
        found.take()
    }

    /// Returns the notices at the end of a try. Waits until the search for a corrupting depot has
    /// ended.
    pub fn said(&self) -> Vec<Notice> {
        let Some(route) = self.route.lock().clone() else {
            return Vec::new();
        };
        let end = clock::now() + AUDIT_WAIT;
        // Reports of closing connections are not examined after the route was abandoned.
        let unknown = || {
            let corrupted = route.activity.is_corrupted() && !route.is_direct();
            corrupted || route.auditing.load(Ordering::Relaxed)
        };
        while unknown() && clock::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        route.said()
    }
}

/// The route of a transfer and its destination.
#[derive(Clone)]
pub struct Via {
    /// The depots.
    pub route: Arc<Route>,
    /// The other end's host, as the depots resolve it.
    pub host: Host,
}

impl std::fmt::Debug for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Via({} to {})", self.route, self.host)
    }
}

/// Why a connection over depots failed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// A depot refused it.
    #[error("the depot {0} refuses: {1}")]
    Refused(String, Refusal),
    /// A depot is unreachable, or closed the connection.
    #[error("{0}")]
    Unreachable(String),
    /// No answer came within the timeout.
    #[error("{0}")]
    Silent(String),
    /// The other end was reached, and the handshake failed.
    #[error("{}", describe(.0))]
    Handshake(#[from] std::io::Error),
}

impl DialError {
    /// Whether another try, or the direct path, would be of no use, so that the user has to act.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Refused(_, refusal) => !refusal.reason.passes(),
            Self::Unreachable(_) | Self::Silent(_) | Self::Handshake(_) => false,
        }
    }

    /// Whether a permission is missing.
    pub fn is_denied(&self) -> bool {
        let denied = [Reason::NotAuthorised, Reason::Forbidden];
        matches!(self, Self::Refused(_, refusal) if denied.contains(&refusal.reason))
    }

    fn wait(&self) -> Duration {
        match self {
            Self::Refused(_, refusal) => refusal.retry_after.unwrap_or_default(),
            Self::Unreachable(_) => RETRY_PAUSE,
            Self::Silent(_) | Self::Handshake(_) => Duration::ZERO,
        }
    }

    /// How many failures it counts as.
    fn weight(&self) -> u32 {
        match self {
            Self::Silent(_) => 2,
            // The depot itself says that its state will last.
            _ if self.wait() > MAX_WAIT => MAX_FAILURES,
            _ => 1,
        }
    }
}

/// Counts a connection that is being made, until it is dropped.
struct Dialling<'a>(&'a AtomicU32);

impl<'a> Dialling<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Dialling<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.depots.iter().map(Place::to_string).collect();
        f.write_str(&names.join(","))
    }
}

impl Route {
    /// A route over these depots, from first to last; `None` without depots.
    pub fn over(depots: &[Place], by: &[HopTransport]) -> Result<Option<Arc<Self>>, RequestError> {
        Self::made(depots, by, false)
    }

    fn made(
        depots: &[Place],
        by: &[HopTransport],
        by_destination: bool,
    ) -> Result<Option<Arc<Self>>, RequestError> {
        if depots.is_empty() {
            return Ok(None);
        }
        let pool = Arc::new(Pool::new(MEMORY, 256, MEMORY));
        let mut by = by.to_vec();
        by.resize(depots.len(), HopTransport::Tcp);
        let identity = keys::identity()?;
        Ok(Some(Arc::new_cyclic(|own| Self {
            depots: depots.to_vec(),
            by,
            by_destination,
            hops: Arc::new(Hops::new(pool, PortRange::ANY, MAX_FLOWS)),
            fates: Mutex::default(),
            identity,
            failures: AtomicU32::new(0),
            dialling: AtomicU32::new(0),
            crowded: Mutex::default(),
            direct: AtomicBool::new(false),
            notices: Mutex::default(),
            lines: Mutex::default(),
            activity: Arc::default(),
            watched: AtomicBool::new(false),
            auditing: AtomicBool::new(false),
            corrupter: Mutex::default(),
            own: own.clone(),
        })))
    }

    fn hops(&self) -> impl Iterator<Item = Hop> {
        let both = self.depots.iter().zip(&self.by);
        both.map(|(place, by)| Hop { transport: *by, place: place.clone() })
    }

    /// Calls `what` with each connection.
    fn lines(&self, what: impl Fn(&RouteConnection)) {
        let mut lines = self.lines.lock();
        lines.retain(|line| line.strong_count() > 0);
        lines.iter().filter_map(Weak::upgrade).for_each(|line| what(&line));
    }

    /// Number of connections.
    fn count(&self) -> usize {
        let lines = self.lines.lock();
        lines.iter().filter(|line| line.strong_count() > 0).count()
    }

    /// Whether the route was abandoned.
    pub fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// Takes the pending notices.
    pub fn said(&self) -> Vec<Notice> {
        let mut fates = self.fates.lock();
        if fates.iter().any(|status| status.fell_back()) {
            fates.clear();
            let first = &self.depots[0];
            self.push_notice(format!(
                "no datagram gets through to the depot {first}: TCP carries that hop"
            ));
        }
        drop(fates);
        std::mem::take(&mut *self.notices.lock())
    }

    fn push_notice(&self, text: String) {
        let mut notices = self.notices.lock();
        notices.push(Notice::new(NoticeLevel::Warning, text));
    }

    /// Whether a depot refuses further connections while this route has others open or in progress.
    fn is_crowded(&self, error: &DialError) -> bool {
        let more = [Reason::Busy, Reason::Quota];
        let full =
            matches!(error, DialError::Refused(_, refusal) if more.contains(&refusal.reason));
        full && (self.count() > CONTROL_CONNECTIONS || self.dialling.load(Ordering::Relaxed) > 0)
    }

    /// Reports once that there are fewer connections than requested. Without any connection except
    /// control, another report follows.
    fn report_crowded(&self) {
        if self.is_direct() || self.count() <= CONTROL_CONNECTIONS {
            return;
        }
        let mut crowded = self.crowded.lock();
        let Some(text) = crowded.0.take() else { return };
        if !std::mem::replace(&mut crowded.1, true) {
            self.push_notice(format!("{text}; going on with the connections that it has"));
        }
    }

    fn failed(&self, error: &DialError) {
        let weight = error.weight();
        let failures = self.failures.fetch_add(weight, Ordering::Relaxed) + weight;
        if failures >= MAX_FAILURES && !self.direct.swap(true, Ordering::Relaxed) {
            let wait = Duration::from_secs(error.wait().as_millis().div_ceil(1000));
            let later = if wait > MAX_WAIT {
                format!("; come again in {}", wait.to_readable())
            } else {
                String::new()
            };
            self.push_notice(format!("{error}{later}; going on without depots"));
        } else if !self.is_direct() {
            self.push_notice(format!("{error}; trying again"));
        }
    }

    /// The header of a new session of this kind to `destination`.
    pub fn header_of(&self, kind: Kind, destination: Place) -> Result<Vec<u8>, DialError> {
        self.header(kind, destination, self.depots.len())
    }

    /// The header of a new session to `destination` over the first `depots` depots.
    fn header(&self, kind: Kind, destination: Place, depots: usize) -> Result<Vec<u8>, DialError> {
        let session = Session {
            kind,
            id: SessionId(entropy::bytes()),
            sent: clock::wall(),
            hop_limit: HOP_LIMIT,
            source: None,
            destination: Hop::tcp(destination),
            route: self.hops().take(depots).collect(),
            // A question to one of the depots is for that depot.
            by_destination: self.by_destination && depots == self.depots.len(),
            tree: Vec::new(),
            spool: None,
        };
        let sealed = session.seal(self.identity.public().0, |text| self.identity.sign(text));
        sealed.map(|header| header.write()).map_err(|e| DialError::Unreachable(e.to_string()))
    }

    /// Tries once to make a further connection to `destination`.
    pub async fn dial(
        &self,
        destination: Place,
        tls: &TlsConnector,
        options: &ConnectOptions,
    ) -> Result<TlsStream<Carrier>, DialError> {
        let dialled = self.dial_kept(destination, tls, options).await;
        match &dialled {
            Err(error) if self.is_crowded(error) => {
                self.crowded.lock().0 = Some(error.to_string());
            }
            Err(error) => self.failed(error),
            Ok(_) => {}
        }
        self.report_crowded();
        dialled
    }

    /// Tries once to connect to `destination` over the depots. The first TLS message immediately
    /// follows the header, so that only the wait for the other end's answer adds a round trip.
    async fn dial_kept(
        &self,
        destination: Place,
        tls: &TlsConnector,
        options: &ConnectOptions,
    ) -> Result<TlsStream<Carrier>, DialError> {
        let dialled = {
            let _dialling = Dialling::new(&self.dialling);
            self.dial_once(destination, (tls, any_name()), options).await
        };
        if let Ok(stream) = &dialled {
            self.failures.store(0, Ordering::Relaxed);
            if let (Some(line), Some(own)) = (stream.get_ref().0.line(), self.own.upgrade()) {
                self.lines.lock().push(Arc::downgrade(&line));
                own.watch();
            }
        }
        dialled
    }

    /// The same, without notices and without any effect on the state. The other end gets this
    /// server name.
    pub async fn dial_once(
        &self,
        destination: Place,
        (tls, name): (&TlsConnector, ServerName<'static>),
        options: &ConnectOptions,
    ) -> Result<TlsStream<Carrier>, DialError> {
        let first = &self.depots[0];
        let away = |text: String| DialError::Unreachable(format!("the depot {first}: {text}"));
        let silent = |text: &str| DialError::Silent(format!("the depot {first}: {text}"));
        let socket = connect(&first.host.to_string(), first.port, options)
            .await
            .map_err(|e| away(e.to_string()))?;
        // These options are not required.
        let _ = tune::set_nodelay(&socket);
        let _ = tune::set_dead_after(&socket, UNREACHABLE_TIMEOUT);
        let header = self.header(Kind::Synchronous, destination, self.depots.len())?;
        let (socket, mut words) = if self.by[0].is_datagram() {
            let called = hops::call(socket, self.by[0], &header, &self.hops).await;
            let (socket, status) = called.map_err(|e| away(e.to_string()))?;
            self.fates.lock().push(status);
            (socket, Vec::new())
        } else {
            (Carrier::Tcp(socket), header)
        };
        let socket = socket.watched(&self.activity);
        let shaking = tls.connect_with(name, socket, |client| {
            // Writing to memory does not fail.
            let _ = client.write_tls(&mut words);
        });
        let broken = || away("the connection broke".to_owned());
        let socket = shaking.get_ref().ok_or_else(broken)?;
        let answered = async {
            write_all(socket, &words).await.map_err(|e| describe(&e))?;
            read_answer(socket).await
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT.to_std(), answered).await;
        match answer.map_err(|_| silent("no answer"))?.map_err(away)? {
            Answer::Accepted => {}
            Answer::Refused(refusal) => {
                let who = self.depots.get(usize::from(refusal.depot));
                let who = who.map_or_else(|| self.to_string(), Place::to_string);
                return Err(DialError::Refused(who, refusal));
            }
        }
        let shaken = tokio::time::timeout(ANSWER_TIMEOUT.to_std(), shaking).await;
        Ok(shaken.map_err(|_| silent("nothing comes from the other end"))??)
    }

    /// Connects over the depots, with several tries; `None` if the direct path should be used.
    ///
    /// # Errors
    /// A refusal that only the depot's owner or the user can change, or an error of the other end.
    pub async fn dial_long(
        &self,
        destination: &Place,
        tls: &TlsConnector,
        options: &ConnectOptions,
    ) -> Result<Option<TlsStream<Carrier>>, DialError> {
        while !self.is_direct() {
            let dialled = self.dial_kept(destination.clone(), tls, options).await;
            if let Err(error) = &dialled {
                self.failed(error);
            }
            match dialled {
                Ok(stream) => return Ok(Some(stream)),
                Err(error) if error.is_final() => return Err(error),
                // The other end's key does not depend on the depots.
                Err(DialError::Handshake(error))
                    if packtrain_net::tcp::tls::is_key_refused(&error) =>
                {
                    return Err(error.into());
                }
                Err(error) => {
                    let wait = if self.is_direct() { Duration::ZERO } else { error.wait() };
                    tokio::time::sleep(wait.to_std()).await;
                }
            }
        }
        Ok(None)
    }
}
