//! What the parts of a depot share of a session: who is let in, how it counts, how it ends, and the
//! connection to the next hop.

use super::Depot;
use packtrain_hops::DatagramStatus;
use packtrain_identity::pubkey::PublicKey;
use packtrain_net::tcp::{connect_any, tune};
use packtrain_os::clock;
use packtrain_session::{
    Header, Hop, HopTransport, Host, Kind, Reason, Refusal, ReplayError, ReplayGuard,
};
use packtrain_units::{ByteCount, Duration, Time};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::TcpStream;

/// How long each hop further on has to be connected.
pub(super) const HOP: Duration = Duration::from_secs(10);

/// A network that is gone this long ends a connection.
pub(super) const DEAD: Duration = Duration::from_secs(60);

/// How often a session is looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Why a session is over before its ends said so.
pub(super) enum Ended {
    Refused(Refusal),
    Failed(String),
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// What becomes known of a session.
#[derive(Default)]
pub(super) struct Known {
    pub(super) id: Option<String>,
    pub(super) key: Option<PublicKey>,
    pub(super) to: String,
    /// How this depot was reached, and reaches the next.
    pub(super) by: Option<(HopTransport, HopTransport)>,
    /// The caller was greeted: answers come as frames.
    pub(super) greeted: bool,
    /// What became of datagrams, here and there.
    pub(super) fates: [Arc<DatagramStatus>; 2],
}

/// Bytes there and back, and when something last moved.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
    pub(super) told: AtomicU64,
    pub(super) last: AtomicU64,
}

impl Flow {
    /// Something moved.
    pub(super) fn touch(&self) {
        self.last.store(clock::now().as_nanos(), Ordering::Relaxed);
    }
}

pub(super) fn tune_socket(socket: &TcpStream, depot: &Depot) {
    // One who is there and takes nothing looks the same to the kernel: he has his idle time.
    let dead = depot.idle.max(DEAD);
    // What a system lacks of these, it does without.
    let _ = tune::set_nodelay(socket);
    let _ = tune::set_urgent_inline(socket);
    let _ = tune::set_dead_after(socket, dead);
}

pub(super) fn refusal(position: usize, reason: Reason, text: impl Into<String>) -> Refusal {
    let depot = u8::try_from(position).unwrap_or(u8::MAX);
    Refusal { reason, depot, retry_after: None, text: text.into() }
}

/// Whose header it is, if this depot works for them.
pub(super) fn let_in(depot: &Depot, header: &Header) -> Result<PublicKey, Ended> {
    let position = header.position();
    let key = PublicKey(header.sender);
    let keys = depot.keys.keys().map_err(|error| {
        depot.warn(error);
        refusal(position, Reason::NotAuthorised, "the depot's authorized_keys cannot be used")
    })?;
    let grant = keys.grant(&key);
    // A line that restricts its key to files does not let it relay.
    let relays = grant.is_some_and(|grant| grant.root.is_none() && !grant.read_only);
    if relays && header.is_signed() {
        return Ok(key);
    }
    let text = format!(
        "the key {} is not let in by the depot: have it added to its authorized_keys \
         (packtrain key show prints it), without root or read-only",
        key.fingerprint()
    );
    Err(refusal(position, Reason::NotAuthorised, text).into())
}

/// Takes a header that was never here before, and whose time is now.
pub(super) fn once(
    guard: &Mutex<ReplayGuard>,
    header: &Header,
    position: usize,
) -> Result<(), Ended> {
    let session = &header.session;
    let taken =
        guard.lock().admit(clock::now(), clock::wall(), session.sent, &header.sender, session.id);
    let no = |reason, stale: ReplayError| Err(refusal(position, reason, stale.to_string()).into());
    match taken {
        Ok(()) => Ok(()),
        Err(stale @ ReplayError::Full) => no(Reason::Busy, stale),
        Err(stale) => no(Reason::Stale, stale),
    }
}

