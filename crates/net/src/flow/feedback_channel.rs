//! The separate reliable channel of a flow's feedback: `sabul` uses TCP.
//!
//! The network thread must neither wait for a stream nor take a lock for it. Therefore another task
//! owns the stream, and moves bytes between it and the two bounded queues of this module. The
//! thread's operations on them never block. A queue that stays full ends the flow, so memory is
//! bounded.

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};
use packtrain_os::thread::Waker;
use packtrain_units::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Sizes of the queues, in messages to the stream and pieces from it. A message that finds the
/// first queue full stays in the engine, which has a limit of its own.
const OUT: usize = 64;
const IN: usize = 64;
/// Maximum bytes per read of the stream.
const PIECE_BYTES: usize = 16 << 10;
/// Pause of the stream's reader while the thread has not taken the earlier pieces.
const TAKE: Duration = Duration::from_millis(1);

/// The stream's side of the channel. Dropping it reports a broken stream to the flow.
#[derive(Debug)]
pub struct FeedbackChannel {
    out: mpsc::Receiver<Vec<u8>>,
    inward: ChannelInput,
}

/// The direction from the stream to the flow.
#[derive(Debug)]
pub struct ChannelInput {
    /// `None` only during the drop.
    to: Option<Sender<Vec<u8>>>,
    waker: Waker,
}

/// The direction from the flow to the stream.
#[derive(Debug)]
pub struct ChannelOutput(mpsc::Receiver<Vec<u8>>);

impl FeedbackChannel {
    /// Splits the channel into its directions. The flow ends when the inward one is dropped.
    pub fn split(self) -> (ChannelOutput, ChannelInput) {
        (ChannelOutput(self.out), self.inward)
    }

    /// Moves bytes between a stream and the flow until one of them ends.
    pub async fn carry(self, stream: impl AsyncRead + AsyncWrite) {
        let (mut input, mut output) = tokio::io::split(stream);
        let (mut outward, inward) = self.split();
        let write = async {
            while let Some(bytes) = outward.next().await {
                output.write_all(&bytes).await?;
                if outward.is_empty() {
                    output.flush().await?;
                }
            }
            output.shutdown().await
        };
        let read = async move {
            let mut buffer = vec![0; PIECE_BYTES];
            while let Ok(count @ 1..) = input.read(&mut buffer).await {
                if !inward.push(buffer[..count].to_vec()).await {
                    return;
                }
            }
        };
        tokio::select! {
            _ = write => {}
            () = read => {}
        }
    }
}

impl ChannelOutput {
    /// The next bytes to write; `None` after the end of the flow.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        self.0.recv().await
    }

    /// Whether the queue is empty, so that written bytes should be flushed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl ChannelInput {
    /// Passes bytes to the flow; waits while earlier ones were not taken. False after the end of
    /// the flow.
    pub async fn push(&self, mut bytes: Vec<u8>) -> bool {
        loop {
            let Some(to) = &self.to else { return false };
            match to.try_send(bytes) {
                Ok(()) => {
                    self.waker.wake();
                    return true;
                }
                Err(TrySendError::Full(back)) => bytes = back,
                Err(TrySendError::Disconnected(_)) => return false,
            }
            self.waker.wake();
            tokio::time::sleep(TAKE.to_std()).await;
        }
    }
}

impl Drop for ChannelInput {
    fn drop(&mut self) {
        // Dropped before the wake, so that the thread finds the queue closed.
        self.to = None;
        self.waker.wake();
    }
}

/// The network thread's side of the channel.
pub(super) struct ChannelEnd {
    out: mpsc::Sender<Vec<u8>>,
    from: Receiver<Vec<u8>>,
    /// A message that found the queue full.
    pending_out: Option<Vec<u8>>,
    broken: bool,
}

/// The result of a read by the network thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChannelRead {
    Bytes(Vec<u8>),
    Nothing,
    Broken,
}

/// Creates both sides of a channel.
pub(super) fn pair(waker: Waker) -> (ChannelEnd, FeedbackChannel) {
    let (out, said) = mpsc::channel(OUT);
    let (to, from) = bounded(IN);
    let feedback_channel =
        FeedbackChannel { out: said, inward: ChannelInput { to: Some(to), waker } };
    (ChannelEnd { out, from, pending_out: None, broken: false }, feedback_channel)
}

impl ChannelEnd {
    /// Reads the next piece; a broken stream is reported once.
    pub(super) fn read(&mut self) -> ChannelRead {
        match self.from.try_recv() {
            Ok(bytes) => ChannelRead::Bytes(bytes),
            Err(TryRecvError::Disconnected) if !std::mem::replace(&mut self.broken, true) => {
                ChannelRead::Broken
            }
            Err(_) => ChannelRead::Nothing,
        }
    }

    /// Sends messages from `next` while the queue has room; true if one has to wait.
    pub(super) fn write(&mut self, mut next: impl FnMut() -> Option<Vec<u8>>) -> bool {
        while let Some(bytes) = self.pending_out.take().or_else(&mut next) {
            match self.out.try_send(bytes) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(back)) => {
                    self.pending_out = Some(back);
                    return true;
                }
                // The stream is closed; the other direction reports it.
                Err(mpsc::error::TrySendError::Closed(_)) => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain_os::thread;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn what_is_said_comes_out_in_order_and_a_full_queue_keeps_the_rest() {
        let (waker, _sleeper) = thread::pair().unwrap();
        let (mut line, feedback_channel) = pair(waker);
        let mut next = 0..100u8;
        assert!(line.write(|| next.next().map(|n| vec![n])));
        let (mut outward, _inward) = feedback_channel.split();
        block_on(async {
            let mut seen = Vec::new();
            while seen.len() < 100 {
                seen.extend(outward.next().await.unwrap());
                line.write(|| next.next().map(|n| vec![n]));
            }
            assert_eq!(seen, (0..100).collect::<Vec<u8>>());
            drop(line);
            assert_eq!(outward.next().await, None);
        });
    }

    #[test]
    fn what_came_is_heard_wakes_and_a_stream_that_is_gone_is_told_once() {
        let (waker, sleeper) = thread::pair().unwrap();
        let (mut line, feedback_channel) = pair(waker);
        assert_eq!(line.read(), ChannelRead::Nothing);
        let (outward, inward) = feedback_channel.split();
        assert!(block_on(inward.push(vec![7])));
        assert!(sleeper.take_wakes());
        drop((outward, inward));
        assert!(sleeper.take_wakes());
        assert_eq!(line.read(), ChannelRead::Bytes(vec![7]));
        assert_eq!(line.read(), ChannelRead::Broken);
        assert_eq!(line.read(), ChannelRead::Nothing);
        assert!(!line.write(|| None));
    }

    #[test]
    fn a_thread_that_takes_nothing_holds_the_stream_back() {
        let (waker, _sleeper) = thread::pair().unwrap();
        let (line, feedback_channel) = pair(waker);
        let (_outward, inward) = feedback_channel.split();
        block_on(async {
            for _ in 0..IN {
                assert!(inward.push(vec![1]).await);
            }
            let late = inward.push(vec![2]);
            let limit = std::time::Duration::from_millis(20);
            assert!(tokio::time::timeout(limit, late).await.is_err());
            drop(line);
            assert!(!inward.push(vec![3]).await);
        });
    }
}
