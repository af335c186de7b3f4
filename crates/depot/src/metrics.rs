//! The counters of a depot, and the Prometheus endpoint.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use packtrain_net::tcp::tune;
use packtrain_session::Reason;
use packtrain_units::{ByteCount, DataRate, Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::spool::SpoolStats;

/// The counters of a depot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DepotStats {
    /// Running sessions.
    pub sessions: u32,
    /// Sessions admitted so far.
    pub accepted: u64,
    /// Refusals so far, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Connections without a valid header within the time limit.
    pub unauthenticated: u64,
    /// Bytes relayed towards destinations, and back.
    pub bytes: (ByteCount, ByteCount),
    /// Bytes per second recently, in both directions.
    pub rate: DataRate,
    /// Bytes in the memory of this process, now and at most.
    pub held: (ByteCount, ByteCount),
    /// The machine's load per core.
    pub load: f64,
    /// Counters of kept sessions, with `--spool`.
    pub spool: Option<SpoolStats>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: AtomicU64,
    pub(super) unauthenticated: AtomicU64,
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counters {
    pub(super) fn refused(&self, reason: Reason) {
        let mut refused = self.refused.lock();
        *refused.entry(reason.word()).or_default() += 1;
    }

    /// The counters; the caller adds the other fields.
    pub(super) fn stats(&self) -> DepotStats {
        let read = |one: &AtomicU64| one.load(Ordering::Relaxed);
        DepotStats {
            accepted: read(&self.accepted),
            refused: self.refused.lock().clone(),
            unauthenticated: read(&self.unauthenticated),
            bytes: (ByteCount(read(&self.up)), ByteCount(read(&self.down))),
            ..DepotStats::default()
        }
    }
}

/// The load average of the last minute per core; zero if unknown.
pub(super) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = text.split(' ').next().and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
    load / std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

/// Divisor of the kernel's TCP memory for the depot's connections. Their other ends may be on this
/// machine too.
const TCP_MEMORY_DIVISOR: u64 = 4;
/// Default if the kernel's limit is unknown.
const DEFAULT_SOCKET_MEMORY: ByteCount = ByteCount(64 << 20);

/// The memory that the kernel may use for the depot's connections.
pub(super) fn socket_memory() -> ByteCount {
    tune::pressure()
        .map_or(DEFAULT_SOCKET_MEMORY, |bytes| ByteCount(bytes.get() / TCP_MEMORY_DIVISOR))
        .max(DEFAULT_SOCKET_MEMORY)
}

/// Timeout for a client's request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for sending the response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a request, in bytes.
const MAX_REQUEST: usize = 4096;
/// Maximum concurrent connections. A further connection closes the oldest, so that silent clients
/// do not block a scraper.
const MAX_CONNECTIONS: usize = 32;

/// Answers every request with the counters in Prometheus' text format 0.0.4.
pub(super) async fn answer(
    listener: TcpListener,
    stats: impl Fn() -> DepotStats + Clone + Send + 'static,
) {
    // Dropped when the depot ends, which closes every connection.
    let mut connections = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        oldest_first.retain(|connection| !connection.is_finished());
        if oldest_first.len() >= MAX_CONNECTIONS
            && let Some(oldest) = oldest_first.pop_front()
        {
            oldest.abort();
        }
        let stats = stats.clone();
        oldest_first.push_back(connections.spawn(async move {
            let _ = reply(socket, stats).await;
        }));
    }
}

async fn reply(mut socket: TcpStream, stats: impl Fn() -> DepotStats) -> std::io::Result<()> {
    tokio::time::timeout(REQUEST_TIMEOUT.to_std(), read_request(&mut socket)).await??;
    let body = prometheus(&stats());
    let text = format!(
        "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let written = async {
        socket.write_all(text.as_bytes()).await?;
        socket.shutdown().await
    };
    tokio::time::timeout(RESPONSE_TIMEOUT.to_std(), written).await?
}

/// Reads until the empty line.
async fn read_request(socket: &mut TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") && !request.ends_with(b"\n\n") {
        if request.len() >= MAX_REQUEST || socket.read_buf(&mut request).await? == 0 {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
    }
    Ok(())
}

