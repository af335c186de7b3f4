//! The measured speed of the depot's hops. Relayed sessions provide the measurements, and sessions
//! of type 4 request them.

mod budget;
mod sensors;
mod series;
mod turns;

use packtrain_identity::pubkey::PublicKey;
use packtrain_os::clock;
use packtrain_session::measure::{Measure, write_points, write_report};
use packtrain_session::{Answer, Header, Reason};
use packtrain_units::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::Depot;
use super::session::{Ended, refusal};

pub(super) use sensors::{SAMPLE, Sensors};
pub(super) use turns::ProbeTurns;

/// Timeout for sending an answer.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers a session of type 4, whose sender has a key that may relay.
pub(super) async fn answer(
    depot: &Depot,
    socket: &mut TcpStream,
    header: &Header,
    what: Measure,
) -> Result<(), Ended> {
    let position = header.position();
    if header.session.route.len() != position + 1 {
        let text = "a measurement request must end at this depot";
        return Err(refusal(position, Reason::Malformed, text).into());
    }
    match what {
        Measure::Ask | Measure::Points => {
            let towards = &header.session.destination.place.host;
            let report = if what == Measure::Ask {
                write_report(&depot.sensors.report(clock::wall(), towards))
            } else {
                write_points(&depot.sensors.points(towards))
            };
            let report = async {
                socket.write_all(&Answer::Accepted.write()).await?;
                socket.write_all(&report).await?;
                socket.shutdown().await
            };
            let told = tokio::time::timeout(REFUSAL_TIMEOUT.to_std(), report).await;
            Ok(told.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?)
        }
        Measure::Token(..) | Measure::Claim(_) | Measure::Probe(_) => {
            let from = header.session.source.as_ref();
            let keys = depot.keys.keys().ok();
            let grant = keys.as_ref().and_then(|keys| keys.grant(&PublicKey(header.sender)));
            match depot.turns.as_ref().filter(|turns| turns.is_member(from, grant)) {
                Some(turns) => peer(turns, socket, what, position).await,
                None => {
                    let text = "the sender is not a member of this depot's clique: --peer names \
                                the members, and their keys have the option clique";
                    Err(refusal(position, Reason::Unsupported, text).into())
                }
            }
        }
    }
}

/// Answers another depot of the clique.
async fn peer(
    turns: &ProbeTurns,
    socket: &mut TcpStream,
    what: Measure,
    position: usize,
) -> Result<(), Ended> {
    let answered = async {
        if let Some(reply) = turns.reply_to(what) {
            socket.write_all(&Answer::Accepted.write()).await?;
            return socket.write_all(&reply.write()).await;
        }
        let Measure::Probe(bytes) = what else { return Ok(()) };
        let came = turns::discard(socket, bytes).await?;
        socket.write_all(&Answer::Accepted.write()).await?;
        socket.write_all(&came.to_be_bytes()).await
    };
    if let Measure::Probe(bytes) = what
        && !turns.admits_probe(bytes)
    {
        let text = "the probes of this hour have used their bytes";
        return Err(refusal(position, Reason::Busy, text).into());
    }
    let answered = tokio::time::timeout(REFUSAL_TIMEOUT.to_std(), answered).await;
    Ok(answered.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?)
}
