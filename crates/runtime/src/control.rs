//! The control connection: frames over an ssh pipe, a TLS stream, or within this process.
//!
//! One thread (or task) reads and one writes. Control frames and the payload of the pipe transport
//! share the connection in order. Payload waits for room, so that it never delays control frames
//! for long.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Receiver, Sender, bounded};
use packtrain_net::tcp::describe;
use packtrain_transfer::message::{self, Message};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::Offset;
use tokio::sync::mpsc;

use crate::reader::Slice;
use packtrain_hops::RouteConnection;
use packtrain_service::executor::spawn;

/// Payload bytes that may wait in the queue: enough to keep a pipe busy, little enough that a
/// control frame behind them leaves within milliseconds.
const PAYLOAD_QUEUE_BYTES: u64 = 4 << 20;

/// Receives the payload that arrives on the pipe; may block for room.
pub trait PayloadSink: Send + Sync {
    /// Places `bytes` at `at`.
    ///
    /// # Errors
    /// Payload is not allowed on this connection, which then ends.
    fn payload(&self, at: Offset, bytes: &[u8]) -> Result<(), Failure>;
}

/// Events of the reading side.
#[derive(Debug)]
pub enum Incoming {
    /// A message.
    Message(Message),
    /// The connection is closed; no events follow.
    Closed(Failure),
}

/// One control connection.
pub struct Control {
    /// The sending side; cheap to clone.
    pub tx: ControlSender,
    /// Messages and the end of the connection.
    pub rx: Receiver<Incoming>,
    /// Task that reads from the connection, if it is a task.
    reader: Option<tokio::task::AbortHandle>,
    /// Task that writes to it, if it is a task.
    writer: Option<tokio::task::AbortHandle>,
    /// Disconnected when both tasks have ended.
    ended: Option<mpsc::Receiver<Infallible>>,
    /// How long the connection outlives this value.
    linger: std::time::Duration,
    /// Receiver of the payload on the pipe, once it is set.
    pub payload: Arc<OnceLock<Arc<dyn PayloadSink>>>,
}

/// The end of a control connection's tasks, and so of its socket.
pub struct ConnectionEnd(Option<mpsc::Receiver<Infallible>>);

impl ConnectionEnd {
    /// Waits until nothing reads from the connection or writes to it any more.
    pub async fn wait(mut self) {
        if let Some(ended) = &mut self.0 {
            // Nothing is ever sent: this returns when both tasks have dropped their sender.
            let _ = ended.recv().await;
        }
    }
}

impl Control {
    /// The end of the connection, which comes up to the linger time after this value is dropped.
    /// Only the first call returns one that waits.
    pub fn connection_end(&mut self) -> ConnectionEnd {
        ConnectionEnd(self.ended.take())
    }

    /// Sets how long the connection may outlive this value: [`LINGER`] by default, and
    /// [`UNADMITTED_LINGER`] for a peer that has no permissions.
    pub fn set_linger(&mut self, linger: std::time::Duration) {
        self.linger = linger;
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Queued messages are still sent, but incoming messages are no longer looked at.
        self.tx.waiting.reader_gone.store(true, Ordering::Relaxed);
        self.tx.close();
        // A peer that neither reads nor closes must not keep the connection and its queue alive.
        if let (Some(reader), Some(writer)) = (self.reader.take(), self.writer.take()) {
            let linger = self.linger;
            let waiting = Arc::clone(&self.tx.waiting);
            packtrain_service::executor::handle().spawn(async move {
                tokio::time::sleep(linger).await;
                reader.abort();
                writer.abort();
                // Ends the wait of tasks that have payload to send.
                waiting.close();
            });
        }
    }
}

enum Outgoing {
    Close,
    Frame(Vec<u8>),
    Pong(Vec<u8>),
    Data(Offset, Slice),
}

/// The sending side.
#[derive(Clone)]
pub struct ControlSender {
    queue: mpsc::UnboundedSender<Outgoing>,
    waiting: Arc<Waiting>,
}

