//! The sender: encrypts the data, and ends when the first depot has everything durable.

mod account;
mod produce;
mod tickets;

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packtrain_net::tcp::Identity;
use packtrain_object::EntryKind;
use packtrain_os::{clock, entropy};
use packtrain_session::spool::{Frame, RECORD, Sealer, records_for};
use packtrain_transfer::message::{Options, Summary};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::code::ClaimCode;
use super::depot_connection::{DepotConnection, DepotError};
use super::fetch::Fetch;
use super::plan::DepotPlan;
use super::ticket::ClaimTicket;
use crate::cp::RETRY;
use packtrain_identity::keys;
use packtrain_runtime::pack::Packed;
use packtrain_runtime::source::{Collected, SourceSpec, collect};
use packtrain_service::{
    HistoryConfig, Notice, NoticeLevel, Outcome, ProgressSnapshot, Reporter, RequestError, STOPPED,
    StopHandle, TransportShare, history,
};
use produce::{Produced, Record, produce};

/// Records in flight that are not durable: 64 MiB. They are kept for retransmission.
const WINDOW: usize = 256;
/// Maximum pause that a depot's refusal may suggest.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// How often a waiting thread checks for changes.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

/// The request of `send`.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// Paths as given; empty for standard input.
    pub sources: Vec<Vec<u8>>,
    /// The file name of standard input.
    pub name: Vec<u8>,
    /// Which files to send.
    pub options: Options,
    /// The depots.
    pub plan: DepotPlan,
    /// How long the session is kept.
    pub keep: Duration,
    /// The file of the ticket; an existing ticket is resumed.
    pub ticket: Option<PathBuf>,
    /// Limit of the sending rate.
    pub rate: Option<DataRate>,
    /// Size of TCP's buffers; `None` leaves them to the kernel.
    pub buffers: Option<ByteCount>,
    /// How many times to try again after a temporary failure in which no byte moved.
    pub retries: u32,
    /// The code that the session can be claimed with, in place of a ticket.
    pub code: Option<ClaimCode>,
    /// Where its row is stored.
    pub history: HistoryConfig,
    /// Requests an orderly end.
    pub stop: StopHandle,
}

/// The result.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The counts, and the failures.
    pub outcome: Outcome,
    /// The ticket for the receiver.
    pub ticket: ClaimTicket,
}

/// Sends data to depots, for later claims.
///
/// # Errors
/// A failure before any byte was sent; later failures are in the outcome.
pub fn send(request: &SendRequest, reporter: &dyn Reporter) -> Result<Sent, RequestError> {
    let mut row = account::row(request);
    let mut result = deposit(request, reporter);
    match &mut result {
        Ok(sent) => {
            history::finish_cp(&mut row, &sent.outcome);
            sent.outcome.id.clone_from(&row.id);
        }
        Err(error) => history::finish_failed(&mut row, error.kind, &error.text),
    }
    if let Some(text) = history::keep(&request.history, &row) {
        reporter.notice(&Notice::new(NoticeLevel::Warning, text));
    }
    result
}

