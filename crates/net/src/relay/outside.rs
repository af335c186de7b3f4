//! What the kernel holds of bytes on their way, beside what this process does.

use packtrain_units::ByteCount;
use tokio::net::TcpStream;

use super::Room;
use crate::tcp::tune;

/// Bytes moved before the kernel's buffers are looked at again.
const CHECK_BYTES: usize = 1 << 20;

/// Keeps the kernel's buffers of one direction within their part.
///
/// The kernel tunes each connection's buffers for that connection. All together they may be more
/// than it has memory for, and then it throws away what has arrived, whose senders wait for
/// timeouts: two hundred sessions at a time can lose nine tenths of their rate so.
#[derive(Default)]
pub(super) struct Outside {
    moved: usize,
    most: Option<ByteCount>,
    /// The kernel lacks what it takes.
    idle: bool,
}

impl Outside {
    pub(super) fn begin(from: &TcpStream, to: &TcpStream, room: &impl Room) -> Self {
        let mut this = Self::default();
        this.look(from, to, room);
        this
    }

    /// Bytes moved: now and then their room is looked at.
    pub(super) fn moved(
        &mut self,
        bytes: usize,
        from: &TcpStream,
        to: &TcpStream,
        room: &impl Room,
    ) {
        self.moved += bytes;
        if self.moved >= CHECK_BYTES {
            self.moved = 0;
            self.look(from, to, room);
        }
    }

    fn look(&mut self, from: &TcpStream, to: &TcpStream, room: &impl Room) {
        let most = room.outside();
        if self.idle || most.is_none() && self.most.is_none() {
            return;
        }
        // What is in flight is bounded by the path and by the window of whoever takes it.
        if most != self.most {
            let _ = tune::set_notsent_lowat(to, most.unwrap_or(ByteCount(u32::MAX.into())));
            self.most = most;
        }
        let free = ByteCount(i32::MAX as u64);
        self.idle = tune::limit_received(from, most.unwrap_or(free)).is_err();
    }
}