/// Maximum queued pongs for a peer that does not read. A correct peer pings once in several
/// seconds.
const MAX_QUEUED_PONGS: u64 = 1024;
/// Time that the connection outlives its [`Control`], so that queued messages are sent.
pub const LINGER: std::time::Duration = std::time::Duration::from_secs(10);
/// The same for a peer that was not admitted: all it gets is a refusal.
pub const UNADMITTED_LINGER: std::time::Duration = std::time::Duration::from_secs(2);
/// Bytes of messages that may wait for a peer that does not read them. What an honest transfer has
/// under way is less (`packtrain_transfer::limits`): 64 MiB of paths and what goes with them.
const MAX_QUEUED_BYTES: u64 = 128 << 20;
/// Bytes of messages that are passed on to an end which has not read the ones before.
const MAX_PASSED_ON_BYTES: u64 = 8 << 20;
/// Messages that may wait to be looked at, and bytes of their frames; then the connection is not read.
/// Decoded, a message takes up to 20 times the bytes of its frame.
const MAX_WAITING: usize = 256;
const MAX_WAITING_BYTES: usize = 4 << 20;
/// Interval of the checks for room.
const ROOM_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(1);

#[derive(Default)]
struct Waiting {
    /// Bytes of frames that are queued and not written.
    frames: AtomicU64,
    /// Pongs that are queued and not written.
    pongs: AtomicU64,
    /// Whether incoming messages are no longer read.
    reader_gone: AtomicBool,
    state: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl Waiting {
    fn written(&self, outgoing: &Outgoing) {
        match outgoing {
            Outgoing::Data(_, slice) => self.payload_sent(slice.len() as u64),
            Outgoing::Frame(frame) => {
                self.frames.fetch_sub(frame.len() as u64, Ordering::Relaxed);
            }
            Outgoing::Pong(_) => {
                self.pongs.fetch_sub(1, Ordering::Relaxed);
            }
            Outgoing::Close => {}
        }
    }

    fn payload_sent(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.0 -= bytes;
        self.changed.notify_all();
    }

    fn close(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }
}

impl ControlSender {
    /// Queues a message. After the end of the connection it is dropped.
    pub fn send(&self, message: &Message) {
        if self.is_overfull() {
            // The driver of this end ends the transfer, see [`Self::is_overfull`].
            return;
        }
        let mut frame = Vec::new();
        message::encode(message, &mut frame);
        self.waiting.frames.fetch_add(frame.len() as u64, Ordering::Relaxed);
        let _ = self.queue.send(Outgoing::Frame(frame));
    }

    /// Queues the answer to a ping; false if too many unread pongs are queued.
    fn send_pong(&self, number: u64) -> bool {
        if self.waiting.pongs.fetch_add(1, Ordering::Relaxed) >= MAX_QUEUED_PONGS {
            return false;
        }
        let mut frame = Vec::new();
        message::encode(&Message::Pong(number), &mut frame);
        let _ = self.queue.send(Outgoing::Pong(frame));
        true
    }

    /// Whether the peer reads so slowly that nothing more is queued; the transfer then ends.
    pub(crate) fn is_overfull(&self) -> bool {
        self.waiting.frames.load(Ordering::Relaxed) > MAX_QUEUED_BYTES
    }

    /// Whether incoming messages are no longer read.
    fn is_reader_gone(&self) -> bool {
        self.waiting.reader_gone.load(Ordering::Relaxed)
    }

    /// Whether messages of another end may be forwarded now.
    pub fn has_room(&self) -> bool {
        self.waiting.frames.load(Ordering::Relaxed) < MAX_PASSED_ON_BYTES
    }

    /// Queues payload; blocks while the queue is full. False once the connection is closed.
    pub fn send_payload(&self, at: Offset, slice: Slice) -> bool {
        let bytes = slice.len() as u64;
        let mut state = self.waiting.state.lock();
        while state.0 > 0 && state.0 + bytes > PAYLOAD_QUEUE_BYTES && !state.1 {
            self.waiting.changed.wait(&mut state);
        }
        if state.1 {
            return false;
        }
        state.0 += bytes;
        drop(state);
        self.queue.send(Outgoing::Data(at, slice)).is_ok()
    }

    /// Closes the connection after everything queued was sent.
    pub fn close(&self) {
        let _ = self.queue.send(Outgoing::Close);
    }

