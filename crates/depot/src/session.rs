//! What the modules of a depot share of a session: authorization, byte counts, the end, and the
//! connection to the next hop.

use super::{Depot, is_failure};
use packtrain_hops::DatagramStatus;
use packtrain_identity::pubkey::PublicKey;
use packtrain_net::tcp::{connect_any, lookup, tune};
use packtrain_os::clock;
use packtrain_service::unauthenticated::UnauthenticatedPeer;
use packtrain_session::{
    Header, Hop, HopTransport, Host, Kind, Reason, Refusal, ReplayError, ReplayGuard,
};
use packtrain_units::{ByteCount, Duration, Time};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::TcpStream;

/// Timeout for connecting each further hop.
pub(super) const HOP_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection ends when the network is unreachable for this long.
pub(super) const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Suggested pause while the depot cannot read its list of keys.
const KEYS_RETRY: Duration = Duration::from_secs(10);

/// How often a session is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Why a session ended before its ends closed it.
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

/// Details of a session for its event.
#[derive(Default)]
pub(super) struct SessionDetails {
    pub(super) id: Option<String>,
    pub(super) key: Option<PublicKey>,
    pub(super) to: String,
    /// The transport of the hop to this depot, and of the hop to the next.
    pub(super) by: Option<(HopTransport, HopTransport)>,
    /// The handshake of a hop by datagrams is done, so answers are framed.
    pub(super) greeted: bool,
    /// Whether datagrams worked, on each of the two hops.
    pub(super) datagram_status: [Arc<DatagramStatus>; 2],
}

/// Bytes in both directions, and the time of the last movement.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
    pub(super) told: AtomicU64,
    pub(super) last: AtomicU64,
}

impl Flow {
    /// Records that bytes moved.
    pub(super) fn touch(&self) {
        self.last.store(clock::now().as_nanos(), Ordering::Relaxed);
    }
}

/// A connection with a header that was read, and what is known of it so far.
pub(super) struct Arrival<'a> {
    pub(super) depot: &'a Arc<Depot>,
    pub(super) socket: &'a mut TcpStream,
    pub(super) header: Header,
    /// Its place among the unauthenticated peers, until it is admitted or its refusal is delivered.
    pub(super) pending: &'a mut Option<UnauthenticatedPeer>,
    /// Its place among the sessions, until it ends or a later refusal is delivered.
    pub(super) permit: &'a mut Option<SessionPermit>,
    pub(super) details: &'a mut SessionDetails,
    pub(super) flow: &'a Arc<Flow>,
}

impl Arrival<'_> {
    /// Takes a slot among the sessions for `key`, whose request is for `to`. The depot is at
    /// `position` of the route.
    pub(super) fn admit(
        &mut self,
        key: PublicKey,
        position: usize,
        to: String,
    ) -> Result<(), Ended> {
        self.take_permit(key, None, position, to)
    }

    /// The same for a claim by `key` of a session that `depositor` has deposited.
    pub(super) fn admit_claim(
        &mut self,
        key: PublicKey,
        depositor: PublicKey,
        to: String,
    ) -> Result<(), Ended> {
        self.take_permit(key, Some(depositor), 0, to)
    }

    fn take_permit(
        &mut self,
        key: PublicKey,
        depositor: Option<PublicKey>,
        position: usize,
        to: String,
    ) -> Result<(), Ended> {
        self.details.to = to;
        let permit = SessionPermit::take(self.depot, (key, depositor), self.flow, position)?;
        *self.permit = Some(permit);
        *self.pending = None;
        self.flow.touch();
        Ok(())
    }
}

pub(super) fn tune_socket(socket: &TcpStream, depot: &Depot) {
    // To the kernel, a peer that reads nothing looks like an unreachable one, so the timeout is not
    // shorter than the idle time.
    let dead = depot.idle.max(UNREACHABLE_TIMEOUT);
    // The depot works without options that the system lacks.
    let _ = tune::set_nodelay(socket);
    let _ = tune::set_urgent_inline(socket);
    let _ = tune::set_dead_after(socket, dead);
}

