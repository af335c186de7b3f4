//! Receives records from their sender or the previous depot.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use packtrain_os::clock;
use packtrain_session::spool::{FRAME_HEAD, Frame, Head, Node, Policy, is_genuine};
use packtrain_session::{Answer, Header, MAX_CLOCK_OFFSET, Reason, Refusal, Spool as Asked};
use packtrain_units::{ByteCount, Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::super::Depot;
use super::super::session::{Arrival, Ended, Flow, authorize, idle, refusal};
use super::depositors::DepositorSlot;
use super::store::Appended;
use super::{Denied, Kept, SHORT_RETRY, Spool, Stage, disk_failed, expired, forward, sync};

/// How many records a session may be ahead of a slow branch, before the depot waits for the branch
/// or drops it.
pub(super) const MAX_LEAD_RECORDS: u64 = 256;
/// Timeout for the byte after a header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for delivering a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a waiting sender gets a message that shows that this depot is alive.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum interval between two syncs.
const MIN_SYNC_INTERVAL: Duration = Duration::from_millis(50);

impl From<Denied> for Ended {
    fn from(denied: Denied) -> Self {
        let Denied { reason, retry_after, text } = denied;
        Self::Refused(Refusal { retry_after, ..refusal(0, reason, text) })
    }
}

/// Checks whether the depot carries out a deposit.
fn judge(depot: &Depot, spool: &Spool, header: Header, node: u8) -> Result<Head, Ended> {
    let position = usize::from(node);
    let no = |reason, text: String| Err(refusal(position, reason, text).into());
    let session = &header.session;
    let Some(Asked::Deposit(deposit)) = &session.spool else {
        return no(Reason::Malformed, "the header has no deposit".into());
    };
    // Depots add no trail to a deposit. A trail would make a copy of the header look different.
    if !header.trail.is_empty() {
        return no(Reason::Malformed, "a deposit's header has no trail".into());
    }
    let nodes = session.nodes();
    if position >= nodes.len() {
        return no(Reason::Malformed, "the route has no depot for this position".into());
    }
    // The whole tree is checked, so that the sender gets the refusal instead of a previous depot
    // that would try again.
    let depth = deepest(&nodes);
    let most = depot.hop_limit.min(usize::from(session.hop_limit));
    if depth > most {
        return no(Reason::TooLong, format!("{depth} depots in a row; {most} are allowed"));
    }
    let now = clock::wall();
    if session.sent > now + MAX_CLOCK_OFFSET {
        let text = "the sender's clock is ahead of the depot's by more than two minutes: set them";
        return no(Reason::Stale, text.into());
    }
    if deposit.keep > spool.settings.keep {
        let (asked, most) = (deposit.keep, spool.settings.keep);
        let text = format!("the depot keeps sessions for {most}, not {asked}: ask for less");
        return no(Reason::Forbidden, text);
    }
    let over = session.sent + deposit.keep <= now;
    let head = Head { node, header };
    if over {
        let Denied { reason, text, .. } = expired(&head);
        return no(reason, text);
    }
    Ok(head)
}

/// Maximum number of depots in a row.
fn deepest(nodes: &[Node<'_>]) -> usize {
    let mut depths: Vec<usize> = Vec::with_capacity(nodes.len());
    for node in nodes {
        // A parent precedes its children.
        let above = node.parent.and_then(|parent| depths.get(usize::from(parent)));
        depths.push(above.copied().unwrap_or(0) + 1);
    }
    depths.into_iter().max().unwrap_or(0)
}

/// The error for an ended session.
fn over(kept: &Kept) -> Ended {
    if kept.records.progress().abandoned {
        return Ended::Failed(
            "the session was deposited under another position of its plan".into(),
        );
    }
    let Denied { reason, text, .. } = kept.over();
    refusal(usize::from(kept.head.node), reason, text).into()
}

/// Serves a connection that deposits records.
pub(crate) async fn deposit(mut arrival: Arrival<'_>) -> Result<(), Ended> {
    let depot = arrival.depot;
    let key = authorize(depot, &arrival.header)?;
    let Some(spool) = &depot.spool else {
        let text = "this depot keeps no sessions: it has no --spool";
        return Err(refusal(0, Reason::Unsupported, text).into());
    };
    let node = tokio::time::timeout(HEADER_TIMEOUT.to_std(), arrival.socket.read_u8()).await;
    let node = node.map_err(|_| Ended::Failed("no data came after the header".into()))??;
    let refused = |ended| {
        if let Ended::Refused(_) = &ended {
            spool.counted.refused.fetch_add(1, Ordering::Relaxed);
        }
        ended
    };
    let head = judge(depot, spool, arrival.header.clone(), node).map_err(refused)?;
    let directory = super::files::directory(&spool.settings.dir, session_of(&head));
    let to = format!("spool {}", directory.display());
    arrival.admit(key, usize::from(node), to).map_err(refused)?;
    let Arrival { socket, flow, permit, .. } = arrival;
    let kept =
        tokio::task::block_in_place(|| spool.admit(head)).map_err(Ended::from).map_err(refused)?;
    let mut bringing = kept.depositors.join();
    let displaced = bringing.left();
    forward::start(depot, spool, &kept);
    socket.write_all(&Answer::Accepted.write()).await?;
    // Split, so that reading and writing are concurrent.
    let (mut read, mut write) = socket.split();
    let work = async {
        tokio::select! {
            ended = receive_records((depot, spool), (&kept, &bringing), &mut read, flow) => ended?,
            ended = answer(&kept, &mut write) => return ended,
        }
        // All records are here, and soon durable.
        answer(&kept, &mut write).await
    };
    let work = async {
        tokio::select! {
            ended = work => ended,
            failed = sync_periodically(depot, spool, &kept) => Err(failed),
        }
    };
    let ended = tokio::select! {
        ended = work => ended,
        ended = idle(permit.as_ref()) => Err(ended),
        () = displaced => Err(Ended::Failed("another connection deposits this session".into())),
    };
    // Whatever ended the connection, the received records are kept, and the sender resumes from
    // there.
    let synced = sync(depot, spool, &kept).await;
    match (ended, synced) {
        (Ok(()), Err(e)) => Err(disk_failed(&e).into()),
        (Ok(()), Ok(())) => Ok(()),
        (Err(Ended::Refused(refusal)), _) => {
            spool.counted.refused.fetch_add(1, Ordering::Relaxed);
            let answer = Answer::Refused(refusal.clone()).write();
            let len = u32::try_from(answer.len()).unwrap_or_default();
            let frame = [&Frame::Refused { len }.write()[..], &answer].concat();
            let deliver = async {
                write.write_all(&frame).await?;
                write.shutdown().await?;
                let mut waste = vec![0; 64 << 10];
                while read.read(&mut waste).await? > 0 {}
                Ok::<(), std::io::Error>(())
            };
            // Closing a connection with unread data would reset it and lose the answer.
            let _ = tokio::time::timeout(REFUSAL_TIMEOUT.to_std(), deliver).await;
            depot.counters.refused(refusal.reason);
            Err(Ended::Failed(refusal.text))
        }
        (Err(failed), _) => Err(failed),
    }
}

fn session_of(head: &Head) -> packtrain_session::SessionId {
    head.deposit().map_or(head.header.session.id, |deposit| deposit.session)
}

/// Reads records until the last one has arrived.
async fn receive_records(
    (depot, spool): (&Depot, &Arc<Spool>),
    (kept, bringing): (&Kept, &DepositorSlot<'_>),
    read: &mut ReadHalf<'_>,
    flow: &Flow,
) -> Result<(), Ended> {
    let sender = kept.head.header.sender;
    let mut head = [0; FRAME_HEAD];
    let mut record = Vec::new();
    while !kept.records.progress().all {
        wait_for_branches(kept, flow).await?;
        read.read_exact(&mut head).await?;
        let frame = Frame::read(&head).map_err(|e| refusal(0, Reason::Malformed, e.to_string()))?;
        let Frame::Record { number, last, len } = frame else {
            return Err(refusal(0, Reason::Malformed, "a record was expected").into());
        };
        record.resize(len as usize, 0);
        read.read_exact(&mut record).await?;
        depot.counters.up.fetch_add(u64::from(len), Ordering::Relaxed);
        let work = || -> Result<Appended, Ended> {
            if !is_genuine(kept.id, &sender, number, last, &record) {
                let text = format!("record {number} is not what the sender signed");
                return Err(refusal(0, Reason::Malformed, text).into());
            }
            // A known record takes no space, although it may come after the announced size.
            if number >= kept.records.progress().written {
                spool.grow(kept, ByteCount(len.into()))?;
            }
            match kept.records.append(number, last, &record) {
                Ok(Appended::Gap) => {
                    // A damaged record was cut off, so the sender resumes from there.
                    let text = format!("record {number} comes before one that is missing");
                    let no = refusal(0, Reason::Busy, text);
                    Err(Refusal { retry_after: Some(SHORT_RETRY), ..no }.into())
                }
                Ok(appended) => Ok(appended),
                Err(e) => Err(disk_failed(&e).into()),
            }
        };
        // A known record counts as no movement, because an observer could replay it.
        if tokio::task::block_in_place(work)? == Appended::New {
            flow.up.fetch_add(u64::from(len), Ordering::Relaxed);
            flow.touch();
            bringing.record_delivered(clock::now());
        }
        if kept.is_over() {
            return Err(over(kept));
        }
    }
    Ok(())
}

/// Waits for the branches that all wait for.
async fn wait_for_branches(kept: &Kept, flow: &Flow) -> Result<(), Ended> {
    for branch in kept.branches.iter().filter(|branch| branch.policy == Policy::Wait) {
        let mut have = branch.have.subscribe();
        loop {
            if let Stage::Left(refusal) = &*branch.stage.lock() {
                return Err(refusal.clone().into());
            }
            if *have.borrow_and_update() + MAX_LEAD_RECORDS > kept.records.progress().written {
                break;
            }
            // This wait is intended, so the session is not idle.
            let _ = tokio::time::timeout(MIN_SYNC_INTERVAL.to_std() * 10, have.changed()).await;
            flow.touch();
            if kept.is_over() {
                return Err(over(kept));
            }
        }
    }
    Ok(())
}

/// Reports the number of durable records, until all are.
async fn answer(kept: &Kept, write: &mut WriteHalf<'_>) -> Result<(), Ended> {
    let mut progress = kept.records.watch();
    let mut told = None;
    loop {
        let now = *progress.borrow_and_update();
        if now.over {
            return Err(over(kept));
        }
        let have = Frame::Have { records: now.safe, all: now.all_safe };
        if told != Some(have) {
            write.write_all(&have.write()).await?;
            told = Some(have);
        }
        if now.all_safe {
            return Ok(());
        }
        // Sent periodically without a change too, so that the sender knows that this depot is
        // alive.
        let changed = tokio::time::timeout(KEEPALIVE_INTERVAL.to_std(), progress.changed()).await;
        if changed.is_err() {
            told = None;
        }
    }
}

/// Syncs records as long as they arrive.
async fn sync_periodically(depot: &Depot, spool: &Spool, kept: &Arc<Kept>) -> Ended {
    let mut progress = kept.records.watch();
    loop {
        let now = *progress.borrow_and_update();
        if now.written == now.safe && now.all == now.all_safe {
            let _ = progress.changed().await;
            continue;
        }
        if let Err(e) = sync(depot, spool, kept).await {
            depot.warn(format!("session {} in the spool: {e}", kept.id));
            return disk_failed(&e).into();
        }
        tokio::time::sleep(MIN_SYNC_INTERVAL.to_std()).await;
    }
}
