//! The body of a request: empty, a few bytes, or part of a file.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use packtrain_disk::SourceFile;
use packtrain_net::limit::RateLimiter;
use packtrain_os::clock;
use packtrain_units::{ByteCount, Duration};
use tokio::time::Sleep;

use packtrain_runtime::transports::TransportConfig;
use packtrain_service::ceilings::{HELD_SHARE, HeldBy};

/// How much of a file is read at once.
const STEP_BYTES: u64 = 128 << 10;

/// The rate limit that all streams share.
#[derive(Debug)]
pub(super) struct Pace {
    limiter: Option<RateLimiter>,
    by: Option<HeldBy>,
}

impl Pace {
    /// The rate limit of a configuration.
    pub(super) fn new(plan: &TransportConfig) -> Self {
        Self { limiter: plan.send_limiter(), by: plan.rate_by }
    }

    /// No limit.
    #[cfg(test)]
    pub(super) fn unlimited() -> Self {
        Self { limiter: None, by: None }
    }

    /// Whether there is a limit.
    pub(super) fn is_set(&self) -> bool {
        self.limiter.is_some()
    }

    /// The number of bytes of `left` to send next, and the time to wait before.
    fn reserve(&self, left: u64) -> (u64, Duration) {
        let step = left.min(STEP_BYTES);
        let Some(limiter) = &self.limiter else { return (step, Duration::ZERO) };
        let step = limiter.quantum(ByteCount(step));
        (step.get(), limiter.reserve(step))
    }

    /// The time to wait after receiving this many bytes.
    pub(super) fn wait(&self, bytes: ByteCount) -> Duration {
        let Some(limiter) = &self.limiter else { return Duration::ZERO };
        limiter.charge(bytes).since(clock::now())
    }

    /// The origin of the rate limit, if it limited the transfer.
    pub(super) fn held(&self) -> Option<HeldBy> {
        let limiter = self.limiter.as_ref().filter(|limiter| limiter.limited() >= HELD_SHARE);
        self.by.filter(|_| limiter.is_some())
    }
}

/// Part of a file to send.
pub(super) struct Part {
    pub(super) file: Arc<SourceFile>,
    /// Its offset in the file.
    pub(super) at: u64,
    /// Bytes that are not sent yet.
    pub(super) left: u64,
    pub(super) pace: Arc<Pace>,
}

/// The body of a request.
pub(super) struct Outgoing {
    content: Content,
    /// SHA-256 of a part of a file, if it was computed.
    sha256: Option<[u8; 32]>,
    progress: Arc<Progress>,
    /// Bytes reserved from the rate limit and not sent yet.
    reserved: u64,
    pause: Option<Pin<Box<Sleep>>>,
}

/// Progress of sending a request.
#[derive(Debug, Default)]
pub(super) struct Progress {
    sent: AtomicU64,
    /// Whether the rate limit holds it at the moment.
    paused: AtomicBool,
}

impl Progress {
    /// Bytes that the connection accepted.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Whether the rate limit, and not the server, stops the progress.
    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }
}

enum Content {
    Bytes(Bytes),
    Part(Part),
}

impl Outgoing {
    /// An empty body.
    pub(super) fn none() -> Self {
        Self::bytes(Bytes::new())
    }

