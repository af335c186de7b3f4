//! `perf`: measurements from memory to memory over any transport, with options like those of
//! iperf3.

mod flows;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod tests;
mod timeouts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packtrain_net::tcp::tune::check_congestion;
use packtrain_os::clock;
use packtrain_transfer::message::{Message, Open, Options, Role};
use packtrain_transfer::{Failure, FailureKind, protocol};
use packtrain_units::{ByteCount, DataRate, Duration, Time};
use serde::{Deserialize, Serialize};

use flows::{Receiving, Sending};
use packtrain_runtime::control::{Control, Incoming};
use packtrain_runtime::handshake::{self, MeasureRequest, More, SessionRequest};
use packtrain_runtime::permissions::Permissions;
use packtrain_runtime::session::{Stop, only_own_signal};
use packtrain_runtime::transports::{Hints, MAX_STREAMS, Moved, TransportConfig};
use packtrain_runtime::tunnel;
use packtrain_service::ceilings::{Ceilings, HeldBy};
use packtrain_service::host::split_host;
use packtrain_service::{
    CpuUse, LossCause, Notice, NoticeLevel, PerfClientRequest, PerfInterval, PerfOutcome,
    PerfReporter, RequestError, TransportChoice, history,
};
use timeouts::{Timeouts, Watchdog};

/// How often the receiver reports its counts.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout for the flows to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for the last message of the other end.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The messages between the two ends of a test.
#[derive(Serialize, Deserialize)]
enum PerfMessage {
    /// The offers of the flows.
    Offers(Vec<Vec<u8>>),
    /// Receiver: useful bytes so far, and its processor time.
    Have { bytes: u64, user_ns: u64, system_ns: u64, last: bool },
    /// Sender: no more data follows.
    Over {
        retransmitted: u64,
        rtt_ns: Option<u64>,
        user_ns: u64,
        system_ns: u64,
        /// What limited its rate, according to the sender.
        held: Option<HeldBy>,
    },
}

impl PerfMessage {
    fn send(&self, control: &Control) {
        let bytes = postcard::to_stdvec(self).unwrap_or_default();
        control.tx.send(&Message::Channel(bytes));
    }
}

/// Parses and writes a message, for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn rewrite_message(bytes: &[u8]) -> Option<Vec<u8>> {
    let word: PerfMessage = postcard::from_bytes(bytes).ok()?;
    postcard::to_stdvec(&word).ok()
}

fn receive_message(incoming: Incoming) -> Result<Option<PerfMessage>, Failure> {
    match incoming {
        Incoming::Message(Message::Channel(bytes)) => postcard::from_bytes(&bytes)
            .map(Some)
            .map_err(|_| Failure::new(FailureKind::Protocol, "a malformed message")),
        Incoming::Message(Message::Cancel(failure) | Message::Refused(failure))
        | Incoming::Closed(failure) => Err(failure),
        Incoming::Message(_) => Ok(None),
    }
}

/// Duration, size and reporter of a test.
struct Test<'a> {
    duration: Duration,
    bytes: Option<u64>,
    timeouts: Timeouts,
    stop: Stop,
    tell: &'a mut dyn FnMut(TestState),
}

impl Test<'_> {
    fn watchdog(&self) -> Watchdog {
        let duration = self.bytes.is_none().then_some(self.duration);
        Watchdog::new(self.timeouts, clock::now(), duration)
    }
}

/// The number of flows or streams of a test where at most this many are allowed.
fn parallel(test: &MeasureRequest, most: Option<u32>) -> u32 {
    test.parallel.min(most.unwrap_or(MAX_STREAMS)).clamp(1, MAX_STREAMS)
}

/// The number of flows over UDP that the called end of this request has, under its own ceilings.
pub fn datagram_flows(ask: &SessionRequest, own: &Ceilings) -> u32 {
    match &ask.perf {
        Some(test) if ask.transport() != TransportChoice::Tcp => {
            parallel(test, own.and(&ask.ceilings).streams)
        }
        _ => 0,
    }
}

