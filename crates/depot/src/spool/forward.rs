//! Forwards records to the next depots while they arrive, until all are there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use packtrain_os::clock;
use packtrain_session::spool::{FRAME_HEAD, Frame, Policy, is_genuine};
use packtrain_session::{Answer, Reason, Refusal};
use packtrain_units::{Backoff, Duration, Time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::ReadHalf;

use super::super::Depot;
use super::super::session::{Ended, connect, refusal};
use super::deposit::MAX_LEAD_RECORDS;
use super::forward_turns::ForwardTurn;
use super::{Branch, Kept, Phase, Spool, Stage, report};
use packtrain_hops::read_answer;

/// Timeout for the answer of a next depot.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// A next depot that sends nothing for this long, while records are in flight, counts as dead.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);
/// A connection with nothing to send for this long is closed if another session waits for its turn.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// The first and the longest pause after a failure.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
const RETRY: Backoff = Backoff::new(RETRY_PAUSES.0, RETRY_PAUSES.1);
/// Consecutive failures after which a droppable branch is dropped.
const DROPPED_AFTER: u32 = 3;

/// Why a try ended.
enum Fault {
    /// A later try may succeed.
    Passing(String, Option<Duration>),
    /// Every try will be refused.
    Final(Refusal),
    /// The session is over, or the branch is to be dropped.
    Over,
    /// The next depot has all records so far, and another session waits for the turn.
    Idle,
    /// This record on the local disk is not what the sender signed.
    Damaged(u64),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        match refusal.reason.passes() {
            true => Self::Passing(refusal.text, refusal.retry_after),
            false => Self::Final(refusal),
        }
    }
}

/// Starts forwarding to each next depot, if no task does so yet.
pub(super) fn start(depot: &Arc<Depot>, spool: &Arc<Spool>, kept: &Arc<Kept>) {
    for (at, branch) in kept.branches.iter().enumerate() {
        {
            let mut stage = branch.stage.lock();
            if matches!(*stage, Stage::Running | Stage::Done) {
                continue;
            }
            *stage = Stage::Running;
        }
        let (depot, spool, kept) = (Arc::clone(depot), Arc::clone(spool), Arc::clone(kept));
        tokio::spawn(async move {
            let branch = &kept.branches[at];
            let became = forward(&depot, &spool, &kept, branch).await;
            *branch.stage.lock() = became;
        });
    }
}

async fn forward(depot: &Depot, spool: &Spool, kept: &Kept, branch: &Branch) -> Stage {
    let place = branch.hop.place.to_string();
    let (mut failures, mut backoff) = (0, RETRY);
    let mut warned = false;
    loop {
        match kept.phase(clock::wall()) {
            Phase::Live => {}
            Phase::Expired => {
                wait_end(kept, RETRY_PAUSES.1).await;
                continue;
            }
            Phase::Ended => return Stage::Done,
        }
        let before = *branch.have.borrow();
        let fault = match push(depot, spool, kept, branch).await {
            Ok(()) => {
                spool.counted.forwarded.fetch_add(1, Ordering::Relaxed);
                report(depot, kept, "forwarded", (place, kept.records.bytes()));
                branch.have.send_replace(u64::MAX / 2);
                return Stage::Done;
            }
            Err(fault) => fault,
        };
        let have = *branch.have.borrow();
        if have > before {
            (failures, backoff) = (0, RETRY);
        }
        let slow = matches!(fault, Fault::Over);
        let (text, wait) = match fault {
            Fault::Over if kept.is_over() => continue,
            Fault::Over => ("it is too slow".to_owned(), None),
            Fault::Damaged(number) => match damaged(depot, kept, number) {
                Ok(text) => (text, None),
                Err(refusal) => return left(depot, spool, kept, (place, refusal)),
            },
            Fault::Final(refusal) => return left(depot, spool, kept, (place, refusal)),
            Fault::Passing(text, wait) => (text, wait),
            Fault::Idle => {
                wait_for_records(kept, have).await;
                continue;
            }
        };
        // A depot that has all durable records lacks nothing: it closes silent connections itself.
        failures += u32::from(have < kept.records.progress().safe);
        if branch.policy == Policy::Drop && (failures >= DROPPED_AFTER || slow) {
            spool.counted.dropped.fetch_add(1, Ordering::Relaxed);
            depot.warn(format!("session {}: the branch {place} is dropped: {text}", kept.id));
            report(depot, kept, "dropped", (place, kept.records.bytes()));
            return Stage::Done;
        }
        // A suggested pause is reported even if no record is durable yet.
        if (failures > 0 || wait.is_some()) && !std::mem::replace(&mut warned, true) {
            let text = format!("session {} to {place}: {text}; trying on", kept.id);
            depot.warn(text);
        }
        let pause = backoff.next_wait();
        let wait = wait.unwrap_or(pause).clamp(RETRY_PAUSES.0, RETRY_PAUSES.1);
        wait_end(kept, wait).await;
        wait_for_records(kept, have).await;
    }
}

