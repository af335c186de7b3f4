//! Fetches records from depots. Records that the first depot lacks, or has damaged, come from the
//! others.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packtrain_os::{clock, entropy};
use packtrain_session::spool::{Frame, Opener, RECORD_TEXT, last_record, records_for};
use packtrain_session::{ClaimPurpose, Place};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, Duration, Time};

use super::depot_connection::{DepotConnection, DepotError};
use super::ticket::ClaimTicket;
use packtrain_runtime::pack::Stream;
use packtrain_service::{STOPPED, StopHandle};

/// Records requested at once: 16 MiB.
const MAX_REQUESTED: u32 = 64;
/// Records kept in memory: 32 MiB.
const MAX_KEPT: usize = 128;
/// The first and the longest pause before missing records are requested again. Each request costs
/// every depot a connection and a signature check.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(8));
/// Rounds over all depots without reaching any.
const ROUNDS: u32 = 3;

/// The stream of a session, as far as depots have it.
#[derive(Debug)]
pub(super) struct Fetch {
    ticket: ClaimTicket,
    order: Vec<Place>,
    /// How long to wait for missing records.
    wait: Duration,
    buffers: Option<ByteCount>,
    stop: StopHandle,
    state: Mutex<State>,
    said: Mutex<Vec<String>>,
    /// The wait for missing records was over.
    waited: AtomicBool,
}

#[derive(Debug)]
struct State {
    opener: Opener,
    /// Index of the current depot.
    at: usize,
    line: Option<Requests>,
    texts: BTreeMap<u64, Arc<Vec<u8>>>,
    used: VecDeque<u64>,
    /// The number of the last record, from the ticket or from the signature of that record.
    last: Option<u64>,
}

/// A connection and its unanswered requests.
#[derive(Debug)]
struct Requests {
    line: DepotConnection,
    questions: VecDeque<(u64, u64)>,
}

/// Why a depot does not deliver a record.
enum FetchError {
    Depot(DepotError),
    /// It does not have the record, or not yet.
    Lacks,
    /// It delivered something else.
    Damaged(String),
}

impl From<DepotError> for FetchError {
    fn from(error: DepotError) -> Self {
        Self::Depot(error)
    }
}

impl Fetch {
    pub(super) fn new(
        ticket: &ClaimTicket,
        at: Option<&Place>,
        wait: Duration,
        buffers: Option<ByteCount>,
        stop: StopHandle,
    ) -> Self {
        let last = ticket.body.size.and_then(|size| last_record(ByteCount(size)));
        let state = State {
            opener: ticket.opener(),
            at: 0,
            line: None,
            texts: BTreeMap::new(),
            used: VecDeque::new(),
            last: last.map(|(number, _)| number),
        };
        Self {
            ticket: ticket.clone(),
            order: ticket.plan.order(at),
            wait,
            buffers,
            stop,
            state: Mutex::new(state),
            said: Mutex::default(),
            waited: AtomicBool::new(false),
        }
    }

    /// Whether it ended because it had waited as long as it was asked to.
    pub(super) fn has_waited(&self) -> bool {
        self.waited.load(Ordering::Relaxed)
    }

    /// Whether the wait is over; if so, remembers it.
    fn is_late(&self, schedule: &RetrySchedule) -> bool {
        let late = schedule.is_over();
        self.waited.fetch_or(late, Ordering::Relaxed);
        late
    }

    fn push_notice(&self, text: String) {
        let mut said = self.said.lock();
        // A repeated message is dropped.
        if said.last() != Some(&text) {
            said.push(text);
        }
    }

    /// The plaintext of a record, from any depot.
    fn text(&self, number: u64) -> Result<Arc<Vec<u8>>, Failure> {
        let mut state = self.state.lock();
        let mut patience = RetrySchedule::new(self.wait);
        let (mut rounds, mut damaged) = (0, false);
        loop {
            if let Some(text) = state.texts.get(&number) {
                return Ok(Arc::clone(text));
            }
            let beyond = || Failure::new(FailureKind::Integrity, "the session ends too early");
            if state.last.is_some_and(|last| number > last) {
                return Err(beyond());
            }
            let failure = self.round(&mut state, number);
            let Err((failure, waits)) = failure else { continue };
            self.check_stop()?;
            // What was damaged on the way comes right at the second try.
            if failure.kind == FailureKind::Integrity && !std::mem::replace(&mut damaged, true) {
                continue;
            }
            rounds += u32::from(!waits);
            let late = waits && self.is_late(&patience);
            if failure.kind != FailureKind::Temporary || late || rounds >= ROUNDS {
                return Err(failure);
            }
            self.pause(patience.next())?;
        }
    }

    fn check_stop(&self) -> Result<(), Failure> {
        match self.stop.requested() {
            Some(_) => Err(Failure::new(FailureKind::Cancelled, STOPPED)),
            None => Ok(()),
        }
    }

