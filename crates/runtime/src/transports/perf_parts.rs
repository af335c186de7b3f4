//! Building blocks for `perf`: flows and TCP streams without files.

use parking_lot::Mutex;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use packtrain_net::limit::RateLimiter;
use packtrain_net::tcp::{TcpInfo, tcp_info};
use packtrain_units::{ByteCount, Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::TransportConfig;
use super::offer::Offer;
use super::tcp::{Tasks, TcpEnd, TcpStream};

/// Bytes passed to TLS at once.
const WRITE: usize = 256 << 10;
/// The same under a rate limit.
const LIMITED_WRITE: usize = 32 << 10;
/// Interval at which a stream that waits for the rate limit checks whether the test is over.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

/// The TCP streams of a test.
pub struct PerfTcp {
    end: TcpEnd,
    shared: Arc<Shared>,
    plan: TransportConfig,
}

#[derive(Default)]
struct Shared {
    /// The byte counter of a receiver; none at the sender.
    into: Option<Arc<AtomicU64>>,
    /// Number of streams that a receiver still accepts.
    left: AtomicU32,
    limiter: Option<RateLimiter>,
    up: Mutex<Option<Arc<AtomicU64>>>,
    share: AtomicU64,
    over: AtomicBool,
    sockets: Mutex<Vec<OwnedFd>>,
}

impl PerfTcp {
    /// Listens. A receiver counts bytes into `into` and accepts this number of streams. `limiter`
    /// limits all of them together.
    pub fn new(
        plan: &TransportConfig,
        into: Option<(Arc<AtomicU64>, u32)>,
        limiter: Option<RateLimiter>,
    ) -> std::io::Result<Self> {
        let (into, left) = into.map_or((None, 0), |(into, streams)| (Some(into), streams));
        let shared =
            Arc::new(Shared { into, left: AtomicU32::new(left), limiter, ..Shared::default() });
        let this = Arc::clone(&shared);
        let tasks = Tasks::default();
        let running = tasks.clone();
        let end = TcpEnd::listen(plan, &tasks, move |stream| this.run(&running, stream))?;
        Ok(Self { end, shared, plan: plan.clone() })
    }

    /// The offer fields that the other end needs to connect.
    pub fn offer(&self) -> Offer {
        Offer { tcp: self.end.port(), tcp_key: self.end.key(), ..Offer::new(&self.plan) }
    }

    /// Sender: connects and sends `share` bytes on each stream; `up` counts the streams.
    pub fn send(
        &self,
        plan: &TransportConfig,
        peer: &Offer,
        streams: u32,
        share: u64,
        up: &Arc<AtomicU64>,
    ) {
        self.shared.share.store(share, Ordering::Release);
        *self.shared.up.lock() = Some(Arc::clone(up));
        self.end.connect(plan, peer, streams, Duration::ZERO);
    }

    /// Receiver: accepts the peer's streams.
    pub fn expect(&self, peer: &Offer) {
        self.end.expect(peer);
    }

    /// Retransmitted bytes (segments times their size), minimum round-trip time, sum of the
    /// congestion windows.
    pub fn state(&self) -> (u64, Option<Duration>, Option<ByteCount>) {
        let sockets = self.shared.sockets.lock();
        let infos: Vec<_> = sockets.iter().filter_map(|s| tcp_info(s).ok()).collect();
        let again = |i: &TcpInfo| match i.retransmitted {
            Some(bytes) => bytes.get(),
            None => u64::from(i.retransmitted_segments) * i.mss.get(),
        };
        let again = infos.iter().map(again).sum();
        let rtt = infos.iter().filter_map(|i| i.min_rtt).min();
        let window = |i: &TcpInfo| ByteCount(u64::from(i.cwnd_segments) * i.mss.get());
        let cwnd = (!infos.is_empty()).then(|| infos.iter().map(window).sum());
        (again, rtt, cwnd)
    }

    /// Closes all connections.
    pub fn close(&self) {
        self.shared.over.store(true, Ordering::Release);
    }
}

impl Shared {
    /// Bytes per write or read: fewer under a rate limit.
    fn step(&self) -> usize {
        if self.limiter.is_some() { LIMITED_WRITE } else { WRITE }
    }

    /// Waits until the rate limit permits `bytes`.
    async fn wait(&self, bytes: usize) {
        let Some(limiter) = &self.limiter else { return };
        let mut left = limiter.reserve(ByteCount(bytes as u64)).to_std();
        while !left.is_zero() && !self.over.load(Ordering::Acquire) {
            let step = left.min(POLL_INTERVAL);
            tokio::time::sleep(step).await;
            left -= step;
        }
    }

    fn run(self: &Arc<Self>, tasks: &Tasks, mut stream: TcpStream) {
        let this = Arc::clone(self);
        let left = |n: u32| n.checked_sub(1);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        if self.into.is_some() && self.left.fetch_update(order.0, order.1, left).is_err() {
            // More streams than the test has.
            return;
        }
        if let Ok(socket) = stream.get_ref().0.as_fd().try_clone_to_owned() {
            self.sockets.lock().push(socket);
        }
        tasks.spawn(async move {
            if let Some(into) = &this.into {
                let mut buffer = vec![0; this.step()];
                while let Ok(n) = stream.read(&mut buffer).await {
                    if n == 0 {
                        return;
                    }
                    into.fetch_add(n as u64, Ordering::Relaxed);
                    this.wait(n).await;
                }
                return;
            }
            if let Some(up) = &*this.up.lock() {
                up.fetch_add(1, Ordering::Relaxed);
            }
            let step = this.step();
            let buffer: Vec<u8> = (0..step).map(|n| ((n * 31) >> 3) as u8).collect();
            let mut left = this.share.load(Ordering::Acquire);
            while left > 0 && !this.over.load(Ordering::Acquire) {
                let step = left.min(step as u64) as usize;
                this.wait(step).await;
                if stream.write_all(&buffer[..step]).await.is_err() {
                    return;
                }
                left -= step as u64;
            }
            let _ = stream.flush().await;
            // Kept open until the receiver has sent its last message.
            while !this.over.load(Ordering::Acquire) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
    }
}