/// Waits for this time, or until the session has ended.
async fn wait_end(kept: &Kept, time: Duration) {
    let mut progress = kept.records.watch();
    let over = progress.wait_for(|progress| progress.over);
    let _ = tokio::time::timeout(time.to_std(), over).await;
}

/// Waits for records beyond the first `have`, or the end: without them there is nothing to send.
async fn wait_for_records(kept: &Kept, have: u64) {
    let mut progress = kept.records.watch();
    while !kept.is_over() {
        let more = progress.wait_for(|now| now.over || now.all || now.written > have);
        if tokio::time::timeout(RETRY_PAUSES.1.to_std(), more).await.is_ok() {
            return;
        }
    }
}

/// Stops a branch that is refused permanently.
fn left(depot: &Depot, spool: &Spool, kept: &Kept, (place, refusal): (String, Refusal)) -> Stage {
    spool.counted.dropped.fetch_add(1, Ordering::Relaxed);
    depot.warn(format!("session {}: the branch {place} is left: {}", kept.id, refusal.text));
    let text = format!("the branch {place}: {}", refusal.text);
    report(depot, kept, "dropped", (place, kept.records.bytes()));
    Stage::Left(Refusal { text, retry_after: None, ..refusal })
}

/// Requests a damaged record again, if the depositor is still connected; otherwise nothing is
/// changed.
fn damaged(depot: &Depot, kept: &Kept, number: u64) -> Result<String, Refusal> {
    let text = format!("record {number} is damaged on this depot's disk");
    depot.warn(format!("session {}: {text}", kept.id));
    match tokio::task::block_in_place(|| kept.records.cut(number)) {
        Ok(true) => {}
        Ok(false) => {
            let text = format!("{text}, and its depositor is gone");
            return Err(refusal(usize::from(kept.head.node), Reason::Absent, text));
        }
        Err(e) => depot.warn(format!("session {}: {e}", kept.id)),
    }
    Ok(text)
}

fn passing(text: impl std::fmt::Display) -> Fault {
    Fault::Passing(text.to_string(), None)
}

/// One connection to a next depot, until the end of the session, or until nothing is to be sent.
async fn push(depot: &Depot, spool: &Spool, kept: &Kept, branch: &Branch) -> Result<(), Fault> {
    let turn = spool.forwards.take(kept.key).await;
    if kept.is_over() {
        return Err(Fault::Over);
    }
    let socket = connect(depot, &branch.hop, usize::from(branch.node)).await;
    let mut socket = socket.map_err(|ended| match ended {
        Ended::Refused(refusal) => Fault::from(refusal),
        Ended::Failed(text) => passing(text),
    })?;
    let mut hello = kept.head.header.write();
    hello.push(branch.node);
    let greeted = async {
        socket.write_all(&hello).await.map_err(passing)?;
        read_answer(&socket).await.map_err(passing)
    };
    let answer = tokio::time::timeout(ANSWER_TIMEOUT.to_std(), greeted).await;
    match answer.map_err(|_| passing("the next depot does not answer"))?? {
        Answer::Accepted => {}
        Answer::Refused(refusal) => return Err(refusal.into()),
    }
    let (mut read, mut write) = socket.split();
    let first =
        tokio::time::timeout(ANSWER_TIMEOUT.to_std(), read_progress(&mut read, branch)).await;
    if first.map_err(|_| passing("the next depot does not answer"))?? {
        return Ok(());
    }
    let read_answers = async {
        loop {
            match tokio::time::timeout(SILENCE_TIMEOUT.to_std(), read_progress(&mut read, branch))
                .await
            {
                Ok(Ok(true)) => return Ok(()),
                Ok(Ok(false)) => {}
                Ok(Err(fault)) => return Err(fault),
                // Without records in flight no message is expected.
                Err(_) if *branch.have.borrow() >= kept.records.progress().safe => {}
                Err(_) => {
                    return Err(passing(format!(
                        "nothing heard for {}",
                        SILENCE_TIMEOUT.to_readable()
                    )));
                }
            }
        }
    };
    tokio::select! {
        ended = read_answers => ended,
        Err(fault) = send(depot, kept, branch, &turn, &mut write) => Err(fault),
        () = wait_over(kept) => Err(Fault::Over),
    }
}

