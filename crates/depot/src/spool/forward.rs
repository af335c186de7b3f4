//! Records go on to the depots behind, while they come in and until all are there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use packtrain_os::clock;
use packtrain_session::spool::{FRAME_HEAD, Frame, Policy, is_genuine};
use packtrain_session::{Answer, Reason, Refusal};
use packtrain_units::{Duration, Time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::ReadHalf;

use super::super::Depot;
use super::super::session::{Ended, connect, refusal};
use super::deposit::AHEAD;
use super::{Branch, Kept, Spool, Stage, tell};
use packtrain_hops::read_answer;

/// How long a depot behind has to answer.
const ANSWER: Duration = Duration::from_secs(15);
/// A depot behind that has said nothing for so long, while records are under way, is gone.
const SILENT: Duration = Duration::from_secs(20);
/// The first and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Failures in a row after which a branch that may be dropped is.
const DROPPED_AFTER: u32 = 3;

/// Why a try is over.
enum Fault {
    /// It may work another time.
    Passing(String, Option<Duration>),
    /// The same is refused every time.
    Final(Refusal),
    /// The session is over, or the branch is to be left.
    Over,
    /// Record so and so on our disk is not what the sender signed.
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

/// Passes a session on to each depot behind, if nobody does yet.
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

/// How often a branch failed, and how long to wait before it is tried again.
struct Tries {
    failures: u32,
    pause: Duration,
}

async fn forward(depot: &Depot, spool: &Spool, kept: &Kept, branch: &Branch) -> Stage {
    let place = branch.hop.place.to_string();
    let fresh = || Tries { failures: 0, pause: PAUSES.0 };
    let mut tries = fresh();
    let mut warned = false;
    while !kept.is_over() {
        let before = *branch.have.borrow();
        let fault = match push(depot, spool, kept, branch).await {
            Ok(()) => {
                spool.counted.forwarded.fetch_add(1, Ordering::Relaxed);
                tell(depot, kept, "forwarded", (place, kept.records.bytes()));
                branch.have.send_replace(u64::MAX / 2);
                return Stage::Done;
            }
            Err(fault) => fault,
        };
        let have = *branch.have.borrow();
        if have > before {
            tries = fresh();
        }
        let slow = matches!(fault, Fault::Over);
        let (text, wait) = match fault {
            Fault::Over if kept.is_over() => return Stage::Done,
            Fault::Over => ("it is too slow".to_owned(), None),
            Fault::Damaged(number) => match damaged(depot, kept, number) {
                Ok(text) => (text, None),
                Err(refusal) => return left(depot, spool, kept, (place, refusal)),
            },
            Fault::Final(refusal) => return left(depot, spool, kept, (place, refusal)),
            Fault::Passing(text, wait) => (text, wait),
        };
        // Who has what is safe here lacks nothing: its depot closes what is silent for long.
        tries.failures += u32::from(have < kept.records.progress().safe);
        if branch.policy == Policy::Drop && (tries.failures >= DROPPED_AFTER || slow) {
            spool.counted.dropped.fetch_add(1, Ordering::Relaxed);
            depot.warn(format!("session {}: the branch {place} is dropped: {text}", kept.id));
            tell(depot, kept, "dropped", (place, kept.records.bytes()));
            return Stage::Done;
        }
        // What says when to come again is said even where nothing is safe yet.
        if (tries.failures > 0 || wait.is_some()) && !std::mem::replace(&mut warned, true) {
            let text = format!("session {} to {place}: {text}; trying on", kept.id);
            depot.warn(text);
        }
        let wait = wait.unwrap_or(tries.pause).clamp(PAUSES.0, PAUSES.1);
        tries.pause = (tries.pause + tries.pause).min(PAUSES.1);
        let mut progress = kept.records.watch();
        let over = progress.wait_for(|progress| progress.over);
        let _ = tokio::time::timeout(wait.to_std(), over).await;
        // Until there is more or the end, there is nothing to say.
        while !kept.is_over() {
            let more = progress.wait_for(|now| now.over || now.all || now.written > have);
            if tokio::time::timeout(PAUSES.1.to_std(), more).await.is_ok() {
                break;
            }
        }
    }
    Stage::Done
}

/// Leaves a branch: nothing is gained by trying on.
fn left(depot: &Depot, spool: &Spool, kept: &Kept, (place, refusal): (String, Refusal)) -> Stage {
    spool.counted.dropped.fetch_add(1, Ordering::Relaxed);
    depot.warn(format!("session {}: the branch {place} is left: {}", kept.id, refusal.text));
    let text = format!("the branch {place}: {}", refusal.text);
    tell(depot, kept, "dropped", (place, kept.records.bytes()));
    Stage::Left(Refusal { text, retry_after: None, ..refusal })
}

/// A damaged record comes again, if somebody is there who has it; else all is kept as it is.
fn damaged(depot: &Depot, kept: &Kept, number: u64) -> Result<String, Refusal> {
    let text = format!("record {number} is damaged on this depot's disk");
    depot.warn(format!("session {}: {text}", kept.id));
    match tokio::task::block_in_place(|| kept.records.cut(number)) {
        Ok(true) => {}
        Ok(false) => {
            let text = format!("{text}, and who brought it has left");
            return Err(refusal(usize::from(kept.head.node), Reason::Absent, text));
        }
        Err(e) => depot.warn(format!("session {}: {e}", kept.id)),
    }
    Ok(text)
}

fn passing(text: impl std::fmt::Display) -> Fault {
    Fault::Passing(text.to_string(), None)
}

/// One connection to a depot behind, to the end of the session.
async fn push(depot: &Depot, spool: &Spool, kept: &Kept, branch: &Branch) -> Result<(), Fault> {
    // Nobody closes it.
    let _turn = spool.forwards.acquire().await;
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
    let answer = tokio::time::timeout(ANSWER.to_std(), greeted).await;
    match answer.map_err(|_| passing("the next depot does not answer"))?? {
        Answer::Accepted => {}
        Answer::Refused(refusal) => return Err(refusal.into()),
    }
    let (mut read, mut write) = socket.split();
    let first = tokio::time::timeout(ANSWER.to_std(), heard(&mut read, branch)).await;
    if first.map_err(|_| passing("the next depot does not answer"))?? {
        return Ok(());
    }
    let hear = async {
        loop {
            match tokio::time::timeout(SILENT.to_std(), heard(&mut read, branch)).await {
                Ok(Ok(true)) => return Ok(()),
                Ok(Ok(false)) => {}
                Ok(Err(fault)) => return Err(fault),
                // Where nothing is under way nothing is to be heard.
                Err(_) if *branch.have.borrow() >= kept.records.progress().safe => {}
                Err(_) => return Err(passing(format!("nothing heard for {SILENT}"))),
            }
        }
    };
    let from = *branch.have.borrow();
    tokio::select! {
        ended = hear => ended,
        Err(fault) = send(depot, kept, branch, from, &mut write) => Err(fault),
        () = gone(kept) => Err(Fault::Over),
    }
}

/// Reads what a depot behind has; true once that is all.
async fn heard(read: &mut ReadHalf<'_>, branch: &Branch) -> Result<bool, Fault> {
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
                // A record spoilt on its way is right the next time.
                Answer::Refused(refusal) if refusal.reason == Reason::Malformed => {
                    Err(passing(refusal.text))
                }
                Answer::Refused(refusal) => Err(refusal.into()),
                Answer::Accepted => Err(passing("a refusal that is none")),
            }
        }
        Frame::Record { .. } | Frame::Get { .. } | Frame::Lack { .. } => {
            Err(passing("the next depot says something else"))
        }
    }
}