/// What a header asks for, if this depot does that for who asks. In this order: nothing is told
/// to strangers, nothing is remembered of them, and loops are told from repetitions.
pub(super) fn judge(depot: &Depot, header: &Header) -> Result<PublicKey, Ended> {
    let position = header.position();
    let no = |reason, text: &str| Err(refusal(position, reason, text).into());
    let key = let_in(depot, header)?;
    let session = &header.session;
    let known = matches!(session.kind, Kind::Synchronous | Kind::Echo | Kind::Measure(_));
    if !known || !session.tree.is_empty() {
        return no(Reason::Unsupported, "this depot relays synchronous sessions to one receiver");
    }
    if header.trail.contains(&depot.id) {
        return no(Reason::Loop, "the route comes by this depot twice");
    }
    let most = depot.hop_limit.min(usize::from(session.hop_limit));
    if session.route.len() > most {
        let text = format!("a route over {} depots; {most} are allowed", session.route.len());
        return no(Reason::TooLong, &text);
    }
    once(&depot.guard, header, position)?;
    Ok(key)
}

/// A place among the sessions, given up when it is over.
pub(super) struct SessionPermit<'a> {
    depot: &'a Depot,
    key: PublicKey,
    flow: &'a Flow,
}

impl<'a> SessionPermit<'a> {
    pub(super) fn take(
        depot: &'a Depot,
        key: PublicKey,
        flow: &'a Flow,
        position: usize,
    ) -> Result<Self, Ended> {
        let mut admission = depot.admission.lock();
        if let Err(no) = admission.admit(clock::now(), key) {
            let retry_after = Some(no.retry_after);
            let refusal = Refusal { retry_after, ..refusal(position, no.reason, no.text) };
            return Err(refusal.into());
        }
        depot.pool.join();
        depot.pool.join();
        depot.counters.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(Self { depot, key, flow })
    }

    /// Counts against the key what moved since the last time.
    fn count(&self) {
        let read = |one: &AtomicU64| one.load(Ordering::Relaxed);
        let all = read(&self.flow.up) + read(&self.flow.down);
        let new = all.saturating_sub(self.flow.told.swap(all, Ordering::Relaxed));
        let mut admission = self.depot.admission.lock();
        admission.moved(&self.key, ByteCount(new));
    }

    /// Ends when nothing has moved for too long.
    pub(super) async fn idle(&self) -> Ended {
        loop {
            tokio::time::sleep(CHECK_INTERVAL.to_std()).await;
            self.count();
            let last = Time::from_nanos(self.flow.last.load(Ordering::Relaxed));
            if clock::now().since(last) >= self.depot.idle {
                return Ended::Failed(format!("nothing moved for {}", self.depot.idle));
            }
        }
    }
}

impl Drop for SessionPermit<'_> {
    fn drop(&mut self) {
        self.count();
        self.depot.pool.leave();
        self.depot.pool.leave();
        self.depot.admission.lock().leave(&self.key);
    }
}

/// Connects to the next hop by TCP, where that is allowed.
pub(super) async fn connect(depot: &Depot, hop: &Hop, position: usize) -> Result<TcpStream, Ended> {
    if hop.transport.is_datagram() {
        return Err(no_way(hop, position));
    }
    reach(depot, hop, position).await
}

pub(super) fn no_way(hop: &Hop, position: usize) -> Ended {
    let text = format!("this depot does not reach {} by that transport", hop.place);
    refusal(position, Reason::Unsupported, text).into()
}

/// Connects to where a hop leads, whatever then carries it, where that is allowed.
pub(super) async fn reach(depot: &Depot, hop: &Hop, position: usize) -> Result<TcpStream, Ended> {
    let place = &hop.place;
    if let HopTransport::Other(_) = hop.transport {
        return Err(no_way(hop, position));
    }
    let away = |text: String| refusal(position, Reason::Unreachable, text);
    let found: Vec<SocketAddr> = match &place.host {
        Host::Ip(ip) => vec![SocketAddr::new(*ip, place.port)],
        Host::Name(name) => {
            let look = tokio::net::lookup_host((name.as_str(), place.port));
            let found = tokio::time::timeout(HOP.to_std(), look).await;
            let found = found.map_err(|_| away(format!("nobody tells the address of {name}")))?;
            found.map_err(|e| away(format!("cannot find the address of {name}: {e}")))?.collect()
        }
    };
    let allowed = |to: &SocketAddr| {
        depot.allow.iter().any(|rule| rule.allows(&place.host, to.ip(), to.port()))
    };
    let found: Vec<SocketAddr> = found.into_iter().filter(allowed).collect();
    if found.is_empty() {
        let text = format!("this depot does not connect to {place}: its owner says where to");
        return Err(refusal(position, Reason::Forbidden, text).into());
    }
    let next = connect_any(&found, &depot.connect).await.map_err(|e| away(e.to_string()))?;
    tune_socket(&next, depot);
    Ok(next)
}
