//! Active probes. The depots of a clique take turns, and probe only hops without recent
//! measurements.

use parking_lot::{Mutex, MutexGuard};

use packtrain_identity::authorized::Grant;
use packtrain_net::tcp::{ConnectOptions, Identity, connect, tcp_info};
use packtrain_os::{clock, entropy};
use packtrain_plan::forecast::clique::{Clique, Epoch, Order, Reply, Sent, Timing};
use packtrain_session::measure::{self, Measure, REPLY};
use packtrain_session::{Answer, Hop, Kind, Place, Session, SessionId};
use packtrain_units::{ByteCount, DataRate, Duration, Time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::budget::Budget;
use super::series::Sample;
use crate::{Depot, DepotClique};
use packtrain_hops::{read_answer, write_all};

/// A hop with a newer measurement is not probed.
const STALE: Duration = Duration::from_secs(300);
/// Maximum and minimum size of a probe.
const PROBE: ByteCount = ByteCount(8 << 20);
const MIN_PROBE: ByteCount = ByteCount(1 << 20);
/// Bytes per write of a probe.
const PIECE_BYTES: usize = 64 << 10;
/// Timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(4);
/// Durations of a turn, a pause and a message.
pub(super) const TIMING: Timing = Timing {
    lease: Duration::from_secs(6),
    rest: Duration::from_secs(1),
    delay: Duration::from_secs(2),
};

/// This depot as a member of its clique.
pub(crate) struct ProbeTurns {
    /// All members, in the order that all of them use.
    ring: Vec<Place>,
    own: Place,
    identity: Identity,
    clique: Mutex<Clique>,
    budget: Mutex<Budget>,
    /// Notified when a message of another member arrives.
    word: Notify,
}

impl ProbeTurns {
    pub(crate) fn new(settings: DepotClique, identity: Identity) -> Self {
        let DepotClique { name: own, peers, budget } = settings;
        let mut ring = peers;
        ring.push(own.clone());
        ring.sort();
        ring.dedup();
        let place = ring.iter().position(|one| *one == own).unwrap_or_default();
        let clique = Clique::new(place, ring.len(), entropy::seed(), TIMING, clock::now());
        let budget = Mutex::new(Budget::new(budget));
        Self { ring, own, identity, clique: Mutex::new(clique), budget, word: Notify::new() }
    }

    fn clique(&self) -> MutexGuard<'_, Clique> {
        self.clique.lock()
    }

    /// Takes turns. Never returns.
    pub(crate) async fn run(&self, depot: &Depot) {
        loop {
            let now = clock::now();
            let (order, timeout) = {
                let mut clique = self.clique();
                clique.on_timeout(now);
                (clique.poll(), clique.timeout())
            };
            match order {
                Some(Order::Probe(until)) => {
                    self.probe_all(depot, until).await;
                    self.clique().done(clock::now());
                }
                Some(Order::Pass { to, epoch, serial }) => {
                    let what = Measure::Token(theirs(epoch), serial);
                    let sent = self.send_message(to, what).await;
                    self.clique().on_pass_result(clock::now(), to, serial, sent);
                }
                Some(Order::Claim { to, epoch }) => {
                    let sent = self.send_message(to, Measure::Claim(theirs(epoch))).await;
                    self.clique().on_claim_result(clock::now(), to, epoch, sent);
                }
                None => {
                    let wait = tokio::time::sleep(timeout.since(now).to_std());
                    tokio::select! {
                        () = wait => {}
                        () = self.word.notified() => {}
                    }
                }
            }
        }
    }

    /// The reply to a token or a claim of another member; `None` to other messages.
    pub(super) fn reply_to(&self, what: Measure) -> Option<measure::Reply> {
        let now = clock::now();
        let mut clique = self.clique();
        let reply = match what {
            Measure::Token(epoch, serial) => clique.on_token(now, ours(epoch), serial),
            Measure::Claim(epoch) => clique.on_claim(now, ours(epoch)),
            Measure::Ask | Measure::Points | Measure::Probe(_) => return None,
        };
        drop(clique);
        self.word.notify_one();
        Some(measure::Reply { taken: reply.taken, highest: theirs(reply.highest) })
    }

    /// Whether a probe of this size from another member is admitted.
    pub(crate) fn admits_probe(&self, bytes: ByteCount) -> bool {
        let mut budget = self.budget.lock();
        bytes <= PROBE && budget.take(clock::now(), bytes, bytes).is_some()
    }

    /// Whether a sender that calls itself `place`, and whose key has this grant, is a member. The
    /// place is only its word.
    pub(crate) fn is_member(&self, place: Option<&Place>, grant: Option<&Grant>) -> bool {
        let known = place.is_some_and(|place| self.ring.contains(place) && *place != self.own);
        known && grant.is_some_and(|grant| grant.clique)
    }

    fn header(&self, to: &Place, what: Measure) -> Option<Vec<u8>> {
        let session = Session {
            kind: Kind::Measure(what),
            id: SessionId(entropy::bytes()),
            sent: clock::wall(),
            hop_limit: 1,
            source: Some(self.own.clone()),
            destination: Hop::tcp(to.clone()),
            route: vec![Hop::tcp(to.clone())],
            by_destination: false,
            tree: Vec::new(),
            spool: None,
        };
        let sealed = session.seal(self.identity.public().0, |text| self.identity.sign(text));
        sealed.ok().map(|header| header.write())
    }

    async fn connect(&self, to: &Place) -> Option<TcpStream> {
        let options = ConnectOptions { timeout: TIMING.delay, ..ConnectOptions::default() };
        connect(&to.host.to_string(), to.port, &options).await.ok()
    }

    /// Sends a message to another member.
    async fn send_message(&self, to: usize, what: Measure) -> Sent {
        let Some(to) = self.ring.get(to) else { return Sent::Unreachable };
        let (Some(socket), Some(header)) = (self.connect(to).await, self.header(to, what)) else {
            return Sent::Unreachable;
        };
        let answered = async {
            write_all(&socket, &header).await.ok()?;
            match read_answer(&socket).await.ok()? {
                Answer::Accepted => {}
                Answer::Refused(_) => return Some(Sent::Unreachable),
            }
            let mut reply = [0; REPLY];
            let mut socket = socket;
            socket.read_exact(&mut reply).await.ok()?;
            let reply = measure::Reply::read(&reply)?;
            Some(Sent::Answered(Reply { taken: reply.taken, highest: ours(reply.highest) }))
        };
        let answered = tokio::time::timeout(TIMING.delay.to_std(), answered).await;
        answered.ok().flatten().unwrap_or(Sent::Unknown)
    }

    /// Probes the members without recent measurements.
    async fn probe_all(&self, depot: &Depot, until: Time) {
        for to in self.ring.iter().filter(|place| **place != self.own) {
            let known = depot.sensors.newest(to);
            let new = known.is_some_and(|at| clock::wall().saturating_sub(at) < STALE);
            if new || depot.sensors.is_busy(to) || until.since(clock::now()) < PROBE_TIMEOUT {
                continue;
            }
            let granted = {
                let mut budget = self.budget.lock();
                budget.take(clock::now(), PROBE, MIN_PROBE)
            };
            let Some(bytes) = granted else { return };
            let probed = tokio::time::timeout(PROBE_TIMEOUT.to_std(), self.probe(to, bytes)).await;
            if let Ok(Some(sample)) = probed {
                depot.sensors.learn(to, sample);
            }
        }
    }

    /// Sends this many bytes. Only the second half counts, because slow start is over by then.
    async fn probe(&self, to: &Place, bytes: ByteCount) -> Option<Sample> {
        let mut socket = self.connect(to).await?;
        socket.write_all(&self.header(to, Measure::Probe(bytes))?).await.ok()?;
        let piece = vec![0; PIECE_BYTES];
        let (mut left, mut half) = (bytes.get(), None);
        while left > 0 {
            let size = left.min(PIECE_BYTES as u64) as usize;
            socket.write_all(&piece[..size]).await.ok()?;
            left -= size as u64;
            let acked = tcp_info(&socket).ok()?.acked.unwrap_or_default();
            if half.is_none() && acked.get() * 2 >= bytes.get() {
                half = Some((clock::now(), acked));
            }
        }
        match read_answer(&socket).await.ok()? {
            Answer::Accepted => {}
            Answer::Refused(_) => return None,
        }
        let took = socket.read_u64().await.ok()?;
        let (now, info) = (clock::now(), tcp_info(&socket).ok()?);
        let (at, acked) = half?;
        let span = now.since(at);
        if took != bytes.get() || span.is_zero() {
            return None;
        }
        let again = info.retransmitted.unwrap_or_default().get();
        Some(Sample {
            at: clock::wall(),
            rate: DataRate::from_bytes_over(bytes.saturating_sub(acked), span),
            streams: 1,
            lost_ppm: (again as f64 / bytes.get() as f64 * 1e6).min(1e6) as u32,
            min_rtt: info.min_rtt,
            probed: true,
        })
    }
}

fn ours(epoch: measure::Epoch) -> Epoch {
    Epoch { number: epoch.number, author: epoch.author }
}

fn theirs(epoch: Epoch) -> measure::Epoch {
    measure::Epoch { number: epoch.number, author: epoch.author }
}

/// Reads and discards a probe until its end; returns its bytes.
pub(super) async fn discard(socket: &mut TcpStream, bytes: ByteCount) -> std::io::Result<u64> {
    let mut waste = vec![0; PIECE_BYTES];
    let mut came = 0;
    while came < bytes.get() {
        let most = (bytes.get() - came).min(PIECE_BYTES as u64) as usize;
        match socket.read(&mut waste[..most]).await? {
            0 => break,
            n => came += n as u64,
        }
    }
    Ok(came)
}