    /// These bytes.
    pub(super) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self {
            content: Content::Bytes(bytes.into()),
            sha256: None,
            progress: Arc::default(),
            reserved: 0,
            pause: None,
        }
    }

    /// Part of a file, and the SHA-256 digest of its bytes if that is known.
    pub(super) fn part(part: Part, sha256: Option<[u8; 32]>) -> Self {
        Self {
            content: Content::Part(part),
            sha256,
            progress: Arc::default(),
            reserved: 0,
            pause: None,
        }
    }

    /// The SHA-256 digest of all its bytes; none for a part of a file that came without one.
    pub(super) fn sha256(&self) -> Option<[u8; 32]> {
        match &self.content {
            Content::Bytes(bytes) => {
                let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
                digest.as_ref().try_into().ok()
            }
            Content::Part(_) => self.sha256,
        }
    }

    /// Its progress, which can be read after it was passed to a connection.
    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let this = &mut *self;
        if let Some(pause) = &mut this.pause {
            if pause.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.pause = None;
            this.progress.paused.store(false, Ordering::Relaxed);
        }
        if let Content::Part(part) = &this.content
            && part.left > 0
            && this.reserved == 0
        {
            let (step, wait) = part.pace.reserve(part.left);
            this.reserved = step;
            if !wait.is_zero() {
                this.progress.paused.store(true, Ordering::Relaxed);
                let mut pause = Box::pin(tokio::time::sleep(wait.to_std()));
                if pause.as_mut().poll(context).is_pending() {
                    this.pause = Some(pause);
                    return Poll::Pending;
                }
                this.progress.paused.store(false, Ordering::Relaxed);
            }
        }
        let bytes = match &mut this.content {
            Content::Bytes(bytes) => std::mem::take(bytes),
            Content::Part(part) if part.left > 0 => {
                let step = std::mem::take(&mut this.reserved);
                let mut bytes = vec![0; step as usize];
                // It was just read for its digest, so it is in the page cache.
                let read = part.file.read_exact_at(part.at, &mut bytes);
                if let Err(e) = read {
                    return Poll::Ready(Some(Err(std::io::Error::other(e.to_string()))));
                }
                part.at += step;
                part.left -= step;
                Bytes::from(bytes)
            }
            Content::Part(_) => Bytes::new(),
        };
        if bytes.is_empty() {
            return Poll::Ready(None);
        }
        this.progress.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

impl Outgoing {
    fn left(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Part(part) => part.left,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use packtrain_disk::Root;
    use packtrain_object::RelPath;
    use packtrain_units::DataRate;

    use super::*;

    const SIZE: u64 = 64 << 10;

    fn part(file: &Arc<SourceFile>, pace: &Arc<Pace>) -> Outgoing {
        let (file, pace) = (Arc::clone(file), Arc::clone(pace));
        Outgoing::part(Part { file, at: 0, left: SIZE, pace }, None)
    }

    #[test]
    fn many_parts_at_once_keep_to_one_low_rate_and_all_of_them_move() {
        const RATE: DataRate = DataRate::from_bps(4_000_000);
        const BURST: Duration = Duration::from_millis(20);
        const PARTS: u64 = 8;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("data"), vec![7; SIZE as usize]).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let name = RelPath::new(b"data".to_vec()).unwrap();
        let file = Arc::new(SourceFile::open(&root, &name).unwrap());
        let limiter = RateLimiter::new(RATE, BURST);
        let pace = Arc::new(Pace { limiter: Some(limiter.clone()), by: None });
        let begun = clock::now();
        let runtime = packtrain_service::executor::handle();
        let all: Vec<_> = (0..PARTS)
            .map(|_| {
                let mut part = part(&file, &pace);
                runtime.spawn(async move {
                    let mut sizes = Vec::new();
                    while let Some(frame) = poll_fn(|c| Pin::new(&mut part).poll_frame(c)).await {
                        let bytes = frame.unwrap().into_data().unwrap();
                        sizes.push((clock::now(), bytes.len() as u64));
                    }
                    sizes
                })
            })
            .collect();
        let mut sent: Vec<_> =
            all.into_iter().flat_map(|one| runtime.block_on(one).unwrap()).collect();
        sent.sort();
        let quantum = limiter.quantum(ByteCount(STEP_BYTES)).get();
        let mut bytes = 0;
        for (at, size) in sent {
            bytes += size;
            let most = RATE.bytes_in(at.since(begun) + BURST).get() + quantum;
            assert!(bytes <= most, "{bytes} bytes after {}, at most {most}", at.since(begun));
        }
        assert_eq!(bytes, PARTS * SIZE);
    }

    #[test]
    fn a_request_that_the_rate_holds_is_not_silent() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("data"), vec![7; SIZE as usize]).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let name = RelPath::new(b"data".to_vec()).unwrap();
        let file = Arc::new(SourceFile::open(&root, &name).unwrap());
        // The token bucket is an hour in debt.
        let limiter = RateLimiter::new(DataRate::from_bps(8_000), Duration::from_millis(20));
        limiter.charge(ByteCount(3_600_000));
        let pace = Arc::new(Pace { limiter: Some(limiter), by: None });
        let mut part = part(&file, &pace);
        let progress = part.progress();
        assert!(!progress.is_paused());
        packtrain_service::executor::handle().block_on(async {
            let first =
                poll_fn(|c| Poll::Ready(Pin::new(&mut part).poll_frame(c).is_pending())).await;
            assert!(first, "nothing may go yet");
        });
        assert!(progress.is_paused());
        assert_eq!(progress.sent(), 0);
    }
}
