//! `perf --transport udt4`: bytes from memory to memory without control messages, so that stock
//! programs that only send or only receive can be the other end.
//!
//! A sending client only sends, and the acknowledged bytes count. A client that wants to receive
//! first sends a request: 16 bytes that no test pattern begins with, the duration, and the size.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use packtrain_net::limit::RateLimiter;
use packtrain_os::clock;
use packtrain_socket::{Error, Listener, Options, Perf, Socket};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::{FLOW_WINDOW, POLL_INTERVAL, address, failure, in_clear, lookup, options};
use packtrain_perf as perf;
use packtrain_perf::{Intervals, TestState};
use packtrain_runtime::permissions::Permissions;
use packtrain_service::ceilings::{RECEIVE_BURST, SEND_BURST};
use packtrain_service::executor::spawn;
use packtrain_service::host::split_host;
use packtrain_service::{
    CpuUse, Notice, NoticeLevel, PerfClientRequest, PerfOutcome, PerfReporter, PerfServerRequest,
    RequestError, STOPPED, StopHandle, history,
};

/// Maximum concurrent connections; further ones are closed.
const MAX_CLIENTS: usize = 64;
/// Bytes per send call.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes per read with a rate limit.
const LIMITED_READ_BYTES: usize = 64 << 10;
/// Timeout for the acknowledgement of the last bytes.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum duration that a client may request.
const MAX_TEST: Duration = Duration::from_secs(3_600);
/// Buffers of each end: twice the bandwidth-delay product of 1 Gbit/s and 200 ms, since only
/// throughput matters here.
const BUFFER: ByteCount = ByteCount(64 << 20);
/// The first bytes of a client's request to receive.
const MAGIC: &[u8; 16] = b"packtrain perf\0\x01";
/// Length of the request: the magic, milliseconds and bytes (zero: no limit), little-endian.
const REQUEST: usize = 32;

fn test_options(options: Options, linger: Duration) -> Options {
    Options {
        send_buffer: BUFFER,
        recv_buffer: BUFFER,
        flow_window: FLOW_WINDOW,
        linger,
        ..options
    }
}

/// When sending ends.
#[derive(Clone, Copy)]
struct Until {
    time: Option<Time>,
    bytes: Option<u64>,
}

