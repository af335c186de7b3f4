//! Relays a byte stream from one TCP connection to another without reading it. It uses a pipe in
//! the kernel (`splice(2)`), so that no byte is copied to this process, or memory if the kernel
//! cannot splice these sockets. While the second connection is slow, bytes of the first wait in
//! memory as far as [`RelayMemory`] allows.

mod fair_scheduler;
mod kernel_buffers;
mod store;
mod sys;

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use packtrain_units::ByteCount;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

pub use fair_scheduler::FairScheduler;
use fair_scheduler::Share;
use kernel_buffers::KernelBuffers;
pub use store::BLOCK;
use store::{ReadResult, Store};

/// Bytes moved before other directions get their turn.
const TURN: usize = 256 << 10;
/// Requested capacity of a pipe. The bytes in it are limited by [`RelayMemory`].
const PIPE_SIZE: usize = 256 << 10;
/// With a smaller pipe, splicing is slower than copying.
const MIN_PIPE_SIZE: usize = 64 << 10;
/// The first bytes of a direction are copied: a direction with only a short answer needs no pipe.
const MIN_SPLICED: usize = 64 << 10;
/// How long a hop may be blocked before arriving bytes are copied to memory.
const WRITE_WAIT: std::time::Duration = std::time::Duration::from_millis(10);

/// Lends memory for relayed bytes.
pub trait RelayMemory {
    /// Lends memory for the returned number of bytes, never zero. It is returned with
    /// [`RelayMemory::give_back`].
    fn take(&self) -> usize;
    /// Returns lent memory; `moved` bytes have passed through it.
    fn give_back(&self, lent: usize, moved: usize);
    /// Lends a [`BLOCK`] for bytes that wait for a slow hop, or refuses; `kept` blocks are lent
    /// already. It is returned with [`RelayMemory::return_block`].
    fn lend_block(&self, kept: usize) -> bool;
    /// Returns a block; `moved` bytes have passed through it.
    fn return_block(&self, moved: usize);
    /// Reports that bytes were moved.
    fn progress(&self);
    /// Maximum bytes that the kernel should buffer of the incoming connection, and of the outgoing
    /// one; `None` leaves that to the kernel.
    fn kernel_limit(&self) -> Option<ByteCount>;
    /// The scheduler of the turns.
    fn scheduler(&self) -> &Arc<FairScheduler>;
}

/// How bytes are relayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RelayMode {
    /// In the kernel if possible.
    #[default]
    Splice,
    /// Through memory.
    Copy,
}

/// Relays the bytes of `from` until its end, then ends the stream `to`. While `to` is blocked,
/// `from` is not read.
///
/// # Errors
/// The error of the connection that failed.
pub async fn pump(
    from: &TcpStream,
    to: &TcpStream,
    way: RelayMode,
    room: &impl RelayMemory,
) -> io::Result<()> {
    let mut store = Store::new(room);
    let mut turn = Turn::begin(from, to, room);
    let few = if way == RelayMode::Splice { MIN_SPLICED } else { usize::MAX };
    let mut ended = copy(&mut turn, &mut store, few).await?;
    if !ended && way == RelayMode::Splice {
        ended = splice(&mut turn, &mut store).await?;
    }
    if !ended {
        copy(&mut turn, &mut store, usize::MAX).await?;
    }
    match SockRef::from(to).shutdown(Shutdown::Write) {
        // The other end has already closed, after reading everything.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        done => done,
    }
}

/// Makes the connection end with a reset, which is not the end of a stream.
pub fn cut(socket: &TcpStream) {
    // Without this option only the reason of the end is lost.
    let _ = SockRef::from(socket).set_linger(Some(std::time::Duration::ZERO));
}

/// Lent memory, which is returned on drop.
struct Loan<'a, R: RelayMemory> {
    room: &'a R,
    lent: usize,
    moved: usize,
}

impl<'a, R: RelayMemory> Loan<'a, R> {
    fn new(room: &'a R) -> Self {
        Self { room, lent: room.take().max(1), moved: 0 }
    }
}

impl<R: RelayMemory> Drop for Loan<'_, R> {
    fn drop(&mut self) {
        self.room.give_back(self.lent, self.moved);
    }
}

/// Relays in the kernel until the end; false if the kernel cannot splice these two connections.
///
/// The pipe is filled only while it is empty, so `WouldBlock` means that no data has arrived, never
/// that the pipe is full.
async fn splice<R: RelayMemory>(
    turn: &mut Turn<'_, R>,
    store: &mut Store<'_, R>,
) -> io::Result<bool> {
    let ((from, to), room) = (turn.ends, turn.room);
    let Some((pipe_out, pipe_in)) = pipe() else { return Ok(false) };
    let mut begun = false;
    loop {
        turn.until(from.readable()).await?;
        let loan = Loan::new(room);
        let got = from
            .try_io(Interest::READABLE, || sys::splice(from.as_fd(), pipe_in.as_fd(), loan.lent));
        let held = match got {
            Ok(0) => return Ok(true),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) if !begun && is_missing(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        begun = true;
        let put = |moved: usize| {
            let left = held - moved;
            to.try_io(Interest::WRITABLE, || sys::splice(pipe_out.as_fd(), to.as_fd(), left))
        };
        if push((held, put), loan, store, turn).await? {
            return Ok(true);
        }
    }
}

/// The turns of one direction.
struct Turn<'a, R: RelayMemory> {
    ends: (&'a TcpStream, &'a TcpStream),
    room: &'a R,
    moved: usize,
    kernel_buffers: KernelBuffers,
    share: Share,
}

