//! One session through a depot: its header judged, the next hop connected, both ways passed on.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packtrain_net::relay::{cut, pump};
use packtrain_net::tcp::{connect_any, tune};
use packtrain_os::clock;
use packtrain_session::{
    Answer, HEADER_HEAD, Header, HeaderError, Hop, HopTransport, Host, Kind, Next, Reason, Refusal,
    ReplayError, ReplayGuard,
};
use packtrain_units::{ByteCount, Duration, Time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::lane::Lane;
use super::{Depot, Told, echo, framed, measure, spool};
use crate::DepotSession;
use packtrain_hops::{DatagramStatus, read_answer, write_all};
use packtrain_identity::pubkey::PublicKey;
use packtrain_service::unauthenticated::UnauthenticatedPeer;

/// How long a connection has to say what it wants.
const HELLO: Duration = Duration::from_secs(10);
/// How long each hop further on has to be connected.
pub(super) const HOP: Duration = Duration::from_secs(10);
/// A network that is gone this long ends a connection.
const DEAD: Duration = Duration::from_secs(60);
/// How long somebody who was refused may take to hear it.
const HEAR: Duration = Duration::from_secs(2);
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
    by: Option<(HopTransport, HopTransport)>,
    /// The caller was greeted: answers come as frames.
    greeted: bool,
    /// What became of datagrams, here and there.
    fates: [Arc<DatagramStatus>; 2],
}

/// Bytes there and back, and when something last moved.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
    told: AtomicU64,
    pub(super) last: AtomicU64,
}

impl Flow {
    /// Something moved.
    pub(super) fn touch(&self) {
        self.last.store(clock::now().as_nanos(), Ordering::Relaxed);
    }
}