/// Sends zeros until the end of the test or the request to stop; returns the number of bytes handed
/// over.
fn send(socket: &Socket, until: Until, over: &dyn Fn() -> bool) -> Result<u64, Error> {
    let block = vec![0; BLOCK_BYTES];
    let mut sent = 0;
    loop {
        let left = until.bytes.map_or(u64::MAX, |bytes| bytes - sent);
        let late = until.time.is_some_and(|time| clock::now() >= time);
        if left == 0 || late || over() {
            return Ok(sent);
        }
        match socket.send(&block[..BLOCK_BYTES.min(left.try_into().unwrap_or(BLOCK_BYTES))]) {
            Ok(n) => sent += n as u64,
            Err(Error::TimedOut) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Receives until the peer closes.
///
/// A slower reader closes the advertised window, so the peer sends slower.
fn take(
    socket: &Socket,
    taken: &AtomicU64,
    limiter: Option<&RateLimiter>,
    over: &dyn Fn() -> bool,
) -> Result<(), Error> {
    let most = if limiter.is_some() { LIMITED_READ_BYTES } else { usize::MAX };
    while !over() {
        match socket.skip(most) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                taken.fetch_add(n as u64, Ordering::Relaxed);
                let due = limiter.map(|limiter| limiter.charge(ByteCount(n as u64)));
                while due.is_some_and(|due| due > clock::now()) && !over() {
                    let left = due.map_or(Duration::ZERO, |due| due.since(clock::now()));
                    std::thread::sleep(left.min(POLL_INTERVAL).to_std());
                }
            }
            Err(Error::TimedOut) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Acknowledged payload bytes. The other bytes that were handed over are in the buffer.
fn acknowledged(socket: &Socket) -> u64 {
    socket.acknowledged().get()
}

/// The totals of all connections of a test.
fn together(all: &[Perf]) -> (u64, Option<Duration>, Option<ByteCount>) {
    let payload = |perf: &Perf| perf.sent_bytes.get() / perf.sent_packets.max(1);
    let again = all.iter().map(|p| p.retransmitted_packets * payload(p)).sum();
    let rtt = all.iter().map(|p| p.rtt).filter(|rtt| !rtt.is_zero()).min();
    let cwnd = all.iter().map(|p| p.congestion_window * payload(p)).sum();
    (again, rtt, Some(ByteCount(cwnd)).filter(|cwnd| cwnd.get() > 0))
}

/// Runs a test against a packtrain server, or any program that receives or sends over UDT.
///
/// # Errors
/// The test could not start; later failures are in the outcome.
pub fn client(
    request: PerfClientRequest,
    reporter: &dyn PerfReporter,
) -> Result<PerfOutcome, RequestError> {
    perf::measured(request, reporter, |request, reporter| measure(&request, reporter))
}

fn measure(
    request: &PerfClientRequest,
    reporter: &dyn PerfReporter,
) -> Result<PerfOutcome, RequestError> {
    let usage = |text: &str| RequestError::new(FailureKind::Usage, text);
    let (host, port) = split_host(&request.server)
        .ok_or_else(|| usage("the server is to be written HOST:PORT"))?;
    reporter.notice(&in_clear());
    let address = lookup(&host, port)?;
    let linger = if request.bytes.is_some() { LAST_MESSAGE_TIMEOUT } else { Duration::ZERO };
    // The rate limit applies to all connections together.
    let parallel = request.parallel.max(1);
    let share = request.rate.map(|rate| DataRate::from_bps(rate.as_bps() / u64::from(parallel)));
    let options = test_options(options(request.cc.as_ref(), share), linger);
    let mut sockets = Vec::new();
    for _ in 0..parallel {
        let socket = Socket::connect(address, &options).map_err(|e| failure(&address, &e))?;
        socket.set_recv_timeout(Some(POLL_INTERVAL));
        socket.set_send_timeout(Some(POLL_INTERVAL));
        sockets.push(Arc::new(socket));
    }
    let mut intervals = Intervals::new(request.interval, reporter);
    let begin_cpu = CpuUse::now();
    let mut outcome = if request.reverse {
        fetch(&sockets, request, &mut intervals)
    } else {
        push(&sockets, request, &mut intervals)
    };
    outcome.transport = "udt4".to_owned();
    let mine = Some(CpuUse::since(begin_cpu));
    match request.reverse {
        true => outcome.cpu_receiver = mine,
        false => outcome.cpu_sender = mine,
    }
    Ok(outcome)
}

/// Runs `work` for each connection in a thread of its own until all have returned, and reports the
/// intervals meanwhile. Sets the flag that `work` receives when the user stops the test or `late`
/// says so. `bytes` counts what was moved so far.
fn test(
    sockets: &[Arc<Socket>],
    request: &PerfClientRequest,
    intervals: &mut Intervals<'_>,
    bytes: &dyn Fn() -> u64,
    late: &dyn Fn() -> bool,
    work: impl Fn(u64, &Socket, &AtomicBool) -> Result<(), Error> + Sync,
) -> PerfOutcome {
    let begun = clock::now();
    let over = AtomicBool::new(false);
    let running = AtomicUsize::new(sockets.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(sockets)
            .map(|(i, socket)| {
                let (over, running, work) = (&over, &running, &work);
                scope.spawn(move || {
                    let ended = work(i, socket, over);
                    running.fetch_sub(1, Ordering::AcqRel);
                    ended
                })
            })
            .collect();
        let (retransmitted, rtt) = loop {
            let all: Vec<Perf> = sockets.iter().map(|s| s.stats()).collect();
            let (retransmitted, rtt, cwnd) = together(&all);
            intervals.note(&TestState {
                at: clock::now(),
                bytes: bytes(),
                retransmitted,
                rtt,
                cwnd,
                capacity: None,
                arrival_rate: None,
            });
            if running.load(Ordering::Acquire) == 0 {
                break (retransmitted, rtt);
            }
            over.fetch_or(late() || request.stop.requested().is_some(), Ordering::Relaxed);
            std::thread::sleep((POLL_INTERVAL / 10).to_std());
        };
        let (bytes, elapsed) = (ByteCount(bytes()), clock::now().since(begun));
        // Data in flight no longer counts, but the peer is informed of the end.
        sockets.iter().for_each(|s| drop(s.close()));
        let ends = threads.into_iter().filter_map(|t| t.join().ok());
        let failures: Vec<Error> = ends.filter_map(Result::err).collect();
        PerfOutcome {
            bytes,
            elapsed,
            retransmitted: ByteCount(retransmitted),
            rtt,
            failure: ended(request, failures.first()),
            ..PerfOutcome::default()
        }
    })
}

/// The part of connection `i` of the bytes that were asked for, if any were.
fn share(sockets: &[Arc<Socket>], request: &PerfClientRequest, i: u64) -> Option<u64> {
    let count = sockets.len() as u64;
    request.bytes.map(|b| b.get() / count + u64::from(i < b.get() % count))
}

fn push(
    sockets: &[Arc<Socket>],
    request: &PerfClientRequest,
    intervals: &mut Intervals<'_>,
) -> PerfOutcome {
    let time = request.bytes.is_none().then(|| clock::now() + request.duration);
    let bytes = || sockets.iter().map(|s| acknowledged(s)).sum::<u64>();
    test(sockets, request, intervals, &bytes, &|| false, |i, socket, over| {
        let until = Until { time, bytes: share(sockets, request, i) };
        send(socket, until, &|| over.load(Ordering::Relaxed))?;
        // With a number of bytes the test ends when they have arrived.
        if until.bytes.is_some() { socket.close() } else { Ok(()) }
    })
}

pub(crate) fn fetch(
    sockets: &[Arc<Socket>],
    request: &PerfClientRequest,
    intervals: &mut Intervals<'_>,
) -> PerfOutcome {
    let limiter = request.rate.map(|rate| RateLimiter::new(rate, SEND_BURST));
    let taken = AtomicU64::new(0);
    // The server ends the test; the slack covers the difference of the clocks.
    let last = clock::now() + request.duration + Duration::from_secs(5);
    let late = || request.bytes.is_none() && clock::now() >= last;
    let bytes = || taken.load(Ordering::Relaxed);
    let outcome = test(sockets, request, intervals, &bytes, &late, |i, socket, over| {
        let millis = request.bytes.map_or(request.duration.as_millis(), |_| 0);
        let mut words = MAGIC.to_vec();
        words.extend_from_slice(&millis.to_le_bytes());
        words.extend_from_slice(&share(sockets, request, i).unwrap_or(0).to_le_bytes());
        socket.send_all(&words)?;
        take(socket, &taken, limiter.as_ref(), &|| over.load(Ordering::Relaxed))
    });
    // What the server sent again is not known here.
    PerfOutcome { retransmitted: ByteCount::ZERO, ..outcome }
}

fn ended(request: &PerfClientRequest, error: Option<&Error>) -> Option<Failure> {
    if request.stop.requested().is_some() {
        return Some(Failure::new(FailureKind::Cancelled, STOPPED));
    }
    error.map(|e| failure(&request.server, e))
}

/// Receives and sends until the request to stop, or until this number of connections was served.
///
/// # Errors
/// The server cannot listen.
pub fn server(
    request: &PerfServerRequest,
    reporter: &dyn PerfReporter,
) -> Result<(), RequestError> {
    let reporter = &history::PerfServerRecorder::new(reporter, &request.history);
    reporter.notice(&in_clear());
    let at = address(&request.listen)?;
    // The site's ceiling applies to each connection, since the server cannot tell which connections
    // belong to one test.
    let rate = Permissions::by_policy()?.ceilings.rate_bps.map(DataRate::from_bps);
    let options = test_options(options(request.cc.as_ref(), rate), LAST_MESSAGE_TIMEOUT);
    let listener = Listener::bind(at, &options).map_err(|e| failure(&at, &e))?;
    listener.set_timeout(Some(POLL_INTERVAL));
    reporter.listening(listener.local_addr(), None);
    let (tell, told) = crossbeam_channel::unbounded::<(String, PerfOutcome)>();
    let (mut active, mut served) = (0, 0);
    while request.stop.requested().is_none() {
        for (peer, outcome) in told.try_iter() {
            (active, served) = (active - 1, served + 1);
            reporter.finished(&peer, &outcome);
        }
        if active == 0 && request.tests.is_some_and(|tests| served >= tests) {
            break;
        }
        let (socket, peer) = match listener.accept() {
            Ok(found) => found,
            Err(Error::TimedOut) => continue,
            Err(e) => return Err(failure(&at, &e).into()),
        };
        if active >= MAX_CLIENTS {
            let text = format!("{peer}: turned away, {MAX_CLIENTS} connections are being tested");
            reporter.notice(&Notice::new(NoticeLevel::Warning, text));
            continue;
        }
        active += 1;
        let (stop, tell) = (request.stop.clone(), tell.clone());
        spawn("pt-udt4", move || {
            let outcome = one(&socket, rate, &stop);
            drop(socket);
            let _ = tell.send((peer.to_string(), outcome));
        });
    }
    Ok(())
}

/// Serves one connection of a client.
fn one(socket: &Socket, rate: Option<DataRate>, stop: &StopHandle) -> PerfOutcome {
    let limiter = rate.map(|rate| RateLimiter::new(rate, RECEIVE_BURST));
    socket.set_recv_timeout(Some(POLL_INTERVAL));
    socket.set_send_timeout(Some(POLL_INTERVAL));
    let begin_cpu = CpuUse::now();
    let over = || stop.requested().is_some();
    let taken = AtomicU64::new(0);
    let mut head = Vec::new();
    let mut first = clock::now();
    let mut sends = false;
    let result = opening(socket, &mut head, &over).and_then(|reverse| {
        first = clock::now();
        taken.store(head.len() as u64, Ordering::Relaxed);
        match reverse {
            None => take(socket, &taken, limiter.as_ref(), &over),
            Some((time, bytes)) => {
                sends = true;
                taken.store(0, Ordering::Relaxed);
                let time = if time.is_zero() { MAX_TEST } else { time.min(MAX_TEST) };
                let time = Some(first + time);
                let until = Until { time, bytes: (bytes > 0).then_some(bytes) };
                let gone = send(socket, until, &over)?;
                socket.close()?;
                taken.store(gone, Ordering::Relaxed);
                Ok(())
            }
        }
    });
    let (retransmitted, rtt, _) = together(&[socket.stats()]);
    PerfOutcome {
        transport: "udt4".to_owned(),
        bytes: ByteCount(taken.load(Ordering::Relaxed)),
        elapsed: clock::now().since(first),
        retransmitted: ByteCount(retransmitted),
        rtt,
        cpu_sender: sends.then(|| CpuUse::since(begin_cpu)),
        cpu_receiver: (!sends).then(|| CpuUse::since(begin_cpu)),
        failure: result.err().map(|e| failure(&"the connection", &e)),
        ..PerfOutcome::default()
    }
}

/// Reads the first bytes of a client; returns duration and size if they are a request to receive.
fn opening(
    socket: &Socket,
    head: &mut Vec<u8>,
    over: &dyn Fn() -> bool,
) -> Result<Option<(Duration, u64)>, Error> {
    let mut bytes = [0; REQUEST];
    while head.len() < REQUEST && !over() {
        match socket.recv(&mut bytes[head.len()..]) {
            Ok(0) => return Ok(None),
            Ok(n) => head.extend_from_slice(&bytes[head.len()..head.len() + n]),
            Err(Error::TimedOut) => continue,
            Err(e) => return Err(e),
        }
        let begin = head.len().min(MAGIC.len());
        if head[..begin] != MAGIC[..begin] {
            return Ok(None);
        }
    }
    let word = |at: usize| {
        let eight = head.get(at..at + 8).and_then(|b| b.try_into().ok()).unwrap_or([0; 8]);
        u64::from_le_bytes(eight)
    };
    let time = Duration::from_millis(word(16).min(MAX_TEST.as_millis()));
    let (time, bytes) = (time, word(24));
    // One of the two limits must end the test.
    Ok(Some(if time.is_zero() && bytes == 0 { (MAX_TEST, 0) } else { (time, bytes) }))
}