    /// Waits until everything queued before `close` was sent, or `limit` has passed.
    pub fn wait_closed(&self, limit: std::time::Duration) {
        let mut state = self.waiting.state.lock();
        self.waiting.changed.wait_while_for(&mut state, |state| !state.1, limit);
    }

    /// Wakes all threads that wait for room.
    pub(crate) fn abandon(&self) {
        self.waiting.close();
    }
}

/// A control connection over a pair of blocking byte streams.
pub fn over_streams(
    name: &str,
    mut input: impl Read + Send + 'static,
    mut output: impl Write + Send + 'static,
) -> Control {
    let (control, mut queue, inbound) = parts();
    let waiting = Arc::clone(&control.tx.waiting);
    spawn(&format!("{name}-out"), move || {
        while let Some(outgoing) = queue.blocking_recv() {
            let result = match &outgoing {
                Outgoing::Close => break,
                Outgoing::Frame(frame) | Outgoing::Pong(frame) => output.write_all(frame),
                Outgoing::Data(at, slice) => {
                    let header = message::data_header(*at, slice.len());
                    write_both(&mut output, &header, slice.bytes())
                }
            };
            waiting.written(&outgoing);
            if result.and_then(|()| if queue.is_empty() { output.flush() } else { Ok(()) }).is_err()
            {
                break;
            }
        }
        waiting.close();
    });
    spawn(&format!("{name}-in"), move || {
        let mut inbound = inbound;
        let mut buffer = vec![0; 256 << 10];
        loop {
            match input.read(&mut buffer) {
                Ok(0) => return inbound.end("the other end closed the connection"),
                Ok(n) => {
                    if let Err(failure) = inbound.feed(&buffer[..n]) {
                        return inbound.fail(failure);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return inbound.end(&failure_text(&e)),
            }
        }
    });
    control
}

/// The text for a connection that failed.
fn failure_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the connection broke".to_owned(),
        _ => format!("the connection broke: {}", describe(error)),
    }
}

/// A control connection over a tokio stream; call it within a tokio runtime.
pub fn over_async<S>(stream: S, line: Option<Arc<RouteConnection>>) -> Control
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
{
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (mut control, mut queue, mut inbound) = parts();
    let waiting = Arc::clone(&control.tx.waiting);
    let (mut input, mut output) = tokio::io::split(stream);
    let (running, ended) = mpsc::channel(1);
    let reading = running.clone();
    let writer = tokio::spawn(async move {
        let _running = running;
        while let Some(outgoing) = queue.recv().await {
            let result = match &outgoing {
                Outgoing::Close => break,
                Outgoing::Frame(frame) | Outgoing::Pong(frame) => output.write_all(frame).await,
                Outgoing::Data(at, slice) => {
                    let header = message::data_header(*at, slice.len());
                    match output.write_all(&header).await {
                        Ok(()) => output.write_all(slice.bytes()).await,
                        Err(e) => Err(e),
                    }
                }
            };
            waiting.written(&outgoing);
            let flushed = match result {
                Ok(()) if queue.is_empty() => output.flush().await,
                other => other,
            };
            if flushed.is_err() {
                break;
            }
        }
        waiting.close();
        let _ = output.shutdown().await;
    });
    let reader = tokio::spawn(async move {
        let _running = reading;
        let mut buffer = vec![0; 256 << 10];
        loop {
            match input.read(&mut buffer).await {
                Ok(0) => return inbound.end("the other end closed the connection"),
                // What comes after the end is read and dropped: a socket that is closed with unread
                // bytes resets the connection, and the last messages to the peer may be lost.
                Ok(_) if inbound.tx.is_reader_gone() => {}
                Ok(n) => {
                    // Placing payload may wait for the disk, so the runtime moves other tasks to
                    // another thread.
                    let fed = tokio::task::block_in_place(|| inbound.feed(&buffer[..n]));
                    if let Err(failure) = fed
                        && !inbound.tx.is_reader_gone()
                    {
                        return inbound.fail(failure);
                    }
                }
                Err(e) => {
                    if let Some(line) = &line {
                        line.failed(&e);
                    }
                    return inbound.end(&failure_text(&e));
                }
            }
        }
    });
    control.reader = Some(reader.abort_handle());
    control.writer = Some(writer.abort_handle());
    control.ended = Some(ended);
    control
}

/// Two connected ends in one process.
pub fn pair() -> io::Result<(Control, Control)> {
    let (a, b) = UnixStream::pair()?;
    let end = |name, s: UnixStream| -> io::Result<Control> {
        Ok(over_streams(name, s.try_clone()?, WriteHalf(s)))
    };
    Ok((end("near", a)?, end("far", b)?))
}

/// The writing half of a socket. Dropping it ends the stream that the other side reads.
struct WriteHalf(UnixStream);

impl Write for WriteHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}

