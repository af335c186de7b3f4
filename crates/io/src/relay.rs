//! Passing a byte stream on from one TCP connection to another, without looking at it: through a
//! pipe in the kernel (`splice(2)`), so that no byte is copied to this process; where the kernel
//! has no such thing for these sockets, through memory.

mod sys;

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Bytes moved before others have their turn.
const TURN: usize = 4 << 20;
/// Room asked for in a pipe. What it holds is bounded by [`Room`], not by this.
const PIPE: usize = 256 << 10;

/// Who lends room for bytes on their way.
pub trait Room {
    /// Lends room for at most that many bytes that are given back with [`Room::give_back`]; never
    /// zero.
    fn take(&self) -> usize;
    /// Takes lent room back, and learns how many bytes have gone through it.
    fn give_back(&self, lent: usize, moved: usize);
}

/// How bytes are passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
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
pub async fn pump(from: &TcpStream, to: &TcpStream, way: Way, room: &impl Room) -> io::Result<()> {
    let ended = match way {
        Way::Splice => splice(from, to, room).await?,
        Way::Copy => None,
    };
    if ended.is_none() {
        copy(from, to, room).await?;
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

/// Passes on within the kernel; none if it does not do that between these two.
///
/// The pipe is filled only while it is empty: that it would block then means that nothing has
/// come, and never that the pipe is full.
async fn splice(from: &TcpStream, to: &TcpStream, room: &impl Room) -> io::Result<Option<()>> {
    let Ok((pipe_out, pipe_in)) = pipe() else { return Ok(None) };
    let (mut begun, mut turn) = (false, 0);
    loop {
        from.readable().await?;
        let mut loan = Loan::new(room);
        let got = from
            .try_io(Interest::READABLE, || sys::splice(from.as_fd(), pipe_in.as_fd(), loan.lent));
        let mut held = match got {
            Ok(0) => return Ok(Some(())),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) if !begun && is_missing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        begun = true;
        while held > 0 {
            let put =
                to.try_io(Interest::WRITABLE, || sys::splice(pipe_out.as_fd(), to.as_fd(), held));
            match put {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(put) => {
                    held -= put;
                    loan.moved += put;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
                Err(error) => return Err(error),
            }
        }
        turn += loan.moved;
        drop(loan);
        if turn >= TURN {
            turn = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Whether an error says that the kernel does not splice here.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)
    )
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let ends = sys::pipe()?;
    // A user has only so much room in pipes: a smaller one does as well.
    let _ = sys::set_pipe_size(ends.1.as_fd(), PIPE);
    Ok(ends)
}

/// Passes on through memory.
async fn copy(from: &TcpStream, to: &TcpStream, room: &impl Room) -> io::Result<()> {
    let mut turn = 0;
    let mut buffer = Vec::new();
    loop {
        from.readable().await?;
        let mut loan = Loan::new(room);
        if buffer.len() != loan.lent {
            buffer = vec![0; loan.lent];
        }
        let got = match from.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Nobody has room for nothing.
                buffer = Vec::new();
                continue;
            }
            Err(error) => return Err(error),
        };
        while loan.moved < got {
            match to.try_write(&buffer[loan.moved..got]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(put) => loan.moved += put,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
                Err(error) => return Err(error),
            }
        }
        turn += got;
        drop(loan);
        if turn >= TURN {
            turn = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests;