/// Reads the progress of a next depot; true once it has everything.
async fn read_progress(read: &mut ReadHalf<'_>, branch: &Branch) -> Result<bool, Fault> {
    let mut head = [0; FRAME_HEAD];
    read.read_exact(&mut head).await.map_err(passing)?;
    match Frame::read(&head).map_err(passing)? {
        Frame::Have { records, all } => {
            branch.have.send_replace(records.min(u64::MAX / 2));
            Ok(all)
        }
        Frame::Refused { len } => {
            let mut answer = vec![0; len as usize];
            read.read_exact(&mut answer).await.map_err(passing)?;
            match Answer::read(&answer).map_err(passing)? {
                // A record that was corrupted in transit is correct at the next try.
                Answer::Refused(refusal) if refusal.reason == Reason::Malformed => {
                    Err(passing(refusal.text))
                }
                Answer::Refused(refusal) => Err(refusal.into()),
                Answer::Accepted => Err(passing("an unexpected acceptance")),
            }
        }
        Frame::Record { .. } | Frame::Get { .. } | Frame::Lack { .. } => {
            Err(passing("the next depot sent an unexpected message"))
        }
    }
}

/// Sends records as they arrive. Gives up its turn if none comes for some time, the next depot has
/// all, and another session waits.
async fn send(
    depot: &Depot,
    kept: &Kept,
    branch: &Branch,
    turn: &ForwardTurn,
    write: &mut (impl AsyncWriteExt + Unpin),
) -> Result<(), Fault> {
    let mut progress = kept.records.watch();
    let mut next = *branch.have.borrow();
    let mut began: Option<Time> = None;
    loop {
        let now = *progress.borrow_and_update();
        if branch.policy == Policy::Drop && now.written > *branch.have.borrow() + MAX_LEAD_RECORDS {
            // A branch is always behind while its connection starts, so it is not dropped at once.
            let since = *began.get_or_insert_with(clock::now);
            if clock::now().since(since) > SILENCE_TIMEOUT {
                return Err(Fault::Over);
            }
        } else {
            began = None;
        }
        if next >= now.written {
            let idle = depot.idle.min(IDLE_TIMEOUT).to_std();
            let changed = tokio::time::timeout(idle, progress.changed()).await;
            let lacks = now.all || *branch.have.borrow() < now.written;
            if changed.is_err() && !lacks && turn.is_wanted() {
                return Err(Fault::Idle);
            }
            continue;
        }
        let read = tokio::task::block_in_place(|| {
            // Read again: corruption between disk and memory does not mean that the record is
            // damaged.
            genuine(kept, next)
                .and_then(|read| if read.is_err() { genuine(kept, next) } else { Ok(read) })
        });
        let read = read.map_err(passing)?.map_err(Fault::Damaged)?;
        let Some((last, record)) = read else {
            // The records were cut, or the session has ended.
            let _ = progress.changed().await;
            continue;
        };
        let frame = Frame::Record { number: next, last, len: record.len() as u32 };
        write.write_all(&frame.write()).await.map_err(passing)?;
        write.write_all(&record).await.map_err(passing)?;
        depot.counters.up.fetch_add(record.len() as u64, Ordering::Relaxed);
        next += 1;
    }
}

type Read = Option<(bool, Vec<u8>)>;

/// A record whose signature is valid, if it is here; otherwise its number.
fn genuine(kept: &Kept, number: u64) -> std::io::Result<Result<Read, u64>> {
    let read = kept.records.read(number)?;
    let good = read.as_ref().is_none_or(|(last, record)| {
        is_genuine(kept.id, &kept.head.header.sender, number, *last, record)
    });
    Ok(if good { Ok(read) } else { Err(number) })
}

/// Returns when the session is over.
async fn wait_over(kept: &Kept) {
    while !kept.is_over() {
        wait_end(kept, RETRY_PAUSES.0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_between_connections_double_up_to_a_minute() {
        let waits = (0..8).map(|n| RETRY.after(n).as_secs_f64());
        assert!(waits.eq([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]));
    }
}