    fn pause(&self, until: Time) -> Result<(), Failure> {
        while clock::now() < until {
            self.check_stop()?;
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Ok(())
    }

    /// Asks one depot after the other. Returns the failure, and whether waiting may help.
    fn round(&self, state: &mut State, number: u64) -> Result<(), (Failure, bool)> {
        let mut worst: Option<(Failure, bool)> = None;
        for _ in 0..self.order.len() {
            let place = self.order[state.at].clone();
            let miss = match self.ask(state, &place, number) {
                Ok(()) => return Ok(()),
                Err(miss) => miss,
            };
            state.line = None;
            state.at = (state.at + 1) % self.order.len();
            let (failure, waits) = match miss {
                FetchError::Depot(error) => {
                    self.push_notice(error.to_string());
                    let absent = Failure::from(&error);
                    (absent, error.wait().is_some())
                }
                FetchError::Lacks => {
                    let text = format!("record {number} of the session is not there yet");
                    (Failure::new(FailureKind::Temporary, text), true)
                }
                FetchError::Damaged(text) => {
                    let text = format!("the depot {place} gives something else: {text}");
                    self.push_notice(text.clone());
                    (Failure::new(FailureKind::Integrity, text), false)
                }
            };
            // A record that may still arrive takes precedence; then a depot that can be reached.
            let rank = |(failure, waits): &(Failure, bool)| match failure.kind {
                FailureKind::Temporary if *waits => 3,
                FailureKind::Temporary => 2,
                FailureKind::Integrity => 1,
                _ => 0,
            };
            let new = (failure, waits);
            if worst.as_ref().is_none_or(|old| rank(&new) > rank(old)) {
                worst = Some(new);
            }
        }
        let none = || (Failure::new(FailureKind::Usage, "the ticket names no depots"), false);
        Err(worst.unwrap_or_else(none))
    }

    /// Connects to a depot; also returns the total number of records, once the depot knows it.
    fn connect(&self, place: &Place) -> Result<(Requests, Option<u64>), DepotError> {
        let odd = |text: &str| DepotError::Unreachable(place.clone(), text.to_owned());
        let header = self.ticket.claim(place, ClaimPurpose::Read, entropy::bytes(), clock::wall());
        let hello = header.ok_or_else(|| odd("its name is too long"))?.write();
        let mut line = DepotConnection::open(place, &hello, self.buffers, &self.stop)?;
        match line.frame()? {
            Frame::Have { records, all } => {
                Ok((Requests { line, questions: VecDeque::new() }, all.then_some(records)))
            }
            _ => Err(odd("it sent an unexpected message")),
        }
    }

    /// Gets a record from a depot, and the records requested before it.
    fn ask(&self, state: &mut State, place: &Place, number: u64) -> Result<(), FetchError> {
        let asked = state.line.as_ref().is_some_and(|asked| {
            let mut open = asked.questions.iter();
            asked.questions.is_empty() || open.any(|(from, to)| (*from..*to).contains(&number))
        });
        if !asked {
            // The answers in flight are for other records.
            state.line = Some(self.connect(place)?.0);
        }
        loop {
            let State { line: Some(asked), .. } = state else { return Err(FetchError::Lacks) };
            asked.request_ahead(number, state.last)?;
            let frame = asked.line.frame()?;
            let Some(front) = asked.questions.front_mut() else { return Err(FetchError::Lacks) };
            match frame {
                Frame::Record { number: came, last, len } if came == front.0 => {
                    front.0 += 1;
                    if last || front.0 == front.1 {
                        asked.questions.pop_front();
                    }
                    let record = asked.line.record(len)?;
                    let opened = state.opener.open(came, last, record);
                    let text = opened.map_err(|error| FetchError::Damaged(error.to_string()))?;
                    if last {
                        state.last = Some(came);
                    }
                    state.keep(came, text);
                    if came == number {
                        return Ok(());
                    }
                    if last {
                        return Err(FetchError::Damaged("it ends too early".to_owned()));
                    }
                }
                Frame::Lack { .. } => return Err(FetchError::Lacks),
                _ => {
                    let text = "it sent an unexpected message".to_owned();
                    return Err(DepotError::Unreachable(place.clone(), text).into());
                }
            }
        }
    }

    /// Asks every depot to remove the session; returns the messages of those that did not.
    pub(super) fn release(&self) -> Vec<String> {
        let mut failed = Vec::new();
        for place in &self.order {
            let header =
                self.ticket.claim(place, ClaimPurpose::Release, entropy::bytes(), clock::wall());
            let Some(header) = header else { continue };
            match DepotConnection::open(place, &header.write(), None, &self.stop) {
                Ok(_) => {}
                Err(DepotError::Refused(_, refusal))
                    if refusal.reason == packtrain_session::Reason::Absent => {}
                Err(error) => failed.push(error.to_string()),
            }
        }
        failed
    }
}

/// How long to wait, and the pause before the next try.
struct RetrySchedule {
    until: Time,
    pause: Duration,
}

impl RetrySchedule {
    fn new(wait: Duration) -> Self {
        Self { until: clock::now() + wait, pause: RETRY_PAUSES.0 }
    }

