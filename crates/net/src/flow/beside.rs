//! The channel beside a flow's datagrams, which loses nothing: the feedback `sabul` has one, TCP.
//!
//! The network thread must neither wait for a stream nor take a lock for it. So the stream is
//! somebody else's: whoever has it moves bytes between it and the two bounded queues here, of
//! which the thread's ends never block. A queue that stays full ends the flow; nothing grows.

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};
use packtrain_os::thread::Waker;
use packtrain_units::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Messages on their way out, and pieces on their way in. What finds no place out there stays
/// with the engine, which has a bound of its own.
const OUT: usize = 64;
const IN: usize = 64;
/// Bytes read off a stream at once.
const PIECE: usize = 16 << 10;
/// How long whoever reads the stream waits for the thread to take what came before.
const TAKE: Duration = Duration::from_millis(1);

/// The channel as its stream's owner has it. Dropping it tells the flow that the stream broke.
#[derive(Debug)]
pub struct Beside {
    out: mpsc::Receiver<Vec<u8>>,
    inward: Inward,
}

/// The way in alone.
#[derive(Debug)]
pub struct Inward {
    /// None only while it is dropped.
    to: Option<Sender<Vec<u8>>>,
    waker: Waker,
}

/// The way out alone.
#[derive(Debug)]
pub struct Outward(mpsc::Receiver<Vec<u8>>);

impl Beside {
    /// Both ways apart, for who reads and who writes the stream. The flow ends when the way in is
    /// dropped.
    pub fn split(self) -> (Outward, Inward) {
        (Outward(self.out), self.inward)
    }

    /// Moves bytes between a stream and the flow until either is over.
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
            let mut buffer = vec![0; PIECE];
            while let Ok(count @ 1..) = input.read(&mut buffer).await {
                if !inward.came(buffer[..count].to_vec()).await {
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

impl Outward {
    /// The next bytes to write. None: the flow is over.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        self.0.recv().await
    }

    /// Whether nothing more waits: what was written may be flushed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Inward {
    /// Bytes came; waits while those before were not taken. False: the flow is over.
    pub async fn came(&self, mut bytes: Vec<u8>) -> bool {
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

impl Drop for Inward {
    fn drop(&mut self) {
        // Before the thread is woken, or it would find the queue whole.
        self.to = None;
        self.waker.wake();
    }
}

/// The network thread's end.
pub(super) struct Line {
    out: mpsc::Sender<Vec<u8>>,
    from: Receiver<Vec<u8>>,
    /// What found no place in the queue out.
    unsaid: Option<Vec<u8>>,
    broken: bool,
}

/// What the network thread learns of its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Bytes(Vec<u8>),
    Nothing,
    Broken,
}

/// A line and the end that goes to the stream.
pub(super) fn pair(waker: Waker) -> (Line, Beside) {
    let (out, said) = mpsc::channel(OUT);
    let (to, from) = bounded(IN);
    let beside = Beside { out: said, inward: Inward { to: Some(to), waker } };
    (Line { out, from, unsaid: None, broken: false }, beside)
}

impl Line {
    /// What came; that it broke is said once.
    pub(super) fn hear(&mut self) -> Heard {
        match self.from.try_recv() {
            Ok(bytes) => Heard::Bytes(bytes),
            Err(TryRecvError::Disconnected) if !std::mem::replace(&mut self.broken, true) => {
                Heard::Broken
            }
            Err(_) => Heard::Nothing,
        }
    }

    /// Passes on what `next` gives as long as there is room; true if something had to wait.
    pub(super) fn say(&mut self, mut next: impl FnMut() -> Option<Vec<u8>>) -> bool {
        while let Some(bytes) = self.unsaid.take().or_else(&mut next) {
            match self.out.try_send(bytes) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(back)) => {
                    self.unsaid = Some(back);
                    return true;
                }
                // The stream is gone, of which the way in will tell.
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
        let (mut line, beside) = pair(waker);
        let mut next = 0..100u8;
        assert!(line.say(|| next.next().map(|n| vec![n])));
        let (mut outward, _inward) = beside.split();
        block_on(async {
            let mut seen = Vec::new();
            while seen.len() < 100 {
                seen.extend(outward.next().await.unwrap());
                line.say(|| next.next().map(|n| vec![n]));
            }
            assert_eq!(seen, (0..100).collect::<Vec<u8>>());
            drop(line);
            assert_eq!(outward.next().await, None);
        });
    }

    #[test]
    fn what_came_is_heard_wakes_and_a_stream_that_is_gone_is_told_once() {
        let (waker, sleeper) = thread::pair().unwrap();
        let (mut line, beside) = pair(waker);
        assert_eq!(line.hear(), Heard::Nothing);
        let (outward, inward) = beside.split();
        assert!(block_on(inward.came(vec![7])));
        assert!(sleeper.take_calls());
        drop((outward, inward));
        assert!(sleeper.take_calls());
        assert_eq!(line.hear(), Heard::Bytes(vec![7]));
        assert_eq!(line.hear(), Heard::Broken);
        assert_eq!(line.hear(), Heard::Nothing);
        assert!(!line.say(|| None));
    }

    #[test]
    fn a_thread_that_takes_nothing_holds_the_stream_back() {
        let (waker, _sleeper) = thread::pair().unwrap();
        let (line, beside) = pair(waker);
        let (_outward, inward) = beside.split();
        block_on(async {
            for _ in 0..IN {
                assert!(inward.came(vec![1]).await);
            }
            let late = inward.came(vec![2]);
            let limit = std::time::Duration::from_millis(20);
            assert!(tokio::time::timeout(limit, late).await.is_err());
            drop(line);
            assert!(!inward.came(vec![3]).await);
        });
    }
}
