//! What a request carries: nothing, a few bytes, or part of a file.

use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use packtrain_io::clock;
use packtrain_io::disk::SourceFile;
use packtrain_units::{ByteCount, DataRate, Duration, Time};
use tokio::time::Sleep;

/// How much of a file is read at once.
const STEP: u64 = 128 << 10;

/// The rate that all streams together keep to.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Option<DataRate>,
    due: Mutex<Time>,
}

impl Pace {
    /// So much a second; as much as there is, if none.
    pub(super) fn new(rate: Option<DataRate>) -> Self {
        Self { rate, due: Mutex::new(Time::ZERO) }
    }

    /// Whether there is any.
    pub(super) fn is_set(&self) -> bool {
        self.rate.is_some()
    }

    /// How long to wait before so many bytes may go.
    pub(super) fn wait(&self, bytes: ByteCount) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let now = clock::now();
        let mut due = self.due.lock();
        *due = (*due).max(now) + rate.time_for(bytes);
        due.since(now)
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
        Self { what: What::Bytes(bytes.into()), sent: Arc::default(), pause: None }
    }

    /// Part of a file.
    pub(super) fn part(part: Part) -> Self {
        Self { what: What::Part(part), sent: Arc::default(), pause: None }
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
