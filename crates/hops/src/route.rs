//! A caller's way over depots: connections to the other end that go through them, and directly
//! when they fail.

mod watch;

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use packtrain_net::tcp::tls::{ServerName, any_name};
use packtrain_net::tcp::{ConnectOptions, Identity, connect, tune};
use packtrain_net::udp::PortRange;
use packtrain_os::{clock, entropy};
use packtrain_session::{
    Answer, Hop, HopTransport, Host, Kind, Place, Reason, Refusal, Session, SessionId,
};
use packtrain_units::{ByteCount, Duration};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate as hops;
use crate::{Carrier, DatagramStatus, Hops, Line, Pool, Pulse, read_answer, write_all};
use packtrain_identity::keys;
use packtrain_service::{Notice, NoticeLevel, RequestError};

/// The most depots that a route of ours may have.
const HOP_LIMIT: u8 = 4;
/// How long the depots together have to connect, and then the other end to shake hands.
const ANSWER: Duration = Duration::from_secs(8);
/// Failures in a row after which it is tried without depots; silence counts twice.
const TRIES: u32 = 3;
/// Memory for bytes on their way to and from the first depots.
const MEMORY: ByteCount = ByteCount(64 << 20);
/// Flows of datagrams at a time.
const MAX_FLOWS: usize = 130;
/// The longest wait for who changed bytes.
const SETTLE: Duration = Duration::from_secs(30);
/// The wait before a depot that cannot be reached is tried again: it may be starting.
const AGAIN: Duration = Duration::from_millis(250);
/// The longest wait for a depot that says when to come again.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Connections that move no payload.
const CONTROL: usize = 1;
/// A network that is gone this long ends a connection over depots: there may be another way.
pub(crate) const DEAD: Duration = Duration::from_secs(20);

/// A route, as far as it works.
pub struct Route {
    depots: Vec<Place>,
    /// How each of them is reached.
    by: Vec<HopTransport>,
    /// For a first hop by datagrams.
    hops: Arc<Hops>,
    fates: Mutex<Vec<Arc<DatagramStatus>>>,
    identity: Identity,
    failures: AtomicU32,
    /// Connections that are being made.
    dialling: AtomicU32,
    /// What a depot said that takes no more of them, until it is told, and whether it was.
    crowded: Mutex<(Option<String>, bool)>,
    direct: AtomicBool,
    notices: Mutex<Vec<Notice>>,
    /// Its connections, and what came over all of them.
    lines: Mutex<Vec<Weak<Line>>>,
    pulse: Arc<Pulse>,
    watched: AtomicBool,
    auditing: AtomicBool,
    /// The depot that changes bytes, once it is found.
    corrupter: Mutex<Option<String>>,
    /// For whoever looks after it.
    own: Weak<Self>,
}

/// The routes of a command, which remember what its earlier tries learned.
#[derive(Clone)]
pub struct Routes {
    number: [u8; 16],
    route: Arc<Mutex<Option<Arc<Route>>>>,
}

impl Default for Routes {
    fn default() -> Self {
        Self { number: entropy::bytes(), route: Arc::default() }
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Routes")
    }
}

impl Routes {
    /// The number of the command.
    pub fn number(&self) -> [u8; 16] {
        self.number
    }

    /// The route over these depots: the same one at each try.
    pub fn over(
        &self,
        depots: &[Place],
        by: &[HopTransport],
    ) -> Result<Option<Arc<Route>>, RequestError> {
        let mut kept = self.route.lock();
        if kept.is_none() {
            *kept = Route::over(depots, by)?;
        }
        Ok(kept.clone())
    }

    /// The depot that was found to change bytes, once.
    pub fn corrupter(&self) -> Option<String> {
        let route = self.route.lock().clone()?;
        let mut found = route.corrupter.lock();
        found.take()
    }

    /// What is still to be said when a try is over; waits until it is known who changed bytes.
    pub fn said(&self) -> Vec<Notice> {
        let Some(route) = self.route.lock().clone() else {
            return Vec::new();
        };
        let end = clock::now() + SETTLE;
        // What connections that end still say after the route was given up is looked into by nobody.
        let unknown = || {
            let corrupted = route.pulse.is_corrupted() && !route.is_direct();
            corrupted || route.auditing.load(Ordering::Relaxed)
        };
        while unknown() && clock::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        route.said()
    }
}