fn deposit(request: &SendRequest, reporter: &dyn Reporter) -> Result<Sent, RequestError> {
    let begun = clock::now();
    let spec = match request.sources.as_slice() {
        [] => SourceSpec::Stdin(request.name.clone()),
        sources => SourceSpec::Paths(sources.to_vec()),
    };
    let identity = keys::identity()?;
    let collected = collect(spec, &request.options)?;
    let sources = u32::try_from(request.sources.len().max(1)).unwrap_or(u32::MAX);
    let packed = Packed::new(&collected.entries, sources)
        .ok_or_else(|| RequestError::new(FailureKind::Usage, "more than a session can hold"))?;
    let ticket = tickets::ticket(request, &packed, &identity)?;
    let mut outcome = Outcome { transport: "depots".to_owned(), ..Outcome::default() };
    let produced = Arc::new(Mutex::new(Produced::default()));
    let (collected, packed) = (Arc::new(collected), Arc::new(packed));
    let mut sender = Sender {
        request,
        reporter,
        ticket: &ticket,
        identity: Arc::new(identity),
        collected: Arc::clone(&collected),
        packed: Arc::clone(&packed),
        produced: Arc::clone(&produced),
        safe: 0,
        begun: None,
        flow: None,
        told: Time::ZERO,
        due: Time::ZERO,
        sent: 0,
        started: clock::now(),
    };
    let ended = sender.run();
    let (resumed, begun_there) = (sender.begun.unwrap_or(0), sender.begun.is_some());
    // Records that a refusing depot never kept do not count as moved.
    let safe = sender.safe.saturating_sub(resumed).saturating_mul(RECORD as u64);
    let sent = if ended.is_ok() { sender.sent } else { sender.sent.min(safe) };
    let produced = produced.lock().clone();
    let size = |kind: &EntryKind| match kind {
        EntryKind::File { size } => *size,
        _ => 0,
    };
    let unread = produced.failed.iter().map(|one| (one.path.clone(), one.failure.clone()));
    let failed: Vec<_> = collected.failed.iter().cloned().chain(unread).collect();
    let failures = failed.len() as u64;
    let vanished = failed.iter().filter(|(_, f)| f.kind == FailureKind::Vanished).count();
    outcome.failed = failed.into_iter().take(100).collect();
    let bytes: u64 = collected.entries.iter().map(|entry| size(&entry.kind)).sum();
    outcome.summary = Summary {
        bytes: bytes + produced.stream,
        bytes_moved: sent,
        entries: (collected.entries.len() as u64).saturating_sub(produced.failed.len() as u64),
        files_moved: match ended {
            Ok(()) => packed.files.len() as u64 + u64::from(packed.stream.is_some()),
            Err(_) => 0,
        },
        bytes_resumed: resumed.saturating_mul(RECORD as u64),
        failed: failures,
        vanished: vanished as u64,
        ..Summary::default()
    };
    outcome.shares = vec![TransportShare { name: "depots".to_owned(), bytes: ByteCount(sent) }];
    outcome.shares.retain(|share| share.bytes > ByteCount::ZERO);
    outcome.elapsed = clock::now().since(begun);
    if let Err(failure) = ended {
        let passes = matches!(failure.kind, FailureKind::Temporary | FailureKind::Cancelled);
        outcome.resumable = passes && request.ticket.is_some() && packed.stream.is_none();
        if packed.stream.is_some() && begun_there {
            release_pipe(&ticket, request, reporter);
        }
        outcome.failure = Some(failure);
    }
    Ok(Sent { outcome, ticket })
}

/// Asks the depots to remove the incomplete session of a pipe, so that its space is free.
fn release_pipe(ticket: &ClaimTicket, request: &SendRequest, reporter: &dyn Reporter) {
    let fetch = Fetch::new(ticket, None, Duration::ZERO, request.buffers, request.stop.clone());
    for text in fetch.release() {
        let text = format!("{text}; what it has of this stays until its time is over");
        reporter.notice(&Notice::new(NoticeLevel::Warning, text));
    }
}

/// Records in flight, and the source of further ones.
struct Flow {
    /// The number of the first kept record.
    base: u64,
    kept: VecDeque<Record>,
    next: crossbeam_channel::Receiver<Record>,
    /// `next` has returned the last record.
    all: bool,
}

struct Sender<'a> {
    request: &'a SendRequest,
    reporter: &'a dyn Reporter,
    ticket: &'a ClaimTicket,
    identity: Arc<Identity>,
    collected: Arc<Collected>,
    packed: Arc<Packed>,
    produced: Arc<Mutex<Produced>>,
    /// Number of durable records.
    safe: u64,
    /// Number of durable records at the start of this run.
    begun: Option<u64>,
    flow: Option<Flow>,
    told: Time,
    due: Time,
    /// Bytes sent by this run.
    sent: u64,
    started: Time,
}

/// The depot's reports, for the sending thread.
#[derive(Debug, Default)]
struct Reports {
    state: Mutex<(u64, bool, Option<DepotError>)>,
    changed: parking_lot::Condvar,
}