struct Inbound {
    decoder: message::Decoder,
    queue: Sender<Incoming>,
    /// Bytes of the frames of the queued messages, oldest first.
    waiting: VecDeque<usize>,
    waiting_bytes: usize,
    payload: Arc<OnceLock<Arc<dyn PayloadSink>>>,
    taken: u64,
    tx: ControlSender,
}

impl Inbound {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.decoder.feed(bytes);
        let before = self.taken;
        loop {
            let pending = self.decoder.pending();
            let next = self.decoder.next();
            let size = pending - self.decoder.pending();
            let next = next.map_err(|e| Failure::new(FailureKind::Protocol, e.to_string()))?;
            match next {
                None => break,
                Some(Message::Ping(n)) => {
                    if !self.tx.send_pong(n) {
                        let text = "the other end asks and does not read the answers";
                        return Err(Failure::new(FailureKind::Protocol, text));
                    }
                }
                Some(Message::Data { offset, bytes }) => {
                    let sink = self.payload.get().ok_or_else(|| {
                        Failure::new(FailureKind::Protocol, "payload before it was asked for")
                    })?;
                    sink.payload(offset, &bytes)?;
                    self.taken += bytes.len() as u64;
                }
                Some(message) => {
                    if !self.wait_for_room(size) || !self.enqueue(message.bounded(), size) {
                        return Err(Failure::new(FailureKind::Temporary, "nobody listens"));
                    }
                }
            }
        }
        if self.taken != before {
            self.tx.send(&Message::DataTaken(self.taken));
        }
        Ok(())
    }

    /// Queues a message whose texts are bounded, so that no reader of the queue can forget it.
    fn enqueue(&mut self, message: Message, size: usize) -> bool {
        self.waiting.push_back(size);
        self.waiting_bytes += size;
        self.queue.send(Incoming::Message(message)).is_ok()
    }

    /// Waits for room for `size` bytes; false if incoming messages are no longer read.
    fn wait_for_room(&mut self, size: usize) -> bool {
        loop {
            while self.waiting.len() > self.queue.len() {
                self.waiting_bytes -= self.waiting.pop_front().unwrap_or_default();
            }
            if self.waiting.is_empty() || self.waiting_bytes + size <= MAX_WAITING_BYTES {
                return true;
            }
            if self.tx.is_reader_gone() {
                return false;
            }
            std::thread::sleep(ROOM_CHECK_INTERVAL);
        }
    }

    fn end(&mut self, why: &str) {
        self.fail(Failure::new(FailureKind::Temporary, why));
    }

    fn fail(&mut self, failure: Failure) {
        self.tx.abandon();
        let _ = self.queue.send(Incoming::Closed(failure));
    }
}

fn parts() -> (Control, mpsc::UnboundedReceiver<Outgoing>, Inbound) {
    let (queue, outgoing) = mpsc::unbounded_channel();
    let tx = ControlSender { queue, waiting: Arc::default() };
    let (events, rx) = bounded(MAX_WAITING);
    let payload: Arc<OnceLock<Arc<dyn PayloadSink>>> = Arc::default();
    let inbound = Inbound {
        decoder: message::Decoder::new(),
        queue: events,
        waiting: VecDeque::new(),
        waiting_bytes: 0,
        payload: Arc::clone(&payload),
        taken: 0,
        tx: tx.clone(),
    };
    let (reader, writer, ended) = (None, None, None);
    (Control { tx, rx, reader, writer, ended, linger: LINGER, payload }, outgoing, inbound)
}

fn write_both(output: &mut impl Write, header: &[u8], body: &[u8]) -> io::Result<()> {
    let mut slices = [IoSlice::new(header), IoSlice::new(body)];
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        match output.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut rest, n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