/// The state of a running test.
pub struct TestState {
    /// The time of this state.
    pub at: Time,
    /// Bytes moved so far.
    pub bytes: u64,
    /// Retransmitted bytes so far.
    pub retransmitted: u64,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Congestion window.
    pub cwnd: Option<ByteCount>,
    /// Estimated capacity of the path.
    pub capacity: Option<DataRate>,
    /// Arrival rate of the data.
    pub arrival_rate: Option<DataRate>,
}

/// The result of one end.
#[derive(Default)]
struct EndResult {
    bytes: u64,
    elapsed: Duration,
    retransmitted: u64,
    rtt: Option<Duration>,
    sender: CpuUse,
    receiver: CpuUse,
    /// Known only to the sending end.
    losses: LossCause,
    held: Option<HeldBy>,
}

/// Runs the sending end of a test.
fn send(
    control: &Control,
    plan: &TransportConfig,
    parallel: u32,
    test: Test<'_>,
) -> Result<EndResult, Failure> {
    let mut sending = Sending::new(plan, parallel, test.bytes)?;
    PerfMessage::Offers(sending.offers()).send(control);
    let begin_cpu = CpuUse::now();
    let mut watchdog = test.watchdog();
    let (mut connecting, mut begun, mut ended): (Option<Time>, Option<Time>, Option<Time>) =
        (None, None, None);
    let mut sum = EndResult::default();
    loop {
        let wait = std::time::Duration::from_millis(10);
        let heard = control.rx.recv_timeout(wait);
        if heard.is_ok() {
            watchdog.on_message(clock::now());
        }
        match heard.map(receive_message) {
            // Each offer makes this end connect.
            Ok(Ok(Some(PerfMessage::Offers(_)))) if connecting.is_some() => {
                return Err(protocol("it offers its flows again"));
            }
            Ok(Ok(Some(PerfMessage::Offers(offers)))) => {
                sending.start(&offers)?;
                connecting = Some(clock::now());
            }
            Ok(Ok(Some(PerfMessage::Have { bytes, user_ns, system_ns, last }))) => {
                sum.bytes = bytes;
                sum.receiver = CpuUse {
                    user: Duration::from_nanos(user_ns),
                    system: Duration::from_nanos(system_ns),
                };
                let (retransmitted, rtt, cwnd) = sending.state();
                let (capacity, arrival_rate) = sending.estimates();
                let at = clock::now();
                let now = TestState { at, bytes, retransmitted, rtt, cwnd, capacity, arrival_rate };
                (test.tell)(now);
                if last {
                    break;
                }
            }
            Ok(Ok(_)) => {}
            Ok(Err(failure)) => return Err(failure),
            Err(_) => {}
        }
        let now = clock::now();
        if let Some(failure) =
            sending.failed().or_else(|| watchdog.check(now, sum.bytes, &control.tx))
        {
            control.tx.send(&Message::Cancel(failure.clone()));
            return Err(failure);
        }
        // Later the test is closed in order.
        if begun.is_none()
            && let Some(failure) = test.stop.asked()
        {
            control.tx.send(&Message::Cancel(failure.clone()));
            return Err(failure);
        }
        if let (Some(since), None) = (connecting, ended) {
            if !sending.established() {
                if now.since(since) > CONNECT_TIMEOUT {
                    return Err(Failure::new(FailureKind::Temporary, sending.missing()));
                }
                continue;
            }
            // The time of the test starts when data can flow.
            let start = *begun.get_or_insert(now);
            let enough = match test.bytes {
                Some(bytes) => sum.bytes >= bytes,
                None => now.since(start) >= test.duration,
            };
            if enough || test.stop.asked().is_some() {
                sum.elapsed = now.since(start);
                let (retransmitted, rtt, _) = sending.state();
                (sum.retransmitted, sum.rtt, sum.sender) =
                    (retransmitted, rtt, CpuUse::since(begin_cpu));
                (sum.losses, sum.held) = (sending.losses(), sending.held());
                sending.close();
                PerfMessage::Over {
                    retransmitted,
                    rtt_ns: rtt.map(Duration::as_nanos),
                    user_ns: sum.sender.user.as_nanos(),
                    system_ns: sum.sender.system.as_nanos(),
                    held: sum.held,
                }
                .send(control);
                ended = Some(now);
            }
        }
        if ended.is_some_and(|at| now.since(at) > LAST_MESSAGE_TIMEOUT) {
            return Err(Failure::new(
                FailureKind::Temporary,
                "the receiver's last message is missing",
            ));
        }
    }
    Ok(sum)
}