impl<'a, R: RelayMemory> Turn<'a, R> {
    fn begin(from: &'a TcpStream, to: &'a TcpStream, room: &'a R) -> Self {
        let kernel_buffers = KernelBuffers::begin(from, to, room);
        Self {
            ends: (from, to),
            room,
            moved: 0,
            kernel_buffers,
            share: Share::new(room.scheduler()),
        }
    }

    /// Lets other directions have their turn.
    async fn pause(&mut self, moved: usize) {
        self.room.progress();
        self.kernel_buffers.moved(moved, self.ends.0, self.ends.1, self.room);
        self.share.moved(moved);
        self.moved += moved;
        if self.moved >= TURN {
            self.moved = 0;
            tokio::task::yield_now().await;
            self.share.enter().await;
        }
    }

    /// Waits for readiness, and gives up the turn meanwhile.
    async fn until<T>(&mut self, ready: impl Future<Output = T>) -> T {
        tokio::pin!(ready);
        let now = tokio::select! {
            biased;
            out = &mut ready => Some(out),
            () = std::future::ready(()) => None,
        };
        if let Some(out) = now {
            return out;
        }
        self.share.leave();
        let out = ready.await;
        self.share.enter().await;
        out
    }
}

/// Writes `held` bytes with `put`, which returns how many it wrote. If that takes long, arriving
/// bytes are stored, and written too. Returns whether the input has ended.
async fn push<R: RelayMemory>(
    (held, mut put): (usize, impl FnMut(usize) -> io::Result<usize>),
    loan: Loan<'_, R>,
    store: &mut Store<'_, R>,
    turn: &mut Turn<'_, R>,
) -> io::Result<bool> {
    let (from, to) = turn.ends;
    let (mut loan, mut ended) = (Some(loan), false);
    let mut patient = true;
    loop {
        let written = match &mut loan {
            Some(loan) => put(loan.moved).inspect(|put| loan.moved += put),
            None if store.is_empty() => break,
            None => store.write(to),
        };
        match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                loan.take_if(|loan| loan.moved >= held);
                turn.pause(written).await;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if patient {
            // Mostly the connection is writable at once, and then nothing is copied.
            match turn.until(tokio::time::timeout(WRITE_WAIT, to.writable())).await {
                Ok(writable) => writable?,
                Err(_) => patient = false,
            }
            continue;
        }
        match if ended { Ok(ReadResult::Full) } else { store.read(from) } {
            Ok(ReadResult::Bytes(read)) => turn.pause(read).await,
            Ok(ReadResult::Ended) => ended = true,
            Ok(ReadResult::Full) => turn.until(to.writable()).await?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let either = async {
                    tokio::select! {
                        writable = to.writable() => writable,
                        readable = from.readable() => readable,
                    }
                };
                turn.until(either).await?;
            }
            Err(error) => return Err(error),
        }
    }
    store.rest();
    Ok(ended)
}

/// Whether an error means that the kernel cannot splice here.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)
    )
}

/// A pipe of useful size, if available. A user has a limit for the memory in pipes, and beyond it
/// gets pipes of two pages (pipe(7)).
fn pipe() -> Option<(OwnedFd, OwnedFd)> {
    let ends = sys::pipe().ok()?;
    let size = sys::set_pipe_size(ends.1.as_fd(), PIPE_SIZE);
    let size = size.or_else(|_| sys::pipe_size(ends.1.as_fd())).ok()?;
    (size >= MIN_PIPE_SIZE).then_some(ends)
}

/// Relays through memory, about `most` bytes; returns whether the input has ended.
async fn copy<R: RelayMemory>(
    turn: &mut Turn<'_, R>,
    store: &mut Store<'_, R>,
    most: usize,
) -> io::Result<bool> {
    let ((from, to), room) = (turn.ends, turn.room);
    let (mut buffer, mut copied) = (Vec::new(), 0);
    while copied < most {
        turn.until(from.readable()).await?;
        let loan = Loan::new(room);
        if buffer.len() != loan.lent {
            buffer = vec![0; loan.lent];
        }
        let got = match from.try_read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // An idle direction keeps no memory.
                buffer = Vec::new();
                continue;
            }
            Err(error) => return Err(error),
        };
        let put = |moved: usize| to.try_write(&buffer[moved..got]);
        copied += got;
        if push((got, put), loan, store, turn).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
