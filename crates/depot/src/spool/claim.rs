//! Records go out to who has the key to them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use packtrain_session::spool::{FRAME_HEAD, Frame};
use packtrain_session::{Answer, Claim, ClaimPurpose, Header, Reason, Spool as Asked};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::Depot;
use super::super::session::{Ended, Flow, Known, SessionPermit, once, refusal};
use super::{Kept, Spool, disk_failed, tell};
use packtrain_identity::pubkey::PublicKey;
use packtrain_service::unauthenticated::UnauthenticatedPeer;

/// The session that is asked for, if who asks has its key. Who has another hears what is said of
/// a session that never was: numbers are seen on the way, and that one is kept here is nobody's
/// business.
fn judge(spool: &Spool, header: &Header) -> Result<(Arc<Kept>, Claim), Ended> {
    let no = |reason, text: &str| Err(refusal(0, reason, text).into());
    let Some(Asked::Claim(claim)) = header.session.spool else {
        return no(Reason::Malformed, "the header does not say what is claimed");
    };
    let signed = header.is_signed();
    let own = |kept: &Arc<Kept>| {
        let capability = kept.head.deposit().map(|deposit| deposit.capability);
        // A claim that was heard elsewhere is none here.
        let nodes = kept.head.header.session.nodes();
        let here = nodes.get(usize::from(kept.head.node)).map(|node| &node.hop.place);
        let named = here == Some(&header.session.destination.place);
        !kept.is_over() && signed && named && capability == Some(header.sender)
    };
    let Some(kept) = spool.find(claim.session).filter(own) else {
        return no(Reason::Absent, "no session of this ticket is kept here, or not any more");
    };
    Ok((kept, claim))
}

/// Serves a connection that claims.
pub(crate) async fn claim(
    depot: &Arc<Depot>,
    socket: &mut TcpStream,
    header: Header,
    pending: &mut Option<UnauthenticatedPeer>,
    (known, flow): (&mut Known, &Flow),
) -> Result<(), Ended> {
    let Some(spool) = &depot.spool else {
        let text = "this depot keeps no sessions: it has no --spool";
        return Err(refusal(0, Reason::Absent, text).into());
    };
    let (kept, claim) = judge(spool, &header)?;
    *pending = None;
    known.to = format!("claim of {}", kept.id);
    let seat = SessionPermit::take(depot, PublicKey(header.sender), flow, 0)?;
    // Remembered only while there is a seat, and for each session by itself.
    once(&kept.claims, &header, 0)?;
    flow.touch();
    if claim.purpose == ClaimPurpose::Release {
        let bytes = kept.records.bytes();
        let released = tokio::task::block_in_place(|| spool.release(&kept));
        released.map_err(|e| Ended::from(disk_failed(&e)))?;
        tell(depot, &kept, "released", (String::new(), bytes));
        socket.write_all(&Answer::Accepted.write()).await?;
        return Ok(());
    }
    let now = kept.records.progress();
    let have = Frame::Have { records: now.written, all: now.all };
    socket.write_all(&[&Answer::Accepted.write()[..], &have.write()].concat()).await?;
    let work = hand_out(depot, spool, &kept, socket, flow);
    let ended = tokio::select! {
        ended = work => ended,
        ended = seat.idle() => Err(ended),
    };
    tell(depot, &kept, "claimed", (String::new(), kept.records.bytes()));
    ended
}

async fn hand_out(
    depot: &Depot,
    spool: &Spool,
    kept: &Kept,
    socket: &mut TcpStream,
    flow: &Flow,
) -> Result<(), Ended> {
    let mut head = [0; FRAME_HEAD];
    loop {
        match socket.read_exact(&mut head).await {
            Ok(_) => {}
            // Who has what it came for goes.
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        let Ok(Frame::Get { from, count }) = Frame::read(&head) else {
            return Err(Ended::Failed("the claimer says something else".into()));
        };
        flow.touch();
        for number in from..from.saturating_add(count.into()) {
            if kept.is_over() {
                return Err(Ended::Failed("the session is over".into()));
            }
            let read = tokio::task::block_in_place(|| kept.records.read(number));
            let Ok(Some((last, record))) = read else {
                if let Err(e) = read {
                    depot.warn(format!("session {}: record {number}: {e}", kept.id));
                }
                let now = kept.records.progress();
                let behind = now.all && number >= now.written;
                // Where a record cannot be read there are only those before it.
                let records = if behind { now.written } else { now.written.min(number) };
                let lack = Frame::Lack { records, all: behind };
                socket.write_all(&lack.write()).await?;
                break;
            };
            let frame = Frame::Record { number, last, len: record.len() as u32 };
            socket.write_all(&frame.write()).await?;
            socket.write_all(&record).await?;
            let bytes = record.len() as u64;
            spool.counted.claimed.fetch_add(bytes, Ordering::Relaxed);
            depot.counters.down.fetch_add(bytes, Ordering::Relaxed);
            flow.down.fetch_add(bytes, Ordering::Relaxed);
            flow.touch();
            if last {
                break;
            }
        }
    }
}