impl Sender<'_> {
    fn stopped(&self) -> Option<Failure> {
        let stopped = self.request.stop.requested().is_some();
        stopped.then(|| Failure::new(FailureKind::Cancelled, STOPPED))
    }

    fn say(&self, text: String) {
        self.reporter.notice(&Notice::new(NoticeLevel::Warning, text));
    }

    fn run(&mut self) -> Result<(), Failure> {
        let (mut backoff, mut safe) = (RETRY, 0);
        loop {
            let error = match self.once() {
                Ok(()) => return Ok(()),
                Err(Fault::Over(failure)) => return Err(failure),
                Err(Fault::Depot(error)) => error,
            };
            if let Some(failure) = self.stopped() {
                return Err(failure);
            }
            if self.safe > safe {
                backoff.reset();
                safe = self.safe;
            }
            let failure = said(&error);
            if error.is_final() || backoff.failures() >= self.request.retries {
                return Err(failure);
            }
            let pause = RETRY.after(backoff.failures());
            let pause = error.wait().unwrap_or_default().max(pause).min(MAX_PAUSE);
            let wait = pause.to_readable();
            if self.has_nothing_to_send() {
                self.say(format!("{}; connecting again in {wait}", failure.text));
            } else {
                backoff.next_wait();
                let tries = format!("({} of {})", backoff.failures(), self.request.retries);
                self.say(format!("{}; trying again in {wait} {tries}", failure.text));
            }
            let end = clock::now() + pause;
            while clock::now() < end {
                if let Some(failure) = self.stopped() {
                    return Err(failure);
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
    }

    /// Whether all data of a pipe so far is durable.
    fn has_nothing_to_send(&self) -> bool {
        let idle = |flow: &Flow| flow.kept.is_empty() && flow.next.is_empty() && !flow.all;
        self.packed.stream.is_some() && self.flow.as_ref().is_some_and(idle)
    }

    /// Whether this is the number of all records.
    fn is_all(&self, records: u64) -> bool {
        let known = self.packed.len.map(|len| records_for(ByteCount(len)));
        let made = self.flow.as_ref().filter(|flow| flow.all);
        let made = made.map(|flow| flow.base + flow.kept.len() as u64);
        known.or(made) == Some(records)
    }

    /// Runs one connection, to the end of the session.
    fn once(&mut self) -> Result<(), Fault> {
        let first = &self.ticket.plan.depots[0].place;
        let broken =
            || Failure::new(FailureKind::Usage, "the names of so many depots are too long");
        let header = self.ticket.deposit(&self.identity).ok_or_else(broken)?;
        // After the header: the index of the depot in the plan.
        let hello = [&header.write()[..], &[0]].concat();
        let not_all = |records| {
            let text = format!("it reports {records} records as the total, which is wrong");
            Fault::from(DepotError::Unreachable(first.clone(), text))
        };
        let mut line =
            DepotConnection::open(first, &hello, self.request.buffers, &self.request.stop)?;
        let Frame::Have { records, all } = line.frame()? else {
            let text = "it sent an unexpected message".to_owned();
            return Err(DepotError::Unreachable(first.clone(), text).into());
        };
        if all && !self.is_all(records) {
            return Err(not_all(records));
        }
        self.begun.get_or_insert(records);
        self.safe = records;
        self.show(true);
        if all {
            return Ok(());
        }
        self.rewind(records)?;
        let heard = Reports { state: Mutex::new((records, false, None)), ..Reports::default() };
        let over = AtomicBool::new(false);
        let (mut ear, hand) = (line.other()?, line.other()?);
        let stop = self.request.stop.clone();
        std::thread::scope(|scope| {
            scope.spawn(|| listen(&mut ear, &heard, &over));
            // A write may block as long as the depot wants, and a request to stop must end it.
            scope.spawn(|| {
                while stop.requested().is_none() && !over.load(Ordering::Relaxed) {
                    std::thread::sleep(POLL_INTERVAL);
                }
                hand.close();
            });
            let _ends = Ends(&over, &hand);
            self.pump(&mut line, &heard)
        })?;
        if self.is_all(self.safe) { Ok(()) } else { Err(not_all(self.safe)) }
    }

    /// Positions the source at `records`, in the kept records or by reading the files again.
    fn rewind(&mut self, records: u64) -> Result<(), Fault> {
        let known = self.flow.as_mut().is_some_and(|flow| {
            let end = flow.base + flow.kept.len() as u64;
            if !(flow.base..=end).contains(&records) {
                return false;
            }
            flow.kept.drain(..(records - flow.base) as usize);
            flow.base = records;
            true
        });
        if known {
            return Ok(());
        }
        if self.packed.stream.is_some() && records > 0
            || self.flow.is_some() && self.packed.stream.is_some()
        {
            let text = "the depot has lost part of it, and standard input cannot be read again";
            return Err(Failure::new(FailureKind::Fatal, text).into());
        }
        // Another try uses another salt, because files may have changed.
        let identity = Arc::clone(&self.identity);
        let sign = move |text: &[u8]| identity.sign(text);
        let sealer =
            Sealer::new(self.ticket.id(), &self.ticket.body.content, entropy::bytes(), sign);
        let next = produce(
            Arc::clone(&self.collected),
            Arc::clone(&self.packed),
            Arc::clone(&self.produced),
            sealer,
            records,
        );
        self.flow = Some(Flow { base: records, kept: VecDeque::new(), next, all: false });
        Ok(())
    }

    fn pump(&mut self, line: &mut DepotConnection, heard: &Reports) -> Result<(), Fault> {
        // Kept records are sent again.
        let mut at = 0;
        loop {
            if self.apply_reports(heard, &mut at)? {
                return Ok(());
            }
            let flow = self.flow.as_mut().expect("it was made before");
            let kept = flow.kept.get(at);
            let full = flow.kept.len() >= WINDOW;
            if kept.is_none() && (full || flow.all) {
                wait(heard, self.safe);
                continue;
            }
            if kept.is_none() {
                let step = std::time::Duration::from_millis(200);
                let record = match flow.next.recv_timeout(step) {
                    Ok(record) => record,
                    Err(crossbeam_channel::RecvTimeoutError::Timeout) => continue,
                    Err(crossbeam_channel::RecvTimeoutError::Disconnected) => {
                        let produced = self.produced.lock();
                        let none = || Failure::new(FailureKind::Fatal, "nothing more comes: a bug");
                        return Err(produced.hopeless.clone().unwrap_or_else(none).into());
                    }
                };
                flow.all = record.last;
                flow.kept.push_back(record);
            }
            let len = flow.kept[at].bytes.len() as u64;
            let end = clock::now() + pace(self.request.rate, &mut self.due, ByteCount(len));
            while clock::now() < end {
                std::thread::sleep(end.since(clock::now()).to_std().min(POLL_INTERVAL));
                if self.apply_reports(heard, &mut at)? {
                    return Ok(());
                }
            }
            let flow = self.flow.as_mut().expect("it was made before");
            // The depot may have got the record over another connection meanwhile.
            let Some(record) = flow.kept.get(at) else { continue };
            let number = flow.base + at as u64;
            let frame = Frame::Record { number, last: record.last, len: record.bytes.len() as u32 };
            line.send(frame, &record.bytes).map_err(|error| heard.better(error))?;
            self.sent += len;
            at += 1;
        }
    }

    /// Handles the depot's reports; true after everything is durable.
    fn apply_reports(&mut self, heard: &Reports, at: &mut usize) -> Result<bool, Fault> {
        if let Some(failure) = self.stopped() {
            return Err(failure.into());
        }
        let (records, all) = {
            let state = heard.state.lock();
            if let Some(error) = &state.2 {
                return Err(error.clone().into());
            }
            (state.0, state.1)
        };
        let flow = self.flow.as_mut().expect("it was made before");
        let gone = records.saturating_sub(flow.base).min(flow.kept.len() as u64) as usize;
        flow.kept.drain(..gone);
        flow.base += gone as u64;
        *at = at.saturating_sub(gone);
        self.safe = self.safe.max(records);
        self.show(all);
        Ok(all)
    }

    fn show(&mut self, now: bool) {
        let at = clock::now();
        if !now && at.since(self.told) < Duration::from_millis(200) {
            return;
        }
        self.told = at;
        let whole = self.packed.len;
        let records = whole.map(|len| records_for(ByteCount(len)));
        // The number comes from the depot, so the product saturates.
        let done = ByteCount(self.safe.saturating_mul(RECORD as u64));
        let total = self.ticket.body.size.map(ByteCount);
        let done = if records == Some(self.safe) { total.unwrap_or(done) } else { done };
        let begun = ByteCount(self.begun.unwrap_or(0).saturating_mul(RECORD as u64));
        let elapsed = at.since(self.started);
        let rate = if elapsed > Duration::ZERO {
            DataRate::from_bytes_over(done.saturating_sub(begun), elapsed)
        } else {
            DataRate::ZERO
        };
        let left = total.map(|total| total.saturating_sub(done));
        self.reporter.progress(&ProgressSnapshot {
            bytes_done: done,
            bytes_total: total,
            rate,
            eta: left.filter(|_| rate > DataRate::ZERO).map(|left| rate.time_for(left)),
            transport: "depots".to_owned(),
            ..ProgressSnapshot::default()
        });
    }
}

/// The failure of a depot as a failure of the sender.
fn said(error: &DepotError) -> Failure {
    let mut failure = Failure::from(error);
    if failure.kind == FailureKind::SourceMissing {
        failure.kind = FailureKind::TargetMissing;
    }
    failure
}

/// How long to wait before this number of bytes may be sent.
fn pace(rate: Option<DataRate>, due: &mut Time, bytes: ByteCount) -> Duration {
    let Some(rate) = rate else { return Duration::ZERO };
    let now = clock::now();
    *due = (*due).max(now) + rate.time_for(bytes);
    due.since(now)
}

/// Waits for a new report of the depot, for a short time.
fn wait(heard: &Reports, safe: u64) {
    let mut state = heard.state.lock();
    if state.0 == safe && !state.1 && state.2.is_none() {
        let step = std::time::Duration::from_millis(100);
        heard.changed.wait_for(&mut state, step);
    }
}

/// Closes a connection and wakes the threads that wait for it.
struct Ends<'a>(&'a AtomicBool, &'a DepotConnection);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.close();
    }
}

