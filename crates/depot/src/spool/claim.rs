//! Sends records to receivers that have the claim key.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use packtrain_session::spool::{FRAME_HEAD, Frame};
use packtrain_session::{Answer, Claim, ClaimPurpose, Header, Reason, Spool as Asked};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::Depot;
use super::super::session::{Arrival, Ended, Flow, idle, once, refusal};
use super::{Kept, Spool, disk_failed, report};
use packtrain_identity::pubkey::PublicKey;

/// The requested session, if the claim has its key. A claim with another key gets the same answer
/// as for a session that never existed. Session ids are visible on the path, and an observer must
/// not learn what is kept here.
fn judge(spool: &Spool, header: &Header) -> Result<(Arc<Kept>, Claim), Ended> {
    let no = |reason, text: &str| Err(refusal(0, reason, text).into());
    let Some(Asked::Claim(claim)) = header.session.spool else {
        return no(Reason::Malformed, "the header has no claim");
    };
    let signed = header.is_signed();
    let own = |kept: &Arc<Kept>| {
        let capability = kept.head.deposit().map(|deposit| deposit.capability);
        // A claim that was recorded at another depot is not valid here.
        let nodes = kept.head.header.session.nodes();
        let here = nodes.get(usize::from(kept.head.node)).map(|node| &node.hop.place);
        let named = here == Some(&header.session.destination.place);
        !kept.is_over() && signed && named && capability == Some(header.sender)
    };
    let Some(kept) = spool.find(claim.session).filter(own) else {
        return no(Reason::Absent, "this depot keeps no session of this ticket (any more)");
    };
    Ok((kept, claim))
}

/// Serves a connection with a claim.
pub(crate) async fn claim(mut arrival: Arrival<'_>) -> Result<(), Ended> {
    let depot = arrival.depot;
    let Some(spool) = &depot.spool else {
        let text = "this depot keeps no sessions: it has no --spool";
        return Err(refusal(0, Reason::Absent, text).into());
    };
    let (kept, claim) = judge(spool, &arrival.header)?;
    let key = PublicKey(arrival.header.sender);
    arrival.admit_claim(key, kept.key, format!("claim of {}", kept.id))?;
    let Arrival { socket, header, flow, permit, .. } = arrival;
    // Remembered only while a slot is held, and for each session separately.
    once(&kept.claims, &header, 0)?;
    if claim.purpose == ClaimPurpose::Release {
        let bytes = kept.records.bytes();
        let released = tokio::task::block_in_place(|| spool.release(&kept));
        released.map_err(|e| Ended::from(disk_failed(&e)))?;
        report(depot, &kept, "released", (String::new(), bytes));
        socket.write_all(&Answer::Accepted.write()).await?;
        return Ok(());
    }
    let now = kept.records.progress();
    let have = Frame::Have { records: now.written, all: now.all };
    socket.write_all(&[&Answer::Accepted.write()[..], &have.write()].concat()).await?;
    let work = send_records(depot, spool, &kept, socket, flow);
    let ended = tokio::select! {
        ended = work => ended,
        ended = idle(permit.as_ref()) => Err(ended),
    };
    report(depot, &kept, "claimed", (String::new(), kept.records.bytes()));
    ended
}

async fn send_records(
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
            // The receiver has everything and closed the connection.
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        let Ok(Frame::Get { from, count }) = Frame::read(&head) else {
            return Err(Ended::Failed("the receiver sent an unexpected message".into()));
        };
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
                // A receiver may wait for records that are still to come, and for no others.
                if !behind {
                    flow.touch();
                }
                // If a record is unreadable, only the records before it are available.
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