/// Sends records as they come, and then waits.
async fn send(
    depot: &Depot,
    kept: &Kept,
    branch: &Branch,
    from: u64,
    write: &mut (impl AsyncWriteExt + Unpin),
) -> Result<(), Fault> {
    let mut progress = kept.records.watch();
    let mut next = from;
    let mut began: Option<Time> = None;
    loop {
        let now = *progress.borrow_and_update();
        if branch.policy == Policy::Drop && now.written > *branch.have.borrow() + AHEAD {
            // Not at once: everybody is behind while a connection begins.
            let since = *began.get_or_insert_with(clock::now);
            if clock::now().since(since) > SILENT {
                return Err(Fault::Over);
            }
        } else {
            began = None;
        }
        if next >= now.written {
            let _ = progress.changed().await;
            continue;
        }
        let read = tokio::task::block_in_place(|| {
            // Once more: what was spoilt between disk and here need not be damaged.
            genuine(kept, next)
                .and_then(|read| if read.is_err() { genuine(kept, next) } else { Ok(read) })
        });
        let read = read.map_err(passing)?.map_err(Fault::Damaged)?;
        let Some((last, record)) = read else {
            // It was cut off, or all is over.
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

/// A record as its sender signed it, if it is here; else its number.
fn genuine(kept: &Kept, number: u64) -> std::io::Result<Result<Read, u64>> {
    let read = kept.records.read(number)?;
    let good = read.as_ref().is_none_or(|(last, record)| {
        is_genuine(kept.id, &kept.head.header.sender, number, *last, record)
    });
    Ok(if good { Ok(read) } else { Err(number) })
}

/// Ends when the session does.
async fn gone(kept: &Kept) {
    let mut progress = kept.records.watch();
    loop {
        let over = progress.wait_for(|progress| progress.over);
        let waited = tokio::time::timeout(PAUSES.0.to_std(), over).await;
        if waited.is_ok() || kept.is_over() {
            return;
        }
    }
}
