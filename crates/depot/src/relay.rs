//! Relays one session: checks its header, connects to the next hop, and copies both directions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packtrain_net::relay::{cut, pump};
use packtrain_os::clock;
use packtrain_session::{
    Answer, HEADER_HEAD, Header, HeaderError, HopTransport, Kind, Next, Reason, Refusal,
};
use packtrain_units::{ByteCount, Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::lane::Lane;
use super::{Depot, Event, echo, framed, measure, spool};
use crate::DepotSession;
use packtrain_hops::{DatagramStatus, read_answer, write_all};
use packtrain_identity::pubkey::PublicKey;
use packtrain_service::unauthenticated::UnauthenticatedPeer;

use super::session::{
    Arrival, Ended, Flow, HOP_CONNECT_TIMEOUT, SessionDetails, allowed_addresses, idle, judge,
    reach, refusal, routed, tune_socket, unsupported_transport,
};
/// Timeout for the header of a connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for delivering a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves one connection.
pub(super) async fn serve(
    depot: Arc<Depot>,
    mut socket: TcpStream,
    peer: SocketAddr,
    pending: UnauthenticatedPeer,
    mut over: watch::Receiver<bool>,
) {
    // Released on admission; held until a refusal is delivered. The place among the sessions is held
    // until then too: a key that is refused again and again counts as what it is.
    let mut pending = Some(pending);
    let mut permit = None;
    let begun = clock::now();
    tune_socket(&socket, &depot);
    let read = tokio::select! {
        read = tokio::time::timeout(HEADER_TIMEOUT.to_std(), read_header(&mut socket)) => read,
        _ = over.wait_for(|over| *over) => return,
    };
    let (mut known, flow) = (SessionDetails::default(), Arc::<Flow>::default());
    let ended = match read {
        Ok(Ok(header)) => {
            let work = session(Arrival {
                depot: &depot,
                socket: &mut socket,
                header,
                pending: &mut pending,
                permit: &mut permit,
                details: &mut known,
                flow: &flow,
            });
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
            depot.counters.unauthenticated.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    let (refused, failure) = match &ended {
        Ok(()) => (None, None),
        Err(Ended::Failed(why)) => {
            // Neither end may take this for the end of the stream.
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
    let [here, there] = &known.datagram_status;
    drop((pending, permit));
    depot.report(Event::Session(DepotSession {
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

/// Reads a header and no byte more. The error is `None` if the bytes are not a header at all.
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

/// Delivers a refusal. It reads and discards what follows the header, since closing a connection
/// with unread data would reset it and lose the refusal.
async fn refuse(socket: &mut TcpStream, refusal: &Refusal, greeted: bool) {
    let deliver = async {
        let answer = Answer::Refused(refusal.clone()).write();
        let answer = if greeted { framed::wrap(&answer) } else { answer };
        socket.write_all(&answer).await?;
        socket.shutdown().await?;
        let mut waste = [0; 4096];
        while socket.read(&mut waste).await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    let _ = tokio::time::timeout(REFUSAL_TIMEOUT.to_std(), deliver).await;
}

async fn session(mut arrival: Arrival<'_>) -> Result<(), Ended> {
    arrival.details.id = Some(arrival.header.session.id.to_string());
    arrival.details.key = Some(PublicKey(arrival.header.sender));
    match arrival.header.session.kind {
        Kind::Asynchronous | Kind::Staging => return spool::deposit(arrival).await,
        Kind::Claim => return spool::claim(arrival).await,
        _ => {}
    }
    let position = arrival.header.position();
    let key = judge(arrival.depot, &arrival.header)?;
    if let Kind::Measure(what) = arrival.header.session.kind {
        return measure::answer(arrival.depot, arrival.socket, &arrival.header, what).await;
    }
    let broken =
        || refusal(position, Reason::Malformed, "the route has no depot for this position");
    let table = routed(arrival.depot, &arrival.header);
    let by_table = matches!(arrival.header.next(), Some(Next::Destination(_))) && table.is_some();
    let (hop, last) = match (arrival.header.next().ok_or_else(broken)?, table) {
        (Next::Depot(hop), _) => (hop.clone(), false),
        (Next::Destination(_), Some(next)) => (next, false),
        (Next::Destination(hop), None) => (hop.clone(), true),
    };
    arrival.admit(key, position, hop.place.to_string())?;
    let Arrival { depot, socket, header, details: known, flow, permit, .. } = arrival;
    // A route without a depot at this position was refused before.
    let by = header.session.route.get(position).map_or(HopTransport::Tcp, |own| own.transport);
    if let HopTransport::Other(_) = by {
        let text = "this depot is not reached by that transport";
        return Err(refusal(position, Reason::Unsupported, text).into());
    }
    let handshake = if by.is_datagram() {
        let handshake = tokio::time::timeout(HEADER_TIMEOUT.to_std(), framed::greet(socket)).await;
        known.greeted = true;
        Some(handshake.map_err(|_| Ended::Failed("the caller sent no hello".to_owned()))??)
    } else {
        None
    };
    if last && header.session.kind == Kind::Echo {
        known.to = "echo".to_owned();
        let work = echoed(depot, flow, socket, (by, handshake), &known.datagram_status);
        return tokio::select! {
            ended = work => ended,
            ended = idle(permit.as_ref()) => Err(ended),
        };
    }
    if last && hop.transport.is_datagram() {
        return Err(unsupported_transport(&hop, position));
    }
    known.by = Some((by, hop.transport));
    if by_table {
        // What this depot may not reach itself it does not reach over others either.
        allowed_addresses(depot, &header.session.destination, position).await?;
    }
    let mut next = NextHop { socket: reach(depot, &hop, position).await?, well: false };
    // TCP_INFO of a hop by datagrams describes only its TCP connection.
    let _there = (!hop.transport.is_datagram())
        .then(|| depot.sensors.towards(&hop.place, last, &next.socket));
    let _back = (!by.is_datagram()).then(|| depot.sensors.back(socket));
    let work = async {
        if by.is_datagram() || hop.transport.is_datagram() {
            let left = header.depots_left();
            let header = (!last).then(|| header.forwarded_by(depot.id).write());
            let from = framed::Inbound { socket, by, handshake };
            let to = framed::Outbound { socket: &mut next.socket, by: hop.transport, header, left };
            framed::relay(depot, flow, from, to, &known.datagram_status).await
        } else if last {
            socket.write_all(&Answer::Accepted.write()).await?;
            relay_both_directions(depot, flow, socket, &next.socket).await
        } else {
            let left = header.depots_left();
            next.socket.write_all(&header.forwarded_by(depot.id).write()).await?;
            towards_depot(depot, flow, socket, &next.socket, left).await
        }
    };
    let ended = tokio::select! {
        ended = work => ended,
        ended = idle(permit.as_ref()) => Err(ended),
    };
    next.well = ended.is_ok();
    ended
}

/// Echoes the received bytes.
async fn echoed(
    depot: &Depot,
    flow: &Flow,
    socket: &mut TcpStream,
    (by, handshake): (HopTransport, Option<framed::Handshake>),
    datagram_status: &[Arc<DatagramStatus>; 2],
) -> Result<(), Ended> {
    let Some(handshake) = handshake else {
        socket.write_all(&Answer::Accepted.write()).await?;
        let (read, write) = socket.split();
        return Ok(echo::serve(depot, flow, read, write).await?);
    };
    framed::echo(
        depot,
        flow,
        framed::Inbound { socket, by, handshake: Some(handshake) },
        &datagram_status[0],
    )
    .await
}

/// The connection to the next hop. It is aborted on drop, so that a broken session does not look
/// like the end of the stream.
struct NextHop {
    socket: TcpStream,
    well: bool,
}

impl Drop for NextHop {
    fn drop(&mut self) {
        if !self.well {
            cut(&self.socket);
        }
    }
}

/// Relays bytes while the next depot still connects; its answer goes back first.
async fn towards_depot(
    depot: &Depot,
    flow: &Flow,
    socket: &mut TcpStream,
    next: &TcpStream,
    left: usize,
) -> Result<(), Ended> {
    let limit = HOP_CONNECT_TIMEOUT.to_std() * u32::try_from(left).unwrap_or(1);
    let socket = &*socket;
    let up = Lane { depot, flow, back: false };
    let there = pump(socket, next, depot.relay_mode, &up);
    tokio::pin!(there);
    let mut there_ended = None;
    let answer = tokio::time::timeout(limit, read_answer(next));
    tokio::pin!(answer);
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        ended = &mut there => {
            // The answer is more specific than a broken connection.
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
    let back = pump(next, socket, depot.relay_mode, &down);
    let there = async {
        match there_ended {
            Some(ended) => ended,
            None => there.await,
        }
    };
    tokio::try_join!(there, back)?;
    Ok(())
}

async fn relay_both_directions(
    depot: &Depot,
    flow: &Flow,
    socket: &TcpStream,
    next: &TcpStream,
) -> Result<(), Ended> {
    let (up, down) = (Lane { depot, flow, back: false }, Lane { depot, flow, back: true });
    tokio::try_join!(
        pump(socket, next, depot.relay_mode, &up),
        pump(next, socket, depot.relay_mode, &down)
    )?;
    Ok(())
}