    fn is_over(&self) -> bool {
        clock::now() >= self.until
    }

    /// When to try again; the pauses grow.
    fn next(&mut self) -> Time {
        let pause = self.pause;
        self.pause = (pause + pause).min(RETRY_PAUSES.1);
        let now = clock::now();
        // Not after the end of the wait, but with at least the first pause, since failures are
        // retried beyond it.
        (now + pause).min(self.until.max(now + RETRY_PAUSES.0))
    }
}

impl Requests {
    /// Requests records ahead, so that they arrive while earlier ones are read.
    fn request_ahead(&mut self, number: u64, last: Option<u64>) -> Result<(), DepotError> {
        let end = self.questions.back().map_or(number, |(_, to)| *to);
        let ahead = end.saturating_sub(number) >= u64::from(MAX_REQUESTED / 2);
        let over = last.is_some_and(|last| end > last);
        if ahead || over && end > number {
            return Ok(());
        }
        self.line.send(Frame::Get { from: end, count: MAX_REQUESTED }, &[])?;
        self.questions.push_back((end, end.saturating_add(MAX_REQUESTED.into())));
        Ok(())
    }
}

impl State {
    fn keep(&mut self, number: u64, text: Vec<u8>) {
        if self.used.len() >= MAX_KEPT
            && let Some(oldest) = self.used.pop_front()
        {
            self.texts.remove(&oldest);
        }
        if self.texts.insert(number, Arc::new(text)).is_none() {
            self.used.push_back(number);
        }
    }
}

impl Stream for Fetch {
    fn read(&self, at: u64, room: &mut [u8]) -> Result<(), Failure> {
        let (mut at, mut done) = (at, 0);
        while done < room.len() {
            let (number, skip) = (at / RECORD_TEXT as u64, (at % RECORD_TEXT as u64) as usize);
            let text = self.text(number)?;
            let short = || Failure::new(FailureKind::Integrity, "the session ends too early");
            let some = text.get(skip..).filter(|some| !some.is_empty()).ok_or_else(short)?;
            let now = some.len().min(room.len() - done);
            room[done..done + now].copy_from_slice(&some[..now]);
            done += now;
            at += now as u64;
        }
        Ok(())
    }

    fn size(&self) -> Result<u64, Failure> {
        // The size of a session of unknown length follows from its last record.
        let mut patience = RetrySchedule::new(self.wait);
        loop {
            let known = {
                let mut state = self.state.lock();
                if state.last.is_none() {
                    self.learn_end(&mut state)?;
                }
                state.last
            };
            if let Some(last) = known {
                let text = self.text(last)?.len() as u64;
                let wrong = || Failure::new(FailureKind::Integrity, "the session's end is wrong");
                let before = last.checked_mul(RECORD_TEXT as u64);
                let len = before.and_then(|before| before.checked_add(text)).ok_or_else(wrong)?;
                let fits = records_for(ByteCount(len)) == last + 1;
                return if fits { Ok(len) } else { Err(wrong()) };
            }
            if self.is_late(&patience) {
                let wait = self.wait.to_readable();
                let text = format!("the session is not complete after {wait} (--wait)");
                return Err(Failure::new(FailureKind::Temporary, text));
            }
            self.pause(patience.next())?;
        }
    }

    fn said(&self) -> Vec<String> {
        std::mem::take(&mut *self.said.lock())
    }
}

impl Fetch {
    /// Asks one depot after the other for the number of the last record. The answers are not
    /// signed. They only tell where to look for a record that its sender signed as the last one.
    fn learn_end(&self, state: &mut State) -> Result<(), Failure> {
        let (mut failed, mut answered) = (None, false);
        for (at, place) in self.order.iter().enumerate() {
            let (asked, records) = match self.connect(place) {
                Ok(connected) => connected,
                Err(error) => {
                    self.check_stop()?;
                    failed.get_or_insert(Failure::from(&error));
                    continue;
                }
            };
            answered = true;
            let Some(records) = records else { continue };
            (state.at, state.line) = (at, Some(asked));
            let shown = match records.checked_sub(1) {
                Some(last) => self.ask(state, place, last),
                None => Err(FetchError::Lacks),
            };
            if shown.is_ok() && state.last.is_some() {
                return Ok(());
            }
            state.line = None;
            self.push_notice(match shown {
                Err(FetchError::Depot(error)) => error.to_string(),
                Err(FetchError::Damaged(text)) => {
                    format!("the depot {place} gives something else: {text}")
                }
                Ok(()) | Err(FetchError::Lacks) => {
                    format!("the depot {place} names an end that is not the session's")
                }
            });
        }
        match failed {
            Some(failure) if !answered => Err(failure),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
