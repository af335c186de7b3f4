//! Relays a session with at least one hop by datagrams.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use packtrain_os::{clock, entropy};
use packtrain_session::hop::{Frame, Hello, Secret};
use packtrain_session::{ANSWER_HEAD, Answer, HopTransport, Reason};
use packtrain_units::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::Depot;
use super::session::{Ended, Flow, HOP_CONNECT_TIMEOUT, refusal};
use packtrain_hops::{DatagramStatus, Link, LinkError, Ring, drain, feed, read_hello};
use packtrain_service::cipher::has_aes;

/// How often moved bytes are counted.
const COUNT: Duration = Duration::from_millis(250);

/// Bytes between an echo and its ring.
const PIPE_SIZE: usize = 16 << 10;

/// The result of the handshake with a caller by datagrams.
pub(super) struct Handshake {
    secret: Secret,
    hello: Hello,
}

/// Exchanges the hellos of a hop, as the called end.
pub(super) async fn greet(socket: &mut TcpStream) -> Result<Handshake, Ended> {
    let secret = Secret::new(entropy::bytes(), has_aes()).map_err(io::Error::other)?;
    let hello = read_hello(socket).await?;
    socket.write_all(&secret.hello().write()).await?;
    Ok(Handshake { secret, hello })
}

/// Frames a refusal for a caller after the handshake.
pub(super) fn wrap(answer: &[u8]) -> Vec<u8> {
    [Frame::Data(answer).write(), Frame::End(answer.len() as u64).write()].concat()
}

impl From<LinkError> for Ended {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Refused(refusal) => Self::Refused(refusal),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// The next hop of a session.
pub(super) struct Outbound<'a> {
    pub(super) socket: &'a mut TcpStream,
    pub(super) by: HopTransport,
    /// The header for the next depot; `None` for the destination.
    pub(super) header: Option<Vec<u8>>,
    /// Number of remaining hops.
    pub(super) left: usize,
}

/// The connection that a session came from.
pub(super) struct Inbound<'a> {
    pub(super) socket: &'a mut TcpStream,
    pub(super) by: HopTransport,
    /// Present if the caller uses datagrams.
    pub(super) handshake: Option<Handshake>,
}

/// Relays a session until both directions have ended.
pub(super) async fn relay(
    depot: &Depot,
    flow: &Flow,
    from: Inbound<'_>,
    to: Outbound<'_>,
    datagram_status: &[Arc<DatagramStatus>; 2],
) -> Result<(), Ended> {
    let (up, down) = (Ring::new(&depot.pool), Ring::new(&depot.pool));
    let counted = Counted { depot, flow, up: &up, down: &down };
    let last = to.header.is_none();
    if last {
        down.append(&Answer::Accepted.write());
    } else {
        down.hold();
    }
    let limit = HOP_CONNECT_TIMEOUT.to_std() * u32::try_from(to.left).unwrap_or(1);
    let inward = async {
        let told = Arc::clone(&datagram_status[0]);
        match from.handshake {
            Some(Handshake { secret, hello }) => {
                let mut link =
                    Link::called(&depot.hops, from.by, from.socket, (secret, hello), told);
                link.run(&down, &up).await?;
            }
            None => {
                let (read, write) = from.socket.split();
                tokio::try_join!(feed(read, &up), drain(&down, write))?;
            }
        }
        Ok(())
    };
    let onward = async {
        let header = to.header.unwrap_or_default();
        if to.by.is_datagram() {
            let secret = Secret::new(entropy::bytes(), has_aes()).map_err(io::Error::other)?;
            to.socket.write_all(&[&header[..], &secret.hello().write()].concat()).await?;
            let told = Arc::clone(&datagram_status[1]);
            let mut link = Link::calling(&depot.hops, to.by, to.socket, secret, told);
            link.run(&up, &down).await?;
        } else {
            to.socket.write_all(&header).await?;
            let (read, write) = to.socket.split();
            tokio::try_join!(feed(read, &down), drain(&up, write))?;
        }
        Ok(())
    };
    let answered = async {
        if !last {
            let answer = tokio::time::timeout(limit, answer(&down)).await;
            let silent = |text| refusal(u8::MAX.into(), Reason::Unreachable, text);
            match answer.map_err(|_| silent("the next depot does not answer"))? {
                Some(Answer::Accepted) => down.release_hold(),
                Some(Answer::Refused(refusal)) => return Err(refusal.into()),
                None => return Err(silent("the next depot sent an unexpected answer").into()),
            }
        }
        Ok::<(), Ended>(())
    };
    tokio::select! {
        ended = async { tokio::try_join!(inward, onward, answered) } => ended.map(drop),
        never = counted.watch() => match never {},
    }
}

/// Echoes the bytes of a hop by datagrams.
pub(super) async fn echo(
    depot: &Depot,
    flow: &Flow,
    from: Inbound<'_>,
    status: &Arc<DatagramStatus>,
) -> Result<(), Ended> {
    let Some(Handshake { secret, hello }) = from.handshake else { return Ok(()) };
    let (up, down) = (Ring::new(&depot.pool), Ring::new(&depot.pool));
    down.append(&Answer::Accepted.write());
    let (near, mut far) = tokio::io::duplex(PIPE_SIZE);
    let (read, write) = tokio::io::split(near);
    let told = Arc::clone(status);
    let mut link = Link::called(&depot.hops, from.by, from.socket, (secret, hello), told);
    let hop = async { Ok::<(), Ended>(link.run(&down, &up).await?) };
    let between = async { Ok(tokio::try_join!(feed(read, &down), drain(&up, write)).map(drop)?) };
    let echo = async {
        let (read, write) = tokio::io::split(&mut far);
        Ok(super::echo::serve(depot, flow, read, write).await?)
    };
    tokio::try_join!(hop, between, echo).map(drop)
}

/// The answer of the next depot. It stays in the ring.
async fn answer(ring: &Ring) -> Option<Answer> {
    let mut bytes = vec![0; ANSWER_HEAD];
    for _ in 0..2 {
        if !ring.wait_held(bytes.len() as u64).await {
            return None;
        }
        ring.copy(0, &mut bytes);
        let text = Answer::text_len(bytes.first_chunk()?).ok()?;
        bytes.resize(ANSWER_HEAD + text, 0);
    }
    Answer::read(&bytes).ok()
}

/// Counts moved bytes; the last of them when it is dropped.
struct Counted<'a> {
    depot: &'a Depot,
    flow: &'a Flow,
    up: &'a Ring,
    down: &'a Ring,
}

impl Counted<'_> {
    async fn watch(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(COUNT.to_std()).await;
            self.sample();
        }
    }

    fn sample(&self) {
        let counters = &self.depot.counters;
        // The answer is not part of the stream.
        let down = self.down.head().saturating_sub(ANSWER_HEAD as u64);
        let directions = [
            (self.up.head(), &self.flow.up, &counters.up),
            (down, &self.flow.down, &counters.down),
        ];
        for (now, own, all) in directions {
            let new = now.saturating_sub(own.swap(now, Ordering::Relaxed));
            if new > 0 {
                all.fetch_add(new, Ordering::Relaxed);
                self.flow.last.store(clock::now().as_nanos(), Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.sample();
    }
}