/// Runs the receiving end of a test.
fn receive(
    control: &Control,
    plan: &TransportConfig,
    parallel: u32,
    test: Test<'_>,
) -> Result<EndResult, Failure> {
    let bytes = Arc::new(AtomicU64::new(0));
    let mut receiving = Receiving::new(plan, parallel, Arc::clone(&bytes))?;
    PerfMessage::Offers(receiving.offers()).send(control);
    let begin_cpu = CpuUse::now();
    let mut watchdog = test.watchdog();
    let (mut first, mut told): (Option<Time>, Time) = (None, clock::now());
    let mut started = false;
    let mut sum = EndResult::default();
    loop {
        let wait = std::time::Duration::from_millis(10);
        let heard = control.rx.recv_timeout(wait);
        let now = clock::now();
        let word = match heard {
            Ok(heard) => {
                watchdog.on_message(now);
                receive_message(heard)?
            }
            Err(_) => None,
        };
        let have = bytes.load(Ordering::Relaxed);
        if have > 0 && first.is_none() {
            first = Some(now);
        }
        let report = |last: bool| {
            let used = CpuUse::since(begin_cpu);
            let (user_ns, system_ns) = (used.user.as_nanos(), used.system.as_nanos());
            PerfMessage::Have { bytes: have, user_ns, system_ns, last }.send(control);
        };
        match word {
            Some(PerfMessage::Offers(_)) if started => {
                return Err(protocol("it offers its flows again"));
            }
            Some(PerfMessage::Offers(offers)) => {
                receiving.start(&offers)?;
                started = true;
            }
            Some(PerfMessage::Over { retransmitted, rtt_ns, user_ns, system_ns, held }) => {
                sum.held = held.map(HeldBy::seen_from_peer).or(receiving.held());
                sum.bytes = have;
                sum.elapsed = first.map_or(Duration::ZERO, |first| now.since(first));
                sum.retransmitted = retransmitted;
                sum.rtt = rtt_ns.map(Duration::from_nanos);
                sum.sender = CpuUse {
                    user: Duration::from_nanos(user_ns),
                    system: Duration::from_nanos(system_ns),
                };
                sum.receiver = CpuUse::since(begin_cpu);
                report(true);
                receiving.close();
                return Ok(sum);
            }
            _ => {}
        }
        if now.since(told) >= REPORT_INTERVAL {
            told = now;
            report(false);
            (test.tell)(TestState {
                at: now,
                bytes: have,
                retransmitted: 0,
                rtt: None,
                cwnd: None,
                capacity: None,
                arrival_rate: None,
            });
        }
        let failure = test.stop.asked().or_else(|| watchdog.check(now, have, &control.tx));
        if let Some(failure) = failure {
            control.tx.send(&Message::Cancel(failure.clone()));
            return Err(failure);
        }
    }
}

/// Runs the called end of a test.
pub fn called(
    control: Control,
    plan: TransportConfig,
    role: Role,
    (ask, most): (&MeasureRequest, Option<u32>),
    stop: Stop,
) -> Result<Moved, Failure> {
    called_within(Timeouts::default(), control, plan, role, (ask, most), stop)
}