/// Whether an address is local; the endpoint is only available on this machine.
pub(super) fn is_local(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn prometheus(stats: &DepotStats) -> String {
    let mut out = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, rows: &[(String, f64)]| {
        let _ = writeln!(out, "# HELP packtrain_depot_{name} {help}");
        let _ = writeln!(out, "# TYPE packtrain_depot_{name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(out, "packtrain_depot_{name}{labels} {value}");
        }
    };
    let one = |value: f64| [(String::new(), value)];
    let bytes = |count: ByteCount| count.get() as f64;
    metric("sessions", "gauge", "Running sessions.", &one(f64::from(stats.sessions)));
    metric("accepted_total", "counter", "Sessions admitted.", &one(stats.accepted as f64));
    let refused: Vec<(String, f64)> = stats
        .refused
        .iter()
        .map(|(reason, count)| (format!("{{reason=\"{reason}\"}}"), *count as f64))
        .collect();
    metric("refused_total", "counter", "Sessions refused.", &refused);
    metric(
        "strangers_total",
        "counter",
        "Connections without a valid header.",
        &one(stats.unauthenticated as f64),
    );
    let ways = [("there", stats.bytes.0), ("back", stats.bytes.1)]
        .map(|(way, count)| (format!("{{way=\"{way}\"}}"), bytes(count)));
    metric("bytes_total", "counter", "Bytes relayed.", &ways);
    metric("held_bytes", "gauge", "Bytes in memory.", &one(bytes(stats.held.0)));
    metric("held_bytes_max", "gauge", "Maximum bytes in memory.", &one(bytes(stats.held.1)));
    metric("load_per_core", "gauge", "The machine's load per core.", &one(stats.load));
    let Some(spool) = &stats.spool else { return out };
    metric("spool_sessions", "gauge", "Sessions kept.", &one(spool.sessions as f64));
    metric("spool_bytes", "gauge", "Bytes kept.", &one(bytes(spool.bytes)));
    metric("spool_reserved_bytes", "gauge", "Bytes reserved.", &one(bytes(spool.reserved)));
    metric("spool_claimed_bytes_total", "counter", "Bytes claimed.", &one(bytes(spool.claimed)));
    let ends = [
        ("deposited", spool.deposited),
        ("forwarded", spool.forwarded),
        ("expired", spool.expired),
        ("released", spool.released),
        ("refused", spool.refused),
        ("dropped", spool.dropped),
    ];
    let ends = ends.map(|(what, count)| (format!("{{what=\"{what}\"}}"), count as f64));
    metric("spool_total", "counter", "Kept sessions by outcome.", &ends);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If connections were served one after the other, the scraper would wait for the timeout of
    /// each silent connection, and its own timeout would close the newest.
    #[tokio::test]
    async fn silent_connections_do_not_keep_a_scraper_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let at = listener.local_addr().expect("an address");
        let serving = tokio::spawn(answer(listener, DepotStats::default));
        let mut silent = Vec::new();
        for _ in 0..3 * MAX_CONNECTIONS {
            silent.push(TcpStream::connect(at).await.expect("a connection"));
        }
        let mut scraper = TcpStream::connect(at).await.expect("a connection");
        scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.expect("room");
        let mut text = String::new();
        scraper.read_to_string(&mut text).await.expect("an answer");
        assert!(text.contains("packtrain_depot_sessions 0"), "{text}");
        // The oldest connection was closed, the newest is still open.
        let mut said = [0];
        assert_eq!(silent[0].read(&mut said).await.unwrap_or(0), 0);
        let mut newest = silent.pop().expect("some");
        newest.write_all(b"GET / HTTP/1.0\n\n").await.expect("room");
        text.clear();
        newest.read_to_string(&mut text).await.expect("an answer");
        assert!(text.starts_with("HTTP/1.0 200 OK"), "{text}");
        serving.abort();
    }

    #[test]
    fn figures_are_in_prometheus_format() {
        let counters = Counters::default();
        counters.refused(Reason::Busy);
        counters.refused(Reason::Busy);
        counters.up.store(5, Ordering::Relaxed);
        let text = prometheus(&DepotStats { sessions: 3, ..counters.stats() });
        for line in [
            "# TYPE packtrain_depot_sessions gauge",
            "packtrain_depot_sessions 3",
            "packtrain_depot_refused_total{reason=\"busy\"} 2",
            "packtrain_depot_bytes_total{way=\"there\"} 5",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        assert!(text.ends_with('\n') && load() >= 0.0);
    }
}