pub(super) fn refusal(position: usize, reason: Reason, text: impl Into<String>) -> Refusal {
    let depot = u8::try_from(position).unwrap_or(u8::MAX);
    Refusal { reason, depot, retry_after: None, text: text.into() }
}

/// The key of the header's sender, if the depot admits it.
pub(super) fn authorize(depot: &Depot, header: &Header) -> Result<PublicKey, Ended> {
    let position = header.position();
    let key = PublicKey(header.sender);
    let keys = depot.keys.keys().map_err(|error| {
        depot.warn(error.to_string());
        let text = "the depot's authorized_keys cannot be used";
        // A refusal of the key is final: the previous depot would give up a branch for good.
        match is_failure(&error) {
            true => {
                let retry_after = Some(KEYS_RETRY);
                Refusal { retry_after, ..refusal(position, Reason::Busy, text) }
            }
            false => refusal(position, Reason::NotAuthorised, text),
        }
    })?;
    let grant = keys.grant(&key);
    // A key that is restricted to files may not relay.
    let relays = grant.is_some_and(|grant| grant.root.is_none() && !grant.read_only);
    if relays && header.is_signed() {
        return Ok(key);
    }
    let text = format!(
        "the depot does not admit the key {}: have it added to its authorized_keys \
         (packtrain key show prints it), without root or read-only",
        key.fingerprint()
    );
    Err(refusal(position, Reason::NotAuthorised, text).into())
}

/// Accepts a header only once, and only if its time is current.
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

/// Checks whether the depot carries out the header's request. The order matters: unknown keys get
/// no information, nothing is stored for them, and a loop is distinguished from a replay.
pub(super) fn judge(depot: &Depot, header: &Header) -> Result<PublicKey, Ended> {
    let position = header.position();
    let no = |reason, text: &str| Err(refusal(position, reason, text).into());
    let key = authorize(depot, header)?;
    let session = &header.session;
    let known = matches!(session.kind, Kind::Synchronous | Kind::Echo | Kind::Measure(_));
    if !known || !session.tree.is_empty() {
        return no(Reason::Unsupported, "this depot relays synchronous sessions to one receiver");
    }
    if header.trail.contains(&depot.id) {
        return no(Reason::Loop, "the route passes this depot twice");
    }
    let most = depot.hop_limit.min(usize::from(session.hop_limit));
    if session.route.len() > most {
        let text = format!("a route over {} depots; {most} are allowed", session.route.len());
        return no(Reason::TooLong, &text);
    }
    if position >= most {
        let text = format!("a depot too many: {most} are allowed, and the tables lead further");
        return no(Reason::TooLong, &text);
    }
    once(&depot.guard, header, position)?;
    Ok(key)
}

/// The next depot of a session that is forwarded by destination, if the depot's table has one.
pub(super) fn routed(depot: &Depot, header: &Header) -> Option<Hop> {
    let session = &header.session;
    let forwards = session.by_destination
        && session.kind == Kind::Synchronous
        && session.destination.transport == HopTransport::Tcp;
    let next = forwards.then(|| depot.routes.next(&session.destination.place.host)).flatten()?;
    Some(Hop::tcp(next.clone()))
}

/// A slot among the sessions, released on drop.
pub(super) struct SessionPermit {
    depot: Arc<Depot>,
    key: PublicKey,
    /// Whose session it claims, if it is a claim.
    depositor: Option<PublicKey>,
    flow: Arc<Flow>,
}

