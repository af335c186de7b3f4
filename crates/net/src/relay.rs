//! Passing a byte stream on from one TCP connection to another, without looking at it: through a
//! pipe in the kernel (`splice(2)`), so that no byte is copied to this process; where the kernel
//! has no such thing for these sockets, through memory. While the second is slow, what comes from the first waits in
//! memory as far as there is [`Room`].

mod movers;
mod outside;
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

pub use movers::Movers;
use movers::Share;
use outside::Outside;
pub use store::BLOCK;
use store::{Kept, Store};

/// Bytes moved before others have their turn.
const TURN: usize = 256 << 10;
/// Room asked for in a pipe. What it holds is bounded by [`Room`], not by this.
const PIPE: usize = 256 << 10;
/// A pipe that holds less is slower than memory.
const LEAST_PIPE: usize = 64 << 10;
/// So many bytes of a direction go through memory first: one that only answers needs no pipe.
const FEW: usize = 64 << 10;
/// How long a hop may take nothing before what comes is copied to where it can wait.
const WRITE_WAIT: std::time::Duration = std::time::Duration::from_millis(10);

/// Who lends room for bytes on their way.
pub trait Room {
    /// Lends room for at most that many bytes that are given back with [`Room::give_back`]; never
    /// zero.
    fn take(&self) -> usize;
    /// Takes lent room back, and learns how many bytes have gone through it.
    fn give_back(&self, lent: usize, moved: usize);
    /// Lends a [`BLOCK`] for bytes that wait for a slow hop, beside those that are kept already, or
    /// refuses. It is given back with [`Room::unkeep`].
    fn keep(&self, kept: usize) -> bool;
    /// Takes a block back, and learns how many bytes have gone through it.
    fn unkeep(&self, moved: usize);
    /// Some bytes have gone on.
    fn progress(&self);
    /// The most that the kernel should hold of what has come by one connection, and of what goes
    /// out by the other; none to leave that to the kernel.
    fn outside(&self) -> Option<ByteCount>;
    /// Where turns are taken.
    fn movers(&self) -> &Arc<Movers>;
}

/// How bytes are passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RelayMode {
    /// Within the kernel where it can.
    #[default]
    Splice,
    /// Through memory.
    Copy,
}

/// Passes on what comes from `from` until its end, which is then the end of what goes `to`.
/// While `to` takes nothing, `from` is not read.
///
/// # Errors
/// That of whichever connection broke.
pub async fn pump(
    from: &TcpStream,
    to: &TcpStream,
    way: RelayMode,
    room: &impl Room,
) -> io::Result<()> {
    let mut store = Store::new(room);
    let mut turn = Turn::begin(from, to, room);
    let few = if way == RelayMode::Splice { FEW } else { usize::MAX };
    let mut ended = copy(&mut turn, &mut store, few).await?;
    if !ended && way == RelayMode::Splice {
        ended = splice(&mut turn, &mut store).await?;
    }
    if !ended {
        copy(&mut turn, &mut store, usize::MAX).await?;
    }
    match SockRef::from(to).shutdown(Shutdown::Write) {
        // Gone already, having read all that it wanted.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        done => done,
    }
}

/// Makes the end of this connection an abrupt one, so that nobody takes it for a stream's end.
pub fn cut(socket: &TcpStream) {
    // Nothing is lost where this is refused but the reason of the end.
    let _ = SockRef::from(socket).set_linger(Some(std::time::Duration::ZERO));
}

/// Room that was lent, given back however the work ends.
struct Loan<'a, R: Room> {
    room: &'a R,
    lent: usize,
    moved: usize,
}

impl<'a, R: Room> Loan<'a, R> {
    fn new(room: &'a R) -> Self {
        Self { room, lent: room.take().max(1), moved: 0 }
    }
}

impl<R: Room> Drop for Loan<'_, R> {
    fn drop(&mut self) {
        self.room.give_back(self.lent, self.moved);
    }
}

/// Passes on within the kernel until the end; false if it does not do that between these two.
///
/// The pipe is filled only while it is empty: that it would block then means that nothing has
/// come, and never that the pipe is full.
async fn splice<R: Room>(turn: &mut Turn<'_, R>, store: &mut Store<'_, R>) -> io::Result<bool> {
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

/// What one direction does beside moving bytes.
struct Turn<'a, R: Room> {
    ends: (&'a TcpStream, &'a TcpStream),
    room: &'a R,
    moved: usize,
    outside: Outside,
    share: Share,
}

impl<'a, R: Room> Turn<'a, R> {
    fn begin(from: &'a TcpStream, to: &'a TcpStream, room: &'a R) -> Self {
        let outside = Outside::begin(from, to, room);
        Self { ends: (from, to), room, moved: 0, outside, share: Share::new(room.movers()) }
    }

    /// Lets others have their turn, now and then.
    async fn pause(&mut self, moved: usize) {
        self.room.progress();
        self.outside.moved(moved, self.ends.0, self.ends.1, self.room);
        self.share.moved(moved);
        self.moved += moved;
        if self.moved >= TURN {
            self.moved = 0;
            tokio::task::yield_now().await;
            self.share.enter().await;
        }
    }

    /// Waits for what is not there yet, and meanwhile it is the turn of others.
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

/// Writes `held` bytes, which `put` does, being told how many it has put. When that takes long, what comes
/// meanwhile is stored, and written too. Whether nothing more comes.
async fn push<R: Room>(
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
            // Mostly it goes on at once, and then nothing need be copied.
            match turn.until(tokio::time::timeout(WRITE_WAIT, to.writable())).await {
                Ok(writable) => writable?,
                Err(_) => patient = false,
            }
            continue;
        }
        match if ended { Ok(Kept::Full) } else { store.read(from) } {
            Ok(Kept::Bytes(read)) => turn.pause(read).await,
            Ok(Kept::Ended) => ended = true,
            Ok(Kept::Full) => turn.until(to.writable()).await?,
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

/// Whether an error says that the kernel does not splice here.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)
    )
}

/// A pipe, if one is to be had that is worth it: a user has only so much room in pipes, and who has had
/// it gets two pages (pipe(7)).
fn pipe() -> Option<(OwnedFd, OwnedFd)> {
    let ends = sys::pipe().ok()?;
    let size = sys::set_pipe_size(ends.1.as_fd(), PIPE);
    let size = size.or_else(|_| sys::pipe_size(ends.1.as_fd())).ok()?;
    (size >= LEAST_PIPE).then_some(ends)
}

/// Passes on through memory, about `most` bytes; whether nothing more comes.
async fn copy<R: Room>(
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
                // Nobody has room for nothing.
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