/// Serves one connection from its first byte to its end.
pub(super) async fn serve(
    depot: Arc<Depot>,
    mut socket: TcpStream,
    peer: SocketAddr,
    pending: UnauthenticatedPeer,
    mut over: watch::Receiver<bool>,
) {
    // Given up by who is let in; who is refused has it until he has heard so.
    let mut pending = Some(pending);
    let begun = clock::now();
    tune_socket(&socket, &depot);
    let read = tokio::select! {
        read = tokio::time::timeout(HELLO.to_std(), read_header(&mut socket)) => read,
        _ = over.wait_for(|over| *over) => return,
    };
    let (mut known, flow) = (Known::default(), Flow::default());
    let ended = match read {
        Ok(Ok(header)) => {
            let work = session(&depot, &mut socket, header, &mut pending, (&mut known, &flow));
            tokio::select! {
                ended = work => ended,
                _ = over.wait_for(|over| *over) => Err(Ended::Failed("the depot has ended".into())),
            }
        }
        Ok(Err(Some(error))) => {
            let later = matches!(error, HeaderError::Version(_) | HeaderError::Option(_));
            let reason = if later { Reason::Unsupported } else { Reason::Malformed };
            Err(refusal(0, reason, error.to_string()).into())
        }
        Ok(Err(None)) | Err(_) => {
            depot.counters.strangers.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    let (refused, failure) = match &ended {
        Ok(()) => (None, None),
        Err(Ended::Failed(why)) => {
            // Neither end may take it for the end of the stream.
            cut(&socket);
            (None, Some(why.clone()))
        }
        Err(Ended::Refused(refusal)) => {
            depot.counters.refused(refusal.reason);
            refuse(&mut socket, refusal, known.greeted).await;
            (Some(refusal.reason.word()), Some(refusal.text.clone()))
        }
    };
    let print = known.key.map(|key| format!(" {}", key.fingerprint())).unwrap_or_default();
    let bytes = |one: &AtomicU64| ByteCount(one.load(Ordering::Relaxed));
    let by = known.by.unwrap_or((HopTransport::Tcp, HopTransport::Tcp));
    let [here, there] = &known.fates;
    depot.tell(Told::Session(DepotSession {
        id: known.id,
        peer: format!("{peer}{print}"),
        to: known.to,
        elapsed: clock::now().since(begun),
        bytes: (bytes(&flow.up), bytes(&flow.down)),
        by: (by.0.name(), by.1.name()),
        carried: (here.carried(), there.carried()),
        fell_back: (here.fell_back(), there.fell_back()),
        refused,
        failure,
    }));
}

fn tune_socket(socket: &TcpStream, depot: &Depot) {
    // One who is there and takes nothing looks the same to the kernel: he has his idle time.
    let dead = depot.idle.max(DEAD);
    // What a system lacks of these, it does without.
    let _ = tune::set_nodelay(socket);
    let _ = tune::set_urgent_inline(socket);
    let _ = tune::set_dead_after(socket, dead);
}

/// Reads a header and not one byte more; no error for who says something else altogether.
async fn read_header(socket: &mut TcpStream) -> Result<Header, Option<HeaderError>> {
    let mut head = [0; HEADER_HEAD];
    socket.read_exact(&mut head).await.map_err(|_| None)?;
    let len = match Header::len(&head) {
        Ok(len) => len,
        Err(HeaderError::NoSession) => return Err(None),
        Err(error) => return Err(Some(error)),
    };
    let mut bytes = vec![0; len];
    bytes[..HEADER_HEAD].copy_from_slice(&head);
    socket.read_exact(&mut bytes[HEADER_HEAD..]).await.map_err(|_| None)?;
    Header::read(&bytes).map_err(Some)
}

pub(super) fn refusal(position: usize, reason: Reason, text: impl Into<String>) -> Refusal {
    let depot = u8::try_from(position).unwrap_or(u8::MAX);
    Refusal { reason, depot, retry_after: None, text: text.into() }
}

/// Says no so that it is heard: what was sent behind the header is read and thrown away, since a
/// connection closed over unread bytes takes the answer with it.
async fn refuse(socket: &mut TcpStream, refusal: &Refusal, greeted: bool) {
    let hear = async {
        let answer = Answer::Refused(refusal.clone()).write();
        let answer = if greeted { framed::wrap(&answer) } else { answer };
        socket.write_all(&answer).await?;
        socket.shutdown().await?;
        let mut waste = [0; 4096];
        while socket.read(&mut waste).await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    let _ = tokio::time::timeout(HEAR.to_std(), hear).await;
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
fn judge(depot: &Depot, header: &Header) -> Result<PublicKey, Ended> {
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

async fn session(
    depot: &Arc<Depot>,
    socket: &mut TcpStream,
    header: Header,
    pending: &mut Option<UnauthenticatedPeer>,
    (known, flow): (&mut Known, &Flow),
) -> Result<(), Ended> {
    known.id = Some(header.session.id.to_string());
    known.key = Some(PublicKey(header.sender));
    match header.session.kind {
        Kind::Asynchronous | Kind::Staging => {
            return spool::deposit(depot, socket, header, pending, (known, flow)).await;
        }
        Kind::Claim => return spool::claim(depot, socket, header, pending, (known, flow)).await,
        _ => {}
    }
    let position = header.position();
    let key = judge(depot, &header)?;
    if let Kind::Measure(what) = header.session.kind {
        return measure::answer(depot, socket, &header, what).await;
    }
    *pending = None;
    let broken =
        || refusal(position, Reason::Malformed, "the route has no depot for this position");
    let (hop, last) = match header.next().ok_or_else(broken)? {
        Next::Depot(hop) => (hop.clone(), false),
        Next::Destination(hop) => (hop.clone(), true),
    };
    known.to = hop.place.to_string();
    let seat = SessionPermit::take(depot, key, flow, position)?;
    flow.touch();
    // A route that has no depot here was refused.
    let by = header.session.route.get(position).map_or(HopTransport::Tcp, |own| own.transport);
    if let HopTransport::Other(_) = by {
        let text = "this depot is not reached by that transport";
        return Err(refusal(position, Reason::Unsupported, text).into());
    }
    let met = if by.is_datagram() {
        let met = tokio::time::timeout(HELLO.to_std(), framed::greet(socket)).await;
        known.greeted = true;
        Some(met.map_err(|_| Ended::Failed("the caller says no hello".to_owned()))??)
    } else {
        None
    };
    if last && header.session.kind == Kind::Echo {
        known.to = "echo".to_owned();
        let work = echoed(depot, flow, socket, (by, met), &known.fates);
        return tokio::select! {
            ended = work => ended,
            ended = seat.idle() => Err(ended),
        };
    }
    if last && hop.transport.is_datagram() {
        return Err(no_way(&hop, position));
    }
    known.by = Some((by, hop.transport));
    let mut next = Onward { socket: reach(depot, &hop, position).await?, well: false };
    // What the kernel knows of a hop by datagrams is not what it gives.
    let _there = (!hop.transport.is_datagram())
        .then(|| depot.sensors.towards(&hop.place, last, &next.socket));
    let _back = (!by.is_datagram()).then(|| depot.sensors.back(socket));
    let work = async {
        if by.is_datagram() || hop.transport.is_datagram() {
            let left = header.session.route.len() - position;
            let header = (!last).then(|| header.passed(depot.id).write());
            let from = framed::Inbound { socket, by, met };
            let to = framed::Outbound { socket: &mut next.socket, by: hop.transport, header, left };
            framed::relay(depot, flow, from, to, &known.fates).await
        } else if last {
            socket.write_all(&Answer::Accepted.write()).await?;
            both_ways(depot, flow, socket, &next.socket).await
        } else {
            let left = header.session.route.len() - position;
            next.socket.write_all(&header.passed(depot.id).write()).await?;
            towards_depot(depot, flow, socket, &next.socket, left).await
        }
    };
    let ended = tokio::select! {
        ended = work => ended,
        ended = seat.idle() => Err(ended),
    };
    next.well = ended.is_ok();
    ended
}

/// Sends back what comes.
async fn echoed(
    depot: &Depot,
    flow: &Flow,
    socket: &mut TcpStream,
    (by, met): (HopTransport, Option<framed::Handshaken>),
    fates: &[Arc<DatagramStatus>; 2],
) -> Result<(), Ended> {
    let Some(met) = met else {
        socket.write_all(&Answer::Accepted.write()).await?;
        let (read, write) = socket.split();
        return Ok(echo::serve(depot, flow, read, write).await?);
    };
    framed::echo(depot, flow, framed::Inbound { socket, by, met: Some(met) }, &fates[0]).await
}

/// The connection to the next hop: whoever is there does not take what breaks off for an end.
struct Onward {
    socket: TcpStream,
    well: bool,
}

impl Drop for Onward {
    fn drop(&mut self) {
        if !self.well {
            cut(&self.socket);
        }
    }
}

/// Connects to the next hop by TCP, where that is allowed.
pub(super) async fn connect(depot: &Depot, hop: &Hop, position: usize) -> Result<TcpStream, Ended> {
    if hop.transport.is_datagram() {
        return Err(no_way(hop, position));
    }
    reach(depot, hop, position).await
}

fn no_way(hop: &Hop, position: usize) -> Ended {
    let text = format!("this depot does not reach {} by that transport", hop.place);
    refusal(position, Reason::Unsupported, text).into()
}

/// Connects to where a hop leads, whatever then carries it, where that is allowed.
async fn reach(depot: &Depot, hop: &Hop, position: usize) -> Result<TcpStream, Ended> {
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

/// Passes on what comes while the next depot still connects; its answer goes back first.
async fn towards_depot(
    depot: &Depot,
    flow: &Flow,
    socket: &mut TcpStream,
    next: &TcpStream,
    left: usize,
) -> Result<(), Ended> {
    let limit = HOP.to_std() * u32::try_from(left).unwrap_or(1);
    let socket = &*socket;
    let up = Lane { depot, flow, back: false };
    let there = pump(socket, next, depot.way, &up);
    tokio::pin!(there);
    let mut there_ended = None;
    let answer = tokio::time::timeout(limit, read_answer(next));
    tokio::pin!(answer);
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        ended = &mut there => {
            // Its answer says more than a broken connection does.
            there_ended = Some(ended);
            answer.await
        }
    };
    let silent = |text: &str| refusal(u8::MAX.into(), Reason::Unreachable, text);
    match answer.map_err(|_| silent("the next depot does not answer"))? {
        Ok(Answer::Accepted) => {}
        Ok(Answer::Refused(refusal)) => return Err(refusal.into()),
        Err(text) => return Err(silent(&format!("the next depot: {text}")).into()),
    }
    write_all(socket, &Answer::Accepted.write()).await?;
    let down = Lane { depot, flow, back: true };
    let back = pump(next, socket, depot.way, &down);
    let there = async {
        match there_ended {
            Some(ended) => ended,
            None => there.await,
        }
    };
    tokio::try_join!(there, back)?;
    Ok(())
}

async fn both_ways(
    depot: &Depot,
    flow: &Flow,
    socket: &TcpStream,
    next: &TcpStream,
) -> Result<(), Ended> {
    let (up, down) = (Lane { depot, flow, back: false }, Lane { depot, flow, back: true });
    tokio::try_join!(pump(socket, next, depot.way, &up), pump(next, socket, depot.way, &down))?;
    Ok(())
}