impl SessionPermit {
    fn take(
        depot: &Arc<Depot>,
        (key, depositor): (PublicKey, Option<PublicKey>),
        flow: &Arc<Flow>,
        position: usize,
    ) -> Result<Self, Ended> {
        let mut admission = depot.admission.lock();
        let admitted = match depositor {
            Some(depositor) => admission.admit_claim(clock::now(), key, depositor),
            None => admission.admit(clock::now(), key),
        };
        if let Err(no) = admitted {
            let retry_after = Some(no.retry_after);
            let refusal = Refusal { retry_after, ..refusal(position, no.reason, no.text) };
            return Err(refusal.into());
        }
        depot.pool.join();
        depot.pool.join();
        depot.counters.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(Self { depot: Arc::clone(depot), key, depositor, flow: Arc::clone(flow) })
    }

    /// Adds the bytes moved since the last call to the key's account.
    fn count(&self) {
        let read = |one: &AtomicU64| one.load(Ordering::Relaxed);
        let all = read(&self.flow.up) + read(&self.flow.down);
        let new = all.saturating_sub(self.flow.told.swap(all, Ordering::Relaxed));
        let mut admission = self.depot.admission.lock();
        admission.moved(&self.key, ByteCount(new));
    }

    /// Returns when no byte has moved for too long.
    async fn idle(&self) -> Ended {
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

/// Returns when a session with this permit has moved no byte for too long.
pub(super) async fn idle(permit: Option<&SessionPermit>) -> Ended {
    match permit {
        Some(permit) => permit.idle().await,
        None => std::future::pending().await,
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.count();
        self.depot.pool.leave();
        self.depot.pool.leave();
        let mut admission = self.depot.admission.lock();
        match &self.depositor {
            Some(depositor) => admission.leave_claim(&self.key, depositor),
            None => admission.leave(&self.key),
        }
    }
}

/// Connects to the next hop by TCP, if that is allowed.
pub(super) async fn connect(depot: &Depot, hop: &Hop, position: usize) -> Result<TcpStream, Ended> {
    if hop.transport.is_datagram() {
        return Err(unsupported_transport(hop, position));
    }
    reach(depot, hop, position).await
}

pub(super) fn unsupported_transport(hop: &Hop, position: usize) -> Ended {
    let text = format!("this depot does not reach {} by that transport", hop.place);
    refusal(position, Reason::Unsupported, text).into()
}

/// Connects to a hop's address for any transport, if that is allowed.
pub(super) async fn reach(depot: &Depot, hop: &Hop, position: usize) -> Result<TcpStream, Ended> {
    if let HopTransport::Other(_) = hop.transport {
        return Err(unsupported_transport(hop, position));
    }
    let found = allowed_addresses(depot, hop, position).await?;
    let away = |text: String| refusal(position, Reason::Unreachable, text);
    let next = connect_any(&found, &depot.connect).await.map_err(|e| away(e.to_string()))?;
    tune_socket(&next, depot);
    Ok(next)
}

/// The addresses of a hop that this depot's rules permit, at least one.
pub(super) async fn allowed_addresses(
    depot: &Depot,
    hop: &Hop,
    position: usize,
) -> Result<Vec<SocketAddr>, Ended> {
    let place = &hop.place;
    let away = |text: String| refusal(position, Reason::Unreachable, text);
    let found: Vec<SocketAddr> = match &place.host {
        Host::Ip(ip) => vec![SocketAddr::new(*ip, place.port)],
        Host::Name(name) => {
            let lookup = lookup(name, place.port);
            let found = tokio::time::timeout(HOP_CONNECT_TIMEOUT.to_std(), lookup).await;
            let found = found.map_err(|_| away(format!("timeout while resolving {name}")))?;
            found.map_err(|e| away(format!("cannot resolve {name}: {e}")))?
        }
    };
    let allowed = |to: &SocketAddr| {
        depot.allow.iter().any(|rule| rule.allows(&place.host, to.ip(), to.port()))
    };
    let found: Vec<SocketAddr> = found.into_iter().filter(allowed).collect();
    if found.is_empty() {
        let text =
            format!("this depot does not connect to {place}: its --allow rules do not permit it");
        return Err(refusal(position, Reason::Forbidden, text).into());
    }
    Ok(found)
}