fn called_within(
    timeouts: Timeouts,
    control: Control,
    plan: TransportConfig,
    role: Role,
    (ask, most): (&MeasureRequest, Option<u32>),
    stop: Stop,
) -> Result<Moved, Failure> {
    let parallel = parallel(ask, most);
    let asked = Duration::from_millis(ask.millis);
    let duration = match role {
        Role::Source => asked.min(Duration::from_secs(86_400)),
        Role::Sink => asked,
    };
    let test = Test { duration, bytes: ask.bytes, timeouts, stop, tell: &mut |_| {} };
    let result = match role {
        Role::Sink => receive(&control, &plan, parallel, test),
        Role::Source => send(&control, &plan, parallel, test),
    };
    control.tx.close();
    result.map(|sum| Moved {
        shares: vec![(plan.choice.name().to_owned(), ByteCount(sum.bytes))],
        retransmitted: ByteCount(sum.retransmitted),
        rtt: sum.rtt,
        held: sum.held,
        ..Moved::default()
    })
}

/// Runs a test against a server.
///
/// # Errors
/// The test could not start; later failures are in the outcome.
pub fn client(
    request: PerfClientRequest,
    reporter: &dyn PerfReporter,
) -> Result<PerfOutcome, RequestError> {
    measured(request, reporter, measure)
}

/// Runs a test with `measure`, and adds its row to the history.
pub fn measured(
    request: PerfClientRequest,
    reporter: &dyn PerfReporter,
    measure: impl FnOnce(PerfClientRequest, &dyn PerfReporter) -> Result<PerfOutcome, RequestError>,
) -> Result<PerfOutcome, RequestError> {
    let keep = request.history.clone();
    let watched = history::PerfClientRecorder::new(reporter, &request);
    let stop = request.stop.clone();
    let mut result = measure(request, &watched);
    match &mut result {
        Ok(outcome) => {
            if let Some(failure) = &mut outcome.failure {
                only_own_signal(&mut failure.kind, &stop);
            }
        }
        Err(error) => only_own_signal(&mut error.kind, &stop),
    }
    watched.finish(&keep, &result);
    result
}