/// The route of a transfer and where it leads.
#[derive(Clone)]
pub struct Via {
    /// The depots.
    pub route: Arc<Route>,
    /// The other end, as depots are to find it.
    pub host: Host,
}

impl std::fmt::Debug for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Via({} to {})", self.route, self.host)
    }
}

/// Why a connection over depots did not come about.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// A depot says no.
    #[error("the depot {0} refuses: {1}")]
    Refused(String, Refusal),
    /// Depots cannot be reached, or break off.
    #[error("{0}")]
    Away(String),
    /// Nothing comes.
    #[error("{0}")]
    Silent(String),
    /// The other end was reached, and something is wrong with it.
    #[error("{0}")]
    Shake(#[from] std::io::Error),
}

impl DialError {
    /// Whether it is of no use to try again, or without depots: the user is to decide.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Refused(_, refusal) => !refusal.reason.passes(),
            Self::Away(_) | Self::Silent(_) | Self::Shake(_) => false,
        }
    }

    /// Whether what is missing is a permission.
    pub fn is_denied(&self) -> bool {
        let denied = [Reason::NotAuthorised, Reason::Forbidden];
        matches!(self, Self::Refused(_, refusal) if denied.contains(&refusal.reason))
    }

    fn wait(&self) -> Duration {
        match self {
            Self::Refused(_, refusal) => refusal.retry_after.unwrap_or_default(),
            Self::Away(_) => AGAIN,
            Self::Silent(_) | Self::Shake(_) => Duration::ZERO,
        }
    }

    /// What it says about the number of tries that are of use.
    fn weight(&self) -> u32 {
        match self {
            Self::Silent(_) => 2,
            // It says itself that it will be the same for long.
            _ if self.wait() > MAX_WAIT => TRIES,
            _ => 1,
        }
    }
}

