//! What a request carries: nothing, a few bytes, or part of a file.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use packtrain_io::clock;
use packtrain_io::disk::SourceFile;
use packtrain_io::limit::RateLimiter;
use packtrain_units::{ByteCount, Duration};
use tokio::time::Sleep;

use crate::ceilings::{HELD, HeldBy};
use crate::transports::Plan;

/// How much of a file is read at once.
const STEP: u64 = 128 << 10;

/// The rate that all streams together keep to.
#[derive(Debug)]
pub(super) struct Pace {
    limiter: Option<RateLimiter>,
    by: Option<HeldBy>,
}

impl Pace {
    /// That of a plan.
    pub(super) fn new(plan: &Plan) -> Self {
        Self { limiter: plan.send_limiter(), by: plan.rate_by }
    }

    /// Whether there is any.
    pub(super) fn is_set(&self) -> bool {
        self.limiter.is_some()
    }

    /// How long to wait after so many bytes went.
    pub(super) fn wait(&self, bytes: ByteCount) -> Duration {
        let Some(limiter) = &self.limiter else { return Duration::ZERO };
        limiter.charge(bytes).since(clock::now())
    }

    /// Whose ceiling held the transfer, if one did.
    pub(super) fn held(&self) -> Option<HeldBy> {
        let limiter = self.limiter.as_ref().filter(|limiter| limiter.limited() >= HELD);
        self.by.filter(|_| limiter.is_some())
    }
}

/// Part of a file, to be sent.
pub(super) struct Part {
    pub(super) file: Arc<SourceFile>,
    /// Where it begins.
    pub(super) at: u64,
    /// What is left of it.
    pub(super) left: u64,
    pub(super) pace: Arc<Pace>,
}

/// A request's body.
pub(super) struct Outgoing {
    what: What,
    /// Of a part of a file, if somebody made it.
    sha256: Option<[u8; 32]>,
    sent: Arc<AtomicU64>,
    pause: Option<Pin<Box<Sleep>>>,
}

enum What {
    Bytes(Bytes),
    Part(Part),
}

impl Outgoing {
    /// Nothing.
    pub(super) fn none() -> Self {
        Self::bytes(Bytes::new())
    }

    /// These bytes.
    pub(super) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self { what: What::Bytes(bytes.into()), sha256: None, sent: Arc::default(), pause: None }
    }

    /// Part of a file, and the SHA-256 digest of its bytes if that is known.
    pub(super) fn part(part: Part, sha256: Option<[u8; 32]>) -> Self {
        Self { what: What::Part(part), sha256, sent: Arc::default(), pause: None }
    }

    /// The SHA-256 digest of all its bytes; none for a part of a file that came without one.
    pub(super) fn sha256(&self) -> Option<[u8; 32]> {
        match &self.what {
            What::Bytes(bytes) => {
                let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
                digest.as_ref().try_into().ok()
            }
            What::Part(_) => self.sha256,
        }
    }

    /// Counts what was taken of it.
    pub(super) fn sent(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.sent)
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
        }
        let bytes = match &mut this.what {
            What::Bytes(bytes) => std::mem::take(bytes),
            What::Part(part) if part.left > 0 => {
                let step = part.left.min(STEP);
                let mut bytes = vec![0; step as usize];
                // It was read for its digest a moment ago: the system has it in memory.
                let read = part.file.read_exact_at(part.at, &mut bytes);
                if let Err(e) = read {
                    return Poll::Ready(Some(Err(std::io::Error::other(e.to_string()))));
                }
                part.at += step;
                part.left -= step;
                let wait = part.pace.wait(ByteCount(step));
                if !wait.is_zero() {
                    this.pause = Some(Box::pin(tokio::time::sleep(wait.to_std())));
                }
                Bytes::from(bytes)
            }
            What::Part(_) => Bytes::new(),
        };
        if bytes.is_empty() {
            return Poll::Ready(None);
        }
        this.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
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
        match &self.what {
            What::Bytes(bytes) => bytes.len() as u64,
            What::Part(part) => part.left,
        }
    }
}