fn measure(
    request: PerfClientRequest,
    reporter: &dyn PerfReporter,
) -> Result<PerfOutcome, RequestError> {
    let usage = |text: &str| RequestError::new(FailureKind::Usage, text);
    let choice = match request.transport {
        TransportChoice::Auto | TransportChoice::Native => TransportChoice::Native,
        TransportChoice::Udt => TransportChoice::Udt,
        choice @ (TransportChoice::Fobs | TransportChoice::Sabul | TransportChoice::Tcp) => choice,
        TransportChoice::Udt4 => return Err(usage("the stock wire has a client of its own")),
        TransportChoice::Pipe => {
            return Err(usage(
                "perf measures native, udt, fobs, sabul, tcp or udt4: the pipe is the control \
                 connection",
            ));
        }
    };
    let (host, port) = split_host(&request.server)
        .ok_or_else(|| usage("the server is to be written HOST:PORT"))?;
    packtrain_runtime::transports::udp::check_controller(choice, request.cc.as_deref())?;
    if let Some(name) = request.tcp_cc.as_deref().filter(|_| !request.reverse) {
        check_congestion(name).map_err(|e| usage(&e.to_string()))?;
    }
    let trust =
        tunnel::Trust { ticket: request.ticket.clone(), accept_new_host: request.accept_new_host };
    let tunnel = tunnel::open(&host, port, &trust, None, &request.stop, &|n| reporter.notice(&n))?;
    let limits = Permissions::by_policy()?;
    let parallel = request.parallel.max(1);
    let ask = SessionRequest {
        perf: Some(MeasureRequest {
            parallel,
            millis: request.duration.as_millis(),
            bytes: request.bytes.map(ByteCount::get),
        }),
        sources: 0,
        choice: handshake::number(choice),
        cc: request.cc.clone(),
        streams: 1,
        background: false,
        ports: None,
        ticket: tunnel.token,
        peer: Vec::new(),
        ceilings: limits.ceilings.clone(),
        more: More {
            tcp_cc: request.tcp_cc.clone(),
            tcp_buffer: request.tcp_buffer.map(ByteCount::get),
        },
        path: handshake::PathRequest::default(),
        run: handshake::RunRequest::default(),
        options: Default::default(),
        query: None,
    };
    let rate_bps = request.rate.map(packtrain_units::DataRate::as_bps);
    let open = Open {
        role: if request.reverse { Role::Source } else { Role::Sink },
        paths: Vec::new(),
        sources: None,
        options: Options { rate_bps, ..Options::default() },
        channel: ask.encode(),
    };
    let stop = Stop::new(request.stop.clone());
    let peer = handshake::call(&tunnel.control, open, &stop)?;
    if let Some(text) = peer.notice(&limits.ceilings, rate_bps, Some(parallel)) {
        reporter.notice(&Notice::new(NoticeLevel::Info, text));
    }
    // The called end computes the same limit.
    let most = limits.ceilings.and(&peer).streams;
    let parallel = most.map_or(parallel, |most| parallel.min(most));
    let hints = Hints {
        peer: tunnel.peer.clone(),
        own: tunnel.local.into_iter().collect(),
        ..Hints::default()
    };
    let plan = ask.plan(hints, &limits, &peer, rate_bps);
    let mut intervals = Intervals::new(request.interval, reporter);
    let mut tell = |now: TestState| intervals.note(&now);
    let test = Test {
        duration: request.duration,
        bytes: request.bytes.map(ByteCount::get),
        timeouts: Timeouts::default(),
        stop,
        tell: &mut tell,
    };
    let result = if request.reverse {
        receive(&tunnel.control, &plan, parallel, test)
    } else {
        send(&tunnel.control, &plan, parallel, test)
    };
    tunnel.control.tx.close();
    Ok(match result {
        Ok(sum) => PerfOutcome {
            transport: choice.name().to_owned(),
            bytes: ByteCount(sum.bytes),
            elapsed: sum.elapsed,
            retransmitted: ByteCount(sum.retransmitted),
            rtt: sum.rtt,
            loss_cause: sum.losses,
            cpu_sender: Some(sum.sender),
            cpu_receiver: Some(sum.receiver),
            held_by: sum.held.map(|by| by.word().to_owned()),
            failure: None,
        },
        Err(failure) => PerfOutcome {
            transport: choice.name().to_owned(),
            failure: Some(failure),
            ..PerfOutcome::default()
        },
    })
}

/// Divides a test into the reported intervals.
pub struct Intervals<'a> {
    length: Duration,
    reporter: &'a dyn PerfReporter,
    begun: Option<Time>,
    last: (Time, u64, u64),
}

impl<'a> Intervals<'a> {
    /// Intervals of this length, reported to `reporter`.
    pub fn new(length: Duration, reporter: &'a dyn PerfReporter) -> Self {
        Self { length, reporter, begun: None, last: (Time::ZERO, 0, 0) }
    }

    /// Updates the figures, and reports the interval if it has ended.
    pub fn note(&mut self, now: &TestState) {
        let Some(begun) = self.begun else {
            if now.bytes > 0 {
                self.begun = Some(now.at);
                self.last = (now.at, now.bytes, now.retransmitted);
            }
            return;
        };
        let (at, bytes, retransmitted) = self.last;
        if now.at.since(at) < self.length {
            return;
        }
        self.reporter.interval(&PerfInterval {
            from: at.since(begun),
            to: now.at.since(begun),
            // The other end counts, and may count backwards.
            bytes: ByteCount(now.bytes.saturating_sub(bytes)),
            retransmitted: ByteCount(now.retransmitted.saturating_sub(retransmitted)),
            rtt: now.rtt,
            cwnd: now.cwnd,
            capacity: now.capacity,
            arrival_rate: now.arrival_rate,
        });
        self.last = (now.at, now.bytes, now.retransmitted);
    }
}