/// A connection that is being made, however that ends.
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
    /// A route over these depots, first to last; none over none.
    pub fn over(depots: &[Place], by: &[HopTransport]) -> Result<Option<Arc<Self>>, RequestError> {
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
            hops: Arc::new(Hops::new(pool, PortRange::ANY, MAX_FLOWS)),
            fates: Mutex::default(),
            identity,
            failures: AtomicU32::new(0),
            dialling: AtomicU32::new(0),
            crowded: Mutex::default(),
            direct: AtomicBool::new(false),
            notices: Mutex::default(),
            lines: Mutex::default(),
            pulse: Arc::default(),
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

    /// Does something to each connection that there is.
    fn lines(&self, what: impl Fn(&Line)) {
        let mut lines = self.lines.lock();
        lines.retain(|line| line.strong_count() > 0);
        lines.iter().filter_map(Weak::upgrade).for_each(|line| what(&line));
    }

    /// How many connections there are.
    fn count(&self) -> usize {
        let lines = self.lines.lock();
        lines.iter().filter(|line| line.strong_count() > 0).count()
    }

    /// Whether it was given up.
    pub fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// What there is to say of it.
    pub fn said(&self) -> Vec<Notice> {
        let mut fates = self.fates.lock();
        if fates.iter().any(|fate| fate.fell_back()) {
            fates.clear();
            let first = &self.depots[0];
            self.say(format!(
                "no datagram gets through to the depot {first}: TCP carries that hop"
            ));
        }
        drop(fates);
        std::mem::take(&mut *self.notices.lock())
    }

    fn say(&self, text: String) {
        let mut notices = self.notices.lock();
        notices.push(Notice::new(NoticeLevel::Warning, text));
    }

    /// Whether a depot takes no more connections while it has others of this route, or some that
    /// are on their way.
    fn is_crowded(&self, error: &DialError) -> bool {
        let more = [Reason::Busy, Reason::Quota];
        let full =
            matches!(error, DialError::Refused(_, refusal) if more.contains(&refusal.reason));
        full && (self.count() > CONTROL || self.dialling.load(Ordering::Relaxed) > 0)
    }

    /// Says once that there are fewer connections than were asked for; where there is none but
    /// control, that is told otherwise.
    fn tell_crowded(&self) {
        if self.is_direct() || self.count() <= CONTROL {
            return;
        }
        let mut crowded = self.crowded.lock();
        let Some(text) = crowded.0.take() else { return };
        if !std::mem::replace(&mut crowded.1, true) {
            self.say(format!("{text}; going on with the connections that it has"));
        }
    }

    fn failed(&self, error: &DialError) {
        let weight = error.weight();
        let failures = self.failures.fetch_add(weight, Ordering::Relaxed) + weight;
        if failures >= TRIES && !self.direct.swap(true, Ordering::Relaxed) {
            let wait = Duration::from_secs(error.wait().as_millis().div_ceil(1000));
            let later =
                if wait > MAX_WAIT { format!("; come again in {wait}") } else { String::new() };
            self.say(format!("{error}{later}; going on without depots"));
        } else if !self.is_direct() {
            self.say(format!("{error}; trying again"));
        }
    }

    /// The header of a new session of this kind to `destination`.
    pub fn header_of(&self, kind: Kind, destination: Place) -> Result<Vec<u8>, DialError> {
        self.header(kind, destination, self.depots.len())
    }

    /// The header of a new session to `destination` over the first so many depots.
    fn header(&self, kind: Kind, destination: Place, depots: usize) -> Result<Vec<u8>, DialError> {
        let session = Session {
            kind,
            id: SessionId(entropy::bytes()),
            sent: clock::wall(),
            hop_limit: HOP_LIMIT,
            source: None,
            destination: Hop::tcp(destination),
            route: self.hops().take(depots).collect(),
            tree: Vec::new(),
            spool: None,
        };
        let sealed = session.seal(self.identity.public().0, |text| self.identity.sign(text));
        sealed.map(|header| header.write()).map_err(|e| DialError::Away(e.to_string()))
    }

    /// One connection among others to `destination`, once.
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
        self.tell_crowded();
        dialled
    }

    /// Connects to `destination` over the depots, once. The first words of TLS go right behind the
    /// header, so that nothing waits for the depots' answer but what waits for the other end's.
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

    /// The same, and nothing is said or remembered of it. The other end is called by this name.
    pub async fn dial_once(
        &self,
        destination: Place,
        (tls, name): (&TlsConnector, ServerName<'static>),
        options: &ConnectOptions,
    ) -> Result<TlsStream<Carrier>, DialError> {
        let first = &self.depots[0];
        let away = |text: String| DialError::Away(format!("the depot {first}: {text}"));
        let silent = |text: &str| DialError::Silent(format!("the depot {first}: {text}"));
        let socket = connect(&first.host.to_string(), first.port, options)
            .await
            .map_err(|e| away(e.to_string()))?;
        // What a system lacks of these, it does without.
        let _ = tune::set_nodelay(&socket);
        let _ = tune::set_dead_after(&socket, DEAD);
        let header = self.header(Kind::Synchronous, destination, self.depots.len())?;
        let (socket, mut words) = if self.by[0].is_datagram() {
            let called = hops::call(socket, self.by[0], &header, &self.hops).await;
            let (socket, fate) = called.map_err(|e| away(e.to_string()))?;
            self.fates.lock().push(fate);
            (socket, Vec::new())
        } else {
            (Carrier::Tcp(socket), header)
        };
        let socket = socket.watched(&self.pulse);
        let shaking = tls.connect_with(name, socket, |client| {
            // Writing to memory does not fail.
            let _ = client.write_tls(&mut words);
        });
        let broken = || away("the connection broke".to_owned());
        let socket = shaking.get_ref().ok_or_else(broken)?;
        let answered = async {
            write_all(socket, &words).await.map_err(|e| e.to_string())?;
            read_answer(socket).await
        };
        let answer = tokio::time::timeout(ANSWER.to_std(), answered).await;
        match answer.map_err(|_| silent("no answer"))?.map_err(away)? {
            Answer::Accepted => {}
            Answer::Refused(refusal) => {
                let who = self.depots.get(usize::from(refusal.depot));
                let who = who.map_or_else(|| self.to_string(), Place::to_string);
                return Err(DialError::Refused(who, refusal));
            }
        }
        let shaken = tokio::time::timeout(ANSWER.to_std(), shaking).await;
        Ok(shaken.map_err(|_| silent("nothing comes from the other end"))??)
    }

    /// Connects over the depots, a few times; none if that is to be done directly.
    ///
    /// # Errors
    /// A depot's refusal that only its owner or the user can change, or the other end's word.
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
                // The other end's key is of no matter to depots.
                Err(DialError::Shake(error)) if packtrain_net::tcp::tls::is_key_refused(&error) => {
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
