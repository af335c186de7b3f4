//! Sessions of type echo at the last depot of their route.

use std::io;
use std::sync::atomic::Ordering;

use packtrain_os::clock;
use packtrain_session::echo::{ECHO_FELL_BACK, ECHO_HEAD, EchoHead};
use packtrain_units::{Duration, Time};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Depot;
use super::session::Flow;

/// Bytes per echo.
const PIECE_BYTES: usize = 16 << 10;
/// How long after a fallback to TCP an echo reports it.
const FALLBACK_REPORT_TIME: Duration = Duration::from_secs(600);

/// Sends all received bytes back, until the end of the stream.
pub(super) async fn serve(
    depot: &Depot,
    flow: &Flow,
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let mut head = [0; ECHO_HEAD];
        if read.read(&mut head[..1]).await? == 0 {
            return write.shutdown().await;
        }
        read.read_exact(&mut head[1..]).await?;
        let Some(asked) = EchoHead::read(&head) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let flags = if depot.fell_back_lately() { ECHO_FELL_BACK } else { 0 };
        write.write_all(&EchoHead { flags, ..asked }.write()).await?;
        let mut left = asked.len as usize;
        while left > 0 {
            let count = read.read(&mut piece[..left.min(PIECE_BYTES)]).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            write.write_all(&piece[..count]).await?;
            left -= count;
        }
        let moved = u64::from(asked.len) + ECHO_HEAD as u64;
        for one in [&flow.up, &depot.counters.up, &flow.down, &depot.counters.down] {
            one.fetch_add(moved, Ordering::Relaxed);
        }
        flow.last.store(clock::now().as_nanos(), Ordering::Relaxed);
    }
}

impl Depot {
    /// Whether datagrams recently failed to reach a next depot.
    fn fell_back_lately(&self) -> bool {
        let now = clock::now();
        if self.hops.take_fell_back() {
            self.fell_back.store(now.as_nanos().max(1), Ordering::Relaxed);
        }
        let last = self.fell_back.load(Ordering::Relaxed);
        last > 0 && now.since(Time::from_nanos(last)) < FALLBACK_REPORT_TIME
    }
}