/// Reads reports until everything is durable, or the connection fails and is closed for both.
fn listen(line: &mut DepotConnection, heard: &Reports, over: &AtomicBool) {
    loop {
        let said = line.frame();
        let mut state = heard.state.lock();
        match said {
            Ok(Frame::Have { records, all }) => (state.0, state.1) = (records, all),
            Ok(_) => {
                let text = "it sent an unexpected message".to_owned();
                state.2 = Some(DepotError::Unreachable(line.place.clone(), text));
            }
            Err(_) if over.load(Ordering::Relaxed) => {}
            Err(error) => state.2 = Some(error),
        }
        heard.changed.notify_all();
        if state.1 || state.2.is_some() || over.load(Ordering::Relaxed) {
            // The sending thread would wait for a dead depot.
            if state.2.is_some() {
                line.close();
            }
            return;
        }
    }
}

impl Reports {
    /// The depot's last report is more specific than a broken connection.
    fn better(&self, error: DepotError) -> DepotError {
        let mut state = self.state.lock();
        if state.2.is_none() {
            self.changed.wait_for(&mut state, std::time::Duration::from_millis(500));
        }
        state.2.clone().unwrap_or(error)
    }
}

/// Why a connection did not complete the session.
enum Fault {
    Depot(DepotError),
    Over(Failure),
}

impl From<DepotError> for Fault {
    fn from(error: DepotError) -> Self {
        Self::Depot(error)
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::Over(failure)
    }
}

#[cfg(test)]
mod tests;
