//! A session of which one hop, or both, goes by datagrams.

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
use super::session::{Ended, Flow, HOP, refusal};
use packtrain_hops::{DatagramStatus, Link, LinkError, Ring, drain, feed, hear_hello};
use packtrain_service::cipher::has_aes;

/// How often what moved is counted.
const COUNT: Duration = Duration::from_millis(250);

/// Bytes between an echo and its ring.
const PIPE: usize = 16 << 10;

/// What is known once a caller by datagrams was greeted.
pub(super) struct Handshaken {
    secret: Secret,
    heard: Hello,
}

/// The two hellos of a hop on the side of the end that was called.
pub(super) async fn greet(socket: &mut TcpStream) -> Result<Handshaken, Ended> {
    let secret = Secret::new(entropy::bytes(), has_aes()).map_err(io::Error::other)?;
    let heard = hear_hello(socket).await?;
    socket.write_all(&secret.hello().write()).await?;
    Ok(Handshaken { secret, heard })
}

/// What a refusal looks like to a caller that was greeted.
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

/// Outbound where a session goes.
pub(super) struct Outbound<'a> {
    pub(super) socket: &'a mut TcpStream,
    pub(super) by: HopTransport,
    /// What the next depot is to read first; none for the destination.
    pub(super) header: Option<Vec<u8>>,
    /// Hops from here on.
    pub(super) left: usize,
}

/// What a session comes from.
pub(super) struct Inbound<'a> {
    pub(super) socket: &'a mut TcpStream,
    pub(super) by: HopTransport,
    /// For a caller by datagrams.
    pub(super) met: Option<Handshaken>,
}

/// Passes a session on until both directions have ended.
pub(super) async fn relay(
    depot: &Depot,
    flow: &Flow,
    from: Inbound<'_>,
    to: Outbound<'_>,
    fates: &[Arc<DatagramStatus>; 2],
) -> Result<(), Ended> {
    let (up, down) = (Ring::new(&depot.pool), Ring::new(&depot.pool));
    let counted = Counted { depot, flow, up: &up, down: &down };
    let last = to.header.is_none();
    if last {
        down.append(&Answer::Accepted.write());
    } else {
        down.hold();
    }
    let limit = HOP.to_std() * u32::try_from(to.left).unwrap_or(1);
    let inward = async {
        let told = Arc::clone(&fates[0]);
        match from.met {
            Some(Handshaken { secret, heard }) => {
                let mut link =
                    Link::called(&depot.hops, from.by, from.socket, (secret, heard), told);
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
            let told = Arc::clone(&fates[1]);
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
                None => return Err(silent("the next depot answers something else").into()),
            }
        }
        Ok::<(), Ended>(())
    };
    tokio::select! {
        ended = async { tokio::try_join!(inward, onward, answered) } => ended.map(drop),
        never = counted.watch() => match never {},
    }
}

/// Sends back what comes by datagrams.
pub(super) async fn echo(
    depot: &Depot,
    flow: &Flow,
    from: Inbound<'_>,
    fate: &Arc<DatagramStatus>,
) -> Result<(), Ended> {
    let Some(Handshaken { secret, heard }) = from.met else { return Ok(()) };
    let (up, down) = (Ring::new(&depot.pool), Ring::new(&depot.pool));
    down.append(&Answer::Accepted.write());
    let (near, mut far) = tokio::io::duplex(PIPE);
    let (read, write) = tokio::io::split(near);
    let told = Arc::clone(fate);
    let mut link = Link::called(&depot.hops, from.by, from.socket, (secret, heard), told);
    let hop = async { Ok::<(), Ended>(link.run(&down, &up).await?) };
    let between = async { Ok(tokio::try_join!(feed(read, &down), drain(&up, write)).map(drop)?) };
    let echo = async {
        let (read, write) = tokio::io::split(&mut far);
        Ok(super::echo::serve(depot, flow, read, write).await?)
    };
    tokio::try_join!(hop, between, echo).map(drop)
}

/// The next depot's answer, which stays where it is.
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

/// Counts what moves; the last of it when it is dropped.
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
            self.look();
        }
    }

    fn look(&self) {
        let counters = &self.depot.counters;
        // The answer is not of the stream.
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
        self.look();
    }
}
